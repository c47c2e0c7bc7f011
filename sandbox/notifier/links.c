/* What this jail itself has given names to: files with several hard links, and sockets.
 *
 * Trust domain: the notifier. A file with a second name may have it anywhere on the host, protected or outside the
 * workspace: it is written only if each of its names is one that this jail gave it, and is that file still. So names
 * that others have removed, or given to another inode, do not count. A socket is connected to only if this jail has
 * bound it: the inode's number may come again, for a server of the host's, so it counts with the time when it was made;
 * where the file system does not know that, the inode is held open. Bounded in entries, bytes and descriptors: past it
 * a link is refused, and the sockets that were bound before are not known any more. A notifier that was started anew
 * knows nothing, and refuses.
 */
#include "calls.h"

#include "../shared/mounts.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#define KNOWN_MAX 65536u
#define NAMES_MAX 16u
#define BYTES_MAX (16u << 20) /* of all names */
#define HELD_MAX 1024u	      /* sockets that are held open */

struct known {
	dev_t dev;
	ino_t ino;
	char *names[NAMES_MAX]; /* of a file; owned, NULL = free */
	int64_t made_ns;	/* of a socket; 0 = the file system does not know */
	int held;		/* then it is this one, O_PATH; owned, -1 else */
};

struct set {
	void *root; /* of tsearch */
	size_t count, held;
};
static struct set files, sockets;
static size_t bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int compare(const void *a, const void *b)
{
	const struct known *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static struct known *look_up(const struct set *set, const struct stat *st)
{
	const struct known key = { .dev = st->st_dev, .ino = st->st_ino };
	struct known *const *found = tfind(&key, &set->root, compare);

	return found != NULL ? *found : NULL;
}

static struct known *enter(struct set *set, const struct stat *st)
{
	struct known *k = look_up(set, st);

	if (k != NULL)
		return k;
	k = set->count < KNOWN_MAX ? malloc(sizeof(*k)) : NULL;
	if (k == NULL)
		return NULL;
	*k = (struct known){ .dev = st->st_dev, .ino = st->st_ino, .held = -1 };
	if (tsearch(k, &set->root, compare) == NULL) {
		free(k);
		return NULL;
	}
	set->count++;
	return k;
}

static void drop_name(char **name)
{
	if (*name != NULL)
		bytes -= strlen(*name) + 1;
	free(*name);
	*name = NULL;
}

static void release(void *known)
{
	struct known *k = known;

	for (size_t i = 0; i < NAMES_MAX; i++)
		drop_name(&k->names[i]);
	cb_fd_close(&k->held);
	free(k);
}

static void forget(struct set *set, struct known *k)
{
	tdelete(k, &set->root, compare);
	set->count--;
	set->held -= k->held >= 0;
	release(k);
}

static bool is_name_of(const struct known *k, const char *name)
{
	CB_AUTO_FD fd = -1;
	struct stat st;

	return cb_open_beneath(cb_notify_self.judge.root, name, O_PATH | O_NOFOLLOW, &fd) == 0 && fstat(fd, &st) == 0 &&
	       st.st_dev == k->dev && st.st_ino == k->ino;
}

/* In a free place, or in that of a name that means another file by now. */
static int add_name(struct known *k, const char *name)
{
	char **place = NULL;

	for (size_t i = 0; i < NAMES_MAX; i++) {
		if (k->names[i] != NULL && strcmp(k->names[i], name) == 0)
			return 0;
		if (place == NULL && (k->names[i] == NULL || !is_name_of(k, k->names[i])))
			place = &k->names[i];
	}
	if (place == NULL || bytes + strlen(name) + 1 > BYTES_MAX)
		return -EMLINK;
	drop_name(place);
	*place = strdup(name);
	if (*place == NULL)
		return -ENOMEM;
	bytes += strlen(name) + 1;
	return 0;
}

int cb_links_added(const struct stat *st, const char *old_name, const char *new_name)
{
	struct known *k;
	int r;

	pthread_mutex_lock(&lock);
	k = enter(&files, st);
	r = k != NULL ? add_name(k, old_name) : -EMLINK;
	if (r == 0)
		r = add_name(k, new_name);
	pthread_mutex_unlock(&lock);
	return r;
}

void cb_links_renamed(const struct stat *st, const char *name)
{
	struct known *k;

	pthread_mutex_lock(&lock);
	k = look_up(&files, st);
	if (k != NULL)
		(void)add_name(k, name); /* without it the file is read-only */
	pthread_mutex_unlock(&lock);
}

void cb_links_removed(const struct stat *st)
{
	struct known *k;

	pthread_mutex_lock(&lock);
	k = look_up(&files, st);
	if (k != NULL && st->st_nlink <= 2)
		forget(&files, k);
	k = look_up(&sockets, st);
	if (k != NULL && st->st_nlink <= 1)
		forget(&sockets, k);
	pthread_mutex_unlock(&lock);
	cb_made_removed(st);
}

bool cb_links_known(const struct stat *st)
{
	const struct known *k;
	nlink_t names = 0;

	pthread_mutex_lock(&lock);
	k = look_up(&files, st);
	for (size_t i = 0; k != NULL && i < NAMES_MAX; i++)
		names += k->names[i] != NULL && is_name_of(k, k->names[i]);
	pthread_mutex_unlock(&lock);
	return names >= st->st_nlink;
}

int cb_sockets_bound(int folder, const char *name, int64_t since)
{
	CB_AUTO_FD fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct known *k;
	struct stat st;
	int64_t made;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	made = cb_made_at(fd, "");
	if (!S_ISSOCK(st.st_mode) || (made != 0 && made < since))
		return -EBUSY;
	pthread_mutex_lock(&lock);
	/* where unlink is not served, those that have gone are not forgotten */
	if (sockets.count == KNOWN_MAX || sockets.held == HELD_MAX) {
		tdestroy(sockets.root, release);
		sockets = (struct set){ .count = 0 };
	}
	k = look_up(&sockets, &st);
	if (k != NULL) /* another socket, which had that number before */
		forget(&sockets, k);
	k = enter(&sockets, &st);
	if (k != NULL && made == 0) {
		k->held = cb_fd_take(&fd);
		sockets.held++;
	} else if (k != NULL) {
		k->made_ns = made;
	}
	pthread_mutex_unlock(&lock);
	return k != NULL ? 0 : -ENOSPC;
}

bool cb_sockets_known(int fd, const struct stat *st)
{
	int64_t made = cb_made_at(fd, "");
	const struct known *k;
	bool known;

	pthread_mutex_lock(&lock);
	k = look_up(&sockets, st);
	known = k != NULL && k->made_ns == made;
	pthread_mutex_unlock(&lock);
	return known;
}
