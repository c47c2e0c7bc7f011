/* Finding an entry of the workspace without ever leaving it.
 *
 * Trust domain: a helper in the jail. The guest may change folders and links while we walk, so each part is opened by
 * itself (O_PATH, no link followed), looked at through its descriptor, and links are put in by hand. Nothing that is
 * opened this way can block. Leaving the workspace would not leave the jail; it is refused so that a path means the
 * same whatever a cell has put there.
 */
#include "job.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as the kernel's own */

struct walk {
	const char *workspace;
	int root, here; /* O_PATH */
	unsigned links, flags;
	char rest[2 * PATH_MAX]; /* still to go; relative to `here` */
};

static int at_root(const struct walk *w)
{
	struct stat here, root;

	if (fstat(w->here, &here) < 0 || fstat(w->root, &root) < 0)
		return -errno;
	return here.st_dev == root.st_dev && here.st_ino == root.st_ino;
}

static int move_to(struct walk *w, int fd)
{
	if (fd < 0)
		return -errno;
	if (w->here != w->root)
		cb_fd_close(&w->here);
	w->here = fd;
	return 0;
}

/* An absolute path must be in the workspace: what is behind its name, or NULL. */
static const char *behind_workspace(const char *workspace, const char *path)
{
	size_t n = strlen(workspace);

	while (n > 1 && workspace[n - 1] == '/')
		n--;
	if (strncmp(path, workspace, n) != 0 || (path[n] != '/' && path[n] != '\0'))
		return NULL;
	return path + n;
}

/* Takes the next part off the rest. "" = none is left. */
static int take_name(struct walk *w, char name[NAME_MAX + 1], bool *ret_last)
{
	size_t lead = strspn(w->rest, "/"), n = strcspn(w->rest + lead, "/");
	size_t next = lead + n + strspn(w->rest + lead + n, "/");

	if (n > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(name, w->rest + lead, n);
	name[n] = '\0';
	memmove(w->rest, w->rest + next, strlen(w->rest + next) + 1);
	*ret_last = w->rest[0] == '\0';
	return 0;
}

static int go_up(struct walk *w)
{
	int r = at_root(w);

	if (r != 0)
		return r < 0 ? r : -EXDEV;
	return move_to(w, openat(w->here, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
}

/* Puts the target of the link `fd` in front of the rest. */
static int put_link(struct walk *w, int fd)
{
	char target[PATH_MAX];
	const char *from = target;
	ssize_t n = readlinkat(fd, "", target, sizeof(target) - 1);
	size_t len, rest = strlen(w->rest);

	if (n < 0)
		return -errno;
	if (++w->links > LINKS_MAX)
		return -ELOOP;
	target[n] = '\0';
	if (target[0] == '/') {
		int r;

		from = behind_workspace(w->workspace, target);
		if (from == NULL)
			return -EXDEV;
		r = move_to(w, fcntl(w->root, F_DUPFD_CLOEXEC, 0));
		if (r < 0)
			return r;
	}
	len = strlen(from);
	if (len + 1 + rest >= sizeof(w->rest))
		return -ENAMETOOLONG;
	memmove(w->rest + len + 1, w->rest, rest + 1);
	memcpy(w->rest, from, len);
	w->rest[len] = '/';
	return 0;
}

/* Opens the part `name`; a missing folder on the way is made if that was asked for. */
static int open_part(const struct walk *w, const char *name, bool last)
{
	int fd = openat(w->here, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 || errno != ENOENT || last || (w->flags & CB_PLACE_PARENTS) == 0)
		return fd < 0 ? -errno : fd;
	if (mkdirat(w->here, name, 0777) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(w->here, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* One part further. 1 = arrived: name is the last part, in w->here. */
static int step(struct walk *w, char name[NAME_MAX + 1])
{
	struct stat st;
	bool last;
	int r = take_name(w, name, &last);

	if (r < 0)
		return r;
	if (name[0] == '\0') {
		memcpy(name, ".", 2);
		return 1;
	}
	if (strcmp(name, ".") == 0)
		return 0;
	if (strcmp(name, "..") == 0)
		return go_up(w);
	if (last && (w->flags & CB_PLACE_FOLLOW) == 0)
		return 1;
	CB_AUTO_FD fd = open_part(w, name, last);

	if (fd < 0)
		return fd == -ENOENT && last ? 1 : fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return put_link(w, fd);
	if (last)
		return 1;
	return S_ISDIR(st.st_mode) ? move_to(w, cb_fd_take(&fd)) : -ENOTDIR;
}

static int walk(struct walk *w, const char *path, struct cb_job_place *ret_place)
{
	struct cb_job_place place = { 0 };
	int r = 0, root;

	if (path[0] == '/')
		path = behind_workspace(w->workspace, path);
	if (path == NULL)
		return -EXDEV;
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(w->rest, path, strlen(path) + 1);
	while (r == 0)
		r = step(w, place.name);
	root = r < 0 ? r : at_root(w);
	if (root < 0)
		return root;
	place.is_root = root == 1 && strcmp(place.name, ".") == 0;
	place.folder = fcntl(w->here, F_DUPFD_CLOEXEC, 0);
	if (place.folder < 0)
		return -errno;
	*ret_place = place;
	return 0;
}

int cb_job_find(const char *workspace, const char *path, unsigned flags, struct cb_job_place *ret_place)
{
	CB_AUTO_FD root = open(workspace, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct walk w = { .workspace = workspace, .root = root, .here = root, .flags = flags };
	int r;

	if (root < 0)
		return -errno;
	r = walk(&w, path, ret_place);
	if (w.here != root)
		cb_fd_close(&w.here);
	return r;
}
