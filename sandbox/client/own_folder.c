/* Folders of ours below ones that others may write.
 *
 * Trust domain: supervisor and broker, at start. Libc only. Invariant: what is looked at is what is opened, and no link
 * is followed.
 */
#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "own_folder.h"

int cb_own_folder_open(int parent, const char *path, bool make, mode_t others, int *ret_fd)
{
	CB_AUTO_FD fd = -1;
	struct stat st;

	if (make && mkdirat(parent, path, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(parent, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return errno == ELOOP ? -ENOTDIR : -errno;
	if (st.st_uid != geteuid() || (st.st_mode & others) != 0)
		return -EPERM;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}
