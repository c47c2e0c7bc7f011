/* The calls on a file's attributes: each resolves, has the name judged, and acts on the entry's own descriptor.
 *
 * Trust domain: the notifier. Nothing is acted on by a path, and never through a link that lies there.
 */
#include "calls.h"

#include "../shared/mounts.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What leads to a descriptor, from /proc. */
static void name_link(int fd, char link[32])
{
	snprintf(link, 32, "self/fd/%d", fd);
}

/* Opens the entry itself for an act by descriptor; `link` is what leads to it, `st` what it is before that act. */
static int open_entry(const struct cb_entry *e, struct cb_judged *ret_judged, int *ret_fd, char link[32],
		      struct stat *ret_st)
{
	struct stat st;
	int fd, r = cb_entry_judge_closed(e, CB_ACT_CHANGE, ret_judged);

	if (r < 0)
		return r;
	fd = openat(ret_judged->parent, e->path[0] != '\0' ? ret_judged->name : ".", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	*ret_fd = fd;
	*ret_st = st;
	name_link(fd, link);
	if (e->itself && !cb_is_same_file(&st, &e->st))
		return -ESTALE; /* by now another lies where the one that is meant had been found */
	/* of a file with names elsewhere the attributes are elsewhere, too */
	return S_ISREG(st.st_mode) ? cb_entry_judge_file(e, &st, 0) : 0;
}

bool cb_entry_find_there(struct cb_request *q, unsigned flags, struct cb_entry *ret)
{
	bool found = q->call->path == CB_NO_ARG
			     ? cb_entry_of_fd(q, cb_arg_int(q, q->call->at), flags, ret)
			     : cb_entry_find(q, q->call->at, q->call->path, CB_FIND_SELF | flags, ret);

	q->go_on = !found || !ret->there || (ret->folder_meant && !S_ISDIR(ret->st.st_mode));
	return !q->go_on;
}

/* Of what is not there, or lies elsewhere, the kernel knows. Our own rights to files are the caller's. */
void cb_serve_access(struct cb_request *q)
{
	int flags = q->call->b != CB_NO_ARG ? cb_arg_int(q, q->call->b) : 0;
	CB_AUTO_ENTRY e = CB_ENTRY_NONE;
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	CB_AUTO_FD fd = -1;
	struct stat st;
	char link[32];
	int r;

	if (!cb_entry_find_there(q, (flags & AT_SYMLINK_NOFOLLOW) == 0 ? CB_FIND_FOLLOW : 0, &e))
		return;
	r = open_entry(&e, &j, &fd, link, &st);
	if (r == 0 && faccessat(cb_notify_self.proc, link, cb_arg_int(q, q->call->a) & 7, 0) < 0)
		r = -errno;
	cb_request_done(q, r);
}

/* Also a bare one, a submodule's or a worktree's; one that can't be looked into may be one. */
static bool is_git_folder(const struct cb_judged *j, int fd)
{
	return cb_git_is_named(j->name, fd) || cb_git_is_folder((const int[2]){ fd, -1 }) != 0;
}

/* By its mode the workspace, or a git folder, would be opened to other users, or closed to this one; or what is in a
 * git folder would be opened. Looked at is what is acted on. */
static int judge_mode(const struct cb_entry *e, const struct cb_judged *j, int fd, mode_t mode)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (cb_git_mode_of(j, mode) != mode)
		return -EROFS;
	if (!S_ISDIR(st.st_mode) || mode == (st.st_mode & 01777) || ((mode & 022) == 0 && (mode & 0700) == 0700))
		return 0;
	return e->path[0] == '\0' || (j->about_git && is_git_folder(j, fd)) ? -EROFS : 0;
}

static int set_mode(const char *link, mode_t mode)
{
	return syscall(SYS_fchmodat, cb_notify_self.proc, link, mode) < 0 ? -errno : 0;
}

/* A mode by which others may write, of what is not found in the workspace, is not left to the kernel. By then a thread
 * may have exchanged the string, or the descriptor, for that of a file that was opened here, before which no mount
 * stands. So it is set on what is looked at. If that is such a file, or may be one that another jail has handed over,
 * its name was not found: it has none any more, or the mode is refused. */
static int set_mode_elsewhere(struct cb_request *q, const struct cb_entry *e, mode_t mode)
{
	CB_AUTO_FD fd = -1;
	struct stat st;
	char link[32];
	int r = cb_caller_meant(q, e, &fd);

	if (r < 0)
		return r == -ESRCH ? -EROFS : r; /* it can't be looked at */
	if (fstat(fd, &st) < 0)
		return -errno;
	if (cb_is_served(q, fd) && st.st_nlink > 0)
		return -EROFS;
	name_link(fd, link);
	return set_mode(link, mode);
}

/* Another jail may have moved it into a git folder between the look at it and this. Who moves one there looks at its
 * mode after that: one of the two sees the other. Then the call is done again, with what its name means by then. */
static int look_again(const struct cb_entry *e, const struct cb_judged *j, int fd, const char *link, mode_t mode)
{
	if ((mode & 022) == 0 || j->in_git || e->path[0] == '\0' || cb_entry_stays(e, j, fd))
		return 0;
	(void)set_mode(link, mode & ~(mode_t)022); /* not what it was before: who has moved it may have closed it */
	return -CB_TOO_NEW;
}

void cb_serve_chmod(struct cb_request *q)
{
	mode_t mode = (mode_t)cb_arg_int(q, q->call->a) & 01777;
	CB_AUTO_ENTRY e = CB_ENTRY_NONE;
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	CB_AUTO_FD fd = -1;
	struct stat st;
	char link[32];
	int r;

	if (!cb_entry_find_there(q, CB_FIND_FOLLOW | CB_FIND_WRITABLE, &e)) {
		q->go_on = (mode & 022) == 0 || q->instead != 0 || !cb_judge_about_git(&cb_notify_self.judge);
		if (!q->go_on)
			cb_request_done(q, set_mode_elsewhere(q, &e, mode));
		return;
	}
	cb_change_lock(); /* nobody moves it into a git folder meanwhile */
	r = open_entry(&e, &j, &fd, link, &st);
	if (r == 0)
		r = judge_mode(&e, &j, fd, mode);
	if (r == 0)
		r = cb_made_look(fd, "", &st);
	if (r == 0)
		r = set_mode(link, mode);
	if (r == 0)
		cb_made_copied(fd, &st);
	if (r == 0)
		r = look_again(&e, &j, fd, link, mode);
	cb_change_unlock();
	cb_request_done(q, r);
}

static void change_owner(struct cb_request *q, unsigned how)
{
	CB_AUTO_ENTRY e = CB_ENTRY_NONE;
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	CB_AUTO_FD fd = -1;
	struct stat st;
	char link[32];
	int r;

	if (!cb_entry_find_there(q, how, &e))
		return;
	r = open_entry(&e, &j, &fd, link, &st);
	if (r == 0)
		r = cb_made_look(fd, "", &st);
	/* the numbers mean the same: the notifier is in the jail's user namespace */
	if (r == 0 && fchownat(fd, "", (uid_t)q->n->data.args[q->call->a], (gid_t)q->n->data.args[q->call->a + 1],
			       AT_EMPTY_PATH) < 0)
		r = -errno;
	if (r == 0)
		cb_made_copied(fd, &st);
	cb_request_done(q, r);
}

void cb_serve_chown(struct cb_request *q)
{
	int flags = q->call->b != CB_NO_ARG ? cb_arg_int(q, q->call->b) : 0;

	if ((flags & ~AT_SYMLINK_NOFOLLOW) != 0)
		q->go_on = true;
	else
		change_owner(q, flags == 0 ? CB_FIND_FOLLOW : 0);
}

void cb_serve_lchown(struct cb_request *q)
{
	change_owner(q, 0);
}

void cb_serve_utimens(struct cb_request *q)
{
	uint64_t at = q->n->data.args[q->call->a], path = q->n->data.args[q->call->path];
	int flags = cb_arg_int(q, q->call->b);
	unsigned how = (flags & AT_SYMLINK_NOFOLLOW) == 0 ? CB_FIND_FOLLOW : 0;
	CB_AUTO_ENTRY e = CB_ENTRY_NONE;
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	CB_AUTO_FD fd = -1;
	struct timespec times[2];
	struct stat st;
	char link[32];
	int r;

	if (path == 0 ? !cb_entry_of_fd(q, cb_arg_int(q, q->call->at), 0, &e)
		      : (flags & ~AT_SYMLINK_NOFOLLOW) != 0 || !cb_entry_find_there(q, how, &e)) {
		q->go_on = true;
		return;
	}
	r = at == 0 || cb_caller_read(q, at, times, sizeof(times)) == (ssize_t)sizeof(times) ? 0 : -EFAULT;
	if (r == 0)
		r = open_entry(&e, &j, &fd, link, &st);
	/* by its descriptor, also of a link */
	if (r == 0 && S_ISLNK(e.st.st_mode) &&
	    syscall(SYS_utimensat, fd, "", at != 0 ? times : NULL, AT_EMPTY_PATH) < 0)
		r = -errno;
	if (r == 0 && !S_ISLNK(e.st.st_mode) && utimensat(cb_notify_self.proc, link, at != 0 ? times : NULL, 0) < 0)
		r = -errno;
	if (r == 0)
		cb_made_copied(fd, &st);
	cb_request_done(q, r);
}
