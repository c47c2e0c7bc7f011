/* The workspace: the one folder of the host that the jail may write.
 *
 * Trust domain: cb_workspace_open runs in the broker, outside; cb_step_workspace in pid 1. The folder was written by
 * earlier jails: no link is followed to it, and its identity (device and inode), taken when it was checked, is verified
 * on the mount. Started by root, the mount is id-mapped: the folder's owner outside is the jail's only uid inside, so
 * nothing is ever chowned. An ordinary user's broker may not clone mounts; pid 1 then opens the folder itself, with the
 * same rights.
 */
#include "../shared/ids.h"
#include "../shared/jail.h"
#include "../shared/mounts.h"
#include "../shared/sync.h"
#include "binds.h"
#include "overlay.h"
#include "root.h"
#include "rootfs.h"

#include <cellblock/child.h>
#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#define STEP "workspace"
#define ATTRS (CB_NOSUID | CB_NODEV)

/* A user namespace lives as long as an fd of it: the child that it is born with only waits to be killed. */
static int new_userns(uid_t owner, gid_t group, uid_t host_id, int *ret_fd)
{
	pid_t us = getpid(), pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
	char path[64];
	int fd = -1, r;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		if (getppid() != us) /* it died before the signal was asked for */
			_exit(1);
		for (;;)
			pause();
	}
	r = cb_ids_map_one(pid, "uid_map", owner, host_id);
	if (r == 0)
		r = cb_ids_map_one(pid, "gid_map", group, host_id);
	if (r == 0) {
		snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		r = fd < 0 ? -errno : 0;
	}
	kill(pid, SIGKILL);
	(void)cb_reap(pid, NULL);
	if (r == 0)
		*ret_fd = fd;
	return r;
}

/* One serves all mounts of the same owner, in this jail and the next ones. */
int cb_workspace_idmap(const struct cb_jail *jail, int mnt, const struct stat *st)
{
	static struct {
		int fd;
		uid_t owner, host_uid;
		gid_t group;
	} last = { .fd = -1 };

	if (last.fd < 0 || last.owner != st->st_uid || last.group != st->st_gid || last.host_uid != jail->host_uid) {
		int r;

		cb_fd_close(&last.fd);
		r = new_userns(st->st_uid, st->st_gid, jail->host_uid, &last.fd);
		if (r < 0)
			return r;
		last.owner = st->st_uid;
		last.group = st->st_gid;
		last.host_uid = jail->host_uid;
	}
	return cb_mnt_idmap(mnt, last.fd, true);
}

static int fail_open(const char *path, int code, struct cb_err *err)
{
	const char *cure = "name an existing folder that the user who starts the kernel can enter";

	if (code == -ELOOP)
		cure = "give the folder's path without symbolic links (see `realpath`)";
	return cb_err_set(err, code, STEP, cure, "workspace %s cannot be opened as a folder: %s", path,
			  strerror(-code));
}

/* Clones the mount as root and maps its owner to the jail's uid. Mounts below it come along if they can be mapped too.
 */
static int detach_as_root(struct cb_jail *jail, int folder, const struct stat *st, struct cb_err *err)
{
	const char *path = jail->spec->workspace_source;
	CB_AUTO_FD mnt = -1;
	struct statfs fs;
	bool ro = jail->spec->workspace_mode == CB_WORKSPACE_RO;
	uint64_t attrs = ATTRS | (ro ? CB_RO : 0);
	int r = cb_mnt_clone(folder, "", attrs, &mnt);

	if (r < 0)
		return cb_err_set(err, r, STEP, NULL, "workspace %s: cloning its mount: %s", path, strerror(-r));
	r = cb_workspace_idmap(jail, mnt, st);
	if (r == -EINVAL) {
		/* One of the mounts below may be the one that refuses: try without them. */
		cb_fd_close(&mnt);
		r = cb_mnt_clone_one(folder, "", attrs, &mnt);
		if (r == 0)
			r = cb_workspace_idmap(jail, mnt, st);
		if (r == 0)
			cb_jail_add_note(jail, "workspace: file systems mounted below it are not shown");
	}
	if (r < 0 && !ro) {
		bool overlay = fstatfs(folder, &fs) == 0 && fs.f_type == 0x794c7630;

		return cb_err_set(err, r, STEP,
				  "set workspace.mode to \"ro\" or \"tmpfs\", keep the workspace on another file "
				  "system (ext4, xfs, btrfs, tmpfs), or start the kernel as an ordinary user",
				  "workspace %s: its owner cannot be mapped into the jail (id-mapped mount on %s: %s)",
				  path, overlay ? "overlayfs" : "this file system", strerror(-r));
	}
	if (r < 0)
		cb_jail_add_note(jail, "workspace: files that only their owner may read cannot be read");
	jail->workspace_fd = cb_fd_take(&mnt);
	return 0;
}

static int workspace_check(struct cb_jail *jail, int folder, struct stat *ret_st, struct cb_err *err)
{
	const char *path = jail->spec->workspace_source;
	struct stat root;
	int r;

	if (fstat(folder, ret_st) < 0)
		return fail_open(path, -errno, err);
	if (stat("/", &root) == 0 && root.st_dev == ret_st->st_dev && root.st_ino == ret_st->st_ino)
		return cb_err_set(err, CB_E_DENIED, STEP, "name a folder of your own", "workspace is the root folder");
	if (jail->workspace_ino != 0 &&
	    (jail->workspace_dev != ret_st->st_dev || jail->workspace_ino != ret_st->st_ino))
		return cb_err_set(err, -ESTALE, STEP, "Put the folder back, or restart the kernel to use the new one.",
				  "workspace %s is another folder than when the kernel started", path);
	jail->workspace_dev = ret_st->st_dev;
	jail->workspace_ino = ret_st->st_ino;
	r = jail->spec->workspace_mode == CB_WORKSPACE_RW ? cb_may_write(folder) : 0;
	if (r < 0) {
		jail->workspace_ro = true;
		cb_jail_add_note(
			jail, r == -EROFS
				      ? "workspace: read-only, since its file system is"
				      : "workspace: read-only, since the user who started the kernel may not write it");
	}
	return 0;
}

int cb_workspace_open(struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;
	CB_AUTO_FD folder = -1;
	struct stat st;
	int r;

	jail->workspace_fd = -1;
	jail->workspace_ro = false;
	if (spec->workspace_mode != CB_WORKSPACE_TMPFS) {
		r = cb_open_nolinks(AT_FDCWD, spec->workspace_source, O_PATH | O_DIRECTORY, &folder);
		if (r < 0)
			return fail_open(spec->workspace_source, r, err);
		r = workspace_check(jail, folder, &st, err);
		if (r == 0 && jail->from_root)
			r = detach_as_root(jail, folder, &st, err);
		if (r < 0)
			return r;
	}
	r = jail->from_root ? cb_binds_open(jail, err) : 0;
	if (r == 0 && jail->from_root && spec->root_path != NULL)
		r = cb_image_open(jail, &jail->root_fd, err);
	if (r < 0)
		cb_workspace_close(jail);
	return r;
}

void cb_workspace_close(struct cb_jail *jail)
{
	cb_fd_close(&jail->workspace_fd);
	cb_fd_close(&jail->root_fd);
	cb_binds_close(jail);
}

/* As an ordinary user: the same folder again, now in this mount namespace. */
static int clone_inside(struct cb_jail *jail, int *ret_mnt)
{
	CB_AUTO_FD folder = -1;
	int r = cb_open_nolinks(AT_FDCWD, jail->spec->workspace_source, O_PATH | O_DIRECTORY, &folder);

	return r < 0 ? r : cb_mnt_clone(folder, "", 0, ret_mnt);
}

static int folder_mount(struct cb_jail *jail, int *ret_mnt)
{
	CB_AUTO_FD mnt = -1;
	struct stat st;
	int r = 0;

	if (jail->from_root)
		mnt = cb_fd_take(&jail->workspace_fd);
	else
		r = clone_inside(jail, &mnt);
	if (r == 0 && fstat(mnt, &st) < 0)
		r = -errno;
	if (r == 0 && (st.st_dev != jail->workspace_dev || st.st_ino != jail->workspace_ino))
		r = -ESTALE;
	if (r == 0)
		r = cb_mnt_set(mnt, "", ATTRS | (cb_notify_writes(jail) ? 0 : CB_RO));
	if (r < 0)
		return r;
	*ret_mnt = cb_fd_take(&mnt);
	return 0;
}

static int overlay_mount(struct cb_jail *jail, const struct cb_overlay_size *size, int *ret_mnt, struct cb_err *err)
{
	bool again = jail->upper_fd[CB_UPPER_WORKSPACE] >= 0;
	CB_AUTO_FD lower = -1;
	int r = folder_mount(jail, &lower);

	if (r < 0)
		return r;
	r = cb_overlay_make(jail, CB_UPPER_WORKSPACE, lower, size, ret_mnt);
	if (r == -ENOTRECOVERABLE)
		return cb_err_set(
			err, r, STEP,
			"`cellblock commit` still writes the changes to the folder; then, or without, `cellblock "
			"discard` makes room for a new layer.",
			"the layer of changes can't be used again: a jail that had it was ended while it was being "
			"built");
	if (again && r == -ENOSPC) /* a new layer has room: it is the host that has none (fs.mount-max) */
		return cb_err_set(err, r, STEP,
				  "`cellblock commit` still writes the changes to the folder; then, or without, "
				  "`cellblock discard` makes room. Raise limits.inodes for the next kernels.",
				  "the layer of changes is so full that it can't be used again (limits.inodes)");
	return r == 0 ? 0
		      : cb_err_set(err, r, STEP,
				   "Set workspace.mode to \"rw\", \"ro\" or \"tmpfs\". An overlay needs Linux 5.12, a "
				   "workspace without other file systems mounted in it, and one that is no overlay of "
				   "overlays itself.",
				   "workspace.mode is \"overlay\", and the kernel refuses to lay one over %s: %s",
				   jail->spec->workspace_source, strerror(-r));
}

static int workspace_mount(struct cb_jail *jail, int *ret_mnt, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;
	struct cb_overlay_size size = { spec->limit_workspace != 0 ? spec->limit_workspace : spec->limit_tmp,
					spec->limit_inodes };
	int r = 0;

	switch (spec->workspace_mode) {
	case CB_WORKSPACE_RW:
	case CB_WORKSPACE_RO:
		r = folder_mount(jail, ret_mnt);
		break;
	case CB_WORKSPACE_OVERLAY:
		r = overlay_mount(jail, &size, ret_mnt, err);
		break;
	case CB_WORKSPACE_TMPFS:
		r = cb_mnt_tmpfs(size.bytes, size.inodes, "0755", ATTRS, ret_mnt);
		if (r == 0)
			r = cb_own_add(*ret_mnt);
		break;
	}
	return r;
}

/* So that files can be brought back from outside (changes/snapshot.c). */
static int hand_to_broker(const struct cb_jail *jail, int mnt)
{
	CB_AUTO_FD copy = -1;
	int r = cb_mnt_clone(mnt, "", 0, &copy);

	return r < 0 ? r : cb_sync_send_fd(jail->sync_fd, CB_SYNC_MERGED, 0, copy);
}

int cb_step_workspace(struct cb_jail *jail, struct cb_err *err)
{
	const char *target = jail->spec->workspace_target;
	CB_AUTO_FD mnt = -1;
	CB_AUTO_FD place = -1;
	int r;

	if (target == NULL)
		return 0;
	r = workspace_mount(jail, &mnt, err);
	if (r == 0)
		r = cb_place_open(target, true, &place);
	if (r == 0)
		r = cb_mnt_attach(mnt, place);
	if (r == 0 && jail->spec->workspace_mode == CB_WORKSPACE_OVERLAY)
		r = hand_to_broker(jail, mnt);
	if (r == 0 && cb_notify_writes(jail)) {
		/* one that can be written for the notifier; what the jail sees can't */
		r = cb_mnt_clone(mnt, "", 0, &jail->tree_fd);
		if (r == 0)
			r = cb_mnt_set(mnt, "", CB_RO);
	}
	if (r == -ESTALE)
		return cb_err_set(err, r, STEP, "start again; if it happens again, find what replaces the folder",
				  "the workspace %s was replaced by another folder while the jail was built",
				  jail->spec->workspace_source);
	if (r < 0 && err->code == 0)
		return cb_err_set(err, r, STEP, NULL, "workspace at %s: %s", target, strerror(-r));
	return r;
}

/* spec->binds with a target in the workspace: mount points must exist there, unless it is a tmpfs of ours. */
int cb_step_workspace_binds(struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;

	for (size_t i = 0; i < spec->nbinds; i++) {
		const struct cb_bind *bind = &spec->binds[i];
		int r;

		if (!cb_bind_in_workspace(spec, bind))
			continue;
		r = cb_bind_attach(jail, i);
		/* An interpreter's prefix that is a link in the workspace: what it leads to is bound under its own
		 * name. What hides something has to be there. */
		if ((r == -ENOENT && bind->optional) ||
		    (r == -ELOOP && bind->mode != CB_BIND_RW && strcmp(bind->source, "/dev/null") != 0))
			continue;
		if ((r == -EROFS || r == -ENOTDIR || r == -ELOOP) && cb_jail_may_lack(jail, bind->target))
			return cb_err_set(err, r, "binds", CB_JAIL_LACKS_CURE,
					  "cells have removed or replaced %s in the layer of changes", bind->target);
		if (r == -ELOOP)
			return cb_err_set(err, r, "binds",
					  "Put a folder back in the link's place, or start with the connection file "
					  "and the mounts in folders that are no links.",
					  "the target %s in the workspace leads over a symbolic link, and can't be "
					  "covered", bind->target);
		if (r == -EROFS)
			return cb_err_set(err, r, "binds", "create it outside first; nothing is created in a workspace",
					  "the target %s lies in the workspace and does not exist", bind->target);
		if (r < 0)
			return cb_err_set(err, r, "binds", NULL, "%s as %s: %s", bind->source, bind->target,
					  strerror(-r));
	}
	return 0;
}
