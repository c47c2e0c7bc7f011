/* Snapshots of an overlay workspace's changes: see snapshot.h.
 *
 * Trust domain: broker's child, outside. Invariants: all trees are walked by descriptor, one name at a time, no link is
 * followed; the workspace's own folder (the lower layer) is only read, as its owner; the layer is only read, but for
 * the snapshots' own folder; the merged folder is written with the jail's uid. Started by root, root's rights are not
 * used for any of them. The walk ends: depth is bounded, and entries by the layer's own limit.
 *
 * Beside the changes lies one folder with an index of all snapshots (snapshot_index.c) and the contents that they need,
 * each once. What changed since the last one is found in snapshot_take.c; here it is brought back.
 */
#include "snapshot.h"

#include "../shared/mounts.h"
#include "../shared/walk_path.h"
#include "links.h"
#include "overlay_changes.h"
#include "snapshot_parts.h"
#include "still.h"

#include <cellblock/fd.h>
#include <cellblock/json_write.h>
#include <cellblock/log.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define DEPTH_MAX CB_SNAPSHOT_DEPTH_MAX
#define STILL_MS 5000 /* to stop: on a busy machine, in the kernel */
#define TRIES 8	      /* of an entry that is another by the time it is changed */
#define TOO_LONG "it took too long"
#define RAN "a process of the jail ran meanwhile, and may have changed some again"
#define AGAIN_MAX 2
#define MOVING "not every process of the jail could be stopped, so none was touched"

struct work {
	const struct cb_jail *jail;
	struct cb_layer rights; /* whose rights are taken on for the lower layer */
	struct cb_tally tally;
	struct cb_kept ix;
	uint32_t number; /* of the snapshot */
	struct cb_walk_path path;
	int root;	       /* the merged folder */
	int upper;	       /* the layer's folder of changes */
	struct cb_links names; /* files with several names, and the first that was written */
	struct cb_links taken; /* files with several names that are one of the snapshot's by now */
	bool full;	       /* something had no room */
};

void cb_tally_leave(struct cb_tally *t, const char *name, int code)
{
	if (t->left++ == 0)
		snprintf(t->reason, sizeof(t->reason), "%s: %s", name,
			 code == -EINTR ? TOO_LONG : strerror(-code));
}

bool cb_tally_stopped(struct cb_tally *t)
{
	if (!cb_layer_stopped())
		return false;
	t->unreached = true;
	return true;
}

/* What was not reached is told rather than what was left before. */
static void tell_unreached(struct cb_tally *t)
{
	unsigned long long left = t->left;

	if (!t->unreached)
		return;
	t->left = 0;
	cb_tally_leave(t, "what was not reached", -EINTR);
	t->left += left;
}

static void leave(struct work *w, const char *name, int code)
{
	w->full = w->full || code == -ENOSPC || code == -EDQUOT;
	cb_tally_leave(&w->tally, name, code);
}

static bool stopped(struct work *w)
{
	return cb_tally_stopped(&w->tally);
}

/* The path of an entry in the folder that is looked at, or NULL: then its further names become files of their own. */
static const char *entry_path(const struct work *w, const char *name, char path[PATH_MAX])
{
	int n = snprintf(path, PATH_MAX, "%s%s%s", w->path.text, w->path.len > 0 ? "/" : "", name);

	return w->path.lost == 0 && n < PATH_MAX ? path : NULL;
}

/* What an entry of the merged folder is in the layer: in the former, names of one file can't be told by their numbers.
 */
static bool in_layer(const struct work *w, const char *path, struct stat *ret_st)
{
	CB_AUTO_FD fd = -1;

	return cb_open_beneath(w->upper, path, O_PATH | O_NOFOLLOW, &fd) == 0 && fstat(fd, ret_st) == 0;
}

/* `file` was written as `name`: from now on its other names can be linked to it. */
static void keep_name(struct work *w, const struct stat *file, const char *name)
{
	char buf[PATH_MAX];
	const char *path = entry_path(w, name, buf);
	struct stat to;

	if (file->st_nlink < 2 || path == NULL)
		return;
	if (in_layer(w, path, &to))
		cb_links_add(&w->names, file, path, &to);
}

/* As the jail's only user; see cb_layer_as_owner for why the result is looked at. */
static void as_inmate(const struct cb_jail *jail)
{
	if (!jail->from_root)
		return;
	(void)setfsgid(jail->host_uid);
	(void)setfsuid(jail->host_uid);
	if ((uid_t)setfsuid((uid_t)-1) != jail->host_uid || (gid_t)setfsgid((gid_t)-1) != jail->host_uid) {
		cb_log(CB_LOG_ERROR, "snapshot: the jail's uid can't be taken on");
		_exit(1);
	}
}

static void as_owner(const struct work *w)
{
	if (!w->jail->from_root)
		return;
	cb_layer_as_owner(&w->rights, false); /* back to what may take on others' */
	cb_layer_as_owner(&w->rights, true);
}

static void back_from_owner(const struct work *w)
{
	if (!w->jail->from_root)
		return;
	cb_layer_as_owner(&w->rights, false);
	as_inmate(w->jail);
}

/* Anything else is no word on what is there. */
static bool is_absent(int code)
{
	return code == -ENOENT || code == -ENOTDIR || code == -ELOOP;
}

static int open_folder(int dirfd, const char *name, int *ret_fd)
{
	return cb_open_beneath(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, ret_fd);
}

/* ---- restoring ---- */

/* The same folder in three trees, -1 where it is not, and in the snapshot. `lower` is not there below one that was made
 * anew. */
struct place {
	int merged, upper, lower;
	const struct cb_node *node; /* NULL: the snapshot has nothing of it */
	bool all; /* the layer shows nothing of the lower one: each of its names may have to come back */
};

/* What an entry was, and where its content lies. */
struct wanted {
	bool exists, below; /* below: it is the lower layer's */
	int code;	    /* < 0: it can't be told */
	const struct cb_state *kept;
	struct stat st;
};

static void remove_entry(struct work *w, int folder, const char *name, int depth)
{
	CB_AUTO_STRV names = { 0 };
	CB_AUTO_FD inside = -1;
	int r;

	if (unlinkat(folder, name, 0) == 0 || errno == ENOENT)
		return;
	if (errno != EISDIR) {
		leave(w, name, -errno);
		return;
	}
	(void)cb_unlock_entry(folder, name, S_IFDIR, 0700);
	r = depth >= DEPTH_MAX ? -ELOOP : open_folder(folder, name, &inside);
	if (r == 0)
		r = cb_layer_list(inside, &names);
	for (size_t i = 0; i < names.count && !stopped(w); i++)
		remove_entry(w, inside, names.items[i], depth + 1);
	if (r == 0 && unlinkat(folder, name, AT_REMOVEDIR) < 0)
		r = -errno;
	if (r < 0)
		leave(w, name, r);
}

static struct wanted find_wanted(const struct work *w, const struct place *p, const char *name)
{
	struct wanted want = { 0 };

	if (p->node != NULL)
		want.kept = cb_kept_at(&w->ix, cb_kept_find(&w->ix, p->node, name), w->number);
	if (want.kept != NULL) {
		const struct cb_state *s = want.kept;

		want.exists = s->kind == CB_STATE_ENTRY;
		if (s->kind == CB_STATE_LOST)
			want.code = s->code < 0 ? s->code : -EIO;
		want.st = (struct stat){ .st_mode = s->mode,
					 .st_size = s->size,
					 .st_ino = s->ino,
					 .st_nlink = s->linked ? 2 : 1,
					 .st_mtim = s->mtime };
		return want;
	}
	if (p->lower < 0)
		return want;
	as_owner(w);
	want.exists = want.below = fstatat(p->lower, name, &want.st, AT_SYMLINK_NOFOLLOW) == 0;
	want.code = want.exists || is_absent(-errno) ? 0 : -errno;
	back_from_owner(w);
	return want;
}

static int open_source(const struct work *w, const struct place *p, const struct wanted *want, const char *name)
{
	char content[CB_CONTENT_NAME];
	struct stat st;
	int fd;

	if (!want->below)
		return cb_layer_open_file(w->ix.store, cb_kept_content_name(want->kept->content, content), &st);
	as_owner(w);
	fd = cb_layer_open_file(p->lower, name, &st);
	back_from_owner(w);
	return fd;
}

static bool same_time(const struct stat *now, const struct wanted *want)
{
	return now->st_mtim.tv_sec == want->st.st_mtim.tv_sec && now->st_mtim.tv_nsec == want->st.st_mtim.tv_nsec;
}

static int set_time(int file, const struct wanted *want)
{
	return futimens(file, (const struct timespec[2]){ { .tv_nsec = UTIME_OMIT }, want->st.st_mtim }) < 0 ? -errno
													     : 0;
}

/* Whether what it is to hold has room in the place of what it holds. */
static int check_room(int from, int to, const struct stat *now)
{
	struct statvfs fs;
	struct stat st;

	if (fstat(from, &st) < 0 || fstatvfs(to, &fs) < 0)
		return -errno;
	return fs.f_blocks > 0 && (uint64_t)st.st_blocks > (uint64_t)now->st_blocks + fs.f_bavail * fs.f_frsize / 512
		       ? -ENOSPC
		       : 0;
}

static int fill_in_place(int from, int to, const struct wanted *want)
{
	struct stat st;
	int r = fstat(to, &st) < 0 ? -errno : !S_ISREG(st.st_mode) ? -EINVAL : check_room(from, to, &st);

	if (r < 0)
		return r;
	if (ftruncate(to, 0) < 0)
		return -errno;
	r = cb_layer_copy_data(from, to, want->st.st_size, false, NULL); /* whole, whatever the time */
	if (r == 0 && fchmod(to, want->st.st_mode & 0777) < 0)
		r = -errno;
	return r < 0 ? r : set_time(to, want);
}

/* In place where there is a file, so that one that a twin holds open is the same as before. What can't be brought back
 * leaves no part of it: a commit would write that over the owner's file. */
static int write_over(const struct place *p, int from, const struct wanted *want, const char *name,
		      const struct stat *now)
{
	CB_AUTO_FD to = -1;
	int r = cb_layer_stopped() ? -EINTR : now != NULL ? cb_unlock_entry(p->merged, name, S_IFREG, 0600) : 0;

	if (r < 0)
		return r;
	to = openat(p->merged, name,
		    O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (now == NULL ? O_CREAT | O_EXCL : 0),
		    0600);
	if (to < 0)
		return -errno;
	r = fill_in_place(from, to, want);
	if (r < 0 && now == NULL)
		(void)unlinkat(p->merged, name, 0);
	return r;
}

static int fill_file(const struct work *w, const struct place *p, const struct wanted *want, const char *name,
		     const struct stat *now)
{
	CB_AUTO_FD from = open_source(w, p, want, name);

	if (from < 0)
		return from;
	if (now != NULL && now->st_size == want->st.st_size && ((now->st_mode ^ want->st.st_mode) & 0777) == 0) {
		struct stat st;
		CB_AUTO_FD have = cb_layer_open_file(p->merged, name, &st);

		if (have >= 0 && cb_layer_same_data(have, from, true))
			return same_time(now, want) ? 0 : set_time(have, want);
	}
	return write_over(p, from, want, name, now);
}

/* A file with several names is written once. Names that were one file and are not now, or the other way round, get a
 * file of their own first: what is written in place would be another's content as well. So do those that there is no
 * room to remember. */
static int restore_file(struct work *w, const struct place *p, const struct wanted *want, const char *name,
			const struct stat *now)
{
	const struct cb_link *link = !want->below && want->st.st_nlink > 1 ? cb_links_find(&w->names, &want->st) : NULL;
	struct stat st; /* not by its path, which may be too long */
	bool shared = now != NULL && p->upper >= 0 && fstatat(p->upper, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		      st.st_nlink > 1;
	int r;

	if (link != NULL && shared && cb_links_is(link, &st))
		return 0;
	if (link != NULL || (shared && cb_links_find(&w->taken, &st) != NULL) ||
	    (shared && !cb_links_add(&w->taken, &st, "", &st))) {
		if (now != NULL && unlinkat(p->merged, name, 0) < 0)
			return -errno;
		now = NULL;
		if (link != NULL && cb_links_make(link, w->root, p->merged, name) == 0)
			return 0;
	}
	r = fill_file(w, p, want, name, now);
	if (r == 0 && !want->below)
		keep_name(w, &want->st, name);
	return r;
}

static int restore_link(const struct work *w, const struct place *p, const struct wanted *want, const char *name)
{
	char target[PATH_MAX], content[CB_CONTENT_NAME];
	int r;

	if (want->below) {
		as_owner(w);
		r = cb_layer_read_link(p->lower, name, target);
		back_from_owner(w);
	} else {
		r = cb_layer_read_link(w->ix.store, cb_kept_content_name(want->kept->content, content), target);
	}
	if (r < 0)
		return r;
	if (unlinkat(p->merged, name, 0) < 0 && errno != ENOENT)
		return -errno;
	return symlinkat(target, p->merged, name) < 0 ? -errno : 0;
}

static void restore_folder(struct work *w, const struct place *p, int depth);

static int restore_below(struct work *w, const struct place *p, const struct wanted *want, const char *name, bool there,
			 int depth)
{
	struct place in = { .merged = -1, .upper = -1, .lower = -1, .all = p->all || !there };
	bool made_anew = want->kept != NULL && want->kept->opaque; /* in the snapshot */
	int r = depth >= DEPTH_MAX ? -ELOOP : 0;
	size_t before;

	if (r == 0 && p->lower >= 0 && !made_anew) {
		as_owner(w);
		r = open_folder(p->lower, name, &in.lower);
		back_from_owner(w);
		r = is_absent(r) ? 0 : r;
	}
	if (r == 0 && !there && mkdirat(p->merged, name, 0700) < 0)
		r = -errno;
	if (r == 0 && !want->below)
		in.node = cb_kept_find(&w->ix, p->node, name);
	if (r == 0 && p->upper >= 0 && there)
		(void)open_folder(p->upper, name, &in.upper);
	in.all = in.all || made_anew || (in.upper >= 0 && cb_layer_is_opaque(in.upper));
	if (r == 0 && (!there || in.node != NULL || in.upper >= 0)) {
		if (there)
			(void)cb_unlock_entry(p->merged, name, S_IFDIR, 0700);
		r = open_folder(p->merged, name, &in.merged);
		before = cb_walk_down(&w->path, name);
		if (r == 0)
			restore_folder(w, &in, depth + 1);
		cb_walk_up(&w->path, before);
		if (r == 0 && fchmod(in.merged, want->st.st_mode & 0777) < 0)
			r = -errno;
	}
	cb_fd_close(&in.merged);
	cb_fd_close(&in.upper);
	cb_fd_close(&in.lower);
	return r;
}

static int restore_entry(struct work *w, const struct place *p, const char *name, int depth)
{
	struct wanted want = find_wanted(w, p, name);
	struct stat now;
	bool there = fstatat(p->merged, name, &now, AT_SYMLINK_NOFOLLOW) == 0;

	if (want.code < 0)
		return want.code;
	if (there && (!want.exists || (now.st_mode & S_IFMT) != (want.st.st_mode & S_IFMT))) {
		remove_entry(w, p->merged, name, depth);
		there = false;
	}
	if (!want.exists)
		return 0;
	if (S_ISDIR(want.st.st_mode))
		return restore_below(w, p, &want, name, there, depth);
	if (S_ISLNK(want.st.st_mode))
		return restore_link(w, p, &want, name);
	if (S_ISREG(want.st.st_mode))
		return restore_file(w, p, &want, name, there ? &now : NULL);
	if (there)
		return 0;
	return mknodat(p->merged, name, want.st.st_mode & (S_IFMT | 0777), 0) < 0 ? -errno : 0;
}

/* A thread that waited in the kernel when all were stopped ends its call meanwhile: each may put another entry in the
 * place of the one that was looked at, once. */
static int restore_name(struct work *w, const struct place *p, const char *name, int depth)
{
	unsigned long long left = w->tally.left;
	int r = -EEXIST;

	w->tally.entries++;
	for (int i = 0; i < TRIES && (is_absent(r) || r == -EEXIST || r == -EISDIR); i++) {
		w->tally.left = left; /* what could not be removed is counted once */
		r = restore_entry(w, p, name, depth);
	}
	return r;
}

static int add_kept(const struct work *w, const struct cb_node *folder, struct cb_strv *names)
{
	const struct cb_node *n = folder != NULL ? cb_kept_node(&w->ix, folder->child) : NULL;
	int r = 0;

	for (; n != NULL && r == 0; n = cb_kept_node(&w->ix, n->next))
		if (cb_kept_at(&w->ix, n, w->number) != NULL)
			r = cb_strv_add_name(names, n->name);
	return r;
}

static void add_names(struct work *w, int folder, bool owners, struct cb_strv *names)
{
	int r;

	if (folder < 0)
		return;
	if (owners)
		as_owner(w);
	r = cb_layer_list(folder, names);
	if (owners)
		back_from_owner(w);
	if (r < 0)
		leave(w, "a folder", r);
}

/* Only names in which a layer differs from the folder below it can differ from each other. */
static void restore_folder(struct work *w, const struct place *p, int depth)
{
	CB_AUTO_STRV names = { 0 };

	if (add_kept(w, p->node, &names) < 0)
		leave(w, "a folder", -ENOMEM);
	add_names(w, p->upper, false, &names);
	if (p->all)
		add_names(w, p->lower, true, &names);
	for (size_t i = 0; i < names.count && !stopped(w); i++) {
		int r = 0;

		if (i == 0 || strcmp(names.items[i], names.items[i - 1]) != 0) /* they are sorted */
			r = restore_name(w, p, names.items[i], depth);
		if (r < 0)
			leave(w, names.items[i], r);
	}
}

static void restore_again(struct work *w, const struct place *p)
{
	cb_links_release(&w->names);
	cb_links_release(&w->taken);
	w->tally = (struct cb_tally){ 0 };
	restore_folder(w, p, 0);
}

/* What had no room may have it when all that is not wanted has gone, which it has after the first time. And who has run
 * meanwhile may have changed anything: 0, or -EAGAIN if somebody does so each time. */
static int restore_all(struct work *w, const struct place *p, pid_t pid1)
{
	restore_folder(w, p, 0);
	if (w->full && !stopped(w))
		restore_again(w, p);
	for (int i = 0; !cb_jail_was_still(pid1); i++) {
		if (i == AGAIN_MAX || stopped(w) || !cb_jail_is_still(pid1, STILL_MS))
			return -EAGAIN;
		restore_again(w, p);
	}
	return 0;
}

/* ---- the three requests ---- */

static int open_index(struct work *w, bool make)
{
	int upper = w->jail->upper_fd[CB_UPPER_WORKSPACE], store = -1;
	int r = upper < 0 ? -ENOENT : 0;

	if (make && mkdirat(upper, CB_SNAPSHOT_FOLDER, 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (r == 0)
		r = open_folder(upper, CB_SNAPSHOT_FOLDER, &store);
	if (r == 0)
		r = cb_kept_open(store, make, &w->ix);
	if (r < 0)
		cb_fd_close(&store);
	return r;
}

static void close_index(struct work *w)
{
	if (w->ix.head == NULL)
		return;
	cb_kept_close(&w->ix);
	cb_fd_close(&w->ix.store);
}

/* Only what is there: a failure leaves -1. */
static int open_trees(struct work *w, struct place *p)
{
	int r;

	w->rights = (struct cb_layer){ .jail = w->jail };
	r = cb_layer_open_both(&w->rights, &p->upper, &p->lower);
	as_inmate(w->jail);
	return r;
}

static void close_trees(struct work *w, struct place *p)
{
	cb_links_release(&w->names);
	cb_links_release(&w->taken);
	cb_fd_close(&p->merged);
	cb_fd_close(&p->upper);
	cb_fd_close(&p->lower);
}

/* This process was made for the request. */
static double spent_s(void)
{
	struct timespec t = { 0 };

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void put_reply(const struct work *w, int code, struct cb_buf *out)
{
	struct cb_json j = cb_json_begin(out);

	if (code < 0)
		cb_layer_put_error(&j, "WorkspaceError",
				   code == -EBUSY    ? MOVING
				   : code == -EAGAIN ? RAN
				   : code == -EINTR  ? TOO_LONG
						     : strerror(-code));
	else
		cb_json_put(&j, "status", "ok", "entries", w->tally.entries, "left", w->tally.left, "reason",
			    w->tally.reason);
	cb_json_put(&j, "cpu_s", CB_ROUNDED(spent_s(), 6));
	(void)cb_json_done(&j);
}

static const struct place nowhere = { .merged = -1, .upper = -1, .lower = -1 };

void cb_snapshot_take(const struct cb_jail *jail, uint32_t number, struct cb_buf *out)
{
	struct work w = { .jail = jail };
	struct place p = nowhere;
	int r = open_trees(&w, &p);

	(void)umask(0);
	if (r == 0)
		r = open_index(&w, true);
	if (r == 0)
		r = cb_kept_begin(&w.ix, number);
	if (r == 0) {
		r = cb_snapshot_look(&w.ix, p.upper, jail->watch_fd, &w.tally);
		if (r == 0 && cb_layer_stopped()) /* what was not looked at would be taken for what it was before */
			r = -EINTR;
		if (r < 0)
			(void)cb_kept_drop(&w.ix, number);
	}
	close_index(&w);
	close_trees(&w, &p);
	put_reply(&w, r, out);
}

void cb_snapshot_restore(const struct cb_jail *jail, pid_t pid1, uint32_t number, struct cb_buf *out)
{
	struct work w = { .jail = jail, .number = number };
	struct place p = nowhere;
	int r = jail->merged_fd >= 0 && pid1 > 0 ? 0 : -ENOENT;

	if (r == 0 && !cb_jail_is_still(pid1, STILL_MS))
		r = -EBUSY;
	if (r == 0)
		r = open_trees(&w, &p);
	(void)umask(0);
	if (r == 0)
		r = open_index(&w, false);
	if (r == 0 && !cb_kept_has(&w.ix, number))
		r = -ENOENT;
	if (r == 0)
		r = open_folder(jail->merged_fd, ".", &p.merged);
	w.root = p.merged;
	w.upper = p.upper;
	if (r == 0) {
		p.node = cb_kept_node(&w.ix, w.ix.head->root);
		r = restore_all(&w, &p, pid1);
		tell_unreached(&w.tally);
	}
	close_index(&w);
	close_trees(&w, &p);
	put_reply(&w, r, out);
}

void cb_snapshot_drop(const struct cb_jail *jail, uint32_t number, struct cb_buf *out)
{
	struct work w = { .jail = jail };
	int r;

	as_inmate(jail);
	r = open_index(&w, false);
	if (r == 0)
		r = cb_kept_drop(&w.ix, number);
	close_index(&w);
	put_reply(&w, r, out);
}
