/* Pid 1's book of twins: a number is believed once, of the process that the kernel names, and a flood drowns nobody.
 * The sweep itself stops every process that it may, so it is tried in real jails only (tests/transactions). */
#include "../../../../sandbox/init/twins.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cellblock/fd.h>
#include <cellblock/sandbox.h>
#include <cellblock/twin.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY ((pid_t)1 << 30) /* no process of ours */

/* What the supervisor would hear. */
static struct cb_init_msg told[2 * CB_TWINS_MAX];
static size_t ntold;

void cb_init_tell_end(uint32_t op, int arg, int status)
{
	assert_true(ntold < sizeof(told) / sizeof(told[0]));
	told[ntold++] = (struct cb_init_msg){ .op = op, .arg = arg, .status = status };
}

void cb_init_tell(uint32_t op, int arg)
{
	cb_init_tell_end(op, arg, 0);
}

static void expect_told(uint32_t op, uint32_t number)
{
	assert_int_equal(ntold, 1);
	assert_int_equal(told[0].op, op);
	assert_int_equal(told[0].arg, number);
	ntold = 0;
}

static void expect_silence(void)
{
	assert_int_equal(ntold, 0);
}

static int registry[2];
static pid_t children[8];
static size_t nchildren;

/* A process that says the same `times`, and waits for its end. */
static pid_t speaker(const void *message, size_t len, int times, bool leader)
{
	int ready[2];
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (leader)
			(void)setsid();
		for (int i = 0; i < times; i++)
			if (send(registry[1], message, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
				break;
		(void)!write(ready[1], "", 1);
		for (;;)
			(void)pause();
	}
	children[nchildren++] = pid;
	close(ready[1]);
	assert_int_equal(read(ready[0], &(char){ 0 }, 1), 1);
	close(ready[0]);
	return pid;
}

static pid_t twin(uint32_t number, bool leader)
{
	struct cb_registry_msg m = { .number = number };

	return speaker(&m, sizeof(m), 1, leader);
}

/* All that waits; how many there were. */
static int take_all(pid_t guest)
{
	struct pollfd p = { .fd = registry[0], .events = POLLIN };
	int n = 0;

	for (; poll(&p, 1, 0) > 0; n++)
		assert_int_equal(cb_twins_register(registry[0], guest), 1);
	return n;
}

static int setup(void **state)
{
	(void)state;
	assert_int_equal(cb_twins_make_registry(registry), 0);
	ntold = nchildren = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (size_t i = 0; i < nchildren; i++) {
		(void)kill(children[i], SIGKILL);
		(void)waitpid(children[i], NULL, 0);
		cb_twins_reaped(children[i], 0);
	}
	for (uint32_t n = 1; n <= CB_TWINS_MAX + 1; n++)
		cb_twins_drop(n);
	close(registry[0]);
	close(registry[1]);
	return 0;
}

static void test_registers_and_ends(void **state)
{
	(void)state;
	cb_twins_announce(7);
	expect_silence();
	assert_false(cb_twins_any()); /* nobody has come */
	pid_t pid = twin(7, true);

	assert_int_equal(take_all(NOBODY), 1);
	expect_told(CB_INIT_REGISTERED, 7);
	assert_true(cb_twins_any());
	cb_twins_reaped(NOBODY, 0);
	expect_silence();
	cb_twins_reaped(pid, 0);
	expect_told(CB_INIT_GONE, 7);
	assert_false(cb_twins_any());
}

static void test_unannounced(void **state)
{
	(void)state;
	cb_twins_announce(7);
	(void)twin(8, true);
	(void)twin(0, true);
	assert_int_equal(take_all(NOBODY), 2);
	expect_silence();
	assert_false(cb_twins_any());
}

static void test_announced_twice(void **state)
{
	(void)state;
	cb_twins_announce(7);
	cb_twins_announce(7);
	expect_told(CB_INIT_GONE, 7);
	cb_twins_announce(0);
	expect_told(CB_INIT_GONE, 0);
}

/* The first who comes is believed; nobody takes its number, and it takes no other. */
static void test_one_process_one_number(void **state)
{
	(void)state;
	cb_twins_announce(7);
	cb_twins_announce(8);
	pid_t first = twin(7, true);

	assert_int_equal(take_all(NOBODY), 1);
	expect_told(CB_INIT_REGISTERED, 7);
	pid_t second = twin(7, true);

	assert_int_equal(take_all(NOBODY), 1);
	expect_silence();
	cb_twins_reaped(second, 0);
	expect_silence();
	cb_twins_reaped(first, 0);
	expect_told(CB_INIT_GONE, 7);
}

static void test_same_process_twice(void **state)
{
	struct cb_registry_msg m = { .number = 7 };

	(void)state;
	cb_twins_announce(7);
	(void)speaker(&m, sizeof(m), 3, true);
	assert_int_equal(take_all(NOBODY), 3);
	expect_told(CB_INIT_REGISTERED, 7);
}

static void test_other_number_of_same_process(void **state)
{
	struct cb_registry_msg m[2] = { { .number = 7 }, { .number = 8 } };
	pid_t pid = fork();
	int status;

	(void)state;
	cb_twins_announce(7);
	cb_twins_announce(8);
	if (pid == 0) {
		(void)setsid();
		for (int i = 0; i < 2; i++)
			(void)!send(registry[1], &m[i], sizeof(m[i]), 0);
		(void)raise(SIGSTOP);
		_exit(0);
	}
	children[nchildren++] = pid;
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(take_all(NOBODY), 2);
	expect_told(CB_INIT_REGISTERED, 7);
}

static void test_only_leaders_of_a_session(void **state)
{
	(void)state;
	cb_twins_announce(7);
	(void)twin(7, false);
	assert_int_equal(take_all(NOBODY), 1);
	expect_silence();
}

static void test_not_the_guest(void **state)
{
	(void)state;
	cb_twins_announce(7);
	pid_t guest = twin(7, true);

	assert_int_equal(take_all(guest), 1);
	expect_silence();
}

/* Other sizes, nothing at all among them, are passed over; the registry stays open. */
static void test_odd_messages(void **state)
{
	const char text[64] = "\7\0\0";

	(void)state;
	cb_twins_announce(7);
	(void)speaker(text, 0, 2, true);
	(void)speaker(text, 3, 2, true);
	assert_int_equal(take_all(NOBODY), 4);
	expect_silence();
	(void)twin(7, true);
	assert_int_equal(take_all(NOBODY), 1);
	expect_told(CB_INIT_REGISTERED, 7);
}

static void test_flood(void **state)
{
	struct cb_registry_msg m = { .number = 99 };

	(void)state;
	cb_twins_announce(7);
	for (int i = 0; i < 3; i++) {
		(void)speaker(&m, sizeof(m), 1000000, true);
		assert_true(take_all(NOBODY) > 0);
	}
	expect_silence();
	(void)twin(7, true);
	assert_int_equal(take_all(NOBODY), 1);
	expect_told(CB_INIT_REGISTERED, 7);
}

static size_t open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(d);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static void test_descriptors_are_closed(void **state)
{
	struct cb_registry_msg m = { .number = 99 };
	size_t before = open_fds();
	int fds[] = { 0, 1, 2 };

	(void)state;
	assert_int_equal(cb_fd_send(registry[1], &m, sizeof(m), fds, 3), 0);
	assert_int_equal(take_all(NOBODY), 1);
	assert_int_equal(open_fds(), before);
}

static void test_all_holders_gone(void **state)
{
	(void)state;
	assert_int_equal(cb_twins_register(registry[0], NOBODY), 0); /* nothing now */
	close(registry[1]);
	assert_int_equal(cb_twins_register(registry[0], NOBODY), -1);
	registry[1] = open("/dev/null", O_RDWR | O_CLOEXEC);
}

static void test_full(void **state)
{
	(void)state;
	for (uint32_t n = 1; n <= CB_TWINS_MAX; n++)
		cb_twins_announce(n);
	expect_silence();
	cb_twins_announce(CB_TWINS_MAX + 1);
	expect_told(CB_INIT_GONE, CB_TWINS_MAX + 1);
	cb_twins_drop(3);
	expect_told(CB_INIT_GONE, 3);
	cb_twins_announce(CB_TWINS_MAX + 1);
	expect_silence();
	for (uint32_t n = 1; n <= CB_TWINS_MAX + 1; n++)
		cb_twins_drop(n);
	assert_int_equal(ntold, CB_TWINS_MAX);
}

static void test_drop(void **state)
{
	int status;

	(void)state;
	cb_twins_drop(7); /* unknown: its end was told */
	expect_silence();
	cb_twins_announce(7);
	cb_twins_drop(7);
	expect_told(CB_INIT_GONE, 7);
	(void)twin(7, true); /* too late */
	assert_int_equal(take_all(NOBODY), 1);
	expect_silence();
	cb_twins_announce(8);
	pid_t pid = twin(8, true);

	assert_int_equal(take_all(NOBODY), 1);
	expect_told(CB_INIT_REGISTERED, 8);
	cb_twins_drop(8);
	expect_told(CB_INIT_GONE, 8);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	cb_twins_reaped(pid, 0);
	expect_silence(); /* once is enough */
}

static void test_branch(void **state)
{
	(void)state;
	cb_twins_announce(7);
	cb_twins_branch(7); /* nobody has come */
	expect_told(CB_INIT_GONE, 7);
	cb_twins_branch(0);
	expect_told(CB_INIT_GONE, 0);
	pid_t pid = twin(7, true);

	assert_int_equal(take_all(NOBODY), 1);
	expect_told(CB_INIT_REGISTERED, 7);
	assert_int_equal(cb_twins_branch_pid(7), 0); /* a twin gets no signals */
	cb_twins_branch(7);
	expect_silence();
	assert_false(cb_twins_any()); /* it runs: it can't take over */
	assert_int_equal(cb_twins_branch_pid(7), pid);
	assert_int_equal(cb_twins_branch_pid(0), 0);
	cb_twins_reaped(pid, SIGSEGV);
	assert_int_equal(told[0].status, SIGSEGV);
	expect_told(CB_INIT_GONE, 7);
	assert_int_equal(cb_twins_branch_pid(7), 0);
}

static void test_restore_of_nobody(void **state)
{
	pid_t guest = NOBODY;

	(void)state;
	cb_twins_announce(7);
	assert_int_equal(cb_twins_restore(0, &guest), -ESRCH);
	assert_int_equal(cb_twins_restore(7, &guest), -ESRCH);
	assert_int_equal(cb_twins_restore(8, &guest), -ESRCH);
	assert_int_equal(guest, NOBODY);
	expect_silence();
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_registers_and_ends),
		T(test_unannounced),
		T(test_announced_twice),
		T(test_one_process_one_number),
		T(test_same_process_twice),
		T(test_other_number_of_same_process),
		T(test_only_leaders_of_a_session),
		T(test_not_the_guest),
		T(test_odd_messages),
		T(test_flood),
		T(test_descriptors_are_closed),
		T(test_all_holders_gone),
		T(test_full),
		T(test_drop),
		T(test_branch),
		T(test_restore_of_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
