/* The text of control group files, and the folders that dead brokers left.
 *
 * Trust domain: broker, outside. Nothing here is written by a jail: it has no control group file system.
 */
#include "cgroup.h"

#include <cellblock/fd.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

void cb_cg_read(int dir, const char *file, char *ret_text, size_t size)
{
	CB_AUTO_FD fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, ret_text, size - 1);

	ret_text[n > 0 ? n : 0] = '\0';
}

uint64_t cb_cg_field(const char *text, const char *key)
{
	size_t len = strlen(key);

	while (*text != '\0') {
		if (strncmp(text, key, len) == 0 && text[len] == ' ')
			return strtoull(text + len + 1, NULL, 10);
		text += strcspn(text, "\n");
		text += *text == '\n';
	}
	return 0;
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
	int copy_fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy_fd >= 0 ? fdopendir(copy_fd) : NULL;
	const struct dirent *entry;

	if (dir == NULL) {
		cb_fd_close(&copy_fd);
		return;
	}
	while (--*budget > 0 && (entry = readdir(dir)) != NULL) {
		if (entry->d_type != DT_DIR || strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
			++*budget;
			continue;
		}
		if (strncmp(entry->d_name, CB_CGROUP_PREFIX, strlen(CB_CGROUP_PREFIX)) == 0) {
			sweep_one(folder, entry->d_name);
		} else if (depth > 0) {
			CB_AUTO_FD below =
				openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

			if (below >= 0)
				sweep(below, depth - 1, budget);
		}
	}
	(void)closedir(dir);
}

void cb_cg_sweep(int folder, int depth)
{
	int budget = SWEEP_MAX;

	sweep(folder, depth, &budget);
}
