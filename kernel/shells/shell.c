/* One shell: waiting, beginning, ending, input, interrupts, limits of time.
 *
 * Trust domain: supervisor. A shell serves one request at a time, the others wait in it. The main shell, each subshell
 * and each branch is one, and so is what answers beside a running cell; who serves it, and what differs, is behind its
 * ops. Invariants: every request that was begun (busy) ends with its reply and idle; everything of a cell is published
 * before its reply; a cell that overruns its limits is interrupted first, and ended by force only if it does not end;
 * what a failed cell aborts waits in the same shell.
 *
 * The words of a failed cell are in failure.c, what is aborted in abort.c.
 */
#include "shell.h"

#include <cellblock/clock.h>
#include <cellblock/json_scan.h>
#include <cellblock/log.h>
#include <cellblock/states.h>

#include "abort.h"
#include "failure.h"
#include "idle.h"
#include "stdin.h"
#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "jupyter/status.h"
#include "jupyter/tools.h"
#include "policy/policy.h"
#include "python/python.h"
#include "records/audit_events.h"

#define SECOND 1000000000LL
#define LOOK_PERIOD (SECOND / 2)
#define NOTICE_AFTER SECOND /* an interrupt that Python has not taken by then is held up by C code */
#define OVERTAKEN (2 * SECOND) /* of a cell's run, or wait; later an interrupt counts always: a clock may be set back */

static const struct cb_shell_message message[] = {
	{ CB_REQUEST_COMPLETE, CB_WIRE_COMPLETE, CB_WIRE_COMPLETE_REPLY, CB_PHASE_ASKING },
	{ CB_REQUEST_INSPECT, CB_WIRE_INSPECT, CB_WIRE_INSPECT_REPLY, CB_PHASE_ASKING },
	{ CB_REQUEST_IS_COMPLETE, CB_WIRE_IS_COMPLETE, CB_WIRE_IS_COMPLETE_REPLY, CB_PHASE_ASKING },
	{ CB_REQUEST_EXECUTE, CB_WIRE_EXECUTE, CB_WIRE_EXECUTE_REPLY, CB_PHASE_EXECUTING },
	{ CB_REQUEST_COMM_OPEN, CB_WIRE_DOWN_COMM_OPEN, CB_WIRE_COMM_DONE, CB_PHASE_COMM },
	{ CB_REQUEST_COMM_MSG, CB_WIRE_DOWN_COMM_MSG, CB_WIRE_COMM_DONE, CB_PHASE_COMM },
	{ CB_REQUEST_COMM_CLOSE, CB_WIRE_DOWN_COMM_CLOSE, CB_WIRE_COMM_DONE, CB_PHASE_COMM },
};

const struct cb_shell_message *cb_shell_message_of(const struct cb_request *r)
{
	for (size_t i = 0; i < CB_COUNT(message); i++)
		if (message[i].of == r->kind)
			return &message[i];
	return NULL;
}

bool cb_shell_is(const struct cb_shell *s, struct cb_span id)
{
	return s->id[0] != '\0' && cb_json_string_is(id, s->id);
}

static bool runs_cell(const struct cb_shell *s)
{
	return s->current != NULL && cb_request_is_execute(s->current);
}

/* ---- waiting ---- */

struct cb_request *cb_shell_pop(struct cb_shell *s)
{
	return cb_queue_pop(&s->waiting, s->load);
}

/* One alone may be as large as limits.message lets it be. */
bool cb_shell_has_room(const struct cb_shell *s, const struct cb_request *r)
{
	const struct cb_load *load = s->load;

	return load->count < s->ops->max_waiting &&
	       (load->bytes == 0 || load->bytes + cb_request_bytes(r) <= s->ops->max_bytes);
}

static bool has_room(struct cb_shell *s, struct cb_request *r)
{
	if (cb_shell_has_room(s, r))
		return true;
	cb_refuse(s->all->jupyter, r, "KernelBusyError", "the queue is full: %zu requests wait", s->load->count);
	return false;
}

bool cb_shell_take(struct cb_shell *s, struct cb_request *r)
{
	if (!has_room(s, r))
		return false;
	cb_queue_push(&s->waiting, s->load, r);
	return true;
}

bool cb_shell_take_first(struct cb_shell *s, struct cb_request *r)
{
	if (!has_room(s, r))
		return false;
	cb_queue_push_first(&s->waiting, s->load, r);
	return true;
}

void cb_shell_release(struct cb_shell *s)
{
	for (struct cb_request *r; (r = cb_shell_pop(s)) != NULL;)
		cb_request_free(r);
	cb_request_free(s->current);
	s->current = NULL;
	cb_stdin_forget(s);
}

/* ---- beginning ---- */

static void publish_input(const struct cb_shell *s, int64_t n)
{
	const struct cb_request *r = s->current;
	struct cb_span code = r->execute.code;
	/* big ones may be given up when nobody reads, as big results are */
	enum cb_weight weight = code.len <= CB_MESSAGE_SMALL ? CB_WEIGHT_KEEP : CB_WEIGHT_DATA;
	CB_AUTO_BUF b = CB_BUF_INIT(code.len + 128);

	if (cb_json_write_object(&b, "code", code, "execution_count", n) == 0)
		cb_iopub_content(s->all->jupyter, "execute_input", weight, r->header, cb_buf_span(&b));
}

static void count_cell(struct cb_shell *s, struct cb_request *r)
{
	struct cb_cell *c = &s->cell;

	c->store = r->execute.store_history;
	if (c->store)
		++*s->count;
	c->number = *s->count;
	c->started_ns = cb_now_ns();
	c->started_date = cb_date_now();
	cb_audit_cell(s->all->records, r, c->number);
	if (s->ops->begun != NULL)
		s->ops->begun(s);
}

static void tell_of_cell(struct cb_shell *s)
{
	struct cb_cell *c = &s->cell;
	const struct cb_request *r = s->current;

	if (!r->execute.silent)
		publish_input(s, cb_cell_shown(c));
	if (s->ops->told != NULL)
		s->ops->told(s);
	s->ops->usage(s, &c->usage_at_start);
	if (r->execute.timeout > 0)
		c->deadline = cb_now_ns() + (int64_t)(r->execute.timeout * (double)SECOND);
	s->cpu_at_start = r->execute.cpu > 0 && s->ops->cpu != NULL ? s->ops->cpu(s) : 0;
}

/* Sends the request first and publishes while Python already works. */
static int begin(struct cb_shell *s, struct cb_request *r, bool send)
{
	bool cell = cb_request_is_execute(r);
	int c = 0;

	CB_HOLDS(s->current == NULL);
	s->current = r;
	s->cell = (struct cb_cell){ .usage_at_start = s->cell.usage_at_start };
	s->answered = s->stale = s->awaiting = s->over = false;
	s->ask_again = 0;
	s->answer_by = s->asked_at = s->interrupted_at = s->notice_at = s->interrupt_by = 0;
	if (cell)
		count_cell(s, r);
	if (send)
		c = s->ops->send(s, r, cb_shell_message_of(r));
	cb_bracket_begin(s->all->jupyter, r);
	if (cell)
		tell_of_cell(s);
	s->ops->arm(s);
	return c;
}

int cb_shell_metadata(const struct cb_shell *s, unsigned lane, struct cb_buf *out)
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
	if (s == &s->all->execution.shell)
		s->all->events->write_begin(s->all->kernel, &j);
	return cb_json_done(&j);
}

int cb_shell_send(struct cb_shell *s, struct cb_request *r, const struct cb_shell_message *m)
{
	CB_AUTO_BUF about = CB_BUF_INIT(r->metadata.len + r->header->len + CB_TOOLS_BYTES + (1u << 20));
	int c = 0;

	if (m->phase == CB_PHASE_EXECUTING)
		c = cb_shell_metadata(s, 0, &about);
	else if (m->phase == CB_PHASE_COMM)
		c = cb_json_write_object(&about, "header", cb_header_span(r->header), "metadata", r->metadata);
	return c < 0 ? c : cb_python_send(s->python, r, m->wire, m->phase, cb_buf_span(&about));
}

void cb_shell_begin(struct cb_shell *s, struct cb_request *r)
{
	bool up = s->ops->up(s), interrupted = r->interrupted;

	if (cb_failure_without_log(s->all, r)) /* it was there when the request came */
		return;
	int c = begin(s, r, up);

	if (up && c >= 0) {
		if (interrupted && s->current == r)
			cb_shell_interrupt(s, true);
		return;
	}
	cb_failure_unsent(s, up, c);
	cb_shell_finish(s);
}

void cb_shell_begin_here(struct cb_shell *s, struct cb_request *r)
{
	(void)begin(s, r, false);
}

/* ---- ending ---- */

void cb_shell_finish(struct cb_shell *s)
{
	struct cb_request *r = s->current;

	CB_HOLDS(r != NULL);
	s->current = NULL;
	s->awaiting = s->over = false;
	cb_stdin_forget(s);
	s->asked_at = s->interrupted_at = s->notice_at = s->interrupt_by = s->cell.deadline = 0;
	if (s->ops->ending != NULL)
		s->ops->ending(s, r);
	if (!s->stale) {
		cb_iopub_status(s->all->jupyter, "idle", r->header);
		cb_busy_again(s->all->jupyter);
	}
	cb_idle_touch(&s->all->idle);
	if (s->abort_waiting)
		cb_abort_waiting(s);
	s->ops->done(s, r);
	s->ops->arm(s);
	cb_request_free(r);
}

void cb_shell_error(struct cb_shell *s, struct cb_frame *f, const struct cb_guest_content *c)
{
	bool mine = s->current != NULL && f->header.request != 0 && f->header.request == s->current->id;

	cb_output_drain(&s->python->output);
	if (mine && !s->cell.limit_told && s->cell.stop == CB_STOP_TIME_SOFT && cb_failure_of_interrupt(c->ename)) {
		/* what the user must hear is the limit, not how it was enforced; and once, past limits.output */
		s->cell.limit_told = true;
		cb_failure_publish_timeout(s, c->traceback);
	} else {
		cb_output_error(&s->python->output, f,
				mine && !s->cell.error_sent); /* how a cell ends is always told */
	}
	if (mine)
		s->cell.error_sent = true;
}

void cb_shell_reply(struct cb_shell *s, struct cb_frame *f, const struct cb_guest_content *c)
{
	bool cell = runs_cell(s), failed = cell && !cb_json_string_is(c->status, "ok"), late;

	if (s->current == NULL || f->header.request != s->current->id) /* it has ended since the frame was permitted */
		return;
	cb_output_drain(&s->python->output);
	late = cell && s->cell.stop == CB_STOP_TIME_SOFT && (!failed || cb_failure_of_interrupt(c->ename));
	if (cell && s->ops->defers != NULL && s->ops->defers(s, f, late))
		return;		 /* it is answered when its state is back */
	failed = failed || late; /* also a cell that swallowed the interrupt: it did not do what it was to do */
	if (failed && s->current->execute.stop_on_error)
		cb_abort_queue(s);
	if (s->current == NULL || s->over) /* what was taken in with that has ended its Python */
		return;
	if (late) {
		cb_failure_reply_timeout(s);
	} else if (cell) {
		CB_AUTO_BUF metadata = CB_BUF_INIT(CB_METADATA_MAX);

		cb_failure_of_cell(s, failed, c->ename, &metadata);
		cb_iopub_flush(s->all->jupyter);
		cb_reply_full(s->all->jupyter, s->current, cb_buf_span(&metadata),
			      cb_frame_with_count(f, s->cell.number), f->body);
	} else {
		cb_iopub_flush(s->all->jupyter);
	}
	s->answered = true;
	cb_shell_finish(s);
}

int cb_shell_answer(struct cb_shell *s, struct cb_frame *f, const char **ret_reason)
{
	struct cb_request *r = s->current;
	const struct cb_shell_message *asked = r != NULL ? cb_shell_message_of(r) : NULL;

	*ret_reason = "an answer to another kind of request";
	if (asked == NULL || asked->answer != f->header.type)
		return CB_E_DENIED;
	cb_iopub_flush(s->all->jupyter);
	if (!s->stale)
		cb_reply_full(s->all->jupyter, r, f->metadata, (struct cb_span){ f->content, f->header.content_len },
			      f->body);
	cb_shell_finish(s);
	return 0;
}

void cb_shell_stopped(struct cb_shell *s)
{
	s->over = true;
	s->asked_at = s->interrupted_at = s->notice_at = s->interrupt_by = s->cell.deadline = 0;
	s->ops->arm(s);
}

void cb_shell_died(struct cb_shell *s, const struct cb_death *d)
{
	if (!s->answered && cb_request_is_execute(s->current)) {
		if (s->current->execute.stop_on_error)
			cb_abort_queue(s);
		if (s->current == NULL)
			return;
		cb_failure_death(s, d);
	} else if (!s->answered && !s->stale) {
		cb_failure_of_asked(s->all->jupyter, s->current, "KernelDiedError", d->cause);
	}
	cb_shell_finish(s);
}

/* ---- input ---- */

/* The clock of its cell stands, and nobody else sees whether it computes all the same. */
static bool looks_at_work(const struct cb_shell *s)
{
	return s->cell.waits && s->cell.clock_left > 0 && s->ops->waits == NULL && s->ops->cpu != NULL;
}

static void note_work(struct cb_shell *s, int64_t now)
{
	s->work_at = now;
	s->work = s->ops->cpu(s);
}

bool cb_shell_spend(struct cb_shell *s, double seconds)
{
	struct cb_cell *c = &s->cell;

	if (c->clock_left == 0) /* no limit */
		return false;
	c->clock_left -= (int64_t)(seconds * (double)SECOND);
	if (c->clock_left > 0)
		return false;
	c->clock_left = 1;
	return true;
}

/* Takes the time since the last look off its clock, if it has computed. True: the clock has run out by it. */
static bool spend_work(struct cb_shell *s, int64_t now)
{
	double elapsed = (double)(now - s->work_at) / (double)SECOND, before = s->work;

	note_work(s, now);
	return s->work - before > elapsed * CB_WAIT_SHARE && cb_shell_spend(s, elapsed);
}

static bool works_too_long(struct cb_shell *s, int64_t now)
{
	return looks_at_work(s) && s->cell.stop == CB_STOP_NONE && now - s->work_at >= LOOK_PERIOD / 2 &&
	       spend_work(s, now);
}

/* Many short waits are no way around the clock: what was not looked at yet is looked at when a wait ends. */
static void set_clock(struct cb_shell *s, bool waits, int64_t now)
{
	struct cb_cell *c = &s->cell;
	int64_t left = c->deadline - now;

	if (waits) {
		c->clock_left = c->deadline == 0 ? 0 : left > 0 ? left : 1;
		c->deadline = s->all->policy->timeout_wait > 0
				      ? now + (int64_t)(s->all->policy->timeout_wait * (double)SECOND)
				      : 0;
	} else {
		if (looks_at_work(s))
			(void)spend_work(s, now);
		c->deadline = c->clock_left > 0 ? now + c->clock_left : 0;
		c->clock_left = 0;
	}
	c->waits = waits;
	if (waits && looks_at_work(s))
		note_work(s, now);
}

void cb_shell_wait(struct cb_shell *s, bool waits)
{
	if (s->current == NULL || s->cell.stop != CB_STOP_NONE)
		return;
	if (s->ops->waits != NULL && (s->current->execute.timeout > 0 || s->current->execute.cpu > 0))
		s->ops->waits(s, waits);
	set_clock(s, waits, cb_now_ns());
	s->ops->arm(s);
}

int cb_shell_ask(struct cb_shell *s, struct cb_frame *f, const char **ret_reason)
{
	if (!runs_cell(s) || !s->current->execute.allow_stdin || (s->asked_at != 0 && s->ask_again == 0))
		return CB_E_DENIED;
	if (s->over || (s == &s->all->execution.shell && s->all->execution.taken_over))
		return 0; /* its Python has ended, and the answer would be for the one that takes over */
	if (s->asked_at != 0) {
		s->ask_again--;
		cb_shell_asked(s);
	}
	cb_output_drain(&s->python->output);
	cb_iopub_flush(s->all->jupyter);
	int r = cb_stdin_ask(s, f, ret_reason);

	if (r < 0)
		return r;
	s->asked_at = cb_now_ns();
	if (!s->apart)
		cb_guest_rules_input(&s->python->rules, true);
	cb_shell_wait(s, true);
	if (r == CB_STDIN_NOBODY)
		cb_stdin_nobody(s);
	return 0;
}

/* Names are held against what its cell was sent to, and not against what the shell is called now: a subshell or branch
 * that is deleted, or adopted, may have asked before. */
bool cb_shell_asks(const struct cb_shell *s, const struct cb_request *reply)
{
	return s->current != NULL && s->asked_at != 0 && cb_request_same_client(reply, s->current) &&
	       (reply->sent_to.data == NULL || cb_request_sent_to(s->current, reply->sent_to));
}

void cb_shell_input(struct cb_shell *s, struct cb_span content)
{
	int r = s->ops->input != NULL ? s->ops->input(s, content) : cb_python_input(s->python, s->question, content);

	if (r < 0)
		cb_log(CB_LOG_WARNING, "input_reply not handed to Python");
	cb_shell_asked(s);
}

void cb_shell_asked(struct cb_shell *s)
{
	if (s->asked_at == 0)
		return;
	s->asked_at = 0;
	if (!s->apart)
		cb_guest_rules_input(&s->python->rules, false);
	cb_shell_wait(s, false);
}

/* ---- time and interrupts ---- */

void cb_shell_stop_reason(struct cb_shell *s, enum cb_stop stop)
{
	if (s->cell.stop == CB_STOP_NONE || s->cell.stop == CB_STOP_TIME_SOFT)
		s->cell.stop = stop;
}

static void stop_hard(struct cb_shell *s)
{
	cb_shell_stop_reason(s, CB_STOP_TIME_HARD);
	s->cell.deadline = 0;
	s->ops->kill(s, "a cell ran over its time limit and did not stop");
}

static void interrupt_python(struct cb_shell *s)
{
	if (s->ops->interrupt != NULL)
		s->ops->interrupt(s);
	else
		cb_python_interrupt(s->python);
}

void cb_shell_over_time(struct cb_shell *s, bool over_cpu, bool wait_over)
{
	double grace = s->all->policy->timeout_grace;
	struct cb_cell *c = &s->cell;

	c->over_cpu = over_cpu;
	c->wait_over = wait_over;
	cb_audit_limit(s->all->records, over_cpu ? "timeout.cpu" : wait_over ? "timeout.wait" : "timeout.cell");
	if (grace <= 0 && !c->waits) { /* a wait always gets to hear it */
		stop_hard(s);
		return;
	}
	c->stop = CB_STOP_TIME_SOFT;
	interrupt_python(s);
	c->deadline = cb_now_ns() + (int64_t)(grace * (double)SECOND) + 1;
	s->ops->arm(s);
}

void cb_shell_over_memory(struct cb_shell *s)
{
	cb_audit_limit(s->all->records, "metadata.cellblock.memory");
	cb_shell_stop_reason(s, CB_STOP_MEMORY);
	s->ops->kill(s, cb_failure_over_memory(s));
}

static void interrupt_hard(struct cb_shell *s)
{
	s->notice_at = s->interrupt_by = 0;
	cb_shell_stop_reason(s, CB_STOP_INTERRUPT);
	cb_audit_interrupt(s->all->records, "hard");
	s->ops->kill(s, "interrupt not obeyed");
}

static void say_that_it_waits(struct cb_shell *s)
{
	static const char text[] = "[cellblock: Python is in C code and has not seen the interrupt; "
				   "interrupt again to kill the cell]\n";

	s->notice_at = 0;
	if (runs_cell(s))
		cb_iopub_text(s->all->jupyter, s->current->header, CB_WIRE_STDERR, text, sizeof(text) - 1);
}

void cb_shell_look(struct cb_shell *s, int64_t now)
{
	const struct cb_cell *c = &s->cell;

	if (s->current != NULL && s->notice_at != 0 && s->notice_at <= now)
		say_that_it_waits(s);
	if (s->current != NULL && s->interrupt_by != 0 && s->interrupt_by <= now)
		interrupt_hard(s);
	if (!runs_cell(s) || s->over)
		return;
	cb_stdin_look(s, now);
	double limit = s->current->execute.cpu;

	if (c->deadline != 0 && c->deadline <= now && c->stop != CB_STOP_NONE)
		stop_hard(s);
	else if (c->deadline != 0 && c->deadline <= now)
		cb_shell_over_time(s, false, c->waits);
	else if (works_too_long(s, now))
		cb_shell_over_time(s, false, false);
	else if (limit > 0 && s->ops->cpu != NULL && c->stop == CB_STOP_NONE &&
		 s->ops->cpu(s) - s->cpu_at_start >= limit)
		cb_shell_over_time(s, true, false);
}

void cb_shell_next_look(int64_t *look_at, int64_t *when)
{
	if (*look_at == 0)
		*look_at = cb_now_ns() + LOOK_PERIOD;
	cb_sooner(when, *look_at);
}

void cb_shell_due(const struct cb_shell *s, int64_t *look_at, int64_t *when)
{
	if (s->current == NULL || s->over)
		return;
	cb_sooner(when, s->notice_at);
	cb_sooner(when, s->interrupt_by);
	if (!runs_cell(s))
		return;
	cb_sooner(when, s->unsent.again_at);
	cb_sooner(when, s->cell.deadline);
	if (((s->current->execute.cpu > 0 && s->ops->cpu != NULL) || looks_at_work(s)) && s->cell.stop == CB_STOP_NONE)
		cb_shell_next_look(look_at, when);
}

/* What a client sends on control may be read after what it sends on shell later: the cell, at work or the next, would
 * get an interrupt that was meant for the one before it. */
bool cb_shell_came_after(struct cb_shell *s, const struct cb_request *interrupt)
{
	const struct cb_request *cell = s->current != NULL ? s->current : cb_queue_next_cell(&s->waiting);
	const struct cb_request *i = interrupt;

	if (cell == NULL || i == NULL || i->session.data == NULL || i->session.len != cell->session.len ||
	    memcmp(i->session.data, cell->session.data, i->session.len) != 0 || !(i->date < cell->date) ||
	    i->arrived_ns - (s->current != NULL ? s->cell.started_ns : cell->arrived_ns) >= OVERTAKEN)
		return false;
	cb_log(CB_LOG_INFO, "an interrupt that was sent before the cell is not for it");
	return true;
}

void cb_shell_interrupt(struct cb_shell *s, bool hard)
{
	int64_t now = cb_now_ns();

	if (s->current == NULL && s->waiting.head != NULL)
		cb_queue_next_cell(&s->waiting)->interrupted = true;
	if (s->current == NULL || s->answered || s->over)
		return;
	if (s->interrupted_at != 0 && hard && now - s->interrupted_at >= CB_DOUBLE_CLICK) {
		interrupt_hard(s);
		return;
	}
	if (s->interrupted_at != 0 && !s->apart)
		return;
	cb_audit_interrupt(s->all->records, "soft");
	if (s->interrupted_at == 0)
		s->interrupted_at = now;
	if (!s->apart)
		s->notice_at = now + NOTICE_AFTER;
	if (!s->apart && s->all->policy->timeout_interrupt > 0)
		s->interrupt_by = now + (int64_t)(s->all->policy->timeout_interrupt * (double)SECOND);
	interrupt_python(s);
	s->ops->arm(s);
}

enum cb_found cb_shell_interrupt_one(struct cb_shell *s, struct cb_span msg_id)
{
	struct cb_request *r = cb_queue_take(&s->waiting, s->load, msg_id);

	if (r != NULL) {
		cb_abort_request(s->all->jupyter, r);
		cb_loop_mark(s->all->loop); /* the next one is the first now */
		return CB_FOUND_WAITING;
	}
	if (!cb_request_named(s->current, msg_id))
		return CB_FOUND_NOWHERE;
	if (cb_request_is_execute(s->current))
		cb_shell_interrupt(s, true);
	return CB_FOUND_RUNNING;
}

void cb_shell_obeyed(struct cb_shell *s)
{
	s->interrupted_at = s->notice_at = s->interrupt_by = 0;
	if (!s->apart && s->python->rules.phase == CB_PHASE_INPUT) /* the interrupt ends the question */
		cb_shell_asked(s);
	s->ops->arm(s);
}
