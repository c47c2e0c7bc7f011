/* Writes entries of the layer of changes into the workspace: see overlay_changes.h.
 *
 * Trust domain: broker's child, outside. Invariants: a file or link appears whole or not at all, by rename, which is
 * not waited for (on a virtual disk 1,000 small files take 0.5 s, and 1 to 4 s with fdatasync before each); what it is
 * made from is opened without following links and read only if it is a plain file; mode bits beyond rwx are dropped;
 * nothing is removed across a mount or in a protected place.
 */
#include "overlay_changes.h"
#include "written.h"

#include "../shared/mounts.h"

#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/unique_name.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (256u << 10)
#define TEMPORARY ".cellblock-commit-"
#define COMPARE_MAX (1ll << 30) /* bigger ones of equal size count as changed: they may be holes without end */

static char chunk[2][CHUNK];

int cb_layer_open_file(int dirfd, const char *name, struct stat *ret_st)
{
	int fd = -1, r = cb_open_beneath(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, &fd);

	if (r == 0 && (fstat(fd, ret_st) < 0 || !S_ISREG(ret_st->st_mode))) {
		cb_fd_close(&fd);
		r = -EINVAL;
	}
	if (r == 0)
		(void)fcntl(fd, F_SETFL, O_NOATIME); /* that we read it is no news: see snapshot_take.c */
	return r < 0 ? r : fd;
}

static ssize_t read_full(int fd, char *data, size_t n, off_t at)
{
	size_t have = 0;

	while (have < n) {
		ssize_t got = pread(fd, data + have, n - have, at + (off_t)have);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		have += (size_t)got;
	}
	return (ssize_t)have;
}

/* Where its next data begins and ends, from `at` on; both are `size` where nothing but a hole follows. A file system
 * that does not know holes has none. */
static void next_data(int fd, off_t at, off_t size, off_t *ret_begin, off_t *ret_end)
{
	off_t begin = lseek(fd, at, SEEK_DATA), end;

	if (begin < 0)
		begin = errno == ENXIO ? size : at;
	end = begin < size ? lseek(fd, begin, SEEK_HOLE) : size;
	*ret_begin = begin < size ? begin : size;
	*ret_end = end > begin && end < size ? end : size;
}

static bool same_part(int a, int b, off_t at, off_t end)
{
	ssize_t n, m;

	for (; at < end; at += n) {
		size_t most = end - at < (off_t)CHUNK ? (size_t)(end - at) : CHUNK;

		n = read_full(a, chunk[0], most, at);
		m = read_full(b, chunk[1], most, at);
		if (n <= 0 || n != m || cb_layer_stopped() || memcmp(chunk[0], chunk[1], (size_t)n) != 0)
			return false;
	}
	return true;
}

bool cb_layer_same_data(int a, int b, bool skip_holes)
{
	off_t begin[2] = { 0 }, end[2], at = 0, size;
	struct stat st[2];

	if (fstat(a, &st[0]) < 0 || fstat(b, &st[1]) < 0 || st[0].st_size != st[1].st_size)
		return false;
	size = end[0] = end[1] = st[0].st_size;
	for (; at < size && !cb_layer_stopped(); at = end[0]) {
		if (skip_holes) {
			next_data(a, at, size, &begin[0], &end[0]);
			next_data(b, at, size, &begin[1], &end[1]);
		}
		if (begin[1] < begin[0]) {
			begin[0] = begin[1];
			end[0] = end[1];
		}
		if (!same_part(a, b, begin[0], end[0]))
			return false;
	}
	return at >= size;
}

bool cb_layer_same_file(const struct cb_layer *layer, const struct cb_layer_entry *e)
{
	struct stat a, b;
	CB_AUTO_FD upper = cb_layer_open_file(e->upper, e->name, &a);
	CB_AUTO_FD lower = -1;

	cb_layer_as_owner(layer, true);
	lower = cb_layer_open_file(e->lower, e->name, &b);
	cb_layer_as_owner(layer, false);
	if (upper < 0 || lower < 0 || a.st_size != b.st_size || ((e->st.st_mode ^ b.st_mode) & 0777) != 0 ||
	    a.st_size > COMPARE_MAX)
		return false;
	return cb_layer_same_data(upper, lower, false); /* COMPARE_MAX bounds it */
}

int cb_layer_read_link(int dirfd, const char *name, char target[PATH_MAX])
{
	ssize_t n = readlinkat(dirfd, name, target, PATH_MAX);

	if (n < 0)
		return -errno;
	if (n == PATH_MAX)
		return -ENAMETOOLONG;
	target[n] = '\0';
	return 0;
}

bool cb_layer_same_link(const struct cb_layer *layer, const struct cb_layer_entry *e)
{
	char lower[PATH_MAX];
	int r;

	cb_layer_as_owner(layer, true);
	r = cb_layer_read_link(e->lower, e->name, lower);
	cb_layer_as_owner(layer, false);
	return r == 0 && strcmp(layer->target, lower) == 0;
}

int cb_layer_copy_data(int from, int to, off_t size, bool can_stop, uint64_t *room)
{
	off_t at = 0;

	while (at < size) {
		off_t start = lseek(from, at, SEEK_DATA), end;

		if (start < 0 || start >= size)
			break; /* ENXIO: nothing but a hole follows */
		end = lseek(from, start, SEEK_HOLE);
		if (end < 0 || lseek(to, start, SEEK_SET) < 0)
			return -errno;
		for (at = start; at < end && at < size;) {
			off_t left = (end < size ? end : size) - at;
			ssize_t n = read_full(from, chunk[0], left < (off_t)CHUNK ? (size_t)left : CHUNK, at);
			int r = n <= 0				      ? (int)n
				: room != NULL && (uint64_t)n > *room ? CB_E_TOO_BIG
								      : cb_fd_write_all(to, chunk[0], (size_t)n);

			if (r < 0)
				return r;
			if (n == 0)
				return 0; /* shorter by now */
			if (can_stop && cb_layer_stopped())
				return -EINTR;
			if (room != NULL)
				*room -= (uint64_t)n;
			at += n;
		}
	}
	return ftruncate(to, size) < 0 ? -errno : 0;
}

static int fill(int from, int to, const struct stat *st, uint64_t *room)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };
	int r = cb_layer_copy_data(from, to, st->st_size, true, room);

	if (r == 0 && (fchmod(to, st->st_mode & 0777) < 0 || futimens(to, times) < 0))
		r = -errno;
	return r;
}

/* What the copy, which no cell can write, becomes by what git may read of it. */
static int check_git_file(const struct cb_layer_entry *e, int fd, const struct stat *st)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };
	char *data = NULL;
	size_t n;
	int r = lseek(fd, 0, SEEK_SET) < 0 ? -errno : cb_judge_git_file(e->part, e->lower, fd, &data, &n);

	if (r == 0 && (lseek(fd, 0, SEEK_SET) < 0 || ftruncate(fd, 0) < 0))
		r = -errno;
	if (r == 0)
		r = cb_fd_write_all(fd, data, n);
	if (r == 0 && futimens(fd, times) < 0)
		r = -errno;
	free(data);
	return r;
}

/* What others made in the moment before can make a repository of its folder: then it goes again. */
static int keep_made(const struct cb_layer_entry *e, int flags)
{
	const struct cb_judged judged = { .parent = e->lower, .maker = e->maker };
	int r = cb_judge_made(&judged);

	if (r < 0)
		(void)unlinkat(e->lower, e->name, flags);
	return r;
}

/* ---- what we have done is not taken for others' ---- */

static bool is_known(const struct cb_layer *layer, const struct stat *st)
{
	return cb_written_has(layer->jail->written, st) || !cb_is_after(st->st_ctim, layer->jail->started);
}

/* What others may have made of it since is not ours. */
static void note(const struct cb_layer *layer, const struct stat *before, const struct stat *now)
{
	if (cb_is_same_file(now, before) && now->st_mode == before->st_mode && now->st_size == before->st_size &&
	    now->st_mtim.tv_sec == before->st_mtim.tv_sec && now->st_mtim.tv_nsec == before->st_mtim.tv_nsec)
		cb_written_note(layer->jail->written, now);
}

/* A file that loses this name changes under its others. -1 if it has none, or others have changed it. */
static int hold_others(const struct cb_layer *layer, int folder, const char *name, const struct stat *st)
{
	if (!S_ISREG(st->st_mode) || st->st_nlink < 2 || !is_known(layer, st))
		return -1;
	return openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

static void note_others(const struct cb_layer *layer, int fd, const struct stat *before)
{
	struct stat now;

	if (fd >= 0 && fstat(fd, &now) == 0)
		note(layer, before, &now);
}

static int rename_made(const struct cb_layer *layer, const struct cb_layer_entry *e, const struct cb_layer_made *made)
{
	CB_AUTO_FD others = e->exists ? hold_others(layer, e->lower, e->name, &e->old) : -1;
	struct stat now;

	if (renameat(e->lower, made->name, e->lower, e->name) < 0)
		return -errno;
	if (fstatat(e->lower, e->name, &now, AT_SYMLINK_NOFOLLOW) == 0)
		note(layer, &made->st, &now);
	note_others(layer, others, &e->old);
	return keep_made(e, 0);
}

int cb_layer_put(const struct cb_layer *layer, const struct cb_layer_entry *e, const struct cb_layer_made *made)
{
	int r;

	cb_layer_as_owner(layer, true);
	r = cb_layer_still(layer, e);
	if (r == 0)
		r = rename_made(layer, e, made);
	if (r < 0)
		(void)unlinkat(e->lower, made->name, 0);
	cb_layer_as_owner(layer, false);
	return r;
}

void cb_layer_drop_made(const struct cb_layer *layer, const struct cb_layer_entry *e, const struct cb_layer_made *made)
{
	cb_layer_as_owner(layer, true);
	(void)unlinkat(e->lower, made->name, 0);
	cb_layer_as_owner(layer, false);
}

int cb_layer_make_file(struct cb_layer *layer, const struct cb_layer_entry *e, struct cb_layer_made *ret)
{
	struct stat st;
	CB_AUTO_FD from = cb_layer_open_file(e->upper, e->name, &st);
	CB_AUTO_FD to = -1;
	bool made_it;
	int r = from < 0 ? from : 0;

	if (r < 0)
		return r;
	st.st_mode = e->st.st_mode; /* as it is to be: see overlay_changes.c */
	cb_unique_name(TEMPORARY, ret->name, sizeof(ret->name));
	cb_layer_as_owner(layer, true);
	to = openat(e->lower, ret->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	r = to < 0 ? -errno : fill(from, to, &st, &layer->room);
	if (r == 0 && e->part != CB_GIT_OTHER)
		r = check_git_file(e, to, &st);
	if (r == 0 && fstat(to, &ret->st) < 0)
		r = -errno;
	made_it = to >= 0;
	cb_fd_close(&to); /* when it is closed it may change once more */
	if (r < 0 && made_it)
		(void)unlinkat(e->lower, ret->name, 0);
	cb_layer_as_owner(layer, false);
	return r;
}

int cb_layer_make_name(const struct cb_layer *layer, const struct cb_layer_entry *e, const struct cb_link *file,
		       struct cb_layer_made *ret)
{
	CB_AUTO_FD own = -1;
	struct stat st;
	bool made;
	int r;

	memset(&ret->st, 0, sizeof(ret->st));
	cb_unique_name(TEMPORARY, ret->name, sizeof(ret->name));
	cb_layer_as_owner(layer, true);
	r = cb_layer_still(layer, e);
	if (r == 0 && cb_open_beneath(layer->root, file->path, O_PATH | O_NOFOLLOW, &own) == 0 &&
	    (fstat(own, &ret->st) < 0 || !is_known(layer, &ret->st)))
		ret->st.st_ino = 0; /* others have changed it: that stays theirs */
	if (r == 0)
		r = cb_links_make(file, layer->root, e->lower, ret->name);
	made = r == 0;
	if (r == 0 && (fstatat(e->lower, ret->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !cb_links_is(file, &st)))
		r = -ESTALE;
	if (r < 0 && made)
		(void)unlinkat(e->lower, ret->name, 0);
	cb_layer_as_owner(layer, false);
	return r;
}

int cb_layer_make_link(const struct cb_layer *layer, const struct cb_layer_entry *e, struct cb_layer_made *ret)
{
	int r;

	cb_unique_name(TEMPORARY, ret->name, sizeof(ret->name));
	cb_layer_as_owner(layer, true);
	r = cb_layer_still(layer, e);
	if (r == 0 && symlinkat(layer->target, e->lower, ret->name) < 0)
		r = -errno;
	if (r == 0 && fstatat(e->lower, ret->name, &ret->st, AT_SYMLINK_NOFOLLOW) < 0) {
		r = -errno;
		(void)unlinkat(e->lower, ret->name, 0);
	}
	cb_layer_as_owner(layer, false);
	return r;
}

int cb_layer_write_folder(const struct cb_layer *layer, const struct cb_layer_entry *e)
{
	CB_AUTO_FD folder = -1;
	struct stat st;
	int r;

	(void)layer;
	if (mkdirat(e->lower, e->name, 0700 | (e->st.st_mode & 0777)) == 0)
		return keep_made(e, AT_REMOVEDIR);
	if (errno != EEXIST)
		return -errno;
	r = cb_open_beneath(e->lower, e->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, &folder);
	if (r < 0)
		return r;
	if (fstat(folder, &st) < 0)
		return -errno;
	if (e->exists && S_ISDIR(e->old.st_mode) && st.st_mode != e->old.st_mode)
		return -ESTALE; /* by others, in this moment */
	if (fchmod(folder, (st.st_mode & 07000) | 0700 | (e->st.st_mode & 0777)) < 0)
		return -errno;
	return 0;
}

static void set_mode(const struct cb_layer *layer, int folder, mode_t mode)
{
	cb_layer_as_owner(layer, true);
	(void)!fchmod(folder, mode); /* another's folder: what can't be written in it will say so */
	cb_layer_as_owner(layer, false);
}

void cb_layer_unlock_folder(const struct cb_layer *layer, int folder, struct stat *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (!layer->commit || folder < 0 || fstat(folder, ret) < 0 || (ret->st_mode & 0700) == 0700)
		return;
	set_mode(layer, folder, (ret->st_mode & 07777) | 0700);
	(void)fstat(folder, ret);
}

void cb_layer_lock_folder(const struct cb_layer *layer, int folder, const struct stat *unlocked, mode_t mode,
			  bool agreed)
{
	struct stat st;

	if (!layer->commit || folder < 0 || fstat(folder, &st) < 0 || st.st_mode != unlocked->st_mode)
		return;
	if (((st.st_mode ^ mode) & 0777) != 0)
		set_mode(layer, folder, (st.st_mode & 07000) | (mode & 0777));
	if (agreed && fstat(folder, &st) == 0 && ((st.st_mode ^ mode) & 0777) == 0)
		cb_written_note(layer->jail->written, &st);
}

/* -ENOTEMPTY if something protected, or newer, had to stay. */
static int remove_inside(struct cb_layer *layer, int folder, const char *path, int depth)
{
	CB_AUTO_FOLDER dir = cb_folder_open(folder, ".", 0);
	const struct dirent *d;
	char full[PATH_MAX];
	int r = 0;

	if (dir == NULL)
		return -errno;
	while ((d = cb_folder_next(dir)) != NULL) {
		int one;

		if (cb_layer_stopped())
			return -EINTR;
		one = snprintf(full, sizeof(full), "%s/%s", path, d->d_name) < (int)sizeof(full)
			      ? cb_layer_remove(layer, folder, d->d_name, full, depth + 1)
			      : -ENAMETOOLONG;
		if (r == 0)
			r = one;
	}
	return r;
}

/* Looked at once more: the judge has taken its time. */
static int remove_name(struct cb_layer *layer, int lower, const char *name, const char *path)
{
	CB_AUTO_FD others = -1;
	struct stat st;

	if (fstatat(lower, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (cb_layer_is_newer(layer, path, &st))
		return -ENOTEMPTY;
	others = hold_others(layer, lower, name, &st);
	if (unlinkat(lower, name, 0) < 0)
		return -errno;
	note_others(layer, others, &st);
	return 0;
}

/* That it has lost what was removed from it is nobody else's change. */
static void note_rest(const struct cb_layer *layer, int folder, const struct stat *before)
{
	struct stat now;

	if (fstat(folder, &now) == 0 && now.st_mode == before->st_mode)
		cb_written_note(layer->jail->written, &now);
}

int cb_layer_remove(struct cb_layer *layer, int lower, const char *name, const char *path, int depth)
{
	CB_AUTO_FD folder = -1;
	struct stat st;
	int r;

	if (fstatat(lower, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	r = cb_layer_judge(layer, lower, path, CB_ACT_REMOVE, &st, true, NULL);
	if (r < 0)
		return r == -EROFS ? -ENOTEMPTY : r;
	if (!S_ISDIR(st.st_mode))
		return remove_name(layer, lower, name, path);
	if (depth >= CB_LAYER_DEPTH_MAX)
		return -ELOOP;
	r = cb_open_beneath(lower, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, &folder);
	if (r == 0 && fstat(folder, &st) == 0 && st.st_dev != layer->dev)
		r = -EXDEV;
	if (r < 0)
		return r;
	if (cb_layer_is_newer(layer, path, &st))
		return -ENOTEMPTY;
	r = remove_inside(layer, folder, path, depth);
	if (r == 0 && unlinkat(lower, name, AT_REMOVEDIR) < 0)
		r = -errno;
	if (r < 0)
		note_rest(layer, folder, &st);
	return r;
}
