/* Memory of this host, or of the container that we are in.
 *
 * Trust domain: any of ours, outside of jails. A container shows its own control group as the root of /sys/fs/cgroup;
 * on a host that group has no limit. What the kernel can drop at once (files' pages) counts as free. Callers: kernel/
 * (policy, memory.c), sandbox/watchdog.c.
 */
#include <cellblock/clock.h>
#include <cellblock/host_memory.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARE 16
#define PERIOD_MS 250 /* for so long it stays enough */

struct group {
	const char *limit, *used, *stat;
};
static const struct group groups[] = {
	{ "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat" },
	{ "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
	  "/sys/fs/cgroup/memory/memory.stat" },
};
#define NGROUPS (sizeof(groups) / sizeof(groups[0]))

/* The number at the start of the file, or behind a word at the start of a line; `fallback` if there is none. */
static uint64_t number_from(const char *root, const char *path, const char *after, uint64_t fallback)
{
	char name[4096], text[8192];
	const char *at = text + 1;
	unsigned long long n;
	char *end;
	FILE *f;

	snprintf(name, sizeof(name), "%s%s", root, path);
	f = fopen(name, "re");
	if (f == NULL)
		return fallback;
	text[0] = '\n';
	text[1 + fread(text + 1, 1, sizeof(text) - 2, f)] = '\0';
	(void)fclose(f);
	if (after != NULL) {
		at = strstr(text, after);
		if (at == NULL)
			return fallback;
		at += strlen(after);
	}
	n = strtoull(at, &end, 10);
	return end != at ? n : fallback;
}

uint64_t cb_host_memory(void)
{
	uint64_t least = number_from("", "/proc/meminfo", "\nMemTotal:", 0) * 1024;

	if (least == 0)
		least = 1ULL << 30;
	for (size_t i = 0; i < NGROUPS; i++) {
		uint64_t limit = number_from("", groups[i].limit, NULL, 0);

		if (limit > 0 && limit < least)
			least = limit;
	}
	return least;
}

static bool is_group_short(const char *root, const struct group *g, uint64_t host)
{
	uint64_t limit = number_from(root, g->limit, NULL, 0), used, files;

	if (limit == 0 || (host > 0 && limit >= host)) /* none */
		return false;
	used = number_from(root, g->used, NULL, 0);
	if (used <= limit - limit / SHARE)
		return false;
	files = number_from(root, g->stat, "\nactive_file ", 0) + number_from(root, g->stat, "\ninactive_file ", 0);
	return used - (files < used ? files : used) > limit - limit / SHARE;
}

bool cb_host_memory_short_at(const char *root)
{
	uint64_t host = number_from(root, "/proc/meminfo", "\nMemTotal:", 0) * 1024;
	uint64_t left = number_from(root, "/proc/meminfo", "\nMemAvailable:", host / 1024) * 1024;
	bool is_short = left < host / SHARE;

	for (size_t i = 0; i < NGROUPS && !is_short; i++)
		is_short = is_group_short(root, &groups[i], host);
	return is_short;
}

bool cb_host_memory_short(void)
{
	static int64_t next_ms;
	int64_t now = cb_now_ms();

	if (now < next_ms)
		return false;
	if (cb_host_memory_short_at(""))
		return true;
	next_ms = now + PERIOD_MS;
	return false;
}
