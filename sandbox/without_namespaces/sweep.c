/* Ends and removes what a jail without namespaces leaves: processes, and its folder.
 *
 * Trust domain: broker or run, outside; pid 1 of such a jail at its end. What is swept was made by foreign code: it may
 * fork as fast as it can, and may have nested folders as deep as it likes. A uid of its own makes the first easy: one
 * kill takes all at once. Without, descendants are looked for until none is left, for SWEEP_MS at most.
 */
#include "without_namespaces.h"
#include "../shared/ids.h"
#include "../shared/mounts.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/log.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SWEEP_MS 5000
#define KILL_EVERY_MS 100
#define REAPED_A_STEP 1000
#define PID_LIMIT (1u << 22) /* of Linux */

/* ---- processes ---- */

/* The parent of a process; 0 if it has ended. In stat the name is in brackets and may hold anything. */
static pid_t parent_of(int proc, const char *pid)
{
	struct cb_proc_stat stat;
	char path[32];

	snprintf(path, sizeof(path), "%.16s/stat", pid);
	return cb_proc_stat_read(proc, path, &stat) == 0 ? stat.parent : 0;
}

static bool has(const uint8_t *set, pid_t pid)
{
	return pid > 0 && (unsigned)pid < PID_LIMIT && (set[pid / 8] & (1u << (pid % 8))) != 0;
}

/* By the process that was looked at: its number may be another's meanwhile. */
static void kill_process(int pidfd, pid_t pid)
{
	if (pidfd < 0 || (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0 && errno == ENOSYS))
		(void)kill(pid, SIGKILL);
}

/* A child's number is nearly always above its parent's, so one pass finds nearly all; the next round finds the rest. */
static void kill_descendants(void)
{
	static uint8_t set[PID_LIMIT / 8];
	CB_AUTO_FOLDER dir = cb_folder_open(AT_FDCWD, "/proc", 0);
	const struct dirent *e;
	pid_t self = getpid();

	memset(set, 0, sizeof(set));
	while ((e = cb_folder_next(dir)) != NULL) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10), parent;

		if (pid <= 0 || (unsigned)pid >= PID_LIMIT)
			continue;
		CB_AUTO_FD pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

		parent = parent_of(dirfd(dir), e->d_name);
		if (parent != self && !has(set, parent))
			continue;
		set[pid / 8] = (uint8_t)(set[pid / 8] | 1u << (pid % 8));
		kill_process(pidfd, pid);
	}
}

/* All at once: a kill of everything is one step for the kernel, and spares the caller. */
static void kill_uid(uid_t uid)
{
	pid_t pid;

	if (geteuid() == uid) {
		(void)kill(-1, SIGKILL);
		return;
	}
	pid = fork();
	if (pid == 0) {
		if (cb_become(uid) == 0 && getuid() == uid)
			(void)kill(-1, SIGKILL);
		_exit(0);
	}
}

bool cb_sweep_step(struct cb_sweep *s)
{
	int64_t now = cb_now_ms();
	pid_t r = 1;

	if (s->until == 0)
		s->until = now + SWEEP_MS;
	for (int i = 0; i < REAPED_A_STEP && r > 0; i++)
		r = waitpid(-1, NULL, WNOHANG);
	if (r < 0 && errno == ECHILD && (s->uid == CB_SWEEP_CHILDREN || s->kill_at > 0))
		return true;
	if (now >= s->until) {
		cb_log(CB_LOG_ERROR, "processes of the jail could not be ended");
		return true;
	}
	if (s->uid == CB_SWEEP_CHILDREN) {
		kill_descendants();
	} else if (now >= s->kill_at) {
		kill_uid(s->uid);
		s->kill_at = now + KILL_EVERY_MS;
	}
	return false;
}

void cb_sweep(uid_t uid)
{
	struct cb_sweep s = { .uid = uid };
	const struct timespec pause = { 0, 1000000 };

	while (!cb_sweep_step(&s))
		(void)nanosleep(&pause, NULL);
}

/* ---- the folder ---- */

/* Empties one folder; folders in it are moved up into `top` under a new name, so that nothing is ever deep. Their owner
 * may still be at work: no link is followed, and only what was really moved counts as progress. */
static void empty(int top, const char *name, int64_t deadline, unsigned *number)
{
	CB_AUTO_FOLDER dir = cb_folder_open(top, name, O_NOFOLLOW);
	const struct dirent *e;
	int fd;

	if (dir == NULL && errno == EACCES && cb_unlock_entry(top, name, S_IFDIR, 0700) == 0)
		dir = cb_folder_open(top, name, O_NOFOLLOW);
	if (dir == NULL)
		return;
	fd = dirfd(dir);
	(void)fchmod(fd, 0700); /* a folder that may not be written could not be emptied */
	while (cb_now_ms() < deadline && (e = cb_folder_next(dir)) != NULL) {
		char moved[32];

		if (unlinkat(fd, e->d_name, 0) == 0 || errno != EISDIR)
			continue;
		snprintf(moved, sizeof(moved), "%u.gone", *number);
		/* a folder that is moved is written */
		(void)cb_unlock_entry(fd, e->d_name, S_IFDIR, 0700);
		if (renameat(fd, e->d_name, top, moved) == 0 || errno == ENOTEMPTY || errno == EEXIST ||
		    errno == ENOTDIR)
			(*number)++; /* the name is used up */
	}
}

/* One of /tmp or /dev/shm. */
static int unlock(const char *path)
{
	const char *name = strrchr(path, '/');
	char parent[PATH_MAX];
	CB_AUTO_FD fd = -1;

	if (name == NULL || snprintf(parent, sizeof(parent), "%.*s", (int)(name - path), path) >= (int)sizeof(parent))
		return -EINVAL;
	fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : cb_unlock_entry(fd, name + 1, S_IFDIR, 0700);
}

int cb_remove_folder(const char *path, int64_t until)
{
	CB_AUTO_FD top = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	unsigned number = 0, before = 1;

	if (top < 0 && errno == EACCES && unlock(path) == 0)
		top = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (top >= 0)
		(void)!fchmod(top, 0700); /* a cell may have closed it */
	/* Each round removes what the one before has moved up; a round that moves nothing is the last. */
	while (top >= 0 && number != before && cb_now_ms() < until) {
		CB_AUTO_FOLDER dir = cb_folder_open(top, ".", 0);
		const struct dirent *e;

		before = number;
		while (cb_now_ms() < until && (e = cb_folder_next(dir)) != NULL) {
			empty(top, e->d_name, until, &number);
			if (unlinkat(top, e->d_name, AT_REMOVEDIR) < 0)
				(void)unlinkat(top, e->d_name, 0);
		}
	}
	if (rmdir(path) == 0 || errno == ENOENT)
		return 0;
	return cb_now_ms() >= until ? -EAGAIN : -errno;
}
