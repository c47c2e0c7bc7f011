/* Mounting by file descriptor: thin wrappers of the mount API of Linux 5.12.
 *
 * Trust domain: broker (clone, set attributes) and pid 1 (all). Nothing here follows a symbolic link unless it says so.
 * Inside pid 1, between the steps "new root" and "pivot", the working folder is the new root: paths in the jail are
 * relative to it.
 */
#pragma once

#include <cellblock/error.h>
#include <cellblock/folder.h>
#include <cellblock/sandbox.h>
#include <linux/mount.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Attributes of mounts, as wide as struct mount_attr has them. */
#define CB_RO ((uint64_t)MOUNT_ATTR_RDONLY)
#define CB_NOSUID ((uint64_t)MOUNT_ATTR_NOSUID)
#define CB_NODEV ((uint64_t)MOUNT_ATTR_NODEV)
#define CB_NOEXEC ((uint64_t)MOUNT_ATTR_NOEXEC)

/* Opens `path` below dirfd without following any link, within mounts and across them. */
int cb_open_nolinks(int dirfd, const char *path, int flags, int *ret_fd);
/* The same, but `path` cannot leave dirfd. */
int cb_open_beneath(int dirfd, const char *path, int flags, int *ret_fd);

/* Gives the owner of `name` these rights, if it is of this type (S_IFDIR, S_IFREG): by a descriptor, whatever others
 * exchange it for. */
int cb_unlock_entry(int dirfd, const char *name, mode_t type, mode_t rights);

/* Whether we may make files in a folder: -EACCES, -EPERM or -EROFS say no; any other answer of the kernel's is 0. */
int cb_may_write(int folder);

static inline bool cb_is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

static inline bool cb_is_after(struct timespec a, struct timespec b)
{
	return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

/* What the kernel says of an entry: its number, and when it was made, which nobody can set. False where the file system
 * does not know that. */
bool cb_birth_of(int dirfd, const char *name, struct statx *ret);

/* `path` as it is with dirfd as the root: links lead to what is in it. */
int cb_open_in_root(int dirfd, const char *path, int flags, int *ret_fd);

/* A detached copy of the mount at `path` (with all below it), private to us, with these attributes added. Path "" means
 * dirfd itself. Follows links. */
int cb_mnt_clone(int dirfd, const char *path, uint64_t attrs, int *ret_fd);
/* The same without what is mounted below it. */
int cb_mnt_clone_one(int dirfd, const char *path, uint64_t attrs, int *ret_fd);
/* Sets attributes on a mount and all below it. Path "" means fd itself. */
int cb_mnt_set(int dirfd, const char *path, uint64_t attrs);
/* Makes the mount at `path` read-only, but not those below it. */
int cb_mnt_close(const char *path);
/* Maps the owners in a detached mount by a user namespace, on it and all below it. */
int cb_mnt_idmap(int mnt_fd, int userns_fd, bool recursive);
/* Attaches a detached mount on the place that an fd names. */
int cb_mnt_attach(int mnt_fd, int place_fd);
int cb_mnt_attach_at(int mnt_fd, const char *path);
/* Takes the mount at `path` away, with all below it. */
int cb_mnt_detach(const char *path);

/* clone + attach: `path` of the host appears at `place`. */
int cb_mnt_bind(int dirfd, const char *path, uint64_t attrs, int place_fd);
int cb_mnt_bind_at(int dirfd, const char *path, uint64_t attrs, const char *place);

struct cb_mnt_option {
	const char *key, *value;
};
/* A new file system, not attached yet. */
int cb_mnt_new(const char *type, const struct cb_mnt_option *options, size_t n, uint64_t attrs, int *ret_fd);
/* A tmpfs limited in bytes and inodes (with a small floor, since 0 means "no limit" to the kernel). */
int cb_mnt_tmpfs(uint64_t bytes, uint64_t inodes, const char *mode, uint64_t attrs, int *ret_fd);

/* Remembers a tmpfs of ours: only there are mount points made. */
int cb_own_add(int fd);
bool cb_own_has(int fd);

/* Opens (O_PATH) the place `path` in the new root, made if absent: a folder or an empty file, its parents empty
 * folders. Never follows a link; makes nothing outside the file systems of cb_own_add (-EROFS). `path` may start with
 * '/'. */
int cb_place_open(const char *path, bool folder, int *ret_fd);
/* Writes a small file in the new root. */
int cb_place_write(const char *path, const char *text, size_t len);

/* Fills *err: "what: strerror". Returns code. */
int cb_mnt_fail(struct cb_err *err, int code, const char *step, const char *what);
