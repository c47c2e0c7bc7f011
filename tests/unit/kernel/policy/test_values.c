/* Values of policy keys: every key's defaults load and show again; each type's good and bad values. */
#include "policy/keys.h"
#include "policy/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include <cellblock/host_memory.h>

static int set(struct cb_policy *p, const char *name, const char *json, struct cb_err *err)
{
	json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
	int r;

	assert_non_null(value);
	assert_non_null(cb_policy_key_find(name));
	*err = (struct cb_err){ 0 };
	r = cb_policy_key_set(p, cb_policy_key_find(name), value, "test", err);
	json_decref(value);
	return r;
}

static void test_every_key(void **state)
{
	static const char *const names[] = { "notebook", "agent" };

	(void)state;
	for (size_t n = 0; n < 2; n++) {
		struct cb_policy p;
		struct cb_err err = { 0 };

		assert_int_equal(cb_policy_defaults(names[n], &p, &err), 0);
		for (size_t i = 0; i < cb_policy_keys_count; i++) {
			const struct cb_policy_key *key = &cb_policy_keys[i];
			json_t *value = cb_policy_key_get(&p, key);
			char allowed[400];

			/* What is shown can be written: the whole state of a policy is expressible. */
			assert_non_null(value);
			assert_int_equal(cb_policy_key_set(&p, key, value, "test", &err), 0);
			json_decref(value);
			cb_policy_key_allowed(key, allowed, sizeof(allowed));
			assert_true(strlen(allowed) > 5);
		}
		cb_policy_release(&p);
	}
}

static void test_sizes(void **state)
{
	struct cb_policy p = { 0 };
	struct cb_err err;

	(void)state;
	assert_int_equal(set(&p, "limits.memory", "\"64M\"", &err), 0);
	assert_int_equal(p.limit_memory, 64u << 20);
	assert_int_equal(set(&p, "limits.memory", "67108864", &err), 0);
	assert_int_equal(p.limit_memory, 64u << 20);
	assert_int_equal(set(&p, "limits.memory", "\"50%\"", &err), 0);
	assert_true(p.limit_memory >= cb_host_memory() / 2 - 1 && p.limit_memory <= cb_host_memory() / 2 + 1);
	assert_int_equal(set(&p, "limits.output", "0", &err), 0);
	assert_int_equal(p.limit_output, 0);
	static const char *const bad[] = { "\"\"",	    "\"M\"",	"\"-1M\"",
					   "\"64MB\"",	    "\"0%\"",	"\"101%\"",
					   "\"1e9\"",	    "\"64 M\"", "-1",
					   "1.5",	    "0",	"true",
					   "null",	    "[]",	"\"99999999999999999999\"",
					   "\"99999999T\"", "\"1k\"" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(set(&p, "limits.memory", bad[i], &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "limits.message", "\"2G\"", &err), CB_E_SYNTAX); /* over the wire's own limit */
	assert_non_null(strstr(err.cure, "at least 65536 and at most 1073741824"));
	assert_int_equal(set(&p, "audit.file", "\":memory:\"", &err), CB_E_SYNTAX);
	assert_null(strstr(err.cure, "memory"));
	assert_int_equal(cb_policy_key_set_text(&p, cb_policy_key_find("imports.allow"), "a,\xff", "--set", &err),
			 CB_E_SYNTAX);
	assert_non_null(strstr(err.text, "not UTF-8"));
	assert_int_equal(set(&p, "limits.file_size", "\"10%\"", &err), CB_E_SYNTAX);
	assert_non_null(strstr(err.text, "limits.file_size"));
	assert_non_null(strstr(err.cure, "512M"));
}

static void test_numbers(void **state)
{
	struct cb_policy p = { 0 };
	struct cb_err err = { 0 };

	(void)state;
	assert_int_equal(set(&p, "timeout.cell", "0.25", &err), 0);
	assert_true(p.timeout_cell > 0.24 && p.timeout_cell < 0.26);
	assert_int_equal(set(&p, "timeout.cell", "-1", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "timeout.cell", "true", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "limits.pids", "2.5", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "limits.pids", "0", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "limits.inodes", "\"1M\"", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "limits.cpu", "0", &err), 0);
	assert_int_equal(set(&p, "limits.cpu", "0.5", &err), 0);
	assert_int_equal(set(&p, "limits.cpu", "0.001", &err), CB_E_SYNTAX);
	assert_non_null(strstr(err.cure, "from 0.01 to 1000000, or 0"));
	assert_int_equal(set(&p, "limits.cpu", "-2", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "transactions.keep", "-2", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "transactions.keep", "50", &err), 0);
	assert_int_equal(set(&p, "transactions.keep", "51", &err), CB_E_SYNTAX); /* there are places for no more */
}

static void test_words_not_built(void **state)
{
	static const struct {
		const char *key, *value;
	} refused[] = {
		{ "network.mode", "\"allow\"" }, { "network.allow", "[\"a:1\"]" },  { "devices", "[\"/dev/x\"]" },
	};
	struct cb_policy p;
	struct cb_err err = { 0 };

	(void)state;
	assert_int_equal(cb_policy_defaults("notebook", &p, &err), 0);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		assert_int_equal(set(&p, refused[i].key, refused[i].value, &err), CB_E_NOT_BUILT);
		assert_non_null(strstr(err.text, "not built"));
		assert_non_null(strstr(err.text, refused[i].key));
	}
	assert_int_equal(p.network_mode, CB_NETWORK_NONE); /* a refused value changes nothing */
	assert_string_equal(p.root_path, "host");
	cb_policy_release(&p);
}

static void test_warm(void **state)
{
	static const char *const good[] = { "[]", "[\"numpy\"]", "[\"_a.b_2\", \"a\"]" };
	static const char *const bad[] = {
		"\"numpy\"", "[\"*\"]",   "[\"a.*\"]", "[\"1a\"]",	 "[\"a b\"]", "[\"a;b\"]", "[\"\"]",
		"[1]",	     "[\".a\"]", "[\"a.\"]",  "[\"a..b\"]", "[\"\\u00e4\"]",
	};
	char many[(CB_PRELOAD_MAX + 1) * 4 + 2], name[CB_PRELOAD_NAME_MAX + 6];
	struct cb_policy p;
	struct cb_err err = { 0 };

	(void)state;
	assert_int_equal(cb_policy_defaults("agent", &p, &err), 0);
	assert_int_equal(p.warm_mode, CB_MODE_AUTO);
	assert_int_equal(p.warm_preload.count, 2);
	assert_int_equal(set(&p, "warm.mode", "\"off\"", &err), 0);
	assert_int_equal(p.warm_mode, CB_MODE_OFF);
	assert_int_equal(set(&p, "warm.mode", "\"always\"", &err), CB_E_SYNTAX);
	assert_non_null(strstr(err.cure, "\"off\", \"auto\""));
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(set(&p, "warm.preload", good[i], &err), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(set(&p, "warm.preload", bad[i], &err), CB_E_SYNTAX);
		assert_non_null(strstr(err.text, "warm.preload"));
		assert_non_null(strstr(err.cure, "a list of at most 64 modules' names, as numpy"));
	}
	assert_int_equal(p.warm_preload.count, 2); /* the last good one */
	for (size_t n = CB_PRELOAD_MAX; n <= CB_PRELOAD_MAX + 1; n++) {
		for (size_t i = 0; i < n; i++)
			memcpy(many + 4 * i, i == 0 ? "[\"a\"" : ",\"a\"", 4);
		memcpy(many + 4 * n, "]", 2);
		assert_int_equal(set(&p, "warm.preload", many, &err), n == CB_PRELOAD_MAX ? 0 : CB_E_SYNTAX);
		assert_int_equal(p.warm_preload.count, CB_PRELOAD_MAX);
	}
	for (size_t n = CB_PRELOAD_NAME_MAX; n <= CB_PRELOAD_NAME_MAX + 1; n++) {
		memset(name, 'a', sizeof(name));
		memcpy(name, "[\"", 2);
		memcpy(name + 2 + n, "\"]", 3);
		assert_int_equal(set(&p, "warm.preload", name, &err), n == CB_PRELOAD_NAME_MAX ? 0 : CB_E_SYNTAX);
	}
	cb_policy_release(&p);
}

/* What no jail is built from is told here, where the file and the key are known. */
static void test_relative_paths(void **state)
{
	static const char *const keys[] = { "workspace.protect", "home.expose" };
	static const char *const bad[] = { "secrets/", "./a", "a//b", ".", "a/.", "/a", "~", "a/..", "" };
	char item[300];
	struct cb_policy p = { 0 };
	struct cb_err err;

	(void)state;
	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
		assert_int_equal(set(&p, keys[k], "[\".a\", \"a/b.c\", \"...\", \"..a/.b\"]", &err), 0);
		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
			snprintf(item, sizeof(item), "[\"%s\"]", bad[i]);
			assert_int_equal(set(&p, keys[k], item, &err), CB_E_SYNTAX);
			assert_non_null(strstr(err.text, keys[k]));
			assert_non_null(strstr(err.cure, "without empty, `.` and `..` parts"));
		}
		for (int n = 255; n <= 256; n++) {
			snprintf(item, sizeof(item), "[\"a/%0*d\"]", n, 0);
			assert_int_equal(set(&p, keys[k], item, &err), n == 255 ? 0 : CB_E_SYNTAX);
		}
	}
	/* where nothing is looked for, they would mean nothing */
	assert_int_equal(set(&p, "workspace.protect", "[\"*.key\", \"a?/b\"]", &err), 0);
	for (size_t i = 0; i < 2; i++) {
		const char *value = i == 0 ? "[\"a\", \".config/*\"]" : "[\"a?\"]";

		assert_int_equal(set(&p, "home.expose", value, &err), CB_E_SYNTAX);
		assert_non_null(strstr(err.cure, "without `*` and `?`"));
	}
	cb_policy_release(&p);
}

static void test_lists(void **state)
{
	struct cb_policy p = { 0 };
	struct cb_err err;

	(void)state;
	assert_int_equal(set(&p, "env.pass", "[\"A\", \"LC_*\", \"*\"]", &err), 0);
	assert_int_equal(p.env_pass.count, 3);
	static const char *const bad[] = { "\"A\"", "[1]", "[\"\"]", "[\"A=B\"]", "[\"A*B\"]", "[\"1A\"]", "{}" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(set(&p, "env.pass", bad[i], &err), CB_E_SYNTAX);
	assert_int_equal(p.env_pass.count, 3);
	assert_int_equal(set(&p, "imports.allow", "[\"*\", \"numpy\", \"a.b_2\", \"a.*\"]", &err), 0);
	assert_int_equal(p.imports_allow.count, 4);
	static const char *const no_module[] = { "[\"a..b\"]", "[\"*.a\"]", "[\"a.\"]",	     "[\".a\"]",
						 "[\"a*\"]",   "[\"a b\"]", "[\"a\", \"\"]", "[\"2a\"]" };
	for (size_t i = 0; i < sizeof(no_module) / sizeof(no_module[0]); i++)
		assert_int_equal(set(&p, "imports.allow", no_module[i], &err), CB_E_SYNTAX);
	assert_non_null(strstr(err.cure, "modules' names"));
	assert_int_equal(set(&p, "home.expose", "[\".config/x\", \"a..b\"]", &err), 0);
	assert_int_equal(set(&p, "home.expose", "[\"/etc\"]", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "home.expose", "[\"a/../../b\"]", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "home.expose", "[\"..\"]", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "env.set", "{\"A\": \"b\", \"C\": \"\"}", &err), 0);
	assert_int_equal(p.env_set.count, 2);
	assert_int_equal(set(&p, "env.set", "{\"A\": 1}", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "env.set", "{\"A-B\": \"\"}", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "env.set", "[]", &err), CB_E_SYNTAX);
	assert_int_equal(cb_policy_key_set_text(&p, cb_policy_key_find("env.pass"), "A,B,C_*", "test", &err), 0);
	assert_int_equal(p.env_pass.count, 3);
	assert_int_equal(cb_policy_key_set_text(&p, cb_policy_key_find("env.pass"), "", "test", &err), 0);
	assert_int_equal(p.env_pass.count, 0);
	assert_int_equal(cb_policy_key_set_text(&p, cb_policy_key_find("env.pass"), "A,,B", "test", &err), CB_E_SYNTAX);
	cb_policy_release(&p);
}

static void test_mounts(void **state)
{
	struct cb_policy p = { 0 };
	struct cb_err err;

	(void)state;
	assert_int_equal(
		set(&p, "mounts",
		    "[{\"source\": \"/data\"}, {\"source\": \"/a/../b\", \"target\": \"/t\", \"mode\": \"rw\"}]", &err),
		0);
	assert_int_equal(p.nmounts, 2);
	assert_string_equal(p.mounts[0].target, "/data");
	assert_int_equal(p.mounts[0].mode, CB_BIND_RO);
	assert_string_equal(p.mounts[1].source, "/b");
	assert_int_equal(p.mounts[1].mode, CB_BIND_RW);
	static const char *const bad[] = { "{}",
					   "[\"/data\"]",
					   "[{}]",
					   "[{\"source\": \"data\"}]",
					   "[{\"source\": \"/d\", \"target\": \"t\"}]",
					   "[{\"source\": \"/d\", \"mode\": \"rx\"}]",
					   "[{\"source\": \"/d\", \"mod\": \"rw\"}]",
					   "[{\"source\": \"/d\", \"mode\": 1}]" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(set(&p, "mounts", bad[i], &err), CB_E_SYNTAX);
	assert_int_equal(p.nmounts, 2);
	cb_policy_release(&p);
}

static void test_files(void **state)
{
	struct cb_policy p = { 0 };
	struct cb_err err;

	(void)state;
	setenv("HOME", "/h", 1);
	assert_int_equal(set(&p, "history.file", "\"~/x.sqlite\"", &err), 0);
	assert_string_equal(p.history_file, "/h/x.sqlite");
	assert_int_equal(set(&p, "history.file", "\"x\"", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "history.file", "7", &err), CB_E_SYNTAX);
	assert_int_equal(set(&p, "history.file", "null", &err), 0);
	assert_null(p.history_file);
	assert_int_equal(set(&p, "audit.file", "null", &err), 0);
	assert_null(p.audit_file);
	assert_int_equal(set(&p, "workspace.path", "\"\"", &err), CB_E_SYNTAX);
	cb_policy_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_key),	cmocka_unit_test(test_sizes), cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_words_not_built), cmocka_unit_test(test_warm),  cmocka_unit_test(test_lists),
		cmocka_unit_test(test_relative_paths),	cmocka_unit_test(test_mounts), cmocka_unit_test(test_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
