/* /dev: the few devices that programs need, bound from the host, and terminals of the jail's own. Also /tmp, home and
 * /dev/shm.
 *
 * Trust domain: pid 1. Invariants: a device is bound only after its numbers were checked (a replaced /dev/null once
 * gave containers other files); terminals come from a new instance of devpts, so that none of the host is reachable;
 * every tmpfs is limited in bytes and inodes.
 */
#include "../shared/jail.h"
#include "../shared/mounts.h"
#include "root.h"
#include "rootfs.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>

const struct cb_device cb_dev_nodes[] = {
	{ "null", 1, 3 }, { "zero", 1, 5 }, { "full", 1, 7 }, { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 },
};
const size_t cb_dev_nodes_count = CB_COUNT(cb_dev_nodes);

static const struct {
	const char *path, *target;
} dev_links[] = {
	{ "dev/fd", "/proc/self/fd" },	     { "dev/stdin", "/proc/self/fd/0" }, { "dev/stdout", "/proc/self/fd/1" },
	{ "dev/stderr", "/proc/self/fd/2" }, { "dev/ptmx", "pts/ptmx" },
};

int cb_dev_open(const struct cb_device *device, int *ret_fd)
{
	char path[32];
	struct stat st;
	CB_AUTO_FD fd = -1;

	snprintf(path, sizeof(path), "/dev/%s", device->name);
	fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(device->major, device->minor))
		return CB_E_DENIED;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

static int show_device(const struct cb_device *device)
{
	CB_AUTO_FD host = -1;
	char path[32];
	int r = cb_dev_open(device, &host);

	snprintf(path, sizeof(path), "dev/%s", device->name);
	if (r == 0 && mknod(path, S_IFREG | 0644, 0) < 0)
		r = -errno;
	/* Read-only keeps mode and times; reading and writing of the device itself are not touched by it. */
	return r < 0 ? r : cb_mnt_bind_at(host, "", CB_RO | CB_NOSUID | CB_NOEXEC, path);
}

/* By path: up to here there is nothing in the new root but our own folders. */
static int mount_at(int mnt, const char *path)
{
	path += strspn(path, "/");
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return -errno;
	return cb_mnt_attach_at(mnt, path);
}

static int new_terminals(void)
{
	static const struct cb_mnt_option options[] = {
		{ "newinstance", NULL },
		{ "ptmxmode", "0666" },
		{ "mode", "0620" },
		{ "max", "256" },
	};
	CB_AUTO_FD mnt = -1;
	int r = cb_mnt_new("devpts", options, CB_COUNT(options), CB_NOSUID | CB_NOEXEC, &mnt);

	return r < 0 ? r : mount_at(mnt, "dev/pts");
}

int cb_step_dev(struct cb_jail *jail, struct cb_err *err)
{
	CB_AUTO_FD mnt = -1;
	int r = cb_mnt_tmpfs(1u << 16, 64, "0755", CB_NOSUID | CB_NOEXEC, &mnt);

	(void)jail;
	if (r == 0)
		r = mount_at(mnt, "dev");
	if (r == 0)
		r = cb_own_add(mnt);
	if (r < 0)
		return cb_mnt_fail(err, r, "dev", "a tmpfs for /dev");
	for (size_t i = 0; i < cb_dev_nodes_count; i++) {
		r = show_device(&cb_dev_nodes[i]);
		if (r < 0)
			return cb_mnt_fail(err, r, "dev", cb_dev_nodes[i].name);
	}
	for (size_t i = 0; i < CB_COUNT(dev_links); i++)
		if (symlink(dev_links[i].target, dev_links[i].path) < 0)
			return cb_mnt_fail(err, -errno, "dev", dev_links[i].path);
	r = new_terminals();
	return r < 0 ? cb_mnt_fail(err, r, "dev", "new terminals (devpts)") : 0;
}

static int limited_tmpfs(const char *path, uint64_t bytes, uint64_t inodes, const char *mode, uint64_t attrs)
{
	CB_AUTO_FD mnt = -1;
	int r = cb_mnt_tmpfs(bytes, inodes, mode, CB_NOSUID | CB_NODEV | attrs, &mnt);

	if (r == 0)
		r = mount_at(mnt, path);
	return r < 0 ? r : cb_own_add(mnt);
}

int cb_step_tmpfs(struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;
	int r = limited_tmpfs("tmp", spec->limit_tmp, spec->limit_inodes, "1777", 0);

	if (r < 0)
		return cb_mnt_fail(err, r, "tmpfs", "/tmp");
	r = cb_parents_var_tmp(spec);
	if (r < 0)
		return cb_mnt_fail(err, r, "tmpfs", "/var/tmp");
	r = limited_tmpfs(CB_JAIL_HOME, spec->limit_tmp, spec->limit_inodes, "0700", 0);
	if (r < 0)
		return cb_mnt_fail(err, r, "tmpfs", CB_JAIL_HOME);
	r = limited_tmpfs("dev/shm", spec->limit_shm, spec->limit_inodes, "1777", CB_NOEXEC);
	if (r < 0)
		return cb_mnt_fail(err, r, "tmpfs", "/dev/shm");
	r = cb_parents_make(spec);
	return r < 0 ? cb_mnt_fail(err, r, "tmpfs", "the folders above the workspace") : 0;
}
