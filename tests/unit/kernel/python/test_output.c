/* Output alone: it goes out under the parent that is known for its id, within that one's limit, and in the order in
 * which it was written. The test is who publishes. */
#include "python/output.h"

#include <cellblock/error.h>
#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "jupyter/iopub.h"
#include "policy/policy.h"
#include "records/audit_events.h"

#define PARENTS 8
#define NOTICE "\n[cellblock: limits.output = "

static struct cb_guest_parent parent[PARENTS];
static struct cb_policy policy;
static struct cb_comms comms;
static struct cb_output out;
static struct cb_header header[3];
static int theirs[2]; /* the other ends of fds 1 and 2 */

static char text[1 << 20]; /* what was published as text, */
static size_t text_len, texts;
static unsigned stream;
static const struct cb_header *under;
static char trace[256]; /* and all of it, a word each */
static struct cb_span content;
static enum cb_weight weight;
static unsigned limits, listed;
static bool known;	       /* the comm is */
static const char *more_comes; /* a child that writes again as soon as it can */

static void expect(const char *what)
{
	assert_string_equal(trace, what);
	trace[0] = '\0';
}

static void did(const char *what)
{
	size_t n = strlen(trace);

	snprintf(trace + n, sizeof(trace) - n, "%s ", what);
}

struct cb_header *cb_header_ref(struct cb_header *h)
{
	h->refs++;
	return h;
}

void cb_header_unref(struct cb_header *h)
{
	if (h != NULL)
		h->refs--;
}

void cb_iopub_text(struct cb_jupyter *jp, struct cb_header *h, unsigned to, const void *data, size_t len)
{
	(void)jp;
	assert_true(text_len + len < sizeof(text) && len > 0);
	memcpy(text + text_len, data, len);
	text_len += len;
	text[text_len] = '\0';
	texts++;
	stream = to;
	under = h;
	did(strncmp(data, NOTICE, strlen(NOTICE)) == 0 ? "notice" : "text");
	if (more_comes != NULL)
		assert_true(write(theirs[0], more_comes, strlen(more_comes)) > 0);
}

void cb_iopub_publish(struct cb_jupyter *jp, const char *topic, enum cb_weight of, const struct cb_outgoing *o)
{
	(void)jp;
	assert_string_equal(topic, o->type);
	content = o->content;
	weight = of;
	did(topic);
}

void cb_audit_limit(struct cb_records *rec, const char *key)
{
	(void)rec;
	assert_string_equal(key, "limits.output");
	limits++;
}

int cb_comms_opened(struct cb_comms *c, struct cb_span id, struct cb_span target)
{
	assert_ptr_equal(c, &comms);
	assert_true(cb_span_is(id, "\"c\"") && cb_span_is(target, "\"t\""));
	listed++;
	return known ? CB_E_TOO_BIG : 0;
}

bool cb_comms_closed(struct cb_comms *c, struct cb_span id)
{
	assert_true(c == &comms && cb_span_is(id, "\"c\""));
	return known;
}

static int set_up(void **state)
{
	(void)state;
	memset(parent, 0, sizeof(parent));
	memset(&policy, 0, sizeof(policy));
	cb_output_init(&out, parent, PARENTS, &comms, NULL, NULL, &policy);
	for (int i = 0; i < 2; i++) {
		int fd[2];

		assert_int_equal(pipe2(fd, O_CLOEXEC | O_NONBLOCK), 0);
		out.out[i] = fd[0];
		theirs[i] = fd[1];
	}
	for (size_t i = 0; i < 3; i++) {
		header[i] = (struct cb_header){ .refs = 1 };
		cb_output_remember(&out, i + 1, &header[i]);
	}
	out.background = 3;
	text_len = texts = limits = listed = 0;
	trace[0] = text[0] = '\0';
	known = comms.full = false;
	more_comes = NULL;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		cb_fd_close(&out.out[i]);
		cb_fd_close(&theirs[i]);
	}
	return 0;
}

static void says(uint64_t id, const char *what)
{
	static char block[128];
	static struct cb_frame f;
	const struct cb_guest_content none = { 0 };

	snprintf(block, sizeof(block), "%s", what);
	f.header = (struct cb_wire_header){
		.type = CB_WIRE_STREAM, .request = id, .flags = CB_WIRE_STDERR, .content_len = (uint32_t)strlen(what)
	};
	f.content = block;
	assert_true(cb_output_frame(&out, &f, &none));
}

/* `len` bytes of content, all but an object's braces blank. */
static struct cb_frame *frame(uint32_t type, uint64_t id, size_t len)
{
	static char block[CB_FRAME_HEADROOM + 2 * CB_WIRE_SMALL];
	static struct cb_frame f;

	memset(block, ' ', sizeof(block));
	f = (struct cb_frame){ .header = { .type = type, .request = id, .content_len = (uint32_t)len },
			       .content = block + CB_FRAME_HEADROOM };
	f.content[0] = '{';
	f.content[len - 1] = '}';
	return &f;
}

static bool takes(uint32_t type, size_t len)
{
	const struct cb_guest_content c = { .comm_id = CB_SPAN("\"c\""), .target_name = CB_SPAN("\"t\"") };

	return cb_output_frame(&out, frame(type, 1, len), &c);
}

static void writes(int i, const char *what)
{
	assert_int_equal(write(theirs[i], what, strlen(what)), strlen(what));
}

static void test_parents(void **state)
{
	(void)state;
	assert_ptr_equal(cb_output_parent(&out, 2)->header, &header[1]);
	assert_ptr_equal(cb_output_parent(&out, 0)->header, &header[2]); /* the latest cell's */
	assert_ptr_equal(cb_output_parent(&out, 2 + PARENTS)->header, &header[2]); /* not known */
	assert_int_equal(header[1].refs, 2);
	parent[2].output_bytes = 5;
	cb_output_remember(&out, 2 + PARENTS, &header[0]);
	assert_true(header[1].refs == 1 && header[0].refs == 3);
	assert_int_equal(cb_output_parent(&out, 2 + PARENTS)->output_bytes, 0);
	assert_ptr_equal(cb_output_parent(&out, 2)->header, &header[2]); /* forgotten */
	cb_output_remember(&out, 1, &header[0]); /* the same again */
	assert_int_equal(header[0].refs, 3);
	cb_output_forget(&out);
	cb_output_forget(&out);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(header[i].refs, 1);
	assert_null(cb_output_parent(&out, 1)->header);
}

static void test_limit(void **state)
{
	(void)state;
	policy.limit_output = 10;
	says(1, "12345");
	says(1, "67890");
	expect("text text ");
	assert_true(under == &header[0] && stream == CB_WIRE_STDERR);
	says(1, "1");
	says(1, "2");
	expect("notice "); /* once */
	assert_int_equal(limits, 1);
	assert_non_null(strstr(text, "limits.output = 10 bytes"));
	text_len = 0;
	says(2, "12345678\xc3\xa4\xc3\xa4"); /* what fits, whole characters; each has a limit of its own */
	expect("text notice ");
	assert_memory_equal(text, "12345678\xc3\xa4\n[", 12);
	text_len = 0;
	says(3, "123456789\xc3\xa4");
	assert_memory_equal(text, "123456789\n[", 11);
	assert_int_equal(limits, 3);
	trace[0] = '\0';
	policy.limit_output = 0; /* none */
	says(1, "more");
	expect("text ");
}

static void test_pipes(void **state)
{
	(void)state;
	assert_int_equal(cb_output_read(&out, 0), 0);
	writes(0, "a\xe2\x82"); /* half a character waits for the rest */
	assert_int_equal(cb_output_read(&out, 0), 1);
	assert_string_equal(text, "a");
	assert_true(stream == CB_WIRE_STDOUT && under == &header[2]);
	writes(1, "b"); /* and is not mixed with the other's */
	assert_int_equal(cb_output_read(&out, 1), 1);
	assert_int_equal(stream, CB_WIRE_STDERR);
	writes(0, "\xac");
	assert_int_equal(cb_output_read(&out, 0), 1);
	assert_string_equal(text, "ab\xe2\x82\xac");
	assert_string_equal(out.last, text);
	writes(0, "\xf0");
	assert_int_equal(cb_output_read(&out, 0), 1);
	expect("text text text ");
	writes(0, "\x80\x80\x80\x80\x80"); /* no character is that long: it is not held back */
	assert_int_equal(cb_output_read(&out, 0), 1);
	expect("text ");
	cb_fd_close(&theirs[0]);
	assert_true(cb_output_read(&out, 0) < 0);
	cb_output_drain(&out);
	expect("");
}

/* The last that came, for the words of an end. */
static void test_last(void **state)
{
	char all[4 * CB_OUTPUT_LAST + 1] = { 0 };

	(void)state;
	for (size_t i = 0; i < 40; i++) {
		char piece[CB_OUTPUT_LAST + 100] = { 0 };
		size_t n = strlen(all), len = i == 39 ? sizeof(piece) - 1 : i % 29 + 1;

		memset(piece, 'a' + (int)(i % 26), len);
		piece[len - 1] = '.';
		if (n + len > sizeof(all) - 1) {
			memmove(all, all + len, n - len + 1);
			n -= len;
		}
		memcpy(all + n, piece, len + 1);
		n += len;
		writes(0, piece);
		assert_int_equal(cb_output_read(&out, 0), 1);
		assert_string_equal(out.last, all + (n > CB_OUTPUT_LAST ? n - CB_OUTPUT_LAST : 0));
	}
}

/* What was there before comes before, and no more: a child that writes for ever holds up nothing. */
static void test_drain(void **state)
{
	static char much[200000];

	(void)state;
	writes(0, "first");
	writes(1, "first");
	assert_true(takes(CB_WIRE_DISPLAY_DATA, 10));
	expect("text text display_data ");
	memset(much, 'x', sizeof(much));
	assert_true(fcntl(theirs[0], F_SETPIPE_SZ, 1 << 20) > 0);
	assert_int_equal(write(theirs[0], much, sizeof(much)), sizeof(much));
	cb_output_drain(&out);
	assert_int_equal(text_len, 10 + sizeof(much));
	texts = 0;
	more_comes = "again";
	writes(0, "again");
	cb_output_drain(&out);
	assert_int_equal(texts, 1);
	more_comes = NULL;
	cb_output_drain(&out);
	assert_int_equal(texts, 2);
}

static void test_frames(void **state)
{
	static const struct {
		uint32_t type;
		const char *topic;
	} type[] = { { CB_WIRE_DISPLAY_DATA, "display_data " },
		     { CB_WIRE_UPDATE_DISPLAY_DATA, "update_display_data " },
		     { CB_WIRE_CLEAR_OUTPUT, "clear_output " },
		     { CB_WIRE_UP_COMM_MSG, "comm_msg " },
		     { CB_WIRE_UP_COMM_OPEN, "comm_open " },
		     { CB_WIRE_UP_COMM_CLOSE, "comm_close " } };

	(void)state;
	policy.limit_output = 100;
	for (size_t i = 0; i < CB_COUNT(type); i++) {
		assert_true(takes(type[i].type, 10));
		expect(type[i].topic);
		assert_true(content.len == 10 && weight == CB_WEIGHT_DATA);
	}
	assert_int_equal(parent[1].output_bytes, 60);
	assert_false(takes(CB_WIRE_EXECUTE_REPLY, 10)); /* no output */
	assert_int_equal(parent[1].output_bytes, 60);
	assert_int_equal(listed, 1);
	known = true; /* there are too many */
	assert_true(takes(CB_WIRE_UP_COMM_OPEN, 10) && comms.full);
	known = false;
	expect("comm_open ");
	assert_true(takes(CB_WIRE_DISPLAY_DATA, 31));
	expect("notice ");
	for (size_t i = 0; i < CB_COUNT(type); i++)
		assert_true(takes(type[i].type, 10)); /* taken, and dropped */
	expect("");
	assert_int_equal(listed, 2); /* nobody hears of it: it is not listed */
	known = true;
	assert_true(takes(CB_WIRE_UP_COMM_CLOSE, 10)); /* that clients know of */
	expect("comm_close ");
}

static void test_results(void **state)
{
	(void)state;
	policy.limit_output = 5;
	says(1, "123456");
	expect("text notice ");
	/* the first small one is no flood */
	cb_output_result(&out, frame(CB_WIRE_EXECUTE_RESULT, 1, CB_WIRE_SMALL), 7);
	expect("execute_result ");
	assert_true(weight == CB_WEIGHT_KEEP && strncmp(content.data, "{\"execution_count\":7, ", 22) == 0);
	cb_output_result(&out, frame(CB_WIRE_EXECUTE_RESULT, 1, 10), 7);
	expect("");
	cb_output_result(&out, frame(CB_WIRE_EXECUTE_RESULT, 2, CB_WIRE_SMALL + 1), 7);
	expect("notice ");
	cb_output_error(&out, frame(CB_WIRE_ERROR, 1, 10), false);
	expect("");
	cb_output_error(&out, frame(CB_WIRE_ERROR, 1, 10), true); /* how a cell ends */
	expect("error ");
	policy.limit_output = 0;
	cb_output_result(&out, frame(CB_WIRE_EXECUTE_RESULT, 2, CB_WIRE_SMALL + 1), 7);
	expect("execute_result ");
	assert_int_equal(weight, CB_WEIGHT_DATA); /* may be given up when nobody reads */
	cb_output_error(&out, frame(CB_WIRE_ERROR, 2, CB_WIRE_SMALL), false);
	assert_int_equal(weight, CB_WEIGHT_KEEP);
}

/* Within the room in front of a frame, whatever the number is. */
static void test_count(void **state)
{
	static const int64_t number[] = { 0, 1, INT_MAX, INT_MIN };

	(void)state;
	for (size_t i = 0; i < CB_COUNT(number); i++) {
		struct cb_frame *f = frame(CB_WIRE_EXECUTE_RESULT, 1, 7);
		char wanted[64];

		memcpy(f->content, "{\"a\":1}", 7);
		snprintf(wanted, sizeof(wanted), "{\"execution_count\":%d,\"a\":1}", (int)number[i]);
		struct cb_span s = cb_frame_with_count(f, number[i]);

		assert_true(cb_span_is(s, wanted));
		assert_true(s.data >= f->content - CB_FRAME_HEADROOM);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(parents), TEST(limit),	 TEST(pipes),	TEST(last),
					    TEST(drain),   TEST(frames), TEST(results), TEST(count) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
