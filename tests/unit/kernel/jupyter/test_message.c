/* Splitting and building of messages: identities, missing frames, too many frames, headers, dates. */
#include "jupyter/message.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#define HEADER "{\"msg_id\":\"m\",\"msg_type\":\"t_request\",\"session\":\"s\",\"date\":\"2026-01-31T12:34:56.5Z\"}"

static zmq_msg_t frame[CB_MAX_FRAMES + 8];

static void put(zmq_msg_t *f, struct cb_span s)
{
	zmq_msg_init_size(f, s.len);
	if (s.len > 0)
		memcpy(zmq_msg_data(f), s.data, s.len);
}

static void put_text(zmq_msg_t *f, const char *text)
{
	put(f, (struct cb_span){ text, strlen(text) });
}

/* A message with `nident` identities and `nbuffers` buffers, of which only the first `keep` frames are kept. */
static size_t build(size_t nident, const char *header, size_t nbuffers, size_t keep)
{
	size_t n = 0, total = nident + 6 + nbuffers;

	for (size_t i = 0; i < total; i++, n++) {
		size_t at = i - nident;

		if (i >= keep)
			break;
		put_text(&frame[n], i < nident ? "ident"
				    : at == 0  ? "<IDS|MSG>"
				    : at == 1  ? ""
				    : at == 2  ? header
				    : at < 6   ? "{}"
					       : "buffer");
	}
	return n;
}

static int parse(size_t n, struct cb_request **ret)
{
	struct cb_auth *a = NULL;
	const char *reason = NULL;

	assert_int_equal(cb_auth_new("sha256", "", 0, &a), 0);
	int r = cb_request_from_frames(a, CB_SHELL, frame, n, ret, &reason);

	cb_auth_free(a);
	if (r < 0)
		assert_true(reason != NULL && reason[0] != '\0');
	return r;
}

static void test_identities_and_buffers(void **state)
{
	(void)state;
	for (size_t nident = 0; nident <= CB_MAX_IDENTITIES + 1; nident++) {
		for (size_t nbuffers = 0; nbuffers < 3; nbuffers++) {
			struct cb_request *q = NULL;
			int r = parse(build(nident, HEADER, nbuffers, SIZE_MAX), &q);

			if (nident > CB_MAX_IDENTITIES) {
				assert_int_equal(r, CB_E_SYNTAX);
				continue;
			}
			assert_int_equal(r, 0);
			assert_int_equal(q->nident, nident);
			assert_int_equal(q->nframes - q->first_buffer, nbuffers);
			assert_string_equal(q->type, "t_request");
			assert_true(cb_span_is(q->session, "\"s\""));
			assert_true(cb_span_is(q->content, "{}"));
			assert_true(cb_span_is(cb_header_span(q->header), HEADER));
			cb_request_free(q);
		}
	}
}

static void test_missing_frames(void **state)
{
	struct cb_request *q = NULL;

	(void)state;
	for (size_t keep = 0; keep < 8; keep++)
		assert_int_equal(parse(build(2, HEADER, 0, keep), &q), CB_E_SYNTAX);
	put_text(&frame[0], "<IDS|MSG> "); /* nearly a delimiter */
	assert_int_equal(parse(1, &q), CB_E_SYNTAX);
	assert_null(q);
}

/* Those who send them on have room for CB_MAX_BUFFERS. */
static void test_buffer_count(void **state)
{
	struct cb_request *q = NULL;

	(void)state;
	for (size_t nident = 0; nident <= 2; nident++) {
		assert_int_equal(parse(build(nident, HEADER, CB_MAX_BUFFERS, SIZE_MAX), &q), 0);
		cb_request_free(q);
		assert_int_equal(parse(build(nident, HEADER, CB_MAX_BUFFERS + 1, SIZE_MAX), &q), CB_E_TOO_BIG);
	}
}

static void test_headers(void **state)
{
	static const struct {
		const char *header;
		int code;
	} tried[] = {
		{ "{\"msg_id\":\"\",\"msg_type\":\"t\"}", 0 },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"\\u0074\"}", 0 },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"t\",\"date\":null,\"session\":null,\"subshell_id\":null}", 0 },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"t\",\"date\":5,\"session\":[1]}", 0 },
		{ "", -1 },
		{ "{}", -1 },
		{ "[]", -1 },
		{ "null", -1 },
		{ "{\"msg_id\":\"m\"}", -1 },
		{ "{\"msg_type\":\"t\"}", -1 },
		{ "{\"msg_id\":1,\"msg_type\":\"t\"}", -1 },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"\"}", -1 },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"a\\u0000b\"}", -1 },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"t\",\"subshell_id\":1}", -1 },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"t\",\"msg_type\":\"u\"}", -1 },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"t\"}x", -1 },
		{ "{\"msg_id\":\"\xff\",\"msg_type\":\"t\"}", -1 },
		/* the type is written into the header of the reply */
		{ "{\"msg_id\":\"m\",\"msg_type\":\"a\\\"b_request\"}", -1 },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"a\\\\_request\"}", -1 },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"a\\n_request\"}", -1 },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"012345678901234567890123456789012345678901234567890123456789012\"}",
		  0 },
		{ "{\"msg_id\":\"m\",\"msg_type\":"
		  "\"0123456789012345678901234567890123456789012345678901234567890123\"}",
		  -1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		struct cb_request *q = NULL;
		int r = parse(build(1, tried[i].header, 0, SIZE_MAX), &q);

		if ((r < 0) != (tried[i].code < 0))
			fail_msg("%s: %d", tried[i].header, r);
		if (r == 0)
			assert_true(isnan(q->date));
		cb_request_free(q);
	}
}

static void test_dates_of_whole_seconds(void **state)
{
	static const struct {
		const char *header;
		bool whole;
	} tried[] = {
		{ "{\"msg_id\":\"m\",\"msg_type\":\"t\",\"date\":\"2026-01-31T12:34:56\"}", true },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"t\",\"date\":\"2026-01-31T12:34:56+0100\"}", true },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"t\",\"date\":\"2026-01-31T12:34:56.000Z\"}", false },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"t\",\"date\":\"2026-01-31T12:34:56,000Z\"}", false },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"t\",\"date\":\"now\"}", false },
		{ "{\"msg_id\":\"m\",\"msg_type\":\"t\"}", false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		struct cb_request *q = NULL;

		assert_int_equal(parse(build(1, tried[i].header, 0, SIZE_MAX), &q), 0);
		assert_int_equal(q->date_is_whole, tried[i].whole);
		cb_request_free(q);
	}
}

static void test_header_size(void **state)
{
	static char header[CB_HEADER_MAX + 2];
	static const char head[] = "{\"msg_id\":\"m\",\"msg_type\":\"t\",\"x\":\"";
	struct cb_request *q = NULL;

	(void)state;
	memset(header, 'a', CB_HEADER_MAX + 1);
	memcpy(header, head, sizeof(head) - 1);
	memcpy(header + CB_HEADER_MAX - 2, "\"}", 3);
	assert_int_equal(parse(build(1, header, 0, SIZE_MAX), &q), 0);
	cb_request_free(q);
	memcpy(header + CB_HEADER_MAX - 2, "a\"}", 4);
	assert_int_equal(parse(build(1, header, 0, SIZE_MAX), &q), CB_E_TOO_BIG);
}

static double date(const char *text)
{
	return cb_date_parse(text, strlen(text));
}

static void test_dates(void **state)
{
	static const char *const none[] = {
		"",
		"2026",
		"2026-01-31",
		"2026-01-31T",
		"2026-13-31T00:00:00Z",
		"2026-00-31T00:00:00Z",
		"2026-01-32T00:00:00Z",
		"2026-01-00T00:00:00Z",
		"2026-01-31T12:34:56+1",
		"2026-01-31T12:34:56ZZ",
		"2026-01-31T12:34:56 Z",
		"yesterday",
		"2026-01-31T12:34:5",
		"-026-01-31T12:34:56Z",
	};
	const double t = 1769862896;
	char text[28];

	(void)state;
	assert_true(date("2026-01-31T12:34:56Z") == t);
	assert_true(date("2026-01-31 12:34:56") == t);
	assert_true(date("2026-01-31t12:34:56.000000z") == t);
	assert_true(date("2026-01-31T14:34:56+02:00") == t);
	assert_true(date("2026-01-31T14:34:56+0200") == t);
	assert_true(date("2026-01-31T07:04:56-05:30") == t);
	assert_true(fabs(date("2026-01-31T12:34:56.123456Z") - t - 0.123456) < 1e-6);
	assert_true(fabs(date("2026-01-31T12:34:56,5") - t - 0.5) < 1e-6);
	assert_true(!isnan(date("2026-01-31T12:34:60Z"))); /* a leap second */
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		if (!isnan(date(none[i])))
			fail_msg("%s: %f", none[i], date(none[i]));
	for (size_t len = 0; len < 19; len++) /* never past the end */
		assert_true(isnan(cb_date_parse("2026-01-31T12:34:56Z", len)));
	cb_date_format(t + 0.25, text);
	assert_string_equal(text, "2026-01-31T12:34:56.250000Z");
	cb_date_format(t + 0.9999999, text);
	assert_int_equal(strlen(text), 27);
	assert_true(fabs(date(text) - t - 0.9999999) < 2e-6);
}

static json_t *json_of(zmq_msg_t *f)
{
	return json_loadb(zmq_msg_data(f), zmq_msg_size(f), 0, NULL);
}

static void test_outgoing(void **state)
{
	struct cb_session session;
	struct cb_auth *a = NULL;
	struct cb_span buffers[2] = { CB_SPAN("one"), CB_SPAN("") };
	struct cb_outgoing out = { .type = "stream",
				   .parent = CB_SPAN("{\"msg_id\" : \"m\"}"),
				   .metadata = CB_SPAN("{}"),
				   .content = CB_SPAN("{ }"),
				   .buffers = buffers,
				   .nbuffers = 2 };
	char last[64] = "";

	(void)state;
	assert_int_equal(cb_session_init(&session, NULL), 0);
	assert_int_equal(strlen(session.id), 36);
	assert_int_equal(cb_auth_new("sha256", "k", 1, &a), 0);
	for (unsigned round = 0; round < 3; round++) {
		size_t n = 0;

		assert_int_equal(cb_outgoing_frames(&session, a, &out, frame, &n), 0);
		assert_int_equal(n, 8);
		struct cb_span part[4];
		json_t *header = json_of(&frame[2]);

		for (size_t i = 0; i < 4; i++)
			part[i] = cb_frame_span(&frame[2 + i]);
		assert_true(cb_span_is(cb_frame_span(&frame[0]), "<IDS|MSG>"));
		assert_int_equal(cb_auth_verify(a, part, cb_frame_span(&frame[1])), 0);
		assert_string_equal(json_string_value(json_object_get(header, "msg_type")), "stream");
		assert_string_equal(json_string_value(json_object_get(header, "session")), session.id);
		assert_string_not_equal(json_string_value(json_object_get(header, "msg_id")), last);
		snprintf(last, sizeof(last), "%s", json_string_value(json_object_get(header, "msg_id")));
		assert_true(date(json_string_value(json_object_get(header, "date"))) > 1e9);
		assert_true(cb_span_is(part[1], "{\"msg_id\" : \"m\"}"));
		assert_true(cb_span_is(part[3], "{ }"));
		assert_true(cb_span_is(cb_frame_span(&frame[6]), "one"));
		assert_int_equal(zmq_msg_size(&frame[7]), 0);
		json_decref(header);
		for (size_t i = 0; i < n; i++)
			zmq_msg_close(&frame[i]);
	}
	cb_auth_free(a);
}

/* A big content is shared with its frame, and counted as long as the frame lives. */
static void test_shared_body(void **state)
{
	struct cb_session session;
	struct cb_auth *a = NULL;
	struct cb_body *body = cb_body_new(1u << 20);
	size_t n = 0;

	(void)state;
	assert_int_equal(cb_session_init(&session, NULL), 0);
	assert_int_equal(cb_auth_new("sha256", "", 0, &a), 0);
	memset(body->data, ' ', body->size);
	struct cb_outgoing out = { .type = "display_data",
				   .parent = CB_SPAN("{}"),
				   .metadata = CB_SPAN("{}"),
				   .content = { (char *)body->data + 10, body->size - 10 },
				   .content_body = body };

	assert_int_equal(cb_bodies_in_flight(), 0);
	assert_int_equal(cb_outgoing_frames(&session, a, &out, frame, &n), 0);
	assert_int_equal(cb_bodies_in_flight(), body->size - 10);
	assert_ptr_equal(zmq_msg_data(&frame[5]), body->data + 10);
	cb_body_unref(body); /* the frame keeps it */
	assert_int_equal(((char *)zmq_msg_data(&frame[5]))[1000], ' ');
	for (size_t i = 0; i < n; i++)
		zmq_msg_close(&frame[i]);
	assert_int_equal(cb_bodies_in_flight(), 0);
	cb_body_unref(NULL);
	cb_auth_free(a);
}

static size_t counted(struct cb_outgoing *out)
{
	struct cb_session session;
	struct cb_auth *a = NULL;
	size_t n = 0, bytes;

	out->type = "comm_msg";
	out->parent = CB_SPAN("{}");
	assert_int_equal(cb_session_init(&session, NULL), 0);
	assert_int_equal(cb_auth_new("sha256", "", 0, &a), 0);
	assert_int_equal(cb_outgoing_frames(&session, a, out, frame, &n), 0);
	bytes = cb_bodies_in_flight();
	for (size_t i = 0; i < n; i++)
		zmq_msg_close(&frame[i]);
	assert_int_equal(cb_bodies_in_flight(), 0);
	cb_auth_free(a);
	return bytes;
}

/* So is what was copied, where all together is much. */
static void test_copies_are_counted(void **state)
{
	struct cb_body *body = cb_body_new(1u << 20);
	struct cb_span all = { (char *)body->data, body->size }, buffers[1000];
	const size_t overhead = 1006 * CB_FRAME_BYTES + 1000; /* at most */
	size_t n;

	(void)state;
	memset(body->data, ' ', body->size);
	struct cb_outgoing out = { .metadata = all, .content = CB_SPAN("{}") };

	n = counted(&out);
	assert_true(n >= body->size && n <= body->size + overhead);
	out.metadata_body = body; /* shared: by itself */
	assert_int_equal(counted(&out), body->size);
	out = (struct cb_outgoing){ .metadata = CB_SPAN("{}"), .content = all };
	n = counted(&out);
	assert_true(n >= body->size && n <= body->size + overhead);
	out.content = CB_SPAN("{}");
	out.buffers = buffers;
	out.nbuffers = 1000;
	out.buffers_body = body;
	for (size_t i = 0; i < 1000; i++)
		buffers[i] = (struct cb_span){ (char *)body->data, 16000 };
	n = counted(&out);
	assert_true(n >= 16000000 && n <= 16000000 + overhead);
	buffers[999] = all; /* the last frame is shared and counts the others, too */
	n = counted(&out);
	assert_true(n >= 999 * 16000 + body->size && n <= 999 * 16000 + body->size + overhead);
	out.nbuffers = 3;
	assert_int_equal(counted(&out), 0); /* small */
	cb_body_unref(body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_identities_and_buffers),
		cmocka_unit_test(test_missing_frames),
		cmocka_unit_test(test_buffer_count),
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_dates_of_whole_seconds),
		cmocka_unit_test(test_header_size),
		cmocka_unit_test(test_dates),
		cmocka_unit_test(test_outgoing),
		cmocka_unit_test(test_shared_body),
		cmocka_unit_test(test_copies_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
