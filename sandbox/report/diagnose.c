/* From a failed step to its cause on this host and the cure.
 *
 * Trust domain: broker, after a launch has failed; doctor. Reads a few files of /proc, runs nothing. A step's own cure
 * is kept where the facts of the host explain nothing better. Causes are looked for in the order of the table `causes`:
 * the first that holds is named.
 */
#include "diagnose.h"

#include "apparmor.h"

#include <cellblock/fd.h>
#include <cellblock/proc_stat.h>
#include <cellblock/sandbox.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static long read_number(const char *path)
{
	char text[32], *end;
	long value;

	(void)cb_proc_text(AT_FDCWD, path, text, sizeof(text));
	value = strtol(text, &end, 10);
	return end == text ? -1 : value;
}

static char *read_text(const char *path)
{
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text = NULL;
	size_t len;

	return fd >= 0 && cb_fd_read_all(fd, 1u << 20, &text, &len) == 0 ? text : NULL;
}

static int own_seccomp_mode(void)
{
	char *text = read_text("/proc/self/status");
	int mode = text != NULL ? (int)cb_proc_number(text, "\nSeccomp:", 10, 0) : 0;

	free(text);
	return mode;
}

/* The fifth field of a line of mountinfo is the mount point. */
static bool proc_is_masked(void)
{
	char *text = read_text("/proc/self/mountinfo");
	bool masked = text != NULL && strstr(text, " /proc/") != NULL;

	free(text);
	return masked;
}

static bool in_container(void)
{
	char *text = read_text("/proc/1/cgroup");
	bool found = access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
		     getenv("KUBERNETES_SERVICE_HOST") != NULL || getenv("container") != NULL;

	if (text != NULL)
		found = found || strstr(text, "docker") != NULL || strstr(text, "kubepods") != NULL ||
			strstr(text, "lxc") != NULL;
	free(text);
	return found;
}

static bool has_sys_admin(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2] = { 0 };

	return syscall(SYS_capget, &head, caps) == 0 && (caps[0].effective & (1u << CAP_SYS_ADMIN)) != 0;
}

/* The name of the profile, without its mode: "docker-default (enforce)". An "(unconfined)" one restricts nothing. */
static bool read_label(const char *process, char *label, size_t size)
{
	char path[64];
	char *text;
	bool there;

	snprintf(path, sizeof(path), "/proc/%s/attr/apparmor/current", process);
	text = read_text(path);
	if (text == NULL) {
		snprintf(path, sizeof(path), "/proc/%s/attr/current", process);
		text = read_text(path);
	}
	there = text != NULL;
	snprintf(label, size, "%.*s", there ? (int)strcspn(text, " \n") : 0, there ? text : "");
	if (strcmp(label, "unconfined") == 0 || (there && strstr(text, " (unconfined)") != NULL))
		label[0] = '\0';
	free(text);
	return there;
}

/* A container's or a service's profile is also that of who started us. */
static bool label_is_own(const char *label)
{
	char parent[16], other[128];

	snprintf(parent, sizeof(parent), "%d", (int)getppid());
	return label[0] != '\0' && read_label(parent, other, sizeof(other)) && strcmp(label, other) != 0;
}

void cb_host_facts_read(struct cb_host_facts *ret_facts)
{
	struct utsname uts;
	struct cb_host_facts f = {
		.max_user_namespaces = read_number("/proc/sys/user/max_user_namespaces"),
		.unprivileged_userns = read_number("/proc/sys/kernel/unprivileged_userns_clone"),
		.apparmor_userns = read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
		.seccomp = own_seccomp_mode(),
		.proc_masked = proc_is_masked(),
		.container = in_container(),
		.root = cb_is_host_root(),
		.sys_admin = has_sys_admin(),
	};

	if (uname(&uts) == 0)
		(void)sscanf(uts.release, "%d.%d", &f.kernel_major, &f.kernel_minor);
	(void)read_label("self", f.label, sizeof(f.label));
	f.label_is_own = label_is_own(f.label);
	if (readlink("/proc/self/exe", f.program, sizeof(f.program) - 1) < 0)
		f.program[0] = '\0';
	*ret_facts = f;
}

/* ---- causes ---- */

enum phase { NAMESPACES = 1, MAPS = 2, MOUNTS = 4, PROC = 8, FILTER = 16, WORKSPACE = 32, ANY = 63, NOTIFIER = 64 };

static enum phase phase_of(const char *step)
{
	static const struct {
		const char *step;
		enum phase phase;
	} known[] = {
		{ "namespaces", NAMESPACES },
		{ "user namespace", MAPS },
		{ "session", MAPS },
		{ "loopback", MAPS },
		{ "private mounts", MOUNTS },
		{ "new root", MOUNTS },
		{ "dev", MOUNTS },
		{ "proc", PROC },
		{ "tmpfs", MOUNTS },
		{ "binds", WORKSPACE },
		{ "pivot", MOUNTS },
		{ "workspace binds", WORKSPACE },
		{ "notifier", NOTIFIER },
		{ "workspace", WORKSPACE },
		{ "seccomp", FILTER },
		{ "capabilities", MAPS },
	};

	for (size_t i = 0; i < CB_COUNT(known); i++)
		if (strcmp(known[i].step, step) == 0)
			return known[i].phase;
	return 0;
}

static bool is_permission(int code)
{
	return code == -EPERM || code == -EACCES;
}

static bool no_userns_left(const struct cb_host_facts *f, int code)
{
	return code == -ENOSPC && f->max_user_namespaces == 0;
}

static bool too_many_namespaces(const struct cb_host_facts *f, int code)
{
	return code == -ENOSPC && f->max_user_namespaces != 0;
}

static bool nested_too_deep(const struct cb_host_facts *f, int code)
{
	(void)f;
	return code == -EUSERS;
}

static bool unprivileged_denied(const struct cb_host_facts *f, int code)
{
	return is_permission(code) && f->unprivileged_userns == 0 && !f->root;
}

/* It concerns programs without a profile. A container has one, and shows its host's setting. */
static bool apparmor_denies(const struct cb_host_facts *f, int code)
{
	return is_permission(code) && f->apparmor_userns == 1 && !f->root && f->label[0] == '\0';
}

/* To a new namespace it says EACCES; EPERM is a filter's, where there is one. */
static bool apparmor_denies_new(const struct cb_host_facts *f, int code)
{
	return apparmor_denies(f, code) && (code == -EACCES || f->seccomp != 2);
}

static bool own_profile_denies(const struct cb_host_facts *f, int code)
{
	return is_permission(code) && f->label_is_own;
}

/* A filter answers EPERM. */
static bool profile_denies(const struct cb_host_facts *f, int code)
{
	return code == -EACCES && f->label[0] != '\0';
}

static bool filter_denies(const struct cb_host_facts *f, int code)
{
	return (is_permission(code) || code == -ENOSYS) && f->seccomp == 2;
}

static bool masked_proc(const struct cb_host_facts *f, int code)
{
	return is_permission(code) && f->proc_masked;
}

static bool container_denies(const struct cb_host_facts *f, int code)
{
	return is_permission(code) && f->container;
}

static bool container_root(const struct cb_host_facts *f, int code)
{
	return is_permission(code) && f->root && !f->sys_admin;
}

static bool userns_is_absent(const struct cb_host_facts *f, int code)
{
	return code == -EINVAL && f->max_user_namespaces < 0;
}

static bool too_old(const struct cb_host_facts *f, int code)
{
	return code == -ENOSYS && (f->kernel_major < 5 || (f->kernel_major == 5 && f->kernel_minor < 12));
}

static bool out_of_processes(const struct cb_host_facts *f, int code)
{
	(void)f;
	return code == -EAGAIN;
}

static bool no_notifications(const struct cb_host_facts *f, int code)
{
	(void)f;
	return code == -EINVAL || code == -ENOSYS || code == -EBUSY || code == CB_E_DENIED;
}

/* At once, and for good. */
#define SYSCTL(setting)                                                                                                \
	"sudo sysctl -w " setting " && echo " setting " | sudo tee /etc/sysctl.d/60-cellblock.conf"
#define APPARMOR_USERNS                                                                                                \
	"AppArmor takes rights away in user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1)"

static const struct {
	int phases;
	bool (*holds)(const struct cb_host_facts *f, int code);
	const char *cause, *cure; /* cure NULL: the command that loads a profile for this program */
} causes[] = {
	{ NAMESPACES, no_userns_left, "the sysctl user.max_user_namespaces is 0",
	  SYSCTL("user.max_user_namespaces=15000") },
	{ NAMESPACES, too_many_namespaces, "this user has as many namespaces as a sysctl user.max_*_namespaces allows",
	  "end kernels that are not in use, or raise the sysctls user.max_*_namespaces" },
	{ NAMESPACES, nested_too_deep, "user namespaces are nested 32 deep",
	  "start the kernel outside of other sandboxes" },
	{ NAMESPACES, userns_is_absent, "this kernel was built without user namespaces",
	  "use a kernel with CONFIG_USER_NS" },
	{ NAMESPACES, out_of_processes, "this user's limit of processes is reached",
	  "end some processes, or raise the limit (ulimit -u)" },
	{ NAMESPACES | MAPS, unprivileged_denied, "the sysctl kernel.unprivileged_userns_clone is 0",
	  SYSCTL("kernel.unprivileged_userns_clone=1") },
	{ NAMESPACES, apparmor_denies_new, APPARMOR_USERNS, NULL },
	{ MAPS | MOUNTS | PROC | WORKSPACE, apparmor_denies, APPARMOR_USERNS, NULL },
	{ NAMESPACES | MAPS | MOUNTS | PROC | WORKSPACE, own_profile_denies,
	  "an AppArmor profile that the host has for this program takes the right to it", NULL },
	{ ANY, profile_denies, "the AppArmor profile that Cellblock was started under refuses it",
	  "start the container without that profile: docker run --security-opt apparmor=unconfined, Kubernetes "
	  "appArmorProfile type Unconfined; a service without AppArmorProfile=" },
	{ NOTIFIER, no_notifications, "no process can serve another's calls here",
	  "use Linux 5.14 or newer, outside of sandboxes that listen to seccomp notifications themselves; or set "
	  "workspace.mode to \"overlay\", \"ro\" or \"tmpfs\"" },
	{ MOUNTS | PROC, too_old, "mounting by file descriptor needs Linux 5.12", "use a newer kernel" },
	{ WORKSPACE, container_root,
	  "root here lacks CAP_SYS_ADMIN, as in a container, and can lend the jail no folder",
	  "start the kernel as an ordinary user (docker run --user), or give the container that capability" },
	{ PROC, masked_proc, "parts of /proc are masked here, and the kernel gives no new /proc beside a masked one",
	  "start the container with unmasked /proc: docker run --security-opt systempaths=unconfined, podman run "
	  "--security-opt unmask=ALL, Kubernetes procMount: Unmasked" },
	{ ANY & ~PROC, filter_denies,
	  "a seccomp filter of the container or service that Cellblock was started in refuses it",
	  "start the container with a filter that allows unshare, clone with new namespaces and mounts: docker run "
	  "--security-opt seccomp=unconfined (or a profile of your own; where the host has AppArmor also "
	  "--security-opt apparmor=unconfined), for systemd RestrictNamespaces=no" },
	{ ANY, container_denies, "the container that Cellblock was started in forbids it",
	  "give the container the right to make user namespaces, or start Cellblock outside of it" },
};

void cb_diagnose_by(const struct cb_host_facts *facts, const char *step, int code, struct cb_err *err)
{
	int phase = (int)phase_of(step);

	for (size_t i = 0; i < CB_COUNT(causes); i++) {
		struct cb_err old = *err;
		char profile[CB_APPARMOR_CURE_MAX];

		if (!(causes[i].phases & phase) || !causes[i].holds(facts, code))
			continue;
		cb_apparmor_cure(facts->program, profile);
		cb_err_set(err, code, step, causes[i].cure != NULL ? causes[i].cure : profile, "%s%s%s", old.text,
			   old.text[0] != '\0' ? ": " : "", causes[i].cause);
		return;
	}
	if (err->cure[0] == '\0')
		cb_err_set(err, code, step, "see what `cellblock doctor` says about this host", "%s",
			   err->text[0] != '\0' ? err->text : strerror(-code));
}

void cb_diagnose(const char *step, int code, struct cb_err *err)
{
	char name[sizeof(err->step)];
	struct cb_host_facts facts;

	/* `step` may be err->step, which is written. */
	snprintf(name, sizeof(name), "%s", step);
	cb_host_facts_read(&facts);
	cb_diagnose_by(&facts, name, code, err);
}
