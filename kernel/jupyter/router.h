/* Which request on which channel goes to which handler. Trust domain: supervisor. */
#pragma once

#include "message.h"

struct cb_kernel;

/* Takes a verified request (ownership) and has it answered, now or later; unknown types are bracketed by busy and idle
 * only. */
void cb_route(struct cb_kernel *k, struct cb_request *r);

/* Busy before, idle after a request that is answered at once. While a cell runs its busy is said again, because servers
 * take any idle for "the kernel is idle". */
void cb_bracket_begin(struct cb_kernel *k, const struct cb_request *r);
void cb_bracket_end(struct cb_kernel *k, const struct cb_request *r);
void cb_busy_again(struct cb_kernel *k); /* that alone, after an idle */
