/* Where symbolic links that bear a protected name lead: see parts.h.
 *
 * Trust domain: as judge.c. Programs outside follow such a link, so what it leads to in the workspace is protected as
 * the name is. Links are looked for in three folders: the workspace's own (each pattern that is one name without
 * wildcards), .git and .git/hooks. They are looked for again whenever the folder has changed, by its time of change; as
 * that has a grain, also while it has changed just now. Deeper ones are not looked for.
 *
 * Invariants: reads links and folders, writes nothing. Each link on the way counts, not its end alone. What can't be
 * looked at counts by its text. Texts are bounded in number; more of them, and nothing may be written.
 */
#include "parts.h"

#include "../shared/mounts.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEADS_MAX 512u
#define WAY_MAX (3 * PATH_MAX)
#define GRAIN_NS 20000000 /* of times of change: two ticks of the slowest kernel */
#define FEW 100		  /* entries of a folder: reading them costs less than asking for each protected name */

/* What git would obey or run. */
static const char *const git_names[] = { ".git/config",	 ".git/config.worktree", ".git/info",	     ".git/hooks",
					 ".git/modules", ".git/worktrees",	 ".git/rebase-merge" };

/* By the clock that times of change are read from: on a busy machine the fine one is more than a tick ahead of it. */
static struct timespec now(void)
{
	struct timespec t = { 0 };

	(void)clock_gettime(CLOCK_REALTIME_COARSE, &t);
	return t;
}

static bool is_recent(struct timespec changed, struct timespec at)
{
	int64_t ns = (int64_t)(at.tv_sec - changed.tv_sec) * 1000000000 + (at.tv_nsec - changed.tv_nsec);

	return ns < GRAIN_NS;
}

/* ---- one link ---- */

static void keep(struct cb_leads *l, const char *path)
{
	if (cb_strv_has(&l->paths, path))
		return;
	if (l->paths.count >= LEADS_MAX || cb_strv_add(&l->paths, path) < 0)
		l->too_many = true;
}

/* The next part of a way goes behind `path`; false if it leads above the workspace. */
static bool step(char path[PATH_MAX], const char *part, size_t n)
{
	size_t have = strlen(path);
	char *slash = strrchr(path, '/');

	if (n == 0 || (n == 1 && part[0] == '.'))
		return true;
	if (n == 2 && part[0] == '.' && part[1] == '.') {
		*(slash != NULL ? slash : path) = '\0';
		return have > 0;
	}
	snprintf(path + have, PATH_MAX - have, "%s%.*s", have > 0 ? "/" : "", (int)n, part);
	return true;
}

/* The text of the link at `path` comes before what is left of the way. False: out of the workspace. */
static bool put_text(struct cb_leads *l, char path[PATH_MAX], const char *text, char rest[WAY_MAX], size_t left)
{
	char *slash = strrchr(path, '/');
	size_t n;

	if (text[0] == '/') {
		if (l->source == NULL || !cb_path_within(text, l->source))
			return false;
		text += strlen(l->source);
		path[0] = '\0';
	} else {
		*(slash != NULL ? slash : path) = '\0';
	}
	n = strlen(text);
	if (n + 1 + left >= WAY_MAX) {
		l->too_many = true;
		return false;
	}
	memmove(rest + n + 1, rest + strlen(rest) - left, left + 1);
	memcpy(rest, text, n);
	rest[n] = '/';
	return true;
}

/* By one look of the kernel's, since hardly any name is a link. */
static bool has_no_link(int root, const char *name)
{
	CB_AUTO_FD fd = -1;
	int r = cb_open_nolinks(root, name, O_PATH, &fd);

	return r == 0 || r == -ENOENT || r == -ENOTDIR;
}

/* Follows `name`, of which the first link is protected already, and keeps each further one, and the end. */
static void follow(struct cb_leads *l, int root, const char *name)
{
	char path[PATH_MAX], rest[WAY_MAX], text[PATH_MAX];
	unsigned links = 0;

	if (has_no_link(root, name))
		return;
	path[0] = '\0';
	snprintf(rest, sizeof(rest), "%s", name);
	for (char *at = rest; *at != '\0';) {
		size_t n = strcspn(at, "/");
		ssize_t got;

		if (strlen(path) + 1 + n >= PATH_MAX) {
			l->too_many = true;
			return;
		}
		if (!step(path, at, n))
			return;
		at += n + (at[n] == '/');
		got = n > 0 && path[0] != '\0' ? readlinkat(root, path, text, sizeof(text) - 1) : -1;
		if (got < 0)
			continue;
		text[got] = '\0';
		if (links++ > 0)
			keep(l, path);
		if (links > CB_FOLLOW_MAX || !put_text(l, path, text, rest, strlen(at)))
			return;
		at = rest;
	}
	if (links > 0 && path[0] != '\0')
		keep(l, path);
}

/* ---- the folders ---- */

/* A git folder is known by what it holds, wherever a link leads. */
static bool is_followed(const char *pattern)
{
	return strchr(pattern, '/') == NULL && !cb_name_is_glob(pattern) && !cb_is_git_pattern(pattern);
}

struct look {
	struct cb_leads *leads;
	const struct cb_judge *judge;
	unsigned seen;
};

static bool see_at_top(void *arg, const char *name)
{
	struct look *look = arg;
	const struct cb_strv *v = look->judge->patterns;
	char folded[NAME_MAX + 1];
	const char *rest;

	cb_name_fold(name, strnlen(name, NAME_MAX), folded);
	for (size_t i = 0; i < v->count; i++)
		if (cb_name_fits(v->items[i], name, folded, &rest) == CB_FIT_ALL && is_followed(v->items[i]))
			follow(look->leads, look->judge->root, name);
	return ++look->seen >= FEW;
}

static int look_at_top(struct cb_leads *l, const struct cb_judge *judge)
{
	struct look look = { .leads = l, .judge = judge };
	int r = cb_judge_scan(judge->root, see_at_top, &look);

	if (r == 0 || (r < 0 && r != -EACCES)) /* who may not read it may ask for each name */
		return r;
	for (size_t i = 0; i < judge->patterns->count; i++)
		if (is_followed(judge->patterns->items[i]))
			follow(l, judge->root, judge->patterns->items[i]);
	return 0;
}

static bool see_hook(void *arg, const char *name)
{
	const struct look *look = arg;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), ".git/hooks/%s", name);
	follow(look->leads, look->judge->root, path);
	return look->leads->too_many;
}

/* None, or none that this user's git could find either. */
static bool has_no_hooks(int error)
{
	return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES;
}

/* One that may not be read may hold anything. */
static int look_in_git(struct cb_leads *l, const struct cb_judge *judge)
{
	CB_AUTO_FD folder = openat(judge->root, ".git/hooks", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct look look = { .leads = l, .judge = judge };
	int r;

	if (folder < 0 && !has_no_hooks(errno))
		return -errno;
	for (size_t i = 0; i < CB_COUNT(git_names); i++)
		follow(l, judge->root, git_names[i]);
	r = cb_judge_scan(folder, see_hook, &look);
	l->too_many |= r == -EACCES;
	return r < 0 && r != -EACCES ? r : 0;
}

static bool is_same(const struct cb_lead_stamp *a, const struct cb_lead_stamp *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->changed.tv_sec == b->changed.tv_sec &&
	       a->changed.tv_nsec == b->changed.tv_nsec;
}

/* Whether the folder is the one that was looked at, and was so. */
static bool is_as_before(const struct cb_leads *l, int root, const char *name, struct cb_lead_stamp *stamp)
{
	struct cb_lead_stamp before = *stamp;
	struct stat st;

	*stamp = (struct cb_lead_stamp){ 0 }; /* of what is not there */
	if (fstatat(root, name, &st, 0) == 0)
		*stamp = (struct cb_lead_stamp){ st.st_dev, st.st_ino, st.st_ctim };
	return is_same(&before, stamp) && !is_recent(stamp->changed, l->at);
}

/* Stamps and time are taken before the look. One that failed, for want of descriptors, says nothing and is not kept. */
static int refresh(struct cb_leads *l, const struct cb_judge *judge, const char *const *folders,
		   int (*look)(struct cb_leads *l, const struct cb_judge *judge))
{
	struct timespec at = now();
	bool same = l->looked;
	int r;

	for (size_t i = 0; folders[i] != NULL; i++)
		same = is_as_before(l, judge->root, folders[i], &l->stamps[i]) && same;
	if (same && l->paths.count == 0) /* links that were found may lead over others, in folders without a stamp */
		return 0;
	l->at = at;
	l->too_many = false;
	cb_strv_release(&l->paths);
	r = look(l, judge);
	l->looked = r == 0;
	return r;
}

static int ask_each(const struct cb_leads *l, cb_lead_fn is_met, void *arg)
{
	int r = l->too_many ? is_met(arg, NULL) : 0;

	for (size_t i = 0; i < l->paths.count && r == 0; i++)
		r = is_met(arg, l->paths.items[i]);
	return r;
}

int cb_leads_judge(const struct cb_judge *judge, bool about_git, cb_lead_fn is_met, void *arg)
{
	struct cb_leads *top = judge->leads, *git;
	int r;

	if (top == NULL)
		return 0;
	git = top + 1;
	pthread_mutex_lock(&top->lock);
	r = refresh(top, judge, (const char *const[]){ ".", NULL }, look_at_top);
	if (r == 0)
		r = ask_each(top, is_met, arg);
	if (r == 0 && about_git)
		r = refresh(git, judge, (const char *const[]){ ".git", ".git/hooks", NULL }, look_in_git);
	if (r == 0 && about_git)
		r = ask_each(git, is_met, arg);
	pthread_mutex_unlock(&top->lock);
	return r;
}
