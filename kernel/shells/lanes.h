/* Lanes: what is served beside the main shell. Lane 0 answers questions while a cell runs; each subshell is one more.
 * Comm messages that come while a cell awaits have one for each shell. Trust domain: supervisor. See lanes.c. */
#pragma once

#include "shells.h"

void cb_lanes_end(struct cb_shells *sh, const char *why); /* as cb_execution_end */
int cb_lanes_init(struct cb_shells *sh);
void cb_lanes_release(struct cb_shells *sh);

/* Takes the request (ownership) if it is for a subshell, or a question that comes while Python is busy. */
bool cb_lanes_take(struct cb_shells *sh, struct cb_request *r);
void cb_lanes_schedule(struct cb_shells *sh);
/* Python is busy from now on: questions that wait, since Python was not up yet, are answered meanwhile. */
void cb_lanes_busy_begins(struct cb_shells *sh);
/* Comm messages that came before this request of the main shell are still served beside a cell that has ended. */
bool cb_lanes_before(const struct cb_shells *sh, const struct cb_request *r);
/* The running cell awaits: comm messages, also those that wait, go to it from now on. */
void cb_lanes_cell_awaits(struct cb_shell *s);
/* A request of a subshell that runs; NULL = none. */
const struct cb_request *cb_lanes_running(const struct cb_shells *sh);
/* One that is the next of its subshell, in which nothing runs; NULL = none. */
const struct cb_request *cb_lanes_waiting(const struct cb_shells *sh);
/* What waits in the i-th of CB_LANES. */
const struct cb_request *cb_lanes_waiting_in(struct cb_shells *sh, size_t i);
bool cb_lanes_run(const struct cb_shells *sh);	/* anything that changes the state */
bool cb_lanes_asked(const struct cb_shells *sh); /* a question is, and nobody has given it up */
bool cb_lanes_busy(const struct cb_shells *sh); /* anything runs or waits */
bool cb_lanes_interrupted(const struct cb_shells *sh); /* what runs in one is to stop, and has not yet */
/* The user's interrupt, `by` this request (NULL = none): of all subshells, and of the one that it names. What was sent
 * after it is left alone. */
void cb_lanes_interrupt(struct cb_shells *sh, const struct cb_request *by);
void cb_lanes_interrupt_subshell(struct cb_shells *sh, const struct cb_request *by);
/* … and of one request. As cb_shell_interrupt_one. */
enum cb_found cb_lanes_interrupt_one(struct cb_shells *sh, struct cb_span msg_id);
/* All of the guest is dead, and a copy is to take over: cells wait for what becomes of that. */
void cb_lanes_stopped(struct cb_shells *sh);
/* All of the guest is dead: what ran is answered with that, and with whether the state is back. */
void cb_lanes_guest_died(struct cb_shells *sh, bool restored);

/* ---- subshells; an id is a raw JSON string ---- */

const struct cb_shell *cb_lanes_known(struct cb_shells *sh, struct cb_span id); /* NULL = there is no such */
const char *cb_lanes_create(struct cb_shells *sh); /* its id; NULL = there are CB_SUBSHELLS_MAX */
/* What waits is aborted, what runs ends by itself. False if there is no such subshell. */
bool cb_lanes_delete(struct cb_shells *sh, struct cb_span id);

/* The one that has asked this client for input, the longest ago; NULL = none. */
struct cb_shell *cb_lanes_asker(struct cb_shells *sh, const struct cb_request *reply);
/* ---- from the guest ---- */

/* A frame on the wire that is for the main shell or a lane. */
int cb_lanes_frame(struct cb_shells *sh, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason);
/* What may come on the side wire: as struct cb_side_events has it. */
void cb_lanes_awaited(const struct cb_shells *sh, uint32_t *ret_type, uint64_t *ret_id);
int cb_lanes_side_frame(struct cb_shells *sh, struct cb_frame *f, const char **ret_reason);
void cb_lanes_side_closed(struct cb_shells *sh); /* no answer to lane 0's question can come */
