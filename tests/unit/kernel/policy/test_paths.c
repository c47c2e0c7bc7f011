/* Path names: cleaning, containment, the home, links followed. */
#include "../../folder.h"
#include "policy/paths.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void check_absolute(const char *path, const char *base, const char *expected)
{
	CB_AUTO_PATH result = cb_path_absolute(path, base);

	assert_string_equal(result, expected);
}

static void test_absolute(void **state)
{
	(void)state;
	check_absolute("/", NULL, "/");
	check_absolute("//a///b/", NULL, "/a/b");
	check_absolute("/a/./b/../c", NULL, "/a/c");
	check_absolute("/../../x", NULL, "/x");
	check_absolute("/a/..", NULL, "/");
	check_absolute("b", "/a", "/a/b");
	check_absolute("../b", "/a", "/b");
	check_absolute(".", "/a/b", "/a/b");
	check_absolute("/a/...", NULL, "/a/...");
	check_absolute("/a/.hidden", NULL, "/a/.hidden");
}

static void test_parts(void **state)
{
	CB_AUTO_PATH parent = cb_path_parent("/a/b");
	CB_AUTO_PATH root = cb_path_parent("/a");

	(void)state;
	assert_string_equal(parent, "/a");
	assert_string_equal(root, "/");
	assert_string_equal(cb_path_name("/a/b"), "b");
	assert_string_equal(cb_path_name("b"), "b");
}

static void test_home(void **state)
{
	CB_AUTO_PATH home = NULL;
	CB_AUTO_PATH file = NULL;
	CB_AUTO_PATH plain = NULL;
	CB_AUTO_PATH account = NULL;

	(void)state;
	setenv("HOME", "/some/where/", 1);
	home = cb_path_home();
	assert_string_equal(home, "/some/where");
	file = cb_path_expand("~/x");
	assert_string_equal(file, "/some/where/x");
	plain = cb_path_expand("~x/y");
	assert_string_equal(plain, "~x/y");
	setenv("HOME", "not absolute", 1);
	account = cb_path_home();
	assert_true(account == NULL || account[0] == '/');
}

static bool is(const char *done, const void *context)
{
	return strcmp(done, context) == 0;
}

static void check_follow(const char *path, const char *look, int code, const char *expected)
{
	CB_AUTO_PATH real = NULL;

	assert_int_equal(cb_path_follow(path, look != NULL ? is : NULL, look, &real), code);
	assert_string_equal(real, expected);
}

static void test_follow(void **state)
{
	char folder[] = "/tmp/cb-follow-XXXXXX", cwd[PATH_MAX], long_name[PATH_MAX + 16];

	(void)state;
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	assert_non_null(mkdtemp(folder));
	assert_int_equal(chdir(folder), 0);
	assert_int_equal(mkdir("a", 0700), 0);
	assert_int_equal(mkdir("a/b", 0700), 0);
	assert_int_equal(symlink("a/b", "l"), 0);
	assert_int_equal(symlink("l/../later", "up"), 0);
	assert_int_equal(symlink("/nowhere/x", "off"), 0);
	assert_int_equal(symlink("loop", "loop"), 0);
	CB_AUTO_PATH plain = cb_path_format("%s//a/./b/", folder);
	CB_AUTO_PATH b = cb_path_format("%s/a/b", folder);
	CB_AUTO_PATH link = cb_path_format("%s/l/new/x", folder);
	CB_AUTO_PATH new = cb_path_format("%s/a/b/new/x", folder);
	CB_AUTO_PATH up = cb_path_format("%s/up/y", folder);
	CB_AUTO_PATH later = cb_path_format("%s/a/later/y", folder);
	CB_AUTO_PATH off = cb_path_format("%s/off/z", folder);
	CB_AUTO_PATH loop = cb_path_format("%s/loop/z", folder);

	check_follow("/", NULL, 0, "/");
	check_follow("/../..", NULL, 0, "/");
	check_follow(plain, NULL, 0, b);
	check_follow(link, NULL, 0, new);
	check_follow(link, b, 1, new); /* what was left of the way comes behind */
	check_follow(up, NULL, 0, later); /* the link's target is followed before its ".." */
	check_follow(off, NULL, 0, "/nowhere/x/z");
	check_follow(off, "/nowhere", 1, "/nowhere/x/z");
	check_follow(loop, NULL, -ELOOP, loop);
	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[0] = '/';
	long_name[sizeof(long_name) - 1] = '\0';
	check_follow(long_name, NULL, -ENAMETOOLONG, long_name);
	assert_int_equal(chdir(cwd), 0);
	assert_int_equal(folder_remove(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_absolute), cmocka_unit_test(test_parts),
					    cmocka_unit_test(test_home), cmocka_unit_test(test_follow) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
