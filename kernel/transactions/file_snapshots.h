/* Files of an overlay workspace that go back with a twin: asking the broker. Trust domain: supervisor. See
 * file_snapshots.c.
 */
#pragma once

#include <cellblock/sandbox.h>
#include <stdbool.h>
#include <stdint.h>

struct cb_kernel;

/* Whether files go back: the workspace is an overlay in a jail with a mount of its own. */
bool cb_file_snapshots_on(const struct cb_kernel *k);
/* SNAPSHOT, RESTORE or FORGET `number`, after what was asked before. cb_twins_files hears of the first two. */
void cb_file_snapshots_ask(struct cb_kernel *k, enum cb_broker_op op, uint32_t number);
