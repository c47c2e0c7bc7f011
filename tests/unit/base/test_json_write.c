/* Writing JSON: any bytes in, a valid string out; objects and arrays; and where UTF-8 text may be cut. */
#include <cellblock/error.h>
#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>

#include <errno.h>
#include <math.h>
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
		assert_int_equal(cb_json_write_string(&out, "a\nbc", 4), max < 8 ? CB_E_TOO_BIG : 0);
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

static void expect(const struct cb_buf *out, const char *text)
{
	assert_int_equal(out->len, strlen(text));
	assert_memory_equal(out->data, text, out->len);
	assert_int_equal(cb_json_scan(out->data, out->len, NULL, NULL), 0);
}

static void test_values(void **state)
{
	CB_AUTO_BUF out = CB_BUF_INIT(1000);
	struct cb_json j = cb_json_begin(&out);
	char name[] = "\"x\n\"";

	(void)state;
	cb_json_put(&j, "text", name, "const", "y", "none", (const char *)NULL, "yes", (bool)(out.len > 0));
	cb_json_put(&j, "least", (long long)INT64_MIN, "most", (unsigned long long)UINT64_MAX, "zero", 0u, "nine", 9l);
	cb_json_put(&j, "half", 0.5, "thirty", 30.0, "long", 1.0 / 3, "small", 1e-9, "big", 1e300, "no", (double)NAN);
	cb_json_put(&j, "s", CB_ROUNDED(1.0 / 3, 2), "whole", CB_ROUNDED(2.5, 0), "inf",
		    CB_ROUNDED((double)INFINITY, 6));
	cb_json_put(&j, "raw", CB_SPAN("[1, {}]"), "absent", ((struct cb_span){ NULL, 0 }), "null", NULL);
	cb_json_put_text(&j, "cut", "abc", 2);
	cb_json_more_text(&j, "\n", 1);
	assert_int_equal(cb_json_done(&j), 0);
	expect(&out, "{\"text\":\"\\\"x\\n\\\"\",\"const\":\"y\",\"none\":null,\"yes\":true,"
		     "\"least\":-9223372036854775808,\"most\":18446744073709551615,\"zero\":0,\"nine\":9,"
		     "\"half\":0.5,\"thirty\":30,\"long\":0.333333333333333,\"small\":1e-09,\"big\":1e+300,"
		     "\"no\":null,\"s\":0.33,\"whole\":2,\"inf\":null,\"raw\":[1, {}],\"absent\":null,\"null\":null,"
		     "\"cut\":\"ab\\n\"}");
}

static void test_commas(void **state)
{
	CB_AUTO_BUF out = CB_BUF_INIT(1000);
	CB_AUTO_BUF some = CB_BUF_INIT(1000);
	struct cb_json j;

	(void)state;
	j = cb_json_begin(&out);
	cb_json_put_raw(&j, NULL, cb_buf_span(&some)); /* nothing yet */
	cb_json_object(&j, "empty");
	cb_json_end(&j);
	cb_json_array(&j, "list");
	cb_json_put(&j, NULL, 1u, NULL, "a");
	cb_json_put_object(&j, NULL, "in", false ? 1u : 2u);
	cb_json_array(&j, NULL);
	cb_json_end(&j);
	cb_json_end(&j);
	for (unsigned i = 1; i < 3; i++) {
		struct cb_json more = cb_json_inside(&some);

		cb_json_put(&more, i == 1 ? "one" : "two", i);
		assert_int_equal(cb_json_done(&more), 0);
	}
	cb_json_put_raw(&j, NULL, cb_buf_span(&some));
	cb_json_raw_key(&j, CB_SPAN("\"k\""));
	cb_json_array(&j, NULL); /* what is open at the end is ended */
	cb_json_put(&j, NULL, 3u);
	assert_int_equal(cb_json_done(&j), 0);
	expect(&out, "{\"empty\":{},\"list\":[1,\"a\",{\"in\":2},[]],\"one\":1,\"two\":2,\"k\":[3]}");
}

static void test_small(void **state)
{
	CB_JSON_SMALL(lane, "lane", 5u);
	char text[600] = "";

	(void)state;
	expect(&lane, "{\"lane\":5}");
	memset(text, 'x', sizeof(text) - 1);
	CB_JSON_SMALL(none, "text", text);

	assert_int_equal(none.len, 0);
}

static void test_failure_stays(void **state)
{
	static const char wanted[] = "...{\"a\":[1,{\"b\":\"c\"}]}";

	(void)state;
	for (size_t max = 3; max < sizeof(wanted) + 1; max++) {
		CB_AUTO_BUF out = CB_BUF_INIT(max);
		bool fits = max >= sizeof(wanted) - 1;

		assert_int_equal(cb_buf_append_str(&out, "..."), 0);
		struct cb_json j = cb_json_begin(&out);

		cb_json_array(&j, "a");
		cb_json_put(&j, NULL, 1u);
		cb_json_put_object(&j, NULL, "b", "c");
		assert_int_equal(cb_json_done(&j), fits ? 0 : CB_E_TOO_BIG);
		assert_int_equal(out.len, fits ? sizeof(wanted) - 1 : 3);
		assert_memory_equal(out.data, wanted, out.len);
	}
}

static void test_depth(void **state)
{
	CB_AUTO_BUF out = CB_BUF_INIT(1000);

	(void)state;
	for (unsigned depth = 31; depth < 33; depth++) {
		struct cb_json j = cb_json_begin(&out);

		for (unsigned i = 1; i <= depth; i++)
			cb_json_array(&j, i == 1 ? "a" : NULL);
		assert_int_equal(cb_json_done(&j), depth < 32 ? 0 : -EINVAL);
		assert_int_equal(out.len, depth < 32 ? 2 * 31 + 6 : 0);
		cb_buf_clear(&out);
	}
	struct cb_json j = cb_json_begin(&out);

	cb_json_end(&j);
	cb_json_end(&j);
	assert_int_equal(cb_json_done(&j), -EINVAL);
	assert_int_equal(out.len, 0);
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
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_commas),
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_failure_stays),
		cmocka_unit_test(test_depth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
