/* Whom the kernel's OOM killer takes, the jail's group's or the host's: a guest, a branch or a command beside the
 * cells, and what they start, before their owner's session; and before any twin and pid 1, for then it costs one cell.
 *
 * Trust domain: broker, outside; inside Landlock lets nobody write these files. Where there is none, a process may
 * lower its own score again, unless the broker has CAP_SYS_RESOURCE: its value then is also the lower bound. The number
 * of the process is the supervisor's word, so it is believed only of what descends from the jail's pid 1, as guest and
 * twins do; looked up and written through one descriptor, for numbers are used again. Children inherit the score; so
 * twins are made as victims, and spared, and pid 1 is one while it forks a job's helper (init/init.c).
 */
#include "oom.h"

#include "../init/init.h"

#include <cellblock/fd.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEPTH_MAX 8
#define FILE_NAME "oom_score_adj"

static pid_t parent_of(int folder)
{
	struct cb_proc_stat stat;

	return cb_proc_stat_read(folder, "stat", &stat) == 0 ? stat.parent : 0;
}

/* A twin speaks up perhaps before it is pid 1's own child. */
static bool descends(int folder, pid_t from)
{
	pid_t pid = parent_of(folder);
	char path[32];

	for (int depth = 0; depth < DEPTH_MAX && pid > 1 && pid != from; depth++) {
		snprintf(path, sizeof(path), "/proc/%d", (int)pid);
		CB_AUTO_FD parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		pid = parent >= 0 ? parent_of(parent) : 0;
	}
	return pid > 0 && pid == from;
}

int cb_oom_score(pid_t pid1, pid_t pid, bool victim)
{
	char path[32], text[32] = CB_OOM_VICTIM;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	CB_AUTO_FD folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (folder < 0)
		return -errno;
	if (!descends(folder, pid1))
		return -ESRCH;
	if (!victim && cb_proc_text(AT_FDCWD, "/proc/self/" FILE_NAME, text, sizeof(text)) < 0)
		return -ESRCH;
	CB_AUTO_FD fd = openat(folder, FILE_NAME, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return -errno;
	return 0;
}
