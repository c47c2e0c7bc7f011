/* Which folders can't be a workspace: see workspace.h.
 *
 * Role: the home rule of the policy, which folder is a project's, and the modes' names. A cell may write everything in
 * its workspace, and programs outside act on what lies in a home or a system folder, so such a folder is never one.
 * Trust domain: supervisor, at start; looks at paths only.
 */
#include "workspace.h"

#include <errno.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "find.h"
#include "paths.h"

/* Nothing at or below these can be a workspace. */
static const char *const system_trees[] = {
	"/bin",	   "/boot", "/dev",  "/etc",	       "/gnu",	"/lib", "/lib32", "/lib64",
	"/libx32", "/nix",  "/proc", "/run/cellblock", "/sbin", "/sys", "/usr",
};

/* These themselves can't; folders below them can. */
static const char *const system_folders[] = {
	"/home", "/media", "/mnt",	 "/opt",     "/root",	 "/run",      "/run/media", "/run/user",  "/srv",
	"/tmp",	 "/var",   "/var/cache", "/var/lib", "/var/log", "/var/mail", "/var/run",   "/var/spool", "/var/tmp",
};

static bool holds_home(const char *real)
{
	const struct passwd *account = getpwuid(getuid());
	CB_AUTO_PATH home = cb_path_home();
	CB_AUTO_PATH home_real = home != NULL ? cb_path_real(home) : NULL;
	CB_AUTO_PATH account_real = account != NULL && account->pw_dir[0] == '/' ? cb_path_real(account->pw_dir) : NULL;

	return (home_real != NULL && cb_path_within(home_real, real)) ||
	       (account_real != NULL && cb_path_within(account_real, real));
}

const char *cb_workspace_mode_name(enum cb_workspace_mode mode)
{
	static const char *const names[] = { [CB_WORKSPACE_RW] = "rw",
					     [CB_WORKSPACE_RO] = "ro",
					     [CB_WORKSPACE_TMPFS] = "tmpfs",
					     [CB_WORKSPACE_OVERLAY] = "overlay" };

	return names[mode];
}

const char *cb_workspace_writers(const struct cb_policy *policy)
{
	return policy->workspace_mode == CB_WS_RO ? "cells of a kernel with workspace.mode \"rw\"" : "cells";
}

const char *cb_workspace_refusal(const char *real)
{
	if (strcmp(real, "/") == 0)
		return "the root folder";
	for (size_t i = 0; i < CB_COUNT(system_trees); i++)
		if (cb_path_within(real, system_trees[i]))
			return "a system folder";
	if (holds_home(real))
		return "your home folder or a parent of it";
	for (size_t i = 0; i < CB_COUNT(system_folders); i++)
		if (strcmp(real, system_folders[i]) == 0)
			return "a folder that many programs and users share";
	return NULL;
}

/* Whether it is there or not: whoever makes it decides what is in it. */
static int add_path(struct cb_strv *list, const char *folder, const char *below)
{
	CB_AUTO_PATH path = folder != NULL && folder[0] == '/' ? cb_path_format("%s%s", folder, below) : NULL;
	CB_AUTO_PATH real = NULL;

	if (folder == NULL || folder[0] != '/')
		return 0;
	if (path != NULL)
		(void)cb_path_follow(path, NULL, NULL, &real); /* a loop leads nowhere: it is kept as it is */
	return real != NULL ? cb_strv_add(list, real) : -ENOMEM;
}

int cb_workspace_used_always(struct cb_strv *ret)
{
	static const char *const below[] = { "/.local/share/jupyter", "/.jupyter", "/.ipython", "/.local/etc/jupyter",
					     "/.cache/cellblock", "/.local/share/cellblock" };
	CB_AUTO_PATH home = cb_path_home();
	int r = 0;

	for (size_t i = 0; i < CB_COUNT(below) && r == 0; i++)
		r = add_path(ret, home, below[i]);
	return r;
}

int cb_workspace_used(struct cb_strv *ret)
{
	CB_AUTO_PATH one = NULL;
	CB_AUTO_STRV config = { 0 };
	const char *paths = getenv("JUPYTER_PATH");
	int r = cb_workspace_used_always(ret);

	r = r < 0 ? r : add_path(ret, getenv("XDG_DATA_HOME"), "/jupyter");
	r = r < 0 ? r : add_path(ret, getenv("XDG_DATA_HOME"), "/cellblock"); /* the history of kernels that keep one */
	r = r < 0 ? r : add_path(ret, getenv("JUPYTER_DATA_DIR"), "");
	r = r < 0 ? r : add_path(ret, getenv("IPYTHONDIR"), "");
	r = r < 0 ? r : cb_policy_user_folders(&config);
	for (size_t i = 0; i < config.count && r == 0; i++)
		r = add_path(ret, config.items[i], "");
	r = r < 0 ? r : add_path(ret, getenv("XDG_CACHE_HOME"), "/cellblock");
	while (r == 0 && cb_path_next(&paths, &one))
		r = one != NULL ? add_path(ret, one, "/kernels") : -ENOMEM;
	return r;
}

int cb_workspace_why_not(const struct cb_policy *policy, const struct cb_strv *used, const char *real, char **ret_why)
{
	const char *why = cb_workspace_refusal(real);

	*ret_why = why != NULL ? strdup(why) : NULL;
	if (why != NULL)
		return *ret_why != NULL ? 0 : -ENOMEM;
	for (size_t i = 0; i < used->count && policy->workspace_mode != CB_WS_RO; i++) {
		if (!cb_path_within(real, used->items[i]))
			continue;
		*ret_why = cb_path_format(
			"at or below %s, which Jupyter or Cellblock takes programs, settings or history from",
			used->items[i]);
		return *ret_why != NULL ? 0 : -ENOMEM;
	}
	return 0;
}

/* What tells a project's own folder. */
static const char *const markers[] = {
	".git",	    ".hg",	 ".jj",	    ".svn",	 "pyproject.toml",
	"setup.py", "setup.cfg", "Pipfile", "pixi.toml", "environment.yml",
};

/* Who else can make entries there could make a project of it, and so a workspace of more than the user's. */
static bool is_trusted(const char *path, uid_t owner)
{
	struct stat st;

	return stat(path, &st) == 0 && (st.st_uid == owner || st.st_uid == geteuid() || st.st_uid == 0) &&
	       (st.st_mode & S_IWOTH) == 0;
}

static bool is_marked(const char *path)
{
	for (size_t i = 0; i < CB_COUNT(markers); i++) {
		CB_AUTO_PATH marker = cb_path_format("%s/%s", path, markers[i]);

		if (marker != NULL && access(marker, F_OK) == 0)
			return true;
	}
	return false;
}

char *cb_workspace_project(const char *folder)
{
	char *at = cb_path_real(folder);
	struct stat st;

	if (at == NULL || stat(at, &st) < 0) {
		free(at);
		return NULL;
	}
	while (at != NULL && cb_workspace_refusal(at) == NULL && is_trusted(at, st.st_uid)) {
		char *above;

		if (is_marked(at))
			return at;
		above = cb_path_parent(at);
		free(at);
		at = above;
	}
	free(at);
	return NULL;
}
