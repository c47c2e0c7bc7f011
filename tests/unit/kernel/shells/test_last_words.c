/* What a dead guest has said last, with a subshell or a comm message beside the cell that it died of: nothing of it is
 * taken for another's, and none of it keeps the rest from being read. The test plays guest and twins. */
#include "rig_lanes.h"
#include "rig_twins.h"

#include <signal.h>
#include <sys/socket.h>

#define RESULT "{\"data\":{\"text/plain\":\"1\"},\"metadata\":{}}"
#define LARGE (300u << 10) /* more than a frame of the receive buffer has */

static struct rig *with_a_twin(struct rig_twin *ret_twin)
{
	struct rig *r = rig_side_up(CB_MODE_ALWAYS);

	*ret_twin = rig_twin(r);
	return r;
}

/* What comes from now on is unread when it dies. */
static void stop_reading(struct rig *r)
{
	cb_loop_set_events(&r->k.loop, r->k.guest.link_slot, 0);
}

static void takes_over(struct rig *r, struct rig_twin *t)
{
	struct rig_request resume = rig_twin_wakes(r, t);
	struct rig_twin next;

	rig_twin_resumed(r, &resume);
	next = rig_twin(r);
	rig_twin_close(&next);
}

static void died(struct rig *r, const char *id)
{
	rig_expect_error(r, RIG_SHELL, "execute_reply", id, "KernelDiedError", "signal 11");
}

static void says(struct rig *r, const char *id, const char *text)
{
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", id);

	assert_string_equal(rig_text(&m, "text"), text);
	rig_msg_free(&m);
}

/* The cell alone, and what it said last is read. */
static void it_has_died(struct rig *r, struct rig_twin *t, const char *cell)
{
	takes_over(r, t);
	says(r, cell, "last words");
	rig_cell_error(r, cell, "KernelDiedError");
	rig_expect(r, RIG_IOPUB, "idle", cell);
	died(r, cell);
}

static void both_have_died(struct rig *r, const char *cell, const char *one)
{
	rig_cell_error(r, cell, "KernelDiedError");
	rig_expect(r, RIG_IOPUB, "idle", cell);
	rig_expect(r, RIG_IOPUB, "busy", one);
	rig_cell_error(r, one, "KernelDiedError");
	rig_expect(r, RIG_IOPUB, "idle", one);
	died(r, cell);
	died(r, one);
}

static void test_a_subshells_reply(void **state)
{
	struct rig_twin t;
	struct rig *r = *state = with_a_twin(&t);
	const char *one, *cell;
	uint64_t q = rig_subshell_cell(r, "{\"code\":\"1\"}", &one), g;

	r->subshell = NULL;
	cell = rig_begin(r, "bad", &g);
	stop_reading(r);
	rig_frame(r, CB_WIRE_EXECUTE_RESULT, q, RESULT);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, q, RIG_OK);
	rig_stream(r, g, CB_WIRE_STDOUT, "last words");
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	takes_over(r, &t);
	says(r, cell, "last words");
	both_have_died(r, cell, one);
}

static bool half_is_there(struct rig *r)
{
	return r->k.guest.python.link.big != NULL;
}

/* It is permitted when it begins, and whole when nobody waits for it any more. */
static void test_a_subshells_reply_in_two_halves(void **state)
{
	struct rig_twin t;
	struct rig *r = *state = with_a_twin(&t);
	const char *one, *cell;
	uint64_t q = rig_subshell_cell(r, "{\"code\":\"1\"}", &one), g;
	struct cb_wire_header h = { .type = CB_WIRE_EXECUTE_REPLY, .content_len = LARGE, .request = q };
	char *reply = test_calloc(LARGE, 1);
	const char *at = reply;

	memset(reply, ' ', LARGE);
	memcpy(reply, RIG_OK, strlen(RIG_OK));
	r->subshell = NULL;
	cell = rig_begin(r, "bad", &g);
	rig_frame_raw(r, &h, at, LARGE / 2);
	rig_until(r, half_is_there);
	stop_reading(r);
	for (at += LARGE / 2; at < reply + LARGE;) {
		ssize_t n = send(r->wire, at, (size_t)(reply + LARGE - at), MSG_DONTWAIT);

		assert_true(n > 0);
		at += n;
	}
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	takes_over(r, &t);
	both_have_died(r, cell, one);
	test_free(reply);
}

static bool side_is_heard_no_more(struct rig *r)
{
	return r->k.guest.side.slot < 0;
}

/* It answers what it was asked on the side wire while another is about to take over: that breaks no rule. */
static void test_an_answer_on_the_side_wire(void **state)
{
	struct rig_twin t;
	struct rig *r = *state = with_a_twin(&t);
	uint64_t g, q;
	const char *cell = rig_begin(r, "bad", &g);
	const char *one = rig_send(r, RIG_SHELL, "is_complete_request", "{\"code\":\"a\"}", NULL);

	q = rig_side_expect(r, CB_WIRE_IS_COMPLETE, 0);
	rig_expect(r, RIG_IOPUB, "busy", one);
	stop_reading(r);
	rig_stream(r, g, CB_WIRE_STDOUT, "last words");
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	rig_side_frame(r, CB_WIRE_IS_COMPLETE_REPLY, q, "{\"status\":\"complete\"}");
	rig_until(r, side_is_heard_no_more);
	assert_true(r->k.guest.link_slot >= 0);
	rig_expect_error(r, RIG_SHELL, "is_complete_reply", one, "KernelDiedError", "signal 11");
	rig_expect(r, RIG_IOPUB, "idle", one);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	it_has_died(r, &t, cell);
}

static void test_the_end_of_a_comm_message(void **state)
{
	struct rig_twin t;
	struct rig *r = *state = with_a_twin(&t);
	const char *cell, *one;
	uint64_t g, q;

	cell = rig_begin(r, "bad", &g);
	rig_frame(r, CB_WIRE_AWAITING, g, "{}");
	one = rig_send(r, RIG_SHELL, "comm_msg", "{\"comm_id\":\"c\",\"data\":{}}", NULL);
	q = rig_guest_expect(r, CB_WIRE_DOWN_COMM_MSG);
	rig_expect(r, RIG_IOPUB, "busy", one);
	stop_reading(r);
	rig_frame(r, CB_WIRE_COMM_DONE, q, "{}");
	rig_stream(r, g, CB_WIRE_STDOUT, "last words");
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	rig_expect(r, RIG_IOPUB, "idle", one);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	it_has_died(r, &t, cell);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_a_subshells_reply, rig_teardown),
		cmocka_unit_test_teardown(test_a_subshells_reply_in_two_halves, rig_teardown),
		cmocka_unit_test_teardown(test_an_answer_on_the_side_wire, rig_teardown),
		cmocka_unit_test_teardown(test_the_end_of_a_comm_message, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
