/* The folder of zygotes: made for us alone, and refused where it is not. */
#include <cellblock/fd.h>
#include <cellblock/sandbox.h>
#include <cellblock/warm.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "../../folder.h"

struct fixture {
	char folder[64], above[96], path[128];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	snprintf(f->folder, sizeof(f->folder), "/tmp/cb-warm-XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->above, sizeof(f->above), "%s/cellblock", f->folder);
	snprintf(f->path, sizeof(f->path), "%s/cellblock/warm", f->folder);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	(void)folder_remove(f->folder);
	free(f);
	return 0;
}

static void expect_refused(const struct fixture *f, const char *path, const char *why)
{
	for (int make = 0; make < 2; make++) {
		struct cb_err err = { 0 };
		int fd = -1;

		assert_int_equal(cb_warm_folder_open(f->path, make, &fd, &err), -EPERM);
		assert_int_equal(fd, -1);
		assert_non_null(strstr(err.text, path));
		assert_non_null(strstr(err.text, why));
		assert_true(err.cure[0] != '\0');
	}
}

static void test_made_for_us_alone(void **state)
{
	struct fixture *f = *state;
	struct cb_err err = { 0 };
	struct stat st, again;
	mode_t before = umask(0);
	int fd = -1;

	assert_int_equal(cb_warm_folder_open(f->path, false, &fd, &err), -ENOENT);
	assert_int_equal(access(f->above, F_OK), -1);
	assert_int_equal(cb_warm_folder_open(f->path, true, &fd, &err), 0);
	umask(before);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0700);
	assert_int_equal(stat(f->above, &again), 0);
	assert_int_equal(again.st_mode, S_IFDIR | 0700);
	close(fd);
	for (int make = 0; make < 2; make++) {
		assert_int_equal(cb_warm_folder_open(f->path, make, &fd, &err), 0);
		assert_int_equal(fstat(fd, &again), 0);
		assert_int_equal(again.st_ino, st.st_ino);
		close(fd);
	}
	/* what lies above it holds other things, too, and may be read */
	assert_int_equal(chmod(f->above, 0755), 0);
	assert_int_equal(cb_warm_folder_open(f->path, true, &fd, NULL), 0);
	close(fd);
}

static void test_others_may_not_be_there(void **state)
{
	static const mode_t modes[] = { 0701, 0705, 0710, 0720, 0702, 0777 };
	struct fixture *f = *state;
	int fd = -1;

	assert_int_equal(cb_warm_folder_open(f->path, true, &fd, NULL), 0);
	close(fd);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		assert_int_equal(chmod(f->path, modes[i]), 0);
		expect_refused(f, f->path, "entered by others");
	}
	assert_int_equal(chmod(f->path, 0700), 0);
	assert_int_equal(chmod(f->above, 0720), 0);
	expect_refused(f, f->above, "written by others");
	assert_int_equal(chmod(f->above, 01777), 0);
	expect_refused(f, f->above, "written by others");
}

static void test_links_and_files(void **state)
{
	struct fixture *f = *state;
	char elsewhere[96];
	int fd = -1;

	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", f->folder);
	assert_int_equal(mkdir(elsewhere, 0700), 0);
	assert_int_equal(symlink(elsewhere, f->above), 0);
	expect_refused(f, f->above, "symbolic link");
	assert_int_equal(unlink(f->above), 0);
	assert_int_equal(mkdir(f->above, 0700), 0);
	assert_int_equal(symlink(elsewhere, f->path), 0);
	expect_refused(f, f->path, "symbolic link");
	assert_int_equal(unlink(f->path), 0);
	fd = open(f->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	expect_refused(f, f->path, "no folder");
	assert_int_equal(rmdir(elsewhere), 0);
}

static void test_another_user_s(void **state)
{
	struct fixture *f = *state;
	struct cb_err err = { 0 };
	int fd = -1;

	if (geteuid() != 0) { /* what root made */
		assert_int_equal(cb_warm_folder_open("/usr/no/warm", true, &fd, &err), -EACCES);
		assert_non_null(strstr(err.text, "/usr/no, where zygotes are found, can't be made: Permission denied"));
		assert_int_equal(cb_warm_folder_open("/usr/bin", true, &fd, &err), -EPERM);
		assert_non_null(strstr(err.text, "/usr, where zygotes are found, belongs to another user"));
		assert_int_equal(mkdir(f->above, 0300), 0);
		expect_refused(f, f->above, "can't be read by its owner");
		return;
	}
	assert_int_equal(cb_warm_folder_open(f->path, true, &fd, &err), 0);
	close(fd);
	assert_int_equal(chown(f->path, 1, 1), 0);
	expect_refused(f, f->path, "another user");
	assert_int_equal(chown(f->path, 0, 0), 0);
	assert_int_equal(chown(f->above, 1, 1), 0);
	expect_refused(f, f->above, "another user");
}

static void test_no_place(void **state)
{
	static const char *const bad[] = { "", "/", "/warm", "a/b", "/a/../b", "/a/b/" };
	struct cb_err err = { 0 };
	int fd = -1;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(cb_warm_folder_open(bad[i], true, &fd, &err), -EINVAL);
	assert_int_equal(cb_warm_folder_open("/nonexistent/a/b", true, &fd, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nonexistent/a/b"));
	assert_int_equal(cb_warm_folder_open("/proc/a/b", true, &fd, &err), -ENOENT);
	assert_int_equal(fd, -1);
}

/* For ten minutes; of a time that is to come the clock has been set back. */
static void test_how_long_a_failure_counts(void **state)
{
	static const struct {
		int ago_s;
		bool counts;
	} cases[] = { { 5, true }, { 500, true }, { 700, false }, { -3600, false } };
	struct fixture *f = *state;
	char name[96], why[CB_WARM_WHY_MAX];
	static const char text[] = { CB_WARM_FAILED, 'w', 'h', 'y', '\n' };

	snprintf(name, sizeof(name), "%s/lock", f->folder);
	CB_AUTO_FD lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(write(lock, text, sizeof(text)), sizeof(text));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct timespec at[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = time(NULL) - cases[i].ago_s } };

		assert_int_equal(futimens(lock, at), 0);
		assert_int_equal(cb_warm_has_failed(lock, why), cases[i].counts);
		assert_string_equal(why, "why");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_made_for_us_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_others_may_not_be_there, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_links_and_files, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_another_user_s, set_up, tear_down),
		cmocka_unit_test(test_no_place),
		cmocka_unit_test_setup_teardown(test_how_long_a_failure_counts, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
