/* Where a policy called by its name lies.
 *
 * Role: NAME is cellblock/NAME.json in the first of Jupyter's config paths that has it, as Jupyter itself orders them.
 * Trust domain: supervisor, at start. Invariants: the current folder, the workspace and what lies in it are never
 * looked into (policy.c refuses a file that lies in the workspace all the same); a name is no path; for a file that
 * can't be reached none that comes later is taken.
 */
#include "find.h"

#include <cellblock/folder.h>
#include <cellblock/sandbox.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "install_paths.h"
#include "nearest.h"
#include "paths.h"

#define MAX_NAMES 1000
#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

static int add(struct cb_strv *v, const char *folder, const char *below)
{
	return folder != NULL && folder[0] == '/' ? cb_strv_addf(v, "%s%s", folder, below) : 0;
}

int cb_policy_user_folders(struct cb_strv *ret)
{
	const char *named = getenv("JUPYTER_CONFIG_PATH"), *own = getenv("JUPYTER_CONFIG_DIR");
	CB_AUTO_PATH home = cb_path_home();
	CB_AUTO_PATH one = NULL;
	int r = 0;

	while (r == 0 && cb_path_next(&named, &one))
		r = one != NULL ? add(ret, one, "") : -ENOMEM;
	if (r == 0)
		r = own != NULL && own[0] == '/' ? add(ret, own, "") : add(ret, home, "/.jupyter");
	return r < 0 ? r : add(ret, home, "/.local/etc/jupyter");
}

/* The user's, those of environments, the system's. */
static int config_folders(struct cb_strv *ret)
{
	CB_AUTO_PATH prefix = cb_install_paths_prefix();
	int r = cb_policy_user_folders(ret);

	if (r == 0)
		r = add(ret, getenv("VIRTUAL_ENV"), "/etc/jupyter");
	if (r == 0)
		r = add(ret, getenv("CONDA_PREFIX"), "/etc/jupyter");
	if (r == 0)
		r = add(ret, prefix, "/etc/jupyter");
	if (r == 0)
		r = add(ret, "/usr/local/etc/jupyter", "");
	return r < 0 ? r : add(ret, "/etc/jupyter", "");
}

static void collect_names(const char *config, struct cb_strv *names)
{
	CB_AUTO_PATH folder = cb_path_format("%s/cellblock", config);
	CB_AUTO_FOLDER dir = folder != NULL ? cb_folder_open(AT_FDCWD, folder, 0) : NULL;
	const struct dirent *entry;

	while ((entry = cb_folder_next(dir)) != NULL && names->count < MAX_NAMES) {
		size_t n = strlen(entry->d_name);

		if (n > 5 && strcmp(entry->d_name + n - 5, ".json") == 0)
			(void)cb_strv_addf(names, "%.*s", (int)(n - 5), entry->d_name);
	}
}

static int unknown(const char *name, const struct cb_strv *folders, struct cb_err *err)
{
	struct cb_nearest near = CB_NEAREST(name);
	CB_AUTO_STRV names = { 0 };
	char cure[200];

	(void)cb_strv_add(&names, "notebook");
	(void)cb_strv_add(&names, "agent");
	for (size_t i = 0; i < folders->count; i++)
		collect_names(folders->items[i], &names);
	for (size_t i = 0; i < names.count; i++)
		cb_nearest_offer(&near, names.items[i]);
	if (near.best != NULL)
		snprintf(cure, sizeof(cure), "Did you mean \"%.64s\"?", near.best);
	else
		snprintf(cure, sizeof(cure),
			 "Known are \"notebook\", \"agent\", cellblock/NAME.json in Jupyter's config paths, and files, "
			 "named by a path with a '/'.");
	return cb_err_set(err, CB_E_UNKNOWN, "policy", cure, "unknown policy \"%.100s\"", name);
}

static bool leads_nowhere(const char *done, const void *context)
{
	struct stat st;

	(void)context;
	return lstat(done, &st) == 0 && S_ISLNK(st.st_mode) && stat(done, &st) < 0;
}

/* One that can't be reached is no reason to take that of a later folder, which may allow more: reading it tells what is
 * wrong. So it is where a link on the way leads nowhere, as to a disk that is not mounted. */
static bool may_be_there(const char *path)
{
	CB_AUTO_PATH real = NULL;
	struct stat st;

	if (lstat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR))
		return true;
	return cb_path_follow(path, leads_nowhere, NULL, &real) != 0;
}

int cb_policy_find(const char *name, char **ret_path, struct cb_err *err)
{
	CB_AUTO_STRV folders = { 0 };
	char *path = NULL;
	int r;

	if (name[0] == '.' || name[0] == '\0' || strspn(name, LETTERS) != strlen(name))
		return cb_err_set(err, CB_E_UNKNOWN, "policy", "A file is named by a path with a '/'.",
				  "\"%.100s\" is no name of a policy", name);
	r = config_folders(&folders);
	for (size_t i = 0; i < folders.count && r == 0 && path == NULL; i++) {
		path = cb_path_format("%s/cellblock/%s.json", folders.items[i], name);
		if (path == NULL)
			r = -ENOMEM;
		else if (!may_be_there(path))
			cb_path_free(&path);
	}
	if (r < 0)
		return cb_err_set(err, r, "policy", NULL, "out of memory");
	if (path == NULL)
		return unknown(name, &folders, err);
	*ret_path = path;
	return 0;
}
