/* Loading a policy: built-in defaults, then file, then --set, then the administrator's ceiling.
 *
 * Role: finds and reads the files of docs/policy.md and turns them into a complete struct cb_policy. Trust domain:
 * supervisor, at start. Invariants: files are parsed strictly (no duplicate, no unknown key); a policy file never comes
 * from the workspace, which cells can write, nor from a file that others may write; an unreadable ceiling is an error,
 * an absent one is none.
 */
#include "policy.h"

#include <cellblock/fd.h>
#include <cellblock/host_memory.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "find.h"
#include "keys.h"
#include "nearest.h"
#include "parse.h"
#include "paths.h"
#include "workspace.h"

#define MAX_FILE (1u << 20)
#define MAX_KEYS 64
#define ROOM 8		      /* one part in so many of a group's or the host's memory is left for others */
#define ROOM_MAX (256u << 20) /* at most */
#define CEILING_FOLDER "/etc/cellblock"
#define CEILING CEILING_FOLDER "/ceiling.json"

struct reading {
	struct cb_policy *policy;
	const char *origin;
	bool ceiling;
	bool seen[MAX_KEYS];
};

static int unknown_key(const char *origin, const char *name, struct cb_err *err)
{
	struct cb_nearest near = CB_NEAREST(name);
	char cure[160];
	size_t n = strlen(name);

	for (size_t i = 0; i < cb_policy_keys_count; i++) {
		const char *known = cb_policy_keys[i].name, *dot = strchr(known, '.');

		cb_nearest_offer(&near, known);
		if (near.best == NULL && dot != NULL && strcmp(dot + 1, name) == 0)
			near.best = known;
	}
	for (size_t i = 0; i < cb_policy_keys_count && near.best == NULL; i++)
		if (strncmp(cb_policy_keys[i].name, name, n) == 0 && cb_policy_keys[i].name[n] == '.')
			near.best = cb_policy_keys[i].name;
	if (near.best != NULL)
		snprintf(cure, sizeof(cure), "Did you mean \"%s\"?", near.best);
	else
		snprintf(cure, sizeof(cure), "`cellblock explain --policy notebook` lists the keys.");
	return cb_err_set(err, CB_E_UNKNOWN, "policy", cure, "%s: unknown key \"%.100s\"", origin, name);
}

static bool is_group(const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < cb_policy_keys_count; i++)
		if (strncmp(cb_policy_keys[i].name, name, n) == 0 && cb_policy_keys[i].name[n] == '.')
			return true;
	return false;
}

static int take_key(struct reading *reading, const struct cb_policy_key *key, const json_t *value, struct cb_err *err)
{
	size_t index = (size_t)(key - cb_policy_keys);

	if (reading->seen[index])
		return cb_err_set(err, CB_E_SYNTAX, "policy", NULL, "%s: %s is given twice", reading->origin,
				  key->name);
	reading->seen[index] = true;
	if (reading->ceiling)
		return cb_policy_key_bound(reading->policy, key, value, reading->origin, err);
	if (strcmp(key->name, "workspace.path") == 0)
		reading->policy->workspace_path_explicit = true;
	return cb_policy_key_set(reading->policy, key, value, reading->origin, err);
}

static int take_object(struct reading *reading, const char *prefix, json_t *object, struct cb_err *err)
{
	const char *word;
	json_t *value;

	json_object_foreach(object, word, value)
	{
		CB_AUTO_PATH name = cb_path_format("%s%s%s", prefix, prefix[0] != '\0' ? "." : "", word);
		const struct cb_policy_key *key;
		int r;

		if (name == NULL)
			return cb_err_set(err, -ENOMEM, "policy", NULL, "out of memory");
		key = cb_policy_key_find(name);
		if (key != NULL)
			r = take_key(reading, key, value, err);
		else if (!is_group(name))
			r = unknown_key(reading->origin, name, err);
		else if (!json_is_object(value))
			r = cb_err_set(err, CB_E_SYNTAX, "policy", "Write an object of its keys.",
				       "%s: %s is not an object", reading->origin, name);
		else
			r = take_object(reading, name, value, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int cb_policy_parse(struct cb_policy *p, bool ceiling, const char *origin, const char *text, size_t len,
		    struct cb_err *err)
{
	struct reading reading = { .policy = p, .origin = origin, .ceiling = ceiling };
	json_error_t where;
	json_auto_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);

	_Static_assert(MAX_KEYS >= 40, "room for every key");
	if (root == NULL)
		return cb_err_set(err, CB_E_SYNTAX, "policy", NULL, "%s: line %d, column %d: %s", origin, where.line,
				  where.column, where.text);
	if (json_is_object(root))
		return take_object(&reading, "", root, err);
	return cb_err_set(err, CB_E_SYNTAX, "policy", NULL, "%s: not a JSON object", origin);
}

int cb_policy_defaults(const char *name, struct cb_policy *ret_policy, struct cb_err *err)
{
	struct cb_policy p = { .name = strdup(name) };
	int r = p.name != NULL ? 0 : cb_err_set(err, -ENOMEM, "policy", NULL, "out of memory");

	for (size_t i = 0; i < cb_policy_keys_count && r == 0; i++)
		r = cb_policy_key_default(&p, &cb_policy_keys[i], strcmp(name, "agent") == 0, err);
	if (r < 0) {
		cb_policy_release(&p);
		return r;
	}
	*ret_policy = p;
	return 0;
}

/* Reads one file. A file that others can write is refused: it decides what a jail may do. */
static int read_file(const char *path, bool ceiling, struct cb_policy *p, struct cb_err *err)
{
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	CB_AUTO_PATH text = NULL;
	CB_AUTO_PATH real = NULL;
	struct stat st;
	size_t len;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return cb_err_set(err, -errno, "policy", NULL, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return cb_err_set(err, -EINVAL, "policy", NULL, "%s: not a regular file", path);
	if ((st.st_mode & S_IWOTH) != 0 || (st.st_uid != 0 && st.st_uid != geteuid()))
		return cb_err_set(err, -EPERM, "policy", "Let you or root own it, and run chmod o-w on it.",
				  "%s: other users can write this file", path);
	r = cb_fd_read_all(fd, MAX_FILE, &text, &len);
	if (r < 0)
		return cb_err_set(err, r, "policy", NULL, "%s: %s", path,
				  r == CB_E_TOO_BIG ? "larger than 1 MiB" : strerror(-r));
	if (cb_path_links(path, &p->links, &real) < 0 || cb_strv_add(&p->files, real) < 0)
		return cb_err_set(err, -ENOMEM, "policy", NULL, "%s: can't be resolved", path);
	return cb_policy_parse(p, ceiling, path, text, len, err);
}

static int read_named(const char *name, struct cb_policy *p, struct cb_err *err)
{
	char *path = NULL;
	struct stat st;
	int r = cb_policy_find(name, &path, err);

	if (r < 0)
		return r;
	free(p->name);
	p->name = path;
	r = read_file(path, false, p, err);
	if (r == -EACCES && lstat(path, &st) < 0) /* as in the home of another user, which a service may have in HOME */
		return cb_err_set(err, r, "policy",
				  "Set HOME or JUPYTER_CONFIG_DIR, or name the file by its path.", "%s: %s", path,
				  strerror(-r));
	return r;
}

static int apply_set(struct cb_policy *p, const char *assignment, struct cb_err *err)
{
	const char *equals = strchr(assignment, '=');
	CB_AUTO_PATH name = equals != NULL ? strndup(assignment, (size_t)(equals - assignment)) : NULL;
	const struct cb_policy_key *key;

	if (name == NULL)
		return cb_err_set(err, CB_E_USAGE, "policy", NULL, "--set takes KEY=VALUE, not '%.100s'", assignment);
	if (strncmp(name, "env.set.", 8) == 0) {
		key = cb_policy_key_find("env.set");
		json_auto_t *object = cb_policy_key_get(p, key);
		json_auto_t *variables = json_string(equals + 1);

		return object != NULL && variables != NULL && json_object_set(object, name + 8, variables) == 0
			    ? cb_policy_key_set(p, key, object, "--set", err)
			    : cb_err_set(err, -ENOMEM, "policy", NULL, "--set %s: no memory, or not UTF-8", name);
	}
	key = cb_policy_key_find(name);
	if (key == NULL)
		return unknown_key("--set", name, err);
	if (strcmp(name, "workspace.path") == 0)
		p->workspace_path_explicit = true;
	return cb_policy_key_set_text(p, key, equals + 1, "--set", err);
}

/* A notebook that lies in no project has its own folder, as by default. */
static char *resolve_workspace(struct cb_policy *p)
{
	CB_AUTO_PATH here = NULL;
	char *project;

	p->workspace_project = strcmp(p->workspace_path, CB_WORKSPACE_PROJECT) == 0;
	if (!p->workspace_project)
		return cb_path_absolute(p->workspace_path, NULL);
	here = cb_path_absolute(".", NULL);
	project = here != NULL ? cb_workspace_project(here) : NULL;
	if (project != NULL)
		return project;
	p->workspace_path_explicit = false;
	return cb_path_absolute(".", NULL);
}

char *cb_policy_user_history(void)
{
	const char *data = getenv("XDG_DATA_HOME");
	CB_AUTO_PATH home = cb_path_home();

	if (data != NULL && data[0] == '/')
		return cb_path_format("%s/cellblock/history.sqlite", data);
	return home != NULL ? cb_path_format("%s/.local/share/cellblock/history.sqlite", home) : strdup(":memory:");
}

/* Makes paths absolute and gives the words "project" and "user" their meaning. */
static int resolve_paths(struct cb_policy *p, struct cb_err *err)
{
	char *workspace = resolve_workspace(p), *history = NULL;

	if (workspace == NULL)
		return cb_err_set(err, -errno, "policy", "Name a folder with --workspace.",
				  "the current folder can't be found: %s", strerror(errno));
	free(p->workspace_path);
	p->workspace_path = workspace;
	if (p->audit_file != NULL) {
		char *audit = cb_path_absolute(p->audit_file, NULL);

		if (audit == NULL)
			return cb_err_set(err, -ENOMEM, "policy", NULL, "out of memory");
		free(p->audit_file);
		p->audit_file = audit;
	}
	if (p->history_file == NULL || strcmp(p->history_file, ":memory:") == 0)
		return 0;
	if (strcmp(p->history_file, "user") != 0)
		history = cb_path_absolute(p->history_file, NULL);
	else
		history = cb_policy_user_history();
	if (history == NULL)
		return cb_err_set(err, -ENOMEM, "policy", NULL, "out of memory");
	free(p->history_file);
	p->history_file = history;
	return 0;
}

static const char *first_below(const struct cb_strv *paths, const char *folder)
{
	for (size_t i = 0; i < paths->count; i++)
		if (cb_path_within(paths->items[i], folder))
			return paths->items[i];
	return NULL;
}

/* A policy that cells could rewrite, or exchange by a link, would be none. Where the default folder can't be the
 * workspace of any kernel, cells get an empty one in memory. */
static int check_not_in_workspace(const struct cb_policy *p, struct cb_err *err)
{
	CB_AUTO_PATH real = cb_path_real(p->workspace_path);
	CB_AUTO_PATH why = NULL;
	CB_AUTO_STRV used = { 0 };

	if (real == NULL || p->workspace_mode == CB_WS_TMPFS || p->files.count == 0)
		return 0;
	if (!p->workspace_path_explicit &&
	    (cb_workspace_used_always(&used) < 0 || cb_workspace_why_not(p, &used, real, &why) < 0))
		return cb_err_set(err, -ENOMEM, "policy", NULL, "out of memory");
	if (why != NULL)
		return 0;
	const char *file = first_below(&p->files, real), *link = first_below(&p->links, real);

	if (file == NULL && link == NULL)
		return 0;
	return cb_err_set(err, CB_E_DENIED, "policy", "Move it out of the workspace.",
			  "the %s %s lies in the workspace %s, which %s can write",
			  file != NULL ? "policy" : "link to the policy", file != NULL ? file : link, real,
			  cb_workspace_writers(p));
}

/* Where a group above us, or the host, has less than the policy allows, its limit would be met first: the kernel would
 * kill any of the group, us or the server that started us, and no message would name what held. Room is left for those.
 */
static void fit_memory(struct cb_policy *p)
{
	char folder[128] = "";
	bool grouped = cb_group_memory(folder, sizeof(folder)) > 0;
	uint64_t all = cb_host_memory(), fits = all - all / ROOM;

	if (all - fits > ROOM_MAX)
		fits = all - ROOM_MAX;
	if (all == 0 || (p->limit_memory != 0 && p->limit_memory <= fits))
		return;
	p->limit_memory = fits;
	snprintf(p->limit_memory_note, sizeof(p->limit_memory_note), "what fits into the %.1f MiB that %s%s%s",
		 (double)all / (1 << 20), grouped ? "the control group " : "this host has", folder,
		 grouped ? " has for all in it" : "");
}

/* One that can't be reached is no reason to go without; a link that leads nowhere is one that can't be reached. */
static bool has_ceiling(void)
{
	struct stat st;

	if (lstat(CEILING, &st) == 0 || (errno != ENOENT && errno != ENOTDIR))
		return true;
	return lstat(CEILING_FOLDER, &st) == 0 && S_ISLNK(st.st_mode) && stat(CEILING_FOLDER, &st) < 0;
}

int cb_policy_load(const char *which, char *const *sets, size_t nsets, struct cb_policy *ret_policy, struct cb_err *err)
{
	struct cb_policy p = { 0 };
	bool built_in;
	int r;

	if (which == NULL)
		which = getenv("CELLBLOCK_POLICY");
	if (which == NULL || which[0] == '\0')
		which = "notebook";
	built_in = strcmp(which, "notebook") == 0 || strcmp(which, "agent") == 0;
	r = cb_policy_defaults(built_in ? which : "notebook", &p, err);
	if (r == 0 && !built_in && strchr(which, '/') == NULL) {
		r = read_named(which, &p, err);
	} else if (r == 0 && !built_in) {
		free(p.name);
		p.name = cb_path_absolute(which, NULL);
		r = p.name != NULL ? read_file(p.name, false, &p, err) : -ENOMEM;
	}
	for (size_t i = 0; i < nsets && r == 0; i++)
		r = apply_set(&p, sets[i], err);
	if (r == 0 && has_ceiling())
		r = read_file(CEILING, true, &p, err);
	if (r == 0)
		r = resolve_paths(&p, err);
	if (r == 0)
		r = check_not_in_workspace(&p, err);
	if (r < 0) {
		cb_policy_release(&p);
		return r;
	}
	fit_memory(&p);
	*ret_policy = p;
	return 0;
}

void cb_policy_release(struct cb_policy *p)
{
	for (size_t i = 0; i < cb_policy_keys_count; i++)
		cb_policy_key_release(p, &cb_policy_keys[i]);
	free(p->name);
	cb_strv_release(&p->files);
	cb_strv_release(&p->links);
	*p = (struct cb_policy){ 0 };
}
