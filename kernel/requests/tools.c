/* cellblock_tools_request: which functions of the client's the cells of its session may call. Trust domain: supervisor.
 * What is done with them is in tools.c. Cells that arrive later have them: so it need not wait for those before it. */
#include "kernel.h"
#include "requests.h"

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
	cb_bracket_end(&k->jupyter, r);
	cb_request_free(r);
}
