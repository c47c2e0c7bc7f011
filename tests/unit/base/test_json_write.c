/* Writing JSON strings: any bytes in, a valid string out; and where UTF-8 text may be cut. */
#include <cellblock/error.h>
#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void check(const char *text, size_t len, const char *expected)
{
	CB_AUTO_BUF out = CB_BUF_INIT(1000);

	assert_int_equal(cb_json_write_string(&out, text, len), 0);
	assert_int_equal(out.len, strlen(expected));
	assert_memory_equal(out.data, expected, out.len);
	assert_int_equal(cb_json_scan(out.data, out.len, NULL, NULL), 0);
}

#define WRITTEN(literal, expected) check(literal, sizeof(literal) - 1, expected)
#define BAD "\xef\xbf\xbd"

static void test_string(void **state)
{
	(void)state;
	WRITTEN("", "\"\"");
	check(NULL, 0, "\"\"");
	WRITTEN("plain text, longer than eight bytes", "\"plain text, longer than eight bytes\"");
	WRITTEN("\"\\/\b\f\n\r\t", "\"\\\"\\\\/\\b\\f\\n\\r\\t\"");
	WRITTEN("\0\x01\x1f\x7f", "\"\\u0000\\u0001\\u001f\x7f\"");
	WRITTEN("12345678\n12345678\x1b[0m", "\"12345678\\n12345678\\u001b[0m\"");
	WRITTEN("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

static void test_invalid_utf8_is_replaced(void **state)
{
	(void)state;
	WRITTEN("a\xff" "b", "\"a" BAD "b\"");
	WRITTEN("\xc3", "\"" BAD "\"");
	WRITTEN("\xc3\xa9\xc3", "\"\xc3\xa9" BAD "\"");
	WRITTEN("\xed\xa0\x80", "\"" BAD BAD BAD "\"");
	WRITTEN("\xc0\x80", "\"" BAD BAD "\"");
	WRITTEN("\xf4\x90\x80\x80" "z", "\"" BAD BAD BAD BAD "z\"");
	WRITTEN("\xe2\x82\n", "\"" BAD BAD "\\n\"");
}

static void test_all_or_nothing(void **state)
{
	(void)state;
	for (size_t max = 2; max < 9; max++) { /* "a\nbc" takes 7 bytes */
		CB_AUTO_BUF out = CB_BUF_INIT(max);

		assert_int_equal(cb_buf_append_str(&out, "."), 0);
		assert_int_equal(cb_json_write_cstr(&out, "a\nbc"), max < 8 ? CB_E_TOO_BIG : 0);
		assert_int_equal(out.len, max < 8 ? 1 : 8);
	}
}

/* Text cut at any place by cb_utf8_complete_prefix and written in two pieces reads the same. */
static void test_pieces(void **state)
{
	static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\n";

	(void)state;
	for (size_t cut = 0; cut < sizeof(text); cut++) {
		CB_AUTO_BUF whole = CB_BUF_INIT(100);
		CB_AUTO_BUF pieces = CB_BUF_INIT(100);
		size_t n = cb_utf8_complete_prefix(text, cut);

		assert_true(n <= cut && cut - n <= 3);
		assert_int_equal(cb_json_write_escaped(&whole, text, sizeof(text) - 1), 0);
		assert_int_equal(cb_json_write_escaped(&pieces, text, n), 0);
		assert_int_equal(cb_json_write_escaped(&pieces, text + n, sizeof(text) - 1 - n), 0);
		assert_int_equal(pieces.len, whole.len);
		assert_memory_equal(pieces.data, whole.data, whole.len);
	}
}

static void test_complete_prefix_of_rubbish(void **state)
{
	(void)state;
	assert_int_equal(cb_utf8_complete_prefix("", 0), 0);
	assert_int_equal(cb_utf8_complete_prefix("\x80\x80\x80\x80\x80", 5), 5);
	assert_int_equal(cb_utf8_complete_prefix("a\xff", 2), 2);
	assert_int_equal(cb_utf8_complete_prefix("a\xf0\x9f\x98", 4), 1);
	assert_int_equal(cb_utf8_complete_prefix("\xf0", 1), 0);
}

/* A fixed pseudo-random sequence of bytes, so that a failure comes again. */
static void test_any_bytes(void **state)
{
	uint32_t seed = 1;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		CB_AUTO_BUF out = CB_BUF_INIT(1000);
		char text[40];
		size_t n = (size_t)round % sizeof(text);

		for (size_t i = 0; i < n; i++) {
			seed = seed * 1664525 + 1013904223;
			text[i] = (char)(seed >> 24);
		}
		assert_int_equal(cb_json_write_string(&out, text, n), 0);
		assert_int_equal(cb_json_scan(out.data, out.len, NULL, NULL), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_string),
		cmocka_unit_test(test_invalid_utf8_is_replaced),
		cmocka_unit_test(test_all_or_nothing),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_complete_prefix_of_rubbish),
		cmocka_unit_test(test_any_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
