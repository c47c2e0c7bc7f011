/* What a client's message asks for, by its type. */
#include "jupyter/request_kind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_each_is_known_by_its_name(void **state)
{
	static const char *const name[] = {
		NULL,
#define CB_X(name, text) text,
		CB_REQUEST_KINDS(CB_X)
#undef CB_X
	};

	(void)state;
	for (size_t i = 1; i < sizeof(name) / sizeof(name[0]); i++)
		assert_int_equal(cb_request_kind_of(name[i]), i);
}

static void test_all_else_is_other(void **state)
{
	static const char *const other[] = { "", "execute", "execute_reply", "execute_request ", "EXECUTE_REQUEST",
					     "comm_", "cellblock_" };

	(void)state;
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		assert_int_equal(cb_request_kind_of(other[i]), CB_REQUEST_OTHER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_is_known_by_its_name),
		cmocka_unit_test(test_all_else_is_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
