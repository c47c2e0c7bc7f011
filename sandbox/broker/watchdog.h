/* Holds limits.memory where no control group does: measures a jail's memory from outside, some times a second. Trust
 * domain: broker, outside. See watchdog.c. */
#pragma once

#include "../shared/jail.h"
#include "inmate.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cb_memory {
	uint64_t rough; /* bytes at most: pages that processes share count for each */
	uint64_t bytes; /* each page once, if that was asked for; of what is over the limit already maybe a part */
	uint64_t anonymous; /* of them, not of files: each page once; 0 = not known */
	uint64_t dying;	    /* of them, of processes that were killed and have not quite ended */
};

/* One jail's; all zero at its start. */
struct cb_watchdog {
	int64_t next_ms;      /* monotonic: the next look */
	int64_t exact_ms;     /* the next exact one, as long as a rough one finds it below the limit */
	struct cb_memory now; /* as the last look found it */
	uint64_t over;	      /* bytes, once the jail is to be killed for them, */
	bool is_kept_waiting; /* and nobody knows how many: it kept the look waiting */
	int64_t until_ms;     /* it was over its limit, and may be until then; 0 = not, or long ago */
	int64_t dying_ms;     /* since then only the dying keep it over, but for dips; 0 = they do not */
	int64_t began_ms;     /* the last look, */
	int64_t looked_ms;    /* and its end */
	uint64_t most;	      /* and never over this */
	uint64_t kernel;      /* bytes that the kernel holds for it, beside its own (kernel_memory.c), */
	int64_t kernel_ms;    /* and when to look for them again */
	uint64_t longest;     /* text that a file of /proc may hold there */
};

enum cb_watchdog_says {
	CB_WATCHDOG_FINE,  /* or it was not time to look, or the dying hold what is too much */
	CB_WATCHDOG_SHORT, /* memory is short: w->now */
	CB_WATCHDOG_KILL,  /* over the limit, and not brought below it in time; said once */
};

#define CB_WAITING_TEXT                                                                                                \
	"its processes kept a look at its memory waiting, which counts as more than limits.memory allows"
/* Looks, if it is time. `grace_ms`: how long a jail may be over its limit, for somebody else to end less than all. */
enum cb_watchdog_says cb_watchdog_look(struct cb_watchdog *w, const struct cb_inmate *inmate,
				       const struct cb_jail *jail, int grace_ms);
/* Whether the jail has so many descriptors on their way through UNIX sockets that the user's other programs could soon
 * pass none: the kernel counts them for the user as a whole. Cheap; looks every CB_FLIGHT_MS. */
#define CB_FLIGHT_MS 100
#define CB_FLIGHT_TEXT                                                                                                 \
	"it had more descriptors on their way through UNIX sockets than leave this user's other programs any"
struct cb_flight { /* zeroed before the first look */
	int64_t next_ms;
	int unseen; /* looks in which there was CB_FLIGHT_UNSEEN, less those in which there was not */
};
bool cb_watchdog_in_flight(struct cb_flight *flight, const struct cb_inmate *inmate, const struct cb_jail *jail);
/* Milliseconds until the next look. */
int cb_watchdog_wait(const struct cb_watchdog *w);

/* What the jail uses, `kernel` bytes included, exactly if it may be more than `enough`. Where that is not over the
 * limit it may be too much, as it may be when the milliseconds of processor time are used up. */
struct cb_memory cb_watchdog_measure(const struct cb_inmate *inmate, const struct cb_jail *jail, int budget_ms,
				     uint64_t kernel, uint64_t enough);
/* The parser alone: the shares of shared memory without a file in /proc/PID/smaps. */
uint64_t cb_watchdog_unnamed(FILE *smaps);
