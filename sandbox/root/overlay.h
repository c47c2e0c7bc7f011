/* Overlays: a limited layer for changes over a folder. Trust domain: pid 1. */
#pragma once

#include "../shared/jail.h"

/* A detached mount of `lower` (which is used up) with a limited layer for changes over it. */
struct cb_overlay_size {
	uint64_t bytes, inodes;
};
int cb_overlay_make(struct cb_jail *jail, enum cb_upper which, int lower, const struct cb_overlay_size *size,
		    int *ret_mnt);
int cb_overlay_unstage(void); /* just before the pivot: takes away what making overlays needed */
