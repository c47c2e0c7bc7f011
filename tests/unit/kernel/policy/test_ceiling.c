/* The administrator's ceiling: bounds, never widens, and is never half obeyed. */
#include "policy/keys.h"
#include "policy/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static struct cb_policy policy_with(const char *text)
{
	struct cb_policy p;
	struct cb_err err = { 0 };

	assert_int_equal(cb_policy_defaults("notebook", &p, &err), 0);
	assert_int_equal(cb_policy_parse(&p, false, "policy", text, strlen(text), &err), 0);
	return p;
}

static int bound(struct cb_policy *p, const char *text, struct cb_err *err)
{
	*err = (struct cb_err){ 0 };
	return cb_policy_parse(p, true, "ceiling", text, strlen(text), err);
}

static void test_numbers(void **state)
{
	struct cb_policy p = policy_with(
		"{\"limits\": {\"pids\": 100, \"memory\": \"1G\", \"output\": 0}, \"timeout\": {\"cell\": 0}}");
	struct cb_err err;

	(void)state;
	assert_int_equal(bound(&p,
			       "{\"limits\": {\"pids\": 50, \"memory\": \"2G\", \"output\": \"1M\"}, \"timeout\": "
			       "{\"cell\": 60}}",
			       &err),
			 0);
	assert_int_equal(p.limit_pids, 50);
	assert_int_equal(p.limit_memory, 1u << 30); /* less than the ceiling stays */
	assert_int_equal(p.limit_output, 1 << 20);  /* no limit is more than any */
	assert_true(p.timeout_cell > 59);
	cb_policy_release(&p);
	p = policy_with("{\"timeout\": {\"cell\": 5}}");
	assert_int_equal(bound(&p, "{\"timeout\": {\"cell\": 0}}", &err), 0);
	assert_true(p.timeout_cell > 4 && p.timeout_cell < 6);
	cb_policy_release(&p);
}

/* 0 is no "no limit" in a layer, but limits.tmp: who plans the jail takes the less of the two. */
static void test_a_size_that_is_another(void **state)
{
	struct cb_policy p = policy_with("{\"workspace\": {\"size\": 0}}");
	struct cb_err err;

	(void)state;
	assert_int_equal(bound(&p, "{\"workspace\": {\"size\": \"10G\"}}", &err), 0);
	assert_true(p.workspace_size == 10ull << 30 && p.workspace_size_capped);
	cb_policy_release(&p);
	p = policy_with("{\"workspace\": {\"size\": \"20G\"}}");
	assert_int_equal(bound(&p, "{\"workspace\": {\"size\": \"10G\"}}", &err), 0);
	assert_true(p.workspace_size == 10ull << 30 && !p.workspace_size_capped);
	cb_policy_release(&p);
}

static void test_words(void **state)
{
	struct cb_policy p = policy_with("{\"network\": {\"mode\": \"full\"}, \"workspace\": {\"mode\": \"ro\"}}");
	struct cb_err err;

	(void)state;
	assert_int_equal(bound(&p, "{\"network\": {\"mode\": \"none\"}, \"workspace\": {\"mode\": \"rw\"}}", &err), 0);
	assert_int_equal(p.network_mode, CB_NETWORK_NONE);
	assert_int_equal(p.workspace_mode, CB_WS_RO);
	cb_policy_release(&p);
	/* a bound that is not built stands for the next stricter one */
	p = policy_with("{\"network\": {\"mode\": \"full\"}, \"workspace\": {\"mode\": \"rw\"}}");
	assert_int_equal(
		bound(&p, "{\"network\": {\"mode\": \"allow\"}, \"workspace\": {\"mode\": \"overlay\"}}", &err), 0);
	assert_int_equal(p.network_mode, CB_NETWORK_NONE);
	assert_int_equal(p.workspace_mode, CB_WS_OVERLAY);
	cb_policy_release(&p);
	p = policy_with("{\"warm\": {\"mode\": \"auto\"}}");
	assert_int_equal(bound(&p, "{\"warm\": {\"mode\": \"auto\"}}", &err), 0);
	assert_int_equal(p.warm_mode, CB_MODE_AUTO);
	assert_int_equal(bound(&p, "{\"warm\": {\"mode\": \"off\"}}", &err), 0);
	assert_int_equal(p.warm_mode, CB_MODE_OFF);
	assert_int_equal(bound(&p, "{\"warm\": {\"mode\": \"auto\"}}", &err), 0);
	assert_int_equal(p.warm_mode, CB_MODE_OFF);
	cb_policy_release(&p);
}

static void test_lists(void **state)
{
	struct cb_policy p = policy_with("{\"env\": {\"pass\": [\"A\", \"B\"]}, \"mounts\": [{\"source\": \"/data\"}],"
					 "\"workspace\": {\"protect\": [\"x\"]}}");
	struct cb_err err;

	(void)state;
	assert_int_equal(
		bound(&p,
		      "{\"env\": {\"pass\": [\"B\", \"C\"]}, \"mounts\": [], \"workspace\": {\"protect\": [\"y\"]}}",
		      &err),
		0);
	assert_int_equal(p.env_pass.count, 1);
	assert_string_equal(p.env_pass.items[0], "B");
	assert_int_equal(p.nmounts, 0);
	assert_int_equal(p.workspace_protect.count, 2);
	cb_policy_release(&p);
	p = policy_with("{\"warm\": {\"preload\": [\"numpy\", \"torch\"]}}");
	assert_int_equal(bound(&p, "{\"warm\": {\"preload\": [\"pandas\", \"numpy\"]}}", &err), 0);
	assert_int_equal(p.warm_preload.count, 1);
	assert_string_equal(p.warm_preload.items[0], "numpy");
	cb_policy_release(&p);
}

static void test_refused(void **state)
{
	static const struct {
		const char *text;
		int code;
	} bad[] = {
		{ "{\"network\": {\"allow\": [\"a:1\"]}}", CB_E_NOT_BUILT },
		{ "{\"workspace\": {\"path\": \"/x\"}}", CB_E_SYNTAX },
		{ "{\"mounts\": [{\"source\": \"/d\"}]}", CB_E_SYNTAX },
		{ "{\"network\": {\"mode\": \"nonne\"}}", CB_E_SYNTAX },
		{ "{\"nonsense\": 1}", CB_E_UNKNOWN },
		{ "{\"limits\": {\"pids\": \"few\"}}", CB_E_SYNTAX },
		{ "{", CB_E_SYNTAX },
	};
	struct cb_policy p = policy_with("{}");
	struct cb_err err;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(bound(&p, bad[i].text, &err), bad[i].code);
		assert_non_null(strstr(err.text, "ceiling"));
	}
	cb_policy_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_numbers), cmocka_unit_test(test_words),
					    cmocka_unit_test(test_lists), cmocka_unit_test(test_refused),
					    cmocka_unit_test(test_a_size_that_is_another) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
