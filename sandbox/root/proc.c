/* /proc of the jail's own pid namespace: what writes to the kernel is read-only, what speaks of the host is masked.
 *
 * Trust domain: pid 1. Read-only without any test for writability: files of /proc/sys belong to uid 0, and access(2)
 * says "not writable" of the folder though a jail that maps host uid 0 may write the files in it. The jail never maps
 * uid 0 either; each wall stands alone.
 *
 * Containers often cover parts of their /proc, and the kernel then gives nobody in them a new one. The jail does
 * without: a few copied files, no processes. No wall is lower for that, only some programs miss it.
 */
#include "../shared/jail.h"
#include "../shared/mounts.h"
#include "root.h"
#include "rootfs.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define STEP "proc"
#define FLAGS (CB_NOSUID | CB_NODEV | CB_NOEXEC)
#define SAFE (CB_RO | FLAGS)

/* In pressure whoever may write makes triggers, which the kernel looks after for the whole machine. */
const char *const cb_proc_read_only[] = { "sys",  "bus",	   "fs",      "irq", "sysrq-trigger",
					  "mtrr", "dynamic_debug", "pressure" };
const size_t cb_proc_read_only_count = CB_COUNT(cb_proc_read_only);

const char *const cb_proc_masked[] = {
	"acpi",	      "asound",	       "cmdline",    "driver",	    "interrupts",   "iomem",	   "ioports",
	"kallsyms",   "kcore",	       "key-users",  "keys",	    "kmsg",	    "kpagecgroup", "kpagecount",
	"kpageflags", "latency_stats", "locks",	     "mdstat",	    "modules",	    "pagetypeinfo", "sched_debug",
	"scsi",	      "slabinfo",      "softirqs",   "timer_list",  "timer_stats",  "vmallocinfo",
};
const size_t cb_proc_masked_count = CB_COUNT(cb_proc_masked);

static int make_read_only(const char *name)
{
	char path[64];
	int r;

	snprintf(path, sizeof(path), "proc/%s", name);
	r = cb_mnt_bind_at(AT_FDCWD, path, SAFE, path);
	return r == -ENOENT ? 0 : r;
}

/* The sources of all masks: an empty folder and the null device. */
static int mask(const char *name, int empty, int null)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "proc/%s", name);
	if (fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(st.st_mode))
		return cb_mnt_bind_at(empty, "", SAFE, path);
	return cb_mnt_bind_at(null, "", CB_RO | CB_NOSUID | CB_NOEXEC, path);
}

static int copy(const char *name)
{
	char from[64], to[64], text[65536];
	CB_AUTO_FD fd = -1;
	ssize_t n;

	snprintf(from, sizeof(from), "/proc/%s", name);
	snprintf(to, sizeof(to), "proc/%s", name);
	fd = open(from, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text));
	return n <= 0 ? 0 : cb_place_write(to, text, (size_t)n);
}

/* The folder of this process, and none of its neighbours', from a /proc that is gone again. Where there can't be one it
 * is the host's: its threads have other numbers there than they know themselves by. */
static int clone_self(int *ret_fd)
{
	char path[64], number[32] = "";
	CB_AUTO_FD mnt = -1;
	int r = cb_mnt_new("proc", NULL, 0, FLAGS, &mnt);

	if (r == -EPERM && readlink("/proc/self", number, sizeof(number) - 1) > 0) {
		snprintf(path, sizeof(path), "/proc/%s", number);
		return cb_mnt_clone(AT_FDCWD, path, FLAGS, ret_fd);
	}
	if (r == 0)
		r = cb_mnt_attach_at(mnt, "proc");
	snprintf(path, sizeof(path), "proc/%d", (int)getpid());
	if (r == 0)
		r = cb_mnt_clone(AT_FDCWD, path, FLAGS, ret_fd);
	return r == 0 ? cb_mnt_detach("proc") : r;
}

static int show(int self)
{
	CB_AUTO_FD place = -1;
	int r = mkdir("proc/self", 0555) < 0 ? -errno : cb_place_open("proc/self", true, &place);

	return r == 0 ? cb_mnt_attach(self, place) : r;
}

/* `self`: a detached mount, or -1. */
static int make_folder(int self, struct cb_err *err)
{
	static const char *const copied[] = { "cpuinfo", "filesystems", "loadavg", "meminfo",
					      "stat",	 "uptime",	"version" };
	CB_AUTO_FD mnt = -1;
	CB_AUTO_FD place = -1;
	int r = cb_mnt_tmpfs(1u << 20, 64, "0555", FLAGS, &mnt);

	if (r == 0)
		r = cb_place_open("proc", true, &place);
	if (r == 0)
		r = cb_mnt_attach(mnt, place);
	if (r == 0)
		r = cb_own_add(mnt);
	for (size_t i = 0; i < CB_COUNT(copied) && r == 0; i++)
		r = copy(copied[i]);
	if (r == 0 && self >= 0)
		r = show(self);
	if (r == 0)
		r = cb_mnt_close("proc");
	return r < 0 ? cb_mnt_fail(err, r, STEP, "a folder in place of /proc") : 0;
}

int cb_step_proc_of_self(struct cb_jail *jail, struct cb_err *err)
{
	CB_AUTO_FD self = -1;
	int r = clone_self(&self);

	(void)jail;
	return r == 0 ? make_folder(self, err) : cb_mnt_fail(err, r, STEP, "the process's own folder of a new /proc");
}

static int without_proc(struct cb_jail *jail, struct cb_err *err)
{
	if (make_folder(-1, err) < 0)
		return err->code;
	cb_jail_add_note(jail,
			 "/proc: without processes, since this container covers parts of its own, so what reads it "
			 "(ps, psutil, /dev/stdin) fails; cure: podman run --security-opt unmask=ALL, docker run "
			 "--security-opt systempaths=unconfined");
	return 0;
}

int cb_step_proc(struct cb_jail *jail, struct cb_err *err)
{
	static const struct cb_mnt_option options[] = { { "hidepid", "2" } };
	CB_AUTO_FD mnt = -1;
	CB_AUTO_FD empty = -1;
	CB_AUTO_FD null = -1;
	CB_AUTO_FD place = -1;
	int r = cb_mnt_new("proc", options, 1, FLAGS, &mnt);

	if (r == -EPERM && jail != NULL)
		return without_proc(jail, err);
	if (r == 0)
		r = cb_place_open("proc", true, &place);
	if (r == 0)
		r = cb_mnt_attach(mnt, place);
	if (r < 0)
		return cb_mnt_fail(err, r, STEP, "a new /proc");
	for (size_t i = 0; i < cb_proc_read_only_count; i++) {
		r = make_read_only(cb_proc_read_only[i]);
		if (r < 0)
			return cb_mnt_fail(err, r, STEP, cb_proc_read_only[i]);
	}
	/* The source of empty folders. */
	r = cb_open_beneath(AT_FDCWD, "var/empty", O_PATH | O_DIRECTORY, &empty);
	if (r == 0)
		r = cb_dev_open(&cb_dev_nodes[0], &null);
	for (size_t i = 0; r == 0 && i < cb_proc_masked_count; i++)
		r = mask(cb_proc_masked[i], empty, null);
	return r < 0 ? cb_mnt_fail(err, r, STEP, "masking files of /proc") : 0;
}
