/* State machines that are checked: a table says what may follow what, and one place of each machine makes the step.
 *
 * Source of the form: dqlite's lib/sm.h. A wrong step is a mistake of ours, never of an input's: what comes from
 * outside is judged before. Builds for development and tests (CELLBLOCK_ASSERTS) end there; others log it and go on.
 */
#pragma once

#include <stdint.h>

#define CB_STATES_MAX 16

struct cb_states {
	const char *what; /* "the guest" */
	struct {
		const char *name; /* NULL = there is no such state */
		uint32_t next;	  /* those that may follow, 1 << state each */
	} of[CB_STATES_MAX];
};

/* A step of `*place`, an enum's variable, to `to`. */
#define CB_STATE_GO(states, place, to)                                                                                 \
	do {                                                                                                           \
		cb_states_check(states, (unsigned)*(place), (unsigned)(to));                                           \
		*(place) = (to);                                                                                       \
	} while (0)

void cb_states_check(const struct cb_states *s, unsigned from, unsigned to);
/* What must hold here whatever came in; false is a mistake of ours as well. */
#define CB_HOLDS(condition) ((condition) ? (void)0 : cb_states_broken("%s:%d: %s", __FILE_NAME__, __LINE__, #condition))
void cb_states_broken(const char *format, ...) __attribute__((format(printf, 1, 2)));
