/* What is served beside the main shell (shells/lanes.c, python/side.c), by a guest that the test plays. */
#include "rig_lanes.h"
#include "rig_twins.h"

#include <unistd.h>

#include "shells/lanes.h"

#define COMPLETE "{\"code\":\"im\",\"cursor_pos\":2}"
#define MATCHES "{\"status\":\"ok\",\"matches\":[\"import\"],\"cursor_start\":0,\"cursor_end\":2,\"metadata\":{}}"
#define COMM(n) "{\"comm_id\":\"c\",\"data\":{\"n\":" #n "}}"
#define RESULT "{\"data\":{\"text/plain\":\"1\"},\"metadata\":{}}"

static struct rig *with_side(void)
{
	return rig_side_up(CB_MODE_OFF);
}

static uint64_t cell_runs(struct rig *r, const char **ret_id)
{
	*ret_id = rig_execute(r, "1");
	return rig_begun(r, *ret_id);
}

static void ends(struct rig *r, const char *id, const char *reply, const char *status)
{
	struct rig_msg m = rig_take(r, RIG_SHELL, reply, id);

	assert_string_equal(rig_text(&m, "status"), status);
	rig_msg_free(&m);
}

static void test_questions_one_at_a_time(void **state)
{
	struct rig *r = *state = with_side();
	const char *cell, *one, *two;
	uint64_t g = cell_runs(r, &cell);

	one = rig_send(r, RIG_SHELL, "complete_request", COMPLETE, NULL);
	uint64_t q = rig_side_expect(r, CB_WIRE_COMPLETE, 0);

	rig_expect(r, RIG_IOPUB, "busy", one);
	two = rig_send(r, RIG_SHELL, "is_complete_request", "{\"code\":\"x\"}", NULL);
	rig_barrier(r);
	rig_side_frame(r, CB_WIRE_COMPLETE_REPLY, q, MATCHES);
	ends(r, one, "complete_reply", "ok");
	rig_expect(r, RIG_IOPUB, "idle", one);
	rig_expect(r, RIG_IOPUB, "busy", cell); /* who looks last sees that the kernel is busy */
	q = rig_side_expect(r, CB_WIRE_IS_COMPLETE, 0);
	rig_expect(r, RIG_IOPUB, "busy", two);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK); /* the cell may end meanwhile */
	ends(r, cell, "execute_reply", "ok");
	rig_expect(r, RIG_IOPUB, "idle", cell);
	rig_side_frame(r, CB_WIRE_IS_COMPLETE_REPLY, q, "{\"status\":\"complete\"}");
	ends(r, two, "is_complete_reply", "complete");
	rig_expect(r, RIG_IOPUB, "idle", two);
	rig_barrier(r);
}

/* On the side wire nothing may be said but the answer to what is asked. */
static void test_side_breaches(void **state)
{
	static const struct {
		enum cb_wire_type type;
		int id; /* beside the question's */
		const char *content;
	} tried[] = {
		{ CB_WIRE_COMPLETE_REPLY, 1, MATCHES },
		{ CB_WIRE_COMPLETE_REPLY, -1, MATCHES },
		{ CB_WIRE_COMPLETE_REPLY, 0, "{}" },
		{ CB_WIRE_COMPLETE_REPLY, 0, "[" },
		{ CB_WIRE_INSPECT_REPLY, 0, "{\"status\":\"ok\",\"found\":false,\"data\":{},\"metadata\":{}}" },
		{ CB_WIRE_HELLO, 0, "{\"wire_version\":1,\"implementation\":\"plain\",\"python_version\":\"3\"}" },
		{ CB_WIRE_STREAM, 0, "x" },
		{ CB_WIRE_EXECUTE_REPLY, -1, RIG_OK },
		{ CB_WIRE_EXECUTE_REPLY, 0, RIG_OK },
		{ CB_WIRE_COMPLETE, 0, COMPLETE },
		{ 0, 0, "" },
	};

	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		struct rig *r = *state = with_side();
		const char *cell, *one;

		cell_runs(r, &cell);
		one = rig_send(r, RIG_SHELL, "complete_request", COMPLETE, NULL);
		uint64_t q = rig_side_expect(r, CB_WIRE_COMPLETE, 0);

		rig_side_frame(r, tried[i].type, q + (uint64_t)tried[i].id, tried[i].content);
		rig_await_kill(r);
		rig_die(r, 9);
		for (int n = 0; n < 2; n++) { /* both are told, in whichever order */
			struct rig_msg m = rig_recv(r, RIG_SHELL);

			assert_string_equal(rig_text(&m, "status"), "error");
			assert_true(strcmp(m.parent_id, one) == 0 ? strcmp(m.type, "complete_reply") == 0
								  : strcmp(rig_text(&m, "ename"), "WireError") == 0);
			rig_msg_free(&m);
		}
		rig_teardown(state);
	}
}

/* Half frames are waited for; a guest that closes the side wire is served on the wire alone. */
static void test_side_lengths_and_halves(void **state)
{
	struct cb_wire_header h = { .type = CB_WIRE_COMPLETE_REPLY, };
	struct rig *r = *state = with_side();
	const char *cell, *one;
	uint64_t g = cell_runs(r, &cell);

	one = rig_send(r, RIG_SHELL, "complete_request", COMPLETE, NULL);
	h.request = rig_side_expect(r, CB_WIRE_COMPLETE, 0);
	rig_expect(r, RIG_IOPUB, "busy", one);
	h.content_len = sizeof(MATCHES) - 1;
	assert_int_equal(write(r->side, &h, 11), 11);
	rig_barrier(r);
	assert_int_equal(write(r->side, (char *)&h + 11, sizeof(h) - 11), (ssize_t)sizeof(h) - 11);
	assert_int_equal(write(r->side, MATCHES, 20), 20);
	rig_barrier(r);
	assert_int_equal(write(r->side, MATCHES + 20, sizeof(MATCHES) - 21), (ssize_t)sizeof(MATCHES) - 21);
	ends(r, one, "complete_reply", "ok");
	rig_expect(r, RIG_IOPUB, "idle", one);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	close(r->side); /* then questions wait for the cell's end */
	r->side = -1;
	rig_barrier(r);
	one = rig_send(r, RIG_SHELL, "complete_request", COMPLETE, NULL);
	rig_barrier(r);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	ends(r, cell, "execute_reply", "ok");
	rig_frame(r, CB_WIRE_COMPLETE_REPLY, rig_guest_expect(r, CB_WIRE_COMPLETE), MATCHES);
	ends(r, one, "complete_reply", "ok");
}

/* What the guest has left unanswered there does not wait for ever, though the guest lives. */
static void test_side_closed_behind_questions(void **state)
{
	struct rig *r = *state = with_side();
	const char *cell, *one, *two, *debug[2];

	cell_runs(r, &cell);
	one = rig_send(r, RIG_SHELL, "complete_request", COMPLETE, NULL);
	(void)rig_side_expect(r, CB_WIRE_COMPLETE, 0);
	two = rig_send(r, RIG_SHELL, "complete_request", COMPLETE, NULL);
	for (int i = 0; i < 2; i++)
		debug[i] = rig_send(r, RIG_CONTROL, "debug_request",
				    "{\"type\":\"request\",\"seq\":1,\"command\":\"debugInfo\"}", NULL);
	(void)rig_side_expect(r, CB_WIRE_DEBUG, 0);
	close(r->side);
	r->side = -1;
	ends(r, one, "complete_reply", "error");
	ends(r, two, "complete_reply", "error");
	for (int i = 0; i < 2; i++) {
		struct rig_msg m = rig_take(r, RIG_CONTROL, "debug_reply", debug[i]);

		assert_non_null(strstr(rig_text(&m, "message"), "closed the channel"));
		rig_msg_free(&m);
	}
	assert_false(cb_debug_busy(&r->k.shells) || cb_lanes_busy(&r->k.shells));
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
}

static void test_subshell(void **state)
{
	struct rig *r = *state = with_side();
	const char *cell, *one, *two, *three;
	uint64_t g = cell_runs(r, &cell);
	struct rig_msg m;

	rig_subshell(r);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	one = rig_execute(r, "2");
	two = rig_execute(r, "3");
	three = rig_send(r, RIG_SHELL, "comm_msg", COMM(1), NULL);
	uint64_t q = rig_side_expect(r, CB_WIRE_EXECUTE, 1);

	rig_expect(r, RIG_IOPUB, "busy", one);
	rig_expect(r, RIG_IOPUB, "execute_input", one);
	rig_frame(r, CB_WIRE_EXECUTE_RESULT, q, RESULT);
	m = rig_take(r, RIG_IOPUB, "execute_result", one);
	assert_int_equal(json_integer_value(json_object_get(m.content, "execution_count")), 2);
	rig_msg_free(&m);
	rig_frame(r, CB_WIRE_ERROR, q, RIG_ERROR_CONTENT("E"));
	rig_expect(r, RIG_IOPUB, "error", one);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, q, RIG_ERROR("E"));
	ends(r, one, "execute_reply", "error");
	ends(r, two, "execute_reply", "aborted");
	rig_frame(r, CB_WIRE_COMM_DONE, rig_side_expect(r, CB_WIRE_DOWN_COMM_MSG, 1), "{}");
	rig_expect(r, RIG_IOPUB, "idle", one);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	rig_expect(r, RIG_IOPUB, "busy", two);
	rig_expect(r, RIG_IOPUB, "idle", two);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	rig_expect(r, RIG_IOPUB, "busy", three);
	rig_expect(r, RIG_IOPUB, "idle", three);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	r->subshell = NULL;
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	ends(r, cell, "execute_reply", "ok");
	rig_expect(r, RIG_IOPUB, "idle", cell);
	rig_barrier(r);
}

/* A subshell's request is answered once, by the frame that is its answer. */
static void test_lane_breaches(void **state)
{
	static const struct {
		enum cb_wire_type type;
		bool twice;
		int id;
		const char *content;
	} tried[] = {
		{ CB_WIRE_EXECUTE_REPLY, true, 0, RIG_OK },
		{ CB_WIRE_EXECUTE_REPLY, false, 1, RIG_OK },
		{ CB_WIRE_EXECUTE_REPLY, false, 0, "{\"status\":\"ok\",\"execution_count\":7}" },
		{ CB_WIRE_EXECUTE_RESULT, false, 1, RESULT },
		{ CB_WIRE_COMM_DONE, false, 0, "{}" },
		{ CB_WIRE_IS_COMPLETE_REPLY, false, 0, "{\"status\":\"complete\"}" },
		{ CB_WIRE_CHECKPOINT_REPLY, false, 0, RIG_MADE },
		{ CB_WIRE_RESUMED, false, 0, "{}" },
		{ CB_WIRE_INPUT_REQUEST, false, 1, "{\"prompt\":\"\",\"password\":false}" },
		{ CB_WIRE_AWAITING, false, 1, "{}" },
		{ CB_WIRE_INTERRUPTED, false, 1, "{}" },
		{ (enum cb_wire_type)67, false, 0, RIG_OK }, /* no message of the contract any more */
	};

	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		struct rig *r = *state = with_side();
		const char *cell, *one;

		cell_runs(r, &cell);
		rig_subshell(r);
		rig_expect(r, RIG_IOPUB, "busy", cell);
		one = rig_execute(r, "2");
		uint64_t q = rig_side_expect(r, CB_WIRE_EXECUTE, 1);

		if (tried[i].twice) {
			rig_frame(r, tried[i].type, q, tried[i].content);
			ends(r, one, "execute_reply", "ok");
		}
		rig_frame(r, tried[i].type, q + (uint64_t)tried[i].id, tried[i].content);
		rig_await_kill(r);
		rig_die(r, 9);
		for (int n = tried[i].twice; n < 2; n++) {
			struct rig_msg m = rig_recv(r, RIG_SHELL);

			assert_string_equal(rig_text(&m, "status"), "error");
			rig_msg_free(&m);
		}
		assert_false(cb_lanes_busy(&r->k.shells));
		rig_teardown(state);
	}
}

static void an_interrupt_was_long_ago(struct rig *r)
{
	struct cb_lanes *l = &r->k.shells.lanes;

	l->comms.interrupted_at -= l->comms.interrupted_at != 0 ? 1000000000 : 0;
	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		l->sub[i].interrupted_at -= l->sub[i].interrupted_at != 0 ? 1000000000 : 0;
}

#define QUESTION "{\"prompt\":\"\",\"password\":false}"

static void ask(struct rig *r, uint64_t q, const char *id)
{
	rig_frame(r, CB_WIRE_INPUT_REQUEST, q, QUESTION);
	rig_expect(r, RIG_STDIN, "input_request", id);
}

/* One question at a time; an interrupt ends it, and each may have crossed another one. */
static void test_lane_input(void **state)
{
	struct rig *r = *state = with_side();
	const char *one;
	uint64_t q = rig_subshell_cell(r, "{\"code\":\"1\",\"allow_stdin\":true}", &one);

	ask(r, q, one);
	rig_send(r, RIG_STDIN, "input_reply", "{\"value\":\"v\"}", NULL);
	assert_int_equal(rig_side_expect(r, CB_WIRE_INPUT_REPLY, 1), q);
	rig_expect(r, RIG_CONTROL, "interrupt_reply", rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL));
	(void)rig_side_expect(r, CB_WIRE_LANE_INTERRUPT, 1);
	rig_expect(r, RIG_CONTROL, "interrupt_reply", rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL));
	(void)rig_side_expect(r, CB_WIRE_LANE_INTERRUPT, 1);
	for (int i = 0; i < 3; i++)
		ask(r, q, one);
	rig_frame(r, CB_WIRE_INPUT_REQUEST, q, QUESTION);
	rig_await_kill(r);
	rig_die(r, 9);
	ends(r, one, "execute_reply", "error");
}

static void test_lane_input_not_allowed(void **state)
{
	struct rig *r = *state = with_side();
	const char *one;

	rig_frame(r, CB_WIRE_INPUT_REQUEST, rig_subshell_cell(r, "{\"code\":\"1\",\"allow_stdin\":false}", &one),
		  QUESTION);
	rig_await_kill(r);
	rig_die(r, 9);
	ends(r, one, "execute_reply", "error");
}

static void comm_done(struct rig *r, uint64_t request, const char *id, const char *cell)
{
	rig_frame(r, CB_WIRE_COMM_DONE, request, "{}");
	rig_expect(r, RIG_IOPUB, "idle", id);
	if (cell != NULL)
		rig_expect(r, RIG_IOPUB, "busy", cell);
}

static void test_comms_beside_an_awaiting_cell(void **state)
{
	struct rig *r = *state = with_side();
	const char *cell, *later, *early, *one, *two;
	uint64_t g = cell_runs(r, &cell), q;

	later = rig_execute(r, "later");
	early = rig_send(r, RIG_SHELL, "comm_msg", COMM(0), NULL);
	rig_barrier(r);
	rig_frame(r, CB_WIRE_AWAITING, g, "{}"); /* what waits goes first, past the cells */
	q = rig_guest_expect(r, CB_WIRE_DOWN_COMM_MSG);
	rig_expect(r, RIG_IOPUB, "busy", early);
	rig_subshell(r); /* comms of subshells go the same way, in order of arrival */
	rig_expect(r, RIG_IOPUB, "busy", cell);
	one = rig_send(r, RIG_SHELL, "comm_msg", COMM(1), NULL);
	r->subshell = NULL;
	two = rig_send(r, RIG_SHELL, "comm_msg", COMM(2), NULL);
	rig_barrier(r);
	comm_done(r, q, early, cell);
	q = rig_guest_expect(r, CB_WIRE_DOWN_COMM_MSG);
	rig_expect(r, RIG_IOPUB, "busy", one);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK); /* the cell ends before they are answered */
	ends(r, cell, "execute_reply", "ok");
	rig_expect(r, RIG_IOPUB, "idle", cell);
	g = rig_guest_expect(r, CB_WIRE_EXECUTE);
	rig_expect(r, RIG_IOPUB, "busy", later);
	rig_expect(r, RIG_IOPUB, "execute_input", later);
	comm_done(r, q, one, later);
	q = rig_guest_expect(r, CB_WIRE_DOWN_COMM_MSG);
	rig_expect(r, RIG_IOPUB, "busy", two);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	ends(r, later, "execute_reply", "ok");
	rig_expect(r, RIG_IOPUB, "idle", later);
	comm_done(r, q, two, NULL);
	assert_false(cb_lanes_busy(&r->k.shells));
	early = rig_send(r, RIG_SHELL, "comm_msg", COMM(3), NULL); /* and as ever afterwards */
	rig_expect(r, RIG_IOPUB, "busy", early);
	rig_frame(r, CB_WIRE_COMM_DONE, rig_guest_expect(r, CB_WIRE_DOWN_COMM_MSG), "{}");
	rig_expect(r, RIG_IOPUB, "idle", early);
}

/* A subshell's loop gets its own, whatever the main shell's has to do; what is left over can be interrupted. */
static void test_comms_beside_a_subshells_cell(void **state)
{
	struct rig *r = *state = with_side();
	const char *cell, *early, *mine, *one, *two, *click;
	uint64_t g = cell_runs(r, &cell), q, c;

	rig_frame(r, CB_WIRE_AWAITING, g, "{}");
	early = rig_send(r, RIG_SHELL, "comm_msg", COMM(0), NULL);
	(void)rig_guest_expect(r, CB_WIRE_DOWN_COMM_MSG); /* not answered */
	rig_expect(r, RIG_IOPUB, "busy", early);
	rig_subshell(r);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	mine = rig_execute(r, "1");
	q = rig_side_expect(r, CB_WIRE_EXECUTE, 1);
	rig_expect(r, RIG_IOPUB, "busy", mine);
	rig_expect(r, RIG_IOPUB, "execute_input", mine);
	one = rig_send(r, RIG_SHELL, "comm_msg", COMM(1), NULL);
	rig_barrier(r);
	rig_frame(r, CB_WIRE_AWAITING, q, "{}");
	c = rig_side_expect(r, CB_WIRE_DOWN_COMM_MSG, 1);
	rig_expect(r, RIG_IOPUB, "busy", one);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, q, RIG_OK);
	ends(r, mine, "execute_reply", "ok");
	rig_expect(r, RIG_IOPUB, "idle", mine);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	two = rig_send(r, RIG_SHELL, "comm_msg", COMM(2), NULL);
	rig_barrier(r); /* not beside the first */
	click = rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL);
	rig_expect(r, RIG_CONTROL, "interrupt_reply", click);
	(void)rig_side_expect(r, CB_WIRE_LANE_INTERRUPT, 1);
	rig_expect(r, RIG_IOPUB, "busy", click);
	rig_expect(r, RIG_IOPUB, "idle", click);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	comm_done(r, c, one, cell);
	c = rig_side_expect(r, CB_WIRE_DOWN_COMM_MSG, 1); /* behind it, as it came */
	rig_expect(r, RIG_IOPUB, "busy", two);
	comm_done(r, c, two, cell);
}

static void test_death_beside(void **state)
{
	struct rig *r = *state = with_side();
	const char *cell, *one, *two;
	uint64_t g = cell_runs(r, &cell);

	rig_frame(r, CB_WIRE_AWAITING, g, "{}");
	one = rig_send(r, RIG_SHELL, "comm_msg", COMM(1), NULL);
	two = rig_send(r, RIG_SHELL, "comm_msg", COMM(2), NULL);
	(void)rig_guest_expect(r, CB_WIRE_DOWN_COMM_MSG);
	rig_expect(r, RIG_IOPUB, "busy", one);
	rig_barrier(r);
	rig_die(r, 9);
	rig_expect(r, RIG_IOPUB, "idle", one);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	ends(r, cell, "execute_reply", "error");
	rig_expect(r, RIG_IOPUB, "error", cell);
	rig_expect(r, RIG_IOPUB, "idle", cell);
	rig_expect(r, RIG_IOPUB, "restarting", "");
	rig_spawn(r, 0); /* what waited goes to the next guest */
	rig_frame(r, CB_WIRE_HELLO, 0, RIG_HELLO);
	uint64_t q = rig_guest_expect(r, CB_WIRE_DOWN_COMM_MSG);

	rig_expect(r, RIG_IOPUB, "starting", "");
	rig_expect(r, RIG_IOPUB, "busy", two);
	comm_done(r, q, two, NULL);
	assert_false(cb_lanes_busy(&r->k.shells));
}

static bool side_is_ending(struct rig *r)
{
	return r->k.guest.side.ending;
}

static bool begun(struct rig *r)
{
	return r->k.shells.lanes.sub[0].current != NULL;
}

/* The end of the side wire is seen before that of the guest: a cell that comes in between is for the next one. */
static void test_a_cell_as_the_guest_ends(void **state)
{
	struct rig *r = *state = with_side();
	const char *one;

	rig_subshell(r);
	close(r->side);
	r->side = -1;
	rig_until(r, side_is_ending);
	one = rig_execute(r, "1");
	rig_barrier(r);
	rig_die(r, 9);
	rig_spawn(r, 0);
	rig_frame(r, CB_WIRE_HELLO, 0,
		  "{\"wire_version\":1,\"implementation\":\"plain\",\"python_version\":\"3.11.2\",\"side\":true}");
	rig_until(r, begun);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, rig_side_expect(r, CB_WIRE_EXECUTE, 1), RIG_OK);
	ends(r, one, "execute_reply", "ok");
	r->subshell = NULL;
}

static void comm_outlasts_its_cell(struct rig *r)
{
	const char *cell, *one;
	uint64_t g = cell_runs(r, &cell);

	rig_frame(r, CB_WIRE_AWAITING, g, "{}");
	one = rig_send(r, RIG_SHELL, "comm_msg", COMM(1), NULL);
	(void)rig_guest_expect(r, CB_WIRE_DOWN_COMM_MSG);
	rig_expect(r, RIG_IOPUB, "busy", one);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	ends(r, cell, "execute_reply", "ok");
	rig_expect(r, RIG_IOPUB, "idle", cell);
}

/* What hangs after its cell has ended can be interrupted, and ended by a second interrupt. */
static void test_interrupt_of_a_comm_left_over(void **state)
{
	struct rig *r = *state = with_side();

	comm_outlasts_its_cell(r);
	const char *i = rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL);

	rig_expect(r, RIG_CONTROL, "interrupt_reply", i);
	assert_true(rig_interrupts(r) > 0);
	an_interrupt_was_long_ago(r);
	i = rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL);
	rig_expect(r, RIG_CONTROL, "interrupt_reply", i);
	rig_await_kill(r);
}

static bool shell_waits(struct rig *r)
{
	zmq_pollitem_t shell = { .socket = r->k.jupyter.channels.socket[CB_SHELL], .events = ZMQ_POLLIN };

	return zmq_poll(&shell, 1, 0) > 0;
}

static bool restoring(struct rig *r)
{
	return r->k.guest.state == CB_GUEST_RESTORING;
}

/* How many of the request are among what has been published. */
static int idles(struct rig *r, const char *request)
{
	const char *id = rig_send(r, RIG_CONTROL, "kernel_info_request", NULL, NULL);
	int n = 0;

	for (bool last = false; !last;) {
		struct rig_msg m = rig_recv(r, RIG_IOPUB);
		bool idle = strcmp(rig_text(&m, "execution_state"), "idle") == 0;

		last = idle && strcmp(m.parent_id, id) == 0;
		n += idle && strcmp(m.parent_id, request) == 0;
		rig_msg_free(&m);
	}
	for (struct rig_msg m; rig_try_recv(r, RIG_IOPUB, &m);) /* that others are busy still */
		rig_msg_free(&m);
	return n;
}

/* What is read at a failure, for what goes with it, can end the guest: the cell gets that reply, and no second, when it
 * is known that the state is back. */
static void test_an_interrupt_behind_a_failure(void **state)
{
	struct rig *r = *state = rig_side_up(CB_MODE_ALWAYS);
	struct rig_twin twin = rig_twin(r), copy;
	const char *one, *two, *id;
	int replies = 0;
	struct rig_msg m;

	rig_subshell(r);
	one = rig_execute(r, "1");
	uint64_t q = rig_side_expect(r, CB_WIRE_EXECUTE, 1);

	rig_expect(r, RIG_IOPUB, "busy", one);
	rig_expect(r, RIG_IOPUB, "execute_input", one);
	rig_subshell(r);
	two = rig_execute(r, "2");
	(void)rig_side_expect(r, CB_WIRE_EXECUTE, 2);
	r->subshell = NULL;
	id = rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL);
	rig_expect(r, RIG_CONTROL, "interrupt_reply", id);
	an_interrupt_was_long_ago(r);
	cb_loop_set_events(&r->k.loop, r->k.jupyter.channels.slot[CB_SHELL], 0);
	id = rig_send(r, RIG_SHELL, "interrupt_request", NULL, NULL);
	rig_until(r, shell_waits);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, q, RIG_ERROR("E"));
	rig_until(r, restoring);
	rig_expect(r, RIG_SHELL, "interrupt_reply", id);
	assert_int_equal(idles(r, one), 0);
	assert_false(rig_try_recv(r, RIG_SHELL, &m));
	copy = rig_twin_comes_back(r, &twin);
	for (int i = 0; i < 2; i++) {
		m = rig_recv(r, RIG_SHELL);
		if (strcmp(m.parent_id, one) == 0) /* what it did is undone with the rest */
			assert_string_equal(rig_text(&m, "ename"), "KeyboardInterrupt");
		if (strcmp(m.parent_id, two) == 0)
			assert_string_equal(rig_text(&m, "ename"), "KernelDiedError");
		replies += strcmp(m.parent_id, one) == 0;
		rig_msg_free(&m);
	}
	assert_int_equal(replies, 1);
	assert_false(cb_lanes_busy(&r->k.shells));
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	assert_int_equal(idles(r, one), 1);
	assert_false(rig_try_recv(r, RIG_SHELL, &m));
	rig_twin_close(&twin);
	rig_twin_close(&copy);
}

static bool is_interrupted(struct rig *r)
{
	return r->k.shells.lanes.sub[0].current != NULL && r->k.shells.lanes.sub[0].interrupted_at != 0;
}

static void click(struct rig *r)
{
	rig_expect(r, RIG_CONTROL, "interrupt_reply", rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL));
}

static bool has_obeyed(struct rig *r)
{
	return !is_interrupted(r);
}

static bool main_thread_has_obeyed(struct rig *r)
{
	return r->k.guest.python.interrupted > 0;
}

/* An interrupt that the cell took is over, and none of the main thread's; one that it did not take is not. */
static void test_interrupts_that_a_subshell_took(void **state)
{
	struct rig *r = *state = with_side();
	const char *one;
	uint64_t q = rig_subshell_cell(r, "{\"code\":\"1\"}", &one);

	for (int i = 0; i < 3; i++) {
		click(r);
		assert_int_equal(rig_side_expect(r, CB_WIRE_LANE_INTERRUPT, 1), q);
		an_interrupt_was_long_ago(r);
		assert_true(is_interrupted(r));
		rig_frame(r, CB_WIRE_INTERRUPTED, q, "{}");
		rig_until(r, has_obeyed);
	}
	assert_int_equal(r->k.guest.python.interrupted, 0);
	click(r);
	(void)rig_side_expect(r, CB_WIRE_LANE_INTERRUPT, 1);
	an_interrupt_was_long_ago(r);
	rig_frame(r, CB_WIRE_INTERRUPTED, 0, "{}"); /* it was the main thread */
	rig_until(r, main_thread_has_obeyed);
	assert_true(is_interrupted(r));
	click(r);
	rig_await_kill(r);
	rig_die(r, 9);
	ends(r, one, "execute_reply", "error");
}

/* Of other clients' requests no more wait than so many bytes; one by itself may be as large as a message may. */
static void test_a_large_request_waits_alone(void **state)
{
	struct rig *r = *state = with_side();
	struct cb_shell *l = &r->k.shells.lanes.sub[0];
	struct cb_request *large = calloc(1, sizeof(*large));
	const char *one;

	(void)rig_subshell_cell(r, "{\"code\":\"1\"}", &one);
	large->frame = calloc(1, sizeof(*large->frame));
	large->nframes = 1;
	assert_int_equal(zmq_msg_init_size(large->frame, CB_SHELLS_BYTES_MAX + 1), 0);
	assert_true(cb_shell_take(l, large));
	ends(r, rig_execute(r, "2"), "execute_reply", "error");
	assert_int_equal(r->k.shells.lanes.load.count, 1);
	assert_ptr_equal(l->waiting.head, large);
	r->subshell = NULL;
}

static bool waits_in_subshell(struct rig *r)
{
	return r->k.shells.lanes.sub[0].waiting.head != NULL;
}

/* There is no Python yet: it is interrupted as soon as it is begun. */
static void test_interrupt_of_what_waits(void **state)
{
	struct rig *r = *state = with_side();

	rig_subshell(r);
	rig_die(r, 9);
	rig_spawn(r, 0);
	(void)rig_execute(r, "1");
	rig_until(r, waits_in_subshell);
	rig_expect(r, RIG_CONTROL, "interrupt_reply", rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL));
	rig_frame(r, CB_WIRE_HELLO, 0,
		  "{\"wire_version\":1,\"implementation\":\"plain\",\"python_version\":\"3.11.2\",\"side\":true}");
	rig_until(r, is_interrupted);
	r->subshell = NULL;
}

/* What is sent on control before a cell is sent on shell may be read after it, also in a subshell. */
static void test_interrupt_that_a_subshells_cell_overtook(void **state)
{
	struct rig *r = *state = with_side();
	char session[80];

	r->k.started = 1;
	rig_subshell(r);
	snprintf(session, sizeof(session), "s1\",\"subshell_id\":\"%s", r->subshell);
	r->date = "2026-01-01T00:00:01.000000Z";
	(void)rig_execute(r, "1");
	(void)rig_side_expect(r, CB_WIRE_EXECUTE, 1);
	r->subshell = NULL;
	r->session = session;
	r->date = "2026-01-01T00:00:00.999999Z";
	rig_expect(r, RIG_CONTROL, "interrupt_reply", rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL));
	assert_false(is_interrupted(r));
	r->date = "2026-01-01T00:00:01.000001Z";
	rig_expect(r, RIG_CONTROL, "interrupt_reply", rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL));
	assert_true(is_interrupted(r));
	r->date = NULL;
	r->session = "s1";
}

static bool nothing_repeats(struct rig *r)
{
	return r->k.guest.python.nudge_at == 0;
}

/* An interrupt of a comm message that goes on is not repeated until it hits the next cell. */
static void test_interrupt_of_a_comm_is_no_cells(void **state)
{
	struct rig *r = *state = with_side();
	const char *cell, *i;

	comm_outlasts_its_cell(r);
	i = rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL);
	rig_expect(r, RIG_CONTROL, "interrupt_reply", i);
	rig_expect(r, RIG_IOPUB, "busy", i);
	rig_expect(r, RIG_IOPUB, "idle", i);
	assert_false(nothing_repeats(r));
	assert_true(rig_interrupts(r) > 0);
	(void)cell_runs(r, &cell);
	assert_true(nothing_repeats(r));
}

static bool is_over_time(struct rig *r)
{
	return r->k.shells.lanes.sub[0].cell.stop == CB_STOP_TIME_SOFT;
}

static bool is_over_time_though_it_computes(struct rig *r)
{
	for (int64_t end = cb_now_ns() + 2000000; cb_now_ns() < end;) /* the jail's time is this process's */
		;
	return is_over_time(r);
}

/* The clock of a cell that asks stands only while the jail does nothing. */
static void test_a_question_beside_work(void **state)
{
	struct rig *r = *state = with_side();
	const char *one;

	r->policy.timeout_cell = 0.8;
	uint64_t q = rig_subshell_cell(r, "{\"code\":\"1\",\"allow_stdin\":true}", &one);

	ask(r, q, one);
	rig_until(r, is_over_time_though_it_computes);
	assert_false(r->k.shells.lanes.sub[0].cell.wait_over);
	(void)rig_side_expect(r, CB_WIRE_LANE_INTERRUPT, 1);
}

/* What is read at a death, for what goes with it, asks for the next jail: why this one ended is told all the same. */
static void test_cause_of_death_and_a_request_behind_it(void **state)
{
	struct rig *r = *state = with_side();
	const char *cell, *one;
	int told = 0;

	(void)cell_runs(r, &cell);
	rig_subshell(r);
	one = rig_execute(r, "1");
	(void)rig_side_expect(r, CB_WIRE_EXECUTE, 1);
	r->subshell = NULL;
	cb_loop_set_events(&r->k.loop, r->k.jupyter.channels.slot[CB_SHELL], 0);
	(void)rig_send(r, RIG_SHELL, "comm_msg", COMM(1), NULL);
	rig_until(r, shell_waits);
	rig_die(r, 11);
	while (told < 2) {
		struct rig_msg m = rig_recv(r, RIG_SHELL);

		assert_true(strcmp(m.parent_id, cell) == 0 || strcmp(m.parent_id, one) == 0);
		assert_non_null(strstr(rig_text(&m, "evalue"), "signal 11"));
		told++;
		rig_msg_free(&m);
	}
	rig_spawn(r, 0); /* and the next one comes */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_questions_one_at_a_time, rig_teardown),
		cmocka_unit_test_teardown(test_side_breaches, rig_teardown),
		cmocka_unit_test_teardown(test_side_lengths_and_halves, rig_teardown),
		cmocka_unit_test_teardown(test_side_closed_behind_questions, rig_teardown),
		cmocka_unit_test_teardown(test_subshell, rig_teardown),
		cmocka_unit_test_teardown(test_lane_breaches, rig_teardown),
		cmocka_unit_test_teardown(test_lane_input, rig_teardown),
		cmocka_unit_test_teardown(test_lane_input_not_allowed, rig_teardown),
		cmocka_unit_test_teardown(test_comms_beside_an_awaiting_cell, rig_teardown),
		cmocka_unit_test_teardown(test_comms_beside_a_subshells_cell, rig_teardown),
		cmocka_unit_test_teardown(test_a_cell_as_the_guest_ends, rig_teardown),
		cmocka_unit_test_teardown(test_death_beside, rig_teardown),
		cmocka_unit_test_teardown(test_interrupt_of_a_comm_left_over, rig_teardown),
		cmocka_unit_test_teardown(test_an_interrupt_behind_a_failure, rig_teardown),
		cmocka_unit_test_teardown(test_interrupts_that_a_subshell_took, rig_teardown),
		cmocka_unit_test_teardown(test_a_large_request_waits_alone, rig_teardown),
		cmocka_unit_test_teardown(test_interrupt_of_what_waits, rig_teardown),
		cmocka_unit_test_teardown(test_interrupt_that_a_subshells_cell_overtook, rig_teardown),
		cmocka_unit_test_teardown(test_interrupt_of_a_comm_is_no_cells, rig_teardown),
		cmocka_unit_test_teardown(test_a_question_beside_work, rig_teardown),
		cmocka_unit_test_teardown(test_cause_of_death_and_a_request_behind_it, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
