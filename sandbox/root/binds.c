/* What the description adds to the root: spec->binds (interpreter prefixes, guest, the policy's mounts) and
 * spec->home_expose.
 *
 * Trust domain: broker (cb_binds_open, only when started by root) and pid 1. A jail that root started runs as a host
 * uid that cannot enter root's home: so the broker opens such mounts with its own rights and hands them over detached.
 * Sources are opened without following links, since a folder on the way may be one that an earlier jail could write.
 * Targets: folders are made only on the jail's own file systems; a target inside the workspace must exist (workspace.c
 * mounts those).
 */
#include "binds.h"

#include "../shared/jail.h"
#include "../shared/mounts.h"
#include "overlay.h"
#include "root.h"
#include "rootfs.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define STEP "binds"

static uint64_t attrs_of(const struct cb_bind *bind)
{
	return CB_NOSUID | CB_NODEV | (bind->mode == CB_BIND_RW ? 0 : CB_RO);
}

/* Already there, by cb_step_new_root. */
static bool is_system(const struct cb_jail_spec *spec, const struct cb_bind *bind)
{
	if (spec->root_path != NULL || bind->mode != CB_BIND_RO || strcmp(bind->source, bind->target) != 0)
		return false;
	for (size_t i = 0; i < cb_root_system_count; i++)
		if (cb_path_within(bind->source + 1, cb_root_system[i].path))
			return true;
	return false;
}

bool cb_bind_in_workspace(const struct cb_jail_spec *spec, const struct cb_bind *bind)
{
	return spec->workspace_target != NULL && cb_path_within(bind->target, spec->workspace_target);
}

static int fail(struct cb_err *err, int code, const char *source, const char *target)
{
	const char *cure = NULL;

	if (code == -ELOOP)
		cure = "give the path without symbolic links (see `realpath`)";
	else if (code == -ENOENT)
		cure = "name a path that exists, or take it out of the policy";
	else if (code == -EROFS)
		cure = "choose a target that exists in the jail or lies outside the system folders and other mounts";
	else if (code == -EACCES)
		cure = "the user who starts the kernel must be able to read it";
	else if (code == -EINVAL)
		cure = "its owner cannot be mapped into the jail on this file system: mount it read-only, or start the "
		       "kernel as "
		       "an ordinary user";
	return cb_err_set(err, code, STEP, cure, "%s as %s: %s", source, target, strerror(-code));
}

/* Whether the jail's uid, to which nothing of root's belongs, can use it without an id-map. */
static bool open_to_all(const struct stat *st)
{
	mode_t need = S_ISDIR(st->st_mode) ? S_IROTH | S_IXOTH : S_IROTH;

	return (st->st_mode & need) == need;
}

static int open_as_root(const struct cb_jail *jail, int place, uint64_t attrs, bool session, int *ret_mnt)
{
	CB_AUTO_FD mnt = -1;
	struct stat st;
	int r = cb_mnt_clone(place, "", attrs, &mnt);

	if (r < 0)
		return r;
	if (fstat(place, &st) < 0)
		return -errno;
	if (session || !(attrs & CB_RO) || !open_to_all(&st)) {
		r = cb_workspace_idmap(jail, mnt, &st);
		if (r < 0 && !(session && open_to_all(&st)))
			return r;
	}
	*ret_mnt = cb_fd_take(&mnt);
	return 0;
}

static int open_expose(const struct cb_jail_spec *spec, const char *item, int *ret_fd)
{
	CB_AUTO_FD home = -1;
	const char *rel = cb_expose_relative(spec, item);

	if (rel == NULL || spec->host_home == NULL)
		return -ENOENT;
	home = open(spec->host_home, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return home < 0 ? -errno : cb_open_beneath(home, rel, O_PATH, ret_fd);
}

const char *cb_expose_relative(const struct cb_jail_spec *spec, const char *item)
{
	if (item[0] == '/') {
		if (spec->host_home == NULL || !cb_path_within(item, spec->host_home))
			return NULL;
		item += strlen(spec->host_home);
	}
	item += strspn(item, "/");
	return *item == '\0' ? NULL : item;
}

int cb_binds_open(struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;
	size_t n = spec->nbinds + spec->home_expose.count;
	int r;

	jail->mount_fds = calloc(n + 1, sizeof(int));
	if (jail->mount_fds == NULL)
		return cb_mnt_fail(err, -ENOMEM, STEP, "a list of mounts");
	memset(jail->mount_fds, 0xff, (n + 1) * sizeof(int));
	for (size_t i = 0; i < spec->nbinds; i++) {
		const struct cb_bind *bind = &spec->binds[i];
		CB_AUTO_FD place = -1;

		if (is_system(spec, bind))
			continue;
		r = cb_open_nolinks(AT_FDCWD, bind->source, O_PATH, &place);
		if (r == -ENOENT && bind->optional)
			continue;
		if (r == 0)
			r = open_as_root(jail, place, attrs_of(bind), bind->mode == CB_BIND_SESSION,
					 &jail->mount_fds[i]);
		if (r < 0)
			return fail(err, r, bind->source, bind->target);
	}
	for (size_t i = 0; i < spec->home_expose.count; i++) {
		CB_AUTO_FD place = -1;

		/* Configuration that cannot be shown is no reason to have no kernel. */
		if (open_expose(spec, spec->home_expose.items[i], &place) == 0)
			(void)open_as_root(jail, place, CB_RO | CB_NOSUID | CB_NODEV, false,
					   &jail->mount_fds[spec->nbinds + i]);
	}
	return 0;
}

void cb_binds_close(struct cb_jail *jail)
{
	if (jail->mount_fds == NULL)
		return;
	for (size_t i = 0; i < jail->spec->nbinds + jail->spec->home_expose.count; i++)
		cb_fd_close(&jail->mount_fds[i]);
	free(jail->mount_fds);
	jail->mount_fds = NULL;
}

static int bind_mount(struct cb_jail *jail, size_t index, int *ret_mnt)
{
	const struct cb_bind *bind = &jail->spec->binds[index];
	CB_AUTO_FD place = -1;
	CB_AUTO_FD mnt = -1;
	int r;

	if (jail->mount_fds != NULL) {
		if (jail->mount_fds[index] < 0)
			return -ENOENT;
		*ret_mnt = cb_fd_take(&jail->mount_fds[index]);
		return 0;
	}
	r = cb_open_nolinks(AT_FDCWD, bind->source, O_PATH, &place);
	if (r == 0)
		r = cb_mnt_clone(place, "", attrs_of(bind), &mnt);
	if (r < 0)
		return r;
	*ret_mnt = cb_fd_take(&mnt);
	return 0;
}

static int attach(int mnt, const char *target)
{
	CB_AUTO_FD place = -1;
	struct stat st;
	int r;

	if (fstat(mnt, &st) < 0)
		return -errno;
	r = cb_place_open(target, S_ISDIR(st.st_mode), &place);
	return r < 0 ? r : cb_mnt_attach(mnt, place);
}

/* Those in the workspace follow all others. */
static bool is_attached_before(const struct cb_jail_spec *spec, size_t i, size_t index)
{
	bool inside = cb_bind_in_workspace(spec, &spec->binds[index]);

	return cb_bind_in_workspace(spec, &spec->binds[i]) == inside ? i < index : inside;
}

/* The same source under another name: the overlay that is there already. */
static int session_again(const struct cb_jail *jail, size_t index, int place)
{
	const struct cb_jail_spec *spec = jail->spec;

	for (size_t i = 0; i < spec->nbinds; i++) {
		const char *target = spec->binds[i].target;
		CB_AUTO_FD first = -1;
		CB_AUTO_FD mnt = -1;
		int r;

		if (spec->binds[i].mode != CB_BIND_SESSION || !is_attached_before(spec, i, index))
			continue;
		r = cb_open_beneath(AT_FDCWD, target + strspn(target, "/"), O_PATH | O_DIRECTORY, &first);
		if (r == -ELOOP) /* a link in the workspace, over which nothing is mounted */
			continue;
		if (r == 0)
			r = cb_mnt_clone(first, "", 0, &mnt);
		return r < 0 ? r : cb_mnt_attach(mnt, place);
	}
	return -ENOENT;
}

/* Over the read-only bind, which stays where no overlay can be had: that is stricter, and said. */
static void lay_session(struct cb_jail *jail, size_t index)
{
	const struct cb_bind *bind = &jail->spec->binds[index];
	struct cb_overlay_size size = { jail->spec->limit_tmp, jail->spec->limit_inodes };
	CB_AUTO_FD place = -1;
	CB_AUTO_FD lower = -1;
	CB_AUTO_FD mnt = -1;
	char text[512];
	int r = cb_place_open(bind->target, true, &place);

	if (r == 0)
		r = session_again(jail, index, place);
	if (r == -ENOENT) {
		r = cb_mnt_clone(place, "", 0, &lower);
		if (r == 0)
			r = cb_overlay_make(jail, CB_UPPER_PACKAGES, lower, &size, &mnt);
		if (r == 0)
			r = cb_mnt_attach(mnt, place);
	}
	if (r == 0)
		return;
	snprintf(text, sizeof(text),
		 "packages: nothing can be installed, since the kernel lays no overlay over %.256s: %s", bind->target,
		 strerror(-r));
	cb_jail_add_note(jail, text);
}

int cb_bind_attach(struct cb_jail *jail, size_t index)
{
	const struct cb_bind *bind = &jail->spec->binds[index];
	CB_AUTO_FD mnt = -1;
	int r = bind_mount(jail, index, &mnt);

	if (r == 0)
		r = attach(mnt, bind->target);
	if (r == 0 && bind->mode == CB_BIND_SESSION)
		lay_session(jail, index);
	return r;
}

static void show_expose(struct cb_jail *jail, size_t i)
{
	const struct cb_jail_spec *spec = jail->spec;
	const char *rel = cb_expose_relative(spec, spec->home_expose.items[i]);
	CB_AUTO_FD place = -1;
	CB_AUTO_FD mnt = -1;
	char target[PATH_MAX];
	int r = 0;

	if (rel == NULL || snprintf(target, sizeof(target), "%s/%s", CB_JAIL_HOME, rel) >= (int)sizeof(target))
		return;
	if (jail->mount_fds != NULL) {
		mnt = cb_fd_take(&jail->mount_fds[spec->nbinds + i]);
	} else {
		r = open_expose(spec, spec->home_expose.items[i], &place);
		if (r == 0)
			r = cb_mnt_clone(place, "", CB_RO | CB_NOSUID | CB_NODEV, &mnt);
	}
	if (r == 0 && mnt >= 0)
		(void)attach(mnt, target);
}

int cb_step_binds(struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;

	for (size_t i = 0; i < spec->nbinds; i++) {
		const struct cb_bind *bind = &spec->binds[i];
		int r;

		if (is_system(spec, bind) || cb_bind_in_workspace(spec, bind))
			continue;
		r = cb_bind_attach(jail, i);
		if (r == -ENOENT && bind->optional)
			continue;
		if (r < 0)
			return fail(err, r, bind->source, bind->target);
	}
	for (size_t i = 0; i < spec->home_expose.count; i++)
		show_expose(jail, i);
	return 0;
}
