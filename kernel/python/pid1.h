/* What pid 1 of the jail is told. Trust domain: supervisor. See python/pid1.c. */
#pragma once

#include <cellblock/sandbox.h>
#include <stdint.h>

struct cb_kernel;

/* Negative: it is ending, or does not listen; then its end is what counts. */
int cb_guest_tell_init(struct cb_kernel *k, enum cb_init_op op, int arg);
/* About a branch. */
int cb_guest_tell_init_of(struct cb_kernel *k, enum cb_init_op op, int arg, uint32_t number);
/* It was asked for a signal, also to a branch, and has sent one. What is asked next waits for it: a pid 1 that stays
 * silent, which somebody outside may have stopped, is the end of the jail. */
void cb_guest_signal_asked(struct cb_kernel *k);
void cb_guest_signal_sent(struct cb_kernel *k);
void cb_guest_on_unsent(void *context); /* a timer's: it was silent for too long */
