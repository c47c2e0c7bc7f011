/* Path names: cleaning, containment, the home. */
#include "policy/paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

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

static void test_below(void **state)
{
	(void)state;
	assert_true(cb_path_below("/a/b", "/a"));
	assert_true(cb_path_below("/a", "/a"));
	assert_true(cb_path_below("/a", "/"));
	assert_false(cb_path_below("/ab", "/a"));
	assert_false(cb_path_below("/a", "/a/b"));
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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_absolute), cmocka_unit_test(test_below),
					    cmocka_unit_test(test_parts), cmocka_unit_test(test_home) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
