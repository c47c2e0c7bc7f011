/* Which interpreter a wheel was installed for: the first line of its script `cellblock-python`.
 *
 * Role: reads what pip, uv and other installers make of `#!python`; runs nothing. Trust domain: supervisor, at start.
 * The file is one that the user's own tools wrote, but little is believed: a path that is no program counts for
 * nothing. Invariants: the line goes before the Python beside the script; that one is taken only where the line's is
 * gone and the folder above is an environment (a moved one keeps a stale line).
 */
#include "interpreter_script.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "policy/install_paths.h"
#include "policy/paths.h"

#define STEP "interpreter"
#define CURE                                                                                                           \
	"Install Cellblock there again (pip install --force-reinstall --no-deps cellblock), or name a Python: "        \
	"cellblock install --user --python EXE."

/* A shell or `env` is not what will run. */
static bool is_python(const char *path)
{
	return path[0] == '/' && strncmp(cb_path_name(path), "python", 6) == 0 && cb_path_is_file(path) &&
	       access(path, X_OK) == 0;
}

/* A word of a shell, quoted in any way, in place; what follows it is cut off. */
static void unquote(char *text)
{
	char *out = text, quote = '\0';

	for (const char *in = text; *in != '\0' && (quote != '\0' || (*in != ' ' && *in != '\t')); in++) {
		if (quote == '\0' && (*in == '"' || *in == '\''))
			quote = *in;
		else if (*in == quote && quote != '\0')
			quote = '\0';
		else if (*in == '\\' && quote != '\'' && in[1] != '\0')
			*out++ = *++in;
		else
			*out++ = *in;
	}
	*out = '\0';
}

/* The path in the first lines of a script, in place; NULL if they are of no known form. Long paths and such with
 * blanks stand in the second line, which is shell and Python at once: '''exec' "/path/python" "$0" "$@" */
static char *named_in(char *text)
{
	static const char exec[] = "\n'''exec' ";
	char *second = strncmp(text, "#!/bin/sh\n", 10) == 0 ? text + 9 : NULL, *path;

	if (second != NULL && strncmp(second, exec, strlen(exec)) == 0) {
		path = second + strlen(exec);
		path[strcspn(path, "\r\n")] = '\0';
		unquote(path);
		return path;
	}
	if (strncmp(text, "#!", 2) != 0)
		return NULL;
	path = text + 2;
	path[strcspn(path, "\r\n")] = '\0';
	path += strspn(path, " \t");
	if (!is_python(path)) /* older pips leave blanks in a path as they are: no argument follows then */
		path[strcspn(path, " \t")] = '\0';
	return path;
}

/* The Python of the environment that the script lies in: a venv or conda prefix, wherever it was moved to. */
static char *beside(const char *script)
{
	CB_AUTO_PATH folder = cb_path_parent(script);
	CB_AUTO_PATH bin = folder != NULL ? cb_path_real(folder) : NULL;
	CB_AUTO_PATH prefix = bin != NULL ? cb_path_parent(bin) : NULL;
	CB_AUTO_PATH cfg = prefix != NULL ? cb_path_format("%s/pyvenv.cfg", prefix) : NULL;
	CB_AUTO_PATH conda = prefix != NULL ? cb_path_format("%s/conda-meta", prefix) : NULL;
	char *python;

	if (cfg == NULL || conda == NULL || (!cb_path_is_file(cfg) && !cb_path_is_dir(conda)))
		return NULL;
	python = cb_path_format("%s/python", bin);
	if (python != NULL && !is_python(python)) {
		free(python);
		python = NULL;
	}
	return python;
}

int cb_interpreter_script(const char *script, char **ret_python, struct cb_err *err)
{
	CB_AUTO_FD fd = open(script, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	char text[PATH_MAX + 64] = "";
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	const char *named;
	char *python;

	if (n < 0)
		return cb_err_set(err, -errno, STEP, CURE, "%s can't be read: %s", script, strerror(errno));
	text[n] = '\0';
	named = named_in(text);
	python = named != NULL && is_python(named) ? cb_path_absolute(named, NULL) : beside(script);
	if (python == NULL)
		return cb_err_set(err, -ENOENT, STEP, CURE,
				  "%s names the Python that Cellblock was installed for, and that is gone (%.200s): "
				  "the environment was moved, or its Python upgraded or removed",
				  script, named != NULL && named[0] != '\0' ? named : "no path");
	*ret_python = python;
	return 0;
}

char *cb_interpreter_script_of_ours(void)
{
	CB_AUTO_PATH program = cb_install_paths_program();
	CB_AUTO_PATH bin = program != NULL ? cb_path_parent(program) : NULL;
	char *script = bin != NULL ? cb_path_format("%s/%s", bin, CB_INTERPRETER_SCRIPT) : NULL;

	if (script != NULL && !cb_path_is_file(script)) {
		free(script);
		script = NULL;
	}
	return script;
}
