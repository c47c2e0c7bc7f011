/* What is remembered of files with several names: found by number, bounded, linked from where it was written. */
#include "../../../../sandbox/changes/links.h"
#include "../../../../sandbox/shared/walk_path.h"
#include "../../folder.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char root[64] = "/tmp/cb-links-XXXXXX";

static int setup(void **state)
{
	(void)state;
	return mkdtemp(root) == NULL || chdir(root) < 0 || mkdir("d", 0755) < 0 || symlink("d", "link") < 0 ||
			       mknod("d/f", S_IFREG | 0644, 0) < 0
		       ? -1
		       : 0;
}

static int teardown(void **state)
{
	(void)state;
	return chdir("/") < 0 ? -1 : folder_remove(root);
}

static void test_names(void **state)
{
	const struct stat one = { .st_dev = 1, .st_ino = 5 }, other = { .st_dev = 2, .st_ino = 5 };
	struct cb_links links = { 0 };
	struct stat to, st;

	(void)state;
	assert_int_equal(lstat("d/f", &to), 0);
	assert_null(cb_links_find(&links, &one));
	cb_links_add(&links, &one, "d/f", &to);
	assert_true(cb_links_add(&links, &one, "d/never", &one)); /* the first name stays */
	assert_null(cb_links_find(&links, &other));
	const struct cb_link *link = cb_links_find(&links, &one);

	assert_non_null(link);
	assert_int_equal(links.count, 1);
	assert_int_equal(cb_links_make(link, AT_FDCWD, AT_FDCWD, "g"), 0);
	assert_int_equal(lstat("g", &st), 0);
	assert_true(cb_links_is(link, &st));
	assert_int_equal(cb_links_make(link, AT_FDCWD, AT_FDCWD, "g"), -EEXIST);
	cb_links_add(&links, &other, "link/f", &to);
	assert_int_equal(cb_links_make(cb_links_find(&links, &other), AT_FDCWD, AT_FDCWD, "h"), -ELOOP);
	cb_links_release(&links);
	assert_null(cb_links_find(&links, &one));
}

static void test_bounds(void **state)
{
	struct cb_links links = { 0 };
	struct stat st = { .st_dev = 1 };

	(void)state;
	for (unsigned i = 0; i < CB_LINKS_MAX + 10; i++) {
		st.st_ino = i;
		assert_int_equal(cb_links_add(&links, &st, "name", &st), i < CB_LINKS_MAX);
	}
	assert_int_equal(links.count, CB_LINKS_MAX);
	assert_null(cb_links_find(&links, &st));
	cb_links_release(&links);
}

static void test_paths(void **state)
{
	static struct cb_walk_path p;
	char name[NAME_MAX + 1];
	size_t before[100];

	(void)state;
	memset(name, 'x', NAME_MAX);
	name[NAME_MAX] = '\0';
	before[0] = cb_walk_down(&p, "a");
	before[1] = cb_walk_down(&p, "b");
	assert_string_equal(p.text, "a/b");
	for (int i = 2; i < 100; i++)
		before[i] = cb_walk_down(&p, name);
	assert_true(p.lost > 0);
	for (int i = 99; i >= 2; i--)
		cb_walk_up(&p, before[i]);
	assert_int_equal(p.lost, 0);
	assert_string_equal(p.text, "a/b");
	cb_walk_up(&p, before[1]);
	assert_string_equal(p.text, "a");
	cb_walk_up(&p, before[0]);
	assert_string_equal(p.text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_paths),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
