/* Git's indexes and references, and the locks that become them: see enum cb_git_part.
 *
 * Trust domain: the notifier. What a cell has written there is looked at, and what was looked at is what is put in
 * place: a file of our own, whose name no cell may open, since a cell may still hold the one that it wrote. Nobody
 * waits until the disk has it, as git does not either unless it is set up so.
 *
 * A lock is git's promise to itself: what it has written there it renames onto the file. So of locks that git outside
 * has made a cell can't write, replace or remove one. Those that this jail has made are known by inode; each is held
 * open, so that its number does not come again. Bounded: past it a lock can't be made. A notifier that was started anew
 * knows none. Called with the lock for changes held, but for cb_git_open.
 */
#include "calls.h"

#include "../shared/mounts.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LOCKS_MAX 1024u /* git locks all references that it changes together */
#define LOCKS_FEW 64u
#define NAME_TRIES 8 /* another jail in the same folder */

/* The lowest `count` are in use. */
static struct {
	struct lock {
		int fd;
		dev_t dev;
		ino_t ino;
	} list[LOCKS_MAX];
	unsigned count, full; /* full: then those that have gone are looked for */
	pthread_mutex_t mutex;
} locks = { .full = LOCKS_FEW, .mutex = PTHREAD_MUTEX_INITIALIZER };

static struct lock *find(const struct stat *st)
{
	for (unsigned i = 0; i < locks.count; i++)
		if (locks.list[i].ino == st->st_ino && locks.list[i].dev == st->st_dev)
			return &locks.list[i];
	return NULL;
}

static bool is_own(const struct stat *st)
{
	bool found;

	pthread_mutex_lock(&locks.mutex);
	found = find(st) != NULL;
	pthread_mutex_unlock(&locks.mutex);
	return found;
}

static void drop(struct lock *lock)
{
	cb_fd_close(&lock->fd);
	*lock = locks.list[--locks.count];
}

static void forget(const struct stat *st)
{
	struct lock *lock;

	pthread_mutex_lock(&locks.mutex);
	lock = find(st);
	if (lock != NULL)
		drop(lock);
	pthread_mutex_unlock(&locks.mutex);
}

/* Seldom enough that many cost no more than few. */
static void forget_removed(void)
{
	struct stat st;

	for (unsigned i = 0; i < locks.count;) {
		if (fstat(locks.list[i].fd, &st) == 0 && st.st_nlink > 0)
			i++;
		else
			drop(&locks.list[i]);
	}
	locks.full = locks.count < LOCKS_FEW / 2 ? LOCKS_FEW : 2 * locks.count;
	locks.full = locks.full < LOCKS_MAX ? locks.full : LOCKS_MAX;
}

static int keep(int fd, const struct stat *st)
{
	int r = -EMFILE;

	pthread_mutex_lock(&locks.mutex);
	if (locks.count >= locks.full)
		forget_removed();
	if (locks.count < LOCKS_MAX) {
		locks.list[locks.count++] = (struct lock){ .fd = fd, .dev = st->st_dev, .ino = st->st_ino };
		r = 0;
	}
	pthread_mutex_unlock(&locks.mutex);
	return r;
}

int cb_git_make(const struct cb_judged *j)
{
	return j->part == CB_GIT_OTHER ? 0 : -EROFS;
}

mode_t cb_git_mode_of(const struct cb_judged *j, mode_t mode)
{
	return j->in_git ? cb_git_mode(j->parent, j->name, mode) : mode;
}

int cb_git_made(const struct cb_judged *j, int fd)
{
	CB_AUTO_FD own = -1;
	struct stat st, made;
	int r;

	if (j->part != CB_GIT_LOCK)
		return 0;
	own = openat(j->parent, j->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (own < 0 || fstat(own, &st) < 0 || fstat(fd, &made) < 0)
		return -errno;
	if (!cb_is_same_file(&st, &made))
		return -EROFS; /* another's by now */
	r = keep(own, &st);
	if (r < 0)
		(void)unlinkat(j->parent, j->name, 0);
	else
		own = -1;
	return r;
}

int cb_git_open(const struct cb_judged *j, int fd, int flags)
{
	struct stat st;

	if (j->part == CB_GIT_OTHER || ((flags & O_ACCMODE) == O_RDONLY && (flags & O_TRUNC) == 0))
		return 0;
	if (fstat(fd, &st) < 0)
		return -errno;
	return j->part == CB_GIT_LOCK && is_own(&st) ? 0 : -EROFS;
}

int cb_git_remove(const struct cb_judged *j, const struct stat *st)
{
	return j->part != CB_GIT_LOCK || is_own(st) ? 0 : -EROFS;
}

/* ---- one comes into being ---- */

/* Git passes over what begins with a dot, also below refs. */
static int make_file(int folder, mode_t mode, char name[64], int *ret_fd)
{
	struct timespec now;
	int fd;

	clock_gettime(CLOCK_REALTIME, &now);
	(void)umask(0); /* the next call that needs one sets it */
	for (int i = 0; i < NAME_TRIES; i++) {
		snprintf(name, 64, ".cellblock-%lld.%09ld", (long long)now.tv_sec, now.tv_nsec + i);
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
	int r = make_file(to->parent, cb_git_mode_of(to, st->st_mode), name, &fd);

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
	r = cb_judge_git_file(to->part, to->parent, fd, &data, &n);
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
	forget(&st);
	return 0;
}

int cb_git_move(const struct cb_judged *from, const struct cb_judged *to, const struct stat *st)
{
	int r;

	if (from->part == CB_GIT_OTHER && to->part == CB_GIT_OTHER)
		return 0;
	if (from->part != CB_GIT_LOCK && from->part != CB_GIT_OTHER)
		return -EROFS;
	if (to->part == CB_GIT_LOCK || to->part == CB_GIT_OTHER)
		return -EROFS;
	r = cb_git_remove(from, st);
	if (r == 0)
		r = replace(from, to);
	return r < 0 ? r : 1;
}
