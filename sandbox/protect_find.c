/* The walk that finds what in a workspace programs outside would execute: see protect.h and protect.c.
 *
 * Trust domain: pid 1, reading names that earlier jails may have chosen. Invariants: no link is followed, nothing is
 * opened but folders, the walk is bounded in entries, depth and results and says when it was cut.
 *
 * What patterns mean: "name" matches at any depth. "folder/name" matches these last components at any depth; if it
 * begins with ".git/", any folder that git would take for a repository counts as ".git" (bare ones, .git/modules/x,
 * worktrees), and files that lead git to another repository are protected too: a ".git" that is a file, "commondir".
 * "pyvenv.cfg" and "conda-meta" protect the folder that holds them.
 *
 * What comes into a workspace later (cb_protect_covers) may come in any order, and in several goes: so neither a
 * protected name in what is a repository or a prefix, nor what would make one of a folder that has such names.
 */
#include "protect.h"

#include "mounts.h"

#include <cellblock/fd.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const markers[] = { "pyvenv.cfg", "conda-meta" };
/* If the workspace itself is such a prefix it cannot be read-only as a whole: these parts of it are. */
static const char *const prefix_parts[] = { "bin",  "etc",   "include", "lib",	   "lib64",	 "libexec",
					    "sbin", "share", "Lib",	"Scripts", "pyvenv.cfg", "conda-meta" };
/* By these a repository names another place for its configuration: protected where they exist along with what ".git/"
 * patterns name. */
static const char *const git_redirects[] = { "commondir", "config.worktree", "gitdir" };
/* What a repository's own folder is known by: the first, with the next two or with the last. */
static const char *const git_makers[] = { "HEAD", "objects", "refs", "commondir" };
/* Folders that hold many entries and nothing that is run from where it lies. */
static const char *const skipped[] = { "node_modules", "__pycache__" };

struct walk {
	int root;
	const struct cb_strv *patterns;
	struct cb_protect_list *list;
	struct cb_strv queue; /* folders to read, relative; "" is the root */
	size_t seen;
};

/* The folder being read. */
struct folder {
	DIR *dir;
	char prefix[PATH_MAX]; /* "" or "path/" */
	size_t len;	       /* of prefix */
	bool is_git;
};

static bool among(const char *name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(name, list[i]) == 0)
			return true;
	}
	return false;
}

static bool is_marker(const char *pattern)
{
	return among(pattern, markers, sizeof(markers) / sizeof(*markers));
}

static size_t count_slashes(const char *s)
{
	size_t n = 0;

	for (; *s != '\0'; s++)
		n += *s == '/';
	return n;
}

bool cb_protect_matches(const char *pattern, const char *path)
{
	size_t have = count_slashes(path), want = count_slashes(pattern);

	if (have < want)
		return false;
	for (; have > want; have--)
		path = strchr(path, '/') + 1;
	return fnmatch(pattern, path, FNM_PATHNAME) == 0;
}

int cb_protect_add(struct cb_protect_list *list, const char *path)
{
	if (list->paths.count >= CB_PROTECT_MAX_FOUND) {
		list->cut = true;
		return 0;
	}
	return cb_strv_add(&list->paths, path);
}

static bool exists(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool exists_in(const int folders[2], const char *name)
{
	return (folders[0] >= 0 && exists(folders[0], name)) || (folders[1] >= 0 && exists(folders[1], name));
}

/* Whether the folders together, with an entry `name`, are what git takes for a repository. */
static bool are_git_with(const int folders[2], const char *name)
{
	bool has[4];

	for (size_t i = 0; i < 4; i++)
		has[i] = strcmp(git_makers[i], name) == 0 || exists_in(folders, git_makers[i]);
	return has[0] && ((has[1] && has[2]) || has[3]);
}

static bool looks_like_git(int dirfd)
{
	const int alone[2] = { dirfd, -1 };

	return are_git_with(alone, "");
}

static bool holds_marker(const struct walk *w, int dirfd)
{
	for (size_t i = 0; i < w->patterns->count; i++) {
		if (is_marker(w->patterns->items[i]) && exists(dirfd, w->patterns->items[i]))
			return true;
	}
	return false;
}

static int add_prefix_parts(struct walk *w, int dirfd)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(prefix_parts) / sizeof(*prefix_parts); i++) {
		struct stat st;

		if (fstatat(dirfd, prefix_parts[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISLNK(st.st_mode))
			r = cb_protect_add(w->list, prefix_parts[i]);
	}
	return r;
}

/* Cheap, and false for nearly every entry: compares the last component only. */
static bool name_fits(const char *pattern, const char *name)
{
	const char *slash = strrchr(pattern, '/');
	const char *last = slash != NULL ? slash + 1 : pattern;

	return strpbrk(last, "*?[\\") == NULL ? strcmp(last, name) == 0 : fnmatch(last, name, 0) == 0;
}

/* Whether a pattern below .git names an entry of a repository's own folder, wherever that lies, or what leads to one: a
 * file called .git. */
static bool is_of_git(const char *pattern, const char *name, bool in_git, bool folder)
{
	if (strncmp(pattern, ".git/", 5) != 0)
		return false;
	if (in_git && (fnmatch(pattern + 5, name, FNM_PATHNAME) == 0 ||
		       among(name, git_redirects, sizeof(git_redirects) / sizeof(*git_redirects))))
		return true;
	return !folder && strcmp(name, ".git") == 0;
}

static bool entry_matches(const struct walk *w, const struct folder *f, const char *name, const char *path, bool folder)
{
	for (size_t i = 0; i < w->patterns->count; i++) {
		const char *pattern = w->patterns->items[i];

		if (is_marker(pattern))
			continue;
		if (name_fits(pattern, name) && cb_protect_matches(pattern, path))
			return true;
		if (is_of_git(pattern, name, f->is_git, folder))
			return true;
	}
	return false;
}

static bool is_git_place(const int folders[2], const char *path, const char *name)
{
	size_t n = strlen(path) - strlen(name); /* of the parent, with its slash */

	if (n >= 5 && strncmp(path + n - 5, ".git/", 5) == 0 && (n == 5 || path[n - 6] == '/'))
		return true;
	return are_git_with(folders, name); /* `name` too: in the layer it may be there at one moment only */
}

/* Whether the folder has what would be protected if it were a repository. */
static bool holds_git_names(const struct cb_strv *patterns, int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *e;
	bool found = dir == NULL; /* closed to us: take it for the worst */

	while (!found && (e = readdir(dir)) != NULL)
		for (size_t i = 0; i < patterns->count && !found; i++)
			found = is_of_git(patterns->items[i], e->d_name, true, true);
	if (dir != NULL)
		closedir(dir);
	else
		cb_fd_close(&fd);
	return found;
}

/* What would make a repository of a folder that has a configuration or hooks from before. `folders[1]` counts: what is
 * in the other may be gone, or there, a moment later. */
static bool makes_git_of_protected(const struct cb_strv *patterns, const int folders[2], const char *name)
{
	const int alone[2] = { folders[1], -1 };

	if (folders[1] < 0 || !among(name, git_makers, sizeof(git_makers) / sizeof(*git_makers)))
		return false;
	return are_git_with(folders, name) && !are_git_with(alone, "") && holds_git_names(patterns, folders[1]);
}

/* A folder that becomes an interpreter's prefix, or part of the workspace where that is one itself; also the marker
 * itself, which may come when its folder was looked at already. */
static bool is_prefix_place(const char *marker, const int folders[2], const char *path, const char *name, bool folder)
{
	char inside[NAME_MAX + 32];

	if (strcmp(name, marker) == 0)
		return true;
	if (strcmp(path, name) == 0 && exists_in(folders, marker) &&
	    among(name, prefix_parts, sizeof(prefix_parts) / sizeof(*prefix_parts)))
		return true;
	snprintf(inside, sizeof(inside), "%s/%s", name, marker);
	return folder && exists_in(folders, inside);
}

bool cb_protect_covers(const struct cb_strv *patterns, const int folders[2], const char *path, const char *name,
		       bool folder)
{
	bool git = is_git_place(folders, path, name);

	if (makes_git_of_protected(patterns, folders, name))
		return true;
	for (size_t i = 0; i < patterns->count; i++) {
		const char *pattern = patterns->items[i];

		if (is_marker(pattern) ? is_prefix_place(pattern, folders, path, name, folder)
				       : name_fits(pattern, name) && cb_protect_matches(pattern, path))
			return true;
		if (is_of_git(pattern, name, git, folder))
			return true;
	}
	return false;
}

static unsigned char type_of(int dirfd, const struct dirent *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return e->d_type;
	if (fstatat(dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return DT_UNKNOWN;
	return S_ISDIR(st.st_mode) ? DT_DIR : S_ISLNK(st.st_mode) ? DT_LNK : DT_REG;
}

/* In a repository only nested ones are of interest, not its objects. */
static bool is_descended(const struct folder *f, const char *name)
{
	if (f->is_git)
		return strcmp(name, "modules") == 0 || strcmp(name, "worktrees") == 0;
	return !among(name, skipped, sizeof(skipped) / sizeof(*skipped));
}

static bool is_foreign(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (st.st_uid != geteuid() || st.st_gid != getegid());
}

static int see_entry(struct walk *w, const struct folder *f, const struct dirent *e)
{
	char path[PATH_MAX];
	unsigned char type = type_of(dirfd(f->dir), e);
	size_t n = strlen(e->d_name);

	if (w->list->look_for_foreign && is_foreign(dirfd(f->dir), e->d_name))
		w->list->foreign++;
	if (f->len + n >= sizeof(path)) {
		w->list->cut = true;
		return 0;
	}
	memcpy(path, f->prefix, f->len);
	memcpy(path + f->len, e->d_name, n + 1);
	if (entry_matches(w, f, e->d_name, path, type == DT_DIR)) {
		w->list->links += type == DT_LNK;
		return cb_protect_add(w->list, path);
	}
	if (type != DT_DIR || !is_descended(f, e->d_name))
		return 0;
	if (count_slashes(path) + 1 >= CB_PROTECT_MAX_DEPTH) {
		w->list->cut = true;
		return 0;
	}
	return cb_strv_add(&w->queue, path);
}

static int read_folder(struct walk *w, struct folder *f)
{
	const struct dirent *e;
	int r = 0;

	while (r == 0 && (e = readdir(f->dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (w->seen++ >= CB_PROTECT_MAX_ENTRIES) {
			w->list->cut = true;
			return 0;
		}
		r = see_entry(w, f, e);
	}
	return r;
}

static int walk_folder(struct walk *w, const char *path)
{
	struct folder f;
	const char *slash = strrchr(path, '/');
	bool marked;
	int fd = -1, r;

	r = cb_open_beneath(w->root, *path != '\0' ? path : ".", O_RDONLY | O_DIRECTORY, &fd);
	if (r < 0)
		return 0; /* gone, or closed to this user: then closed to the jail as well */
	f.dir = fdopendir(fd);
	if (f.dir == NULL) {
		cb_fd_close(&fd);
		return -ENOMEM;
	}
	f.len = (size_t)snprintf(f.prefix, sizeof(f.prefix), "%s%s", path, *path != '\0' ? "/" : "");
	f.is_git = strcmp(slash != NULL ? slash + 1 : path, ".git") == 0 || looks_like_git(fd);
	marked = holds_marker(w, fd);
	if (marked && *path != '\0') {
		r = cb_protect_add(w->list, path);
	} else {
		r = marked ? add_prefix_parts(w, fd) : 0;
		if (r == 0)
			r = read_folder(w, &f);
	}
	closedir(f.dir);
	return r;
}

int cb_protect_find(int root_fd, const struct cb_strv *patterns, struct cb_protect_list *ret_list)
{
	struct walk w = { .root = root_fd, .patterns = patterns, .list = ret_list };
	int r = cb_strv_add(&w.queue, "");

	for (size_t i = 0; r == 0 && i < w.queue.count && w.seen < CB_PROTECT_MAX_ENTRIES; i++)
		r = walk_folder(&w, w.queue.items[i]);
	cb_strv_release(&w.queue);
	return r;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void cb_protect_finish(struct cb_protect_list *list)
{
	struct cb_strv *v = &list->paths;
	size_t kept = 0;

	if (v->count < 2)
		return;
	qsort(v->items, v->count, sizeof(*v->items), compare);
	for (size_t i = 1; i < v->count; i++) {
		bool below = false;

		/* Between a folder and what lies below it others may sort in ("a", "a-b", "a/c"): compare with all
		 * kept. */
		for (size_t k = 0; k <= kept && !below; k++)
			below = cb_path_within(v->items[i], v->items[k]);
		if (below)
			free(v->items[i]);
		else
			v->items[++kept] = v->items[i];
	}
	v->count = kept + 1;
	v->items[v->count] = NULL;
}

void cb_protect_release(struct cb_protect_list *list)
{
	cb_strv_release(&list->paths);
}
