/* Whether all of a jail is stopped, seen from outside.
 *
 * Trust domain: broker's child, outside.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Whether no process of the jail but pid 1 runs code of its own; waits up to `ms` for that. False also if it can't be
 * seen. */
bool cb_jail_is_still(pid_t pid1, int ms);
/* Whether that is so, and nobody has run since it was said to be: one who is stopped may have a timer. */
bool cb_jail_was_still(pid_t pid1);
