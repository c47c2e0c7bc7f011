/* What pid 1 of the jail is told. Trust domain: supervisor. See python/pid1.c. */
#pragma once

#include <cellblock/sandbox.h>
#include <stdint.h>

struct cb_loop;

struct cb_pid1 {
	struct cb_loop *loop;
	int fd;		 /* the link to it; -1 = none */
	unsigned unsent; /* signals that it was asked for and has not yet sent, to whomever */
	int timer;	 /* it is silent for too long: stays armed until it has sent them all */
};

/* `number`: of the branch that it is about, else 0. Negative: it is ending, or does not listen; then its end is what
 * counts. */
int cb_pid1_tell(struct cb_pid1 *p, enum cb_init_op op, int arg, uint32_t number);
/* It was asked for a signal, also to a branch, and has sent one. What is asked next waits for it: a pid 1 that stays
 * silent, which somebody outside may have stopped, is the end of the jail. */
void cb_pid1_signal_asked(struct cb_pid1 *p);
void cb_pid1_signal_sent(struct cb_pid1 *p);
