/* Error detail and names of codes. */
#include <cellblock/error.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_set(void **state)
{
	struct cb_err e = { 0 };

	(void)state;
	assert_int_equal(cb_err_set(&e, -ENOENT, "policy", "Write it.", "no file %s", "p.json"), -ENOENT);
	assert_int_equal(e.code, -ENOENT);
	assert_string_equal(e.step, "policy");
	assert_string_equal(e.text, "no file p.json");
	assert_string_equal(e.cure, "Write it.");
	assert_int_equal(cb_err_set(&e, CB_E_SYNTAX, "s", NULL, "t"), CB_E_SYNTAX);
	assert_string_equal(e.cure, "");
	assert_int_equal(cb_err_set(NULL, CB_E_USAGE, "s", NULL, "t"), CB_E_USAGE);
}

/* An error may be wrapped in itself: "while …: old text". */
static void test_set_from_itself(void **state)
{
	struct cb_err e = { 0 };

	(void)state;
	cb_err_set(&e, -EIO, "step", "cure", "inner");
	cb_err_set(&e, e.code, e.step, e.cure, "outer: %s", e.text);
	assert_string_equal(e.text, "outer: inner");
	assert_string_equal(e.step, "step");
	assert_string_equal(e.cure, "cure");
}

static void test_cut_at_a_whole_character(void **state)
{
	struct cb_err e = { 0 };
	char text[2001];

	(void)state;
	for (size_t i = 0; i < sizeof(text) - 1; i += 2)
		memcpy(text + i, "\xc3\xa9", 2);
	text[sizeof(text) - 1] = '\0';
	cb_err_set(&e, -EIO, text, text, "%s", text);
	assert_int_equal(strlen(e.text), sizeof(e.text) - 2);
	assert_int_equal(strlen(e.step), sizeof(e.step) - 2);
	assert_int_equal(strlen(e.cure), sizeof(e.cure) - 2);
}

/* What it quotes may be a name that a cell chose. */
static void test_quoted_names_do_a_terminal_no_harm(void **state)
{
	struct cb_err e = { 0 };

	(void)state;
	cb_err_set(&e, -EIO, "s", "cure \x1b]0;x\x07", "%s", "a\x1b[2Jb\n\xe2\x80\xaegpj.exe \xc2\x9b \xff");
	assert_string_equal(e.text, "a\\x1b[2Jb\\x0a\\xe2\\x80\\xaegpj.exe \\xc2\\x9b \\xff");
	assert_string_equal(e.cure, "cure \\x1b]0;x\\x07");
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(cb_err_name(0), "OK");
	assert_string_equal(cb_err_name(-ENOENT), "ENOENT");
	assert_string_equal(cb_err_name(CB_E_USAGE), "CB_E_USAGE");
	for (int code = CB_E_SYNTAX; code >= CB_E_USAGE; code--)
		assert_memory_equal(cb_err_name(code), "CB_E_", 5);
#if __GLIBC_PREREQ(2, 32)
	for (int code = 1; code < 4096; code++) {
		const char *name = strerrorname_np(code);

		assert_string_equal(cb_err_name(-code), name != NULL ? name : "unknown error");
	}
#endif
	assert_string_equal(cb_err_name(-4095), "unknown error");
	assert_string_equal(cb_err_name(-5000), "unknown error");
	assert_string_equal(cb_err_name(3), "unknown error");
	assert_string_equal(cb_err_text(-ENOENT), "No such file or directory");
	assert_string_equal(cb_err_text(CB_E_USAGE), "CB_E_USAGE");
	assert_string_equal(cb_err_text(0), "OK");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set),
		cmocka_unit_test(test_set_from_itself),
		cmocka_unit_test(test_cut_at_a_whole_character),
		cmocka_unit_test(test_quoted_names_do_a_terminal_no_harm),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
