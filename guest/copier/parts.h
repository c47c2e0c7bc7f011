/* What the files of the copier have in common. Trust domain: guest. See copier.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CB_COPIER_THREADS_MAX 1024
#define CB_COPIER_FDS_MAX 16384
#define CB_COPIER_WATCHED_MAX 16384 /* by all epolls together */
#define CB_COPIER_LISTENERS_MAX 64
#define CB_COPIER_LOOPS_MAX 1024

/* ---- threads.c ---- */
/* Stops all threads but this one. 0; -ETIMEDOUT: not all stopped in time, and all go on; or another negative errno. */
int cb_threads_stop(void);
/* Those that stand still go on. */
void cb_threads_go_on(void);
/* In a copy: a thread for each that was stopped. When all are there, those go on that were busy: they may hold locks.
 * 0 or a negative errno: not all of them. */
int cb_threads_revive(void);
/* And then those that waited in a system call. */
void cb_threads_all_go_on(void);
/* Of number i: the id that it had, and the one that it has (0 = it ended before). False: there are fewer. */
bool cb_threads_ids(long i, int *ret_old, int *ret_new);
/* In a copy: the C library knows this thread by its new number, which is the process's. */
void cb_threads_restore_own(void);
/* The same in the copy of a process that shared the original's memory: such a one has lost more. */
void cb_threads_restore_all_own(void);

/* ---- loops.c ---- */
/* Before any thread stops: where asyncio has noted that a loop runs. `how`: by enum cb_copier_loop_field. 0, or -E2BIG:
 * too many do. */
int cb_loops_note(const int64_t *how);
/* In a copy, before any thread goes on: they run here. */
void cb_loops_mark(void);

/* ---- pages.c ---- */
/* Before a copy is made, which may copy as many bytes of large memory; negative: nobody is to. */
void cb_pages_look(int64_t room);
/* In the original, after that. */
void cb_pages_get(void);
/* In the original, when nothing else is to be done, without the interpreter's lock: whether there is something to put
 * into huge pages, and some of it. */
bool cb_pages_untidy(void);
void cb_pages_tidy(void);
/* In a frozen copy, again and again while it waits: 2 MiB each time. False: there is no more to do. */
bool cb_pages_copy(void);
/* In a copy of that. */
void cb_pages_copy_nothing(void);

/* ---- descriptors.c ---- */
/* While nothing runs: what is open, but for the `nfds` of a birth. `pairs`: both ends of socket pairs, by twos. 0 or a
 * negative errno. */
int cb_descriptors_note(const int *pairs, size_t n, const int *fds, size_t nfds);
/* In a copy: what is not to be shared is made anew. fds: of its birth, without or with a side wire, which is not put in
 * its place: *ret_side, or -1. */
int cb_descriptors_exchange(const int *fds, size_t n, int *ret_side);
/* In a woken one, before a thread can see that its sockets do not listen. branch: they get no address. */
void cb_descriptors_listen(bool branch);
/* In a woken one, before a thread reads or writes on: where files stood, and the working folder. branch: they are
 * opened anew, for another line of the session uses them. */
void cb_descriptors_back(bool branch);
size_t cb_descriptors_sockets(void); /* that are cut off */
/* In a woken one: bytes that waited in a pipe. */
int cb_descriptors_waited(int fd);
