/* Twins: the copies of a guest from which its state comes back (include/cellblock/twin.h). Trust domain: supervisor.
 * See twins.c. */
#pragma once

#include "transactions.h"

/* What is said of a state when `copy_kills`. */
#define CB_TWIN_COPY_KILLS \
	"may die of being copied, so no state is kept from here on: save what you need and restart the kernel"

int cb_twins_init(struct cb_transactions *tx);
void cb_twins_release(struct cb_transactions *tx);

/* ---- shells ---- */
/* A cell of the main shell or of a subshell begins. */
void cb_twins_begins(struct cb_transactions *tx, struct cb_shell *s);
/* A subshell's has ended, or died. */
void cb_twins_beside_ended(struct cb_transactions *tx, const struct cb_shell *s);

/* ---- life of the jail ---- */
void cb_twins_guest_up(struct cb_transactions *tx);  /* the first one is made */
void cb_twins_jail_gone(struct cb_transactions *tx); /* all are dead */
/* A branch has ended, or a Python with all it had started: what was given up for lack of room may go. */
void cb_twins_room(struct cb_transactions *tx);
/* What pid 1 says: REGISTERED, GONE, RESTORED. */
void cb_twins_init_said(struct cb_transactions *tx, const struct cb_init_msg *m);
/* The guest has ended, or is to end. False if nobody can take over; else what follows is up to us: the jail's death in
 * the end, if it fails. */
bool cb_twins_take_over(struct cb_transactions *tx);
/* The main process of the guest has ended: true if that was one that took over, or one of those before it, so that it
 * is no end of the guest. */
bool cb_twins_exited(struct cb_transactions *tx, int status);
/* One that takes over has closed its wire: it has a moment to end. */
void cb_twins_woken_closed(struct cb_transactions *tx);
/* The one that takes over has ended, or must: the next older one does. */
void cb_twins_failed(struct cb_transactions *tx, const char *why);
/* The broker has kept the workspace's files for it, or brought them back; or it has not. `problem` is empty if all. */
void cb_twins_files(struct cb_transactions *tx, enum cb_broker_op op, uint32_t number, bool done, const char *problem);
/* What the last take-over undid, and those before it of which nobody was told, as members of an object;
 * "undone_calls":[…]: calls of host tools, completed or in doubt, of the cells that they undid, or that are lost. */
void cb_twins_write_undone(const struct cb_transactions *tx, struct cb_json *j);
void cb_twins_write_undone_calls(const struct cb_transactions *tx, struct cb_json *j);
/* Of metadata: "state", and what goes with it; more for the main shell. */
void cb_twins_write_state(const struct cb_transactions *tx, bool main, const char *state, struct cb_json *j);
/* What became of the state, as in struct cb_shells_events. */
const char *cb_twins_became(const struct cb_transactions *tx, bool restored);
/* CHECKPOINT_REPLY and RESUMED. */
void cb_twins_answered(struct cb_transactions *tx, const struct cb_guest_content *c);
void cb_twins_resumed(struct cb_transactions *tx);

/* ---- when memory is short ---- */
size_t cb_twins_count(const struct cb_twins *w); /* those that have no name */
/* Their number, and which processes: those that are kept by age and were asked for before then. */
size_t cb_twins_unnamed(struct cb_transactions *tx, int64_t before_ms, pid_t ret_pid[CB_TWINS_MAX]);
/* Seconds of processors that they have spent since the last call on copying and on their end, which is no cell's work:
 * no more than what they may copy can take, for they are hostile like their guest; one that ends runs no code. What the
 * last moments of an end took is not seen: while *ret_ending, ask often. */
double cb_twins_spent(struct cb_transactions *tx, bool *ret_ending);
/* One that was told to end may still have its memory. */
bool cb_twins_end_soon(struct cb_transactions *tx);
/* One could take over, also if it has a name. */
bool cb_twins_any(struct cb_transactions *tx);
/* The oldest of them goes; how many are left. */
size_t cb_twins_give_up(struct cb_transactions *tx);

/* ---- the queue ---- */
/* The state is about to change. `code` is a raw JSON string for a cell, absent for comm messages. */
void cb_twins_touched(struct cb_transactions *tx, struct cb_span code, int64_t number);
/* A client's request that may have written to the workspace has ended: what is kept from before has not its files. */
void cb_twins_files_written(struct cb_transactions *tx);
/* So has a commit, to the folder outside: what the layer had not at an older state is not what it was then. */
void cb_twins_files_committed(struct cb_transactions *tx);
/* A cell begins or has ended, after `seconds`: what twins cost is measured. */
void cb_twins_cell_ended(struct cb_transactions *tx, double seconds);
/* Nothing runs: perhaps it is time for a twin. */
void cb_twins_quiet(struct cb_transactions *tx);
/* This one is to begin. True if a twin is made first, and it waits. */
bool cb_twins_before(struct cb_transactions *tx, struct cb_request *r);
/* Whether requests must wait: a twin is being made, or takes over. */
bool cb_twins_busy(const struct cb_transactions *tx);
/* A user's interrupt: one that Python is busy with is given up; at a second one, Python. */
void cb_twins_interrupt(struct cb_transactions *tx);
bool cb_twins_interrupted(const struct cb_transactions *tx); /* one that it is busy with */

/* ---- names, branches, going back ---- */
/* Starts making one; the end is cb_checkpoint_made. NULL or "" = no name. False: none can be made. */
bool cb_twins_make(struct cb_transactions *tx, const char *name);
/* A branch of the present state, or of a twin; the end is cb_checkpoint_branched. */
bool cb_twins_branch(struct cb_transactions *tx, struct cb_twin *from);
/* A copy of a branch that rests takes over, as one that was bred for a rollback does. */
bool cb_twins_adopt(struct cb_transactions *tx, struct cb_branch *b);
struct cb_twin *cb_twins_named(struct cb_transactions *tx, const char *name); /* NULL = none */
/* The youngest from before that cell, by the count of undo_log.h. */
struct cb_twin *cb_twins_before_cell(struct cb_transactions *tx, uint64_t cell);
/* It takes over, or a copy of it does; the end is cb_checkpoint_rolled_back, or the failure of the current request. */
bool cb_twins_go_to(struct cb_transactions *tx, struct cb_twin *t);
bool cb_twins_breed(struct cb_transactions *tx, struct cb_twin *t, enum cb_twin_use use);
void cb_twins_drop(struct cb_transactions *tx, struct cb_twin *t);

/* ---- among the files of twins ---- */
/* Of CHECKPOINT_REPLY; what is wrong is passed over. */
void cb_left_out_take(struct cb_left_out *l, struct cb_span json);

bool cb_twin_is_ready(const struct cb_twin *t);
struct cb_twin *cb_twins_find(struct cb_twins *w, uint32_t number); /* 0 = a free place */
/* The youngest, or with `oldest` the oldest that nothing waits for, of those that are ready and have no name. */
struct cb_twin *cb_twins_pick(struct cb_twins *w, bool oldest);
/* While one that took over is not known to work: the oldest or youngest without a name that goes when it is; NULL =
 * there is none. */
struct cb_twin *cb_twins_undone(struct cb_twins *w, bool oldest);
/* One that took over serves, and is not known to work. */
bool cb_twins_confirming(const struct cb_twins *w);
/* Who is to take over, and is woken only when something is asked of it; NULL = none. */
struct cb_twin *cb_twins_held(const struct cb_twins *w);
/* There is such a one, perhaps for hours, and branches go on beside it. */
bool cb_twins_hold(const struct cb_transactions *tx);
/* Who takes over when a cell fails for good: the youngest without a name, or if there is none the youngest. */
struct cb_twin *cb_twins_next(struct cb_twins *w);
/* Another one of this one's name. */
struct cb_twin *cb_twins_other_named(struct cb_twins *w, const struct cb_twin *than);
/* Forgets it; that it is dead, or what it is otherwise, is the caller's to know. */
void cb_twins_forget(struct cb_transactions *tx, struct cb_twin *t);
/* The next cell has to tell of a loss. */
bool cb_twins_owe(const struct cb_transactions *tx);
/* If not, what is undone was told. */
void cb_twins_told(struct cb_transactions *tx);
/* Notes the calls of host tools of all after `cell`, with those that are to be told yet. */
void cb_twins_undo_calls(struct cb_transactions *tx, int64_t cell);
/* What lies before the oldest is nobody's any more. */
void cb_twins_forget_past(struct cb_transactions *tx);

/* ---- twins_make.c ---- */
/* Ready, if all have come: CHECKPOINT_REPLY, REGISTERED and BORN, and the copy of the files if there is to be one. */
void cb_twins_check_ready(struct cb_transactions *tx);
/* Of those without a name: the oldest go that are too many. */
void cb_twins_keep_so_many(struct cb_transactions *tx);
void cb_twins_let_go(
	struct cb_transactions *tx); /* CHECKPOINT is not answered: a function that holds it up is to end */
/* How many ns it has not been, while Python was heard. */
int64_t cb_twins_silent(struct cb_transactions *tx);
void cb_twins_not_made(struct cb_transactions *tx, const char *why);
/* In words, what a CHECKPOINT_REPLY with an error says. */
void cb_twins_why_not(const struct cb_guest_content *c, char *ret_why, size_t size);
/* If the guest owes an answer all the same, that one ends it. */
void cb_twins_lost_at_birth(struct cb_transactions *tx, const char *why);

/* ---- twins_restore.c ---- */
/* The one way to another state of the take-over. */
void cb_twins_go(struct cb_twins *w, enum cb_takeover to);
/* The dead are dead: what they have said is all there is. */
void cb_twins_restored(struct cb_transactions *tx);
/* The one that takes over has not said RESUMED by its deadline. */
void cb_twins_waking_late(struct cb_transactions *tx);
/* Perhaps something waits now for one that is woken for a request only. */
void cb_twins_asked(struct cb_transactions *tx);
/* Of the one that took over a copy was made, or none could be. */
void cb_twins_copied(struct cb_transactions *tx, const struct cb_twin *copy);
/* That is not answered, and the reply to the failed cell has waited for it long enough. */
bool cb_twins_copied_late(struct cb_transactions *tx);
/* It has lived on for a while: that is enough, unless a thread of it waits for a processor still. */
void cb_twins_looked_at(struct cb_transactions *tx);
/* It works. */
void cb_twins_confirm(struct cb_transactions *tx);

/* ---- twins_when.c ---- */
/* Another one, when it is quiet: the youngest is gone, or could not be made, though nothing has run since. */
void cb_twins_want_again(struct cb_transactions *tx);
void cb_twins_on_idle(void *context);
/* One without a name is tried: for now nothing is noticed. */
void cb_twins_try(struct cb_transactions *tx);
/* It is ready: from a while after that on it is noticed whether Python works between cells. Or it could not be made:
 * from then on the next cell has it tried again. Not at once, for what kept it from being made is there yet. */
void cb_twins_rest(struct cb_transactions *tx);
void cb_twins_on_rest(void *context);

/* ---- file_snapshots.c ---- */
/* Whether files go back: the workspace is an overlay in a jail with a mount of its own. */
bool cb_file_snapshots_on(const struct cb_transactions *tx);
/* SNAPSHOT, RESTORE or FORGET `number`, after what was asked before. cb_twins_files hears of the first two. */
void cb_file_snapshots_ask(struct cb_transactions *tx, enum cb_broker_op op, uint32_t number);
