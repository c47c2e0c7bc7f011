/* Whether all of a jail is stopped: see still.h.
 *
 * Trust domain: broker's child, outside. Pid 1 stops the jail's processes, since its kill(-1) reaches all at once, also
 * those that are just being made, with control groups or without. It can't see whether they did stop: a process may
 * hide from the jail's /proc. From outside all are seen, as children of pid 1 and of each other; a list of them is
 * exact when nobody runs, so they are looked at until two looks in a row find nobody who does.
 *
 * A thread that waits in the kernel where signals don't wake it (vfork, a disk) counts as stopped when its process
 * stops or is told to: it stops before it runs again.
 */
#include "still.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLEAN_LOOKS 2
#define PROCESSES_MAX 65536
#define STOP_BIT (1ull << (SIGSTOP - 1)) /* in the masks of /proc */

struct look {
	pid_t pid[PROCESSES_MAX];
	size_t count;
	bool cut;
};

/* A child belongs to the thread that made it. False if the kernel does not say. */
static bool add_children(struct look *l, int threads, const char *thread)
{
	char path[64];
	FILE *file;
	int pid, fd;

	snprintf(path, sizeof(path), "%.20s/children", thread);
	fd = openat(threads, path, O_RDONLY | O_CLOEXEC);
	file = fd >= 0 ? fdopen(fd, "r") : NULL;
	if (file == NULL)
		return false;
	while (fscanf(file, "%d", &pid) == 1) {
		if (l->count < PROCESSES_MAX)
			l->pid[l->count++] = pid;
		else
			l->cut = true;
	}
	(void)fclose(file);
	return true;
}

/* What follows a key at the beginning of a line; in the name, which comes first, line ends are escaped. */
static const char *value_of(const char *text, const char *key)
{
	const char *line = strstr(text, key);

	return line != NULL ? line + strlen(key) + strspn(line + strlen(key), " \t") : "";
}

static uint64_t mask_of(const char *text, const char *key)
{
	return strtoull(value_of(text, key), NULL, 16);
}

/* 'T' stopped or ended, 'D' it will stop if its process does, 'R' it runs or may at any time, 0 not there any more. */
static char state_of(int threads, const char *thread)
{
	char path[64], text[16384], state;
	ssize_t n;

	snprintf(path, sizeof(path), "%.20s/status", thread);
	CB_AUTO_FD fd = openat(threads, path, O_RDONLY | O_CLOEXEC);

	n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
	if (n <= 0)
		return 0;
	text[n] = '\0';
	state = *value_of(text, "\nState:");
	if (state == 'D')
		return ((mask_of(text, "\nSigPnd:") | mask_of(text, "\nShdPnd:")) & STOP_BIT) != 0 ? 'T' : 'D';
	return state != '\0' && strchr("TtZX", state) != NULL ? 'T' : 'R';
}

/* Whether none of its threads runs; its children are looked at next. */
static bool is_stopped(struct look *l, pid_t pid, bool is_pid1)
{
	bool stopped = false, waits = false, runs = false, known = false;
	const struct dirent *e;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (dir == NULL)
		return errno == ENOENT && !is_pid1;
	while (!runs && (e = readdir(dir)) != NULL) {
		char state;

		if (e->d_name[0] == '.')
			continue;
		known = add_children(l, dirfd(dir), e->d_name) || known;
		state = state_of(dirfd(dir), e->d_name);
		stopped = stopped || state == 'T';
		waits = waits || state == 'D';
		runs = state == 'R' && !is_pid1;
	}
	(void)closedir(dir);
	return is_pid1 ? known : !runs && (stopped || !waits);
}

static bool look(pid_t pid1)
{
	static struct look l; /* large: not for the stack */

	l.pid[0] = pid1;
	l.count = 1;
	l.cut = false;
	for (size_t i = 0; i < l.count; i++)
		if (!is_stopped(&l, l.pid[i], i == 0))
			return false;
	return !l.cut;
}

bool cb_jail_is_still(pid_t pid1, int ms)
{
	const struct timespec pause = { 0, 500000 };
	int64_t end = cb_now_ms() + ms;

	for (int clean = 0; clean < CLEAN_LOOKS;) {
		clean = look(pid1) ? clean + 1 : 0;
		if (clean == 0 && cb_now_ms() > end)
			return false;
		if (clean < CLEAN_LOOKS)
			(void)nanosleep(&pause, NULL);
	}
	return true;
}
