/* State machines: steps that the table has are made; others end a build with assertions, and are logged by others. */
#include <cellblock/log.h>
#include <cellblock/states.h>

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum light { RED, GREEN, GONE };

static const struct cb_states lights = {
	"the light",
	{ [RED] = { "red", 1 << GREEN | 1 << GONE }, [GREEN] = { "green", 1 << RED }, [GONE] = { "gone", 0 } }
};

/* What the log says of `step`, done by a child; *ret_status is how that ended. */
static void told(void (*step)(void), char *ret_text, size_t size, int *ret_status)
{
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();

	if (child == 0) {
		cb_log_init("test", CB_LOG_ERROR, ends[1]);
		signal(SIGABRT, SIG_DFL);
		step();
		_exit(0);
	}
	close(ends[1]);
	ssize_t n = read(ends[0], ret_text, size - 1);

	close(ends[0]);
	assert_true(n >= 0);
	ret_text[n] = '\0';
	assert_int_equal(waitpid(child, ret_status, 0), child);
}

static void right_steps(void)
{
	enum light l = RED;

	CB_STATE_GO(&lights, &l, GREEN);
	CB_STATE_GO(&lights, &l, RED);
	CB_STATE_GO(&lights, &l, GONE);
	if (l != GONE)
		_exit(1);
	CB_HOLDS(l == GONE);
}

static void wrong_step(void)
{
	enum light l = GONE;

	CB_STATE_GO(&lights, &l, RED);
	_exit(l == RED ? 0 : 1);
}

static void no_state(void)
{
	cb_states_check(&lights, 77, RED);
}

static void does_not_hold(void)
{
	CB_HOLDS(lights.what == NULL);
}

static void test_steps(void **state)
{
	char text[512];
	int status;

	(void)state;
	told(right_steps, text, sizeof(text), &status);
	assert_string_equal(text, "");
	assert_int_equal(status, 0);
}

static void wrong(void (*step)(void), const char *words)
{
	char text[512];
	int status;

	told(step, text, sizeof(text), &status);
	assert_non_null(strstr(text, words));
#ifdef CELLBLOCK_ASSERTS
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#else
	assert_int_equal(status, 0);
#endif
}

static void test_wrong_steps(void **state)
{
	(void)state;
	wrong(wrong_step, "the light went from \\\"gone\\\" to \\\"red\\\"");
	wrong(no_state, "\\\"no state of it\\\"");
	wrong(does_not_hold, "test_states.c:");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_wrong_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
