/* What the shells hold that share the guest, and what they tell others of. Trust domain: supervisor. The functions are
 * declared in the header of the file that has them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "jupyter/message.h"
#include "python/output.h"
#include "python/policy.h"
#include "python/usage.h"
#include "queue.h"

struct cb_guest;
struct cb_jupyter;
struct cb_kernel;
struct cb_loop;
struct cb_policy;
struct cb_python;
struct cb_records;
struct cb_shell;
struct cb_shells;
struct cb_transactions;

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
	CB_STOP_HOST,	   /* killed by the kernel: the host, or a control group above the jail, lacked memory */
	CB_STOP_WIRE,	   /* killed: the guest broke the wire protocol */
};

/* An execute request that runs. */
struct cb_cell {
	int64_t number; /* the execution count, itself counted in if it is stored */
	bool store;
	uint64_t kept_as; /* the keeper's number for it */
	int64_t started_ns;
	double started_date;
	struct cb_usage usage_at_start;
	int64_t deadline;   /* of its clock; 0 = none */
	bool waits;	    /* its clock stands: it asks its user, or is held in a debugger */
	int64_t clock_left; /* ns left when the clock stands; 0 = no limit */
	int64_t stood;	    /* ns that it has stood in a debugger before */
	enum cb_stop stop;
	bool over_cpu;	/* the limit was timeout.cpu */
	bool wait_over; /* … was timeout.wait */
	bool error_sent;
	bool limit_told; /* … that its time was over */
};

/* What users see of a cell: one that is not stored is shown with the number that the next one gets. */
static inline int64_t cb_cell_shown(const struct cb_cell *c)
{
	return c->store ? c->number : c->number + 1;
}

/* Where a request is that a client names. */
enum cb_found { CB_FOUND_NOWHERE, CB_FOUND_WAITING, CB_FOUND_RUNNING };

/* What a type of request is on the wire. */
struct cb_shell_message {
	enum cb_request_kind of;
	enum cb_wire_type wire, answer; /* answer: of a question */
	enum cb_wire_phase phase;	/* while it runs */
};

/* What differs between those who serve shells. NULL where there is nothing to do. */
struct cb_shell_ops {
	size_t max_waiting, max_bytes;	/* of all shells that share its load */
	bool (*up)(struct cb_shell *s); /* requests can be sent */
	/* A cell is begun: its code is not yet sent; its input is published. */
	void (*begun)(struct cb_shell *s);
	void (*told)(struct cb_shell *s);
	int (*send)(struct cb_shell *s, struct cb_request *r, const struct cb_shell_message *m);
	/* The answer to its question, and an interrupt, where Python's main thread does not take them. */
	int (*input)(struct cb_shell *s, struct cb_span content);
	void (*interrupt)(struct cb_shell *s);
	/* Its cell awaits, or asks its user. */
	void (*awaits)(struct cb_shell *s);
	void (*asks)(struct cb_shell *s);
	/* The cell's reply is not to be sent now: it asked for another state. `late`: it ran over its time, and gets
	 * no more than the checkpoints that it asked for. */
	bool (*defers)(struct cb_shell *s, const struct cb_frame *f, bool late);
	/* The cell's clock stands, or goes on, with limits of CPU time. */
	void (*waits)(struct cb_shell *s, bool waits);
	void (*kill)(struct cb_shell *s, const char *why);	  /* what runs does not stop otherwise */
	void (*ending)(struct cb_shell *s, struct cb_request *r); /* … before its idle is said */
	void (*done)(struct cb_shell *s, struct cb_request *r);	  /* … and after it */
	void (*usage)(struct cb_shell *s, struct cb_usage *ret_usage);
	double (*cpu)(struct cb_shell *s); /* NULL: cell_limits.c looks at timeout.cpu */
	void (*arm)(struct cb_shell *s);   /* what it is due for has changed */
	const char *cpu_of;		   /* whose CPU time that is: "the jail" */
};

/* A question whose client's stdin is not connected yet, perhaps. */
struct cb_unsent {
	struct cb_buf metadata, content;
	int64_t again_at; /* when it is sent again; 0 = there is none */
	int64_t until;	  /* then its client counts as gone */
};

struct cb_shell {
	const struct cb_shell_ops *ops;
	struct cb_shells *all;	  /* the branches' ones too */
	struct cb_load *load;	  /* shared by all of its kind */
	struct cb_python *python; /* who serves it */
	bool apart;		  /* beside what its main thread serves; that it took an interrupt is not said then */
	int64_t *count;		  /* the execution count that its cells take part in */
	char id[40];	 /* a subshell's; "" = the main one, a free place, or one that is deleted and still runs */
	unsigned number; /* on the wire; counts up, 0 = the main one, the questions', or a branch's */
	struct cb_queue waiting;
	struct cb_request *current; /* owned; the guest works on it, or it waits for a guest */

	/* the current request */
	struct cb_cell cell; /* if it is one */
	double cpu_at_start;
	int64_t work_at; /* while its clock stands: the last look at whether it computes, */
	double work;	 /* and the CPU time then */
	int64_t answer_by;	/* of a question; 0 = any time */
	int64_t asked_at;	/* when it asked for input, and is not answered; 0 = it does not ask */
	int64_t question;	/* the guest's number of it, which the answer brings back; 0 = it has none */
	struct cb_unsent unsent;
	unsigned ask_again;	/* how often it may all the same: each interrupt may have crossed a question */
	bool awaiting;		/* a loop of its own runs it, and takes comm messages */
	int64_t interrupted_at; /* and it has not obeyed, or not ended; 0 = no */
	int64_t notice_at;	/* when it is to be said that an interrupt waits; 0 = not */
	int64_t interrupt_by;	/* when one that is not obeyed becomes a hard one; 0 = not */
	bool answered;		/* what is left is what goes with it, and idle */
	bool stale;		/* a question that was answered with an error: what Python says of it is dropped */
	bool abort_waiting;	/* when it has ended, what waits is aborted */
	bool over;		/* its Python is dead: it ends when it is known what became of the state */
};

/* How a request's Python ended, in words. */
struct cb_death {
	const char *cause;  /* "Python exited with status 3" */
	const char *broken; /* what it broke the protocol with, if that was it */
	const char *state;  /* "restored", "lost" */
	const char *became; /* "all variables are lost" */
};

/* What a cell may use, and has used. */
struct cb_cell_limits {
	double limit;	 /* CPU seconds of the cell; 0 = none */
	uint64_t memory; /* bytes that no process may pass during the cell; 0 = as the jail's */
	double used;	 /* since the cell's start */
	double last;	 /* the last reading */
	int64_t last_ns; /* when that was */
	bool ending;	 /* a dropped twin is about to end: often looked at, for its last moments count as the cell's */
	bool sampled;	 /* no control group counts: the ledger does */
	struct cb_usage_ledger ledger;
	bool waits; /* the cell's clock stands while it waits for input */
	int timer;
};

#define CB_QUEUE_MAX 10000		/* requests waiting */
#define CB_QUEUE_BYTES_MAX (512u << 20) /* bytes of their frames */
#define CB_SESSIONS_MAX 32
#define CB_NOTES 3

/* What stop_on_error needs to know of a client session: how its clock relates to ours, and its latest failure. */
struct cb_client_session {
	uint64_t hash;	     /* of the session id; 0 = free */
	double skew;	     /* least (our arrival - its date) seen lately: its clock plus the shortest way */
	double skew_of_span; /* the same, since span_began alone */
	int64_t span_began;  /* monotonic */
	double failed_date;  /* its date of the request that failed; NAN = none */
	double failed_at;    /* our clock when the failure was known */
	int64_t used;	     /* monotonic, for eviction */
};

struct cb_execution {
	struct cb_shell shell; /* the main one */
	struct cb_load load;
	int64_t number;		     /* the kernel's execution count, of all its shells: never decreases */
	struct cb_cell_limits cell_limits; /* of the current cell */
	int timer;

	struct cb_client_session session[CB_SESSIONS_MAX];
	double stop_on_error_timeout; /* seconds, <= 0 = none */
	int64_t abort_until;	      /* --Kernel.stop_on_error_timeout: what arrives before is aborted too */
	char note[2048];	      /* for the banner, too */
	char *notes[CB_NOTES];	      /* what the next cell says, once: that, and what others note */
	char note_told[512];	      /* the broker's note, as a cell has last said it */
	char lost[4096];	      /* the state was lost or restored between cells: the next cell that is not
				       * silent says so, */
	bool lost_owed;		      /* and the next one's metadata, silent or not */
	bool lost_restored;
	bool taken_over;	      /* the guest has ended, and a twin takes over */
	struct cb_usage usage_at_end; /* then: at its end */
};

/* Lane 0, which answers questions while a cell runs; subshells; and comm messages beside what awaits, of each. */
struct cb_lanes {
	struct cb_shell ask, comms, sub[CB_SUBSHELLS_MAX], beside[CB_SUBSHELLS_MAX];
	unsigned last_number;
	struct cb_load load;
	int64_t look_at;
	int timer;
};

#define CB_DEBUG_WAITING_MAX 1000      /* requests */
#define CB_DEBUG_BYTES_MAX (64u << 20) /* bytes of their frames */

struct cb_debug {
	struct cb_queue waiting;
	struct cb_load load;
	struct cb_request *current;    /* owned; the guest works on it */
	struct cb_guest_parent parent; /* the latest request: events go under it, within its limit of output */
	bool asked;		       /* this guest was given a request: it may send events */
	bool session;		       /* it has a debugger that was initialised and not ended */
	bool waits;		       /* it says that a cell is stopped: the cell's clock stands */
	int64_t waits_since;
	bool stale; /* the current one was answered with an error: what the guest says of it is dropped */
	int timer;
};

struct cb_idle {
	int64_t since; /* monotonic ns of the last sign of interest */
	int timer;
	struct cb_loop *loop;
	int64_t limit; /* timeout.idle in ns; 0 = none */
};

/* What those above do when shells come to it, or are asked. */
struct cb_shells_events {
	/* The main shell's current request, which is not Python's: serves it; whether it goes on when Python ends. */
	void (*serve)(struct cb_kernel *k, struct cb_request *r);
	bool (*outlives)(const struct cb_kernel *k, const struct cb_request *r);

	bool (*files_held)(const struct cb_kernel *k); /* no cell begins, whose files would be half done */
	void (*comm_begins)(struct cb_kernel *k, const struct cb_request *r);
	void (*cell_ended)(struct cb_kernel *k, double seconds); /* of the main shell */
	bool (*in_use)(const struct cb_kernel *k);		 /* the jail */

	/* What runs beside all shells; or of that only what this request asked for. */
	void (*interrupt_rest)(struct cb_kernel *k, const struct cb_request *only);

	/* For the words: what is told with a cell's begin and end, and what became of the state. */
	void (*write_begin)(struct cb_kernel *k, struct cb_json *j);
	const char *(*lost_calls)(const struct cb_kernel *k);
};

/* What those do who keep copies of Python. */
struct cb_shells_keeper {
	bool (*takes)(struct cb_transactions *tx, struct cb_request *r); /* (ownership) it is for a branch */
	bool (*copying)(const struct cb_transactions *tx);		 /* what began now would be half in the copy */
	bool (*before)(struct cb_transactions *tx, struct cb_request *r); /* a copy is made before it begins */
	void (*cell_begins)(struct cb_transactions *tx, struct cb_shell *s);
	void (*beside_ended)(struct cb_transactions *tx, const struct cb_shell *s); /* a subshell's cell */
	void (*quiet)(struct cb_transactions *tx); /* something has ended */
	/* As struct cb_shell_ops has `defers`. */
	bool (*goes_back)(struct cb_transactions *tx, const struct cb_frame *reply, bool late);
	/* Seconds of processors since the last call, which are no cell's. */
	double (*spent_on_copies)(struct cb_transactions *tx, bool *ret_ending);
	void (*interrupt)(struct cb_transactions *tx); /* what is made of Python, if anything is */
	void (*write_end)(const struct cb_transactions *tx, bool main, const char *state, struct cb_json *j);
	const char *(*became)(const struct cb_transactions *tx, bool restored); /* NULL = lost, as it may be */
};

struct cb_shells {
	const struct cb_shells_events *events;
	struct cb_kernel *kernel; /* that they are told to */
	const struct cb_shells_keeper *keeper;
	struct cb_transactions *kept; /* likewise */
	struct cb_loop *loop;
	const struct cb_policy *policy;
	struct cb_jupyter *jupyter;
	struct cb_records *records;
	struct cb_guest *guest;
	bool bash; /* cells are of bash, not Python */
	struct cb_execution execution;
	struct cb_lanes lanes;
	struct cb_debug debug;
	struct cb_idle idle;
};
