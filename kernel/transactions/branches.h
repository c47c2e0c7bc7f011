/* Branches: copies of the state that run beside the main line. Trust domain: supervisor. See branches.c. */
#pragma once

#include "checkpoints.h"
#include "jupyter/comms.h"
#include "undo_log.h"
#include "python/python.h"
#include "shells/shell.h"

struct cb_init_msg;
struct cb_kernel;
struct cb_twin;

#define CB_BRANCHES_MAX 200 /* at one time; the rest of CB_TWINS_MAX is for twins with and without names */
#define CB_BRANCHES_ENDED 256
#define CB_BRANCH_PARENTS 16
#define CB_BRANCH_FRAMES_MAX (256u << 20) /* bytes of frames that are coming in, of all branches */

struct cb_branch {
	struct cb_shell shell;	 /* first: its ops find the branch by it. id "": deleted */
	struct cb_python python; /* number: the twin's */
	struct cb_kernel *kernel;
	enum cb_branch_state { CB_BRANCH_WAKING, CB_BRANCH_UP, CB_BRANCH_ENDING } state;
	bool served;		       /* it was up once: who asked for it has its id */
	char from[CB_CHECKPOINT_NAME]; /* "" = the state as it was */
	double created;
	int64_t count;
	uint64_t cell;		       /* where it left the main line, as struct cb_twin has it */
	struct cb_undo_log_count live; /* and */
	struct cb_guest_parent parent[CB_BRANCH_PARENTS];
	struct cb_comms comms; /* those opened in it */
	uint64_t comm_told;    /* id of the request under which it was said that others are dropped */
	char why[256];	       /* it is to end for; empty = it ended by itself */
	bool mute;	       /* it broke the protocol: not heard any more */
	bool unread;	       /* its wire is not read any more */
	int64_t deadline;      /* to wake, or to end after its wire is closed; 0 = none */
	uint64_t oom_kills;    /* of the jail when the cell began */
};

struct cb_branches {
	struct cb_branch *branch[CB_BRANCHES_MAX]; /* owned; NULL = free */
	struct cb_load load;
	struct {
		char id[40], why[160];
	} ended[CB_BRANCHES_ENDED]; /* the latest that ended unasked */
	size_t last_ended;
	struct cb_link_room room;
	int epoll_fd; /* all their channels: one source for the loop, however many there are */
	int slot, timer, resume_timer;
	int64_t look_at; /* at CPU time and memory; 0 = not yet asked for */
};

int cb_branches_init(struct cb_kernel *k);
void cb_branches_release(struct cb_kernel *k);

/* ---- from checkpoints.c ---- */
bool cb_branches_full(const struct cb_kernel *k);
/* The twin is woken and runs from then on, beside the guest; its channels are taken. False if it can't; else the end is
 * cb_checkpoint_branch_woken. */
bool cb_branches_born(struct cb_kernel *k, struct cb_twin *t, const char *from);
void cb_branches_list(struct cb_kernel *k, struct cb_json *j); /* "branches":[…] */

/* ---- ids are raw JSON strings; NULL, false: there is no such branch ---- */
struct cb_branch *cb_branches_find(struct cb_kernel *k, struct cb_span id);
const char *cb_branches_epitaph(const struct cb_kernel *k, struct cb_span id); /* why one ended */
bool cb_branches_delete(struct cb_kernel *k, struct cb_span id);
/* Takes the request (ownership) if it is for a branch. */
bool cb_branches_take(struct cb_kernel *k, struct cb_request *r);
/* A client's comm message: true if it is a branch's by its comm or subshell, and was taken (ownership). */
bool cb_branches_comm(struct cb_kernel *k, struct cb_request *r, struct cb_span id, struct cb_span target);
/* The one that has asked this client for input, the longest ago. */
struct cb_shell *cb_branches_asker(struct cb_kernel *k, const struct cb_request *reply);

void cb_branches_schedule(struct cb_kernel *k);
/* A request that runs in one; NULL = none. */
const struct cb_request *cb_branches_running(const struct cb_kernel *k);
bool cb_branches_busy(const struct cb_kernel *k); /* anything runs or waits */

/* ---- from twins.c and execution.c ---- */
void cb_branches_signalled(struct cb_kernel *k, uint32_t number);
void cb_branches_gone(struct cb_kernel *k, uint32_t number, int status);
void cb_branches_jail_gone(struct cb_kernel *k, const char *why);

/* ---- from adopt.c and memory.c ---- */
struct cb_branch *cb_branches_numbered(struct cb_kernel *k, uint32_t number);
/* A request of our own, under the execution queue's current one. */
int cb_branch_ask(struct cb_kernel *k, struct cb_branch *b, enum cb_wire_type type, enum cb_wire_phase phase,
		  struct cb_span content);
/* It is to end; what it has asked for is answered when pid 1 says that it has. */
void cb_branch_end(struct cb_kernel *k, struct cb_branch *b, const char *why);
