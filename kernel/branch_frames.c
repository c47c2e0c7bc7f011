/* What each frame of a branch does.
 *
 * Trust domain: supervisor; frames as in guest_frames.c: permitted in the branch's phase, and strict JSON. A branch has
 * no subshells, no checkpoint but the one that adopts it, no side wire, and of comms only those that it opened itself:
 * what it says on others, which are the main line's, is dropped with a notice. Callers: branches.c.
 */
#include "branch_frames.h"

#include <cellblock/json_write.h>
#include <cellblock/log.h>
#include <cellblock/states.h>
#include <inttypes.h>

#include "adopt.h"
#include "kernel.h"
#include "requests/requests.h"

void cb_branch_comm_dropped(struct cb_kernel *k, struct cb_header *header)
{
	static const char text[] =
		"[cellblock: comm messages on comms that this branch has not opened are dropped: they "
		"are the main line's]\n";

	cb_iopub_text(k, header, CB_WIRE_STDERR, text, sizeof(text) - 1);
}

/* Once for each request. */
static void comm_refused(struct cb_kernel *k, struct cb_branch *b, const struct cb_frame *f)
{
	const struct cb_guest_parent *p = cb_speaker_parent(&b->speaker, f->header.request);

	if (p->id != b->comm_told)
		cb_branch_comm_dropped(k, p->header);
	b->comm_told = p->id;
}

static bool comm_is_foreign(struct cb_kernel *k, struct cb_branch *b, const struct cb_frame *f,
			    const struct cb_guest_content *c)
{
	switch (f->header.type) {
	case CB_WIRE_UP_COMM_OPEN:
		return cb_comms_has(&k->comms, c->comm_id);
	case CB_WIRE_UP_COMM_MSG:
	case CB_WIRE_UP_COMM_CLOSE:
		return !cb_comms_has(&b->comms, c->comm_id);
	default:
		return false;
	}
}

static const struct cb_states states = { "a branch",
					 { [CB_BRANCH_WAKING] = { "waking", 1 << CB_BRANCH_UP | 1 << CB_BRANCH_ENDING },
					   [CB_BRANCH_UP] = { "up", 1 << CB_BRANCH_ENDING },
					   [CB_BRANCH_ENDING] = { "ending", 1 << CB_BRANCH_ENDING } } };

void cb_branch_go(struct cb_branch *b, enum cb_branch_state to)
{
	CB_STATE_GO(&states, &b->state, to);
}

void cb_branch_input_over(struct cb_branch *b)
{
	cb_guest_rules_input(&b->rules, false);
	cb_lane_asked(&b->lane);
}

static int input_request(struct cb_kernel *k, struct cb_branch *b, struct cb_frame *f, const char **ret_reason)
{
	int r = cb_lane_ask(k, &b->lane, f, ret_reason);

	if (r < 0)
		return r;
	cb_guest_rules_input(&b->rules, true);
	if (r == CB_STDIN_NOBODY)
		cb_stdin_nobody(k, b->lane.current);
	return 0;
}

static int answered(struct cb_kernel *k, struct cb_branch *b, struct cb_frame *f)
{
	struct cb_request *r = b->lane.current;

	if (r == NULL || cb_lane_message_of(r)->answer != f->header.type)
		return CB_E_DENIED;
	cb_reply_full(k, r, f->metadata, (struct cb_span){ f->content, f->header.content_len }, f->body);
	cb_lane_finish(k, &b->lane);
	return 0;
}

static void interrupted(struct cb_branch *b, uint64_t request)
{
	b->interrupted++;
	if (b->lane.current != NULL && (request == 0 || request != b->lane.current->id))
		return; /* the signal overtook the request; it is sent again */
	b->nudge_at = b->interrupt_deadline = 0;
	b->lane.interrupted = false;
	if (b->rules.phase == CB_PHASE_INPUT)
		cb_branch_input_over(b);
}

static void resumed(struct cb_kernel *k, struct cb_branch *b)
{
	b->deadline = 0;
	cb_guest_rules_go(&b->rules, CB_PHASE_IDLE, 0);
	if (b->state != CB_BRANCH_WAKING)
		return;
	cb_branch_go(b, CB_BRANCH_UP);
	b->served = true;
	cb_checkpoint_branch_woken(k, b->lane.id, NULL);
}

int cb_branch_frame(struct cb_kernel *k, struct cb_branch *b, struct cb_frame *f, const struct cb_guest_content *c,
		    const char **ret_reason)
{
	struct cb_lane *l = &b->lane;
	bool mine = l->current != NULL && f->header.request != 0 && f->header.request == l->current->id;

	if (comm_is_foreign(k, b, f, c)) {
		comm_refused(k, b, f);
		return 0;
	}
	if (cb_speaker_frame(k, &b->speaker, f, c))
		return 0;
	*ret_reason = "a message that a branch has no use for";
	switch (f->header.type) {
	case CB_WIRE_RESUMED:
		resumed(k, b);
		return 0;
	case CB_WIRE_EXECUTE_RESULT:
		cb_speaker_result(k, &b->speaker, f, l->cell_number);
		return 0;
	case CB_WIRE_ERROR:
		cb_speaker_drain(k, &b->speaker);
		if (mine && cb_request_is_execute(l->current))
			cb_lane_error(k, l, f, c);
		else
			cb_speaker_error(k, &b->speaker, f, false);
		return 0;
	case CB_WIRE_EXECUTE_REPLY:
	case CB_WIRE_COMM_DONE:
		cb_lane_reply(k, l, f, c);
		return 0;
	case CB_WIRE_COMPLETE_REPLY:
	case CB_WIRE_INSPECT_REPLY:
	case CB_WIRE_IS_COMPLETE_REPLY:
		*ret_reason = "an answer to another kind of request";
		return answered(k, b, f);
	case CB_WIRE_INPUT_REQUEST:
		*ret_reason = "INPUT_REQUEST though the client does not allow stdin";
		return input_request(k, b, f, ret_reason);
	case CB_WIRE_AWAITING: /* its comm messages keep their turn */
		return 0;
	case CB_WIRE_CHECKPOINT_REPLY:
		cb_guest_rules_go(&b->rules, CB_PHASE_IDLE, 0);
		cb_adopt_answered(k, b, c);
		return 0;
	case CB_WIRE_INTERRUPTED:
		interrupted(b, f->header.request);
		return 0;
	default:
		return CB_E_DENIED;
	}
}

int cb_branch_write(const struct cb_branch *b, struct cb_buf *out)
{
	char date[28];
	int r = cb_buf_printf(out, "{\"subshell_id\":\"%s\",\"from\":", b->lane.id);

	cb_date_format(b->created, date);
	if (r == 0)
		r = b->from[0] != '\0' ? cb_json_write_cstr(out, b->from) : cb_buf_append_str(out, "null");
	return r < 0 ? r
		     : cb_buf_printf(out,
				     ",\"execution_count\":%" PRId64 ",\"busy\":%s,\"memory_bytes\":%" PRIu64
				     ",\"created\":\"%s\"}",
				     b->count, b->lane.current != NULL ? "true" : "false", cb_usage_of(b->pid), date);
}
