/* What a twin costs, and when mode auto has earned one. Trust domain: supervisor. See twin_cost.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "python/usage.h"

/* What accesses to memory have cost the guest, ever, and the memory that it has. */
struct cb_touched {
	uint64_t faults, own_bytes;
	double sys_s;
};

struct cb_twin_cost {
	/* what one costs all processors: making it, and copying in the first cell after it */
	double made_s, copied_s;
	/* what of it a cell waits for: the guest's fork, the workspace's files, pages (of the last two readings) */
	double delay_s, files_s, copying_s[2];
	unsigned readings;	  /* of delay_s; 2 = so many or more */
	unsigned cells;		  /* that have run since the newest one was begun */
	double worked_s;	  /* and how long */
	struct cb_turns begun;	  /* the guest's, then */
	struct cb_touched before; /* the cell whose accesses are read */
};

/* One is being made; the guest's turns are those from before it was asked. */
void cb_twin_cost_begun(struct cb_twin_cost *c, struct cb_turns before);
/* It is ready. `stood_s`: how long the guest stood still, for hosts that do not count turns. */
void cb_twin_cost_made(struct cb_twin_cost *c, struct cb_turns now, double stood_s);
/* Whether the next cell's accesses to memory are to be read: at its begin as `before`, and at its end. */
bool cb_twin_cost_reads(const struct cb_twin_cost *c);
/* It has ended, after so long. now: NULL if they were not read. */
void cb_twin_cost_ran(struct cb_twin_cost *c, double seconds, const struct cb_touched *now);
/* Keeping the workspace's files for one took a processor so long. */
void cb_twin_cost_files(struct cb_twin_cost *c, double seconds);
/* What one is thought to delay the next cell by, in seconds. */
double cb_twin_cost_delay(const struct cb_twin_cost *c);
/* That is known, and so little that each cell gets its own. */
bool cb_twin_cost_is_small(const struct cb_twin_cost *c);
/* So many seconds cells must run for the next twin. */
double cb_twin_cost_due(const struct cb_twin_cost *c);
bool cb_twin_cost_is_earned(const struct cb_twin_cost *c, struct cb_turns now);
/* So many ns nobody must have asked for anything; then one is made in any case. */
int64_t cb_twin_cost_idle(const struct cb_twin_cost *c);
