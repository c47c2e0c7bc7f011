/* From policy and interpreter to the description of the jail.
 *
 * Role: decides what is seen inside, where, and how. Trust domain: supervisor, at start. Pure but for looking at paths.
 * Invariants: everything that the jail gets is in the description; nothing of the host that could be executed outside
 * is writable unless it lies in the workspace and is no protected entry; a workspace named by the user is used or
 * refused, never replaced.
 */
#include "jail_spec.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpreter_static.h"
#include "jail_env.h"
#include "policy/hints.h"
#include "policy/paths.h"
#include "policy/workspace.h"
#include "warm_place.h"

static int no_memory(struct cb_err *err)
{
	return cb_err_set(err, -ENOMEM, CB_JAIL_SPEC_STEP, NULL, "out of memory");
}

/* ---- workspace ---- */

/* Where compiled modules are kept: later kernels run them in their jails, with other policies too. */
static int protect_guest_cache(struct cb_strv *list, const struct cb_jail_spec_input *in)
{
	CB_AUTO_PATH beside = in->guest_cache != NULL ? cb_path_parent(in->guest_cache) : NULL;

	if (in->guest_cache == NULL)
		return 0;
	return beside != NULL ? cb_strv_add(list, beside) : -ENOMEM;
}

static int add_all(struct cb_strv *list, const struct cb_strv *from)
{
	int r = 0;

	for (size_t i = 0; i < from->count && r == 0; i++)
		r = cb_strv_add(list, from->items[i]);
	return r;
}

static int use_tmpfs(struct cb_jail_spec *spec, const char *note)
{
	spec->workspace_mode = CB_WORKSPACE_TMPFS;
	if (note == NULL)
		return 0;
	spec->workspace_note = strdup(note);
	return spec->workspace_note != NULL ? 0 : -ENOMEM;
}

static int bad_workspace(const struct cb_policy *policy, struct cb_jail_spec *spec, const char *path, const char *why,
			 struct cb_err *err)
{
	CB_AUTO_PATH note = NULL;

	if (policy->workspace_path_explicit)
		return cb_err_set(
			err, CB_E_DENIED, "workspace",
			"Name a folder of its own with --workspace or workspace.path, or set workspace.mode=tmpfs.",
			"workspace.path %s is %s: cells could write what other programs run", path, why);
	note = cb_path_format(
		"The workspace %s is %s, so it is an empty folder in memory here: what cells write is gone at the end. "
		"Start in a folder of its own, or name one with --workspace DIR.",
		path, why);
	return note == NULL || use_tmpfs(spec, note) < 0 ? no_memory(err) : 0;
}

/* Under which path the workspace appears: a tmpfs may not hide what the jail needs. */
static char *workspace_target(const struct cb_policy *policy, const char *real)
{
	static const char *const taken[] = { "/",     "/dev", "/etc",	    "/home",	"/home/user",
					     "/proc", "/run", "/sys",	    "/tmp",	"/var",
					     "/mnt",  "/opt", "/var/cache", "/var/tmp", "/var/run" };
	const char *why = real != NULL ? cb_workspace_refusal(real) : NULL;

	if (policy->workspace_target_neutral || real == NULL || (why != NULL && strcmp(why, "a system folder") == 0))
		return strdup("/workspace");
	for (size_t i = 0; i < CB_COUNT(taken); i++)
		if (strcmp(real, taken[i]) == 0)
			return strdup("/workspace");
	return strdup(real);
}

static enum cb_workspace_mode workspace_mode(enum cb_workspace_policy mode)
{
	switch (mode) {
	case CB_WS_RW:
		return CB_WORKSPACE_RW;
	case CB_WS_OVERLAY:
		return CB_WORKSPACE_OVERLAY;
	case CB_WS_RO:
		return CB_WORKSPACE_RO;
	case CB_WS_TMPFS:
		break;
	}
	return CB_WORKSPACE_TMPFS;
}

/* What may be written in the folder itself is judged call by call; where the kernel can't ask, changes go to a layer,
 * and are judged when they are committed. */
static int use_overlay(struct cb_jail_spec *spec)
{
	spec->workspace_mode = CB_WORKSPACE_OVERLAY;
	spec->workspace_note = strdup(
		"workspace.mode is \"overlay\" here, not \"rw\": this kernel can't have a jail's write calls judged "
		"(Linux 5.14 can, where no other sandbox around listens already). Changes are dropped at the end "
		"unless `cellblock commit` writes them to the folder.");
	return spec->workspace_note != NULL ? 0 : -ENOMEM;
}

/* The current folder stays what it is wherever the workspace shows it. */
static char *current_folder(const struct cb_jail_spec *spec)
{
	CB_AUTO_PATH here = cb_path_absolute(".", NULL);
	CB_AUTO_PATH real = here != NULL ? cb_path_real(here) : NULL;

	if (real == NULL || spec->workspace_source == NULL || !cb_path_within(real, spec->workspace_source))
		return strdup(spec->workspace_target);
	return cb_path_format("%s%s", spec->workspace_target, real + strlen(spec->workspace_source));
}

static int plan_workspace(const struct cb_policy *policy, const struct cb_strv *used, struct cb_jail_spec *spec,
			  struct cb_err *err)
{
	CB_AUTO_PATH why = NULL;
	CB_AUTO_PATH real = cb_path_real(policy->workspace_path);
	int r = 0;

	spec->workspace_target = workspace_target(policy, real);
	if (spec->workspace_target == NULL)
		return no_memory(err);
	if (policy->workspace_mode == CB_WS_TMPFS)
		return use_tmpfs(spec, NULL) < 0 ? no_memory(err) : 0;
	if (real == NULL || !cb_path_is_dir(real))
		return cb_err_set(err, real == NULL ? -errno : -ENOTDIR, "workspace",
				  "Name an existing folder with --workspace.", "workspace.path %s: %s",
				  policy->workspace_path, strerror(real == NULL ? errno : ENOTDIR));
	if (cb_workspace_why_not(policy, used, real, &why) < 0)
		return no_memory(err);
	if (why != NULL)
		return bad_workspace(policy, spec, real, why, err);
	spec->workspace_mode = workspace_mode(policy->workspace_mode);
	spec->workspace_source = strdup(real);
	/* a jail without namespaces has no overlay either; what its writable workspace can't hold is told there */
	if (spec->workspace_mode == CB_WORKSPACE_RW && !spec->notifier &&
	    policy->isolation_minimum >= CB_LEVEL_NO_CGROUP)
		r = use_overlay(spec);
	for (size_t i = 0; i < policy->workspace_protect.count && r == 0; i++)
		r = cb_strv_add(&spec->protect, policy->workspace_protect.items[i]);
	return r < 0 || spec->workspace_source == NULL ? no_memory(err) : 0;
}

/* ---- the system ---- */

static int plan_root(const struct cb_policy *policy, struct cb_jail_spec *spec, struct cb_err *err)
{
	CB_AUTO_PATH usr = NULL;

	if (strcmp(policy->root_path, "host") == 0)
		return 0;
	spec->root_path = cb_path_real(policy->root_path);
	usr = spec->root_path != NULL ? cb_path_format("%s/usr", spec->root_path) : NULL;
	if (usr == NULL || !cb_path_is_dir(usr) || strcmp(spec->root_path, "/") == 0)
		return cb_err_set(err, -ENOENT, "root.path",
				  "Name the folder that an image was unpacked into, or \"host\".",
				  "root.path %s: no folder with a system (usr) in it", policy->root_path);
	if (spec->workspace_source != NULL && cb_path_within(spec->root_path, spec->workspace_source))
		return cb_err_set(err, CB_E_DENIED, "root.path", "Move it out of the workspace.",
				  "root.path %s lies in the workspace, which %s can write", spec->root_path,
				  cb_workspace_writers(policy));
	return 0;
}

/* ---- binds ---- */

static bool has_bind(const struct cb_jail_spec *spec, const char *target)
{
	for (size_t i = 0; i < spec->nbinds; i++)
		if (strcmp(spec->binds[i].target, target) == 0)
			return true;
	return false;
}

int cb_jail_spec_interpreter(const struct cb_interpreter *interpreter, struct cb_jail_spec *spec)
{
	int r = 0;

	for (size_t i = 0; i < interpreter->prefixes.count && r == 0; i++) {
		const char *path = interpreter->prefixes.items[i];
		CB_AUTO_PATH real = cb_path_real(path); /* sources are opened without following links */

		/* a cell of another kernel may have changed a link since the look */
		if (real != NULL && cb_interpreter_may_show(interpreter, real) && !has_bind(spec, path))
			r = cb_spec_add_bind(spec, real, path, CB_BIND_RO, false, "interpreter");
	}
	return r;
}

/* packages.mode "session": pip's place is the prefix that the interpreter was named by, under each of its paths. */
static void plan_packages(const struct cb_policy *policy, const struct cb_interpreter *interpreter,
			  struct cb_jail_spec *spec)
{
	bool session = policy->packages_mode == CB_PACKAGES_SESSION;
	CB_AUTO_PATH bin = interpreter != NULL ? cb_path_parent(interpreter->executable) : NULL;
	CB_AUTO_PATH prefix = bin != NULL ? cb_path_parent(bin) : NULL;
	CB_AUTO_PATH real = prefix != NULL ? cb_path_real(prefix) : NULL;

	for (size_t i = 0; session && real != NULL && has_bind(spec, prefix) && i < spec->nbinds; i++)
		if (strcmp(spec->binds[i].source, real) == 0 && spec->binds[i].mode == CB_BIND_RO)
			spec->binds[i].mode = CB_BIND_SESSION;
}

/* Targets that would take the jail apart. */
static bool target_is_taken(const char *target)
{
	static const char *const trees[] = { "/proc", "/sys",  "/dev", "/etc",	 "/usr",
					     "/bin",  "/sbin", "/lib", "/lib64", "/run/cellblock" };
	static const char *const folders[] = { "/", "/home", "/home/user", "/tmp", "/run", "/var" };

	for (size_t i = 0; i < CB_COUNT(trees); i++)
		if (cb_path_within(target, trees[i]))
			return true;
	for (size_t i = 0; i < CB_COUNT(folders); i++)
		if (strcmp(target, folders[i]) == 0)
			return true;
	return false;
}

/* The host's shared memory in place of the jail's: only as itself, and for those who say so. At isolation level
 * "container" there is no other. */
static bool is_shared_memory(const char *source, const char *target)
{
	return strcmp(source, "/dev/shm") == 0 && strcmp(target, "/dev/shm") == 0;
}

static int plan_mounts(const struct cb_policy *policy, struct cb_jail_spec *spec, struct cb_err *err)
{
	for (size_t i = 0; i < policy->nmounts; i++) {
		const struct cb_bind *mount = &policy->mounts[i];
		CB_AUTO_PATH real = cb_path_real(mount->source);
		const char *why = real != NULL ? cb_workspace_refusal(real) : NULL;

		if (real == NULL)
			return cb_err_set(err, -errno, "mounts", NULL, "mounts: source %s: %s", mount->source,
					  strerror(errno));
		bool shared = is_shared_memory(real, mount->target);

		if (mount->mode == CB_BIND_RW && why != NULL && !shared)
			return cb_err_set(err, CB_E_DENIED, "mounts",
					  "Mount it with mode \"ro\", or a folder below it.",
					  "mounts: source %s is %s and can't be writable", mount->source, why);
		if ((target_is_taken(mount->target) && !shared) || has_bind(spec, mount->target))
			return cb_err_set(err, CB_E_DENIED, "mounts", "Choose another target.",
					  "mounts: target %s is taken by the jail itself", mount->target);
		if (cb_spec_add_bind(spec, real, mount->target, mount->mode, false, "policy: mounts") < 0)
			return no_memory(err);
	}
	return 0;
}

/* ---- what programs outside act on ---- */

static int protect_file(struct cb_strv *list, const char *path)
{
	CB_AUTO_PATH real = path != NULL ? cb_path_real(path) : NULL;

	return real != NULL ? cb_strv_add(list, real) : 0;
}

/* The prefix that this program is installed in, or its build tree. */
static int protect_ourselves(struct cb_strv *list)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	CB_AUTO_PATH bin = NULL;
	CB_AUTO_PATH prefix = NULL;

	if (n <= 0)
		return 0;
	self[n] = '\0';
	bin = cb_path_parent(self);
	prefix = bin != NULL ? cb_path_parent(bin) : NULL;
	if (prefix == NULL)
		return -ENOMEM;
	return strcmp(prefix, "/") == 0 ? cb_strv_add(list, self) : cb_strv_add(list, prefix);
}

/* The folder of `path`, or the nearest above it that is there, links resolved. */
static char *existing_folder(const char *path)
{
	CB_AUTO_PATH folder = cb_path_parent(path);
	char *real = NULL;

	while (folder != NULL && (real = cb_path_real(folder)) == NULL && strcmp(folder, "/") != 0) {
		CB_AUTO_PATH below = folder;

		folder = cb_path_parent(below);
	}
	return real;
}

/* The history's folder, with the links on the way there: SQLite makes files beside it, which a guest must not make
 * first. One above the workspace is out of its sight. */
static int protect_history(const struct cb_jail_spec_input *in, struct cb_jail_spec *spec, struct cb_err *err)
{
	const char *file = in->policy->history_file, *workspace = spec->workspace_source;
	struct cb_strv *list = &spec->protect_paths;
	CB_AUTO_PATH real = NULL;
	CB_AUTO_PATH folder = NULL;
	bool linked;

	if (file == NULL || file[0] != '/')
		return 0;
	if (cb_path_links(file, list, &real) == -ENOMEM || real == NULL)
		return no_memory(err);
	linked = strcmp(file, real) != 0;
	folder = existing_folder(real);
	if (folder == NULL)
		return no_memory(err);
	if (workspace != NULL && strcmp(workspace, folder) == 0)
		return cb_err_set(err, CB_E_DENIED, "policy",
				  "Name a file outside the workspace, or in a folder in it that is there already.",
				  "history.file %s%s%s%s lies in the workspace itself, where %s could write beside it",
				  file, linked ? " leads to " : "", linked ? real : "", linked ? ", which" : "",
				  cb_workspace_writers(in->policy));
	if (workspace != NULL && cb_path_within(workspace, folder))
		return 0;
	return cb_strv_add(list, folder) == 0 ? 0 : no_memory(err);
}

static bool is_inside(const char *path, const char *folder)
{
	return strcmp(path, folder) != 0 && cb_path_within(path, folder);
}

/* What home.expose shows `path` by: the item; NULL = nothing. */
static const char *exposed_by(const struct cb_jail_spec *spec, const char *path)
{
	for (size_t i = 0; i < spec->home_expose.count && spec->host_home != NULL; i++) {
		CB_AUTO_PATH named = cb_path_absolute(spec->home_expose.items[i], spec->host_home);
		CB_AUTO_PATH real = named != NULL ? cb_path_real(named) : NULL;

		if (real != NULL && is_inside(named, spec->host_home) && cb_path_within(path, real))
			return spec->home_expose.items[i];
	}
	return NULL;
}

struct sight {
	const char *by; /* NULL = it is not seen */
	const char *what;
	bool writable;
};

/* What of the system, or of the image in its place, shows `path`. Cells of a kernel that root started are another user,
 * and open nothing there that is only root's. */
static const char *system_of(const struct cb_jail_spec *spec, const char *path)
{
	if (cb_is_host_root())
		return NULL;
	if (spec->root_path == NULL)
		return cb_system_shown(path);
	return cb_path_within(path, spec->root_path) ? spec->root_path : NULL;
}

/* How cells see a path of the host's, which is absolute with all links resolved. */
static struct sight sight_of(const struct cb_jail_spec *spec, const char *path)
{
	if (spec->workspace_source != NULL && cb_path_within(path, spec->workspace_source))
		return (struct sight){ spec->workspace_source, "the workspace",
				       spec->workspace_mode != CB_WORKSPACE_RO };
	for (size_t i = 0; i < spec->nbinds; i++) {
		bool writable = spec->binds[i].mode == CB_BIND_RW;

		if (cb_path_within(path, spec->binds[i].source))
			return (struct sight){ spec->binds[i].source, writable ? "the writable mount" : "the mount",
					       writable };
	}
	const char *system = system_of(spec, path);

	if (system != NULL)
		return (struct sight){ system, spec->root_path != NULL ? "root.path" : "the system's folder", false };
	return (struct sight){ exposed_by(spec, path), "home.expose", false };
}

/* A log that cells could write would be none; and whoever can read a file can hold a lock on it, which the kernel would
 * wait for. */
static int check_audit(const struct cb_policy *policy, const struct cb_jail_spec *spec, struct cb_err *err)
{
	CB_AUTO_PATH folder = policy->audit_file != NULL ? existing_folder(policy->audit_file) : NULL;
	CB_AUTO_PATH file = folder != NULL ? cb_path_format("%s/%s", strcmp(folder, "/") == 0 ? "" : folder,
							    cb_path_name(policy->audit_file))
					   : NULL;

	if (policy->audit_file == NULL)
		return 0;
	if (file == NULL)
		return no_memory(err);
	struct sight sight = sight_of(spec, file);

	if (sight.by == NULL)
		return 0;
	return cb_err_set(err, CB_E_DENIED, "audit", "Name a file outside of what cells can see.",
			  "audit.file %s lies in %s %s, where cells could %s", policy->audit_file, sight.what, sight.by,
			  sight.writable ? "change it" : "read it and hold locks on it");
}

/* `source` is shown as `target`: if the file lies in it, an empty device is shown in its place. */
static int hide_below(struct cb_jail_spec *spec, const char *file, const char *source, const char *target)
{
	const char *rest = cb_path_within(file, source) ? file + strlen(source) : NULL;
	CB_AUTO_PATH inside = NULL;

	if (rest == NULL)
		return 0;
	rest += strspn(rest, "/");
	inside = cb_path_format("%s%s%s", target, *rest != '\0' ? "/" : "", rest);
	return inside != NULL ? cb_spec_add_bind(spec, "/dev/null", inside, CB_BIND_RO, false, "hides the signing key")
			      : -ENOMEM;
}

/* The connection file holds the signing key. */
static int hide_connection_file(const struct cb_jail_spec_input *in, struct cb_jail_spec *spec, struct cb_err *err)
{
	CB_AUTO_PATH real = in->connection_file != NULL ? cb_path_real(in->connection_file) : NULL;
	const char *item = real != NULL ? exposed_by(spec, real) : NULL;
	size_t n = real != NULL ? spec->nbinds : 0;
	int r = 0;

	if (item != NULL) /* what is exposed is mounted over all that could hide it */
		return cb_err_set(err, CB_E_DENIED, "connection file",
				  "Take it out of home.expose, or set JUPYTER_RUNTIME_DIR to another folder.",
				  "home.expose %s would show cells %s, which has this kernel's signing key", item,
				  real);
	if (real != NULL && spec->workspace_source != NULL)
		r = hide_below(spec, real, spec->workspace_source, spec->workspace_target);
	for (size_t i = 0; i < n && r == 0; i++)
		r = hide_below(spec, real, spec->binds[i].source, spec->binds[i].target);
	return r < 0 ? no_memory(err) : 0;
}

static int protect_interpreter(struct cb_strv *list, const struct cb_interpreter *interpreter)
{
	return interpreter != NULL ? add_all(list, &interpreter->prefixes) : 0;
}

static int plan_protected(const struct cb_jail_spec_input *in, const struct cb_strv *used, struct cb_jail_spec *spec,
			  struct cb_err *err)
{
	struct cb_strv *list = &spec->protect_paths;
	int r = protect_ourselves(list);

	if (r == 0)
		r = protect_interpreter(list, in->interpreter);
	if (r == 0)
		r = add_all(list, &in->policy->files);
	if (r == 0)
		r = add_all(list, &in->policy->links);
	if (r == 0)
		r = add_all(list, used);
	if (r == 0)
		r = protect_file(list, in->guest_dir);
	if (r == 0)
		r = protect_file(list, in->connection_file);
	if (r < 0)
		return no_memory(err);
	r = hide_connection_file(in, spec, err);
	return r < 0 ? r : protect_history(in, spec, err);
}

static bool is_inside_of(const char *done, const void *folder)
{
	return is_inside(done, folder);
}

/* Whether the way of an absolute path leads through something below `folder`. One that can't be told does. */
static bool goes_below(const char *name, const char *folder)
{
	CB_AUTO_PATH real = NULL;

	return cb_path_follow(name, is_inside_of, folder, &real) != 0;
}

/* Where cells could put something else, a link to anything, in the place of a mount's source, for the next kernel;
 * NULL = nowhere. In the workspace calls are judged; without namespaces nobody judges them. */
static const char *way_of_cells(const struct cb_policy *policy, const struct cb_jail_spec *spec, const char *name)
{
	CB_AUTO_PATH real = cb_path_real(name);
	const char *workspace = spec->workspace_source;

	for (size_t i = 0; i < spec->nbinds; i++) {
		if (spec->binds[i].mode == CB_BIND_RW && goes_below(name, spec->binds[i].source))
			return spec->binds[i].source;
	}
	if (spec->workspace_mode != CB_WORKSPACE_RW || policy->isolation_minimum >= CB_LEVEL_NO_CGROUP)
		return NULL;
	/* what lies there still is refused where it can't be had (without_namespaces.c) */
	return (real == NULL || !cb_path_within(real, workspace)) && goes_below(name, workspace) ? workspace : NULL;
}

static int check_ways(const struct cb_policy *policy, const struct cb_jail_spec *spec, struct cb_err *err)
{
	for (size_t i = 0; i < policy->nmounts; i++) {
		const char *name = policy->mounts[i].source, *way = way_of_cells(policy, spec, name);

		if (way != NULL)
			return cb_err_set(err, CB_E_DENIED, "mounts",
					  "Mount the outer one alone, or a source outside of what cells can write.",
					  "mounts: source %s can't be mounted: the way to it leads through %s, where "
					  "cells could put a link to anything in its place", name, way);
	}
	return 0;
}

/* What a writable mount holds is written unjudged: nothing that is protected may lie there, nor the workspace, which
 * has protected names; nor may it lie in what others run. */
static int check_mounts(const struct cb_jail_spec_input *in, const struct cb_strv *used,
			const struct cb_jail_spec *spec, struct cb_err *err)
{
	CB_AUTO_STRV run = { 0 };

	if (add_all(&run, used) < 0 || protect_interpreter(&run, in->interpreter) < 0)
		return no_memory(err);
	if (check_ways(in->policy, spec, err) < 0)
		return err->code;
	for (size_t i = 0; i < spec->nbinds; i++) {
		const char *source = spec->binds[i].source, *inside = NULL, *around = NULL;

		if (spec->binds[i].mode != CB_BIND_RW)
			continue;
		for (size_t j = 0; inside == NULL && j < spec->protect_paths.count; j++)
			if (cb_path_within(spec->protect_paths.items[j], source))
				inside = spec->protect_paths.items[j];
		if (inside == NULL && spec->workspace_source != NULL && cb_path_within(spec->workspace_source, source))
			inside = spec->workspace_source;
		if (inside != NULL)
			return cb_err_set(err, CB_E_DENIED, "mounts",
					  "Mount it with mode \"ro\", or a folder beside that.",
					  "mounts: source %s can't be writable: it holds %s, which cells may not "
					  "change as they like", source, inside);
		for (size_t j = 0; j < run.count; j++)
			if (cb_path_within(source, run.items[j]))
				around = run.items[j];
		if (around != NULL)
			return cb_err_set(err, CB_E_DENIED, "mounts",
					  "Mount it with mode \"ro\", or another folder.",
					  "mounts: source %s can't be writable: it lies in %s, which cells may not "
					  "change", source, around);
	}
	return 0;
}

/* ---- the rest ---- */

static int plan_home(const struct cb_policy *policy, struct cb_jail_spec *spec)
{
	CB_AUTO_PATH home = cb_path_home();
	int r = 0;

	spec->host_home = home != NULL ? cb_path_real(home) : NULL;
	for (size_t i = 0; spec->host_home != NULL && i < policy->home_expose.count && r == 0; i++)
		r = cb_strv_add(&spec->home_expose, policy->home_expose.items[i]);
	return r;
}

static bool is_program(const struct cb_jail_spec *spec, const char *path)
{
	CB_AUTO_PATH in_image = spec->root_path != NULL ? cb_path_format("%s%s", spec->root_path, path) : NULL;
	struct stat st;

	if (spec->root_path == NULL)
		return cb_path_is_file(path) && access(path, X_OK) == 0;
	/* a link in an image leads to what is in it: not followed here */
	return in_image != NULL && lstat(in_image, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* The command's program by an absolute path: looked for in the folders of the PATH that it will have inside. */
static char *find_program(const struct cb_jail_spec *spec, const char *name)
{
	const char *path = NULL;
	CB_AUTO_PATH folder = NULL;

	if (strchr(name, '/') != NULL)
		return cb_path_absolute(name, spec->cwd);
	for (size_t i = 0; i < spec->env.count; i++)
		if (strncmp(spec->env.items[i], "PATH=", 5) == 0)
			path = spec->env.items[i] + 5;
	while (cb_path_next(&path, &folder)) {
		CB_AUTO_PATH candidate = folder != NULL ? cb_path_format("%s/%s", folder, name) : NULL;

		if (candidate != NULL && is_program(spec, candidate))
			return strdup(candidate);
	}
	return NULL;
}

static int plan_command(const struct cb_jail_spec_input *in, struct cb_jail_spec *spec, struct cb_err *err)
{
	CB_AUTO_PATH program = NULL;
	int r;

	if (in->argv == NULL) {
		CB_AUTO_PATH guest = in->guest_dir != NULL ? cb_path_real(in->guest_dir) : NULL;

		if (in->interpreter == NULL || guest == NULL)
			return cb_err_set(err, -EINVAL, CB_JAIL_SPEC_STEP, NULL, "neither a guest nor a command");
		r = cb_strv_add(&spec->argv, in->interpreter->executable);
		if (r == 0)
			r = cb_strv_add(&spec->argv, CB_GUEST_TARGET "/boot.py");
		if (r == 0 && in->bash)
			r = cb_strv_add(&spec->argv, "bash");
		if (r == 0)
			r = cb_spec_add_bind(spec, guest, CB_GUEST_TARGET, CB_BIND_RO, false, "Cellblock's guest");
		if (r == 0) /* so that it gives up what would be refused, instead of being ended for it */
			r = cb_strv_addf(&spec->env, "CELLBLOCK_MESSAGE_MAX=%llu",
					 (unsigned long long)in->policy->limit_message);
		if (r == 0)
			r = cb_strv_addf(&spec->env, "CELLBLOCK_PACKAGES=%s",
					 in->policy->packages_mode == CB_PACKAGES_SESSION ? "session" : "ro");
		if (r == 0)
			r = cb_policy_hints(in->policy, spec);
		if (r == 0 && in->guest_cache != NULL)
			r = cb_spec_add_bind(spec, in->guest_cache, CB_GUEST_CACHE_TARGET, CB_BIND_RO, true,
					     "its compiled modules");
		return r < 0 ? no_memory(err) : 0;
	}
	program = find_program(spec, in->argv[0]);
	if (program == NULL)
		return cb_err_set(err, -ENOENT, "command", "Name it by its path, as it is inside the jail.",
				  "%s: not found in the jail's PATH", in->argv[0]);
	r = cb_strv_add(&spec->argv, program);
	for (char *const *argument = in->argv + 1; *argument != NULL && r == 0; argument++)
		r = cb_strv_add(&spec->argv, *argument);
	return r < 0 ? no_memory(err) : 0;
}

/* Of a layer, or a tmpfs, 0 is as limits.tmp, which a ceiling makes less and never more. */
static uint64_t workspace_size(const struct cb_policy *policy, const struct cb_jail_spec *spec)
{
	bool in_memory = spec->workspace_mode == CB_WORKSPACE_OVERLAY || spec->workspace_mode == CB_WORKSPACE_TMPFS;

	return policy->workspace_size_capped && in_memory && policy->limit_tmp < policy->workspace_size
		       ? policy->limit_tmp
		       : policy->workspace_size;
}

static int plan_limits(const struct cb_policy *policy, struct cb_jail_spec *spec)
{
	spec->limit_data = spec->limit_memory = policy->limit_memory;
	spec->limit_cpu = (uint64_t)(policy->limit_cpu * 100000 + 0.5);
	spec->limit_pids = policy->limit_pids;
	spec->limit_open_files = policy->limit_open_files;
	spec->limit_file_size = policy->limit_file_size;
	spec->limit_tmp = policy->limit_tmp;
	spec->limit_shm = policy->limit_shm;
	spec->limit_inodes = policy->limit_inodes;
	spec->limit_workspace = workspace_size(policy, spec);
	spec->network = policy->network_mode;
	spec->minimum = policy->isolation_minimum;
	if (policy->limit_memory_note[0] == '\0')
		return 0;
	spec->limit_memory_note = strdup(policy->limit_memory_note);
	return spec->limit_memory_note != NULL ? 0 : -ENOMEM;
}

/* Cells that saw the folder could ask its zygotes, or, where they write, be taken for one. */
static bool is_seen_inside(const struct cb_jail_spec *spec, const char *folder)
{
	CB_AUTO_PATH below = cb_path_format("%s/x", folder);
	CB_AUTO_PATH real = below != NULL ? existing_folder(below) : NULL;

	return real == NULL || sight_of(spec, real).by != NULL;
}

/* Only what the broker can't see by itself: it starts cold wherever a zygote is no help. */
const char *cb_jail_spec_cold(const struct cb_jail_spec *spec, const char *folder)
{
	if (spec->network == CB_NETWORK_FULL)
		return "network.mode is \"full\"";
	if (spec->root_path != NULL)
		return "root.path is an image";
	return folder == NULL || is_seen_inside(spec, folder) ? "cells would see the zygotes' folder" : NULL;
}

static int plan_warm(const struct cb_jail_spec_input *in, struct cb_jail_spec *spec)
{
	CB_AUTO_PATH folder = NULL;
	int r = 0;

	if (in->policy->warm_mode != CB_MODE_AUTO || in->argv != NULL || in->bash)
		return 0;
	folder = cb_warm_place();
	if (folder == NULL)
		return -ENOMEM;
	if (cb_jail_spec_cold(spec, folder) != NULL)
		return 0;
	spec->warm_folder = folder;
	folder = NULL;
	for (size_t i = 0; i < in->policy->warm_preload.count && r == 0; i++)
		r = cb_strv_add(&spec->warm_preload, in->policy->warm_preload.items[i]);
	return r;
}

int cb_jail_spec_make(const struct cb_jail_spec_input *in, struct cb_jail_spec *ret_spec, struct cb_err *err)
{
	struct cb_jail_spec spec = { .hostname = strdup("cellblock"), .notifier = cb_notify_probe() == 0 };
	CB_AUTO_STRV used = { 0 };
	int r = 0;

	if (spec.hostname == NULL || cb_workspace_used(&used) < 0 || protect_guest_cache(&used, in) < 0)
		r = no_memory(err);
	if (r == 0)
		r = plan_workspace(in->policy, &used, &spec, err);
	if (r == 0 && (spec.cwd = current_folder(&spec)) == NULL)
		r = no_memory(err);
	if (r == 0 && (plan_limits(in->policy, &spec) < 0 ||
		       cb_jail_env(in->policy, in->interpreter, in->session_name, &spec.env) < 0 ||
		       plan_home(in->policy, &spec) < 0 ||
		       (in->interpreter != NULL && cb_jail_spec_interpreter(in->interpreter, &spec) < 0)))
		r = no_memory(err);
	if (r == 0)
		r = plan_root(in->policy, &spec, err);
	if (r == 0)
		r = plan_command(in, &spec, err);
	plan_packages(in->policy, in->interpreter, &spec);
	if (r == 0)
		r = plan_mounts(in->policy, &spec, err);
	if (r == 0)
		r = plan_protected(in, &used, &spec, err);
	if (r == 0)
		r = check_mounts(in, &used, &spec, err);
	if (r == 0)
		r = check_audit(in->policy, &spec, err);
	if (r == 0 && plan_warm(in, &spec) < 0)
		r = no_memory(err);
	if (r == 0)
		r = cb_jail_spec_check(&spec, err);
	if (r < 0) {
		cb_jail_spec_release(&spec);
		return r;
	}
	*ret_spec = spec;
	return 0;
}
