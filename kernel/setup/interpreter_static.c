/* Facts about an interpreter that follow from paths, links and pyvenv.cfg alone.
 *
 * Role: which program is meant, and which folders it lives in. Trust domain: supervisor, at start; the files looked at
 * may be anyone's, so nothing is run and little is believed: a folder counts as a prefix only if it holds a Python
 * library, a pyvenv.cfg or a conda-meta, and a home folder, a parent of it or a system folder is never bound whole. A
 * link of an environment counts only if it leads to such a prefix's library or to the system's; else it is not
 * followed, and that is kept for people to read.
 * Invariants: links are followed hop by hop, for each hop must exist inside too; what lies in /usr is there anyway.
 */
#include "interpreter_static.h"

#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/visible.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "interpreter_script.h"
#include "policy/install_paths.h"
#include "policy/paths.h"
#include "policy/workspace.h"

#define STEP "interpreter"
#define MAX_HOPS 16
#define MAX_CFG (64u << 10)
#define MAX_UNFOLLOWED 20

/* ---- the program ---- */

/* The active environment's Python, that which a wheel was installed for, or python3 on PATH. */
static char *default_program(void)
{
	const char *venv = getenv("VIRTUAL_ENV");
	CB_AUTO_PATH python = venv != NULL && venv[0] == '/' ? cb_path_format("%s/bin/python", venv) : NULL;

	if (python != NULL && cb_path_is_program(python))
		return cb_path_absolute(python, NULL);
	char *script = cb_interpreter_script_of_ours();

	return script != NULL ? script : cb_path_search("python3");
}

static bool is_script(const char *path)
{
	return strcmp(cb_path_name(path), CB_INTERPRETER_SCRIPT) == 0;
}

/* A wheel's kernelspec names its script by `..` from its own folder; links on that way are followed as for argv[0]. */
static char *script_path(const char *name)
{
	CB_AUTO_PATH folder = cb_path_parent(name);
	CB_AUTO_PATH real = folder != NULL ? cb_path_real(folder) : NULL;

	return real != NULL ? cb_path_format("%s/%s", real, cb_path_name(name)) : cb_path_absolute(name, NULL);
}

static int find_program(const char *name, char **ret_path, struct cb_err *err)
{
	CB_AUTO_PATH expanded = name != NULL ? cb_path_expand(name) : NULL;
	char *path;

	if (name == NULL)
		path = default_program();
	else if (expanded != NULL && strchr(expanded, '/') != NULL && is_script(expanded))
		path = script_path(expanded);
	else if (expanded != NULL && strchr(expanded, '/') != NULL)
		path = cb_path_absolute(expanded, NULL);
	else
		path = cb_path_search(name);
	if (path == NULL || !cb_path_is_program(path)) {
		int code = cb_err_set(err, -ENOENT, STEP, "Name one with --python.", "%s: no such program",
				      path != NULL   ? path
				      : name != NULL ? name
						     : "python3");

		free(path);
		return code;
	}
	*ret_path = path;
	return 0;
}

/* First line of a small file, without blanks at its ends; "" if it can't be read. */
static void first_line(const char *path, char *text, size_t size)
{
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd >= 0 ? read(fd, text, size - 1) : 0;

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, " \t\r\n:")] = '\0';
}

/* A shim of pyenv is a script that starts another Python; that one is what has to be jailed. */
static int resolve_shim(char **path, struct cb_err *err)
{
	CB_AUTO_PATH folder = cb_path_parent(*path);
	CB_AUTO_PATH root = folder != NULL ? cb_path_parent(folder) : NULL;
	CB_AUTO_PATH chosen = root != NULL ? cb_path_format("%s/version", root) : NULL;
	CB_AUTO_PATH real = NULL;
	char line[256] = "", script[3] = "";
	CB_AUTO_FD fd = -1;

	if (chosen == NULL)
		return cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
	if (strcmp(cb_path_name(folder), "shims") != 0)
		return 0;
	fd = open(*path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || read(fd, script, 2) != 2 || strcmp(script, "#!") != 0)
		return 0;
	if (getenv("PYENV_VERSION") != NULL)
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(getenv("PYENV_VERSION"), ": "),
			 getenv("PYENV_VERSION"));
	else
		first_line(chosen, line, sizeof(line));
	real = cb_path_format("%s/versions/%s/bin/%s", root, line, cb_path_name(*path));
	if (real == NULL || line[0] == '\0' || strchr(line, '/') != NULL || !cb_path_is_program(real)) {
		char cure[300];

		snprintf(cure, sizeof(cure),
			 "Name the interpreter itself with --python, e.g. %.200s/versions/3.x.y/bin/python3.", root);
		return cb_err_set(err, CB_E_DENIED, STEP, cure,
				  "%s is a shim of pyenv, and the version it stands for (%s) has no %s", *path,
				  line[0] != '\0' ? line : "none chosen", cb_path_name(*path));
	}
	free(*path);
	*path = real;
	real = NULL;
	return 0;
}

/* The script of a wheel stands for the Python that it was installed for. */
static int resolve_script(char **path, struct cb_err *err)
{
	char *python;
	int r;

	if (!is_script(*path))
		return 0;
	r = cb_interpreter_script(*path, &python, err);
	if (r == 0) {
		free(*path);
		*path = python;
	}
	return r;
}

/* ---- prefixes ---- */

static bool has(const char *folder, const char *name)
{
	CB_AUTO_PATH path = cb_path_format("%s/%s", folder, name);

	return path != NULL && access(path, F_OK) == 0;
}

/* Whether `lib` holds the standard library of a Python 3. */
static bool holds_library(const char *lib)
{
	CB_AUTO_FOLDER dir = cb_folder_open(AT_FDCWD, lib, 0);
	const struct dirent *entry;
	bool found = false;

	while (!found && (entry = cb_folder_next(dir)) != NULL) {
		if (strncmp(entry->d_name, "python3", 7) == 0) {
			CB_AUTO_PATH inner = cb_path_format("%s/os.py", entry->d_name);

			found = inner != NULL && has(lib, inner);
		}
	}
	return found;
}

static bool is_prefix(const char *folder)
{
	CB_AUTO_PATH lib = cb_path_format("%s/lib", folder);

	return has(folder, "pyvenv.cfg") || has(folder, "conda-meta") || (lib != NULL && holds_library(lib));
}

const char *cb_system_shown(const char *path)
{
	static const char *const system[] = { "/usr",	"/bin",	   "/sbin",	 "/lib",       "/lib32",
					      "/lib64", "/libx32", "/nix/store", "/gnu/store", "/etc/alternatives" };

	for (size_t i = 0; i < CB_COUNT(system); i++)
		if (cb_path_within(path, system[i]))
			return system[i];
	return NULL;
}

static bool shown_anyway(const char *path)
{
	return cb_system_shown(path) != NULL;
}

/* Lists a folder (or, for a link outside any prefix, a file) under its own path and its real path. */
static int add_shown(struct cb_interpreter *p, const char *path, struct cb_err *err)
{
	CB_AUTO_PATH real = cb_path_real(path);
	const char *why = real != NULL && cb_path_is_dir(real) ? cb_workspace_refusal(real) : NULL;
	int r = 0;

	if (real == NULL)
		return cb_err_set(err, -errno, STEP, NULL, "%s: %s", path, strerror(errno));
	if (!shown_anyway(real) && why != NULL)
		return cb_err_set(
			err, CB_E_DENIED, STEP, "Use a Python that is installed in a folder of its own, or a venv.",
			"the interpreter %s lies in %s, which is %s: to show it would show everything in there",
			p->executable, real, why);
	if (!shown_anyway(path) && !cb_strv_has(&p->prefixes, path))
		r = cb_strv_add(&p->prefixes, path);
	if (r == 0 && !shown_anyway(real) && !cb_strv_has(&p->prefixes, real))
		r = cb_strv_add(&p->prefixes, real);
	return r < 0 ? cb_err_set(err, r, STEP, NULL, "out of memory") : 0;
}

/* ---- what a link may lead to ---- */

/* Whether `real` is a Python's library: in `lib` of a recognised prefix, or the folder of a standard library, or of
 * several. An environment may have been written by a cell of an earlier jail, which can't make such marks outside of
 * its workspace. */
static bool is_library(const char *real)
{
	static const char *const names[] = { "lib", "lib64" };
	CB_AUTO_PATH above = strdup(real);

	if (has(real, "os.py") && strncmp(cb_path_name(real), "python3", 7) == 0)
		return true;
	while (above != NULL && strcmp(above, "/") != 0 && cb_workspace_refusal(above) == NULL) {
		char *next = cb_path_parent(above);

		for (size_t i = 0; i < 2 && next != NULL; i++)
			if (strcmp(cb_path_name(above), names[i]) == 0 && cb_workspace_refusal(next) == NULL &&
			    is_prefix(next))
				goto found;
		free(above);
		above = next;
		continue;
found:
		free(next);
		return true;
	}
	return holds_library(real);
}

/* Keeps for people that the link `path` was not followed. */
static int not_followed(struct cb_interpreter *p, const char *path, const char *real, const char *why,
			struct cb_err *err)
{
	CB_AUTO_PATH text = cb_path_format("%s leads to %s, %s", path, real, why);
	CB_AUTO_PATH shown = text != NULL ? cb_visible_copy(text) : NULL;
	int r = shown == NULL				 ? -ENOMEM
		: p->not_followed.count >= MAX_UNFOLLOWED ? 0
		: cb_strv_has(&p->not_followed, shown)	 ? 0
							 : cb_strv_add(&p->not_followed, shown);

	return r < 0 ? cb_err_set(err, r, STEP, NULL, "out of memory") : 0;
}

static int add_library(struct cb_interpreter *p, const char *path, const char *real, struct cb_err *err)
{
	if (shown_anyway(real))
		return 0;
	return is_library(real) ? add_shown(p, real, err)
				: not_followed(p, path, real, "which is no library of a Python", err);
}

/* Library folders that are links to somewhere else. */
static int add_outside_libraries(struct cb_interpreter *p, const char *prefix, struct cb_err *err)
{
	static const char *const names[] = { "lib", "lib64" };
	CB_AUTO_PATH prefix_real = cb_path_real(prefix);
	int r = 0;

	for (size_t i = 0; prefix_real != NULL && i < 2 && r == 0; i++) {
		CB_AUTO_PATH lib = cb_path_format("%s/%s", prefix_real, names[i]);
		CB_AUTO_PATH lib_real = lib != NULL ? cb_path_real(lib) : NULL;
		bool outside = lib_real != NULL && !cb_path_within(lib_real, prefix_real);
		const struct dirent *entry;

		if (outside)
			r = add_library(p, lib, lib_real, err);
		if (outside && !shown_anyway(lib_real) && !is_library(lib_real))
			continue;
		CB_AUTO_FOLDER dir = lib_real != NULL ? cb_folder_open(AT_FDCWD, lib_real, 0) : NULL;

		while (r == 0 && (entry = cb_folder_next(dir)) != NULL) {
			static const char *const inner[] = { "", "/site-packages", "/lib-dynload" };

			for (size_t j = 0; j < 3 && r == 0 && strncmp(entry->d_name, "python3", 7) == 0; j++) {
				CB_AUTO_PATH path = cb_path_format("%s/%s%s", lib_real, entry->d_name, inner[j]);
				CB_AUTO_PATH real = path != NULL ? cb_path_real(path) : NULL;

				if (real != NULL && !cb_path_within(real, prefix_real) &&
				    !cb_path_within(real, lib_real))
					r = add_library(p, path, real, err);
			}
		}
	}
	return r;
}

/* A prefix is shown whole; but of a folder like ~/.local, in which more than a Python lives, only what is Python's. */
static int add_prefix(struct cb_interpreter *p, const char *prefix, struct cb_err *err)
{
	static const char *const parts[] = { "bin", "lib", "lib64", "include" };
	CB_AUTO_PATH home = cb_path_home();
	CB_AUTO_PATH home_real = home != NULL ? cb_path_real(home) : NULL;
	CB_AUTO_PATH real = cb_path_real(prefix);
	CB_AUTO_PATH parent = real != NULL ? cb_path_parent(real) : NULL;
	bool shared = parent != NULL && home_real != NULL && strcmp(parent, home_real) == 0 &&
		      cb_path_name(real)[0] == '.' && !has(real, "pyvenv.cfg") && !has(real, "conda-meta");
	int r = shared ? 0 : add_shown(p, prefix, err);

	for (size_t i = 0; shared && i < CB_COUNT(parts) && r == 0; i++) {
		CB_AUTO_PATH part = cb_path_format("%s/%s", prefix, parts[i]);
		CB_AUTO_PATH part_real = part != NULL ? cb_path_real(part) : NULL;

		if (part_real != NULL && cb_path_within(part_real, real))
			r = add_shown(p, part, err);
	}
	return r == 0 ? add_outside_libraries(p, prefix, err) : r;
}

/* ---- the chain of links ---- */

/* What the link at `path` leads to, one hop. NULL if it is none. */
static char *next_hop(const char *path)
{
	char target[PATH_MAX];
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	CB_AUTO_PATH folder = NULL;
	CB_AUTO_PATH real = NULL;

	if (n <= 0)
		return NULL;
	target[n] = '\0';
	if (target[0] == '/')
		return cb_path_absolute(target, NULL);
	/* `..` in a link counts from the real folder. */
	folder = cb_path_parent(path);
	real = folder != NULL ? cb_path_real(folder) : NULL;
	return real != NULL ? cb_path_absolute(target, real) : NULL;
}

static char *prefix_of(const char *program)
{
	CB_AUTO_PATH folder = cb_path_parent(program);
	char *prefix = folder != NULL && strcmp(cb_path_name(folder), "bin") == 0 ? cb_path_parent(folder) : NULL;

	if (prefix != NULL && !is_prefix(prefix)) {
		free(prefix);
		prefix = NULL;
	}
	return prefix;
}

/* A link outside any prefix (~/bin/py, /etc/alternatives) is only a name for what it leads to: take that instead. */
static int skip_plain_links(char **path)
{
	for (int i = 0; i < MAX_HOPS; i++) {
		CB_AUTO_PATH prefix = prefix_of(*path);
		char *next = prefix == NULL && !shown_anyway(*path) ? next_hop(*path) : NULL;

		if (next == NULL)
			return 0;
		free(*path);
		*path = next;
	}
	return -ELOOP;
}

/* The file at the end of all links must lie in a Python's own folder, or where the system's programs are; or be what
 * the user named, and no link. */
static int check_program(const struct cb_interpreter *p, const char *program, struct cb_err *err)
{
	CB_AUTO_PATH real = cb_path_real(program);
	CB_AUTO_PATH prefix = real != NULL ? prefix_of(real) : NULL;
	CB_AUTO_PATH hop = next_hop(program);

	if (real != NULL && cb_path_is_file(real) &&
	    (prefix != NULL || shown_anyway(real) || (hop == NULL && strcmp(program, p->executable) == 0)))
		return 0;
	return cb_err_set(err, CB_E_DENIED, STEP, "Make the environment anew, or name the interpreter itself.",
			  "%s leads to %s, which lies in no Python's own folder: it is not shown", program,
			  real != NULL ? real : "nothing");
}

static int add_chain(struct cb_interpreter *p, const char *program, struct cb_err *err)
{
	CB_AUTO_PATH at = strdup(program);
	int r = at != NULL ? check_program(p, program, err) : cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");

	for (int i = 0; at != NULL && r == 0; i++) {
		CB_AUTO_PATH prefix = prefix_of(at);
		char *next;

		if (i == MAX_HOPS)
			return cb_err_set(err, -ELOOP, STEP, NULL, "%s: too many links", program);
		if (prefix != NULL && !shown_anyway(at)) {
			r = add_prefix(p, prefix, err);
		} else if (!shown_anyway(at)) {
			r = add_shown(p, at, err);
		}
		next = next_hop(at);
		free(at);
		at = next;
	}
	return r;
}

/* ---- venv ---- */

/* Value of a key in a pyvenv.cfg; malloc'd, NULL if there is none. */
static char *cfg_value(const char *path, const char *key)
{
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	CB_AUTO_PATH text = NULL;
	size_t len;
	char *line;

	if (fd < 0 || cb_fd_read_all(fd, MAX_CFG, &text, &len) < 0)
		return NULL;
	for (line = text; line != NULL && *line != '\0'; line = strchr(line, '\n'), line += line != NULL) {
		size_t n = strspn(line, " \t");
		char *value;

		if (strncasecmp(line + n, key, strlen(key)) != 0)
			continue;
		value = line + n + strlen(key);
		value += strspn(value, " \t");
		if (*value != '=')
			continue;
		value++;
		value += strspn(value, " \t");
		n = strcspn(value, "\r\n");
		while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
			n--;
		return strndup(value, n);
	}
	return NULL;
}

/* The Python in `home` that a venv was made with. Which of its names this is does not matter: the folder and the links
 * are what is needed. After `make altinstall`, and from some packages, there is no python3, only python3.12: the venv's
 * version says so, or a link of its own program. malloc'd, NULL = none. */
static char *find_base(const char *home, const char *cfg, const char *executable)
{
	static const char *const keys[] = { "version", "version_info" }; /* of venv; of virtualenv and uv */
	char *base = cb_path_program_in(home, "python3");
	CB_AUTO_PATH at = strdup(executable);

	for (size_t i = 0; base == NULL && i < CB_COUNT(keys); i++) {
		CB_AUTO_PATH version = cfg_value(cfg, keys[i]);
		unsigned minor;
		char name[32];

		if (version == NULL || sscanf(version, "3.%3u", &minor) != 1)
			continue;
		snprintf(name, sizeof(name), "python3.%u", minor);
		base = cb_path_program_in(home, name);
	}
	for (int i = 0; base == NULL && at != NULL && i < MAX_HOPS; i++) {
		char *next = next_hop(at);

		base = cb_path_program_in(home, cb_path_name(at));
		free(at);
		at = next;
	}
	return base;
}

/* Python looks for pyvenv.cfg beside the executable and one folder up. */
static int find_venv(struct cb_interpreter *p, struct cb_err *err)
{
	CB_AUTO_PATH bin = cb_path_parent(p->executable);
	CB_AUTO_PATH prefix = bin != NULL ? cb_path_parent(bin) : NULL;
	CB_AUTO_PATH cfg = NULL;
	CB_AUTO_PATH home = NULL;
	CB_AUTO_PATH base = NULL;
	const char *venv;

	if (prefix == NULL)
		return cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
	venv = has(prefix, "pyvenv.cfg") ? prefix : has(bin, "pyvenv.cfg") ? bin : NULL;
	if (venv == NULL)
		return 0;
	p->venv = strdup(venv);
	cfg = cb_path_format("%s/pyvenv.cfg", venv);
	home = cfg != NULL ? cfg_value(cfg, "home") : NULL;
	if (home == NULL || home[0] != '/')
		return cb_err_set(err, CB_E_SYNTAX, STEP, "Make the venv anew.", "%s/pyvenv.cfg names no home", venv);
	base = find_base(home, cfg, p->executable);
	if (base == NULL)
		return cb_err_set(err, -ENOENT, STEP, "Make the venv anew.",
				  "the Python that the venv %s was made with is gone from %s", venv, home);
	return add_chain(p, base, err);
}

static int find_conda(struct cb_interpreter *p)
{
	CB_AUTO_PATH prefix = prefix_of(p->executable);

	if (p->venv != NULL || prefix == NULL || !has(prefix, "conda-meta"))
		return 0;
	p->conda = strdup(prefix);
	return p->conda != NULL ? 0 : -ENOMEM;
}

int cb_interpreter_static(const char *executable, struct cb_interpreter *ret_interpreter, struct cb_err *err)
{
	struct cb_interpreter p = { 0 };
	int r = find_program(executable, &p.executable, err);

	if (r == 0)
		r = resolve_script(&p.executable, err);
	if (r == 0)
		r = resolve_shim(&p.executable, err);
	if (r == 0 && skip_plain_links(&p.executable) < 0)
		r = cb_err_set(err, -ELOOP, STEP, NULL, "%s: too many links", p.executable);
	if (r == 0)
		r = add_chain(&p, p.executable, err);
	if (r == 0)
		r = find_venv(&p, err);
	if (r == 0 && find_conda(&p) < 0)
		r = cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
	if (r < 0) {
		cb_interpreter_release(&p);
		return r;
	}
	*ret_interpreter = p;
	return 0;
}

bool cb_interpreter_may_show(const struct cb_interpreter *interpreter, const char *real)
{
	return shown_anyway(real) || cb_strv_has(&interpreter->prefixes, real);
}
