/* The side wire: a second link to the guest, served by threads of its own. Trust domain: supervisor. See side.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "link.h"

struct cb_guest_content;
struct cb_guest_rules;
struct cb_kernel;
struct cb_loop;

struct cb_side_events {
	/* The type and id that a frame of this type must have now; type 0 = none may come. False: what it says is not
	 * heard any more. */
	bool (*awaits)(const struct cb_kernel *k, uint32_t type, uint32_t *ret_type, uint64_t *ret_id);
	int (*frame)(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c,
		     const char **ret_reason);
	void (*closed)(struct cb_kernel *k); /* it is, and the guest lives on: no answer can come */
	void (*broke)(struct cb_kernel *k, const char *why);
};

struct cb_side {
	const struct cb_side_events *events;
	struct cb_kernel *kernel; /* that they are told to */
	struct cb_loop *loop;
	const struct cb_guest_rules *rules;
	struct cb_guest_link link;
	int slot, closed_timer;
	bool served; /* the guest said so, and has not closed it */
	bool ending; /* it has, a moment ago: as a rule it ends, and what is to be asked of it is for the next one */
};

int cb_side_init(struct cb_side *s, struct cb_loop *loop, const struct cb_guest_rules *rules);
/* From guest.c: our end for the coming guest, taken over unless it fails; its frames are read from now on; its end. */
int cb_side_open(struct cb_side *s, int fd, size_t tx_max);
void cb_side_watch(struct cb_side *s);
void cb_side_close(struct cb_side *s);
/* CB_E_TOO_BIG: nothing is sent. */
int cb_side_send(struct cb_side *s, enum cb_wire_type type, uint64_t request, struct cb_span content,
		 struct cb_span metadata, const struct cb_span *buffers, size_t nbuffers);
