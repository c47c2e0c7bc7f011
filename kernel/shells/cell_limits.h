/* The meter of a running cell: CPU seconds of the whole jail against timeout.cpu, memory of its processes against what
 * the request allows itself. Trust domain: supervisor. See cell_limits.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "python/usage.h"

struct cb_kernel;

struct cb_cell_limits {
	double limit;	 /* CPU seconds of the cell; 0 = none */
	uint64_t memory; /* bytes that no process may pass during the cell; 0 = as the jail's */
	double used;	 /* since the cell's start */
	double last;	 /* the last reading */
	int64_t last_ns; /* when that was */
	bool ending;	 /* a dropped twin is about to end: often looked at, for its last moments count as the cell's */
	bool sampled;	 /* no control group counts: the ledger does */
	struct cb_usage_ledger ledger;
	bool waits; /* the cell's clock stands while it waits for input */
	int timer;
};

int cb_cell_limits_init(struct cb_kernel *k);
/* A cell starts, with these limits of its own; 0 = none. Costs nothing where there are none. */
void cb_cell_limits_start(struct cb_kernel *k, double cpu, uint64_t memory);
/* The cell's clock stands, or runs again: work that goes on meanwhile is counted as its time. */
void cb_cell_limits_wait(struct cb_kernel *k, bool waits);
void cb_cell_limits_stop(struct cb_kernel *k);
