/* A frame of the guest or of a branch that was begun and does not go on. Trust domain: supervisor. See stalled_frame.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cb_guest_link;

#define CB_STALLED_FRAME "half a frame came, and nothing more"
#define CB_SLOW_FRAME "a frame did not come whole within a minute, while others waited for its room"

struct cb_stalled_frame {
	int64_t due;	   /* when to ask whether it is over; 0 = no half frame */
	uint64_t received; /* by the link, when it was looked at last */
	double worked_s;   /* the jail, until then */
	uint64_t big;	   /* a frame that comes piece by piece: which, */
	int64_t since;	   /* and since when */
};

/* Something was read from the link. True: a half frame is left that is not watched yet. */
bool cb_stalled_frame_look(struct cb_stalled_frame *h, const struct cb_guest_link *l);
/* It is, from now on. worked_s: processors' time of the jail; negative: it is not at work now. */
void cb_stalled_frame_watch(struct cb_stalled_frame *h, const struct cb_guest_link *l, double worked_s);
/* Links that share its room wait for it, and their patience is over at ret_when; true if that is now. */
bool cb_stalled_frame_holds_up(struct cb_stalled_frame *h, const struct cb_guest_link *l, int64_t now, bool we_read,
			       int64_t *ret_when);
/* It is due: true if who is at the other end is to end. */
bool cb_stalled_frame_over(struct cb_stalled_frame *h, const struct cb_guest_link *l, double worked_s, bool we_read);
