/* The execution queue: what waits for the guest, what runs, how it ends. Trust domain: supervisor. See execution.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "guest_link.h"
#include "guest_policy.h"
#include "message.h"
#include "meter.h"
#include "queue.h"
#include "usage.h"

struct cb_kernel;

#define CB_QUEUE_MAX 10000		/* requests waiting */
#define CB_QUEUE_BYTES_MAX (512u << 20) /* bytes of their frames */
#define CB_SESSIONS_MAX 32

/* What ended a cell against its will. */
enum cb_stop {
	CB_STOP_NONE,
	CB_STOP_TIME_SOFT, /* asked to stop (KeyboardInterrupt) at its time limit */
	CB_STOP_TIME_HARD, /* killed: it did not stop within timeout.grace */
	CB_STOP_INTERRUPT, /* killed: the user's interrupt was not obeyed */
	CB_STOP_MEMORY,	   /* killed by the kernel or a watchdog: limits.memory, or less that the request asked for */
	CB_STOP_WIRE,	   /* killed: the guest broke the wire protocol */
};

/* What stop_on_error needs to know of a client session: how its clock relates to ours, and its latest failure. */
struct cb_client_session {
	uint64_t hash;	    /* of the session id; 0 = free */
	double skew;	    /* least (our arrival - its date) seen: its clock plus the shortest way */
	double failed_date; /* its date of the request that failed; NAN = none */
	double failed_at;   /* our clock when the failure was known */
	int64_t used;	    /* monotonic, for eviction */
};

struct cb_execution {
	struct cb_queue waiting;
	struct cb_load load;
	struct cb_request *current; /* owned; the guest works on it, or it waits for a guest */
	int64_t number;		    /* the kernel's execution count, of all its shells: never decreases */

	/* the current execute request */
	int64_t cell_number;
	bool store; /* it has a number of its own */
	uint64_t past; /* what it has in past.h */
	int64_t started_ns;
	double started_date;
	int64_t clock_left; /* ns left when the clock stands (input), else 0 */
	int64_t deadline;   /* of the running clock */
	struct cb_usage usage_at_start;
	enum cb_stop stop;
	bool wait_over; /* the time limit was timeout.wait */
	bool over_cpu;	/* … was timeout.cpu */
	struct cb_meter meter;
	bool error_sent, output_cut;
	bool interrupt_repeated; /* the signal came too early and was sent again */
	bool awaiting;		 /* it is a coroutine, and the guest's loop runs it */
	bool abort_waiting;	 /* when the current request has ended, what waits is aborted */

	int64_t interrupted_at; /* a soft interrupt is on its way since; 0 = none */
	int cell_timer, interrupt_timer, notice_timer;

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
/* What lanes.c shares: execute_input, the row of history, and EXECUTE's metadata, of a cell of number n. */
void cb_execution_publish_input(struct cb_kernel *k, const struct cb_request *r, int64_t n);
void cb_execution_record(struct cb_kernel *k, const struct cb_request *r, int64_t n);
int cb_execution_metadata(const struct cb_request *r, int64_t n, unsigned lane, struct cb_buf *out);

/* The current request is answered: idle, and on to the next. */
void cb_execution_finish(struct cb_kernel *k);

/* A user's interrupt. Soft; hard when one is still undelivered. */
void cb_execution_interrupt(struct cb_kernel *k);
/* `request` is the one that Python had at hand, 0 = none. */
void cb_execution_interrupt_delivered(struct cb_kernel *k, uint64_t request);
/* Notes why the guest is about to be killed, unless a reason stands already. */
void cb_execution_stop_reason(struct cb_kernel *k, enum cb_stop stop);

/* From the guest, for the current request. */
void cb_execution_error(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c);
void cb_execution_reply(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c);
void cb_execution_answer(struct cb_kernel *k,
			 struct cb_frame *f); /* COMPLETE_REPLY, INSPECT_REPLY, IS_COMPLETE_REPLY, COMM_DONE */
void cb_execution_input_wait(struct cb_kernel *k, bool waiting); /* the cell's clock stands while the user types */

/* From meter.c, for the current cell. */
void cb_execution_over_cpu(struct cb_kernel *k);
void cb_execution_over_memory(struct cb_kernel *k);
/* The jail worked during a wait: takes `seconds` off the clock that stands. False when that ends the cell. */
bool cb_execution_spend(struct cb_kernel *k, double seconds);

/* From guest.c. */
void cb_execution_guest_up(struct cb_kernel *k);
void cb_execution_stopped(struct cb_kernel *k);	       /* a twin is about to take over: no clock runs any more */
void cb_execution_guest_restored(struct cb_kernel *k); /* it did */
void cb_execution_guest_died(struct cb_kernel *k);     /* after its channels are closed */
void cb_execution_guest_failed(struct cb_kernel *k);   /* no jail could be started; guest.failure says why */
