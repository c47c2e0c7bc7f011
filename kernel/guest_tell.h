/* What the guest and its pid 1 are told. Trust domain: supervisor. See guest_tell.c. */
#pragma once

#include <cellblock/sandbox.h>
#include <cellblock/wire.h>
#include <stdbool.h>
#include <stdint.h>

#include "guest_policy.h"
#include "message.h"

struct cb_kernel;

/* Sends a request; gives it an id and makes it the current one. */
int cb_guest_send_request(struct cb_kernel *k, struct cb_request *r, enum cb_wire_type type, enum cb_wire_phase phase,
			  struct cb_span content, struct cb_span metadata);
/* Sends a numbered request that is served beside the current one. */
int cb_guest_send_beside(struct cb_kernel *k, struct cb_request *r, enum cb_wire_type type, struct cb_span metadata,
			 const struct cb_span *buffers, size_t nbuffers);
/* A request of our own, likewise. */
int cb_guest_send_own(struct cb_kernel *k, enum cb_wire_type type, enum cb_wire_phase phase, struct cb_span content);
/* An id for a request to one who speaks beside the guest. */
uint64_t cb_guest_new_id(struct cb_kernel *k);
/* Gives a request its id and remembers its parent. `cell`: what has no id is its output from now on. */
void cb_guest_number(struct cb_kernel *k, struct cb_request *r, bool cell);
/* The request's buffers, if such a message takes any; their number. */
size_t cb_guest_buffers(const struct cb_request *r, enum cb_wire_type type, struct cb_span buffer[CB_MAX_BUFFERS]);
int cb_guest_send_input(struct cb_kernel *k, struct cb_span content);

/* ---- pid 1 ---- */

/* Negative: it is ending, or does not listen; then its end is what counts. */
int cb_guest_tell_init(struct cb_kernel *k, enum cb_init_op op, int arg);
/* About a branch. */
int cb_guest_tell_init_of(struct cb_kernel *k, enum cb_init_op op, int arg, uint32_t number);
/* SIGINT to the guest's process group, then again and again to its main process until cb_guest_interrupted: a signal
 * that arrives just before Python enters a blocking call is only seen when the call ends. */
void cb_guest_interrupt(struct cb_kernel *k);
/* The same, though one is on its way: that came too early. */
void cb_guest_interrupt_again(struct cb_kernel *k);
/* The function that holds up the making of a twin is to end, see CB_WIRE_LET_GO. */
void cb_guest_let_go(struct cb_kernel *k);
/* Signals were asked of pid 1 that it has not yet sent: until it has, no request is sent that they could hit. */
bool cb_guest_signals_on_way(const struct cb_kernel *k);
void cb_guest_signalled(struct cb_kernel *k); /* one was sent */
void cb_guest_interrupted(struct cb_kernel *k);
/* A timer's: the interrupt once more. */
void cb_guest_on_nudge(void *context);
/* Pid 1 was asked for a signal, also to a branch, and has sent one. What is asked next waits for it: a pid 1 that stays
 * silent, which somebody outside may have stopped, is the end of the jail. */
void cb_guest_signal_asked(struct cb_kernel *k);
void cb_guest_signal_sent(struct cb_kernel *k);
void cb_guest_on_unsent(void *context); /* a timer's: it was silent for too long */
