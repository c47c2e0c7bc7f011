/* The folder of zygotes' sockets (warm.h), which broker and `cellblock warm` find them in.
 *
 * Role: opens it, and makes it; locks, names and removes its files. Trust domain: supervisor's program and broker. Libc
 * only. Invariant: whoever could put a socket there would be asked for guests, and whoever could enter could ask: what
 * is opened is our user's alone, and so is what it lies in. What lies above that has to be (/run, XDG_RUNTIME_DIR) or
 * keeps others from moving what is ours (/tmp).
 */
#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/sandbox.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

/* ---- its files ---- */

#define SUFFIX ".lock"

static bool is_lock(const char *name)
{
	return strspn(name, "0123456789abcdefABCDEF") == CB_WARM_KEY_LEN &&
	       strcmp(name + CB_WARM_KEY_LEN, SUFFIX) == 0;
}

void cb_warm_lock_name(const char *key, char ret[CB_WARM_LOCK_NAME])
{
	snprintf(ret, CB_WARM_LOCK_NAME, "%.*s" SUFFIX, CB_WARM_KEY_LEN, key);
}

static int compare_keys(const void *a, const void *b)
{
	return strcmp(a, b);
}

int cb_warm_keys(int folder, char (*ret_keys)[CB_WARM_KEY_LEN + 1], size_t max, size_t *ret_count)
{
	CB_AUTO_FOLDER dir = cb_folder_open(folder, ".", 0);
	const struct dirent *entry;
	size_t n = 0;
	int r = dir == NULL ? -errno : 0;

	while (r == 0 && (entry = cb_folder_next(dir)) != NULL) {
		if (!is_lock(entry->d_name))
			continue;
		if (n == max)
			r = -E2BIG;
		else
			snprintf(ret_keys[n++], CB_WARM_KEY_LEN + 1, "%.*s", CB_WARM_KEY_LEN, entry->d_name);
	}
	if (r == 0 && errno != 0)
		r = -errno;
	qsort(ret_keys, n, sizeof(*ret_keys), compare_keys);
	*ret_count = n;
	return r;
}

int cb_warm_lock(int folder, const char *key, int how, int *ret_fd)
{
	char name[CB_WARM_LOCK_NAME];
	CB_AUTO_FD fd = -1;
	struct stat st;

	cb_warm_lock_name(key, name);
	fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (flock(fd, how | LOCK_NB) < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_nlink == 0) /* removed between our open and our lock */
		return -ENOENT;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

bool cb_warm_has_failed(int lock, char ret_why[CB_WARM_WHY_MAX])
{
	char text[CB_WARM_WHY_MAX + 1];
	ssize_t n = pread(lock, text, sizeof(text) - 1, 0);
	struct stat st;
	time_t age;

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	snprintf(ret_why, CB_WARM_WHY_MAX, "%s", text[0] == CB_WARM_FAILED ? text + 1 : "");
	if (text[0] == CB_WARM_SERVES || fstat(lock, &st) < 0)
		return false;
	age = time(NULL) - st.st_mtim.tv_sec;
	return age >= 0 && age < CB_WARM_AGAIN_S; /* of what is to come: the clock was set back */
}

void cb_warm_remove(int folder, const char *key, int lock)
{
	char name[CB_WARM_LOCK_NAME];
	struct stat ours, named;

	cb_warm_lock_name(key, name);
	if (fstat(lock, &ours) < 0 || fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) < 0 ||
	    ours.st_ino != named.st_ino || ours.st_dev != named.st_dev)
		return; /* it is another's by now */
	(void)unlinkat(folder, key, 0);
	(void)unlinkat(folder, name, 0);
}

struct sockaddr_un cb_warm_address(int folder, const char *key)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%.*s", folder, CB_WARM_KEY_LEN, key);
	return address;
}
