/* The debugger (shells/debug.c) of a guest that the test plays: one that does not answer, and whose time is whose. */
#include "rig_lanes.h"

#include "shells/debug.h"

#define ANSWER(command)                                                                                                \
	"{\"type\":\"response\",\"request_seq\":1,\"success\":true,\"command\":\"" command "\",\"body\":{}}"

static const char *asks(struct rig *r, const char *command)
{
	char content[128];

	snprintf(content, sizeof(content), "{\"type\":\"request\",\"seq\":1,\"command\":\"%s\"}", command);
	return rig_send(r, RIG_CONTROL, "debug_request", content, NULL);
}

static void answered(struct rig *r, const char *id, bool success, const char *words)
{
	struct rig_msg m = rig_take(r, RIG_CONTROL, "debug_reply", id);

	assert_int_equal(json_is_true(json_object_get(m.content, "success")), success);
	assert_non_null(strstr(rig_text(&m, "message"), words));
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

static void serves(struct rig *r, const char *command, const char *answer)
{
	const char *id = asks(r, command);

	rig_side_frame(r, CB_WIRE_DEBUG_REPLY, rig_side_expect(r, CB_WIRE_DEBUG, 0), answer);
	answered(r, id, true, "");
}

static void time_is_over(struct rig *r)
{
	cb_loop_arm(&r->k.loop, r->k.shells.debug.timer, cb_now_ns());
}

static bool nothing_is_asked(struct rig *r)
{
	return r->k.shells.debug.current == NULL;
}

static void test_one_that_hangs(void **state)
{
	struct rig *r = *state = rig_side_up(CB_MODE_OFF);
	const char *one = asks(r, "inspectVariables");
	uint64_t q = rig_side_expect(r, CB_WIRE_DEBUG, 0);
	const char *two = asks(r, "debugInfo");

	rig_expect(r, RIG_CONTROL, "kernel_info_reply", rig_send(r, RIG_CONTROL, "kernel_info_request", NULL, NULL));
	assert_true(cb_debug_busy(&r->k.shells));
	assert_true(cb_loop_armed(&r->k.loop, r->k.shells.debug.timer));
	time_is_over(r);
	for (int i = 0; i < 2; i++) {
		struct rig_msg m = rig_take(r, RIG_CONTROL, "debug_reply", i == 0 ? one : two);

		assert_true(json_is_false(json_object_get(m.content, "success")));
		rig_msg_free(&m);
	}
	assert_false(cb_debug_busy(&r->k.shells));
	for (int i = 0; i < 6; i++) { /* busy and idle of all three */
		struct rig_msg m = rig_recv(r, RIG_IOPUB);

		rig_msg_free(&m);
	}
	answered(r, asks(r, "debugInfo"), false, "has not answered");
	rig_side_frame(r, CB_WIRE_DEBUG_REPLY, q, ANSWER("inspectVariables")); /* nobody's */
	rig_until(r, nothing_is_asked);
	rig_barrier(r);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	serves(r, "debugInfo", ANSWER("debugInfo"));
}

static void test_one_that_dies_of_it(void **state)
{
	struct rig *r = *state = rig_side_up(CB_MODE_OFF);
	const char *one = asks(r, "inspectVariables");

	(void)rig_side_expect(r, CB_WIRE_DEBUG, 0);
	time_is_over(r);
	answered(r, one, false, "has not answered");
	rig_die(r, 9);
	assert_true(nothing_is_asked(r));
	rig_restarted(r);
}

static void event(struct rig *r, const char *name)
{
	char content[64];

	snprintf(content, sizeof(content), "{\"type\":\"event\",\"event\":\"%s\"}", name);
	rig_side_frame(r, CB_WIRE_DEBUG_EVENT, 0, content);
	struct rig_msg m = rig_recv(r, RIG_IOPUB);

	assert_string_equal(m.type, "debug_event");
	rig_msg_free(&m);
}

static int64_t left(const struct rig *r)
{
	return r->k.shells.execution.shell.cell.deadline - cb_now_ns();
}

/* While a cell stands its debugger may take its time; and all that it stands is one wait. */
static void test_a_cell_that_stands(void **state)
{
	struct rig *r = *state = rig_side_up(CB_MODE_OFF);
	uint64_t g;

	r->policy.timeout_cell = 2000;
	r->policy.timeout_wait = 1000;
	serves(r, "initialize", ANSWER("initialize"));
	const char *cell = rig_begin(r, "1", &g);

	event(r, "stopped");
	assert_true(left(r) > 500 * 1000000000LL);
	(void)asks(r, "evaluate");
	(void)rig_side_expect(r, CB_WIRE_DEBUG, 0);
	assert_false(cb_loop_armed(&r->k.loop, r->k.shells.debug.timer));
	for (int i = 0; i < 4; i++) { /* busy of the request, and of the cell again */
		struct rig_msg m;

		if (rig_try_recv(r, RIG_IOPUB, &m))
			rig_msg_free(&m);
	}
	r->k.shells.debug.waits_since -= 900 * 1000000000LL;
	event(r, "continued");
	assert_true(left(r) > 1000 * 1000000000LL); /* its own clock */
	assert_true(cb_loop_armed(&r->k.loop, r->k.shells.debug.timer));
	event(r, "stopped");
	assert_true(left(r) < 100 * 1000000000LL);
	assert_true(left(r) > 0);
	event(r, "continued");
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_ended(r, cell, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_one_that_hangs, rig_teardown),
		cmocka_unit_test_teardown(test_one_that_dies_of_it, rig_teardown),
		cmocka_unit_test_teardown(test_a_cell_that_stands, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
