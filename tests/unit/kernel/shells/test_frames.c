/* What frames of a guest do, and what becomes of one that breaks a rule: counts, limit of output, forged answers. */
#include "python/python.h"
#include "rig.h"

#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The guest was found out: it is killed, the cell is told why, and the next guest serves. */
static void expect_wire_error(struct rig *r, const char *id, const char *why)
{
	rig_await_kill(r);
	rig_die(r, SIGKILL);
	rig_expect_error(r, RIG_IOPUB, "error", id, "WireError", why);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_restarted(r);
}

static void test_violations(void **state)
{
	static const struct {
		enum cb_wire_type type;
		uint64_t request; /* relative to the current one; 1000 = 0 */
		const char *content, *why;
	} bad[] = {
		{ CB_WIRE_HELLO, 1000, "{\"wire_version\":1,\"implementation\":\"x\",\"python_version\":\"3\"}",
		  "phase" },
		{ CB_WIRE_EXECUTE, 0, "{}", "unknown" },
		{ CB_WIRE_SHUTDOWN, 0, "{}", "unknown" },
		{ CB_WIRE_EXECUTE_REPLY, 1, RIG_OK, "id" },
		{ CB_WIRE_EXECUTE_REPLY, 1000, RIG_OK, "id" },
		{ CB_WIRE_DISPLAY_DATA, 1, "{\"data\":{},\"metadata\":{}}", "id" },
		{ CB_WIRE_COMPLETE_REPLY, 0,
		  "{\"status\":\"ok\",\"matches\":[],\"cursor_start\":0,\"cursor_end\":0,\"metadata\":{}}", "phase" },
		{ CB_WIRE_COMM_DONE, 0, "{}", "phase" },
		{ CB_WIRE_DISPLAY_DATA, 0, "{\"data\":{\"a\":NaN},\"metadata\":{}}", "JSON" },
		{ CB_WIRE_DISPLAY_DATA, 0, "{\"data\":{\"a\":\"\\ud800\"},\"metadata\":{}}", "surrogate" },
		{ CB_WIRE_EXECUTE_RESULT, 0, "{\"data\":{},\"metadata\":{},\"execution_count\":99}", "forbidden" },
		{ CB_WIRE_EXECUTE_REPLY, 0, "{\"status\":\"ok\",\"execution_count\":99}", "forbidden" },
		{ CB_WIRE_EXECUTE_REPLY, 0, "{\"status\":\"fine\"}", "status" },
	};
	struct rig *r = *state = rig_up();

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint64_t g;
		const char *id = rig_begin(r, "a", &g);

		rig_frame(r, bad[i].type, bad[i].request == 1000 ? 0 : g + bad[i].request, bad[i].content);
		expect_wire_error(r, id, bad[i].why);
	}
}

static void test_sizes(void **state)
{
	static const struct cb_wire_header bad[] = {
		{ .type = CB_WIRE_STREAM, .content_len = 17u << 20, .flags = CB_WIRE_STDOUT },
		{ .type = CB_WIRE_STREAM, .content_len = UINT32_MAX, .flags = CB_WIRE_STDOUT },
		{ .type = CB_WIRE_INTERRUPTED, .content_len = 1u << 17 },
		{ .type = CB_WIRE_DISPLAY_DATA, .content_len = 2, .buffer_count = UINT32_MAX },
	};
	struct rig *r = *state = rig_up();

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint64_t g;
		const char *id = rig_begin(r, "a", &g);

		rig_frame_raw(r, &bad[i], "{}", 2);
		expect_wire_error(r, id, "size");
	}
}

static void test_stdin_not_allowed(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id = rig_send(r, RIG_SHELL, "execute_request", "{\"code\":\"a\",\"allow_stdin\":false}", NULL);

	rig_frame(r, CB_WIRE_INPUT_REQUEST, rig_begun(r, id), "{\"prompt\":\"?\",\"password\":true}");
	expect_wire_error(r, id, "stdin");
}

static void ask(struct rig *r, uint64_t request, const char *metadata)
{
	static const char content[] = "{\"prompt\":\"\",\"password\":false}";
	struct cb_wire_header h = { .type = CB_WIRE_INPUT_REQUEST,
				    .request = request,
				    .content_len = sizeof(content) - 1,
				    .metadata_len = (uint32_t)strlen(metadata) };
	char body[256];

	snprintf(body, sizeof(body), "%s%s", content, metadata);
	rig_frame_raw(r, &h, body, h.content_len + h.metadata_len);
}

/* The answer brings back by what number the guest knows its question. */
static void test_number_of_a_question(void **state)
{
	static const char *const good[][2] = {
		{ "{\"question\":7}", "{\"question\":7}" },
		{ "{\"question\":-9223372036854775808}", "{\"question\":-9223372036854775808}" },
		{ "", "{\"question\":0}" },
	};
	static const char *const bad[] = { "{\"question\":\"7\"}", "{\"question\":1.5}",
					   "{\"question\":9223372036854775808}" };
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ask(r, g, good[i][0]);
		rig_expect(r, RIG_STDIN, "input_request", id);
		(void)rig_send(r, RIG_STDIN, "input_reply", "{\"value\":\"me\"}", NULL);
		struct rig_request q = rig_guest_recv(r);

		assert_int_equal(q.h.type, CB_WIRE_INPUT_REPLY);
		assert_string_equal(q.metadata, good[i][1]);
		rig_request_free(&q);
	}
	rig_end(r, id, g);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		id = rig_begin(r, "a", &g);
		ask(r, g, bad[i]);
		expect_wire_error(r, id, "question");
	}
}

/* COMPLETE, INSPECT and IS_COMPLETE share a phase, but not their answers. */
static void test_answer_of_another_kind(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id = rig_send(r, RIG_SHELL, "inspect_request", "{\"code\":\"a\",\"cursor_pos\":1}", NULL);

	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_frame(r, CB_WIRE_IS_COMPLETE_REPLY, rig_guest_expect(r, CB_WIRE_INSPECT), "{\"status\":\"complete\"}");
	rig_await_kill(r);
	rig_die(r, SIGKILL);
	struct rig_msg m = rig_take(r, RIG_SHELL, "inspect_reply", id);

	assert_string_equal(rig_text(&m, "status"), "error");
	assert_non_null(strstr(rig_text(&m, "evalue"), "another kind"));
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

static void test_wrong_version(void **state)
{
	struct rig *r = *state = rig_new();

	rig_subscribe(r);
	const char *id = rig_execute(r, "a");

	rig_spawn(r, 0);
	rig_frame(r, CB_WIRE_HELLO, 0, "{\"wire_version\":2,\"implementation\":\"x\",\"python_version\":\"3\"}");
	rig_await_kill(r);
	rig_die(r, SIGKILL);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "execute_input", id);
	rig_expect_error(r, RIG_IOPUB, "error", id, "IsolationError", "wire_version");
}

/* A guest that lives but has closed its wire could never be spoken to again. */
static void test_closed_wire(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	cb_loop_remove(&r->k.loop, &r->slot[RIG_WIRE]);
	cb_fd_close(&r->wire);
	expect_wire_error(r, id, "closed its wire");
}

static bool was_looked_at(struct rig *r)
{
	return r->k.guest.python.ending_looks > 0;
}

/* One that is on its way to its end is waited for: what it died of is not that its wire is closed. */
static void test_closed_wire_of_one_that_ends(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	r->k.guest.python.pid = pid;
	cb_loop_remove(&r->k.loop, &r->slot[RIG_WIRE]);
	cb_fd_close(&r->wire);
	rig_until(r, was_looked_at);
	rig_die(r, SIGKILL);
	rig_expect_error(r, RIG_IOPUB, "error", id, "KernelDiedError", "signal 9");
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Nor could one that does not hear. */
static void test_shut_ear(void **state)
{
	struct rig *r = *state = rig_up();

	assert_int_equal(shutdown(r->wire, SHUT_RD), 0);
	const char *id = rig_execute(r, "a");

	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "execute_input", id);
	expect_wire_error(r, id, "closed its wire");
}

static bool half_is_seen(struct rig *r)
{
	return r->k.guest.python.half.due != 0;
}

static bool whole_is_seen(struct rig *r)
{
	return r->k.guest.python.half.due == 0;
}

static void time_is_over(struct rig *r)
{
	r->k.guest.python.half.due = cb_now_ns();
	cb_loop_arm(&r->k.loop, r->k.guest.python_timer, cb_now_ns());
}

/* What swallows all that comes after it has an end; what goes on, or goes on late, has not. */
static void test_half_frame(void **state)
{
	static const struct cb_wire_header h = { .type = CB_WIRE_STREAM, .content_len = 9, .flags = CB_WIRE_STDOUT };
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	rig_frame_raw(r, &h, "half", 4);
	rig_until(r, half_is_seen);
	r->k.guest.python.half.received--; /* as if more had come */
	time_is_over(r);
	rig_barrier(r);
	assert_true(half_is_seen(r));
	assert_int_equal(send(r->wire, " done", 5, 0), 5);
	rig_until(r, whole_is_seen);
	cb_loop_arm(&r->k.loop, r->k.guest.python_timer, cb_now_ns());
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", id);

	assert_string_equal(rig_text(&m, "text"), "half done");
	rig_msg_free(&m);
	rig_frame_raw(r, &h, "half", 4);
	rig_until(r, half_is_seen);
	time_is_over(r);
	expect_wire_error(r, id, "half a frame came");
}

/* ---- counts ---- */

static int64_t count_of(const struct rig_msg *m)
{
	return json_integer_value(json_object_get(m->content, "execution_count"));
}

static void test_counts(void **state)
{
	struct rig *r = *state = rig_up();
	char *big = test_calloc(400000, 1);
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);
	const char *const result[] = {
		"{\"data\":{},\"metadata\":{}}",
		"{\"metadata\":{},\"data\":{}}",
		" \n\t {\"data\":{},\"metadata\":{}} ",
		big,
	};

	memset(big, ' ', 399999);
	memcpy(big, "{\"data\":{},\"metadata\":{}", 24);
	big[399998] = '}';
	r->k.shells.execution.shell.cell.number = INT32_MAX; /* the longest number that may come */
	for (size_t i = 0; i < 4; i++) {
		rig_frame(r, CB_WIRE_EXECUTE_RESULT, g, result[i]);
		struct rig_msg m = rig_take(r, RIG_IOPUB, "execute_result", id);

		assert_int_equal(count_of(&m), INT32_MAX);
		assert_int_equal(json_object_size(m.content), 3);
		rig_msg_free(&m);
	}
	memcpy(big, "{\"status\":\"ok\"          ", 24);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, big);
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_int_equal(count_of(&m), INT32_MAX);
	rig_msg_free(&m);
	test_free(big);
}

/* ---- limit of output ---- */

static void test_output_limit(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;

	r->policy.limit_output = 100;
	const char *id = rig_begin(r, "a", &g);

	rig_stream(r, g, CB_WIRE_STDOUT, "0123456789");
	rig_expect(r, RIG_IOPUB, "stream", id);
	for (int i = 0; i < 5; i++) {
		rig_frame(r, CB_WIRE_DISPLAY_DATA, g,
			  "{\"data\":{\"text/plain\":\"01234567890123456789\"},\"metadata\":{}}");
		rig_stream(r, g, CB_WIRE_STDOUT, "more");
	}
	rig_expect(r, RIG_IOPUB, "display_data", id);
	assert_int_equal(write(r->out[0], "raw", 3), 3);
	rig_frame(r, CB_WIRE_ERROR, g, RIG_ERROR_CONTENT("E")); /* what ends a cell is not output */
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_ERROR("E"));
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", id);

	if (strcmp(rig_text(&m, "name"), "stdout") == 0) { /* the little that had room behind the display */
		rig_msg_free(&m);
		m = rig_take(r, RIG_IOPUB, "stream", id);
	}
	assert_string_equal(rig_text(&m, "name"), "stderr");
	assert_non_null(strstr(rig_text(&m, "text"), "limits.output = 100"));
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "error", id); /* and no second notice before it */
	m = rig_take(r, RIG_SHELL, "execute_reply", id);
	assert_string_equal(json_string_value(rig_about(&m, "limit")), "output");
	assert_true(json_integer_value(json_object_get(rig_about(&m, "usage"), "output_bytes")) > 100);
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id);

	id = rig_begin(r, "a", &g); /* the next cell begins anew */
	rig_stream(r, g, CB_WIRE_STDOUT, "0123456789");
	rig_expect(r, RIG_IOPUB, "stream", id);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	m = rig_take(r, RIG_SHELL, "execute_reply", id);
	assert_true(json_is_null(rig_about(&m, "limit")));
	rig_msg_free(&m);
}

/* Comm messages, clear_output and errors that end no cell count; a comm that clients know of may be closed. */
static void test_everything_counts(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;

	r->policy.limit_output = 100;
	const char *id = rig_begin(r, "a", &g);

	rig_frame(r, CB_WIRE_UP_COMM_OPEN, g, "{\"comm_id\":\"c\",\"target_name\":\"t\",\"data\":{}}");
	rig_expect(r, RIG_IOPUB, "comm_open", id);
	rig_frame(r, CB_WIRE_CLEAR_OUTPUT, g, "{\"wait\":true}");
	rig_expect(r, RIG_IOPUB, "clear_output", id);
	rig_frame(r, CB_WIRE_UP_COMM_MSG, g,
		  "{\"comm_id\":\"c\",\"data\":{\"x\":\"0123456789012345678901234567890123456789\"}}");
	rig_frame(r, CB_WIRE_CLEAR_OUTPUT, g, "{\"wait\":true}");
	rig_frame(r, CB_WIRE_UP_COMM_OPEN, g, "{\"comm_id\":\"d\",\"target_name\":\"t\",\"data\":{}}");
	rig_frame(r, CB_WIRE_UP_COMM_CLOSE, g, "{\"comm_id\":\"d\",\"data\":{}}");
	rig_frame(r, CB_WIRE_UP_COMM_CLOSE, g, "{\"comm_id\":\"c\",\"data\":{}}");
	rig_frame(r, CB_WIRE_ERROR, g, RIG_ERROR_CONTENT("E"));
	rig_frame(r, CB_WIRE_ERROR, g, RIG_ERROR_CONTENT("F")); /* the cell has had its error */
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_ERROR("E"));
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", id);

	assert_non_null(strstr(rig_text(&m, "text"), "limits.output = 100"));
	rig_msg_free(&m);
	m = rig_take(r, RIG_IOPUB, "comm_close", id);
	assert_string_equal(rig_text(&m, "comm_id"), "c");
	rig_msg_free(&m);
	rig_expect_error(r, RIG_IOPUB, "error", id, "E", "");
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
}

static void test_metadata_counts_as_output(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;

	r->policy.limit_output = 100;
	const char *id = rig_begin(r, "a", &g);
	char body[300];
	struct cb_wire_header h = {
		.type = CB_WIRE_DISPLAY_DATA, .content_len = 25, .metadata_len = 200, .request = g
	};

	memset(body, ' ', sizeof(body));
	memcpy(body, "{\"data\":{},\"metadata\":{}}{\"a\":1", 31);
	body[224] = '}';
	rig_frame_raw(r, &h, body, 225);
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", id);

	assert_non_null(strstr(rig_text(&m, "text"), "limits.output"));
	rig_msg_free(&m);
}

/* Errors without end and nobody who reads: what is kept has a bound. */
static void test_flood_of_errors(void **state)
{
	struct rig *r = *state = rig_new();
	char *big = test_calloc((4u << 20) + 1, 1);

	cb_guest_want(&r->k.guest);
	rig_guest_up(r);
	memset(big, ' ', 4u << 20);
	memcpy(big, RIG_ERROR_CONTENT("E"), strlen(RIG_ERROR_CONTENT("E")));
	for (int i = 0; i < 60; i++)
		rig_frame(r, CB_WIRE_ERROR, 0, big);
	assert_true(r->k.jupyter.iopub.bytes <= 40u << 20);
	test_free(big);
}

/* They are known to clients, and not listed: one line of the log says so, however many there are. */
static void test_more_comms_than_are_listed(void **state)
{
	struct rig *r = *state = rig_up();
	struct cb_comms *comms = &r->k.guest.comms;
	int log = memfd_create("log", MFD_CLOEXEC);
	char content[100], *said, *at;
	size_t before, len;
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	cb_log_init("test", CB_LOG_WARNING, log);
	before = comms->count;
	comms->count = CB_COMMS_MAX;
	for (int i = 0; i < 20; i++) {
		snprintf(content, sizeof(content), "{\"comm_id\":\"c%d\",\"target_name\":\"t\",\"data\":{}}", i);
		rig_frame(r, CB_WIRE_UP_COMM_OPEN, g, content);
		rig_expect(r, RIG_IOPUB, "comm_open", id);
	}
	rig_end(r, id, g);
	comms->count = before;
	cb_log_init("test", CB_LOG_WARNING, STDERR_FILENO);
	assert_int_equal(lseek(log, 0, SEEK_SET), 0);
	assert_int_equal(cb_fd_read_all(log, 1 << 20, &said, &len), 0);
	at = strstr(said, "too many comms");
	assert_non_null(at);
	assert_null(strstr(at + 1, "too many comms"));
	free(said);
	close(log);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_violations),
		T(test_sizes),
		T(test_stdin_not_allowed),
		T(test_number_of_a_question),
		T(test_answer_of_another_kind),
		T(test_wrong_version),
		T(test_closed_wire),
		T(test_closed_wire_of_one_that_ends),
		T(test_shut_ear),
		T(test_half_frame),
		T(test_counts),
		T(test_output_limit),
		T(test_metadata_counts_as_output),
		T(test_everything_counts),
		T(test_flood_of_errors),
		T(test_more_comms_than_are_listed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
