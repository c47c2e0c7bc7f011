/* When memory is short, of a host and of a container, by files of a folder of ours. */
#include <cellblock/host_memory.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[] = "/tmp/test-host-memory-XXXXXX";

static void put(const char *path, const char *text)
{
	char name[256];

	snprintf(name, sizeof(name), "%s%s", root, path);
	for (char *slash = strchr(name + sizeof(root), '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(name, 0700);
		*slash = '/';
	}
	FILE *f = fopen(name, "we");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void drop(const char *path)
{
	char name[256];

	snprintf(name, sizeof(name), "%s%s", root, path);
	assert_int_equal(remove(name), 0);
}

#define MEMINFO "/proc/meminfo"
static const char *const made[] = {
	"/v1/job/memory.limit_in_bytes",
	"/v1/job/memory.stat",
	"/v1/job",
	"/v1/memory.limit_in_bytes",
	"/v1",
	"/cg/slice/service/scope/memory.max",
	"/cg/slice/service/scope",
	"/cg/slice/service/memory.max",
	"/cg/slice/service/memory.current",
	"/cg/slice/service",
	"/cg/slice/memory.max",
	"/cg/slice",
	"/cg",
	"/proc/self/mountinfo",
	"/proc/self/cgroup",
	"/proc/self",
};
#define V2 "/sys/fs/cgroup/memory."
#define V1 "/sys/fs/cgroup/memory/memory."

static void test_host(void **state)
{
	(void)state;
	assert_false(cb_host_memory_short_at(root)); /* nothing is known */
	assert_int_equal(cb_host_memory_left_at(root), 0);
	put(MEMINFO, "MemTotal:       16000 kB\nMemFree:          10 kB\nMemAvailable:   1000 kB\n");
	assert_int_equal(cb_host_memory_left_at(root), 1000 * 1024);
	assert_false(cb_host_memory_short_at(root));
	put(MEMINFO, "MemTotal:       16000 kB\nMemFree:          10 kB\nMemAvailable:    999 kB\n");
	assert_true(cb_host_memory_short_at(root));
	put(MEMINFO, "MemTotal:       16000 kB\n");
	assert_false(cb_host_memory_short_at(root));
}

/* What is of files can be dropped: `stat` says how much, and `more` one byte more. */
static void container(const char *limit, const char *used, const char *stat, const char *text, const char *more)
{
	put(MEMINFO, "MemTotal:       16000 kB\nMemAvailable:   9000 kB\n");
	put(limit, "1600000\n");
	put(used, "1500000\n");
	put(stat, text);
	assert_false(cb_host_memory_short_at(root));
	put(used, "1500004\n");
	assert_true(cb_host_memory_short_at(root));
	put(stat, more);
	assert_false(cb_host_memory_short_at(root));
	assert_int_equal(cb_host_memory_left_at(root), 100000);
	put(used, "1600000\n");
	assert_true(cb_host_memory_short_at(root));
	assert_int_equal(cb_host_memory_left_at(root), 4);
	put(used, "1600005\n");
	assert_int_equal(cb_host_memory_left_at(root), 0);
	put(limit, "max\n");
	assert_false(cb_host_memory_short_at(root));
	assert_int_equal(cb_host_memory_left_at(root), 9000 * 1024);
	put(limit, "9223372036854771712\n");
	assert_false(cb_host_memory_short_at(root));
	drop(limit);
	drop(used);
	drop(stat);
}

static void test_container(void **state)
{
	(void)state;
	container(V2 "max", V2 "current", V2 "stat", "anon 5\nactive_file 1\ninactive_file 2\n",
		  "anon 5\nactive_file 1\ninactive_file 3\n");
	/* what is used counts groups below, where the jails are: so do the lines that begin with total_ alone */
	container(V1 "limit_in_bytes", V1 "usage_in_bytes", V1 "stat",
		  "inactive_file 9\nactive_file 9\ntotal_inactive_file 2\ntotal_active_file 1\n",
		  "inactive_file 0\nactive_file 0\ntotal_inactive_file 3\ntotal_active_file 1\n");
	drop("/sys/fs/cgroup/memory");
}

/* Any group above us may have a limit, and the least holds: it is looked for from our own up to the root. */
static void test_groups_above(void **state)
{
	char folder[128] = "";

	(void)state;
	put(MEMINFO, "MemTotal:       16000 kB\nMemAvailable:   9000 kB\n");
	assert_int_equal(cb_group_memory_at(root, folder, sizeof(folder)), 0); /* there is none */
	put("/proc/self/mountinfo", "31 25 0:26 / /cg rw - cgroup2 cgroup2 rw\n"
				    "32 25 0:27 /outer /v1 rw - cgroup cgroup rw,memory\n");
	put("/proc/self/cgroup", "4:memory:/outer/job\n0::/slice/service/scope\n");
	put("/cg/slice/service/scope/memory.max", "max\n");
	put("/cg/slice/service/memory.max", "1600000\n");
	put("/cg/slice/memory.max", "4000000\n");
	assert_int_equal(cb_group_memory_at(root, folder, sizeof(folder)), 1600000);
	assert_string_equal(folder, "/cg/slice/service");
	put("/cg/slice/service/memory.current", "1500004\n");
	assert_true(cb_host_memory_short_at(root));
	put("/cg/slice/service/memory.current", "1500000\n");
	assert_false(cb_host_memory_short_at(root));
	assert_int_equal(cb_host_memory_left_at(root), 100000);
	/* version 1; what lies above the mount is known by a figure of our own group's */
	put("/v1/job/memory.limit_in_bytes", "9223372036854771712\n");
	put("/v1/job/memory.stat", "rss 1\nhierarchical_memory_limit 1200000\n");
	assert_int_equal(cb_group_memory_at(root, folder, sizeof(folder)), 1200000);
	assert_string_equal(folder, "/v1/job");
	put("/v1/memory.limit_in_bytes", "1200000\n"); /* it is shown, and so named */
	assert_int_equal(cb_group_memory_at(root, folder, sizeof(folder)), 1200000);
	assert_string_equal(folder, "/v1");
	put("/v1/memory.limit_in_bytes", "900000000\n"); /* more than the host has is none */
	put("/v1/job/memory.stat", "rss 1\nhierarchical_memory_limit 900000000\n");
	assert_int_equal(cb_group_memory_at(root, NULL, 0), 1600000);
	for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
		drop(made[i]);
	assert_int_equal(cb_group_memory_at(root, NULL, 0), 0);
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(root) == NULL;
}

static int teardown(void **state)
{
	static const char *const left[] = { MEMINFO, "/proc", "/sys/fs/cgroup", "/sys/fs", "/sys", "" };

	(void)state;
	for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++)
		drop(left[i]);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host),
		cmocka_unit_test(test_container),
		cmocka_unit_test(test_groups_above),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
