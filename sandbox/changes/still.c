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
#include <cellblock/folder.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
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
	uint64_t turns; /* that their threads have had on a processor, and one for each thread */
};
static struct look last; /* large: not for the stack */

static void add(void *context, pid_t pid)
{
	struct look *l = context;

	if (l->count < PROCESSES_MAX)
		l->pid[l->count++] = pid;
	else
		l->cut = true;
}

static uint64_t turns(const char *status)
{
	return 1 + cb_proc_number(status, "\nvoluntary_ctxt_switches:", 10, 0) +
	       cb_proc_number(status, "\nnonvoluntary_ctxt_switches:", 10, 0);
}

/* 'T' stopped or ended, 'D' it will stop if its process does, 'R' it runs or may at any time, 0 not there any more. */
static char state_of(int threads, const char *thread, uint64_t *turns_sum)
{
	char path[64], text[16384], state = '\0';
	const char *line;
	int r;

	snprintf(path, sizeof(path), "%.20s/status", thread);
	r = cb_proc_text(threads, path, text, sizeof(text));
	if (r < 0)
		return r == -ENOENT || r == -ESRCH ? '\0' : 'R';
	line = strstr(text, "\nState:\t"); /* in the name, which comes first, line ends are escaped */
	if (line != NULL)
		state = line[8];
	if (state != 'Z' && state != 'X') /* pid 1 may reap it at any time */
		*turns_sum += turns(text);
	if (state == 'D')
		return (cb_proc_pending(text) & STOP_BIT) != 0 ? 'T' : 'D';
	return state != '\0' && strchr("TtZX", state) != NULL ? 'T' : 'R';
}

/* Whether none of its threads runs; its children are looked at next. */
static bool is_stopped(struct look *l, pid_t pid, bool is_pid1)
{
	bool stopped = false, waits = false, runs = false, known = false;
	uint64_t unused = 0;
	const struct dirent *e;
	CB_AUTO_FOLDER dir = cb_proc_threads(pid);

	if (dir == NULL)
		return errno == ENOENT && !is_pid1;
	while (!runs && (e = cb_folder_next(dir)) != NULL) {
		char state;

		known = cb_proc_children(dirfd(dir), e->d_name, add, l) == 0 || known; /* a child is of one thread */
		state = state_of(dirfd(dir), e->d_name, is_pid1 ? &unused : &l->turns);
		stopped = stopped || state == 'T';
		waits = waits || state == 'D';
		runs = state == 'R' && !is_pid1;
	}
	if (!runs && errno != 0)
		return false;
	return is_pid1 ? known : !runs && (stopped || !waits);
}

static bool look(pid_t pid1)
{
	struct look *l = &last;

	l->pid[0] = pid1;
	l->count = 1;
	l->cut = false;
	l->turns = 0;
	for (size_t i = 0; i < l->count; i++)
		if (!is_stopped(l, l->pid[i], i == 0))
			return false;
	return !l->cut;
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

bool cb_jail_was_still(pid_t pid1)
{
	uint64_t before = last.turns;

	return look(pid1) && last.turns == before;
}
