/* The monotonic clock, for deadlines and durations, never for dates; and a thread's processor time.
 *
 * Trust domain: all C programs. Cannot fail on Linux, but for the time of another process.
 */
#include <cellblock/clock.h>

#include <time.h>

static int64_t read_ns(clockid_t clock)
{
	struct timespec t = { 0 };

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

/* As clock_getcpuclockid(3) numbers it, which asks for a system call more to see whether the process is there. */
int64_t cb_now_process_ns(pid_t pid)
{
	return read_ns((clockid_t)(~(unsigned)pid << 3 | 2));
}

int64_t cb_now_ms(void)
{
	return cb_now_ns() / 1000000;
}
