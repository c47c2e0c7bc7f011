/* The table of open comms: bounds, filter, close, and what clients hear when the guest is gone. */
#include <cellblock/error.h>
#include <cellblock/json_scan.h>

#include "rig.h"

static struct cb_span span(const char *text)
{
	return (struct cb_span){ text, strlen(text) };
}

static void assert_list(const struct cb_comms *c, const char *target, size_t expected)
{
	CB_AUTO_BUF b = CB_BUF_INIT(64u << 20);
	json_t *list;

	assert_int_equal(cb_comms_list(c, target != NULL ? span(target) : (struct cb_span){ NULL, 0 }, &b), 0);
	list = json_loadb((char *)b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(list);
	assert_int_equal(json_object_size(list), expected);
	json_decref(list);
}

static void test_open_close(void **state)
{
	struct cb_comms c = { 0 };

	(void)state;
	cb_comms_closed(&c, CB_SPAN("\"none\"")); /* before anything was opened */
	assert_list(&c, NULL, 0);
	assert_int_equal(cb_comms_opened(&c, CB_SPAN("\"a\""), CB_SPAN("\"t\"")), 0);
	assert_int_equal(cb_comms_opened(&c, CB_SPAN("\"a\""), CB_SPAN("\"other\"")), 0); /* still the first */
	assert_int_equal(cb_comms_opened(&c, CB_SPAN("\"b\""), CB_SPAN("\"u\"")), 0);
	assert_int_equal(cb_comms_opened(&c, CB_SPAN("\"\""), CB_SPAN("\"t\"")), 0);
	assert_list(&c, NULL, 3);
	assert_list(&c, "\"t\"", 2);
	assert_list(&c, "\"u\"", 1);
	assert_list(&c, "\"other\"", 0);
	cb_comms_closed(&c, CB_SPAN("\"a\""));
	cb_comms_closed(&c, CB_SPAN("\"a\""));
	assert_list(&c, "\"t\"", 1);
	cb_comms_release(&c);
	cb_comms_release(&c);
	assert_list(&c, NULL, 0);
}

static void test_bounds(void **state)
{
	struct cb_comms c = { 0 };
	static char big[CB_COMMS_BYTES_MAX];
	char id[32];

	(void)state;
	for (unsigned i = 0; i < CB_COMMS_MAX; i++) {
		snprintf(id, sizeof(id), "\"%u\"", i);
		assert_int_equal(cb_comms_opened(&c, span(id), CB_SPAN("\"t\"")), 0);
	}
	assert_int_equal(cb_comms_opened(&c, CB_SPAN("\"more\""), CB_SPAN("\"t\"")), CB_E_TOO_BIG);
	assert_int_equal(c.count, CB_COMMS_MAX);
	assert_list(&c, NULL, CB_COMMS_MAX);
	for (unsigned i = 0; i < CB_COMMS_MAX; i++) {
		snprintf(id, sizeof(id), "\"%u\"", i);
		cb_comms_closed(&c, span(id));
	}
	assert_int_equal(c.count, 0);
	assert_int_equal(c.bytes, 0);
	memset(big, 'x', sizeof(big));
	big[0] = big[sizeof(big) - 4] = '"';
	assert_int_equal(cb_comms_opened(&c, (struct cb_span){ big, sizeof(big) - 3 }, CB_SPAN("\"t\"")), 0);
	assert_int_equal(cb_comms_opened(&c, CB_SPAN("\"\""), CB_SPAN("\"\"")), CB_E_TOO_BIG);
	cb_comms_release(&c);
}

static void test_info_and_reset(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id =
		rig_send(r, RIG_SHELL, "comm_open", "{\"comm_id\":\"c1\",\"target_name\":\"t\",\"data\":{}}", NULL);

	rig_expect(r, RIG_IOPUB, "busy", id);
	uint64_t g = rig_guest_expect(r, CB_WIRE_DOWN_COMM_OPEN);

	rig_frame(r, CB_WIRE_UP_COMM_OPEN, g, "{\"comm_id\":\"c2\",\"target_name\":\"u\",\"data\":{}}");
	rig_frame(r, CB_WIRE_UP_COMM_MSG, g, "{\"comm_id\":\"c2\",\"data\":{\"k\":1}}");
	rig_frame(r, CB_WIRE_COMM_DONE, g, "{}");
	rig_expect(r, RIG_IOPUB, "comm_open", id);
	rig_expect(r, RIG_IOPUB, "comm_msg", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	static const struct {
		const char *content;
		size_t count;
	} asked[] = { { "{}", 2 },
		      { "{\"target_name\":null}", 2 },
		      { "{\"target_name\":\"u\"}", 1 },
		      { "{\"target_name\":\"x\"}", 0 } };

	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		const char *q = rig_send(r, RIG_CONTROL, "comm_info_request", asked[i].content, NULL);
		struct rig_msg m = rig_take(r, RIG_CONTROL, "comm_info_reply", q);

		assert_int_equal(json_object_size(json_object_get(m.content, "comms")), asked[i].count);
		rig_msg_free(&m);
		rig_expect(r, RIG_IOPUB, "busy", q);
		rig_expect(r, RIG_IOPUB, "idle", q);
	}
	rig_die(r, 0);
	rig_expect(r, RIG_IOPUB, "comm_close", "");
	rig_expect(r, RIG_IOPUB, "comm_close", "");
	rig_expect(r, RIG_IOPUB, "restarting", "");
	assert_int_equal(r->k.comms.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_close),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test_teardown(test_info_and_reset, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
