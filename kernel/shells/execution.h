/* The execution queue: what waits for the guest, what runs, how it ends. Trust domain: supervisor. See execution.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "jupyter/message.h"
#include "cell_limits.h"
#include "shell.h"
#include "python/usage.h"

struct cb_kernel;

#define CB_QUEUE_MAX 10000		/* requests waiting */
#define CB_QUEUE_BYTES_MAX (512u << 20) /* bytes of their frames */
#define CB_SESSIONS_MAX 32

/* What stop_on_error needs to know of a client session: how its clock relates to ours, and its latest failure. */
struct cb_client_session {
	uint64_t hash;	    /* of the session id; 0 = free */
	double skew;	    /* least (our arrival - its date) seen: its clock plus the shortest way */
	double failed_date; /* its date of the request that failed; NAN = none */
	double failed_at;   /* our clock when the failure was known */
	int64_t used;	    /* monotonic, for eviction */
};

struct cb_execution {
	struct cb_shell shell; /* the main one */
	struct cb_load load;
	int64_t number;		     /* the kernel's execution count, of all its shells: never decreases */
	uint64_t past;		     /* what the current cell has in undo_log.h */
	struct cb_cell_limits meter; /* of the current cell */
	int timer;

	struct cb_client_session session[CB_SESSIONS_MAX];
	int64_t abort_until; /* --Kernel.stop_on_error_timeout: what arrives before is aborted too */
	char lost[2048];     /* the state was lost or restored between cells: the next cell says so */
	bool lost_restored;
	bool taken_over;	      /* the guest has ended, and a twin takes over */
	struct cb_usage usage_at_end; /* then: at its end */
};

/* The next cell says it on stderr, and so does the banner until then. */
void cb_execution_note(struct cb_kernel *k, const char *text);
/* The kernel ends: what runs and waits is answered, and nothing new begins. */
void cb_execution_end(struct cb_kernel *k, const char *why);
int cb_execution_init(struct cb_kernel *k);
void cb_execution_schedule(struct cb_kernel *k); /* from schedule.c: what can begin */
void cb_execution_release(struct cb_kernel *k);

/* Takes an execute, complete, inspect, is_complete or comm_* request (ownership) that requests/ has checked. */
void cb_execution_submit(struct cb_kernel *k, struct cb_request *r);
/* The same, before all that wait. */
void cb_execution_submit_first(struct cb_kernel *k, struct cb_request *r);
/* The guest has answered the current cell, but its end is not come: no clock runs any more. */
void cb_execution_cell_over(struct cb_kernel *k);
/* EXECUTE's metadata, of the shell's current cell. */
int cb_execution_metadata(struct cb_kernel *k, const struct cb_shell *s, unsigned lane, struct cb_buf *out);

/* The shell's current cell goes into the history, if it is stored. */
void cb_execution_record(struct cb_kernel *k, struct cb_shell *s);

/* The current request is answered: idle, and on to the next. */
void cb_execution_finish(struct cb_kernel *k);

/* A user's interrupt. Soft; hard when one is still undelivered. */
void cb_execution_interrupt(struct cb_kernel *k);
/* From cell_limits.c, for the current cell. */
void cb_execution_over_memory(struct cb_kernel *k);
/* The jail worked during a wait: takes `seconds` off the clock that stands. False when that ends the cell. */
bool cb_execution_spend(struct cb_kernel *k, double seconds);

/* From guest.c. */
void cb_execution_guest_up(struct cb_kernel *k);
void cb_execution_stopped(struct cb_kernel *k);	       /* a twin is about to take over: no clock runs any more */
void cb_execution_guest_restored(struct cb_kernel *k); /* it did */
void cb_execution_guest_died(struct cb_kernel *k);     /* after its channels are closed */
void cb_execution_guest_failed(struct cb_kernel *k);   /* no jail could be started; guest.failure says why */
