/* input_request to the client of a running cell, and its input_reply.
 *
 * Trust domain: supervisor. The request goes to the identity of the cell's execute_request: clients use one identity
 * for shell and stdin. The channel is emptied of replies that nobody waits for before a question is asked.
 */
#include "stdin.h"

#include <errno.h>

#include <cellblock/clock.h>
#include <cellblock/error.h>
#include <cellblock/json_scan.h>
#include <cellblock/log.h>

#include "jupyter/jupyter.h"
#include "shell.h"

#define ARRIVES_WITHIN 2000000000LL
#define AGAIN_AFTER 20000000LL

/* The number that the guest gave its question; 0 = none. */
static int number_of(struct cb_span metadata, int64_t *ret_number, const char **ret_reason)
{
	struct cb_json_field f[] = { { .name = "question", .types = CB_JSON_INTEGER } };
	int r = metadata.len > 0 ? cb_json_scan_object(metadata.data, metadata.len, f, 1, NULL) : 0;

	*ret_number = 0;
	*ret_reason = "the number of a question is no integer of 64 bits";
	return r < 0 || f[0].ret.data == NULL ? r : cb_json_int(f[0].ret, ret_number);
}

void cb_stdin_forget(struct cb_shell *s)
{
	cb_buf_release(&s->unsent.metadata);
	cb_buf_release(&s->unsent.content);
	s->unsent.again_at = 0;
}

static int keep(struct cb_shell *s, struct cb_span metadata, struct cb_span content)
{
	int64_t now = cb_now_ns();

	s->unsent.metadata = CB_BUF_INIT(metadata.len);
	s->unsent.content = CB_BUF_INIT(content.len);
	int r = cb_buf_append(&s->unsent.metadata, metadata.data, metadata.len);

	if (r == 0)
		r = cb_buf_append(&s->unsent.content, content.data, content.len);
	if (r < 0) {
		cb_stdin_forget(s);
		return CB_STDIN_NOBODY;
	}
	s->unsent.again_at = now + AGAIN_AFTER;
	s->unsent.until = now + ARRIVES_WITHIN;
	return 0;
}

static int send_question(struct cb_shell *s, struct cb_span metadata, struct cb_span content)
{
	struct cb_jupyter *jp = s->all->jupyter;
	struct cb_outgoing out = { .type = "input_request",
				   .parent = cb_header_span(s->current->header),
				   .metadata = metadata,
				   .content = content };

	cb_channels_drain_stdin(jp);
	return cb_channels_send(jp, CB_STDIN, s->current, &out);
}

void cb_stdin_look(struct cb_shell *s, int64_t now)
{
	if (s->unsent.again_at == 0 || s->unsent.again_at > now)
		return;
	if (s->asked_at == 0) { /* interrupted */
		cb_stdin_forget(s);
		return;
	}
	int r = send_question(s, cb_buf_span(&s->unsent.metadata), cb_buf_span(&s->unsent.content));

	if (r == -EHOSTUNREACH && now < s->unsent.until) {
		s->unsent.again_at = now + AGAIN_AFTER;
		return;
	}
	cb_stdin_forget(s);
	if (r < 0)
		cb_stdin_nobody(s);
}

int cb_stdin_ask(struct cb_shell *s, const struct cb_frame *f, const char **ret_reason)
{
	struct cb_jupyter *jp = s->all->jupyter;
	const struct cb_request *cell = s->current;
	/* of each call the id is added, some bytes */
	CB_AUTO_BUF metadata = CB_BUF_INIT(f->metadata.len + CB_CALLS_TOGETHER * 64 + 64);
	int r = cb_calls_ask(&jp->tools, cell->calls, f->metadata, &metadata, ret_reason);

	if (r == 0)
		r = number_of(f->metadata, &s->question, ret_reason);
	if (r < 0)
		return r;
	struct cb_span content = { f->content, f->header.content_len };

	cb_stdin_forget(s);
	r = send_question(s, cb_buf_span(&metadata), content);
	if (r == -EHOSTUNREACH)
		return keep(s, cb_buf_span(&metadata), content);
	return r < 0 ? CB_STDIN_NOBODY : 0;
}

/* The calls of host tools that wait for this client's answer, or NULL: it is input() that waits. */
static struct cb_calls *calls_of(const struct cb_shell *to)
{
	struct cb_calls *c = to->current->calls;

	return c != NULL && c->asked > 0 ? c : NULL;
}

static void fail_calls(struct cb_shell *to, const char *what, const char *reason)
{
	CB_AUTO_BUF b = CB_BUF_INIT(1024);
	int r = cb_calls_refuse(calls_of(to), &b, what, reason);

	cb_calls_over(calls_of(to));
	if (r == 0)
		cb_shell_input(to, cb_buf_span(&b));
}

static void end_of_input(struct cb_shell *to)
{
	CB_JSON_SMALL(end, "status", "ok", "value", "\004");

	cb_shell_input(to, cb_buf_span(&end));
}

/* Its client takes the question for answered and sends no other: input() must not wait for one. */
static void refuse(struct cb_shell *to, const char *what, const char *reason)
{
	char text[512];

	cb_log(CB_LOG_WARNING, "input_reply refused: it %s%s", what, reason);
	if (calls_of(to) != NULL) {
		fail_calls(to, what, reason);
		return;
	}
	int n = snprintf(text, sizeof(text), "[cellblock: the client's answer %s%s: it counts as the end of input]\n",
			 what, reason);

	cb_iopub_text(to->all->jupyter, to->current->header, CB_WIRE_STDERR, text,
		      n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1);
	end_of_input(to);
}

void cb_stdin_nobody(struct cb_shell *to)
{
	cb_log(CB_LOG_INFO, "the client of a cell that asks is gone");
	if (calls_of(to) == NULL) {
		end_of_input(to);
		return;
	}
	CB_JSON_SMALL(nobody, "nobody", (bool)true);

	cb_calls_over(calls_of(to));
	cb_shell_input(to, cb_buf_span(&nobody));
}

void cb_stdin_too_large(struct cb_shell *to)
{
	refuse(to, "is larger than limits.message allows", "");
}

void cb_stdin_answer(struct cb_shell *to, const struct cb_request *r)
{
	struct cb_json_field f[] = { { .name = "value", .types = CB_JSON_STRING, .required = true } };
	struct cb_json_error e = { 0 };

	if (cb_json_scan_object(r->content.data, r->content.len, f, 1, &e) < 0) {
		refuse(to, "has no text `value`: ", e.reason);
		return;
	}
	struct cb_calls *calls = calls_of(to);
	CB_AUTO_BUF results = CB_BUF_INIT(r->content.len + CB_CALLS_TOGETHER * 16 + 512);

	if (calls == NULL) {
		cb_shell_input(to, r->content);
		return;
	}
	int c = cb_calls_answer(&to->all->jupyter->tools, calls, f[0].ret, &results);

	if (c == CB_E_UNKNOWN) {
		cb_log(CB_LOG_INFO, "input_reply dropped: results of earlier calls");
		return;
	}
	if (c < 0) {
		fail_calls(to, "does not fit into memory", "");
		return;
	}
	cb_calls_over(calls);
	cb_shell_input(to, cb_buf_span(&results));
}
