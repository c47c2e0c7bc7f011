/* /proc/PID/stat: the name in it is the process's to choose. */
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TAIL " S 17 1 1 0 -1 4194560 100 200 7 8 300 50 25 5 20 0 6 0 123 999 2 1\n"
#define US_PER_TICK (1000000 / (uint64_t)sysconf(_SC_CLK_TCK))

static void test_names(void **state)
{
	static const char *const names[] = {
		"(python)", "(a b)", "(()", "())", "(x) S 1 1 1 0 -1 1 1 1 1 1 9 9 9 9 )", "()", "(a\nb)", "(a) 7 (b)",
		"(x) Z)",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct cb_proc_stat s;
		char text[256];

		snprintf(text, sizeof(text), "42 %s" TAIL, names[i]);
		assert_int_equal(cb_proc_stat_parse(text, &s), 0);
		assert_true(s.state == 'S' && s.parent == 17 && !s.exiting && s.minor_faults == 100);
		assert_true(s.user_us == 300 * US_PER_TICK && s.system_us == 50 * US_PER_TICK);
		assert_true(s.children_user_us == 25 * US_PER_TICK && s.children_system_us == 5 * US_PER_TICK);
		assert_true(s.threads == 6 && s.start == 123);
		assert_true(s.resident_bytes == 2 * (uint64_t)sysconf(_SC_PAGESIZE));
	}
}

static void test_one_that_ends(void **state)
{
	struct cb_proc_stat s;

	(void)state;
	assert_int_equal(cb_proc_stat_parse("42 (x) R 1 1 1 0 -1 4194564 1 2 0 0 3 5 2 5 20 0 1 0 1 1 -1\n", &s), 0);
	assert_true(s.exiting && s.state == 'R' && s.resident_bytes == 0);
}

static void test_other_forms(void **state)
{
	static const char *const bad[] = { "", "42", "42 (x)", "42 (x) S 1 2 3", "42 (x" TAIL, "42 (a) S" };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct cb_proc_stat s = { .parent = 99 };

		assert_int_equal(cb_proc_stat_parse(bad[i], &s), -EBADMSG);
		assert_int_equal(s.parent, 99);
	}
}

static void test_real_ones(void **state)
{
	pid_t pid = fork();
	struct cb_proc_stat s;

	(void)state;
	if (pid == 0)
		_exit(0);
	assert_true(pid > 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	assert_int_equal(cb_proc_stat_of(pid, &s), 0);
	assert_true(s.state == 'Z' && s.exiting && s.parent == getpid());
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(cb_proc_stat_of(pid, &s), -ENOENT);
	assert_int_equal(cb_proc_stat_read(AT_FDCWD, "/proc/thread-self/stat", &s), 0);
	assert_true(s.state == 'R' && s.threads == 1 && s.resident_bytes > 0 && s.parent == getppid());
	assert_int_equal(cb_proc_stat_read(AT_FDCWD, "/dev/null", &s), -ESRCH);
}

static void test_status(void **state)
{
	char text[4096];

	(void)state;
	assert_int_equal(cb_proc_status_of(getpid(), text, sizeof(text)), 0);
	assert_non_null(strstr(text, "\nFDSize:"));
	assert_int_equal(cb_proc_status_of(getpid(), text, 16), 0);
	assert_int_equal(strlen(text), 15);
	assert_int_equal(cb_proc_status_of(0, text, sizeof(text)), -ENOENT);
	assert_string_equal(text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_one_that_ends),
		cmocka_unit_test(test_other_forms),
		cmocka_unit_test(test_real_ones),
		cmocka_unit_test(test_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
