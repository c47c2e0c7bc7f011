/* What each frame of a Python does to the shell that it is for.
 *
 * Trust domain: supervisor. A frame that arrives here is permitted in this phase, within its size, and its content is
 * strict JSON with the right keys; it is no output (python/output.c), and nothing that the guest alone says.
 */
#include "python/python.h"
#include "shell.h"

static void interrupted(struct cb_shell *s, uint64_t request)
{
	/* a subshell's thread got no signal, of which the main one counts each that it took */
	if (s->apart || cb_python_interrupted(s->python, s->current, request))
		cb_shell_obeyed(s);
}

int cb_shell_frame(struct cb_shell *s, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason)
{
	switch (f->header.type) {
	case CB_WIRE_EXECUTE_RESULT:
		cb_output_result(&s->python->output, f, cb_cell_shown(&s->cell));
		return 0;
	case CB_WIRE_ERROR:
		cb_shell_error(s, f, c);
		return 0;
	case CB_WIRE_EXECUTE_REPLY:
	case CB_WIRE_COMM_DONE:
		cb_shell_reply(s, f, c);
		return 0;
	case CB_WIRE_COMPLETE_REPLY:
	case CB_WIRE_INSPECT_REPLY:
	case CB_WIRE_IS_COMPLETE_REPLY:
		return cb_shell_answer(s, f, ret_reason);
	case CB_WIRE_INPUT_REQUEST:
		*ret_reason = "INPUT_REQUEST though the client does not allow stdin, or was asked already";
		if (s->ops->asks != NULL)
			s->ops->asks(s);
		return cb_shell_ask(s, f, ret_reason);
	case CB_WIRE_AWAITING:
		if (s->ops->awaits != NULL)
			s->ops->awaits(s);
		return 0;
	case CB_WIRE_INTERRUPTED:
		interrupted(s, f->header.request);
		return 0;
	default:
		*ret_reason = "a message that nobody here has a use for";
		return CB_E_DENIED;
	}
}
