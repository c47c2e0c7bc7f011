/* The monotonic clock. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

int64_t cb_now_ns(void);
int64_t cb_now_ms(void);
int64_t cb_now_thread_ns(void); /* what this thread has had of a processor; it stands while the thread waits */
/* The same of a process, with all its threads, ever; 0 if there is none of that number. */
int64_t cb_now_process_ns(pid_t pid);

/* *when becomes t if that is sooner; 0 = never, of both. */
static inline void cb_sooner(int64_t *when, int64_t t)
{
	if (t != 0 && (*when == 0 || t < *when))
		*when = t;
}
