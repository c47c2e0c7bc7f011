/* The execution queue against a scripted guest: order of messages, time limits, death in every phase. Each
 * request that was begun must end with exactly one reply and one idle. */
#include "rig.h"

#include <signal.h>

/* ---- the good way ---- */

static void test_cell(void **state)
{
	struct rig *r = *state = rig_up();
	struct rig_msg m;
	uint64_t g;
	const char *id = rig_begin(r, "1", &g);

	rig_stream(r, g, CB_WIRE_STDOUT, "text");
	rig_frame(r, CB_WIRE_EXECUTE_RESULT, g, "{\"data\":{\"text/plain\":\"1\"},\"metadata\":{}}");
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_expect(r, RIG_IOPUB, "stream", id);
	m = rig_take(r, RIG_IOPUB, "execute_result", id);
	assert_int_equal(json_integer_value(json_object_get(m.content, "execution_count")), 1);
	rig_msg_free(&m);
	m = rig_take(r, RIG_SHELL, "execute_reply", id);
	assert_int_equal(json_integer_value(json_object_get(m.content, "execution_count")), 1);
	assert_non_null(json_object_get(m.metadata, "started"));
	assert_string_equal(json_string_value(rig_about(&m, "state")),
			    "kept");
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_barrier(r);
}

static void test_counts(void **state)
{
	struct rig *r = *state = rig_up();
	static const struct {
		const char *content;
		int input, reply; /* execution_count; -1 = no execute_input */
	} step[] = {
		{ "{\"code\":\"a\"}", 1, 1 },
		{ "{\"code\":\"a\",\"store_history\":false}", 2, 1 },
		{ "{\"code\":\"a\",\"silent\":true}", -1, 1 },
		{ "{\"code\":\"a\",\"silent\":true,\"store_history\":true}", -1, 1 },
		{ "{\"code\":\"a\"}", 2, 2 },
	};

	for (size_t i = 0; i < sizeof(step) / sizeof(step[0]); i++) {
		const char *id = rig_send(r, RIG_SHELL, "execute_request", step[i].content, NULL);
		struct rig_msg m;

		rig_expect(r, RIG_IOPUB, "busy", id);
		if (step[i].input >= 0) {
			m = rig_take(r, RIG_IOPUB, "execute_input", id);
			assert_int_equal(json_integer_value(json_object_get(m.content, "execution_count")),
					 step[i].input);
			assert_string_equal(rig_text(&m, "code"), "a");
			rig_msg_free(&m);
		}
		rig_frame(r, CB_WIRE_EXECUTE_REPLY, rig_guest_expect(r, CB_WIRE_EXECUTE), RIG_OK);
		m = rig_take(r, RIG_SHELL, "execute_reply", id);
		assert_int_equal(json_integer_value(json_object_get(m.content, "execution_count")), step[i].reply);
		rig_msg_free(&m);
		rig_expect(r, RIG_IOPUB, "idle", id);
	}
	rig_barrier(r);
}

static void test_queue_order(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id[20];

	for (int i = 0; i < 20; i++)
		id[i] = i % 2 == 0 ? rig_execute(r, "a")
				   : rig_send(r, RIG_SHELL, "is_complete_request", "{\"code\":\"a\"}", NULL);
	for (int i = 0; i < 20; i++) {
		rig_expect(r, RIG_IOPUB, "busy", id[i]);
		if (i % 2 == 0) {
			rig_expect(r, RIG_IOPUB, "execute_input", id[i]);
			rig_frame(r, CB_WIRE_EXECUTE_REPLY, rig_guest_expect(r, CB_WIRE_EXECUTE), RIG_OK);
			rig_ended(r, id[i], NULL);
			continue;
		}
		rig_frame(r, CB_WIRE_IS_COMPLETE_REPLY, rig_guest_expect(r, CB_WIRE_IS_COMPLETE),
			  "{\"status\":\"complete\"}");
		rig_expect(r, RIG_SHELL, "is_complete_reply", id[i]);
		rig_expect(r, RIG_IOPUB, "idle", id[i]);
	}
	rig_barrier(r);
}

static void test_waits_for_start(void **state)
{
	struct rig *r = *state = rig_new();
	const char *id;

	rig_subscribe(r);
	id = rig_execute(r, "a");
	rig_spawn(r, 0);
	rig_expect(r, RIG_IOPUB, "busy", id); /* so that no earlier idle is taken for its */
	rig_barrier(r);			      /* kernel_info is answered meanwhile */
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_frame(r, CB_WIRE_HELLO, 0, RIG_HELLO);
	uint64_t request = rig_guest_expect(r, CB_WIRE_EXECUTE);

	rig_expect(r, RIG_IOPUB, "execute_input", id); /* it is busy already */
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request, RIG_OK);
	rig_ended(r, id, NULL);
}

static void test_raw_output_precedes_reply(void **state)
{
	struct rig *r = *state = rig_up();
	struct rig_msg m;
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	assert_int_equal(write(r->out[1], "from C", 6), 6);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	m = rig_take(r, RIG_IOPUB, "stream", id);
	assert_string_equal(rig_text(&m, "text"), "from C");
	assert_string_equal(rig_text(&m, "name"), "stderr");
	rig_msg_free(&m);
	rig_ended(r, id, NULL);
}

static void test_late_output_keeps_its_parent(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g1, g2;
	const char *first = rig_begin(r, "a", &g1), *second;

	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g1, RIG_OK);
	rig_ended(r, first, NULL);
	second = rig_begin(r, "b", &g2);
	rig_stream(r, g1, CB_WIRE_STDOUT, "thread");
	rig_expect(r, RIG_IOPUB, "stream", first);
	rig_stream(r, 0, CB_WIRE_STDOUT, "nobody's");
	rig_expect(r, RIG_IOPUB, "stream", second);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g2, RIG_OK);
	rig_ended(r, second, NULL);
}

static void test_many_completions_later(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_ended(r, id, NULL);
	for (int i = 0; i < CB_GUEST_PARENTS + 10; i++) {
		const char *q = rig_send(r, RIG_SHELL, "is_complete_request", "{\"code\":\"a\"}", NULL);

		rig_frame(r, CB_WIRE_IS_COMPLETE_REPLY, rig_guest_expect(r, CB_WIRE_IS_COMPLETE),
			  "{\"status\":\"complete\"}");
		rig_expect(r, RIG_IOPUB, "busy", q);
		rig_expect(r, RIG_SHELL, "is_complete_reply", q);
		rig_expect(r, RIG_IOPUB, "idle", q);
	}
	rig_stream(r, 0, CB_WIRE_STDOUT, "from a thread");
	rig_expect(r, RIG_IOPUB, "stream", id);
	rig_stream(r, g, CB_WIRE_STDOUT, "of the cell");
	rig_expect(r, RIG_IOPUB, "stream", id);
}

/* ---- limits of the queue ---- */

static void test_queue_limit(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *first = rig_begin(r, "a", &g), *id;

	r->k.shells.execution.load.count = CB_QUEUE_MAX; /* as if so many waited */
	id = rig_execute(r, "b");
	rig_expect_error(r, RIG_SHELL, "execute_reply", id, "KernelBusyError", "");
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_expect(r, RIG_IOPUB, "busy", first); /* said again: a cell runs */
	r->k.shells.execution.load.count = 0;
	r->k.shells.execution.load.bytes = CB_QUEUE_BYTES_MAX - 200;
	id = rig_execute(r, "b");
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	r->k.shells.execution.load.bytes = 0;
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
}

static void test_buffers_count_in_queue(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;

	(void)rig_begin(r, "a", &g);
	char *big = test_calloc(1u << 20, 1);
	static const char header[] = "{\"msg_id\":\"x\",\"msg_type\":\"comm_msg\",\"session\":\"s\"}";
	static const char content[] = "{\"comm_id\":\"c\",\"data\":{}}";
	struct cb_span part[4] = { CB_SPAN(header), CB_SPAN("{}"), CB_SPAN("{}"), CB_SPAN(content) };
	char signature[CB_SIGNATURE_MAX];
	size_t n;

	assert_int_equal(cb_auth_sign(r->auth, part, signature, &n), 0);
	zmq_send(r->client[RIG_SHELL], "<IDS|MSG>", 9, ZMQ_SNDMORE);
	zmq_send(r->client[RIG_SHELL], signature, n, ZMQ_SNDMORE);
	for (int i = 0; i < 4; i++)
		zmq_send(r->client[RIG_SHELL], part[i].data, part[i].len, ZMQ_SNDMORE);
	zmq_send(r->client[RIG_SHELL], big, 1u << 20, 0);
	test_free(big);
	rig_barrier(r);
	/* shell and control are two sockets: the barrier is on control, so wait for the queue itself */
	for (int i = 0; i < 100 && r->k.shells.execution.load.count == 0; i++)
		rig_barrier(r);
	assert_int_equal(r->k.shells.execution.load.count, 1);
	assert_true(r->k.shells.execution.load.bytes > 1u << 20);
}

/* ---- death ---- */

static void test_death_executing(void **state)
{
	static const struct {
		int status;
		const char *says;
	} death[] = {
		{ SIGSEGV, "signal 11" }, { 7 << 8, "status 7" }, { SIGKILL, "memory" },
		{ 0, "status 0" },	  { -1, "outside" },
	};
	struct rig *r = *state = rig_up();

	for (size_t i = 0; i < sizeof(death) / sizeof(death[0]); i++) {
		uint64_t g;
		const char *id = rig_begin(r, "a", &g);

		rig_stream(r, g, CB_WIRE_STDOUT, "last words");
		rig_die(r, death[i].status);
		rig_expect(r, RIG_IOPUB, "stream", id);
		rig_expect_error(r, RIG_IOPUB, "error", id, "KernelDiedError", death[i].says);
		rig_ended(r, id, "KernelDiedError");
		rig_restarted(r);
		rig_works(r);
	}
	assert_int_equal(r->k.shells.execution.number, 10);
}

static void test_death_asking(void **state)
{
	struct rig *r = *state = rig_up();
	static const char *const type[] = { "complete_request", "inspect_request", "is_complete_request" };
	static const enum cb_wire_type wire[] = { CB_WIRE_COMPLETE, CB_WIRE_INSPECT, CB_WIRE_IS_COMPLETE };

	for (int i = 0; i < 3; i++) {
		const char *id = rig_send(r, RIG_SHELL, type[i], "{\"code\":\"a\",\"cursor_pos\":1}", NULL);
		char reply[64];
		struct rig_msg m;

		snprintf(reply, sizeof(reply), "%.*sreply", (int)(strlen(type[i]) - 7), type[i]);
		rig_expect(r, RIG_IOPUB, "busy", id);
		(void)rig_guest_expect(r, wire[i]);
		rig_die(r, SIGSEGV);
		m = rig_take(r, RIG_SHELL, reply, id);
		assert_string_equal(rig_text(&m, "status"), "error");
		rig_msg_free(&m);
		rig_expect(r, RIG_IOPUB, "idle", id);
		rig_restarted(r);
		rig_works(r);
	}
}

static void test_death_in_comm(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id =
		rig_send(r, RIG_SHELL, "comm_open", "{\"comm_id\":\"c\",\"target_name\":\"t\",\"data\":{}}", NULL);

	rig_expect(r, RIG_IOPUB, "busy", id);
	(void)rig_guest_expect(r, CB_WIRE_DOWN_COMM_OPEN);
	rig_die(r, SIGSEGV);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_expect(r, RIG_IOPUB, "comm_close", "");
	rig_restarted(r);
	rig_works(r);
}

static void test_death_in_input(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	rig_frame(r, CB_WIRE_INPUT_REQUEST, g, "{\"prompt\":\"?\",\"password\":false}");
	rig_expect(r, RIG_STDIN, "input_request", id);
	rig_die(r, SIGSEGV);
	rig_failed(r, id, "KernelDiedError");
	rig_restarted(r);
	rig_works(r);
}

static void test_death_between_cells(void **state)
{
	struct rig *r = *state = rig_up();

	rig_works(r);
	rig_die(r, SIGSEGV);
	rig_restarted(r);
	rig_works(r);
	rig_works(r);
}

static const char *state_told(const struct rig_msg *reply)
{
	return json_string_value(rig_about(reply, "state"));
}

/* Nobody sees what a silent cell says: the one after it says so. The state is told by its reply, and once. */
static void test_a_silent_cell_after_a_death(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;

	rig_works(r);
	rig_die(r, SIGSEGV);
	rig_restarted(r);
	for (int i = 0; i < 2; i++) {
		const char *id = rig_send(r, RIG_SHELL, "execute_request", "{\"code\":\"a\",\"silent\":true}", NULL);

		rig_expect(r, RIG_IOPUB, "busy", id);
		rig_frame(r, CB_WIRE_EXECUTE_REPLY, rig_guest_expect(r, CB_WIRE_EXECUTE), RIG_OK);
		rig_expect(r, RIG_IOPUB, "idle", id);
		struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

		assert_string_equal(state_told(&m), i == 0 ? "lost" : "kept");
		rig_msg_free(&m);
	}
	const char *id = rig_begin(r, "b", &g);
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", id);

	assert_non_null(strstr(rig_text(&m, "text"), "between cells"));
	rig_msg_free(&m);
	rig_end(r, id, g);
	id = rig_begin(r, "c", &g);
	rig_end(r, id, g); /* and once */
}

/* The cell was answered before the end came: it stands, and what waited is not lost on the dead. */
static void test_death_after_reply(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g), *next = rig_execute(r, "b");

	for (int i = 0; i < 100 && r->k.shells.execution.load.count == 0; i++)
		rig_barrier(r);
	assert_int_equal(r->k.shells.execution.load.count, 1);
	/* both are there when the kernel looks next */
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	cb_loop_set_events(&r->k.loop, r->k.guest.link_slot, 0);
	rig_die(r, 0);
	rig_ended(r, id, NULL);
	rig_expect(r, RIG_IOPUB, "restarting", "");
	rig_expect(r, RIG_IOPUB, "busy", next);
	rig_guest_up(r);
	rig_expect(r, RIG_IOPUB, "starting", "");
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, rig_begun(r, next), RIG_OK);
	rig_expect(r, RIG_IOPUB, "stream", next); /* the state was lost */
	rig_ended(r, next, NULL);
}

static void test_death_before_hello(void **state)
{
	struct rig *r = *state = rig_new();
	const char *id;

	r->policy.packages_mode = CB_PACKAGES_RO; /* else the next one is tried without what was installed */
	rig_subscribe(r);
	for (int i = 0; i < 2; i++) { /* the second time a new request has asked for a new try */
		id = rig_execute(r, "a");
		rig_spawn(r, 0);
		rig_die(r, 1 << 8);
		rig_expect(r, RIG_IOPUB, "busy", id); /* while Python starts */
		rig_expect(r, RIG_IOPUB, "execute_input", id);
		rig_failed(r, id, "IsolationError");
		rig_barrier(r);
	}
}

/* Only after a Python that could install something; also where an earlier start had failed, and its reason is known. */
static void test_once_more_without_what_was_installed(void **state)
{
	struct rig *r = *state = rig_new();
	const char *id;

	rig_subscribe(r);
	id = rig_execute(r, "a");
	rig_spawn(r, 0);
	rig_die(r, 1 << 8);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "execute_input", id);
	rig_failed(r, id, "IsolationError");
	id = rig_execute(r, "b");
	rig_guest_up(r);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "starting", "");
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, rig_begun(r, id), RIG_OK);
	rig_ended(r, id, NULL);
	rig_die(r, 1 << 8);
	rig_expect(r, RIG_IOPUB, "restarting", "");
	rig_spawn(r, 0);
	rig_die(r, 1 << 8);
	rig_guest_up(r);
	rig_expect(r, RIG_IOPUB, "starting", "");
	assert_int_equal(r->k.guest.failed_starts, 0);
}

static void test_hello_and_die_is_no_endless_loop(void **state)
{
	struct rig *r = *state = rig_up();

	for (int i = 0; i < 2; i++) {
		rig_die(r, 1 << 8);
		rig_restarted(r);
	}
	rig_die(r, 1 << 8);
	rig_expect(r, RIG_IOPUB, "restarting", "");
	rig_barrier(r);
	assert_int_equal(r->k.guest.state, CB_GUEST_NONE); /* no new jail before a request */
	const char *id = rig_execute(r, "a");

	rig_guest_up(r);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "starting", "");
	rig_expect(r, RIG_IOPUB, "busy", id);
}

/* ---- no jail ---- */

static void test_no_jail(void **state)
{
	struct rig *r = *state = rig_new();
	const char *id[3];

	rig_subscribe(r);
	id[0] = rig_execute(r, "a");
	id[1] = rig_send(r, RIG_SHELL, "complete_request", "{\"code\":\"a\",\"cursor_pos\":1}", NULL);
	rig_spawn(r, -1);
	rig_expect(r, RIG_IOPUB, "busy", id[0]);
	rig_expect(r, RIG_IOPUB, "execute_input", id[0]);
	struct rig_msg m = rig_take(r, RIG_IOPUB, "error", id[0]);

	assert_non_null(strstr(rig_text(&m, "evalue"), "the request was not run: the jail could not be started."));
	assert_non_null(strstr(rig_text(&m, "evalue"), "a step"));
	assert_non_null(strstr(rig_text(&m, "evalue"), "a text"));
	assert_non_null(strstr(rig_text(&m, "evalue"), "a cure"));
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id[0]);
	rig_expect(r, RIG_SHELL, "execute_reply", id[0]);
}

/* ---- time ---- */

static const char *begun_with_limit(struct rig *r, double seconds, uint64_t *ret_id)
{
	char metadata[64];

	snprintf(metadata, sizeof(metadata), "{\"cellblock\":{\"timeout\":%g}}", seconds);
	const char *id = rig_send(r, RIG_SHELL, "execute_request", "{\"code\":\"a\"}", metadata);

	*ret_id = rig_begun(r, id);
	return id;
}

static bool soft_stopped(struct rig *r)
{
	return r->k.shells.execution.shell.cell.stop == CB_STOP_TIME_SOFT;
}

static void test_time_soft(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = begun_with_limit(r, 0.02, &g);

	rig_until(r, soft_stopped);
	assert_int_equal(rig_interrupts(r), 1);
	rig_frame(r, CB_WIRE_INTERRUPTED, g, "{}");
	rig_frame(r, CB_WIRE_ERROR, g, RIG_ERROR_CONTENT("KeyboardInterrupt"));
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_ERROR("KeyboardInterrupt"));
	rig_cell_error(r, id, "CellTimeoutError");
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_string_equal(rig_text(&m, "ename"), "CellTimeoutError");
	assert_string_equal(json_string_value(rig_about(&m, "limit")), "time");
	assert_string_equal(json_string_value(rig_about(&m, "state")), "kept");
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_works(r);
}

static void test_time_hard(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;

	r->policy.timeout_grace = 0.02;
	const char *id = begun_with_limit(r, 0.02, &g);

	rig_await_kill(r);
	rig_die(r, SIGKILL);
	rig_cell_error(r, id, "CellTimeoutError");
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_string_equal(json_string_value(rig_about(&m, "state")),
			    "lost");
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_restarted(r);
	rig_works(r);
}

/* What a guest has said when it is already condemned is not heard, and above all not twice. */
static void test_replies_of_a_condemned_guest(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;

	r->policy.timeout_grace = 0;
	const char *id = begun_with_limit(r, 0.02, &g);

	rig_await_kill(r);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_frame(r, CB_WIRE_HELLO, 0, RIG_HELLO);
	rig_barrier(r);
	rig_die(r, SIGKILL);
	rig_failed(r, id, "CellTimeoutError");
	rig_restarted(r);
	rig_works(r);
}

static void test_huge_timeout_is_none(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = begun_with_limit(r, 1e300, &g);

	rig_barrier(r);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_ended(r, id, NULL);
}

/* The cell overran softly; long after, the idle guest claims an error like that one. */
static void test_error_without_a_cell(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = begun_with_limit(r, 0.02, &g);

	rig_until(r, soft_stopped);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK); /* it swallowed the interrupt */
	rig_failed(r, id, "CellTimeoutError");
	rig_frame(r, CB_WIRE_ERROR, 0, RIG_ERROR_CONTENT("KeyboardInterrupt"));
	rig_cell_error(r, id, "KeyboardInterrupt");
	rig_works(r);
}

static void test_wait_for_input_stops_the_clock(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = begun_with_limit(r, 300, &g);

	rig_frame(r, CB_WIRE_INPUT_REQUEST, g, "{\"prompt\":\"?\",\"password\":true}");
	rig_expect(r, RIG_STDIN, "input_request", id);
	assert_false(cb_loop_armed(&r->k.loop, r->k.shells.execution.timer));
	assert_true(r->k.shells.execution.shell.cell.clock_left > 0);
	rig_send(r, RIG_STDIN, "input_reply", "{\"value\":\"v\"}", NULL);
	struct rig_request q = rig_guest_recv(r);

	assert_int_equal(q.h.type, CB_WIRE_INPUT_REPLY);
	assert_int_equal(q.h.request, g);
	assert_string_equal(q.content, "{\"value\":\"v\"}");
	rig_request_free(&q);
	assert_true(cb_loop_armed(&r->k.loop, r->k.shells.execution.timer));
	r->k.shells.execution.shell.cell.deadline = cb_now_ns(); /* the rest of its time is over */
	cb_loop_arm(&r->k.loop, r->k.shells.execution.timer, cb_now_ns());
	rig_until(r, soft_stopped);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_ERROR("KeyboardInterrupt"));
	rig_failed(r, id, "CellTimeoutError");
}

/* On a busy machine a short timeout.grace may be over before it is looked. */
static bool stopped(struct rig *r)
{
	return soft_stopped(r) || r->k.shells.execution.shell.cell.stop == CB_STOP_TIME_HARD;
}

/* timeout.wait ends a question; a guest that goes on all the same is killed after the grace. */
static void test_wait_limit(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	r->policy.timeout_wait = 0.02;
	r->policy.timeout_grace = 0.05;
	rig_frame(r, CB_WIRE_INPUT_REQUEST, g, "{\"prompt\":\"?\",\"password\":false}");
	rig_expect(r, RIG_STDIN, "input_request", id);
	rig_until(r, stopped);
	rig_await_kill(r); /* not even delivered */
	rig_die(r, SIGKILL);
	struct rig_msg m = rig_take(r, RIG_IOPUB, "error", id);

	assert_non_null(strstr(rig_text(&m, "evalue"), "timeout.wait"));
	rig_msg_free(&m);
	rig_ended(r, id, "CellTimeoutError");
	rig_restarted(r);

	id = rig_begin(r, "a", &g);
	rig_frame(r, CB_WIRE_INPUT_REQUEST, g, "{\"prompt\":\"?\",\"password\":false}");
	rig_expect(r, RIG_STDIN, "input_request", id);
	rig_until(r, stopped);
	rig_frame(r, CB_WIRE_INTERRUPTED, g, "{}"); /* delivered, swallowed, and asked again */
	rig_frame(r, CB_WIRE_INPUT_REQUEST, g, "{\"prompt\":\"?\",\"password\":false}");
	rig_await_kill(r);
	rig_die(r, SIGKILL);
	rig_failed(r, id, "CellTimeoutError");
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_cell),
		T(test_counts),
		T(test_queue_order),
		T(test_waits_for_start),
		T(test_raw_output_precedes_reply),
		T(test_late_output_keeps_its_parent),
		T(test_many_completions_later),
		T(test_queue_limit),
		T(test_buffers_count_in_queue),
		T(test_death_executing),
		T(test_death_asking),
		T(test_death_in_comm),
		T(test_death_in_input),
		T(test_death_between_cells),
		T(test_a_silent_cell_after_a_death),
		T(test_death_after_reply),
		T(test_death_before_hello),
		T(test_once_more_without_what_was_installed),
		T(test_hello_and_die_is_no_endless_loop),
		T(test_no_jail),
		T(test_time_soft),
		T(test_time_hard),
		T(test_replies_of_a_condemned_guest),
		T(test_huge_timeout_is_none),
		T(test_error_without_a_cell),
		T(test_wait_for_input_stops_the_clock),
		T(test_wait_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
