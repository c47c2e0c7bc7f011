/* What each frame of the guest does.
 *
 * Trust domain: supervisor. A frame that arrives here is permitted in this phase, within its size, and its content is
 * strict JSON with the right keys. What is said goes out by speaker.c; what answers goes to execution.c and lanes.c.
 */
#include "guest_frames.h"

#include <cellblock/json_scan.h>
#include <cellblock/log.h>

#include "kernel.h"
#include "requests/requests.h"

static int hello(struct cb_kernel *k, const struct cb_guest_content *c, const char **ret_reason)
{
	struct cb_guest *g = &k->guest;

	*ret_reason = "wire_version is not this supervisor's";
	if (!(c->wire_version.len == 1 && c->wire_version.data[0] == '0' + CB_WIRE_VERSION))
		return CB_E_SYNTAX;
	cb_guest_go(g, CB_GUEST_UP);
	g->dropped = false;
	k->side.served = c->side;
	cb_guest_set_idle(k);
	g->failed_starts = 0;
	g->failure.code = 0;
	cb_loop_arm(&k->loop, g->deadline_timer, 0);
	cb_log(CB_LOG_INFO, "guest ready: %.*s, python %.*s", (int)c->implementation.len, c->implementation.data,
	       (int)c->python_version.len, c->python_version.data);
	if (c->missing_paths.data != NULL && c->missing_paths.len > 2)
		cb_log(CB_LOG_WARNING, "search-path entries outside the jail: %.*s",
		       (int)(c->missing_paths.len < 1000 ? c->missing_paths.len : 1000), c->missing_paths.data);
	cb_execution_guest_up(k);
	return 0;
}

/* One phase serves three kinds of request: the answer must be of the pending one's. */
static int question_answered(struct cb_kernel *k, struct cb_frame *f, const char **ret_reason)
{
	const struct cb_lane_message *asked = cb_lane_message_of(k->execution.current);

	*ret_reason = "an answer to another kind of request";
	if (asked == NULL || asked->answer != f->header.type)
		return CB_E_DENIED;
	cb_execution_answer(k, f);
	return 0;
}

static int input_request(struct cb_kernel *k, struct cb_frame *f, const char **ret_reason)
{
	const struct cb_request *cell = k->execution.current;

	if (cell == NULL || !cell->execute.allow_stdin)
		return CB_E_DENIED;
	cb_guest_drain_output(k);
	cb_iopub_flush(k);
	cb_debug_cell_over(k);
	int r = cb_stdin_ask(k, cell, f, ret_reason);

	if (r < 0)
		return r;
	cb_guest_rules_input(&k->guest.rules, true);
	cb_execution_input_wait(k, true);
	if (r == CB_STDIN_NOBODY)
		cb_stdin_nobody(k, cell);
	return 0;
}

/* Of a subshell. */
static int lane_frame(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c,
		      const char **ret_reason)
{
	bool cell = cb_lanes_is_cell(k, f->header.request);

	if (f->header.type == CB_WIRE_LANE_INPUT) {
		*ret_reason = "LANE_INPUT though the client does not allow stdin, or was asked already";
		return cb_lanes_ask(k, f, ret_reason);
	}
	*ret_reason = "an answer to another kind of request";
	if (cell == (f->header.type == CB_WIRE_LANE_DONE))
		return CB_E_DENIED;
	if (f->header.type == CB_WIRE_LANE_AWAITING) {
		cb_lanes_awaits(k, f->header.request);
		return 0;
	}
	if (f->header.type == CB_WIRE_LANE_RESULT)
		cb_speaker_result(k, &k->guest.speaker, f, cb_lanes_number(k, f->header.request));
	else
		cb_lanes_reply(k, f, c);
	return 0;
}

int cb_guest_frame(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason)
{
	switch ((enum cb_wire_type)f->header.type) {
	case CB_WIRE_HELLO:
		return hello(k, c, ret_reason);
	case CB_WIRE_STREAM:
	case CB_WIRE_DISPLAY_DATA:
	case CB_WIRE_UPDATE_DISPLAY_DATA:
	case CB_WIRE_CLEAR_OUTPUT:
	case CB_WIRE_UP_COMM_OPEN:
	case CB_WIRE_UP_COMM_MSG:
	case CB_WIRE_UP_COMM_CLOSE:
		(void)cb_speaker_frame(k, &k->guest.speaker, f, c);
		break;
	case CB_WIRE_EXECUTE_RESULT:
		cb_speaker_result(k, &k->guest.speaker, f,
				  k->execution.store ? k->execution.cell_number : k->execution.cell_number + 1);
		break;
	case CB_WIRE_ERROR:
		if (!cb_lanes_error(k, f, c))
			cb_execution_error(k, f, c);
		break;
	case CB_WIRE_LANE_RESULT:
	case CB_WIRE_LANE_REPLY:
	case CB_WIRE_LANE_DONE:
	case CB_WIRE_LANE_INPUT:
	case CB_WIRE_LANE_AWAITING:
		return lane_frame(k, f, c, ret_reason);
	case CB_WIRE_AWAITING:
		cb_lanes_cell_awaits(k);
		break;
	case CB_WIRE_EXECUTE_REPLY:
		cb_execution_reply(k, f, c);
		break;
	case CB_WIRE_COMPLETE_REPLY:
	case CB_WIRE_INSPECT_REPLY:
	case CB_WIRE_IS_COMPLETE_REPLY:
		return question_answered(k, f, ret_reason);
	case CB_WIRE_COMM_DONE:
		cb_execution_answer(k, f);
		break;
	case CB_WIRE_INPUT_REQUEST:
		*ret_reason = "INPUT_REQUEST though the client does not allow stdin";
		return input_request(k, f, ret_reason);
	case CB_WIRE_INTERRUPTED:
		k->guest.interrupted++;
		cb_execution_interrupt_delivered(k, f->header.request);
		break;
	case CB_WIRE_CHECKPOINT_REPLY:
		cb_twins_answered(k, c);
		break;
	case CB_WIRE_RESUMED:
		k->side.served = c->side;
		cb_twins_resumed(k);
		break;
	case CB_WIRE_DEBUG_REPLY:
	case CB_WIRE_DEBUG_EVENT:
	case CB_WIRE_EXECUTE:
	case CB_WIRE_COMPLETE:
	case CB_WIRE_INSPECT:
	case CB_WIRE_IS_COMPLETE:
	case CB_WIRE_DOWN_COMM_OPEN:
	case CB_WIRE_DOWN_COMM_MSG:
	case CB_WIRE_DOWN_COMM_CLOSE:
	case CB_WIRE_INPUT_REPLY:
	case CB_WIRE_SHUTDOWN:
	case CB_WIRE_CHECKPOINT:
	case CB_WIRE_RESUME:
	case CB_WIRE_LANE_INTERRUPT:
	case CB_WIRE_LANE_CLOSE:
	case CB_WIRE_DEBUG:
		*ret_reason = "a message of the supervisor's, or of the side wire";
		return CB_E_DENIED; /* the table has no such row: not reached */
	}
	return 0;
}
