/* What each frame of a Python does.
 *
 * Trust domain: supervisor. A frame that arrives here is permitted in this phase, within its size, and its content is
 * strict JSON with the right keys. What is said goes out by output.c; what answers goes to the shell that has asked;
 * what only the guest or only a branch may say is theirs (ops).
 */
#include "python.h"
#include "shells/shell.h"

static void interrupted(struct cb_kernel *k, struct cb_python *p, uint64_t request)
{
	struct cb_shell *s = p->ops->shell(k, p, 0);

	if (cb_python_interrupted(k, p, s->current, request))
		cb_shell_obeyed(k, s);
}

int cb_python_frame(struct cb_kernel *k, struct cb_python *p, struct cb_frame *f, const struct cb_guest_content *c,
		    const char **ret_reason)
{
	struct cb_shell *s;

	if ((p->ops->drops != NULL && p->ops->drops(k, p, f, c)) || cb_output_frame(&p->output, f, c))
		return 0;
	s = p->ops->shell(k, p, f->header.request);
	switch (f->header.type) {
	case CB_WIRE_EXECUTE_RESULT:
		cb_output_result(&p->output, f, cb_cell_shown(&s->cell));
		return 0;
	case CB_WIRE_ERROR:
		cb_shell_error(k, s, f, c);
		return 0;
	case CB_WIRE_EXECUTE_REPLY:
	case CB_WIRE_COMM_DONE:
		cb_shell_reply(k, s, f, c);
		return 0;
	case CB_WIRE_COMPLETE_REPLY:
	case CB_WIRE_INSPECT_REPLY:
	case CB_WIRE_IS_COMPLETE_REPLY:
		return cb_shell_answer(k, s, f, ret_reason);
	case CB_WIRE_INPUT_REQUEST:
		*ret_reason = "INPUT_REQUEST though the client does not allow stdin, or was asked already";
		if (p->ops->asks != NULL)
			p->ops->asks(k, s);
		return cb_shell_ask(k, s, f, ret_reason);
	case CB_WIRE_AWAITING:
		if (p->ops->awaits != NULL)
			p->ops->awaits(k, s);
		return 0;
	case CB_WIRE_INTERRUPTED:
		interrupted(k, p, f->header.request);
		return 0;
	default:
		return p->ops->frame(k, p, f, c, ret_reason);
	}
}
