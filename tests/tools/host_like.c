/* Starts a program as if on another host: host-like KIND PROGRAM [ARG]…
 *
 * docker      what Docker's default profile leaves: a filter that answers EPERM to namespaces, mounts and the other
 *             calls of `docker_refused`, ENOSYS to clone3, EAFNOSUPPORT to odd socket families; and its capabilities
 *
 * docker-old  the same on a kernel without Landlock
 *
 * no-landlock a kernel without Landlock alone
 *
 * capless     root with a container's capabilities, CAP_SYS_ADMIN not among them
 *
 * apparmor    what Ubuntu 24.04 leaves in a user namespace of an unconfined program: it can be made, but has no
 *             capabilities, so all that they are needed for is EPERM
 *
 * old-proc    parts of /proc covered, as in Podman's default, so that the kernel gives no new /proc
 *
 * hidepid     /proc hides other users' processes, and there are no rights to look into others
 *
 * no-userns   a user namespace whose sysctl user.max_user_namespaces is 0
 *
 * no-cgroup   root that finds no control groups
 *
 * short       the same in a container whose memory is used up
 *
 * no-filter   no program can put itself under a filter, as under gVisor, and no namespaces
 *
 * no-load     a machine without memory for another filter: none can be loaded but those that notify
 *
 * no-notifier a kernel that hands no calls to another process, as before Linux 5.0
 *
 * old-access  a kernel without faccessat2, as before Linux 5.8; a C library before glibc 2.33 does not know it either
 *
 * no-watch    a kernel that tells no ordinary user's program what changes in its file systems, as before Linux 6.16
 *
 * A list of refusals of our own making, not a copy of anybody's profile. Nothing outside of the program is changed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what)
{
	fprintf(stderr, "host-like: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void must(int r, const char *what)
{
	if (r < 0) {
		if (r != -1)
			errno = -r;
		die(what);
	}
}

/* ---- capabilities ---- */

#define BIT(cap) (1ull << (cap))
#define CONTAINER_CAPS                                                                                                 \
	(BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FSETID) | BIT(CAP_FOWNER) | BIT(CAP_SETGID) |                \
	 BIT(CAP_SETUID) | BIT(CAP_SETPCAP) | BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_KILL) | BIT(CAP_SYS_CHROOT) |        \
	 BIT(CAP_SETFCAP))
#define DOCKER_CAPS (CONTAINER_CAPS | BIT(CAP_MKNOD) | BIT(CAP_NET_RAW) | BIT(CAP_AUDIT_WRITE))

static void keep_caps(unsigned long long kept)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];

	must((int)syscall(SYS_capget, &head, caps), "capget");
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!(kept & BIT(cap)))
			(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0); /* an ordinary user may not, and has none */
	for (int i = 0; i < 2; i++) {
		__u32 mask = (__u32)(kept >> (32 * i));

		caps[i].effective &= mask;
		caps[i].permitted &= mask;
		caps[i].inheritable = 0;
	}
	must((int)syscall(SYS_capset, &head, caps), "capset");
}

/* ---- filters ---- */

static void refuse(scmp_filter_ctx filter, const int *calls, size_t n, int error)
{
	for (size_t i = 0; i < n; i++)
		if (calls[i] >= 0)
			must(seccomp_rule_add(filter, SCMP_ACT_ERRNO((unsigned)error), calls[i], 0), "rule");
}

static scmp_filter_ctx new_filter(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

	if (filter == NULL)
		die("filter");
	return filter;
}

static void load(scmp_filter_ctx filter)
{
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
	must(seccomp_load(filter), "filter");
	seccomp_release(filter);
}

#define CALLS(name, ...) static const int name[] = { __VA_ARGS__ }
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define SYS(call) SCMP_SYS(call)

CALLS(mount_calls, SYS(mount), SYS(umount2), SYS(pivot_root), SYS(fsopen), SYS(fsconfig), SYS(fsmount), SYS(fspick),
	SYS(open_tree), SYS(move_mount), SYS(mount_setattr));
CALLS(docker_refused, SYS(unshare), SYS(setns), SYS(keyctl), SYS(add_key), SYS(request_key), SYS(bpf),
	SYS(perf_event_open), SYS(userfaultfd), SYS(open_by_handle_at), SYS(name_to_handle_at), SYS(kexec_load),
	SYS(kexec_file_load), SYS(init_module), SYS(finit_module), SYS(delete_module), SYS(reboot), SYS(swapon),
	SYS(swapoff), SYS(acct), SYS(quotactl), SYS(settimeofday), SYS(clock_settime), SYS(iopl), SYS(ioperm),
	SYS(io_uring_setup), SYS(io_uring_enter), SYS(io_uring_register), SYS(sethostname), SYS(setdomainname),
	SYS(syslog), SYS(vhangup), SYS(lookup_dcookie), SYS(fanotify_init), SYS(kcmp));
CALLS(caps_of_userns, SYS(sethostname), SYS(setdomainname), SYS(chroot));

static const unsigned long namespace_flags[] = { CLONE_NEWNS,  CLONE_NEWUTS, CLONE_NEWIPC,   CLONE_NEWUSER,
						 CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP };

static void as_docker(void)
{
	static const int families[] = { AF_ALG, AF_VSOCK };
	scmp_filter_ctx filter = new_filter();

	keep_caps(DOCKER_CAPS);
	refuse(filter, mount_calls, COUNT(mount_calls), EPERM);
	refuse(filter, docker_refused, COUNT(docker_refused), EPERM);
	for (size_t i = 0; i < COUNT(namespace_flags); i++)
		must(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, namespace_flags[i], namespace_flags[i])),
		     "clone");
	for (size_t i = 0; i < COUNT(families); i++)
		must(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
				      SCMP_A0(SCMP_CMP_EQ, (unsigned)families[i])),
		     "socket");
	must(seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0), "clone3");
	load(filter);
}

static void without_landlock(void)
{
	scmp_filter_ctx filter = new_filter();

	refuse(filter, (const int[]){ 444 }, 1, ENOSYS); /* landlock_create_ruleset, on all machines */
	load(filter);
}

static void as_docker_without_landlock(void)
{
	without_landlock();
	as_docker();
}

static void as_container_root(void)
{
	keep_caps(DOCKER_CAPS);
}

static void as_apparmor(void)
{
	scmp_filter_ctx filter = new_filter();

	keep_caps(CONTAINER_CAPS);
	refuse(filter, mount_calls, COUNT(mount_calls), EPERM);
	refuse(filter, caps_of_userns, COUNT(caps_of_userns), EPERM);
	load(filter);
}

static void without_filters(void)
{
	scmp_filter_ctx filter = new_filter();

	refuse(filter, (const int[]){ SYS(seccomp) }, 1, ENOSYS);
	refuse(filter, (const int[]){ SYS(unshare) }, 1, EPERM);
	for (size_t i = 0; i < COUNT(namespace_flags); i++)
		must(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, namespace_flags[i], namespace_flags[i])),
		     "clone");
	load(filter);
}

static void without_memory_for_filters(void)
{
	scmp_filter_ctx filter = new_filter();

	must(seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOMEM), SCMP_SYS(seccomp), 2,
			      SCMP_A0(SCMP_CMP_EQ, SECCOMP_SET_MODE_FILTER),
			      SCMP_A1(SCMP_CMP_MASKED_EQ, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0)),
	     "seccomp");
	load(filter);
}

static void without_notifications(void)
{
	scmp_filter_ctx filter = new_filter();

	must(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(seccomp), 1,
			      SCMP_A1(SCMP_CMP_MASKED_EQ, SECCOMP_FILTER_FLAG_NEW_LISTENER,
				      SECCOMP_FILTER_FLAG_NEW_LISTENER)),
	     "seccomp");
	load(filter);
}

static void without_faccessat2(void)
{
	scmp_filter_ctx filter = new_filter();

	refuse(filter, (const int[]){ SYS_faccessat2 }, 1, ENOSYS); /* libseccomp may be too old for its name */
	load(filter);
}

static void without_watches(void)
{
	scmp_filter_ctx filter = new_filter();

	must(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(fanotify_init), 0), "fanotify_init");
	load(filter);
}

/* ---- namespaces ---- */

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		die(path);
	(void)close(fd);
}

/* Root keeps all ids: only a process outside, the child here, may map more than one. */
static void map_all(int more)
{
	char uids[64], gids[64], byte;
	int ready[2], status;
	pid_t pid;

	snprintf(uids, sizeof(uids), "/proc/%d/uid_map", (int)getpid());
	snprintf(gids, sizeof(gids), "/proc/%d/gid_map", (int)getpid());
	must(pipe(ready), "pipe");
	pid = fork();
	if (pid == 0) {
		(void)close(ready[1]);
		(void)!read(ready[0], &byte, 1);
		write_file(uids, "0 0 4294967295");
		write_file(gids, "0 0 4294967295");
		_exit(0);
	}
	must(unshare(CLONE_NEWUSER | more), "unshare");
	(void)close(ready[1]);
	(void)close(ready[0]);
	if (waitpid(pid, &status, 0) != pid || status != 0)
		die("maps");
}

/* An ordinary user is root inside: what `unshare --map-root-user` does. */
static void own_userns(int more)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char line[64];

	if (uid == 0) {
		map_all(more);
		return;
	}
	must(unshare(CLONE_NEWUSER | more), "unshare");
	write_file("/proc/self/setgroups", "deny");
	snprintf(line, sizeof(line), "0 %u 1", uid);
	write_file("/proc/self/uid_map", line);
	snprintf(line, sizeof(line), "0 %u 1", gid);
	write_file("/proc/self/gid_map", line);
}

/* The next mount whose type begins so; false: there is none. */
static bool next_mount(FILE *table, const char *kind, char ret_point[4096])
{
	char line[8192];

	while (fgets(line, sizeof(line), table) != NULL) {
		const char *at = strstr(line, " - ");

		if (at != NULL && strncmp(at + 3, kind, strlen(kind)) == 0 &&
		    sscanf(line, "%*d %*d %*s %*s %4095s", ret_point) == 1)
			return true;
	}
	return false;
}

static FILE *mounts(void)
{
	FILE *table = fopen("/proc/self/mountinfo", "re");

	if (table == NULL)
		die("mountinfo");
	return table;
}

/* A chroot's, for example: the kernel would give a new one for its sake. */
static void cover_other_procs(void)
{
	char point[4096];
	FILE *table = mounts();

	while (next_mount(table, "proc ", point))
		if (strcmp(point, "/proc") != 0 && access(point, F_OK) == 0)
			must(mount("tmpfs", point, "tmpfs", MS_RDONLY, NULL), point);
	fclose(table);
}

static void with_old_proc(void)
{
	static const char *const folders[] = { "/proc/scsi", "/proc/acpi", "/proc/bus", "/proc/fs" };
	size_t i = 0;

	own_userns(CLONE_NEWNS);
	must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
	while (i + 1 < COUNT(folders) && access(folders[i], F_OK) < 0)
		i++;
	must(mount("tmpfs", folders[i], "tmpfs", MS_RDONLY, NULL), folders[i]);
	must(mount("/dev/null", "/proc/timer_list", NULL, MS_BIND, NULL), "/proc/timer_list");
	cover_other_procs();
	keep_caps(CONTAINER_CAPS);
}

/* A /proc of our own takes process numbers of our own. */
static void with_hidden_processes(void)
{
	int status = 0;
	pid_t pid;

	own_userns(CLONE_NEWNS | CLONE_NEWPID);
	must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
	pid = fork();
	must(pid, "fork");
	if (pid > 0) {
		must(waitpid(pid, &status, 0), "waitpid");
		exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
	}
	must(mount("proc", "/proc", "proc", 0, "hidepid=1"), "/proc");
	keep_caps(CONTAINER_CAPS);
}

static void without_userns(void)
{
	own_userns(0);
	write_file("/proc/sys/user/max_user_namespaces", "0");
}

/* Each is taken away where it is mounted; what is mounted below it first. */
static void without_cgroups(void)
{
	char point[4096];
	bool found = true;

	must(unshare(CLONE_NEWNS), "unshare");
	must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
	while (found) {
		FILE *table = mounts();

		found = next_mount(table, "cgroup", point);
		fclose(table);
		if (found)
			must(umount2(point, MNT_DETACH), point);
	}
}

static void put_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0)
		die(path);
}

static void in_short_container(void)
{
	without_cgroups();
	must(mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, NULL), "/sys/fs/cgroup");
	put_file("/sys/fs/cgroup/memory.max", "1073741824\n");
	put_file("/sys/fs/cgroup/memory.current", "1073000000\n");
	put_file("/sys/fs/cgroup/memory.stat", "anon 1000000000\nactive_file 0\ninactive_file 4096\n");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*become)(void);
	} kinds[] = { { "docker", as_docker },		{ "docker-old", as_docker_without_landlock },
		      { "capless", as_container_root }, { "apparmor", as_apparmor },
		      { "old-proc", with_old_proc },	{ "no-userns", without_userns },
		      { "hidepid", with_hidden_processes },
		      { "no-cgroup", without_cgroups }, { "short", in_short_container },
		      { "no-filter", without_filters },	{ "no-load", without_memory_for_filters },
		      { "no-notifier", without_notifications }, { "old-access", without_faccessat2 },
		      { "no-watch", without_watches },	{ "no-landlock", without_landlock } };

	for (size_t i = 0; argc > 2 && i < COUNT(kinds); i++) {
		if (strcmp(argv[1], kinds[i].name) != 0)
			continue;
		kinds[i].become();
		execvp(argv[2], argv + 2);
		die(argv[2]);
	}
	fprintf(stderr,
		"usage: host-like docker|docker-old|capless|apparmor|old-proc|hidepid|no-userns|no-cgroup|short|"
		"no-filter|no-load|no-notifier|old-access|no-watch|no-landlock "
		"PROGRAM [ARG]...\n");
	return 2;
}
