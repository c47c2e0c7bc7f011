/* create_, delete_ and list_subshell_request (JEP 91), on control, which are answered here, whatever Python does: a
 * subshell begins in the guest with its first request. And cellblock_checkpoint_request and its kin.
 *
 * Trust domain: supervisor. On shell the latter keep the queue's order. On control lists and delete are answered at
 * once, a checkpoint or branch is made before what waits, and a rollback or adoption is refused while something runs.
 */
#include <cellblock/json_scan.h>

#include "rooms.h"
#include "requests.h"
#include "transactions/checkpoints.h"

void cb_request_create_subshell(struct cb_kernel *k, struct cb_request *r)
{
	const char *id = k->shells.bash ? NULL : cb_lanes_create(&k->shells);

	if (k->shells.bash) {
		cb_reply_error(&k->jupyter, r, "SubshellError", "a kernel for cells of bash has no subshells");
		return;
	}
	if (id == NULL) {
		cb_reply_error(&k->jupyter, r, "SubshellError",
			       "there are %d subshells, and no more are made; delete one that is not used any more",
			       CB_SUBSHELLS_MAX);
		return;
	}
	cb_reply_ok(&k->jupyter, r, "subshell_id", id);
}

void cb_request_delete_subshell(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_json_field f[] = { { .name = "subshell_id", .types = CB_JSON_STRING, .required = true } };

	if (!cb_read_content(&k->jupyter, r, f, 1))
		return;
	if (!cb_branches_delete(&k->transactions, f[0].ret) && !cb_lanes_delete(&k->shells, f[0].ret))
		cb_branches_unknown(&k->transactions, r, f[0].ret);
	else
		cb_reply_ok(&k->jupyter, r);
}

void cb_request_list_subshell(struct cb_kernel *k, struct cb_request *r)
{
	CB_AUTO_BUF b = CB_BUF_INIT(64 + CB_SUBSHELLS_MAX * 48u);
	struct cb_json j = cb_json_begin(&b);

	cb_json_put(&j, "status", "ok");
	cb_json_array(&j, "subshell_id");
	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		if (k->shells.lanes.sub[i].id[0] != '\0')
			cb_json_put(&j, NULL, k->shells.lanes.sub[i].id);
	cb_reply_json(&k->jupyter, r, &j);
}

void cb_request_checkpoint(struct cb_kernel *k, struct cb_request *r)
{
	bool rollback = r->kind == CB_REQUEST_ROLLBACK || r->kind == CB_REQUEST_ADOPT;

	if (cb_branches_find(&k->transactions, r->subshell_id) != NULL) {
		cb_refuse(&k->jupyter, r, "CheckpointError", "a branch keeps no checkpoints and has no branches");
	} else if (r->channel == CB_SHELL) {
		cb_execution_submit(&k->shells, r);
	} else if (rollback && k->shells.execution.shell.current != NULL) {
		cb_refuse(&k->jupyter, r, "KernelBusyError", "a cell runs: interrupt it first, or wait");
	} else if (rollback || r->kind == CB_REQUEST_CHECKPOINT || r->kind == CB_REQUEST_BRANCH) {
		cb_execution_submit_first(&k->shells, r);
	} else {
		cb_bracket_begin(&k->jupyter, r);
		cb_checkpoint_answer(&k->transactions, r);
		cb_bracket_close(&k->jupyter, r);
	}
}
