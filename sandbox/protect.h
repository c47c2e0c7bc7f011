/* Finding what in a workspace must be read-only: pure but for reading folders, so that it can be tested without a jail.
 */
#pragma once

#include <cellblock/sandbox.h>
#include <stdbool.h>
#include <stddef.h>

#define CB_PROTECT_MAX_ENTRIES 20000u /* directory entries looked at */
#define CB_PROTECT_MAX_DEPTH 16u
#define CB_PROTECT_MAX_FOUND 512u

struct cb_protect_list {
	struct cb_strv paths;  /* relative to the workspace, sorted, none below another */
	size_t links;	       /* of these, symbolic links found by the walk: they are held, what they lead to is not */
	bool look_for_foreign; /* set by the caller: count what belongs to others than the caller */
	size_t foreign;
	bool cut; /* a bound was hit: there may be more */
};

/* Whether the entry at `path` (relative, no leading '/') matches `pattern`: its last components are the pattern's, each
 * compared with fnmatch. */
bool cb_protect_matches(const char *pattern, const char *path);

/* Whether an entry may not come into being in a workspace, by the same rules as the walk's. `folders` are two that hold
 * `name` or may hold it, -1 = none: what one of them has counts; the second is the workspace's own, where entries of
 * earlier goes lie. `path` ends in `name`. */
bool cb_protect_covers(const struct cb_strv *patterns, const int folders[2], const char *path, const char *name,
		       bool folder);

/* Walks the folder `root_fd` (O_PATH or readable), breadth first, without following links. */
int cb_protect_find(int root_fd, const struct cb_strv *patterns, struct cb_protect_list *ret_list);
/* Adds one path (relative to the workspace). */
int cb_protect_add(struct cb_protect_list *list, const char *path);
/* Sorts, and drops what lies below another. */
void cb_protect_finish(struct cb_protect_list *list);
void cb_protect_release(struct cb_protect_list *list);
