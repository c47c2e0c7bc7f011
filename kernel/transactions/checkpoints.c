/* Named checkpoints and rollback.
 *
 * Trust domain: supervisor; names come from clients and cells, and are bounded in number and length. A name is a twin
 * that is kept. Going back to it breeds a copy, which takes over, so that one can go back again; going back by a cell
 * uses the twin from before it up. Requests go through the execution queue, on control to its head; the answer to
 * %rollback is its cell's reply.
 */
#include "checkpoints.h"

#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>
#include <inttypes.h>

#include "branches.h"
#include "jupyter/jupyter.h"
#include "policy/policy.h"
#include "python/guest.h"
#include "shells/abort.h"
#include "shells/execution.h"
#include "shells/failure.h"
#include "shells/lanes.h"
#include "twins.h"

#define ENAME "CheckpointError"

/* A raw JSON string as a name: 1 to CB_CHECKPOINT_NAME - 1 bytes without control characters. */
static bool take_name(struct cb_span raw, char ret_name[CB_CHECKPOINT_NAME])
{
	CB_AUTO_BUF b = CB_BUF_INIT(CB_CHECKPOINT_NAME - 1);

	if (raw.data == NULL || cb_json_string_decode(raw, &b) < 0 || b.len == 0)
		return false;
	for (size_t i = 0; i < b.len; i++)
		if (b.data[i] < ' ' || b.data[i] == 0x7f)
			return false;
	memcpy(ret_name, b.data, b.len);
	ret_name[b.len] = '\0';
	return true;
}

/* The name in a request; "" if there is none. False, and answered, if it is wrong. */
static bool name_of(struct cb_transactions *tx, struct cb_request *r, char ret_name[CB_CHECKPOINT_NAME])
{
	bool branch = r->kind == CB_REQUEST_BRANCH, optional = branch || r->kind == CB_REQUEST_ROLLBACK;
	struct cb_json_field f[] = { { .name = branch ? "from" : "name",
				       .types = CB_JSON_STRING | (optional ? CB_JSON_NULL : 0u),
				       .required = !optional } };

	ret_name[0] = '\0';
	if (!cb_read_content(tx->jupyter, r, f, 1))
		return false;
	if (f[0].ret.data == NULL || f[0].ret_type == CB_JSON_NULL || take_name(f[0].ret, ret_name))
		return true;
	cb_reply_error(tx->jupyter, r, "MalformedRequestError",
		       "%s: %s: 1 to %d bytes without control characters are allowed", r->type, f[0].name,
		       CB_CHECKPOINT_NAME - 1);
	return false;
}

/* How many cells a raw JSON number says; false if it can't be so many. */
static bool take_cells(struct cb_span raw, unsigned *ret)
{
	int64_t n;

	if (cb_json_int(raw, &n) < 0 || n < 1 || n > CB_UNDO_LOG_MAX)
		return false;
	*ret = (unsigned)n;
	return true;
}

/* How many cells a rollback is to undo; nothing is said of that where it has a name. */
static bool cells_of(struct cb_transactions *tx, struct cb_request *r, struct cb_back *back)
{
	struct cb_json_field f[] = { { .name = "cells", .types = CB_JSON_INTEGER | CB_JSON_NULL } };
	const char *wrong = NULL;

	if (cb_json_scan_object(r->content.data, r->content.len, f, 1, NULL) < 0)
		wrong = "is not a number";
	else if (f[0].ret.data == NULL || f[0].ret_type == CB_JSON_NULL)
		return true;
	else if (back->name[0] != '\0')
		wrong = "goes without a name";
	else if (!take_cells(f[0].ret, &back->undo))
		wrong = "is 1 to 100000";
	if (wrong != NULL)
		cb_reply_error(tx->jupyter, r, "MalformedRequestError", "%s: cells: it %s", r->type, wrong);
	return wrong == NULL;
}

const char *cb_checkpoints_refusal(const struct cb_transactions *tx)
{
	if (tx->policy->transactions_mode == CB_MODE_OFF)
		return "transactions.mode is \"off\"";
	if (tx->twins.possible)
		return NULL;
	if (tx->guest->level < CB_LEVEL_NO_CGROUP)
		return "the jail's isolation level is below no-cgroup";
	if (tx->twins.copy_kills)
		return "the state that came back " CB_TWIN_COPY_KILLS;
	return tx->twins.given_up[0] != '\0' ? tx->twins.given_up
					     : "this kernel's guest can't be copied (see its log)";
}

static size_t count_named(const struct cb_transactions *tx)
{
	size_t n = 0;

	for (const struct cb_twin *t = tx->twins.twin; t < tx->twins.twin + CB_TWINS_MAX; t++)
		n += t->number != 0 && t->name[0] != '\0';
	return n;
}

/* Starts making it. False, with why, if that can't be. */
static bool start(struct cb_transactions *tx, const char *name, char *ret_why, size_t size)
{
	const char *no = cb_checkpoints_refusal(tx);

	if (no == NULL && cb_twins_named(tx, name) == NULL && count_named(tx) >= tx->policy->transactions_names) {
		snprintf(ret_why, size, "there are %zu checkpoints, and transactions.names is %llu; delete one",
			 count_named(tx), (unsigned long long)tx->policy->transactions_names);
		return false;
	}
	if (no == NULL && cb_twins_make(tx, name))
		return true;
	if (no != NULL)
		snprintf(ret_why, size, "%s", no);
	else
		snprintf(ret_why, size, "no copy could be made (%s)",
			 tx->twins.lack < 0 ? strerror(-tx->twins.lack) : "limits.pids or memory");
	return false;
}

/* ---- going back ---- */

/* The one from before the last cells, so many of them, before `end`: the running cell's count, which is undone as well.
 */
static struct cb_twin *before_cells(struct cb_transactions *tx, const struct cb_back *back, uint64_t end, char *ret_why,
				    size_t size)
{
	const struct cb_undo_log *p = &tx->twins.undo_log;
	size_t n = back->undo > 0 ? back->undo : 1, ran = cb_undo_log_between(p, 0, end);
	const struct cb_undo_log_cell *cell = cb_undo_log_latest(p, n, end);
	struct cb_twin *t = cell != NULL ? cb_twins_before_cell(tx, cell->cell) : NULL;
	size_t undone = t != NULL ? cb_undo_log_between(p, t->cell, end) : 0;

	if (t != NULL && (back->undo == 0 || undone <= n))
		return t;
	if (t != NULL) /* what asks for it is one more, if it is a cell */
		snprintf(ret_why, size,
			 "the state from before cell [%" PRId64 "] is not kept; %%undo %zu goes back to the one before "
			 "it, from after cell [%" PRId64 "]",
			 cell->number, undone + (end != UINT64_MAX), t->count);
	else if (p->live.cells < n && ran < n)
		snprintf(ret_why, size, "no more than %zu cells have run", ran);
	else
		snprintf(ret_why, size, "the state from before %s is not kept (transactions.keep is %llu)",
			 n == 1 ? "the last cell" : "that cell", (unsigned long long)tx->policy->transactions_keep);
	return NULL;
}

/* Begins it; false, with why, if there is nothing to go back to. */
static bool go_back(struct cb_transactions *tx, const struct cb_back *back, uint64_t end, char *ret_why, size_t size)
{
	bool named = back->name[0] != '\0';
	struct cb_twin *t = named ? cb_twins_named(tx, back->name) : before_cells(tx, back, end, ret_why, size);
	/* what is kept can be had, whatever is made from here on */
	const char *no = t == NULL ? cb_checkpoints_refusal(tx) : NULL;

	if (no != NULL)
		snprintf(ret_why, size, "%s", no);
	else if (t == NULL && named)
		snprintf(ret_why, size, "there is no checkpoint \"%s\"", back->name);
	if (t == NULL)
		return false;
	tx->checkpoints.rolling = true;
	if (named ? cb_twins_breed(tx, t, CB_TWIN_ROLLBACK) : cb_twins_go_to(tx, t))
		return true;
	tx->checkpoints.rolling = false;
	snprintf(ret_why, size, "the %s could not be restored", named ? "checkpoint" : "earlier state");
	return false;
}

void cb_checkpoint_rolled_back(struct cb_transactions *tx)
{
	struct cb_request *r = tx->shells->execution.shell.current;
	CB_AUTO_BUF b = CB_BUF_INIT(CB_METADATA_MAX);

	tx->checkpoints.rolling = false;
	if (tx->twins.woken.use == CB_TWIN_ADOPTED)
		cb_adopt_done(tx, tx->twins.woken.branch);
	if (r == NULL)
		return;
	cb_iopub_flush(tx->jupyter);
	if (cb_request_is_execute(r)) {
		char text[sizeof(tx->twins.outcome) + 32];
		int n = snprintf(text, sizeof(text), "[cellblock: %s]\n", tx->twins.outcome);

		if (!r->execute.silent)
			cb_iopub_text(tx->jupyter, r->header, CB_WIRE_STDERR, text, (size_t)n);
		cb_failure_metadata(&tx->shells->execution.shell, "ok", "restored", NULL, NULL, &b);
		CB_JSON_SMALL(content, "status", "ok", "execution_count", tx->shells->execution.shell.cell.number,
			      "payload", CB_SPAN("[]"), "user_expressions", CB_SPAN("{}"));
		cb_reply_full(tx->jupyter, r, cb_buf_span(&b), cb_buf_span(&content), NULL);
	} else {
		struct cb_json j = cb_json_begin(&b);

		cb_json_put(&j, "status", "ok", "outcome", tx->twins.outcome);
		cb_twins_write_undone(tx, &j);
		cb_twins_write_undone_calls(tx, &j);
		cb_reply_json(tx->jupyter, r, &j);
	}
	cb_execution_finish(tx->shells);
}

/* ---- branches ---- */

static bool branch_off(struct cb_transactions *tx, const char *from, char *ret_why, size_t size)
{
	const char *no = cb_checkpoints_refusal(tx);
	struct cb_twin *t = from[0] != '\0' ? cb_twins_named(tx, from) : NULL;

	if (no != NULL)
		snprintf(ret_why, size, "%s", no);
	else if (from[0] != '\0' && t == NULL)
		snprintf(ret_why, size, "there is no checkpoint \"%s\"", from);
	else if (cb_branches_full(tx))
		snprintf(ret_why, size, "there are %d branches; end one that is not used any more", CB_BRANCHES_MAX);
	else if (cb_twins_branch(tx, t))
		return true;
	else
		snprintf(ret_why, size, "no copy could be made (limits.pids or memory)");
	return false;
}

bool cb_checkpoint_branched(struct cb_transactions *tx, struct cb_twin *t)
{
	struct cb_request *r = tx->shells->execution.shell.current;
	char from[CB_CHECKPOINT_NAME];

	if (r == NULL || r->kind != CB_REQUEST_BRANCH || !name_of(tx, r, from))
		return false; /* nobody waits for it any more */
	if (cb_branches_born(tx, t, from))
		return true;
	(void)cb_checkpoint_branch_woken(tx, r->header, NULL, "it can't be spoken to");
	return false;
}

bool cb_checkpoint_branch_woken(struct cb_transactions *tx, const struct cb_header *asked, const char *id,
				const char *why)
{
	struct cb_request *r = tx->shells->execution.shell.current;

	if (r == NULL || r->kind != CB_REQUEST_BRANCH || r->header != asked)
		return false;
	if (id == NULL)
		cb_reply_error(tx->jupyter, r, ENAME, "the branch could not be started: %s", why);
	else
		cb_reply_ok(tx->jupyter, r, "subshell_id", id);
	cb_execution_finish(tx->shells);
	return true;
}

/* ---- requests ---- */

void cb_checkpoints_list(struct cb_transactions *tx, struct cb_json *j)
{
	cb_json_array(j, "checkpoints");
	for (const struct cb_twin *t = tx->twins.twin; t < tx->twins.twin + CB_TWINS_MAX; t++) {
		char date[28];

		if (t->number == 0 || t->name[0] == '\0' || t == tx->twins.coming)
			continue;
		cb_date_format(t->created, date);
		cb_json_put_object(j, NULL, "name", t->name, "execution_count", t->count, "memory_bytes",
				   cb_usage_of(t->pid), "created", date);
	}
	cb_json_end(j);
}

void cb_checkpoint_answer(struct cb_transactions *tx, struct cb_request *r)
{
	CB_AUTO_BUF b = CB_BUF_INIT(1u << 20);
	char name[CB_CHECKPOINT_NAME];
	bool branches = r->kind == CB_REQUEST_LIST_BRANCHES;

	if (branches || r->kind == CB_REQUEST_LIST_CHECKPOINTS) {
		struct cb_json j = cb_json_begin(&b);

		cb_json_put(&j, "status", "ok");
		(branches ? cb_branches_list : cb_checkpoints_list)(tx, &j);
		cb_reply_json(tx->jupyter, r, &j);
	} else if (name_of(tx, r, name)) {
		struct cb_twin *t = cb_twins_named(tx, name), *held = cb_twins_held(&tx->twins);

		if (t == NULL && held != NULL && strcmp(held->name, name) == 0) { /* all there is: only its name goes */
			held->name[0] = '\0';
			cb_reply_ok(tx->jupyter, r);
			return;
		}
		if (t == NULL) {
			cb_reply_error(tx->jupyter, r, ENAME, "there is no checkpoint \"%s\"", name);
			return;
		}
		cb_twins_drop(tx, t);
		if (cb_twins_confirming(&tx->twins) && strcmp(tx->twins.woken.name, name) == 0)
			tx->twins.woken.name[0] = '\0'; /* it is deleted, not lost */
		cb_reply_ok(tx->jupyter, r);
	}
}

void cb_checkpoint_begin(struct cb_transactions *tx, struct cb_request *r)
{
	struct cb_back back = { .undo = 0 };
	char *name = back.name, why[256];
	bool under_way;

	if (r->kind == CB_REQUEST_LIST_CHECKPOINTS || r->kind == CB_REQUEST_DELETE_CHECKPOINT ||
	    r->kind == CB_REQUEST_LIST_BRANCHES) {
		cb_checkpoint_answer(tx, r);
		cb_execution_finish(tx->shells);
		return;
	}
	if ((r->kind == CB_REQUEST_ROLLBACK || r->kind == CB_REQUEST_ADOPT) && cb_lanes_running(tx->shells) != NULL) {
		cb_reply_error(tx->jupyter, r, "KernelBusyError",
			       "a cell of a subshell runs: interrupt it first, or wait");
		cb_execution_finish(tx->shells);
		return;
	}
	if (r->kind == CB_REQUEST_ADOPT) {
		if (!cb_adopt_begin(tx, r))
			cb_execution_finish(tx->shells);
		return;
	}
	if (!name_of(tx, r, name) || (r->kind == CB_REQUEST_ROLLBACK && !cells_of(tx, r, &back))) {
		cb_execution_finish(tx->shells);
		return;
	}
	if (r->kind == CB_REQUEST_CHECKPOINT)
		under_way = start(tx, name, why, sizeof(why));
	else if (r->kind == CB_REQUEST_BRANCH)
		under_way = branch_off(tx, name, why, sizeof(why));
	else
		under_way = go_back(tx, &back, UINT64_MAX, why, sizeof(why));
	if (under_way)
		return;
	cb_reply_error(tx->jupyter, r, ENAME, "%s", why);
	cb_execution_finish(tx->shells);
}

/* What %checkpoint asked for, one after the other. */
static void next_asked(struct cb_transactions *tx)
{
	struct cb_checkpoints *c = &tx->checkpoints;
	char why[256];

	while (c->nasked > 0 && tx->shells->execution.shell.current == NULL) {
		char name[CB_CHECKPOINT_NAME];

		memcpy(name, c->asked[0], sizeof(name));
		c->nasked--;
		memmove(c->asked[0], c->asked[1], c->nasked * sizeof(c->asked[0]));
		if (start(tx, name, why, sizeof(why)))
			return;
		cb_execution_note(&tx->shells->execution, "%%checkpoint %s: not made: %s", name, why);
	}
}

void cb_checkpoints_gone(struct cb_transactions *tx)
{
	struct cb_checkpoints *c = &tx->checkpoints;

	if (c->nasked > 0)
		cb_execution_note(&tx->shells->execution, "%%checkpoint %s: not made, for Python ended before",
				  c->asked[0]);
	c->nasked = 0;
}

void cb_checkpoint_lost(struct cb_transactions *tx, const char *name, const char *why)
{
	if (name[0] != '\0')
		cb_execution_note(&tx->shells->execution, "the checkpoint %s is gone: %s", name, why);
}

void cb_checkpoints_quiet(struct cb_transactions *tx)
{
	if (!cb_twins_busy(tx) && tx->guest->state == CB_GUEST_UP)
		next_asked(tx);
}

/* As any cell that fails. */
static void refuse_cell(struct cb_transactions *tx, const char *what, const char *why)
{
	struct cb_shell *s = &tx->shells->execution.shell;

	if (s->current->execute.stop_on_error)
		cb_abort_queue(s);
	if (s->current == NULL || s->over) /* what was taken in with that has ended its Python */
		return;
	cb_failure_reply(s, ENAME, "kept", "%%%s: %s", what, why);
	cb_execution_finish(tx->shells);
}

void cb_checkpoint_made(struct cb_transactions *tx, struct cb_twin *t, const char *why)
{
	struct cb_request *r = tx->shells->execution.shell.current;

	if (t == NULL && tx->checkpoints.rolling && r != NULL) {
		tx->checkpoints.rolling = false;
		if (cb_request_is_execute(r)) {
			refuse_cell(tx, "rollback: the checkpoint could not be restored", why);
		} else {
			cb_reply_error(tx->jupyter, r, ENAME, "the %s: %s",
				       r->kind == CB_REQUEST_ADOPT ? "branch could not be adopted"
								   : "checkpoint could not be restored",
				       why);
			cb_execution_finish(tx->shells);
		}
	} else if (t == NULL && r != NULL && r->kind == CB_REQUEST_BRANCH) {
		cb_reply_error(tx->jupyter, r, ENAME, "no copy could be made: %s", why);
		cb_execution_finish(tx->shells);
	} else if (r != NULL && r->kind == CB_REQUEST_CHECKPOINT) {
		if (t == NULL)
			cb_reply_error(tx->jupyter, r, ENAME, "no copy could be made: %s", why);
		else
			cb_reply_ok(tx->jupyter, r, "name", t->name, "execution_count", t->count, "memory_bytes",
				    cb_usage_of(t->pid), "duration_s", CB_ROUNDED(tx->twins.duration_s, 6));
		cb_execution_finish(tx->shells);
	} else if (t == NULL && tx->twins.coming_name[0] != '\0') {
		cb_execution_note(&tx->shells->execution, "%%checkpoint %s: no copy could be made",
				  tx->twins.coming_name);
	}
	cb_twins_quiet(tx); /* one without a name may be due as well, or again */
}

/* ---- cells ---- */

static void take_asked(struct cb_checkpoints *c, struct cb_span array)
{
	const char *at = array.data, *end = array.data + array.len;

	/* the scan has passed it as an array of strings: from quote to quote */
	while ((at = memchr(at, '"', (size_t)(end - at))) != NULL) {
		const char *close = at + 1;

		while (close < end && *close != '"')
			close += *close == '\\' ? 2 : 1;
		if (close >= end)
			return;
		if (c->nasked < CB_CHECKPOINT_ASKED &&
		    take_name((struct cb_span){ at, (size_t)(close + 1 - at) }, c->asked[c->nasked]))
			c->nasked++;
		else
			c->passed_over++;
		at = close + 1;
	}
}

bool cb_checkpoint_wishes(struct cb_checkpoints *c, struct cb_span metadata, struct cb_back *ret_back, bool *ret_valid)
{
	struct cb_json_field f[] = {
		{ .name = "checkpoint", .types = CB_JSON_ARRAY, .elements = CB_JSON_STRING },
		{ .name = "rollback", .types = CB_JSON_STRING | CB_JSON_NULL },
		{ .name = "undo", .types = CB_JSON_INTEGER },
	};

	*ret_back = (struct cb_back){ .undo = 0 };
	if (metadata.len <= 2 || cb_json_scan_object(metadata.data, metadata.len, f, 3, NULL) < 0)
		return false;
	if (f[0].ret.data != NULL)
		take_asked(c, f[0].ret);
	*ret_valid = f[2].ret.data != NULL ? take_cells(f[2].ret, &ret_back->undo)
					   : f[1].ret_type == CB_JSON_NULL || take_name(f[1].ret, ret_back->name);
	return f[1].ret.data != NULL || f[2].ret.data != NULL;
}

bool cb_checkpoint_cell_asks(struct cb_transactions *tx, const struct cb_frame *reply, bool late)
{
	struct cb_checkpoints *c = &tx->checkpoints;
	unsigned before = c->nasked;
	struct cb_back back;
	char why[256];
	bool valid, goes = cb_checkpoint_wishes(c, reply->metadata, &back, &valid);

	if (c->passed_over > 0)
		cb_execution_note(&tx->shells->execution,
				  "%%checkpoint: %u not made: a cell may ask for %d, with names of 1 to %d bytes "
				  "without control characters",
				  c->passed_over, CB_CHECKPOINT_ASKED, CB_CHECKPOINT_NAME - 1);
	c->passed_over = 0;
	if (!goes || late)
		return false;
	if (!valid) {
		snprintf(why, sizeof(why), "no such name or number");
	} else if (c->nasked > before) { /* it is made when the cell has ended */
		snprintf(why, sizeof(why), "a cell that makes a checkpoint can't go back as well: take two cells");
	} else if (cb_lanes_running(tx->shells) != NULL) {
		snprintf(why, sizeof(why), "a cell of a subshell runs: interrupt it first, or wait");
	} else {
		cb_execution_cell_over(tx->shells);
		if (go_back(tx, &back, tx->shells->execution.shell.cell.kept_as, why, sizeof(why)))
			return true;
	}
	refuse_cell(tx, back.undo > 0 ? "undo" : "rollback", why);
	return true;
}
