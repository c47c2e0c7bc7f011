/* Git's indexes, and the locks that become them: see enum cb_git_part.
 *
 * Trust domain: the notifier. An index that a cell has written is looked at, and what was looked at is what is put in
 * its place: a file of our own, whose name no cell may open, since a cell may still hold the one that it wrote.
 *
 * A lock is git's promise to itself: what it has written there it renames onto the index. So of locks that git outside
 * has made a cell can't write, replace or remove one. Those that this jail has made are known by inode; each is held
 * open, so that its number does not come again. Bounded: past it a lock can't be made. A notifier that was started anew
 * knows none. Called with the lock for changes held, but for cb_index_open.
 */
#include "notify_calls.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOCKS_MAX 64u
#define NAME_TRIES 8 /* another jail in the same folder */

/* The lowest `count` are in use. */
static struct {
	int fds[LOCKS_MAX];
	unsigned count;
	pthread_mutex_t mutex;
} locks = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

static bool is_own(const struct stat *st)
{
	struct stat own;
	bool found = false;

	pthread_mutex_lock(&locks.mutex);
	for (unsigned i = 0; i < locks.count && !found; i++)
		found = fstat(locks.fds[i], &own) == 0 && is_same(&own, st);
	pthread_mutex_unlock(&locks.mutex);
	return found;
}

static void forget_removed(void)
{
	struct stat st;

	for (unsigned i = 0; i < locks.count;) {
		if (fstat(locks.fds[i], &st) == 0 && st.st_nlink > 0) {
			i++;
			continue;
		}
		cb_fd_close(&locks.fds[i]);
		locks.fds[i] = locks.fds[--locks.count];
	}
}

static int keep(int fd)
{
	int r = -EMFILE;

	pthread_mutex_lock(&locks.mutex);
	forget_removed();
	if (locks.count < LOCKS_MAX) {
		locks.fds[locks.count++] = fd;
		r = 0;
	}
	pthread_mutex_unlock(&locks.mutex);
	return r;
}

int cb_index_make(const struct cb_judged *j)
{
	return j->part == CB_GIT_OTHER ? 0 : -EROFS;
}

int cb_index_made(const struct cb_judged *j, int fd)
{
	CB_AUTO_FD own = -1;
	struct stat st, made;
	int r;

	if (j->part != CB_GIT_INDEX_LOCK)
		return 0;
	own = openat(j->parent, j->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (own < 0 || fstat(own, &st) < 0 || fstat(fd, &made) < 0)
		return -errno;
	if (!is_same(&st, &made))
		return -EROFS; /* another's by now */
	r = keep(own);
	if (r < 0)
		(void)unlinkat(j->parent, j->name, 0);
	else
		own = -1;
	return r;
}

int cb_index_open(const struct cb_judged *j, int fd, int flags)
{
	struct stat st;

	if (j->part == CB_GIT_OTHER || ((flags & O_ACCMODE) == O_RDONLY && (flags & O_TRUNC) == 0))
		return 0;
	if (fstat(fd, &st) < 0)
		return -errno;
	return j->part == CB_GIT_INDEX_LOCK && is_own(&st) ? 0 : -EROFS;
}

int cb_index_remove(const struct cb_judged *j, const struct stat *st)
{
	return j->part != CB_GIT_INDEX_LOCK || is_own(st) ? 0 : -EROFS;
}

/* ---- an index comes into being ---- */

static int make_file(int folder, mode_t mode, char name[64], int *ret_fd)
{
	struct timespec now;
	int fd;

	clock_gettime(CLOCK_REALTIME, &now);
	(void)umask(0); /* the next call that needs one sets it */
	for (int i = 0; i < NAME_TRIES; i++) {
		snprintf(name, 64, "cellblock-index-%lld.%09ld", (long long)now.tv_sec, now.tv_nsec + i);
		fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 0777);
		if (fd >= 0) {
			cb_made_note(fd, "");
			*ret_fd = fd;
			return 0;
		}
		if (errno != EEXIST)
			break;
	}
	return -errno;
}

/* With the times of the other: git takes what changed at or after the index's for changed. */
static int put(const struct cb_judged *to, const struct stat *st, const char *data, size_t n)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };
	CB_AUTO_FD fd = -1;
	char name[64];
	int r = make_file(to->parent, st->st_mode, name, &fd);

	if (r < 0)
		return r;
	r = cb_fd_write_all(fd, data, n);
	if (r == 0 && (futimens(fd, times) < 0 || renameat(to->parent, name, to->parent, to->name) < 0))
		r = -errno;
	if (r < 0)
		(void)unlinkat(to->parent, name, 0);
	return r;
}

/* The source's times are taken before it is read: what comes later is not in it. */
static int replace(const struct cb_judged *from, const struct cb_judged *to)
{
	CB_AUTO_FD fd = openat(from->parent, from->name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st, gone;
	char *data = NULL;
	size_t n = 0;
	bool replaces;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	r = cb_judge_index_file(to->parent, fd, &data, &n);
	replaces = fstatat(to->parent, to->name, &gone, AT_SYMLINK_NOFOLLOW) == 0;
	if (r == 0)
		r = put(to, &st, data, n);
	free(data);
	if (r < 0)
		return r;
	if (replaces)
		cb_links_removed(&gone);
	if (unlinkat(from->parent, from->name, 0) < 0)
		return -errno;
	cb_links_removed(&st);
	return 0;
}

int cb_index_move(const struct cb_judged *from, const struct cb_judged *to, const struct stat *st)
{
	int r;

	if (from->part == CB_GIT_OTHER && to->part == CB_GIT_OTHER)
		return 0;
	if (from->part == CB_GIT_INDEX || to->part != CB_GIT_INDEX)
		return -EROFS;
	r = cb_index_remove(from, st);
	if (r == 0)
		r = replace(from, to);
	return r < 0 ? r : 1;
}
