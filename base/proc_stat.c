/* The files of /proc about a process, and others of the kernel that are as small.
 *
 * Trust domain: all C programs. /proc/PID/stat is one line, of numbers but for a process's name and its state. The
 * kernel writes the line, but the name in it is the process's to choose, brackets and spaces too: so what follows is
 * counted from the last ')'. Field 3 is the state, as in proc(5).
 */
#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXITING 0x4 /* PF_EXITING, of the flags */
#define FORKED 0x40 /* PF_FORKNOEXEC */
#define TEXT 1024   /* what is asked for stands in the first half */

int cb_proc_stat_parse(const char *text, struct cb_proc_stat *ret)
{
	uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK), ticks[4];
	const char *at = strrchr(text, ')');
	struct cb_proc_stat s;
	int64_t resident; /* pages */
	unsigned flags;

	/* state 3, ppid 4, flags 9, minflt 10, utime 14, stime, cutime, cstime, num_threads 20, starttime 22, rss 24 */
	if (at == NULL ||
	    sscanf(at + 1,
		   " %c %d %*d %*d %*d %*d %u %" SCNu64 " %*u %*u %*u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
		   " %*d %*d %" SCNu64 " %*d %" SCNu64 " %*u %" SCNd64,
		   &s.state, &s.parent, &flags, &s.minor_faults, &ticks[0], &ticks[1], &ticks[2], &ticks[3], &s.threads,
		   &s.start, &resident) != 11)
		return -EBADMSG;
	s.exiting = (flags & EXITING) != 0;
	s.forked = (flags & FORKED) != 0;
	s.user_us = ticks[0] * 1000000 / hz;
	s.system_us = ticks[1] * 1000000 / hz;
	s.children_user_us = ticks[2] * 1000000 / hz;
	s.children_system_us = ticks[3] * 1000000 / hz;
	s.resident_bytes = resident > 0 ? (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
	*ret = s;
	return 0;
}

int cb_proc_text(int dir, const char *path, char *ret_text, size_t size)
{
	CB_AUTO_FD fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, ret_text, size - 1) : -1;

	ret_text[n > 0 ? n : 0] = '\0';
	if (n < 0)
		return -errno;
	return n > 0 ? 0 : -ESRCH;
}

int cb_proc_stat_read(int dir, const char *path, struct cb_proc_stat *ret)
{
	char text[TEXT];
	int r = cb_proc_text(dir, path, text, sizeof(text));

	return r < 0 ? r : cb_proc_stat_parse(text, ret);
}

int cb_proc_stat_of(pid_t pid, struct cb_proc_stat *ret)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	return cb_proc_stat_read(AT_FDCWD, path, ret);
}

int cb_proc_status_of(pid_t pid, char *ret_text, size_t size)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return cb_proc_text(AT_FDCWD, path, ret_text, size);
}

uint64_t cb_proc_number(const char *text, const char *key, int base, uint64_t missing)
{
	const char *at = strstr(text, key);

	return at != NULL ? strtoull(at + strlen(key), NULL, base) : missing;
}

uint64_t cb_proc_bytes(const char *text, const char *key)
{
	return cb_proc_number(text, key, 10, 0) * 1024;
}

uint64_t cb_proc_pending(const char *status)
{
	return cb_proc_number(status, "\nSigPnd:", 16, 0) | cb_proc_number(status, "\nShdPnd:", 16, 0);
}

DIR *cb_proc_threads(pid_t pid)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	return cb_folder_open(AT_FDCWD, path, 0);
}

int cb_proc_children(int threads, const char *thread, void (*each)(void *context, pid_t pid), void *context)
{
	char path[64], text[4096], *at, *end;
	size_t kept = 0;
	ssize_t n;

	snprintf(path, sizeof(path), "%.20s/children", thread);
	CB_AUTO_FD fd = openat(threads, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	while ((n = read(fd, text + kept, sizeof(text) - 1 - kept)) > 0) {
		text[kept + (size_t)n] = '\0';
		for (at = text;; at = end + 1) {
			long pid = strtol(at, &end, 10);

			if (end == at || *end != ' ') /* none left, or cut in two */
				break;
			each(context, (pid_t)pid);
		}
		kept = strlen(at);
		memmove(text, at, kept);
	}
	return n < 0 ? -errno : 0;
}

int cb_proc_children_of(pid_t pid, int64_t until, void (*each)(void *context, pid_t pid), void *context)
{
	const struct dirent *thread;
	int all = -ENOENT; /* until a list could be read */
	CB_AUTO_FOLDER threads = cb_proc_threads(pid);

	if (threads == NULL)
		return -errno;
	while ((thread = cb_folder_next(threads)) != NULL) {
		if (until != 0 && cb_now_thread_ns() >= until)
			return -ETIMEDOUT;
		int r = cb_proc_children(dirfd(threads), thread->d_name, each, context);

		if (r != -ENOENT && r != -ESRCH && (all == 0 || all == -ENOENT)) /* else the thread has ended */
			all = r;
	}
	return errno != 0 ? -errno : all;
}

int cb_proc_shows_children(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : 0;
}
