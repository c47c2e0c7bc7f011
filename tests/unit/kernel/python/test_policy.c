/* The permission table: each row in each phase, with each id; sizes, flags, buffers; and each content's keys. */
#include "python/policy.h"

#include <cellblock/error.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct {
	uint32_t type, phases, cap;
	enum cb_wire_id id;
} row[] = {
#define CB_X(name, number, phases, id, cap) { number, phases, cap, id },
	CB_WIRE_UP_MESSAGES(CB_X)
#undef CB_X
};
#define ROWS (sizeof(row) / sizeof(row[0]))

static struct cb_guest_rules rules(uint32_t phase)
{
	return (struct cb_guest_rules){
		.phase = phase, .first_id = 10, .last_id = 20, .current = 20, .max_message = 1u << 24
	};
}

static int header(const struct cb_guest_rules *g, struct cb_wire_header h)
{
	const char *reason = NULL;
	int r = cb_guest_policy_header(g, &h, &reason);

	if (r < 0)
		assert_non_null(reason);
	return r;
}

static struct cb_wire_header good(size_t i)
{
	return (struct cb_wire_header){ .type = row[i].type,
					.request = row[i].id == CB_ID_NONE ? 0 : 20,
					.flags = row[i].type == CB_WIRE_STREAM ? CB_WIRE_STDERR : 0 };
}

/* Allowed in no phase of the wire. */
static bool of_side_wire(size_t i)
{
	return row[i].phases == 0;
}

static void test_phases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ROWS; i++) {
		for (uint32_t phase = CB_PHASE_STARTING; phase <= CB_PHASE_WAKING; phase <<= 1) {
			struct cb_guest_rules g = rules(phase);

			assert_int_equal(header(&g, good(i)), (row[i].phases & phase) != 0 ? 0 : CB_E_DENIED);
		}
		struct cb_guest_rules none = rules(0);

		assert_int_equal(header(&none, good(i)), CB_E_DENIED);
	}
}

static void test_ids(void **state)
{
	static const uint64_t id[] = { 0, 1, 9, 10, 19, 20, 21, UINT64_MAX };

	(void)state;
	for (size_t i = 0; i < ROWS; i++) {
		for (size_t j = 0; j < sizeof(id) / sizeof(id[0]) && !of_side_wire(i); j++) {
			struct cb_guest_rules g = rules(row[i].phases);
			struct cb_wire_header h = good(i);
			bool allowed = row[i].id == CB_ID_NONE	? id[j] == 0
				       : row[i].id == CB_ID_ANY ? id[j] == 0 || (id[j] >= 10 && id[j] <= 20)
								: id[j] == 20;

			h.request = id[j];
			assert_int_equal(header(&g, h), allowed ? 0 : CB_E_DENIED);
			g.current = 0; /* nothing pending: 0 is not the current one */
			if (row[i].id == CB_ID_CURRENT)
				assert_int_equal(header(&g, h), CB_E_DENIED);
			g.first_id = 21; /* a new guest that has been given nothing */
			if (row[i].id == CB_ID_ANY)
				assert_int_equal(header(&g, h), id[j] == 0 ? 0 : CB_E_DENIED);
		}
	}
}

/* What is pending beside the main thread is judged by what it is itself, whatever that does, if it can do anything. */
static void test_beside(void **state)
{
	static const enum cb_wire_phase kind[] = { CB_PHASE_EXECUTING, CB_PHASE_COMM };

	(void)state;
	for (size_t i = 0; i < ROWS; i++) {
		for (uint32_t phase = CB_PHASE_STARTING; phase <= CB_PHASE_WAKING; phase <<= 1) {
			for (size_t j = 0; j < 2 && row[i].id == CB_ID_CURRENT; j++) {
				struct cb_guest_rules g = rules(phase);
				struct cb_wire_header h = good(i);
				bool allowed = (phase & CB_PHASE_UP) != 0 && (row[i].phases & kind[j]) != 0;

				g.beside[1] = (struct cb_guest_pending){ 15, kind[j] };
				h.request = 15;
				assert_int_equal(header(&g, h), allowed ? 0 : CB_E_DENIED);
				h.request = 16;
				assert_int_equal(header(&g, h), CB_E_DENIED);
				g.beside[1].id = 0;
				h.request = 15;
				assert_int_equal(header(&g, h), CB_E_DENIED);
			}
		}
	}
}

static void test_types(void **state)
{
	struct cb_guest_rules g = rules(CB_PHASE_UP | CB_PHASE_STARTING);

	(void)state;
	for (uint32_t type = 0; type < 300; type++) {
		size_t i = 0;

		while (i < ROWS && row[i].type != type)
			i++;
		if (i == ROWS)
			assert_int_equal(header(&g, (struct cb_wire_header){ .type = type }), CB_E_UNKNOWN);
	}
	assert_int_equal(header(&g, (struct cb_wire_header){ .type = UINT32_MAX }), CB_E_UNKNOWN);
}

static void test_sizes(void **state)
{
	(void)state;
	for (size_t i = 0; i < ROWS; i++) {
		if (of_side_wire(i))
			continue;
		struct cb_guest_rules g = rules(row[i].phases);
		uint32_t most = row[i].cap < g.max_message ? row[i].cap : (uint32_t)g.max_message;
		struct cb_wire_header h = good(i);

		h.content_len = most;
		assert_int_equal(header(&g, h), 0);
		h.content_len = most + 1;
		assert_int_equal(header(&g, h), CB_E_TOO_BIG);
		h.content_len = most;
		h.metadata_len = 1;
		assert_int_equal(header(&g, h), CB_E_TOO_BIG);
		h.content_len = h.metadata_len = h.buffers_len = UINT32_MAX; /* no wrap in the sum */
		assert_int_equal(header(&g, h), CB_E_TOO_BIG);
		h = good(i);
		h.buffer_count = UINT32_MAX;
		assert_int_equal(header(&g, h), CB_E_TOO_BIG);
	}
}

static void test_flags_and_buffers(void **state)
{
	(void)state;
	for (size_t i = 0; i < ROWS; i++) {
		if (of_side_wire(i))
			continue;
		struct cb_guest_rules g = rules(row[i].phases);
		bool stream = row[i].type == CB_WIRE_STREAM;
		bool buffers = row[i].type == CB_WIRE_UP_COMM_OPEN || row[i].type == CB_WIRE_UP_COMM_MSG ||
			       row[i].type == CB_WIRE_UP_COMM_CLOSE || row[i].type == CB_WIRE_DISPLAY_DATA ||
			       row[i].type == CB_WIRE_UPDATE_DISPLAY_DATA;
		struct cb_wire_header h = good(i);

		for (uint32_t flags = 0; flags < 6; flags++) {
			h.flags = flags;
			assert_int_equal(header(&g, h),
					 (stream ? flags == 1 || flags == 2 : flags == 0) ? 0 : CB_E_DENIED);
		}
		h = good(i);
		h.buffer_count = 1;
		assert_int_equal(header(&g, h), buffers ? 0 : CB_E_DENIED);
		h.buffer_count = 0;
		h.buffers_len = 1;
		assert_int_equal(header(&g, h), buffers ? 0 : CB_E_DENIED);
	}
}

/* ---- contents ---- */

static int content(enum cb_wire_type type, const char *text, const char *metadata, struct cb_guest_content *ret)
{
	static char copy[4096], meta[4096];
	static struct cb_frame f;
	const char *reason = NULL;

	snprintf(copy, sizeof(copy), "%s", text);
	snprintf(meta, sizeof(meta), "%s", metadata);
	f = (struct cb_frame){ .header = { .type = type,
					   .content_len = (uint32_t)strlen(copy),
					   .metadata_len = (uint32_t)strlen(meta) },
			       .content = copy,
			       .metadata = { meta[0] != '\0' ? meta : "{}", meta[0] != '\0' ? strlen(meta) : 2 } };
	int r = cb_guest_policy_content(&f, ret, &reason);

	if (r < 0)
		assert_true(reason != NULL && reason[0] != '\0');
	return r;
}

#define DATA "\"data\":{\"text/plain\":\"x\"},\"metadata\":{}"

static const struct {
	enum cb_wire_type type;
	bool allowed;
	const char *text;
} tried[] = {
	{ CB_WIRE_HELLO, true, "{\"wire_version\":1,\"implementation\":\"x\",\"python_version\":\"3\"}" },
	{ CB_WIRE_HELLO, true,
	  "{\"wire_version\":1,\"implementation\":\"x\",\"python_version\":\"3\",\"missing_paths\":[\"/a\"]}" },
	{ CB_WIRE_HELLO, false,
	  "{\"wire_version\":1,\"implementation\":\"x\",\"python_version\":\"3\",\"missing_paths\":[1]}" },
	{ CB_WIRE_HELLO, false, "{\"wire_version\":\"1\",\"implementation\":\"x\",\"python_version\":\"3\"}" },
	{ CB_WIRE_HELLO, false, "{}" },
	{ CB_WIRE_DISPLAY_DATA, true, "{" DATA "}" },
	{ CB_WIRE_DISPLAY_DATA, true, " {" DATA ",\"transient\":{\"display_id\":\"1\"},\"more\":[]} " },
	{ CB_WIRE_DISPLAY_DATA, false, "{\"data\":{}}" },
	{ CB_WIRE_DISPLAY_DATA, false, "{\"data\":[],\"metadata\":{}}" },
	{ CB_WIRE_DISPLAY_DATA, false, "{\"data\":{\"a\":NaN},\"metadata\":{}}" },
	{ CB_WIRE_DISPLAY_DATA, false, "{\"data\":{\"a\":\"\\ud800\"},\"metadata\":{}}" },
	{ CB_WIRE_DISPLAY_DATA, false, "{\"data\":{\"a\":\"\xed\xa0\x80\"},\"metadata\":{}}" },
	{ CB_WIRE_DISPLAY_DATA, false, "{\"data\":{\"a\":1,\"a\":2},\"metadata\":{}}" },
	{ CB_WIRE_DISPLAY_DATA, false, "{" DATA "}x" },
	{ CB_WIRE_DISPLAY_DATA, false, "[]" },
	{ CB_WIRE_DISPLAY_DATA, false, "" },
	{ CB_WIRE_UPDATE_DISPLAY_DATA, true, "{" DATA "}" },
	{ CB_WIRE_UPDATE_DISPLAY_DATA, false, "{\"data\":{},\"metadata\":{},\"transient\":[]}" },
	{ CB_WIRE_EXECUTE_RESULT, true, "{" DATA "}" },
	{ CB_WIRE_EXECUTE_RESULT, false, "{" DATA ",\"execution_count\":1}" },
	{ CB_WIRE_EXECUTE_RESULT, false, "{" DATA ",\"execution\\u005fcount\":1}" },
	{ CB_WIRE_ERROR, true, "{\"ename\":\"E\",\"evalue\":\"\",\"traceback\":[]}" },
	{ CB_WIRE_ERROR, false, "{\"ename\":\"E\",\"evalue\":\"\",\"traceback\":[1]}" },
	{ CB_WIRE_ERROR, false, "{\"ename\":\"E\",\"evalue\":null,\"traceback\":[]}" },
	{ CB_WIRE_CLEAR_OUTPUT, true, "{\"wait\":true}" },
	{ CB_WIRE_CLEAR_OUTPUT, false, "{\"wait\":1}" },
	{ CB_WIRE_UP_COMM_OPEN, true, "{\"comm_id\":\"c\",\"target_name\":\"t\",\"data\":{}}" },
	{ CB_WIRE_UP_COMM_OPEN, false, "{\"comm_id\":\"c\",\"data\":{}}" },
	{ CB_WIRE_UP_COMM_MSG, true, "{\"comm_id\":\"c\",\"data\":{}}" },
	{ CB_WIRE_UP_COMM_MSG, false, "{\"comm_id\":1,\"data\":{}}" },
	{ CB_WIRE_UP_COMM_CLOSE, true, "{\"comm_id\":\"c\",\"data\":{}}" },
	{ CB_WIRE_UP_COMM_CLOSE, false, "{\"comm_id\":\"c\"}" },
	{ CB_WIRE_EXECUTE_REPLY, true, "{\"status\":\"ok\"}" },
	{ CB_WIRE_EXECUTE_REPLY, true, "{\"status\":\"\\u006fk\",\"payload\":[{}],\"user_expressions\":{\"a\":{}}}" },
	{ CB_WIRE_EXECUTE_REPLY, true, "{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\"\",\"traceback\":[]}" },
	{ CB_WIRE_EXECUTE_REPLY, false, "{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\"\"}" },
	{ CB_WIRE_EXECUTE_REPLY, false, "{\"status\":\"aborted\"}" },
	{ CB_WIRE_EXECUTE_REPLY, false, "{\"status\":\"ok\",\"execution_count\":5}" },
	{ CB_WIRE_EXECUTE_REPLY, false, "{\"status\":\"ok\",\"payload\":[1]}" },
	{ CB_WIRE_EXECUTE_REPLY, false, "{\"status\":\"ok\",\"user_expressions\":{\"a\":1}}" },
	{ CB_WIRE_COMPLETE_REPLY, true,
	  "{\"status\":\"ok\",\"matches\":[\"a\"],\"cursor_start\":0,\"cursor_end\":1,\"metadata\":{}}" },
	{ CB_WIRE_COMPLETE_REPLY, false,
	  "{\"status\":\"ok\",\"matches\":[1],\"cursor_start\":0,\"cursor_end\":1,\"metadata\":{}}" },
	{ CB_WIRE_COMPLETE_REPLY, false,
	  "{\"status\":\"ok\",\"matches\":[],\"cursor_start\":0.5,\"cursor_end\":1,\"metadata\":{}}" },
	{ CB_WIRE_INSPECT_REPLY, true, "{\"status\":\"ok\",\"found\":false,\"data\":{},\"metadata\":{}}" },
	{ CB_WIRE_INSPECT_REPLY, false, "{\"status\":\"ok\",\"found\":0,\"data\":{},\"metadata\":{}}" },
	{ CB_WIRE_INSPECT_REPLY, false, "{\"status\":\"no\",\"found\":true,\"data\":{},\"metadata\":{}}" },
	{ CB_WIRE_IS_COMPLETE_REPLY, true, "{\"status\":\"incomplete\",\"indent\":\"  \"}" },
	{ CB_WIRE_IS_COMPLETE_REPLY, true, "{\"status\":\"unknown\"}" },
	{ CB_WIRE_IS_COMPLETE_REPLY, false, "{\"status\":\"ok\"}" },
	{ CB_WIRE_COMM_DONE, true, "{}" },
	{ CB_WIRE_COMM_DONE, false, "" },
	{ CB_WIRE_INPUT_REQUEST, true, "{\"prompt\":\"\",\"password\":false}" },
	{ CB_WIRE_INPUT_REQUEST, false, "{\"prompt\":\"\"}" },
	{ CB_WIRE_INTERRUPTED, true, "{}" },
	{ CB_WIRE_INTERRUPTED, false, "null" },
	{ CB_WIRE_CHECKPOINT_REPLY, true, "{\"status\":\"ok\",\"left_out\":{\"sockets\":         1}}" },
	{ CB_WIRE_RESUMED, true, "{}" },
	{ CB_WIRE_AWAITING, true, "{}" },
	{ CB_WIRE_AWAITING, false, "[]" },
	{ CB_WIRE_DEBUG_REPLY, true,
	  "{\"type\":\"response\",\"request_seq\":1,\"success\":false,\"command\":\"next\",\"body\":{}}" },
	{ CB_WIRE_DEBUG_REPLY, false, "{\"type\":\"event\",\"request_seq\":1,\"success\":true,\"command\":\"next\"}" },
	{ CB_WIRE_DEBUG_REPLY, false, "{\"type\":\"response\",\"request_seq\":1,\"success\":1,\"command\":\"next\"}" },
	{ CB_WIRE_DEBUG_REPLY, false, "{\"type\":\"response\",\"request_seq\":1,\"success\":true}" },
	{ CB_WIRE_DEBUG_EVENT, true, "{\"type\":\"event\",\"event\":\"stopped\",\"body\":{\"threadId\":1}}" },
	{ CB_WIRE_DEBUG_EVENT, false, "{\"type\":\"response\",\"event\":\"stopped\"}" },
	{ CB_WIRE_DEBUG_EVENT, false, "{\"type\":\"event\",\"event\":1}" },
	{ CB_WIRE_DEBUG_EVENT, false, "{\"type\":\"event\"}" },
	{ CB_WIRE_STREAM, true, "no JSON \xff at all" },
	{ CB_WIRE_STREAM, true, "" },
};

static void test_contents(void **state)
{
	struct cb_guest_content c;

	(void)state;
	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		int r = content(tried[i].type, tried[i].text, "", &c);

		if ((r == 0) != tried[i].allowed)
			fail_msg("type %d: %s: %d", (int)tried[i].type, tried[i].text, r);
		if (r < 0)
			continue;
		assert_int_equal(content(tried[i].type, tried[i].text, "{\"a\":1}", &c), 0);
		assert_true(content(tried[i].type, tried[i].text, "[]", &c) < 0);
		assert_true(content(tried[i].type, tried[i].text, "{\"a\":1,\"a\":1}", &c) < 0);
	}
	for (size_t i = 0; i < ROWS; i++) { /* no row without a try that is allowed */
		bool found = false;

		for (size_t j = 0; j < sizeof(tried) / sizeof(tried[0]); j++)
			found |= tried[j].allowed && (uint32_t)tried[j].type == row[i].type;
		assert_true(found);
	}
}

static int side(uint32_t answer, uint64_t request, struct cb_wire_header h)
{
	struct cb_guest_rules g = rules(CB_PHASE_EXECUTING);
	const char *reason = NULL;
	int r = cb_side_policy_header(&g, answer, request, &h, &reason);

	if (r < 0)
		assert_non_null(reason);
	return r;
}

static void test_side_wire(void **state)
{
	const uint32_t type = CB_WIRE_DEBUG_REPLY;

	(void)state;
	assert_int_equal(side(type, 20, (struct cb_wire_header){ .type = type, .request = 20 }), 0);
	assert_int_equal(side(0, 0, (struct cb_wire_header){ .type = type }), CB_E_DENIED);
	assert_int_equal(side(type, 20, (struct cb_wire_header){ .type = CB_WIRE_DEBUG_EVENT, .request = 20 }),
			 CB_E_DENIED);
	assert_int_equal(side(type, 20, (struct cb_wire_header){ .type = type, .request = 19 }), CB_E_DENIED);
	assert_int_equal(side(type, 20, (struct cb_wire_header){ .type = type, .request = 20, .flags = 1 }),
			 CB_E_DENIED);
	assert_int_equal(side(type, 20, (struct cb_wire_header){ .type = type, .request = 20, .buffer_count = 1 }),
			 CB_E_DENIED);
	assert_int_equal(
		side(type, 20, (struct cb_wire_header){ .type = type, .request = 20, .content_len = (1u << 24) + 1 }),
		CB_E_TOO_BIG);
}

static void test_picked(void **state)
{
	struct cb_guest_content c;

	(void)state;
	assert_int_equal(content(CB_WIRE_UP_COMM_OPEN, "{\"comm_id\":\"c\",\"target_name\":\"t\",\"data\":{}}", "", &c),
			 0);
	assert_true(cb_span_is(c.comm_id, "\"c\"") && cb_span_is(c.target_name, "\"t\""));
	assert_null(c.status.data);
	assert_int_equal(content(CB_WIRE_ERROR, "{\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"l\"]}", "", &c), 0);
	assert_true(cb_span_is(c.ename, "\"E\"") && cb_span_is(c.evalue, "\"v\"") &&
		    cb_span_is(c.traceback, "[\"l\"]"));
	assert_null(c.comm_id.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_phases),
		cmocka_unit_test(test_ids), cmocka_unit_test(test_beside),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_flags_and_buffers),
		cmocka_unit_test(test_contents),
		cmocka_unit_test(test_picked),
		cmocka_unit_test(test_side_wire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
