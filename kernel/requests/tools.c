/* cellblock_tools_request: which functions of the client's the cells of its session may call. And input_reply: which
 * shell it is for.
 *
 * Trust domain: supervisor. Cells that arrive later have the tools: so the request need not wait for those before it.
 * Replies that nobody waits for are dropped, and nothing on stdin is answered. When the main shell, subshells and
 * branches wait for the same client, header.subshell_id says which is meant, and nobody else gets the answer where that
 * one is gone; without it the main shell is meant, or who asked first.
 */
#include <cellblock/log.h>

#include "rooms.h"
#include "requests.h"
#include "shells/stdin.h"

void cb_request_tools(struct cb_kernel *k, struct cb_request *r)
{
	size_t half = k->policy->limit_message / 2, max = half < CB_TOOLS_BYTES ? half : CB_TOOLS_BYTES;
	struct cb_toolset *set = NULL;
	char what[256] = "out of memory";

	if (k->shells.bash) {
		cb_failure_malformed(&k->shells, r, "a kernel for cells of bash calls no host tools");
		return;
	}
	if (r->session.data == NULL || r->session.len > CB_TOOLS_SESSION_ID) {
		cb_failure_malformed(&k->shells, r,
				     "header.session: text of at most %d bytes is needed, for tools belong to it",
				     CB_TOOLS_SESSION_ID - 2);
		return;
	}
	int c = cb_tools_parse(r->content, max, &set, what, sizeof(what));
	size_t count = c == 0 ? set->count : 0;

	if (c == 0)
		c = cb_tools_register(&k->jupyter.tools, r->session, set);
	if (c < 0) {
		cb_failure_malformed(&k->shells, r, "%s", what);
		return;
	}
	cb_bracket_begin(&k->jupyter, r);
	cb_reply_ok(&k->jupyter, r, "tools", count);
	cb_bracket_close(&k->jupyter, r);
}

/* Who has asked this client; NULL = nobody. Another client's answer is nobody's: the question went to one client only.
 */
static struct cb_shell *asker(struct cb_kernel *k, const struct cb_request *r)
{
	if (cb_shell_asks(&k->shells.execution.shell, r))
		return &k->shells.execution.shell;
	struct cb_shell *branch = cb_branches_asker(&k->transactions, r);
	struct cb_shell *subshell = cb_lanes_asker(&k->shells, r);

	return branch == NULL || (subshell != NULL && subshell->asked_at <= branch->asked_at) ? subshell : branch;
}

void cb_request_input_reply(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_shell *to = asker(k, r);

	if (to != NULL)
		cb_stdin_answer(to, r);
	else
		cb_log(CB_LOG_INFO, "input_reply dropped: this client was not asked");
}

void cb_request_stdin_too_large(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_shell *to = r->kind == CB_REQUEST_INPUT_REPLY ? asker(k, r) : NULL;

	cb_audit_denied(&k->records, r->type, "larger than limits.message allows");
	if (to != NULL)
		cb_stdin_too_large(to);
	else
		cb_log(CB_LOG_WARNING, "stdin: a message is dropped that is larger than limits.message allows");
	cb_request_free(r);
}
