/* The sync socket between the broker and what it has cloned: one struct cb_sync a message.
 *
 * Trust domain: broker and pid 1. Until the guest's exec only our own code holds the inner end.
 */
#pragma once

#include <cellblock/error.h>
#include <stdint.h>

enum cb_sync_kind {
	CB_SYNC_GO = 1,	  /* to pid 1: the maps are written */
	CB_SYNC_GUEST,	  /* from the guest's process just before its exec: the kernel adds its pid; from pid 1 of a
			     warm jail when its guest has registered, and has its limits */
	CB_SYNC_UPPER,	  /* from pid 1, with an fd: the layer of changes `upper`, to be kept */
	CB_SYNC_MERGED,	  /* from pid 1, with an fd: the overlay workspace as the jail sees it */
	CB_SYNC_WATCH,	  /* from pid 1, with an fd: what tells of the workspace's new layer */
	CB_SYNC_NOTIFIER, /* from pid 1, with an fd: what `upper` names of enum cb_notify_fd; a listener comes last */
	CB_SYNC_SOCKETS,  /* from pid 1, with an fd: what shows the sockets of its network namespace */
	CB_SYNC_REGISTRY, /* from pid 1, with an fd: the only one of these that is its own */
	CB_SYNC_WARM,	  /* from pid 1 of a warm jail, with an fd: what `upper` names of enum cb_warm_fd */
	CB_SYNC_READY,	  /* from it, after those: it waits for a guest to register, and says GUEST then */
	CB_SYNC_FAILED,	  /* from pid 1 or the guest's process: err says why there will be no jail */
};

struct cb_sync {
	uint32_t kind;
	uint32_t upper; /* UPPER: enum cb_upper; NOTIFIER: enum cb_notify_fd; WARM: enum cb_warm_fd */
	struct cb_err err;
	char note[512]; /* GUEST: jail->note, as the steps left it */
};

/* A message that brings an fd; `which`: the member `upper`. */
int cb_sync_send_fd(int fd, enum cb_sync_kind kind, uint32_t which, int given);
int cb_sync_send(int fd, enum cb_sync_kind kind, const struct cb_err *err, const char *note);
