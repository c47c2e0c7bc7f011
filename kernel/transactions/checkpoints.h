/* Named checkpoints and rollback: what clients and cells ask of the twins. Trust domain: supervisor. See checkpoints.c.
 */
#pragma once

#include "transactions.h"

/* The execution queue's current request is begun. */
void cb_checkpoint_begin(struct cb_transactions *tx, struct cb_request *r);
/* At once: those that need no guest. */
void cb_checkpoint_answer(struct cb_transactions *tx, struct cb_request *r);
/* Why no copy can be made; NULL if one can. What is kept can be had all the same. */
const char *cb_checkpoints_refusal(const struct cb_transactions *tx);
/* "checkpoints":[…], all of them. */
void cb_checkpoints_list(struct cb_transactions *tx, struct cb_json *j);

/* The cell's reply asks: metadata of EXECUTE_REPLY. True if the cell ends by a rollback, and is answered after it; a
 * cell that ran over its time (`late`) does not. */
bool cb_checkpoint_cell_asks(struct cb_transactions *tx, const struct cb_frame *reply, bool late);
/* What it asks for: %checkpoint's names are noted; true if it is to go back. */
bool cb_checkpoint_wishes(struct cb_checkpoints *c, struct cb_span metadata, struct cb_back *ret_back, bool *ret_valid);

/* The one that was being made is ready (NULL = is not, for `why`); a rollback is done. */
void cb_checkpoint_made(struct cb_transactions *tx, struct cb_twin *t, const char *why);
void cb_checkpoint_rolled_back(struct cb_transactions *tx);
/* The twin that was to be a branch is ready; false if it is none and has to end. */
bool cb_checkpoint_branched(struct cb_transactions *tx, struct cb_twin *t);
/* The one that was asked for by the request with this header serves, and has this id (NULL = it ended before, for
 * `why`). False if nobody waits for it any more. */
bool cb_checkpoint_branch_woken(struct cb_transactions *tx, const struct cb_header *asked, const char *id,
				const char *why);
/* Python has ended: what %checkpoint asked for was of its state. */
void cb_checkpoints_gone(struct cb_transactions *tx);
/* One with this name ("" = none) is no more, though nobody has deleted it: the next cell says so. */
void cb_checkpoint_lost(struct cb_transactions *tx, const char *name, const char *why);
/* Nothing runs: what %checkpoint asked for is made. */
void cb_checkpoints_quiet(struct cb_transactions *tx);
