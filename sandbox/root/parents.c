/* The folders above the workspace, where they lie on a file system of the jail's own that cells may write.
 *
 * Role: below /tmp and the like such folders would be ordinary ones of the jail's tmpfs: a cell's `../out.txt` would be
 * written there and be gone with the jail. They get a small file system of their own, made before anything is placed in
 * it and read-only from the pivot on, as the root is. Trust domain: pid 1.
 */
#include "../shared/mounts.h"
#include "rootfs.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#define VAR_TMP "/var/tmp"

/* The uppermost of these folders that is not the writable one itself; false where there is none. */
static bool uppermost(const struct cb_jail_spec *spec, char ret_path[PATH_MAX])
{
	static const char *const writable[] = { "/tmp", VAR_TMP, CB_JAIL_HOME };
	const char *target = spec->workspace_target;

	for (size_t i = 0; target != NULL && i < CB_COUNT(writable); i++) {
		size_t n = strlen(writable[i]);
		const char *end =
			cb_path_within(target, writable[i]) && target[n] == '/' ? strchr(target + n + 1, '/') : NULL;

		if (end != NULL && end - target < PATH_MAX) {
			memcpy(ret_path, target, (size_t)(end - target));
			ret_path[end - target] = '\0';
			return true;
		}
	}
	return false;
}

int cb_parents_make(const struct cb_jail_spec *spec)
{
	char path[PATH_MAX];
	CB_AUTO_FD mnt = -1;
	CB_AUTO_FD place = -1;
	int r;

	if (!uppermost(spec, path))
		return 0;
	r = cb_place_open(path, true, &place);
	if (r == 0)
		r = cb_mnt_tmpfs(CB_ROOT_BYTES, CB_ROOT_INODES, "0755", CB_NOSUID | CB_NODEV, &mnt);
	if (r == 0)
		r = cb_mnt_attach(mnt, place);
	return r < 0 ? r : cb_own_add(mnt);
}

int cb_parents_close(const struct cb_jail_spec *spec)
{
	char path[PATH_MAX];

	return uppermost(spec, path) ? cb_mnt_close(path) : 0;
}

bool cb_parents_need_var_tmp(const struct cb_jail_spec *spec)
{
	bool needed = spec->workspace_target != NULL && cb_path_within(spec->workspace_target, VAR_TMP);

	for (size_t i = 0; i < spec->nbinds; i++)
		needed = needed || cb_path_within(spec->binds[i].target, VAR_TMP);
	return needed;
}

int cb_parents_var_tmp(const struct cb_jail_spec *spec)
{
	if (!cb_parents_need_var_tmp(spec))
		return 0;
	return mkdir("var/tmp", 0755) < 0 ? -errno : cb_mnt_bind_at(AT_FDCWD, "tmp", 0, "var/tmp");
}
