/* The calls on files: each resolves, has the name judged, and acts on the workspace's writable mount.
 *
 * Trust domain: the notifier. Acts only on (folder, name) pairs that the judge has opened, never on a path, and never
 * through a link that lies there: an entry that exists is opened first and then acted on by its descriptor. No folder's
 * descriptor is ever given to a caller. Calls that make, move or remove entries are served one after another, so that
 * two of them together can't make what neither may make alone; opening what is there is not held up by them.
 */
#include "calls.h"

#include "../shared/mounts.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPEN_FLAGS                                                                                                     \
	(O_ACCMODE | O_APPEND | O_DSYNC | O_SYNC | O_DIRECT | O_NOATIME | O_NONBLOCK | O_LARGEFILE | O_NOCTTY)
#define OPEN_TRIES 8 /* an entry that comes and goes */

static pthread_mutex_t change = PTHREAD_MUTEX_INITIALIZER;

void cb_change_lock(void)
{
	pthread_mutex_lock(&change);
}

void cb_change_unlock(void)
{
	pthread_mutex_unlock(&change);
}

/* New entries get their modes as the caller's umask says. */
static int take_umask(struct cb_request *q)
{
	long mask = cb_caller_status(q, "\nUmask:\t", 8);

	if (mask < 0)
		return -EIO;
	(void)umask((mode_t)mask);
	return 0;
}

static int judge(const struct cb_entry *e, enum cb_act act, mode_t type, int content, struct cb_judged *ret)
{
	int r = cb_judge(&cb_notify_self.judge, e->path, act, type & S_IFMT, content, ret);

	if (r == 0 && !cb_entry_is_meant(e, ret))
		return -EROFS;
	if (r == -EROFS)
		cb_refused_by(CB_REFUSED_NAME, e->path, ret->refused);
	return r;
}

int cb_entry_judge_closed(const struct cb_entry *e, enum cb_act act, struct cb_judged *ret)
{
	int r = judge(e, act, e->st.st_mode, -1, ret);

	return r == -EACCES && S_ISDIR(e->st.st_mode) ? judge(e, act, S_IFREG, -1, ret) : r;
}

/* What the judge says of a link that is to be the entry, or of a folder with links; `target` may be "". */
static int say_leads(const struct cb_entry *e, const char *target, int r)
{
	if (r == -EROFS || r == -EPERM)
		cb_refused_by(r == -EROFS ? CB_REFUSED_NAME : CB_REFUSED_LINK, e->path, target);
	return r;
}

int cb_entry_judge_file(const struct cb_entry *e, const struct stat *st, mode_t bits)
{
	bool set = (st->st_mode & bits) != 0;

	if (!set && (st->st_nlink <= 1 || cb_links_known(st)))
		return 0;
	cb_refused_by(CB_REFUSED_FILE, e->path, set ? "set-uid or set-gid" : "hard links");
	return -EPERM;
}

/* What others put into a folder between the look at it and its move. */
static int judge_moved_folder(const struct cb_entry *to, int content, mode_t type)
{
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	int r = judge(to, CB_ACT_REMOVE, type, -1, &j);

	return r == 0 ? cb_made_look_below(content) : r;
}

/* Whether what was made has the name that was judged: another jail, or a program outside, may have moved the folder
 * meanwhile. Who moves one looks after it has moved, who makes something after that: one of the two sees the other. The
 * folder is what counts: another may have come to lie in it under that name at any moment. */
static bool is_at_its_name(const struct cb_entry *e, const struct cb_judged *j)
{
	char path[sizeof(e->path) + 2];
	CB_AUTO_FD fd = -1;
	struct stat there, meant;

	if (fstatat(j->parent, j->name, &meant, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT; /* it has been removed already */
	snprintf(path, sizeof(path), "./%s", e->path);
	*strrchr(path, '/') = '\0';
	return cb_open_beneath(cb_notify_self.judge.root, path, O_PATH | O_DIRECTORY, &fd) == 0 &&
	       fstat(fd, &there) == 0 && fstat(j->parent, &meant) == 0 && cb_is_same_file(&there, &meant);
}

bool cb_entry_stays(const struct cb_entry *e, const struct cb_judged *j, int fd)
{
	struct stat there, meant;

	return is_at_its_name(e, j) && fstat(fd, &meant) == 0 &&
	       fstatat(j->parent, j->name, &there, AT_SYMLINK_NOFOLLOW) == 0 && cb_is_same_file(&there, &meant);
}

int cb_keep_made(const struct cb_entry *e, const struct cb_judged *j, int flags)
{
	int r = is_at_its_name(e, j) ? cb_judge_made(j) : -ENOENT;

	if (r < 0)
		(void)unlinkat(j->parent, j->name, flags);
	return r;
}

/* ---- open ---- */

/* What was found, and none that got its number since: that would have been written later. */
static bool is_found(const struct cb_entry *e, const struct stat *st)
{
	return cb_is_same_file(st, &e->st) && st->st_mtim.tv_sec == e->st.st_mtim.tv_sec &&
	       st->st_mtim.tv_nsec == e->st.st_mtim.tv_nsec;
}

static int check_file(const struct cb_entry *e, int fd, int flags)
{
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	r = cb_entry_judge_file(e, &st, S_ISUID | S_ISGID);
	if (r < 0 || (flags & O_ACCMODE) == O_RDONLY)
		return r;
	r = cb_made_look(fd, "", &st);
	return r == -CB_TOO_NEW && is_found(e, &st) && cb_made_copied(fd, &e->st) ? 0 : r;
}

/* Without waiting: a caller that may wait until a lease of somebody outside is broken comes again. */
static int open_there(const struct cb_entry *e, const struct cb_judged *j, int flags, int *ret_fd)
{
	CB_AUTO_FD fd = openat(j->parent, j->name, flags | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	bool leased = fd < 0 && errno == EWOULDBLOCK && (flags & O_NONBLOCK) == 0;
	int r = leased ? -CB_TOO_NEW : fd < 0 ? -errno : check_file(e, fd, flags);

	if (r == 0 && (flags & O_NONBLOCK) == 0 && fcntl(fd, F_SETFL, flags & ~O_ACCMODE) < 0)
		r = -errno;
	if (r < 0)
		return r;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

/* The truncation comes after the look. Of a file that is opened for reading it takes a descriptor of its own. */
static int truncate_there(const struct cb_entry *e, const struct cb_judged *j, int fd, int flags)
{
	CB_AUTO_FD writable = -1;
	int r = 0;

	if ((flags & O_ACCMODE) == O_RDONLY) {
		r = open_there(e, j, O_WRONLY, &writable);
		fd = writable;
	}
	if (r == 0 && ftruncate(fd, 0) < 0)
		r = -errno;
	return r;
}

static int open_new(struct cb_request *q, const struct cb_entry *e, int flags, mode_t mode, int *ret_fd)
{
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	CB_AUTO_FD fd = -1;
	int r;

	cb_change_lock();
	r = judge(e, CB_ACT_MAKE, S_IFREG, -1, &j);
	if (r == 0 && j.part != CB_GIT_LOCK)
		r = cb_git_make(&j);
	if (r == 0)
		r = take_umask(q);
	if (r == 0) {
		fd = openat(j.parent, j.name, (flags & OPEN_FLAGS) | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			    cb_git_mode_of(&j, mode & 0777));
		r = fd < 0 ? -errno : cb_keep_made(e, &j, 0);
		if (r == 0)
			r = cb_git_made(&j, fd);
		if (r == 0)
			cb_made_note(fd, "");
		if (r == 0) {
			*ret_fd = cb_fd_take(&fd);
			q->made_in = cb_fd_take(&j.parent);
			snprintf(q->made, sizeof(q->made), "%s", j.name);
		}
	}
	cb_change_unlock();
	return r;
}

/* The caller has no room for its descriptor: then it has made nothing. */
void cb_unmake(const struct cb_request *q)
{
	struct stat st, made;

	if (q->made_in < 0)
		return;
	cb_change_lock();
	if (fstat(q->fd, &made) == 0 && fstatat(q->made_in, q->made, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    cb_is_same_file(&st, &made) && unlinkat(q->made_in, q->made, 0) == 0)
		cb_links_removed(&made);
	cb_change_unlock();
}

static int open_old(const struct cb_entry *e, int flags, int *ret_fd)
{
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	CB_AUTO_FD fd = -1;
	int r = judge(e, CB_ACT_CHANGE, e->st.st_mode, -1, &j);

	/* before it is opened, which programs outside may notice */
	if (r == 0 && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0))
		r = cb_made_look(j.parent, j.name, &e->st);
	if (r == 0)
		r = open_there(e, &j, flags & OPEN_FLAGS, &fd);
	if (r == 0)
		r = cb_git_open(&j, fd, flags);
	if (r == 0 && (flags & O_TRUNC) != 0)
		r = truncate_there(e, &j, fd, flags);
	if (r < 0)
		return r;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

/* Pipes, sockets, and folders: no mount stands before these, or there is no writing them. What is there and opened for
 * reading alone gets a descriptor of the read-only mount, also with O_CREAT: by one of the writable mount it could be
 * opened again for writing (/proc/self/fd), and nobody would judge that. */
static bool is_kernels(const struct cb_entry *e, int flags)
{
	if (!e->there)
		return (flags & O_CREAT) == 0 || e->folder_meant;
	if ((flags & (O_ACCMODE | O_TRUNC)) == O_RDONLY)
		return true;
	return !S_ISREG(e->st.st_mode) || e->folder_meant || (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
}

/* A FIFO that is opened for writing: the kernel does it, and looks at no name. So who changes the string, or the way,
 * meanwhile gets past this. */
static int judge_fifo(const struct cb_entry *e, int flags)
{
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;

	if (!e->there || !S_ISFIFO(e->st.st_mode) || (flags & O_ACCMODE) == O_RDONLY ||
	    (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
		return 0;
	return judge(e, CB_ACT_CHANGE, S_IFIFO, -1, &j);
}

void cb_serve_open(struct cb_request *q)
{
	int flags = q->call->a != CB_NO_ARG ? cb_arg_int(q, q->call->a) : O_CREAT | O_WRONLY | O_TRUNC;
	mode_t mode = (mode_t)cb_arg_int(q, q->call->b);
	bool follow = (flags & O_NOFOLLOW) == 0 && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
	bool nameless = (flags & O_TMPFILE) == O_TMPFILE && (flags & O_ACCMODE) != O_RDONLY;
	unsigned how = (follow ? CB_FIND_FOLLOW : 0) | (nameless ? CB_FIND_SELF : 0);
	int r = -EAGAIN;

	if ((flags & O_PATH) != 0 || ((flags & O_DIRECTORY) != 0 && !nameless)) { /* writes nothing */
		q->go_on = true;
		return;
	}
	for (int i = 0; i < OPEN_TRIES; i++) {
		CB_AUTO_ENTRY e = CB_ENTRY_NONE;

		if (!cb_entry_find(q, q->call->at, q->call->path, how, &e)) {
			q->go_on = true;
			return;
		}
		if (nameless && e.there && S_ISDIR(e.st.st_mode)) { /* a name for it later could not be judged */
			q->error = EOPNOTSUPP;
			return;
		}
		if (nameless || is_kernels(&e, flags)) {
			r = judge_fifo(&e, flags);
			q->go_on = r == 0;
			cb_request_done(q, r);
			return;
		}
		q->empty = e.there && (flags & O_TRUNC) != 0 && (flags & O_ACCMODE) != O_RDONLY;
		r = e.there ? open_old(&e, q->empty ? flags & ~O_TRUNC : flags, &q->fd)
			    : open_new(q, &e, flags, mode, &q->fd);
		/* it came, it went, or it is a link now: whatever is there now counts */
		if (e.there ? r != -ENOENT && r != -ELOOP : r != -EEXIST)
			break;
	}
	cb_request_done(q, r);
	q->cloexec = (flags & O_CLOEXEC) != 0;
}

void cb_serve_truncate(struct cb_request *q)
{
	off_t length = (off_t)q->n->data.args[q->call->a];
	CB_AUTO_ENTRY e = CB_ENTRY_NONE;
	CB_AUTO_FD fd = -1;
	int r;

	if (length < 0) {
		q->error = EINVAL;
		return;
	}
	if (!cb_entry_find_there(q, CB_FIND_FOLLOW, &e))
		return;
	if (!S_ISREG(e.st.st_mode)) {
		q->error = S_ISDIR(e.st.st_mode) ? EISDIR : EINVAL;
		return;
	}
	r = open_old(&e, O_WRONLY, &fd);
	if (r == 0 && ftruncate(fd, length) < 0)
		r = -errno;
	cb_request_done(q, r);
}

/* ---- making ---- */

/* What is there already is what a caller should hear of first, as of a file system that is read-only. */
static bool find_free(struct cb_request *q, int at, int path, bool folder, struct cb_entry *ret)
{
	if (!cb_entry_find(q, at, path, CB_FIND_ENTRY, ret)) {
		q->go_on = true;
		return false;
	}
	if (ret->there)
		q->error = EEXIST;
	else if (ret->folder_meant && !folder)
		q->error = ENOENT;
	return q->error == 0;
}

/* As judge_mode() of attributes.c has it; the umask is set. */
static int make_folder(const struct cb_judged *j, mode_t mode)
{
	mode = cb_git_mode_of(j, mode);
	if (j->about_git && cb_git_is_named(j->name, -1)) {
		mode = (mode & ~(mode_t)022) | 0700;
		(void)umask(umask(0) & ~(mode_t)0700); /* the next call that needs one sets it */
	}
	return mkdirat(j->parent, j->name, mode) < 0 ? -errno : 0;
}

void cb_serve_mkdir(struct cb_request *q)
{
	CB_AUTO_ENTRY e = CB_ENTRY_NONE;
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	int r;

	if (!find_free(q, q->call->at, q->call->path, true, &e))
		return;
	cb_change_lock();
	r = judge(&e, CB_ACT_MAKE, S_IFDIR, -1, &j);
	if (r == 0)
		r = take_umask(q);
	if (r == 0)
		r = make_folder(&j, (mode_t)cb_arg_int(q, q->call->a) & 01777);
	if (r == 0)
		r = cb_keep_made(&e, &j, AT_REMOVEDIR);
	cb_change_unlock();
	cb_request_done(q, r);
}

void cb_serve_mknod(struct cb_request *q)
{
	mode_t mode = (mode_t)cb_arg_int(q, q->call->a);
	CB_AUTO_ENTRY e = CB_ENTRY_NONE;
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	int r;

	if ((mode & S_IFMT) == 0)
		mode |= S_IFREG;
	/* the big filter has refused devices */
	if (!S_ISREG(mode) && !S_ISFIFO(mode) && !S_ISSOCK(mode)) {
		q->error = EPERM;
		return;
	}
	if (!find_free(q, q->call->at, q->call->path, false, &e))
		return;
	cb_change_lock();
	r = judge(&e, CB_ACT_MAKE, mode, -1, &j);
	if (r == 0)
		r = cb_git_make(&j);
	if (r == 0)
		r = take_umask(q);
	if (r == 0 && mknodat(j.parent, j.name, cb_git_mode_of(&j, mode & (S_IFMT | 0777)), 0) < 0)
		r = -errno;
	else if (r == 0)
		r = cb_keep_made(&e, &j, 0);
	if (r == 0)
		cb_made_note(j.parent, j.name);
	cb_change_unlock();
	cb_request_done(q, r);
}

void cb_serve_symlink(struct cb_request *q)
{
	CB_AUTO_ENTRY e = CB_ENTRY_NONE;
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	char target[PATH_MAX];
	int r = cb_caller_string(q, q->n->data.args[q->call->a], target, sizeof(target));

	if (r == 0 && target[0] == '\0')
		r = -ENOENT;
	if (r < 0) {
		cb_request_done(q, r);
		return;
	}
	if (!find_free(q, q->call->at, q->call->path, false, &e))
		return;
	cb_change_lock();
	r = judge(&e, CB_ACT_MAKE, S_IFLNK, -1, &j);
	if (r == 0)
		r = say_leads(&e, target, cb_judge_target(&cb_notify_self.judge, e.path, target));
	if (r == 0 && symlinkat(target, j.parent, j.name) < 0)
		r = -errno;
	else if (r == 0)
		r = cb_keep_made(&e, &j, 0);
	if (r == 0)
		cb_made_note(j.parent, j.name);
	cb_change_unlock();
	cb_request_done(q, r);
}

/* link() knows no flags: the fifth argument is linkat's alone. */
static int link_flags(const struct cb_request *q)
{
	return q->call->nr == SYS_linkat ? cb_arg_int(q, 4) : 0;
}

static int add_link(const struct cb_entry *from, const struct cb_entry *to, const struct cb_judged *old,
		    const struct cb_judged *new)
{
	CB_AUTO_FD content = openat(old->parent, old->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char self[32];
	struct stat st;
	int r;

	if (content < 0 || fstat(content, &st) < 0)
		return -errno;
	if (((st.st_mode ^ from->st.st_mode) & S_IFMT) != 0)
		return -EBUSY; /* others have exchanged what was judged */
	r = S_ISREG(st.st_mode) ? cb_entry_judge_file(from, &st, 0) : 0;
	if (r == 0)
		r = cb_made_look(content, "", &st);
	if (r == 0 && S_ISLNK(st.st_mode))
		r = say_leads(to, "", cb_judge_link_text(&cb_notify_self.judge, to->path, content, ""));
	/* by its descriptor: another jail may have put something else there meanwhile */
	snprintf(self, sizeof(self), "self/fd/%d", content);
	if (r == 0 && linkat(cb_notify_self.proc, self, new->parent, new->name, AT_SYMLINK_FOLLOW) < 0)
		r = -errno;
	if (r == 0) {
		cb_made_copied(content, &st);
		r = cb_keep_made(to, new, 0);
	}
	if (r < 0)
		return r;
	r = S_ISREG(st.st_mode) ? cb_links_added(&st, from->path, to->path) : 0;
	if (r < 0)
		(void)unlinkat(new->parent, new->name, 0);
	return r;
}

void cb_serve_link(struct cb_request *q)
{
	int at = q->call->at == CB_NO_ARG ? CB_NO_ARG : q->call->a;
	CB_AUTO_ENTRY from = CB_ENTRY_NONE;
	CB_AUTO_ENTRY to = CB_ENTRY_NONE;
	CB_AUTO_JUDGED old = CB_JUDGED_NONE;
	CB_AUTO_JUDGED new = CB_JUDGED_NONE;
	unsigned how = CB_FIND_SELF | ((link_flags(q) & AT_SYMLINK_FOLLOW) != 0 ? CB_FIND_FOLLOW : 0);
	bool found;
	int r;

	if ((link_flags(q) & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH)) != 0) {
		q->error = EINVAL;
		return;
	}
	found = cb_entry_find(q, q->call->at, q->call->path, how, &from);
	if (!from.there || (from.folder_meant && !S_ISDIR(from.st.st_mode))) {
		q->go_on = true;
		return;
	}
	if (!find_free(q, at, q->call->b, false, &to))
		return;
	if (!found || S_ISDIR(from.st.st_mode)) {
		q->error = found ? EPERM : EXDEV; /* it lies elsewhere */
		return;
	}
	cb_change_lock();
	r = cb_judge_link(&cb_notify_self.judge, from.path, to.path, from.st.st_mode & S_IFMT, &old, &new);
	if (r == -EROFS)
		cb_refused_by(CB_REFUSED_NAME, new.refused[0] != '\0' ? to.path : from.path,
			      new.refused[0] != '\0' ? new.refused : old.refused);
	if (r == 0 && !(cb_entry_is_meant(&from, &old) && cb_entry_is_meant(&to, &new)))
		r = -EROFS;
	if (r == 0)
		r = cb_git_make(&old);
	if (r == 0)
		r = cb_git_make(&new);
	if (r == 0)
		r = add_link(&from, &to, &old, &new);
	cb_change_unlock();
	cb_request_done(q, r);
}

/* ---- removing and moving ---- */

static void remove_entry(struct cb_request *q, int flags)
{
	CB_AUTO_ENTRY e = CB_ENTRY_NONE;
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	struct stat st;
	int r;

	if (!cb_entry_find(q, q->call->at, q->call->path, CB_FIND_ENTRY, &e) || (flags & ~AT_REMOVEDIR) != 0) {
		q->instead = (flags & ~AT_REMOVEDIR) == 0 ? q->instead : 0;
		q->go_on = true;
		return;
	}
	if (!e.there) {
		q->error = ENOENT; /* a mount that is read-only would be named first */
		return;
	}
	if (!S_ISDIR(e.st.st_mode) != (flags == 0) || (e.folder_meant && flags == 0)) {
		q->error = S_ISDIR(e.st.st_mode) ? EISDIR : ENOTDIR;
		return;
	}
	cb_change_lock();
	r = cb_entry_judge_closed(&e, CB_ACT_REMOVE, &j); /* what is removed as a folder is empty */
	if (r == 0 && fstatat(j.parent, j.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (r == 0)
		r = cb_made_look(j.parent, j.name, &st);
	if (r == 0)
		r = cb_git_remove(&j, &st);
	if (r == 0 && unlinkat(j.parent, j.name, flags) < 0)
		r = -errno;
	if (r == 0 && flags == 0)
		cb_links_removed(&st);
	cb_change_unlock();
	cb_request_done(q, r);
}

void cb_serve_unlink(struct cb_request *q)
{
	remove_entry(q, 0);
}

void cb_serve_rmdir(struct cb_request *q)
{
	remove_entry(q, AT_REMOVEDIR);
}

void cb_serve_unlinkat(struct cb_request *q)
{
	remove_entry(q, cb_arg_int(q, q->call->a));
}

static size_t depth_of(const struct cb_entry *e)
{
	size_t n = 0;

	for (const char *c = e->path; *c != '\0'; c++)
		n += *c == '/';
	return n;
}

static int judge_content(const struct cb_entry *to, int content, mode_t type)
{
	int r = 0;

	if (S_ISDIR(type))
		r = cb_judge_moved(&cb_notify_self.judge, content, to->path);
	else if (S_ISLNK(type))
		r = cb_judge_link_text(&cb_notify_self.judge, to->path, content, "");
	return say_leads(to, "", r);
}

/* Where others hold its old name by now it gets one of its own there; a file goes. */
static int take_back(const struct cb_judged *old, const struct cb_judged *new, bool folder, int why)
{
	char name[64];

	if (renameat(new->parent, new->name, old->parent, old->name) == 0)
		return why;
	snprintf(name, sizeof(name), "cellblock-moved-%lld", (long long)cb_now_ns());
	if (!folder)
		(void)unlinkat(new->parent, new->name, 0);
	else
		(void)renameat(new->parent, new->name, old->parent, name);
	return why;
}

/* Others have put it there: in the place of what was judged before that was moved, or afterwards, as who saves a file
 * does. So it is judged as it lies there. */
static int judge_others(const struct cb_entry *to, const struct cb_judged *old, const struct cb_judged *new)
{
	CB_AUTO_FD content = openat(new->parent, new->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	struct stat st;
	int r;

	if (content < 0 || fstat(content, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	/* by what the folder allows alone: the entry would speak for itself */
	if (!old->in_git && new->in_git && cb_git_mode(new->parent, "", st.st_mode) != st.st_mode)
		return -EROFS;
	r = judge_content(to, content, st.st_mode);
	return r == 0 ? judge(to, CB_ACT_MAKE, st.st_mode, S_ISDIR(st.st_mode) ? content : -1, &j) : r;
}

/* As no name is linked into a git folder or out of it: by the one outside, others could be let in to it. */
static bool parts_names(const struct cb_judged *old, const struct cb_judged *new, const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_nlink > 1 &&
	       (old->git_ino != new->git_ino || old->git_dev != new->git_dev);
}

/* Another jail may have opened it to others between the look at it and its move into a git folder, or given it a name
 * that stays outside. Who sets such a mode looks after that where the file lies: one of the two sees the other. It is
 * closed wherever others have moved it by now. */
static int close_moved(const struct cb_judged *old, const struct cb_judged *new, int content, const struct stat *st)
{
	struct stat now;
	mode_t opened;
	char self[32];

	if (fstat(content, &now) < 0)
		return -errno;
	opened = now.st_mode & ~st->st_mode & 022;
	snprintf(self, sizeof(self), "self/fd/%d", content);
	if (!old->in_git && new->in_git && opened != 0 &&
	    syscall(SYS_fchmodat, cb_notify_self.proc, self, now.st_mode & 01777 & ~opened) < 0)
		return -EROFS;
	return parts_names(old, new, &now) ? -EROFS : 0;
}

/* After the move of `content`, `st`: what others did meanwhile may have made it one that is refused. */
static int judge_after(const struct cb_entry *from, const struct cb_entry *to, const struct cb_judged *old,
		       const struct cb_judged *new, int content, const struct stat *st)
{
	int closed = close_moved(old, new, content, st);
	int r = is_at_its_name(to, new) ? cb_judge_made(new) : -ENOENT;
	struct stat moved;

	if (fstatat(new->parent, new->name, &moved, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno; /* they have taken it already */
	if (!cb_is_same_file(&moved, st)) {
		r = r == 0 ? judge_others(to, old, new) : r;
		return r == 0 ? 0 : take_back(old, new, S_ISDIR(moved.st_mode), -EBUSY);
	}
	if (r == 0 && depth_of(to) < depth_of(from)) /* another jail may have made a link in it meanwhile */
		r = judge_content(to, content, st->st_mode);
	if (r == 0 && S_ISDIR(st->st_mode))
		r = judge_moved_folder(to, content, st->st_mode);
	r = r == 0 ? closed : r;
	return r == 0 ? 0 : take_back(old, new, S_ISDIR(st->st_mode), r);
}

static int move(const struct cb_entry *from, const struct cb_entry *to)
{
	CB_AUTO_JUDGED old = CB_JUDGED_NONE;
	CB_AUTO_JUDGED new = CB_JUDGED_NONE;
	CB_AUTO_FD content = -1;
	struct stat st, gone;
	bool replaces;
	int r = judge(from, CB_ACT_REMOVE, from->st.st_mode, -1, &old);

	if (r < 0)
		return r;
	content = openat(old.parent, old.name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (content < 0 || fstat(content, &st) < 0)
		return -errno;
	r = cb_made_look(content, "", &st);
	if (r == 0)
		r = judge_content(to, content, st.st_mode);
	if (r == 0)
		r = judge(to, CB_ACT_MAKE, st.st_mode, S_ISDIR(st.st_mode) ? content : -1, &new);
	if (r == 0 && S_ISDIR(st.st_mode))
		r = cb_made_look_below(content);
	if (r == 0)
		r = cb_git_move(&old, &new, &st);
	if (r != 0)
		return r < 0 ? r : 0;
	if ((!old.in_git && cb_git_mode_of(&new, st.st_mode) != st.st_mode) || parts_names(&old, &new, &st))
		return -EROFS;
	replaces = fstatat(new.parent, new.name, &gone, AT_SYMLINK_NOFOLLOW) == 0;
	r = replaces ? cb_made_look(new.parent, new.name, &gone) : 0;
	if (r < 0)
		return r;
	if (renameat(old.parent, old.name, new.parent, new.name) < 0)
		return -errno;
	cb_made_copied(content, &st);
	r = judge_after(from, to, &old, &new, content, &st);
	if (r < 0)
		return r;
	cb_links_renamed(&st, to->path);
	if (replaces && !cb_is_same_file(&gone, &st) && !S_ISDIR(gone.st_mode))
		cb_links_removed(&gone);
	return 0;
}

void cb_serve_rename(struct cb_request *q)
{
	int at = q->call->at == CB_NO_ARG ? CB_NO_ARG : q->call->a;
	CB_AUTO_ENTRY from = CB_ENTRY_NONE;
	CB_AUTO_ENTRY to = CB_ENTRY_NONE;

	/* the kernel looks for both folders before it looks for either name */
	q->go_on = (!cb_entry_find(q, q->call->at, q->call->path, CB_FIND_ENTRY, &from) && from.instead == 0) ||
		   (!cb_entry_find(q, at, q->call->b, CB_FIND_ENTRY, &to) && to.instead == 0);
	if (q->go_on) {
		q->instead = 0;
		return;
	}
	if (!from.there)
		q->error = from.instead != 0 ? from.instead : ENOENT;
	else if (to.instead != 0)
		q->error = to.instead;
	else if ((from.folder_meant || to.folder_meant) && !S_ISDIR(from.st.st_mode))
		q->error = ENOTDIR;
	if (q->error != 0)
		return;
	cb_change_lock();
	cb_request_done(q, move(&from, &to));
	cb_change_unlock();
}
