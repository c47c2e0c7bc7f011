/* Looks through the layer of changes of an overlay workspace: see overlay_changes.h.
 *
 * Trust domain: broker's child, outside. Invariants: both trees are walked by descriptor, one name at a time, without
 * following a link; the workspace's side stays on its file system and, started by root, is used with its owner's
 * rights only; nothing is read but regular files; what the judge refuses (judge/judge.h) is reported and never written.
 * The walk ends: depth is bounded, and entries by the layer's own limit.
 */
#include "overlay_changes.h"
#include "written.h"

#include "../shared/mounts.h"

#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/log.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define STOPPED "interrupted: what is listed was done, the rest was not"
#define DO_IT "; if you want it, do it yourself, outside the jail"
#define RUN_IT "programs outside the jail would run or obey it"
#define TOO_MUCH "workspace.size: more than the layer can hold was to be written"

static const char *const change_names[CB_CHANGES] = { "added", "modified", "deleted", "skipped", "failed" };

void cb_layer_as_owner(const struct cb_layer *layer, bool on)
{
	if (!layer->jail->from_root)
		return;
	/* the group first while we may, the user first when going back */
	if (on)
		(void)setfsgid(layer->group);
	(void)setfsuid(on ? layer->owner : geteuid());
	if (!on)
		(void)setfsgid(getegid());
	/* neither call says whether it worked; with root's rights a link of the jail's could lead anywhere */
	if (on && ((uid_t)setfsuid((uid_t)-1) != layer->owner || (gid_t)setfsgid((gid_t)-1) != layer->group)) {
		cb_log(CB_LOG_ERROR, "workspace: its owner's rights can't be taken on: no further work on it");
		_exit(1);
	}
}

static const char *type_name(mode_t mode)
{
	return S_ISDIR(mode) ? "folder" : S_ISREG(mode) ? "file" : S_ISLNK(mode) ? "link" : "other";
}

static void add(struct cb_layer *layer, const char *path, enum cb_change change, const struct stat *st,
		const char *reason)
{
	struct cb_json j = cb_json_inside(&layer->entries);

	layer->count[change]++;
	cb_json_object(&j, NULL);
	cb_json_put(&j, "path", path, "change", change_names[change], "type", type_name(st->st_mode), "size",
		    S_ISREG(st->st_mode) ? (long long)st->st_size : 0);
	if (reason != NULL)
		cb_json_put(&j, "reason", reason);
	if (cb_json_done(&j) < 0)
		layer->truncated = true;
}

/* ---- being stopped ---- */

static volatile sig_atomic_t stopped;

static void on_stop(int signal)
{
	(void)signal;
	stopped = 1;
}

void cb_layer_stop_on(int signal)
{
	const struct sigaction action = { .sa_handler = on_stop, .sa_flags = SA_RESTART };

	(void)sigaction(signal, &action, NULL);
}

bool cb_layer_stopped(void)
{
	return stopped != 0;
}

/* ---- protection ---- */

/* What was judged by its path: a folder that programs outside have moved meanwhile is another by its path. */
static bool is_folder(int judged, int fd)
{
	struct stat a, b;

	return fstat(judged, &a) == 0 && fstat(fd, &b) == 0 && cb_is_same_file(&a, &b);
}

/* Others may have made the rest of a repository since, and no act of ours is to complete it. */
static int judge_maker_again(const struct cb_layer *layer, const struct cb_layer_entry *e)
{
	struct cb_judge judge = layer->judge;
	struct cb_judged judged;
	int r;

	judge.beside = -1;
	r = cb_judge(&judge, e->path, CB_ACT_MAKE, e->st.st_mode & S_IFMT, -1, &judged);
	cb_fd_close(&judged.parent);
	return r == 0 && !judged.maker ? -EROFS : r; /* it is one, and the entry was not judged as a part of one */
}

int cb_layer_still(const struct cb_layer *layer, const struct cb_layer_entry *e)
{
	char folder[PATH_MAX];
	CB_AUTO_FD fd = -1;
	struct stat now;
	int r;

	snprintf(folder, sizeof(folder), "%.*s", (int)(strlen(e->path) - strlen(e->name)), e->path);
	r = cb_open_nolinks(layer->root, folder[0] != '\0' ? folder : ".", O_PATH | O_DIRECTORY, &fd);
	if (r < 0 || !is_folder(fd, e->lower))
		return -ESTALE;
	if (fstatat(e->lower, e->name, &now, AT_SYMLINK_NOFOLLOW) < 0)
		r = errno == ENOENT ? 0 : -errno;
	else if (!e->exists || !cb_is_same_file(&now, &e->old) || now.st_ctim.tv_sec != e->old.st_ctim.tv_sec ||
		 now.st_ctim.tv_nsec != e->old.st_ctim.tv_nsec)
		r = -ESTALE;
	return r == 0 && e->maker ? judge_maker_again(layer, e) : r;
}

int cb_layer_judge(struct cb_layer *layer, int lower, const char *path, enum cb_act act, const struct stat *st,
		   bool alone, struct cb_layer_entry *ret)
{
	struct cb_judge judge = layer->judge;
	struct cb_judged judged;
	char reason[NAME_MAX + 160];
	int r;

	if (alone)
		judge.beside = -1;
	r = cb_judge(&judge, path, act, st->st_mode & S_IFMT, -1, &judged);
	if (r == 0 && layer->commit && !is_folder(judged.parent, lower))
		r = -ESTALE;
	cb_fd_close(&judged.parent);
	if (r == 0 && judged.part == CB_GIT_LOCK) { /* git outside would take it for its own */
		snprintf(judged.refused, sizeof(judged.refused), ".git");
		r = -EROFS;
	}
	if (r == 0 && ret != NULL) {
		ret->part = judged.part;
		ret->maker = judged.maker;
		ret->about_git = judged.about_git;
		ret->in_git = judged.in_git;
	}
	if (r == -EROFS) {
		snprintf(reason, sizeof(reason), "workspace.protect, \"%s\": " RUN_IT DO_IT, judged.refused);
		add(layer, path, CB_CHANGE_SKIPPED, st, reason);
	}
	return r;
}

static int start_judge(struct cb_layer *layer, int upper, int lower)
{
	const struct cb_jail_spec *spec = layer->jail->spec;

	layer->leads[0] = layer->leads[1] = CB_LEADS_NONE;
	layer->leads[0].source = layer->leads[1].source = spec->workspace_source;
	layer->judge = (struct cb_judge){ .root = lower,
					  .beside = upper,
					  .patterns = &spec->protect,
					  .paths = &layer->own,
					  .workspace = cb_judge_workspace(spec),
					  .above = cb_judge_above(spec),
					  .leads = layer->leads };
	return cb_judge_paths(spec, &layer->own);
}

/* ---- the walk ---- */

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int cb_layer_list(int dirfd, struct cb_strv *ret_names)
{
	CB_AUTO_FOLDER dir = cb_folder_open(dirfd, ".", 0);
	const struct dirent *e;
	int r = dir == NULL ? -errno : 0;

	while (r == 0 && (e = cb_folder_next(dir)) != NULL)
		r = cb_strv_add_name(ret_names, e->d_name);
	if (r == 0 && errno != 0)
		r = -errno;
	if (r == 0 && ret_names->count > 1)
		qsort(ret_names->items, ret_names->count, sizeof(*ret_names->items), compare);
	return r;
}

bool cb_layer_is_opaque(int dirfd)
{
	char value = 0;

	return fgetxattr(dirfd, "user.overlay.opaque", &value, 1) == 1 && value == 'y';
}

bool cb_layer_is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

static void walk(struct cb_layer *layer, int upper, int lower, const char *path, int depth);

/* True, and reported as skipped, if git outside must not find there what was to be written. */
static bool is_gits(struct cb_layer *layer, const struct cb_layer_entry *e, int r)
{
	if (r != -EROFS || (e->part == CB_GIT_OTHER && !e->maker))
		return false;
	add(layer, e->path, CB_CHANGE_SKIPPED, &e->st,
	    e->part != CB_GIT_OTHER
		    ? "workspace.protect, \".git\": git outside would write to places where no cell may" DO_IT
		    : "workspace.protect, \".git\": " RUN_IT DO_IT);
	return true;
}

/* r: 1 = it has been reported. */
static void done(struct cb_layer *layer, const struct cb_layer_entry *e, enum cb_change change, const struct stat *st,
		 int r)
{
	if (r > 0)
		return;
	if (r < 0)
		add(layer, e->path, CB_CHANGE_FAILED, st,
		    r == CB_E_TOO_BIG ? TOO_MUCH
		    : r == -ESTALE    ? "it, or a folder above it, was changed outside in this moment"
				      : strerror(-r));
	else
		add(layer, e->path, change, st, NULL);
}

static bool is_outsiders(const struct cb_layer *layer, const struct stat *st, struct timespec since)
{
	return cb_is_after(st->st_ctim, since) && !cb_written_has(layer->jail->written, st);
}

/* With the folder that it is in, which has other contents than cells know, whatever its own times are. */
static bool came_along(const struct cb_layer *layer, const struct stat *st)
{
	return layer->moved && !cb_written_has(layer->jail->written, st);
}

/* When cells changed an entry of the layer, at the earliest: it was made then, whatever they did to it since. What
 * stands for a name that went is one file for all of them, made with the first. Where the file system does not say,
 * cells may have changed it at any time. */
static struct timespec first_changed(const struct cb_layer *layer, int upper, const char *name)
{
	struct statx st;

	if (!cb_birth_of(upper, name, &st))
		return layer->jail->started;
	return (struct timespec){ .tv_sec = st.stx_btime.tv_sec, .tv_nsec = st.stx_btime.tv_nsec };
}

/* Whether a folder of the workspace, or anything in it, is. What is in one that was moved there keeps its times. */
static bool holds_outsiders(const struct cb_layer *layer, int lower, const char *name, struct timespec since, int depth)
{
	CB_AUTO_STRV names = { 0 };
	CB_AUTO_FD folder = -1;
	struct stat st;
	bool found;

	if (depth >= CB_LAYER_DEPTH_MAX ||
	    cb_open_beneath(lower, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, &folder) < 0)
		return false; /* nor can it be removed */
	/* it may: nothing is removed on half a look */
	found = fstat(folder, &st) < 0 || is_outsiders(layer, &st, since) || cb_layer_list(folder, &names) < 0;
	for (size_t i = 0; i < names.count && !found && !cb_layer_stopped(); i++)
		found = fstatat(folder, names.items[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			(S_ISDIR(st.st_mode) ? holds_outsiders(layer, folder, names.items[i], since, depth + 1)
					     : is_outsiders(layer, &st, since));
	return found;
}

static void skip_newer(struct cb_layer *layer, const char *path, const struct stat *st)
{
	add(layer, path, CB_CHANGE_SKIPPED, st,
	    "changed outside, as it seems after the cells' change: move it away to have theirs written");
}

bool cb_layer_is_newer(struct cb_layer *layer, const char *path, const struct stat *st)
{
	bool newer = layer->since.tv_sec != 0 && is_outsiders(layer, st, layer->since);

	if (newer)
		skip_newer(layer, path, st);
	return newer;
}

/* True, and reported as skipped, if others changed what is in the entry's place after cells did: no cell saw that. */
static bool is_newer(struct cb_layer *layer, const struct cb_layer_entry *e, int depth)
{
	bool newer = e->exists && came_along(layer, &e->old);

	if (!e->exists || (e->since.tv_sec == 0 && !newer))
		return false;
	cb_layer_as_owner(layer, true);
	if (!newer)
		newer = S_ISDIR(e->old.st_mode) ? holds_outsiders(layer, e->lower, e->name, e->since, depth)
						: is_outsiders(layer, &e->old, e->since);
	cb_layer_as_owner(layer, false);
	if (newer)
		skip_newer(layer, e->path, &e->old);
	return newer;
}

/* Each entry that is written is counted, as the layer counts them. */
static int count_entry(struct cb_layer *layer)
{
	if (layer->commit && layer->entries_left == 0)
		return CB_E_TOO_BIG;
	layer->entries_left -= layer->commit;
	return 0;
}

/* What others save until it goes stays, too. 1: so does all, as has been reported. */
static int remove_old(struct cb_layer *layer, const struct cb_layer_entry *e, int depth)
{
	size_t skipped = layer->count[CB_CHANGE_SKIPPED];
	int r;

	if (!layer->commit)
		return 0;
	layer->since = e->since;
	cb_layer_as_owner(layer, true);
	r = cb_layer_remove(layer, e->lower, e->name, e->path, depth);
	cb_layer_as_owner(layer, false);
	return r == -ENOTEMPTY && !S_ISDIR(e->old.st_mode) && layer->count[CB_CHANGE_SKIPPED] > skipped ? 1 : r;
}

static int open_folders(struct cb_layer *layer, const struct cb_layer_entry *e, int *ret_upper, int *ret_lower)
{
	struct stat st;
	int r = cb_open_beneath(e->upper, e->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, ret_upper);

	if (r < 0 || e->lower < 0)
		return r;
	cb_layer_as_owner(layer, true);
	r = cb_open_beneath(e->lower, e->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, ret_lower);
	cb_layer_as_owner(layer, false);
	if (r == -ENOENT && !layer->commit)
		return 0;
	if (r == 0 && fstat(*ret_lower, &st) == 0 && st.st_dev != layer->dev)
		return -EXDEV;
	return r;
}

/* A mode that others have set, as it seems after cells changed something in the folder, stays. */
static bool keep_mode(struct cb_layer *layer, struct cb_layer_entry *e)
{
	if (!e->exists || !S_ISDIR(e->old.st_mode) || ((e->st.st_mode ^ e->old.st_mode) & 0777) == 0 ||
	    (!is_outsiders(layer, &e->old, e->since) && !came_along(layer, &e->old)))
		return false;
	e->st.st_mode = e->old.st_mode;
	add(layer, e->path, CB_CHANGE_SKIPPED, &e->old,
	    "changed outside, as it seems after the cells' change: its mode stays");
	return true;
}

/* Others have moved it there, as it seems after cells changed something in theirs, or changed its mode: with neither it
 * gets another time of modification. */
static bool was_moved(const struct cb_layer *layer, const struct cb_layer_entry *e)
{
	return is_outsiders(layer, &e->old, e->since) &&
	       !cb_is_after(cb_written_modified(layer->jail->written, &e->old), e->since);
}

/* So that the next commit knows it, too: by then its time of modification is from what this one has added. */
static void note_moved(const struct cb_layer *layer, const struct cb_layer_entry *e, int folder)
{
	const struct timespec modified = cb_written_modified(layer->jail->written, &e->old);
	struct stat now;

	if (!layer->commit || folder < 0 || fstat(folder, &now) < 0 ||
	    (now.st_mtim.tv_sec == modified.tv_sec && now.st_mtim.tv_nsec == modified.tv_nsec))
		return;
	now.st_mtim = modified;
	cb_written_note(layer->jail->written, &now);
}

/* A folder: what was in its place and is none goes, then itself, then what is in it. */
static void see_folder(struct cb_layer *layer, struct cb_layer_entry *e, int depth)
{
	bool was_folder = e->exists && S_ISDIR(e->old.st_mode), kept = keep_mode(layer, e);
	bool moved = was_folder && (came_along(layer, &e->old) || was_moved(layer, e)), above = layer->moved;
	bool changed = !was_folder || ((e->st.st_mode ^ e->old.st_mode) & 0777) != 0;
	CB_AUTO_FD upper = -1;
	CB_AUTO_FD lower = -1;
	struct stat open;
	int r = 0;

	if (depth >= CB_LAYER_DEPTH_MAX) {
		add(layer, e->path, CB_CHANGE_SKIPPED, &e->st, "nested too deep");
		return;
	}
	if (changed)
		r = count_entry(layer);
	if (e->exists && !was_folder) {
		if (r == 0)
			r = remove_old(layer, e, depth);
		if (!layer->commit)
			e->lower = -1;
	}
	if (r == 0 && layer->commit && changed) {
		cb_layer_as_owner(layer, true);
		r = cb_layer_write_folder(layer, e);
		cb_layer_as_owner(layer, false);
		if (is_gits(layer, e, r))
			return;
	}
	if (r == 0)
		r = open_folders(layer, e, &upper, &lower);
	if (changed || r < 0)
		done(layer, e, e->exists ? CB_CHANGE_MODIFIED : CB_CHANGE_ADDED, &e->st, r);
	if (r == 0) {
		cb_layer_unlock_folder(layer, lower, &open);
		layer->moved = moved;
		walk(layer, upper, lower, e->path, depth + 1);
		layer->moved = above;
		cb_layer_lock_folder(layer, lower, &open, e->st.st_mode, !kept && !moved);
		if (moved)
			note_moved(layer, e, lower);
	}
}

/* The workspace's entry has become, or was, the layer's file: further names of that are linked to it. */
static void keep_name(struct cb_layer *layer, const struct cb_layer_entry *e)
{
	struct stat now;
	int r;

	if (!layer->commit || !S_ISREG(e->st.st_mode) || e->st.st_nlink < 2 || e->in_git)
		return;
	cb_layer_as_owner(layer, true);
	r = fstatat(e->lower, e->name, &now, AT_SYMLINK_NOFOLLOW);
	cb_layer_as_owner(layer, false);
	if (r == 0 && now.st_dev == layer->dev)
		cb_links_add(&layer->names, &e->st, e->path, &now);
}

/* What can't be linked (another's file, a file system without links, a folder that its owner has closed) is copied. */
static int make_file(struct cb_layer *layer, const struct cb_layer_entry *e, const struct cb_link *file,
		     struct cb_layer_made *ret)
{
	int r = file != NULL ? cb_layer_make_name(layer, e, file, ret) : -ENOENT;

	return r < 0 && r != -EROFS ? cb_layer_make_file(layer, e, ret) : r;
}

/* A folder in its place goes when all is made that is to come there: else both would be lost. */
static int write_plain(struct cb_layer *layer, const struct cb_layer_entry *e, const struct cb_link *file, int depth)
{
	struct cb_layer_made made;
	int r = S_ISLNK(e->st.st_mode) ? cb_layer_make_link(layer, e, &made) : make_file(layer, e, file, &made);

	if (r < 0)
		return r;
	if (e->exists && S_ISDIR(e->old.st_mode)) {
		cb_layer_as_owner(layer, true);
		r = cb_layer_still(layer, e);
		cb_layer_as_owner(layer, false);
		if (r == 0)
			r = remove_old(layer, e, depth);
	}
	if (r == 0)
		return cb_layer_put(layer, e, &made);
	cb_layer_drop_made(layer, e, &made);
	return r;
}

static void see_plain(struct cb_layer *layer, struct cb_layer_entry *e, int depth)
{
	bool link = S_ISLNK(e->st.st_mode);
	bool alone = link || e->st.st_nlink < 2 || e->in_git;
	const struct cb_link *file = alone ? NULL : cb_links_find(&layer->names, &e->st);
	int r;

	if (file != NULL && e->exists && cb_links_is(file, &e->old))
		return;
	if (e->exists && (e->old.st_mode & S_IFMT) == (e->st.st_mode & S_IFMT) &&
	    (link ? cb_layer_same_link(layer, e) : cb_layer_same_file(layer, e))) {
		if (layer->commit)
			cb_written_note(layer->jail->written, &e->old);
		keep_name(layer, e);
		return;
	}
	if (is_newer(layer, e, depth) || cb_layer_stopped()) /* then they were not compared to their end */
		return;
	r = count_entry(layer);
	if (r == 0 && layer->commit)
		r = write_plain(layer, e, file, depth);
	if (is_gits(layer, e, r))
		return;
	if (r == 0)
		keep_name(layer, e);
	done(layer, e, e->exists ? CB_CHANGE_MODIFIED : CB_CHANGE_ADDED, &e->st, r);
}

/* A link that stays as it is, is none of ours to judge. */
static int judge_link(struct cb_layer *layer, const struct cb_layer_entry *e)
{
	int r = S_ISLNK(e->st.st_mode) ? cb_layer_read_link(e->upper, e->name, layer->target) : 0;

	if (r < 0 || !S_ISLNK(e->st.st_mode) ||
	    (e->exists && S_ISLNK(e->old.st_mode) && cb_layer_same_link(layer, e)))
		return r;
	r = cb_judge_target(&layer->judge, e->path, layer->target);
	if (r == -EROFS)
		add(layer, e->path, CB_CHANGE_SKIPPED, &e->st,
		    "workspace.protect, of what it leads to: " RUN_IT DO_IT);
	else if (r == -EPERM)
		add(layer, e->path, CB_CHANGE_SKIPPED, &e->st,
		    "a link that leads out of the workspace: programs outside would write where it leads");
	return r;
}

static enum cb_act act_of(const struct cb_layer_entry *e, bool whiteout)
{
	if (whiteout)
		return CB_ACT_REMOVE;
	/* of a folder that stays only mode and times; a file or a link is put into the place of the old one */
	return e->exists && S_ISDIR(e->st.st_mode) && S_ISDIR(e->old.st_mode) ? CB_ACT_CHANGE : CB_ACT_MAKE;
}

static int is_git_in(int folder, const char *name)
{
	CB_AUTO_FD fd = openat(folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : cb_git_is_folder((const int[2]){ fd, -1 });
}

/* Also a bare one, a submodule's or a worktree's; what can't be looked into may be one, but in the layer, of which then
 * nothing is written. */
static bool is_git_folder(const struct cb_layer *layer, const struct cb_layer_entry *e)
{
	bool found = is_git_in(e->upper, e->name) > 0;

	cb_layer_as_owner(layer, true);
	if (!found && e->exists && S_ISDIR(e->old.st_mode))
		found = is_git_in(e->lower, e->name) != 0;
	if (!found) {
		CB_AUTO_FD old = openat(e->lower, e->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		found = cb_git_is_named(e->name, old);
	}
	cb_layer_as_owner(layer, false);
	return found;
}

/* By its mode a git folder would be opened to other users, or closed to this one: "rw" has no cell do that either. */
static void keep_closed(const struct cb_layer *layer, struct cb_layer_entry *e)
{
	mode_t mode = e->st.st_mode;

	if (!e->about_git || !S_ISDIR(mode) || ((mode & 022) == 0 && (mode & 0700) == 0700) || !is_git_folder(layer, e))
		return;
	if (e->exists && S_ISDIR(e->old.st_mode))
		mode = e->old.st_mode;
	else
		mode = (mode & ~(mode_t)022) | 0700;
	e->st.st_mode = mode;
}

/* Nor is what is in one opened. */
static void keep_closed_inside(const struct cb_layer *layer, struct cb_layer_entry *e)
{
	if (!e->in_git)
		return;
	cb_layer_as_owner(layer, true);
	e->st.st_mode = cb_git_mode(e->lower, e->name, e->st.st_mode);
	cb_layer_as_owner(layer, false);
}

static void see(struct cb_layer *layer, struct cb_layer_entry *e, int depth)
{
	bool whiteout;
	int r;

	if (fstatat(e->upper, e->name, &e->st, AT_SYMLINK_NOFOLLOW) < 0)
		return; /* gone meanwhile */
	whiteout = cb_layer_is_whiteout(&e->st);
	cb_layer_as_owner(layer, true);
	e->exists = e->lower >= 0 && fstatat(e->lower, e->name, &e->old, AT_SYMLINK_NOFOLLOW) == 0;
	cb_layer_as_owner(layer, false);
	if (whiteout && !e->exists)
		return;
	if (e->exists)
		e->since = first_changed(layer, e->upper, e->name);
	r = cb_layer_judge(layer, e->lower, e->path, act_of(e, whiteout), whiteout ? &e->old : &e->st, false, e);
	if (r == 0 && !whiteout) {
		keep_closed(layer, e);
		keep_closed_inside(layer, e);
		r = judge_link(layer, e);
		if (r == -EPERM)
			return;
	}
	if (r == -EROFS)
		return;
	if (r == 0 && (whiteout || (S_ISDIR(e->st.st_mode) && !S_ISDIR(e->old.st_mode))) &&
	    is_newer(layer, e, depth))
		return;
	if (r < 0)
		done(layer, e, CB_CHANGE_FAILED, whiteout ? &e->old : &e->st, r);
	else if (whiteout)
		done(layer, e, CB_CHANGE_DELETED, &e->old, remove_old(layer, e, depth));
	else if (S_ISDIR(e->st.st_mode))
		see_folder(layer, e, depth);
	else if (S_ISREG(e->st.st_mode) || S_ISLNK(e->st.st_mode))
		see_plain(layer, e, depth);
	else
		add(layer, e->path, CB_CHANGE_SKIPPED, &e->st, "neither a file, a folder nor a link");
}

static bool has(const struct cb_strv *names, const char *name)
{
	return names->count > 0 && bsearch(&name, names->items, names->count, sizeof(*names->items), compare) != NULL;
}

static void not_listed(struct cb_layer *layer, const char *path, int r)
{
	const struct stat st = { .st_mode = S_IFDIR };

	add(layer, path, CB_CHANGE_FAILED, &st, r == CB_E_TOO_BIG ? "too many names in one folder" : strerror(-r));
}

/* 0, or reported of the folder: for what is in it no path can be given. */
static int join(struct cb_layer *layer, const char *path, const char *name, char full[PATH_MAX])
{
	if (snprintf(full, PATH_MAX, "%s%s%s", path, *path != '\0' ? "/" : "", name) < PATH_MAX)
		return 0;
	not_listed(layer, path, -ENAMETOOLONG);
	return -ENAMETOOLONG;
}

/* In a folder that was made anew nothing of the old one is left. */
static void see_hidden(struct cb_layer *layer, const struct cb_strv *above, int upper, int lower, const char *path,
		       int depth)
{
	CB_AUTO_STRV names = { 0 };
	char full[PATH_MAX];
	struct timespec made = first_changed(layer, upper, "");
	int listed;

	cb_layer_as_owner(layer, true);
	listed = cb_layer_list(lower, &names);
	cb_layer_as_owner(layer, false);
	if (listed < 0)
		not_listed(layer, path, listed);
	for (size_t i = 0; i < names.count && listed == 0 && !cb_layer_stopped(); i++) {
		struct cb_layer_entry e = { .path = full, .name = names.items[i], .upper = upper, .lower = lower };
		int r;

		if (has(above, e.name) || fstatat(lower, e.name, &e.old, AT_SYMLINK_NOFOLLOW) < 0 ||
		    join(layer, path, e.name, full) < 0)
			continue;
		e.exists = true;
		e.since = made;
		if (is_newer(layer, &e, depth))
			continue;
		r = cb_layer_judge(layer, lower, full, CB_ACT_REMOVE, &e.old, false, NULL);
		if (r != -EROFS)
			done(layer, &e, CB_CHANGE_DELETED, &e.old, r < 0 ? r : remove_old(layer, &e, depth));
	}
}

static void walk(struct cb_layer *layer, int upper, int lower, const char *path, int depth)
{
	CB_AUTO_STRV names = { 0 };
	char full[PATH_MAX];
	int r = cb_layer_list(upper, &names);

	if (r < 0)
		not_listed(layer, path, r);
	for (size_t i = 0; i < names.count && r == 0 && !cb_layer_stopped(); i++) {
		struct cb_layer_entry e = { .path = full, .name = names.items[i], .upper = upper, .lower = lower };

		if (join(layer, path, e.name, full) == 0)
			see(layer, &e, depth);
	}
	if (r == 0 && lower >= 0 && cb_layer_is_opaque(upper))
		see_hidden(layer, &names, upper, lower, path, depth);
}

/* ---- the report ---- */

int cb_layer_open_both(struct cb_layer *layer, int *ret_upper, int *ret_lower)
{
	const struct cb_jail *jail = layer->jail;
	struct stat st;
	int r;

	if (jail->spec->workspace_mode != CB_WORKSPACE_OVERLAY)
		return -ENOTSUP;
	if (jail->upper_fd[CB_UPPER_WORKSPACE] < 0)
		return -ENOENT;
	r = cb_open_beneath(jail->upper_fd[CB_UPPER_WORKSPACE], CB_UPPER_CHANGES, O_RDONLY | O_DIRECTORY, ret_upper);
	if (r == 0)
		r = cb_open_nolinks(AT_FDCWD, jail->spec->workspace_source, O_RDONLY | O_DIRECTORY, ret_lower);
	if (r < 0)
		return r;
	if (fstat(*ret_lower, &st) < 0 || st.st_dev != jail->workspace_dev || st.st_ino != jail->workspace_ino)
		return -ESTALE;
	layer->dev = st.st_dev;
	layer->owner = st.st_uid;
	layer->group = st.st_gid;
	return 0;
}

void cb_layer_put_error(struct cb_json *j, const char *ename, const char *evalue)
{
	cb_json_put(j, "status", "error", "ename", ename, "evalue", evalue, "traceback", CB_SPAN("[]"));
}

void cb_layer_report(const struct cb_jail *jail, bool commit, struct cb_buf *out)
{
	struct cb_layer layer = { .jail = jail, .commit = commit, .entries = CB_BUF_INIT(CB_LAYER_REPORT_MAX) };
	CB_AUTO_FD upper = -1;
	CB_AUTO_FD lower = -1;
	struct cb_json j = cb_json_begin(out);
	struct statvfs size;
	int r = cb_layer_open_both(&layer, &upper, &lower);

	if (r == 0)
		r = start_judge(&layer, upper, lower);
	if (r < 0 && r != -ENOENT) {
		cb_strv_release(&layer.own);
		cb_layer_put_error(&j, "WorkspaceError",
				   r == -ENOTSUP  ? "workspace.mode is not \"overlay\": there is no layer of changes"
				   : r == -ESTALE ? "the workspace is another folder than when the kernel started"
						  : strerror(-r));
		(void)cb_json_done(&j);
		return;
	}
	(void)umask(0);
	layer.root = lower;
	if (r == 0 && fstatvfs(upper, &size) == 0) {
		layer.room = (uint64_t)size.f_blocks * size.f_frsize;
		layer.entries_left = size.f_files;
	}
	if (r == 0)
		walk(&layer, upper, lower, "", 0);
	cb_links_release(&layer.names);
	if (cb_layer_stopped())
		cb_layer_put_error(&j, "KeyboardInterrupt", STOPPED);
	else
		cb_json_put(&j, "status", "ok");
	cb_json_array(&j, "changes");
	cb_json_put_raw(&j, NULL, cb_buf_span(&layer.entries));
	cb_json_end(&j);
	for (int i = 0; i < CB_CHANGES; i++)
		cb_json_put(&j, change_names[i], layer.count[i]);
	cb_json_put(&j, "truncated", layer.truncated);
	(void)cb_json_done(&j);
	cb_buf_release(&layer.entries);
	cb_strv_release(&layer.own);
}

size_t cb_layer_changed(const struct cb_jail *jail)
{
	struct cb_layer layer = { .jail = jail };
	CB_AUTO_FD upper = -1;
	CB_AUTO_FD lower = -1;
	size_t n = 0;

	if (cb_layer_open_both(&layer, &upper, &lower) == 0 && start_judge(&layer, upper, lower) == 0)
		walk(&layer, upper, lower, "", 0);
	cb_strv_release(&layer.own);
	for (int i = 0; i < CB_CHANGES; i++)
		n += layer.count[i];
	return n;
}
