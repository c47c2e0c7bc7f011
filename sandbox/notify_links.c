/* What this jail itself has given names to: files with several hard links, and sockets.
 *
 * Trust domain: the notifier. A file with a second name may have it anywhere on the host, protected or outside the
 * workspace: it is written only if all its names were made by this jail. A socket is connected to only if this jail has
 * bound it. Kept by device, inode and time of birth, for inodes come again. Bounded: past it a link is refused, and a
 * socket can't be bound. A notifier that was started anew knows nothing, and refuses.
 */
#include "notify_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>

#define KNOWN_MAX 65536u

struct known {
	dev_t dev;
	ino_t ino;
	unsigned names; /* that this jail knows of */
};

struct set {
	void *root; /* of tsearch */
	size_t count;
};
static struct set files, sockets;
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
	*k = (struct known){ .dev = st->st_dev, .ino = st->st_ino };
	if (tsearch(k, &set->root, compare) == NULL) {
		free(k);
		return NULL;
	}
	set->count++;
	return k;
}

static void forget(struct set *set, struct known *k)
{
	tdelete(k, &set->root, compare);
	free(k);
	set->count--;
}

int cb_links_added(const struct stat *st, unsigned links_before)
{
	struct known *k;

	pthread_mutex_lock(&lock);
	k = enter(&files, st);
	if (k != NULL)
		k->names = k->names == 0 ? links_before + 1 : k->names + 1;
	pthread_mutex_unlock(&lock);
	return k != NULL ? 0 : -EMLINK;
}

void cb_links_removed(const struct stat *st)
{
	struct known *k;

	pthread_mutex_lock(&lock);
	k = look_up(&files, st);
	if (k != NULL && --k->names <= 1)
		forget(&files, k);
	k = look_up(&sockets, st);
	if (k != NULL)
		forget(&sockets, k);
	pthread_mutex_unlock(&lock);
}

bool cb_links_known(const struct stat *st)
{
	const struct known *k;
	bool known;

	pthread_mutex_lock(&lock);
	k = look_up(&files, st);
	known = k != NULL && st->st_nlink <= k->names;
	pthread_mutex_unlock(&lock);
	return known;
}

int cb_sockets_bound(const struct stat *st)
{
	const struct known *k;

	pthread_mutex_lock(&lock);
	k = enter(&sockets, st);
	pthread_mutex_unlock(&lock);
	return k != NULL ? 0 : -ENOSPC;
}

bool cb_sockets_known(const struct stat *st)
{
	bool known;

	pthread_mutex_lock(&lock);
	known = look_up(&sockets, st) != NULL;
	pthread_mutex_unlock(&lock);
	return known;
}
