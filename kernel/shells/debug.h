/* The debugger: debug_request on control, debug_event on iopub. Trust domain: supervisor. See debug.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "python/guest.h"
#include "python/link.h"
#include "python/policy.h"
#include "jupyter/message.h"
#include "queue.h"

struct cb_kernel;

#define CB_DEBUG_WAITING_MAX 1000      /* requests */
#define CB_DEBUG_BYTES_MAX (64u << 20) /* bytes of their frames */

struct cb_debug {
	struct cb_queue waiting;
	struct cb_load load;
	struct cb_request *current;    /* owned; the guest works on it */
	struct cb_guest_parent parent; /* the latest request: events go under it, within its limit of output */
	bool asked;		       /* this guest was given a request: it may send events */
	bool session;		       /* it has a debugger that was initialised and not ended */
	bool waits;		       /* it says that a cell is stopped: the cell's clock stands */
};

void cb_debug_release(struct cb_kernel *k);
/* Takes a debug_request (ownership) that requests/ has checked. */
void cb_debug_submit(struct cb_kernel *k, struct cb_request *r);
/* Starts what can be started. */
void cb_debug_schedule(struct cb_kernel *k);
bool cb_debug_busy(const struct cb_kernel *k); /* the guest works on one, or one waits */
/* The cell has ended, or asks for input: its clock is another's concern. */
void cb_debug_cell_over(struct cb_kernel *k);
/* All of the guest is dead: what it works on is answered with that, and clients hear that the session has ended. */
void cb_debug_guest_gone(struct cb_kernel *k);
void cb_debug_end(struct cb_kernel *k, const char *why); /* as cb_execution_end */

/* ---- from the side wire ---- */

/* The guest lives, but the debugger in it is out of reach. */
void cb_debug_side_closed(struct cb_kernel *k);

bool cb_debug_frame_type(uint32_t type);
/* The type and id that a frame of this type must have now; type 0 = none may come. */
void cb_debug_awaited(const struct cb_kernel *k, uint32_t type, uint32_t *ret_type, uint64_t *ret_id);
void cb_debug_frame(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c);
