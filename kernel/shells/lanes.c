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

#include "abort.h"
#include "execution.h"
#include "failure.h"
#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "jupyter/status.h"
#include "python/guest.h"
#include "shell.h"

#define SECOND 1000000000LL
#define QUESTION_DEADLINE (10 * SECOND) /* also the first one on a loaded machine, with imports */

/* ---- which lane ---- */

static struct cb_shell *find(struct cb_shells *sh, struct cb_span id)
{
	for (struct cb_shell *l = sh->lanes.sub; l < sh->lanes.sub + CB_SUBSHELLS_MAX; l++)
		if (cb_shell_is(l, id))
			return l;
	return NULL;
}

/* All but the questions'; the place in what the guest may answer. */
static struct cb_shell *lane_at(struct cb_lanes *all, size_t i)
{
	if (i == 0)
		return &all->comms;
	return i <= CB_SUBSHELLS_MAX ? &all->beside[i - 1] : &all->sub[i - 1 - CB_SUBSHELLS_MAX];
}

const struct cb_request *cb_lanes_waiting_in(struct cb_shells *sh, size_t i)
{
	return lane_at(&sh->lanes, i)->waiting.head;
}

/* Where comm messages go while this subshell's cell awaits. */
static struct cb_shell *beside(struct cb_shells *sh, const struct cb_shell *subshell)
{
	return &sh->lanes.beside[subshell - sh->lanes.sub];
}

static bool is_beside(const struct cb_shells *sh, const struct cb_shell *l)
{
	return l == &sh->lanes.comms || (l >= sh->lanes.beside && l < sh->lanes.beside + CB_SUBSHELLS_MAX);
}

/* The one that has this request of the wire at work; else the main one. NULL: a lane's, which does not wait for it any
 * more, for all of Python has ended, and these are its last words. */
static struct cb_shell *of(struct cb_shells *sh, uint64_t request)
{
	for (size_t i = 0; i < CB_LANES && request != 0; i++) {
		struct cb_shell *l = lane_at(&sh->lanes, i);

		if (sh->guest->python.rules.beside[i].id == request)
			return l->current != NULL && !l->over ? l : NULL;
	}
	return &sh->execution.shell;
}

/* It was Python's main thread, which serves the main shell, whatever that has at hand; or a subshell's, in what it has
 * at work, but for what its loop serves beside that. */
static struct cb_shell *interrupted(struct cb_shells *sh, uint64_t request)
{
	struct cb_shell *l = of(sh, request);

	return l == NULL || (l->apart && !is_beside(sh, l)) ? l : &sh->execution.shell;
}

int cb_lanes_frame(struct cb_shells *sh, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason)
{
	uint64_t request = f->header.request;
	struct cb_shell *s = f->header.type == CB_WIRE_INTERRUPTED ? interrupted(sh, request) : of(sh, request);

	if (s == NULL && f->header.type == CB_WIRE_ERROR) /* it is shown, as other output of the dead is */
		s = &sh->execution.shell;
	return s != NULL ? cb_shell_frame(s, f, c, ret_reason) : 0;
}

const struct cb_shell *cb_lanes_known(struct cb_shells *sh, struct cb_span id)
{
	return find(sh, id);
}

static const struct cb_shell_ops subshell_ops;

static struct cb_shell new_lane(struct cb_shells *sh, unsigned number)
{
	return (struct cb_shell){ .ops = &subshell_ops,
				  .all = sh,
				  .load = &sh->lanes.load,
				  .python = &sh->guest->python,
				  .apart = true,
				  .count = &sh->execution.number,
				  .number = number };
}

const char *cb_lanes_create(struct cb_shells *sh)
{
	struct cb_session uuid = { 0 };

	for (struct cb_shell *l = sh->lanes.sub; l < sh->lanes.sub + CB_SUBSHELLS_MAX; l++) {
		if (l->id[0] != '\0' || l->current != NULL || beside(sh, l)->current != NULL)
			continue;
		if (cb_session_init(&uuid, NULL) < 0)
			return NULL;
		*l = *beside(sh, l) = new_lane(sh, ++sh->lanes.last_number);
		memcpy(l->id, uuid.id, sizeof(l->id));
		return l->id;
	}
	return NULL;
}

const struct cb_request *cb_lanes_running(const struct cb_shells *sh)
{
	for (const struct cb_shell *l = sh->lanes.sub; l < sh->lanes.sub + CB_SUBSHELLS_MAX; l++)
		if (l->current != NULL)
			return l->current;
	return NULL;
}

bool cb_lanes_run(const struct cb_shells *sh)
{
	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		if (sh->lanes.beside[i].current != NULL || sh->lanes.sub[i].current != NULL)
			return true;
	return sh->lanes.comms.current != NULL;
}

bool cb_lanes_asked(const struct cb_shells *sh)
{
	return sh->lanes.ask.current != NULL && !sh->lanes.ask.stale;
}

bool cb_lanes_busy(const struct cb_shells *sh)
{
	return sh->lanes.load.count > 0 || cb_lanes_run(sh) || cb_lanes_asked(sh);
}

bool cb_lanes_interrupted(const struct cb_shells *sh)
{
	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		if (sh->lanes.beside[i].interrupted_at != 0 || sh->lanes.sub[i].interrupted_at != 0)
			return true;
	return sh->lanes.comms.interrupted_at != 0;
}

const struct cb_request *cb_lanes_waiting(const struct cb_shells *sh)
{
	for (const struct cb_shell *l = sh->lanes.sub; l < sh->lanes.sub + CB_SUBSHELLS_MAX; l++)
		if (l->current == NULL && l->waiting.head != NULL)
			return l->waiting.head;
	return NULL;
}

static void tell_guest(struct cb_shells *sh, const struct cb_shell *l, enum cb_wire_type type)
{
	uint64_t request = type == CB_WIRE_LANE_INTERRUPT && l->current != NULL ? l->current->id : 0;
	CB_JSON_SMALL(lane, "lane", l->number);

	(void)cb_side_send(&sh->guest->side, type, request, cb_buf_span(&lane), cb_buf_span(&lane), NULL, 0);
}

/* ---- taking ---- */

static bool python_is_busy(const struct cb_shells *sh)
{
	return (sh->guest->python.rules.phase & (CB_PHASE_EXECUTING | CB_PHASE_INPUT | CB_PHASE_COMM)) != 0;
}

/* A subshell's comm message goes to the main shell while that has nothing but such to do: handlers of widgets expect
 * the main thread and its event loop. Order is kept: to where the subshell's last one is. */
static bool main_shell_takes(struct cb_shells *sh, const struct cb_shell *l)
{
	const struct cb_execution *x = &sh->execution;
	bool only_comms = x->shell.current == NULL || cb_request_is_comm(x->shell.current);

	if (l->current != NULL || l->waiting.head != NULL)
		return false;
	for (const struct cb_request *w = x->shell.waiting.head; w != NULL; w = w->next) {
		if (cb_request_is_comm(w) && w->subshell_id.data != NULL && find(sh, w->subshell_id) == l)
			return true;
		only_comms = only_comms && cb_request_is_comm(w);
	}
	return only_comms;
}

/* While a shell's cell awaits, its loop takes comm messages; the main shell's also those to a subshell that has nothing
 * to do. Until the last of them is answered those that follow go the same way, so that their order is kept. NULL = no
 * loop takes it. */
static struct cb_shell *loop_of(struct cb_shells *sh, const struct cb_shell *subshell)
{
	struct cb_shell *l = subshell != NULL ? beside(sh, subshell) : NULL, *comms = &sh->lanes.comms;

	if (l != NULL && (subshell->awaiting || l->current != NULL || l->waiting.head != NULL))
		return l;
	if (l != NULL && (subshell->current != NULL || subshell->waiting.head != NULL))
		return NULL;
	return sh->execution.shell.awaiting || comms->current != NULL || comms->waiting.head != NULL ? comms : NULL;
}

static struct cb_shell *lane_for(struct cb_shells *sh, const struct cb_request *r, enum cb_wire_phase phase)
{
	struct cb_shell *ask = &sh->lanes.ask;

	if (phase != CB_PHASE_ASKING) {
		struct cb_shell *l = r->subshell_id.data != NULL ? find(sh, r->subshell_id) : NULL;
		struct cb_shell *loop = phase == CB_PHASE_COMM ? loop_of(sh, l) : NULL;

		if (loop != NULL)
			return loop;
		return l != NULL && phase == CB_PHASE_COMM && main_shell_takes(sh, l) ? NULL : l;
	}
	if (sh->guest->state != CB_GUEST_UP || !sh->guest->side.served)
		return NULL;
	return python_is_busy(sh) || (ask->current != NULL && !ask->stale) ? ask : NULL;
}

static void arm(struct cb_shells *sh);

/* Comm messages for which there was no room in the lane wait on in the main shell's queue, and others behind them. */
static bool waits_behind(struct cb_shells *sh, const struct cb_shell *l, const struct cb_request *r)
{
	const struct cb_request *w = sh->execution.shell.waiting.head;

	if (l != &sh->lanes.comms)
		return false;
	while (w != NULL && !cb_request_is_comm(w))
		w = w->next;
	return w != NULL || !cb_shell_has_room(l, r);
}

bool cb_lanes_before(const struct cb_shells *sh, const struct cb_request *r)
{
	return cb_request_is_comm(r) && (sh->lanes.comms.current != NULL || sh->lanes.comms.waiting.head != NULL);
}

static void take(struct cb_shells *sh, struct cb_shell *l, struct cb_request *r)
{
	if (!cb_shell_take(l, r))
		return;
	if (sh->guest->state == CB_GUEST_NONE)
		cb_guest_want(sh->guest);
	cb_loop_mark(sh->loop);
	arm(sh);
}

bool cb_lanes_take(struct cb_shells *sh, struct cb_request *r)
{
	const struct cb_shell_message *m = cb_shell_message_of(r);
	struct cb_shell *l = m != NULL && !sh->guest->shutting_down ? lane_for(sh, r, m->phase) : NULL;

	if (l == NULL || waits_behind(sh, l, r))
		return false;
	if (m->phase == CB_PHASE_EXECUTING && r->execute.memory > 0)
		cb_failure_malformed(sh, r, "metadata.cellblock.memory: a subshell shares its memory with the others");
	else
		take(sh, l, r);
	return true;
}

static bool is_of(const struct cb_request *r, enum cb_wire_phase phase)
{
	const struct cb_shell_message *m = cb_shell_message_of(r);

	return m != NULL && m->phase == phase;
}

/* Those of a kind leave the main shell's queue for the lane that takes them now, as many as it has room for: they have
 * been accepted. */
static void take_waiting(struct cb_shells *sh, enum cb_wire_phase phase)
{
	struct cb_execution *x = &sh->execution;
	const struct cb_request *w = x->shell.waiting.head;
	int64_t now = cb_now_ns();
	bool full = false;

	while (w != NULL && !is_of(w, phase))
		w = w->next;
	for (size_t n = w != NULL ? x->load.count : 0; n > 0; n--) {
		struct cb_request *r = cb_shell_pop(&x->shell);
		struct cb_shell *l = is_of(r, phase) && !sh->guest->shutting_down ? lane_for(sh, r, phase) : NULL;

		full = full || (l != NULL && !cb_shell_has_room(l, r));
		if (l != NULL && !full) {
			r->arrived_ns = now; /* what bounds a question's time does not count the start of Python */
			take(sh, l, r);
		} else {
			cb_queue_push(&x->shell.waiting, &x->load, r);
		}
	}
}

void cb_lanes_busy_begins(struct cb_shells *sh)
{
	take_waiting(sh, CB_PHASE_ASKING);
}

void cb_lanes_cell_awaits(struct cb_shell *s)
{
	s->awaiting = true;
	take_waiting(s->all, CB_PHASE_COMM);
}

static void awaits(struct cb_shell *l)
{
	struct cb_shells *sh = l->all;
	const struct cb_request *kept = NULL;

	if (l->awaiting)
		return;
	l->awaiting = true;
	while (l->waiting.head != NULL && l->waiting.head != kept) {
		struct cb_request *r = cb_shell_pop(l);

		if (kept == NULL && !cb_request_is_comm(r))
			kept = r;
		(void)cb_shell_take(cb_request_is_comm(r) ? beside(sh, l) : l, r);
	}
	cb_loop_mark(sh->loop);
}

/* ---- beginning ---- */

/* What the guest may answer, and how. */
static void note(struct cb_shells *sh, const struct cb_shell *l, uint64_t request, enum cb_wire_phase phase)
{
	for (size_t i = 0; i < CB_LANES; i++)
		if (l == lane_at(&sh->lanes, i))
			sh->guest->python.rules.beside[i] = (struct cb_guest_pending){ request, phase };
}

static int send_to_lane(struct cb_shell *l, struct cb_request *r, const struct cb_shell_message *m)
{
	struct cb_shells *sh = l->all;
	struct cb_span buffer[CB_MAX_BUFFERS];
	CB_AUTO_BUF b = CB_BUF_INIT(r->metadata.len + r->header->len + CB_TOOLS_BYTES + 65536);
	size_t n = cb_python_buffers(r, m->wire, buffer);
	int c;

	if (m->phase == CB_PHASE_EXECUTING)
		c = cb_shell_metadata(l, l->number, &b);
	else if (m->phase == CB_PHASE_COMM)
		c = cb_json_write_object(&b, "lane", l->number, "beside", is_beside(sh, l), "header",
					 cb_header_span(r->header), "metadata", r->metadata);
	else
		c = cb_json_write_object(&b, "lane", 0u);
	r->id = cb_python_give_id(&sh->guest->python, r->header, false);
	if (m->phase != CB_PHASE_ASKING)
		note(sh, l, r->id, m->phase);
	struct cb_span about = cb_buf_span(&b);

	if (c >= 0 && l == &sh->lanes.comms)
		c = cb_python_send_beside(&sh->guest->python, r, m->wire, about);
	else if (c >= 0)
		c = cb_side_send(&sh->guest->side, m->wire, r->id, r->content, about, buffer, n);
	if (c >= 0 && m->phase == CB_PHASE_COMM)
		sh->events->comm_begins(sh->kernel, r);
	return c;
}

static void begin(struct cb_shell *l)
{
	struct cb_shells *sh = l->all;

	cb_shell_begin(l, cb_shell_pop(l));
	if (l->current != NULL && l == &sh->lanes.ask)
		l->answer_by = l->current->arrived_ns + QUESTION_DEADLINE;
	arm(sh);
}

static void begin_waiting(struct cb_shells *sh, struct cb_shell *l)
{
	bool none = sh->guest->state == CB_GUEST_NONE && sh->guest->failure.code != 0;

	while (l->current == NULL && l->waiting.head != NULL &&
	       ((sh->guest->state == CB_GUEST_UP && !sh->guest->side.ending) || none) &&
	       !sh->keeper->copying(sh->kept) && !sh->keeper->before(sh->kept, l->waiting.head))
		begin(l);
}

void cb_lanes_schedule(struct cb_shells *sh)
{
	if (sh->lanes.load.count == 0 || sh->events->files_held(sh->kernel))
		return;
	if (sh->guest->python.rules.phase != CB_PHASE_ASKING) /* Python's completer is not asked twice at a time */
		begin_waiting(sh, &sh->lanes.ask);
	if (sh->guest->python.signals == 0) /* they are for the main thread */
		begin_waiting(sh, &sh->lanes.comms);
	for (size_t i = 0; i < CB_SUBSHELLS_MAX && sh->lanes.load.count > 0; i++) {
		begin_waiting(sh, &sh->lanes.beside[i]);
		begin_waiting(sh, &sh->lanes.sub[i]);
	}
}

/* ---- ending ---- */

static void done(struct cb_shell *l, struct cb_request *r)
{
	struct cb_shells *sh = l->all;

	note(sh, l, 0, CB_PHASE_IDLE);
	if (sh->execution.shell.awaiting) /* there may be room now */
		take_waiting(sh, CB_PHASE_COMM);
	if (cb_request_is_execute(r))
		sh->keeper->beside_ended(sh->kept, l);
	if (l == &sh->lanes.comms && sh->execution.shell.current == NULL)
		cb_python_interrupt_no_more(&sh->guest->python);
	sh->keeper->quiet(sh->kept);
	cb_loop_mark(sh->loop);
}

bool cb_lanes_delete(struct cb_shells *sh, struct cb_span id)
{
	struct cb_shell *l = find(sh, id);

	if (l == NULL)
		return false;
	l->id[0] = '\0';
	cb_abort_executes(beside(sh, l), true);
	cb_abort_executes(l, true);
	tell_guest(sh, l, CB_WIRE_LANE_CLOSE);
	return true;
}

void cb_lanes_awaited(const struct cb_shells *sh, uint32_t *ret_type, uint64_t *ret_id)
{
	const struct cb_request *r = sh->lanes.ask.current;

	*ret_type = r != NULL ? cb_shell_message_of(r)->answer : 0;
	*ret_id = r != NULL ? r->id : 0;
}

int cb_lanes_side_frame(struct cb_shells *sh, struct cb_frame *f, const char **ret_reason)
{
	return cb_shell_answer(&sh->lanes.ask, f, ret_reason);
}

void cb_lanes_side_closed(struct cb_shells *sh)
{
	struct cb_shell *l = &sh->lanes.ask;

	if (l->current == NULL)
		return;
	if (!l->stale)
		cb_reply_error(sh->jupyter, l->current, "KernelBusyError",
			       "the guest has closed the channel that answers while a cell runs");
	cb_shell_finish(l);
	cb_loop_mark(sh->loop);
}

/* ---- input ---- */

struct cb_shell *cb_lanes_asker(struct cb_shells *sh, const struct cb_request *reply)
{
	struct cb_shell *first = NULL;

	for (struct cb_shell *l = sh->lanes.sub; l < sh->lanes.sub + CB_SUBSHELLS_MAX; l++)
		if (cb_shell_asks(l, reply) && (first == NULL || l->asked_at < first->asked_at))
			first = l;
	return first;
}

static int input(struct cb_shell *l, struct cb_span content)
{
	CB_JSON_SMALL(lane, "lane", l->number, "question", l->question);

	return cb_side_send(&l->all->guest->side, CB_WIRE_INPUT_REPLY, l->current->id, content, cb_buf_span(&lane),
			    NULL, 0);
}

/* ---- time, interrupts, death ---- */

static void interrupt_guest(struct cb_shell *l)
{
	struct cb_shells *sh = l->all;

	if (l == &sh->lanes.comms) {
		cb_python_interrupt(&sh->guest->python);
		return;
	}
	tell_guest(sh, l, CB_WIRE_LANE_INTERRUPT);
	cb_shell_asked(l); /* an answer that comes now is nobody's */
	l->ask_again++;
}

static void usage(struct cb_shell *l, struct cb_usage *ret_usage)
{
	if (l->all->execution.taken_over)
		*ret_usage = l->all->execution.usage_at_end;
	else
		cb_usage_read(&l->all->guest->usage, ret_usage);
}

static double cpu(struct cb_shell *l)
{
	return cb_usage_jail_cpu(&l->all->guest->usage);
}

static void arm_one(struct cb_shell *l)
{
	arm(l->all);
}

static const struct cb_shell_ops subshell_ops = {
	.max_waiting = CB_SHELLS_WAITING_MAX,
	.max_bytes = CB_SHELLS_BYTES_MAX,
	.up = cb_execution_up,
	.begun = cb_execution_cell_begins,
	.told = cb_execution_record,
	.send = send_to_lane,
	.awaits = awaits,
	.input = input,
	.interrupt = interrupt_guest,
	.kill = cb_execution_kill,
	.done = done,
	.usage = usage,
	.cpu = cpu,
	.arm = arm_one,
	.cpu_of = "the jail",
};

/* Questions that wait behind one that Python does not answer. */
static void give_up_questions(struct cb_shells *sh, int64_t now)
{
	struct cb_shell *l = &sh->lanes.ask;
	bool stale = l->stale;

	if (l->current != NULL && !stale && l->answer_by <= now) {
		cb_failure_unanswered(sh->jupyter, l->current);
		cb_iopub_status(sh->jupyter, "idle", l->current->header);
		cb_busy_again(sh->jupyter);
		l->stale = true;
		l->answer_by = 0;
		tell_guest(sh, l, CB_WIRE_LANE_INTERRUPT);
	}
	while (l->waiting.head != NULL && l->waiting.head->arrived_ns + QUESTION_DEADLINE <= now) {
		struct cb_request *r = cb_shell_pop(l);

		cb_bracket_begin(sh->jupyter, r);
		cb_failure_unanswered(sh->jupyter, r);
		cb_bracket_close(sh->jupyter, r);
	}
}

static void arm(struct cb_shells *sh)
{
	const struct cb_shell *ask = &sh->lanes.ask;
	int64_t when = ask->current != NULL ? ask->answer_by : 0;

	if (ask->waiting.head != NULL)
		cb_sooner(&when, ask->waiting.head->arrived_ns + QUESTION_DEADLINE);
	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		cb_shell_due(&sh->lanes.sub[i], &sh->lanes.look_at, &when);
	cb_loop_arm(sh->loop, sh->lanes.timer, when);
}

static void on_timer(void *context)
{
	struct cb_shells *sh = context;
	int64_t now = cb_now_ns();

	sh->lanes.look_at = 0;
	give_up_questions(sh, now);
	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		cb_shell_look(&sh->lanes.sub[i], now);
	arm(sh);
}

/* The subshell's cell, or what came beside one that has ended. */
static struct cb_shell *what_runs(struct cb_shells *sh, struct cb_shell *subshell)
{
	return subshell->current != NULL ? subshell : beside(sh, subshell);
}

static void interrupt_subshell(struct cb_shells *sh, struct cb_shell *l, bool hard, const struct cb_request *by)
{
	bool runs = what_runs(sh, l)->current != NULL;

	if (cb_shell_came_after(l, by))
		return;
	cb_shell_interrupt(runs ? what_runs(sh, l) : l, hard);
	if (!runs && l->waiting.head != NULL) /* it may wait for a twin to be made */
		sh->keeper->interrupt(sh->kept);
}

/* Hard is a second one only when it can't be meant for the main shell. What waits for a commit is left alone: it is the
 * commit that is to stop. */
void cb_lanes_interrupt(struct cb_shells *sh, const struct cb_request *by)
{
	bool hard = sh->execution.shell.current == NULL, held = sh->events->files_held(sh->kernel);

	for (size_t i = 0; i < CB_SUBSHELLS_MAX; i++)
		if (!held || what_runs(sh, &sh->lanes.sub[i])->current != NULL)
			interrupt_subshell(sh, &sh->lanes.sub[i], hard, by);
	if (sh->execution.shell.current == NULL && sh->lanes.comms.current != NULL) /* beside a cell that has ended */
		cb_shell_interrupt(&sh->lanes.comms, hard);
}

void cb_lanes_interrupt_subshell(struct cb_shells *sh, const struct cb_request *by)
{
	struct cb_shell *l = find(sh, by->subshell_id);

	if (l != NULL)
		interrupt_subshell(sh, l, true, by);
}

enum cb_found cb_lanes_interrupt_one(struct cb_shells *sh, struct cb_span msg_id)
{
	enum cb_found found = cb_shell_interrupt_one(&sh->lanes.ask, msg_id);

	for (size_t i = 0; i < CB_LANES && found == CB_FOUND_NOWHERE; i++)
		found = cb_shell_interrupt_one(lane_at(&sh->lanes, i), msg_id);
	return found;
}

static void died(struct cb_shell *l, struct cb_death d)
{
	if (l->current == NULL)
		return;
	d.cause = cb_failure_cause(l);
	cb_shell_died(l, &d);
}

/* Of Python's end; what was said to it is nobody's now. */
static void stopped(struct cb_shell *l)
{
	if (l->current == NULL || l->over)
		return;
	if (cb_request_is_execute(l->current))
		cb_failure_note_memory(l);
	cb_shell_stopped(l);
}

/* Last words are still to be read, and what they say of lanes is no fault: the guest's rules keep the ids. */
void cb_lanes_stopped(struct cb_shells *sh)
{
	struct cb_guest_pending *beside = sh->guest->python.rules.beside;
	struct cb_death d = { .state = "restored" };

	died(&sh->lanes.ask, d);
	for (size_t i = 0; i < CB_LANES; i++) { /* comm messages before the cells that they are beside */
		struct cb_shell *l = lane_at(&sh->lanes, i);
		struct cb_guest_pending asked = beside[i];

		if (l->current != NULL && cb_request_is_execute(l->current))
			stopped(l);
		else
			died(l, d);
		beside[i] = asked;
	}
}

void cb_lanes_guest_died(struct cb_shells *sh, bool restored)
{
	struct cb_death d;

	cb_failure_of_python(sh, restored, &d);
	died(&sh->lanes.ask, d);
	for (size_t i = 0; i < CB_LANES; i++) {
		stopped(lane_at(&sh->lanes, i));
		died(lane_at(&sh->lanes, i), d);
	}
}

void cb_lanes_end(struct cb_shells *sh, const char *why)
{
	cb_lanes_guest_died(sh, false);
	for (size_t i = 0; i <= CB_LANES; i++)
		for (struct cb_request *r;
		     (r = cb_shell_pop(i == CB_LANES ? &sh->lanes.ask : lane_at(&sh->lanes, i))) != NULL;)
			cb_abort_for_end(sh->jupyter, r, why);
}

int cb_lanes_init(struct cb_shells *sh)
{
	sh->lanes.timer = cb_loop_add_timer(sh->loop, on_timer, sh);
	sh->lanes.ask = new_lane(sh, 0);
	sh->lanes.comms = new_lane(sh, 0);
	return sh->lanes.timer < 0 ? sh->lanes.timer : 0;
}

void cb_lanes_release(struct cb_shells *sh)
{
	cb_shell_release(&sh->lanes.ask);
	for (size_t i = 0; i < CB_LANES; i++)
		cb_shell_release(lane_at(&sh->lanes, i));
}
