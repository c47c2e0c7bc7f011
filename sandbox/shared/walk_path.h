/* Where a walk through a tree stands. Trust domain: whoever walks; names are hostile code's. */
#pragma once

#include <limits.h>
#include <stddef.h>

/* The path of what is being looked at, grown and cut as a walk goes down and up. */
struct cb_walk_path {
	char text[PATH_MAX];
	size_t len;
	unsigned lost; /* folders down that had no room in it: until it is back up there is no path */
};

/* Gives what cb_walk_up takes. */
size_t cb_walk_down(struct cb_walk_path *p, const char *name);
void cb_walk_up(struct cb_walk_path *p, size_t before);
