/* The side wire.
 *
 * Role: brings requests to threads of the guest that serve them while its main thread runs a cell, and their answers
 * back past what the wire holds up. Trust domain: supervisor; everything read is hostile. Invariants: nothing comes
 * this way but the answers to lane 0's and to the debugger's pending request, and the debugger's events, of which each
 * is passed on or dropped at once, so what is held is bounded by one message; a guest that sends anything else is
 * killed and reported as for the wire. A guest that closes it is served on the wire alone; what it was asked on the
 * side wire is then refused, unless its end, of which that was a part, comes first.
 */
#include "side.h"

#include <cellblock/log.h>

#include "kernel.h"

#define READ_BUDGET (1u << 20) /* bytes of frames a turn */

int cb_side_open(struct cb_kernel *k, int fd, size_t tx_max)
{
	k->side.served = false;
	return cb_guest_link_init(&k->side.link, fd, tx_max);
}

static int judge(void *context, const struct cb_wire_header *h, const char **ret_reason)
{
	struct cb_kernel *k = context;
	const struct cb_request *r = k->lanes.ask.current;

	if (k->guest.verdict[0] != '\0')
		return CB_E_CLOSED; /* a guest that was told to die is not heard any more */
	uint32_t type = r != NULL ? cb_shell_message_of(r)->answer : 0;
	uint64_t id = r != NULL ? r->id : 0;

	if (cb_debug_frame_type(h->type))
		cb_debug_awaited(k, h->type, &type, &id);
	return cb_side_policy_header(&k->guest.python.rules, type, id, h, ret_reason);
}

static int take(void *context, struct cb_frame *f, const char **ret_reason)
{
	struct cb_guest_content content;
	int r = cb_guest_policy_content(f, &content, ret_reason);

	if (r < 0)
		return r;
	if (cb_debug_frame_type(f->header.type))
		cb_debug_frame(context, f, &content);
	else
		r = cb_shell_answer(context, &((struct cb_kernel *)context)->lanes.ask, f, ret_reason);
	return r;
}

static void on_side(void *context, short revents)
{
	struct cb_kernel *k = context;
	struct cb_side *s = &k->side;
	const char *reason = "";
	int r = 0;

	if ((revents & ZMQ_POLLOUT) && cb_guest_link_flush(&s->link) < 0)
		r = CB_E_CLOSED;
	if (r == 0 && (revents & (ZMQ_POLLIN | ZMQ_POLLERR)))
		r = cb_guest_link_receive(&s->link, READ_BUDGET, judge, take, k, &reason);
	if (r == 0) {
		cb_loop_set_events(&k->loop, s->slot,
				   (short)(ZMQ_POLLIN | (cb_guest_link_pending(&s->link) ? ZMQ_POLLOUT : 0)));
		return;
	}
	s->served = false;
	cb_loop_remove(&k->loop, &s->slot);
	if (r == CB_E_CLOSED) {
		cb_loop_arm(&k->loop, s->closed_timer, cb_now_ns() + CB_GUEST_CLOSED_NS);
		return;
	}
	char why[sizeof(k->guest.verdict)];

	snprintf(why, sizeof(why), "side wire: %s (%s)", reason, cb_err_name(r));
	cb_guest_broke_rules(k, why);
}

static void on_closed(void *context)
{
	cb_lanes_side_closed(context);
	cb_debug_side_closed(context);
}

int cb_side_init(struct cb_kernel *k)
{
	k->side.link.fd = k->side.slot = -1;
	k->side.closed_timer = cb_loop_add_timer(&k->loop, on_closed, k);
	return k->side.closed_timer < 0 ? k->side.closed_timer : 0;
}

void cb_side_watch(struct cb_kernel *k)
{
	k->side.slot = cb_loop_add(&k->loop, NULL, k->side.link.fd, ZMQ_POLLIN, on_side, k);
}

void cb_side_close(struct cb_kernel *k)
{
	k->side.served = false;
	cb_loop_remove(&k->loop, &k->side.slot);
	cb_loop_arm(&k->loop, k->side.closed_timer, 0);
	cb_guest_link_release(&k->side.link);
}

int cb_side_send(struct cb_kernel *k, enum cb_wire_type type, uint64_t request, struct cb_span content,
		 struct cb_span metadata, const struct cb_span *buffers, size_t nbuffers)
{
	struct cb_side *s = &k->side;

	if (!s->served)
		return CB_E_CLOSED;
	int r = cb_guest_link_send(&s->link, type, request, content, metadata, buffers, nbuffers);

	cb_loop_set_events(&k->loop, s->slot,
			   (short)(ZMQ_POLLIN | (cb_guest_link_pending(&s->link) ? ZMQ_POLLOUT : 0)));
	return r == CB_E_CLOSED ? 0 : r; /* a dead guest is reported by its pidfd */
}
