/* Comm messages that were accepted and have no room in the lane that is to take them: none is lost, and they keep their
 * order. */
#include "rig_lanes.h"

static const char *comm(struct rig *r, int n)
{
	char content[64];

	snprintf(content, sizeof(content), "{\"comm_id\":\"c\",\"data\":%d}", n);
	return rig_send(r, RIG_SHELL, "comm_msg", content, NULL);
}

static uint64_t comes(struct rig *r, int n)
{
	struct rig_request q = rig_guest_recv(r);
	char content[64];
	uint64_t id = q.h.request;

	snprintf(content, sizeof(content), "{\"comm_id\":\"c\",\"data\":%d}", n);
	assert_int_equal(q.h.type, CB_WIRE_DOWN_COMM_MSG);
	assert_string_equal(q.content, content);
	rig_request_free(&q);
	return id;
}

static bool three_wait(struct rig *r)
{
	return r->k.shells.execution.load.count == 3;
}

static bool one_waits(struct rig *r)
{
	return r->k.shells.execution.load.count == 1;
}

static void test_order(void **state)
{
	struct rig *r = *state = rig_side_up(CB_MODE_OFF);
	struct cb_load *load = &r->k.shells.lanes.load;
	const char *cell, *id[5];
	uint64_t g, q;

	cell = rig_begin(r, "1", &g);
	for (int i = 0; i < 3; i++)
		id[i] = comm(r, i);
	rig_until(r, three_wait);
	load->count += CB_SHELLS_WAITING_MAX - 1; /* as if so many waited in subshells */
	rig_frame(r, CB_WIRE_AWAITING, g, "{}");
	for (int i = 0; i < 3; i++) {
		q = comes(r, i);
		rig_expect(r, RIG_IOPUB, "busy", id[i]);
		if (i == 0)
			id[3] = comm(r, 3); /* behind those that have come before */
		if (i == 0)
			rig_until(r, three_wait);
		rig_frame(r, CB_WIRE_COMM_DONE, q, "{}");
		rig_expect(r, RIG_IOPUB, "idle", id[i]);
		rig_expect(r, RIG_IOPUB, "busy", cell);
	}
	q = comes(r, 3);
	rig_expect(r, RIG_IOPUB, "busy", id[3]);
	load->count++; /* no room at all, */
	id[4] = comm(r, 4);
	rig_until(r, one_waits);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK); /* and then no cell that awaits */
	rig_expect(r, RIG_SHELL, "execute_reply", cell);
	rig_expect(r, RIG_IOPUB, "idle", cell);
	rig_frame(r, CB_WIRE_COMM_DONE, q, "{}");
	rig_expect(r, RIG_IOPUB, "idle", id[3]);
	q = comes(r, 4);
	rig_expect(r, RIG_IOPUB, "busy", id[4]);
	rig_frame(r, CB_WIRE_COMM_DONE, q, "{}");
	rig_expect(r, RIG_IOPUB, "idle", id[4]);
	load->count -= CB_SHELLS_WAITING_MAX;
	assert_int_equal(load->count, 0);
	rig_barrier(r); /* and none has had a reply */
}

/* The protocol has no reply to them. */
static void test_refused(void **state)
{
	struct rig *r = *state = rig_side_up(CB_MODE_OFF);
	const char *id;

	r->k.shells.execution.load.count += CB_QUEUE_MAX;
	id = comm(r, 0);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	r->k.shells.execution.load.count -= CB_QUEUE_MAX;
	r->policy.limit_message = 50;
	id = comm(r, 0);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	r->policy.limit_message = 16u << 20;
	rig_barrier(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_order, rig_teardown),
		cmocka_unit_test_teardown(test_refused, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
