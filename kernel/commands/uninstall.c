/* `cellblock uninstall`: removes a kernelspec that install wrote, and nothing else.
 *
 * Role: takes away the files that install writes, by name, and the folders that are empty then. Trust domain:
 * supervisor's program, no secrets. Invariants: a kernelspec that does not start this program's kernel is left alone;
 * kernel.json goes first, so that no frontend offers half a kernelspec, and interpreter.json last, so that what an
 * interrupted command leaves is known for what it is; no link is followed below the kernelspec's folder.
 */
#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/visible.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernelspec.h"
#include "policy/paths.h"
#include "setup/interpreter_script.h"
#include "setup/interpreter_static.h"

#define STEP "kernelspec"
#define MAX_SPEC (1u << 20)
#define CB_RESOURCE_DIR "{resource_dir}"

/* NULL if it is no JSON. */
static int read_json(const char *folder, const char *name, json_t **ret_json)
{
	CB_AUTO_PATH path = cb_path_format("%s/%s", folder, name);
	CB_AUTO_FD fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;
	CB_AUTO_PATH text = NULL;
	size_t len = 0;
	int r = fd < 0 ? -errno : cb_fd_read_all(fd, MAX_SPEC, &text, &len);

	if (r < 0)
		return r;
	*ret_json = json_loadb(text, len, 0, NULL);
	return 0;
}

/* What starts `cellblock kernel`, wherever that lies or lay. */
static bool is_ours(const json_t *spec)
{
	const json_t *argv = json_object_get(spec, "argv");
	const char *program = json_string_value(json_array_get(argv, 0));
	const char *command = json_string_value(json_array_get(argv, 1));

	return program != NULL && command != NULL && strcmp(cb_path_name(program), "cellblock") == 0 &&
	       strcmp(command, "kernel") == 0;
}

/* What an installer of packages wrote, which has a list of its files: who removes it; NULL = `install` wrote it. The
 * kernelspec of a wheel names its program by {resource_dir}, that of a system's package has no facts beside it. */
static const char *packages_remover(const json_t *spec)
{
	const json_t *argv = json_object_get(spec, "argv");
	const char *program = json_string_value(json_array_get(argv, 0));

	if (program != NULL && strncmp(program, CB_RESOURCE_DIR, strlen(CB_RESOURCE_DIR)) == 0)
		return "a wheel, and goes with `pip uninstall cellblock` in that environment";
	for (size_t i = 0; i + 1 < json_array_size(argv); i++) {
		const char *word = json_string_value(json_array_get(argv, i));
		const char *value = json_string_value(json_array_get(argv, i + 1));

		if (word != NULL && value != NULL && strcmp(word, "--facts") == 0 && strcmp(value, "cache") == 0)
			return "the system's package, and goes with `apt remove cellblock`";
	}
	return NULL;
}

char *cb_kernelspec_program(const char *folder, const char **ret_package)
{
	json_auto_t *spec = NULL;

	*ret_package = NULL;
	if (read_json(folder, "kernel.json", &spec) < 0 || !is_ours(spec))
		return NULL;

	const char *named = json_string_value(json_array_get(json_object_get(spec, "argv"), 0));

	*ret_package = packages_remover(spec);
	if (strncmp(named, CB_RESOURCE_DIR, strlen(CB_RESOURCE_DIR)) == 0)
		return cb_path_format("%s%s", folder, named + strlen(CB_RESOURCE_DIR));
	/* Without a '/', it is what Jupyter finds on PATH. */
	CB_AUTO_PATH found = strchr(named, '/') == NULL ? cb_path_search(named) : NULL;

	return strdup(found != NULL ? found : named);
}

static int remove_at(int folder, const char *name, int flags)
{
	return unlinkat(folder, name, flags) < 0 && errno != ENOENT ? -errno : 0;
}

/* Compiled modules of the guest, and the lists beside them; also under the names that they have while they are
 * written (cb_file_replace), where a process was killed. */
int cb_kernelspec_remove_cache(int folder)
{
	static const char *const patterns[] = { "*.pyc",	"fontlist-*.json",	  "trees-*.pkl",
						"*.pyc.??????", "fontlist-*.json.??????", "trees-*.pkl.??????" };
	CB_AUTO_FOLDER dir = cb_folder_open(folder, "pycache", O_NOFOLLOW);
	const struct dirent *entry;
	int r = 0;

	if (dir == NULL)
		return errno == ENOENT ? 0 : -errno;
	while (r == 0 && (entry = cb_folder_next(dir)) != NULL) {
		for (size_t i = 0; r == 0 && i < CB_COUNT(patterns); i++)
			if (fnmatch(patterns[i], entry->d_name, 0) == 0)
				r = remove_at(dirfd(dir), entry->d_name, 0);
	}
	return r < 0 ? r : remove_at(folder, "pycache", AT_REMOVEDIR);
}

/* Letters and digits that chance chose, of which nearly all have two kinds: no word (.backup) and no date (.250131),
 * which are a user's own copies. */
static bool is_random(const char *end)
{
	int upper = 0, lower = 0, digits = 0;

	for (const char *c = end; *c != '\0'; c++) {
		upper += *c >= 'A' && *c <= 'Z';
		lower += *c >= 'a' && *c <= 'z';
		digits += *c >= '0' && *c <= '9';
	}
	return strlen(end) == 6 && upper + lower + digits == 6 && upper < 6 && lower < 6 && digits < 6;
}

/* What cb_file_replace makes: regular, for its user alone until it is whole. A name in doubt is left. */
static bool is_temporary(int folder, const char *name)
{
	const char *dot = strrchr(name, '.');
	CB_AUTO_PATH whole = dot != NULL ? strndup(name, (size_t)(dot - name)) : NULL;
	struct stat st;
	bool ours;

	if (whole == NULL || !is_random(dot + 1))
		return false;
	ours = strcmp(whole, "kernel.json") == 0 || strcmp(whole, "interpreter.json") == 0;
	for (size_t i = 0; i < CB_KERNELSPEC_LOGOS; i++)
		ours = ours || strcmp(whole, cb_kernelspec_logos[i]) == 0;
	return ours && fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       (st.st_mode & 0777) == 0600;
}

/* A folder where nothing of `install` got its name but what was being written then. */
static bool has_temporary(const char *path)
{
	CB_AUTO_FOLDER dir = cb_folder_open(AT_FDCWD, path, O_NOFOLLOW);
	const struct dirent *entry;

	while ((entry = cb_folder_next(dir)) != NULL)
		if (is_temporary(dirfd(dir), entry->d_name))
			return true;
	return false;
}

bool cb_kernelspec_is_rest(const char *folder)
{
	CB_AUTO_PATH kernel = cb_path_format("%s/kernel.json", folder);
	json_auto_t *facts = NULL;
	struct stat st;
	int r;

	if (kernel == NULL || lstat(kernel, &st) == 0 || errno != ENOENT)
		return false;
	r = read_json(folder, "interpreter.json", &facts);
	return r == -ENOENT ? has_temporary(folder) : r == 0 && json_is_object(json_object_get(facts, "stamp"));
}

int cb_kernelspec_remove_temporaries(int folder)
{
	CB_AUTO_FOLDER dir = cb_folder_open(folder, ".", O_NOFOLLOW);
	const struct dirent *entry;
	int r = dir != NULL ? 0 : -errno;

	while (r == 0 && (entry = cb_folder_next(dir)) != NULL)
		if (is_temporary(folder, entry->d_name))
			r = remove_at(folder, entry->d_name, 0);
	return r;
}

/* Files are left in a folder that are not ours. */
static bool has_others(int code)
{
	return code == -ENOTEMPTY || code == -EEXIST;
}

int cb_kernelspec_remove_files(const char *path)
{
	CB_AUTO_FD folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = folder < 0 ? -errno : remove_at(folder, "kernel.json", 0);

	if (r == -EISDIR)
		r = 0; /* not install's */
	for (size_t i = 0; r == 0 && i < CB_KERNELSPEC_LOGOS; i++)
		r = remove_at(folder, cb_kernelspec_logos[i], 0);
	if (r == 0)
		r = cb_kernelspec_remove_cache(folder);
	if (r == 0 || has_others(r)) {
		int rest = cb_kernelspec_remove_temporaries(folder);

		if (rest == 0)
			rest = remove_at(folder, "interpreter.json", 0);
		r = rest < 0 ? rest : r;
	}
	if (r == 0 && rmdir(path) < 0)
		r = -errno;
	return r;
}

int cb_kernelspec_remove(const char *folder, struct cb_err *err)
{
	json_auto_t *spec = NULL;
	int r = read_json(folder, "kernel.json", &spec);
	bool rest = r == -ENOENT && cb_kernelspec_is_rest(folder), ours = r == 0 && is_ours(spec);
	const char *package = ours ? packages_remover(spec) : NULL;

	if (r < 0 && !rest)
		return cb_err_set(err, r, STEP,
				  "`jupyter kernelspec list` has the names and places of all; --name, --sys-prefix and "
				  "--prefix choose another.",
				  "no kernelspec in %s: %s", folder, cb_err_text(r));
	if (package != NULL)
		return cb_err_set(err, CB_E_DENIED, STEP, NULL, "left the kernelspec in %s: it came with %s", folder,
				  package);
	if (!ours && !rest)
		return cb_err_set(err, CB_E_DENIED, STEP,
				  "`jupyter kernelspec remove` removes those of other programs.",
				  "the kernelspec in %s does not start cellblock: left as it is", folder);
	r = cb_kernelspec_remove_files(folder);
	if (has_others(r)) {
		printf("Removed the kernelspec; in %s files are left that install did not write\n", cb_shown(folder));
		return 0;
	}
	if (r < 0)
		return cb_err_set(err, r, STEP, NULL, "%s can't be removed: %s", folder, strerror(-r));
	printf("Removed %sthe kernelspec %s\n", rest ? "what was left of " : "", cb_shown(folder));
	CB_AUTO_PATH kernels = cb_path_parent(folder);

	if (kernels != NULL)
		(void)rmdir(kernels); /* `install` may have made it; it is not empty where others use it */
	return 0;
}

/* Whether a wheel has put its kernelspec there, which `install --sys-prefix` replaces. */
static bool is_wheels_place(const char *folder)
{
	CB_AUTO_PATH script = cb_interpreter_script_of_ours();
	CB_AUTO_PATH prefix = script != NULL ? cb_install_paths_prefix() : NULL;
	CB_AUTO_PATH place = prefix != NULL ? cb_path_format("%s/share/jupyter/kernels/cellblock", prefix) : NULL;
	CB_AUTO_PATH wheels = place != NULL ? cb_path_real(place) : NULL;
	CB_AUTO_PATH real = cb_path_real(folder);

	return wheels != NULL && real != NULL && strcmp(wheels, real) == 0;
}

int cb_command_uninstall(const struct cb_options *o)
{
	struct cb_interpreter interpreter = { 0 };
	struct cb_err err = { 0 };
	CB_AUTO_PATH folder = NULL;
	bool wheels = false;

	if (o->all || o->dry_run)
		return cb_uninstall_all(o, &err) < 0 ? cb_command_fail("uninstall", &err) : 0;

	int r = o->sys_prefix ? cb_interpreter_static(o->python, &interpreter, &err) : 0;

	if (r == 0)
		r = cb_kernelspec_folder(o, &interpreter, &folder, &err);
	if (r == 0)
		wheels = is_wheels_place(folder); /* before it is gone */
	if (r == 0)
		r = cb_kernelspec_remove(folder, &err);
	if (r == 0 && wheels)
		printf("`pip install --force-reinstall --no-deps cellblock` brings back the kernelspec that the wheel "
		       "had there\n");
	cb_interpreter_release(&interpreter);
	return r < 0 ? cb_command_fail("uninstall", &err) : 0;
}
