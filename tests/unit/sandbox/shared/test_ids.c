/* A child that is cloned while a thread of its parent has only just been made takes its ids at once. With the library's
 * calls it waits without end for a thread that it does not have. One processor, so that the thread has not run by then.
 */
#include "../../../../sandbox/shared/ids.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMES 50

static void *nothing(void *context)
{
	return context;
}

static void one_processor(void)
{
	cpu_set_t all, one;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&one);
	for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

static void test_beside_a_thread_that_was_only_just_made(void **state)
{
	(void)state;
	one_processor();
	for (int i = 0; i < TIMES; i++) {
		pthread_t thread;
		int status;

		assert_int_equal(pthread_create(&thread, NULL, nothing, NULL), 0);
		long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

		if (pid == 0) {
			alarm(20);
			_exit(cb_become(getuid()) < 0 && getuid() == getgid()); /* else it may be refused */
		}
		assert_true(pid > 0);
		assert_int_equal(waitpid((pid_t)pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_beside_a_thread_that_was_only_just_made) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
