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
	struct cb_json j = cb_json_begin(&b);
	json_t *list;

	cb_comms_list(c, target != NULL ? span(target) : (struct cb_span){ NULL, 0 }, &j);
	assert_int_equal(cb_json_done(&j), 0);
	list = json_loadb((char *)b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(list);
	assert_int_equal(json_object_size(json_object_get(list, "comms")), expected);
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

/* Each checkpoint has a copy of the table: all together they are bounded, and what is given back can be used again. */
static void test_all_tables_are_bounded(void **state)
{
	static char big[1u << 20];
	static struct cb_comms c, copy[300];
	size_t kept = 0, before = cb_comms_all();
	char id[32];

	(void)state;
	memset(big, 'x', sizeof(big));
	for (unsigned i = 0; i < 15; i++) {
		snprintf(id, sizeof(id), "\"%u\"", i);
		assert_int_equal(cb_comms_opened(&c, span(id), (struct cb_span){ big, sizeof(big) }), 0);
	}
	while (kept < 300 && cb_comms_copy(&c, &copy[kept]) == 0)
		kept++;
	assert_in_range(kept, 1, 4);
	assert_int_equal(copy[kept].count, 0);
	assert_true(cb_comms_all() <= CB_COMMS_COPIES_MAX);
	/* branches that open their own */
	for (size_t i = kept; i < 300; i++)
		for (unsigned n = 0; n < 15; n++) {
			snprintf(id, sizeof(id), "\"%zu %u\"", i, n);
			(void)cb_comms_opened(&copy[i], span(id), (struct cb_span){ big, sizeof(big) });
		}
	assert_true(cb_comms_all() <= CB_COMMS_ALL_MAX);
	assert_int_equal(cb_comms_opened(&c, CB_SPAN("\"more\""), (struct cb_span){ big, sizeof(big) }), CB_E_TOO_BIG);
	for (size_t i = 0; i < 300; i++)
		cb_comms_release(&copy[i]);
	assert_int_equal(cb_comms_copy(&c, &copy[0]), 0);
	assert_int_equal(copy[0].count, c.count);
	assert_true(cb_comms_closed(&copy[0], CB_SPAN("\"0\"")));
	cb_comms_release(&copy[0]);
	cb_comms_release(&c);
	assert_int_equal(cb_comms_all(), before);
}

/* Small entries cost more than their text. */
static void test_entries_cost_more_than_their_text(void **state)
{
	static struct cb_comms c[300];
	size_t opened = 0;
	char id[32];

	(void)state;
	for (;; opened++) {
		snprintf(id, sizeof(id), "\"%zu\"", opened);
		if (cb_comms_opened(&c[opened / 20000 % 300], span(id), CB_SPAN("\"t\"")) < 0)
			break;
	}
	assert_in_range(opened, 1000000, CB_COMMS_ALL_MAX / sizeof(struct cb_comm));
	for (size_t t = 0; t < 300; t++)
		cb_comms_release(&c[t]);
	assert_int_equal(cb_comms_all(), 0);
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
	assert_int_equal(r->k.guest.comms.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_close),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_all_tables_are_bounded),
		cmocka_unit_test(test_entries_cost_more_than_their_text),
		cmocka_unit_test_teardown(test_info_and_reset, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
