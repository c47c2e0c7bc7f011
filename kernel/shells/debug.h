/* The debugger: debug_request on control, debug_event on iopub. Trust domain: supervisor. See debug.c. */
#pragma once

#include <cellblock/json_scan.h>

#include "shells.h"

int cb_debug_init(struct cb_shells *sh);
void cb_debug_release(struct cb_shells *sh);
/* Raw seq and command of a debug_request. As cb_json_scan_object. */
struct cb_debug_fields {
	struct cb_span seq, command;
};
int cb_debug_scan(const struct cb_request *r, struct cb_debug_fields *ret_fields, struct cb_json_error *e);
/* Takes a debug_request (ownership) that requests/ has checked. */
void cb_debug_submit(struct cb_shells *sh, struct cb_request *r);
/* Starts what can be started. */
void cb_debug_schedule(struct cb_shells *sh);
/* The guest works on one, or one waits; one that it has not answered in time counts no more. */
bool cb_debug_busy(const struct cb_shells *sh);
/* The cell has ended, or asks for input: its clock is another's concern. */
void cb_debug_cell_over(struct cb_shells *sh);
/* All of the guest is dead: what it works on is answered with that, and clients hear that the session has ended. */
void cb_debug_guest_gone(struct cb_shells *sh);
void cb_debug_end(struct cb_shells *sh, const char *why); /* as cb_execution_end */

/* ---- from the side wire ---- */

/* The guest lives, but the debugger in it is out of reach. */
void cb_debug_side_closed(struct cb_shells *sh);

bool cb_debug_frame_type(uint32_t type);
/* The type and id that a frame of this type must have now; type 0 = none may come. */
void cb_debug_awaited(const struct cb_shells *sh, uint32_t type, uint32_t *ret_type, uint64_t *ret_id);
void cb_debug_frame(struct cb_shells *sh, struct cb_frame *f, const struct cb_guest_content *c);
