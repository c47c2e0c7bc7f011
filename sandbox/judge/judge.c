/* Whether an entry of a workspace may be written: see judge.h.
 *
 * Trust domain: whoever judges (a process that writes on a jail's behalf, a broker's child). Paths and what lies in the
 * workspace were chosen by hostile code. Invariants: no link is followed; a folder or an entry that can't be looked at
 * is refused; nothing bounds the look but the path's length; no memory is allocated here.
 *
 * What patterns mean. "name" is an entry called so at any depth, "folder/name" one whose last components are these;
 * components may be globs. What lies below such an entry is protected with it. Where the rest of a longer pattern is
 * in a folder, that can't be moved to a name that begins the pattern, nor away from one; and no link can be made there.
 * What links of such names lead to is protected like them: leads.c. "pyvenv.cfg" and "conda-meta" protect the
 * folder that holds one, whole; if that is the workspace itself, the parts that such a folder is made of. ".git", or
 * any pattern that begins so, brings the rules of git.c.
 */
#include "parts.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const markers[] = { "pyvenv.cfg", "conda-meta" };
/* Of an interpreter's prefix that is the workspace itself; folded. */
static const char *const prefix_parts[] = { "bin",  "etc",   "include", "lib",	      "lib64",	   "libexec",
					    "sbin", "share", "scripts", "pyvenv.cfg", "conda-meta" };
#define SHORT_MAX (12 * 3) /* "PYVENV~1.CFG", in UTF-8 */

struct entry {
	const struct cb_judge *judge;
	enum cb_act act;
	mode_t type;
	int content;
	const char *path;
	char folded[PATH_MAX];
	char named[2 * PATH_MAX], named_folded[2 * PATH_MAX]; /* both behind what is above the workspace */
	bool about_git, marked[CB_COUNT(markers)];	      /* some pattern is */
	bool headed;					      /* the path's end begins a longer one */
	int at[2];					      /* the folder reached, in the workspace and beside it */
	const char *git, *git_folded; /* the rest of the path from the innermost git folder, NULL = none */
	struct cb_judged *ret;
};

bool cb_is_marker(const char *name)
{
	for (size_t m = 0; m < CB_COUNT(markers); m++)
		if (strcasecmp(name, markers[m]) == 0)
			return true;
	return false;
}

bool cb_is_prefix_part(const char *folded)
{
	return cb_name_among(folded, strlen(folded), prefix_parts, CB_COUNT(prefix_parts));
}

static int refuse(struct entry *e, const char *pattern)
{
	snprintf(e->ret->refused, sizeof(e->ret->refused), "%s", pattern);
	return -EROFS;
}

int cb_judge_holds(int folder, const char *name)
{
	struct stat st;

	if (folder < 0)
		return 0;
	if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	return errno == ENOENT ? 0 : -errno;
}

/* ---- the path alone ---- */

/* Checks the path and folds it, component by component. */
static int fold_path(const char *path, char folded[PATH_MAX])
{
	size_t left = strlen(path);

	folded[0] = '\0';
	if (left >= PATH_MAX)
		return -ENAMETOOLONG;
	while (left > 0) {
		size_t n = strcspn(path, "/");

		if (n > NAME_MAX)
			return -ENAMETOOLONG;
		if (n == 0 || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.') ||
		    (path[n] == '/' && path[n + 1] == '\0'))
			return -EINVAL;
		folded += cb_name_fold(path, n, folded);
		n += path[n] == '/';
		path += n;
		left -= n;
		if (left > 0)
			*folded++ = '/';
	}
	return 0;
}

bool cb_is_git_pattern(const char *pattern)
{
	return pattern[0] == '.' && strncasecmp(pattern, ".git", 4) == 0 && (pattern[4] == '\0' || pattern[4] == '/');
}

bool cb_judge_about_git(const struct cb_judge *judge)
{
	for (size_t i = 0; i < judge->patterns->count; i++)
		if (cb_is_git_pattern(judge->patterns->items[i]))
			return true;
	return false;
}

static void read_patterns(struct entry *e)
{
	const struct cb_strv *v = e->judge->patterns;

	e->about_git = cb_judge_about_git(e->judge);
	for (size_t i = 0; i < v->count; i++) {
		for (size_t m = 0; m < CB_COUNT(markers); m++)
			if (v->items[i][0] == markers[m][0] && strcmp(v->items[i], markers[m]) == 0)
				e->marked[m] = true;
	}
}

/* Beginning with one component, against all patterns. */
static int judge_from(struct entry *e, const char *at, const char *folded)
{
	const struct cb_strv *v = e->judge->patterns;

	for (size_t i = 0; i < v->count; i++) {
		const char *pattern = v->items[i], *rest;
		enum cb_fit fit = cb_name_fits(pattern, at, folded, &rest);

		if (fit == CB_FIT_ALL && (!cb_is_git_pattern(pattern) || pattern[4] != '\0'))
			return refuse(e, pattern);
		if (fit != CB_FIT_HEAD)
			continue;
		if (e->act == CB_ACT_MAKE && S_ISLNK(e->type))
			return refuse(e, pattern);
		e->headed = true;
	}
	return 0;
}

/* What is above the workspace begins patterns as well. */
static int name_entry(struct entry *e)
{
	const char *above = e->judge->above != NULL ? e->judge->above : "";
	size_t n = strlen(above), f = 0;

	if (n >= PATH_MAX)
		return -ENAMETOOLONG;
	if (n > 0) {
		int r = fold_path(above, e->named_folded);

		if (r < 0)
			return r;
		f = strlen(e->named_folded);
		memcpy(e->named, above, n);
		e->named[n++] = '/';
		e->named_folded[f++] = '/';
	}
	memcpy(e->named + n, e->path, strlen(e->path) + 1);
	memcpy(e->named_folded + f, e->folded, strlen(e->folded) + 1);
	return 0;
}

static int judge_patterns(struct entry *e)
{
	const char *at = e->named, *folded = e->named_folded;

	for (;;) {
		int r = judge_from(e, at, folded);

		at = strchr(at, '/');
		if (r < 0 || at == NULL)
			return r;
		at++;
		folded = strchr(folded, '/') + 1;
	}
}

int cb_judge_begun_above(const struct cb_judge *judge)
{
	struct cb_judge alone = *judge;
	struct cb_judged judged;
	struct entry e = {
		.judge = &alone, .act = CB_ACT_MAKE, .type = S_IFLNK, .path = judge->above, .ret = &judged
	};
	int r;

	if (judge->above == NULL || *judge->above == '\0')
		return 0;
	alone.above = NULL;
	r = fold_path(e.path, e.folded);
	if (r == 0)
		r = name_entry(&e);
	return r == 0 ? judge_patterns(&e) : r;
}

/* A path, and what is below it; its parents can't be moved, nor taken by something else. */
static int judge_path(void *arg, const char *path)
{
	struct entry *e = arg;
	size_t n = strlen(e->folded), k;
	char own[PATH_MAX];

	if (path == NULL)
		return refuse(e, "too many links");
	if (fold_path(path, own) < 0)
		return refuse(e, path);
	k = strlen(own);
	if (n >= k && memcmp(own, e->folded, k) == 0 && (e->folded[k] == '/' || e->folded[k] == '\0'))
		return refuse(e, path);
	if (n < k && memcmp(own, e->folded, n) == 0 && own[n] == '/' && e->act != CB_ACT_CHANGE &&
	    (e->act != CB_ACT_MAKE || !S_ISDIR(e->type) || e->content >= 0))
		return refuse(e, path);
	return 0;
}

/* Our own files, and where links of protected names lead. */
static int judge_paths(struct entry *e)
{
	const struct cb_strv *v = e->judge->paths;
	int r = 0;

	for (size_t i = 0; v != NULL && i < v->count && r == 0; i++)
		r = judge_path(e, v->items[i]);
	return r == 0 ? cb_leads_judge(e->judge, e->about_git, judge_path, e) : r;
}

/* ---- the folders above ---- */

static int marker_in(const struct entry *e, const int folders[2])
{
	for (size_t m = 0; m < CB_COUNT(markers); m++) {
		int r = e->marked[m] ? cb_judge_holds(folders[0], markers[m]) : 0;

		if (r == 0 && e->marked[m])
			r = cb_judge_holds(folders[1], markers[m]);
		if (r != 0)
			return r < 0 ? r : (int)m + 1;
	}
	return 0;
}

/* The folder e->at, of which `rest` is to be written. */
static int judge_folder(struct entry *e, const char *rest, const char *folded, bool is_git)
{
	struct stat st;
	int r = marker_in(e, e->at);

	if (r < 0)
		return r;
	if (r > 0 &&
	    (rest != e->path || cb_name_among(folded, strcspn(folded, "/"), prefix_parts, CB_COUNT(prefix_parts))))
		return refuse(e, markers[r - 1]);
	if (!e->about_git)
		return 0;
	r = is_git ? 1 : cb_git_is_folder(e->at);
	if (r <= 0)
		return r;
	e->git = rest;
	e->git_folded = folded;
	e->ret->git_ino = 0;
	if (e->at[0] >= 0) {
		if (fstat(e->at[0], &st) < 0)
			return -errno;
		e->ret->git_dev = st.st_dev;
		e->ret->git_ino = st.st_ino;
	}
	return 0;
}

static int open_folder(int *at, const char *name)
{
	struct stat st;
	int fd = openat(*at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = -errno;

	if (fd < 0 && r == -ENOTDIR && fstatat(*at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
		r = -ELOOP;
	cb_fd_close(at);
	*at = fd;
	return fd < 0 ? r : 0;
}

static bool is_absent(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

/* One of the two may lack it where there are two. */
static int open_both(int at[2], const char *name)
{
	bool two = at[0] >= 0 && at[1] >= 0;
	int r = 0, beside = 0;

	if (at[0] >= 0)
		r = open_folder(&at[0], name);
	if (at[1] >= 0)
		beside = open_folder(&at[1], name);
	if (two && is_absent(r))
		return beside;
	if (two && is_absent(beside))
		return r;
	return r < 0 ? r : beside;
}

/* The folder e->at, called so: a git folder by its name. */
static bool is_named_git(const struct entry *e, const char *name, const char *folded)
{
	if (!e->about_git)
		return false;
	return strcmp(name, ".git") == 0 ||
	       (cb_git_is_bare_name(folded, strcspn(folded, "/")) && !cb_git_is_checkout(e->at[0]));
}

static bool see_name(void *arg, const char *name)
{
	const char *const *wanted = arg;

	return strcmp(name, *wanted) == 0;
}

static bool is_short(const char *name)
{
	const char *tilde = strchr(name, '~');

	while (tilde != NULL && (tilde[1] < '0' || tilde[1] > '9'))
		tilde = strchr(tilde + 1, '~');
	return tilde != NULL && strlen(name) <= SHORT_MAX;
}

/* A file system may give each name a short one beside it, with a number behind a '~' (VFAT). That is not listed, and
 * may be that of anything: of a protected name, too. What is beside the workspace, a layer, is in memory and has none:
 * there cells can make any number of names that look so, and each would be looked for among all. */
static int judge_short(struct entry *e, const char *name)
{
	int r = is_short(name) ? cb_judge_holds(e->at[0], name) : 0;

	if (r <= 0)
		return r;
	r = cb_judge_scan(e->at[0], see_name, &name);
	return r < 0 ? r : r > 0 ? 0 : refuse(e, "a short name");
}

/* A component of the path, not yet entered. */
static int judge_passing(struct entry *e, const char *at, const char *folded, size_t n)
{
	if (e->about_git && cb_git_is_dot(folded, strcspn(folded, "/")) && (n != 4 || memcmp(at, ".git", 4) != 0))
		return refuse(e, ".git");
	if (e->git == at && !cb_git_passes(at))
		return refuse(e, ".git");
	return 0;
}

/* Enters all folders above the entry; *ret_name and *ret_folded are then its own. */
static int judge_above(struct entry *e, const char **ret_name, const char **ret_folded)
{
	const char *at = e->path, *folded = e->folded, *slash;
	int r = judge_folder(e, at, folded, false);

	while (r == 0 && (slash = strchr(at, '/')) != NULL) {
		char name[NAME_MAX + 1];
		size_t n = (size_t)(slash - at);
		bool is_git;

		memcpy(name, at, n);
		name[n] = '\0';
		r = judge_passing(e, at, folded, n);
		if (r == 0)
			r = judge_short(e, name);
		if (r < 0)
			break;
		r = open_both(e->at, name);
		is_git = r == 0 && is_named_git(e, name, folded);
		at = slash + 1;
		folded = strchr(folded, '/') + 1;
		if (r == 0)
			r = judge_folder(e, at, folded, is_git);
	}
	*ret_name = at;
	*ret_folded = folded;
	return r;
}

/* ---- the entry itself ---- */

struct entry_name { /* as the kernel writes it */
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

int cb_judge_scan(int folder, cb_see_fn see, void *arg)
{
	_Alignas(struct entry_name) char buf[4096];
	CB_AUTO_FD fd = -1;
	long n;

	if (folder < 0)
		return 0;
	fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while ((n = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0) {
		for (long at = 0; at < n;) {
			const struct entry_name *d = (const struct entry_name *)(const void *)(buf + at);

			if (strcmp(d->name, ".") != 0 && strcmp(d->name, "..") != 0 && see(arg, d->name))
				return 1;
			at += d->len;
		}
	}
	return n < 0 ? -errno : 0;
}

static bool see_any(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return true;
}

struct rest {
	int folder;
	const char *pattern;
	int r;
};

/* An entry that the rest of a pattern begins with: whether what then is left of it exists in it. */
static bool see_rest(void *arg, const char *name)
{
	char folded[NAME_MAX + 1];
	struct rest *x = arg;
	const char *left;
	enum cb_fit fit;

	cb_name_fold(name, strnlen(name, NAME_MAX), folded);
	fit = cb_name_fits(x->pattern, name, folded, &left);
	if (fit == CB_FIT_HEAD) { /* deeper: whatever there is may be it */
		CB_AUTO_FD below = openat(x->folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		x->r = below < 0 ? 0 : cb_judge_scan(below, see_any, NULL);
		return x->r != 0;
	}
	x->r = fit == CB_FIT_ALL;
	return x->r != 0;
}

/* A folder that goes away, or comes: whether what is left of a pattern that it begins exists in it. */
static int judge_heads_from(struct entry *e, const char *at, const char *folded, int self)
{
	const struct cb_strv *v = e->judge->patterns;

	for (size_t i = 0; i < v->count; i++) {
		struct rest x = { .folder = self };
		int r = 0;

		if (cb_name_fits(v->items[i], at, folded, &x.pattern) == CB_FIT_HEAD)
			r = cb_judge_scan(self, see_rest, &x);
		if (r != 0)
			return r < 0 ? r : x.r < 0 ? x.r : refuse(e, v->items[i]);
	}
	return 0;
}

static int judge_heads(struct entry *e, int self)
{
	const char *at = e->named, *folded = e->named_folded;

	for (;;) {
		int r = judge_heads_from(e, at, folded, self);

		at = strchr(at, '/');
		if (r < 0 || at == NULL)
			return r;
		at++;
		folded = strchr(folded, '/') + 1;
	}
}

/* What is in the folder that the entry is, or is to be. */
static int judge_inside(struct entry *e, const int self[2], bool is_dot)
{
	bool moves = e->act == CB_ACT_REMOVE || (e->act == CB_ACT_MAKE && e->content >= 0);
	int r = marker_in(e, self);

	if (r != 0)
		return r < 0 ? r : refuse(e, markers[r - 1]);
	if (moves && e->about_git) {
		r = is_dot ? cb_judge_scan(self[0], see_any, NULL) : cb_git_is_folder(self);
		if (r != 0)
			return r < 0 ? r : refuse(e, ".git");
	}
	return moves && e->headed ? judge_heads(e, self[0]) : 0;
}

static int judge_self_folder(struct entry *e, const char *name, bool is_dot)
{
	CB_AUTO_FD own = -1;
	CB_AUTO_FD beside = -1;
	int self[2], r = 0;

	if (e->act == CB_ACT_LINK)
		return -EPERM;
	if (e->act != CB_ACT_MAKE && e->at[0] >= 0) {
		own = openat(e->at[0], name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = own < 0 ? -errno : 0;
	}
	if (r == 0 && e->at[1] >= 0) {
		beside = openat(e->at[1], name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = beside < 0 && !is_absent(-errno) ? -errno : 0;
	}
	self[0] = e->act == CB_ACT_MAKE ? e->content : own;
	self[1] = beside;
	return r < 0 ? r : judge_inside(e, self, is_dot);
}

/* What is a repository already stays one; nothing else becomes one. */
static int judge_maker(struct entry *e, const char *folded)
{
	const int own[2] = { e->at[0], -1 };
	int r = cb_git_is_folder(own);

	if (r != 0)
		return r < 0 ? r : 0;
	e->ret->maker = true;
	r = cb_git_completes(e->at, folded);
	return r <= 0 ? r : refuse(e, ".git");
}

static int judge_self(struct entry *e, const char *name, const char *folded)
{
	bool is_dot = e->about_git && cb_git_is_dot(folded, strlen(folded));
	int r = judge_short(e, name);

	if (r < 0)
		return r;
	if (is_dot && (strcmp(name, ".git") != 0 || !S_ISDIR(e->type) || e->content >= 0))
		return refuse(e, ".git");
	/* a file in its place is in git's way, a link or another folder is not */
	if (e->about_git && e->act == CB_ACT_MAKE && (S_ISLNK(e->type) || e->content >= 0) &&
	    cb_git_is_bare_name(folded, strlen(folded)))
		return refuse(e, ".git");
	if (e->git != NULL && (e->content >= 0 || !cb_git_allows(e->git, e->git_folded, e->act, e->type)))
		return refuse(e, ".git");
	if (e->git != NULL) {
		e->ret->in_git = true;
		e->ret->part = cb_git_part_of(e->git);
	}
	if (e->about_git && e->act == CB_ACT_MAKE && cb_git_is_maker(folded))
		r = judge_maker(e, folded);
	if (r < 0)
		return r;
	return S_ISDIR(e->type) ? judge_self_folder(e, name, is_dot) : 0;
}

/* ---- the whole ---- */

static int judge(struct entry *e)
{
	const char *name, *folded;
	int r = fold_path(e->path, e->folded);

	if (r < 0)
		return r;
	read_patterns(e);
	r = name_entry(e);
	if (r == 0)
		r = judge_patterns(e);
	if (r == 0)
		r = judge_paths(e);
	if (r < 0)
		return r;
	for (int i = 0; i < 2; i++) {
		int from = i == 0 ? e->judge->root : e->judge->beside;

		e->at[i] = from >= 0 ? fcntl(from, F_DUPFD_CLOEXEC, 0) : -1;
		if (from >= 0 && e->at[i] < 0)
			return -errno;
	}
	r = judge_above(e, &name, &folded);
	if (r == 0)
		r = judge_self(e, name, folded);
	e->ret->name = name;
	return r;
}

int cb_judge(const struct cb_judge *judge_, const char *path, enum cb_act act, mode_t type, int content,
	     struct cb_judged *ret)
{
	struct entry e = {
		.judge = judge_,
		.act = act,
		.type = type,
		.content = content,
		.path = path,
		.at = { -1, -1 },
		.ret = ret,
	};
	struct stat st;
	int r;

	ret->parent = -1;
	ret->name = "";
	ret->maker = false;
	ret->git_dev = 0;
	ret->git_ino = 0;
	ret->about_git = false;
	ret->in_git = false;
	ret->part = CB_GIT_OTHER;
	ret->refused[0] = '\0';
	if (*path != '\0') {
		r = judge(&e);
		ret->about_git = e.about_git;
	} else { /* the workspace itself */
		e.at[0] = fcntl(judge_->root, F_DUPFD_CLOEXEC, 0);
		r = act != CB_ACT_CHANGE ? -EBUSY : e.at[0] < 0 ? -errno : 0;
	}
	if (r == -EROFS && act != CB_ACT_MAKE && judge_->beside < 0 &&
	    fstatat(judge_->root, path, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		r = -ENOENT;
	if (r == 0)
		ret->parent = cb_fd_take(&e.at[0]);
	cb_fd_close(&e.at[0]);
	cb_fd_close(&e.at[1]);
	return r;
}

int cb_judge_link(const struct cb_judge *judge_, const char *from, const char *to, mode_t type,
		  struct cb_judged *ret_from, struct cb_judged *ret_to)
{
	int r = cb_judge(judge_, from, CB_ACT_LINK, type, -1, ret_from);

	ret_to->parent = -1;
	if (r < 0)
		return r;
	r = cb_judge(judge_, to, CB_ACT_MAKE, type, -1, ret_to);
	if (r == 0 && (ret_from->git_ino != ret_to->git_ino || ret_from->git_dev != ret_to->git_dev)) {
		snprintf(ret_to->refused, sizeof(ret_to->refused), "%s", ".git");
		r = -EROFS;
	}
	if (r < 0) {
		cb_fd_close(&ret_from->parent);
		cb_fd_close(&ret_to->parent);
	}
	return r;
}

int cb_judge_made(const struct cb_judged *judged)
{
	const int own[2] = { judged->parent, -1 };

	return judged->maker && cb_git_is_folder(own) != 0 ? -EROFS : 0;
}

/* The folder itself can't be meant. */
static int add_below(const char *path, const char *folder, struct cb_strv *ret_paths)
{
	size_t n = folder != NULL ? strlen(folder) : 0;

	while (n > 0 && folder[n - 1] == '/')
		n--;
	if (n == 0 || strncmp(path, folder, n) != 0 || path[n] != '/' || path[n + 1] == '\0')
		return 0;
	return cb_strv_add(ret_paths, path + n + 1);
}

int cb_judge_paths(const struct cb_jail_spec *spec, struct cb_strv *ret_paths)
{
	int r = 0;

	if (spec->workspace_source == NULL)
		return 0;
	for (size_t i = 0; r == 0 && i < spec->protect_paths.count; i++)
		r = add_below(spec->protect_paths.items[i], spec->workspace_source, ret_paths);
	/* a mount that lies in the workspace is not in the tree that is written for a cell */
	for (size_t i = 0; r == 0 && i < spec->nbinds; i++)
		if (spec->binds[i].mode == CB_BIND_RO)
			r = add_below(spec->binds[i].target, spec->workspace_target, ret_paths);
	return r;
}
