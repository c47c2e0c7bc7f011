/* Host tools through the kernel: cellblock_tools_request, the question on stdin, and clients that can't be asked. Whose
 * an answer is. */
#include <errno.h>

#include "requests/requests.h"
#include "rig_lanes.h"

#define TOOLS "{\"tools\":[{\"name\":\"add\"}]}"

static void register_tool(struct rig *r)
{
	const char *id = rig_send(r, RIG_CONTROL, "cellblock_tools_request", TOOLS, NULL);
	struct rig_msg m = rig_take(r, RIG_CONTROL, "cellblock_tools_reply", id);

	assert_string_equal(rig_text(&m, "status"), "ok");
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

static void test_malformed(void **state)
{
	static const char *bad[] = { "{}", "[]", "{\"tools\":[{\"name\":\"1\"}]}",
				     "{\"tools\":[{\"name\":\"a\",\"name\":\"b\"}]}" };
	struct rig *r = *state = rig_up();

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *id = rig_send(r, RIG_CONTROL, "cellblock_tools_request", bad[i], NULL);

		rig_expect_error(r, RIG_CONTROL, "cellblock_tools_reply", id, "MalformedRequestError", "");
		rig_expect(r, RIG_IOPUB, "busy", id);
		rig_expect(r, RIG_IOPUB, "idle", id);
	}
	rig_barrier(r);
	assert_null(r->k.jupyter.tools.set[0]);
}

static void test_bash_has_none(void **state)
{
	struct rig *r = *state = rig_up();

	r->k.shells.bash = true;
	const char *id = rig_send(r, RIG_CONTROL, "cellblock_tools_request", TOOLS, NULL);

	rig_expect_error(r, RIG_CONTROL, "cellblock_tools_reply", id, "MalformedRequestError", "bash");
}

/* Begins a cell that may call; its id on the wire. */
static uint64_t begin(struct rig *r, const char **ret_id)
{
	*ret_id = rig_send(r, RIG_SHELL, "execute_request", "{\"code\":\"add(1)\",\"allow_stdin\":true}", NULL);
	return rig_begun(r, *ret_id);
}

static void call(struct rig *r, uint64_t request)
{
	static const char content[] = "{\"prompt\":\"?\",\"password\":false}";
	static const char metadata[] = "{\"calls\":[{\"tool\":\"add\",\"args\":[1],\"kwargs\":{}}]}";
	struct cb_wire_header h = { .type = CB_WIRE_INPUT_REQUEST,
				    .request = request,
				    .content_len = sizeof(content) - 1,
				    .metadata_len = sizeof(metadata) - 1 };
	char body[sizeof(content) + sizeof(metadata)];

	memcpy(body, content, h.content_len);
	memcpy(body + h.content_len, metadata, h.metadata_len);
	rig_frame_raw(r, &h, body, h.content_len + h.metadata_len);
}

static void test_a_call(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id;

	register_tool(r);
	uint64_t request = begin(r, &id);

	call(r, request);
	struct rig_msg m = rig_take(r, RIG_STDIN, "input_request", id);
	json_t *asked = rig_about(&m, "calls");

	assert_int_equal(json_array_size(asked), 1);
	assert_string_equal(json_string_value(json_object_get(json_array_get(asked, 0), "id")), "1");
	rig_msg_free(&m);
	(void)rig_send(r, RIG_STDIN, "input_reply",
		       "{\"value\":\"{\\\"results\\\":[{\\\"id\\\":\\\"1\\\",\\\"ok\\\":2}]}\"}", NULL);
	struct rig_request q = rig_guest_recv(r);

	assert_int_equal(q.h.type, CB_WIRE_INPUT_REPLY);
	assert_string_equal(q.content, "{\"results\":[{\"ok\":2}]}");
	rig_request_free(&q);
	rig_end(r, id, request);
}

/* libzmq has noticed: what is sent until then reaches nobody. */
static bool has_left(struct rig *r)
{
	struct cb_outgoing out = {
		.type = "input_request", .parent = CB_SPAN("{}"), .metadata = CB_SPAN("{}"), .content = CB_SPAN("{}")
	};

	return cb_channels_send(&r->k.jupyter, CB_STDIN, r->k.shells.execution.shell.current, &out) == -EHOSTUNREACH;
}

/* Its stdin is closed: what is asked then is answered at once, a call and input() alike. */
static void test_a_client_that_is_gone(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id;

	register_tool(r);
	uint64_t request = begin(r, &id);

	zmq_close(r->client[RIG_STDIN]);
	r->client[RIG_STDIN] = NULL;
	rig_until(r, has_left);
	call(r, request);
	struct rig_request q = rig_guest_recv(r);

	assert_int_equal(q.h.type, CB_WIRE_INPUT_REPLY);
	assert_string_equal(q.content, "{\"nobody\":true}");
	rig_request_free(&q);
	rig_frame(r, CB_WIRE_INPUT_REQUEST, request, "{\"prompt\":\"?\",\"password\":false}");
	q = rig_guest_recv(r);
	assert_int_equal(q.h.type, CB_WIRE_INPUT_REPLY);
	assert_string_equal(q.content, "{\"status\":\"ok\",\"value\":\"\\u0004\"}");
	rig_request_free(&q);
	rig_end(r, id, request);
}

static void ask(struct rig *r, uint64_t request, const char *id)
{
	rig_frame(r, CB_WIRE_INPUT_REQUEST, request, "{\"prompt\":\"?\",\"password\":false}");
	rig_expect(r, RIG_STDIN, "input_request", id);
}

static void answer(struct rig *r, const char *session, const char *content)
{
	r->session = session;
	(void)rig_send(r, RIG_STDIN, "input_reply", content, NULL);
	r->session = "s1";
}

/* What was sent to a subshell gets the answers that name it, also when that was deleted. When it has ended nobody does:
 * not the main shell's cell, which asks the same client. */
static void test_answers_to_a_deleted_subshell(void **state)
{
	struct rig *r = *state = rig_side_up(CB_MODE_OFF);
	char session[80], content[80];
	const char *cell = rig_execute(r, "1"), *beside;
	uint64_t request = rig_begun(r, cell), q;

	ask(r, request, cell);
	rig_subshell(r);
	rig_expect(r, RIG_IOPUB, "busy", cell);
	beside = rig_execute(r, "2");
	q = rig_side_expect(r, CB_WIRE_EXECUTE, 1);
	ask(r, q, beside);
	snprintf(session, sizeof(session), "s1\",\"subshell_id\":\"%s", r->subshell);
	snprintf(content, sizeof(content), "{\"subshell_id\":\"%s\"}", r->subshell);
	r->subshell = NULL;
	rig_expect(r, RIG_CONTROL, "delete_subshell_reply",
		   rig_send(r, RIG_CONTROL, "delete_subshell_request", content, NULL));
	(void)rig_side_expect(r, CB_WIRE_LANE_CLOSE, 1);
	answer(r, session, "{\"value\":\"the subshell's\"}");
	assert_int_equal(rig_side_expect(r, CB_WIRE_INPUT_REPLY, 1), q);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, q, RIG_OK);
	rig_expect(r, RIG_SHELL, "execute_reply", beside);
	answer(r, session, "{\"value\":\"nobody's\"}");
	answer(r, "s1", "{\"value\":\"the main shell's\"}");
	struct rig_request got = rig_guest_recv(r);

	assert_int_equal(got.h.type, CB_WIRE_INPUT_REPLY);
	assert_int_equal(got.h.request, request);
	assert_string_equal(got.content, "{\"value\":\"the main shell's\"}");
	rig_request_free(&got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_malformed, rig_teardown),
		cmocka_unit_test_teardown(test_bash_has_none, rig_teardown),
		cmocka_unit_test_teardown(test_a_call, rig_teardown),
		cmocka_unit_test_teardown(test_a_client_that_is_gone, rig_teardown),
		cmocka_unit_test_teardown(test_answers_to_a_deleted_subshell, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
