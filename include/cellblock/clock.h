/* The monotonic clock. */
#pragma once

#include <stdint.h>

int64_t cb_now_ns(void);
int64_t cb_now_ms(void);
int64_t cb_now_thread_ns(void); /* what this thread has had of a processor; it stands while the thread waits */

/* *when becomes t if that is sooner; 0 = never, of both. */
static inline void cb_sooner(int64_t *when, int64_t t)
{
	if (t != 0 && (*when == 0 || t < *when))
		*when = t;
}
