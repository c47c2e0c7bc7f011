/* Scores for the kernel's OOM killer: of a descendant, and of nobody else. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../../../sandbox/broker/oom.h"

static int score(pid_t pid)
{
	char path[64];
	int value = -2000;

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	FILE *f = fopen(path, "re");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &value), 1);
	fclose(f);
	return value;
}

static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0)
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (pid == 0)
		pause();
	return pid;
}

static void test_scores(void **state)
{
	int before = score(getpid());
	pid_t child = sleeper(), other = sleeper();

	(void)state;
	assert_int_equal(cb_oom_score(other, child, true), -ESRCH); /* not that one's child */
	assert_int_equal(cb_oom_score(child, child, true), -ESRCH);
	assert_int_equal(cb_oom_score(child, getpid(), true), -ESRCH);
	assert_int_equal(cb_oom_score(0, child, true), -ESRCH);
	assert_int_equal(score(child), before);
	assert_int_equal(cb_oom_score(getpid(), child, true), 0);
	assert_int_equal(score(child), 1000);
	assert_int_equal(cb_oom_score(getpid(), child, false), 0);
	assert_int_equal(score(child), before);
	assert_int_equal(cb_oom_score(getppid(), child, false), 0);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_true(cb_oom_score(getpid(), child, true) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_scores) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
