/* The memory of a jail that no control group bounds, measured from outside.
 *
 * Trust domain: broker, outside. The sum is that of the jail's own anonymous memory, of what its folders in memory
 * hold, of shared memory without a file, and of what the kernel keeps for it (kernel_memory.c); pages that processes
 * share count once. It is taken in two steps: resident sizes, which are cheap and count too much, and only if those are
 * over the limit the kernel's exact shares. These can be made slow from inside, by very many mappings: when the time
 * for a look is over, what was not looked at counts with its resident size, so that a jail can't hide by being hard to
 * measure. Memory that
 * nothing maps and no folder shows (memfd, System V segments) can't be seen: those calls are absent in a jail without
 * control group.
 *
 * Over its limit a jail is killed; at once, or where somebody may bring it below by ending less (a twin takes over, or
 * is given up) after some time, and sooner if it grows on; what it was over is forgiven only by as much time below, so
 * that to dip is no way to stay over. Where only what the killed still hold is over it, they have that time once more,
 * and for some seconds nobody who lives is to give way: or a bomb that was ended would cost the next cell.
 */
#include "watchdog.h"

#include "guard.h"
#include "kernel_memory.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/host_memory.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PROCESSES_MAX CB_KERNEL_PROCESSES
#define PLACES (2 * PROCESSES_MAX)
#define PASSES 4      /* over all lists of children, at most */
#define AGAIN_MAX 8192 /* files of lists that are read once more in a walk, about: a thread has one */
#define LIST_LOOKS 256 /* at one list, as long as it shows somebody new; at most */
#define FLIGHT_MOST 768	   /* where 1,024 open files are usual */
#define FLIGHT_LOOKS 10	   /* a busy machine may keep pid 1 from reading what it is sent for some of them */
#define THREAD_BYTES 24576 /* its stack in the kernel, and the rest that the kernel keeps of it; about */
#define THREAD_LOOKS 64 /* at the threads of one whose first has ended, at most */
#define CALM_LOOKS 4	/* in which nothing new is seen */
#define STATUS_MAX (1u << 20) /* bytes; who is in 65,536 groups, which come first, fills most of it */
#define THREADS_MAX 256
#define HIDDEN_BYTES (1ULL << 40) /* who can't be measured is over every limit */
#define SPARSE_BYTES (16 << 20)
#define SPARSE_SHARE 64	 /* one part in 512 is what full tables take */
#define INODE_BYTES 1024 /* of a file in memory, beside its content; about */
#define INTERVAL_MS 100
#define OVER_INTERVAL_MS 20
#define DYING_MS 3000		   /* who kills without end is to blame himself */
#define OVER_GROWTH(limit) (limit) /* at most, in the time that it may be over */
#define BUDGET_MS 500		   /* of processor time for one look */
#define BUDGET_SHORT_MS 25	   /* if it is below its limit in any case, or above it by what was seen so far */
#define WALL_FACTOR 4		   /* of the clock's time */
#define BUDGET_KERNEL_MS 1000	   /* of processor time for what the kernel holds */
#define LOOK_MOST_S 20 /* of the clock's, which leaves a look on the busiest machine time to end */
#define KERNEL_INTERVAL_MS 250
#define FLIGHT_BUDGET_MS 100 /* of processor time for one look at descriptors; FLIGHT_LOOKS of them end a jail */
#define STALE_MS 20	   /* who was found that long ago is looked for again */
#define KERNEL_SHARE 20	 /* at most one part in so many for that */
#define INTERVAL_SHARE 5 /* at most one part in so many of a processor's time */

static struct cb_guard guard = { .tick_ms = 1000, .most = LOOK_MOST_S };

struct family {
	pid_t number[PROCESSES_MAX]; /* as lists show it; while they are gone through */
	pid_t pid[PROCESSES_MAX];    /* that, or a living thread's */
	uint64_t most[PROCESSES_MAX];	/* what a process can count for, at most */
	uint64_t tables[PROCESSES_MAX]; /* and what the kernel keeps of it */
	bool sparse[PROCESSES_MAX];	/* its page tables are out of proportion to what it holds: see is_sparse() */
	bool dying[PROCESSES_MAX];
	bool lives[PROCESSES_MAX];
	uint16_t place[PLACES]; /* where it is noted, and one; 0 = free */
	size_t count;
	size_t again; /* files of lists that were read once more */
	bool hidden;  /* there may be others */
};

/* When a look must come to its end. */
struct end {
	int64_t wall, cpu; /* ms; a machine that is busy with others does not count as hard to measure so soon */
};

static int64_t cpu_ms(void)
{
	return cb_now_thread_ns() / 1000000;
}

static struct end end_of(int budget_ms)
{
	return (struct end){ cb_now_ms() + (int64_t)budget_ms * WALL_FACTOR, cpu_ms() + budget_ms };
}

static bool is_late(const struct end *end)
{
	return cpu_ms() >= end->cpu || cb_now_ms() >= end->wall;
}

/* ---- figures ---- */

/* What failed to be read: it is no more. All else is no answer, which a jail may have brought about. */
static bool is_gone(int code)
{
	return code == -ENOENT || code == -ESRCH;
}

/* Nobody's processes are shown to others on a host with hidepid=1, and pid 1 is not ours to look into: there nothing
 * can be measured. */
static bool is_hidden_by_host(bool is_pid1, int code)
{
	return is_pid1 && (code == -EPERM || code == -EACCES);
}

static bool has_memory(const char *status)
{
	return strstr(status, "\nVmRSS:") != NULL;
}

static uint64_t threads_in(const char *status)
{
	return cb_proc_number(status, "\nThreads:", 10, 0);
}

struct threads {
	pid_t list[THREADS_MAX]; /* the oldest first */
	size_t count;
	bool cut; /* not all could be looked at */
};

/* One that has memory; 0 = none that was seen. */
static pid_t look_at_threads(pid_t pid, char *ret_status, size_t size, struct threads *ret)
{
	CB_AUTO_FOLDER threads = cb_proc_threads(pid);
	const struct dirent *entry;
	pid_t found = 0;

	ret->count = 0;
	ret->cut = threads == NULL && !is_gone(-errno);
	while (found == 0 && (entry = cb_folder_next(threads)) != NULL) {
		pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
		int code;

		if (ret->count < THREADS_MAX)
			ret->list[ret->count++] = thread;
		code = cb_proc_status_of(thread, ret_status, size);
		if (code == 0 && has_memory(ret_status))
			found = thread;
		ret->cut = ret->cut || (code < 0 && !is_gone(code));
	}
	ret->cut = ret->cut || (found == 0 && errno != 0);
	return found;
}

/* In who only ends none begins. */
static bool has_new(const struct threads *now, const struct threads *before)
{
	size_t i = 0;

	if (now->count == 0)
		return false;
	while (i < before->count && before->list[i] != now->list[now->count - 1])
		i++;
	return i == before->count;
}

/* A process whose first thread has ended goes on in the others; all that /proc shows of it is shown of them. 0: it has
 * no memory any more, and no new threads come; a list counts for that if it is whole, which one that ends can keep it
 * from. -1: they come and end faster than they can be looked at. */
static pid_t living_thread(pid_t pid, char *ret_status, size_t size)
{
	struct threads threads[2] = { { .count = 0 }, { .count = 0 } };
	int calm = 0;

	for (int i = 0; i < THREAD_LOOKS && calm < CALM_LOOKS; i++) {
		struct threads *now = &threads[i % 2];
		pid_t found = look_at_threads(pid, ret_status, size, now);
		int code = found == 0 ? cb_proc_status_of(pid, ret_status, size) : 0;
		bool whole;

		if (found != 0)
			return found;
		if (code < 0)
			return is_gone(code) ? 0 : -1;
		whole = !now->cut && (now->count == THREADS_MAX || now->count >= threads_in(ret_status));
		calm = whole && !has_new(now, &threads[(i + 1) % 2]) ? calm + 1 : 0;
	}
	return calm == CALM_LOOKS ? 0 : -1;
}

/* Killed, and not yet at its end: on a busy machine that takes its time. */
static bool is_dying(const char *status)
{
	return (cb_proc_pending(status) & 1ULL << (SIGKILL - 1)) != 0;
}

/* Its resident memory but for files', and what the kernel keeps of it: page tables and threads. False if it has given
 * back its memory, all of it: then it is ending, and what else it holds goes next. */
static bool resident(bool is_pid1, pid_t *pid, uint64_t *ret_pages, uint64_t *ret_tables, bool *ret_dying)
{
	static char text[STATUS_MAX]; /* large: not for the stack */
	int code = cb_proc_status_of(*pid, text, sizeof(text));

	if (code < 0) {
		*ret_pages = is_gone(code) || is_hidden_by_host(is_pid1, code) ? 0 : HIDDEN_BYTES;
		return !is_gone(code);
	}
	if (!has_memory(text)) {
		pid_t thread = threads_in(text) > 1 ? living_thread(*pid, text, sizeof(text)) : 0;

		if (thread < 0)
			*ret_pages = HIDDEN_BYTES;
		if (thread <= 0)
			return thread < 0;
		*pid = thread;
	}
	*ret_dying = is_dying(text);
	*ret_pages = cb_proc_bytes(text, "\nRssAnon:") + cb_proc_bytes(text, "\nRssShmem:") +
		     cb_proc_bytes(text, "\nVmSwap:");
	*ret_tables = cb_proc_bytes(text, "\nVmPTE:") + threads_in(text) * THREAD_BYTES;
	return true;
}

/* Tables of pages that were only looked at. The kernel goes through all of them in one read, which takes seconds of
 * which the process makes use; what it holds is little beside them, and counts as it is. */
static bool is_sparse(uint64_t pages, uint64_t tables)
{
	return tables > SPARSE_BYTES && tables > pages / SPARSE_SHARE;
}

/* ---- who is in the jail: all that descend from pid 1, since orphans become its children ----
 *
 * The lists change while they are read: a process can hand on what it has to a child, and end. So who is new is looked
 * at as soon as his list was read, and a list that showed somebody new is read again, behind those below it. Children
 * of who ends only go up, to who was found before: so the lists are read from the last to the first, again until there
 * is nobody new. Not for ever: who starts processes all the time is at no fault. But where each time that pid 1's list
 * was read somebody had ended before he could be looked at, there may be one who is never seen. */

static void meet(void *context, pid_t pid)
{
	struct family *f = context;
	size_t at = (size_t)pid % PLACES;

	while (f->place[at] != 0 && f->number[f->place[at] - 1] != pid)
		at = (at + 1) % PLACES;
	if (f->place[at] != 0)
		return;
	if (f->count == PROCESSES_MAX) {
		f->hidden = true;
		return;
	}
	f->number[f->count] = pid;
	f->place[at] = (uint16_t)++f->count;
}

static void look_at(struct family *f, size_t i)
{
	f->pid[i] = f->number[i];
	f->most[i] = f->tables[i] = 0;
	f->dying[i] = false;
	f->lives[i] = resident(i == 0, &f->pid[i], &f->most[i], &f->tables[i], &f->dying[i]);
	f->sparse[i] = is_sparse(f->most[i], f->tables[i]);
}

/* Of one thread: a kernel may have no such files. */
static void add_children(struct family *f, int threads, const char *thread)
{
	size_t next = f->count;
	int r = cb_proc_children(threads, thread, meet, f);

	f->hidden = f->hidden || (r < 0 && !is_gone(r));
	for (; next < f->count; next++)
		look_at(f, next);
}

/* A child belongs to the thread that made it. */
static void add_children_of(struct family *f, size_t i, bool again)
{
	CB_AUTO_FOLDER threads = cb_proc_threads(f->number[i]);
	const struct dirent *entry;

	if (threads == NULL) {
		f->hidden = f->hidden || !(is_gone(-errno) || is_hidden_by_host(i == 0, -errno));
		f->lives[i] = f->lives[i] && !is_gone(-errno);
		return;
	}
	while ((entry = cb_folder_next(threads)) != NULL) {
		add_children(f, dirfd(threads), entry->d_name);
		f->again += again;
	}
	f->hidden = f->hidden || (errno != 0 && !is_gone(-errno));
}

/* The jail says how dear a list is, by its threads: who makes it long is not let to keep us here. */
static void add_all_below(struct family *f, size_t i, bool again)
{
	bool ended = true;
	int n = 0;

	do {
		size_t first = f->count;
		bool one = false;

		add_children_of(f, i, again || n > 0);
		for (size_t k = first; k < f->count; k++)
			add_children_of(f, k, false);
		if (f->count == first)
			return;
		for (size_t k = first; k < f->count; k++)
			one = one || !f->lives[k];
		ended = ended && one;
	} while (++n < LIST_LOOKS && (i == 0 || f->again < AGAIN_MAX)); /* pid 1 has one thread */
	/* Of pid 1's children alone: who hands himself on is one as soon as his parent has ended, while others start
	 * and end children of their own. */
	f->hidden = f->hidden || (ended && i == 0);
}

/* Who has ended has given back all; but for pid 1. */
static void forget_the_dead(struct family *f)
{
	size_t count = 1;

	for (size_t i = 1; i < f->count; i++) {
		if (!f->lives[i])
			continue;
		f->pid[count] = f->pid[i];
		f->most[count] = f->most[i];
		f->tables[count] = f->tables[i];
		f->dying[count] = f->dying[i];
		f->sparse[count++] = f->sparse[i];
	}
	f->count = count;
}

static struct family *find_family(pid_t pid1)
{
	static struct family f; /* large: not for the stack */
	size_t known = 0;

	memset(f.place, 0, sizeof(f.place));
	f.count = 0;
	f.hidden = false;
	f.again = 0;
	meet(&f, pid1);
	look_at(&f, 0);
	for (int pass = 0; f.count > known && pass < PASSES; pass++) {
		known = f.count;
		for (size_t i = known; i-- > 0;)
			add_all_below(&f, i, pass > 0);
	}
	forget_the_dead(&f);
	return &f;
}

/* Its share of anonymous memory, swapped or not; false where the kernel does not say. */
static bool anonymous(pid_t pid, uint64_t *ret_anonymous, uint64_t *ret_shared)
{
	char path[64], text[4096];

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	if (cb_proc_text(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	*ret_anonymous = cb_proc_bytes(text, "\nPss_Anon:") + cb_proc_bytes(text, "\nSwapPss:");
	*ret_shared = cb_proc_bytes(text, "\nPss_Shmem:");
	return true;
}

static bool read_unnamed(FILE *smaps, const struct end *end, uint64_t *ret_sum)
{
	char line[512];
	bool counts = false;
	uint64_t sum = 0;

	for (unsigned n = 1; fgets(line, sizeof(line), smaps) != NULL; n++) {
		const char *name = strpbrk(line, "/["); /* of a file, or in brackets */

		if (n % 4096 == 0 && is_late(end))
			return false;

		if (strchr("0123456789abcdef", line[0]) !=
		    NULL) /* a mapping's head line; others begin with a capital */
			counts = name != NULL && (strncmp(name, "/dev/zero (deleted)", 19) == 0 ||
						  strncmp(name, "/SYSV", 5) == 0 ||
						  strncmp(name, "[anon_shmem:", 12) == 0);
		else if (counts && strncmp(line, "Pss:", 4) == 0)
			sum += strtoull(line + 4, NULL, 10) * 1024;
	}
	*ret_sum = sum;
	return true;
}

uint64_t cb_watchdog_unnamed(FILE *smaps)
{
	const struct end never = { INT64_MAX, INT64_MAX };
	uint64_t sum = 0;

	(void)read_unnamed(smaps, &never, &sum);
	return sum;
}

/* Shared memory that no folder holds: files' is counted there. `most` if that can't be told in time. */
static uint64_t unnamed_shared(pid_t pid, const struct end *end, uint64_t most)
{
	char path[64];
	FILE *file = NULL;
	uint64_t sum = 0;

	if (is_late(end))
		return most;
	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	file = fopen(path, "re");
	if (file == NULL)
		return most;
	if (!read_unnamed(file, end, &sum))
		sum = most;
	(void)fclose(file);
	return sum;
}

static uint64_t held(const struct statvfs *st)
{
	uint64_t blocks = st->f_blocks > st->f_bfree ? st->f_blocks - st->f_bfree : 0;
	uint64_t inodes = st->f_files > st->f_ffree ? st->f_files - st->f_ffree : 0;

	return blocks * st->f_frsize + inodes * INODE_BYTES;
}

/* Bytes that the jail's folders in memory and the upper layers of its overlays hold. */
static uint64_t in_folders(const struct family *f, const struct cb_jail *jail)
{
	const char *workspace = jail->spec->workspace_mode == CB_WORKSPACE_TMPFS ? jail->spec->workspace_target : NULL;
	const char *const folders[] = { "/tmp", "/dev/shm", CB_JAIL_HOME, workspace };
	struct statvfs st;
	uint64_t sum = 0;
	size_t who = 1;

	/* without namespaces these are the host's own */
	for (size_t i = 0; i < CB_COUNT(folders) && !jail->without_namespaces; i++) {
		char path[PATH_MAX + 64];

		if (folders[i] == NULL || cb_jail_is_bound(jail->spec, folders[i])) /* those hold others', too */
			continue;
		for (; who < f->count; who++) { /* pid 1's can't be seen, nor those of the dead */
			snprintf(path, sizeof(path), "/proc/%d/root%s", (int)f->pid[who], folders[i]);
			if (statvfs(path, &st) == 0) {
				sum += held(&st);
				break;
			}
		}
	}
	for (size_t i = 0; i < CB_UPPERS; i++)
		if (jail->upper_fd[i] >= 0 && fstatvfs(jail->upper_fd[i], &st) == 0)
			sum += held(&st);
	return sum;
}

/* *ret_missed: somebody could not be looked at, though there was time. */
static struct cb_memory measure(struct family *f, const struct cb_jail *jail, int budget_ms, uint64_t kernel,
				uint64_t enough, bool *ret_missed)
{
	uint64_t rough = kernel + (f->hidden ? HIDDEN_BYTES : 0), sum = rough, shared = 0, anon = 0, folders;
	uint64_t limit = jail->spec->limit_memory, dying = 0;
	bool late = false;
	struct end soon, end;

	*ret_missed = f->hidden;
	for (size_t i = 0; i < f->count; i++) {
		rough += f->most[i] + f->tables[i];
		sum += f->tables[i];
		dying += f->dying[i] ? f->tables[i] : 0;
	}
	folders = in_folders(f, jail); /* a thread shows them whose process's first one has ended */
	rough += folders;
	sum += folders;
	if (rough <= enough)
		return (struct cb_memory){ .rough = rough, .bytes = rough };
	soon = end_of(budget_ms < BUDGET_SHORT_MS ? budget_ms : BUDGET_SHORT_MS);
	end = rough <= limit ? soon : end_of(budget_ms);
	/* without pid 1: it is small, and may not be looked into */
	for (size_t i = 1; i < f->count && !(sum > limit && is_late(&soon)); i++) {
		uint64_t own = 0, common = 0;

		late = late || is_late(&end);
		if (late || f->sparse[i]) {
			own = f->most[i];
		} else if (!anonymous(f->pid[i], &own, &common)) {
			own = f->most[i];
			*ret_missed = true;
		}
		sum += own;
		anon += own;
		dying += f->dying[i] ? own : 0;
		f->most[i] = common;
		shared += common;
	}
	if (sum + shared <= limit)
		sum += shared;
	else if (sum <= limit)
		for (size_t i = 1; i < f->count; i++)
			sum += f->sparse[i] ? 0 : unnamed_shared(f->pid[i], &end, f->most[i]);
	return (struct cb_memory){ rough, sum, late ? 0 : anon, dying };
}

/* `f`: who was found just now. */
static struct cb_memory measure_found(struct family *f, const struct cb_inmate *inmate, const struct cb_jail *jail,
				      int budget_ms, uint64_t kernel, uint64_t enough)
{
	bool missed = false;
	struct cb_memory m = measure(f, jail, budget_ms, kernel, enough, &missed);

	/* who ended between the steps counted with all that it could see: by now it is gone, or is to count so */
	return missed && m.bytes > jail->spec->limit_memory
		       ? measure(find_family(inmate->pid1), jail, budget_ms, kernel, enough, &missed)
		       : m;
}

struct cb_memory cb_watchdog_measure(const struct cb_inmate *inmate, const struct cb_jail *jail, int budget_ms,
				     uint64_t kernel, uint64_t enough)
{
	return measure_found(find_family(inmate->pid1), inmate, jail, budget_ms, kernel, enough);
}

static bool is_kernel_late(const void *end)
{
	return cpu_ms() >= *(const int64_t *)end;
}

static struct cb_kernel_look kernel_look(const struct family *f, const struct cb_inmate *inmate,
					 const struct cb_jail *jail, const int64_t *end)
{
	return (struct cb_kernel_look){
		.pid = f->pid,
		.count = f->count,
		.guest = inmate->guest,
		.sockets = inmate->sockets,
		.own_network = jail->spec->network != CB_NETWORK_FULL && !jail->without_namespaces,
		.registry = inmate->registry,
		.open_files = jail->spec->limit_open_files,
		.is_late = is_kernel_late,
		.end = end,
	};
}

/* As often as it is cheap, and oftener if it is much. False: the last look still counts. */
static bool look_at_kernel(struct cb_watchdog *w, const struct family *f, const struct cb_inmate *inmate,
			   const struct cb_jail *jail)
{
	int64_t start = cb_now_ms(), began = cpu_ms(), end = began + BUDGET_KERNEL_MS, rest;
	struct cb_kernel_look how = kernel_look(f, inmate, jail, &end);

	if (start < w->kernel_ms)
		return false;
	how.longest = &w->longest;
	w->kernel = cb_kernel_memory(&how);
	rest = (cpu_ms() - began) * KERNEL_SHARE;
	if (w->kernel > jail->spec->limit_memory / 8)
		rest += INTERVAL_MS;
	else
		rest += KERNEL_INTERVAL_MS;
	w->kernel_ms = cb_now_ms() + rest;
	return true;
}

/* What the kernel held may have gone with who was ended: nobody else ends for it. */
static struct cb_memory look_at_all(struct cb_watchdog *w, const struct cb_inmate *inmate, const struct cb_jail *jail,
				    uint64_t enough)
{
	uint64_t limit = jail->spec->limit_memory;
	int64_t start = cb_now_ms();
	struct family *f = find_family(inmate->pid1);
	bool fresh = look_at_kernel(w, f, inmate, jail);

	if (cb_now_ms() - start > STALE_MS)
		f = find_family(inmate->pid1);
	struct cb_memory m = measure_found(f, inmate, jail, BUDGET_MS, w->kernel, enough);

	if (fresh || m.bytes <= limit || m.bytes - w->kernel > limit)
		return m;
	w->kernel_ms = 0;
	(void)look_at_kernel(w, find_family(inmate->pid1), inmate, jail);
	return cb_watchdog_measure(inmate, jail, BUDGET_MS, w->kernel, enough);
}

/* Whose end is the end of all that may keep a look waiting. */
static int who_ends(const struct cb_inmate *inmate, const struct cb_jail *jail)
{
	return jail->without_namespaces ? CB_GUARD_ENDS_US : inmate->pidfd;
}

enum cb_watchdog_says cb_watchdog_look(struct cb_watchdog *w, const struct cb_inmate *inmate,
				       const struct cb_jail *jail, int grace_ms)
{
	uint64_t limit = jail->spec->limit_memory, enough = CB_MEMORY_SHORT(limit), living;
	int64_t start = cb_now_ms(), began = cpu_ms(), end, rest, until;

	if (w->over > 0 || start < w->next_ms)
		return CB_WATCHDOG_FINE;
	if (cb_host_memory_short())
		enough = 0;
	w->began_ms = start;
	cb_guard_begin(&guard, who_ends(inmate, jail));
	w->now = look_at_all(w, inmate, jail, start < w->exact_ms ? limit : enough);
	if (cb_guard_end(&guard)) { /* nobody knows how much it was */
		w->is_kept_waiting = true;
		w->over = w->now.bytes > limit ? w->now.bytes : limit + 1;
		return CB_WATCHDOG_KILL;
	}
	living = w->now.bytes - w->now.dying;
	end = cb_now_ms();
	rest = (cpu_ms() - began) * INTERVAL_SHARE; /* not of the clock's: a jail can keep processors busy */
	w->next_ms = end + INTERVAL_MS + (w->now.rough > limit ? rest : 0);
	if (w->now.rough > enough && start >= w->exact_ms)
		w->exact_ms = end + INTERVAL_MS + rest;
	if (w->now.bytes <= limit) {
		if (w->until_ms != 0)
			w->until_ms += 2 * (end - w->looked_ms);
		if (w->until_ms >= end + grace_ms)
			w->until_ms = w->dying_ms = 0;
		w->looked_ms = end;
		return living > enough && w->now.anonymous > 0 ? CB_WATCHDOG_SHORT : CB_WATCHDOG_FINE;
	}
	w->looked_ms = end;
	if (w->until_ms == 0) {
		w->until_ms = end + grace_ms;
		w->most = w->now.bytes + OVER_GROWTH(limit);
	}
	if (living > limit)
		w->dying_ms = 0;
	else if (w->dying_ms == 0)
		w->dying_ms = end;
	until = w->dying_ms == 0 || w->until_ms > w->dying_ms + grace_ms ? w->until_ms : w->dying_ms + grace_ms;
	if (end >= until || w->now.bytes > w->most) {
		w->over = w->now.bytes;
		return CB_WATCHDOG_KILL;
	}
	w->next_ms = end + OVER_INTERVAL_MS + (end - start);
	return w->dying_ms == 0 || end - w->dying_ms >= DYING_MS ? CB_WATCHDOG_SHORT : CB_WATCHDOG_FINE;
}

/* The kernel refuses to send one more to whom the user's total is over his own limit of open files. */
static bool is_refused(rlim_t limit)
{
	struct rlimit files, low;
	char byte = 0;
	int pair[2];
	bool refused;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	CB_AUTO_FD a = pair[0];
	CB_AUTO_FD b = pair[1];

	low = (struct rlimit){ limit < files.rlim_max ? limit : files.rlim_max, files.rlim_max };
	(void)setrlimit(RLIMIT_NOFILE, &low);
	refused = cb_fd_send(a, &byte, 1, &b, 1) == -ETOOMANYREFS;
	(void)setrlimit(RLIMIT_NOFILE, &files);
	return refused;
}

/* While passing any is refused; else they are others'. */
static enum cb_kernel_flight look_at_flight(const struct cb_inmate *inmate, const struct cb_jail *jail)
{
	struct cb_kernel_look how;
	int64_t end;

	if (!is_refused(FLIGHT_MOST))
		return CB_FLIGHT_FEW;
	end = cpu_ms() + FLIGHT_BUDGET_MS;
	how = kernel_look(find_family(inmate->pid1), inmate, jail, &end);
	return cb_kernel_in_flight(&how);
}

bool cb_watchdog_in_flight(struct cb_flight *flight, const struct cb_inmate *inmate, const struct cb_jail *jail)
{
	enum cb_kernel_flight found;

	if (jail->from_root || cb_now_ms() < flight->next_ms) /* a leased uid has no other programs */
		return false;
	flight->next_ms = cb_now_ms() + CB_FLIGHT_MS;
	cb_guard_begin(&guard, who_ends(inmate, jail));
	found = look_at_flight(inmate, jail);
	if (cb_guard_end(&guard))
		return true;
	switch (found) {
	case CB_FLIGHT_MANY:
		return true;
	case CB_FLIGHT_UNSEEN:
		return ++flight->unseen >= FLIGHT_LOOKS;
	case CB_FLIGHT_FEW:
		flight->unseen -= flight->unseen > 0;
		break;
	}
	return false;
}

int cb_watchdog_wait(const struct cb_watchdog *w)
{
	int64_t left = w->next_ms - cb_now_ms();

	return left <= 0 ? 1 : left > INTERVAL_MS * 100 ? INTERVAL_MS * 100 : (int)left + 1;
}
