/* Walking the elements of an array: each once, whole, without the spaces around it; nothing behind the array's end. */
#include <cellblock/json_scan.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MOST 8

static const struct {
	const char *array, *element[MOST];
} good[] = {
	{ "[]", { NULL } },
	{ "[ \t\r\n]", { NULL } },
	{ "[1]", { "1" } },
	{ "[ 1 , -2.5e3\t,\n0 ]", { "1", "-2.5e3", "0" } },
	{ "[true,false,null]", { "true", "false", "null" } },
	{ "[\"a,b]\", \"\\\"]\", \"\\\\\"]",
	  { "\"a,b]\"", "\"\\\"]\"", "\"\\\\\"" } },
	{ "[[1,[2,3]],{\"a\":[\"]\",{}],\"b,\":1}, []]",
	  { "[1,[2,3]]", "{\"a\":[\"]\",{}],\"b,\":1}", "[]" } },
	{ "[{\"}\":\"{\"} ]", { "{\"}\":\"{\"}" } },
};

static void test_elements(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct cb_span rest = { good[i].array, strlen(good[i].array) }, element;
		enum cb_json_type scanned;
		size_t n = 0;

		assert_int_equal(cb_json_scan(rest.data, rest.len, &scanned, NULL), 0); /* what the walk relies on */
		for (; cb_json_next_element(&rest, &element); n++) {
			assert_true(n < MOST && good[i].element[n] != NULL);
			assert_int_equal(element.len, strlen(good[i].element[n]));
			assert_memory_equal(element.data, good[i].element[n], element.len);
		}
		assert_true(n == MOST || good[i].element[n] == NULL);
		assert_false(cb_json_next_element(&rest, &element)); /* and it stays at the end */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_elements) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
