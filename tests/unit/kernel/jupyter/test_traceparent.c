/* traceparent: what W3C Trace Context calls one is taken, everything else is ignored and costs nothing; it goes into
 * the reply and the audit log, and not to the guest. */
#include "jupyter/traceparent.h"

#include <cellblock/fd.h>
#include <fcntl.h>
#include <stdlib.h>

#include "rig.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"
#define GOOD "00-" TRACE "-" SPAN "-01"
#define METADATA(value) "{\"cellblock\":{\"traceparent\":" value "}}"

static void test_parse(void **state)
{
	static const struct {
		const char *text, *taken; /* NULL: it is none */
	} tried[] = {
		{ GOOD, GOOD },
		{ "00-" TRACE "-" SPAN "-ff", "00-" TRACE "-" SPAN "-ff" },
		{ "01-" TRACE "-" SPAN "-01", GOOD },
		{ "cc-" TRACE "-" SPAN "-0b-what-the-future-brings", GOOD },
		{ "cc-" TRACE "-" SPAN "-f2-", "00-" TRACE "-" SPAN "-00" },
		{ "", NULL },
		{ "00", NULL },
		{ "00-" TRACE "-" SPAN "-0", NULL },
		{ GOOD "0", NULL },
		{ GOOD "-", NULL },
		{ "01-" TRACE "-" SPAN "-01.", NULL },
		{ "ff-" TRACE "-" SPAN "-01", NULL },
		{ "0x-" TRACE "-" SPAN "-01", NULL },
		{ "CC-" TRACE "-" SPAN "-01", NULL },
		{ " " GOOD, NULL },
		{ GOOD "\n", NULL },
		{ "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01", NULL },
		{ "00-" TRACE "-00F067AA0BA902B7-01", NULL },
		{ "00-" TRACE "-" SPAN "-0A", NULL },
		{ "00-" TRACE "-" SPAN "-0g", NULL },
		{ "00-00000000000000000000000000000000-" SPAN "-01", NULL },
		{ "00-" TRACE "-0000000000000000-01", NULL },
		{ "00-4bf92f3577b34da6a3ce929d0e0e473g-" SPAN "-01", NULL },
		{ "00_" TRACE "-" SPAN "-01", NULL },
		{ "00-" TRACE "_" SPAN "-01", NULL },
		{ "00-" TRACE "-" SPAN "_01", NULL },
		{ "00-4bf92f3577b34da6a3ce929d0e0e47-3600f067aa0ba902b7-01", NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		size_t len = strlen(tried[i].text);
		char *exact = test_malloc(len + 1), got[CB_TRACEPARENT_SIZE] = "untouched";

		memcpy(exact, tried[i].text, len); /* no NUL: nothing is read behind it */
		if (cb_traceparent_parse(exact, len, got) != (tried[i].taken != NULL))
			fail_msg("\"%s\"", tried[i].text);
		assert_string_equal(got, tried[i].taken != NULL ? tried[i].taken : "untouched");
		test_free(exact);
	}
}

static const char *of(const char *metadata)
{
	static char got[CB_TRACEPARENT_SIZE];

	cb_traceparent_of((struct cb_span){ metadata, strlen(metadata) }, got);
	return got;
}

static void test_metadata(void **state)
{
	static const char *const none[] = {
		"", "{}", "[]", "nonsense", "{\"traceparent\":\"" GOOD "\"}", "{\"cellblock\":\"" GOOD "\"}",
		"{\"cellblock\":null}", METADATA("null"), METADATA("5"), METADATA("[\"" GOOD "\"]"), METADATA("\"\""),
		METADATA("\"" GOOD "\\u0000\""), METADATA("\"" GOOD "\"") ",", METADATA("\"\\ud800\""),
	};
	static const char head[] = "{\"cellblock\":{\"traceparent\":\"01-" TRACE "-" SPAN "-01-";
	static char big[100000];

	(void)state;
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		if (of(none[i])[0] != '\0')
			fail_msg("%s", none[i]);
	assert_string_equal(of(METADATA("\"" GOOD "\"")), GOOD);
	assert_string_equal(of("{\"a\":1,\"cellblock\":{\"timeout\":5,\"traceparent\":\"\\u00300-" TRACE "-" SPAN
			       "-01\"},\"b\":[]}"),
			    GOOD);
	memset(big, 'a', sizeof(big) - 1); /* of a later version, and longer than any will be */
	memcpy(big, head, sizeof(head) - 1);
	memcpy(big + sizeof(big) - 4, "\"}}", 3);
	assert_string_equal(of(big), "");
	memcpy(big + 200, "\"}}", 4);
	assert_string_equal(of(big), GOOD);
}

/* ---- in the kernel ---- */

static char path[96];

static int open_log(void **state)
{
	snprintf(path, sizeof(path), "/tmp/traceparent.%d", (int)getpid());
	(void)unlink(path);
	(void)state;
	return 0;
}

static int close_log(void **state)
{
	struct rig *r = *state;

	if (r != NULL && r->k.records.audit != NULL)
		cb_audit_close(r->k.records.audit);
	if (r != NULL)
		r->k.records.audit = NULL;
	(void)unlink(path);
	return rig_teardown(state);
}

static struct rig *rig_with_log(void **state)
{
	struct rig *r = *state = rig_up();
	struct cb_err err = { 0 };

	if (cb_audit_open(path, "rig", &r->k.records.audit, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(cb_audit_start(r->k.records.audit), 0);
	return r;
}

/* How many lines of that event the log has, and how many of them carry GOOD. */
static void expect_lines(struct rig *r, const char *event, int lines, int traced)
{
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text, *rest, quoted[64];
	size_t len;

	cb_audit_close(r->k.records.audit); /* which writes what waits */
	r->k.records.audit = NULL;
	snprintf(quoted, sizeof(quoted), "\"event\":\"%s\"", event);
	assert_int_equal(cb_fd_read_all(fd, 1 << 20, &text, &len), 0);
	rest = text;
	for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
		if (strstr(line, quoted) == NULL)
			continue;
		lines--;
		traced -= strstr(line, "\"traceparent\":\"" GOOD "\"") != NULL;
		assert_true((strstr(line, "traceparent") == NULL) == (strstr(line, TRACE) == NULL));
	}
	free(text);
	assert_int_equal(lines, 0);
	assert_int_equal(traced, 0);
}

static const char *told(struct rig_msg *m)
{
	return json_string_value(rig_about(m, "traceparent"));
}

static void run_cell(struct rig *r, const char *metadata, const char *expected)
{
	const char *id = rig_send(r, RIG_SHELL, "execute_request", "{\"code\":\"1\"}", metadata);
	struct rig_request q = rig_guest_recv(r);

	assert_int_equal(q.h.type, CB_WIRE_EXECUTE);
	assert_null(strstr(q.metadata, "traceparent"));
	assert_null(strstr(q.metadata, TRACE));
	assert_null(strstr(q.content, TRACE));
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, q.h.request, RIG_OK);
	rig_request_free(&q);
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	if (expected == NULL)
		assert_null(told(&m));
	else
		assert_string_equal(told(&m), expected);
	assert_non_null(rig_about(&m, "usage"));
	rig_msg_free(&m);
}

static void test_cells(void **state)
{
	struct rig *r = rig_with_log(state);

	run_cell(r, METADATA("\"" GOOD "\""), GOOD);
	run_cell(r, NULL, NULL);
	run_cell(r, METADATA("\"" GOOD "0\""), NULL);
	run_cell(r, METADATA("[5]"), NULL);
	expect_lines(r, "cell", 4, 1);
}

static void test_cell_ends(void **state)
{
	struct rig *r = rig_with_log(state);

	run_cell(r, METADATA("\"" GOOD "\""), GOOD);
	run_cell(r, NULL, NULL);
	expect_lines(r, "cell_end", 2, 1);
}

/* A cell that takes Python with it: what the supervisor itself answers carries it, too. */
static void test_a_death(void **state)
{
	struct rig *r = rig_with_log(state);
	const char *id = rig_send(r, RIG_SHELL, "execute_request", "{\"code\":\"1\"}", METADATA("\"" GOOD "\""));

	(void)rig_guest_expect(r, CB_WIRE_EXECUTE);
	rig_die(r, 3 << 8);
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_string_equal(rig_text(&m, "ename"), "KernelDiedError");
	assert_string_equal(told(&m), GOOD);
	rig_msg_free(&m);
	expect_lines(r, "cell_end", 1, 1);
}

/* Replies without metadata of their own say it, also those that refuse. */
static void test_other_requests(void **state)
{
	static const struct {
		enum rig_source channel;
		const char *type, *reply;
	} tried[] = {
		{ RIG_CONTROL, "kernel_info_request", "kernel_info_reply" },
		{ RIG_SHELL, "execute_request", "execute_reply" }, /* malformed: no code */
		{ RIG_CONTROL, "cellblock_rollback_request", "cellblock_rollback_reply" },
	};
	struct rig *r = rig_with_log(state);

	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		const char *id = rig_send(r, tried[i].channel, tried[i].type, "{}", METADATA("\"" GOOD "\""));
		struct rig_msg m = rig_take(r, tried[i].channel, tried[i].reply, id);

		assert_string_equal(told(&m), GOOD);
		rig_msg_free(&m);
		id = rig_send(r, tried[i].channel, tried[i].type, "{}", METADATA("\"x\""));
		m = rig_take(r, tried[i].channel, tried[i].reply, id);
		assert_int_equal(json_object_size(m.metadata), 0);
		rig_msg_free(&m);
	}
	(void)rig_send(r, RIG_CONTROL, "cellblock_run_request", "{\"argv\":[\"a\"]}", METADATA("\"" GOOD "\""));
	(void)rig_send(r, RIG_CONTROL, "cellblock_run_request", "{\"argv\":[\"a\"]}", NULL);
	rig_expect(r, RIG_CONTROL, "kernel_info_reply", rig_send(r, RIG_CONTROL, "kernel_info_request", "{}", NULL));
	expect_lines(r, "request", 2, 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_log, close_log)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse), cmocka_unit_test(test_metadata),
		T(test_cells), T(test_cell_ends), T(test_a_death), T(test_other_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
