/* What lies below a folder that is to be moved, or that a link is to lead to.
 *
 * Trust domain: as judge.c. A name that is protected stays so wherever its folder goes, but an environment's programs
 * are run by their path: were its parent moved, other programs could be put there. So no folder is moved that has one
 * below it. And links go with their folder: where that comes to lie less deep, dots lead out of the workspace. The
 * walk is bounded in entries and depth, and what is not looked at is not let through: the answer then is -EXDEV, as of
 * a folder that can't be renamed, by which programs copy instead.
 *
 * With a link g to d, another that leads to g/x, and was made before, comes to lead to d/x. So below d lies no
 * environment, and no repository but those called .git, for no link says that name. What links there lead to is looked
 * through as well: a list, not a walk in a walk, which could be as deep as there are folders.
 */
#include "../shared/mounts.h"
#include "../shared/walk_path.h"
#include "judge.h"
#include "parts.h"

#include <cellblock/fd.h>
#include <cellblock/folder.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>

#define LED_MAX 4096u

struct walk {
	const struct cb_judge *judge;
	unsigned seen;
	bool moved;		  /* the folder is to be moved; else a link leads to it */
	bool about_git;		  /* the patterns name git's folders */
	struct cb_walk_path path; /* that the entries will have */
	char end[PATH_MAX];	  /* of a link */
	struct cb_strv led;	  /* folders that links lead to */
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

/* What lies in one of them is looked at with it. */
static int add_led(struct walk *w, const char *at)
{
	for (size_t i = 0; i < w->led.count; i++)
		if (w->led.items[i][0] == '\0' || cb_path_within(at, w->led.items[i]))
			return 0;
	return w->led.count >= LED_MAX || cb_strv_add(&w->led, at) < 0 ? -EXDEV : 0;
}

/* What has gone meanwhile is not led into. */
static int look_at_link(struct walk *w, int parent, const char *name)
{
	int r = cb_link_end_of(w->judge, w->path.text, parent, name, w->end);

	if (r == -ENOENT && !w->moved)
		return 0;
	return r > 0 ? add_led(w, w->end) : r;
}

static int look_in(struct walk *w, int parent, const char *name, unsigned depth)
{
	CB_AUTO_FD fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT && !w->moved)
		return 0;
	if (fd >= 0 && !w->moved && w->about_git && cb_git_is_named(name, fd))
		return -EROFS;
	return look_below(w, cb_fd_take(&fd), depth);
}

static int look_at(struct walk *w, int parent, const struct dirent *e, unsigned depth)
{
	mode_t type = type_of(parent, e);
	size_t before;
	int r = 0;

	if (w->seen++ >= CB_TREE_ENTRIES_MAX || type == 0)
		return -EXDEV;
	if (is_marker(w->judge->patterns, e->d_name))
		return -EROFS;
	if (!w->moved && cb_link_says_git(e->d_name))
		return 0;
	if (!w->moved && w->about_git && strcmp(e->d_name, "HEAD") == 0 &&
	    cb_git_is_folder((const int[2]){ parent, -1 }) != 0)
		return -EROFS;
	if (type != S_IFDIR && type != S_IFLNK)
		return 0;
	before = cb_walk_down(&w->path, e->d_name);
	if (w->path.lost > 0)
		r = -EXDEV;
	else
		r = type == S_IFLNK ? look_at_link(w, parent, e->d_name) : look_in(w, parent, e->d_name, depth + 1);
	cb_walk_up(&w->path, before);
	return r;
}

/* Takes the descriptor. */
static int look_below(struct walk *w, int fd, unsigned depth)
{
	CB_AUTO_FOLDER dir = cb_folder_take(fd);
	int r = dir == NULL || depth >= CB_TREE_DEPTH_MAX ? -EXDEV : 0;
	const struct dirent *e;

	while (r == 0 && (e = cb_folder_next(dir)) != NULL)
		r = look_at(w, fd, e, depth);
	return r == 0 && errno != 0 ? -EXDEV : r;
}

/* The list grows meanwhile. */
static int look_at_led(struct walk *w)
{
	int r = 0;

	w->moved = false;
	w->about_git = cb_judge_about_git(w->judge);
	for (size_t i = 0; i < w->led.count && r == 0; i++) {
		const char *at = w->led.items[i];
		int fd = -1, opened = cb_open_beneath(w->judge->root, *at != '\0' ? at : ".",
						      O_RDONLY | O_DIRECTORY, &fd);

		w->path = (struct cb_walk_path){ 0 };
		(void)cb_walk_down(&w->path, at);
		r = opened == -ENOENT ? 0 : opened < 0 || w->path.lost > 0 ? -EXDEV : look_below(w, fd, 0);
	}
	return r;
}

int cb_judge_led(const struct cb_judge *judge, const char *at)
{
	struct walk w = { .judge = judge };
	int r = add_led(&w, at);

	if (r == 0)
		r = look_at_led(&w);
	cb_strv_release(&w.led);
	return r == -EXDEV ? -EPERM : r;
}

int cb_judge_moved(const struct cb_judge *judge, int folder, const char *to)
{
	struct walk w = { .judge = judge, .moved = true };
	int r;

	(void)cb_walk_down(&w.path, to);
	if (w.path.lost > 0)
		return -EXDEV;
	r = look_below(&w, openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
	if (r == 0)
		r = look_at_led(&w);
	cb_strv_release(&w.led);
	return r;
}
