/* A question that Python does not answer in time, and that was given up: nothing waits for it any more. */
#include "rig_lanes.h"
#include "rig_twins.h"

#include "shells/lanes.h"

#define MATCHES "{\"status\":\"ok\",\"matches\":[],\"cursor_start\":0,\"cursor_end\":0,\"metadata\":{}}"

static bool is_over(struct rig *r)
{
	return r->k.shells.lanes.ask.current == NULL;
}

static void test_twins_and_the_jails_end(void **state)
{
	struct rig *r = *state = rig_side_up(CB_MODE_ALWAYS);
	struct rig_twin t[3] = { rig_twin(r) };
	uint64_t g;
	const char *cell = rig_begin(r, "a", &g);
	const char *one = rig_send(r, RIG_SHELL, "complete_request", "{\"code\":\"a.\",\"cursor_pos\":2}", NULL);
	uint64_t q = rig_side_expect(r, CB_WIRE_COMPLETE, 0);

	r->policy.transactions_keep = 8;
	assert_true(cb_lanes_busy(&r->k.shells));
	r->k.shells.lanes.ask.answer_by = cb_now_ns();
	cb_loop_arm(&r->k.loop, r->k.shells.lanes.timer, cb_now_ns());
	rig_expect(r, RIG_IOPUB, "busy", one);
	rig_expect_error(r, RIG_SHELL, "complete_reply", one, "KernelBusyError", "");
	rig_expect(r, RIG_IOPUB, "idle", one);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	(void)rig_side_expect(r, CB_WIRE_LANE_INTERRUPT, 0);
	rig_end(r, cell, g);
	t[1] = rig_twin(r);
	assert_false(cb_lanes_busy(&r->k.shells)); /* timeout.idle counts */
	cell = rig_begin(r, "b", &g);
	rig_side_frame(r, CB_WIRE_COMPLETE_REPLY, q, MATCHES); /* nobody's by now */
	rig_until(r, is_over);
	rig_end(r, cell, g);
	t[2] = rig_twin(r);
	for (int i = 0; i < 3; i++)
		rig_twin_close(&t[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(test_twins_and_the_jails_end, rig_teardown) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
