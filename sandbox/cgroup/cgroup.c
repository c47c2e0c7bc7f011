/* Control groups of jails: which back end works here, and the life of one group.
 *
 * Trust domain: broker, outside. See cgroup.h for the invariants. A group's name is hard to guess, so that a folder of
 * that name that exists already is one of our own, made a moment ago where two controllers share a hierarchy.
 */
#include "cgroup.h"
#include "own_tasks.h"

#include <cellblock/child.h>
#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <cellblock/proc_stat.h>
#include <cellblock/unique_name.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEP "cgroup"
#define MAKE_TRIES 3
#define REMOVE_TRIES 20

static const struct cb_cgroup_backend *const backends[] = { &cb_cgroup_v2, &cb_cgroup_v1 };

static const struct cb_cgroup_backend *backend_of(enum cb_cgroup_kind kind)
{
	for (size_t i = 0; i < CB_COUNT(backends); i++)
		if (backends[i]->kind == kind)
			return backends[i];
	return NULL;
}

/* ---- one group ---- */

static void close_dirs(int *dir)
{
	for (int i = 0; i < CB_CONTROLLERS; i++)
		cb_fd_close(&dir[i]);
}

/* Where controllers share a folder it is locked already, through another descriptor. */
static bool is_locked(const struct cb_cgroup *g, int upto, const struct stat *folder)
{
	struct stat st;

	for (int i = 0; i < upto; i++)
		if (g->dir[i] >= 0 && fstat(g->dir[i], &st) == 0 && st.st_dev == folder->st_dev &&
		    st.st_ino == folder->st_ino)
			return true;
	return false;
}

/* Makes and locks the folders. -ESTALE: another broker's sweep took one for the remains of a dead one. */
static int make_folders(const struct cb_cgroups *c, struct cb_cgroup *g)
{
	for (int i = 0; i < CB_CONTROLLERS; i++) {
		struct stat here, there;

		if (c->base[i] < 0)
			continue;
		if (mkdirat(c->base[i], g->name, 0755) < 0 && errno != EEXIST)
			return -errno;
		g->dir[i] = openat(c->base[i], g->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (g->dir[i] < 0)
			return errno == ENOENT ? -ESTALE : -errno;
		if (fstat(g->dir[i], &here) < 0 || (!is_locked(g, i, &here) && flock(g->dir[i], LOCK_EX) < 0))
			return -errno;
		if (fstatat(c->base[i], g->name, &there, AT_SYMLINK_NOFOLLOW) < 0 || here.st_ino != there.st_ino)
			return -ESTALE;
	}
	return 0;
}

void cb_cgroup_remove(const struct cb_cgroups *c, struct cb_cgroup *g)
{
	if (g == NULL || g->kind == CB_CGROUP_NONE)
		return;
	for (int i = 0; i < CB_CONTROLLERS; i++) {
		int tries = REMOVE_TRIES;

		if (c->base[i] < 0 || g->dir[i] < 0)
			continue;
		/* the last processes may not be off the books yet */
		while (unlinkat(c->base[i], g->name, AT_REMOVEDIR) < 0 && errno == EBUSY && --tries > 0)
			(void)poll(NULL, 0, 1);
		if (tries == 0)
			cb_log(CB_LOG_WARNING, "control group %s is still busy; the next start removes it", g->name);
	}
	close_dirs(g->dir);
	*g = CB_CGROUP_EMPTY;
}

int cb_cgroup_make(const struct cb_cgroups *c, const struct cb_jail_spec *spec, struct cb_cgroup *ret,
		   struct cb_err *err)
{
	const struct cb_cgroup_backend *backend = backend_of(c->kind);
	struct cb_cgroup g = CB_CGROUP_EMPTY;
	int r = -ESTALE;

	*ret = g;
	if (backend == NULL)
		return 0;
	for (int tries = MAKE_TRIES; r == -ESTALE && tries > 0; tries--) {
		g = CB_CGROUP_EMPTY;
		g.kind = c->kind;
		cb_unique_name(CB_CGROUP_PREFIX, g.name, sizeof(g.name));
		r = make_folders(c, &g);
		if (r < 0)
			cb_cgroup_remove(c, &g);
	}
	if (r < 0)
		return cb_err_set(err, r, STEP, NULL, "a control group can't be made: %s", strerror(-r));
	r = backend->limit(&g, spec);
	if (r < 0) {
		cb_cgroup_remove(c, &g);
		return cb_err_set(err, r, STEP, "Raise or lower limits.memory, limits.pids or limits.cpu.",
				  "a limit can't be written into the control group: %s", strerror(-r));
	}
	*ret = g;
	return 0;
}

/* A single thread that moves itself by `tasks` is the one move that needs no look at the other processors: any other
 * makes the kernel wait for all of them, for up to 20 ms. Version 2 has no such file, but births in a group.
 */
static int join(const struct cb_cgroup *g)
{
	const char *file = g->kind == CB_CGROUP_V1 ? "tasks" : "cgroup.procs";
	int r = 0;

	for (int i = 0; i < CB_CONTROLLERS && r == 0; i++)
		if (g->dir[i] >= 0)
			r = cb_cg_write(g->dir[i], file, "0");
	return r;
}

int cb_cgroup_join_fds(const struct cb_cgroup *g, int ret_fds[CB_CONTROLLERS])
{
	const char *file = g->kind == CB_CGROUP_V1 ? "tasks" : "cgroup.procs";

	for (int i = 0; i < CB_CONTROLLERS; i++)
		ret_fds[i] = -1;
	for (int i = 0; i < CB_CONTROLLERS; i++) {
		if (g->dir[i] < 0 || (g->kind == CB_CGROUP_V2 && i != CB_CG_MEMORY))
			continue;
		ret_fds[i] = openat(g->dir[i], file, O_WRONLY | O_CLOEXEC);
		if (ret_fds[i] < 0)
			return -errno;
	}
	return 0;
}

static long clone_into(const struct cb_cgroup *g, uint64_t flags, int *ret_pidfd)
{
	struct clone_args args = { .flags = flags | CLONE_PIDFD | CLONE_INTO_CGROUP,
				   .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
				   /* a sibling's is its maker's; to ask for one is an error */
				   .exit_signal = (flags & CLONE_PARENT) != 0 ? 0 : SIGCHLD,
				   .cgroup = (uint64_t)(unsigned)g->dir[CB_CG_MEMORY] };

	return syscall(SYS_clone3, &args, sizeof(args));
}

int cb_cgroup_let_in(const struct cb_cgroup *g, const struct cb_jail_spec *spec, unsigned more)
{
	if (g->kind == CB_CGROUP_NONE)
		return 0;
	return cb_cg_write_number(g->dir[CB_CG_PIDS], "pids.max",
				  spec->limit_pids + cb_notify_own_tasks(spec) + more);
}

pid_t cb_cgroup_clone(const struct cb_cgroup *g, uint64_t flags, int *ret_pidfd, int *ret_joined)
{
	long pid = g->kind == CB_CGROUP_V2 ? clone_into(g, flags, ret_pidfd) : -1;

	*ret_joined = 0;
	if (pid >= 0)
		return (pid_t)pid;
	if (g->kind == CB_CGROUP_V2) /* an old kernel, or a container's filter */
		cb_log(CB_LOG_DEBUG, "no birth in a control group: %s", strerror(errno));
	/* raw: glibc's wrapper wants a stack. The last two arguments, which machines order differently, are NULL. */
	pid = syscall(SYS_clone, (unsigned long)flags | CLONE_PIDFD | SIGCHLD, NULL, ret_pidfd, NULL, NULL);
	if (pid == 0)
		*ret_joined = join(g);
	if (pid < 0) {
		pid = -errno;
		*ret_pidfd = -1; /* the kernel may have written a number that it closed again */
	}
	return (pid_t)pid;
}

void cb_cgroup_read(const struct cb_cgroup *g, const struct cb_jail_spec *spec, struct cb_cgroup_figures *ret)
{
	const struct cb_cgroup_backend *backend = backend_of(g->kind);
	char text[4096], ever[64] = "";

	*ret = (struct cb_cgroup_figures){ 0 };
	if (backend == NULL)
		return;
	(void)cb_proc_text(g->dir[CB_CG_MEMORY], backend->events_file, text, sizeof(text));
	if (backend->peak_ever_file != NULL)
		(void)cb_proc_text(g->dir[CB_CG_MEMORY], backend->peak_ever_file, ever, sizeof(ever));
	cb_oom_parse(text, ever, spec->limit_memory, &ret->oom);
	(void)cb_proc_text(g->dir[CB_CG_MEMORY], backend->peak_file, text, sizeof(text));
	ret->memory_peak = strtoull(text, NULL, 10);
}

int cb_cgroup_usage_fds(const struct cb_cgroup *g, int ret_fds[CB_USAGE_NFDS])
{
	const struct cb_cgroup_backend *backend = backend_of(g->kind);

	for (int i = 0; i < CB_USAGE_NFDS; i++)
		ret_fds[i] = -1;
	if (backend != NULL) {
		int memory = g->dir[CB_CG_MEMORY], cpu = g->dir[backend->cpu_controller];

		ret_fds[CB_USAGE_EVENTS] = openat(memory, backend->events_file, O_RDONLY | O_CLOEXEC);
		/* writable, so that the peak can be reset for each cell */
		ret_fds[CB_USAGE_PEAK] = openat(memory, backend->peak_file, O_RDWR | O_CLOEXEC);
		if (ret_fds[CB_USAGE_PEAK] < 0)
			ret_fds[CB_USAGE_PEAK] = openat(memory, backend->peak_file, O_RDONLY | O_CLOEXEC);
		ret_fds[CB_USAGE_MEMORY] = openat(memory, backend->memory_file, O_RDONLY | O_CLOEXEC);
		ret_fds[CB_USAGE_STAT] = openat(memory, "memory.stat", O_RDONLY | O_CLOEXEC);
		if (backend->peak_ever_file != NULL)
			ret_fds[CB_USAGE_PEAK_EVER] = openat(memory, backend->peak_ever_file, O_RDONLY | O_CLOEXEC);
		if (cpu >= 0)
			ret_fds[CB_USAGE_CPU] = openat(cpu, backend->cpu_file, O_RDONLY | O_CLOEXEC);
	}
	for (int i = 0; i < CB_USAGE_NFDS; i++) {
		if (ret_fds[i] < 0)
			ret_fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (ret_fds[i] < 0)
			return -errno;
	}
	return 0;
}

/* ---- which back end ---- */

/* A child is put into a group with all the limits. */
static int try_out(struct cb_cgroups *c, const struct cb_jail_spec *spec, struct cb_err *err)
{
	const struct cb_cgroup_backend *backend = backend_of(c->kind);
	struct cb_cgroup g;
	CB_AUTO_FD pidfd = -1;
	int joined, status = 0, r = cb_cgroup_make(c, spec, &g, err);
	pid_t pid;

	if (r < 0)
		return r;
	pid = cb_cgroup_clone(&g, 0, &pidfd, &joined);
	if (pid == 0)
		_exit(-joined);
	(void)cb_reap(pid, &status);
	r = pid < 0 ? pid : WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
	c->swaps = spec->limit_memory != 0 && backend != NULL && cb_cg_has_swap("/proc/swaps") &&
		   faccessat(g.dir[CB_CG_MEMORY], backend->swap_file, F_OK, 0) < 0;
	cb_cgroup_remove(c, &g);
	return r < 0 ? cb_err_set(err, r, STEP, NULL, "a process can't be put into a control group: %s", strerror(-r))
		     : 0;
}

static const struct cb_cgroup_tables tables = { "/proc/self/mountinfo", "/proc/self/cgroup" };

void cb_cgroups_open(const struct cb_jail_spec *spec, struct cb_cgroups *ret)
{
	struct cb_err lack[CB_COUNT(backends)] = { 0 };

	*ret = CB_CGROUPS_NONE;
	for (size_t i = 0; i < CB_COUNT(backends); i++) {
		int r = backends[i]->find(&tables, ret, &lack[i]);

		ret->kind = backends[i]->kind;
		if (r == 0)
			r = try_out(ret, spec, &lack[i]);
		if (r == 0)
			break;
		cb_log(CB_LOG_DEBUG, "%s: %s", backends[i]->name, lack[i].text);
		cb_cgroups_release(ret);
	}
	if (ret->kind == CB_CGROUP_NONE)
		cb_err_set(&ret->lack, lack[0].code, STEP, lack[0].cure[0] != '\0' ? lack[0].cure : lack[1].cure,
			   "%s: %.300s; %s: %.300s", backends[0]->name, lack[0].text, backends[1]->name, lack[1].text);
	else if (ret->base[CB_CG_CPU] < 0)
		cb_err_set(&ret->lack, -EOPNOTSUPP, STEP, "Delegate the cpu controller too, or set limits.cpu to 0.",
			   "there is no cpu controller, so limits.cpu is not held");
	if (ret->kind == CB_CGROUP_NONE && ret->lack.cure[0] == '\0')
		snprintf(ret->lack.cure, sizeof(ret->lack.cure), "Start Cellblock %s.",
			 geteuid() != 0 && lack[1].code != -ENOENT
				 ? "as root"
				 : "where control groups for memory and pids can be made");
}

void cb_cgroups_sweep(const struct cb_cgroups *c)
{
	const struct cb_cgroup_backend *backend = backend_of(c->kind);

	if (backend != NULL)
		backend->sweep(&tables, c);
}

void cb_cgroups_release(struct cb_cgroups *c)
{
	for (int i = 0; i < CB_CONTROLLERS; i++)
		cb_fd_close(&c->base[i]);
	c->kind = CB_CGROUP_NONE;
}

enum cb_isolation_level cb_cgroups_level(const struct cb_cgroups *c, const struct cb_jail_spec *spec)
{
	if (c->kind == CB_CGROUP_NONE || (spec->limit_cpu != 0 && c->base[CB_CG_CPU] < 0))
		return CB_LEVEL_NO_CGROUP;
	return CB_LEVEL_FULL;
}

void cb_cgroups_describe(const struct cb_cgroups *c, char *ret_text, size_t size)
{
	const struct cb_cgroup_backend *backend = backend_of(c->kind);

	if (backend == NULL)
		snprintf(ret_text, size, "no cgroup: %s", c->lack.text);
	else
		snprintf(ret_text, size, "%s: memory%s, pids%s", backend->name,
			 c->swaps ? " (not what is swapped out: this kernel does not count it)" : "",
			 c->base[CB_CG_CPU] >= 0 ? ", cpu" : "");
}
