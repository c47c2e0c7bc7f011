/* The text of control group files and tables, and the sweep of folders that nobody holds, in ordinary folders. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../../../sandbox/cgroup/cgroup.h"

#define MOUNTS                                                                                                         \
	"25 30 0:22 / /sys rw,nosuid - sysfs sysfs rw\n"                                                               \
	"31 25 0:26 /docker/ab /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"                          \
	"32 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:2 - cgroup cgroup rw,cpu,cpuacct\n"                \
	"33 25 0:28 / /sys/fs/with\\040space rw - cgroup2 cgroup2 rw,nsdelegate\n"

static void test_words(void **state)
{
	(void)state;
	assert_true(cb_cg_has_word("cpuset cpu io memory\n", "memory", " \n"));
	assert_true(cb_cg_has_word("rw,cpu,cpuacct", "cpu", ","));
	assert_false(cb_cg_has_word("rw,cpuacct", "cpu", ","));
	assert_false(cb_cg_has_word("", "cpu", ","));
}

static void test_own_path(void **state)
{
	static const char table[] = "9:name=systemd:/\n4:memory:/a/b\n3:cpu,cpuacct:/c:d\n0::/user.slice/x.scope\n";
	char path[64];

	(void)state;
	assert_int_equal(cb_cg_own_path(table, "memory", path, sizeof(path)), 0);
	assert_string_equal(path, "/a/b");
	assert_int_equal(cb_cg_own_path(table, "cpuacct", path, sizeof(path)), 0);
	assert_string_equal(path, "/c:d");
	assert_int_equal(cb_cg_own_path(table, "", path, sizeof(path)), 0);
	assert_string_equal(path, "/user.slice/x.scope");
	assert_int_equal(cb_cg_own_path(table, "pids", path, sizeof(path)), -ENOENT);
	assert_int_equal(cb_cg_own_path("nonsense\n::\n:", "pids", path, sizeof(path)), -ENOENT);
	assert_int_equal(cb_cg_own_path(table, "memory", path, 3), -ENAMETOOLONG);
}

static void test_mount(void **state)
{
	char point[64], root[64];

	(void)state;
	assert_int_equal(cb_cg_mount(MOUNTS, "memory", point, root, sizeof(point)), 0);
	assert_string_equal(point, "/sys/fs/cgroup/memory");
	assert_string_equal(root, "/docker/ab");
	assert_int_equal(cb_cg_mount(MOUNTS, "cpu", point, root, sizeof(point)), 0);
	assert_string_equal(point, "/sys/fs/cgroup/cpu,cpuacct");
	assert_int_equal(cb_cg_mount(MOUNTS, "", point, root, sizeof(point)), 0);
	assert_string_equal(point, "/sys/fs/with space");
	assert_int_equal(cb_cg_mount(MOUNTS, "pids", point, root, sizeof(point)), -ENOENT);
	assert_int_equal(cb_cg_mount("1 2 3\n - - -\n", "pids", point, root, sizeof(point)), -ENOENT);
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void test_own_places(void **state)
{
	static const char *const controllers[] = { "memory", "cpu", "" };
	char dir[] = "/tmp/cb-cgroup-XXXXXX", mounts[64], groups[64];
	struct cb_cgroup_tables t = { mounts, groups };
	struct cb_cgroup_place own[3];

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(mounts, sizeof(mounts), "%s/mounts", dir);
	snprintf(groups, sizeof(groups), "%s/groups", dir);
	put(mounts, MOUNTS);
	put(groups, "4:memory:/docker/ab/c\n3:cpu,cpuacct:/\n0::/../x\n");
	cb_cg_own_places(&t, controllers, 3, own);
	assert_int_equal(own[0].code, 0);
	assert_string_equal(own[0].point, "/sys/fs/cgroup/memory");
	assert_string_equal(own[0].folder, "/sys/fs/cgroup/memory/c");
	assert_int_equal(own[1].code, 0);
	assert_string_equal(own[1].folder, "/sys/fs/cgroup/cpu,cpuacct");
	assert_int_equal(own[2].code, -ENOENT);
	put(groups, "4:memory:/docker/abc\n");
	cb_cg_own_places(&t, controllers, 1, own);
	assert_int_equal(own[0].code, -ENOENT);
	unlink(mounts);
	cb_cg_own_places(&t, controllers, 1, own);
	assert_int_equal(own[0].code, -ENOENT);
	unlink(groups);
	rmdir(dir);
}

static void test_sweep(void **state)
{
	char dir[] = "/tmp/cb-cgroup-XXXXXX";
	int fd, held;

	(void)state;
	assert_non_null(mkdtemp(dir));
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(mkdirat(fd, CB_CGROUP_PREFIX "dead", 0700) | mkdirat(fd, "other", 0700) |
				 mkdirat(fd, "other/" CB_CGROUP_PREFIX "dead", 0700) |
				 mkdirat(fd, CB_CGROUP_PREFIX "held", 0700) |
				 mkdirat(fd, CB_CGROUP_PREFIX "full", 0700) |
				 mkdirat(fd, CB_CGROUP_PREFIX "full/x", 0700),
			 0);
	held = openat(fd, CB_CGROUP_PREFIX "held", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(flock(held, LOCK_EX | LOCK_NB), 0);
	cb_cg_sweep(fd, 0);
	assert_int_equal(faccessat(fd, CB_CGROUP_PREFIX "dead", F_OK, 0), -1);
	assert_int_equal(faccessat(fd, "other/" CB_CGROUP_PREFIX "dead", F_OK, 0), 0);
	cb_cg_sweep(fd, 1);
	assert_int_equal(faccessat(fd, "other/" CB_CGROUP_PREFIX "dead", F_OK, 0), -1);
	assert_int_equal(faccessat(fd, CB_CGROUP_PREFIX "held", F_OK, 0), 0);
	assert_int_equal(faccessat(fd, CB_CGROUP_PREFIX "full/x", F_OK, 0), 0);
	close(held);
	unlinkat(fd, CB_CGROUP_PREFIX "full/x", AT_REMOVEDIR);
	cb_cg_sweep(fd, 1);
	assert_int_equal(unlinkat(fd, "other", AT_REMOVEDIR), 0);
	close(fd);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),	   cmocka_unit_test(test_own_path), cmocka_unit_test(test_mount),
		cmocka_unit_test(test_own_places), cmocka_unit_test(test_sweep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
