/* Signals that several rooms give. Trust domain: that of the caller. */
#pragma once

#include <stdbool.h>

/* Children that a process which takes in orphans reaps before it looks at its other work: there may always be more. */
#define CB_REAPED_A_TURN 1000

void cb_default_signals(void); /* before an exec: nothing blocked, nothing ignored */
/* SIGKILL for a child, and 2 s for its end, after which it can be reaped. False: it is stuck in the kernel (a dead
 * network file system, one in user space that does not answer) and dies later; whoever serves others can't wait. */
bool cb_kill_child(int pidfd);
bool cb_await_child(int pidfd); /* the same without the signal */
