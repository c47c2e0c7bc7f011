/* The monotonic clock, for deadlines and durations, never for dates; and a thread's processor time.
 *
 * Trust domain: all C programs. Cannot fail on Linux.
 */
#include <cellblock/clock.h>

#include <time.h>

static int64_t read_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t cb_now_ns(void)
{
	return read_ns(CLOCK_MONOTONIC);
}

int64_t cb_now_thread_ns(void)
{
	return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t cb_now_ms(void)
{
	return cb_now_ns() / 1000000;
}
