/* A shell: one line of requests that Python serves one at a time. Trust domain: supervisor. See shell.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "python/link.h"
#include "python/policy.h"
#include "jupyter/message.h"
#include "queue.h"
#include "python/usage.h"

struct cb_jupyter;
struct cb_kernel;
struct cb_policy;
struct cb_python;
struct cb_records;
struct cb_shell;

#define CB_SHELLS_WAITING_MAX 10000	   /* requests in all subshells, or branches */
#define CB_SHELLS_BYTES_MAX (64u << 20)	   /* bytes of their frames */
#define CB_DOUBLE_CLICK (1000000000LL / 4) /* a second interrupt sooner than this is the same click */

/* What ended a cell against its will. */
enum cb_stop {
	CB_STOP_NONE,
	CB_STOP_TIME_SOFT, /* asked to stop (KeyboardInterrupt) at its time limit */
	CB_STOP_TIME_HARD, /* killed: it did not stop within timeout.grace */
	CB_STOP_INTERRUPT, /* killed: the user's interrupt was not obeyed */
	CB_STOP_MEMORY,	   /* killed by the kernel or a watchdog: limits.memory, or less that the request asked for */
	CB_STOP_WIRE,	   /* killed: the guest broke the wire protocol */
};

/* An execute request that runs. */
struct cb_cell {
	int64_t number; /* the execution count, itself counted in if it is stored */
	bool store;
	int64_t started_ns;
	double started_date;
	struct cb_usage usage_at_start;
	int64_t deadline;   /* of its clock; 0 = none */
	bool waits;	    /* its clock stands: it asks its user, or is held in a debugger */
	int64_t clock_left; /* ns left when the clock stands; 0 = no limit */
	enum cb_stop stop;
	bool over_cpu;	/* the limit was timeout.cpu */
	bool wait_over; /* … was timeout.wait */
	bool error_sent;
};

/* What users see of a cell: one that is not stored is shown with the number that the next one gets. */
static inline int64_t cb_cell_shown(const struct cb_cell *c)
{
	return c->store ? c->number : c->number + 1;
}

/* What a type of request is on the wire. */
struct cb_shell_message {
	enum cb_request_kind of;
	enum cb_wire_type wire, answer; /* answer: of a question */
	enum cb_wire_phase phase;	/* while it runs */
};

/* What differs between those who serve shells. NULL where there is nothing to do. */
struct cb_shell_ops {
	size_t max_waiting, max_bytes;			     /* of all shells that share its load */
	bool (*up)(struct cb_kernel *k, struct cb_shell *s); /* requests can be sent */
	/* A cell is begun: its code is not yet sent; its input is published. */
	void (*begun)(struct cb_kernel *k, struct cb_shell *s);
	void (*told)(struct cb_kernel *k, struct cb_shell *s);
	int (*send)(struct cb_kernel *k, struct cb_shell *s, struct cb_request *r, const struct cb_shell_message *m);
	/* The answer to its question, and an interrupt, where Python's main thread does not take them. */
	int (*input)(struct cb_kernel *k, struct cb_shell *s, struct cb_span content);
	void (*interrupt)(struct cb_kernel *k, struct cb_shell *s);
	/* Its cell awaits, or asks its user. */
	void (*awaits)(struct cb_kernel *k, struct cb_shell *s);
	void (*asks)(struct cb_kernel *k);
	/* The cell's reply is not to be sent now: it asked for another state. */
	bool (*defers)(struct cb_kernel *k, const struct cb_frame *f);
	/* The cell's clock stands, or goes on, with limits of CPU time. */
	void (*waits)(struct cb_kernel *k, struct cb_shell *s, bool waits);
	void (*kill)(struct cb_kernel *k, struct cb_shell *s, const char *why); /* what runs does not stop otherwise */
	void (*ending)(struct cb_kernel *k, struct cb_shell *s, struct cb_request *r); /* … before its idle is said */
	void (*done)(struct cb_kernel *k, struct cb_shell *s, struct cb_request *r);   /* … and after it */
	void (*usage)(struct cb_kernel *k, struct cb_shell *s, struct cb_usage *ret_usage);
	double (*cpu)(struct cb_kernel *k, struct cb_shell *s); /* NULL: a meter of its own looks at timeout.cpu */
	void (*arm)(struct cb_kernel *k, struct cb_shell *s);	/* what it is due for has changed */
	const char *cpu_of;					/* whose CPU time that is: "the jail" */
};

struct cb_shell {
	const struct cb_shell_ops *ops;
	struct cb_jupyter *jupyter;
	struct cb_records *records;
	struct cb_load *load;	  /* shared by all of its kind */
	struct cb_python *python; /* who serves it */
	const struct cb_policy *policy;
	bool apart;	 /* beside what its main thread serves; that it took an interrupt is not said then */
	int64_t *count;	 /* the execution count that its cells take part in */
	char id[40];	 /* a subshell's; "" = the main one, a free place, or one that is deleted and still runs */
	unsigned number; /* on the wire; counts up, 0 = the main one, the questions', or a branch's */
	struct cb_queue waiting;
	struct cb_request *current; /* owned; the guest works on it, or it waits for a guest */

	/* the current request */
	struct cb_cell cell; /* if it is one */
	double cpu_at_start;
	int64_t answer_by;	/* of a question; 0 = any time */
	int64_t asked_at;	/* when it asked for input, and is not answered; 0 = it does not ask */
	unsigned ask_again;	/* how often it may all the same: each interrupt may have crossed a question */
	bool awaiting;		/* a loop of its own runs it, and takes comm messages */
	int64_t interrupted_at; /* and it has not obeyed, or not ended; 0 = no */
	int64_t notice_at;	/* when it is to be said that an interrupt waits; 0 = not */
	int64_t interrupt_by;	/* when one that is not obeyed becomes a hard one; 0 = not */
	bool answered;		/* what is left is what goes with it, and idle */
	bool stale;		/* a question that was answered with an error: what Python says of it is dropped */
	bool abort_waiting;	/* when it has ended, what waits is aborted */
};

/* How a request's Python ended, in words. */
struct cb_death {
	const char *cause;  /* "Python exited with status 3" */
	const char *broken; /* what it broke the protocol with, if that was it */
	const char *state;  /* "restored", "lost" */
	const char *became; /* "all variables are lost" */
};

const struct cb_shell_message *cb_shell_message_of(const struct cb_request *r); /* NULL = no shell's */
bool cb_shell_is(const struct cb_shell *s, struct cb_span id);			/* a raw JSON string */

/* Waits in the shell (ownership); false if it was answered at once because there are too many. */
bool cb_shell_take(struct cb_shell *s, struct cb_request *r);
struct cb_request *cb_shell_pop(struct cb_shell *s);
void cb_shell_release(struct cb_shell *s);

/* Begins it (ownership); if it can't be handed to Python it ends with that. */
void cb_shell_begin(struct cb_kernel *k, struct cb_shell *s, struct cb_request *r);
/* The same, but Python is not given it: the caller answers it. */
void cb_shell_begin_here(struct cb_kernel *k, struct cb_shell *s, struct cb_request *r);
/* Hands the current request to Python's main thread, as ops.send is to. */
int cb_shell_send(struct cb_kernel *k, struct cb_shell *s, struct cb_request *r, const struct cb_shell_message *m);
/* The current request is answered: idle. */
void cb_shell_finish(struct cb_kernel *k, struct cb_shell *s);

/* From Python: a frame that is for this shell, and what such do. A negative code (with reason) is a broken rule. */
int cb_shell_frame(struct cb_kernel *k, struct cb_shell *s, struct cb_frame *f, const struct cb_guest_content *c,
		   const char **ret_reason);
void cb_shell_error(struct cb_kernel *k, struct cb_shell *s, struct cb_frame *f, const struct cb_guest_content *c);
/* The current request's end: a cell's, or that of a comm message. */
void cb_shell_reply(struct cb_kernel *k, struct cb_shell *s, struct cb_frame *f, const struct cb_guest_content *c);
/* The answer to a question; CB_E_DENIED if that was none, or another one. */
int cb_shell_answer(struct cb_kernel *k, struct cb_shell *s, struct cb_frame *f, const char **ret_reason);
/* The current cell asks for input: its clock stands. CB_E_DENIED if it may not. */
int cb_shell_ask(struct cb_kernel *k, struct cb_shell *s, struct cb_frame *f, const char **ret_reason);
bool cb_shell_asks(const struct cb_shell *s, const struct cb_request *reply);	      /* the client that this is from */
void cb_shell_input(struct cb_kernel *k, struct cb_shell *s, struct cb_span content); /* a client's answer */
void cb_shell_asked(struct cb_kernel *k, struct cb_shell *s); /* it was answered, or interrupted */
/* Its clock stands while its user is asked or a debugger holds it, or goes on. In its grace a cell gets no more of it.
 */
void cb_shell_wait(struct cb_kernel *k, struct cb_shell *s, bool waits);
/* The current request ends with its Python. */
void cb_shell_died(struct cb_kernel *k, struct cb_shell *s, const struct cb_death *d);

/* The limits of what runs, now; and when to look again: *when becomes sooner, if it is (0 = never). */
void cb_shell_look(struct cb_kernel *k, struct cb_shell *s, int64_t now);
void cb_shell_due(const struct cb_shell *s, int64_t *look_at, int64_t *when);
/* A limit of time is reached: KeyboardInterrupt first, after timeout.grace the end. */
void cb_shell_over_time(struct cb_kernel *k, struct cb_shell *s, bool over_cpu, bool wait_over);
/* The next look at what gives no sign of itself; *look_at stays, however often it is asked for, until that was done and
 * it is 0 again. */
void cb_shell_next_look(int64_t *look_at, int64_t *when);
/* The user's interrupt; with `hard` a second one ends what does not obey. */
void cb_shell_interrupt(struct cb_kernel *k, struct cb_shell *s, bool hard);
/* Python has taken it. */
void cb_shell_obeyed(struct cb_kernel *k, struct cb_shell *s);
/* Notes why what runs is about to be killed, unless a reason stands already. */
void cb_shell_stop_reason(struct cb_shell *s, enum cb_stop stop);
