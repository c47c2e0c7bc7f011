/* Life of the guest: spawning its jail, its channels, its death. Trust domain: supervisor. See guest.c. */
#pragma once

#include <cellblock/sandbox.h>
#include <cellblock/wire.h>
#include <stdbool.h>
#include <stdint.h>

#include "ends.h"
#include "jupyter/comms.h"
#include "jupyter/log_limit.h"
#include "pid1.h"
#include "python.h"
#include "side.h"
#include "usage.h"

struct cb_jupyter;
struct cb_kernel;
struct cb_loop;
struct cb_policy;
struct cb_records;
struct cb_transactions;

#define CB_IDLE_DEATHS 3      /* with nothing to do: from then on one is begun, or woken, for a request only */
#define CB_GUEST_PARENTS 1024 /* requests whose parents are remembered for late output */

enum cb_guest_state {
	CB_GUEST_NONE,	   /* no jail; `failure` says why if one was tried */
	CB_GUEST_SPAWNING, /* asked of the broker */
	CB_GUEST_STARTING, /* runs, no HELLO yet */
	CB_GUEST_UP,
	CB_GUEST_RESTORING, /* a twin takes over: until it is UP, or ENDING */
	CB_GUEST_ENDING,    /* told to die; waiting for the end of pid 1 */
};

struct cb_guest_events {
	void (*failed)(struct cb_kernel *k); /* there is no jail, and none is asked for: `failure` */
	void (*up)(struct cb_kernel *k);
	void (*died)(struct cb_kernel *k);	   /* after its channels are closed */
	bool (*wanted)(const struct cb_kernel *k); /* a request waits for another one */
	void (*no_broker)(struct cb_kernel *k);	   /* it has ended, and no jail will ever be again */
	void (*broke)(struct cb_kernel *k);	   /* it is about to be stopped for what it sent, or did not send */
	/* What is neither output nor HELLO; else as in struct cb_python_ops. */
	int (*frame)(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c,
		     const char **ret_reason);
	void (*pid1_said)(struct cb_kernel *k, const struct cb_init_msg *m);	   /* of others than the guest */
};

/* What those do who keep copies of it. */
struct cb_guest_keeper {
	void (*jail_gone)(struct cb_transactions *tx); /* all that was in it is */
	/* A twin serves in its place if one can: true, and what follows is up to whoever keeps them. */
	bool (*take_over)(struct cb_transactions *tx);
	bool (*other_exited)(struct cb_transactions *tx, int status); /* true: not the guest, but one that took over */
	void (*woken_closed)(struct cb_transactions *tx);	      /* one that takes over has closed its wire */
	void (*memory)(struct cb_transactions *tx, const struct cb_broker_reply *notice); /* the broker has looked */
};

struct cb_guest {
	struct cb_python python; /* first: its operations find the guest by it */
	const struct cb_guest_events *events;
	struct cb_kernel *kernel; /* that they are told to */
	const struct cb_guest_keeper *keeper;
	struct cb_transactions *kept; /* likewise */
	struct cb_loop *loop;
	const struct cb_policy *policy;
	struct cb_jupyter *jupyter;
	struct cb_records *records;
	struct cb_comms comms; /* of the main line */
	struct cb_side side;
	struct cb_pid1 pid1;
	uint64_t last_id;	 /* of requests, given out to any Python */
	struct cb_broker broker;
	int broker_slot;
	enum cb_guest_state state;
	int log, pidfd; /* -1 = none */
	int link_slot, out_slot[2], log_slot, init_slot, pidfd_slot;
	uint32_t jail;
	enum cb_isolation_level level; /* reached, as the broker says */
	struct cb_guest_parent parent[CB_GUEST_PARENTS];
	struct cb_usage_source usage;
	struct cb_err failure;	/* why the last start failed */
	char note[512];		/* what the broker wants users to know */
	unsigned failed_starts; /* in a row */
	unsigned idle_deaths;	/* in a row, of guests that were never given a client's request */
	uint64_t asked;		/* what this one was, for the supervisor's own ends */
	unsigned generation;	/* jails started */
	bool restarted;		/* the coming HELLO ends a restart that frontends were told of */
	bool exited;		/* pid 1 reported the guest's end */
	bool terminates;	/* and was told to end itself */
	int wait_status;
	char limits[256]; /* who holds the limits, in words */
	bool end_known, end_awaited;
	struct cb_broker_reply end; /* if end_known: what the broker said of the jail's end */
	char verdict[256];	    /* why we killed it; empty = it died by itself */
	char cause[256];	    /* the same of the one before it, until that was told */
	bool telling;		    /* of its end: what that was is kept, and the next one is asked for afterwards */
	bool shutting_down;	    /* the kernel: no jail follows this one */
	uint64_t over_memory;	    /* bytes, if it was stopped for them and that is not told yet; 0 = it was not */
	bool given_up;		    /* its start was interrupted: no failure, and nothing is lost */
	bool changes;		    /* a Python came up, and could install what the next one does not start with */
	bool retired;		    /* timeout.idle ended it: no new one until there is a request */
	int python_timer;
	int deadline_timer, resume_timer;
	struct cb_log_limit log_limit;
};

/* The one way to another state. */
void cb_guest_go(struct cb_guest *g, enum cb_guest_state to);
int cb_guest_init(struct cb_guest *g);
void cb_guest_release(struct cb_guest *g);
/* Asks for a jail unless there is one. After failed starts it is asked for again only by this call (a new request). */
void cb_guest_want(struct cb_guest *g);
/* Processors' time of the jail, in seconds; negative unless it is up. */
double cb_guest_worked(const struct cb_guest *g);
/* For whose lack of memory the kernel killed in the jail between two looks: cb_oom_between. */
enum cb_oom cb_guest_oom(const struct cb_guest *g, const struct cb_oom_count *before, const struct cb_oom_count *after);
/* A request of our own: under the latest cell. */
int cb_guest_ask(struct cb_guest *g, enum cb_wire_type type, enum cb_wire_phase phase, struct cb_span content);
/* The current request is answered. */
void cb_guest_set_idle(struct cb_guest *g);
/* Kills the whole jail; `verdict` is what its end will be explained with. */
void cb_guest_kill(struct cb_guest *g, const char *verdict);
/* The same, but if a twin can take over it does: the state is restored instead of lost. */
void cb_guest_stop(struct cb_guest *g, const char *verdict);
/* What it sent, or did not send, no guest sends: it is stopped as with cb_guest_stop, and the cell is told why. */
void cb_guest_broke_rules(struct cb_guest *g, const char *why);
/* The user interrupts a start: this guest goes, another is tried. */
void cb_guest_give_up_start(struct cb_guest *g);
/* Nobody needs the jail (timeout.idle): it ends, and the next request asks for a new one. */
void cb_guest_retire(struct cb_guest *g);
/* Asks the guest to run its exit handlers and end; for shutdown. */
void cb_guest_shutdown(struct cb_guest *g, bool restart);

/* ---- take-over ---- */
void cb_guest_restoring(struct cb_guest *g);
/* What the dead have sent and written is published; unless they were killed for what they sent. */
void cb_guest_last_words(struct cb_guest *g);
/* Closes the channels and goes on with those (they are taken in any case). Nothing is read of them yet: what may be
 * said is still as the one before left it. */
int cb_guest_become(struct cb_guest *g, struct cb_guest_ends *ends, pid_t pid);
/* From now on it is heard: RESUME is sent in the same turn. */
void cb_guest_listen(struct cb_guest *g);
/* How the one before ended was told. */
void cb_guest_forget_end(struct cb_guest *g);
