/* What others have made a moment ago: see cb_made_look.
 *
 * Trust domain: the notifier. Programs outside save a file by writing one of another name, which nobody protects, and
 * renaming it. A cell that has opened, linked, moved or replaced that one meanwhile would have its way with what is
 * protected. So what was made in the last moment, and not by this jail, is left alone; afterwards it is judged by the
 * name that it has then. The kernel tells when a file was made, and nobody can set that. Nor is a folder moved while
 * such a file is somewhere below it: another would come to its place, with a file of that name.
 *
 * Kept is what this jail has made in the last moment, by device, inode and that time; what it has removed is not, for
 * its number may come again. Bounded: past it the oldest are taken for others', as after a notifier's new start.
 */
#include "../shared/mounts.h"
#include "calls.h"

#include <cellblock/clock.h>
#include <cellblock/folder.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <time.h>

#define MOMENT_MS 2000
#define SLACK_MS 1000 /* between two clocks, of which one may be set */
#define OWN_MAX 131072u

struct own {
	dev_t dev;
	ino_t ino;
	int64_t made_ns;
	int64_t until_ms; /* then it is no news any more */
	bool known;	  /* in the tree */
	struct own *newer;
};

static struct {
	void *tree; /* of tsearch, by dev and ino */
	struct own *oldest, *newest;
	size_t count;
	pthread_mutex_t lock;
} own = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int compare(const void *a, const void *b)
{
	const struct own *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static struct own *look_up(dev_t dev, ino_t ino)
{
	const struct own key = { .dev = dev, .ino = ino };
	struct own *const *found = tfind(&key, &own.tree, compare);

	return found != NULL ? *found : NULL;
}

static void forget(struct own *o)
{
	if (o != NULL && o->known)
		tdelete(o, &own.tree, compare);
	if (o != NULL)
		o->known = false;
}

static void drop_oldest(void)
{
	struct own *o = own.oldest;

	forget(o);
	own.oldest = o->newer;
	if (own.oldest == NULL)
		own.newest = NULL;
	own.count--;
	free(o);
}

static void enter(dev_t dev, ino_t ino, int64_t made_ns)
{
	int64_t now = cb_now_ms();
	struct own *o;

	while (own.oldest != NULL && (own.oldest->until_ms <= now || own.count >= OWN_MAX))
		drop_oldest();
	forget(look_up(dev, ino));
	o = malloc(sizeof(*o));
	if (o == NULL)
		return;
	*o = (struct own){ .dev = dev, .ino = ino, .made_ns = made_ns, .until_ms = now + MOMENT_MS + SLACK_MS };
	o->known = tsearch(o, &own.tree, compare) != NULL;
	if (own.newest != NULL)
		own.newest->newer = o;
	else
		own.oldest = o;
	own.newest = o;
	own.count++;
}

static int64_t in_ns(int64_t seconds, int64_t ns)
{
	return seconds * 1000000000 + ns;
}

int64_t cb_made_at(int at, const char *name)
{
	struct statx sx;

	return cb_birth_of(at, name, &sx) ? in_ns(sx.stx_btime.tv_sec, sx.stx_btime.tv_nsec) : 0;
}

static bool is_recent(int64_t ns)
{
	struct timespec now;
	int64_t age_ms;

	clock_gettime(CLOCK_REALTIME, &now);
	age_ms = (in_ns(now.tv_sec, now.tv_nsec) - ns) / 1000000;
	return age_ms < MOMENT_MS && age_ms > -MOMENT_MS; /* farther ahead: a clock that was set, or another's */
}

void cb_made_note(int at, const char *name)
{
	struct statx sx;

	if (!cb_birth_of(at, name, &sx))
		return;
	pthread_mutex_lock(&own.lock);
	enter(makedev(sx.stx_dev_major, sx.stx_dev_minor), sx.stx_ino,
	      in_ns(sx.stx_btime.tv_sec, sx.stx_btime.tv_nsec));
	pthread_mutex_unlock(&own.lock);
}

/* The copy has the number of what it is made from where both lie on one file system; else it is waited for. */
bool cb_made_copied(int fd, const struct stat *before)
{
	struct statfs fs;

	if (S_ISDIR(before->st_mode) || is_recent(in_ns(before->st_ctim.tv_sec, before->st_ctim.tv_nsec)) ||
	    fstatfs(fd, &fs) < 0 || fs.f_type != OVERLAYFS_SUPER_MAGIC)
		return false;
	cb_made_note(fd, "");
	return true;
}

void cb_made_removed(const struct stat *st)
{
	if (st->st_nlink > 1 || S_ISDIR(st->st_mode))
		return;
	pthread_mutex_lock(&own.lock);
	forget(look_up(st->st_dev, st->st_ino));
	pthread_mutex_unlock(&own.lock);
}

int cb_made_look(int at, const char *name, const struct stat *st)
{
	const struct own *o;
	struct statx sx;
	int64_t made;
	bool is_own;

	/* nothing changes before it is made */
	if (S_ISDIR(st->st_mode) || !is_recent(in_ns(st->st_ctim.tv_sec, st->st_ctim.tv_nsec)) ||
	    !cb_birth_of(at, name, &sx))
		return 0;
	made = in_ns(sx.stx_btime.tv_sec, sx.stx_btime.tv_nsec);
	if (!is_recent(made))
		return 0;
	pthread_mutex_lock(&own.lock);
	o = look_up(makedev(sx.stx_dev_major, sx.stx_dev_minor), sx.stx_ino);
	is_own = o != NULL && o->made_ns == made;
	pthread_mutex_unlock(&own.lock);
	return is_own ? 0 : -CB_TOO_NEW;
}

static int look_below(int fd, unsigned depth, unsigned *seen);

/* `news`: the folder says that something has changed in it. What is gone meanwhile was no save's. */
static int look_at(int parent, const struct dirent *e, bool news, unsigned depth, unsigned *seen)
{
	bool folder = e->d_type == DT_DIR;
	struct stat st;
	int fd;

	if ((*seen)++ >= CB_TREE_ENTRIES_MAX)
		return -EXDEV;
	if (!folder && !news && e->d_type != DT_UNKNOWN)
		return 0;
	if (!folder && fstatat(parent, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -EXDEV;
	if (!folder && !S_ISDIR(st.st_mode))
		return cb_made_look(parent, e->d_name, &st);
	fd = openat(parent, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 && errno == ENOENT ? 0 : look_below(fd, depth + 1, seen);
}

/* Takes the descriptor. By the time of change, not of writing, which can be set. */
static int look_below(int fd, unsigned depth, unsigned *seen)
{
	CB_AUTO_FOLDER dir = cb_folder_take(fd);
	struct stat st;
	int r = dir == NULL || depth >= CB_TREE_DEPTH_MAX || fstat(fd, &st) < 0 ? -EXDEV : 0;
	bool news = r == 0 && is_recent(in_ns(st.st_ctim.tv_sec, st.st_ctim.tv_nsec));
	const struct dirent *e;

	while (r == 0 && (e = cb_folder_next(dir)) != NULL)
		r = look_at(fd, e, news, depth, seen);
	return r == 0 && errno != 0 ? -EXDEV : r;
}

int cb_made_look_below(int folder)
{
	unsigned seen = 0;

	return look_below(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0, &seen);
}
