/* The end of a child: signals do not cut the wait short, and nobody but that child is waited for. */
#include <cellblock/child.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int told[2]; /* how often a signal was handled */

static void tell(int number)
{
	(void)number;
	(void)!write(told[1], "x", 1);
}

/* Who waits sleeps, and does nothing else that does. */
static void interrupt_wait(pid_t parent)
{
	struct cb_proc_stat stat = { .state = 'R' };
	char byte;

	while (stat.state != 'S')
		if (cb_proc_stat_of(parent, &stat) < 0)
			_exit(1);
	if (kill(parent, SIGUSR1) < 0 || read(told[0], &byte, 1) != 1)
		_exit(1);
}

static void test_signals_between(void **state)
{
	const struct sigaction tells = { .sa_handler = tell };
	int status = -1;

	(void)state;
	assert_int_equal(pipe(told), 0);
	assert_int_equal(sigaction(SIGUSR1, &tells, NULL), 0);
	pid_t parent = getpid(), pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		interrupt_wait(parent);
		interrupt_wait(parent);
		_exit(7);
	}
	assert_int_equal(cb_reap(pid, &status), 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	for (int i = 0; i < 2; i++)
		close(told[i]);
}

static pid_t child(int status)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(status);
	return pid;
}

static void test_none_but_that_one(void **state)
{
	pid_t pid = child(3), other = child(4);
	int status = -1;

	(void)state;
	assert_int_equal(cb_reap(-1, &status), -ECHILD);
	assert_int_equal(cb_reap(0, &status), -ECHILD);
	assert_int_equal(cb_reap(getpid(), &status), -ECHILD);
	assert_int_equal(status, -1);
	assert_int_equal(cb_reap(other, NULL), 0);
	assert_int_equal(cb_reap(other, &status), -ECHILD);
	assert_int_equal(status, -1);
	assert_int_equal(cb_reap(pid, &status), 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signals_between),
		cmocka_unit_test(test_none_but_that_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
