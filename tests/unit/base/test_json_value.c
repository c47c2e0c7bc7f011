/* Values of scanned JSON: strings decoded and compared, numbers converted. */
#include <cellblock/error.h>
#include <cellblock/json_scan.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct cb_span scanned(const char *text)
{
	enum cb_json_type type;

	assert_int_equal(cb_json_scan(text, strlen(text), &type, NULL), 0);
	return (struct cb_span){ text, strlen(text) };
}

static void check_decoded(const char *raw, const char *expected, size_t len)
{
	CB_AUTO_BUF out = CB_BUF_INIT(1000);

	assert_int_equal(cb_buf_append_str(&out, ">"), 0);
	assert_int_equal(cb_json_string_decode(scanned(raw), &out), 0);
	assert_int_equal(out.len, len + 1);
	assert_memory_equal(out.data + 1, expected, len);
}

#define DECODED(raw, literal) check_decoded(raw, literal, sizeof(literal) - 1)

static void test_decode(void **state)
{
	(void)state;
	DECODED("\"\"", "");
	DECODED("\"plain\"", "plain");
	DECODED("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t");
	DECODED("\"a\\u0041\\u007a\"", "aAz");
	DECODED("\"\\u0000\"", "\0");
	DECODED("\"\\u007f\\u0080\\u07ff\\u0800\\uffff\"", "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf");
	DECODED("\"\\ud800\\udc00\\uDBFF\\udfff\"", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
	DECODED("\"x\\ud83d\\uDE00y\"", "x\xf0\x9f\x98\x80y");
	DECODED("\"\xc3\xa9\\n\xc3\xa9\"", "\xc3\xa9\n\xc3\xa9");
}

static void test_decode_is_all_or_nothing(void **state)
{
	CB_AUTO_BUF out = CB_BUF_INIT(4);

	(void)state;
	assert_int_equal(cb_buf_append_str(&out, "ab"), 0);
	assert_int_equal(cb_json_string_decode(scanned("\"c\\nd\""), &out), CB_E_TOO_BIG);
	assert_int_equal(out.len, 2);
	assert_int_equal(cb_json_string_decode(scanned("\"c\\n\""), &out), 0);
	assert_memory_equal(out.data, "abc\n", 4);
}

static void test_string_is(void **state)
{
	(void)state;
	assert_true(cb_json_string_is(scanned("\"\""), ""));
	assert_true(cb_json_string_is(scanned("\"abc\""), "abc"));
	assert_true(cb_json_string_is(scanned("\"\\u0061b\\u0063\""), "abc"));
	assert_true(cb_json_string_is(scanned("\"\\u00e9\""), "\xc3\xa9"));
	assert_true(cb_json_string_is(scanned("\"\xc3\xa9\""), "\xc3\xa9"));
	assert_false(cb_json_string_is(scanned("\"ab\""), "abc"));
	assert_false(cb_json_string_is(scanned("\"abcd\""), "abc"));
	assert_false(cb_json_string_is(scanned("\"abc\\u0000\""), "abc"));
	assert_false(cb_json_string_is(scanned("\"\\u0000\""), ""));
	assert_false(cb_json_string_is(scanned("\"\xc3\xa9\""), "\xc3\xa8"));
}

static void test_int(void **state)
{
	int64_t value = 42;

	(void)state;
	assert_int_equal(cb_json_int(scanned("0"), &value), 0);
	assert_int_equal(value, 0);
	assert_int_equal(cb_json_int(scanned("-0"), &value), 0);
	assert_int_equal(value, 0);
	assert_int_equal(cb_json_int(scanned("-12"), &value), 0);
	assert_int_equal(value, -12);
	assert_int_equal(cb_json_int(scanned("9223372036854775807"), &value), 0);
	assert_true(value == INT64_MAX);
	assert_int_equal(cb_json_int(scanned("-9223372036854775808"), &value), 0);
	assert_true(value == INT64_MIN);
	value = 42;
	assert_int_equal(cb_json_int(scanned("9223372036854775808"), &value), CB_E_TOO_BIG);
	assert_int_equal(cb_json_int(scanned("-9223372036854775809"), &value), CB_E_TOO_BIG);
	assert_int_equal(cb_json_int(scanned("100000000000000000000000000"), &value), CB_E_TOO_BIG);
	assert_int_equal(value, 42);
}

static void test_real(void **state)
{
	CB_AUTO_BUF nines = CB_BUF_INIT(1000);
	double value = 42;

	(void)state;
	assert_int_equal(cb_json_real(scanned("0.1"), &value), 0);
	assert_true(value == 0.1);
	assert_int_equal(cb_json_real(scanned("-25e-1"), &value), 0);
	assert_true(value == -2.5);
	assert_int_equal(cb_json_real(scanned("7"), &value), 0);
	assert_true(value == 7);
	assert_int_equal(cb_json_real(scanned("1e-400"), &value), 0);
	assert_true(value == 0);
	/* an integer may pass the scan and yet be past the largest double */
	for (int i = 0; i < 400; i++)
		assert_int_equal(cb_buf_append_str(&nines, "9"), 0);
	assert_int_equal(cb_json_real((struct cb_span){ (char *)nines.data, nines.len }, &value), CB_E_TOO_BIG);
	assert_true(value == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_decode), cmocka_unit_test(test_decode_is_all_or_nothing),
		cmocka_unit_test(test_string_is), cmocka_unit_test(test_int), cmocka_unit_test(test_real),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
