/* The command line: what each command takes, what is forgiven, what is refused with which hint. */
#include "commands/options.h"
#include "policy/paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define MAX_ARGS 24

/* Parses the words given, up to NULL. argv stays alive for the options that borrow from it. */
static int parse(struct cb_options *o, struct cb_err *err, ...)
{
	static char words[MAX_ARGS][200];
	static char *argv[MAX_ARGS + 1];
	const char *word;
	bool done = false;
	int argc = 1;
	va_list args;

	snprintf(words[0], sizeof(words[0]), "cellblock");
	argv[0] = words[0];
	va_start(args, err);
	while ((word = va_arg(args, const char *)) != NULL) {
		snprintf(words[argc], sizeof(words[0]), "%s", word);
		argv[argc] = words[argc];
		argc++;
	}
	va_end(args);
	argv[argc] = NULL;
	*err = (struct cb_err){ 0 };
	return cb_options_parse(argc, argv, o, &done, err);
}

static void test_kernel(void **state)
{
	struct cb_options o;
	struct cb_err err;

	(void)state;
	assert_int_equal(parse(&o, &err, "kernel", "--python", "/p", "--facts=/x.json", "-f", "/c.json", NULL), 0);
	assert_string_equal(o.command, "kernel");
	assert_string_equal(o.connection_file, "/c.json");
	assert_string_equal(o.python, "/p");
	assert_string_equal(o.facts, "/x.json");
	assert_true(o.stop_on_error_timeout < 0);
	assert_null(o.history_file);
	cb_options_release(&o);
	assert_int_equal(parse(&o, &err, "kernel", "--f=/d.json", NULL), 0);
	assert_string_equal(o.connection_file, "/d.json");
	cb_options_release(&o);
	assert_int_equal(parse(&o, &err, "kernel", NULL), CB_E_USAGE);
}

static void test_kernel_foreign_arguments(void **state)
{
	struct cb_options o;
	struct cb_err err;

	(void)state;
	assert_int_equal(parse(&o, &err, "kernel",
			       "--HistoryManager.hist_file=:memory:", "--IPKernelApp.matplotlib=inline", "-f", "/c",
			       "--Kernel.stop_on_error_timeout=0.5", "--debug", "--pylab=inline", NULL),
			 0);
	assert_string_equal(o.history_file, ":memory:");
	assert_string_equal(o.sets.items[0], "history.file=:memory:");
	assert_true(o.stop_on_error_timeout > 0.49 && o.stop_on_error_timeout < 0.51);
	cb_options_release(&o);
	CB_AUTO_PATH relative = cb_path_absolute("h.sqlite", NULL);
	CB_AUTO_PATH home = cb_path_expand("~/h.sqlite");

	assert_int_equal(parse(&o, &err, "kernel", "--HistoryManager.hist_file=x/../h.sqlite", "-f", "/c", NULL), 0);
	assert_int_equal(o.sets.count, 1);
	assert_string_equal(o.sets.items[0] + strlen("history.file="), relative);
	cb_options_release(&o);
	assert_int_equal(parse(&o, &err, "kernel", "--HistoryManager.hist_file=~/h.sqlite", "-f", "/c", NULL), 0);
	assert_int_equal(o.sets.count, 1);
	assert_string_equal(o.sets.items[0] + strlen("history.file="), home);
	cb_options_release(&o);
	assert_int_equal(parse(&o, &err, "kernel", "--HistoryManager.hist_file=", "-f", "/c", NULL), 0);
	assert_int_equal(o.sets.count, 0); /* the policy's */
	cb_options_release(&o);
	/* A slip in one of our own is never taken for one of theirs. */
	assert_int_equal(parse(&o, &err, "kernel", "-f", "/c", "--polcy", "agent", NULL), CB_E_USAGE);
	assert_non_null(strstr(err.cure, "--policy"));
	/* Nor are theirs forgiven elsewhere. */
	assert_int_equal(parse(&o, &err, "doctor", "--IPKernelApp.x=1", NULL), CB_E_USAGE);
}

static void test_sets_and_workspace(void **state)
{
	struct cb_options o;
	struct cb_err err;

	(void)state;
	assert_int_equal(
		parse(&o, &err, "explain", "--set", "a.b=c", "--workspace", "/w", "--set=d=e=f", "--json", NULL), 0);
	assert_int_equal(o.sets.count, 3);
	assert_string_equal(o.sets.items[0], "a.b=c");
	assert_string_equal(o.sets.items[1], "d=e=f");
	assert_string_equal(o.sets.items[2], "workspace.path=/w");
	assert_true(o.json);
	cb_options_release(&o);
	assert_int_equal(parse(&o, &err, "explain", "--set", "nonsense", NULL), CB_E_USAGE);
	assert_int_equal(parse(&o, &err, "explain", "--set", NULL), CB_E_USAGE);
}

static void test_install(void **state)
{
	struct cb_options o;
	struct cb_err err;

	(void)state;
	assert_int_equal(
		parse(&o, &err, "install", "--env", "A", "--b", "--env", "C=d", "--sys-prefix", "--name", "x", NULL),
		0);
	assert_int_equal(o.env.count, 2);
	assert_string_equal(o.env.items[0], "A=--b");
	assert_string_equal(o.env.items[1], "C=d");
	assert_true(o.sys_prefix);
	assert_string_equal(o.name, "x");
	cb_options_release(&o);
	assert_int_equal(parse(&o, &err, "install", "--env=A=b", "--user", "--env=C", "d", NULL), 0);
	assert_string_equal(o.env.items[0], "A=b");
	assert_string_equal(o.env.items[1], "C=d");
	assert_true(o.user);
	cb_options_release(&o);
	assert_int_equal(parse(&o, &err, "install", "--user", "--prefix", "/x", NULL), CB_E_USAGE);
	assert_int_equal(parse(&o, &err, "install", "--env", "A", NULL), CB_E_USAGE);
	assert_int_equal(parse(&o, &err, "install", "somewhere", NULL), CB_E_USAGE);
	assert_int_equal(parse(&o, &err, "install", "--name=", NULL), CB_E_USAGE);
}

static void test_run(void **state)
{
	struct cb_options o;
	struct cb_err err;

	(void)state;
	assert_int_equal(parse(&o, &err, "run", "--timeout", "1.5", "ls", "--json", "--polcy", NULL), 0);
	assert_true(o.timeout > 1.4 && o.timeout < 1.6);
	assert_string_equal(o.sets.items[o.sets.count - 1], "timeout.cell=1.5"); /* a ceiling bounds it, too */
	assert_string_equal(o.rest[0], "ls");
	assert_string_equal(o.rest[1], "--json");
	assert_string_equal(o.rest[2], "--polcy");
	assert_null(o.rest[3]);
	cb_options_release(&o);
	assert_int_equal(parse(&o, &err, "run", "--", "-x", NULL), 0);
	assert_string_equal(o.rest[0], "-x");
	cb_options_release(&o);
	assert_int_equal(parse(&o, &err, "run", NULL), CB_E_USAGE);
	assert_int_equal(parse(&o, &err, "run", "--timeout", "soon", "ls", NULL), CB_E_USAGE);
	assert_int_equal(parse(&o, &err, "run", "--timeout", "nan", "ls", NULL), CB_E_USAGE);
}

static void test_mistakes(void **state)
{
	struct cb_options o;
	struct cb_err err;

	(void)state;
	assert_int_equal(parse(&o, &err, NULL), CB_E_USAGE);
	assert_int_equal(parse(&o, &err, "instal", NULL), CB_E_USAGE);
	assert_non_null(strstr(err.cure, "'install'"));
	assert_int_equal(parse(&o, &err, "warm", "--list", "--stop", NULL), CB_E_USAGE);
	assert_non_null(strstr(err.text, "exclude each other"));
	assert_int_equal(parse(&o, &err, "warm", "all", NULL), CB_E_USAGE);
	assert_int_equal(parse(&o, &err, "list", "--stop", NULL), CB_E_USAGE);
	assert_int_equal(parse(&o, &err, "doctor", "--js", NULL), CB_E_USAGE); /* no abbreviations */
	assert_int_equal(parse(&o, &err, "doctor", "--json=1", NULL), CB_E_USAGE);
	assert_int_equal(parse(&o, &err, "doctor", "--log-level", "inof", NULL), CB_E_USAGE);
	assert_non_null(strstr(err.cure, "'info'"));
	assert_int_equal(parse(&o, &err, "doctor", "-x", NULL), CB_E_USAGE);
}

static void test_log_level(void **state)
{
	struct cb_options o;
	struct cb_err err;

	(void)state;
	setenv("CELLBLOCK_LOG", "debug", 1);
	assert_int_equal(parse(&o, &err, "doctor", NULL), 0);
	assert_int_equal(o.log_level, CB_LOG_DEBUG);
	assert_int_equal(parse(&o, &err, "doctor", "--log-level", "error", NULL), 0);
	assert_int_equal(o.log_level, CB_LOG_ERROR);
	setenv("CELLBLOCK_LOG", "loud", 1);
	assert_int_equal(parse(&o, &err, "doctor", NULL), CB_E_USAGE);
	unsetenv("CELLBLOCK_LOG");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernel),
		cmocka_unit_test(test_kernel_foreign_arguments),
		cmocka_unit_test(test_sets_and_workspace),
		cmocka_unit_test(test_install),
		cmocka_unit_test(test_run),
		cmocka_unit_test(test_mistakes),
		cmocka_unit_test(test_log_level),
	};

	unsetenv("CELLBLOCK_LOG");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
