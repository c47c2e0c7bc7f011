/* Looks at a writable workspace from outside: how much it holds.
 *
 * Trust domain: broker's child, outside. Reads names and sizes only; no link is followed, nothing is
 * opened but folders, the walk stays on one file system and is bounded.
 */

#include "workspace_scan.h"

#include "../shared/mounts.h"

#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/json_write.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#define MAX_ENTRIES 200000u

struct count {
	int root;
	dev_t dev;
	struct cb_strv queue;
	size_t seen;
	unsigned long long bytes;
};

static int count_folder(struct count *c, const char *path)
{
	int fd = -1, r = 0;

	(void)cb_open_beneath(c->root, *path != '\0' ? path : ".", O_RDONLY | O_DIRECTORY, &fd);
	CB_AUTO_FOLDER dir = cb_folder_take(fd); /* NULL: gone, or closed to us */
	const struct dirent *e;
	struct stat st;

	while (r == 0 && (e = cb_folder_next(dir)) != NULL && c->seen < MAX_ENTRIES) {
		char full[PATH_MAX];

		if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		c->seen++;
		c->bytes += (unsigned long long)st.st_blocks * 512;
		if (S_ISDIR(st.st_mode) && st.st_dev == c->dev &&
		    snprintf(full, sizeof(full), "%s%s%s", path, *path != '\0' ? "/" : "", e->d_name) < PATH_MAX)
			r = cb_strv_add(&c->queue, full);
	}
	return r == 0 && errno != 0 ? -errno : r;
}

static void count_bytes(int root, struct cb_json *j)
{
	struct count c = { .root = root };
	struct stat st;
	int r = fstat(root, &st) < 0 ? -errno : cb_strv_add(&c.queue, "");

	c.dev = st.st_dev;
	for (size_t i = 0; r == 0 && i < c.queue.count && c.seen < MAX_ENTRIES; i++)
		r = count_folder(&c, c.queue.items[i]);
	cb_json_put(j, "status", "ok", "bytes", c.bytes, "cut", (bool)(r < 0 || c.seen >= MAX_ENTRIES));
	cb_strv_release(&c.queue);
}

static int open_workspace(const struct cb_jail *jail, int *ret_fd)
{
	struct stat st;
	int r;

	if (jail->spec->workspace_mode != CB_WORKSPACE_RW)
		return -ENOTSUP;
	r = cb_open_nolinks(AT_FDCWD, jail->spec->workspace_source, O_RDONLY | O_DIRECTORY, ret_fd);
	if (r == 0 && jail->workspace_ino != 0 &&
	    (fstat(*ret_fd, &st) < 0 || st.st_dev != jail->workspace_dev || st.st_ino != jail->workspace_ino))
		r = -ESTALE;
	return r;
}

void cb_look_report(const struct cb_jail *jail, struct cb_buf *out)
{
	CB_AUTO_FD root = -1;
	struct cb_json j = cb_json_begin(out);

	if (open_workspace(jail, &root) < 0)
		cb_json_put(&j, "status", "error");
	else
		count_bytes(root, &j);
	(void)cb_json_done(&j);
}
