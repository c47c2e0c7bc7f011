/* Interrupts against a scripted guest and pid 1: soft and hard, never another cell's, repeated until they are taken. */
#include "rig_lanes.h"
#include "rig_twins.h"

#include <signal.h>
#include <sys/socket.h>

static void interrupt(struct rig *r)
{
	const char *id = rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL);
	struct rig_msg m;

	rig_expect(r, RIG_CONTROL, "interrupt_reply", id);
	do { /* its bracket, and whatever it caused, in between */
		m = rig_recv(r, RIG_IOPUB);
		if (strcmp(rig_text(&m, "execution_state"), "idle") == 0 && strcmp(m.parent_id, id) == 0)
			break;
		rig_msg_free(&m);
	} while (true);
	rig_msg_free(&m);
	if (r->k.shells.execution.shell.current != NULL) {
		m = rig_recv(r, RIG_IOPUB);
		assert_string_equal(rig_text(&m, "execution_state"), "busy");
		rig_msg_free(&m);
	}
}

/* The guest ends the cell by it, and the client hears so. */
static void ends_interrupted(struct rig *r, const char *id, uint64_t g)
{
	rig_frame(r, CB_WIRE_ERROR, g, RIG_ERROR_CONTENT("KeyboardInterrupt"));
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_ERROR("KeyboardInterrupt"));
	rig_failed(r, id, "KeyboardInterrupt");
	rig_works(r);
}

static bool double_click_over(struct rig *r)
{
	return cb_now_ns() - r->k.shells.execution.shell.interrupted_at > 260000000;
}

static void test_interrupt_soft(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	interrupt(r);
	assert_int_equal(rig_interrupts(r), 1);
	rig_frame(r, CB_WIRE_INTERRUPTED, g, "{}");
	rig_barrier(r);
	for (int i = 0; i < 50 && r->k.shells.execution.shell.interrupted_at != 0; i++)
		rig_barrier(r);
	interrupt(r); /* the first was delivered: this one is a first again */
	assert_int_equal(rig_interrupts(r), 1);
	ends_interrupted(r, id, g);
}

/* What a server sent to a kernel that had died is not for its successor, unless only the client's clock is wrong. */
static void test_interrupt_from_before_the_kernel(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	r->date = "2001-01-01T00:00:00.000000Z";
	r->k.started = cb_date_now();
	r->k.started_ns = cb_now_ns();
	interrupt(r);
	assert_int_equal(rig_interrupts(r), 0);
	r->k.started_ns -= 11000000000LL;
	r->k.started += 3600; /* the host's clock was set back since */
	interrupt(r);
	assert_int_equal(rig_interrupts(r), 1);
	r->date = NULL;
	rig_frame(r, CB_WIRE_INTERRUPTED, g, "{}");
	ends_interrupted(r, id, g);
}

/* What was sent on control before the cell was sent on shell, and comes after it. */
static void test_interrupt_that_a_cell_overtook(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id;

	r->k.started = 1;
	r->date = "2026-01-01T00:00:01.000000Z";
	id = rig_begin(r, "a", &g);
	r->date = "2026-01-01T00:00:00.999999Z";
	interrupt(r);
	assert_int_equal(rig_interrupts(r), 0);
	r->date = "2026-01-01T00:00:01.000001Z";
	interrupt(r);
	assert_int_equal(rig_interrupts(r), 1);
	r->date = NULL;
	rig_frame(r, CB_WIRE_INTERRUPTED, g, "{}");
	ends_interrupted(r, id, g);
}

static bool is_interrupted(struct rig *r)
{
	return r->k.shells.lanes.sub[0].interrupted_at != 0;
}

/* One that names no line is held against what each has: whose cell came after it is left alone, and no other. */
static void test_interrupt_that_one_of_two_overtook(void **state)
{
	for (int main_is_newer = 0; main_is_newer < 2; main_is_newer++) {
		struct rig *r = *state = rig_side_up(CB_MODE_OFF);
		const char *one;
		uint64_t g;

		r->k.started = 1;
		r->date = main_is_newer ? "2026-01-01T00:00:01.000000Z" : "2026-01-01T00:00:03.000000Z";
		(void)rig_subshell_cell(r, "{\"code\":\"1\"}", &one);
		r->subshell = NULL;
		r->date = main_is_newer ? "2026-01-01T00:00:03.000000Z" : "2026-01-01T00:00:01.000000Z";
		(void)rig_begin(r, "a", &g);
		r->date = "2026-01-01T00:00:02.000000Z";
		rig_expect(r, RIG_CONTROL, "interrupt_reply",
			   rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL));
		r->date = NULL;
		assert_int_equal(is_interrupted(r), main_is_newer);
		assert_int_equal(rig_interrupts(r), !main_is_newer);
		rig_teardown(state);
	}
}

static bool took_it(struct rig *r)
{
	return !is_interrupted(r);
}

/* A handler of comm messages that goes on in spite of it: the next one is a first one, as a cell's. */
static void test_interrupt_that_a_subshells_comm_took(void **state)
{
	struct rig *r = *state = rig_side_up(CB_MODE_OFF);
	uint64_t g, q;
	const char *cell = rig_begin(r, "a", &g), *one;

	rig_subshell(r);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	one = rig_send(r, RIG_SHELL, "comm_msg", "{\"comm_id\":\"c\",\"data\":{}}", NULL);
	q = rig_side_expect(r, CB_WIRE_DOWN_COMM_MSG, 1);
	rig_expect(r, RIG_IOPUB, "busy", one);
	for (int i = 0; i < 3; i++) {
		(void)rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL);
		rig_until(r, is_interrupted);
		assert_int_equal(rig_side_expect(r, CB_WIRE_LANE_INTERRUPT, 1), q);
		r->k.shells.lanes.sub[0].interrupted_at -= CB_DOUBLE_CLICK; /* no double click */
		rig_frame(r, CB_WIRE_INTERRUPTED, q, "{}");
		rig_until(r, took_it);
	}
	assert_int_equal(r->k.guest.python.interrupted, 0);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
}

static bool asked_for_signal(struct rig *r)
{
	return r->k.guest.python.signals > 0;
}

static void one_ends_as_it_is_interrupted(struct rig *r)
{
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	interrupt(r);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

/* A cell that ends as the interrupt comes: the next is sent when no signal can reach it any more. */
static void test_interrupt_is_never_the_next_cells(void **state)
{
	struct rig *r = *state = rig_up();
	const char *next;
	uint64_t g;
	char there;

	one_ends_as_it_is_interrupted(r);
	assert_true(asked_for_signal(r));
	next = rig_execute(r, "b");
	rig_barrier(r);
	assert_int_equal(recv(r->wire, &there, 1, MSG_PEEK | MSG_DONTWAIT), -1);
	assert_int_equal(rig_interrupts(r), 1);
	g = rig_begun(r, next);
	rig_frame(r, CB_WIRE_INTERRUPTED, 0, "{}"); /* Python was idle when it came */
	rig_barrier(r);
	assert_int_equal(rig_interrupts(r), 0);
	assert_int_equal(r->k.guest.python.signals, 0);
	rig_end(r, next, g);
	rig_works(r);
}

/* One that comes while a cell waits for that is the waiting cell's. */
static void test_interrupt_of_a_cell_that_waits(void **state)
{
	struct rig *r = *state = rig_up();
	const char *next;
	uint64_t g;

	one_ends_as_it_is_interrupted(r);
	next = rig_execute(r, "b");
	rig_barrier(r);
	interrupt(r);
	assert_int_equal(rig_interrupts(r), 1);
	g = rig_begun(r, next);
	rig_until(r, asked_for_signal);
	assert_int_equal(rig_interrupts(r), 1);
	rig_frame(r, CB_WIRE_INTERRUPTED, g, "{}");
	ends_interrupted(r, next, g);
}

/* It waits, and the next cell does that already: what was sent before it is not for it. */
static void test_interrupt_that_a_waiting_cell_overtook(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g), *next;

	r->k.started = 1;
	interrupt(r);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	r->date = "2026-01-01T00:00:01.000000Z";
	next = rig_execute(r, "b");
	rig_barrier(r);
	r->date = "2026-01-01T00:00:00.999999Z";
	interrupt(r);
	r->date = NULL;
	assert_int_equal(rig_interrupts(r), 1);
	g = rig_begun(r, next);
	rig_barrier(r);
	assert_int_equal(rig_interrupts(r), 0);
	rig_end(r, next, g);
}

/* A command that waits is not begun to run to its end. */
static void test_interrupt_of_a_command_that_waits(void **state)
{
	struct rig *r = *state = rig_up();
	const char *run;

	one_ends_as_it_is_interrupted(r);
	run = rig_send(r, RIG_SHELL, "cellblock_run_request", "{\"argv\":[\"a\"]}", NULL);
	rig_barrier(r);
	interrupt(r);
	assert_int_equal(rig_interrupts(r), 1);
	rig_expect(r, RIG_IOPUB, "busy", run);
	rig_expect_error(r, RIG_SHELL, "cellblock_run_reply", run, "KeyboardInterrupt", "");
	rig_expect(r, RIG_IOPUB, "idle", run);
	rig_works(r);
}

static bool nudged_twice(struct rig *r)
{
	return r->k.guest.python.signals >= 3;
}

/* A repetition says how many were taken when it was sent, so that Python knows one that crossed its answer. */
static void test_interrupt_repeated(void **state)
{
	struct rig *r = *state = rig_up();
	struct cb_init_msg m;
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	for (int taken = 0; taken < 2; taken++) {
		interrupt(r);
		rig_until(r, nudged_twice);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(recv(r->init, &m, sizeof(m), MSG_DONTWAIT), sizeof(m));
			assert_int_equal(m.op, i == 0 ? CB_INIT_SIGNAL : CB_INIT_NUDGE);
			assert_int_equal(m.arg, i == 0 ? SIGINT : CB_WIRE_NUDGE + taken);
			m.op = CB_INIT_SIGNALLED;
			assert_int_equal(send(r->init, &m, sizeof(m), 0), sizeof(m));
		}
		rig_frame(r, CB_WIRE_INTERRUPTED, g, "{}");
		for (int i = 0; i < 50 && r->k.guest.python.nudge_at != 0; i++)
			rig_barrier(r);
		(void)rig_interrupts(r);
		for (int i = 0; i < 50 && r->k.guest.python.signals > 0; i++)
			rig_barrier(r);
	}
	rig_end(r, id, g);
	rig_works(r);
}

static void test_interrupt_hard(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	int64_t before = cb_now_ns();

	interrupt(r);
	interrupt(r); /* at once: the same click */
	if (cb_now_ns() - before < 200000000)
		assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	rig_until(r, double_click_over);
	interrupt(r);
	rig_await_kill(r);
	rig_die(r, SIGKILL);
	rig_failed(r, id, "KeyboardInterrupt");
	rig_restarted(r);
	rig_works(r);
}

static void test_interrupt_limit(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	r->policy.timeout_interrupt = 0.02;
	interrupt(r);
	rig_await_kill(r);
	rig_die(r, SIGKILL);
	rig_failed(r, id, "KeyboardInterrupt");
}

static void test_interrupt_ends_input(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	rig_frame(r, CB_WIRE_INPUT_REQUEST, g, "{\"prompt\":\"?\",\"password\":false}");
	rig_expect(r, RIG_STDIN, "input_request", id);
	interrupt(r);
	rig_frame(r, CB_WIRE_INTERRUPTED, g, "{}");
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_ERROR("KeyboardInterrupt"));
	rig_ended(r, id, "KeyboardInterrupt");
	rig_send(r, RIG_STDIN, "input_reply", "{\"value\":\"late\"}", NULL);
	rig_works(r); /* the late answer goes nowhere: the next frame is the next cell's */
}

/* Cell `a`, which waits for a jail, ends by one, whose id it gives. */
static const char *interrupts_waiting(struct rig *r, const char *a)
{
	const char *id = rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL);

	rig_expect(r, RIG_CONTROL, "interrupt_reply", id);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "execute_input", a);
	rig_failed(r, a, "KeyboardInterrupt");
	return id;
}

static void test_interrupt_while_starting(void **state)
{
	struct rig *r = *state = rig_new();

	rig_subscribe(r);
	const char *a = rig_execute(r, "a"), *b = rig_execute(r, "b");

	rig_spawn(r, 0);
	rig_expect(r, RIG_IOPUB, "busy", a);
	for (int i = 0; i < 100 && r->k.shells.execution.load.count < 2; i++) {
		rig_barrier(r);
		rig_expect(r, RIG_IOPUB, "busy", a);
	}
	const char *id = interrupts_waiting(r, a);

	rig_expect_aborted(r, b);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_barrier(r);
}

static bool two_wait(struct rig *r)
{
	return r->k.shells.execution.load.count == 2;
}

/* Frontends send messages of their widgets before the user's first cell: it is meant, and they are not dropped. */
static void test_interrupt_while_starting_behind_widgets(void **state)
{
	struct rig *r = *state = rig_new();

	rig_subscribe(r);
	const char *comm = rig_send(r, RIG_SHELL, "comm_open",
				    "{\"comm_id\":\"c\",\"target_name\":\"t\",\"data\":{}}", NULL);
	const char *a = rig_execute(r, "a"), *id;

	rig_until(r, two_wait);
	rig_expect(r, RIG_IOPUB, "busy", comm);
	id = rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL);
	rig_expect(r, RIG_CONTROL, "interrupt_reply", id);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "busy", a);
	rig_expect(r, RIG_IOPUB, "execute_input", a);
	rig_failed(r, a, "KeyboardInterrupt");
	rig_guest_up(r);
	(void)rig_guest_expect(r, CB_WIRE_DOWN_COMM_OPEN);
}

/* One that was sent before the cell is not for it, whatever waits before that. */
static void test_interrupt_while_starting_from_before(void **state)
{
	struct rig *r = *state = rig_new();

	rig_subscribe(r);
	r->date = "2026-01-01T00:00:01.000000Z";
	const char *comm = rig_send(r, RIG_SHELL, "comm_open",
				    "{\"comm_id\":\"c\",\"target_name\":\"t\",\"data\":{}}", NULL);

	r->date = "2026-01-01T00:00:03.000000Z";
	(void)rig_execute(r, "a");
	rig_until(r, two_wait);
	rig_expect(r, RIG_IOPUB, "busy", comm);
	r->date = "2026-01-01T00:00:02.000000Z";
	const char *id = rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL);

	rig_expect(r, RIG_CONTROL, "interrupt_reply", id);
	r->date = NULL;
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	assert_true(two_wait(r));
}

/* The jail is asked for, and not there: it comes, and serves the next one. */
static void test_interrupt_before_there_is_a_jail(void **state)
{
	struct rig *r = *state = rig_new();

	rig_subscribe(r);
	const char *a = rig_execute(r, "a");

	rig_expect(r, RIG_IOPUB, "busy", a);
	rig_expect(r, RIG_IOPUB, "idle", interrupts_waiting(r, a));
	assert_int_equal(r->k.guest.state, CB_GUEST_SPAWNING);
	rig_guest_up(r);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
}

/* One that says so takes with it nothing that waits. */
static void test_interrupt_of_one_that_aborts_nothing(void **state)
{
	struct rig *r = *state = rig_new();

	rig_subscribe(r);
	const char *a = rig_send(r, RIG_SHELL, "execute_request", "{\"code\":\"a\",\"stop_on_error\":false}", NULL);

	rig_expect(r, RIG_IOPUB, "busy", a);
	const char *b = rig_execute(r, "b");

	for (int i = 0; i < 100 && r->k.shells.execution.load.count < 2; i++) {
		rig_expect(r, RIG_CONTROL, "kernel_info_reply",
			   rig_send(r, RIG_CONTROL, "kernel_info_request", NULL, NULL));
		for (int busy_idle_busy = 0; busy_idle_busy < 3; busy_idle_busy++) {
			struct rig_msg m = rig_recv(r, RIG_IOPUB);

			rig_msg_free(&m);
		}
	}
	rig_expect(r, RIG_IOPUB, "idle", interrupts_waiting(r, a));
	rig_guest_up(r);
	rig_end(r, b, rig_begun(r, b));
}

/* Of one request, named by its id; where it was found, NULL = nowhere. */
static void interrupt_named(struct rig *r, const char *msg_id, const char *found)
{
	char content[128];
	struct rig_msg m;

	snprintf(content, sizeof(content), "{\"msg_id\":\"%s\"}", msg_id);
	const char *id = rig_send(r, RIG_CONTROL, "interrupt_request", content, NULL);

	m = rig_take(r, RIG_CONTROL, "interrupt_reply", id);
	assert_string_equal(rig_text(&m, "status"), "ok");
	assert_string_equal(rig_text(&m, "found"), found != NULL ? found : "");
	assert_int_equal(json_is_null(json_object_get(m.content, "found")), found == NULL);
	rig_msg_free(&m);
}

/* All that iopub says is taken, to the idle of this request. */
static void until_idle(struct rig *r, const char *id)
{
	bool idle = false;

	while (!idle) {
		struct rig_msg m = rig_recv(r, RIG_IOPUB);

		idle = strcmp(m.parent_id, id) == 0 && strcmp(rig_text(&m, "execution_state"), "idle") == 0;
		rig_msg_free(&m);
	}
}

static void aborted(struct rig *r, const char *id)
{
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_string_equal(rig_text(&m, "status"), "aborted");
	rig_msg_free(&m);
	until_idle(r, id);
}

static void test_named_one_runs(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g), *next = rig_execute(r, "b");

	rig_barrier(r);
	interrupt_named(r, id, "running");
	assert_int_equal(rig_interrupts(r), 1);
	rig_frame(r, CB_WIRE_INTERRUPTED, g, "{}");
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	until_idle(r, id);
	g = rig_begun(r, next); /* nobody has named this one */
	interrupt_named(r, id, NULL);
	assert_int_equal(rig_interrupts(r), 0);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_expect(r, RIG_SHELL, "execute_reply", next);
	until_idle(r, next);
	rig_works(r);
}

static void test_named_one_waits(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g), *wait[3];

	for (int i = 0; i < 3; i++)
		wait[i] = rig_execute(r, "b");
	rig_barrier(r);
	for (int i = 1; i < 3; i++) { /* from the middle, and the last */
		interrupt_named(r, wait[i], "waiting");
		aborted(r, wait[i]);
	}
	assert_int_equal(r->k.shells.execution.load.count, 1);
	wait[2] = rig_execute(r, "c"); /* the queue's end is where it should be */
	assert_int_equal(rig_interrupts(r), 0);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	until_idle(r, id);
	for (int i = 0; i < 3; i += 2) {
		g = rig_begun(r, wait[i]);
		rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
		rig_expect(r, RIG_SHELL, "execute_reply", wait[i]);
		until_idle(r, wait[i]);
	}
	assert_int_equal(r->k.shells.execution.load.count, 0);
	assert_int_equal(r->k.shells.execution.load.bytes, 0);
}

/* What is named on control may be on its way on shell. */
static void test_named_one_has_not_come(void **state)
{
	struct rig *r = *state = rig_up();
	char early[16];

	snprintf(early, sizeof(early), "m%u", r->serial + 1); /* the cell's, behind the interrupt's own */
	interrupt_named(r, early, NULL);
	const char *id = rig_execute(r, "b");

	assert_string_equal(id, early);
	aborted(r, id);
	rig_works(r);
}

static void test_named_badly(void **state)
{
	static const char *const content[] = { "{\"msg_id\":1}", "[]", "{\"msg_id\":null}" };
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *cell = rig_begin(r, "a", &g);

	for (size_t i = 0; i < 3; i++) {
		const char *id = rig_send(r, RIG_CONTROL, "interrupt_request", content[i], NULL);

		rig_expect_error(r, RIG_CONTROL, "interrupt_reply", id, "MalformedRequestError",
				 "interrupt_request: content");
		until_idle(r, id);
	}
	assert_int_equal(rig_interrupts(r), 0);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	rig_end(r, cell, g);
}

static bool restoring(struct rig *r)
{
	return r->k.guest.state == CB_GUEST_RESTORING;
}

static bool has_let_go(struct rig *r)
{
	return r->k.guest.python.signals > 0;
}

/* A woken state is copied, and something holds that up: the cell that waits for it is not without a reply for ever. */
static void test_copying_of_what_was_woken_hangs(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin old = rig_twin(r), young, copy;
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	rig_end(r, id, g);
	young = rig_twin(r);
	id = rig_begin(r, "b", &g);
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	struct rig_request resume = rig_twin_wakes(r, &young);

	rig_twin_resumed(r, &resume);
	copy = rig_twin_asked(r);
	interrupt_named(r, id, "running");
	rig_until(r, has_let_go);
	r->k.transactions.twins.interrupted_at -= 300000000; /* no double click */
	rig_signalled(r);
	(void)rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL);
	rig_until(r, restoring);
	rig_signalled(r); /* it is nudged again before that, where the machine is slow */
	rig_init_expect(r, CB_INIT_DROP, (int)copy.number);
	rig_init_expect(r, CB_INIT_RESTORE, (int)old.number); /* the state before it takes over */
	rig_twin_close(&old);
	rig_twin_close(&copy);
}

static bool a_cell_waits(struct rig *r)
{
	return r->k.shells.execution.shell.waiting.head != NULL;
}

/* A state comes back, and nothing runs meanwhile: the cell that waits for that is the one which is meant. */
static void test_interrupt_of_a_cell_that_waits_for_a_twin(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin old = rig_twin(r), copy;

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	rig_init_expect(r, CB_INIT_RESTORE, (int)old.number);
	(void)rig_execute(r, "a");
	rig_until(r, a_cell_waits);
	rig_expect(r, RIG_CONTROL, "interrupt_reply", rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL));
	copy = rig_twin_copied(r, rig_twin_restored(r, &old));
	(void)rig_guest_expect(r, CB_WIRE_EXECUTE);
	rig_until(r, asked_for_signal);
	assert_int_equal(rig_interrupts(r), 1);
	rig_twin_close(&old);
	rig_twin_close(&copy);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_interrupt_soft),
		T(test_interrupt_from_before_the_kernel),
		T(test_interrupt_that_a_cell_overtook),
		T(test_interrupt_that_one_of_two_overtook),
		T(test_interrupt_that_a_subshells_comm_took),
		T(test_interrupt_is_never_the_next_cells),
		T(test_interrupt_of_a_cell_that_waits),
		T(test_interrupt_that_a_waiting_cell_overtook),
		T(test_interrupt_of_a_command_that_waits),
		T(test_interrupt_of_a_cell_that_waits_for_a_twin),
		T(test_interrupt_repeated),
		T(test_interrupt_hard),
		T(test_interrupt_limit),
		T(test_interrupt_ends_input),
		T(test_interrupt_while_starting),
		T(test_interrupt_while_starting_behind_widgets),
		T(test_interrupt_while_starting_from_before),
		T(test_interrupt_before_there_is_a_jail),
		T(test_interrupt_of_one_that_aborts_nothing),
		T(test_copying_of_what_was_woken_hangs),
		T(test_named_one_runs),
		T(test_named_one_waits),
		T(test_named_one_has_not_come),
		T(test_named_badly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
