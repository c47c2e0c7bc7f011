/* The side wire: a second link to the guest, served by threads of its own. Trust domain: supervisor. See side.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "python/link.h"

struct cb_kernel;

struct cb_side {
	struct cb_guest_link link;
	int slot, closed_timer;
	bool served; /* the guest said so, and has not closed it */
};

int cb_side_init(struct cb_kernel *k);
/* From guest.c: our end for the coming guest, taken over unless it fails; its frames are read from now on; its end. */
int cb_side_open(struct cb_kernel *k, int fd, size_t tx_max);
void cb_side_watch(struct cb_kernel *k);
void cb_side_close(struct cb_kernel *k);
/* From lanes.c and debug.c. CB_E_TOO_BIG: nothing is sent. */
int cb_side_send(struct cb_kernel *k, enum cb_wire_type type, uint64_t request, struct cb_span content,
		 struct cb_span metadata, const struct cb_span *buffers, size_t nbuffers);
