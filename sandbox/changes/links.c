/* Hard links of a tree that is copied: see links.h.
 *
 * Trust domain: broker's child, outside. Invariants: a link is made from a name in a folder that was opened without
 * following links; what is kept is bounded.
 */
#include "links.h"

#include "../shared/mounts.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int compare(const void *a, const void *b)
{
	const struct cb_link *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

void cb_links_release(struct cb_links *l)
{
	tdestroy(l->tree, free);
	*l = (struct cb_links){ 0 };
}

const struct cb_link *cb_links_find(const struct cb_links *l, const struct stat *file)
{
	const struct cb_link key = { .dev = file->st_dev, .ino = file->st_ino };
	void *const *found = tfind(&key, &l->tree, compare);

	return found != NULL ? *found : NULL;
}

bool cb_links_add(struct cb_links *l, const struct stat *file, const char *path, const struct stat *to)
{
	size_t size = strlen(path) + 1;
	struct cb_link *link;
	void *const *at;

	if (l->count >= CB_LINKS_MAX || l->bytes + size > CB_LINKS_BYTES)
		return false;
	link = malloc(sizeof(*link) + size);
	if (link == NULL)
		return false;
	*link = (struct cb_link){
		.dev = file->st_dev, .ino = file->st_ino, .to_dev = to->st_dev, .to_ino = to->st_ino
	};
	memcpy(link->path, path, size);
	at = tsearch(link, &l->tree, compare);
	if (at == NULL || *at != link) { /* no memory, or it is known already */
		free(link);
		return at != NULL;
	}
	l->count++;
	l->bytes += size;
	return true;
}

bool cb_links_is(const struct cb_link *link, const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_dev == link->to_dev && st->st_ino == link->to_ino;
}

int cb_links_make(const struct cb_link *link, int root, int folder, const char *name)
{
	const char *slash = strrchr(link->path, '/');
	CB_AUTO_FD parent = -1;
	char above[PATH_MAX] = ".";
	int r;

	if (slash != NULL) {
		memcpy(above, link->path, (size_t)(slash - link->path));
		above[slash - link->path] = '\0';
	}
	r = cb_open_beneath(root, above, O_PATH | O_DIRECTORY, &parent);
	if (r < 0)
		return r;
	return linkat(parent, slash != NULL ? slash + 1 : link->path, folder, name, 0) < 0 ? -errno : 0;
}
