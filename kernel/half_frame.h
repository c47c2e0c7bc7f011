/* A frame of the guest or of a branch that was begun and does not go on. Trust domain: supervisor. See half_frame.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cb_guest_link;
struct cb_kernel;

#define CB_HALF_FRAME "half a frame came, and nothing more"

struct cb_half_frame {
	int64_t due;	   /* when to ask whether it is over; 0 = no half frame */
	uint64_t received; /* by the link, when it was looked at last */
	double cpu;	   /* of the jail then */
};

/* Something was read from the link. */
void cb_half_frame_look(struct cb_kernel *k, struct cb_half_frame *h, const struct cb_guest_link *l);
/* It is due: true if who is at the other end is to end. */
bool cb_half_frame_over(struct cb_kernel *k, struct cb_half_frame *h, const struct cb_guest_link *l);

int cb_half_frame_init(struct cb_kernel *k);
void cb_half_frame_look_at_guest(struct cb_kernel *k);
