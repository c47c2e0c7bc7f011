/* See rig_lanes.h. */
#include "rig_lanes.h"

#include <poll.h>

static bool up(struct rig *r)
{
	return r->k.guest.state == CB_GUEST_UP;
}

struct rig *rig_side_up(enum cb_switch_mode mode)
{
	struct rig *r = rig_new();

	r->policy.transactions_mode = mode;
	r->policy.transactions_keep = 1;
	r->level = CB_LEVEL_FULL;
	rig_subscribe(r);
	cb_guest_want(&r->k.guest);
	rig_spawn(r, 0);
	rig_frame(r, CB_WIRE_HELLO, 0,
		  "{\"wire_version\":1,\"implementation\":\"plain\",\"python_version\":\"3.11.2\",\"side\":true}");
	rig_until(r, up);
	return r;
}

static void swap(struct rig *r)
{
	int fd = r->wire;

	r->wire = r->side;
	r->side = fd;
}

/* What the guest gets on the side wire: its id; the lane is checked. */
uint64_t rig_side_expect(struct rig *r, enum cb_wire_type type, unsigned lane)
{
	struct pollfd p = { .fd = r->side, .events = POLLIN };
	char wanted[32];

	while (poll(&p, 1, 0) == 0)
		rig_until_soon(r);
	swap(r);
	struct rig_request q = rig_guest_recv(r);

	swap(r);
	snprintf(wanted, sizeof(wanted), "{\"lane\":%u", lane);
	assert_int_equal(q.h.type, type);
	assert_memory_equal(q.metadata, wanted, strlen(wanted));
	rig_request_free(&q);
	return q.h.request;
}

void rig_side_frame(struct rig *r, enum cb_wire_type type, uint64_t request, const char *content)
{
	swap(r);
	rig_frame(r, type, request, content);
	swap(r);
}

void rig_subshell(struct rig *r)
{
	static char id[64];
	const char *q = rig_send(r, RIG_CONTROL, "create_subshell_request", NULL, NULL);
	struct rig_msg m = rig_take(r, RIG_CONTROL, "create_subshell_reply", q);

	snprintf(id, sizeof(id), "%s", rig_text(&m, "subshell_id"));
	r->subshell = id;
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "busy", q);
	rig_expect(r, RIG_IOPUB, "idle", q);
}

uint64_t rig_subshell_cell(struct rig *r, const char *content, const char **ret_id)
{
	rig_subshell(r);
	*ret_id = rig_send(r, RIG_SHELL, "execute_request", content, NULL);
	rig_expect(r, RIG_IOPUB, "busy", *ret_id);
	rig_expect(r, RIG_IOPUB, "execute_input", *ret_id);
	return rig_side_expect(r, CB_WIRE_EXECUTE, 1);
}
