/* Snapshots of an overlay workspace's changes, and the way back to one: files return with a twin's variables.
 *
 * Trust domain: broker's child, outside. What lies in the layer and in the merged folder was made by hostile code.
 */
#pragma once

#include "../shared/jail.h"

#include <cellblock/buffer.h>

/* A folder of the layer's tmpfs, beside the changes, for all snapshots; its room counts as theirs. */
#define CB_SNAPSHOT_FOLDER "snapshots"

/* Each writes a reply: {"status":"ok","entries":n,"left":n,"reason":"the first that was left"} or an error. `left` are
 * entries that are not as they were (not copied, not restored). */

/* Keeps the layer's changes as snapshot `number`, which is above all before: what has changed since the last one. */
void cb_snapshot_take(const struct cb_jail *jail, uint32_t number, struct cb_buf *out);
/* Makes the merged folder what it was at snapshot `number`, through its mount: a layer must not be changed below one.
 * Every process of the jail but pid 1 (as we see it; 0 = there is none) must be stopped, and stay so: that is waited
 * for, and if it does not come nothing is touched. */
void cb_snapshot_restore(const struct cb_jail *jail, pid_t pid1, uint32_t number, struct cb_buf *out);
/* Removes it. */
void cb_snapshot_drop(const struct cb_jail *jail, uint32_t number, struct cb_buf *out);
