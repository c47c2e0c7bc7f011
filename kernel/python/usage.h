/* What the jail has used, read by the supervisor from its control group, and from /proc where it has none: the guest's
 * own word counts for nothing. Trust domain: supervisor. */
#pragma once

#include <cellblock/sandbox.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CB_WAIT_SHARE 0.05 /* of one processor: less is a thread that looks now and then for work */

struct cb_usage {
	/* of the jail since its start; without cgroup of the guest and its reaped children */
	double cpu_user_s, cpu_sys_s;
	/* of the jail since cb_usage_begin; without cgroup of the guest's process, ever */
	uint64_t memory_peak_bytes;
	struct cb_oom_count oom; /* processes killed by the kernel for lack of memory; only with cgroup */
};

struct cb_usage_source {
	int stat, status, sched;   /* /proc/PID/…, kept open; -1 = none */
	pid_t init;		   /* the jail's pid 1 as we see it; 0 = unknown */
	pid_t broker;		   /* the parent of that, and of what serves the jail's calls; 0 = unknown */
	int cgroup[CB_USAGE_NFDS]; /* the broker's; -1 = none. What it has not reads as empty */
	uint64_t limit;		   /* of that group's memory */
};

#define CB_USAGE_SOURCE_NONE                                                                                           \
	((struct cb_usage_source){                                                                                     \
		.stat = -1, .status = -1, .sched = -1, .cgroup = { [0 ... CB_USAGE_NFDS - 1] = -1 } })

/* Takes the fds of `cgroup`. What can't be opened stays -1 and reads as 0. */
void cb_usage_open(struct cb_usage_source *s, pid_t pid, const int cgroup[CB_USAGE_NFDS]);
/* Another process is the guest now; the rest stays. */
void cb_usage_follow(struct cb_usage_source *s, pid_t pid);
/* Resets the peak where the kernel can. */
void cb_usage_begin(const struct cb_usage_source *s);
void cb_usage_close(struct cb_usage_source *s);
void cb_usage_read(const struct cb_usage_source *s, struct cb_usage *ret_usage);
/* CPU seconds of all processes in the jail: its control group's, else of those that live, the notifier among them, and
 * what the dead left to the parents that waited for them. Less than before when one died unwaited: callers add up what
 * it grows by. Looks at most at CB_USAGE_PROCESSES processes, and no longer than some ms. */
#define CB_USAGE_PROCESSES 2048
double cb_usage_jail_cpu(const struct cb_usage_source *s);
/* Seconds since the last call, of all processes in the jail. Where no control group counts, those of processes that
 * came and went unseen, and that nobody waited for, are in no file: such as are seen at work, and were not there the
 * last time, stand for them. All zero at first; `elapsed_s` since the last call. */
struct cb_usage_ledger {
	size_t count;
	struct cb_usage_process {
		pid_t pid;
		uint64_t start; /* ticks since boot: a number may be another's by now */
		double own, children; /* seconds */
		bool exiting;	      /* it runs no code any more */
	} seen[CB_USAGE_PROCESSES];
	double unseen; /* seconds more than were measured; negative = slack */
};
double cb_usage_advance(struct cb_usage_ledger *l, const struct cb_usage_source *s, double elapsed_s);
/* ns of processors that a process has had, ever, and those that descend from it, if that is asked. While they wait it
 * is the same to the ns. */
int64_t cb_usage_worked(pid_t pid, bool descendants);
/* Whether a control group counts it, so that nothing is lost between two looks. */
bool cb_usage_counts_cpu(const struct cb_usage_source *s);
/* The sum alone: `now` in place of what was seen, `at_work` processors that new ones of them use. */
double cb_usage_ledger_add(struct cb_usage_ledger *l, const struct cb_usage_process *now, size_t count, double at_work,
			   double elapsed_s);
/* Bytes of a process that are its own or a copy's (resident, not of files); 0 if it can't be read. */
uint64_t cb_usage_of(pid_t pid);
/* What it has used of processors; false if it can't be read. */
bool cb_usage_process(pid_t pid, struct cb_usage_process *ret);
/* Whether it ends or is gone, or a thread of it, but for the first one, has a processor or waits for one. */
bool cb_usage_threads_at_work(pid_t pid);
/* The sum of bytes over a process and what descends from it; UINT64_MAX if they were too many to look at. */
uint64_t cb_usage_tree(pid_t top);
/* Bytes of the process in the jail that has most memory of its own (resident, not of files); UINT64_MAX if they were
 * too many to look at. */
uint64_t cb_usage_largest(const struct cb_usage_source *s);
/* What the jail's control group counts: bytes without files that the kernel can drop (that is looked up only from
 * `enough` on), and of these those of no file. False if there is no group. */
bool cb_usage_memory(const struct cb_usage_source *s, uint64_t enough, uint64_t *ret_used, uint64_t *ret_anonymous);
/* Sum of the anonymous bytes of all processes in the jail but those: what several share counts for each; and what the
 * one has that has most (or NULL). Both UINT64_MAX if they were too many to look at. */
uint64_t cb_usage_anonymous(const struct cb_usage_source *s, const pid_t *without, size_t n, uint64_t *ret_largest);
uint64_t cb_usage_anonymous_of(pid_t pid);
/* Minor page faults of the guest's process, ever, and its seconds in the kernel. */
uint64_t cb_usage_faults(const struct cb_usage_source *s, double *ret_sys_s);
/* Its main thread's turns; all 0 where the kernel does not count them. */
struct cb_turns {
	double ran_s;	 /* exact while it sleeps; else as of the last tick */
	double waited_s; /* it was ready, but others ran */
};
struct cb_turns cb_usage_turns(const struct cb_usage_source *s);
/* The parsers alone, for text as /proc gives it (NUL-terminated). */
struct cb_turns cb_usage_parse_turns(const char *text);
uint64_t cb_usage_parse_own(const char *text);
uint64_t cb_usage_parse_peak(const char *text);
/* cpu.stat (version 2) or cpuacct.stat (version 1); false if it is neither. */
bool cb_usage_parse_cpu(const char *text, double *ret_user_s, double *ret_sys_s);
