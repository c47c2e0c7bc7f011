/* Control groups, version 2: one hierarchy, and a part of it that is ours to divide.
 *
 * Trust domain: broker, outside. Where systemd runs it is asked for a scope with Delegate=yes (the user's manager, or
 * the system's for root): a part that systemd then leaves alone and removes after us. Elsewhere the nearest group above
 * us that we may write, and that has no processes of its own unless it is the root, is divided. A group with limits on
 * its children has no processes of its own: in the scope the broker moves itself into a leaf.
 */
#include "cgroup.h"
#include "own_tasks.h"

#include <cellblock/child.h>
#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SYSTEMD_MS 3000
#define LEAF CB_CGROUP_PREFIX "broker"

static const char *const unified = "";

static int limit(const struct cb_cgroup *g, const struct cb_jail_spec *spec)
{
	char text[64];
	int dir = g->dir[CB_CG_MEMORY], r = 0;

	if (spec->limit_memory != 0) {
		r = cb_cg_write_number(dir, "memory.max", spec->limit_memory);
		if (r == 0) {
			r = cb_cg_write_number(dir, "memory.swap.max", 0);
			r = r == -ENOENT ? 0 : r; /* absent where the kernel has no swap, or does not count it */
		}
	}
	if (r == 0)
		r = cb_cg_write_number(dir, "pids.max", spec->limit_pids + cb_notify_own_tasks(spec));
	snprintf(text, sizeof(text), "%llu %d", (unsigned long long)spec->limit_cpu, CB_CGROUP_PERIOD_US);
	if (r == 0 && spec->limit_cpu != 0 && g->dir[CB_CG_CPU] >= 0)
		r = cb_cg_write(dir, "cpu.max", text);
	return r;
}

/* May this folder be divided into groups with limits? Fills base[] if so. */
static int divide(const char *folder, struct cb_cgroups *c)
{
	CB_AUTO_FD fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char have[512], on[512];
	bool cpu;

	if (fd < 0)
		return -errno;
	(void)cb_proc_text(fd, "cgroup.controllers", have, sizeof(have));
	if (!cb_cg_has_word(have, "memory", " \n") || !cb_cg_has_word(have, "pids", " \n"))
		return -EOPNOTSUPP;
	if (faccessat(fd, ".", W_OK, AT_EACCESS) < 0 || faccessat(fd, "cgroup.procs", W_OK, AT_EACCESS) < 0)
		return -errno;
	cpu = cb_cg_has_word(have, "cpu", " \n");
	(void)cb_proc_text(fd, "cgroup.subtree_control", on, sizeof(on));
	if (!cb_cg_has_word(on, "memory", " \n") || !cb_cg_has_word(on, "pids", " \n")) {
		int r = cb_cg_write(fd, "cgroup.subtree_control", "+memory +pids");

		if (r < 0)
			return r; /* EBUSY: it has processes of its own */
	}
	if (cpu && !cb_cg_has_word(on, "cpu", " \n") && cb_cg_write(fd, "cgroup.subtree_control", "+cpu") < 0)
		cpu = false;
	for (int i = 0; i < CB_CONTROLLERS; i++) {
		if (i == CB_CG_CPU && !cpu)
			continue;
		c->base[i] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (c->base[i] < 0)
			return -errno;
	}
	return 0;
}

static void sweep(const struct cb_cgroup_tables *t, const struct cb_cgroups *c)
{
	(void)t;
	cb_cg_sweep(c->base[CB_CG_MEMORY], 0);
}

/* ---- systemd ---- */

static _Noreturn void ask(const char *scope, pid_t us)
{
	char runtime[64], pid[16], *env[] = { runtime, NULL };
	bool root = geteuid() == 0;
	char *argv[] = { "busctl",
			 root ? "--system" : "--user",
			 "--timeout=2",
			 "call",
			 "org.freedesktop.systemd1",
			 "/org/freedesktop/systemd1",
			 "org.freedesktop.systemd1.Manager",
			 "StartTransientUnit",
			 "ssa(sv)a(sa(sv))",
			 (char *)(uintptr_t)scope,
			 "fail",
			 "3",
			 "PIDs",
			 "au",
			 "1",
			 pid,
			 "Delegate",
			 "b",
			 "true",
			 "CollectMode",
			 "s",
			 "inactive-or-failed",
			 "0",
			 NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=/run/user/%u", (unsigned)geteuid());
	snprintf(pid, sizeof(pid), "%d", (int)us);
	if (null >= 0 && dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(null, 2) == 2)
		execve("/usr/bin/busctl", argv, env);
	_exit(127);
}

/* 0 if systemd took the request within the time. */
static int request_scope(const char *scope)
{
	pid_t us = getpid(), pid = fork();
	int status = -1;

	if (pid < 0)
		return -errno;
	if (pid == 0)
		ask(scope, us);
	CB_AUTO_FD fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0 || cb_fd_await(fd, POLLIN, cb_now_ms() + SYSTEMD_MS) < 0)
		(void)kill(pid, SIGKILL);
	(void)cb_reap(pid, &status);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

/* The request is answered before the move is done. */
static int await_move(const struct cb_cgroup_tables *t, const char *scope, struct cb_cgroup_place *ret)
{
	int64_t deadline = cb_now_ms() + SYSTEMD_MS;

	do {
		size_t len, n = strlen(scope);

		cb_cg_own_places(t, &unified, 1, ret);
		len = ret->code == 0 ? strlen(ret->folder) : 0;
		if (len > n && strcmp(ret->folder + len - n, scope) == 0)
			return 0;
		(void)poll(NULL, 0, 2);
	} while (cb_now_ms() < deadline);
	return -ETIMEDOUT;
}

static int move_to_leaf(const char *folder)
{
	CB_AUTO_FD fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CB_AUTO_FD leaf = -1;

	if (fd < 0 || (mkdirat(fd, LEAF, 0755) < 0 && errno != EEXIST))
		return -errno;
	leaf = openat(fd, LEAF, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return leaf < 0 ? -errno : cb_cg_write(leaf, "cgroup.procs", "0");
}

static int divide_scope(const struct cb_cgroup_tables *t, struct cb_cgroups *c)
{
	char scope[64];
	struct cb_cgroup_place own;
	int r;

	if (access("/run/systemd/system", F_OK) < 0 || access("/usr/bin/busctl", X_OK) < 0)
		return -ENOENT;
	snprintf(scope, sizeof(scope), CB_CGROUP_PREFIX "%d-%lld.scope", (int)getpid(), (long long)cb_now_ms());
	r = request_scope(scope);
	if (r == 0)
		r = await_move(t, scope, &own);
	if (r == 0)
		r = move_to_leaf(own.folder);
	return r == 0 ? divide(own.folder, c) : r;
}

/* ---- without systemd ---- */

/* From our own group upwards. */
static int divide_nearest(const char *point, char *folder, struct cb_cgroups *c)
{
	int first = 0;

	for (;;) {
		int r = divide(folder, c);
		char *slash = strrchr(folder, '/');

		if (r == 0)
			return 0;
		if (first == 0 || first == -EBUSY)
			first = r;
		if (strlen(folder) <= strlen(point) || slash == NULL || slash == folder)
			return first;
		*slash = '\0';
	}
}

static int find(const struct cb_cgroup_tables *t, struct cb_cgroups *c, struct cb_err *err)
{
	struct cb_cgroup_place own;
	struct stat st;
	int r, fd = -1;
	char have[512] = "";

	cb_cg_own_places(t, &unified, 1, &own);
	r = own.code;
	if (r == 0 && stat(own.point, &st) == 0) {
		fd = open(own.point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		(void)cb_proc_text(fd, "cgroup.controllers", have, sizeof(have));
		cb_fd_close(&fd);
	}
	if (r < 0)
		return cb_err_set(err, r, "cgroup v2", NULL, "no hierarchy of version 2 holds this process");
	if (!cb_cg_has_word(have, "memory", " \n") || !cb_cg_has_word(have, "pids", " \n"))
		return cb_err_set(err, -EOPNOTSUPP, "cgroup v2", NULL,
				  "the hierarchy of version 2 has no memory and pids controllers");
	if (divide_scope(t, c) == 0)
		return 0;
	r = divide_nearest(own.point, own.folder, c);
	if (r < 0)
		return cb_err_set(err, r, "cgroup v2",
				  "Start Cellblock in a systemd user session (loginctl enable-linger), or delegate a "
				  "control group to this user.",
				  r == -EBUSY ? "%s has processes of its own, and can't be divided"
					      : "no control group above us may be divided by us: %s",
				  r == -EBUSY ? own.folder : strerror(-r));
	return 0;
}

const struct cb_cgroup_backend cb_cgroup_v2 = {
	.kind = CB_CGROUP_V2,
	.name = "cgroup v2",
	.find = find,
	.sweep = sweep,
	.limit = limit,
	.peak_file = "memory.peak",
	.events_file = "memory.events",
	.cpu_file = "cpu.stat",
	.memory_file = "memory.current",
	.swap_file = "memory.swap.max",
	.cpu_controller = CB_CG_CPUACCT,
};
