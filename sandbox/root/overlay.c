/* A folder of the host with the jail's changes laid over it (overlayfs), the changes in memory and limited.
 *
 * Trust domain: pid 1, before any foreign code runs. The lower layer is never written. The upper one is a tmpfs made in
 * the jail's user namespace; the broker keeps a detached mount of it, so that changes outlive a guest that died, can be
 * looked at, and go to the next jail. Both layers are mounted below /run until the pivot, and go away with the host's
 * files then, since each unmounting by itself makes the kernel wait for all processors: the jail sees only the result.
 * Attributes of the overlay's own lie in user xattrs (`userxattr`), so no capability outside is needed and a set-uid or
 * device entry of the upper layer means nothing.
 */
#include "overlay.h"

#include "../shared/jail.h"
#include "../shared/mounts.h"
#include "../shared/overlay_watch.h"
#include "../shared/sync.h"

#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define STAGE "run/.stage"
#define LOWER STAGE "/lower"
#define UPPER STAGE "/upper"
#define WORK "work"
#define SPARES 8 /* two do on Linux 6.18, one does not */
#define OVERLAYFS_MAGIC 0x794c7630
#define ATTRS (CB_NOSUID | CB_NODEV)

/* Over what the last overlay had there. */
static int stage(int mnt, const char *path)
{
	CB_AUTO_FD tmpfs = -1;
	int r = 0;

	if (mkdir(STAGE, 0700) == 0) {
		r = cb_mnt_tmpfs(0, 0, "0700", ATTRS, &tmpfs);
		if (r == 0)
			r = cb_mnt_attach_at(tmpfs, STAGE);
	}
	if (r == 0 && mkdir(path, 0700) < 0 && errno != EEXIST)
		r = -errno;
	return r < 0 ? r : cb_mnt_attach_at(mnt, path);
}

int cb_overlay_unstage(void)
{
	struct stat st;

	if (lstat(STAGE, &st) < 0)
		return 0;
	/* the host's /proc goes at the pivot, with all that lies over it */
	if (syscall(SYS_move_mount, AT_FDCWD, STAGE, AT_FDCWD, "/proc", 0) < 0 && cb_mnt_detach(STAGE) < 0)
		return -errno;
	return syscall(SYS_unlinkat, AT_FDCWD, STAGE, AT_REMOVEDIR) < 0 ? -errno : 0;
}

static int hand_to_broker(const struct cb_jail *jail, enum cb_upper which, int upper)
{
	CB_AUTO_FD copy = -1;
	int r = cb_mnt_clone(upper, "", 0, &copy);

	return r < 0 ? r : cb_sync_send_fd(jail->sync_fd, CB_SYNC_UPPER, which, copy);
}

/* tmpfs has user xattrs since Linux 6.6; without them the overlay cannot mark a folder as made anew. */
static void check_xattrs(struct cb_jail *jail, int changes)
{
	static const char name[] = "user.cellblock";

	if (fsetxattr(changes, name, "", 0, 0) == 0)
		(void)fremovexattr(changes, name);
	else
		cb_jail_add_note(jail, "overlay: a folder that was there before and is deleted cannot be made again "
				       "(needs Linux 6.6)");
}

static int chain_folder(int changes, const char *path)
{
	char from[PATH_MAX];
	struct stat st;

	snprintf(from, sizeof(from), LOWER "/%s", path);
	if (lstat(from, &st) < 0 || !S_ISDIR(st.st_mode))
		return -ENOENT;
	return mkdirat(changes, path, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

/* A prefix that belongs to others: what of it lies in the layer from the start, being the jail's own, can take new
 * entries. These are the folders that pip installs into. */
static void make_chain(int changes)
{
	static const char *const folders[] = { "bin", "include", "share", "etc", "lib" };
	CB_AUTO_FOLDER lib = cb_folder_open(AT_FDCWD, LOWER "/lib", 0);
	const struct dirent *e;

	for (size_t i = 0; i < CB_COUNT(folders); i++)
		(void)chain_folder(changes, folders[i]);
	while ((e = cb_folder_next(lib)) != NULL) {
		char path[NAME_MAX + 32];

		if (strncmp(e->d_name, "python3", 7) != 0)
			continue;
		snprintf(path, sizeof(path), "lib/%s", e->d_name);
		if (chain_folder(changes, path) < 0)
			continue;
		snprintf(path, sizeof(path), "lib/%s/site-packages", e->d_name);
		(void)chain_folder(changes, path);
	}
}

static int make_folders(struct cb_jail *jail, enum cb_upper which, int upper, const struct stat *st)
{
	CB_AUTO_FD changes = -1;

	if (mkdirat(upper, CB_UPPER_CHANGES, 0700) < 0 || mkdirat(upper, WORK, 0700) < 0)
		return -errno;
	changes = openat(upper, CB_UPPER_CHANGES, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (changes < 0 || fchmod(changes, st->st_mode & 0777) < 0)
		return -errno;
	check_xattrs(jail, changes);
	if (which == CB_UPPER_PACKAGES && st->st_uid != geteuid())
		make_chain(changes);
	return 0;
}

/* The broker's mount can be put in place once. A jail that was ended between that and its giving back another leaves
 * one that can be read but not used: changes of a workspace wait for the user then, those of packages begin anew. */
static int stage_last(struct cb_jail *jail, enum cb_upper which, int upper)
{
	int r = stage(upper, UPPER);

	if (r == -EINVAL && which == CB_UPPER_PACKAGES)
		cb_jail_add_note(jail,
				 "packages: what was installed in this session is undone: its layer was lost when a "
				 "jail could not be built");
	return r == -EINVAL ? -ENOTRECOVERABLE : r;
}

/* The last jail's upper layer, or a new one. Once attached it goes to the broker at once: the layer's only name. */
static int stage_upper(struct cb_jail *jail, enum cb_upper which, const struct cb_overlay_size *size,
		       const struct stat *st)
{
	bool new_one = jail->upper_fd[which] < 0;
	CB_AUTO_FD upper = cb_fd_take(&jail->upper_fd[which]);
	int r = new_one ? 0 : stage_last(jail, which, upper);

	if (r == -ENOTRECOVERABLE && which == CB_UPPER_PACKAGES) {
		cb_fd_close(&upper);
		new_one = true;
		r = 0;
	}
	if (r == 0 && new_one)
		r = cb_mnt_tmpfs(size->bytes, size->inodes + SPARES, "0700", ATTRS, &upper);
	if (r == 0 && new_one)
		r = stage(upper, UPPER);
	if (r == 0 && new_one)
		r = make_folders(jail, which, upper, st);
	return r < 0 ? r : hand_to_broker(jail, which, upper);
}

static int mount_overlay(int *ret_mnt)
{
	static const struct cb_mnt_option options[] = { { "lowerdir", LOWER },
							{ "upperdir", UPPER "/" CB_UPPER_CHANGES },
							{ "workdir", UPPER "/" WORK },
							{ "userxattr", NULL } };
	CB_AUTO_FD mnt = -1;
	struct statfs fs;
	/* Each mapping of a file is to set its access time: changes/snapshot_take.c. */
	int r = cb_mnt_new("overlay", options, CB_COUNT(options), ATTRS | MOUNT_ATTR_STRICTATIME, &mnt);

	if (r < 0)
		return r;
	if (fstatfs(mnt, &fs) < 0 || fs.f_type != OVERLAYFS_MAGIC)
		return -EINVAL;
	*ret_mnt = cb_fd_take(&mnt);
	return 0;
}

/* Being mounted takes some inodes of the layer's, also the second time, when cells may have used up limits.inodes.
 * These files, which no cell sees, hold them back in between. They have room: as yet nobody runs who could take it. */
static void hold_spares(bool hold)
{
	for (int i = 0; i < SPARES; i++) {
		char path[64];

		snprintf(path, sizeof(path), UPPER "/spare%d", i);
		if (hold)
			(void)mknod(path, S_IFREG, 0);
		else
			(void)unlink(path);
	}
}

/* A new layer's changes are watched from its first mount on. Without that a snapshot looks at all of them. */
static void watch(const struct cb_jail *jail, int merged)
{
	CB_AUTO_FD layer = open(UPPER, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CB_AUTO_FD told = -1;

	if (layer >= 0 && cb_watch_start(layer, merged, &told) == 0)
		(void)cb_sync_send_fd(jail->sync_fd, CB_SYNC_WATCH, 0, told);
}

int cb_overlay_make(struct cb_jail *jail, enum cb_upper which, int lower, const struct cb_overlay_size *size,
		    int *ret_mnt)
{
	bool watched = which == CB_UPPER_WORKSPACE && jail->upper_fd[which] < 0;
	struct stat st;
	int r = fstat(lower, &st) < 0 ? -errno : 0;

	if (r == 0)
		r = stage(lower, LOWER);
	if (r == 0)
		r = stage_upper(jail, which, size, &st);
	if (r == 0) {
		hold_spares(false);
		r = mount_overlay(ret_mnt);
		hold_spares(true);
	}
	if (r == 0 && watched)
		watch(jail, *ret_mnt);
	return r;
}
