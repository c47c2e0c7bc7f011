/* Whether all that descends from a process is stopped: children, threads, what waits in the kernel. */
#include "../../../../sandbox/changes/still.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_MS 60000
#define SHORT_MS 50

/* In the place of the C library's. */
static int no_status; /* what the file of a thread gives instead; 0 = it is there */

int openat(int folder, const char *path, int flags, ...)
{
	const char *slash = strchr(path, '/');

	if (no_status != 0 && slash != NULL && strcmp(slash, "/status") == 0) {
		errno = no_status;
		return -1;
	}
	return (int)syscall(SYS_openat, folder, path, flags, 0); /* nobody makes one here */
}

static int there[2]; /* one byte says that all is as it is to be looked at */

static void *wait_for_ever(void *first)
{
	if (first != NULL)
		(void)pthread_join(*(const pthread_t *)first, NULL);
	(void)!write(there[1], "", 1);
	for (;;)
		(void)pause();
	return NULL;
}

static void just_wait(void)
{
	(void)wait_for_ever(NULL);
}

/* The first thread ends, another one stays. */
static void in_a_thread(void)
{
	static pthread_t first;
	pthread_t thread;

	first = pthread_self();
	if (pthread_create(&thread, NULL, wait_for_ever, &first) == 0)
		pthread_exit(NULL);
}

static void in_a_child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		just_wait();
	}
	for (;;)
		(void)pause();
}

/* The parent of a child that shares its memory waits in the kernel until that is gone. */
static void in_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		(void)!write(there[1], "", 1);
		for (;;)
			(void)pause();
	}
}

static void test_each_kind(void **state)
{
	static void (*const kinds[])(void) = { just_wait, in_a_thread, in_a_child, in_vfork };

	(void)state;
	assert_int_equal(pipe(there), 0);
	assert_true(cb_jail_is_still(getpid(), SHORT_MS)); /* nobody is there */
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		pid_t pid = fork();
		char byte;

		assert_true(pid >= 0);
		if (pid == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			(void)setpgid(0, 0);
			kinds[i]();
			_exit(1);
		}
		(void)setpgid(pid, pid);
		assert_int_equal(read(there[0], &byte, 1), 1);
		assert_false(cb_jail_is_still(getpid(), SHORT_MS));
		assert_int_equal(kill(-pid, SIGSTOP), 0);
		assert_true(cb_jail_is_still(getpid(), LONG_MS));
		no_status = EMFILE; /* it may run */
		assert_false(cb_jail_is_still(getpid(), SHORT_MS));
		no_status = ENOENT; /* it is gone */
		assert_true(cb_jail_is_still(getpid(), LONG_MS));
		no_status = 0;
		assert_int_equal(kill(-pid, SIGCONT), 0);
		assert_false(cb_jail_is_still(getpid(), SHORT_MS));
		assert_int_equal(kill(-pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
	}
	close(there[0]);
	close(there[1]);
}

/* Stopped when it is looked at, before and after. */
static void test_who_has_run_in_between(void **state)
{
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			(void)raise(SIGSTOP);
	}
	assert_true(cb_jail_is_still(getpid(), LONG_MS));
	assert_true(cb_jail_was_still(getpid()));
	assert_int_equal(kill(pid, SIGSTOP), 0); /* again, as pid 1 does */
	assert_true(cb_jail_was_still(getpid()));
	assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid); /* it has stopped itself once more */
	assert_false(cb_jail_was_still(getpid()));
	assert_true(cb_jail_was_still(getpid()));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(cb_jail_was_still(getpid()));
}

static void test_who_is_not_there_can_t_be_seen(void **state)
{
	(void)state;
	assert_false(cb_jail_is_still((pid_t)1 << 30, SHORT_MS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_kind),
		cmocka_unit_test(test_who_has_run_in_between),
		cmocka_unit_test(test_who_is_not_there_can_t_be_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
