/* What is said of an interpreter that could not be asked: the launcher's cause where there is one, and not its note on
 * the jail. The launcher is a script. */
#include "setup/interpreter_jail.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "homeless.h"

#define SAYS "cellblock run: "
#define NOTE SAYS "/proc: without processes\n"

static void expect(const char *errors, int status, int code, const char *text, const char *cure)
{
	struct cb_interpreter p = { .executable = (char[]){ "/p/bin/python" } };
	CB_AUTO_BUF out = CB_BUF_INIT(1000);
	struct cb_err err = { 0 };
	char path[100], said[500];
	FILE *f;

	snprintf(path, sizeof(path), "%s/jail", folder);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "#!/bin/sh\ncat >&2 <<'END'\n%sEND\nexit %d\n", errors, status);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(path, 0755), 0);
	assert_int_equal(cb_interpreter_run(&p, path, "1", NULL, 60, &out, &err), code);
	snprintf(said, sizeof(said), "/p/bin/python could not be asked in a jail%s", text);
	assert_string_equal(err.text, said);
	assert_string_equal(err.cure, cure);
}

static void test_no_jail(void **state)
{
	(void)state;
	expect(SAYS "cgroup: no\n" SAYS "Do it.\n", 125, CB_E_DENIED, ": cgroup: no", "Do it.");
	expect(SAYS "exec: /p can't be started: gone\n" SAYS "Name one.\n", 127, -EIO,
	       ": exec: /p can't be started: gone", "Name one.");
	expect(SAYS "/l/cellblock-jail can't be started: gone\n", 127, -EIO,
	       ": /l/cellblock-jail can't be started: gone", "See what `cellblock doctor` says.");
}

static void test_of_the_interpreter(void **state)
{
	static const char by_hand[] = "Run `cellblock doctor`, and the interpreter by hand.";

	(void)state;
	expect("ImportError: x\n", 1, -EIO, " (status 1): ImportError: x", by_hand);
	expect(NOTE "ImportError: x\n", 1, -EIO, " (status 1): ImportError: x", by_hand);
	expect(NOTE "loading libx.so: no such file\n", 127, -EIO, " (status 127): loading libx.so: no such file",
	       by_hand);
}

static void test_killed(void **state)
{
	(void)state;
	expect(NOTE SAYS "killed: too much\n", 137, -EIO, ": killed: too much",
	       "See what `cellblock doctor` says.");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_jail), cmocka_unit_test(test_of_the_interpreter),
					    cmocka_unit_test(test_killed) };

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
