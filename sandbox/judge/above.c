/* What the path of a workspace itself says: see judge.h.
 *
 * Trust domain: broker, before there is a jail, or `explain`; paths were named by the user. Reads folders, writes
 * nothing.
 *
 * Names count above the workspace as they do in it: in .git/hooks or venv/bin all is run by programs outside. They
 * count from the nearest checkout downwards, since tools put checkouts of their own below such names
 * (.claude/worktrees/x). What an environment is known by protects what it is made of, wherever in that the workspace
 * lies.
 */
#include "parts.h"

#include <cellblock/fd.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct place {
	const char *path; /* absolute */
	size_t from;	  /* where the name of the checkout begins, or that of the first folder */
	const struct cb_strv *patterns;
};

static bool holds(const char *path, size_t n, const char *name)
{
	char whole[PATH_MAX + NAME_MAX];
	struct stat st;

	snprintf(whole, sizeof(whole), "%.*s/%s", (int)n, path, name);
	return lstat(whole, &st) == 0;
}

/* A folder .git that is empty, which cells can make, makes none. */
static bool is_checkout(const char *path, size_t n)
{
	char whole[PATH_MAX];
	CB_AUTO_FD fd = -1;

	snprintf(whole, sizeof(whole), "%.*s", (int)n, path);
	fd = open(whole, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return cb_git_is_checkout(fd);
}

static size_t name_before(const char *path, size_t n)
{
	while (n > 0 && path[n - 1] != '/')
		n--;
	return n;
}

/* False if there is no path that counts. */
static bool find_place(const struct cb_jail_spec *spec, struct place *ret)
{
	size_t n = spec->workspace_source != NULL ? strlen(spec->workspace_source) : 0;

	ret->path = spec->workspace_source;
	ret->patterns = &spec->protect;
	ret->from = 1;
	if (n < 2)
		return false;
	for (; n > 1; n = name_before(ret->path, n) - 1) {
		if (is_checkout(ret->path, n)) {
			ret->from = name_before(ret->path, n);
			break;
		}
	}
	return true;
}

/* Of at least one component. */
static void fold_all(const char *at, char folded[PATH_MAX])
{
	char *to = folded;

	for (const char *part = at; *part != '\0'; part += *part == '/') {
		size_t n = strcspn(part, "/");

		to += cb_name_fold(part, n, to);
		*to++ = '/';
		part += n;
	}
	to[-1] = '\0';
}

/* A pattern that the components at `at` begin with, or NULL. */
static const char *pattern_at(const struct place *p, const char *at)
{
	char folded[PATH_MAX];
	const char *rest;
	size_t first;

	fold_all(at, folded);
	first = strcspn(folded, "/");
	for (size_t i = 0; i < p->patterns->count; i++) {
		const char *pattern = p->patterns->items[i];

		if (cb_is_git_pattern(pattern) ? cb_git_is_dot(folded, first)
					       : cb_name_fits(pattern, at, folded, &rest) == CB_FIT_ALL)
			return pattern;
	}
	return NULL;
}

/* The same by what the folder path[0..n) holds, of which `at` is to be written. */
static const char *held_at(const struct place *p, size_t n, const char *at)
{
	char folder[PATH_MAX], folded[NAME_MAX + 1];
	size_t first = strcspn(at, "/");

	snprintf(folder, sizeof(folder), "%.*s", (int)n, p->path);
	(void)cb_name_fold(at, first < NAME_MAX ? first : NAME_MAX, folded);
	for (size_t i = 0; i < p->patterns->count; i++) {
		const char *pattern = p->patterns->items[i];
		CB_AUTO_FD fd = -1;

		if (cb_is_marker(pattern) && cb_is_prefix_part(folded) && holds(p->path, n, pattern))
			return pattern;
		if (!cb_is_git_pattern(pattern))
			continue;
		fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0 && cb_git_is_folder((const int[2]){ fd, -1 }) == 1)
			return pattern;
	}
	return NULL;
}

int cb_judge_place(const struct cb_jail_spec *spec, struct cb_err *err)
{
	struct place p;

	if ((spec->workspace_mode != CB_WORKSPACE_RW && spec->workspace_mode != CB_WORKSPACE_OVERLAY) ||
	    !find_place(spec, &p))
		return 0;
	for (size_t at = p.from; p.path[at] != '\0'; at += p.path[at] == '/') {
		const char *pattern = pattern_at(&p, p.path + at);

		if (pattern == NULL && at > p.from)
			pattern = held_at(&p, at - 1, p.path + at);
		if (pattern != NULL)
			return cb_err_set(err, CB_E_DENIED, "workspace",
					  "Name a folder elsewhere with --workspace, set workspace.mode=ro, or take "
					  "the name out of workspace.protect.",
					  "workspace.path %s: programs outside act on what is in such a folder "
					  "(workspace.protect, \"%s\")",
					  p.path, pattern);
		at += strcspn(p.path + at, "/");
	}
	return 0;
}

const char *cb_judge_above(const struct cb_jail_spec *spec)
{
	size_t most = 0, n;
	struct place p;

	if (!find_place(spec, &p))
		return "";
	for (size_t i = 0; i < p.patterns->count; i++) {
		size_t slashes = 0;

		for (const char *c = p.patterns->items[i]; *c != '\0'; c++)
			slashes += *c == '/';
		most = slashes > most ? slashes : most;
	}
	for (n = strlen(p.path) + 1; most > 0 && n > p.from; most--)
		n = name_before(p.path, n - 1);
	return n > strlen(p.path) ? "" : p.path + n;
}

void cb_judge_begun(const struct cb_jail_spec *spec, cb_begun_fn see, void *arg)
{
	const char *rest;

	for (const char *at = cb_judge_above(spec); *at != '\0'; at += *at == '/') {
		char folded[PATH_MAX];

		fold_all(at, folded);
		for (size_t i = 0; i < spec->protect.count; i++)
			if (cb_name_fits(spec->protect.items[i], at, folded, &rest) == CB_FIT_HEAD)
				see(arg, rest);
		at += strcspn(at, "/");
	}
}
