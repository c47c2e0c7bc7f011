/* A lane: one line of requests that is served beside the main shell. Trust domain: supervisor. See lane.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "execution.h"
#include "guest_link.h"
#include "guest_policy.h"
#include "message.h"
#include "queue.h"
#include "speaker.h"
#include "usage.h"

struct cb_kernel;
struct cb_lane;

#define CB_LANES_WAITING_MAX 10000	   /* requests in all lanes of a kind */
#define CB_LANES_BYTES_MAX (64u << 20)	   /* bytes of their frames */
#define CB_DOUBLE_CLICK (1000000000LL / 4) /* a second interrupt sooner than this is the same click */

enum cb_lane_kind { CB_LANE_QUESTION, CB_LANE_CELL, CB_LANE_COMM };

/* What a type of request is on the wire. */
struct cb_lane_message {
	enum cb_request_kind of;
	enum cb_wire_type wire, answer; /* answer: of a question */
	enum cb_lane_kind kind;
};

/* What differs between those who serve lanes. */
struct cb_lane_ops {
	bool (*up)(struct cb_kernel *k, struct cb_lane *l); /* requests can be sent */
	/* A cell is begun, its code not yet sent. */
	void (*begun)(struct cb_kernel *k, struct cb_lane *l, bool stored);
	int (*send)(struct cb_kernel *k, struct cb_lane *l, struct cb_request *r, const struct cb_lane_message *m);
	void (*interrupt)(struct cb_kernel *k, struct cb_lane *l);
	void (*kill)(struct cb_kernel *k, struct cb_lane *l, const char *why); /* what runs does not stop otherwise */
	void (*done)(struct cb_kernel *k, struct cb_lane *l);		       /* the current request is answered */
	void (*usage)(struct cb_kernel *k, struct cb_lane *l, struct cb_usage *ret_usage);
	double (*cpu)(struct cb_kernel *k, struct cb_lane *l);
	const char *cpu_of; /* whose CPU time that is: "the jail" */
};

struct cb_lane {
	const struct cb_lane_ops *ops;
	struct cb_load *load;	    /* shared by all of its kind */
	struct cb_speaker *speaker; /* who answers */
	int64_t *count;		    /* the execution count that its cells take part in */
	char id[40];		    /* the subshell's; "" = a free place, or of one that is deleted and still runs */
	unsigned number;	    /* on the wire; counts up, 0 = the questions', or a branch's */
	struct cb_queue waiting;
	struct cb_request *current; /* owned; the guest works on it */

	/* the current cell */
	int64_t cell_number;
	int64_t started_ns;
	double started_date;
	struct cb_usage usage_at_start;
	double cpu_at_start;
	int64_t deadline;   /* of its clock, or of the question; 0 = none */
	int64_t asked_at;   /* when it asked for input, and is not answered; 0 = it does not ask */
	unsigned ask_again; /* how often it may all the same: each interrupt may have crossed a question */
	bool awaiting;	    /* a loop of its own runs it, and takes comm messages */
	int64_t clock_left; /* ns left when the clock stands (input), -1 = no limit; else 0 */
	enum cb_stop stop;
	bool over_cpu, wait_over;
	bool error_sent;
	bool interrupted; /* and has not ended yet */
	bool answered;	  /* what is left is what goes with it, and idle */
	bool stale;	  /* a question that was answered with an error: what Python says of it is dropped */
};

const struct cb_lane_message *cb_lane_message_of(const struct cb_request *r); /* NULL = no lane takes it */
bool cb_lane_is(const struct cb_lane *l, struct cb_span id);		      /* a raw JSON string */

/* Waits in the lane (ownership); false if it was answered at once because there are too many. */
bool cb_lane_take(struct cb_kernel *k, struct cb_lane *l, struct cb_request *r);
struct cb_request *cb_lane_pop(struct cb_lane *l);
/* Execute requests that wait are aborted; with `all` the others are refused too. */
void cb_lane_abort_waiting(struct cb_kernel *k, struct cb_lane *l, bool all);
void cb_lane_release(struct cb_lane *l);

void cb_lane_begin(struct cb_kernel *k, struct cb_lane *l, struct cb_request *r);
/* The current request is answered: idle. */
void cb_lane_finish(struct cb_kernel *k, struct cb_lane *l);

/* From the guest, about the lane's current cell. */
void cb_lane_error(struct cb_kernel *k, struct cb_lane *l, struct cb_frame *f, const struct cb_guest_content *c);
/* Its end, or that of a comm message. */
void cb_lane_reply(struct cb_kernel *k, struct cb_lane *l, struct cb_frame *f, const struct cb_guest_content *c);
/* It asks for input: its clock stands. CB_E_DENIED if it may not. */
int cb_lane_ask(struct cb_kernel *k, struct cb_lane *l, struct cb_frame *f, const char **ret_reason);
bool cb_lane_asks(const struct cb_lane *l, const struct cb_request *reply); /* the client that this is from */
void cb_lane_asked(struct cb_lane *l);					    /* it was answered, or interrupted */
/* The current request ends with its Python, for `cause`; `state` "lost" or "restored", and what that means. */
void cb_lane_died(struct cb_kernel *k, struct cb_lane *l, const char *cause, const char *state, const char *end);

/* The cell's limits of time, now; and when to look again (0 = never). */
void cb_lane_check_time(struct cb_kernel *k, struct cb_lane *l, int64_t now);
void cb_lane_due(const struct cb_lane *l, int64_t *look_at, int64_t *when);
void cb_lane_sooner(int64_t *when, int64_t t);
/* The next look at what gives no sign of itself; *look_at stays, however often it is asked for, until that was done and
 * it is 0 again. */
void cb_lane_look(int64_t *look_at, int64_t *when);
/* The user's interrupt; with `hard` a second one ends what does not obey. */
void cb_lane_interrupt(struct cb_kernel *k, struct cb_lane *l, bool hard);
