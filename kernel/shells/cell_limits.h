/* The limits of a running cell that take looking: CPU seconds of the whole jail against timeout.cpu, memory of its
 * processes against what the request allows itself. Trust domain: supervisor. See cell_limits.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cb_shells;

int cb_cell_limits_init(struct cb_shells *sh);
/* A cell starts, with these limits of its own; 0 = none. Costs nothing where there are none. */
void cb_cell_limits_start(struct cb_shells *sh, double cpu, uint64_t memory);
/* The cell's clock stands, or runs again: work that goes on meanwhile is counted as its time. */
void cb_cell_limits_wait(struct cb_shells *sh, bool waits);
void cb_cell_limits_stop(struct cb_shells *sh);
