/* What lies below a folder that is to be moved away, and where a symbolic link leads.
 *
 * Trust domain: as judge.c. A name that is protected stays so wherever its folder goes, but an environment's programs
 * are run by their path: were its parent moved, other programs could be put there. So no folder is moved that has one
 * below it. The walk is bounded in entries and depth, and what is not looked at is not let through: the answer then is
 * -EXDEV, as of a folder that can't be renamed, by which programs copy instead.
 */
#include "judge.h"

#include "judge_parts.h"
#include "mounts.h"

#include <cellblock/fd.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ENTRIES_MAX 100000u
#define DEPTH_MAX 1000u

struct walk {
	const struct cb_judge *judge;
	unsigned seen;
};

/* What an environment is known by, where the patterns name it. */
static bool is_marker(const struct cb_strv *patterns, const char *name)
{
	bool marker = strcasecmp(name, "pyvenv.cfg") == 0 || strcasecmp(name, "conda-meta") == 0;

	for (size_t i = 0; marker && i < patterns->count; i++)
		if (strcasecmp(patterns->items[i], name) == 0)
			return true;
	return false;
}

static bool is_folder(int parent, const struct dirent *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return e->d_type == DT_DIR;
	return fstatat(parent, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode);
}

/* Takes the descriptor. */
static int look_below(struct walk *w, int fd, unsigned depth)
{
	DIR *dir = fd >= 0 && depth < DEPTH_MAX ? fdopendir(fd) : NULL;
	int r = 0;
	const struct dirent *e;

	if (dir == NULL) {
		cb_fd_close(&fd);
		return -EXDEV;
	}
	while (r == 0 && (e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (w->seen++ >= ENTRIES_MAX)
			r = -EXDEV;
		else if (is_marker(w->judge->patterns, e->d_name))
			r = -EROFS;
		if (r < 0 || !is_folder(fd, e))
			continue;
		r = look_below(w, openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), depth + 1);
	}
	closedir(dir);
	return r;
}

int cb_judge_moved(const struct cb_judge *judge, int folder)
{
	struct walk w = { .judge = judge };

	return look_below(&w, openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
}

/* ---- links ---- */

/* Takes dot parts out of `path`, a relative one. False if it leads above its start. */
static bool normalise(char *path)
{
	char *to = path, *next;

	for (char *part = path; part != NULL; part = next) {
		size_t n;

		next = strchr(part, '/');
		n = next != NULL ? (size_t)(next++ - part) : strlen(part);
		if (n == 0 || (n == 1 && part[0] == '.'))
			continue;
		if (n == 2 && part[0] == '.' && part[1] == '.') {
			if (to == path)
				return false;
			while (to > path && *--to != '/')
				;
			continue;
		}
		if (to > path)
			*to++ = '/';
		memmove(to, part, n);
		to += n;
	}
	*to = '\0';
	return true;
}

static bool has_git(const char *path)
{
	char folded[NAME_MAX + 1];

	for (const char *part = path; *part != '\0'; part += *part == '/') {
		size_t n = strcspn(part, "/");

		if (n <= NAME_MAX && cb_git_is_dot(folded, cb_name_fold(part, n, folded)))
			return true;
		part += n;
	}
	return false;
}

static bool is_refused(const struct cb_judge *judge, const char *path, enum cb_act act)
{
	struct cb_judged judged = { .parent = -1 };
	int r = cb_judge(judge, path, act, S_IFREG, -1, &judged);

	cb_fd_close(&judged.parent);
	return r == -EROFS;
}

int cb_judge_target(const struct cb_judge *judge, const char *path, const char *target, const char *workspace)
{
	char whole[3 * PATH_MAX];
	const char *slash = strrchr(path, '/');

	if (target[0] == '/')
		snprintf(whole, sizeof(whole), "%s", target);
	else
		snprintf(whole, sizeof(whole), "%s/%.*s/%s", workspace, slash != NULL ? (int)(slash - path) : 0, path,
			 target);
	/* from here on without the slash at its start */
	if (!normalise(whole) || strlen(whole) >= PATH_MAX || !cb_path_within(whole, workspace + 1))
		return 0;
	target = whole + strlen(workspace + 1);
	target += *target == '/';
	if (*target == '\0')
		return 0;
	return has_git(target) || is_refused(judge, target, CB_ACT_MAKE) || is_refused(judge, target, CB_ACT_CHANGE)
		       ? -EROFS
		       : 0;
}
