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
#define V2 "/sys/fs/cgroup/memory."
#define V1 "/sys/fs/cgroup/memory/memory."

static void test_host(void **state)
{
	(void)state;
	assert_false(cb_host_memory_short_at(root)); /* nothing is known */
	put(MEMINFO, "MemTotal:       16000 kB\nMemFree:          10 kB\nMemAvailable:   1000 kB\n");
	assert_false(cb_host_memory_short_at(root));
	put(MEMINFO, "MemTotal:       16000 kB\nMemFree:          10 kB\nMemAvailable:    999 kB\n");
	assert_true(cb_host_memory_short_at(root));
	put(MEMINFO, "MemTotal:       16000 kB\n");
	assert_false(cb_host_memory_short_at(root));
}

/* What is of files can be dropped. */
static void container(const char *limit, const char *used, const char *stat)
{
	put(MEMINFO, "MemTotal:       16000 kB\nMemAvailable:   9000 kB\n");
	put(limit, "1600000\n");
	put(used, "1500000\n");
	put(stat, "anon 5\nactive_file 1\ninactive_file 2\n");
	assert_false(cb_host_memory_short_at(root));
	put(used, "1500004\n");
	assert_true(cb_host_memory_short_at(root));
	put(stat, "anon 5\nactive_file 1\ninactive_file 3\n");
	assert_false(cb_host_memory_short_at(root));
	put(used, "1600000\n");
	assert_true(cb_host_memory_short_at(root));
	put(limit, "max\n");
	assert_false(cb_host_memory_short_at(root));
	put(limit, "9223372036854771712\n");
	assert_false(cb_host_memory_short_at(root));
	drop(limit);
	drop(used);
	drop(stat);
}

static void test_container(void **state)
{
	(void)state;
	container(V2 "max", V2 "current", V2 "stat");
	container(V1 "limit_in_bytes", V1 "usage_in_bytes", V1 "stat");
	drop("/sys/fs/cgroup/memory");
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
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
