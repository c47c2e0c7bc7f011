/* `cellblock doctor`: what this host allows, found by trying each thing in a child that ends at once.
 *
 * Trust domain: outside, with the rights of whoever asks. Nothing is left behind: children's namespaces die with them.
 * A trial that needs another is told by `needs`; it is not run when that one failed. Exit status: 0 a jail can be
 * built, 3 not.
 */
#include "../cgroup/cgroup.h"
#include "../root/root.h"
#include "../shared/ids.h"
#include "../shared/jail.h"
#include "../walls/landlock.h"
#include "../walls/seccomp.h"
#include "diagnose.h"
#include "report.h"

#include <cellblock/child.h>
#include <cellblock/fd.h>
#include <cellblock/json_write.h>
#include <cellblock/proc_stat.h>
#include <cellblock/visible.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

struct result {
	bool run;
	struct cb_err err; /* code 0 = works */
};

struct trial {
	const char *name; /* for people and --json */
	const char *step; /* of the jail, for diagnose */
	const char *what; /* what a jail uses it for */
	bool required;	  /* without it there is no jail */
	int needs;	  /* index of the trial that must work first; -1 = none */
	int flags;	  /* namespaces that the child is born with */
	int (*run)(void); /* in the child, which has uid CB_JAIL_UID and all capabilities over its namespaces */
};

static int try_nothing(void)
{
	return 0;
}

static int try_mounts(void)
{
	struct cb_jail_spec spec = { .hostname = (char[]){ "doctor" } };
	struct cb_jail jail = { .spec = &spec };
	int r = cb_step_private_mounts(&jail, NULL);

	return r == 0 ? cb_step_new_root(&jail, NULL) : r;
}

static int try_dev(void)
{
	int r = try_mounts();

	return r == 0 ? cb_step_dev(NULL, NULL) : r;
}

static int try_proc(void)
{
	int r = try_mounts();

	return r == 0 ? cb_step_proc(NULL, NULL) : r;
}

static int try_pivot(void)
{
	int r = try_dev();

	return r == 0 ? cb_step_pivot(NULL, NULL) : r;
}

/* One process is there already: a second one must not come. */
static int try_nproc(void)
{
	struct rlimit one = { 1, 1 };
	pid_t pid;

	if (setrlimit(RLIMIT_NPROC, &one) < 0)
		return -errno;
	/* With CAP_SYS_ADMIN in the namespace that the limit belongs to it would not count. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    syscall(SYS_capset, (uint32_t[]){ 0x20080522, 0 }, (uint32_t[6]){ 0 }) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return errno == EAGAIN ? 0 : -errno;
	(void)cb_reap(pid, NULL);
	return CB_E_DENIED;
}

static int try_filter(void)
{
	struct sock_fprog filter = { 0 };
	int r = cb_seccomp_compile(&filter, NULL);

	if (r == 0)
		r = cb_seccomp_selftest(&filter, NULL);
	free(filter.filter);
	return r;
}

static int try_landlock(void)
{
	return cb_landlock_version() > 0 ? 0 : -EOPNOTSUPP;
}

/* Groups with small limits, made and removed at once. */
static struct {
	struct cb_cgroups cgroups;
	enum cb_isolation_level level;
	char text[512];
} groups;

static int try_cgroups(void)
{
	const struct cb_jail_spec spec = { .limit_memory = 64u << 20, .limit_pids = 16 };

	cb_cgroups_open(&spec, &groups.cgroups);
	groups.level = cb_cgroups_level(&groups.cgroups, &spec);
	cb_cgroups_describe(&groups.cgroups, groups.text, sizeof(groups.text));
	cb_cgroups_release(&groups.cgroups);
	return groups.cgroups.lack.code;
}

/* The watchdog, which stands for control groups, has to see them. A child that may not be looked into is as a jail's
 * pid 1. */
static int try_watchdog(void)
{
	int pair[2], r;
	char byte = 0;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	CB_AUTO_FD mine = pair[0];
	CB_AUTO_FD its = pair[1];

	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		cb_fd_close(&mine);
		(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
		(void)!write(its, "x", 1);
		_exit((int)read(its, &byte, 1)); /* until we have looked */
	}
	cb_fd_close(&its);
	r = read(mine, &byte, 1) == 1 ? cb_proc_shows_children(pid) : -ECHILD;
	cb_fd_close(&mine);
	(void)cb_reap(pid, NULL);
	return r;
}

enum { USERNS, MOUNTNS };

/* What the jail's uid and gid would be outside. */
static struct {
	uid_t uid;
	gid_t gid;
	int lock;	   /* of a leased uid; -1 = none */
	struct cb_err err; /* no uid could be had */
} host = { .lock = -1 };

static void choose_host_ids(void)
{
	host.uid = geteuid();
	host.gid = getegid();
	if (cb_is_host_root() && cb_uid_lease(&host.uid, &host.lock, &host.err) == 0)
		host.gid = host.uid;
}

/* Not in a child: the broker does this outside, and only if root started it. */
static int try_idmap(void)
{
	CB_AUTO_FD here = -1;
	struct cb_jail_spec spec = { .workspace_mode = CB_WORKSPACE_RW };
	struct cb_jail jail = { .spec = &spec, .from_root = true, .host_uid = host.uid };
	char path[4096];
	int r;

	if (getcwd(path, sizeof(path)) == NULL || strcmp(path, "/") == 0)
		return 0;
	spec.workspace_source = path;
	r = cb_workspace_open(&jail, NULL);
	cb_workspace_close(&jail);
	return r;
}

static const struct trial trials[] = {
	[USERNS] = { "user namespace", "namespaces", "the jail's processes have no rights outside", true, -1,
		     CLONE_NEWUSER, try_nothing },
	[MOUNTNS] = { "mount namespace", "namespaces", "a file system of the jail's own", true, USERNS, CLONE_NEWNS,
		      try_nothing },
	{ "pid namespace", "namespaces", "no process outside can be seen; the jail dies whole", true, USERNS,
	  CLONE_NEWPID, try_nothing },
	{ "network namespace", "namespaces", "no network but its own 127.0.0.1", true, USERNS, CLONE_NEWNET,
	  try_nothing },
	{ "ipc namespace", "namespaces", "no shared memory or queues of others", true, USERNS, CLONE_NEWIPC,
	  try_nothing },
	{ "uts namespace", "namespaces", "a hostname of its own", true, USERNS, CLONE_NEWUTS, try_nothing },
	{ "cgroup namespace", "namespaces", "the host's cgroup paths are not seen", true, USERNS, CLONE_NEWCGROUP,
	  try_nothing },
	{ "mounts", "new root", "a new read-only root", true, MOUNTNS, CLONE_NEWNS, try_mounts },
	{ "devices and terminals", "dev", "/dev and terminals for shell commands", true, MOUNTNS, CLONE_NEWNS,
	  try_dev },
	{ "new /proc", "proc", "/proc of the jail's own processes", false, MOUNTNS, CLONE_NEWNS | CLONE_NEWPID,
	  try_proc },
	{ "pivot", "pivot", "the host's files are out of reach", true, MOUNTNS, CLONE_NEWNS, try_pivot },
	{ "process limit", "limits", "a fork bomb ends at limits.pids without cgroups", false, USERNS, 0, try_nproc },
	{ "system call filter", "seccomp", "the kernel's rarely used parts are out of reach", true, -1, -1,
	  try_filter },
	{ "Landlock", "landlock", "a second wall behind the mounts", false, -1, -1, try_landlock },
	{ "cgroups", "cgroup", "memory, processes and CPU of the whole jail have limits", false, -1, -1, try_cgroups },
	{ "processes in /proc", "watchdog", "without cgroups: memory of the whole jail has a limit", false, -1, -1,
	  try_watchdog },
	{ "calls served by name", "notifier",
	  "a writable workspace: what is written is judged by name; else changes go to a layer, and named sockets in "
	  "a folder of mounts can be reached",
	  false, -1, -1, cb_notify_probe },
	{ "id-mapped workspace", "workspace", "started by root: the workspace's owner is the jail's user", false,
	  USERNS, -1, try_idmap },
};

static _Noreturn void child(const struct trial *t, int sock)
{
	char go;
	int r;

	if (read(sock, &go, 1) != 1)
		_exit(1);
	r = cb_become(CB_JAIL_UID);
	if (r == 0)
		r = t->run();
	_exit(write(sock, &r, sizeof(r)) == (ssize_t)sizeof(r) ? 0 : 1);
}

/* The trial's code, or the code of what went wrong before it; *step is then that. */
static int run_in_child(const struct trial *t, const char **step)
{
	int pair[2], r, code = -ECHILD;
	const char *file;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	CB_AUTO_FD mine = pair[0];
	CB_AUTO_FD theirs = pair[1];

	pid = (pid_t)syscall(SYS_clone, (unsigned long)(CLONE_NEWUSER | SIGCHLD | t->flags), NULL, NULL, NULL, NULL);
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		cb_fd_close(&mine); /* so that our end's closing is its end of file */
		child(t, theirs);
	}
	cb_fd_close(&theirs);
	r = cb_ids_map(pid, host.uid, host.gid, &file);
	if (r == 0 && (write(mine, "x", 1) != 1 || read(mine, &code, sizeof(code)) != (ssize_t)sizeof(code)))
		code = -ECHILD;
	cb_fd_close(&mine);
	(void)cb_reap(pid, NULL);
	if (r == 0)
		return code;
	*step = "user namespace";
	return r;
}

static void run_trial(size_t i, struct result *results)
{
	const struct trial *t = &trials[i];
	struct result *result = &results[i];
	const char *step = t->step;
	int code;

	if (t->run == try_idmap && !cb_is_host_root()) /* nothing that an ordinary user's jail has */
		return;
	if (t->run == try_watchdog && groups.level == CB_LEVEL_FULL)
		return;
	if (t->needs >= 0 && (!results[t->needs].run || results[t->needs].err.code < 0))
		return;
	result->run = true;
	if (i == USERNS && host.err.code < 0) {
		result->err = host.err;
		return;
	}
	code = t->flags < 0 ? t->run() : run_in_child(t, &step);
	if (code == 0)
		return;
	cb_err_set(&result->err, code, step, NULL, "%s", cb_err_text(code));
	if (t->run == try_nproc)
		cb_err_set(&result->err, code, t->step, "use Linux 5.14 or newer",
			   "RLIMIT_NPROC is not counted in user namespaces");
	else if (t->run == try_cgroups)
		result->err = groups.cgroups.lack;
	else if (t->run == try_watchdog && cb_proc_shows_children(getpid()) < 0)
		cb_err_set(&result->err, code, t->step,
			   "use a kernel with CONFIG_PROC_CHILDREN, or let cgroups be used",
			   "this kernel does not tell a process's children, so nothing of a jail can be measured");
	else if (t->run == try_watchdog && (code == -ENOENT || code == -EPERM || code == -EACCES))
		cb_err_set(&result->err, code, t->step, "mount /proc without hidepid, or let cgroups be used",
			   "/proc hides processes, so nothing of a jail can be measured");
	else if (t->run == try_landlock)
		cb_err_set(&result->err, code, t->step, CB_LANDLOCK_CURE, "%s", CB_LANDLOCK_ABSENT);
	else if (t->run == try_idmap && code != -EPERM)
		cb_err_set(&result->err, code, t->step,
			   "keep workspaces on ext4, xfs, btrfs or tmpfs, or use workspace.mode \"ro\" or \"tmpfs\"",
			   "the current folder cannot be id-mapped: %s", strerror(-code));
	else
		cb_diagnose(step, code, &result->err);
}

/* ---- the kernel's known holes ---- */

/* Four bugs of 2026 wrote to files that were only readable, through sockets and spliced pages. The filter leaves no way
 * to them, but only a kernel without them is safe from the next way: first versions of each series without them. */
static const struct {
	int major, minor, patch;
} first_fixed[] = { { 6, 6, 138 }, { 6, 12, 87 }, { 6, 18, 29 }, { 7, 0, 6 } };

static const char holes_cause[] = "this version is older than the first one without CVE-2026-31431, -43284, -43500 and "
				  "-46300 (writing to read-only files), unless your distribution has patched it";

enum age { UNKNOWN, OLD, GOOD }; /* unknown: a series that the list does not have */

static enum age age_of(const char *release)
{
	int major = 0, minor = 0, patch = 0;

	if (sscanf(release, "%d.%d.%d", &major, &minor, &patch) < 2)
		return UNKNOWN;
	for (size_t i = 0; i < CB_COUNT(first_fixed); i++)
		if (major == first_fixed[i].major && minor == first_fixed[i].minor)
			return patch < first_fixed[i].patch ? OLD : GOOD;
	return UNKNOWN;
}

/* ---- what is printed ---- */

static const char *verdict(const struct result *r)
{
	return !r->run ? "not tried" : r->err.code == 0 ? "ok" : "refused";
}

struct report {
	const struct result *results;
	enum cb_isolation_level level;
	struct utsname kernel;
	enum age age; /* the kernel's */
	const struct cb_strv *kernelspecs; /* as cb_doctor_main has them */
};

static const char *const level_names[] = { "none", "container", "no-cgroup", "full" };
static const char *const level_meaning[] = {
	"no wall can be had here: every cell is refused, unless isolation.minimum is \"none\"",
	"no namespaces here: every cell is refused, unless isolation.minimum is \"container\" (files by Landlock, no "
	"sockets) or weaker",
	"all walls; limits of single processes and of the jail's user namespace, without cgroups",
	"all walls and all limits",
};

static const char *meaning(enum cb_isolation_level level)
{
	if (level == CB_LEVEL_FULL && groups.cgroups.lack.code < 0)
		return "all walls; all limits but limits.cpu (a policy that sets it reaches \"no-cgroup\")";
	return level_meaning[level];
}

/* What brings a session's state back is a copy of its process, which pid 1 of a jail guards. */
static const char *transactions(enum cb_isolation_level level)
{
	return level >= CB_LEVEL_NO_CGROUP
		       ? "a cell that crashes or is killed is undone where a copy was kept, and the session goes on"
		       : "none at this level: a cell that crashes or is killed costs all variables";
}

static const char *warm_start(enum cb_isolation_level level)
{
	return level >= CB_LEVEL_NO_CGROUP ? "a kernel is copied from an interpreter that is loaded already"
					   : "none at this level: each kernel loads its own interpreter";
}

static void put_trial(struct cb_json *j, size_t i, const struct result *result)
{
	cb_json_object(j, NULL);
	cb_json_put(j, "name", trials[i].name, "required", trials[i].required, "result", verdict(result), "what",
		    trials[i].what);
	if (result->err.code < 0)
		cb_json_put(j, "step", result->err.step, "cause", result->err.text, "cure", result->err.cure);
	cb_json_end(j);
}

static void put_kernelspecs(struct cb_json *j, const struct cb_strv *folders)
{
	bool none = folders->count > 0 && folders->items[0][0] == '\0';

	if (folders->count == 0)
		return;
	cb_json_put(j, "kernelspec", none ? NULL : folders->items[0]);
	cb_json_array(j, "kernelspecs");
	for (size_t i = 0; !none && i < folders->count; i++)
		cb_json_put(j, NULL, folders->items[i]);
	cb_json_end(j);
}

static int print_json(const struct report *report)
{
	CB_AUTO_BUF out = CB_BUF_INIT(1u << 16);
	struct cb_json j = cb_json_begin(&out);
	int r;

	cb_json_put(&j, "jail", (bool)(report->level >= CB_LEVEL_NO_CGROUP), "level", level_names[report->level],
		    "meaning", meaning(report->level), "transactions", transactions(report->level),
		    "warm_start", warm_start(report->level), "kernel", report->kernel.release, "cgroups", groups.text);
	put_kernelspecs(&j, report->kernelspecs);
	if (report->age == UNKNOWN)
		cb_json_put(&j, "kernel_is_old", NULL);
	else
		cb_json_put(&j, "kernel_is_old", (bool)(report->age == OLD));
	cb_json_array(&j, "trials");
	for (size_t i = 0; i < CB_COUNT(trials); i++)
		put_trial(&j, i, &report->results[i]);
	r = cb_json_done(&j);
	if (r == 0)
		r = cb_buf_append_str(&out, "\n");
	return r == 0 && fwrite(out.data, 1, out.len, stdout) < out.len ? -EIO : r;
}

static void print_lack(const char *name, const char *what, const struct cb_err *err)
{
	printf("  %s (%s)\n    step   %s\n    cause  %s\n    cure   %s\n", name, what, err->step, err->text, err->cure);
}

static void print_lacks(const struct report *report)
{
	struct cb_err old = { .step = "kernel", .cure = "install the updates of your distribution, and start anew" };
	bool any = report->age == OLD;

	for (size_t i = 0; i < CB_COUNT(trials); i++)
		any = any || report->results[i].err.code < 0;
	if (!any)
		return;
	printf("\nWhat is missing\n");
	for (size_t i = 0; i < CB_COUNT(trials); i++)
		if (report->results[i].err.code < 0)
			print_lack(trials[i].name, trials[i].what, &report->results[i].err);
	snprintf(old.text, sizeof(old.text), "Linux %s: %s", report->kernel.release, holes_cause);
	if (report->age == OLD)
		print_lack("a kernel without known holes", "the kernel is the wall behind all walls", &old);
}

static void print_text(const struct report *report)
{
	printf("Level \"%s\": %s\n", level_names[report->level], meaning(report->level));
	print_lacks(report);
	printf("\nWhat was tried\n");
	for (size_t i = 0; i < CB_COUNT(trials); i++)
		printf("  %-10s%-24s%s%s\n", verdict(&report->results[i]), trials[i].name, trials[i].what,
		       trials[i].required ? "" : " (a jail can do without)");
	printf("\nTransactional cells: %s\n", transactions(report->level));
	printf("Warm start: %s\n", warm_start(report->level));
	printf("Limits of the whole jail: %s\n",
	       groups.level == CB_LEVEL_FULL	       ? groups.text
	       : report->level == CB_LEVEL_NO_CGROUP ? "memory by a watchdog, and processes; limits.cpu is not held"
						       : "memory by a watchdog; limits.cpu is not held");
	if (report->age == UNKNOWN)
		printf("Known holes of Linux %s: not known, this series is in no list of ours; install the updates of "
		       "your distribution\n", report->kernel.release);
	for (size_t i = 0; i < report->kernelspecs->count; i++)
		printf("Kernelspec that Jupyter sees: %s\n",
		       report->kernelspecs->items[i][0] != '\0' ? cb_shown(report->kernelspecs->items[i])
								: "none; `cellblock install --user` writes one");
}

static enum cb_isolation_level level_of(const struct result *results)
{
	bool filter = true, landlock = true, walls = true;

	for (size_t i = 0; i < CB_COUNT(trials); i++) {
		bool works = results[i].run && results[i].err.code == 0;

		filter = filter && (works || trials[i].run != try_filter);
		landlock = landlock && (works || trials[i].run != try_landlock);
		/* a root that may not lend folders has no jail either */
		walls = walls && (works || !trials[i].required) &&
			(trials[i].run != try_idmap || results[i].err.code != -EPERM);
	}
	return walls ? groups.level : filter && landlock ? CB_LEVEL_CONTAINER : CB_LEVEL_NONE;
}

int cb_doctor_main(bool json, const struct cb_strv *kernelspecs)
{
	static struct result results[CB_COUNT(trials)];
	struct report report = { .results = results, .kernelspecs = kernelspecs };
	int r = 0;

	choose_host_ids();
	for (size_t i = 0; i < CB_COUNT(trials); i++)
		run_trial(i, results);
	report.level = level_of(results);
	if (uname(&report.kernel) == 0)
		report.age = age_of(report.kernel.release);
	if (json)
		r = print_json(&report);
	else
		print_text(&report);
	cb_uid_release(&host.lock);
	return r < 0 ? 1 : report.level >= CB_LEVEL_NO_CGROUP ? 0 : 3;
}
