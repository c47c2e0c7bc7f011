/* The monotonic clock: for deadlines and durations, never for dates.
 *
 * Trust domain: all C programs. Cannot fail on Linux.
 */
#include <cellblock/clock.h>

#include <time.h>

int64_t cb_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t cb_now_ms(void)
{
	return cb_now_ns() / 1000000;
}
