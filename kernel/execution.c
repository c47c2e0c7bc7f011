/* The execution queue.
 *
 * Trust domain: supervisor. One request at a time is at the guest; the others wait here in order of arrival.
 * Invariants: every request that was begun (busy) ends with its reply and idle, also when the guest dies; everything of
 * a cell is published before its reply; the execution count only grows. How a cell fails (time, death, broken wire) is
 * worded in failure.c; what a failed cell aborts is in abort.c.
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
#include "failure.h"
#include "guest_frames.h"
#include "kernel.h"
#include "requests/requests.h"
#include "router.h"

#define SECOND 1000000000LL
#define NOTICE_AFTER SECOND /* an interrupt that Python has not taken by then is held up by C code */

void cb_execution_submit_first(struct cb_kernel *k, struct cb_request *r)
{
	cb_queue_push_first(&k->execution.waiting, &k->execution.load, r);
	if (k->guest.state == CB_GUEST_NONE)
		cb_guest_want(k);
	cb_loop_mark(&k->loop);
}

void cb_execution_submit(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_execution *x = &k->execution;

	if (cb_branches_take(k, r) || cb_lanes_take(k, r))
		return;
	cb_abort_note_arrival(k, r);
	if (k->shutting_down || x->load.count >= CB_QUEUE_MAX ||
	    x->load.bytes + cb_request_bytes(r) > CB_QUEUE_BYTES_MAX) {
		cb_bracket_begin(k, r);
		cb_reply_error(k, r, "KernelBusyError",
			       k->shutting_down ? "the kernel is shutting down"
						: "the queue is full: %zu requests wait",
			       x->load.count);
		cb_bracket_end(k, r);
		cb_request_free(r);
		return;
	}
	if (cb_abort_applies(k, r)) {
		cb_abort_request(k, r);
		return;
	}
	cb_queue_push(&x->waiting, &x->load, r);
	if (k->guest.state == CB_GUEST_NONE)
		cb_guest_want(k);
	cb_loop_mark(&k->loop);
}

/* ---- beginning ---- */

void cb_execution_publish_input(struct cb_kernel *k, const struct cb_request *r, int64_t n)
{
	struct cb_span code = r->execute.code;
	CB_AUTO_BUF b = CB_BUF_INIT(code.len + 128);

	if (cb_buf_append_str(&b, "{\"code\":") < 0 || cb_buf_append(&b, code.data, code.len) < 0 ||
	    cb_buf_printf(&b, ",\"execution_count\":%lld}", (long long)n) < 0)
		return;
	struct cb_outgoing out = { .type = "execute_input",
				   .parent = cb_header_span(r->header),
				   .metadata = CB_SPAN("{}"),
				   .content = cb_buf_span(&b) };

	cb_iopub_publish(k, "execute_input", CB_WEIGHT_KEEP, &out);
}

void cb_execution_record(struct cb_kernel *k, const struct cb_request *r, int64_t n)
{
	CB_AUTO_BUF b = CB_BUF_INIT(r->execute.code.len + 1);

	if (k->history != NULL && cb_json_string_decode(r->execute.code, &b) == 0)
		(void)cb_history_add(k->history, n, b.data != NULL ? (const char *)b.data : "", b.len);
}

static void start_clock(struct cb_kernel *k, int64_t ns)
{
	struct cb_execution *x = &k->execution;

	x->deadline = ns > 0 ? cb_now_ns() + ns : 0;
	cb_loop_arm(&k->loop, x->cell_timer, x->deadline);
}

int cb_execution_metadata(const struct cb_request *r, int64_t n, unsigned lane, struct cb_buf *out)
{
	struct cb_json_field f[] = { { .name = "cellId", .types = CB_JSON_STRING } };
	const struct cb_execute_fields *e = &r->execute;

	(void)cb_json_scan_object(r->metadata.data, r->metadata.len, f, 1, NULL);
	struct cb_span cell_id = f[0].ret.data != NULL && f[0].ret.len < 1024 ? f[0].ret : CB_SPAN("null");

	int c = cb_buf_printf(out,
			      "{\"lane\":%u,\"execution_count\":%lld,\"silent\":%s,\"store_history\":%s,"
			      "\"allow_stdin\":%s,\"cell_id\":%.*s,\"memory\":%llu,\"value\":%s,\"header\":%.*s",
			      lane, (long long)n, e->silent ? "true" : "false", e->store_history ? "true" : "false",
			      e->allow_stdin ? "true" : "false", (int)cell_id.len, cell_id.data,
			      (unsigned long long)e->memory, e->value ? "true" : "false", (int)r->header->len,
			      r->header->data);
	if (c == 0 && e->env.data != NULL)
		c = cb_buf_printf(out, ",\"env\":%.*s", (int)e->env.len, e->env.data);
	if (c == 0 && r->calls != NULL)
		c = cb_buf_printf(out, ",\"tools\":%.*s", (int)r->calls->set->list.len, r->calls->set->list.data);
	return c == 0 ? cb_buf_append_str(out, "}") : c;
}

static int send_execute(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_execution *x = &k->execution;
	CB_AUTO_BUF m = CB_BUF_INIT(r->metadata.len + CB_TOOLS_BYTES + (1u << 20));
	/* Python's own counter stands at the cell's number while it runs, stored or not */
	int c = cb_execution_metadata(r, x->store ? x->cell_number : x->cell_number + 1, 0, &m);

	if (c == 0 && k->twins.possible) {
		m.len--; /* the object goes on */
		c = cb_buf_append_str(&m, ",\"checkpoints\":");
		if (c == 0)
			c = cb_checkpoints_list(k, &m);
		if (c == 0)
			c = cb_buf_append_str(&m, "}");
	}
	return c < 0 ? c
		     : cb_guest_send_request(k, r, CB_WIRE_EXECUTE, CB_PHASE_EXECUTING, r->content, cb_buf_span(&m));
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
	char *const notes[] = { k->workspace_note, k->watch.note, k->checkpoints.note, k->memory.note };
	struct cb_execution *x = &k->execution;

	for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]) && !r->execute.silent; i++) {
		cb_iopub_text(k, r->header, CB_WIRE_STDERR, notes[i], strlen(notes[i]));
		notes[i][0] = '\0';
	}
	if (k->guest.note[0] != '\0' && strcmp(k->guest.note, k->note_told) != 0 && !r->execute.silent) {
		char text[sizeof(k->guest.note) + 32];
		int n = snprintf(text, sizeof(text), "[cellblock: %s]\n", k->guest.note);

		cb_iopub_text(k, r->header, CB_WIRE_STDERR, text, (size_t)n);
		snprintf(k->note_told, sizeof(k->note_told), "%s", k->guest.note);
	}
	cb_iopub_text(k, r->header, CB_WIRE_STDERR, x->lost, strlen(x->lost));
}

/* Sends the request first and publishes while the guest already works. */
static void begin_execute(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_execution *x = &k->execution;
	const struct cb_execute_fields *f = &r->execute;

	x->store = f->store_history;
	x->stop = CB_STOP_NONE;
	x->error_sent = x->output_cut = x->wait_over = x->over_cpu = x->interrupt_repeated = x->awaiting = false;
	x->clock_left = 0;
	x->interrupted_at = 0;
	if (x->store)
		x->number++;
	x->cell_number = x->number;
	x->started_ns = cb_now_ns();
	x->started_date = cb_date_now();
	x->current = r;
	x->taken_over = false;
	cb_audit_cell(k, r, x->cell_number);
	cb_twins_touched(k, f->code, x->store ? x->cell_number : 0);
	x->past = k->twins.past.last;
	cb_calls_begin(r->calls, x->past);
	cb_twins_cell_begins(k);
	cb_memory_cell_begins(k);
	int c = k->guest.state == CB_GUEST_UP ? send_execute(k, r) : 0;

	cb_bracket_begin(k, r);
	if (!f->silent)
		cb_execution_publish_input(k, r, x->store ? x->cell_number : x->cell_number + 1);
	tell_notes(k, r);
	if (x->store)
		cb_execution_record(k, r, x->cell_number);
	if (c < 0) {
		cb_failure_reply(k, "KernelBusyError", "kept", "the request can't be handed to Python: %s",
				 cb_err_name(c));
		cb_execution_finish(k);
		return;
	}
	cb_usage_begin(&k->guest.usage);
	cb_usage_read(&k->guest.usage, &x->usage_at_start);
	start_clock(k, (int64_t)(f->timeout * (double)SECOND));
	cb_meter_start(k, f->cpu, f->memory);
}

static void begin_other(struct cb_kernel *k, struct cb_request *r)
{
	const struct cb_lane_message *m = cb_lane_message_of(r); /* requests/ submits no others */
	bool comm = m->kind == CB_LANE_COMM;

	k->execution.current = r;
	k->execution.interrupted_at = 0;
	k->execution.stop = CB_STOP_NONE;
	CB_AUTO_BUF b = CB_BUF_INIT(r->metadata.len + r->header->len + 64);
	int c = 0;

	if (comm) {
		cb_twins_touched(k, (struct cb_span){ NULL, 0 }, 0);
		c = cb_buf_printf(&b, "{\"header\":%.*s,\"metadata\":%.*s}", (int)r->header->len, r->header->data,
				  (int)r->metadata.len, r->metadata.data);
	}
	if (c == 0)
		c = cb_guest_send_request(k, r, m->wire, comm ? CB_PHASE_COMM : CB_PHASE_ASKING, r->content,
					  comm ? cb_buf_span(&b) : CB_SPAN(""));
	cb_bracket_begin(k, r);
	if (c < 0) {
		cb_failure_of_asked(k, "KernelBusyError", "the request can't be handed to Python");
		cb_execution_finish(k);
	}
}

static void interrupt_current(struct cb_kernel *k);

static void begin(struct cb_kernel *k, struct cb_request *r)
{
	bool interrupted = r->interrupted;

	if (cb_request_is_execute(r)) {
		begin_execute(k, r);
	} else if (cb_request_is_job(r)) {
		k->execution.current = r;
		cb_bracket_begin(k, r);
		cb_job_begin(k, r);
	} else if (cb_request_is_checkpoint(r)) {
		k->execution.current = r;
		cb_bracket_begin(k, r);
		cb_checkpoint_begin(k, r);
	} else {
		begin_other(k, r);
	}
	cb_lanes_busy_begins(k);
	if (interrupted && k->execution.current == r)
		interrupt_current(k);
}

/* No jail can be had: each request is begun only to be failed with the reason. */
static void fail_for_lack_of_jail(struct cb_kernel *k, struct cb_request *r)
{
	if (cb_request_is_execute(r)) {
		begin_execute(k, r);
		cb_failure_isolation(k);
	} else {
		k->execution.current = r;
		cb_bracket_begin(k, r);
		cb_failure_of_asked(k, "IsolationError", k->guest.failure.text);
	}
	cb_execution_finish(k);
}

/* While Python starts, or comes back: clients that wait for the end of what they have asked would take an earlier
 * `idle` for it (jupyter console does, and then shows nothing of its first cell before the reply). */
static void announce(struct cb_kernel *k, struct cb_request *r)
{
	if (r == NULL || r->announced || k->guest.state == CB_GUEST_UP)
		return;
	cb_iopub_status(k, "busy", r->header);
	r->announced = true;
}

void cb_execution_schedule(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;

	while (x->current == NULL && x->waiting.head != NULL && !cb_layer_holds(k) && !cb_twins_busy(k) &&
	       !cb_guest_signals_on_way(k) && !cb_twins_before(k, x->waiting.head)) {
		if (k->guest.state == CB_GUEST_UP)
			begin(k, cb_queue_pop(&x->waiting, &x->load));
		else if (k->guest.state == CB_GUEST_NONE && k->guest.failure.code != 0)
			fail_for_lack_of_jail(k, cb_queue_pop(&x->waiting, &x->load));
		else
			break;
	}
	if (x->current == NULL)
		announce(k, x->waiting.head);
}

/* ---- ending ---- */

void cb_execution_finish(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;
	struct cb_request *r = x->current;

	cb_loop_arm(&k->loop, x->cell_timer, 0);
	cb_loop_arm(&k->loop, x->interrupt_timer, 0);
	cb_loop_arm(&k->loop, x->notice_timer, 0);
	cb_meter_stop(k);
	cb_guest_interrupted(k);
	k->debug.waits = false;
	x->interrupted_at = 0;
	x->current = NULL;
	x->awaiting = false;
	if (cb_request_is_execute(r)) /* it has told of the loss */
		x->lost[0] = '\0';
	if (k->guest.rules.current == r->id) /* also of a guest that is about to be killed: it must not answer twice */
		cb_guest_set_idle(k);
	cb_iopub_status(k, "idle", r->header);
	cb_busy_again(k);
	cb_idle_touch(k);
	if (cb_request_is_execute(r)) {
		cb_watch_cell_ended(k);
		cb_twins_cell_ended(k, (double)(cb_now_ns() - x->started_ns) / (double)SECOND);
	}
	cb_request_free(r);
	if (x->abort_waiting)
		cb_abort_waiting(k);
	cb_twins_quiet(k);
	cb_loop_mark(&k->loop);
}

void cb_execution_error(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c)
{
	struct cb_execution *x = &k->execution;
	bool mine = x->current != NULL && f->header.request != 0 && f->header.request == x->current->id;

	cb_guest_drain_output(k);
	if (mine && x->stop == CB_STOP_TIME_SOFT && cb_failure_of_interrupt(c->ename)) {
		/* what the user must hear is the limit, not how it was enforced */
		cb_failure_publish_timeout(k, c->traceback);
		x->error_sent = true;
		return;
	}
	cb_speaker_error(k, &k->guest.speaker, f, mine && !x->error_sent); /* how a cell ends is always told */
	if (mine)
		x->error_sent = true;
}

void cb_execution_reply(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c)
{
	struct cb_execution *x = &k->execution;
	bool failed = !cb_json_string_is(c->status, "ok"), late;
	const char *limit;

	cb_guest_drain_output(k);
	late = x->stop == CB_STOP_TIME_SOFT && (!failed || cb_failure_of_interrupt(c->ename));
	if (!late && cb_checkpoint_cell_asks(k, f->metadata))
		return;		 /* it is answered when its state is back */
	failed = failed || late; /* also a cell that swallowed the interrupt: it did not do what it was to do */
	if (failed && x->current->execute.stop_on_error)
		cb_abort_queue(k);
	if (late) {
		cb_failure_reply_timeout(k);
	} else {
		CB_AUTO_BUF metadata = CB_BUF_INIT(CB_METADATA_MAX);
		/* the guest of bash outlives its shell */
		bool lost = k->bash && failed && cb_json_string_is(c->ename, "ShellEnded");

		limit = cb_failure_limit(k);
		/* RLIMIT_DATA's way of holding limits.memory; numpy has a name of its own for it */
		if (limit == NULL && failed && c->ename.data != NULL &&
		    (cb_json_string_is(c->ename, "MemoryError") || cb_json_string_is(c->ename, "_ArrayMemoryError")))
			limit = "memory";
		cb_iopub_flush(k);
		cb_failure_metadata(k, failed ? "error" : "ok", lost ? "lost" : "kept", limit, false, &metadata);
		cb_reply_full(k, x->current, cb_buf_span(&metadata), cb_frame_with_count(f, x->cell_number), f->body);
	}
	cb_execution_finish(k);
}

void cb_execution_answer(struct cb_kernel *k, struct cb_frame *f)
{
	struct cb_request *r = k->execution.current;

	cb_iopub_flush(k);
	if (f->header.type != CB_WIRE_COMM_DONE)
		cb_reply_full(k, r, f->metadata, (struct cb_span){ f->content, f->header.content_len }, f->body);
	cb_execution_finish(k);
}

/* ---- time and interrupts ---- */

void cb_execution_stop_reason(struct cb_kernel *k, enum cb_stop stop)
{
	struct cb_execution *x = &k->execution;

	if (x->stop == CB_STOP_NONE || x->stop == CB_STOP_TIME_SOFT)
		x->stop = stop;
}

static void stop_hard(struct cb_kernel *k)
{
	cb_execution_stop_reason(k, CB_STOP_TIME_HARD);
	cb_guest_stop(k, k->execution.over_cpu ? "limit of CPU time" : "time limit");
}

/* A limit of time is reached: KeyboardInterrupt first, after timeout.grace the end. A wait for input always gets to
 * hear it. */
static void stop_soft(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;
	double grace = k->policy->timeout_grace;

	cb_audit_limit(k, x->over_cpu ? "timeout.cpu" : x->wait_over ? "timeout.wait" : "timeout.cell");
	if (grace <= 0 && k->guest.rules.phase != CB_PHASE_INPUT) {
		stop_hard(k);
		return;
	}
	x->stop = CB_STOP_TIME_SOFT;
	x->interrupt_repeated = false;
	cb_guest_interrupt(k);
	start_clock(k, (int64_t)(grace * (double)SECOND) + 1);
}

static void on_cell_timer(void *context)
{
	struct cb_kernel *k = context;
	struct cb_execution *x = &k->execution;

	if (x->current == NULL)
		return;
	if (x->stop != CB_STOP_NONE) {
		stop_hard(k);
		return;
	}
	x->wait_over = k->guest.rules.phase == CB_PHASE_INPUT || k->debug.waits; /* timeout.wait */
	stop_soft(k);
}

void cb_execution_over_cpu(struct cb_kernel *k)
{
	k->execution.over_cpu = true;
	stop_soft(k);
}

void cb_execution_over_memory(struct cb_kernel *k)
{
	char text[128];

	cb_audit_limit(k, "metadata.cellblock.memory");
	cb_execution_stop_reason(k, CB_STOP_MEMORY);
	snprintf(text, sizeof(text), "a process used more than %.1f MiB of memory (metadata.cellblock.memory)",
		 (double)k->execution.current->execute.memory / (1024 * 1024));
	cb_guest_stop(k, text);
}

bool cb_execution_spend(struct cb_kernel *k, double seconds)
{
	struct cb_execution *x = &k->execution;

	if (x->clock_left == 0) /* no limit */
		return true;
	x->clock_left -= (int64_t)(seconds * (double)SECOND);
	if (x->clock_left > 0)
		return true;
	x->clock_left = 1;
	stop_soft(k);
	return false;
}

void cb_execution_input_wait(struct cb_kernel *k, bool waiting)
{
	struct cb_execution *x = &k->execution;

	if (x->current == NULL || x->stop != CB_STOP_NONE)
		return; /* in the grace a cell that asks for input gets no more of it */
	if (waiting) {
		int64_t left = x->deadline - cb_now_ns();

		x->clock_left = x->deadline == 0 ? 0 : left > 0 ? left : 1;
		start_clock(k, (int64_t)(k->policy->timeout_wait * (double)SECOND));
	} else {
		start_clock(k, x->clock_left);
		x->clock_left = 0;
	}
	if (x->current->execute.timeout > 0 || x->current->execute.cpu > 0)
		cb_meter_wait(k, waiting);
}

static void interrupt_hard(struct cb_kernel *k)
{
	cb_execution_stop_reason(k, CB_STOP_INTERRUPT);
	cb_audit_interrupt(k, "hard");
	cb_guest_stop(k, "interrupt not obeyed");
}

static void on_interrupt_timer(void *context)
{
	struct cb_kernel *k = context;

	if (k->execution.current != NULL && k->execution.interrupted_at != 0)
		interrupt_hard(k);
}

static void on_notice_timer(void *context)
{
	struct cb_kernel *k = context;
	struct cb_execution *x = &k->execution;
	static const char text[] = "[cellblock: the interrupt waits, for Python is in C code that looks for none; "
				   "interrupt again to end the cell by force]\n";

	if (x->current != NULL && cb_request_is_execute(x->current) && x->interrupted_at != 0)
		cb_iopub_text(k, x->current->header, CB_WIRE_STDERR, text, sizeof(text) - 1);
}

static void interrupt_current(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;
	int64_t now = cb_now_ns();

	if (cb_request_is_checkpoint(x->current))
		cb_twins_interrupt(k);
	if (cb_request_is_job(x->current) || cb_request_is_checkpoint(x->current))
		return;
	if (x->interrupted_at != 0) {
		if (now - x->interrupted_at >= CB_DOUBLE_CLICK)
			interrupt_hard(k);
		return;
	}
	cb_audit_interrupt(k, "soft");
	x->interrupted_at = now;
	x->interrupt_repeated = false;
	cb_guest_interrupt(k);
	cb_loop_arm(&k->loop, x->notice_timer, now + NOTICE_AFTER);
	if (k->policy->timeout_interrupt > 0)
		cb_loop_arm(&k->loop, x->interrupt_timer,
			    now + (int64_t)(k->policy->timeout_interrupt * (double)SECOND));
}

/* Nothing runs. What waits for a jail that does not come is given up; what waits for a twin to be made, or for signals
 * that were for another, is interrupted as soon as it is begun. */
static void interrupt_waiting(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;

	if (k->guest.state == CB_GUEST_UP) {
		cb_twins_interrupt(k);
		if (x->waiting.head != NULL && !cb_layer_holds(k))
			x->waiting.head->interrupted = true;
		return;
	}
	struct cb_request *r = cb_queue_pop(&x->waiting, &x->load);

	if (r == NULL)
		return;
	cb_guest_give_up_start(k);
	if (!cb_request_is_execute(r)) {
		cb_abort_request(k, r);
		return;
	}
	begin_execute(k, r);
	cb_abort_queue(k);
	cb_failure_reply(k, "KeyboardInterrupt", "kept", "interrupted while the jail was starting");
	cb_execution_finish(k);
}

void cb_execution_interrupt(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;
	const struct cb_request *meant = x->current;

	cb_jobs_interrupt(k);
	cb_layer_interrupt(k);
	cb_lanes_interrupt(k);
	if (x->current != meant) /* that one has ended, and what runs now is another */
		return;
	if (k->guest.state == CB_GUEST_RESTORING || k->twins.confirming)
		return;
	if (x->current != NULL)
		interrupt_current(k);
	else
		interrupt_waiting(k);
}

void cb_execution_interrupt_delivered(struct cb_kernel *k, uint64_t request)
{
	struct cb_execution *x = &k->execution;

	if (x->current != NULL && (request == 0 || request != x->current->id)) {
		/* The signal was for what came before; or it overtook the request on its way: Python was idle, or not
		 * quite done with what came before, and let it pass. Then once more at once, which may be too early
		 * again; and the nudges go on. */
		if (k->guest.interrupt_wanted && !x->interrupt_repeated)
			cb_guest_interrupt_again(k);
		x->interrupt_repeated = true;
		return;
	}
	x->interrupted_at = 0;
	cb_loop_arm(&k->loop, x->interrupt_timer, 0);
	cb_loop_arm(&k->loop, x->notice_timer, 0);
	cb_guest_interrupted(k);
	if (k->guest.rules.phase == CB_PHASE_INPUT) { /* the interrupt ends the question */
		cb_guest_rules_input(&k->guest.rules, false);
		cb_execution_input_wait(k, false);
	}
}

/* ---- the guest comes and goes ---- */

void cb_execution_guest_up(struct cb_kernel *k)
{
	if (k->guest.restarted) {
		k->guest.restarted = false;
		/* no idle: some clients take the next one for the end of their cell */
		cb_iopub_status(k, "starting", NULL);
	}
	cb_twins_guest_up(k);
	cb_loop_mark(&k->loop);
}

/* The current request ends with its guest; what becomes of the state is known by now. */
static void fail_current(struct cb_kernel *k, bool restored)
{
	struct cb_execution *x = &k->execution;
	bool execute = cb_request_is_execute(x->current);

	if (execute && x->current->execute.stop_on_error)
		cb_abort_queue(k);
	if (execute)
		cb_failure_death(k, restored);
	else
		cb_failure_of_asked(k, "KernelDiedError", cb_failure_death_text(k));
	if (!execute)
		snprintf(x->lost, sizeof(x->lost), "[cellblock: %s; %s%s]\n", cb_failure_death_text(k),
			 restored ? k->twins.outcome : "all variables are lost", restored ? "" : k->twins.calls_text);
	x->lost_restored = restored;
	cb_execution_finish(k);
}

static void between_cells(struct cb_kernel *k, bool restored)
{
	struct cb_execution *x = &k->execution;

	snprintf(x->lost, sizeof(x->lost), "[cellblock: between cells, %s; %s%s]\n", cb_failure_death_text(k),
		 restored ? k->twins.outcome : "all variables are lost", restored ? "" : k->twins.calls_text);
	x->lost_restored = restored;
}

static void stop_clocks(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;

	cb_loop_arm(&k->loop, x->cell_timer, 0);
	cb_loop_arm(&k->loop, x->interrupt_timer, 0);
	cb_meter_stop(k);
	cb_guest_interrupted(k);
	x->interrupted_at = 0;
}

void cb_execution_cell_over(struct cb_kernel *k)
{
	stop_clocks(k);
	cb_guest_set_idle(k);
}

void cb_execution_stopped(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;

	cb_jobs_jail_died(k); /* the helpers are ended with the guest */
	stop_clocks(k);
	x->taken_over = true;
	x->usage_at_end = x->usage_at_start;
	cb_usage_read(&k->guest.usage, &x->usage_at_end);
}

void cb_execution_guest_restored(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;

	if (k->checkpoints.rolling)
		cb_checkpoint_rolled_back(k);
	else if (x->current != NULL && !cb_layer_waits(k, x->current) && !cb_request_is_job(x->current))
		fail_current(k, true);
	else if (x->current == NULL)
		between_cells(k, true);
	x->taken_over = false;
	cb_guest_forget_end(k);
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
	if (x->current != NULL && !cb_layer_waits(k, x->current))
		fail_current(k, false);
	else if (k->guest.retired)
		snprintf(x->lost, sizeof(x->lost),
			 "[cellblock: the jail was ended after %g s without requests and subscribers "
			 "(timeout.idle); all variables are lost]\n",
			 k->policy->timeout_idle);
	else if (k->guest.failed_starts == 0 && !k->guest.given_up && !k->shutting_down)
		between_cells(k, false);
	if (k->guest.retired)
		x->lost_restored = false;
	x->taken_over = false;
	cb_comms_reset(k, &k->comms, &none);
	if (k->shutting_down) {
		k->loop.stop = true;
		return;
	}
	if (k->guest.failed_starts == 0 && !k->guest.given_up && !k->guest.retired)
		cb_iopub_status(k, "restarting", NULL);
	cb_loop_mark(&k->loop);
}

void cb_execution_guest_failed(struct cb_kernel *k)
{
	if (k->shutting_down)
		k->loop.stop = true;
	cb_jobs_jail_failed(k);
	cb_loop_mark(&k->loop);
}

void cb_execution_end(struct cb_kernel *k, const char *why)
{
	struct cb_execution *x = &k->execution;

	if (x->current != NULL) {
		if (cb_request_is_execute(x->current))
			cb_failure_reply(k, "KernelDiedError", "lost", "%s; all variables are lost", why);
		else
			cb_failure_of_asked(k, "KernelDiedError", why);
		cb_execution_finish(k);
	}
	for (struct cb_request *r; (r = cb_queue_pop(&x->waiting, &x->load)) != NULL;)
		cb_abort_for_end(k, r, why);
}

int cb_execution_init(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;

	x->cell_timer = cb_loop_add_timer(&k->loop, on_cell_timer, k);
	x->interrupt_timer = cb_loop_add_timer(&k->loop, on_interrupt_timer, k);
	x->notice_timer = cb_loop_add_timer(&k->loop, on_notice_timer, k);
	return x->cell_timer < 0 || x->interrupt_timer < 0 || x->notice_timer < 0 || cb_meter_init(k) < 0 ? -ENOSPC : 0;
}

void cb_execution_release(struct cb_kernel *k)
{
	struct cb_execution *x = &k->execution;

	for (struct cb_request *r; (r = cb_queue_pop(&x->waiting, &x->load)) != NULL;)
		cb_request_free(r);
	cb_request_free(x->current);
	x->current = NULL;
}
