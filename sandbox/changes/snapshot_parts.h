/* What taking and restoring share: see snapshot.h.
 *
 * Trust domain: broker's child, outside.
 */
#pragma once

#include "snapshot_index.h"

#define CB_SNAPSHOT_DEPTH_MAX 120 /* folders in folders: four descriptors each */

struct cb_tally {
	unsigned long long entries, left;
	char reason[256]; /* of the first that was left */
	bool unreached;	  /* the work was told to end before it was done */
};

void cb_tally_leave(struct cb_tally *t, const char *name, int code);
/* Whether the work is to end; what is not done by then is unreached. */
bool cb_tally_stopped(struct cb_tally *t);

/* snapshot_take.c: brings the index up to what `upper` is, for the snapshot that was begun. `watch` is -1 or
 * shared/overlay_watch.h's. < 0: the index has no room, and the snapshot is none. */
int cb_snapshot_look(struct cb_kept *ix, int upper, int watch, struct cb_tally *tally);
