/* Hard links of a tree that is copied: the names of one file become the names of one file again.
 *
 * Trust domain: broker's child, outside. The tree was made by hostile code, and what was copied may be changed by
 * others at any time.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#define CB_LINKS_MAX 65536u	     /* files with several names */
#define CB_LINKS_BYTES (16u << 20) /* of the names that are kept */

/* A file, by what it is in the tree that is copied, and the first name that its copy was given. */
struct cb_link {
	dev_t dev, to_dev;
	ino_t ino, to_ino;
	char path[]; /* below the copy's root */
};

struct cb_links {
	void *tree;
	size_t count, bytes;
};

void cb_links_release(struct cb_links *l);
/* What was added for this file; NULL if nothing was. */
const struct cb_link *cb_links_find(const struct cb_links *l, const struct stat *file);
/* `to` is the copy at `path`. False where there is no room left: nothing is kept, and further names become files of
 * their own. */
bool cb_links_add(struct cb_links *l, const struct stat *file, const char *path, const struct stat *to);
/* Whether `st` is the copy. */
bool cb_links_is(const struct cb_link *link, const struct stat *st);
/* Makes `name`, which must be free, another name of what is at the copy's path: the caller looks whether it is that. */
int cb_links_make(const struct cb_link *link, int root, int folder, const char *name);
