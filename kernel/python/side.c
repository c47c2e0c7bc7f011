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

#include "policy.h"
#include "jupyter/loop.h"

#define READ_BUDGET (1u << 20) /* bytes of frames a turn */

int cb_side_open(struct cb_side *s, int fd, size_t tx_max)
{
	s->served = s->ending = false;
	return cb_guest_link_init(&s->link, fd, tx_max);
}

static int judge(void *context, const struct cb_wire_header *h, const char **ret_reason)
{
	struct cb_side *s = context;
	uint32_t type = 0;
	uint64_t id = 0;

	if (!s->events->awaits(s->kernel, h->type, &type, &id))
		return CB_E_CLOSED;
	return cb_side_policy_header(s->rules, type, id, h, ret_reason);
}

static int take(void *context, struct cb_frame *f, const char **ret_reason)
{
	struct cb_side *s = context;
	struct cb_guest_content content;
	int r = cb_guest_policy_content(f, &content, ret_reason);

	return r < 0 ? r : s->events->frame(s->kernel, f, &content, ret_reason);
}

static void on_side(void *context, short revents)
{
	struct cb_side *s = context;
	const char *reason = "";
	int r = 0;

	if ((revents & ZMQ_POLLOUT) && cb_guest_link_flush(&s->link) < 0)
		r = CB_E_CLOSED;
	if (r == 0 && (revents & (ZMQ_POLLIN | ZMQ_POLLERR)))
		r = cb_guest_link_receive(&s->link, READ_BUDGET, judge, take, s, &reason);
	if (r == 0) {
		cb_loop_set_events(s->loop, s->slot, cb_guest_link_events(&s->link));
		return;
	}
	s->served = false;
	cb_loop_remove(s->loop, &s->slot);
	if (r == CB_E_CLOSED) {
		s->ending = true;
		cb_loop_arm(s->loop, s->closed_timer, cb_now_ns() + CB_LINK_CLOSED_NS);
		return;
	}
	char why[256];

	snprintf(why, sizeof(why), "side wire: %s (%s)", reason, cb_err_name(r));
	s->events->broke(s->kernel, why);
}

static void on_closed(void *context)
{
	struct cb_side *s = context;

	s->ending = false;
	s->events->closed(s->kernel);
}

int cb_side_init(struct cb_side *s, struct cb_loop *loop, const struct cb_guest_rules *rules)
{
	s->loop = loop;
	s->rules = rules;
	s->link.fd = s->slot = -1;
	s->closed_timer = cb_loop_add_timer(s->loop, on_closed, s);
	return s->closed_timer < 0 ? s->closed_timer : 0;
}

void cb_side_watch(struct cb_side *s)
{
	s->slot = cb_loop_add(s->loop, NULL, s->link.fd, ZMQ_POLLIN, on_side, s);
}

void cb_side_close(struct cb_side *s)
{
	s->served = s->ending = false;
	cb_loop_remove(s->loop, &s->slot);
	cb_loop_arm(s->loop, s->closed_timer, 0);
	cb_guest_link_release(&s->link);
}

int cb_side_send(struct cb_side *s, enum cb_wire_type type, uint64_t request, struct cb_span content,
		 struct cb_span metadata, const struct cb_span *buffers, size_t nbuffers)
{
	if (!s->served)
		return CB_E_CLOSED;
	int r = cb_guest_link_send(&s->link, type, request, content, metadata, buffers, nbuffers);

	cb_loop_set_events(s->loop, s->slot, cb_guest_link_events(&s->link));
	return r == CB_E_CLOSED ? 0 : r; /* a dead guest is reported by its pidfd */
}
