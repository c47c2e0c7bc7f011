/* Which names of an overlay workspace's layer may have changed: see overlay_watch.h.
 *
 * Trust domain: cb_watch_start in pid 1; the rest in the broker's child. Invariants: the queue is the kernel's,
 * bounded, and counted in the jail's control group; when it is full the kernel says so, and everything is looked at.
 * Events name files by their inode numbers, not by the path that somebody used: a file with several names, or none for
 * a while, is found all the same. The mark is on the whole tmpfs, so a new folder is heard of from the start.
 *
 * A file's content can change through what is open or mapped for writing, or by its name. Opening and what goes by name
 * are events; who had it open when it was looked at is found there (changes/snapshot_take.c).
 */
#include "overlay_watch.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES (FAN_CREATE | FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO)
#define MASK (NAMES | FAN_OPEN | FAN_MODIFY | FAN_CLOSE_WRITE | FAN_ATTRIB | FAN_ONDIR)
#define HANDLE_BYTES 12 /* tmpfs: the generation, then the inode number */

static bool ino_of(const struct file_handle *h, uint64_t *ret_ino)
{
	if (h->handle_bytes != HANDLE_BYTES)
		return false;
	memcpy(ret_ino, h->f_handle + sizeof(uint32_t), sizeof(*ret_ino));
	return true;
}

/* Whether handles on this file system are what we take them for. */
static bool handles_are_known(int folder)
{
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} buf = { .h.handle_bytes = MAX_HANDLE_SZ };
	struct stat st;
	uint64_t ino = 0;
	int mount;

	return name_to_handle_at(folder, ".", &buf.h, &mount, 0) == 0 && fstat(folder, &st) == 0 &&
	       ino_of(&buf.h, &ino) && ino == st.st_ino;
}

/* Before some version of the kernel an overlay hides from the layer's marks what it does with files. */
static bool is_heard(int fd, int merged)
{
	CB_AUTO_FD file = openat(merged, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct fanotify_event_metadata buf[256], *e = buf;
	uint64_t all = 0;
	ssize_t n;

	if (file < 0 || write(file, "", 1) != 1)
		return false;
	n = read(fd, buf, sizeof(buf));
	for (; n > 0 && FAN_EVENT_OK(e, n); e = FAN_EVENT_NEXT(e, n))
		all |= e->mask;
	return (all & FAN_OPEN) != 0 && (all & FAN_MODIFY) != 0;
}

int cb_watch_start(int layer, int merged, int *ret_fd)
{
	CB_AUTO_FD folder = openat(layer, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CB_AUTO_FD fd = -1;

	if (folder < 0)
		return -errno;
	fd = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_REPORT_DFID_NAME | FAN_NONBLOCK | FAN_CLOEXEC, 0);
	if (fd < 0 || fanotify_mark(fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, MASK, folder, NULL) < 0)
		return -ENOTSUP;
	if (!handles_are_known(folder) || !is_heard(fd, merged))
		return -ENOTSUP;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

/* False if it is not understood. */
static bool parse(const struct fanotify_event_metadata *m, struct cb_watch_event *e)
{
	const char *p = (const char *)m + m->metadata_len, *end = (const char *)m + m->event_len;

	while (p < end) {
		const struct fanotify_event_info_fid *info = (const void *)p;
		const struct file_handle *h = (const void *)info->handle;

		if (info->hdr.info_type == FAN_EVENT_INFO_TYPE_FID) {
			if (!ino_of(h, &e->self))
				return false;
		} else if (info->hdr.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME) {
			e->name = (const char *)h->f_handle + h->handle_bytes;
			if (!ino_of(h, &e->folder))
				return false;
		} else {
			return false;
		}
		p += info->hdr.len;
	}
	if (e->folder != 0 && strcmp(e->name, ".") == 0)
		e->self = e->folder;
	if ((m->mask & NAMES) == 0 || (e->folder != 0 && strcmp(e->name, ".") == 0))
		e->folder = 0;
	return true;
}

bool cb_watch_read(int fd, void (*on_event)(void *context, const struct cb_watch_event *e), void *context,
		   struct cb_watch_news *ret_news)
{
	static struct fanotify_event_metadata buf[8192]; /* large: not for the stack */
	struct fanotify_event_metadata *m = buf;
	ssize_t n = read(fd, buf, sizeof(buf));

	if (n < 0 && errno != EAGAIN)
		ret_news->lost = true;
	if (n <= 0)
		return false;
	for (; FAN_EVENT_OK(m, n); m = FAN_EVENT_NEXT(m, n)) {
		struct cb_watch_event e = { .written = (m->mask & FAN_CLOSE_WRITE) != 0 };

		if ((m->mask & FAN_Q_OVERFLOW) != 0) {
			ret_news->lost = true;
			continue;
		}
		if (m->pid == getpid() || ((m->mask & FAN_ONDIR) != 0 && (m->mask & (NAMES | FAN_ATTRIB)) == 0))
			continue; /* who lists a folder changes nothing */
		ret_news->events++;
		if (parse(m, &e))
			on_event(context, &e);
		else
			ret_news->lost = true;
	}
	return true;
}
