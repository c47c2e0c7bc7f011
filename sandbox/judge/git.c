/* What may be written in a git folder, and what makes one: see parts.h.
 *
 * Trust domain: whoever judges; names, folders and files were made by hostile code, or by git outside. Writes nothing.
 *
 * A git folder is one called .git, or one that git would take for a repository by what it holds, wherever it lies: bare
 * ones, .git/modules/x, .git/worktrees/x. One whose name ends in .git counts, too, so that what `git init --bare x.git`
 * finds there is data; unless it is a work tree of git outside, which has a .git that no cell can make. Git outside
 * runs programs that its configuration, hooks and half-done sequences name. So a git folder is closed but for a list of
 * data: objects, refs and their logs, the index, and the files that commit, merge, cherry-pick, stash, tag and gc
 * write. Not on the list, though git writes them:
 *
 *	config, config.worktree, hooks,
 *	description, info (but info/refs),
 *	commondir, gitdir			name programs, or other places
 *	rebase-merge, rebase-apply, sequencer,
 *	BISECT_*				hold commands, or options of them
 *	MERGE_RR, rr-cache, reftable		hold names of files that git writes or deletes
 *	objects/info/alternates			leads to other folders
 *	remotes, branches, lost-found		not needed
 *	sharedindex.*				an index that another file completes can't be judged alone
 *	modules, worktrees			what is a git folder in them is judged as one
 *
 * What an index or a reference says is judged, too, in index.c and refs.c. A log is data: git reads its
 * lines' numbers and words, and finds its reference by its name, which has to be one. A link, a FIFO or a socket in a
 * git folder could make git write, or wait, elsewhere. A folder that git would take for a repository can't be made, in
 * no order of steps: git reads its configuration.
 */
#include "parts.h"

#include <cellblock/error.h>
#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static const char *const trees[] = { "objects", "refs", "logs" };
static const char *const homes[] = { "modules", "worktrees" };
static const char *const files[] = {
	"HEAD",		 "ORIG_HEAD",	"FETCH_HEAD", "packed-refs", "packed-refs.new",	 "COMMIT_EDITMSG",
	"MERGE_HEAD",	 "MERGE_MSG",	"MERGE_MODE", "AUTO_MERGE",  "SQUASH_MSG",	 "TAG_EDITMSG",
	"NOTES_EDITMSG", "REVERT_HEAD", "shallow",    "gc.pid",	     "CHERRY_PICK_HEAD", "gc.log",
};
/* References beside those below refs that git writes by way of a lock. What it writes in place (MERGE_HEAD, FETCH_HEAD,
 * AUTO_MERGE) it does not write as a reference. */
static const char *const tops[] = { "HEAD", "ORIG_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD" };
/* More indexes, that commit and stash use for a while; followed by a process's number. */
static const char *const indexes[] = { "index.stash.", "next-index-" };
static const char *const packeds[] = { "packed-refs", "packed-refs.new" }; /* the second becomes the first */
static const char *const alternates[] = { "objects/info/alternates", "objects/info/http-alternates" };
/* A repository is known by the first three, or by the first and the last. */
static const char *const makers[] = { "head", "objects", "refs", "commondir" };
enum { HEAD, OBJECTS, REFS, COMMONDIR, MAKERS };

bool cb_git_is_dot(const char *folded, size_t n)
{
	static const char *const dots[] = { ".git", "git~1" };

	return cb_name_among(folded, n, dots, CB_COUNT(dots));
}

bool cb_git_is_bare_name(const char *folded, size_t n)
{
	return n > 4 && memcmp(folded + n - 4, ".git", 4) == 0;
}

bool cb_git_is_checkout(int self)
{
	CB_AUTO_FD dot = -1;
	struct stat st;

	if (self < 0)
		return false;
	dot = openat(self, ".git", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (dot < 0 || fstat(dot, &st) < 0)
		return false;
	if (S_ISDIR(st.st_mode))
		return cb_git_is_folder((const int[2]){ dot, -1 }) > 0;
	return S_ISREG(st.st_mode);
}

bool cb_git_is_named(const char *name, int self)
{
	char folded[NAME_MAX + 1];
	size_t n = cb_name_fold(name, strnlen(name, NAME_MAX), folded);

	return cb_git_is_dot(folded, n) || (cb_git_is_bare_name(folded, n) && !cb_git_is_checkout(self));
}

mode_t cb_git_mode(int folder, const char *name, mode_t mode)
{
	mode_t open = 0;
	struct stat st;

	if (fstat(folder, &st) == 0 && (st.st_mode & S_ISVTX) == 0)
		open = st.st_mode;
	if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISLNK(st.st_mode)) /* a link's says nothing */
		open |= st.st_mode;
	return mode & ~((S_IWGRP | S_IWOTH) & ~open);
}

static int holds(const int folders[2], const char *name)
{
	int r = cb_judge_holds(folders[0], name);

	return r == 0 ? cb_judge_holds(folders[1], name) : r;
}

int cb_git_is_folder(const int folders[2])
{
	int r = holds(folders, "HEAD");

	if (r <= 0)
		return r;
	r = holds(folders, "commondir");
	if (r != 0)
		return r;
	r = holds(folders, "objects");
	return r <= 0 ? r : holds(folders, "refs");
}

bool cb_git_passes(const char *rest)
{
	size_t n = strcspn(rest, "/");

	return cb_name_among(rest, n, trees, CB_COUNT(trees)) || cb_name_among(rest, n, homes, CB_COUNT(homes)) ||
	       (n == 4 && memcmp(rest, "info", n) == 0);
}

static size_t without_lock(const char *name, size_t n)
{
	return n > 5 && memcmp(name + n - 5, ".lock", 5) == 0 ? n - 5 : n;
}

static bool is_index(const char *rest, size_t n)
{
	n = without_lock(rest, n);
	for (size_t i = 0; i < CB_COUNT(indexes); i++) {
		size_t k = strlen(indexes[i]);

		if (n > k && strncmp(rest, indexes[i], k) == 0 && strspn(rest + k, "0123456789") + k == n)
			return true;
	}
	return n == 5 && memcmp(rest, "index", n) == 0;
}

static bool is_data_file(const char *rest, size_t n)
{
	return is_index(rest, n) || cb_name_among(rest, without_lock(rest, n), files, CB_COUNT(files));
}

static bool is_below(const char *rest, const char *folder)
{
	size_t n = strlen(folder);

	return strncmp(rest, folder, n) == 0 && rest[n] == '/';
}

enum cb_git_part cb_git_part_of(const char *rest)
{
	size_t n = strlen(rest), k = without_lock(rest, n);
	bool packed = cb_name_among(rest, k, packeds, CB_COUNT(packeds));
	enum cb_git_part part = CB_GIT_OTHER;

	if (is_index(rest, n))
		part = CB_GIT_INDEX;
	else if (is_below(rest, "refs") || cb_name_among(rest, k, tops, CB_COUNT(tops)))
		part = CB_GIT_REF;
	else if (packed)
		part = CB_GIT_PACKED_REFS;
	if (part != CB_GIT_OTHER && (k < n || (packed && strcmp(rest, packeds[0]) != 0)))
		part = CB_GIT_LOCK;
	return part;
}

/* A reference, a reference's log, their locks, or a folder of either. */
static bool is_ref_path(const char *rest, bool folder)
{
	static const char aside[] = "logs/refs/.tmp-renamed-log"; /* `git branch -m` */
	size_t n = strlen(rest);
	bool log = is_below(rest, "logs");

	if (!folder)
		n = without_lock(rest, n);
	if (log && strcmp(rest, aside) == 0)
		return !folder;
	if (log) {
		rest += strlen("logs/");
		n -= strlen("logs/");
	}
	if (cb_ref_is_name(rest, n))
		return true;
	if (!log)
		return false;
	return folder ? strcmp(rest, "refs") == 0 : cb_name_among(rest, n, tops, CB_COUNT(tops));
}

/* What `git gc` writes for servers that know nothing of git: "info/refs", by way of a temporary file beside it. */
static bool is_server_info(const char *rest)
{
	static const char name[] = "info/refs";

	if (strncmp(rest, name, sizeof(name) - 1) != 0)
		return false;
	rest += sizeof(name) - 1;
	return *rest == '\0' || (*rest == '_' && strchr(rest, '/') == NULL);
}

static bool is_alternates(const char *folded)
{
	for (size_t i = 0; i < CB_COUNT(alternates); i++) {
		size_t n = strlen(alternates[i]);

		if (strncmp(folded, alternates[i], n) == 0 &&
		    (folded[n] == '\0' || folded[n] == '/' || strcmp(folded + n, ".lock") == 0))
			return true;
	}
	return false;
}

bool cb_git_allows(const char *rest, const char *folded, enum cb_act act, mode_t type)
{
	size_t n = strcspn(rest, "/");
	bool folder = S_ISDIR(type), top = rest[n] == '\0';

	if (!folder && !S_ISREG(type))
		return false;
	if (cb_name_among(rest, n, trees, CB_COUNT(trees))) {
		if (top && strcmp(rest, "logs") != 0 && act == CB_ACT_REMOVE)
			return false;
		if (top)
			return folder;
		if (act == CB_ACT_MAKE && !is_below(rest, "objects"))
			return is_ref_path(rest, folder);
		return !is_alternates(folded);
	}
	if (cb_name_among(rest, n, homes, CB_COUNT(homes)))
		return folder && act == CB_ACT_CHANGE; /* the folders themselves: their modes and times */
	if (folder || (!is_server_info(rest) && (!top || !is_data_file(rest, n))))
		return false;
	return act != CB_ACT_REMOVE || strcmp(rest, "HEAD") != 0;
}

/* ---- what makes a repository ---- */

static size_t maker_of(const char *folded)
{
	size_t i = 0;

	while (i < MAKERS && strcmp(folded, makers[i]) != 0)
		i++;
	return i;
}

bool cb_git_is_maker(const char *folded)
{
	return maker_of(folded) < MAKERS;
}

/* All names, since another spelling may be the same name elsewhere. */
static bool see_maker(void *arg, const char *name)
{
	char folded[NAME_MAX + 1];
	bool *has = arg;

	cb_name_fold(name, strnlen(name, NAME_MAX), folded);
	has[maker_of(folded)] = true;
	return false;
}

int cb_git_completes(const int folders[2], const char *folded)
{
	bool has[MAKERS + 1] = { false };
	int r;

	if (maker_of(folded) == COMMONDIR)
		return 1; /* rare elsewhere, and with HEAD enough */
	has[maker_of(folded)] = true;
	r = cb_judge_scan(folders[0], see_maker, has);
	if (r == 0)
		r = cb_judge_scan(folders[1], see_maker, has);
	return r < 0 ? r : has[HEAD] && ((has[OBJECTS] && has[REFS]) || has[COMMONDIR]);
}

/* ---- what is in a file ---- */

int cb_judge_git_file(enum cb_git_part part, int folder, int fd, char **ret_data, size_t *ret_n)
{
	size_t n = 0, max = part == CB_GIT_INDEX ? CB_INDEX_MAX : part == CB_GIT_REF ? CB_REF_MAX : CB_PACKED_REFS_MAX;
	char *data = NULL;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	r = !S_ISREG(st.st_mode) ? -EROFS : part == CB_GIT_INDEX ? cb_index_format(folder) : 0;
	if (r == 0)
		r = cb_fd_read_all(fd, max, &data, &n);
	if (r == 0 && part == CB_GIT_INDEX)
		r = cb_judge_index(data, &n);
	else if (r == 0 && !(part == CB_GIT_REF ? cb_ref_is_content(data, n) : cb_ref_is_packed(data, n)))
		r = -EROFS;
	if (r < 0) {
		free(data);
		return r == CB_E_TOO_BIG ? -EFBIG : r;
	}
	*ret_data = data;
	*ret_n = n;
	return 0;
}
