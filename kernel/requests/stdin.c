/* input_reply: which shell it is for.
 *
 * Trust domain: supervisor. Replies that nobody waits for are dropped. When the main shell, subshells and branches wait
 * for the same client, header.subshell_id says which is meant; else the main shell, or who asked first.
 */
#include <cellblock/log.h>

#include "kernel.h"
#include "requests.h"
#include "shells/stdin.h"

/* Who has asked this client; NULL = nobody. Another client's answer is nobody's: the question went to one client only.
 */
static struct cb_shell *asker(struct cb_kernel *k, const struct cb_request *r)
{
	bool to_subshell = r->subshell_id.data != NULL && cb_lanes_known(&k->shells, r->subshell_id);
	bool to_branch = cb_branches_find(&k->transactions, r->subshell_id) != NULL;

	if (!to_subshell && !to_branch && cb_shell_asks(&k->shells.execution.shell, r))
		return &k->shells.execution.shell;
	struct cb_shell *branch = to_subshell ? NULL : cb_branches_asker(&k->transactions, r);
	struct cb_shell *subshell = to_branch ? NULL : cb_lanes_asker(&k->shells, r);

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

void cb_request_stdin_too_large(struct cb_kernel *k, const struct cb_request *r)
{
	struct cb_shell *to = asker(k, r);

	if (to != NULL)
		cb_stdin_too_large(to);
}
