/* The clock of a cell that asks again and again, and is answered sooner than anybody looks whether the jail computes
 * meanwhile. The jail's time is this process's. */
#include "rig_lanes.h"

#define LIMIT 0.8
#define ROUNDS 100 /* of 50 ms */

static void compute(void)
{
	for (int64_t end = cb_now_ns() + 50000000; cb_now_ns() < end;)
		;
}

static bool is_over_time(const struct cb_shell *s)
{
	return s->cell.stop == CB_STOP_TIME_SOFT && !s->cell.wait_over;
}

static void is_stopped(struct rig *r, const struct cb_shell *s, uint64_t request, const char *id)
{
	for (int i = 0; i < ROUNDS && !is_over_time(s); i++) {
		rig_frame(r, CB_WIRE_INPUT_REQUEST, request, "{\"prompt\":\"\",\"password\":false}");
		rig_expect(r, RIG_STDIN, "input_request", id);
		compute();
		rig_send(r, RIG_STDIN, "input_reply", "{\"value\":\"v\"}", NULL);
		if (s == &r->k.shells.execution.shell)
			(void)rig_guest_expect(r, CB_WIRE_INPUT_REPLY);
		else
			(void)rig_side_expect(r, CB_WIRE_INPUT_REPLY, 1);
		rig_until_soon(r);
	}
	assert_true(is_over_time(s));
}

static void test_the_main_shell(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t request;

	r->policy.timeout_cell = LIMIT;
	const char *id = rig_begin(r, "1", &request);

	is_stopped(r, &r->k.shells.execution.shell, request, id);
}

static void test_a_subshell(void **state)
{
	struct rig *r = *state = rig_side_up(CB_MODE_OFF);
	const char *id;

	r->policy.timeout_cell = LIMIT;
	uint64_t request = rig_subshell_cell(r, "{\"code\":\"1\",\"allow_stdin\":true}", &id);

	is_stopped(r, &r->k.shells.lanes.sub[0], request, id);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_the_main_shell, rig_teardown),
		cmocka_unit_test_teardown(test_a_subshell, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
