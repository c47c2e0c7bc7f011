/* Small files are replaced whole or not at all. */
#include "setup/files.h"

#include "policy/paths.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_replace(void **state)
{
	char folder[] = "/tmp/cb-files-XXXXXX", text[16] = "";
	struct stat st;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(folder));
	CB_AUTO_PATH deep = cb_path_format("%s/a/b", folder);
	CB_AUTO_PATH file = cb_path_format("%s/a/b/file", folder);
	CB_AUTO_PATH below = cb_path_format("%s/a/b/file/c", folder);
	CB_AUTO_PATH a = cb_path_format("%s/a", folder);

	assert_int_equal(cb_file_replace(file, "x", 1, 0644), -ENOENT);
	assert_int_equal(cb_file_make_folders(deep, 0755), 0);
	assert_int_equal(cb_file_make_folders(deep, 0755), 0);
	assert_int_equal(cb_file_replace(file, "one", 3, 0644), 0);
	assert_int_equal(cb_file_replace(file, "two", 3, 0640), 0);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	f = fopen(file, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	fclose(f);
	assert_string_equal(text, "two");
	assert_true(cb_file_make_folders(below, 0755) < 0);
	assert_true(cb_file_replace(deep, "x", 1, 0644) < 0); /* a folder; its temporary file goes away again */
	assert_int_equal(unlink(file), 0);
	assert_int_equal(rmdir(deep), 0);
	assert_int_equal(rmdir(a), 0);
	assert_int_equal(rmdir(folder), 0);
}

/* What is wrong is said, not what was seen when looking why. */
static void test_no_right_to_make_folders(void **state)
{
	char folder[] = "/tmp/cb-files-XXXXXX";
	bool root = geteuid() == 0;

	(void)state;
	assert_non_null(mkdtemp(folder));
	assert_int_equal(chmod(folder, 0555), 0);
	CB_AUTO_PATH deep = cb_path_format("%s/a/b", folder);

	if (root)
		assert_int_equal(seteuid(65534), 0);
	int r = cb_file_make_folders(deep, 0755);

	if (root)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(r, -EACCES);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_replace),
					    cmocka_unit_test(test_no_right_to_make_folders) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
