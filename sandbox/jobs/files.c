/* Reading, writing and listing files of the workspace for the supervisor.
 *
 * Trust domain: a helper in the jail. Only regular files are read and written: they are opened without waiting and
 * without following a link, and judged by their descriptor, so that neither a pipe that nobody writes to nor an entry
 * that is exchanged meanwhile can hold us up. Sizes are not trusted: what is sent is what was read.
 */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static uint64_t mtime_ns(const struct stat *st)
{
	return st->st_mtim.tv_sec < 0 ? 0 : (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
}

static enum cb_job_type type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return CB_JOB_FILE;
	case S_IFDIR:
		return CB_JOB_FOLDER;
	case S_IFLNK:
		return CB_JOB_LINK;
	case S_IFIFO:
		return CB_JOB_PIPE;
	case S_IFSOCK:
		return CB_JOB_SOCKET;
	default:
		return CB_JOB_DEVICE;
	}
}

static const char *name_of(mode_t mode)
{
	static const char *const names[] = {
		[CB_JOB_FILE] = "a file",	[CB_JOB_FOLDER] = "a folder", [CB_JOB_LINK] = "a link",
		[CB_JOB_PIPE] = "a named pipe", [CB_JOB_SOCKET] = "a socket", [CB_JOB_DEVICE] = "a device"
	};

	return names[type_of(mode)];
}

/* A regular file, or the end of this process. */
static int open_file(struct cb_job *job, const struct cb_job_place *place, const char *path, int flags,
		     struct stat *ret_stat)
{
	struct stat st;
	int fd;

	/* looked at first: opening a pipe or socket would tell those that wait at its other end */
	if ((flags & O_EXCL) == 0 &&
	    fstatat(place->folder, place->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
		cb_job_fail(job, S_ISDIR(st.st_mode) ? -EISDIR : CB_E_DENIED, "%.512s is %s: only files have content",
			    path, name_of(st.st_mode));
	fd = openat(place->folder, place->name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
	if (fd < 0)
		cb_job_fail_path(job, path, -errno);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		cb_job_fail(job, CB_E_DENIED, "%.512s is no file any more", path);
	*ret_stat = st;
	return fd;
}

_Noreturn void cb_job_read(struct cb_job *job)
{
	static char chunk[CB_JOB_CHUNK];
	uint64_t at = job->in.head.a, left = job->in.head.b;
	struct cb_job_frame head = { .op = CB_JOB_FACTS };
	struct cb_job_place place;
	char path[PATH_MAX];
	struct stat st;
	int fd;

	cb_job_place_of_request(job, CB_PLACE_FOLLOW, &place, path);
	fd = open_file(job, &place, path, O_RDONLY, &st);
	head.a = (uint64_t)st.st_size;
	head.b = mtime_ns(&st);
	cb_job_send(job, &head, NULL, 0);
	head = (struct cb_job_frame){ .op = CB_JOB_BYTES };
	if (left > (uint64_t)INT64_MAX - at) /* no file goes further */
		left = (uint64_t)INT64_MAX - at;
	while (left > 0) {
		ssize_t n = pread(fd, chunk, left < sizeof(chunk) ? (size_t)left : sizeof(chunk), (off_t)at);

		if (n < 0)
			cb_job_fail_path(job, path, -errno);
		if (n == 0)
			break;
		cb_job_send(job, &head, chunk, (size_t)n);
		at += (uint64_t)n;
		left -= (uint64_t)n;
	}
	head = (struct cb_job_frame){ .op = CB_JOB_DONE };
	cb_job_done(job, &head, NULL, 0);
}

/* What is appended comes behind what cells append meanwhile; *at is then where that ends. */
static void write_all(struct cb_job *job, int fd, const char *path, bool append, uint64_t *at)
{
	const uint8_t *p = job->in.payload;
	size_t left = job->in_len;

	while (left > 0) {
		ssize_t n = append ? write(fd, p, left) : pwrite(fd, p, left, (off_t)*at);
		int error = errno;

		if (n < 0)
			cb_job_fail(job, -error, "%.512s: %s; it is written up to byte %llu", path, strerror(error),
				    (unsigned long long)*at);
		p += n;
		left -= (size_t)n;
		*at = append ? (uint64_t)lseek(fd, 0, SEEK_CUR) : *at + (uint64_t)n;
	}
}

_Noreturn void cb_job_write(struct cb_job *job)
{
	struct cb_job_frame asked = job->in.head, head = { .op = CB_JOB_DONE };
	struct cb_job_place place;
	char path[PATH_MAX];
	bool append = (asked.flags & (CB_JOB_APPEND | CB_JOB_AT_OFFSET)) == CB_JOB_APPEND;
	bool exclusive = (asked.flags & CB_JOB_EXCLUSIVE) != 0; /* a link is there, whatever it leads to */
	struct stat st;
	uint64_t at = 0;
	int fd;

	cb_job_place_of_request(job,
				(exclusive ? 0 : CB_PLACE_FOLLOW) |
					((asked.flags & CB_JOB_PARENTS) != 0 ? CB_PLACE_PARENTS : 0),
				&place, path);
	fd = open_file(job, &place, path, O_WRONLY | O_CREAT | (append ? O_APPEND : 0) | (exclusive ? O_EXCL : 0), &st);
	if ((asked.flags & CB_JOB_AT_OFFSET) != 0)
		at = asked.a;
	else if (append)
		at = (uint64_t)st.st_size;
	else if (ftruncate(fd, 0) < 0)
		cb_job_fail_path(job, path, -errno);
	for (cb_job_receive(job); job->in.head.op == CB_JOB_DATA; cb_job_receive(job))
		write_all(job, fd, path, append, &at);
	if (fstat(fd, &st) == 0)
		head.a = (uint64_t)st.st_size;
	cb_job_done(job, &head, NULL, 0);
}

int cb_job_open_folder(struct cb_job *job, const struct cb_job_place *place, const char *path)
{
	int fd = openat(place->folder, place->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		cb_job_fail_path(job, path, -errno);
	return fd;
}

_Noreturn void cb_job_list(struct cb_job *job)
{
	static struct cb_dents dents;
	struct cb_job_frame head = { .op = CB_JOB_DONE };
	struct cb_job_place place;
	char path[PATH_MAX];
	const char *name;
	int fd, r = 0;

	cb_job_place_of_request(job, CB_PLACE_FOLLOW, &place, path);
	fd = cb_job_open_folder(job, &place, path);
	while ((name = cb_dents_next(&dents, fd, &r)) != NULL) {
		struct cb_job_frame entry = { .op = CB_JOB_ENTRY };
		struct stat st;

		if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue; /* gone meanwhile */
		entry.code = (int)type_of(st.st_mode);
		entry.a = (uint64_t)st.st_size;
		entry.b = mtime_ns(&st);
		cb_job_send(job, &entry, name, strlen(name));
	}
	if (r < 0)
		cb_job_fail_path(job, path, r);
	cb_job_done(job, &head, NULL, 0);
}
