/* Limits of single processes. Trust domain: pid 1. */
#pragma once

#include "../shared/jail.h"

/* No core dump, nor one to a program of the host's. Also for the jail's helpers outside. Where the host allows none at
 * all its limit stays. */
int cb_limit_core_dumps(struct cb_err *err);
int cb_step_limits(struct cb_jail *jail, struct cb_err *err);

/* Not one of the step's: a process can pass no descriptor while its user's programs have more on their way than it may
 * open, so this comes when pid 1 has passed its last. */
int cb_limit_open_files(const struct cb_jail *jail, struct cb_err *err);
