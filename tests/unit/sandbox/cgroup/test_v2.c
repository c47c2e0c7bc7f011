/* Version 2 on a folder tree that looks like one: which folder is divided, and what is written into a group. That the
 * kernel then obeys is shown on a host that has it (tests/jail/test_limits.py). */
#include <errno.h>
#include <fcntl.h>
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

#include "../../../../sandbox/cgroup/cgroup.h"
#include "../../folder.h"

static char tree[] = "/tmp/cb-cgroup-XXXXXX";

static void put(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", tree, name);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void assert_holds(const char *name, const char *text)
{
	char path[128], found[128] = "";
	int fd;

	snprintf(path, sizeof(path), "%s/%s", tree, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(read(fd, found, sizeof(found) - 1) >= 0);
	close(fd);
	assert_string_equal(found, text);
}

static void group(const char *name, const char *controllers, const char *on)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", tree, name);
	assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
	snprintf(path, sizeof(path), "%s/cgroup.controllers", name);
	put(path, controllers);
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", name);
	put(path, on);
	snprintf(path, sizeof(path), "%s/cgroup.procs", name);
	put(path, "");
}

static struct cb_cgroup_tables tables(const char *own)
{
	static char mounts[64], groups[64];
	char text[128];

	snprintf(text, sizeof(text), "33 25 0:28 / %s rw - cgroup2 cgroup2 rw\n", tree);
	put("mounts", text);
	snprintf(text, sizeof(text), "0::%s\n", own);
	put("groups", text);
	snprintf(mounts, sizeof(mounts), "%s/mounts", tree);
	snprintf(groups, sizeof(groups), "%s/groups", tree);
	return (struct cb_cgroup_tables){ mounts, groups };
}

static bool is_folder(int fd, const char *name)
{
	char path[128];
	struct stat a, b;

	snprintf(path, sizeof(path), "%s/%s", tree, name);
	return fd >= 0 && fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino;
}

static void test_nearest_with_controllers(void **state)
{
	struct cb_cgroups c = CB_CGROUPS_NONE;
	struct cb_err err = { 0 };
	struct cb_cgroup_tables t;

	(void)state;
	if (access("/run/systemd/system", F_OK) == 0)
		skip(); /* systemd is asked first */
	group(".", "cpu memory pids\n", "cpu memory pids\n");
	group("a", "cpu memory pids\n", "memory pids\n");
	group("a/b", "memory\n", "");
	t = tables("/a/b");
	assert_int_equal(cb_cgroup_v2.find(&t, &c, &err), 0);
	assert_true(is_folder(c.base[CB_CG_MEMORY], "a") && is_folder(c.base[CB_CG_CPU], "a"));
	assert_holds("a/cgroup.subtree_control", "+cpury pids\n"); /* written over in this tree */
	cb_cgroups_release(&c);
	/* without the cpu controller */
	group("a", "memory pids\n", "");
	assert_int_equal(cb_cgroup_v2.find(&t, &c, &err), 0);
	assert_true(is_folder(c.base[CB_CG_PIDS], "a") && c.base[CB_CG_CPU] == -1);
	assert_holds("a/cgroup.subtree_control", "+memory +pids");
	cb_cgroups_release(&c);
}

static void test_hybrid_host_has_no_controllers(void **state)
{
	struct cb_cgroups c = CB_CGROUPS_NONE;
	struct cb_err err = { 0 };
	struct cb_cgroup_tables t;

	(void)state;
	group(".", "hugetlb\n", "");
	t = tables("/");
	assert_true(cb_cgroup_v2.find(&t, &c, &err) < 0);
	assert_non_null(strstr(err.text, "memory"));
	put("mounts", "25 30 0:22 / /sys rw - sysfs sysfs rw\n");
	assert_true(cb_cgroup_v2.find(&t, &c, &err) < 0);
	cb_cgroups_release(&c);
}

static void test_limits(void **state)
{
	struct cb_jail_spec spec = { .limit_memory = 1u << 30, .limit_pids = 10, .limit_cpu = 50000 };
	struct cb_cgroup g = CB_CGROUP_EMPTY;
	char path[128];

	(void)state;
	group("g", "", "");
	put("g/memory.max", "");
	put("g/pids.max", "");
	put("g/cpu.max", "");
	snprintf(path, sizeof(path), "%s/g", tree);
	for (int i = 0; i < CB_CONTROLLERS; i++)
		g.dir[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(cb_cgroup_v2.limit(&g, &spec), 0); /* memory.swap.max is absent */
	assert_holds("g/memory.max", "1073741824");
	assert_holds("g/pids.max", "11");
	assert_int_equal(cb_cgroup_let_in(&g, &spec, 2), 0); /* there is no group */
	assert_holds("g/pids.max", "11");
	g.kind = CB_CGROUP_V2;
	assert_int_equal(cb_cgroup_let_in(&g, &spec, 2), 0);
	assert_holds("g/pids.max", "13");
	assert_holds("g/cpu.max", "50000 100000");
	put("g/memory.swap.max", "");
	assert_int_equal(cb_cgroup_v2.limit(&g, &spec), 0);
	assert_holds("g/memory.swap.max", "0");
	snprintf(path, sizeof(path), "%s/g/pids.max", tree);
	unlink(path);
	assert_int_equal(cb_cgroup_v2.limit(&g, &spec), -ENOENT);
	for (int i = 0; i < CB_CONTROLLERS; i++)
		close(g.dir[i]);
}

static void test_swap_that_nobody_counts(void **state)
{
	static const char head[] = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
	struct cb_cgroups c = CB_CGROUPS_NONE;
	char table[64], text[128];

	(void)state;
	snprintf(table, sizeof(table), "%s/swaps", tree);
	assert_false(cb_cg_has_swap(table)); /* a kernel without swap */
	put("swaps", head);
	assert_false(cb_cg_has_swap(table));
	snprintf(text, sizeof(text), "%s/dev/sda2 partition\t1048572\t0\t-2\n", head);
	put("swaps", text);
	assert_true(cb_cg_has_swap(table));
	c.kind = CB_CGROUP_V2;
	cb_cgroups_describe(&c, text, sizeof(text));
	assert_string_equal(text, "cgroup v2: memory, pids");
	c.swaps = true;
	cb_cgroups_describe(&c, text, sizeof(text));
	assert_non_null(strstr(text, "swapped out"));
}

static int make_tree(void **state)
{
	(void)state;
	return mkdtemp(tree) != NULL ? 0 : -1;
}

static int remove_tree(void **state)
{
	(void)state;
	return folder_remove(tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nearest_with_controllers),
		cmocka_unit_test(test_hybrid_host_has_no_controllers),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_swap_that_nobody_counts),
	};

	return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
