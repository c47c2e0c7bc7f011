/* Resource limits, set in a child and read there: soft = hard, and never above what the host allows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../../../sandbox/shared/jail.h"
#include "../../../../sandbox/walls/limits.h"

static bool is(int resource, rlim_t value)
{
	struct rlimit now;

	return getrlimit((__rlimit_resource_t)resource, &now) == 0 && now.rlim_cur == value && now.rlim_max == value;
}

static int exit_of(pid_t pid)
{
	int status = -1;

	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_values(void **state)
{
	struct cb_jail_spec spec = {
		.limit_data = 1u << 30, .limit_pids = 50, .limit_open_files = 100, .limit_file_size = 1u << 20
	};
	struct cb_jail jail = { .spec = &spec };
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		if (cb_step_limits(&jail, NULL) < 0 || cb_limit_open_files(&jail, NULL) < 0)
			_exit(1);
		if (!is(RLIMIT_CORE, 1) || !is(RLIMIT_NOFILE, 100) || !is(RLIMIT_NPROC, 51) ||
		    !is(RLIMIT_DATA, 1u << 30))
			_exit(2);
		_exit(is(RLIMIT_FSIZE, 1u << 20) && is(RLIMIT_RTPRIO, 0) && is(RLIMIT_NICE, 0) ? 0 : 3);
	}
	assert_int_equal(exit_of(pid), 0);
}

static void test_no_core_dumps_where_the_host_allows_none(void **state)
{
	const struct rlimit none = { 0 };
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(setrlimit(RLIMIT_CORE, &none) < 0 || cb_limit_core_dumps(NULL) < 0 || !is(RLIMIT_CORE, 0));
	assert_int_equal(exit_of(pid), 0);
}

static void test_zero_means_what_the_host_allows(void **state)
{
	struct cb_jail_spec spec = { .limit_pids = 50, .limit_open_files = 100 };
	struct cb_jail jail = { .spec = &spec };
	struct rlimit file_size = { 1u << 20, 1u << 30 }, open_files = { 20, 40 };
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		if (setrlimit(RLIMIT_FSIZE, &file_size) < 0 || setrlimit(RLIMIT_NOFILE, &open_files) < 0 ||
		    cb_step_limits(&jail, NULL) < 0 || cb_limit_open_files(&jail, NULL) < 0)
			_exit(1);
		_exit(is(RLIMIT_FSIZE, 1u << 30) && is(RLIMIT_NOFILE, 40) ? 0 : 2);
	}
	assert_int_equal(exit_of(pid), 0);
}

static void test_data_bounds_memory(void **state)
{
	struct cb_jail_spec spec = { .limit_data = 64u << 20, .limit_pids = 50, .limit_open_files = 100 };
	struct cb_jail jail = { .spec = &spec };
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		if (cb_step_limits(&jail, NULL) < 0)
			_exit(1);
		_exit(mmap(NULL, 65u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
			      ? 0
			      : 2);
	}
	assert_int_equal(exit_of(pid), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_zero_means_what_the_host_allows),
		cmocka_unit_test(test_no_core_dumps_where_the_host_allows_none),
		cmocka_unit_test(test_data_bounds_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
