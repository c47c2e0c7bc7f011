/* Questions of a cell to its client, alone: each ends with one answer, whatever the client sends. */
#include "shells/stdin.h"

#include <cellblock/error.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "jupyter/jupyter.h"
#include "shells/shell.h"

static struct cb_jupyter jupyter;
static struct cb_shells all;
static struct cb_request cell;
static struct cb_calls calls;
static struct cb_header header = { .refs = 1 };
static struct cb_shell *const s = &all.execution.shell;

static char trace[256];
static char given[1024]; /* to Python */
static int calls_asked, sent, answered, refused;

static void did(const char *what)
{
	size_t n = strlen(trace);

	snprintf(trace + n, sizeof(trace) - n, "%s ", what);
}

static void expect(const char *what, const char *answer)
{
	assert_string_equal(trace, what);
	assert_string_equal(given, answer);
	trace[0] = given[0] = '\0';
}

int cb_calls_ask(struct cb_tools *tools, struct cb_calls *c, struct cb_span metadata, struct cb_buf *out,
		 const char **ret_reason)
{
	assert_true(tools == &jupyter.tools && c == cell.calls);
	*ret_reason = "bad calls";
	return calls_asked < 0 ? calls_asked : cb_buf_append(out, metadata.data, metadata.len);
}

int cb_calls_answer(struct cb_tools *tools, struct cb_calls *c, struct cb_span value, struct cb_buf *out)
{
	assert_true(tools == &jupyter.tools && c == &calls);
	return answered < 0 ? answered : cb_buf_append(out, value.data, value.len);
}

int cb_calls_refuse(struct cb_calls *c, struct cb_buf *out, const char *what, const char *reason)
{
	assert_ptr_equal(c, &calls);
	return refused < 0 ? refused : cb_buf_printf(out, "%s%s", what, reason);
}

void cb_calls_over(struct cb_calls *c)
{
	assert_int_equal(c->asked, 1);
	c->asked = 0;
	did("over");
}

void cb_channels_drain_stdin(struct cb_jupyter *jp)
{
	assert_ptr_equal(jp, &jupyter);
	did("drain");
}

int cb_channels_send(struct cb_jupyter *jp, enum cb_channel channel, const struct cb_request *to,
		     const struct cb_outgoing *out)
{
	assert_true(jp == &jupyter && channel == CB_STDIN && to == &cell && out->parent.data == header.data);
	assert_string_equal(out->type, "input_request");
	assert_true(cb_span_is(out->content, "{\"prompt\":\"\"}"));
	did("asks");
	return sent;
}

void cb_iopub_text(struct cb_jupyter *jp, struct cb_header *parent, unsigned stream, const void *text, size_t len)
{
	assert_true(jp == &jupyter && parent == &header && stream == CB_WIRE_STDERR);
	assert_true(len > 0 && ((const char *)text)[len - 1] != '\0');
	did("notice");
}

void cb_shell_input(struct cb_shell *to, struct cb_span content)
{
	assert_ptr_equal(to, s);
	assert_string_equal(given, ""); /* once */
	snprintf(given, sizeof(given), "%.*s", (int)content.len, content.data);
	did("input");
}

static int set_up(void **state)
{
	(void)state;
	memset(&all, 0, sizeof(all));
	all.jupyter = &jupyter;
	s->all = &all;
	s->current = &cell;
	cell = (struct cb_request){ .header = &header };
	calls = (struct cb_calls){ .asked = 1 };
	calls_asked = sent = answered = refused = 0;
	trace[0] = given[0] = '\0';
	return 0;
}

static int ask(const char *metadata)
{
	static char content[] = "{\"prompt\":\"\"}";
	static struct cb_frame f;
	const char *reason = NULL;

	f.header = (struct cb_wire_header){ .content_len = sizeof(content) - 1 };
	f.content = content;
	f.metadata = (struct cb_span){ metadata, strlen(metadata) };
	int r = cb_stdin_ask(s, &f, &reason);

	assert_true(r >= 0 || reason != NULL);
	return r;
}

static void answer(const char *content)
{
	const struct cb_request r = { .content = { content, strlen(content) } };

	cb_stdin_answer(s, &r);
}

static void test_asks(void **state)
{
	(void)state;
	assert_int_equal(ask("{\"question\":12}"), 0);
	expect("drain asks ", ""); /* replies that nobody waits for are gone first */
	assert_int_equal(s->question, 12);
	assert_int_equal(ask("{}"), 0);
	assert_int_equal(s->question, 0); /* it has none, and not the last one's */
	sent = -EAGAIN;
	assert_int_equal(ask("{}"), CB_STDIN_NOBODY);
	expect("drain asks drain asks ", "");
	assert_int_equal(s->unsent.again_at, 0);
}

static void look(int64_t now, const char *what, const char *answer)
{
	cb_stdin_look(s, now);
	expect(what, answer);
}

/* Its stdin may be connected in a moment: the same question goes out again, once. */
static void test_on_its_way(void **state)
{
	(void)state;
	sent = -EHOSTUNREACH;
	assert_int_equal(ask("{\"question\":3}"), 0);
	expect("drain asks ", "");
	s->asked_at = 1;
	int64_t again = s->unsent.again_at, until = s->unsent.until;

	assert_true(again > 0 && again < until);
	look(again - 1, "", "");
	look(again, "drain asks ", "");
	look(again, "", ""); /* its next time is later */
	sent = 0;
	look(until - 1, "drain asks ", "");
	look(until + 1, "", "");
	assert_int_equal(s->unsent.again_at, 0);
	sent = -EHOSTUNREACH;
	for (int i = 0; i < 3; i++) { /* another question, an answer, or none: it is not sent again */
		assert_int_equal(ask("{\"question\":4}"), 0);
		expect("drain asks ", "");
		s->asked_at = i == 1 ? 0 : 1;
		if (i == 2)
			cb_stdin_forget(s);
		if (i > 0)
			look(s->unsent.until + 1, "", "");
	}
	assert_true(s->unsent.content.data == NULL && s->unsent.metadata.data == NULL);
}

/* It has gone: input() ends, once. */
static void test_does_not_come(void **state)
{
	static const int code[] = { -EHOSTUNREACH, -EAGAIN };

	(void)state;
	for (size_t i = 0; i < CB_COUNT(code); i++) {
		sent = -EHOSTUNREACH;
		assert_int_equal(ask("{}"), 0);
		s->asked_at = 1;
		sent = code[i];
		look(s->unsent.until, "drain asks drain asks input ", "{\"status\":\"ok\",\"value\":\"\\u0004\"}");
		look(s->unsent.until, "", "");
		assert_int_equal(s->unsent.again_at, 0);
	}
}

/* A broken rule: nobody is asked. */
static void test_refused_question(void **state)
{
	(void)state;
	assert_true(ask("{\"question\":9223372036854775808}") < 0);
	assert_true(ask("{\"question\":\"1\"}") < 0);
	assert_true(ask("{\"question\":1.5}") < 0);
	calls_asked = CB_E_DENIED;
	assert_int_equal(ask("{}"), CB_E_DENIED);
	expect("", "");
}

static void test_answers(void **state)
{
	(void)state;
	answer("{\"value\":\"a\",\"more\":1}");
	expect("input ", "{\"value\":\"a\",\"more\":1}");
	cell.calls = &calls;
	calls.asked = 0; /* it may call tools, but it is input() that waits */
	answer("{\"value\":\"b\"}");
	expect("input ", "{\"value\":\"b\"}");
	calls.asked = 1;
	answer("{\"value\":\"c\"}");
	expect("over input ", "\"c\"");
}

/* The client takes its question for answered: input() must not wait for another. */
static void test_no_answer(void **state)
{
	static const char *const bad[] = { "{}", "{\"value\":1}", "{\"value\":\"a\"", "[]", "" };

	(void)state;
	for (size_t i = 0; i < CB_COUNT(bad); i++) {
		answer(bad[i]);
		expect("notice input ", "{\"status\":\"ok\",\"value\":\"\\u0004\"}");
	}
	cb_stdin_too_large(s);
	expect("notice input ", "{\"status\":\"ok\",\"value\":\"\\u0004\"}");
	cb_stdin_nobody(s);
	expect("input ", "{\"status\":\"ok\",\"value\":\"\\u0004\"}");
}

static void test_no_answer_to_calls(void **state)
{
	(void)state;
	cell.calls = &calls;
	answer("{\"value\":1}");
	assert_non_null(strstr(given, "has no text `value`: "));
	assert_string_equal(trace, "over input ");
	trace[0] = given[0] = '\0';
	calls.asked = 1;
	cb_stdin_too_large(s);
	expect("over input ", "is larger than limits.message allows");
	calls.asked = 1;
	cb_stdin_nobody(s);
	expect("over input ", "{\"nobody\":true}");
	calls.asked = 1;
	answered = CB_E_UNKNOWN; /* to earlier calls: the wait goes on */
	answer("{\"value\":\"c\"}");
	expect("", "");
	answered = CB_E_TOO_BIG;
	answer("{\"value\":\"c\"}");
	expect("over input ", "does not fit into memory");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup(test_asks, set_up),
					    cmocka_unit_test_setup(test_on_its_way, set_up),
					    cmocka_unit_test_setup(test_does_not_come, set_up),
					    cmocka_unit_test_setup(test_refused_question, set_up),
					    cmocka_unit_test_setup(test_answers, set_up),
					    cmocka_unit_test_setup(test_no_answer, set_up),
					    cmocka_unit_test_setup(test_no_answer_to_calls, set_up) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
