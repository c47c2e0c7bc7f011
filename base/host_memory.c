/* Memory of this host, or of the container or control group that we are in; and for whose lack of it the kernel killed.
 *
 * Trust domain: any of ours, outside of jails. Each group from our own up to the root of what is mounted may have a
 * limit; a container shows its own group as that root, and on a host the root has none. What the kernel can drop at
 * once (files' pages) counts as free.
 */
#include <cellblock/cgroup_own.h>
#include <cellblock/clock.h>
#include <cellblock/host_memory.h>
#include <cellblock/proc_stat.h>

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARE 16
#define PERIOD_MS 250 /* for so long it stays enough, and as much */
#define DEPTH_MAX 32  /* groups above each other that are looked at */
#define NEAR_SHARE 8  /* of a limit: who was never that near to it did not meet it */

/* The files of a group, and lines of its memory.stat: of limits that hold though the folder that has them is not shown;
 * of what is used for files, in it and in the groups below, as `used` counts. */
struct hierarchy {
	const char *controller; /* "" = version 2 */
	const char *root, *limit, *used, *above;
	const char *files[2];
};
static const struct hierarchy hierarchies[] = {
	{ "", "/sys/fs/cgroup", "/memory.max", "/memory.current", NULL, { "\nactive_file ", "\ninactive_file " } },
	{ "memory",
	  "/sys/fs/cgroup/memory",
	  "/memory.limit_in_bytes",
	  "/memory.usage_in_bytes",
	  "\nhierarchical_memory_limit ",
	  { "\ntotal_active_file ", "\ntotal_inactive_file " } },
};

/* The number behind a word at the start of a line: `fallback` if there is no such line. Behind "\n" alone that of the
 * first line: 0 where that is no number, or nothing can be read. */
static uint64_t number_from(const char *folder, const char *path, const char *after, uint64_t fallback)
{
	char name[PATH_MAX], text[8192];

	if ((size_t)snprintf(name, sizeof(name), "%s%s", folder, path) >= sizeof(name))
		return fallback;
	text[0] = '\n';
	(void)cb_proc_text(AT_FDCWD, name, text + 1, sizeof(text) - 1);
	return cb_proc_number(text, after, 10, fallback);
}

/* ---- the groups that we are in ---- */

struct walk {
	const struct hierarchy *h;
	char folder[PATH_MAX]; /* of the group that is looked at, with what stands before for tests */
	size_t shortest;       /* of its names, that of the root */
	bool first;
};

/* Our own group; where that is not known, the root of what is usually mounted. */
static void walk_begin(struct walk *w, const char *root, const struct hierarchy *h)
{
	char mountinfo[PATH_MAX], cgroup[PATH_MAX];
	struct cb_cgroup_place own;
	const struct cb_cgroup_tables tables = { mountinfo, cgroup };

	snprintf(mountinfo, sizeof(mountinfo), "%s/proc/self/mountinfo", root);
	snprintf(cgroup, sizeof(cgroup), "%s/proc/self/cgroup", root);
	cb_cg_own_places(&tables, &h->controller, 1, &own);
	w->h = h;
	w->first = true;
	w->shortest = strlen(root) + strlen(own.code == 0 ? own.point : h->root);
	snprintf(w->folder, sizeof(w->folder), "%s%s", root, own.code == 0 ? own.folder : h->root);
}

/* The group above; false at the root. */
static bool walk_up(struct walk *w)
{
	char *slash = strrchr(w->folder, '/');

	w->first = false;
	if (strlen(w->folder) <= w->shortest || slash == NULL)
		return false;
	*slash = '\0';
	return true;
}

uint64_t cb_group_memory_at(const char *root, char *ret_folder, size_t size)
{
	uint64_t host = number_from(root, "/proc/meminfo", "\nMemTotal:", UINT64_MAX / 1024) * 1024, least = host;
	struct walk w;

	for (size_t i = 0; i < CB_COUNT(hierarchies); i++) {
		int depth = 0;

		walk_begin(&w, root, &hierarchies[i]);
		do {
			uint64_t limit = number_from(w.folder, w.h->limit, "\n", 0);
			uint64_t above = !w.first || w.h->above == NULL
						 ? 0
						 : number_from(w.folder, "/memory.stat", w.h->above, 0);

			if (limit == 0 || (above > 0 && above < limit))
				limit = above; /* its own name is found further up, where it is shown */
			if (limit == 0 || limit > least || (limit == least && least == host))
				continue;
			least = limit;
			if (ret_folder != NULL)
				snprintf(ret_folder, size, "%s", w.folder + strlen(root));
		} while (++depth < DEPTH_MAX && walk_up(&w));
	}
	return least < host ? least : 0;
}

/* Looked up once: several keys of a policy ask for it, and a table of mounts can be long. */
uint64_t cb_group_memory(char *ret_folder, size_t size)
{
	static char folder[PATH_MAX];
	static uint64_t bytes;
	static bool known;

	if (!known)
		bytes = cb_group_memory_at("", folder, sizeof(folder));
	known = true;
	if (ret_folder != NULL && folder[0] != '\0')
		snprintf(ret_folder, size, "%s", folder);
	return bytes;
}

uint64_t cb_host_memory(void)
{
	uint64_t host = number_from("", "/proc/meminfo", "\nMemTotal:", 0) * 1024;
	uint64_t group = cb_group_memory(NULL, 0);

	if (host == 0)
		host = 1ULL << 30;
	return group > 0 && group < host ? group : host;
}

/* ---- whether it is short ---- */

/* The limit of a group; 0 = none. */
static uint64_t limit_of(const struct walk *w, uint64_t host)
{
	uint64_t limit = number_from(w->folder, w->h->limit, "\n", 0);

	return host > 0 && limit >= host ? 0 : limit;
}

/* What a group uses, less what is of files. Those are not looked up where it is no more than `enough` with them. */
static uint64_t used_of(const struct walk *w, uint64_t enough)
{
	uint64_t used = number_from(w->folder, w->h->used, "\n", 0), files;

	if (used <= enough)
		return used;
	files = number_from(w->folder, "/memory.stat", w->h->files[0], 0) +
		number_from(w->folder, "/memory.stat", w->h->files[1], 0);
	return used - (files < used ? files : used);
}

static bool is_group_short(const struct walk *w, uint64_t host)
{
	uint64_t limit = limit_of(w, host), enough = limit - limit / SHARE;

	return limit != 0 && used_of(w, enough) > enough;
}

uint64_t cb_host_memory_left_at(const char *root)
{
	uint64_t host = number_from(root, "/proc/meminfo", "\nMemTotal:", 0) * 1024;
	uint64_t least = number_from(root, "/proc/meminfo", "\nMemAvailable:", 0) * 1024;
	struct walk w;

	for (size_t i = 0; i < CB_COUNT(hierarchies); i++) {
		int depth = 0;

		walk_begin(&w, root, &hierarchies[i]);
		do {
			uint64_t limit = limit_of(&w, host), enough = limit > least ? limit - least : 0;
			uint64_t used = limit != 0 ? used_of(&w, enough) : 0;
			uint64_t left = limit == 0 ? least : used < limit ? limit - used : 0;

			least = left < least ? left : least;
		} while (++depth < DEPTH_MAX && walk_up(&w));
	}
	return least;
}

uint64_t cb_host_memory_left(void)
{
	static int64_t next_ms;
	static uint64_t left;
	int64_t now = cb_now_ms();

	if (now >= next_ms)
		left = cb_host_memory_left_at("");
	next_ms = now >= next_ms ? now + PERIOD_MS : next_ms;
	return left;
}

bool cb_host_memory_short_at(const char *root)
{
	uint64_t host = number_from(root, "/proc/meminfo", "\nMemTotal:", 0) * 1024;
	uint64_t left = number_from(root, "/proc/meminfo", "\nMemAvailable:", host / 1024) * 1024;
	bool is_short = left < host / SHARE;
	struct walk w;

	for (size_t i = 0; i < CB_COUNT(hierarchies) && !is_short; i++) {
		int depth = 0;

		walk_begin(&w, root, &hierarchies[i]);
		do
			is_short = is_group_short(&w, host);
		while (!is_short && ++depth < DEPTH_MAX && walk_up(&w));
	}
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

/* ---- for whose lack of it ---- */

/* `oom_kill` counts each process that any of the kernel's OOM killers took. For whom:
 *
 * Version 2: `oom` is counted where the limit is that was met, and in the groups above that one; below it is not.
 *
 * Version 1 has no such count. Its failcnt files do not serve: a jail's memory with swap has the same limit as without,
 * and is tried first, so memory.failcnt stays 0; and from Linux 6.15 on memory.memsw.failcnt does, too. But the kernel
 * kills for a limit only where less than a few pages are left below it, and keeps what was used at most, swap included.
 * Who was never near the limit has not met it; who was, may have. We never reset that figure.
 */
void cb_oom_parse(const char *events, const char *peak, uint64_t limit, struct cb_oom_count *ret)
{
	bool never_near = *peak != '\0' && strtoull(peak, NULL, 10) < limit - limit / NEAR_SHARE;

	ret->kills = cb_proc_number(events, "\noom_kill ", 10, 0);
	ret->limit_met = cb_proc_number(events, "\noom ", 10, never_near ? 0 : ret->kills);
}

enum cb_oom cb_oom_between(const struct cb_oom_count *before, const struct cb_oom_count *after, bool told_apart)
{
	if (after->kills <= before->kills)
		return CB_OOM_NONE;
	/* whoever has met it once may be killed for it a while later: a look may come between the two counts */
	return after->limit_met > 0 || !told_apart ? CB_OOM_LIMIT : CB_OOM_HOST;
}
