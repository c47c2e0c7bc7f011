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
#include <errno.h>

#include "abort.h"
#include "cell_limits.h"
#include "debug.h"
#include "failure.h"
#include "idle.h"
#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "jupyter/status.h"
#include "lanes.h"
#include "policy/policy.h"
#include "python/guest.h"
#include "records/records.h"
#include "shell.h"

#define SECOND 1000000000LL

static void wake(struct cb_shells *sh)
{
	if (sh->guest->state == CB_GUEST_NONE)
		cb_guest_want(sh->guest);
	cb_loop_mark(sh->loop);
}

void cb_execution_submit_first(struct cb_shells *sh, struct cb_request *r)
{
	if (cb_shell_take_first(&sh->execution.shell, r))
		wake(sh);
}

void cb_execution_submit(struct cb_shells *sh, struct cb_request *r)
{
	struct cb_execution *x = &sh->execution;

	if (sh->keeper->takes(sh->kept, r) || cb_lanes_take(sh, r))
		return;
	cb_abort_note_arrival(x, r);
	if (sh->guest->shutting_down) {
		cb_refuse(sh->jupyter, r, "KernelBusyError", "the kernel is shutting down");
		return;
	}
	if (cb_abort_applies(x, r)) {
		cb_abort_request(sh->jupyter, r);
		return;
	}
	if (cb_shell_take(&x->shell, r))
		wake(sh);
}

/* ---- beginning ---- */

static int send_request(struct cb_shell *s, struct cb_request *r, const struct cb_shell_message *m)
{
	int c = cb_shell_send(s, r, m);

	if (c >= 0 && m->phase == CB_PHASE_COMM)
		s->all->events->comm_begins(s->all->kernel, r);
	return c;
}

/* What the next cell is to say, once. Nobody sees what a silent one says. */
static void tell_notes(struct cb_shells *sh, const struct cb_request *r)
{
	struct cb_execution *x = &sh->execution;

	if (r->execute.silent)
		return;
	for (size_t i = 0; i < CB_NOTES; i++) {
		cb_iopub_text(sh->jupyter, r->header, CB_WIRE_STDERR, x->notes[i], strlen(x->notes[i]));
		x->notes[i][0] = '\0';
	}
	if (sh->guest->note[0] != '\0' && strcmp(sh->guest->note, x->note_told) != 0) {
		char text[sizeof(sh->guest->note) + 32];
		int n = snprintf(text, sizeof(text), "[cellblock: %s]\n", sh->guest->note);

		cb_iopub_text(sh->jupyter, r->header, CB_WIRE_STDERR, text, (size_t)n);
		snprintf(x->note_told, sizeof(x->note_told), "%s", sh->guest->note);
	}
	cb_iopub_text(sh->jupyter, r->header, CB_WIRE_STDERR, x->lost, strlen(x->lost));
	x->lost[0] = '\0';
}

bool cb_execution_up(struct cb_shell *s)
{
	return s->all->guest->state == CB_GUEST_UP;
}

void cb_execution_cell_begins(struct cb_shell *s)
{
	s->all->keeper->cell_begins(s->all->kept, s);
}

static void begun(struct cb_shell *s)
{
	s->all->execution.taken_over = false;
	cb_python_interrupt_no_more(s->python); /* it was a comm message's that goes on beside it */
	cb_execution_cell_begins(s);
}

void cb_execution_record(struct cb_shell *s)
{
	struct cb_span code = s->current->execute.code;
	CB_AUTO_BUF b = CB_BUF_INIT(code.len + 1);
	struct cb_history *history = s->all->records->history;

	if (s->cell.store && history != NULL && cb_json_string_decode(code, &b) == 0)
		(void)cb_history_add(history, s->cell.number, b.data != NULL ? (const char *)b.data : "", b.len);
}

static void told(struct cb_shell *s)
{
	struct cb_shells *sh = s->all;
	const struct cb_execute_fields *e = &s->current->execute;

	tell_notes(sh, s->current);
	cb_execution_record(s);
	cb_usage_begin(&sh->guest->usage);
	cb_cell_limits_start(sh, e->cpu, e->memory);
}

static void begin(struct cb_shells *sh, struct cb_request *r)
{
	struct cb_shell *s = &sh->execution.shell;
	bool interrupted = r->interrupted;

	if (cb_shell_message_of(r) == NULL) {
		if (cb_failure_without_log(sh, r))
			return;
		cb_shell_begin_here(s, r);
		sh->events->serve(sh->kernel, r);
		if (interrupted && s->current == r)
			sh->events->interrupt_rest(sh->kernel, r);
		if (interrupted && s->current == r)
			sh->keeper->interrupt(sh->kept);
	} else {
		cb_shell_begin(s, r);
	}
	cb_lanes_busy_begins(sh);
}

/* No jail can be had: each request is begun only to be failed with the reason. */
static void fail_for_lack_of_jail(struct cb_shells *sh, struct cb_request *r)
{
	struct cb_shell *s = &sh->execution.shell;

	if (cb_shell_message_of(r) != NULL) {
		cb_shell_begin(s, r);
		return;
	}
	cb_shell_begin_here(s, r);
	cb_failure_of_asked(sh->jupyter, r, "IsolationError", sh->guest->failure.text);
	cb_shell_finish(s);
}

/* While Python starts or comes back, and cells while its state is kept: clients that wait for the end of what they have
 * asked would take an earlier `idle` for it (jupyter console does, and then shows nothing of its cell before the reply,
 * no question of input() either). */
static void announce(struct cb_shells *sh, struct cb_request *r)
{
	if (r == NULL || r->announced)
		return;
	if (sh->guest->state == CB_GUEST_UP && !(cb_request_is_execute(r) && sh->keeper->copying(sh->kept)))
		return;
	cb_iopub_status(sh->jupyter, "busy", r->header);
	r->announced = true;
}

void cb_execution_schedule(struct cb_shells *sh)
{
	struct cb_shell *s = &sh->execution.shell;

	while (s->current == NULL && s->waiting.head != NULL && !sh->events->files_held(sh->kernel) &&
	       !sh->keeper->copying(sh->kept) && sh->guest->python.signals == 0 &&
	       !cb_lanes_before(sh, s->waiting.head) && !sh->keeper->before(sh->kept, s->waiting.head)) {
		if (sh->guest->state == CB_GUEST_UP)
			begin(sh, cb_shell_pop(s));
		else if (sh->guest->state == CB_GUEST_NONE && sh->guest->failure.code != 0)
			fail_for_lack_of_jail(sh, cb_shell_pop(s));
		else
			break;
	}
	if (s->current == NULL)
		announce(sh, s->waiting.head);
}

/* ---- ending ---- */

void cb_execution_finish(struct cb_shells *sh)
{
	cb_shell_finish(&sh->execution.shell);
}

void cb_execution_answered(struct cb_shells *sh, struct cb_request *r)
{
	if (r == sh->execution.shell.current) {
		cb_execution_finish(sh);
		return;
	}
	cb_bracket_end(sh->jupyter, r);
	cb_idle_touch(&sh->idle);
	cb_request_free(r);
	cb_loop_mark(sh->loop); /* others may have waited for it */
}

static void ending(struct cb_shell *s, struct cb_request *r)
{
	struct cb_shells *sh = s->all;

	cb_cell_limits_stop(sh);
	cb_python_interrupt_no_more(&sh->guest->python);
	cb_debug_cell_over(sh);
	if (cb_request_is_execute(r)) /* it has told of the loss */
		sh->execution.lost_owed = false;
	/* also of a guest that is about to be killed: it must not answer twice */
	if (r->id != 0 && sh->guest->python.rules.current == r->id)
		cb_guest_set_idle(sh->guest);
}

static void done(struct cb_shell *s, struct cb_request *r)
{
	struct cb_shells *sh = s->all;

	if (cb_request_is_execute(r))
		sh->events->cell_ended(sh->kernel, (double)(cb_now_ns() - s->cell.started_ns) / (double)SECOND);
	sh->keeper->quiet(sh->kept);
	cb_loop_mark(sh->loop);
}

static bool defers(struct cb_shell *s, const struct cb_frame *f, bool late)
{
	return s->all->keeper->goes_back(s->all->kept, f, late);
}

/* ---- time and interrupts ---- */

void cb_execution_kill(struct cb_shell *s, const char *why)
{
	cb_guest_stop(s->all->guest, why);
}

static void usage(struct cb_shell *s, struct cb_usage *ret_usage)
{
	struct cb_shells *sh = s->all;
	const struct cb_broker_reply *end = &sh->guest->end;

	if (sh->execution.taken_over)
		*ret_usage = sh->execution.usage_at_end;
	else
		cb_usage_read(&sh->guest->usage, ret_usage);
	if (sh->guest->end_known && end->watchdog > 0 && end->note[0] == '\0') /* else it is no figure */
		ret_usage->memory_peak_bytes = end->watchdog;
	if (sh->guest->end_known && end->memory_peak > 0)
		ret_usage->memory_peak_bytes = end->memory_peak;
	if (sh->guest->over_memory > 0)
		ret_usage->memory_peak_bytes = sh->guest->over_memory;
}

static void waits(struct cb_shell *s, bool waits)
{
	cb_cell_limits_wait(s->all, waits);
}

static void arm(struct cb_shell *s)
{
	int64_t when = 0;

	cb_shell_due(s, NULL, &when);
	cb_loop_arm(s->all->loop, s->all->execution.timer, when);
}

static void on_timer(void *context)
{
	struct cb_shells *sh = context;

	cb_shell_look(&sh->execution.shell, cb_now_ns());
	arm(&sh->execution.shell);
}

static void asks(struct cb_shell *s)
{
	cb_debug_cell_over(s->all);
}

static const struct cb_shell_ops main_ops = {
	.max_waiting = CB_QUEUE_MAX,
	.max_bytes = CB_QUEUE_BYTES_MAX,
	.up = cb_execution_up,
	.begun = begun,
	.told = told,
	.send = send_request,
	.awaits = cb_lanes_cell_awaits,
	.asks = asks,
	.defers = defers,
	.waits = waits,
	.kill = cb_execution_kill,
	.ending = ending,
	.done = done,
	.usage = usage,
	.arm = arm,
};

static void interrupt_current(struct cb_shells *sh)
{
	struct cb_shell *s = &sh->execution.shell;

	if (cb_shell_message_of(s->current) != NULL)
		cb_shell_interrupt(s, true);
	else
		sh->keeper->interrupt(sh->kept);
}

/* Nothing runs. What waits for a jail that does not come is given up: the cell, not what frontends have sent before it.
 * What waits for a twin to be made, or for signals that were for another, is interrupted as soon as it is begun. */
static void interrupt_waiting(struct cb_shells *sh)
{
	struct cb_shell *s = &sh->execution.shell;

	if (sh->guest->state == CB_GUEST_UP) {
		sh->keeper->interrupt(sh->kept);
		if (!sh->events->files_held(sh->kernel))
			cb_shell_interrupt(s, true);
		return;
	}
	struct cb_request *r = cb_queue_take_next_cell(&s->waiting, s->load);

	if (r == NULL)
		return;
	cb_guest_give_up_start(sh->guest);
	if (!cb_request_is_execute(r)) {
		cb_abort_request(sh->jupyter, r);
		return;
	}
	cb_shell_begin_here(s, r);
	if (r->execute.stop_on_error)
		cb_abort_queue(s);
	cb_failure_reply(s, "KeyboardInterrupt", "kept", "interrupted while the jail was starting");
	cb_shell_finish(s);
}

/* A copy takes over, and is not known to work yet. */
static bool is_restored(const struct cb_shells *sh)
{
	return sh->guest->state == CB_GUEST_RESTORING ||
	       (sh->guest->state == CB_GUEST_UP && sh->execution.taken_over);
}

enum cb_found cb_execution_interrupt_one(struct cb_shells *sh, struct cb_span msg_id)
{
	struct cb_shell *s = &sh->execution.shell;

	if (!is_restored(sh) || !cb_request_named(s->current, msg_id))
		return cb_shell_interrupt_one(s, msg_id);
	sh->keeper->interrupt(sh->kept);
	return CB_FOUND_RUNNING;
}

void cb_execution_interrupt(struct cb_shells *sh, const struct cb_request *by)
{
	struct cb_shell *s = &sh->execution.shell;
	const struct cb_request *meant = s->current;
	bool spared = cb_shell_came_after(s, by);

	/* a command that came on shell is the main shell's */
	if (!spared || meant == NULL || cb_shell_message_of(meant) != NULL)
		sh->events->interrupt_rest(sh->kernel, NULL);
	cb_lanes_interrupt(sh, by);
	if (spared || s->current != meant) /* that one has ended, and what runs now is another */
		return;
	if (is_restored(sh)) { /* the cell has ended: what may hold up its reply is the copying */
		sh->keeper->interrupt(sh->kept);
		if (s->current == NULL)
			cb_shell_interrupt(s, true);
		return;
	}
	if (s->current != NULL)
		interrupt_current(sh);
	else
		interrupt_waiting(sh);
}

/* ---- the guest comes and goes ---- */

void cb_execution_guest_up(struct cb_shells *sh)
{
	if (sh->guest->restarted) {
		sh->guest->restarted = false;
		/* no idle: some clients take the next one for the end of their cell */
		cb_iopub_status(sh->jupyter, "starting", NULL);
	}
	cb_loop_mark(sh->loop);
}

/* Behind what nobody was told yet, unless nothing of that counts any more, or there is no room for both. */
static void note_loss(struct cb_shells *sh, bool restored, const char *when)
{
	struct cb_execution *x = &sh->execution;
	char line[sizeof(x->lost) / 2];
	int n = snprintf(line, sizeof(line), "[cellblock: %s%s; %s%s]\n", when, cb_failure_death_text(sh),
			 restored ? sh->keeper->became(sh->kept, true) : "all variables are lost",
			 restored ? "" : sh->events->lost_calls(sh->kernel));
	size_t told = restored ? strlen(x->lost) : 0;

	if (told + (size_t)n >= sizeof(x->lost))
		told = 0;
	x->lost_restored = restored && (!x->lost_owed || x->lost_restored);
	x->lost_owed = true;
	snprintf(x->lost + told, sizeof(x->lost) - told, "%s", line);
}

/* The current request ends with its guest; what becomes of the state is known by now. */
static void fail_current(struct cb_shells *sh, bool restored)
{
	struct cb_shell *s = &sh->execution.shell;
	struct cb_death d;

	if (!cb_request_is_execute(s->current))
		note_loss(sh, restored, "");
	cb_failure_note_memory(s);
	cb_failure_of_python(sh, restored, &d);
	cb_shell_died(s, &d);
}

/* Nothing of the cell is waited for. An answer that comes now is nobody's, least of all that of a twin which wakes. */
static void stop_clocks(struct cb_shells *sh)
{
	struct cb_shell *s = &sh->execution.shell;

	cb_cell_limits_stop(sh);
	cb_python_interrupt_no_more(&sh->guest->python);
	s->asked_at = s->interrupted_at = s->notice_at = s->interrupt_by = s->cell.deadline = 0;
	arm(s);
}

void cb_execution_cell_over(struct cb_shells *sh)
{
	stop_clocks(sh);
	cb_guest_set_idle(sh->guest);
}

void cb_execution_stopped(struct cb_shells *sh)
{
	struct cb_execution *x = &sh->execution;

	stop_clocks(sh);
	x->taken_over = true;
	x->usage_at_end = x->shell.cell.usage_at_start;
	cb_usage_read(&sh->guest->usage, &x->usage_at_end);
}

void cb_execution_guest_restored(struct cb_shells *sh, bool told)
{
	const struct cb_request *r = sh->execution.shell.current;
	bool goes_on = r != NULL && sh->events->outlives(sh->kernel, r); /* and tells of nothing */

	if (!told && (r == NULL || goes_on))
		note_loss(sh, true, cb_lanes_running(sh) != NULL ? "beside a subshell's cell, " : "between cells, ");
	else if (!told)
		fail_current(sh, true);
	cb_lanes_guest_died(sh, true);
	sh->execution.taken_over = false;
	cb_guest_forget_end(sh->guest);
	cb_loop_mark(sh->loop);
}

void cb_execution_guest_died(struct cb_shells *sh)
{
	struct cb_execution *x = &sh->execution;
	struct cb_comms none = { 0 };

	if (x->shell.current != NULL && !sh->events->outlives(sh->kernel, x->shell.current)) {
		fail_current(sh, false);
	} else if (sh->guest->retired) {
		snprintf(x->lost, sizeof(x->lost),
			 "[cellblock: the jail was ended after %g s without requests and subscribers "
			 "(timeout.idle); all variables are lost]\n",
			 sh->policy->timeout_idle);
		x->lost_restored = false;
		x->lost_owed = true;
	} else if (sh->guest->failed_starts == 0 && !sh->guest->given_up && !sh->guest->shutting_down) {
		note_loss(sh, false, "between cells, ");
	}
	x->taken_over = false;
	cb_comms_reset(sh->jupyter, &sh->guest->comms, &none);
	if (sh->guest->shutting_down) {
		sh->loop->stop = true;
		return;
	}
	if (sh->guest->failed_starts == 0 && !sh->guest->given_up && !sh->guest->retired)
		cb_iopub_status(sh->jupyter, "restarting", NULL);
	cb_loop_mark(sh->loop);
}

void cb_execution_guest_failed(struct cb_shells *sh)
{
	if (sh->guest->shutting_down)
		sh->loop->stop = true;
	cb_loop_mark(sh->loop);
}

void cb_execution_end(struct cb_shells *sh, const char *why)
{
	struct cb_shell *s = &sh->execution.shell;

	if (s->current != NULL) {
		if (cb_request_is_execute(s->current))
			cb_failure_reply(s, "KernelDiedError", "lost", "%s; all variables are lost", why);
		else
			cb_failure_of_asked(sh->jupyter, s->current, "KernelDiedError", why);
		cb_shell_finish(s);
	}
	for (struct cb_request *r; (r = cb_shell_pop(s)) != NULL;)
		cb_abort_for_end(sh->jupyter, r, why);
}

int cb_execution_init(struct cb_shells *sh)
{
	struct cb_execution *x = &sh->execution;

	x->shell = (struct cb_shell){
		.ops = &main_ops, .all = sh, .load = &x->load, .python = &sh->guest->python, .count = &x->number
	};
	x->timer = cb_loop_add_timer(sh->loop, on_timer, sh);
	return x->timer < 0 || cb_cell_limits_init(sh) < 0 ? -ENOSPC : 0;
}

void cb_execution_release(struct cb_shells *sh)
{
	cb_shell_release(&sh->execution.shell);
}
