/* What is in a folder, and names for what is made for a while. */
#include <cellblock/folder.h>
#include <cellblock/unique_name.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_entries(void **state)
{
	char path[] = "/tmp/cb-folder-XXXXXX";
	const struct dirent *e;
	unsigned seen = 0;
	int at, next;

	(void)state;
	assert_non_null(mkdtemp(path));
	at = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(at, "..a", 0700) | mkdirat(at, ".b", 0700) | symlinkat("..a", at, "link"), 0);
	CB_AUTO_FOLDER all = cb_folder_open(at, ".", 0);

	while ((e = cb_folder_next(all)) != NULL)
		seen += strcmp(e->d_name, "..a") == 0 ? 1 : strcmp(e->d_name, ".b") == 0 ? 10 : 100;
	assert_int_equal(seen, 111);
	assert_int_equal(errno, 0);
	CB_AUTO_FOLDER followed = cb_folder_open(at, "link", 0);

	assert_non_null(followed);
	assert_null(cb_folder_next(followed));
	assert_true(cb_folder_open(at, "link", O_NOFOLLOW) == NULL && (errno == ENOTDIR || errno == ELOOP));
	assert_true(cb_folder_open(at, "none", 0) == NULL && errno == ENOENT);
	assert_null(cb_folder_next(NULL));
	assert_int_equal(errno, 0);
	DIR *broken = cb_folder_open(at, ".", 0);

	assert_non_null(broken);
	assert_int_equal(close(dirfd(broken)), 0);
	errno = 0;
	assert_null(cb_folder_next(broken)); /* which is not its end */
	assert_int_equal(errno, EBADF);
	cb_folder_close(&broken);
	assert_int_equal(unlinkat(at, "..a", AT_REMOVEDIR) | unlinkat(at, ".b", AT_REMOVEDIR) | unlinkat(at, "link", 0),
			 0);
	assert_int_equal(rmdir(path), 0);
	next = dup(at);
	close(next);
	assert_null(cb_folder_take(open("/dev/null", O_RDONLY | O_CLOEXEC)));
	assert_null(cb_folder_take(-1));
	assert_int_equal(dup(at), next); /* what is no folder was closed */
	close(next);
	close(at);
}

static void test_path_within(void **state)
{
	(void)state;
	assert_true(cb_path_within("/a/b", "/a"));
	assert_true(cb_path_within("/a", "/a"));
	assert_true(cb_path_within("/a/b", "/a/"));
	assert_true(cb_path_within("/a", "/"));
	assert_false(cb_path_within("/ab", "/a"));
	assert_false(cb_path_within("/", "/a"));
	assert_false(cb_path_within("/a", "/a/b"));
	assert_false(cb_path_within("a/b", "a/b/c"));
}

static void test_names(void **state)
{
	char a[64], b[64], cut[8];

	(void)state;
	cb_unique_name("cellblock-", a, sizeof(a));
	cb_unique_name("cellblock-", b, sizeof(b));
	assert_memory_equal(a, "cellblock-", 10);
	assert_string_not_equal(a, b);
	cb_unique_name("cellblock-", cut, sizeof(cut));
	assert_string_equal(cut, "cellblo");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_entries),
		cmocka_unit_test(test_path_within),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
