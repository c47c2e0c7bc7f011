/* stop_on_error: which requests a failed cell takes with it. Trust domain: supervisor. See abort.c. */
#pragma once

#include <stdbool.h>

#include "jupyter/message.h"

struct cb_execution;
struct cb_jupyter;
struct cb_shell;

void cb_abort_note_arrival(struct cb_execution *x,
			   const struct cb_request *r); /* every request of the queue, before anything else */
bool cb_abort_applies(struct cb_execution *x,
		      const struct cb_request *r); /* sent before the client could know of the failure */
void cb_abort_request(struct cb_jupyter *jp, struct cb_request *r); /* busy, reply "aborted", idle; frees it */
void cb_abort_for_end(struct cb_jupyter *jp, struct cb_request *r, const char *why); /* the same: the kernel ends */
/* The shell's current execute request has failed: takes in what waits on the socket and marks all that waits in the
 * shell for abortion when the request has ended. Called before its reply: what a client sends that has it is run. Among
 * what is taken in may be what ends Python, and with that the request: current is NULL then. */
void cb_abort_queue(struct cb_shell *s);
void cb_abort_waiting(struct cb_shell *s); /* does it; called by cb_shell_finish */
/* Execute requests that wait are aborted; with `others` those are refused too. */
void cb_abort_executes(struct cb_shell *s, bool others);
