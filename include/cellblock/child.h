/* The end of a child. See base/child.c. */
#pragma once

#include <sys/types.h>

/* Waits until it has ended, however often a signal comes between, and takes its status (ret_status may be NULL). Its
 * number is free from then on: nobody is to be signalled by it. -errno, *ret_status as it was: there is no such child,
 * or `pid` is not above 0. */
int cb_reap(pid_t pid, int *ret_status);
