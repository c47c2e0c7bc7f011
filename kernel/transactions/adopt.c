/* Adoption: a branch becomes the main line.
 *
 * Trust domain: supervisor; the branch is as hostile as any guest. It is asked for a copy of itself, which takes over
 * from the main line as a copy that was bred for a rollback does (twins_restore.c); then it ends. Invariants: until the
 * copy is whole nothing changes; from CHECKPOINT on the branch is given nothing to do, and what came for it meanwhile
 * goes to the main line.
 */

#include <cellblock/json_scan.h>

#include "branches.h"
#include "jupyter/jupyter.h"
#include "python/guest.h"
#include "shells/execution.h"
#include "shells/shell.h"
#include "twins.h"

static bool rests(const struct cb_branch *b)
{
	return b->state == CB_BRANCH_UP && b->python.rules.phase == CB_PHASE_IDLE && b->shell.waiting.head == NULL;
}

bool cb_adopt_begin(struct cb_transactions *tx, struct cb_request *r)
{
	struct cb_json_field f[] = { { .name = "subshell_id", .types = CB_JSON_STRING, .required = true } };
	struct cb_branch *b;

	if (!cb_read_content(tx->jupyter, r, f, 1))
		return false;
	b = cb_branches_find(tx, f[0].ret);
	if (b == NULL) {
		cb_branches_unknown(tx, r, f[0].ret);
		return false;
	}
	if (!rests(b)) {
		cb_reply_error(tx->jupyter, r, "KernelBusyError",
			       "a cell of the branch runs: interrupt it first, or wait");
		return false;
	}
	tx->checkpoints.rolling = true;
	if (cb_twins_adopt(tx, b))
		return true;
	tx->checkpoints.rolling = false;
	cb_reply_error(tx->jupyter, r, "CheckpointError",
		       "no copy of the branch could be made (limits.pids or memory)");
	return false;
}

int cb_adopt_copy(struct cb_transactions *tx, struct cb_branch *b, uint32_t number)
{
	CB_JSON_SMALL(content, "number", number);

	return cb_branch_ask(tx, b, CB_WIRE_CHECKPOINT, CB_PHASE_FORKING, cb_buf_span(&content));
}

void cb_adopt_answered(struct cb_transactions *tx, struct cb_branch *b, const struct cb_guest_content *c)
{
	struct cb_twin *t = tx->twins.coming;
	char why[256];

	cb_guest_rules_go(&b->python.rules, CB_PHASE_IDLE, 0);
	if (t == NULL || t->branch != b->python.number)
		return; /* it takes over already, or is not wanted any more */
	if (cb_json_string_is(c->status, "ok")) {
		cb_left_out_take(&t->left_out, c->left_out);
		cb_twins_check_ready(tx);
		return;
	}
	cb_twins_why_not(c, why, sizeof(why));
	cb_twins_not_made(tx, why);
}

bool cb_adopt_is_asked(struct cb_transactions *tx, uint32_t branch)
{
	struct cb_branch *b = cb_branches_numbered(tx, branch);

	return b != NULL && b->python.rules.phase == CB_PHASE_FORKING;
}

void cb_adopt_failed(struct cb_transactions *tx, uint32_t branch)
{
	if (cb_adopt_is_asked(tx, branch))
		cb_python_let_go(&cb_branches_numbered(tx, branch)->python);
}

void cb_adopt_branch_gone(struct cb_transactions *tx, uint32_t branch)
{
	if (tx->twins.coming != NULL && tx->twins.coming->branch == branch)
		cb_twins_not_made(tx, "the branch has ended");
}

bool cb_adopt_holds(const struct cb_transactions *tx, const struct cb_branch *b)
{
	const struct cb_twins *w = &tx->twins;
	uint32_t n = b->python.number;

	return (w->coming != NULL && w->coming->branch == n) || (w->waking != NULL && w->waking->branch == n) ||
	       (cb_twins_confirming(w) && w->woken.branch == n);
}

void cb_adopt_buried(struct cb_transactions *tx, struct cb_branch *b)
{
	struct cb_twins *w = &tx->twins;

	if (!cb_adopt_holds(tx, b))
		return;
	cb_undo_log_release(&w->adopted_ran);
	cb_called_release(&w->adopted_called);
	w->adopted_ran = b->ran;
	w->adopted_called = b->called;
	w->adopted = b->python.number;
	b->ran = (struct cb_undo_log){ 0 };
	b->called = (struct cb_called_list){ 0 };
}

void cb_adopt_ran(struct cb_transactions *tx, uint32_t branch)
{
	struct cb_twins *w = &tx->twins;
	const struct cb_branch *b = cb_branches_numbered(tx, branch);

	if (b == NULL && w->adopted != branch)
		return;
	cb_undo_log_join(&w->undo_log, b != NULL ? &b->ran : &w->adopted_ran);
	cb_tools_join(&tx->jupyter->tools, b != NULL ? &b->called : &w->adopted_called, w->undo_log.last);
}

void cb_adopt_done(struct cb_transactions *tx, uint32_t branch)
{
	struct cb_branch *b = cb_branches_numbered(tx, branch);

	if (b == NULL || b->state == CB_BRANCH_ENDING)
		return;
	cb_comms_release(&b->comms); /* the main line has them */
	for (struct cb_request *r; (r = cb_shell_pop(&b->shell)) != NULL; cb_execution_submit(tx->shells, r))
		r->subshell_id = (struct cb_span){ NULL, 0 };
	cb_branch_end(tx, b, "it was adopted: the main line goes on from it");
}
