/* Files of an overlay workspace that go back with a twin: asking the broker. Trust domain: supervisor. See
 * file_snapshots.c.
 */
#pragma once

#include <cellblock/buffer.h>
#include <cellblock/sandbox.h>
#include <stdbool.h>
#include <stdint.h>

struct cb_kernel;

#define CB_FILE_SNAPSHOTS_WAITING_MAX 600 /* above two for each twin that there can be */

struct cb_snapshot_op {
	enum cb_broker_op op;
	uint32_t number;
};

struct cb_file_snapshots {
	struct cb_snapshot_op waiting[CB_FILE_SNAPSHOTS_WAITING_MAX];
	unsigned count;	     /* waiting; [0] is at the broker if fd is open */
	int fd, slot, timer; /* the pipe for its answer; -1 = none */
	bool stopping;	     /* that was told to end */
	struct cb_buf reply;
};

int cb_file_snapshots_init(struct cb_kernel *k);
void cb_file_snapshots_release(struct cb_kernel *k);
/* Whether files go back: the workspace is an overlay in a jail with a mount of its own. */
bool cb_file_snapshots_on(const struct cb_kernel *k);
/* SNAPSHOT, RESTORE or FORGET `number`, after what was asked before. cb_twins_files hears of the first two. */
void cb_file_snapshots_ask(struct cb_kernel *k, enum cb_broker_op op, uint32_t number);
/* Something is at the broker. */
bool cb_file_snapshots_busy(const struct cb_kernel *k);
/* The broker is free again. */
void cb_file_snapshots_next(struct cb_kernel *k);
