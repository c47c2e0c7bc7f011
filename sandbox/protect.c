/* Read-only parts of the writable workspace: what programs outside would execute later, and the kernel's own files.
 *
 * Trust domain: pid 1, after the workspace was mounted. A read-only bind on an entry alone is beaten by renaming one of
 * its parents, so each ancestor is bound onto itself: a mount point cannot be renamed or removed. All by fd, no link
 * followed, and nothing is ever created in the workspace: what appears in it later is not covered here. The walk is in
 * protect_find.c; when it was cut, the jail's note says so.
 */
#include "protect.h"

#include "binds.h"
#include "jail.h"
#include "mounts.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define STEP "protect"

static bool is_mount_point(int fd)
{
	struct statx stx;

	return statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &stx) == 0 && (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

/* Binds `path` onto itself; a link is held as such, where the kernel mounts on links. What is gone or lies behind a
 * link is passed over: the link on the way was pinned before it. */
static int pin(int root, const char *path, uint64_t attrs)
{
	CB_AUTO_FD place = -1;
	struct stat st;
	int r = cb_open_beneath(root, path, O_PATH | O_NOFOLLOW, &place);

	if (r == -ENOENT || r == -ELOOP || r == -ENOTDIR)
		return 0;
	if (r < 0)
		return r;
	if (is_mount_point(place))
		return attrs != 0 ? cb_mnt_set(place, "", attrs) : 0;
	if (fstat(place, &st) < 0)
		return -errno;
	r = cb_mnt_bind(place, "", attrs, place);
	return r < 0 && S_ISLNK(st.st_mode) ? 0 : r;
}

static int protect_one(int root, const char *path)
{
	char part[PATH_MAX];

	for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		int r;

		if ((size_t)(slash - path) >= sizeof(part))
			return -ENAMETOOLONG;
		memcpy(part, path, (size_t)(slash - path));
		part[slash - path] = '\0';
		r = pin(root, part, 0);
		if (r < 0)
			return r;
	}
	return pin(root, path, CB_RO);
}

/* Absolute paths of the host that lie in the workspace; the workspace itself cannot be meant. */
static int add_host_paths(const struct cb_jail_spec *spec, struct cb_protect_list *list)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < spec->protect_paths.count; i++) {
		const char *path = spec->protect_paths.items[i];

		if (!cb_path_within(path, spec->workspace_source))
			continue;
		path += strlen(spec->workspace_source);
		path += strspn(path, "/");
		if (*path != '\0')
			r = cb_protect_add(list, path);
	}
	return r;
}

/* What the jail's only uid and gid cannot own cannot be copied into the layer of changes. */
static void note_foreign(struct cb_jail *jail, const struct cb_protect_list *list)
{
	char text[128];

	if (list->foreign == 0)
		return;
	snprintf(text, sizeof(text), "workspace: %s%zu entries with another owner or group than %s are read-only",
		 list->cut ? "more than " : "", list->foreign, jail->from_root ? "the folder itself" : "your own");
	cb_jail_add_note(jail, text);
}

static int protect_workspace(struct cb_jail *jail, int root, struct cb_protect_list *list, struct cb_err *err)
{
	int r = add_host_paths(jail->spec, list);

	list->look_for_foreign = jail->spec->workspace_mode == CB_WORKSPACE_OVERLAY;
	if (r == 0)
		r = cb_protect_find(root, &jail->spec->protect, list);
	if (r < 0)
		return cb_mnt_fail(err, r, STEP, "looking through the workspace");
	cb_protect_finish(list);
	for (size_t i = 0; i < list->paths.count; i++) {
		r = protect_one(root, list->paths.items[i]);
		if (r < 0)
			return cb_err_set(
				err, r, STEP, "take the entry out of the workspace, or set workspace.mode to \"ro\"",
				"workspace entry %s cannot be made read-only: %s", list->paths.items[i], strerror(-r));
	}
	note_foreign(jail, list);
	if (list->cut)
		cb_jail_add_note(
			jail, "workspace: too many entries to look through; some that workspace.protect names may be "
			      "writable");
	if (list->links > 0)
		cb_jail_add_note(
			jail, "workspace: entries that workspace.protect names are symbolic links; what they lead to "
			      "stays writable");
	return 0;
}

/* spec->binds with a target in the workspace: mount points must exist there, unless it is a tmpfs of ours. */
static int bind_in_workspace(struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;

	for (size_t i = 0; i < spec->nbinds; i++) {
		const struct cb_bind *bind = &spec->binds[i];
		int r;

		if (!cb_bind_in_workspace(spec, bind))
			continue;
		r = cb_bind_attach(jail, i);
		/* An interpreter's prefix that is a link in the workspace: what it leads to is bound under its own
		 * name. */
		if ((r == -ENOENT && bind->optional) || (r == -ELOOP && bind->mode != CB_BIND_RW))
			continue;
		if (r == -EROFS)
			return cb_err_set(err, r, "binds", "create it outside first; nothing is created in a workspace",
					  "the target %s lies in the workspace and does not exist", bind->target);
		if (r < 0)
			return cb_err_set(err, r, "binds", NULL, "%s as %s: %s", bind->source, bind->target,
					  strerror(-r));
	}
	return 0;
}

int cb_step_protect(struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;
	struct cb_protect_list list = { 0 };
	CB_AUTO_FD root = -1;
	int r;

	if (spec->workspace_target == NULL)
		return 0;
	if (spec->workspace_mode == CB_WORKSPACE_OVERLAY ||
	    (spec->workspace_mode == CB_WORKSPACE_RW && !jail->workspace_ro)) {
		r = cb_place_open(spec->workspace_target, true, &root);
		if (r < 0)
			return cb_mnt_fail(err, r, STEP, spec->workspace_target);
		r = protect_workspace(jail, root, &list, err);
		cb_protect_release(&list);
		if (r < 0)
			return r;
	}
	return bind_in_workspace(jail, err);
}
