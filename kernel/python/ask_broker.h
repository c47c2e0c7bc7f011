/* Questions to the broker whose answer comes through a pipe. Trust domain: supervisor. See ask_broker.c. */
#pragma once

#include <cellblock/buffer.h>
#include <cellblock/sandbox.h>
#include <stdbool.h>

#include "jupyter/loop.h"

struct cb_kernel;

/* Asks (CHANGES to FORGET); `number` is a snapshot's, else 0. The pipe's end for reading is the caller's: *ret_fd, and
 * *ret_slot where `on_answer` is told of it. Both are as before on failure. */
int cb_ask_broker(struct cb_kernel *k, enum cb_broker_op op, uint32_t number, cb_loop_fn on_answer, int *ret_fd,
		  int *ret_slot);
/* Takes what has come of the answer; true when that is all. Of one that is too long nothing is left. */
bool cb_ask_broker_read(int fd, struct cb_buf *answer);
