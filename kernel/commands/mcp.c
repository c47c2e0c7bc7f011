/* `cellblock mcp`: becomes the MCP server, which is part of the Python package.
 *
 * Role: checks the words as all commands do, finds the Python of the environment that this program lies in, and
 * becomes it. Trust domain: supervisor's program, no secrets. Invariant: that Python runs isolated (-I), so that
 * neither the current folder, which may be a workspace, nor the environment decides what it imports.
 */
#include <errno.h>
#include <unistd.h>

#include "command.h"
#include "policy/paths.h"
#include "setup/interpreter_script.h"

static const char program[] =
	"import os, site, sys\n"
	"user = os.path.join(site.getuserbase(), 'bin', 'cellblock')\n"
	"if sys.argv.pop(1) == os.path.realpath(user):\n" /* pip install --user: -I leaves such packages out */
	"    site.addsitedir(site.getusersitepackages())\n"
	"try:\n"
	"    from cellblock.mcp.__main__ import main\n"
	"except ImportError as e:\n"
	"    sys.exit(f'cellblock mcp: the Python package is not there ({e}); install it for '\n"
	"             f'{sys.executable}: pip install \"cellblock[mcp]\" (Python 3.10 or newer)')\n"
	"main()\n";

static int add(struct cb_strv *argv, const char *name, const char *value)
{
	int r = 0;

	if (value == NULL)
		return 0;
	r = cb_strv_add(argv, name);
	return r == 0 ? cb_strv_add(argv, value) : r;
}

static int arguments(const struct cb_options *o, const char *python, const char *self, struct cb_strv *argv)
{
	const char *head[] = { python, "-I", "-c", program, self };
	int r = 0;

	for (size_t i = 0; i < CB_COUNT(head) && r == 0; i++)
		r = cb_strv_add(argv, head[i]);
	if (r == 0 && o->files)
		r = cb_strv_add(argv, "--files");
	if (r == 0 && o->checkpoints)
		r = cb_strv_add(argv, "--checkpoints");
	const char *pairs[][2] = { { "--policy", o->policy },	  { "--workspace", o->workspace },
				   { "--sessions", o->sessions }, { "--lifetime", o->lifetime },
				   { "--http", o->http },	  { "--token-file", o->token_file },
				   { "--proxy", o->proxy } };
	for (size_t i = 0; i < CB_COUNT(pairs) && r == 0; i++)
		r = add(argv, pairs[i][0], pairs[i][1]);
	for (size_t i = 0; i < o->sets.count && r == 0; i++)
		if (o->workspace == NULL || strncmp(o->sets.items[i], "workspace.path=", 15) != 0)
			r = add(argv, "--set", o->sets.items[i]);
	return r;
}

/* That which a wheel was installed for, else the one beside this program. */
static int find_python(char **ret_python, struct cb_err *err)
{
	CB_AUTO_PATH script = cb_interpreter_script_of_ours();
	CB_AUTO_PATH prefix = cb_install_paths_prefix();
	CB_AUTO_PATH bin = prefix != NULL ? cb_path_format("%s/bin", prefix) : NULL;

	if (script != NULL)
		return cb_interpreter_script(script, ret_python, err);
	if (bin == NULL)
		return cb_err_set(err, -ENOMEM, "mcp", NULL, "out of memory");
	*ret_python = cb_path_program_in(bin, "python3"); /* `python` may be a Python 2 where both are */
	if (*ret_python == NULL)
		*ret_python = cb_path_program_in(bin, "python");
	if (*ret_python == NULL)
		return cb_err_set(err, -ENOENT, "mcp",
				  "Install Cellblock into a Python environment, and its package there: "
				  "pip install 'cellblock[mcp]'. Or start `python -m cellblock.mcp` where the package "
				  "is.",
				  "no Python lies beside this program: %s has neither python3 nor python", bin);
	return 0;
}

int cb_command_mcp(const struct cb_options *o)
{
	CB_AUTO_STRV argv = { 0 };
	struct cb_install_paths install_paths = { 0 };
	struct cb_err err = { 0 };
	char *python = NULL;
	int r = cb_install_paths_find(&install_paths, &err);

	if (r == 0)
		r = find_python(&python, &err);
	if (r == 0 && arguments(o, python, install_paths.self, &argv) < 0)
		r = cb_err_set(&err, -ENOMEM, "mcp", NULL, "out of memory");
	if (r == 0) {
		execv(python, argv.items);
		r = cb_err_set(&err, -errno, "mcp", NULL, "%s can't be started: %s", python, strerror(errno));
	}
	cb_install_paths_release(&install_paths);
	free(python);
	return cb_command_fail(o->command, &err);
}
