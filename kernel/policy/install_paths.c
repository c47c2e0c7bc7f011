/* Where Cellblock's own programs lie.
 *
 * Role: finds the broker's program and the guest package beside this program, in an installed tree and in a build tree
 * alike (both are PREFIX/bin and PREFIX/libexec/cellblock). Trust domain: supervisor, at start.
 * Invariant: only /proc/self/exe is believed, never PATH, the environment or the current folder; of a wheel that lies
 * unpacked in uv's cache also the path that started it, where that is a link to it.
 */
#include "install_paths.h"

#include <errno.h>
#include <limits.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "paths.h"

#define MAX_LINKS 16

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

static bool in_wheel(const char *self)
{
	static const char end[] = ".data/scripts";
	CB_AUTO_PATH folder = cb_path_parent(self);
	size_t n = folder != NULL ? strlen(folder) : 0;

	return n >= strlen(end) && strcmp(folder + n - strlen(end), end) == 0;
}

static char *link_target(const char *path)
{
	char target[PATH_MAX];
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	CB_AUTO_PATH folder = cb_path_parent(path);

	if (n <= 0 || folder == NULL)
		return NULL;
	target[n] = '\0';
	return cb_path_absolute(target, folder);
}

/* On the way from what was started to `self` (a tool may link to the environment's bin/, and that to the cache), the
 * link beside which an installer wrote the script. */
static char *link_in_environment(const char *self)
{
	const char *started = (const char *)getauxval(AT_EXECFN);
	char *path = started != NULL ? cb_path_absolute(started, NULL) : NULL;

	for (int i = 0; path != NULL && i < MAX_LINKS && strcmp(path, self) != 0; i++) {
		CB_AUTO_PATH real = cb_path_real(path);
		CB_AUTO_PATH folder = cb_path_parent(path);
		CB_AUTO_PATH script = folder != NULL ? cb_path_format("%s/" CB_INTERPRETER_SCRIPT, folder) : NULL;
		char *next;

		if (real == NULL || strcmp(real, self) != 0)
			break;
		if (script != NULL && cb_path_is_file(script))
			return path;
		next = link_target(path);
		free(path);
		path = next;
	}
	free(path);
	return NULL;
}

char *cb_install_paths_program(void)
{
	char *self = cb_path_real("/proc/self/exe");
	char *link = self != NULL && in_wheel(self) ? link_in_environment(self) : NULL;

	if (link == NULL)
		return self;
	free(self);
	return link;
}

char *cb_install_paths_prefix(void)
{
	CB_AUTO_PATH program = cb_install_paths_program();
	CB_AUTO_PATH bin = program != NULL ? cb_path_parent(program) : NULL;

	return bin != NULL ? cb_path_parent(bin) : NULL;
}

static int find_one(const char *prefix, const char *name, mode_t kind, char **ret_path, struct cb_err *err)
{
	char *path = NULL;
	struct stat st;

	if (asprintf(&path, "%s/libexec/cellblock/%s", prefix, name) < 0)
		return cb_err_set(err, -ENOMEM, "installation", NULL, "out of memory");
	if (stat(path, &st) < 0 || (st.st_mode & S_IFMT) != kind) {
		int code = cb_err_set(err, -ENOENT, "installation", "Install Cellblock whole, or build all targets.",
				      "%s is missing: it belongs to this program", path);

		free(path);
		return code;
	}
	*ret_path = path;
	return 0;
}

int cb_install_paths_find(struct cb_install_paths *ret_paths, struct cb_err *err)
{
	struct cb_install_paths install_paths = { 0 };
	char self[PATH_MAX], prefix[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int r;

	if (n <= 0 || (size_t)n >= sizeof(self) - 1)
		return cb_err_set(err, n < 0 ? -errno : -ENAMETOOLONG, "installation", "Mount /proc.",
				  "/proc/self/exe can't be read: %s", n < 0 ? strerror(errno) : "too long");
	self[n] = '\0';
	memcpy(prefix, self, (size_t)n + 1);
	r = cut_to_prefix(prefix);
	if (r < 0)
		return cb_err_set(err, r, "installation", NULL, "%s is not in a folder PREFIX/bin", self);
	look_in_wheel(prefix, sizeof(prefix));
	install_paths.self = strdup(self);
	r = install_paths.self != NULL ? find_one(prefix, "cellblock-jail", S_IFREG, &install_paths.jail, err)
				       : -ENOMEM;
	if (r == 0)
		r = find_one(prefix, "guest", S_IFDIR, &install_paths.guest, err);
	if (r < 0) {
		cb_install_paths_release(&install_paths);
		return r;
	}
	*ret_paths = install_paths;
	return 0;
}

void cb_install_paths_release(struct cb_install_paths *p)
{
	free(p->self);
	free(p->jail);
	free(p->guest);
	*p = (struct cb_install_paths){ 0 };
}
