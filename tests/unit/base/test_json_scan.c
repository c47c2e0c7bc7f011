/* The JSON scan: what it must accept and refuse, the caps at their edges, fields, and linear time for hostile input. */
#include <cellblock/error.h>
#include <cellblock/json_scan.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

struct sample {
	const char *text;
	size_t len;
	int result; /* the type if it is good, else the code */
};

#define S(literal, result) { literal, sizeof(literal) - 1, result }

static const struct sample good[] = {
	S("{}", CB_JSON_OBJECT),
	S("[]", CB_JSON_ARRAY),
	S("\"\"", CB_JSON_STRING),
	S("0", CB_JSON_INTEGER),
	S("-0", CB_JSON_INTEGER),
	S("7", CB_JSON_INTEGER),
	S("-1234567890123456789012345678901234567890", CB_JSON_INTEGER),
	S("0.0", CB_JSON_REAL),
	S("-0.0", CB_JSON_REAL),
	S("0e0", CB_JSON_REAL),
	S("0e+1", CB_JSON_REAL),
	S("0E-10", CB_JSON_REAL),
	S("1E22", CB_JSON_REAL),
	S("1e0001", CB_JSON_REAL),
	S("123.456e-78", CB_JSON_REAL),
	S("1.7976931348623157e308", CB_JSON_REAL),
	S("-1.7976931348623157e+308", CB_JSON_REAL),
	S("5e-324", CB_JSON_REAL),
	S("1e-99999", CB_JSON_REAL),
	S("0e99999", CB_JSON_REAL),
	S("0.000000000000000000000000000000000000000000000000000000000000000000000000000001", CB_JSON_REAL),
	S("true", CB_JSON_TRUE),
	S("false", CB_JSON_FALSE),
	S("null", CB_JSON_NULL),
	S(" \t\r\n null \t\r\n ", CB_JSON_NULL),
	S("[ ]", CB_JSON_ARRAY),
	S("{ }", CB_JSON_OBJECT),
	S("[null,1,\"1\",{}]", CB_JSON_ARRAY),
	S("[ 1 , 2 ]", CB_JSON_ARRAY),
	S("[[],[[]],{}]", CB_JSON_ARRAY),
	S("[{},{\"a\":[]}]", CB_JSON_ARRAY),
	S("{\"\":0}", CB_JSON_OBJECT),
	S("{ \"a\" : { \"b\" : [ ] } , \"c\" : 1 }", CB_JSON_OBJECT),
	S("{\"a\":1,\"b\":1,\"A\":1,\"aa\":1,\" a\":1}", CB_JSON_OBJECT),
	/* equal keys, but not in one object */
	S("{\"a\":{\"a\":{\"a\":1}}}", CB_JSON_OBJECT),
	S("[{\"a\":1},{\"a\":2}]", CB_JSON_ARRAY),
	S("{\"a\":{\"b\":1},\"b\":{\"a\":1,\"b\":2}}", CB_JSON_OBJECT),
	S("{\"a\":[{\"a\":1},{\"a\":1}]}", CB_JSON_OBJECT),
	/* keys that differ late, by length, or by a zero byte */
	S("{\"abcdefg\":1,\"abcdefgh\":1,\"abcdefghijklmn\":1,\"abcdefghijklmo\":1}", CB_JSON_OBJECT),
	S("{\"\\u0000\":1,\"\":1,\"\\u0000\\u0000\":1,\"a\":1,\"a\\u0000\":1}", CB_JSON_OBJECT),
	/* escapes */
	S("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", CB_JSON_STRING),
	S("\"\\u0000\"", CB_JSON_STRING),
	S("\"\\uABCD\\uabcd\\u00e9\"", CB_JSON_STRING),
	S("\"\\ud7ff\\ue000\\uffff\"", CB_JSON_STRING),
	S("\"\\ud800\\udc00\"", CB_JSON_STRING),
	S("\"\\uDBFF\\uDFFF\"", CB_JSON_STRING),
	S("\"\\ud83d\\ude00\\ud83d\\ude00\"", CB_JSON_STRING),
	S("\"\\\\u0020 \\\\ud800\"", CB_JSON_STRING),
	S("\"1234567\\n1234567\\n12345678\\n\"", CB_JSON_STRING),
	/* UTF-8 at the edges of its ranges; DEL and C1 are allowed */
	S("\"\x7f\xc2\x80\xc2\x9f\xdf\xbf\"", CB_JSON_STRING),
	S("\"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\"", CB_JSON_STRING),
	S("\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"", CB_JSON_STRING),
	S("\"\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf\"", CB_JSON_STRING),
	S("\"abcdefg\xc3\xa9hijklmnop\xe2\x82\xac\"", CB_JSON_STRING),
	S("{\"\xc3\xa9\":1,\"e\":2}", CB_JSON_OBJECT),
};

static const struct sample bad[] = {
	/* nothing, or not enough */
	S("", CB_E_SYNTAX),
	S(" ", CB_E_SYNTAX),
	S("[", CB_E_SYNTAX),
	S("{", CB_E_SYNTAX),
	S("[1", CB_E_SYNTAX),
	S("[1,", CB_E_SYNTAX),
	S("[\"a", CB_E_SYNTAX),
	S("{\"", CB_E_SYNTAX),
	S("{\"a\"", CB_E_SYNTAX),
	S("{\"a\":", CB_E_SYNTAX),
	S("{\"a\":1", CB_E_SYNTAX),
	S("{\"a\":1,", CB_E_SYNTAX),
	S("\"", CB_E_SYNTAX),
	S("\"\\", CB_E_SYNTAX),
	S("\"\\u", CB_E_SYNTAX),
	S("\"\\u12", CB_E_SYNTAX),
	S("\"\\u1234", CB_E_SYNTAX),
	S("\"\\ud800", CB_E_SYNTAX),
	S("\"\\ud800\\", CB_E_SYNTAX),
	S("\"\\ud800\\u", CB_E_SYNTAX),
	S("\"\\ud800\\udc0", CB_E_SYNTAX),
	S("t", CB_E_SYNTAX),
	S("nul", CB_E_SYNTAX),
	S("fals", CB_E_SYNTAX),
	S("-", CB_E_SYNTAX),
	S("1.", CB_E_SYNTAX),
	S("1e", CB_E_SYNTAX),
	S("1e+", CB_E_SYNTAX),
	/* too much */
	S("{}{}", CB_E_SYNTAX),
	S("[]]", CB_E_SYNTAX),
	S("1 2", CB_E_SYNTAX),
	S("null,", CB_E_SYNTAX),
	S("\"\"x", CB_E_SYNTAX),
	S("nulll", CB_E_SYNTAX),
	S("{}\0", CB_E_SYNTAX),
	S("\xef\xbb\xbf{}", CB_E_SYNTAX),
	/* structure */
	S("]", CB_E_SYNTAX),
	S("}", CB_E_SYNTAX),
	S(",", CB_E_SYNTAX),
	S(":", CB_E_SYNTAX),
	S("[,]", CB_E_SYNTAX),
	S("[1,]", CB_E_SYNTAX),
	S("[,1]", CB_E_SYNTAX),
	S("[1,,2]", CB_E_SYNTAX),
	S("[1 2]", CB_E_SYNTAX),
	S("[1:2]", CB_E_SYNTAX),
	S("[1}", CB_E_SYNTAX),
	S("{]", CB_E_SYNTAX),
	S("{\"a\":1]", CB_E_SYNTAX),
	S("[\"a\":1]", CB_E_SYNTAX),
	S("{,}", CB_E_SYNTAX),
	S("{\"a\"}", CB_E_SYNTAX),
	S("{\"a\",1}", CB_E_SYNTAX),
	S("{\"a\" 1}", CB_E_SYNTAX),
	S("{\"a\"::1}", CB_E_SYNTAX),
	S("{\"a\":}", CB_E_SYNTAX),
	S("{\"a\":1,}", CB_E_SYNTAX),
	S("{\"a\":1,,\"b\":2}", CB_E_SYNTAX),
	S("{\"a\":1 \"b\":2}", CB_E_SYNTAX),
	S("{a:1}", CB_E_SYNTAX),
	S("{1:1}", CB_E_SYNTAX),
	S("{null:1}", CB_E_SYNTAX),
	S("{[]:1}", CB_E_SYNTAX),
	S("{'a':1}", CB_E_SYNTAX),
	S("/* c */ 1", CB_E_SYNTAX),
	S("[1 // c\n]", CB_E_SYNTAX),
	S("<null>", CB_E_SYNTAX),
	/* white space that is none, and NUL */
	S("\v1", CB_E_SYNTAX),
	S("\f[]", CB_E_SYNTAX),
	S("\xc2\xa0[]", CB_E_SYNTAX),
	S("\xe2\x81\xa0[]", CB_E_SYNTAX),
	S("[\0]", CB_E_SYNTAX),
	S("\0", CB_E_SYNTAX),
	/* names */
	S("True", CB_E_SYNTAX),
	S("TRUE", CB_E_SYNTAX),
	S("tru e", CB_E_SYNTAX),
	S("nil", CB_E_SYNTAX),
	S("None", CB_E_SYNTAX),
	S("undefined", CB_E_SYNTAX),
	S("NaN", CB_E_SYNTAX),
	S("[NaN]", CB_E_SYNTAX),
	S("nan", CB_E_SYNTAX),
	S("Infinity", CB_E_SYNTAX),
	S("-Infinity", CB_E_SYNTAX),
	S("inf", CB_E_SYNTAX),
	/* numbers */
	S("+1", CB_E_SYNTAX),
	S("++1", CB_E_SYNTAX),
	S("--1", CB_E_SYNTAX),
	S("-a", CB_E_SYNTAX),
	S("01", CB_E_SYNTAX),
	S("-01", CB_E_SYNTAX),
	S("00", CB_E_SYNTAX),
	S("-00.5", CB_E_SYNTAX),
	S(".5", CB_E_SYNTAX),
	S("-.5", CB_E_SYNTAX),
	S("1.e1", CB_E_SYNTAX),
	S("1.-5", CB_E_SYNTAX),
	S("1..5", CB_E_SYNTAX),
	S("1.5.5", CB_E_SYNTAX),
	S("1e1.5", CB_E_SYNTAX),
	S("1ee1", CB_E_SYNTAX),
	S("1e-+1", CB_E_SYNTAX),
	S("1e1e1", CB_E_SYNTAX),
	S("1 000", CB_E_SYNTAX),
	S("1_000", CB_E_SYNTAX),
	S("0x1f", CB_E_SYNTAX),
	S("0b1", CB_E_SYNTAX),
	S("1a", CB_E_SYNTAX),
	S("1.2a", CB_E_SYNTAX),
	S("1-2", CB_E_SYNTAX),
	S("\xef\xbc\x91", CB_E_SYNTAX),
	/* Infinity by another name */
	S("1e309", CB_E_SYNTAX),
	S("-1e309", CB_E_SYNTAX),
	S("1.8e308", CB_E_SYNTAX),
	S("[1e99999999999999999999]", CB_E_SYNTAX),
	S("0.1e310", CB_E_SYNTAX),
	/* strings */
	S("'a'", CB_E_SYNTAX),
	S("\"a\nb\"", CB_E_SYNTAX),
	S("\"a\tb\"", CB_E_SYNTAX),
	S("\"\0\"", CB_E_SYNTAX),
	S("\"\x1f\"", CB_E_SYNTAX),
	S("\"12345678\x01\"", CB_E_SYNTAX),
	S("\"\\a\"", CB_E_SYNTAX),
	S("\"\\v\"", CB_E_SYNTAX),
	S("\"\\0\"", CB_E_SYNTAX),
	S("\"\\'\"", CB_E_SYNTAX),
	S("\"\\x41\"", CB_E_SYNTAX),
	S("\"\\U0041\"", CB_E_SYNTAX),
	S("\"\\\n\"", CB_E_SYNTAX),
	S("\"\\\xc3\xa9\"", CB_E_SYNTAX),
	S("\"\\u\"", CB_E_SYNTAX),
	S("\"\\u123\"", CB_E_SYNTAX),
	S("\"\\u123g\"", CB_E_SYNTAX),
	S("\"\\u{41}\"", CB_E_SYNTAX),
	S("\"\\u 041\"", CB_E_SYNTAX),
	S("\"\\u+041\"", CB_E_SYNTAX),
	/* surrogates */
	S("\"\\ud800\"", CB_E_SYNTAX),
	S("\"\\udbff\"", CB_E_SYNTAX),
	S("\"\\udc00\"", CB_E_SYNTAX),
	S("\"\\udfff\"", CB_E_SYNTAX),
	S("\"\\udc00\\ud800\"", CB_E_SYNTAX),
	S("\"\\ud800\\ud800\\udc00\"", CB_E_SYNTAX),
	S("\"\\ud800a\"", CB_E_SYNTAX),
	S("\"\\ud800\\n\"", CB_E_SYNTAX),
	S("\"\\ud800\\u0041\"", CB_E_SYNTAX),
	S("\"\\ud800\\ue000\"", CB_E_SYNTAX),
	S("\"\\ud800\\\\udc00\"", CB_E_SYNTAX),
	S("{\"\\udead\":1}", CB_E_SYNTAX),
	/* UTF-8: stray and missing continuations, overlong forms, surrogates, past the end */
	S("\"\x80\"", CB_E_SYNTAX),
	S("\"\xbf\"", CB_E_SYNTAX),
	S("\"\xc3\"", CB_E_SYNTAX),
	S("\"\xc3", CB_E_SYNTAX),
	S("\"\xc3\xc3\xa9\"", CB_E_SYNTAX),
	S("\"\xe2\x82\"", CB_E_SYNTAX),
	S("\"\xe2\x28\xa1\"", CB_E_SYNTAX),
	S("\"\xf0\x9f\x98\"", CB_E_SYNTAX),
	S("\"\xf0\x9f\x98\x28\"", CB_E_SYNTAX),
	S("\"\xc0\x80\"", CB_E_SYNTAX),
	S("\"\xc0\xaf\"", CB_E_SYNTAX),
	S("\"\xc1\xbf\"", CB_E_SYNTAX),
	S("\"\xe0\x80\x80\"", CB_E_SYNTAX),
	S("\"\xe0\x9f\xbf\"", CB_E_SYNTAX),
	S("\"\xf0\x80\x80\x80\"", CB_E_SYNTAX),
	S("\"\xf0\x8f\xbf\xbf\"", CB_E_SYNTAX),
	S("\"\xed\xa0\x80\"", CB_E_SYNTAX),
	S("\"\xed\xbf\xbf\"", CB_E_SYNTAX),
	S("\"\xed\xa0\xbd\xed\xb8\x80\"", CB_E_SYNTAX),
	S("\"\xf4\x90\x80\x80\"", CB_E_SYNTAX),
	S("\"\xf5\x80\x80\x80\"", CB_E_SYNTAX),
	S("\"\xf8\x88\x80\x80\x80\"", CB_E_SYNTAX),
	S("\"\xfe\"", CB_E_SYNTAX),
	S("\"\xff\"", CB_E_SYNTAX),
	S("{\"\xff\":1}", CB_E_SYNTAX),
	S("[\xc3\xa9]", CB_E_SYNTAX),
	S("\xff\xfe[\0]\0", CB_E_SYNTAX),
	/* duplicate keys, also spelled differently */
	S("{\"a\":1,\"a\":1}", CB_E_SYNTAX),
	S("{\"\":1,\"\":1}", CB_E_SYNTAX),
	S("{\"a\":1,\"b\":1,\"c\":1,\"a\":1}", CB_E_SYNTAX),
	S("{\"a\":1,\"\\u0061\":1}", CB_E_SYNTAX),
	S("{\"\\u0061\":1,\"a\":1}", CB_E_SYNTAX),
	S("{\"\xc3\xa9\":1,\"\\u00e9\":1}", CB_E_SYNTAX),
	S("{\"\\u00E9\":1,\"\\u00e9\":1}", CB_E_SYNTAX),
	S("{\"\xf0\x9f\x98\x80\":1,\"\\ud83d\\ude00\":1}", CB_E_SYNTAX),
	S("{\"a/b\":1,\"a\\/b\":1}", CB_E_SYNTAX),
	S("{\"a\\\"\\n\":1,\"\\u0061\\u0022\\u000A\":1}", CB_E_SYNTAX),
	S("{\"abcdefghijklmnopq\":1,\"abcdefg\\u0068ijklmnopq\":1}", CB_E_SYNTAX),
	S("[{},{\"x\":{\"y\":1},\"x\":2}]", CB_E_SYNTAX),
	S("{\"a\":{\"b\":{\"c\":1}},\"d\":[{\"a\":1}],\"a\":1}", CB_E_SYNTAX),
};

/* On a copy of exactly its size, so that AddressSanitizer sees a read past the end. */
static int scan(const char *text, size_t len, enum cb_json_type *ret_type, struct cb_json_error *err)
{
	char *exact = malloc(len > 0 ? len : 1);
	int r;

	assert_non_null(exact);
	memcpy(exact, text, len);
	r = cb_json_scan(exact, len, ret_type, err);
	free(exact);
	return r;
}

static void test_good(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		enum cb_json_type type = 0;
		struct cb_json_error error = { 0 };

		if (scan(good[i].text, good[i].len, &type, &error) != 0)
			fail_msg("good %zu: %s: %s at %zu", i, good[i].text, error.reason, error.offset);
		assert_int_equal(type, good[i].result);
	}
}

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		enum cb_json_type type = CB_JSON_ANY;
		struct cb_json_error error = { 0 };

		if (scan(bad[i].text, bad[i].len, &type, &error) != bad[i].result)
			fail_msg("bad %zu was not refused as it should: %s", i, bad[i].text);
		assert_int_equal(type, CB_JSON_ANY); /* untouched */
		assert_int_equal(error.code, bad[i].result);
		assert_non_null(error.reason);
		assert_null(error.field);
		assert_true(error.offset <= bad[i].len);
	}
	assert_int_equal(cb_json_scan("x", 1, NULL, NULL), CB_E_SYNTAX);
	assert_int_equal(cb_json_scan(NULL, 0, NULL, NULL), CB_E_SYNTAX);
}

/* Every good text, cut at every place, is refused or is a number that ends there. */
static void test_cut(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		size_t whole = good[i].len;

		while (strchr(" \t\r\n", good[i].text[whole - 1]) != NULL)
			whole--;
		for (size_t n = 0; n < whole; n++) {
			enum cb_json_type type = 0;

			if (scan(good[i].text, n, &type, NULL) == 0)
				assert_true(type & CB_JSON_NUMBER);
		}
	}
}

static void test_errors_say_where(void **state)
{
	static const struct {
		const char *text, *reason;
		size_t offset;
	} cases[] = {
		{ "[1, 2, x]", "not a JSON value", 7 },
		{ "{\"a\":1,\"b\":2,\"a\":3}", "duplicate key", 13 },
		{ "[\"\\ud800\"]", "lone surrogate", 2 },
		{ "[\"ab\\q\"]", "unknown escape", 5 },
		{ "[1 2]", "expected a comma or ]", 3 },
		{ "{\"a\":1 2}", "expected a comma or }", 7 },
		{ "{\"a\" 1}", "expected a colon", 5 },
		{ "{\"a\":1", "input ends too early", 6 },
		{ "[1] [", "something behind the value", 4 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct cb_json_error error = { 0 };

		assert_int_equal(scan(cases[i].text, strlen(cases[i].text), NULL, &error), CB_E_SYNTAX);
		assert_string_equal(error.reason, cases[i].reason);
		assert_int_equal(error.offset, cases[i].offset);
	}
}

static void repeat(struct cb_buf *b, const char *text, size_t times)
{
	for (size_t i = 0; i < times; i++)
		assert_int_equal(cb_buf_append_str(b, text), 0);
}

static int scan_buf(const struct cb_buf *b, struct cb_json_error *err)
{
	return cb_json_scan(b->data, b->len, NULL, err);
}

static void test_depth(void **state)
{
	static const char *const opening[] = { "[", "{\"a\":" }, *const closing[] = { "]", "}" };

	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		for (size_t depth = CB_JSON_MAX_DEPTH; depth <= CB_JSON_MAX_DEPTH + 1; depth++) {
			CB_AUTO_BUF b = CB_BUF_INIT(1 << 20);
			struct cb_json_error error = { 0 };

			repeat(&b, opening[kind], depth);
			repeat(&b, "1", 1);
			repeat(&b, closing[kind], depth);
			if (depth == CB_JSON_MAX_DEPTH) {
				assert_int_equal(scan_buf(&b, &error), 0);
				continue;
			}
			assert_int_equal(scan_buf(&b, &error), CB_E_TOO_BIG);
			assert_string_equal(error.reason, "nested deeper than 256");
		}
	}
}

static void test_live_keys(void **state)
{
	(void)state;
	for (unsigned count = CB_JSON_MAX_LIVE_KEYS; count <= CB_JSON_MAX_LIVE_KEYS + 1; count++) {
		CB_AUTO_BUF b = CB_BUF_INIT(8 << 20);
		struct cb_json_error error = { 0 };

		repeat(&b, "{", 1);
		for (unsigned i = 0; i < count; i++)
			assert_int_equal(cb_buf_printf(&b, "%s\"%u\":0", i > 0 ? "," : "", i), 0);
		repeat(&b, "}", 1);
		if (count == CB_JSON_MAX_LIVE_KEYS) {
			assert_int_equal(scan_buf(&b, &error), 0);
			continue;
		}
		assert_int_equal(scan_buf(&b, &error), CB_E_TOO_BIG);
		assert_non_null(strstr(error.reason, "60000"));
	}
}

/* Keys of closed objects do not count, and a failed scan leaves nothing behind. */
static void test_keys_are_dropped(void **state)
{
	CB_AUTO_BUF b = CB_BUF_INIT(8 << 20);

	(void)state;
	repeat(&b, "[{\"x\":0}", 1);
	repeat(&b, ",{\"a\":1,\"b\":{\"c\":2}}", 100000);
	repeat(&b, "]", 1);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(cb_json_scan("{\"a\":1,\"b\":{\"c\":1", 17, NULL, NULL), CB_E_SYNTAX);
		assert_int_equal(scan_buf(&b, NULL), 0);
	}
}

static void test_long_numbers(void **state)
{
	(void)state;
	for (size_t n = CB_JSON_MAX_NUMBER; n <= CB_JSON_MAX_NUMBER + 1; n++) {
		CB_AUTO_BUF b = CB_BUF_INIT(1 << 20);
		CB_AUTO_BUF real = CB_BUF_INIT(1 << 20);
		struct cb_json_error error = { 0 };
		int expected = n == CB_JSON_MAX_NUMBER ? 0 : CB_E_TOO_BIG;

		repeat(&b, "9", n);
		assert_int_equal(scan_buf(&b, &error), expected);
		if (expected != 0)
			assert_non_null(strstr(error.reason, "4300"));
		repeat(&real, "0.", 1);
		repeat(&real, "9", n - 2);
		assert_int_equal(scan_buf(&real, &error), expected);
	}
}

/* A real may also be too large by its digits alone. */
static void test_many_digits(void **state)
{
	(void)state;
	for (size_t digits = 308; digits <= 310; digits++) {
		CB_AUTO_BUF b = CB_BUF_INIT(1 << 20);

		repeat(&b, "1", digits);
		repeat(&b, ".0", 1);
		assert_int_equal(scan_buf(&b, NULL), digits <= 309 ? 0 : CB_E_SYNTAX);
	}
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Hostile shapes: twice the input may take about twice the time. The factor allows for a noisy machine; quadratic time
 * is far past it. */
static void test_time_is_linear(void **state)
{
	static const char *const units[][3] = {
		{ "[", "[],", "[]]" }, { "[", "{\"a\":1},", "1]" },     { "\"", "\\ud83d\\ude00", "\"" },
		{ "[", "1e300,", "1]" }, { "\"", "\xf0\x9f\x98\x80", "\"" }, { "[", "{\"\\u0061\\u0062\":{}},", "1]" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		double took[2] = { 0 };

		for (size_t round = 0; round < 2; round++) {
			CB_AUTO_BUF b = CB_BUF_INIT(64 << 20);
			double start;

			repeat(&b, units[i][0], 1);
			repeat(&b, units[i][1], round == 0 ? 10000 : 80000);
			repeat(&b, units[i][2], 1);
			start = seconds();
			assert_int_equal(scan_buf(&b, NULL), 0);
			took[round] = seconds() - start;
		}
		assert_true(took[1] < 32 * took[0] + 0.05);
	}
}

/* ---- fields ---- */

static struct cb_json_error error_of(const char *text, struct cb_json_field field)
{
	struct cb_json_error error = { 0 };

	assert_true(cb_json_scan_object(text, strlen(text), &field, 1, &error) < 0);
	assert_null(field.ret.data);
	return error;
}

static void test_fields(void **state)
{
	static const char text[] =
		"{\"zero\":0, \"c\\u006fde\" : \"1+1\" ,\"list\":[1,\"a\"],\"nest\":{\"code\":2},\"r\":-1.5}";
	struct cb_json_field fields[] = {
		{ .name = "code", .types = CB_JSON_STRING, .required = true },
		{ .name = "list", .types = CB_JSON_ARRAY, .elements = CB_JSON_INTEGER | CB_JSON_STRING },
		{ .name = "nest", .types = CB_JSON_OBJECT, .members = CB_JSON_NUMBER },
		{ .name = "r", .types = CB_JSON_ANY },
		{ .name = "absent", .types = CB_JSON_NULL },
		{ .name = "execution_count", .types = CB_JSON_ANY, .forbidden = true },
	};

	(void)state;
	fields[4].ret = CB_SPAN("stale");
	assert_int_equal(cb_json_scan_object(text, sizeof(text) - 1, fields, 6, NULL), 0);
	assert_true(cb_span_is(fields[0].ret, "\"1+1\""));
	assert_int_equal(fields[0].ret_type, CB_JSON_STRING);
	assert_true(cb_span_is(fields[1].ret, "[1,\"a\"]"));
	assert_int_equal(fields[1].ret_type, CB_JSON_ARRAY);
	assert_true(cb_span_is(fields[2].ret, "{\"code\":2}"));
	assert_true(cb_span_is(fields[3].ret, "-1.5"));
	assert_int_equal(fields[3].ret_type, CB_JSON_REAL);
	assert_null(fields[4].ret.data);
	assert_null(fields[5].ret.data);
}

static void test_field_errors(void **state)
{
	struct cb_json_error e;

	(void)state;
	e = error_of("{\"a\":1}", (struct cb_json_field){ .name = "code", .types = CB_JSON_ANY, .required = true });
	assert_int_equal(e.code, CB_E_UNKNOWN);
	assert_string_equal(e.field, "code");
	assert_string_equal(e.reason, "required key missing");

	e = error_of("{\"a\":1}", (struct cb_json_field){ .name = "a", .types = CB_JSON_STRING });
	assert_int_equal(e.code, CB_E_UNKNOWN);
	assert_string_equal(e.field, "a");
	assert_int_equal(e.offset, 5);

	e = error_of("{\"a\":1.0}", (struct cb_json_field){ .name = "a", .types = CB_JSON_INTEGER });
	assert_string_equal(e.reason, "wrong type");

	e = error_of("{\"b\":0,\"a\":1}", (struct cb_json_field){.name = "a", .types = CB_JSON_ANY, .forbidden = true});
	assert_int_equal(e.code, CB_E_DENIED);
	assert_int_equal(e.offset, 7);

	e = error_of("{\"\\u0061\":1}", (struct cb_json_field){ .name = "a", .types = CB_JSON_ANY, .forbidden = true });
	assert_int_equal(e.code, CB_E_DENIED);

	e = error_of("{\"a\":[\"x\",1]}",
		     (struct cb_json_field){ .name = "a", .types = CB_JSON_ARRAY, .elements = CB_JSON_STRING });
	assert_int_equal(e.code, CB_E_UNKNOWN);
	assert_string_equal(e.reason, "wrong type inside");
	assert_int_equal(e.offset, 10);

	e = error_of("{\"a\":{\"x\":\"\",\"y\":[]}}",
		     (struct cb_json_field){ .name = "a", .types = CB_JSON_OBJECT, .members = CB_JSON_STRING });
	assert_string_equal(e.field, "a");

	e = error_of("{\"a\":1,\"b\":tru}", (struct cb_json_field){ .name = "a", .types = CB_JSON_ANY });
	assert_int_equal(e.code, CB_E_SYNTAX);
	assert_null(e.field);
}

/* What is allowed inside one field does not leak into the next, nor into deeper levels. */
static void test_fields_keep_apart(void **state)
{
	static const char text[] = "{\"a\":[\"x\"],\"b\":[1,null,[2]],\"c\":[\"y\"],\"d\":{\"a\":1}}";
	struct cb_json_field fields[] = {
		{.name = "a", .types = CB_JSON_ARRAY, .elements = CB_JSON_STRING},
		{.name = "c",
		 .types = CB_JSON_ARRAY | CB_JSON_OBJECT,
		 .elements = CB_JSON_STRING,
		 .members = CB_JSON_NULL},
	};

	(void)state;
	assert_int_equal(cb_json_scan_object(text, sizeof(text) - 1, fields, 2, NULL), 0);
	assert_true(cb_span_is(fields[0].ret, "[\"x\"]"));
	assert_true(cb_span_is(fields[1].ret, "[\"y\"]"));
}

static void test_only_objects(void **state)
{
	struct cb_json_field field = { .name = "a", .types = CB_JSON_ANY };
	struct cb_json_error error = { 0 };

	(void)state;
	assert_int_equal(cb_json_scan_object("[1]", 3, NULL, 0, &error), CB_E_UNKNOWN);
	assert_string_equal(error.reason, "not an object");
	assert_int_equal(cb_json_scan_object("{}", 2, NULL, 0, &error), 0);
	/* members of an object inside an array are not the top level's */
	assert_int_equal(cb_json_scan_object("[{\"a\":1}]", 9, &field, 1, &error), CB_E_UNKNOWN);
	assert_null(field.ret.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_errors_say_where),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_live_keys),
		cmocka_unit_test(test_keys_are_dropped),
		cmocka_unit_test(test_long_numbers),
		cmocka_unit_test(test_many_digits),
		cmocka_unit_test(test_time_is_linear),
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_field_errors),
		cmocka_unit_test(test_fields_keep_apart),
		cmocka_unit_test(test_only_objects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
