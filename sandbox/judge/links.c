/* Where a symbolic link leads: see cb_judge_target.
 *
 * Trust domain: as judge.c; targets were chosen by hostile code. A program outside that fills a folder, or saves a
 * file, can be led along a link that takes its place. So a link of a jail's leads neither out of the workspace nor to
 * what is protected in it. That is a matter of the text alone: dots first, and no more of them than folders above the
 * link, then names. So nothing that is exchanged later on the way makes it lead elsewhere, but for a link there: what
 * was linked beyond that before it was made, leads on below its end. So that is looked through, see tree.c. Links of
 * others on the way are looked at as they are now.
 */
#include "judge.h"

#include "parts.h"
#include "../shared/mounts.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static bool is_part(const char *part, size_t n, const char *name)
{
	return strlen(name) == n && memcmp(part, name, n) == 0;
}

/* Puts `rest`, names and dots, behind `ret`, a path from the workspace. Dots go up from there, but not behind names. */
static bool append(char ret[PATH_MAX], const char *rest, bool named)
{
	size_t have = strlen(ret), n;

	for (; *rest != '\0'; rest += n + (rest[n] == '/')) {
		n = strcspn(rest, "/");
		if (n == 0 || is_part(rest, n, "."))
			continue;
		if (is_part(rest, n, "..")) {
			if (named || have == 0)
				return false;
			while (have > 0 && ret[--have] != '/')
				;
			ret[have] = '\0';
			continue;
		}
		if (have + 1 + n >= PATH_MAX)
			return false;
		if (have > 0)
			ret[have++] = '/';
		memcpy(ret + have, rest, n);
		have += n;
		ret[have] = '\0';
		named = true;
	}
	return true;
}

/* Where the link `path` leads, from the workspace: false if out of it. */
static bool lead(const struct cb_judge *judge, const char *path, const char *target, char ret[PATH_MAX])
{
	const char *slash = strrchr(path, '/');
	size_t n = slash != NULL ? (size_t)(slash - path) : 0;

	if (target[0] == '/') {
		ret[0] = '\0';
		return judge->workspace != NULL && cb_path_within(target, judge->workspace) &&
		       append(ret, target + strlen(judge->workspace), true);
	}
	if (n >= PATH_MAX)
		return false;
	memcpy(ret, path, n);
	ret[n] = '\0';
	return append(ret, target, false);
}

bool cb_link_says_git(const char *path)
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

/* 0, or -EROFS; -EPERM where it can't be looked at. What is not there, and no name at all, is not refused. */
static int ask(const struct cb_judge *judge, const char *path, enum cb_act act, mode_t type)
{
	struct cb_judged judged = { .parent = -1 };
	int r = cb_judge(judge, path, act, type, -1, &judged);

	cb_fd_close(&judged.parent);
	if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -ENAMETOOLONG)
		return 0;
	return r < 0 && r != -EROFS ? -EPERM : r;
}

static int see_lead(void *arg, const char *path)
{
	(void)arg;
	(void)path;
	return -EROFS;
}

/* Below the workspace itself lies all that is protected by its path. */
static int judge_whole(const struct cb_judge *judge)
{
	int r = judge->paths != NULL && judge->paths->count > 0 ? -EROFS : cb_judge_begun_above(judge);

	return r == 0 ? cb_leads_judge(judge, cb_judge_about_git(judge), see_lead, NULL) : r;
}

/* As a link, too: were it one, it could not begin a longer name. */
static int judge_end(const struct cb_judge *judge, const char *path)
{
	int r;

	if (*path == '\0')
		return judge_whole(judge);
	if (cb_link_says_git(path))
		return -EROFS;
	r = ask(judge, path, CB_ACT_MAKE, S_IFLNK);
	return r == 0 ? ask(judge, path, CB_ACT_CHANGE, S_IFREG) : r;
}

/* What a path ends at. */
enum { OTHER, FOLDER, LINK };

/* `at` begins with a link, `fd`, that ends at `end`: puts in where it leads. */
static int put_in(const struct cb_judge *judge, char at[PATH_MAX], size_t end, int fd)
{
	char target[PATH_MAX], rest[PATH_MAX], next[PATH_MAX];
	ssize_t n = readlinkat(fd, "", target, sizeof(target) - 1);

	if (n < 0)
		return -EPERM;
	target[n] = '\0';
	memcpy(rest, at + end, strlen(at + end) + 1);
	at[end] = '\0';
	if (!lead(judge, at, target, next) || !append(next, rest, true))
		return -EPERM;
	memcpy(at, next, strlen(next) + 1);
	return LINK;
}

/* Goes along `at` to the first link: LINK if there is one, and it has been put in. What is not there leads nowhere,
 * what can't be looked at may lead anywhere. */
static int follow(const struct cb_judge *judge, char at[PATH_MAX])
{
	CB_AUTO_FD fd = fcntl(judge->root, F_DUPFD_CLOEXEC, 0);
	struct stat st = { .st_mode = S_IFDIR };
	size_t n;

	for (size_t i = 0; fd >= 0 && at[i] != '\0'; i += n + (at[i + n] == '/')) {
		char name[NAME_MAX + 1];
		int next;

		n = strcspn(at + i, "/");
		if (n >= sizeof(name))
			return OTHER;
		memcpy(name, at + i, n);
		name[n] = '\0';
		next = openat(fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return errno == ENOENT || errno == ENOTDIR ? OTHER : -EPERM;
		cb_fd_close(&fd);
		fd = next;
		if (fstat(fd, &st) < 0)
			return -EPERM;
		if (S_ISLNK(st.st_mode))
			return put_in(judge, at, i + n, fd);
	}
	if (fd < 0)
		return -EPERM;
	return S_ISDIR(st.st_mode) ? FOLDER : OTHER;
}

static int find_end(const struct cb_judge *judge, const char *path, const char *target, char ret_at[PATH_MAX])
{
	int r = lead(judge, path, target, ret_at) ? LINK : -EPERM;

	for (unsigned links = 0; r == LINK && links <= CB_FOLLOW_MAX; links++) {
		r = judge_end(judge, ret_at);
		if (r == 0)
			r = follow(judge, ret_at);
	}
	return r == FOLDER ? 1 : r < 0 ? r : 0;
}

int cb_judge_target(const struct cb_judge *judge, const char *path, const char *target)
{
	char at[PATH_MAX];
	int r = find_end(judge, path, target, at);

	return r > 0 ? cb_judge_led(judge, at) : r;
}

int cb_link_end_of(const struct cb_judge *judge, const char *path, int folder, const char *name, char ret_at[PATH_MAX])
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(folder, name, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	return find_end(judge, path, target, ret_at);
}

int cb_judge_link_text(const struct cb_judge *judge, const char *path, int folder, const char *name)
{
	char at[PATH_MAX];
	int r = cb_link_end_of(judge, path, folder, name, at);

	return r > 0 ? cb_judge_led(judge, at) : r;
}

const char *cb_judge_workspace(const struct cb_jail_spec *spec)
{
	const char *outside = spec->workspace_source, *inside = spec->workspace_target;
	size_t n = outside != NULL ? strlen(outside) : 0;

	while (n > 1 && outside[n - 1] == '/')
		n--;
	return inside != NULL && n > 1 && strncmp(outside, inside, n) == 0 && inside[n] == '\0' ? inside : NULL;
}
