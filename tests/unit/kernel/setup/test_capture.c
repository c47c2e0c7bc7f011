/* Running one of our own programs: what it prints, bounded in size and time; which fds it has. */
#include "setup/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cellblock/error.h>

#include <cmocka.h>

#define PATIENCE_MS 60000

static int run(const char *script, int fd, int timeout_ms, struct cb_buf *out, struct cb_buf *errors, int *status)
{
	char text[300];
	char *argv[] = { (char[]){ "/bin/sh" }, (char[]){ "-c" }, text, NULL };

	snprintf(text, sizeof(text), "%s", script);
	return cb_capture(argv, fd, timeout_ms, out, errors, status);
}

static void test_output(void **state)
{
	CB_AUTO_BUF out = CB_BUF_INIT(1000);
	CB_AUTO_BUF errors = CB_BUF_INIT(1000);
	int status = 0;

	(void)state;
	assert_int_equal(run("echo out; echo err >&2; cat; exit 7", -1, PATIENCE_MS, &out, &errors, &status), 0);
	assert_int_equal(WEXITSTATUS(status), 7);
	assert_memory_equal(out.data, "out\n", 4);
	assert_int_equal(out.len, 4);
	assert_memory_equal(errors.data, "err\n", 4);
}

static void test_fds(void **state)
{
	CB_AUTO_BUF out = CB_BUF_INIT(1000);
	CB_AUTO_BUF errors = CB_BUF_INIT(1000);
	int pipes[2], kept = fcntl(2, F_DUPFD, 50); /* not CLOEXEC: a slip elsewhere must not leak */
	char script[100];
	int status = 0;

	(void)state;
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	assert_int_equal(write(pipes[1], "hello", 5), 5);
	close(pipes[1]);
	snprintf(script, sizeof(script), "cat <&3; [ ! -e /proc/$$/fd/%d ] || echo leaked", kept);
	assert_int_equal(run(script, pipes[0], PATIENCE_MS, &out, &errors, &status), 0);
	assert_int_equal(cb_buf_append(&out, "", 1), 0);
	assert_string_equal((const char *)out.data, "hello");
	close(pipes[0]);
	close(kept);
}

static void test_bounds(void **state)
{
	CB_AUTO_BUF out = CB_BUF_INIT(1000);
	CB_AUTO_BUF errors = CB_BUF_INIT(100);
	int status = 0;

	(void)state;
	assert_int_equal(run("exec cat /dev/zero", -1, PATIENCE_MS, &out, &errors, &status), CB_E_TOO_BIG);
	cb_buf_clear(&out);
	assert_int_equal(run("exec sleep 1000", -1, 50, &out, &errors, &status), -ETIMEDOUT);
	/* too much on stderr is cut, not an error */
	assert_int_equal(run("head -c 100000 /dev/zero >&2; echo done", -1, PATIENCE_MS, &out, &errors, &status), 0);
	assert_memory_equal(out.data, "done\n", 5);
	assert_true(errors.len <= 100);
}

/* What is no program for this machine, or not there. */
static void test_not_started(void **state)
{
	static const char said[] = "cellblock run: /dev/null can't be started: Permission denied\n";
	CB_AUTO_BUF out = CB_BUF_INIT(1000);
	CB_AUTO_BUF errors = CB_BUF_INIT(1000);
	char *argv[] = { (char[]){ "/dev/null" }, (char[]){ "run" }, NULL };
	int status = 0;

	(void)state;
	assert_int_equal(cb_capture(argv, -1, PATIENCE_MS, &out, &errors, &status), 0);
	assert_int_equal(WEXITSTATUS(status), 127);
	assert_int_equal(errors.len, strlen(said));
	assert_memory_equal(errors.data, said, strlen(said));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_output), cmocka_unit_test(test_fds),
					    cmocka_unit_test(test_bounds), cmocka_unit_test(test_not_started) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
