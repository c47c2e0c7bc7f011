/* What lies below a folder that is to be moved away.
 *
 * Trust domain: as judge.c. A name that is protected stays so wherever its folder goes, but an environment's programs
 * are run by their path: were its parent moved, other programs could be put there. So no folder is moved that has one
 * below it. The walk is bounded in entries and depth, and what is not looked at is not let through: the answer then is
 * -EXDEV, as of a folder that can't be renamed, by which programs copy instead.
 */
#include "judge.h"

#include <cellblock/fd.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
