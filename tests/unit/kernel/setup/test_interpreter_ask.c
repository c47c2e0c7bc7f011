/* What an interpreter says about itself is a guest's word: only one form of answer is believed. */
#include "setup/interpreter_ask.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static int take(struct cb_interpreter *p, const char *text)
{
	struct cb_err err = { 0 };
	int r = cb_interpreter_take_answer(p, text, strlen(text), &err);

	if (r < 0)
		assert_non_null(strstr(err.text, p->executable));
	return r;
}

static void test_answers(void **state)
{
	struct cb_interpreter p = { .executable = strdup("/p/bin/python") };

	(void)state;
	assert_int_equal(take(&p, "{\"version\": \"3.11.7\", \"ipython\": \"9.1.0\", \"missing\": [\"/etc\", "
				  "\"/no/such/entry\", \"/etc\"]}"),
			 0);
	assert_string_equal(p.version, "3.11.7");
	assert_string_equal(p.ipython_version, "9.1.0");
	assert_int_equal(p.missing.count, 1); /* once, and only what the host has */
	assert_string_equal(p.missing.items[0], "/etc");
	assert_int_equal(take(&p, "{\"version\": \"3.13.0\", \"ipython\": null, \"missing\": []}"), 0);
	assert_null(p.ipython_version);
	assert_null(p.bash_version);
	assert_int_equal(
		take(&p, "{\"version\": \"3.13.0\", \"ipython\": null, \"bash\": \"5.2.15\", \"missing\": []}"), 0);
	assert_string_equal(p.bash_version, "5.2.15");
	static const char *const bad[] = {
		"{\"version\": \"3.11.7\", \"ipython\": null, \"bash\": 5, \"missing\": []}",
		"{\"version\": \"3.11.7\", \"ipython\": null, \"bash\": \"$(rm)\", \"missing\": []}",
		"",
		"[]",
		"{}",
		"{\"version\": \"3.11\", \"ipython\": null, \"missing\": []}",
		"{\"version\": \"3.11.7.1\", \"ipython\": null, \"missing\": []}",
		"{\"version\": \"3.11.\", \"ipython\": null, \"missing\": []}",
		"{\"version\": \"2.7.18\", \"ipython\": null, \"missing\": []}",
		"{\"version\": \"3.11.7; rm\", \"ipython\": null, \"missing\": []}",
		"{\"version\": 3, \"ipython\": null, \"missing\": []}",
		"{\"version\": \"3.11.7\", \"missing\": []}",
		"{\"version\": \"3.11.7\", \"ipython\": \"<b>\", \"missing\": []}",
		"{\"version\": \"3.11.7\", \"ipython\": null, \"missing\": null}",
		"{\"version\": \"3.11.7\", \"ipython\": null, \"missing\": [1]}",
		"{\"version\": \"3.11.7\", \"ipython\": null, \"missing\": [\"relative\"]}",
		"{\"version\": \"3.11.7\", \"version\": \"3.11.8\", \"ipython\": null, \"missing\": []}",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(take(&p, bad[i]), CB_E_SYNTAX);
	assert_string_equal(p.version, "3.13.0"); /* untouched by what was refused */
	cb_interpreter_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_answers) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
