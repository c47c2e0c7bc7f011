/* Writing small files whole: see files.h.
 *
 * Role: kernelspecs, facts, connection files. Trust domain: supervisor, at start. Invariant: a file is never seen half
 * written, and on failure nothing is left behind.
 */
#include "files.h"

#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "policy/paths.h"

int cb_file_replace(const char *path, const char *data, size_t len, mode_t mode)
{
	CB_AUTO_PATH temporary = cb_path_format("%s.XXXXXX", path);
	CB_AUTO_FD fd = -1;
	int r;

	if (temporary == NULL)
		return -ENOMEM;
	fd = mkostemp(temporary, O_CLOEXEC); /* mode 0600 */
	if (fd < 0)
		return -errno;
	r = cb_fd_write_all(fd, data, len);
	if (r == 0 && (fchmod(fd, mode) < 0 || rename(temporary, path) < 0))
		r = -errno;
	if (r < 0)
		unlink(temporary);
	return r;
}

/* A folder that its owner can use, whatever the umask says. */
static int make_folder(const char *path, mode_t mode)
{
	mode_t old = umask(077);
	int r;

	(void)umask(old & 077);
	r = mkdir(path, mode) < 0 ? -errno : 0;
	(void)umask(old);
	return r;
}

int cb_file_make_folders(const char *path, mode_t mode)
{
	CB_AUTO_PATH copy = strdup(path);
	int r;

	if (copy == NULL)
		return -ENOMEM;
	for (char *slash = copy + (copy[0] == '/'); slash != NULL; slash = slash != NULL ? slash + 1 : NULL) {
		slash = strchr(slash, '/');
		if (slash != NULL)
			*slash = '\0';
		r = copy[0] != '\0' ? make_folder(copy, mode) : 0;
		if (r < 0 && r != -EEXIST && !cb_path_is_dir(copy)) /* which sets errno, too */
			return r;
		if (slash == NULL)
			break;
		*slash = '/';
	}
	return cb_path_is_dir(path) ? 0 : -ENOTDIR;
}

bool cb_file_is_link(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0 || !S_ISLNK(st.st_mode))
		return false;
	cb_log(CB_LOG_WARNING, "%s is a link, which is not followed: remove it, and kernels start faster", path);
	return true;
}
