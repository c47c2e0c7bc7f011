/* What /proc says of a process: stat, which threads have too, status, and children. See base/proc_stat.c. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cb_proc_stat {
	char state; /* R: it has a processor or waits for one */
	pid_t parent;
	bool exiting;					    /* it runs no code any more */
	bool forked;					    /* and has run no program since */
	uint64_t minor_faults;				    /* page faults that read nothing */
	uint64_t user_us, system_us;			    /* what it has used of processors */
	uint64_t children_user_us, children_system_us; /* and those that it has waited for */
	uint64_t threads;
	uint64_t start; /* when it began, in clock ticks since boot */
	uint64_t resident_bytes;
};

/* 0, or -EBADMSG: it is no such text, and *ret is as it was. */
int cb_proc_stat_parse(const char *text, struct cb_proc_stat *ret);
/* A file, by its path below `dir` (AT_FDCWD for a whole path). -errno; -ESRCH: it ended meanwhile. */
int cb_proc_stat_read(int dir, const char *path, struct cb_proc_stat *ret);
int cb_proc_stat_of(pid_t pid, struct cb_proc_stat *ret);
/* Whether /proc shows the process's children: not on a host that hides processes (hidepid), unless we may look into
 * it, nor on a kernel without CONFIG_PROC_CHILDREN, where our own are not shown either. 0, or -errno. */
int cb_proc_shows_children(pid_t pid);
/* A small file of the kernel's as text, cut at the size; "" with an error: -errno; -ESRCH: there is nothing in it. */
int cb_proc_text(int dir, const char *path, char *ret_text, size_t size);
/* /proc/PID/status as text, cut at the size; "" with an error. All groups of a user come before the memory. */
int cb_proc_status_of(pid_t pid, char *ret_text, size_t size);
/* In such a text the number behind a key as "\nTgid:": with the newline no process's name can be taken for it.
 * 0 where no digits follow; spaces and line ends before them are passed over. */
uint64_t cb_proc_number(const char *text, const char *key, int base, uint64_t missing);
uint64_t cb_proc_bytes(const char *text, const char *key); /* "KEY   12 kB"; 0 if it is not there */
uint64_t cb_proc_pending(const char *status);		   /* signals that wait for it, as a mask */
/* /proc/PID/task, for cb_folder_next. NULL and errno on failure. */
DIR *cb_proc_threads(pid_t pid);
/* The children of one thread: those that it has made. `threads` is the folder /proc/PID/task. -errno: the kernel does
 * not say, or not all. */
int cb_proc_children(int threads, const char *thread, void (*each)(void *context, pid_t pid), void *context);
/* The children of a process, of all its threads; of those that end meanwhile the next look finds them elsewhere. Who
 * has many threads is not read on when cb_now_thread_ns() is `until` (0 = no limit): -ETIMEDOUT. Only 0 means that
 * these are all; -ENOENT, too, where the kernel shows no such lists. */
int cb_proc_children_of(pid_t pid, int64_t until, void (*each)(void *context, pid_t pid), void *context);
