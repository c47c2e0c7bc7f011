/* The Python that a wheel was installed for: every form that installers give the first line, environments that were
 * moved, and what is gone. */
#include "setup/interpreter_script.h"

#include "homeless.h"
#include "setup/interpreter_static.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define UP "/../../../../bin/cellblock-python"

static char *at(const char *name)
{
	static char path[4][400];
	static int next;

	next = (next + 1) % 4;
	snprintf(path[next], sizeof(path[next]), "%s/%s", folder, name);
	return path[next];
}

static void put(const char *name, const char *text, mode_t mode)
{
	char *path = at(name);
	FILE *f;

	for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		mkdir(path, 0755);
		*slash = '/';
	}
	unlink(path);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(path, mode), 0);
}

/* `%s` in `form` is the Python's path. */
static void put_script(const char *name, const char *form, const char *python)
{
	char text[2000];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(text, sizeof(text), form, python);
#pragma GCC diagnostic pop
	put(name, text, 0755);
}

static void expect(const char *script, const char *python)
{
	struct cb_err err = { 0 };
	char *found = NULL;

	if (cb_interpreter_script(at(script), &found, &err) < 0)
		fail_msg("%s: %s", err.text, err.cure);
	assert_string_equal(found, python);
	free(found);
}

static void expect_gone(const char *script, const char *named)
{
	struct cb_err err = { 0 };
	char *found = NULL;

	assert_true(cb_interpreter_script(at(script), &found, &err) < 0);
	assert_null(found);
	assert_string_equal(err.step, "interpreter");
	assert_non_null(strstr(err.text, at(script)));
	assert_non_null(strstr(err.text, named));
	assert_non_null(strstr(err.cure, "cellblock install --user --python"));
}

static void test_forms(void **state)
{
	static const char *const forms[] = {
		"#!%s\nimport sys\n",
		"#!%s\r\nimport sys\r\n",
		"#! %s\nimport sys\n",
		"#!/bin/sh\n'''exec' \"%s\" \"$0\" \"$@\"\n' '''\nimport sys\n",
		"#!/bin/sh\n'''exec' '%s' \"$0\" \"$@\"\n' '''\nimport sys\n",
		"#!/bin/sh\n'''exec' %s \"$0\" \"$@\"\n' '''\nimport sys\n",
	};

	(void)state;
	put("base/bin/python3", "ELF", 0755);
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		put_script("env/bin/cellblock-python", forms[i], at("base/bin/python3"));
		expect("env/bin/cellblock-python", at("base/bin/python3"));
	}
	put_script("env/bin/cellblock-python", "#!%s -I\n", at("base/bin/python3"));
	expect("env/bin/cellblock-python", at("base/bin/python3"));
	put_script("env/bin/cellblock-python", "#!%s", at("base/bin/python3"));
	expect("env/bin/cellblock-python", at("base/bin/python3"));
}

static void test_blanks_in_the_path(void **state)
{
	(void)state;
	put("my base/bin/python3", "ELF", 0755);
	for (int i = 0; i < 3; i++) {
		put_script("env/bin/cellblock-python",
			   i == 0   ? "#!%s\n"
			   : i == 1 ? "#!/bin/sh\n'''exec' \"%s\" \"$0\" \"$@\"\n' '''\n"
				    : "#!/bin/sh\n'''exec' '%s' \"$0\" \"$@\"\n' '''\n",
			   at("my base/bin/python3"));
		expect("env/bin/cellblock-python", at("my base/bin/python3"));
	}
	put("it's/bin/python3", "ELF", 0755);
	put_script("env/bin/cellblock-python", "#!/bin/sh\n'''exec' '%s/it'\\''s/bin/python3' \"$0\" \"$@\"\n' '''\n",
		   folder);
	expect("env/bin/cellblock-python", at("it's/bin/python3"));
}

/* The line of a moved environment names where it was; the one of a copy still leads to the first. */
static void test_moved_environments(void **state)
{
	static const char *const marks[] = { "moved/pyvenv.cfg", "moved/conda-meta/history" };
	static const char *const stale[] = {
		"#!/no/such/env/bin/python\n", "#!python\n", "#!/usr/bin/env python\n", "#!/no/such/env/bin/python", "",
		"#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' \"$0\" \"$@\"\n' '''\n",
	};

	(void)state;
	put("moved/bin/python", "ELF", 0755);
	put("base/bin/python3", "ELF", 0755);
	put("moved/bin/cellblock-python", stale[0], 0755);
	expect_gone("moved/bin/cellblock-python", "/no/such/env/bin/python"); /* no environment: /usr/local, say */
	for (size_t i = 0; i < 2; i++) {
		put(marks[i], "", 0644);
		for (size_t j = 0; j < sizeof(stale) / sizeof(stale[0]); j++) {
			put("moved/bin/cellblock-python", stale[j], 0755);
			expect("moved/bin/cellblock-python", at("moved/bin/python"));
		}
		put_script("moved/bin/cellblock-python", "#!%s\n", at("base/bin/python3"));
		expect("moved/bin/cellblock-python", at("base/bin/python3"));
		assert_int_equal(unlink(at(marks[i])), 0);
	}
}

static void test_gone(void **state)
{
	char long_path[5000] = "#!/", garbage[] = "#!/\xff\x01\x1b[31m\n";

	(void)state;
	put("venv/pyvenv.cfg", "", 0644);
	put("venv/bin/cellblock-python", "#!/no/such/python\n", 0755);
	assert_int_equal(symlink("/no/such/python3.9", at("venv/bin/python")), 0);
	expect_gone("venv/bin/cellblock-python", "/no/such/python");
	expect_gone("no-such-folder/cellblock-python", "No such file");
	put("venv/bin/cellblock-python", garbage, 0755);
	expect_gone("venv/bin/cellblock-python", "gone");
	memset(long_path + 3, 'a', sizeof(long_path) - 4);
	put("venv/bin/cellblock-python", long_path, 0755);
	expect_gone("venv/bin/cellblock-python", "aaaa");
	put("venv/bin/cellblock-python", "#!relative/python\n", 0755);
	expect_gone("venv/bin/cellblock-python", "relative/python");
	put("venv/bin/cellblock-python", "#!/tmp\n", 0755);
	expect_gone("venv/bin/cellblock-python", "/tmp");
}

/* As a wheel's kernelspec names it: by `..`, also through links. */
static void test_named_by_python(void **state)
{
	struct cb_interpreter p;
	struct cb_err err = { 0 };

	(void)state;
	put("base/bin/python3", "ELF", 0755);
	put("base/lib/python3.11/os.py", "", 0644);
	put_script("env/bin/cellblock-python", "#!%s\n", at("base/bin/python3"));
	put("env/share/jupyter/kernels/cellblock/kernel.json", "{}", 0644);
	assert_int_equal(cb_interpreter_static(at("env/share/jupyter/kernels/cellblock" UP), &p, &err), 0);
	assert_string_equal(p.executable, at("base/bin/python3"));
	cb_interpreter_release(&p);
	put("elsewhere/share/x", "", 0644);
	assert_int_equal(symlink(at("env/share/jupyter"), at("elsewhere/share/jupyter")), 0);
	assert_int_equal(cb_interpreter_static(at("elsewhere/share/jupyter/kernels/cellblock" UP), &p, &err), 0);
	assert_string_equal(p.executable, at("base/bin/python3"));
	cb_interpreter_release(&p);
	assert_true(cb_interpreter_static(at("env/bin/../lib/cellblock-python"), &p, &err) < 0);
	assert_non_null(strstr(err.text, "no such program"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_blanks_in_the_path),
		cmocka_unit_test(test_moved_environments),
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_named_by_python),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
