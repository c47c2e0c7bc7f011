/* Twins: the copies of a guest from which its state comes back (include/cellblock/twin.h). Trust domain: supervisor.
 * See twins.c. */
#pragma once

#include <cellblock/buffer.h>
#include <cellblock/sandbox.h>
#include <cellblock/twin.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "checkpoints.h"
#include "jupyter/comms.h"
#include "python/ends.h"
#include "python/policy.h"
#include "undo_log.h"
#include "twin_cost.h"

struct cb_branch;
struct cb_kernel;
struct cb_request;
struct cb_shell;

/* What a twin has not of its guest. */
struct cb_left_out {
	int64_t threads, sockets, children, shared_maps;
	int64_t native;	     /* threads that Python does not know */
	int64_t native_back; /* such threads that do come back: of a copy that is made of a woken state */
	char native_of[64];  /* the library that they are of, or their own names */
};
/* Of CHECKPOINT_REPLY; what is wrong is passed over. */
void cb_left_out_take(struct cb_left_out *l, struct cb_span json);

struct cb_twin {
	uint32_t number; /* 0 = free */
	bool registered, born;
	enum cb_twin_use {
		CB_TWIN_KEPT,
		CB_TWIN_ROLLBACK, /* a copy of one, which is to take over at once */
		CB_TWIN_BRANCH,	  /* runs beside the guest as soon as it is ready */
		CB_TWIN_ADOPTED,  /* a copy of a branch, which is to take over at once */
	} use;
	uint32_t branch;	       /* the number of that one */
	char name[CB_CHECKPOINT_NAME]; /* "" = none: it is kept by age */
	double created;
	int64_t asked_ms; /* monotonic: when it was to be made */
	struct cb_guest_ends ends;
	pid_t pid;		       /* as the kernel says */
	uint64_t room;		       /* bytes of memory that it may copy for itself */
	double cpu_s, copied_s;	       /* processors' time: as last read; and what of it was for that */
	uint64_t cell;		       /* the last one whose effects it has, by the count of undo_log.h */
	int64_t count;		       /* the execution count then */
	struct cb_undo_log_count live; /* and how many had run */
	struct cb_comms comms;
	struct cb_left_out left_out;
	enum { CB_FILES_STAY, CB_FILES_COMING, CB_FILES_KEPT } files; /* what a take-over does with the workspace's */
	uint32_t snapshot;					      /* of them; one that was bred has its parent's */
	char files_problem[224];				      /* not all of them were kept */
};

#define CB_TWINS_ENDING_MAX 8

struct cb_twins {
	bool possible;	   /* in this jail, with this policy */
	bool stale;	   /* something has run since the newest one was made */
	bool after_cell;   /* and a cell was among it */
	unsigned failures; /* in a row */
	int64_t again_ns;  /* threads did not stop: not before then; 0 = at any time */
	int64_t held_ns;   /* since then a cell waits for a debugger's request to end; 0 = none does */
	bool lack_told;	   /* that none could be made */
	uint32_t last_number;
	struct cb_twin twin[CB_TWINS_MAX];
	struct cb_twin_ending {	  /* told to end, the last few: large memory takes its time */
		pid_t pid;	  /* 0 = free */
		int64_t since_ns; /* when it was told */
		double cpu_s;	  /* as last read */
	} ending[CB_TWINS_ENDING_MAX];
	unsigned ending_next;
	struct cb_twin *coming; /* not ready yet; NULL = none */
	enum cb_twin_use coming_use;
	bool asked;		/* and CHECKPOINT is not answered */
	int64_t begun_ns;	/* when it was asked for */
	int64_t asked_at;	/* then; 0 = and that it takes long was told */
	int64_t interrupted_at; /* by a user, meanwhile; 0 = not */
	struct cb_twin *waking; /* takes over; NULL = none */
	int leash_slot;		/* of the one that is coming */
	int idle_timer, deadline_timer;
	struct cb_undo_log past;
	uint64_t cell;		  /* what the main shell's has in it */
	struct cb_twin_cost cost; /* auto */
	bool cost_reads;	  /* what the running cell does to memory */
	int64_t stopped_ns;	  /* when a take-over was ordered */
	bool fallen;		  /* in this take-over one was woken and failed */
	bool confirming;	  /* one serves, but nobody is told before it has been copied in its turn */
	bool copy_kills;	  /* in this take-over one died of that */
	unsigned passed_over;	  /* in this take-over: states that did not work */
	char passed_why[192];	  /* the last of them */
	struct cb_twin woken;	  /* the one that took over, as it was; without ends and comms */
	int64_t confirmed_ns;	  /* when it was last said that a state is back; 0 = something has begun since */
	unsigned silent;	  /* how many of them by silence */
	double duration_s;	  /* of the last one: how long the guest stood still */
	char coming_name[CB_CHECKPOINT_NAME]; /* of the one that came or did not come last */

	/* of the last take-over */
	int64_t restored_to;
	struct cb_buf undone; /* JSON array of numbers */
	struct cb_undo_log_undone undid;
	struct cb_buf calls;  /* completed calls of host tools of cells that are undone or lost: JSON array, or empty */
	char calls_text[320]; /* the same, "; what host tools did …" */
	char outcome[1664];   /* "all variables are as they were before cell [3]; …" */
};

int cb_twins_init(struct cb_kernel *k);
void cb_twins_release(struct cb_kernel *k);

/* ---- shells ---- */
/* A cell of the main shell or of a subshell begins. */
void cb_twins_begins(struct cb_kernel *k, struct cb_shell *s);

/* ---- life of the jail, from guest.c ---- */
void cb_twins_guest_up(struct cb_kernel *k);  /* the first one is made */
void cb_twins_jail_gone(struct cb_kernel *k); /* all are dead */
/* A branch has ended, or a Python with all it had started: what was given up for lack of room may go. */
void cb_twins_room(struct cb_kernel *k);
/* What pid 1 says: REGISTERED, GONE, RESTORED. */
void cb_twins_init_said(struct cb_kernel *k, const struct cb_init_msg *m);
/* The guest has ended, or is to end. False if nobody can take over; else what follows is up to us: the jail's death in
 * the end, if it fails. */
bool cb_twins_take_over(struct cb_kernel *k);
/* The main process of the guest has ended: true if that was one that took over, or one of those before it, so that it
 * is no end of the guest. */
bool cb_twins_exited(struct cb_kernel *k, int status);
/* One that takes over has closed its wire: it has a moment to end. */
void cb_twins_woken_closed(struct cb_kernel *k);
/* The one that takes over has ended, or must: the next older one does. */
void cb_twins_failed(struct cb_kernel *k, const char *why);
/* The broker has kept the workspace's files for it, or brought them back. `problem` is empty if all. */
void cb_twins_files(struct cb_kernel *k, enum cb_broker_op op, uint32_t number, const char *problem);
/* What the last take-over undid, as members of an object; "undone_calls":[…]: completed calls of host tools of the
 * cells that it undid, or that are lost. */
void cb_twins_write_undone(const struct cb_kernel *k, struct cb_json *j);
void cb_twins_write_undone_calls(const struct cb_kernel *k, struct cb_json *j);
/* Of metadata: "state", and what goes with it; more for the main shell. */
void cb_twins_write_state(const struct cb_kernel *k, bool main, const char *state, struct cb_json *j);
/* What became of the state, as in struct cb_shells_events. */
const char *cb_twins_became(const struct cb_kernel *k, bool restored);
/* CHECKPOINT_REPLY and RESUMED. */
void cb_twins_answered(struct cb_kernel *k, const struct cb_guest_content *c);
void cb_twins_resumed(struct cb_kernel *k);

/* ---- memory.c ---- */
size_t cb_twins_count(const struct cb_twins *w); /* those that have no name */
/* Their number, and which processes: those that are kept by age and were asked for before then. */
size_t cb_twins_unnamed(struct cb_kernel *k, int64_t before_ms, pid_t ret_pid[CB_TWINS_MAX]);
/* Seconds of processors that they have spent since the last call on copying and on their end, which is no cell's work:
 * no more than what they may copy can take, for they are hostile like their guest; one that ends runs no code. What the
 * last moments of an end took is not seen: while *ret_ending, ask often. */
double cb_twins_spent(struct cb_kernel *k, bool *ret_ending);
/* One that was told to end may still have its memory. */
bool cb_twins_end_soon(struct cb_kernel *k);
/* One could take over, also if it has a name. */
bool cb_twins_any(struct cb_kernel *k);
/* The oldest of them goes; how many are left. */
size_t cb_twins_give_up(struct cb_kernel *k);

/* ---- the queue, from execution.c ---- */
/* The state is about to change. `code` is a raw JSON string for a cell, absent for comm messages. */
void cb_twins_touched(struct cb_kernel *k, struct cb_span code, int64_t number);
/* A cell begins or has ended, after `seconds`: what twins cost is measured. */
void cb_twins_cell_ended(struct cb_kernel *k, double seconds);
/* Nothing runs: perhaps it is time for a twin. */
void cb_twins_quiet(struct cb_kernel *k);
/* This one is to begin. True if a twin is made first, and it waits. */
bool cb_twins_before(struct cb_kernel *k, const struct cb_request *r);
/* Whether requests must wait: a twin is being made, or takes over. */
bool cb_twins_busy(const struct cb_kernel *k);
/* A user's interrupt: one that Python is busy with is given up; at a second one, Python. */
void cb_twins_interrupt(struct cb_kernel *k);

/* ---- checkpoints.c ---- */
/* Starts making one; the end is cb_checkpoint_made. NULL or "" = no name. False: none can be made. */
bool cb_twins_make(struct cb_kernel *k, const char *name);
/* A branch of the present state, or of a twin; the end is cb_checkpoint_branched. */
bool cb_twins_branch(struct cb_kernel *k, struct cb_twin *from);
/* A copy of a branch that rests takes over, as one that was bred for a rollback does. */
bool cb_twins_adopt(struct cb_kernel *k, struct cb_branch *b);
struct cb_twin *cb_twins_named(struct cb_kernel *k, const char *name); /* NULL = none */
/* The youngest from before that cell, by the count of undo_log.h. */
struct cb_twin *cb_twins_before_cell(struct cb_kernel *k, uint64_t cell);
/* It takes over, or a copy of it does; the end is cb_checkpoint_rolled_back, or the failure of the current request. */
bool cb_twins_go_to(struct cb_kernel *k, struct cb_twin *t);
bool cb_twins_breed(struct cb_kernel *k, struct cb_twin *t, enum cb_twin_use use);
void cb_twins_drop(struct cb_kernel *k, struct cb_twin *t);
