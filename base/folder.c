/* Looking through a folder.
 *
 * Trust domain: all C programs. Names in a folder may be hostile code's.
 */
#include <cellblock/fd.h>
#include <cellblock/folder.h>

#include <errno.h>
#include <string.h>

DIR *cb_folder_take(int fd)
{
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (dir == NULL)
		cb_fd_close(&fd);
	return dir;
}

DIR *cb_folder_open(int at, const char *path, int flags)
{
	return cb_folder_take(openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags));
}

const struct dirent *cb_folder_next(DIR *dir)
{
	const struct dirent *e;

	do {
		errno = 0;
		e = dir != NULL ? readdir(dir) : NULL;
	} while (e != NULL && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
	return e;
}

void cb_folder_close(DIR **dir)
{
	int saved = errno;

	if (*dir != NULL)
		(void)closedir(*dir);
	*dir = NULL;
	errno = saved;
}

bool cb_path_within(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	while (n > 0 && folder[n - 1] == '/')
		n--;
	return strncmp(path, folder, n) == 0 && (path[n] == '\0' || path[n] == '/');
}
