/* String vectors: copies, formats, terminator, bound. */
#include <cellblock/sandbox.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../../../sandbox/client/spec_codec.h"

static void test_add(void **state)
{
	struct cb_strv v = { 0 };
	char word[] = "one";

	(void)state;
	assert_int_equal(cb_strv_add(&v, word), 0);
	word[0] = 'X';
	assert_int_equal(cb_strv_addf(&v, "%s=%d", "two", 2), 0);
	assert_int_equal(cb_strv_add(&v, ""), 0);
	assert_int_equal(v.count, 3);
	assert_string_equal(v.items[0], "one");
	assert_string_equal(v.items[1], "two=2");
	assert_string_equal(v.items[2], "");
	assert_null(v.items[3]);
	cb_strv_release(&v);
	assert_null(v.items);
	assert_int_equal(v.count, 0);
	cb_strv_release(&v);
	cb_strv_release(NULL);
}

static void test_bound(void **state)
{
	struct cb_strv v = { 0 };

	(void)state;
	while (v.count < CB_STRV_MAX)
		assert_int_equal(cb_strv_add(&v, "x"), 0);
	assert_int_equal(cb_strv_add(&v, "x"), CB_E_TOO_BIG);
	assert_int_equal(cb_strv_addf(&v, "%d", 1), CB_E_TOO_BIG);
	assert_int_equal(v.count, CB_STRV_MAX);
	assert_null(v.items[CB_STRV_MAX]);
	cb_strv_release(&v);
}

static void test_bound_of_names(void **state)
{
	struct cb_strv v = { 0 };

	(void)state;
	v.items = calloc(CB_NAMES_MAX, sizeof(*v.items)); /* ASan's realloc copies all of them each time */
	assert_non_null(v.items);
	while (v.count < CB_NAMES_MAX - 1)
		v.items[v.count++] = strdup("x");
	assert_int_equal(cb_strv_add_name(&v, "x"), 0);
	assert_int_equal(cb_strv_add_name(&v, "x"), CB_E_TOO_BIG);
	assert_int_equal(v.count, CB_NAMES_MAX);
	assert_null(v.items[CB_NAMES_MAX]);
	cb_strv_release(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_add), cmocka_unit_test(test_bound),
					    cmocka_unit_test(test_bound_of_names) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
