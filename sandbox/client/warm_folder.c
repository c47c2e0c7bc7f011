/* The folder of zygotes' sockets (warm.h), which broker and `cellblock warm` find them in.
 *
 * Role: opens it, and makes it. Trust domain: supervisor's program and broker. Libc only. Invariant: whoever could put
 * a socket there would be asked for guests, and whoever could enter could ask: what is opened is our user's alone, and
 * so is what it lies in. What lies above that has to be (/run, XDG_RUNTIME_DIR) or keeps others from moving what is
 * ours (/tmp).
 */
#include <cellblock/fd.h>
#include <cellblock/sandbox.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "own_folder.h"
#include "spec_codec.h"

#define STEP "warm start"
#define OTHERS_WRITE (S_IWGRP | S_IWOTH)

/* Only words for what is there: it may be another one by now. */
static int refused(const struct stat *st, const char *path, mode_t others, int code, struct cb_err *err)
{
	const char *why = "is no folder", *cure = "Remove it: it is made again where it is needed.";

	if (S_ISLNK(st->st_mode)) {
		why = "is a symbolic link";
	} else if (S_ISDIR(st->st_mode) && st->st_uid != geteuid()) {
		why = "belongs to another user";
		cure = "Have it removed: it is made again where it is needed.";
	} else if (S_ISDIR(st->st_mode)) {
		why = code == -EACCES	       ? "can't be read by its owner"
		      : others == OTHERS_WRITE ? "can be written by others"
					       : "can be entered by others";
		cure = "Set its mode to 0700 (chmod 700), or remove it: it is made again where it is needed.";
	}
	return cb_err_set(err, -EPERM, STEP, cure, "%s, where zygotes are found, %s", path, why);
}

static int open_below(int folder, const char *name, const char *path, bool make, mode_t others, int *ret_fd,
		      struct cb_err *err)
{
	int r = cb_own_folder_open(folder, name, make, others, ret_fd);
	struct stat st;

	if (r == 0)
		return 0;
	if ((r == -EPERM || r == -ENOTDIR || r == -EACCES) && fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return refused(&st, path, others, r, err);
	return cb_err_set(err, r, STEP, NULL, "%s, where zygotes are found, can't be %s: %s", path,
			  make ? "made" : "opened", strerror(-r));
}

/* Cuts the last part off. */
static char *last_part(char *path)
{
	char *slash = strrchr(path, '/');

	*slash = '\0';
	return slash + 1;
}

int cb_warm_folder_open(const char *path, bool make, int *ret_fd, struct cb_err *err)
{
	char above[PATH_MAX], top[PATH_MAX];
	CB_AUTO_FD base = -1;
	CB_AUTO_FD folder = -1;
	const char *name, *last;
	int r;

	if (!cb_path_is_plain(path) || strchr(path + 1, '/') == NULL)
		return cb_err_set(err, -EINVAL, STEP, NULL, "%s: no place for the folder of zygotes", path);
	snprintf(above, sizeof(above), "%s", path);
	last = last_part(above);
	snprintf(top, sizeof(top), "%s", above);
	name = last_part(top);
	base = open(top[0] != '\0' ? top : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (base < 0)
		return cb_err_set(err, -errno, STEP, NULL, "%s, where zygotes are found, can't be opened: %s", path,
				  strerror(errno));
	r = open_below(base, name, above, make, OTHERS_WRITE, &folder, err);
	return r < 0 ? r : open_below(folder, last, path, make, S_IRWXG | S_IRWXO, ret_fd, err);
}
