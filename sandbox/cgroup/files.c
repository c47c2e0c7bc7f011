/* The text of control group files, and the folders that dead brokers left.
 *
 * Trust domain: broker, outside. Nothing here is written by a jail: it has no control group file system.
 */
#include "cgroup.h"

#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#define SWEEP_MAX 8192 /* folders looked at */

int cb_cg_write(int dir, const char *file, const char *text)
{
	CB_AUTO_FD fd = openat(dir, file, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : cb_fd_write_all(fd, text, strlen(text));
}

int cb_cg_write_number(int dir, const char *file, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	return cb_cg_write(dir, file, text);
}

bool cb_cg_has_swap(const char *table)
{
	char text[512];
	int r = cb_proc_text(AT_FDCWD, table, text, sizeof(text));
	const char *end = strchr(text, '\n');

	return r == -ENOENT ? false : r < 0 || (end != NULL && end[1] != '\0'); /* a kernel without swap has no table */
}

/* Removes it if its broker is dead: then nobody holds the lock. One that still has processes stays. */
static void sweep_one(int folder, const char *name)
{
	CB_AUTO_FD fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		(void)unlinkat(folder, name, AT_REMOVEDIR);
}

static void sweep(int folder, int depth, int *budget)
{
	CB_AUTO_FOLDER dir = cb_folder_open(folder, ".", 0);
	const struct dirent *entry;

	while (*budget > 0 && (entry = cb_folder_next(dir)) != NULL) {
		if (entry->d_type != DT_DIR)
			continue;
		--*budget;
		if (strncmp(entry->d_name, CB_CGROUP_PREFIX, strlen(CB_CGROUP_PREFIX)) == 0) {
			sweep_one(folder, entry->d_name);
		} else if (depth > 0) {
			CB_AUTO_FD below =
				openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

			if (below >= 0)
				sweep(below, depth - 1, budget);
		}
	}
}

void cb_cg_sweep(int folder, int depth)
{
	int budget = SWEEP_MAX;

	sweep(folder, depth, &budget);
}
