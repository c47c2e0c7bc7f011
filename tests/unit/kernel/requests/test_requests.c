/* Requests with content that is not what their type needs: an error reply between busy and idle, never silence, and
 * nothing of it reaches the guest. And limits that a request may lower. */
#include "requests/requests.h"
#include "rig.h"

static const struct {
	const char *type, *content, *metadata, *says; /* says: part of evalue */
} malformed[] = {
	{ "execute_request", "{}", NULL, "code" },
	{ "execute_request", "", NULL, "content" },
	{ "execute_request", "[]", NULL, "content" },
	{ "execute_request", "{\"code\":1}", NULL, "code" },
	{ "execute_request", "{\"code\":\"\\ud800\"}", NULL, "surrogate" },
	{ "execute_request", "{\"code\":\"a\",\"code\":\"b\"}", NULL, "duplicate" },
	{ "execute_request", "{\"code\":\"a\",\"silent\":1}", NULL, "silent" },
	{ "execute_request", "{\"code\":\"a\",\"store_history\":\"x\"}", NULL, "store_history" },
	{ "execute_request", "{\"code\":\"a\",\"user_expressions\":{\"a\":1}}", NULL, "user_expressions" },
	{ "execute_request", "{\"code\":\"a\",\"user_expressions\":[]}", NULL, "user_expressions" },
	{ "execute_request", "{\"code\":\"a\"}", "[]", "metadata" },
	{ "execute_request", "{\"code\":\"a\"}", "{\"cellblock\":1}", "cellblock" },
	{ "execute_request", "{\"code\":\"a\"}", "{\"cellblock\":{\"timeout\":\"5\"}}", "timeout" },
	{ "execute_request", "{\"code\":\"a\"}", "{\"cellblock\":{\"timeout\":0}}", "timeout" },
	{ "execute_request", "{\"code\":\"a\"}", "{\"cellblock\":{\"timeout\":-3}}", "timeout" },
	{ "execute_request", "{\"code\":\"a\"}", "{\"cellblock\":{\"memory\":\"1X\"}}", "metadata.cellblock.memory" },
	{ "execute_request", "{\"code\":\"a\"}", "{\"cellblock\":{\"memory\":1.5}}", "metadata.cellblock: memory" },
	{ "complete_request", "{}", NULL, "code" },
	{ "complete_request", "{\"code\":\"a\",\"cursor_pos\":\"1\"}", NULL, "cursor_pos" },
	{ "inspect_request", "{\"code\":\"a\",\"cursor_pos\":1,\"detail_level\":2}", NULL, "detail_level" },
	{ "inspect_request", "{\"code\":\"a\",\"cursor_pos\":1,\"detail_level\":99999999999999999999}", NULL,
	  "detail_level" },
	{ "is_complete_request", "{\"code\":null}", NULL, "code" },
	{ "history_request", "{}", NULL, "key" },
	{ "history_request", "{\"hist_access_type\":\"all\"}", NULL, "range, tail and search" },
	{ "history_request", "{\"hist_access_type\":\"tail\",\"n\":\"x\"}", NULL, "type" },
};

static void test_malformed(void **state)
{
	struct rig *r = *state = rig_up();

	for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
		const char *type = malformed[i].type;
		const char *id = rig_send(r, RIG_SHELL, type, malformed[i].content, malformed[i].metadata);
		char reply[64];

		snprintf(reply, sizeof(reply), "%.*sreply", (int)(strlen(type) - strlen("request")), type);
		struct rig_msg m = rig_take(r, RIG_SHELL, reply, id);

		assert_string_equal(rig_text(&m, "status"), "error");
		assert_string_equal(rig_text(&m, "ename"), "MalformedRequestError");
		if (strstr(rig_text(&m, "evalue"), malformed[i].says) == NULL)
			fail_msg("%s %s: %s", type, malformed[i].content, rig_text(&m, "evalue"));
		rig_msg_free(&m);
		rig_expect(r, RIG_IOPUB, "busy", id);
		if (strcmp(type, "execute_request") == 0)
			rig_expect(r, RIG_IOPUB, "error", id);
		rig_expect(r, RIG_IOPUB, "idle", id);
	}
	rig_barrier(r);
	assert_int_equal(r->k.shells.execution.number, 0);
	assert_int_equal(r->k.guest.last_id, 0); /* the guest was given nothing */
}

/* Comm messages have no reply. */
static void test_malformed_comm(void **state)
{
	static const struct {
		const char *type, *content, *metadata;
	} bad[] = {
		{ "comm_open", "{\"comm_id\":\"c\"}", NULL },
		{ "comm_msg", "{\"data\":{}}", NULL },
		{ "comm_close", "{\"comm_id\":1}", NULL },
		{ "comm_msg", "{\"comm_id\":\"c\",\"data\":{}}", "nonsense" },
	};
	struct rig *r = *state = rig_up();

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *id = rig_send(r, RIG_SHELL, bad[i].type, bad[i].content, bad[i].metadata);

		rig_expect(r, RIG_IOPUB, "busy", id);
		rig_expect(r, RIG_IOPUB, "idle", id);
	}
	rig_barrier(r);
	assert_int_equal(r->k.guest.comms.count, 0);
	assert_int_equal(r->k.guest.last_id, 0);
}

static void test_too_large(void **state)
{
	struct rig *r = *state = rig_up();
	static const char head[] = "{\"code\":\"";
	char *big = test_calloc((17u << 20) + 1, 1);

	memset(big, 'a', 17u << 20);
	memcpy(big, head, strlen(head));
	memcpy(big + (17u << 20) - 2, "\"}", 2);
	const char *id = rig_send(r, RIG_SHELL, "execute_request", big, NULL);
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	test_free(big);
	assert_non_null(strstr(rig_text(&m, "evalue"), "limits.message"));
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "error", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

static void test_subshell(void **state)
{
	struct rig *r = *state = rig_up();

	r->session = "s\",\"subshell_id\":\"x"; /* one more key in the header */
	const char *id = rig_execute(r, "a");
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_non_null(strstr(rig_text(&m, "evalue"), "subshell"));
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

/* ---- execute_request's fields ---- */

static int parse(double limit, const char *content, const char *metadata, struct cb_execute_fields *ret)
{
	static struct cb_kernel k;
	struct cb_policy policy = { .timeout_cell = limit };
	struct cb_request q = { .content = { content, strlen(content) }, .metadata = { metadata, strlen(metadata) } };
	char what[256];

	k.policy = &policy;
	return cb_execute_parse(&k, &q, ret, what, sizeof(what));
}

static void test_defaults(void **state)
{
	struct cb_execute_fields f;

	(void)state;
	assert_int_equal(parse(0, "{\"code\":\"a\"}", "{}", &f), 0);
	assert_true(!f.silent && f.store_history && f.allow_stdin && f.stop_on_error && f.timeout == 0);
	assert_true(cb_span_is(f.code, "\"a\""));
	assert_int_equal(
		parse(0, "{\"allow_stdin\":null,\"code\":\"\",\"silent\":null,\"stop_on_error\":null}", "{}", &f), 0);
	assert_true(!f.silent && !f.stop_on_error && !f.allow_stdin); /* null is false, as in ipykernel */
	assert_int_equal(parse(0,
			       "{\"code\":\"\",\"silent\":true,\"store_history\":false,\"allow_stdin\":false,"
			       "\"stop_on_error\":false}",
			       "{}", &f),
			 0);
	assert_true(f.silent && !f.store_history && !f.allow_stdin && !f.stop_on_error);
}

static void test_limits_are_only_lowered(void **state)
{
	static const struct {
		double policy, asked, result;
	} tried[] = { { 0, 5, 5 }, { 10, 5, 5 }, { 10, 50, 10 }, { 10, 1e300, 10 }, { 0, 1e300, 0 }, { 0, 0.5, 0.5 } };
	struct cb_execute_fields f;

	(void)state;
	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		char metadata[64];

		snprintf(metadata, sizeof(metadata), "{\"cellblock\":{\"timeout\":%g,\"unknown\":[]}}", tried[i].asked);
		assert_int_equal(parse(tried[i].policy, "{\"code\":\"a\"}", metadata, &f), 0);
		assert_true(f.timeout == tried[i].result);
	}
	assert_int_equal(parse(7, "{\"code\":\"a\"}", "{\"cellblock\":null}", &f), 0);
	assert_true(f.timeout == 7);
}

/* ---- stdin ---- */

static bool stdin_waits(struct rig *r)
{
	zmq_pollitem_t item = { .socket = r->k.jupyter.channels.socket[CB_STDIN], .events = ZMQ_POLLIN };

	return zmq_poll(&item, 1, 0) > 0;
}

static void test_input(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id = rig_execute(r, "a");
	uint64_t g = rig_guest_expect(r, CB_WIRE_EXECUTE);

	cb_loop_set_events(&r->k.loop, r->k.jupyter.channels.slot[CB_STDIN], 0);
	(void)rig_send(r, RIG_STDIN, "input_reply", "{\"value\":\"too early\"}", NULL);
	rig_until(r, stdin_waits);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "execute_input", id);
	rig_stream(r, g, CB_WIRE_STDOUT, "before");
	rig_frame(r, CB_WIRE_INPUT_REQUEST, g, "{\"prompt\":\"name? \",\"password\":true}");
	struct rig_msg m = rig_take(r, RIG_STDIN, "input_request", id);

	assert_string_equal(rig_text(&m, "prompt"), "name? ");
	assert_true(json_is_true(json_object_get(m.content, "password")));
	rig_msg_free(&m);
	cb_loop_set_events(&r->k.loop, r->k.jupyter.channels.slot[CB_STDIN], ZMQ_POLLIN);
	rig_expect(r, RIG_IOPUB, "stream", id); /* not held back while the user thinks */
	(void)rig_send(r, RIG_STDIN, "input_reply", "{\"value\":\"me\"}", NULL);
	struct rig_request q = rig_guest_recv(r);

	assert_int_equal(q.h.type, CB_WIRE_INPUT_REPLY);
	assert_string_equal(q.content, "{\"value\":\"me\"}");
	rig_request_free(&q);
	(void)rig_send(r, RIG_STDIN, "input_reply", "{\"value\":\"twice\"}", NULL);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	(void)rig_execute(r, "b");
	(void)rig_guest_expect(r, CB_WIRE_EXECUTE); /* nothing but the next cell */
}

/* No other answer will come: the question ends, and the user is told why. */
static void test_input_that_is_refused(void **state)
{
	struct rig *r = *state = rig_up();
	char *big = test_calloc((17u << 20) + 1, 1);
	const char *const bad[] = { "{\"value\":5}", "nonsense", "{\"value\":\"\\ud800\"}", big };
	const char *const why[] = { "value", "value", "value", "limits.message" };
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	memset(big, ' ', 17u << 20);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		rig_frame(r, CB_WIRE_INPUT_REQUEST, g, "{\"prompt\":\"\",\"password\":false}");
		rig_expect(r, RIG_STDIN, "input_request", id);
		(void)rig_send(r, RIG_STDIN, "input_reply", bad[i], NULL);
		struct rig_request q = rig_guest_recv(r);

		assert_int_equal(q.h.type, CB_WIRE_INPUT_REPLY);
		assert_string_equal(q.content, "{\"status\":\"ok\",\"value\":\"\\u0004\"}");
		rig_request_free(&q);
		struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", id);

		assert_string_equal(rig_text(&m, "name"), "stderr");
		assert_non_null(strstr(rig_text(&m, "text"), why[i]));
		rig_msg_free(&m);
	}
	test_free(big);
	rig_frame(r, CB_WIRE_INPUT_REQUEST, g, "{\"prompt\":\"\",\"password\":false}");
	rig_expect(r, RIG_STDIN, "input_request", id); /* nothing else was said on stdin */
	(void)rig_send(r, RIG_STDIN, "input_reply", "{\"value\":\"me\"}", NULL);
	(void)rig_guest_expect(r, CB_WIRE_INPUT_REPLY);
	rig_end(r, id, g);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_malformed), T(test_malformed_comm),	    T(test_too_large), T(test_subshell),
		T(test_defaults),  T(test_limits_are_only_lowered), T(test_input),
		T(test_input_that_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
