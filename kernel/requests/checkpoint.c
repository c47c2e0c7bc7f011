/* cellblock_checkpoint_request and its kin. Trust domain: supervisor.
 *
 * On shell they keep the queue's order. On control lists and delete are answered at once, a checkpoint or branch is
 * made before what waits, and a rollback or adoption is refused while something runs.
 */
#include "kernel.h"
#include "requests.h"
#include "transactions/checkpoints.h"

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
		cb_bracket_end(&k->jupyter, r);
		cb_request_free(r);
	}
}
