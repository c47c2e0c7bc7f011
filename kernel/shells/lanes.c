/* Lanes: what is served beside the main shell.
 *
 * Trust domain: supervisor. Lane 0 takes the questions (complete, inspect, is_complete) that come while Python's main
 * thread runs a cell; every subshell has a lane; each shell has one for the comm messages that come while its cell
 * awaits, which its event loop serves, so that none waits for another's. Each serves one request at a time, the others
 * wait in it. Invariants: every request that was begun (busy) ends with its reply and idle, also when the guest dies;
 * a question is answered by its deadline, with an error if Python can't; numbers of cells come from the one execution
 * count; what a cell of a subshell does to limits of time ends that cell first and the whole guest only if it does not
 * end. Subshells outlive a guest: their threads begin anew in the next one.
 */
#include "lanes.h"

#include <cellblock/json_scan.h>
#include <cellblock/log.h>
#include <errno.h>

#include "abort.h"
#include "kernel.h"
#include "requests/requests.h"

#define SECOND 1000000000LL
#define QUESTION_DEADLINE (10 * SECOND) /* also the first one on a loaded machine, with imports */

/* ---- which lane ---- */

static struct cb_shell *find(struct cb_kernel *k, struct cb_span id)
{
	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++) {
		struct cb_shell *l = &k->lanes.sub[i];

		if (cb_shell_is(l, id))
			return l;
	}
	return NULL;
}

/* All but the questions'; the place in what the guest may answer. */
static struct cb_shell *lane_at(struct cb_lanes *all, size_t i)
{
	if (i == 0)
		return &all->comms;
	return i <= CB_SUBSHELLS_MAX ? &all->beside[i - 1] : &all->sub[i - 1 - CB_SUBSHELLS_MAX];
}

/* Where comm messages go while this subshell's cell awaits. */
static struct cb_shell *beside(struct cb_kernel *k, const struct cb_shell *subshell)
{
	return &k->lanes.beside[subshell - k->lanes.sub];
}

/* The one that has this request of the wire at work; else the main one. */
static struct cb_shell *of(struct cb_kernel *k, uint64_t request)
{
	for (size_t i = 0; i < CB_LANES && request != 0; i++) {
		struct cb_shell *l = lane_at(&k->lanes, i);

		if (l->current != NULL && l->current->id == request)
			return l;
	}
	return &k->execution.shell;
}

/* An interrupt is Python's main thread's, which serves the main shell, whatever that has at hand. */
int cb_lanes_frame(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason)
{
	return cb_shell_frame(k, of(k, f->header.type == CB_WIRE_INTERRUPTED ? 0 : f->header.request), f, c,
			      ret_reason);
}

bool cb_lanes_known(struct cb_kernel *k, struct cb_span id)
{
	return find(k, id) != NULL;
}

static const struct cb_shell_ops subshell_ops;

static struct cb_shell new_lane(struct cb_kernel *k, unsigned number)
{
	return (struct cb_shell){ .ops = &subshell_ops,
				  .jupyter = &k->jupyter,
				  .records = &k->records,
				  .load = &k->lanes.load,
				  .python = &k->guest.python,
				  .policy = k->policy,
				  .apart = true,
				  .count = &k->execution.number,
				  .number = number };
}

const char *cb_lanes_create(struct cb_kernel *k)
{
	struct cb_session uuid = { 0 };

	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++) {
		struct cb_shell *l = &k->lanes.sub[i];

		if (l->id[0] != '\0' || l->current != NULL || beside(k, l)->current != NULL)
			continue;
		if (cb_session_init(&uuid, NULL) < 0)
			return NULL;
		*l = *beside(k, l) = new_lane(k, ++k->lanes.last_number);
		memcpy(l->id, uuid.id, sizeof(l->id));
		return l->id;
	}
	return NULL;
}

const struct cb_request *cb_lanes_running(const struct cb_kernel *k)
{
	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		if (k->lanes.sub[i].current != NULL)
			return k->lanes.sub[i].current;
	return NULL;
}

bool cb_lanes_busy(const struct cb_kernel *k)
{
	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		if (k->lanes.beside[i].current != NULL || k->lanes.sub[i].current != NULL)
			return true;
	return k->lanes.load.count > 0 || k->lanes.ask.current != NULL || k->lanes.comms.current != NULL;
}

static void tell_guest(struct cb_kernel *k, const struct cb_shell *l, enum cb_wire_type type)
{
	uint64_t request = type == CB_WIRE_LANE_INTERRUPT && l->current != NULL ? l->current->id : 0;
	CB_JSON_SMALL(lane, "lane", l->number);

	(void)cb_side_send(&k->guest.side, type, request, cb_buf_span(&lane), cb_buf_span(&lane), NULL, 0);
}

/* ---- taking ---- */

static bool python_is_busy(const struct cb_kernel *k)
{
	return (k->guest.python.rules.phase & (CB_PHASE_EXECUTING | CB_PHASE_INPUT | CB_PHASE_COMM)) != 0;
}

/* A subshell's comm message goes to the main shell while that has nothing but such to do: handlers of widgets expect
 * the main thread and its event loop. Order is kept: to where the subshell's last one is. */
static bool main_shell_takes(struct cb_kernel *k, const struct cb_shell *l)
{
	const struct cb_execution *x = &k->execution;
	bool only_comms = x->shell.current == NULL || cb_request_is_comm(x->shell.current);

	if (l->current != NULL || l->waiting.head != NULL)
		return false;
	for (const struct cb_request *w = x->shell.waiting.head; w != NULL; w = w->next) {
		if (cb_request_is_comm(w) && w->subshell_id.data != NULL && find(k, w->subshell_id) == l)
			return true;
		only_comms = only_comms && cb_request_is_comm(w);
	}
	return only_comms;
}

/* While a shell's cell awaits, its loop takes comm messages; the main shell's also those to a subshell that has nothing
 * to do. Until the last of them is answered those that follow go the same way, so that their order is kept. NULL = no
 * loop takes it. */
static struct cb_shell *loop_of(struct cb_kernel *k, const struct cb_shell *subshell)
{
	struct cb_shell *l = subshell != NULL ? beside(k, subshell) : NULL, *comms = &k->lanes.comms;

	if (l != NULL && (subshell->awaiting || l->current != NULL || l->waiting.head != NULL))
		return l;
	if (l != NULL && (subshell->current != NULL || subshell->waiting.head != NULL))
		return NULL;
	return k->execution.shell.awaiting || comms->current != NULL || comms->waiting.head != NULL ? comms : NULL;
}

static struct cb_shell *lane_for(struct cb_kernel *k, const struct cb_request *r, enum cb_wire_phase phase)
{
	struct cb_shell *ask = &k->lanes.ask;

	if (phase != CB_PHASE_ASKING) {
		struct cb_shell *l = r->subshell_id.data != NULL ? find(k, r->subshell_id) : NULL;
		struct cb_shell *loop = phase == CB_PHASE_COMM ? loop_of(k, l) : NULL;

		if (loop != NULL)
			return loop;
		return l != NULL && phase == CB_PHASE_COMM && main_shell_takes(k, l) ? NULL : l;
	}
	if (k->guest.state != CB_GUEST_UP || !k->guest.side.served)
		return NULL;
	return python_is_busy(k) || (ask->current != NULL && !ask->stale) ? ask : NULL;
}

static void arm(struct cb_kernel *k);

bool cb_lanes_take(struct cb_kernel *k, struct cb_request *r)
{
	const struct cb_shell_message *m = cb_shell_message_of(r);
	struct cb_shell *l = m != NULL && !k->guest.shutting_down ? lane_for(k, r, m->phase) : NULL;

	if (l == NULL)
		return false;
	if (m->phase == CB_PHASE_EXECUTING && r->execute.memory > 0) {
		cb_failure_malformed(k, r, "metadata.cellblock.memory: a subshell shares its memory with the others");
		return true;
	}
	if (!cb_shell_take(l, r))
		return true;
	if (k->guest.state == CB_GUEST_NONE)
		cb_guest_want(&k->guest);
	cb_loop_mark(&k->loop);
	arm(k);
	return true;
}

static bool is_of(const struct cb_request *r, enum cb_wire_phase phase)
{
	const struct cb_shell_message *m = cb_shell_message_of(r);

	return m != NULL && m->phase == phase;
}

/* Those of a kind leave the main shell's queue for the lane that takes them now. */
static void take_waiting(struct cb_kernel *k, enum cb_wire_phase phase)
{
	struct cb_execution *x = &k->execution;
	const struct cb_request *w = x->shell.waiting.head;
	int64_t now = cb_now_ns();

	while (w != NULL && !is_of(w, phase))
		w = w->next;
	for (size_t n = w != NULL ? x->load.count : 0; n > 0; n--) {
		struct cb_request *r = cb_shell_pop(&x->shell);

		if (is_of(r, phase))
			r->arrived_ns = now; /* what bounds a question's time does not count the start of Python */
		if (!is_of(r, phase) || !cb_lanes_take(k, r))
			cb_queue_push(&x->shell.waiting, &x->load, r);
	}
}

void cb_lanes_busy_begins(struct cb_kernel *k)
{
	take_waiting(k, CB_PHASE_ASKING);
}

void cb_lanes_cell_awaits(struct cb_kernel *k, struct cb_shell *s)
{
	s->awaiting = true;
	take_waiting(k, CB_PHASE_COMM);
}

void cb_lanes_awaits(struct cb_kernel *k, struct cb_shell *l)
{
	const struct cb_request *kept = NULL;

	if (l->awaiting)
		return;
	l->awaiting = true;
	while (l->waiting.head != NULL && l->waiting.head != kept) {
		struct cb_request *r = cb_shell_pop(l);

		if (kept == NULL && !cb_request_is_comm(r))
			kept = r;
		(void)cb_shell_take(cb_request_is_comm(r) ? beside(k, l) : l, r);
	}
	cb_loop_mark(&k->loop);
}

/* ---- beginning ---- */

static bool up(struct cb_kernel *k, struct cb_shell *l)
{
	(void)l;
	return k->guest.state == CB_GUEST_UP;
}

static void begun(struct cb_kernel *k, struct cb_shell *l)
{
	cb_twins_touched(k, l->current->execute.code, l->cell.store ? l->cell.number : 0);
	cb_calls_begin(l->current->calls, k->twins.past.last);
	if (k->execution.shell.current == NULL)
		cb_memory_cell_begins(k);
	else
		cb_memory_watch(k);
}

/* What the guest may answer, and how. */
static void note(struct cb_kernel *k, const struct cb_shell *l, uint64_t request, enum cb_wire_phase phase)
{
	for (size_t i = 0; i < CB_LANES; i++)
		if (l == lane_at(&k->lanes, i))
			k->guest.python.rules.beside[i] = (struct cb_guest_pending){ request, phase };
}

static bool is_beside(const struct cb_kernel *k, const struct cb_shell *l)
{
	return l == &k->lanes.comms || (l >= k->lanes.beside && l < k->lanes.beside + CB_SUBSHELLS_MAX);
}

static int send_to_lane(struct cb_kernel *k, struct cb_shell *l, struct cb_request *r, const struct cb_shell_message *m)
{
	struct cb_span buffer[CB_MAX_BUFFERS];
	CB_AUTO_BUF b = CB_BUF_INIT(r->metadata.len + r->header->len + CB_TOOLS_BYTES + 65536);
	size_t n = cb_python_buffers(r, m->wire, buffer);
	int c;

	if (m->phase == CB_PHASE_EXECUTING)
		c = cb_execution_metadata(k, l, l->number, &b);
	else if (m->phase == CB_PHASE_COMM)
		c = cb_json_write_object(&b, "lane", l->number, "beside", is_beside(k, l), "header",
					 cb_header_span(r->header), "metadata", r->metadata);
	else
		c = cb_json_write_object(&b, "lane", 0u);
	r->id = cb_python_give_id(&k->guest.python, r->header, false);
	if (m->phase != CB_PHASE_ASKING)
		note(k, l, r->id, m->phase);
	struct cb_span about = cb_buf_span(&b);

	if (c < 0)
		return c;
	if (l == &k->lanes.comms)
		return cb_python_send_beside(&k->guest.python, r, m->wire, about);
	return cb_side_send(&k->guest.side, m->wire, r->id, r->content, about, buffer, n);
}

static void begin(struct cb_kernel *k, struct cb_shell *l)
{
	cb_shell_begin(k, l, cb_shell_pop(l));
	if (l->current != NULL && l == &k->lanes.ask)
		l->answer_by = l->current->arrived_ns + QUESTION_DEADLINE;
	arm(k);
}

static void begin_waiting(struct cb_kernel *k, struct cb_shell *l)
{
	bool none = k->guest.state == CB_GUEST_NONE && k->guest.failure.code != 0;

	while (l->current == NULL && l->waiting.head != NULL && (k->guest.state == CB_GUEST_UP || none))
		begin(k, l);
}

void cb_lanes_schedule(struct cb_kernel *k)
{
	if (k->lanes.load.count == 0 || cb_overlay_changes_holds(k) || cb_twins_busy(k))
		return; /* what would begin while Python is copied would be half in the copy */
	if (k->guest.python.rules.phase != CB_PHASE_ASKING) /* Python's completer is not asked twice at a time */
		begin_waiting(k, &k->lanes.ask);
	if (k->guest.python.signals == 0) /* they are for the main thread */
		begin_waiting(k, &k->lanes.comms);
	for (size_t i = 0; i < CB_SUBSHELLS_MAX && k->lanes.load.count > 0; i++) {
		begin_waiting(k, &k->lanes.beside[i]);
		begin_waiting(k, &k->lanes.sub[i]);
	}
}

/* ---- ending ---- */

static void done(struct cb_kernel *k, struct cb_shell *l, struct cb_request *r)
{
	(void)r;
	note(k, l, 0, CB_PHASE_IDLE);
	if (l == &k->lanes.comms && k->execution.shell.current == NULL)
		cb_python_interrupt_no_more(&k->guest.python);
	cb_twins_quiet(k);
	cb_loop_mark(&k->loop);
}

bool cb_lanes_delete(struct cb_kernel *k, struct cb_span id)
{
	struct cb_shell *l = find(k, id);

	if (l == NULL)
		return false;
	l->id[0] = '\0';
	cb_abort_executes(k, beside(k, l), true);
	cb_abort_executes(k, l, true);
	tell_guest(k, l, CB_WIRE_LANE_CLOSE);
	return true;
}

void cb_lanes_awaited(const struct cb_kernel *k, uint32_t *ret_type, uint64_t *ret_id)
{
	const struct cb_request *r = k->lanes.ask.current;

	*ret_type = r != NULL ? cb_shell_message_of(r)->answer : 0;
	*ret_id = r != NULL ? r->id : 0;
}

int cb_lanes_side_frame(struct cb_kernel *k, struct cb_frame *f, const char **ret_reason)
{
	return cb_shell_answer(k, &k->lanes.ask, f, ret_reason);
}

void cb_lanes_side_closed(struct cb_kernel *k)
{
	struct cb_shell *l = &k->lanes.ask;

	if (l->current == NULL)
		return;
	if (!l->stale)
		cb_reply_error(&k->jupyter, l->current, "KernelBusyError",
			       "the guest has closed the channel that answers while a cell runs");
	cb_shell_finish(k, l);
	cb_loop_mark(&k->loop);
}

/* ---- input ---- */

struct cb_shell *cb_lanes_asker(struct cb_kernel *k, const struct cb_request *reply)
{
	struct cb_shell *named = reply->subshell_id.data != NULL ? find(k, reply->subshell_id) : NULL, *first = NULL;

	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++) {
		struct cb_shell *l = &k->lanes.sub[i];

		if (cb_shell_asks(l, reply) && (named == NULL || named == l) &&
		    (first == NULL || l->asked_at < first->asked_at))
			first = l;
	}
	return first;
}

static int input(struct cb_kernel *k, struct cb_shell *l, struct cb_span content)
{
	CB_JSON_SMALL(lane, "lane", l->number);

	return cb_side_send(&k->guest.side, CB_WIRE_INPUT_REPLY, l->current->id, content, cb_buf_span(&lane), NULL, 0);
}

/* ---- time, interrupts, death ---- */

static void interrupt_guest(struct cb_kernel *k, struct cb_shell *l)
{
	if (l == &k->lanes.comms) {
		cb_python_interrupt(&k->guest.python);
		return;
	}
	tell_guest(k, l, CB_WIRE_LANE_INTERRUPT);
	cb_shell_asked(k, l); /* an answer that comes now is nobody's */
	l->ask_again++;
}

static void kill_guest(struct cb_kernel *k, struct cb_shell *l, const char *why)
{
	(void)l;
	cb_guest_stop(&k->guest, why);
}

static void usage(struct cb_kernel *k, struct cb_shell *l, struct cb_usage *ret_usage)
{
	(void)l;
	cb_usage_read(&k->guest.usage, ret_usage);
}

static double cpu(struct cb_kernel *k, struct cb_shell *l)
{
	(void)l;
	return cb_usage_jail_cpu(&k->guest.usage);
}

static void arm_one(struct cb_kernel *k, struct cb_shell *l)
{
	(void)l;
	arm(k);
}

static const struct cb_shell_ops subshell_ops = {
	.max_waiting = CB_SHELLS_WAITING_MAX,
	.max_bytes = CB_SHELLS_BYTES_MAX,
	.up = up,
	.begun = begun,
	.told = cb_execution_record,
	.send = send_to_lane,
	.awaits = cb_lanes_awaits,
	.input = input,
	.interrupt = interrupt_guest,
	.kill = kill_guest,
	.done = done,
	.usage = usage,
	.cpu = cpu,
	.arm = arm_one,
	.cpu_of = "the jail",
};

/* Questions that wait behind one that Python does not answer. */
static void give_up_questions(struct cb_kernel *k, int64_t now)
{
	struct cb_shell *l = &k->lanes.ask;
	bool stale = l->stale;

	if (l->current != NULL && !stale && l->answer_by <= now) {
		cb_failure_unanswered(k, l->current);
		cb_iopub_status(&k->jupyter, "idle", l->current->header);
		cb_busy_again(&k->jupyter);
		l->stale = true;
		l->answer_by = 0;
		tell_guest(k, l, CB_WIRE_LANE_INTERRUPT);
	}
	while (l->waiting.head != NULL && l->waiting.head->arrived_ns + QUESTION_DEADLINE <= now) {
		struct cb_request *r = cb_shell_pop(l);

		cb_bracket_begin(&k->jupyter, r);
		cb_failure_unanswered(k, r);
		cb_bracket_end(&k->jupyter, r);
		cb_request_free(r);
	}
}

static void arm(struct cb_kernel *k)
{
	const struct cb_shell *ask = &k->lanes.ask;
	int64_t when = ask->current != NULL ? ask->answer_by : 0;

	if (ask->waiting.head != NULL)
		cb_sooner(&when, ask->waiting.head->arrived_ns + QUESTION_DEADLINE);
	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		cb_shell_due(&k->lanes.sub[i], &k->lanes.look_at, &when);
	cb_loop_arm(&k->loop, k->lanes.timer, when);
}

static void on_timer(void *context)
{
	struct cb_kernel *k = context;
	int64_t now = cb_now_ns();

	k->lanes.look_at = 0;
	give_up_questions(k, now);
	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		cb_shell_look(k, &k->lanes.sub[i], now);
	arm(k);
}

/* The subshell's cell, or what came beside one that has ended. */
static struct cb_shell *what_runs(struct cb_kernel *k, struct cb_shell *subshell)
{
	return subshell->current != NULL ? subshell : beside(k, subshell);
}

/* Hard is a second one only when it can't be meant for the main shell. */
void cb_lanes_interrupt(struct cb_kernel *k)
{
	bool hard = k->execution.shell.current == NULL;

	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		cb_shell_interrupt(k, what_runs(k, &k->lanes.sub[i]), hard);
	if (k->execution.shell.current == NULL) /* what came beside a cell that has ended */
		cb_shell_interrupt(k, &k->lanes.comms, hard);
}

void cb_lanes_interrupt_one(struct cb_kernel *k, struct cb_span id)
{
	struct cb_shell *l = find(k, id);

	if (l != NULL)
		cb_shell_interrupt(k, what_runs(k, l), true);
}

static void died(struct cb_kernel *k, struct cb_shell *l, struct cb_death d)
{
	if (l->current == NULL)
		return;
	d.cause = cb_failure_death_text(k);
	if (cb_request_is_execute(l->current) && cb_failure_of_memory(k, l->cell.usage_at_start.oom_kills)) {
		d.cause = cb_failure_memory_text(k);
		if (l->cell.stop == CB_STOP_NONE)
			l->cell.stop = CB_STOP_MEMORY;
	}
	cb_shell_died(k, l, &d);
}

void cb_lanes_guest_died(struct cb_kernel *k)
{
	bool back = k->guest.state == CB_GUEST_RESTORING;
	struct cb_death d = { .state = back ? "restored" : "lost",
			      .became = back ? "the state goes back to what it was before"
					: k->memory.none_left
						? "all variables are lost, for the state before the cell was given up "
						  "when memory was short"
						: "all variables are lost" };

	died(k, &k->lanes.ask, d);
	for (size_t i = 0; i < CB_LANES; i++) /* comm messages before the cells that they are beside */
		died(k, lane_at(&k->lanes, i), d);
}

void cb_lanes_end(struct cb_kernel *k, const char *why)
{
	cb_lanes_guest_died(k);
	for (size_t i = 0; i <= CB_LANES; i++)
		for (struct cb_request *r;
		     (r = cb_shell_pop(i == CB_LANES ? &k->lanes.ask : lane_at(&k->lanes, i))) != NULL;)
			cb_abort_for_end(k, r, why);
}

int cb_lanes_init(struct cb_kernel *k)
{
	k->lanes.timer = cb_loop_add_timer(&k->loop, on_timer, k);
	k->lanes.ask = new_lane(k, 0);
	k->lanes.comms = new_lane(k, 0);
	return k->lanes.timer < 0 ? k->lanes.timer : 0;
}

void cb_lanes_release(struct cb_kernel *k)
{
	cb_shell_release(&k->lanes.ask);
	for (size_t i = 0; i < CB_LANES; i++)
		cb_shell_release(lane_at(&k->lanes, i));
}
