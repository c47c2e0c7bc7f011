/* "Did you mean": near words are found, far ones are not. */
#include "policy/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char *nearest(const char *word)
{
	static const char *const known[] = { "kernel", "install",	 "run",		  "explain",
					     "doctor", "workspace.mode", "workspace.path" };
	struct cb_nearest near = CB_NEAREST(word);

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		cb_nearest_offer(&near, known[i]);
	return near.best;
}

static void test_near(void **state)
{
	(void)state;
	assert_string_equal(nearest("instal"), "install");
	assert_string_equal(nearest("kernle"), "kernel"); /* a swap counts once */
	assert_string_equal(nearest("explane"), "explain");
	assert_string_equal(nearest("workspce.mode"), "workspace.mode");
	assert_string_equal(nearest("rnu"), "run");
}

static void test_far(void **state)
{
	char huge[5000];

	(void)state;
	memset(huge, 'x', sizeof(huge) - 1);
	huge[sizeof(huge) - 1] = '\0';
	assert_null(nearest("xyzzy"));
	assert_null(nearest(""));
	assert_null(nearest(huge));
	assert_null(nearest("abc"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_near), cmocka_unit_test(test_far) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
