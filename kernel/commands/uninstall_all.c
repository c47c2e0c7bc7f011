/* `cellblock uninstall --all`: what no installer knows of: kernelspecs, the history, what was kept about interpreters.
 *
 * Role: looks wherever `install` writes without being told a prefix, and in this user's folders; one line for each
 * thing that goes or is left. Trust domain: supervisor's program, no secrets. Invariants: only what this installation
 * starts, or nobody any more, is removed; files go by name, never a tree; nothing while a kernel runs.
 */
#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/visible.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "ask_kernel.h"
#include "kernelspec.h"
#include "policy/paths.h"
#include "policy/policy.h"
#include "setup/interpreter.h"

#define STEP "uninstall"

struct removal {
	const struct cb_install_paths *install_paths;
	struct cb_err *err;
	bool dry_run;
	int r; /* of the first thing that could not be removed */
};

static void failed(struct removal *a, const char *path, int code)
{
	fprintf(stderr, "Can't be removed: %s: %s\n", cb_shown(path), strerror(-code));
	if (a->r == 0)
		a->r = cb_err_set(a->err, code, STEP, NULL, "%s can't be removed: %s", path, strerror(-code));
}

static void remove_spec(struct removal *a, const char *folder)
{
	const char *package;
	CB_AUTO_PATH program = cb_kernelspec_program(folder, &package);
	CB_AUTO_PATH real = program != NULL && program[0] == '/' ? cb_path_real(program) : NULL;
	bool rest = program == NULL && cb_kernelspec_is_rest(folder); /* nobody starts that any more */
	struct cb_err err = { 0 };

	if (program == NULL && !rest)
		return;
	if (package != NULL)
		printf("Left %s: it came with %s\n", cb_shown(folder), package);
	else if (!rest && program[0] != '/')
		printf("Left the kernelspec %s: it starts \"%s\", and what that is depends on where Jupyter runs\n",
		       cb_shown(folder), cb_shown(program));
	else if (real != NULL && strcmp(real, a->install_paths->self) != 0)
		printf("Left the kernelspec %s: it starts another Cellblock\n", cb_shown(folder));
	else if (a->dry_run)
		printf("Would remove %sthe kernelspec %s\n", rest ? "what is left of " : "", cb_shown(folder));
	else if (cb_kernelspec_remove(folder, &err) < 0)
		failed(a, folder, err.code);
}

static void remove_specs(struct removal *a)
{
	CB_AUTO_STRV folders = { 0 };

	if (cb_kernelspec_places(true, &folders) < 0)
		a->r = cb_err_set(a->err, -ENOMEM, STEP, NULL, "out of memory");
	for (size_t i = 0; i < folders.count; i++) {
		CB_AUTO_FOLDER dir = cb_folder_open(AT_FDCWD, folders.items[i], 0);
		const struct dirent *entry;

		while ((entry = cb_folder_next(dir)) != NULL) {
			CB_AUTO_PATH folder = cb_path_format("%s/%s", folders.items[i], entry->d_name);

			if (entry->d_name[0] != '.' && folder != NULL)
				remove_spec(a, folder);
		}
	}
}

/* One file, if it is there. */
static void remove_file(struct removal *a, const char *folder, const char *name, const char *what)
{
	CB_AUTO_PATH path = cb_path_format("%s/%s", folder, name);

	if (path == NULL || access(path, F_OK) < 0)
		return;
	if (!a->dry_run && unlink(path) < 0)
		failed(a, path, -errno);
	else if (what != NULL)
		printf("%s the %s %s\n", a->dry_run ? "Would remove" : "Removed", what, cb_shown(path));
}

/* The place that history.file "user" means. One that a policy names is the user's own file. */
static void remove_history(struct removal *a)
{
	CB_AUTO_PATH history = cb_policy_user_history();
	CB_AUTO_PATH folder = history != NULL && history[0] == '/' ? cb_path_parent(history) : NULL;

	if (folder == NULL)
		return;
	remove_file(a, folder, "history.sqlite", "history");
	remove_file(a, folder, "history.sqlite-wal", NULL);
	remove_file(a, folder, "history.sqlite-shm", NULL);
	if (!a->dry_run)
		(void)rmdir(folder);
}

static void remove_cached(struct removal *a, const char *path)
{
	CB_AUTO_FD folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = folder < 0 ? -errno : cb_kernelspec_remove_cache(folder);

	if (r == 0)
		r = cb_kernelspec_remove_temporaries(folder);
	if (r == 0 && unlinkat(folder, "interpreter.json", 0) < 0 && errno != ENOENT)
		r = -errno;
	if (r == 0 && rmdir(path) < 0)
		r = -errno;
	if (r < 0)
		failed(a, path, r);
}

static void remove_cache(struct removal *a)
{
	CB_AUTO_PATH cache = cb_interpreter_cache();
	CB_AUTO_FOLDER dir = cache != NULL ? cb_folder_open(AT_FDCWD, cache, 0) : NULL;
	const struct dirent *entry;

	if (dir == NULL)
		return;
	while (!a->dry_run && (entry = cb_folder_next(dir)) != NULL) {
		CB_AUTO_PATH path = cb_path_format("%s/%s", cache, entry->d_name);

		if (entry->d_name[0] != '.' && path != NULL)
			remove_cached(a, path);
	}
	if (a->dry_run || rmdir(cache) == 0)
		printf("%s what was kept about interpreters: %s\n", a->dry_run ? "Would remove" : "Removed",
		       cb_shown(cache));
}

int cb_uninstall_all(const struct cb_options *o, struct cb_err *err)
{
	struct cb_running_list running = { .count = 0 };
	struct cb_install_paths install_paths = { 0 };
	struct removal a = { .install_paths = &install_paths, .err = err, .dry_run = o->dry_run };

	if (!o->all || o->name != NULL || o->prefix != NULL || o->sys_prefix || o->user)
		return cb_err_set(err, CB_E_USAGE, "command line", "see `cellblock uninstall --help`",
				  "--all takes no option but --dry-run, which belongs to it");
	a.r = cb_install_paths_find(&install_paths, err);
	if (a.r == 0)
		a.r = cb_kernels_running(&running, err);
	if (a.r == 0 && running.count > 0 && !o->dry_run)
		a.r = cb_err_set(err, -EBUSY, STEP, "End them first; `cellblock list` has their names.",
				 "%zu kernel%s of this user still run%s", running.count, running.count > 1 ? "s" : "",
				 running.count > 1 ? "" : "s");
	if (a.r == 0) {
		remove_specs(&a);
		remove_history(&a);
		remove_cache(&a);
	}
	cb_kernels_release(&running);
	cb_install_paths_release(&install_paths);
	return a.r;
}
