/* What lies below a folder that is to be moved.
 *
 * Trust domain: as judge.c. A name that is protected stays so wherever its folder goes, but an environment's programs
 * are run by their path: were its parent moved, other programs could be put there. So no folder is moved that has one
 * below it. And links go with their folder: where that comes to lie less deep, dots lead out of the workspace. The
 * walk is bounded in entries and depth, and what is not looked at is not let through: the answer then is -EXDEV, as of
 * a folder that can't be renamed, by which programs copy instead.
 */
#include "../shared/walk_path.h"
#include "judge.h"
#include "parts.h"

#include <cellblock/folder.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>

#define ENTRIES_MAX 100000u
#define DEPTH_MAX 1000u /* of which each takes some hundred bytes of the notifier's stacks */

struct walk {
	const struct cb_judge *judge;
	unsigned seen;
	struct cb_walk_path path; /* that the entries will have */
};

/* What an environment is known by, where the patterns name it. */
static bool is_marker(const struct cb_strv *patterns, const char *name)
{
	bool marker = cb_is_marker(name);

	for (size_t i = 0; marker && i < patterns->count; i++)
		if (strcasecmp(patterns->items[i], name) == 0)
			return true;
	return false;
}

/* S_IFMT bits, 0 where nothing can be told. */
static mode_t type_of(int parent, const struct dirent *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return DTTOIF(e->d_type);
	return fstatat(parent, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_mode & S_IFMT : 0;
}

static int look_below(struct walk *w, int fd, unsigned depth);

static int look_at(struct walk *w, int parent, const struct dirent *e, unsigned depth)
{
	mode_t type = type_of(parent, e);
	size_t before;
	int r = 0;

	if (w->seen++ >= ENTRIES_MAX || type == 0)
		return -EXDEV;
	if (is_marker(w->judge->patterns, e->d_name))
		return -EROFS;
	if (type != S_IFDIR && type != S_IFLNK)
		return 0;
	before = cb_walk_down(&w->path, e->d_name);
	if (w->path.lost > 0)
		r = -EXDEV;
	else if (type == S_IFLNK)
		r = cb_judge_link_text(w->judge, w->path.text, parent, e->d_name);
	else
		r = look_below(w, openat(parent, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
			       depth + 1);
	cb_walk_up(&w->path, before);
	return r;
}

/* Takes the descriptor. */
static int look_below(struct walk *w, int fd, unsigned depth)
{
	CB_AUTO_FOLDER dir = cb_folder_take(fd);
	int r = dir == NULL || depth >= DEPTH_MAX ? -EXDEV : 0;
	const struct dirent *e;

	while (r == 0 && (e = cb_folder_next(dir)) != NULL)
		r = look_at(w, fd, e, depth);
	return r == 0 && errno != 0 ? -EXDEV : r;
}

int cb_judge_moved(const struct cb_judge *judge, int folder, const char *to)
{
	struct walk w = { .judge = judge };

	(void)cb_walk_down(&w.path, to);
	return w.path.lost > 0 ? -EXDEV : look_below(&w, openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
}
