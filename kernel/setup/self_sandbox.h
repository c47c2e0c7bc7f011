/* The supervisor gives up its own rights. To be called single-threaded, after broker, sockets, history and log are open
 * and before the first ZeroMQ call: libzmq's threads then inherit everything (done later they would keep all
 * capabilities and no filter).
 */
#pragma once

#include <cellblock/error.h>

/* Leaves root (an unused host uid of its own), empties all five capability sets, locks securebits, sets no_new_privs,
 * turns undumpable, loads the filter (no execve, no fork, no ptrace, no mounts, no new sockets of odd families). Any
 * failing step is an error: the caller must not go on. */
int cb_self_sandbox(struct cb_err *err);
