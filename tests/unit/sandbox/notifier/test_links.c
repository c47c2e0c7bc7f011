/* Which sockets are this jail's, while inodes' numbers come again. When an inode was made is the test's to say. */
#include "../../../../sandbox/notifier/calls.h"
#include "../../folder.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cmocka.h>

#define HELD_MAX 1024 /* as in links.c */

static char folder[] = "/tmp/cb-links-XXXXXX";
static int64_t made_at; /* 0 = the file system does not know */

/* In place of made.c. */

int64_t cb_made_at(int at, const char *name)
{
	(void)at;
	(void)name;
	return made_at;
}

void cb_made_note(int at, const char *name)
{
	(void)at;
	(void)name;
}

bool cb_made_copied(int fd, const struct stat *before)
{
	(void)fd;
	(void)before;
	return false;
}

void cb_made_removed(const struct stat *st)
{
	(void)st;
}

int cb_made_look(int at, const char *name, const struct stat *st)
{
	(void)at;
	(void)name;
	(void)st;
	return 0;
}

int cb_made_look_below(int at)
{
	(void)at;
	return 0;
}

/* ---- */

static void make_socket(const char *name)
{
	assert_int_equal(mknod(name, S_IFSOCK | 0600, 0), 0);
}

static bool known(const char *name)
{
	CB_AUTO_FD fd = open(name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return cb_sockets_known(fd, &st);
}

static void remove_as_cell(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(name, &st), 0);
	assert_int_equal(unlink(name), 0);
	cb_links_removed(&st);
}

static void test_one_made_at_another_time_is_another(void **state)
{
	(void)state;
	make_socket("s");
	made_at = 5;
	assert_false(known("s"));
	assert_int_equal(cb_sockets_bound(AT_FDCWD, "s", 0), 0);
	assert_true(known("s"));
	made_at = 6; /* the same number, for somebody else's */
	assert_false(known("s"));
	assert_int_equal(cb_sockets_bound(AT_FDCWD, "s", 0), 0);
	assert_true(known("s"));
	remove_as_cell("s");
	assert_int_equal(cb_sockets_bound(AT_FDCWD, "s", 0), -ENOENT);
}

static void test_what_was_there_before_was_not_just_bound(void **state)
{
	(void)state;
	make_socket("s");
	made_at = 5;
	assert_int_equal(cb_sockets_bound(AT_FDCWD, "s", 6), -EBUSY);
	assert_false(known("s"));
	assert_int_equal(cb_sockets_bound(AT_FDCWD, "s", 5), 0);
	assert_true(known("s"));
	remove_as_cell("s");
	assert_int_equal(mkdir("s", 0700), 0);
	assert_int_equal(cb_sockets_bound(AT_FDCWD, "s", 0), -EBUSY); /* nor is that a socket */
	assert_int_equal(rmdir("s"), 0);
}

static void test_where_no_time_is_known_the_number_does_not_come_again(void **state)
{
	struct stat st, other;

	(void)state;
	made_at = 0;
	make_socket("s");
	assert_int_equal(lstat("s", &st), 0);
	assert_int_equal(cb_sockets_bound(AT_FDCWD, "s", 0), 0);
	assert_true(known("s"));
	assert_int_equal(unlink("s"), 0); /* outside */
	for (int i = 0; i < 20; i++) {
		make_socket("s");
		assert_int_equal(lstat("s", &other), 0);
		assert_int_not_equal(other.st_ino, st.st_ino);
		assert_false(known("s"));
		assert_int_equal(unlink("s"), 0);
	}
	cb_links_removed(&st);
}

static void test_no_more_are_held_than_there_is_room_for(void **state)
{
	char name[16];

	(void)state;
	made_at = 0;
	for (int i = 0; i <= HELD_MAX; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		make_socket(name);
		assert_int_equal(cb_sockets_bound(AT_FDCWD, name, 0), 0);
		assert_true(known(name));
	}
	assert_false(known("s0"));
	assert_true(known(name));
	remove_as_cell(name);
	make_socket(name);
	assert_false(known(name));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_made_at_another_time_is_another),
		cmocka_unit_test(test_what_was_there_before_was_not_just_bound),
		cmocka_unit_test(test_where_no_time_is_known_the_number_does_not_come_again),
		cmocka_unit_test(test_no_more_are_held_than_there_is_room_for),
	};
	struct rlimit files;
	int r;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return 1;
	files.rlim_cur = files.rlim_max; /* as the notifier does */
	if (setrlimit(RLIMIT_NOFILE, &files) < 0 || mkdtemp(folder) == NULL || chdir(folder) < 0)
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	return chdir("/") < 0 || folder_remove(folder) < 0 ? 1 : r;
}
