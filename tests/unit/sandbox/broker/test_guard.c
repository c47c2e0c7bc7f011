/* The guard of looks: who keeps one waiting is ended, and nobody else. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cellblock/clock.h>
#include <cmocka.h>

#include "../../../../sandbox/broker/guard.h"

static pid_t child;
static int pidfd;

static int setup(void **state)
{
	(void)state;
	child = fork();
	if (child == 0)
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (child == 0)
		pause();
	pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	return child < 0 || pidfd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	return close(pidfd);
}

static void test_a_look_that_does_not_come_back(void **state)
{
	static struct cb_guard g = { .tick_ms = 2, .most = 5 };
	int status = 0;

	(void)state;
	cb_guard_begin(&g, pidfd);
	assert_int_equal(waitpid(child, &status, 0), child); /* for ever, where there is no guard */
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_true(cb_guard_end(&g));
	cb_guard_begin(&g, pidfd);
	assert_false(cb_guard_end(&g)); /* the next one was not that */
}

/* Without namespaces pid 1's end is nobody else's: the process that looks ends, which pid 1 takes for its sign. */
static void test_without_namespaces(void **state)
{
	static struct cb_guard g = { .tick_ms = 2, .most = 5 };
	int status = 0;
	pid_t looks = fork();

	(void)state;
	assert_true(looks >= 0);
	if (looks == 0)
		cb_guard_begin(&g, CB_GUARD_ENDS_US);
	while (looks == 0)
		(void)pause();
	assert_int_equal(waitpid(looks, &status, 0), looks);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(kill(child, 0), 0);
}

/* However many there are, and however long it is until the next. */
static void test_looks_that_come_back(void **state)
{
	static struct cb_guard g = { .tick_ms = 2, .most = 50 };
	int64_t end = cb_now_ms() + 300;
	int status;

	(void)state;
	while (cb_now_ms() < end) {
		cb_guard_begin(&g, pidfd);
		assert_false(cb_guard_end(&g));
	}
	for (end = cb_now_ms() + 300; cb_now_ms() < end;) /* between two */
		(void)usleep(1000);
	assert_int_equal(waitpid(child, &status, WNOHANG), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_look_that_does_not_come_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_without_namespaces, setup, teardown),
		cmocka_unit_test_setup_teardown(test_looks_that_come_back, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
