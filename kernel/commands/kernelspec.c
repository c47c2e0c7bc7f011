/* Where a kernelspec lies: see kernelspec.h.
 *
 * Role: Jupyter's folders, as its own commands choose them. Trust domain: supervisor's program, no secrets. Invariant:
 * a name is one part of a path, so that nothing outside the kernelspecs' folder can be meant.
 */
#include "kernelspec.h"

#include <errno.h>

#include "paths.h"

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
