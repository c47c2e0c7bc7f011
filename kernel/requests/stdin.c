/* input_request to the client of the running cell, and its input_reply. Trust domain: supervisor.
 *
 * The request goes to the identity of the cell's execute_request: clients use one identity for shell and stdin. Replies
 * that nobody waits for are dropped, and the channel is emptied of them before a question is asked. When the main
 * shell, subshells and branches wait for the same client, header.subshell_id says which is meant; else the main shell,
 * or who asked first.
 */
#include <cellblock/error.h>
#include <cellblock/json_scan.h>
#include <cellblock/log.h>
#include <errno.h>

#include "kernel.h"
#include "requests.h"
#include "stdin.h"

int cb_stdin_ask(struct cb_kernel *k, const struct cb_request *cell, const struct cb_frame *f, const char **ret_reason)
{
	/* of each call the id is added, some bytes */
	CB_AUTO_BUF metadata = CB_BUF_INIT(f->metadata.len + CB_CALLS_TOGETHER * 64 + 64);
	int r = cb_calls_ask(&k->tools, cell->calls, f->metadata, &metadata, ret_reason);

	if (r < 0)
		return r;
	struct cb_outgoing out = { .type = "input_request",
				   .parent = cb_header_span(cell->header),
				   .metadata = cb_buf_span(&metadata),
				   .content = { f->content, f->header.content_len } };

	cb_channels_drain_stdin(&k->jupyter);
	return cb_channels_send(&k->jupyter, CB_STDIN, cell, &out) == -EHOSTUNREACH ? CB_STDIN_NOBODY : 0;
}

/* Who has asked this client; NULL = nobody. Another client's answer is nobody's: the question went to one client only.
 */
static struct cb_shell *asker(struct cb_kernel *k, const struct cb_request *r)
{
	bool to_subshell = r->subshell_id.data != NULL && cb_lanes_known(k, r->subshell_id);
	bool to_branch = cb_branches_find(k, r->subshell_id) != NULL;

	if (!to_subshell && !to_branch && cb_shell_asks(&k->execution.shell, r))
		return &k->execution.shell;
	struct cb_shell *branch = to_subshell ? NULL : cb_branches_asker(k, r);
	struct cb_shell *subshell = to_branch ? NULL : cb_lanes_asker(k, r);

	return branch == NULL || (subshell != NULL && subshell->asked_at <= branch->asked_at) ? subshell : branch;
}

/* The calls of host tools that wait for this client's answer, or NULL: it is input() that waits. */
static struct cb_calls *calls_of(const struct cb_shell *to)
{
	struct cb_calls *c = to->current->calls;

	return c != NULL && c->asked > 0 ? c : NULL;
}

static void fail_calls(struct cb_kernel *k, struct cb_shell *to, const char *what, const char *reason)
{
	CB_AUTO_BUF b = CB_BUF_INIT(1024);

	cb_calls_over(calls_of(to));
	if (cb_calls_fail(&b, what, reason) == 0)
		cb_shell_input(k, to, cb_buf_span(&b));
}

void cb_stdin_nobody(struct cb_kernel *k, const struct cb_request *cell)
{
	struct cb_shell *to = asker(k, cell);

	if (to == NULL)
		return;
	cb_log(CB_LOG_INFO, "the client of a cell that asks is gone");
	if (calls_of(to) == NULL) {
		CB_JSON_SMALL(end_of_input, "status", "ok", "value", "\004");

		cb_shell_input(k, to, cb_buf_span(&end_of_input));
		return;
	}
	CB_JSON_SMALL(nobody, "nobody", (bool)true);

	cb_calls_over(calls_of(to));
	cb_shell_input(k, to, cb_buf_span(&nobody));
}

void cb_stdin_too_large(struct cb_kernel *k, const struct cb_request *r)
{
	struct cb_shell *to = asker(k, r);

	if (to != NULL && calls_of(to) != NULL)
		fail_calls(k, to, "is larger than limits.message allows", "");
}

void cb_request_input_reply(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_json_field f[] = { { .name = "value", .types = CB_JSON_STRING, .required = true } };
	struct cb_json_error e = { 0 };

	struct cb_shell *to = asker(k, r);

	if (to == NULL) {
		cb_log(CB_LOG_INFO, "input_reply dropped: this client was not asked");
		return;
	}
	if (cb_json_scan_object(r->content.data, r->content.len, f, 1, &e) < 0) {
		cb_log(CB_LOG_WARNING, "input_reply dropped: %s%s%s", e.field != NULL ? e.field : "",
		       e.field != NULL ? ": " : "", e.reason);
		if (calls_of(to) != NULL)
			fail_calls(k, to, "has no text `value`: ", e.reason);
		return;
	}
	struct cb_calls *calls = calls_of(to);
	CB_AUTO_BUF results = CB_BUF_INIT(r->content.len + CB_CALLS_TOGETHER * 16 + 512);

	if (calls == NULL) {
		cb_shell_input(k, to, r->content);
		return;
	}
	int c = cb_calls_answer(&k->tools, calls, f[0].ret, &results);

	if (c == CB_E_UNKNOWN) {
		cb_log(CB_LOG_INFO, "input_reply dropped: results of earlier calls");
		return;
	}
	if (c < 0) {
		fail_calls(k, to, "does not fit into memory", "");
		return;
	}
	cb_calls_over(calls);
	cb_shell_input(k, to, cb_buf_span(&results));
}
