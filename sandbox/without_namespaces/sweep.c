/* Ends and removes what a jail without namespaces leaves: processes, and its folder.
 *
 * Trust domain: broker or run, outside; pid 1 of such a jail at its end. What is swept was made by foreign code: it may
 * fork as fast as it can, and may have nested folders as deep as it likes. A uid of its own makes the first easy: one
 * kill takes all at once. Without, descendants are looked for until none is left, for SWEEP_MS at most. Whoever became
 * `cellblock run` by exec may have children of its own: they are spared, with all below them.
 */
#include "without_namespaces.h"
#include "../shared/ids.h"
#include "../shared/mounts.h"
#include "../shared/signals.h"

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
#define PID_LIMIT (1u << 22) /* of Linux */

/* ---- processes ---- */

/* Those that were there before the jail; of this process alone, not of its copies. */
static struct {
	pid_t of;
	size_t n, room;
	struct spared {
		pid_t pid;
		uint64_t start;
	} *list;
} spared;

static bool is_spared(pid_t pid, uint64_t start)
{
	for (size_t i = 0; i < spared.n; i++)
		if (spared.list[i].pid == pid && spared.list[i].start == start)
			return true;
	return false;
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

static void spare(int pidfd, pid_t pid, uint64_t start)
{
	(void)pidfd;
	if (spared.n == spared.room) {
		size_t room = 2 * spared.room + 16;
		void *more = realloc(spared.list, room * sizeof(*spared.list));

		if (more == NULL)
			return; /* it will be ended, as if it were the jail's */
		spared.list = more;
		spared.room = room;
	}
	spared.list[spared.n++] = (struct spared){ pid, start };
}

static void end_one(int pidfd, pid_t pid, uint64_t start)
{
	(void)start;
	kill_process(pidfd, pid);
}

static void leave_one(int pidfd, pid_t pid, uint64_t start)
{
	(void)pidfd, (void)pid, (void)start;
}

/* Calls `act` for each descendant; false: there was none. In stat the name is in brackets and may hold anything. A
 * child's number is nearly always above its parent's, so one pass finds nearly all; the next round finds the rest. */
static bool each_descendant(void (*act)(int pidfd, pid_t pid, uint64_t start))
{
	static uint8_t set[PID_LIMIT / 8];
	CB_AUTO_FOLDER dir = cb_folder_open(AT_FDCWD, "/proc", 0);
	const struct dirent *e;
	pid_t self = getpid();
	bool found = dir == NULL; /* nobody can tell */

	memset(set, 0, sizeof(set));
	while ((e = cb_folder_next(dir)) != NULL) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		struct cb_proc_stat stat;
		char path[32];

		if (pid <= 0 || (unsigned)pid >= PID_LIMIT)
			continue;
		CB_AUTO_FD pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

		snprintf(path, sizeof(path), "%.16s/stat", e->d_name);
		if (cb_proc_stat_read(dirfd(dir), path, &stat) < 0 || (stat.parent != self && !has(set, stat.parent)) ||
		    is_spared(pid, stat.start))
			continue;
		set[pid / 8] = (uint8_t)(set[pid / 8] | 1u << (pid % 8));
		act(pidfd, pid, stat.start);
		found = true;
	}
	return found;
}

void cb_sweep_spare(void)
{
	siginfo_t child;

	if (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) < 0)
		return; /* there is none */
	spared.n = 0;
	(void)each_descendant(spare);
	spared.of = getpid();
}

/* There are children that are none of the jail's, and stay. */
static bool spares(void)
{
	return spared.n > 0 && spared.of == getpid();
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
	for (int i = 0; i < CB_REAPED_A_TURN && r > 0; i++)
		r = waitpid(-1, NULL, WNOHANG);
	if (r < 0 && errno == ECHILD && (s->uid == CB_SWEEP_CHILDREN || s->kill_at > 0))
		return true;
	if (now >= s->until) {
		cb_log(CB_LOG_ERROR, "processes of the jail could not be ended");
		return true;
	}
	if (s->uid == CB_SWEEP_CHILDREN) {
		s->empty = each_descendant(end_one) ? 0 : s->empty + 1;
	} else if (s->empty == 0 && now >= s->kill_at) {
		kill_uid(s->uid);
		s->kill_at = now + KILL_EVERY_MS;
	} else if (spares()) {
		s->empty = each_descendant(leave_one) ? 0 : s->empty + 1;
	}
	/* a parent that ends just when it would be looked at hides its children for one pass */
	return spares() && s->empty > 1;
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
