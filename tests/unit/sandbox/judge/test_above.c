/* What the path of a workspace says: whether it may be written at all, and which patterns begin above it. */
#include "../../../../sandbox/judge/judge.h"
#include "../../folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char *pattern_items[] = { ".git",	".vscode",    "bin/activate", "bin/python3*", ".svn/hooks",
				 "pyvenv.cfg", "a/b/c.conf", "conda-meta",   NULL };
static char top[64];

static int setup(void **state)
{
	(void)state;
	snprintf(top, sizeof(top), "/tmp/cb-judge-above-XXXXXX");
	return mkdtemp(top) == NULL ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	return folder_remove(top);
}

/* "a/b/" is a folder, "a/b" a file; parents are made. */
static void make(const char *what)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", top, what);
	for (char *slash = path + strlen(top) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		(void)mkdir(path, 0755);
		*slash = '/';
	}
	if (path[strlen(path) - 1] != '/') {
		int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

		assert_true(fd >= 0);
		close(fd);
	}
}

static struct cb_jail_spec spec_of(const char *place, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s%s%s", top, *place != '\0' ? "/" : "", place);
	return (struct cb_jail_spec){ .workspace_source = path,
				      .workspace_mode = CB_WORKSPACE_RW,
				      .protect = { pattern_items, 8 } };
}

/* `by`: the pattern that refuses, NULL = none does. */
static void place(const char *where, const char *by)
{
	char path[PATH_MAX], quoted[64];
	struct cb_jail_spec spec = spec_of(where, path);
	struct cb_err err = { 0 };
	int r = cb_judge_place(&spec, &err);

	snprintf(quoted, sizeof(quoted), "\"%s\"", by != NULL ? by : "");
	if ((r < 0) != (by != NULL) || (by != NULL && (strstr(err.text, quoted) == NULL || err.cure[0] == '\0')))
		fail_msg("%s: %d %s", where, r, err.text);
	spec.workspace_mode = CB_WORKSPACE_RO;
	assert_int_equal(cb_judge_place(&spec, NULL), 0);
}

static void test_places(void **state)
{
	(void)state;
	place("proj", NULL);
	place("proj/.vscode", ".vscode");
	place("proj/.VSCode/deep", ".vscode");
	place("proj/.git", ".git");
	place("proj/.GIT./hooks", ".git");
	place("proj/.svn", NULL);
	place("proj/.svn/hooks/x", ".svn/hooks");
	place("v/bin/activate", "bin/activate");
	place("v/bin", NULL);
}

static void test_places_by_what_is_there(void **state)
{
	(void)state;
	make("v/pyvenv.cfg");
	make("bare/HEAD");
	make("bare/objects/");
	make("bare/refs/");
	place("v", NULL); /* its parts are closed one by one */
	place("v/bin", "pyvenv.cfg");
	place("v/lib/python3", "pyvenv.cfg");
	place("v/src/mine", NULL);
	place("bare", NULL);
	place("bare/hooks", ".git");
	place("bare/a/b", ".git");
}

static void test_the_nearest_checkout_counts(void **state)
{
	(void)state;
	place(".vscode/w/sub", ".vscode");
	make(".vscode/w/.git/");
	place(".vscode/w/sub", ".vscode"); /* no repository, and cells can make as much */
	make(".vscode/w/.git/HEAD");
	make(".vscode/w/.git/objects/");
	make(".vscode/w/.git/refs/");
	place(".vscode/w/sub", NULL);
	place(".vscode/w", NULL);
	place(".vscode/w/.vscode", ".vscode");
	make("bin/activate.d/.git");
	place("bin/activate.d", NULL);
}

static void above(const char *where, const char *want)
{
	char path[PATH_MAX];
	struct cb_jail_spec spec = spec_of(where, path);
	const char *got = cb_judge_above(&spec);

	assert_string_equal(got, want); /* as many names as the longest pattern has before its last: two */
}

struct rests {
	char text[256];
};

static void add_rest(void *arg, const char *rest)
{
	struct rests *r = arg;
	size_t n = strlen(r->text);

	snprintf(r->text + n, sizeof(r->text) - n, "%s ", rest);
}

static void begun(const char *where, const char *want)
{
	char path[PATH_MAX];
	struct cb_jail_spec spec = spec_of(where, path);
	struct rests r = { "" };

	cb_judge_begun(&spec, add_rest, &r);
	assert_string_equal(r.text, want);
}

static void test_what_begins_above(void **state)
{
	(void)state;
	above("x/y/z", "y/z");
	above("x/bin", "x/bin");
	begun("x/y", "");
	begun("v/bin", "activate python3* ");
	begun("v/BIN", "activate python3* ");
	begun("v/bin/sub", "");
	begun("x/.svn", "hooks ");
	begun("x/a", "b/c.conf ");
	begun("x/a/b", "c.conf ");
	begun("a/x/b", "");
	make("a/b/.git"); /* a checkout's own name is the first that counts */
	begun("a/b", "");
	make("p/a/.git");
	begun("p/a", "b/c.conf ");
	begun("p/a/b", "c.conf ");
}

static void test_no_workspace_of_the_hosts(void **state)
{
	struct cb_jail_spec none = { .protect = { pattern_items, 8 } };
	struct rests r = { "" };

	(void)state;
	assert_int_equal(cb_judge_place(&none, NULL), 0);
	assert_string_equal(cb_judge_above(&none), "");
	cb_judge_begun(&none, add_rest, &r);
	assert_string_equal(r.text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_places, setup, teardown),
		cmocka_unit_test_setup_teardown(test_places_by_what_is_there, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_nearest_checkout_counts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_begins_above, setup, teardown),
		cmocka_unit_test(test_no_workspace_of_the_hosts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
