/* Control groups, version 1: a hierarchy and so a folder for each controller.
 *
 * Trust domain: broker, outside. In practice root's alone. Memory and pids are needed; cpu and cpuacct are taken where
 * they are mounted. On hosts with both versions a controller belongs to one of them only.
 */
#include "cgroup.h"
#include "own_tasks.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define SWEEP_DEPTH 8
#define SOCKETS_SHARE 16	 /* of limits.memory, on top of it */
#define SOCKETS_LEAST (4u << 20) /* so that a socket is of use */

static const char *const names[CB_CONTROLLERS] = { "memory", "pids", "cpu", "cpuacct" };

static int find(const struct cb_cgroup_tables *t, struct cb_cgroups *c, struct cb_err *err)
{
	struct cb_cgroup_place own[CB_CONTROLLERS];

	cb_cg_own_places(t, names, CB_CONTROLLERS, own);
	for (int i = 0; i < CB_CONTROLLERS; i++) {
		int r = own[i].code;

		if (r == 0) {
			c->base[i] = open(own[i].folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			r = c->base[i] < 0 ? -errno : 0;
		}
		if (r < 0 && (i == CB_CG_MEMORY || i == CB_CG_PIDS))
			return cb_err_set(err, r, "cgroup v1", NULL, "the controller %s can't be used: %s", names[i],
					  r == -ENOENT ? "it is in no hierarchy of version 1" : strerror(-r));
	}
	return 0;
}

/* All of the hierarchy, for a dead broker may have been started in another group. */
static void sweep(const struct cb_cgroup_tables *t, const struct cb_cgroups *c)
{
	struct cb_cgroup_place own[CB_CONTROLLERS];

	cb_cg_own_places(t, names, CB_CONTROLLERS, own);
	for (int i = 0; i < CB_CONTROLLERS; i++) {
		CB_AUTO_FD root = -1;

		if (c->base[i] < 0 || own[i].code < 0)
			continue;
		root = open(own[i].point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (root >= 0 && faccessat(root, ".", W_OK, AT_EACCESS) == 0)
			cb_cg_sweep(root, SWEEP_DEPTH);
	}
}

/* Version 1 counts what waits in TCP and UDP sockets beside all other memory, and only where a limit is set, before the
 * socket is made. Version 2 counts it with the rest. */
static int limit_sockets(int memory, uint64_t limit)
{
	int r = cb_cg_write_number(memory, "memory.kmem.tcp.limit_in_bytes",
				   limit / SOCKETS_SHARE > SOCKETS_LEAST ? limit / SOCKETS_SHARE : SOCKETS_LEAST);

	return r == -ENOENT ? 0 : r; /* a kernel without it */
}

static int limit(const struct cb_cgroup *g, const struct cb_jail_spec *spec)
{
	int memory = g->dir[CB_CG_MEMORY], r = 0;

	if (spec->limit_memory != 0) {
		r = cb_cg_write_number(memory, "memory.limit_in_bytes", spec->limit_memory);
		if (r == 0) { /* memory and swap together: no swap */
			r = cb_cg_write_number(memory, "memory.memsw.limit_in_bytes", spec->limit_memory);
			r = r == -ENOENT ? 0 : r; /* absent where the kernel does not count swap */
		}
		if (r == 0)
			r = limit_sockets(memory, spec->limit_memory);
	}
	if (r == 0)
		r = cb_cg_write_number(g->dir[CB_CG_PIDS], "pids.max", spec->limit_pids + cb_notify_own_tasks(spec));
	if (r == 0 && spec->limit_cpu != 0 && g->dir[CB_CG_CPU] >= 0)
		r = cb_cg_write_number(g->dir[CB_CG_CPU], "cpu.cfs_period_us", CB_CGROUP_PERIOD_US);
	if (r == 0 && spec->limit_cpu != 0 && g->dir[CB_CG_CPU] >= 0) {
		r = cb_cg_write_number(g->dir[CB_CG_CPU], "cpu.cfs_quota_us", spec->limit_cpu);
		r = r == -EINVAL ? 0 : r; /* a group above has a smaller share, which holds */
	}
	return r;
}

const struct cb_cgroup_backend cb_cgroup_v1 = {
	.kind = CB_CGROUP_V1,
	.name = "cgroup v1",
	.find = find,
	.sweep = sweep,
	.limit = limit,
	.peak_file = "memory.max_usage_in_bytes",
	.peak_ever_file = "memory.memsw.max_usage_in_bytes",
	.events_file = "memory.oom_control",
	.cpu_file = "cpuacct.stat",
	.memory_file = "memory.usage_in_bytes",
	.swap_file = "memory.memsw.limit_in_bytes",
	.cpu_controller = CB_CG_CPUACCT,
};
