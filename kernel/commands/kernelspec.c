/* Where a kernelspec lies: see kernelspec.h.
 *
 * Role: Jupyter's folders, as its own commands choose them. Trust domain: supervisor's program, no secrets. Invariant:
 * a name is one part of a path, so that nothing outside the kernelspecs' folder can be meant.
 */
#include "kernelspec.h"

#include <cellblock/folder.h>
#include <errno.h>
#include <unistd.h>

#include "policy/paths.h"

const char *const cb_kernelspec_logos[CB_KERNELSPEC_LOGOS] = { "logo-32x32.png", "logo-64x64.png", "logo-svg.svg" };

static char *user_data(void)
{
	const char *jupyter = getenv("JUPYTER_DATA_DIR"), *data = getenv("XDG_DATA_HOME");
	CB_AUTO_PATH home = cb_path_home();

	if (jupyter != NULL && jupyter[0] == '/')
		return cb_path_format("%s/kernels", jupyter);
	if (data != NULL && data[0] == '/')
		return cb_path_format("%s/jupyter/kernels", data);
	return home != NULL ? cb_path_format("%s/.local/share/jupyter/kernels", home) : NULL;
}

/* sys.prefix of the interpreter: a venv's folder, else where its bin folder lies. */
static char *sys_prefix(const struct cb_interpreter *interpreter)
{
	CB_AUTO_PATH bin = cb_path_parent(interpreter->executable);

	if (interpreter->venv != NULL)
		return strdup(interpreter->venv);
	if (bin != NULL && strcmp(bin, "/bin") == 0)
		return strdup("/usr");
	return bin != NULL ? cb_path_parent(bin) : NULL;
}

int cb_kernelspec_folder(const struct cb_options *o, const struct cb_interpreter *interpreter, char **ret_folder,
			 struct cb_err *err)
{
	const char *name = o->name != NULL ? o->name : o->bash ? "cellblock-bash" : "cellblock";
	CB_AUTO_PATH prefix = NULL;
	CB_AUTO_PATH kernels = NULL;

	if (name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] != '\0' ||
	    name[0] == '.')
		return cb_err_set(err, CB_E_USAGE, "kernelspec",
				  "Use letters, digits, '.', '_' and '-', no '.' at the beginning.",
				  "\"%s\" is no name for a kernelspec", name);
	if (o->prefix != NULL) {
		CB_AUTO_PATH expanded = cb_path_expand(o->prefix);

		prefix = expanded != NULL ? cb_path_absolute(expanded, NULL) : NULL;
	} else if (o->sys_prefix) {
		prefix = sys_prefix(interpreter);
	} else {
		kernels = user_data();
	}
	if (prefix != NULL)
		kernels = cb_path_format("%s/share/jupyter/kernels", prefix);
	*ret_folder = kernels != NULL ? cb_path_format("%s/%s", kernels, name) : NULL;
	return *ret_folder != NULL ? 0
				   : cb_err_set(err, -ENOENT, "kernelspec", "Name one with --prefix.",
						"no folder to install into is known");
}

static int add_place(struct cb_strv *list, const char *prefix, const char *below)
{
	CB_AUTO_PATH path = prefix != NULL && prefix[0] == '/' ? cb_path_format("%s%s", prefix, below) : NULL;

	return path != NULL && !cb_strv_has(list, path) ? cb_strv_add(list, path) : 0;
}

/* The prefix that the `jupyter` on PATH is installed in, also where that is a link that pipx or uv made. */
static char *jupyters_prefix(void)
{
	static const char *const names[] = { "jupyter", "jupyter-lab", "jupyter-notebook" };
	const char *path = getenv("PATH");
	CB_AUTO_PATH folder = NULL;

	while (cb_path_next(&path, &folder)) {
		for (size_t i = 0; i < 3 && folder != NULL && folder[0] == '/'; i++) {
			CB_AUTO_PATH program = cb_path_format("%s/%s", folder, names[i]);
			bool there = program != NULL && access(program, X_OK) == 0;
			CB_AUTO_PATH real = there ? cb_path_real(program) : NULL;
			CB_AUTO_PATH bin = real != NULL ? cb_path_parent(real) : NULL;

			if (bin != NULL)
				return cb_path_parent(bin);
		}
	}
	return NULL;
}

int cb_kernelspec_places(bool more, struct cb_strv *ret_folders)
{
	static const char below[] = "/share/jupyter/kernels";
	CB_AUTO_PATH user = user_data();
	CB_AUTO_PATH jupyter = jupyters_prefix();
	CB_AUTO_PATH own = more ? cb_install_paths_prefix() : NULL;
	CB_AUTO_PATH one = NULL;
	const char *const prefixes[] = { jupyter,
					 "/usr/local",
					 "/usr",
					 own,
					 more ? getenv("VIRTUAL_ENV") : NULL,
					 more ? getenv("CONDA_PREFIX") : NULL };
	const char *paths = getenv("JUPYTER_PATH");
	int r = add_place(ret_folders, user, "");

	while (r == 0 && cb_path_next(&paths, &one))
		r = one != NULL ? add_place(ret_folders, one, "/kernels") : -ENOMEM;
	for (size_t i = 0; r == 0 && i < CB_COUNT(prefixes); i++)
		r = add_place(ret_folders, prefixes[i], below);
	return r;
}

int cb_kernelspec_visible(const struct cb_install_paths *install_paths, struct cb_strv *ret_folders)
{
	CB_AUTO_STRV folders = { 0 };
	int r = cb_kernelspec_places(false, &folders);

	for (size_t i = 0; r == 0 && i < folders.count; i++) {
		CB_AUTO_FOLDER dir = cb_folder_open(AT_FDCWD, folders.items[i], 0);
		const struct dirent *entry;

		while (r == 0 && (entry = cb_folder_next(dir)) != NULL) {
			const char *package;
			CB_AUTO_PATH folder = cb_path_format("%s/%s", folders.items[i], entry->d_name);
			CB_AUTO_PATH program = folder != NULL && entry->d_name[0] != '.'
						       ? cb_kernelspec_program(folder, &package)
						       : NULL;
			CB_AUTO_PATH real = program != NULL && program[0] == '/' ? cb_path_real(program) : NULL;

			if (real != NULL && strcmp(real, install_paths->self) == 0)
				r = cb_strv_add(ret_folders, folder);
		}
	}
	return r;
}
