/* The jail where the host refuses namespaces, see without_namespaces.h.
 *
 * Trust domain: broker (choose, open, end), pid 1 (the steps), the guest's process until its exec (enclose).
 * Invariants: never chosen unless the description accepts the level; started by root it runs as a uid of its own, never
 * 0; what programs outside execute is never writable at level "container": where it lies in a writable workspace the
 * start is refused, since Landlock can't take away below what it gave.
 */
#include "without_namespaces.h"

#include "../root/rootfs.h"
#include "../shared/ids.h"
#include "../shared/mounts.h"
#include "../walls/landlock.h"
#include "../walls/limits.h"
#include "../walls/seccomp.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/log.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define STEP "isolation"
#define SHARED "/dev/shm"
#define REMOVE_MS 5000	    /* at a start, for what others left */
#define REMOVE_OWN_MS 15000 /* many files take long on a busy machine */

/* ---- the choice ---- */

/* A count of namespaces that is used up will be free again; one of 0 stays. */
static bool is_forbidden(void)
{
	static const char *const kinds[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
	bool zero = false;

	for (size_t i = 0; i < CB_COUNT(kinds) && !zero; i++) {
		char path[64], text[16];

		snprintf(path, sizeof(path), "/proc/sys/user/max_%s_namespaces", kinds[i]);
		zero = cb_proc_text(AT_FDCWD, path, text, sizeof(text)) == 0 && strcmp(text, "0\n") == 0;
	}
	return zero;
}

/* What a host may refuse a jail; every other failure would be the same without namespaces. */
static bool refused_by_host(const struct cb_jail *jail, const struct cb_err *failure)
{
	static const char *const steps[] = { "namespaces",     "user namespace", "session", "loopback",
					     "private mounts", "new root",	 "dev",	    "proc",
					     "tmpfs",	       "pivot" };
	static const int codes[] = { -EPERM, -EACCES, -EINVAL, -ENOSYS };
	/* a container's root may not clone mounts */
	bool step = jail->from_root && failure->code == -EPERM &&
		    (strcmp(failure->step, "workspace") == 0 || strcmp(failure->step, "binds") == 0);
	bool code = failure->code == -ENOSPC && is_forbidden();

	for (size_t i = 0; i < CB_COUNT(steps); i++)
		step = step || strcmp(failure->step, steps[i]) == 0;
	for (size_t i = 0; i < CB_COUNT(codes); i++)
		code = code || failure->code == codes[i];
	return step && code;
}

static const char *level_name(enum cb_isolation_level level)
{
	return level == CB_LEVEL_CONTAINER ? "container" : "none";
}

bool cb_without_namespaces_choose(struct cb_jail *jail, struct cb_err *failure)
{
	bool walls = cb_landlock_version() > 0 && jail->filter.len > 0;
	enum cb_isolation_level level = walls ? CB_LEVEL_CONTAINER : CB_LEVEL_NONE;
	size_t n = strlen(failure->cure);

	if (!refused_by_host(jail, failure))
		return false;
	if (level < jail->spec->minimum) {
		snprintf(failure->cure + n, sizeof(failure->cure) - n,
			 "%sOr accept less: with isolation.minimum \"%s\" %s.", n > 0 ? ". " : "", level_name(level),
			 level == CB_LEVEL_CONTAINER ? "cells run without namespaces, behind Landlock and the filter"
						     : "cells run without walls, since this host has no Landlock "
						       "either: only where what is around it is the wall");
		return false;
	}
	cb_log(CB_LOG_WARNING, "isolation level %s: %s: %s", level_name(level), failure->step, failure->text);
	jail->without_namespaces = true;
	jail->level = level;
	snprintf(jail->refused, sizeof(jail->refused), "%.40s: %.140s", failure->step, failure->text);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	return true;
}

/* ---- paths ---- */

static const char *joined(char *buf, const char *folder, const char *rest)
{
	return snprintf(buf, PATH_MAX, "%s%s", folder, rest) < PATH_MAX ? buf : "/nonexistent";
}

/* It is the host's inside as well: an interpreter below /tmp. */
static bool is_the_hosts(const struct cb_jail_spec *spec, const char *inside)
{
	for (size_t i = 0; i < spec->nbinds; i++) {
		const struct cb_bind *b = &spec->binds[i];

		if (cb_path_within(inside, b->target) && strcmp(b->source, b->target) == 0)
			return true;
	}
	return false;
}

const char *cb_without_namespaces_path(const struct cb_jail *jail, const char *inside, char *buf)
{
	const struct cb_jail_spec *spec = jail->spec;
	char own[sizeof(jail->host_folder) + 16];
	struct stat st;

	/* the last bind first: a later one hides an earlier one */
	for (size_t i = spec->nbinds; i-- > 0;) {
		const struct cb_bind *b = &spec->binds[i];

		if (cb_path_within(inside, b->target) && strcmp(b->source, b->target) != 0 &&
		    (cb_path_within(b->target, "/run/cellblock") || lstat(b->target, &st) < 0))
			return joined(buf, b->source, inside + strlen(b->target));
	}
	if (spec->workspace_target != NULL && cb_path_within(inside, spec->workspace_target)) {
		snprintf(own, sizeof(own), "%s/work", jail->host_folder);
		return joined(buf, spec->workspace_source != NULL ? spec->workspace_source : own,
			      inside + strlen(spec->workspace_target));
	}
	if (cb_path_within(inside, CB_JAIL_HOME)) {
		snprintf(own, sizeof(own), "%s/home", jail->host_folder);
		return joined(buf, own, inside + strlen(CB_JAIL_HOME));
	}
	if (cb_path_within(inside, "/tmp") && !is_the_hosts(spec, inside)) {
		snprintf(own, sizeof(own), "%s/tmp", jail->host_folder);
		return joined(buf, own, inside + 4);
	}
	return inside;
}

int cb_without_namespaces_command(const struct cb_jail *jail, char ***ret_argv, char ***ret_env)
{
	const struct cb_jail_spec *spec = jail->spec;
	char **argv = calloc(spec->argv.count + 1, sizeof(*argv)), **env = calloc(spec->env.count + 1, sizeof(*env));
	char buf[PATH_MAX], line[PATH_MAX + 256];

	if (argv == NULL || env == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < spec->argv.count; i++) {
		const char *word = spec->argv.items[i];

		argv[i] = strdup(word[0] == '/' ? cb_without_namespaces_path(jail, word, buf) : word);
	}
	for (size_t i = 0; i < spec->env.count; i++) {
		const char *item = spec->env.items[i], *value = strchr(item, '=') + 1;

		if (value[0] == '/' && strchr(value, ':') == NULL)
			snprintf(line, sizeof(line), "%.*s%s", (int)(value - item), item,
				 cb_without_namespaces_path(jail, value, buf));
		env[i] = strdup(value[0] == '/' && strchr(value, ':') == NULL ? line : item);
	}
	*ret_argv = argv;
	*ret_env = env;
	return 0;
}

/* ---- outside, before the clone ---- */

static int refuse(struct cb_err *err, const char *step, const char *what, const char *cure)
{
	return cb_err_set(err, CB_E_DENIED, step, cure, "%s can't be had at isolation level \"container\"", what);
}

/* What needs mounts. At level none nothing is promised, so nothing is refused for it. */
static int check(const struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;
	char what[PATH_MAX + 64];

	if (spec->workspace_mode == CB_WORKSPACE_OVERLAY)
		return cb_err_set(err, CB_E_DENIED, "workspace", "Set workspace.mode to \"rw\", \"ro\" or \"tmpfs\".",
				  "workspace.mode \"overlay\" takes mounts, which isolation level \"%s\" has not",
				  level_name(jail->level));
	if (spec->root_path != NULL)
		return cb_err_set(err, CB_E_DENIED, "root.path", "Set root.path to \"host\".",
				  "an image as root.path takes mounts, which isolation level \"%s\" has not",
				  level_name(jail->level));
	if (jail->level == CB_LEVEL_NONE)
		return 0;
	for (size_t i = 0; i < spec->nbinds; i++)
		if (strcmp(spec->binds[i].source, "/dev/null") == 0) /* what hides its key is a mount */
			return refuse(err, "protect", "a workspace or a mount that holds the connection file",
				      "Start the kernel with its connection file in another folder.");
	if (spec->workspace_mode != CB_WORKSPACE_RW)
		return 0;
	for (size_t i = 0; i < spec->protect_paths.count; i++) {
		if (!cb_path_within(spec->protect_paths.items[i], spec->workspace_source))
			continue;
		snprintf(what, sizeof(what), "a writable workspace that holds %s", spec->protect_paths.items[i]);
		return refuse(
			err, "protect", what,
			"Set workspace.mode to \"ro\" or \"tmpfs\", or keep it outside of the workspace: programs "
			"outside would execute what cells write there.");
	}
	for (size_t i = 0; i < spec->nbinds; i++) {
		const char *source = spec->binds[i].source;

		if (!cb_path_within(source, spec->workspace_source))
			continue;
		snprintf(what, sizeof(what), "a mount of %s, which lies in the writable workspace,", source);
		return refuse(err, "mounts", what,
			      "Take it out of mounts, or set workspace.mode to \"ro\": cells could write it, and put "
			      "a link to anything in its place.");
	}
	return 0;
}

#define PREFIX ".cellblock-jail-" /* whatever has this name and is not held is removed: nothing of others may have it */
#define STALE_SECONDS 60 /* a younger one may not be locked yet */
#define FIRST_USER 1000u /* below are system accounts, root among them; jails have none of these */

/* A folder of ours that nobody holds: its broker was killed. Another user's is left to him. */
static bool is_stale(const struct cb_jail *jail, int fd)
{
	struct stat st;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (fstat(fd, &st) < 0 || st.st_mtim.tv_sec + STALE_SECONDS > now.tv_sec)
		return false;
	if (jail->from_root ? st.st_uid < FIRST_USER : st.st_uid != jail->host_uid)
		return false;
	return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static void remove_stale(const struct cb_jail *jail)
{
	int64_t until = cb_now_ms() + REMOVE_MS;
	CB_AUTO_FOLDER dir = cb_folder_open(AT_FDCWD, "/tmp", 0);
	const struct dirent *e;

	while ((e = cb_folder_next(dir)) != NULL) {
		char path[sizeof(jail->host_folder)];
		CB_AUTO_FD fd = -1;

		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0 ||
		    snprintf(path, sizeof(path), "/tmp/%s", e->d_name) != (int)strlen("/tmp/" PREFIX "XXXXXX"))
			continue;
		fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0 && is_stale(jail, fd))
			(void)cb_remove_folder(path, until);
	}
}

static int make_folder(struct cb_jail *jail, const char *name)
{
	char path[sizeof(jail->host_folder) + 16];

	snprintf(path, sizeof(path), "%s%s", jail->host_folder, name);
	if (name[0] != '\0' && mkdir(path, 0700) < 0)
		return -errno;
	return jail->from_root && lchown(path, jail->host_uid, jail->host_uid) < 0 ? -errno : 0;
}

static int make_folders(struct cb_jail *jail)
{
	static const char *const names[] = { "", "/home", "/tmp", "/work" };
	int r = 0;

	remove_stale(jail);
	snprintf(jail->host_folder, sizeof(jail->host_folder), "/tmp/" PREFIX "XXXXXX");
	if (mkdtemp(jail->host_folder) == NULL) {
		jail->host_folder[0] = '\0';
		return -errno;
	}
	jail->host_folder_lock = open(jail->host_folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (jail->host_folder_lock < 0 || flock(jail->host_folder_lock, LOCK_SH) < 0)
		return -errno;
	for (size_t i = 0; i < CB_COUNT(names) && r == 0; i++)
		r = make_folder(jail, names[i]);
	return r;
}

/* Whether cells may make shared memory; elsewhere that would be the user's own. */
static bool may_share(const struct cb_jail *jail)
{
	bool asked = false;

	for (size_t i = 0; i < jail->spec->nbinds; i++)
		asked = asked || cb_path_within(SHARED, jail->spec->binds[i].source);
	return jail->from_root || asked;
}

static void add_note(struct cb_jail *jail)
{
	const struct cb_jail_spec *spec = jail->spec;
	char text[sizeof(jail->note)];
	const char *pids = jail->from_root ? "" : ", limits.pids";
	const char *shared = may_share(jail) ? "" : ", and no /dev/shm, so no multiprocessing (mounts can name it)";
	const char *network = jail->filter.len == 0		 ? "the host's network"
			      : spec->network == CB_NETWORK_NONE ? "no sockets"
								 : "the host's network but no local sockets";

	if (jail->level == CB_LEVEL_CONTAINER)
		snprintf(text, sizeof(text),
			 "isolation level \"container\", since this host refuses more (%s). Cells are kept from files "
			 "by "
			 "Landlock and have %s%s; workspace.protect, limits.tmp, limits.shm, limits.inodes%s do not "
			 "hold",
			 jail->refused, network, shared, pids);
	else
		snprintf(text, sizeof(text),
			 "isolation level \"none\", since this host refuses more (%s): cells can do what uid %u can "
			 "outside, "
			 "but have %s",
			 jail->refused, (unsigned)jail->host_uid, network);
	cb_jail_add_note(jail, text);
}

int cb_without_namespaces_open(struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;
	int r = check(jail, err);

	jail->workspace_fd = -1;
	jail->workspace_ro = false;
	if (r < 0)
		return r;
	r = make_folders(jail);
	if (r < 0)
		return cb_err_set(err, r, STEP, "Make /tmp a folder that can be written.",
				  "a folder in /tmp, for home and temporary files, can't be made: %s", strerror(-r));
	if (spec->workspace_mode != CB_WORKSPACE_TMPFS) {
		r = cb_open_nolinks(AT_FDCWD, spec->workspace_source, O_PATH | O_DIRECTORY, &jail->workspace_fd);
		if (r < 0)
			return cb_err_set(err, r, "workspace", "Name an existing folder that can be entered.",
					  "workspace %s cannot be opened as a folder: %s", spec->workspace_source,
					  strerror(-r));
	}
	add_note(jail);
	return 0;
}

/* Of shared memory that the jail's own uid has left. */
static int remove_shared(const struct cb_jail *jail, int64_t until)
{
	CB_AUTO_FOLDER dir = jail->from_root ? cb_folder_open(AT_FDCWD, SHARED, 0) : NULL;
	const struct dirent *e;
	int r = 0;

	while (r == 0 && (e = cb_folder_next(dir)) != NULL) {
		char path[sizeof(SHARED) + NAME_MAX + 2];
		struct stat st;

		if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_uid != jail->host_uid)
			continue;
		snprintf(path, sizeof(path), SHARED "/%s", e->d_name);
		r = S_ISDIR(st.st_mode)						 ? cb_remove_folder(path, until)
		    : unlinkat(dirfd(dir), e->d_name, 0) == 0 || errno == ENOENT ? 0
										 : -errno;
		if (r == 0 && cb_now_ms() >= until)
			r = -EAGAIN;
	}
	return r == 0 && errno != 0 ? -errno : r;
}

bool cb_without_namespaces_end_step(struct cb_jail *jail, struct cb_without_namespaces_ending *ending)
{
	int64_t now = cb_now_ms(), until = now + CB_WITHOUT_NAMESPACES_STEP_MS;
	int r;

	if (!ending->swept) {
		ending->sweep.uid = jail->from_root ? jail->host_uid : CB_SWEEP_CHILDREN;
		ending->swept = cb_sweep_step(&ending->sweep);
		ending->until = now + REMOVE_OWN_MS;
		return false;
	}
	r = remove_shared(jail, until);
	if (r == 0 && jail->host_folder[0] != '\0')
		r = cb_remove_folder(jail->host_folder, until);
	if (r == -EAGAIN && now < ending->until)
		return false;
	if (r < 0)
		cb_log(CB_LOG_WARNING, "the jail's folder %s could not be removed: %s", jail->host_folder,
		       r == -EAGAIN ? "there is too much in it" : strerror(-r));
	jail->host_folder[0] = '\0';
	cb_fd_close(&jail->host_folder_lock);
	return true;
}

void cb_without_namespaces_end(struct cb_jail *jail)
{
	struct cb_without_namespaces_ending ending = { 0 };
	const struct timespec pause = { 0, 1000000 };

	while (!cb_without_namespaces_end_step(jail, &ending))
		(void)nanosleep(&pause, NULL);
}

/* ---- pid 1 ---- */

static int failed(struct cb_err *err, const char *step, const char *what)
{
	return cb_err_set(err, -errno, step, NULL, "%s: %s", what, strerror(errno));
}

static int step_session(struct cb_jail *jail, struct cb_err *err)
{
	(void)jail;
	/* this one must outlive the broker's sudden death, to kill the rest: no death signal. */
	if (setsid() < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		return failed(err, "session", "a session of its own");
	(void)syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
	return 0;
}

/* The bounding set and securebits first: they take a capability that goes with uid 0. */
static int step_rights(struct cb_jail *jail, struct cb_err *err)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2] = { 0 }, none[2] = { 0 };
	uid_t uid = jail->host_uid;

	if (syscall(SYS_capget, &head, caps) < 0)
		return failed(err, "capabilities", "reading them");
	if (caps[0].effective & (1u << CAP_SETPCAP)) {
		for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
			(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
		(void)prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_KEEP_CAPS_LOCKED, 0, 0, 0);
	}
	if (jail->from_root && cb_become(uid) < 0)
		return failed(err, "capabilities", "root can't be left");
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capset, &head, none) < 0)
		return failed(err, "capabilities", "they can't be given up");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return failed(err, "capabilities", "no_new_privs can't be set");
	if (jail->workspace_fd >= 0 && jail->spec->workspace_mode == CB_WORKSPACE_RW &&
	    cb_may_write(jail->workspace_fd) < 0) {
		jail->workspace_ro = true;
		cb_jail_add_note(jail, "workspace: read-only, since its owner is another user");
	}
	return 0;
}

const struct cb_step cb_without_namespaces_steps[] = {
	{ "session", "its own session and keyring; orphans come to pid 1, which kills them at its end", step_session },
	{ "limits", "memory, open files and file sizes of each process are bounded", cb_step_limits },
	{ "capabilities", "no capability is left, no program gives new rights; started by root, a uid of its own",
	  step_rights },
};
const size_t cb_without_namespaces_steps_count = CB_COUNT(cb_without_namespaces_steps);

/* ---- the guest's process ---- */

/* What is not there, or not to be entered by this user, needs no rule. */
static void add(struct cb_landlock_wall *wall, const char *path, unsigned rights)
{
	cb_landlock_add(wall, open(path, O_PATH | O_CLOEXEC), rights);
}

static void add_system(struct cb_landlock_wall *wall)
{
	static const char *const more[] = {
		"/etc/passwd",	"/etc/group",	 "/etc/nsswitch.conf", "/etc/hosts",   "/etc/resolv.conf",
		"/proc/self",	"/proc/cpuinfo", "/proc/meminfo",      "/proc/stat",   "/proc/loadavg",
		"/proc/uptime", "/proc/version", "/proc/filesystems",  "/proc/mounts", "/sys/devices/system/cpu",
	};
	char path[PATH_MAX];

	for (size_t i = 0; i < cb_root_system_count; i++) {
		snprintf(path, sizeof(path), "/%s", cb_root_system[i].path);
		add(wall, path, CB_LANDLOCK_READ);
	}
	for (size_t i = 0; i < cb_root_etc_count; i++) {
		snprintf(path, sizeof(path), "/%s", cb_root_etc[i].path);
		add(wall, path, CB_LANDLOCK_READ);
	}
	for (size_t i = 0; i < CB_COUNT(more); i++)
		add(wall, more[i], CB_LANDLOCK_READ);
	for (size_t i = 0; i < cb_dev_nodes_count; i++) {
		snprintf(path, sizeof(path), "/dev/%s", cb_dev_nodes[i].name);
		add(wall, path, CB_LANDLOCK_READ | CB_LANDLOCK_DEVICES);
	}
}

static int enclose_files(const struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;
	struct cb_landlock_wall wall = { .n = 0 };
	bool writable = spec->workspace_mode == CB_WORKSPACE_RW;

	add_system(&wall);
	if (jail->from_root) /* its uid keeps it from others' shared memory; else that would be the user's own */
		add(&wall, SHARED, CB_LANDLOCK_READ | CB_LANDLOCK_WRITE);
	add(&wall, jail->host_folder, CB_LANDLOCK_READ | CB_LANDLOCK_WRITE);
	if (jail->workspace_fd >= 0)
		cb_landlock_add(&wall, fcntl(jail->workspace_fd, F_DUPFD_CLOEXEC, 0),
				CB_LANDLOCK_READ | (writable ? CB_LANDLOCK_WRITE : 0));
	for (size_t i = 0; i < spec->nbinds; i++) {
		int fd = -1; /* a link that has come since the start leads nowhere */

		(void)cb_open_nolinks(AT_FDCWD, spec->binds[i].source, O_PATH, &fd);
		cb_landlock_add(&wall, fd,
				CB_LANDLOCK_READ | (spec->binds[i].mode == CB_BIND_RW ? CB_LANDLOCK_WRITE : 0));
	}
	cb_landlock_add_output(&wall, STDOUT_FILENO);
	cb_landlock_add_output(&wall, STDERR_FILENO);
	return cb_landlock_enclose(&wall, cb_landlock_version(), err);
}

int cb_without_namespaces_enclose(const struct cb_jail *jail, struct cb_err *err)
{
	int r = 0;

	if (jail->level == CB_LEVEL_CONTAINER)
		r = enclose_files(jail, err);
	if (r == 0 && jail->filter.len > 0)
		r = cb_seccomp_load_no_sockets(jail->spec->network == CB_NETWORK_FULL, err);
	if (r == 0 && jail->filter.len > 0)
		r = cb_seccomp_load(&jail->filter, err);
	return r == 0 && jail->filter.len > 0 ? cb_seccomp_load_last(err) : r;
}
