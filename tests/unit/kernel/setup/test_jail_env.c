/* The environment inside: what is listed gets in, nothing else does. */
#include "setup/jail_env.h"

#include "policy/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static const char *find(const struct cb_strv *env, const char *name)
{
	const char *found = NULL;
	size_t n = strlen(name);

	for (size_t i = 0; i < env->count; i++) {
		if (strncmp(env->items[i], name, n) == 0 && env->items[i][n] == '=') {
			assert_null(found); /* once only */
			found = env->items[i] + n + 1;
		}
	}
	return found;
}

static void test_rules(void **state)
{
	struct cb_interpreter python = { .executable = (char[]){ "/opt/venv/bin/python" },
					 .venv = (char[]){ "/opt/venv" } };
	static const char text[] = "{\"env\": {\"set\": {\"MINE\": \"1\", \"LANG\": \"set\"}, \"pass\": [\"PASSED\", "
				   "\"LC_*\", \"LANG\"]}}";
	struct cb_strv env = { 0 };
	struct cb_policy p;
	struct cb_err err = { 0 };

	(void)state;
	setenv("PASSED", "yes", 1);
	setenv("PASSED_NOT", "no", 1);
	setenv("LC_TIME", "C", 1);
	setenv("LANG", "outside", 1);
	setenv("SHELL", "/bin/bash", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
	setenv("LD_PRELOAD_X", "x", 1);
	assert_int_equal(cb_policy_defaults("notebook", &p, &err), 0);
	assert_int_equal(cb_policy_parse(&p, false, "test", text, strlen(text), &err), 0);
	assert_int_equal(cb_jail_env(&p, &python, "/n.ipynb", &env), 0);
	assert_string_equal(find(&env, "PATH"), "/opt/venv/bin:" CB_SYSTEM_PATH);
	assert_string_equal(find(&env, "HOME"), "/home/user");
	assert_string_equal(find(&env, "USER"), "user");
	assert_string_equal(find(&env, "TMPDIR"), "/tmp");
	assert_string_equal(find(&env, "SHELL"), "/bin/bash");
	assert_string_equal(find(&env, "VIRTUAL_ENV"), "/opt/venv");
	assert_string_equal(find(&env, "JPY_SESSION_NAME"), "/n.ipynb");
	assert_string_equal(find(&env, "PASSED"), "yes");
	assert_string_equal(find(&env, "LC_TIME"), "C");
	assert_string_equal(find(&env, "MINE"), "1");
	assert_string_equal(find(&env, "LANG"), "set"); /* set wins over pass */
	assert_null(find(&env, "PASSED_NOT"));
	assert_null(find(&env, "AWS_SECRET_ACCESS_KEY"));
	assert_null(find(&env, "LD_PRELOAD_X"));
	assert_null(find(&env, "CONDA_PREFIX"));
	cb_strv_release(&env);
	cb_policy_release(&p);
}

static void test_bare(void **state)
{
	struct cb_interpreter system = { .executable = (char[]){ "/usr/bin/python3" } };
	struct cb_strv env = { 0 };

	(void)state;
	assert_int_equal(cb_jail_env(NULL, &system, NULL, &env), 0);
	assert_int_equal(env.count, 5);
	assert_string_equal(find(&env, "PATH"), "/usr/bin:" CB_SYSTEM_PATH); /* before /usr/local/bin's python3 */
	assert_string_equal(find(&env, "LANG"), "C.UTF-8");
	cb_strv_release(&env);
}

static void threads_with(double cores, const char *set, const char *expected)
{
	struct cb_interpreter python = { .executable = (char[]){ "/usr/bin/python3" } };
	struct cb_strv env = { 0 };
	struct cb_policy p;
	struct cb_err err = { 0 };
	const char *found;

	assert_int_equal(cb_policy_defaults("notebook", &p, &err), 0);
	p.limit_cpu = cores;
	if (set != NULL)
		assert_int_equal(cb_strv_add(&p.env_set, set), 0);
	assert_int_equal(cb_jail_env(&p, &python, NULL, &env), 0);
	found = find(&env, "OMP_NUM_THREADS");
	if (expected == NULL)
		assert_null(found);
	else
		assert_string_equal(found, expected);
	cb_strv_release(&env);
	cb_policy_release(&p);
}

static void test_threads(void **state)
{
	(void)state;
	threads_with(0, NULL, NULL);
	threads_with(0.5, NULL, "1");
	threads_with(1, NULL, "1");
	threads_with(1e6, NULL, NULL); /* more than there are */
	threads_with(0.5, "OMP_NUM_THREADS=3", "3");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_rules), cmocka_unit_test(test_bare),
					    cmocka_unit_test(test_threads) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
