/* What each frame of the guest does.
 *
 * Trust domain: supervisor. A frame that arrives here is permitted in this phase, within its size, and its content is
 * strict JSON with the right keys. What is said goes out by speaker.c; what answers goes to the shell that has asked.
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

/* The shell that a frame is for by its request: the main one, or one beside it. */
static struct cb_shell *shell_of(struct cb_kernel *k, const struct cb_frame *f)
{
	struct cb_shell *beside = cb_lanes_of(k, f->header.request);

	return beside != NULL ? beside : &k->execution.shell;
}

static int input_request(struct cb_kernel *k, struct cb_frame *f, const char **ret_reason)
{
	struct cb_shell *s = shell_of(k, f);

	*ret_reason = "INPUT_REQUEST though the client does not allow stdin, or was asked already";
	if (s == &k->execution.shell)
		cb_debug_cell_over(k);
	return cb_shell_ask(k, s, f, ret_reason);
}

static void awaiting(struct cb_kernel *k, struct cb_shell *s)
{
	if (s == &k->execution.shell)
		cb_lanes_cell_awaits(k);
	else
		cb_lanes_awaits(k, s);
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
		cb_speaker_result(k, &k->guest.speaker, f, cb_cell_shown(&shell_of(k, f)->cell));
		break;
	case CB_WIRE_ERROR:
		cb_shell_error(k, shell_of(k, f), f, c);
		break;
	case CB_WIRE_AWAITING:
		awaiting(k, shell_of(k, f));
		break;
	case CB_WIRE_EXECUTE_REPLY:
	case CB_WIRE_COMM_DONE:
		cb_shell_reply(k, shell_of(k, f), f, c);
		break;
	case CB_WIRE_COMPLETE_REPLY:
	case CB_WIRE_INSPECT_REPLY:
	case CB_WIRE_IS_COMPLETE_REPLY:
		return cb_shell_answer(k, &k->execution.shell, f, ret_reason);
	case CB_WIRE_INPUT_REQUEST:
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
