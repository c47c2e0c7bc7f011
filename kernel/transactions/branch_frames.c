/* What only a branch says, and what is said of one.
 *
 * Trust domain: supervisor; frames as in shells/frames.c: permitted in the branch's phase, and strict JSON. A branch
 * has no subshells, no checkpoint but the one that adopts it, no side wire, and of comms only those that it opened
 * itself: what it says on others, which are the main line's, is dropped with a notice.
 */

#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>
#include <cellblock/states.h>

#include "branches.h"
#include "checkpoints.h"
#include "jupyter/jupyter.h"
#include "python/guest.h"
#include "shells/shell.h"

void cb_branch_comm_dropped(struct cb_transactions *tx, struct cb_header *header)
{
	static const char text[] =
		"[cellblock: comm messages on comms that this branch has not opened are dropped: they "
		"are the main line's]\n";

	cb_iopub_text(tx->jupyter, header, CB_WIRE_STDERR, text, sizeof(text) - 1);
}

/* Once for each request. */
static void comm_refused(struct cb_transactions *tx, struct cb_branch *b, const struct cb_frame *f)
{
	const struct cb_guest_parent *p = cb_output_parent(&b->python.output, f->header.request);

	if (p->id != b->comm_told)
		cb_branch_comm_dropped(tx, p->header);
	b->comm_told = p->id;
}

struct cb_branch *cb_branch_of(const struct cb_python *p)
{
	return (struct cb_branch *)(uintptr_t)((const char *)p - offsetof(struct cb_branch, python));
}

static bool is_foreign(struct cb_transactions *tx, struct cb_branch *b, const struct cb_frame *f,
		       const struct cb_guest_content *c)
{
	switch (f->header.type) {
	case CB_WIRE_UP_COMM_OPEN:
		return cb_comms_has(&tx->guest->comms, c->comm_id);
	case CB_WIRE_UP_COMM_MSG:
	case CB_WIRE_UP_COMM_CLOSE:
		return !cb_comms_has(&b->comms, c->comm_id);
	default:
		return false;
	}
}

bool cb_branch_drops(struct cb_python *p, const struct cb_frame *f, const struct cb_guest_content *c)
{
	struct cb_branch *b = cb_branch_of(p);
	struct cb_transactions *tx = b->all;
	bool foreign = is_foreign(tx, b, f, c);

	if (foreign)
		comm_refused(tx, b, f);
	if (foreign && f->header.type == CB_WIRE_UP_COMM_CLOSE) /* closed there, should that be adopted */
		(void)cb_comms_closed(&b->had, c->comm_id);
	return foreign;
}

static const struct cb_states states = { "a branch",
					 { [CB_BRANCH_WAKING] = { "waking", 1 << CB_BRANCH_UP | 1 << CB_BRANCH_ENDING },
					   [CB_BRANCH_UP] = { "up", 1 << CB_BRANCH_ENDING },
					   [CB_BRANCH_ENDING] = { "ending", 1 << CB_BRANCH_ENDING } } };

void cb_branch_go(struct cb_branch *b, enum cb_branch_state to)
{
	CB_STATE_GO(&states, &b->state, to);
}

static void resumed(struct cb_transactions *tx, struct cb_branch *b)
{
	b->deadline = 0;
	cb_guest_rules_go(&b->python.rules, CB_PHASE_IDLE, 0);
	if (b->state != CB_BRANCH_WAKING)
		return;
	cb_branch_go(b, CB_BRANCH_UP);
	b->served = cb_checkpoint_branch_woken(tx, b->asked, b->shell.id, NULL);
	if (!b->served) /* nobody could use or end it */
		cb_branch_end(tx, b, "who asked for it does not wait any more");
}

int cb_branch_frame(struct cb_python *p, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason)
{
	struct cb_branch *b = cb_branch_of(p);
	struct cb_transactions *tx = b->all;

	switch (f->header.type) {
	case CB_WIRE_RESUMED:
		resumed(tx, b);
		return 0;
	case CB_WIRE_CHECKPOINT_REPLY:
		cb_adopt_answered(tx, b, c);
		return 0;
	default:
		return cb_shell_frame(&b->shell, f, c, ret_reason);
	}
}

/* Why one ended; NULL: none of that id has. */
static const char *epitaph_of(const struct cb_transactions *tx, struct cb_span id)
{
	for (size_t i = 0; i < CB_BRANCHES_ENDED; i++)
		if (tx->branches.ended[i].id[0] != '\0' && cb_json_string_is(id, tx->branches.ended[i].id))
			return tx->branches.ended[i].why;
	return NULL;
}

void cb_branches_unknown(const struct cb_transactions *tx, struct cb_request *r, struct cb_span id)
{
	const char *epitaph = epitaph_of(tx, id);
	CB_AUTO_BUF text = CB_BUF_INIT(256);

	if (epitaph != NULL) {
		cb_reply_error(tx->jupyter, r, "KernelDiedError", "this branch has ended: %s", epitaph);
		return;
	}
	if (cb_json_string_decode(id, &text) < 0) /* longer than any of ours */
		cb_buf_clear(&text);
	cb_reply_error(tx->jupyter, r, "UnknownSubshellError", "Unknown subshell_id '%.*s'", (int)text.len,
		       text.data != NULL ? (const char *)text.data : "");
}
