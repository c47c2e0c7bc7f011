/* Mounting by file descriptor, see mounts.h.
 *
 * Trust domain: broker and pid 1. The system calls are made by number: the C library's wrappers are newer than the
 * oldest library that we build with, and its header cannot be included beside the kernel's. Without this API (Linux
 * before 5.12, or a container's filter) no jail is built; report/diagnose.c says so.
 */
#include "mounts.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#define MAX_OWN 16
#define MIN_TMPFS_BYTES (64u << 10)
#define MIN_TMPFS_INODES 64u

/* File systems that pid 1 has made; pid 1 builds one jail and never another. */
static struct {
	dev_t dev[MAX_OWN];
	size_t n;
} own;

static int open_how(int dirfd, const char *path, int flags, uint64_t resolve, int *ret_fd)
{
	struct open_how how = { .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC), .resolve = resolve };
	long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

	if (fd < 0)
		return -errno;
	*ret_fd = (int)fd;
	return 0;
}

int cb_open_nolinks(int dirfd, const char *path, int flags, int *ret_fd)
{
	return open_how(dirfd, path, flags, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS, ret_fd);
}

int cb_open_beneath(int dirfd, const char *path, int flags, int *ret_fd)
{
	return open_how(dirfd, path, flags, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH, ret_fd);
}

int cb_may_write(int folder)
{
	long r = syscall(SYS_faccessat2, folder, ".", W_OK, AT_EACCESS);

	/* Unknown before Linux 5.8, and to older filters of containers, which say EPERM. The other one goes by the real
	 * ids, which are ours. */
	if (r < 0 && (errno == ENOSYS || errno == EPERM))
		r = syscall(SYS_faccessat, folder, ".", W_OK);
	return r < 0 && (errno == EACCES || errno == EPERM || errno == EROFS) ? -errno : 0;
}

/* A descriptor that needs no rights to what it names has no fchmod, so its name in /proc is used. */
int cb_unlock_entry(int dirfd, const char *name, mode_t type, mode_t rights)
{
	CB_AUTO_FD fd = -1;
	char path[64];
	struct stat st;
	int r = cb_open_beneath(dirfd, name, O_PATH | O_NOFOLLOW, &fd);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	if ((st.st_mode & S_IFMT) != type)
		return -ESTALE;
	if ((st.st_mode & rights) == rights)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return syscall(SYS_fchmodat, AT_FDCWD, path, (st.st_mode & 0777) | rights) < 0 ? -errno : 0;
}

int cb_open_in_root(int dirfd, const char *path, int flags, int *ret_fd)
{
	return open_how(dirfd, path, flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS, ret_fd);
}

static int set_attr(int dirfd, const char *path, unsigned flags, struct mount_attr *attr)
{
	if (syscall(SYS_mount_setattr, dirfd, path, flags | AT_EMPTY_PATH, attr, sizeof(*attr)) < 0)
		return -errno;
	return 0;
}

static int clone_mount(int dirfd, const char *path, uint64_t attrs, unsigned recursive, int *ret_fd)
{
	struct mount_attr attr = { .attr_set = attrs, .propagation = MS_PRIVATE };
	CB_AUTO_FD fd = -1;
	int r;

	fd = (int)syscall(SYS_open_tree, dirfd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | recursive);
	if (fd < 0)
		return -errno;
	r = set_attr(fd, "", AT_RECURSIVE, &attr);
	if (r < 0)
		return r;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

int cb_mnt_clone(int dirfd, const char *path, uint64_t attrs, int *ret_fd)
{
	return clone_mount(dirfd, path, attrs, AT_RECURSIVE, ret_fd);
}

int cb_mnt_clone_one(int dirfd, const char *path, uint64_t attrs, int *ret_fd)
{
	return clone_mount(dirfd, path, attrs, 0, ret_fd);
}

int cb_mnt_set(int dirfd, const char *path, uint64_t attrs)
{
	struct mount_attr attr = { .attr_set = attrs };

	return set_attr(dirfd, path, AT_RECURSIVE, &attr);
}

int cb_mnt_close(const char *path)
{
	struct mount_attr attr = { .attr_set = CB_RO };

	return set_attr(AT_FDCWD, path, 0, &attr);
}

int cb_mnt_idmap(int mnt_fd, int userns_fd, bool recursive)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)(unsigned)userns_fd };

	return set_attr(mnt_fd, "", recursive ? AT_RECURSIVE : 0, &attr);
}

int cb_mnt_attach(int mnt_fd, int place_fd)
{
	if (syscall(SYS_move_mount, mnt_fd, "", place_fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

int cb_mnt_attach_at(int mnt_fd, const char *path)
{
	if (syscall(SYS_move_mount, mnt_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

int cb_mnt_detach(const char *path)
{
	enum { DETACH = 2 }; /* MNT_DETACH, whose header collides with the kernel's */

	return syscall(SYS_umount2, path, DETACH) < 0 ? -errno : 0;
}

int cb_mnt_bind(int dirfd, const char *path, uint64_t attrs, int place_fd)
{
	CB_AUTO_FD mnt = -1;
	int r = cb_mnt_clone(dirfd, path, attrs, &mnt);

	return r < 0 ? r : cb_mnt_attach(mnt, place_fd);
}

int cb_mnt_bind_at(int dirfd, const char *path, uint64_t attrs, const char *place)
{
	CB_AUTO_FD mnt = -1;
	int r = cb_mnt_clone(dirfd, path, attrs, &mnt);

	return r < 0 ? r : cb_mnt_attach_at(mnt, place);
}

int cb_mnt_new(const char *type, const struct cb_mnt_option *options, size_t n, uint64_t attrs, int *ret_fd)
{
	CB_AUTO_FD fs = (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
	CB_AUTO_FD mnt = -1;

	if (fs < 0)
		return -errno;
	for (size_t i = 0; i < n; i++) {
		unsigned cmd = options[i].value != NULL ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;

		if (syscall(SYS_fsconfig, fs, cmd, options[i].key, options[i].value, 0) < 0)
			return -errno;
	}
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, (unsigned)attrs);
	if (mnt < 0)
		return -errno;
	*ret_fd = cb_fd_take(&mnt);
	return 0;
}

int cb_mnt_tmpfs(uint64_t bytes, uint64_t inodes, const char *mode, uint64_t attrs, int *ret_fd)
{
	char size[24], count[24];
	const struct cb_mnt_option options[] = { { "size", size }, { "nr_inodes", count }, { "mode", mode } };

	snprintf(size, sizeof(size), "%" PRIu64, bytes < MIN_TMPFS_BYTES ? MIN_TMPFS_BYTES : bytes);
	snprintf(count, sizeof(count), "%" PRIu64, inodes < MIN_TMPFS_INODES ? MIN_TMPFS_INODES : inodes);
	return cb_mnt_new("tmpfs", options, 3, attrs, ret_fd);
}

int cb_own_add(int fd)
{
	struct stat st;

	if (own.n == MAX_OWN)
		return CB_E_TOO_BIG;
	if (fstat(fd, &st) < 0)
		return -errno;
	own.dev[own.n++] = st.st_dev;
	return 0;
}

bool cb_own_has(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	for (size_t i = 0; i < own.n; i++)
		if (own.dev[i] == st.st_dev)
			return true;
	return false;
}

static int make_entry(int dirfd, const char *name, bool folder)
{
	if (!cb_own_has(dirfd))
		return -EROFS;
	if ((folder ? mkdirat(dirfd, name, 0755) : mknodat(dirfd, name, S_IFREG | 0644, 0)) < 0 && errno != EEXIST)
		return -errno;
	return 0;
}

/* From folder to folder, making what is absent. */
static int walk(const char *path, bool folder, int *ret_fd)
{
	CB_AUTO_FD at = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[NAME_MAX + 1];

	if (at < 0)
		return -errno;
	while (*path != '\0') {
		size_t n = strcspn(path, "/"), gap = strspn(path + n, "/");
		bool last = path[n + gap] == '\0';
		int next = -1, r, flags = O_PATH | (!last || folder ? O_DIRECTORY : 0);

		if (n > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, path, n);
		name[n] = '\0';
		r = cb_open_beneath(at, name, flags, &next);
		if (r == -ENOENT) {
			r = make_entry(at, name, !last || folder);
			if (r == 0)
				r = cb_open_beneath(at, name, flags, &next);
		}
		if (r < 0)
			return r;
		cb_fd_close(&at);
		at = next;
		path += n + gap;
	}
	*ret_fd = cb_fd_take(&at);
	return 0;
}

int cb_place_open(const char *path, bool folder, int *ret_fd)
{
	path += strspn(path, "/");
	if (cb_open_beneath(AT_FDCWD, path, O_PATH | (folder ? O_DIRECTORY : 0), ret_fd) == 0)
		return 0;
	return walk(path, folder, ret_fd);
}

int cb_place_write(const char *path, const char *text, size_t len)
{
	CB_AUTO_FD fd = open(path + strspn(path, "/"), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd < 0)
		return -errno;
	return cb_fd_write_all(fd, text, len);
}

bool cb_birth_of(int dirfd, const char *name, struct statx *ret)
{
	int flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;

	return statx(dirfd, name, flags, STATX_INO | STATX_BTIME, ret) == 0 && (ret->stx_mask & STATX_BTIME) != 0;
}

int cb_mnt_fail(struct cb_err *err, int code, const char *step, const char *what)
{
	return cb_err_set(err, code, step, NULL, "%s: %s", what, cb_err_text(code));
}
