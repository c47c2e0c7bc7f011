/* The execution queue: what waits for the guest, what runs, how it ends. Trust domain: supervisor. See execution.c. */
#pragma once

#include "note.h"
#include "shells.h"

/* The kernel ends: what runs and waits is answered, and nothing new begins. */
void cb_execution_end(struct cb_shells *sh, const char *why);
int cb_execution_init(struct cb_shells *sh);
void cb_execution_schedule(struct cb_shells *sh); /* what can begin */
void cb_execution_release(struct cb_shells *sh);

/* Takes an execute, complete, inspect, is_complete or comm_* request (ownership) that requests/ has checked. */
void cb_execution_submit(struct cb_shells *sh, struct cb_request *r);
/* The same, before all that wait but those that came so. */
void cb_execution_submit_first(struct cb_shells *sh, struct cb_request *r);
/* The guest has answered the current cell, but its end is not come: no clock runs any more. */
void cb_execution_cell_over(struct cb_shells *sh);
/* What any shell of the guest does: whether it is up; its cell begins, or is killed. */
bool cb_execution_up(struct cb_shell *s);
void cb_execution_cell_begins(struct cb_shell *s);
void cb_execution_kill(struct cb_shell *s, const char *why);
/* The shell's current cell goes into the history, if it is stored. */
void cb_execution_record(struct cb_shell *s);

/* The current request is answered: idle, and on to the next. */
void cb_execution_finish(struct cb_shells *sh);
/* The same of a request that is served by others: the current one, or one beside it, which is freed. */
void cb_execution_answered(struct cb_shells *sh, struct cb_request *r);

/* A user's interrupt, `by` this request (NULL = none), of what was not sent after it. Soft; hard when one is still
 * undelivered. */
void cb_execution_interrupt(struct cb_shells *sh, const struct cb_request *by);
/* … of one request of the main shell. As cb_shell_interrupt_one. */
enum cb_found cb_execution_interrupt_one(struct cb_shells *sh, struct cb_span msg_id);

/* What becomes of the guest. */
void cb_execution_guest_up(struct cb_shells *sh);
void cb_execution_stopped(struct cb_shells *sh); /* a twin is about to take over: no clock runs any more */
void cb_execution_guest_restored(struct cb_shells *sh, bool told); /* it did; told: the current request knows */
void cb_execution_guest_died(struct cb_shells *sh);		   /* after its channels are closed */
void cb_execution_guest_failed(struct cb_shells *sh); /* no jail could be started; guest.failure says why */
