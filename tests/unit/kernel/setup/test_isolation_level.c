/* Levels in words: every one has a name that the policy knows. */
#include "setup/isolation_level.h"

#include "policy/keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_names(void **state)
{
	const struct cb_policy_key *key = cb_policy_key_find("isolation.minimum");

	(void)state;
	for (unsigned level = CB_LEVEL_NONE; level <= CB_LEVEL_FULL; level++) {
		bool known = false;

		for (const struct cb_key_word *w = key->words; w->word != NULL; w++)
			known = known || strcmp(w->word, cb_level_name(level)) == 0;
		assert_true(known);
		assert_true(strlen(cb_level_text(level)) > 0);
	}
	assert_string_equal(cb_level_name(CB_LEVEL_FULL), "full");
	assert_string_equal(cb_level_name(99), "unknown");
	assert_string_equal(cb_level_text(99), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_names) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
