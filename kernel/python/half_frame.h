/* A frame of the guest or of a branch that was begun and does not go on. Trust domain: supervisor. See half_frame.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cb_guest_link;
struct cb_kernel;

#define CB_HALF_FRAME "half a frame came, and nothing more"
#define CB_SLOW_FRAME "a frame did not come whole within a minute, while others waited for its room"

struct cb_half_frame {
	int64_t due;	   /* when to ask whether it is over; 0 = no half frame */
	uint64_t received; /* by the link, when it was looked at last */
	double cpu;	   /* of the jail then */
	uint64_t big;	   /* a frame that comes piece by piece: which, */
	int64_t since;	   /* and since when */
};

/* Something was read from the link. */
void cb_half_frame_look(struct cb_kernel *k, struct cb_half_frame *h, const struct cb_guest_link *l);
/* Links that share its room wait for it, and their patience is over at ret_when; true if that is now. */
bool cb_half_frame_holds_up(struct cb_kernel *k, struct cb_half_frame *h, const struct cb_guest_link *l, int64_t now,
			    int64_t *ret_when);
/* It is due: true if who is at the other end is to end. */
bool cb_half_frame_over(struct cb_kernel *k, struct cb_half_frame *h, const struct cb_guest_link *l);
