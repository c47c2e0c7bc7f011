/* Log lines: their form, levels, escaping and the bound on their length. */
#include <cellblock/error.h>
#include <cellblock/log.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char line[8192];

/* Logs at `level` with the log set to `limit`; what was written is in `line`. */
static size_t logged(enum cb_log_level limit, enum cb_log_level level, const char *text)
{
	int ends[2];
	ssize_t n;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	cb_log_init("test", limit, ends[1]);
	errno = 55;
	cb_log(level, "%s", text);
	assert_int_equal(errno, 55);
	close(ends[1]);
	n = read(ends[0], line, sizeof(line) - 1);
	assert_true(n >= 0);
	line[n] = '\0';
	close(ends[0]);
	cb_log_init("test", CB_LOG_WARNING, -1);
	return (size_t)n;
}

static void test_form(void **state)
{
	(void)state;
	assert_true(logged(CB_LOG_INFO, CB_LOG_INFO, "all well") > 0);
	assert_memory_equal(line, "time=20", 7);
	assert_string_equal(strstr(line, " level="), " level=info program=test msg=\"all well\"\n");
}

static void test_levels(void **state)
{
	enum cb_log_level level = CB_LOG_ERROR;

	(void)state;
	assert_int_equal(logged(CB_LOG_WARNING, CB_LOG_INFO, "x"), 0);
	assert_true(logged(CB_LOG_WARNING, CB_LOG_WARNING, "x") > 0);
	assert_true(logged(CB_LOG_WARNING, CB_LOG_ERROR, "x") > 0);
	assert_int_equal(cb_log_level(), CB_LOG_WARNING);
	assert_int_equal(cb_log_level_parse("debug", &level), 0);
	assert_int_equal(level, CB_LOG_DEBUG);
	assert_int_equal(cb_log_level_parse("loud", &level), CB_E_UNKNOWN);
	assert_int_equal(level, CB_LOG_DEBUG);
}

static void test_escaping(void **state)
{
	(void)state;
	logged(CB_LOG_INFO, CB_LOG_ERROR, "a\nb\x1b[31m\"\\\x7f \xc3\xa9 \xff \xc2\x9b \xe2\x82");
	assert_string_equal(strstr(line, "msg="),
			    "msg=\"a\\x0ab\\x1b[31m\\\"\\\\\\x7f \xc3\xa9 \\xff \\xc2\\x9b \\xe2\\x82\"\n");
}

static void test_length(void **state)
{
	static const char *const fillers[] = { "x", "\xc3\xa9", "\n" };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		char text[5000] = "";
		size_t unit = strlen(fillers[i]);

		for (size_t at = 0; at + unit < sizeof(text); at += unit)
			memcpy(text + at, fillers[i], unit + 1);
		assert_in_range(logged(CB_LOG_INFO, CB_LOG_INFO, text), 2040, 2048);
		assert_string_equal(strstr(line, "\xe2\x80\xa6"), "\xe2\x80\xa6\"\n");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_form),
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_escaping),
		cmocka_unit_test(test_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
