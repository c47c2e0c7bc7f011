/* The copier: a shared library for the guest, by which the process is copied with all its threads. See copier.c.
 *
 * Called from Python with the interpreter's lock held, from the main thread, with signals blocked; it needs no C
 * library, and of Python what loops.c is told. All numbers are int64_t, so that one array of them carries all.
 */
#pragma once

#include <cellblock/warm.h>
#include <stdint.h>

/* Of Python until 3.11: addresses of PyInterpreterState_ThreadHead, PyThreadState_Next, _PyThreadState_GetDict,
 * PyDict_GetItem and of the interpreter; the key of a thread's loop in that dict, and where in what is there the
 * process's number stands. */
enum cb_copier_loop_field {
	CB_COPIER_LOOP_FIRST,
	CB_COPIER_LOOP_NEXT,
	CB_COPIER_LOOP_DICT,
	CB_COPIER_LOOP_ITEM,
	CB_COPIER_LOOP_INTERPRETER,
	CB_COPIER_LOOP_KEY,
	CB_COPIER_LOOP_OFFSET,
	CB_COPIER_LOOP_FIELDS
};

enum cb_copier_field {
	/* in */
	CB_COPIER_NUMBER,		      /* of the twin */
	CB_COPIER_NFDS,			      /* of its birth: 4, or 5 with a side wire */
	CB_COPIER_FDS,			      /* 5 of them, none below the guest's own */
	CB_COPIER_NPAIRS = CB_COPIER_FDS + 5, /* ends of socket pairs that are to be made anew, by twos */
	CB_COPIER_PAIRS,
	CB_COPIER_ROOM = CB_COPIER_PAIRS + 256, /* bytes of large memory that the copy may copy; negative: pages are not
						 * of the usual size */
	CB_COPIER_ANSWER,			/* bytes of the answer; 0: the caller answers */
	CB_COPIER_LOOPS,			/* CB_COPIER_LOOP_FIELDS of them, or zeros */
	CB_COPIER_PAIRS_MAX = CB_COPIER_ROOM - CB_COPIER_PAIRS,
	/* out */
	CB_COPIER_SOCKETS = CB_COPIER_LOOPS + CB_COPIER_LOOP_FIELDS, /* that are cut off in the copy */
	CB_COPIER_UNTIDY,					     /* cb_copier_tidy has something to do */
	CB_COPIER_SIDE,	  /* in a woken copy: the fd of its side wire, or -1 */
	CB_COPIER_BRANCH, /* in a woken copy: it runs beside its original */
	CB_COPIER_FIELDS
};

/* The number of sockets stands in an answer's last bytes, before its two closing braces. */
#define CB_COPIER_BLANK "          }}"
#define CB_COPIER_ANSWER_MAX 512

/* `answer`: a frame for the wire that ends with CB_COPIER_BLANK. It is sent as soon as there is a copy: from then on
 * each page that is written to is copied first, so the less Python runs before it the better.
 * 1 in the original; 0 in the copy after it was woken; a negative errno if there is none: ETIMEDOUT if threads did not
 * stop in time, E2BIG if there are too many of them, of open files or of loops that run. */
long cb_copier_copy(int64_t a[CB_COPIER_FIELDS], const char *answer);
/* In a zygote, before it serves: whether all threads can be stopped, as each copy begins. They go on at once. 0, or the
 * error that a copy would meet. */
long cb_copier_try_to_stop(void);
/* In the original, when nothing else is to be done: memory is put into huge pages, until a request waits, for some
 * hundredths of a second at most. The interpreter's lock is not needed. */
long cb_copier_tidy(void);
/* In a woken copy: the ids that thread i had and has, 0 if it ended before; -1 if there are fewer. */
long cb_copier_thread(long i, int64_t ret[2]);
/* In a woken copy, when what must be mended first is: threads that waited in a system call go on. Those that were busy
 * do so already, for they may hold locks of the C library's; files stood where they had stood before that. */
long cb_copier_go_on(void);
/* In a woken copy: how many bytes waited in this pipe, which is empty now unless who reads it does not block. */
long cb_copier_waited(long fd);

/* ---- warm start (cellblock/warm.h): enter.c ---- */

/* Fields of cb_copier_enter's array. */
enum cb_enter_field {
	/* in */
	CB_ENTER_FDS,					   /* by enum cb_warm_fd; -1 = none */
	CB_ENTER_CONNECTION = CB_ENTER_FDS + CB_WARM_NFDS, /* to the broker that asks */
	CB_ENTER_UMASK,
	CB_ENTER_CWD,	  /* address of a string */
	CB_ENTER_TEXTS,	  /* bytes from there on that are wiped out in the zygote: no later copy is to have them */
	CB_ENTER_FILTERS, /* instructions and address of each program, by twos */
	/* out */
	CB_ENTER_STEP = CB_ENTER_FILTERS + 2 * CB_WARM_FILTERS, /* enum cb_warm_step, where it failed */
	CB_ENTER_FIELDS
};

/* In a zygote, from its only Python thread: a copy of this process, which enters the jail whose namespaces are given,
 * gives up what its guest may not have, tells the broker, and waits until that lets it go on.
 * 1 in the zygote; 0 in the copy, which is a guest then: fds in their places, signals still blocked, threads of
 * libraries there and waiting for cb_copier_go_on; a negative errno if there is no copy. */
long cb_copier_enter(int64_t a[CB_ENTER_FIELDS]);
