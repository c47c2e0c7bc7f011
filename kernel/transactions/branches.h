/* Branches: copies of the state that run beside the main line. Trust domain: supervisor. See branches.c. */
#pragma once

#include "transactions.h"

int cb_branches_init(struct cb_transactions *tx);
void cb_branches_release(struct cb_transactions *tx);

/* ---- making and listing them ---- */
bool cb_branches_full(struct cb_transactions *tx);
bool cb_branches_any(const struct cb_transactions *tx);
/* The twin is woken and runs from then on, beside the guest; its channels are taken. False if it can't; else the end is
 * cb_checkpoint_branch_woken. */
bool cb_branches_born(struct cb_transactions *tx, struct cb_twin *t, const char *from);
void cb_branches_list(struct cb_transactions *tx, struct cb_json *j); /* "branches":[…] */

/* ---- ids are raw JSON strings; NULL, false: there is no such branch ---- */
struct cb_branch *cb_branches_find(struct cb_transactions *tx, struct cb_span id);
/* The error reply: there is no subshell of this id, nor a branch; or no more. */
void cb_branches_unknown(const struct cb_transactions *tx, struct cb_request *r, struct cb_span id);
/* As cb_shell_interrupt_one, of each branch. */
enum cb_found cb_branches_interrupt_one(struct cb_transactions *tx, struct cb_span msg_id);
bool cb_branches_delete(struct cb_transactions *tx, struct cb_span id);
/* Takes the request (ownership) if it is for a branch. */
bool cb_branches_take(struct cb_transactions *tx, struct cb_request *r);
/* A client's comm message: true if it is a branch's by its comm or subshell, and was taken (ownership). */
bool cb_branches_comm(struct cb_transactions *tx, struct cb_request *r, struct cb_span id, struct cb_span target);
/* The one that has asked this client for input, the longest ago. */
struct cb_shell *cb_branches_asker(struct cb_transactions *tx, const struct cb_request *reply);

void cb_branches_schedule(struct cb_transactions *tx);
/* A request that runs in one; NULL = none. */
const struct cb_request *cb_branches_running(const struct cb_transactions *tx);
bool cb_branches_busy(const struct cb_transactions *tx); /* anything runs or waits */
bool cb_branches_interrupted(const struct cb_transactions *tx); /* what runs in one is to stop, and has not yet */

/* ---- life of the jail ---- */
void cb_branches_signalled(struct cb_transactions *tx, uint32_t number);
void cb_branches_gone(struct cb_transactions *tx, uint32_t number, int status);
void cb_branches_jail_gone(struct cb_transactions *tx, const char *why);

/* ---- one of them ---- */
struct cb_branch *cb_branches_numbered(struct cb_transactions *tx, uint32_t number);
/* A request of our own, under the execution queue's current one. */
int cb_branch_ask(struct cb_transactions *tx, struct cb_branch *b, enum cb_wire_type type, enum cb_wire_phase phase,
		  struct cb_span content);
/* It is to end; what it has asked for is answered when pid 1 says that it has. */
void cb_branch_end(struct cb_transactions *tx, struct cb_branch *b, const char *why);

/* ---- branch_frames.c ---- */
/* A negative code (with reason) is a broken rule: the branch is killed. */
int cb_branch_frame(struct cb_python *p, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason);
/* A comm message that is not its own to send; it is told so. */
bool cb_branch_drops(struct cb_python *p, const struct cb_frame *f, const struct cb_guest_content *c);
/* The branch whose Python that is. */
struct cb_branch *cb_branch_of(const struct cb_python *p);
/* The one way to another state. */
void cb_branch_go(struct cb_branch *b, enum cb_branch_state to);
/* Says under a request that a comm message went nowhere. */
void cb_branch_comm_dropped(struct cb_transactions *tx, struct cb_header *header);

/* ---- adopt.c: a branch becomes the main line ---- */
/* The execution queue's current request is begun. False: it is answered, and nothing has changed. */
bool cb_adopt_begin(struct cb_transactions *tx, struct cb_request *r);
/* What the branch has not is undone by now: what has run in it has run in the main line. */
void cb_adopt_ran(struct cb_transactions *tx, uint32_t branch);
/* The copy is the main line now: the branch ends. */
void cb_adopt_done(struct cb_transactions *tx, uint32_t branch);

/* ---- what it does meanwhile ---- */
/* It is being adopted: what it did now would be lost. */
bool cb_adopt_holds(const struct cb_transactions *tx, const struct cb_branch *b);
void cb_adopt_answered(struct cb_transactions *tx, struct cb_branch *b, const struct cb_guest_content *c);
void cb_adopt_branch_gone(struct cb_transactions *tx, uint32_t branch);
/* It has ended: what has run in it is kept if its copy takes over. */
void cb_adopt_buried(struct cb_transactions *tx, struct cb_branch *b);

/* ---- its copy ---- */
/* The branch copies itself, with the channels that lie on its control socket. */
int cb_adopt_copy(struct cb_transactions *tx, struct cb_branch *b, uint32_t number);
/* It has not answered that. */
bool cb_adopt_is_asked(struct cb_transactions *tx, uint32_t branch);
/* It has not: what holds it up is to end, if anything does. */
void cb_adopt_failed(struct cb_transactions *tx, uint32_t branch);
