/* The main shell: the execution queue.
 *
 * Trust domain: supervisor. What is the main shell's alone: jobs and checkpoints take their turn in it, its cells are
 * interrupted by SIGINT, and when its Python dies a twin may take over. The rest is any shell's (shell.c). Invariants:
 * every request that was begun ends also when the guest dies; the execution count only grows.
 *
 * When the guest ends, a twin may take over (twins.c): cb_execution_guest_restored; else cb_execution_guest_died.
 */
#include "execution.h"

#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>
#include <cellblock/log.h>
#include <cellblock/visible.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "abort.h"
#include "kernel.h"
#include "requests/requests.h"

#define SECOND 1000000000LL

void cb_execution_submit_first(struct cb_kernel *k, struct cb_request *r)
{
	cb_queue_push_first(&k->execution.shell.waiting, &k->execution.load, r);
	if (k->guest.state == CB_GUEST_NONE)
		cb_guest_want(&k->guest);
	cb_loop_mark(&k->loop);
}

void cb_execution_submit(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_execution *x = &k->execution;

	if (cb_branches_take(k, r) || cb_lanes_take(k, r))
		return;
	cb_abort_note_arrival(k, r);
	if (k->guest.shutting_down) {
		cb_refuse(&k->jupyter, r, "KernelBusyError", "the kernel is shutting down");
		return;
	}
	if (cb_abort_applies(k, r)) {
		cb_abort_request(k, r);
		return;
	}
	if (!cb_shell_take(&x->shell, r))
		return;
	if (k->guest.state == CB_GUEST_NONE)
		cb_guest_want(&k->guest);
	cb_loop_mark(&k->loop);
}

/* ---- beginning ---- */

int cb_execution_metadata(struct cb_kernel *k, const struct cb_shell *s, unsigned lane, struct cb_buf *out)
{
	struct cb_json_field f[] = { { .name = "cellId", .types = CB_JSON_STRING } };
	const struct cb_request *r = s->current;
	const struct cb_execute_fields *e = &r->execute;

	(void)cb_json_scan_object(r->metadata.data, r->metadata.len, f, 1, NULL);
	struct cb_span cell_id = f[0].ret.data != NULL && f[0].ret.len < 1024 ? f[0].ret : CB_SPAN("null");

	struct cb_json j = cb_json_begin(out);

	/* Python's own counter stands at the cell's number while it runs, stored or not */
	cb_json_put(&j, "lane", lane, "execution_count", cb_cell_shown(&s->cell), "silent", e->silent, "store_history",
		    e->store_history, "allow_stdin", e->allow_stdin, "cell_id", cell_id);
	cb_json_put(&j, "memory", e->memory, "value", e->value, "header", cb_header_span(r->header));
	if (e->env.data != NULL)
		cb_json_put(&j, "env", e->env);
	if (r->calls != NULL)
		cb_json_put(&j, "tools", cb_buf_span(&r->calls->set->list));
	if (s == &k->execution.shell && k->twins.possible)
		cb_checkpoints_list(k, &j);
	return cb_json_done(&j);
}

static int send_request(struct cb_kernel *k, struct cb_shell *s, struct cb_request *r, const struct cb_shell_message *m)
{
	if (m->phase == CB_PHASE_COMM)
		cb_twins_touched(k, (struct cb_span){ NULL, 0 }, 0);
	return cb_shell_send(k, s, r, m);
}

/* What does not fit is in the log. */
void cb_execution_note(struct cb_kernel *k, const char *text)
{
	size_t told = strlen(k->workspace_note), room = sizeof(k->workspace_note) - told;
	char *shown = cb_visible_copy(text);

	if (shown != NULL && strlen(shown) + sizeof("[cellblock: ]\n") <= room)
		snprintf(k->workspace_note + told, room, "[cellblock: %s]\n", shown);
	free(shown);
}

/* What the next cell is to say, once. */
static void tell_notes(struct cb_kernel *k, const struct cb_request *r)
{
	char *const notes[] = { k->workspace_note, k->workspace_watch.note, k->checkpoints.note, k->memory.note };
	struct cb_execution *x = &k->execution;

	for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]) && !r->execute.silent; i++) {
		cb_iopub_text(&k->jupyter, r->header, CB_WIRE_STDERR, notes[i], strlen(notes[i]));
		notes[i][0] = '\0';
	}
	if (k->guest.note[0] != '\0' && strcmp(k->guest.note, k->note_told) != 0 && !r->execute.silent) {
		char text[sizeof(k->guest.note) + 32];
		int n = snprintf(text, sizeof(text), "[cellblock: %s]\n", k->guest.note);

		cb_iopub_text(&k->jupyter, r->header, CB_WIRE_STDERR, text, (size_t)n);
		snprintf(k->note_told, sizeof(k->note_told), "%s", k->guest.note);
	}
	cb_iopub_text(&k->jupyter, r->header, CB_WIRE_STDERR, x->lost, strlen(x->lost));
}

static bool up(struct cb_kernel *k, struct cb_shell *s)
{
	(void)s;
	return k->guest.state == CB_GUEST_UP;
}

static void begun(struct cb_kernel *k, struct cb_shell *s)
{
	struct cb_execution *x = &k->execution;
	const struct cb_request *r = s->current;

	x->taken_over = false;
	cb_twins_touched(k, r->execute.code, s->cell.store ? s->cell.number : 0);
	x->past = k->twins.past.last;
	cb_calls_begin(r->calls, x->past);
	cb_twins_cell_begins(k);
	cb_memory_cell_begins(k);
}

void cb_execution_record(struct cb_kernel *k, struct cb_shell *s)
{
	struct cb_span code = s->current->execute.code;
	CB_AUTO_BUF b = CB_BUF_INIT(code.len + 1);

	if (s->cell.store && k->records.history != NULL && cb_json_string_decode(code, &b) == 0)
		(void)cb_history_add(k->records.history, s->cell.number, b.data != NULL ? (const char *)b.data : "",
				     b.len);
}

static void told(struct cb_kernel *k, struct cb_shell *s)
{
	const struct cb_execute_fields *e = &s->current->execute;

	tell_notes(k, s->current);
	cb_execution_record(k, s);
	cb_usage_begin(&k->guest.usage);
	cb_cell_limits_start(k, e->cpu, e->memory);
}

static void interrupt_current(struct cb_kernel *k);

static void begin(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_shell *s = &k->execution.shell;
	bool interrupted = r->interrupted;

	if (cb_request_is_job(r)) {
		cb_shell_begin_here(k, s, r);
		cb_job_begin(k, r);
	} else if (cb_request_is_checkpoint(r)) {
		cb_shell_begin_here(k, s, r);
		cb_checkpoint_begin(k, r);
	} else {
		cb_shell_begin(k, s, r);
	}
	cb_lanes_busy_begins(k);
	if (interrupted && s->current == r)
		interrupt_current(k);
}

/* No jail can be had: each request is begun only to be failed with the reason. */
static void fail_for_lack_of_jail(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_shell *s = &k->execution.shell;

	if (cb_shell_message_of(r) != NULL) {
		cb_shell_begin(k, s, r);
		return;
	}
	cb_shell_begin_here(k, s, r);
	cb_failure_of_asked(k, r, "IsolationError", k->guest.failure.text);
	cb_shell_finish(k, s);
}

/* While Python starts, or comes back: clients that wait for the end of what they have asked would take an earlier
 * `idle` for it (jupyter console does, and then shows nothing of its first cell before the reply). */
static void announce(struct cb_kernel *k, struct cb_request *r)
{
	if (r == NULL || r->announced || k->guest.state == CB_GUEST_UP)
		return;
	cb_iopub_status(&k->jupyter, "busy", r->header);
	r->announced = true;
}

void cb_execution_schedule(struct cb_kernel *k)
{
	struct cb_shell *s = &k->execution.shell;

	while (s->current == NULL && s->waiting.head != NULL && !cb_overlay_changes_holds(k) && !cb_twins_busy(k) &&
	       k->guest.python.signals == 0 && !cb_twins_before(k, s->waiting.head)) {
		if (k->guest.state == CB_GUEST_UP)
			begin(k, cb_shell_pop(s));
		else if (k->guest.state == CB_GUEST_NONE && k->guest.failure.code != 0)
			fail_for_lack_of_jail(k, cb_shell_pop(s));
		else
			break;
	}
	if (s->current == NULL)
		announce(k, s->waiting.head);
}

/* ---- ending ---- */

void cb_execution_finish(struct cb_kernel *k)
{
	cb_shell_finish(k, &k->execution.shell);
}

static void ending(struct cb_kernel *k, struct cb_shell *s, struct cb_request *r)
{
	(void)s;
	cb_cell_limits_stop(k);
	cb_python_interrupt_no_more(&k->guest.python);
	k->debug.waits = false;
	if (cb_request_is_execute(r)) /* it has told of the loss */
		k->execution.lost[0] = '\0';
	if (k->guest.python.rules.current ==
	    r->id) /* also of a guest that is about to be killed: it must not answer twice */
		cb_guest_set_idle(&k->guest);
}

static void done(struct cb_kernel *k, struct cb_shell *s, struct cb_request *r)
{
	if (cb_request_is_execute(r)) {
		cb_workspace_watch_cell_ended(k);
		cb_twins_cell_ended(k, (double)(cb_now_ns() - s->cell.started_ns) / (double)SECOND);
	}
	cb_twins_quiet(k);
	cb_loop_mark(&k->loop);
}

static bool defers(struct cb_kernel *k, const struct cb_frame *f)
{
	return cb_checkpoint_cell_asks(k, f->metadata);
}

/* ---- time and interrupts ---- */

static void kill_guest(struct cb_kernel *k, struct cb_shell *s, const char *why)
{
	(void)s;
	cb_guest_stop(&k->guest, why);
}

static void usage(struct cb_kernel *k, struct cb_shell *s, struct cb_usage *ret_usage)
{
	const struct cb_broker_reply *end = &k->guest.end;

	(void)s;
	if (k->execution.taken_over)
		*ret_usage = k->execution.usage_at_end;
	else
		cb_usage_read(&k->guest.usage, ret_usage);
	if (k->guest.end_known && end->watchdog + end->memory_peak > 0) /* it has one of them */
		ret_usage->memory_peak_bytes = end->watchdog + end->memory_peak;
	if (k->guest.over_memory > 0)
		ret_usage->memory_peak_bytes = k->guest.over_memory;
}

static void waits(struct cb_kernel *k, struct cb_shell *s, bool waits)
{
	(void)s;
	cb_cell_limits_wait(k, waits);
}

static void arm(struct cb_kernel *k, struct cb_shell *s)
{
	int64_t when = 0;

	cb_shell_due(s, NULL, &when);
	cb_loop_arm(&k->loop, k->execution.timer, when);
}

static void on_timer(void *context)
{
	struct cb_kernel *k = context;

	cb_shell_look(k, &k->execution.shell, cb_now_ns());
	arm(k, &k->execution.shell);
}

static const struct cb_shell_ops main_ops = {
	.max_waiting = CB_QUEUE_MAX,
	.max_bytes = CB_QUEUE_BYTES_MAX,
	.up = up,
	.begun = begun,
	.told = told,
	.send = send_request,
	.awaits = cb_lanes_cell_awaits,
	.asks = cb_debug_cell_over,
	.defers = defers,
	.waits = waits,
	.kill = kill_guest,
	.ending = ending,
	.done = done,
	.usage = usage,
	.arm = arm,
};

void cb_execution_over_memory(struct cb_kernel *k)
{
	struct cb_shell *s = &k->execution.shell;
	char text[128];

	cb_audit_limit(&k->records, "metadata.cellblock.memory");
	cb_shell_stop_reason(s, CB_STOP_MEMORY);
	snprintf(text, sizeof(text), "a process used more than %.1f MiB of memory (metadata.cellblock.memory)",
		 (double)s->current->execute.memory / (1024 * 1024));
	cb_guest_stop(&k->guest, text);
}

bool cb_execution_spend(struct cb_kernel *k, double seconds)
{
	struct cb_cell *c = &k->execution.shell.cell;

	if (c->clock_left == 0) /* no limit */
		return true;
	c->clock_left -= (int64_t)(seconds * (double)SECOND);
	if (c->clock_left > 0)
		return true;
	c->clock_left = 1;
	cb_shell_over_time(k, &k->execution.shell, false, false);
	return false;
}

static void interrupt_current(struct cb_kernel *k)
{
	struct cb_shell *s = &k->execution.shell;

	if (cb_request_is_checkpoint(s->current))
		cb_twins_interrupt(k);
	if (cb_shell_message_of(s->current) != NULL)
		cb_shell_interrupt(k, s, true);
}

/* Nothing runs. What waits for a jail that does not come is given up; what waits for a twin to be made, or for signals
 * that were for another, is interrupted as soon as it is begun. */
static void interrupt_waiting(struct cb_kernel *k)
{
	struct cb_shell *s = &k->execution.shell;

	if (k->guest.state == CB_GUEST_UP) {
		cb_twins_interrupt(k);
		if (s->waiting.head != NULL && !cb_overlay_changes_holds(k))
			s->waiting.head->interrupted = true;
		return;
	}
	struct cb_request *r = cb_shell_pop(s);

	if (r == NULL)
		return;
	cb_guest_give_up_start(&k->guest);
	if (!cb_request_is_execute(r)) {
		cb_abort_request(k, r);
		return;
	}
	cb_shell_begin_here(k, s, r);
	cb_abort_queue(k, s);
	cb_failure_reply(k, s, "KeyboardInterrupt", "kept", "interrupted while the jail was starting");
	cb_shell_finish(k, s);
}

void cb_execution_interrupt(struct cb_kernel *k)
{
	const struct cb_shell *s = &k->execution.shell;
	const struct cb_request *meant = s->current;

	cb_jobs_interrupt(k);
	cb_overlay_changes_interrupt(k);
	cb_lanes_interrupt(k);
	if (s->current != meant) /* that one has ended, and what runs now is another */
		return;
	if (k->guest.state == CB_GUEST_RESTORING || k->twins.confirming)
		return;
	if (s->current != NULL)
		interrupt_current(k);
	else
		interrupt_waiting(k);
}

/* ---- the guest comes and goes ---- */

void cb_execution_guest_up(struct cb_kernel *k)
{
	if (k->guest.restarted) {
		k->guest.restarted = false;
		/* no idle: some clients take the next one for the end of their cell */
		cb_iopub_status(&k->jupyter, "starting", NULL);
	}
	cb_twins_guest_up(k);
	cb_loop_mark(&k->loop);
}

static void note_loss(struct cb_kernel *k, bool restored, const char *when)
{
	struct cb_execution *x = &k->execution;

	snprintf(x->lost, sizeof(x->lost), "[cellblock: %s%s; %s%s]\n", when, cb_failure_death_text(k),
		 restored ? k->twins.outcome : "all variables are lost", restored ? "" : k->twins.calls_text);
	x->lost_restored = restored;
}

/* The current request ends with its guest; what becomes of the state is known by now. */
static void fail_current(struct cb_kernel *k, bool restored)
{
	struct cb_shell *s = &k->execution.shell;
	struct cb_death d;

	if (!cb_request_is_execute(s->current))
		note_loss(k, restored, "");
	cb_failure_of_main(k, restored, &d);
	cb_shell_died(k, s, &d);
}

static void stop_clocks(struct cb_kernel *k)
{
	struct cb_shell *s = &k->execution.shell;

	cb_cell_limits_stop(k);
	cb_python_interrupt_no_more(&k->guest.python);
	s->interrupted_at = s->notice_at = s->interrupt_by = s->cell.deadline = 0;
	arm(k, s);
}

void cb_execution_cell_over(struct cb_kernel *k)
{
	stop_clocks(k);
	cb_guest_set_idle(&k->guest);
}

void cb_execution_stopped(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;

	cb_jobs_jail_died(k); /* the helpers are ended with the guest */
	stop_clocks(k);
	x->shell.asked_at = 0; /* an answer that comes now is nobody's, least of all the twin's that is being woken */
	x->taken_over = true;
	x->usage_at_end = x->shell.cell.usage_at_start;
	cb_usage_read(&k->guest.usage, &x->usage_at_end);
}

void cb_execution_guest_restored(struct cb_kernel *k)
{
	const struct cb_request *r = k->execution.shell.current;

	if (k->checkpoints.rolling)
		cb_checkpoint_rolled_back(k);
	else if (r != NULL && !cb_overlay_changes_waits(k, r) && !cb_request_is_job(r))
		fail_current(k, true);
	else if (r == NULL)
		note_loss(k, true, "between cells, ");
	k->execution.taken_over = false;
	cb_guest_forget_end(&k->guest);
	cb_loop_mark(&k->loop);
}

void cb_execution_guest_died(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;
	struct cb_comms none = { 0 };

	cb_jobs_jail_died(k);
	cb_lanes_guest_died(k);
	cb_branches_jail_gone(k, cb_failure_death_text(k));
	cb_debug_guest_gone(k);
	if (x->shell.current != NULL && !cb_overlay_changes_waits(k, x->shell.current))
		fail_current(k, false);
	else if (k->guest.retired)
		snprintf(x->lost, sizeof(x->lost),
			 "[cellblock: the jail was ended after %g s without requests and subscribers "
			 "(timeout.idle); all variables are lost]\n",
			 k->policy->timeout_idle);
	else if (k->guest.failed_starts == 0 && !k->guest.given_up && !k->guest.shutting_down)
		note_loss(k, false, "between cells, ");
	if (k->guest.retired)
		x->lost_restored = false;
	x->taken_over = false;
	cb_comms_reset(&k->jupyter, &k->guest.comms, &none);
	if (k->guest.shutting_down) {
		k->loop.stop = true;
		return;
	}
	if (k->guest.failed_starts == 0 && !k->guest.given_up && !k->guest.retired)
		cb_iopub_status(&k->jupyter, "restarting", NULL);
	cb_loop_mark(&k->loop);
}

void cb_execution_guest_failed(struct cb_kernel *k)
{
	if (k->guest.shutting_down)
		k->loop.stop = true;
	cb_jobs_jail_failed(k);
	cb_loop_mark(&k->loop);
}

void cb_execution_end(struct cb_kernel *k, const char *why)
{
	struct cb_shell *s = &k->execution.shell;

	if (s->current != NULL) {
		if (cb_request_is_execute(s->current))
			cb_failure_reply(k, s, "KernelDiedError", "lost", "%s; all variables are lost", why);
		else
			cb_failure_of_asked(k, s->current, "KernelDiedError", why);
		cb_shell_finish(k, s);
	}
	for (struct cb_request *r; (r = cb_shell_pop(s)) != NULL;)
		cb_abort_for_end(k, r, why);
}

int cb_execution_init(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;

	x->shell = (struct cb_shell){ .ops = &main_ops,
				      .jupyter = &k->jupyter,
				      .records = &k->records,
				      .load = &x->load,
				      .python = &k->guest.python,
				      .policy = k->policy,
				      .count = &x->number };
	x->timer = cb_loop_add_timer(&k->loop, on_timer, k);
	return x->timer < 0 || cb_cell_limits_init(k) < 0 ? -ENOSPC : 0;
}

void cb_execution_release(struct cb_kernel *k)
{
	cb_shell_release(&k->execution.shell);
}
