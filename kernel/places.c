/* Where Cellblock's own programs lie.
 *
 * Role: finds the broker's program and the guest package beside this program, in an installed tree and in a build tree
 * alike (both are PREFIX/bin and PREFIX/libexec/cellblock). Trust domain: supervisor, at start. Callers: the commands.
 * Invariant: only /proc/self/exe is believed, never PATH, the environment or the current folder.
 */
#include "options.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

#include "paths.h"

/* Returns PREFIX of PREFIX/bin/NAME in place: cuts two parts off. */
static int cut_to_prefix(char *path)
{
	for (int i = 0; i < 2; i++) {
		char *slash = strrchr(path, '/');

		if (slash == NULL)
			return -EINVAL;
		*slash = '\0';
	}
	return 0;
}

/* uv can leave a wheel unpacked in its cache and make links to it: NAME.data/scripts/cellblock and
 * NAME.data/data/libexec. */
static void look_in_wheel(char *prefix, size_t size)
{
	CB_AUTO_PATH ours = cb_path_format("%s/libexec/cellblock", prefix);
	CB_AUTO_PATH data = cb_path_format("%s/data", prefix);
	size_t n = strlen(prefix);

	if (ours != NULL && data != NULL && !cb_path_is_dir(ours) && n > 5 && strcmp(prefix + n - 5, ".data") == 0)
		snprintf(prefix, size, "%s", data);
}

static int find_one(const char *prefix, const char *name, mode_t kind, char **ret_path, struct cb_err *err)
{
	char *path = NULL;
	struct stat st;

	if (asprintf(&path, "%s/libexec/cellblock/%s", prefix, name) < 0)
		return cb_err_set(err, -ENOMEM, "places", NULL, "out of memory");
	if (stat(path, &st) < 0 || (st.st_mode & S_IFMT) != kind) {
		int code = cb_err_set(err, -ENOENT, "places", "Install Cellblock whole, or build all targets.",
				      "%s is missing: it belongs to this program", path);

		free(path);
		return code;
	}
	*ret_path = path;
	return 0;
}

int cb_places_find(struct cb_places *ret_places, struct cb_err *err)
{
	struct cb_places places = { 0 };
	char self[PATH_MAX], prefix[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int r;

	if (n <= 0 || (size_t)n >= sizeof(self) - 1)
		return cb_err_set(err, n < 0 ? -errno : -ENAMETOOLONG, "places", "Mount /proc.",
				  "/proc/self/exe can't be read: %s", n < 0 ? strerror(errno) : "too long");
	self[n] = '\0';
	memcpy(prefix, self, (size_t)n + 1);
	r = cut_to_prefix(prefix);
	if (r < 0)
		return cb_err_set(err, r, "places", NULL, "%s is not in a folder PREFIX/bin", self);
	look_in_wheel(prefix, sizeof(prefix));
	places.self = strdup(self);
	r = places.self == NULL ? -ENOMEM : find_one(prefix, "cellblock-jail", S_IFREG, &places.jail, err);
	if (r == 0)
		r = find_one(prefix, "guest", S_IFDIR, &places.guest, err);
	if (r < 0) {
		cb_places_release(&places);
		return r;
	}
	*ret_places = places;
	return 0;
}

void cb_places_release(struct cb_places *p)
{
	free(p->self);
	free(p->jail);
	free(p->guest);
	*p = (struct cb_places){ 0 };
}
