/* The kernel: what its rooms tell each other of, and its end.
 *
 * Trust domain: supervisor. A room knows those below it; what it has to say to others goes through its events, which
 * are put together here. Invariant: nothing begins, ends or is freed below a caller that is still at work: who changes
 * something that others may wait for (a request came or ended, the guest is up, a signal was sent) marks the loop, and
 * all that waits is looked at when the turn is over.
 */
#include "kernel.h"

#include <errno.h>

#include "requests/requests.h"
#include "requests/rooms.h"

#define SHUTDOWN_NS 1500000000LL /* clients kill after 2.5 s */

/* ---- the clients ---- */

static void dropped(struct cb_kernel *k, const char *channel, const char *why)
{
	cb_audit_denied(&k->records, channel, why);
}

static void unheard(struct cb_kernel *k)
{
	cb_idle_touch(&k->shells.idle);
}

static const struct cb_request *at_work(const struct cb_kernel *k)
{
	const struct cb_shell *s = &k->shells.execution.shell;
	const struct cb_request *r = s->current;

	if (r == NULL || (r->id == 0 && !cb_request_is_job(r)))
		r = cb_lanes_running(&k->shells);
	if (r == NULL)
		r = cb_branches_running(&k->transactions);
	if (r == NULL && s->waiting.head != NULL && s->waiting.head->announced)
		r = s->waiting.head;
	return r;
}

static bool interrupts(const struct cb_kernel *k)
{
	return k->shells.execution.shell.interrupted_at != 0 || cb_lanes_interrupted(&k->shells) ||
	       cb_branches_interrupted(&k->transactions) || cb_twins_interrupted(&k->transactions);
}

static const struct cb_jupyter_events jupyter_events = {
	.request = cb_route,
	.dropped = dropped,
	.unheard = unheard,
	.at_work = at_work,
	.interrupts = interrupts,
};

/* ---- the guest ---- */

static void died(struct cb_kernel *k)
{
	const struct cb_guest *g = &k->guest;
	const char *why = g->shutting_down ? "the kernel shuts down"
			  : g->retired	   ? "not used (timeout.idle)"
					   : cb_failure_death_text(&k->shells);

	cb_audit_jail_end(&k->records, g->generation, why);
	cb_jobs_jail_died(&k->workspace, why);
	cb_lanes_guest_died(&k->shells, false);
	cb_branches_jail_gone(&k->transactions, cb_failure_death_text(&k->shells));
	cb_debug_guest_gone(&k->shells);
	cb_execution_guest_died(&k->shells);
}

static void failed(struct cb_kernel *k)
{
	cb_execution_guest_failed(&k->shells);
	cb_jobs_jail_failed(&k->workspace);
}

static void up(struct cb_kernel *k)
{
	cb_execution_guest_up(&k->shells);
	cb_twins_guest_up(&k->transactions);
}

static bool wanted(const struct cb_kernel *k)
{
	return k->shells.execution.shell.waiting.head != NULL || k->workspace.jobs.head != NULL ||
	       k->shells.debug.waiting.head != NULL || k->shells.lanes.load.count > 0;
}

static void no_broker(struct cb_kernel *k)
{
	k->failed = true;
	cb_kernel_shutdown(k, false);
}

static void broke(struct cb_kernel *k)
{
	if (!k->shells.execution.taken_over) /* else the cell has ended for another reason */
		cb_shell_stop_reason(&k->shells.execution.shell, CB_STOP_WIRE);
}

static int frame(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason)
{
	switch (f->header.type) {
	case CB_WIRE_CHECKPOINT_REPLY:
		cb_twins_answered(&k->transactions, c);
		return 0;
	case CB_WIRE_RESUMED:
		cb_twins_resumed(&k->transactions);
		return 0;
	default:
		return cb_lanes_frame(&k->shells, f, c, ret_reason);
	}
}

static void pid1_said(struct cb_kernel *k, const struct cb_init_msg *m)
{
	if (m->op == CB_INIT_SIGNALLED)
		cb_branches_signalled(&k->transactions, m->number);
	else
		cb_twins_init_said(&k->transactions, m);
}

static const struct cb_guest_events guest_events = {
	.failed = failed,
	.up = up,
	.died = died,
	.wanted = wanted,
	.no_broker = no_broker,
	.broke = broke,
	.frame = frame,
	.pid1_said = pid1_said,
};

static const struct cb_guest_keeper guest_keeper = {
	.jail_gone = cb_twins_jail_gone,
	.take_over = cb_twins_take_over,
	.other_exited = cb_twins_exited,
	.woken_closed = cb_twins_woken_closed,
	.memory = cb_memory_told,
};

static bool side_awaits(const struct cb_kernel *k, uint32_t type, uint32_t *ret_type, uint64_t *ret_id)
{
	if (cb_debug_frame_type(type))
		cb_debug_awaited(&k->shells, type, ret_type, ret_id);
	else
		cb_lanes_awaited(&k->shells, ret_type, ret_id);
	/* else it was told to die, or another takes over, and in the last words of a dead one nothing is a fault */
	return k->guest.verdict[0] == '\0' &&
	       (k->guest.state != CB_GUEST_RESTORING || k->guest.python.rules.phase == CB_PHASE_WAKING);
}

static int side_frame(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c,
		      const char **ret_reason)
{
	if (!cb_debug_frame_type(f->header.type))
		return cb_lanes_side_frame(&k->shells, f, ret_reason);
	cb_debug_frame(&k->shells, f, c);
	return 0;
}

static void side_closed(struct cb_kernel *k)
{
	cb_lanes_side_closed(&k->shells);
	cb_debug_side_closed(&k->shells);
}

static void side_broke(struct cb_kernel *k, const char *why)
{
	cb_guest_broke_rules(&k->guest, why);
}

static const struct cb_side_events side_events = {
	.awaits = side_awaits,
	.frame = side_frame,
	.closed = side_closed,
	.broke = side_broke,
};

/* ---- the shells ---- */

static void serve(struct cb_kernel *k, struct cb_request *r)
{
	if (cb_request_is_job(r))
		cb_job_begin(k, r);
	else
		cb_checkpoint_begin(&k->transactions, r);
}

static bool outlives(const struct cb_kernel *k, const struct cb_request *r)
{
	return cb_overlay_changes_waits(&k->workspace, r) || cb_request_is_job(r);
}

static bool files_held(const struct cb_kernel *k)
{
	return cb_overlay_changes_holds(&k->workspace);
}

static bool branch_runs(const struct cb_kernel *k)
{
	return cb_branches_running(&k->transactions) != NULL;
}

static void files_written(struct cb_kernel *k)
{
	cb_twins_files_written(&k->transactions);
}

static void files_committed(struct cb_kernel *k)
{
	cb_twins_files_committed(&k->transactions);
}

static void comm_begins(struct cb_kernel *k, const struct cb_request *r)
{
	cb_twins_touched(&k->transactions, (struct cb_span){ NULL, 0 }, 0);
	cb_comms_note(&k->guest.comms, r);
}

static void cell_ended(struct cb_kernel *k, double seconds)
{
	cb_workspace_watch_cell_ended(&k->workspace);
	cb_twins_cell_ended(&k->transactions, seconds);
}

static bool in_use(const struct cb_kernel *k)
{
	const struct cb_shell *s = &k->shells.execution.shell;

	return s->current != NULL || cb_lanes_busy(&k->shells) || cb_branches_busy(&k->transactions) ||
	       cb_debug_busy(&k->shells) || s->waiting.head != NULL || k->workspace.jobs.head != NULL ||
	       k->workspace.overlay_changes.request != NULL || k->jupyter.iopub.connected.n > 0;
}

static void interrupt_rest(struct cb_kernel *k, const struct cb_request *only)
{
	if (only == NULL)
		cb_jobs_interrupt(&k->workspace);
	else
		(void)cb_jobs_interrupt_one(&k->workspace, only->msg_id);
	if (only == NULL || cb_overlay_changes_waits(&k->workspace, only))
		cb_overlay_changes_interrupt(&k->workspace);
}

static void write_begin(struct cb_kernel *k, struct cb_json *j)
{
	const char *no_copies = cb_checkpoints_refusal(&k->transactions);

	if (no_copies == NULL || cb_twins_any(&k->transactions))
		cb_checkpoints_list(&k->transactions, j);
	if (no_copies != NULL)
		cb_json_put(j, "no_copies", no_copies);
}

static const char *lost_calls(const struct cb_kernel *k)
{
	return k->transactions.twins.calls_text;
}

static const struct cb_shells_events shells_events = {
	.serve = serve,
	.outlives = outlives,
	.files_held = files_held,
	.comm_begins = comm_begins,
	.cell_ended = cell_ended,
	.in_use = in_use,
	.interrupt_rest = interrupt_rest,
	.write_begin = write_begin,
	.lost_calls = lost_calls,
};

static const struct cb_shells_keeper shells_keeper = {
	.takes = cb_branches_take,
	.copying = cb_twins_busy,
	.before = cb_twins_before,
	.cell_begins = cb_twins_begins,
	.beside_ended = cb_twins_beside_ended,
	.quiet = cb_twins_quiet,
	.goes_back = cb_checkpoint_cell_asks,
	.spent_on_copies = cb_twins_spent,
	.interrupt = cb_twins_interrupt,
	.write_end = cb_twins_write_state,
	.became = cb_twins_became,
};

/* ---- life ---- */

static void begin_what_can(void *context)
{
	struct cb_kernel *k = context;

	if (k->guest.shutting_down) /* what waits is answered at the end */
		return;
	cb_twins_asked(&k->transactions);
	cb_jobs_schedule(&k->workspace);
	cb_execution_schedule(&k->shells);
	cb_lanes_schedule(&k->shells);
	cb_branches_schedule(&k->transactions);
	cb_debug_schedule(&k->shells);
}

void cb_kernel_shutdown(struct cb_kernel *k, bool restart)
{
	if (k->guest.shutting_down)
		return;
	k->guest.shutting_down = true;
	cb_jobs_shutdown(&k->workspace);
	cb_overlay_changes_shutdown(&k->workspace);
	cb_loop_arm(&k->loop, k->shutdown_timer, cb_now_ns() + SHUTDOWN_NS);
	if (k->guest.state == CB_GUEST_NONE)
		k->loop.stop = true;
	else
		cb_guest_shutdown(&k->guest, restart);
}

static void on_shutdown_timer(void *context)
{
	struct cb_kernel *k = context;

	cb_guest_kill(&k->guest, "the kernel was shut down");
	if (k->guest.state != CB_GUEST_NONE && k->guest.state != CB_GUEST_SPAWNING)
		cb_audit_jail_end(&k->records, k->guest.generation, "the kernel shuts down");
	k->loop.stop = true; /* the broker's end takes the jail with it */
}

void cb_kernel_answer_the_rest(struct cb_kernel *k)
{
	const char *why = k->failed ? k->guest.failure.text : "the kernel is shutting down";

	k->guest.shutting_down = true;
	cb_jobs_shutdown(&k->workspace);
	cb_overlay_changes_shutdown(&k->workspace);
	cb_execution_end(&k->shells, why);
	cb_lanes_end(&k->shells, why);
	cb_branches_jail_gone(&k->transactions, why);
	cb_debug_end(&k->shells, why);
	cb_history_end(k, why);
	cb_channels_drain_at_end(&k->jupyter);
	cb_iopub_end(&k->jupyter);
}

int cb_kernel_init(struct cb_kernel *k)
{
	k->shutdown = cb_kernel_shutdown;
	k->records.number = &k->shells.execution.number;
	k->jupyter.events = &jupyter_events;
	k->jupyter.kernel = k;
	k->jupyter.loop = &k->loop;
	k->jupyter.policy = k->policy;
	k->shells.events = &shells_events;
	k->shells.kernel = k;
	k->shells.keeper = &shells_keeper;
	k->shells.kept = k->guest.kept = &k->transactions;
	k->guest.keeper = &guest_keeper;
	k->shells.loop = &k->loop;
	k->shells.policy = k->policy;
	k->shells.jupyter = &k->jupyter;
	k->shells.records = &k->records;
	k->shells.guest = &k->guest;
	char *const notes[CB_NOTES] = { k->shells.execution.note, k->workspace.watch.note,
					k->transactions.memory.note };

	memcpy(k->shells.execution.notes, notes, sizeof(notes));
	k->transactions.loop = &k->loop;
	k->transactions.policy = k->policy;
	k->transactions.jupyter = &k->jupyter;
	k->transactions.records = &k->records;
	k->transactions.guest = &k->guest;
	k->transactions.shells = &k->shells;
	k->transactions.workspace = &k->workspace;
	k->transactions.queue = &k->broker_queue;
	k->workspace.loop = &k->loop;
	k->workspace.policy = k->policy;
	k->workspace.jupyter = &k->jupyter;
	k->workspace.records = &k->records;
	k->workspace.guest = &k->guest;
	k->workspace.shells = &k->shells;
	k->workspace.queue = &k->broker_queue;
	k->workspace.branch_runs = branch_runs;
	k->workspace.files_written = files_written;
	k->workspace.files_committed = files_committed;
	k->workspace.kernel = k;
	k->guest.events = &guest_events;
	k->guest.side.events = &side_events;
	k->guest.kernel = k->guest.side.kernel = k;
	k->guest.loop = &k->loop;
	k->guest.policy = k->policy;
	k->guest.jupyter = &k->jupyter;
	k->guest.records = &k->records;
	if (cb_twins_init(&k->transactions) < 0 || cb_guest_init(&k->guest) < 0 || cb_execution_init(&k->shells) < 0 ||
	    cb_jobs_init(&k->workspace) < 0 || cb_broker_queue_init(&k->broker_queue, &k->loop, &k->guest.broker) < 0 ||
	    cb_lanes_init(&k->shells) < 0 || cb_branches_init(&k->transactions) < 0 || cb_iopub_init(&k->jupyter) < 0 ||
	    cb_debug_init(&k->shells) < 0 || cb_idle_init(&k->shells) < 0)
		return -ENOSPC;
	cb_loop_at_turn(&k->loop, begin_what_can, k);
	k->shutdown_timer = cb_loop_add_timer(&k->loop, on_shutdown_timer, k);
	return 0;
}

void cb_kernel_release(struct cb_kernel *k)
{
	cb_guest_release(&k->guest);
	cb_twins_release(&k->transactions);
	cb_jobs_release(&k->workspace);
	cb_broker_queue_release(&k->broker_queue);
	cb_lanes_release(&k->shells);
	cb_branches_release(&k->transactions);
	cb_debug_release(&k->shells);
	cb_execution_release(&k->shells);
	cb_history_forget_waiting(k);
	cb_tools_release(&k->jupyter.tools);
	cb_iopub_release(&k->jupyter);
	cb_channels_close(&k->jupyter);
}
