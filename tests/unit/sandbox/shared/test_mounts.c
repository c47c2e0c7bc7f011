/* Helpers for places in the new root: only on file systems of ours is anything made, and no link is followed. Runs in a
 * folder that plays the new root; no mounts, no rights needed.
 */
#include "../../../../sandbox/shared/mounts.h"
#include "../../folder.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static char root[64] = "/tmp/cb-mounts-XXXXXX";

static int setup(void **state)
{
	(void)state;
	return mkdtemp(root) == NULL || chdir(root) < 0 || mkdir("made", 0755) < 0 || symlink("made", "link") < 0 ||
			       symlink("/etc", "out") < 0
		       ? -1
		       : 0;
}

static int teardown(void **state)
{
	(void)state;
	return chdir("/") < 0 ? -1 : folder_remove(root);
}

static int place(const char *path, bool folder)
{
	CB_AUTO_FD fd = -1;

	return cb_place_open(path, folder, &fd);
}

/* First, while no file system counts as ours. */
static void test_nothing_is_made_on_foreign_file_systems(void **state)
{
	(void)state;
	assert_int_equal(place("made", true), 0);
	assert_int_equal(place("made/new", true), -EROFS);
	assert_int_equal(place("/made/new/deep", false), -EROFS);
	assert_int_equal(access("made/new", F_OK), -1);
}

static void test_places_are_made_on_ours(void **state)
{
	CB_AUTO_FD fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	(void)state;
	assert_false(cb_own_has(fd));
	assert_int_equal(cb_own_add(fd), 0);
	assert_true(cb_own_has(fd));
	assert_int_equal(place("/a//b/c/", true), 0);
	assert_int_equal(place("a/b/file", false), 0);
	assert_int_equal(place("a/b/file", false), 0);
	assert_int_equal(stat("a/b/c", &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(stat("a/b/file", &st), 0);
	assert_true(S_ISREG(st.st_mode) && st.st_size == 0);
	assert_int_equal(place("a/b/file", true), -ENOTDIR);
	assert_int_equal(place("a/b/file/x", false), -ENOTDIR);
	assert_int_equal(place("", true), 0);
}

static void test_links_and_parents_are_refused(void **state)
{
	char name[300];

	(void)state;
	assert_int_equal(place("link/x", true), -ELOOP);
	assert_int_equal(place("out/cellblock-test", true), -ELOOP);
	assert_int_equal(place("link", true), -ELOOP);
	assert_int_equal(place("made/../../x", true), -EXDEV);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(place(name, true), -ENAMETOOLONG);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 0777;
}

static void test_only_what_it_is_to_be_is_unlocked(void **state)
{
	(void)state;
	assert_int_equal(mkdir("closed", 0), 0);
	assert_int_equal(mknod("file", S_IFREG | 0400, 0), 0);
	assert_int_equal(symlink("file", "to-file"), 0);
	assert_int_equal(symlink("closed", "to-closed"), 0);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "to-file", S_IFREG, 0600), -ESTALE);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "to-closed", S_IFDIR, 0700), -ESTALE);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "file", S_IFDIR, 0700), -ESTALE);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "closed", S_IFREG, 0600), -ESTALE);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "none", S_IFREG, 0600), -ENOENT);
	assert_int_equal(mode_of("file"), 0400);
	assert_int_equal(mode_of("closed"), 0);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "file", S_IFREG, 0600), 0);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "closed", S_IFDIR, 0700), 0);
	assert_int_equal(mode_of("file"), 0600);
	assert_int_equal(mode_of("closed"), 0700);
}

static void test_writing(void **state)
{
	(void)state;
	assert_int_equal(cb_place_write("/made/file", "text", 4), 0);
	assert_int_equal(cb_place_write("/made/file", "text", 4), -EEXIST);
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
	assert_false(cb_path_within("a/b", "a/b/c"));
}

static void test_errors_name_their_cause(void **state)
{
	struct cb_err err = { 0 };

	(void)state;
	assert_int_equal(cb_mnt_fail(&err, -EPERM, "new root", "etc/fonts"), -EPERM);
	assert_string_equal(err.text, "etc/fonts: Operation not permitted");
	assert_int_equal(cb_mnt_fail(&err, CB_E_DENIED, "dev", "null"), CB_E_DENIED);
	assert_string_equal(err.text, "null: CB_E_DENIED");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_made_on_foreign_file_systems),
		cmocka_unit_test(test_places_are_made_on_ours),
		cmocka_unit_test(test_links_and_parents_are_refused),
		cmocka_unit_test(test_only_what_it_is_to_be_is_unlocked),
		cmocka_unit_test(test_writing),
		cmocka_unit_test(test_path_within),
		cmocka_unit_test(test_errors_name_their_cause),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
