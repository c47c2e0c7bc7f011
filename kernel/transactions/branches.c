/* Branches: their lives, their channels, and what they serve.
 *
 * Trust domain: supervisor; a branch is as hostile as any guest. It begins as a twin (twins.c) that is woken while the
 * guest goes on. Each is a shell with a process of its own behind it: a wire under the same permission table as the
 * guest's, ids of its own, a count, limits of time, interrupts. Invariants: whatever a branch does ends that branch
 * alone; every request that it was given is answered, also when it or the jail dies; it is forgotten only when pid 1
 * has said that all of it is dead. What its frames do is in branch_frames.c.
 */
#include "branches.h"

#include <cellblock/fd.h>
#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>
#include <cellblock/log.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "checkpoints.h"
#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "jupyter/status.h"
#include "memory.h"
#include "policy/policy.h"
#include "python/guest.h"
#include "records/audit_events.h"
#include "shells/abort.h"
#include "shells/failure.h"
#include "shells/shell.h"
#include "twins.h"
#include "workspace/overlay_changes.h"

#define MS 1000000LL
#define SECOND (1000 * MS)
#define WAKE_DEADLINE (10 * SECOND)
#define CLOSED_DEADLINE SECOND /* end of its wire to its end */
#define READ_BUDGET (64u << 10)
#define LAST_WORDS (64u << 20)
#define EVENTS 64
#define SOURCES_MAX (1u << 20) /* bytes of what has run in one */
#define GONE "this branch is gone; the main line and other branches go on"
#define ALL_GONE "this branch is gone, with the whole jail"

enum channel { WIRE, OUT, ERR, CHANNELS };

static void arm(struct cb_transactions *tx);
static const struct cb_shell_ops branch_ops;

/* ---- which ---- */

/* The next from place *i on; NULL = no more. */
static struct cb_branch *next(const struct cb_transactions *tx, size_t *i)
{
	while (*i < CB_BRANCHES_MAX)
		if (tx->branches.branch[(*i)++] != NULL)
			return tx->branches.branch[*i - 1];
	return NULL;
}

struct cb_branch *cb_branches_find(struct cb_transactions *tx, struct cb_span id)
{
	struct cb_branch *b = NULL;

	for (size_t i = 0; id.data != NULL && (b = next(tx, &i)) != NULL;)
		if (b->state != CB_BRANCH_WAKING && cb_shell_is(&b->shell, id)) /* before that nobody knows it */
			return b;
	return NULL;
}

enum cb_found cb_branches_interrupt_one(struct cb_transactions *tx, struct cb_span msg_id)
{
	enum cb_found found = CB_FOUND_NOWHERE;
	struct cb_branch *b;

	for (size_t i = 0; found == CB_FOUND_NOWHERE && (b = next(tx, &i)) != NULL;)
		found = cb_shell_interrupt_one(&b->shell, msg_id);
	return found;
}

static struct cb_branch **place_of(struct cb_transactions *tx, uint32_t number)
{
	for (size_t i = 0; i < CB_BRANCHES_MAX; i++) {
		struct cb_branch *b = tx->branches.branch[i];

		if (number == 0 ? b == NULL : b != NULL && b->python.number == number)
			return &tx->branches.branch[i];
	}
	return NULL;
}

struct cb_branch *cb_branches_numbered(struct cb_transactions *tx, uint32_t number)
{
	struct cb_branch **place = number != 0 ? place_of(tx, number) : NULL;

	return place != NULL ? *place : NULL;
}

bool cb_branches_full(struct cb_transactions *tx)
{
	return place_of(tx, 0) == NULL;
}

bool cb_branches_any(const struct cb_transactions *tx)
{
	size_t i = 0;

	return next(tx, &i) != NULL;
}

const struct cb_request *cb_branches_running(const struct cb_transactions *tx)
{
	const struct cb_branch *b;

	for (size_t i = 0; (b = next(tx, &i)) != NULL;)
		if (b->shell.current != NULL)
			return b->shell.current;
	return NULL;
}

bool cb_branches_busy(const struct cb_transactions *tx)
{
	return tx->branches.load.count > 0 || cb_branches_running(tx) != NULL;
}

bool cb_branches_interrupted(const struct cb_transactions *tx)
{
	const struct cb_branch *b;

	for (size_t i = 0; (b = next(tx, &i)) != NULL;)
		if (b->shell.interrupted_at != 0)
			return true;
	return false;
}

void cb_branches_list(struct cb_transactions *tx, struct cb_json *j)
{
	const struct cb_branch *b;

	cb_json_array(j, "branches");
	for (size_t i = 0; (b = next(tx, &i)) != NULL;) {
		char date[28];

		if (b->shell.id[0] == '\0' || b->state != CB_BRANCH_UP)
			continue;
		cb_date_format(b->created, date);
		cb_json_put_object(j, NULL, "subshell_id", b->shell.id, "from", b->from[0] != '\0' ? b->from : NULL,
				   "execution_count", b->count, "busy", (bool)(b->shell.current != NULL),
				   "memory_bytes", cb_usage_of(b->python.pid), "created", date);
	}
	cb_json_end(j);
}

/* ---- channels ---- */

void cb_branch_end(struct cb_transactions *tx, struct cb_branch *b, const char *why)
{
	if (b->state == CB_BRANCH_ENDING)
		return;
	cb_branch_go(b, CB_BRANCH_ENDING);
	b->python.nudge_at = b->deadline = b->python.half.due = 0;
	snprintf(b->why, sizeof(b->why), "%s", why);
	if (cb_pid1_tell(&tx->guest->pid1, CB_INIT_DROP, (int)b->python.number, 0) < 0) /* else nothing could end it */
		cb_guest_kill(tx->guest, "pid 1 of the jail does not take messages");
	arm(tx);
}

static int watch(struct cb_transactions *tx, const struct cb_branch *b, enum channel which, int op)
{
	const struct cb_python *p = &b->python;
	int fd = which == WIRE ? p->link.fd : p->output.out[which - OUT];
	bool writes = which == WIRE && cb_guest_link_pending(&p->link);
	struct epoll_event e = { .events = EPOLLIN | (writes ? (uint32_t)EPOLLOUT : 0u),
				 .data.u64 = (uint64_t)p->number * CHANNELS + which };

	return fd < 0 ? 0 : epoll_ctl(tx->branches.epoll_fd, op, fd, &e) < 0 ? -errno : 0;
}

/* While a frame of its waits for room it is left out: an end of the wire would be told again and again. */
static void watch_wire(struct cb_python *p)
{
	const struct cb_branch *b = cb_branch_of(p);
	struct cb_transactions *tx = b->all;

	if (b->unread)
		return;
	if (p->link.waits)
		(void)watch(tx, b, WIRE, EPOLL_CTL_DEL);
	else if (watch(tx, b, WIRE, EPOLL_CTL_MOD) == -ENOENT)
		(void)watch(tx, b, WIRE, EPOLL_CTL_ADD);
}

static void unwatch_wire(struct cb_python *p)
{
	cb_branch_of(p)->unread = true;
	(void)watch(cb_branch_of(p)->all, cb_branch_of(p), WIRE, EPOLL_CTL_DEL);
}

static bool heard(const struct cb_python *p)
{
	return !cb_branch_of(p)->mute;
}

/* Its end, which pid 1 reports; if it lives on, it can't be served. */
static void closed(struct cb_python *p)
{
	struct cb_branch *b = cb_branch_of(p);

	if (b->state != CB_BRANCH_ENDING)
		b->deadline = cb_now_ns() + CLOSED_DEADLINE;
}

static void broke_rules(struct cb_python *p, const char *why)
{
	struct cb_branch *b = cb_branch_of(p);
	struct cb_transactions *tx = b->all;

	b->mute = true;
	cb_log(CB_LOG_WARNING, "a branch broke the wire protocol: %s", why);
	cb_audit_denied(tx->records, "branch", why);
	cb_shell_stop_reason(&b->shell, CB_STOP_WIRE);
	cb_branch_end(tx, b, why);
}

static void arm_python(struct cb_python *p)
{
	arm(cb_branch_of(p)->all);
}

static double worked(const struct cb_python *p)
{
	const struct cb_transactions *tx = cb_branch_of(p)->all;

	return cb_twins_hold(tx) ? cb_usage_jail_cpu(&tx->guest->usage) : cb_guest_worked(tx->guest);
}

static const struct cb_python_ops python_ops = {
	.heard = heard,
	.drops = cb_branch_drops,
	.frame = cb_branch_frame,
	.watch = watch_wire,
	.unwatch = unwatch_wire,
	.closed = closed,
	.broke = broke_rules,
	.arm = arm_python,
	.worked = worked,
};

/* Frames for which there was no room until now. */
static void resume_waiting(struct cb_transactions *tx)
{
	struct cb_branch *b;

	for (size_t i = 0; tx->branches.room.waiting > 0 && (b = next(tx, &i)) != NULL;)
		if (cb_guest_link_may_go_on(&b->python.link))
			cb_python_read(&b->python, READ_BUDGET);
}

static void serve(struct cb_transactions *tx, struct cb_branch *b, enum channel which, uint32_t events)
{
	if (which != WIRE) {
		if (cb_output_read(&b->python.output, which == OUT ? 0 : 1) < 0)
			(void)watch(tx, b, which, EPOLL_CTL_DEL);
		return;
	}
	if (events & EPOLLOUT)
		cb_python_flush(&b->python);
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		cb_python_read(&b->python, READ_BUDGET);
	cb_loop_mark(tx->loop);
	arm(tx); /* what it says can change what it is given time for */
}

/* They may say no more than that they serve, and have not long to do so. */
static void hear_waking(struct cb_transactions *tx)
{
	struct cb_branch *b;

	for (size_t i = 0; (b = next(tx, &i)) != NULL;)
		if (b->state == CB_BRANCH_WAKING && !b->unread)
			serve(tx, b, WIRE, EPOLLIN);
}

/* When clients don't keep up nothing else is read. */
static void pause_if_congested(void *context)
{
	struct cb_transactions *tx = context;
	bool congested = cb_iopub_congested(tx->jupyter);

	cb_loop_set_events(tx->loop, tx->branches.slot, congested ? 0 : ZMQ_POLLIN);
	if (congested)
		cb_loop_arm(tx->loop, tx->branches.resume_timer, cb_now_ns() + 5 * MS);
	if (congested)
		hear_waking(tx);
	else if (tx->branches.room.waiting > 0)
		resume_waiting(tx);
}

static void on_events(void *context, short revents)
{
	struct cb_transactions *tx = context;
	struct epoll_event e[EVENTS];
	int n = epoll_wait(tx->branches.epoll_fd, e, EVENTS, 0);

	(void)revents;
	for (int i = 0; i < n; i++) {
		struct cb_branch **b = place_of(tx, (uint32_t)(e[i].data.u64 / CHANNELS));

		if (b != NULL)
			serve(tx, *b, (enum channel)(e[i].data.u64 % CHANNELS), e[i].events);
	}
	pause_if_congested(tx);
}

/* ---- birth ---- */

int cb_branch_ask(struct cb_transactions *tx, struct cb_branch *b, enum cb_wire_type type, enum cb_wire_phase phase,
		  struct cb_span content)
{
	const struct cb_request *r = tx->shells->execution.shell.current;

	return cb_python_ask(&b->python, type, phase, r != NULL ? r->header : NULL, content);
}

static int wake(struct cb_transactions *tx, struct cb_branch *b, struct cb_twin *t)
{
	struct cb_twin_control_msg message = { .op = CB_TWIN_CONTROL_BRANCH, .number = t->number };
	CB_JSON_SMALL(content, "execution_count", b->count + 1, "branch", (bool)true, "undone", CB_SPAN("[]"));
	int r = cb_pid1_tell(&tx->guest->pid1, CB_INIT_BRANCH, (int)t->number, 0);

	if (r == 0)
		r = cb_fd_send(b->python.twin_control, &message, sizeof(message), NULL, 0);
	for (int i = WIRE; i < CHANNELS && r == 0; i++)
		r = watch(tx, b, (enum channel)i, EPOLL_CTL_ADD);
	if (r < 0)
		return r;
	return cb_branch_ask(tx, b, CB_WIRE_RESUME, CB_PHASE_WAKING, cb_buf_span(&content));
}

static void set_up(struct cb_transactions *tx, struct cb_branch *b, const struct cb_twin *t)
{
	b->shell = (struct cb_shell){ .ops = &branch_ops,
				      .all = tx->shells,
				      .load = &tx->branches.load,
				      .python = &b->python,
				      .count = &b->count };
	b->all = tx;
	cb_python_init(&b->python, &python_ops, &tx->guest->pid1, &tx->guest->last_id);
	cb_output_init(&b->python.output, b->parent, CB_BRANCH_PARENTS, &b->comms, tx->jupyter, tx->records,
		       tx->policy);
	b->python.rules = (struct cb_guest_rules){ .phase = CB_PHASE_WAKING,
						   .first_id = tx->guest->python.rules.first_id,
						   .max_message = tx->policy->limit_message };
	b->python.number = t->number;
	b->python.pid = t->pid;
	b->count = t->count;
	b->cell = t->cell;
	b->live = t->live;
	b->created = cb_date_now();
	b->deadline = cb_now_ns() + WAKE_DEADLINE;
}

static void release(struct cb_branch *b)
{
	cb_header_unref(b->asked);
	cb_shell_release(&b->shell);
	cb_python_close(&b->python);
	cb_output_forget(&b->python.output);
	cb_comms_release(&b->comms);
	cb_comms_release(&b->had);
	cb_undo_log_release(&b->ran);
	cb_called_release(&b->called);
	free(b);
}

bool cb_branches_born(struct cb_transactions *tx, struct cb_twin *t, const char *from)
{
	struct cb_branch **place = place_of(tx, 0), *b = place != NULL ? calloc(1, sizeof(*b)) : NULL;
	struct cb_session uuid = { 0 };

	if (b == NULL)
		return false;
	set_up(tx, b, t);
	b->had = t->comms;
	t->comms = (struct cb_comms){ 0 };
	if (cb_session_init(&uuid, NULL) < 0 || cb_python_open(&b->python, &t->ends, tx->policy->limit_message) < 0) {
		release(b);
		return false;
	}
	b->python.link.room = &tx->branches.room;
	memcpy(b->shell.id, uuid.id, sizeof(b->shell.id));
	snprintf(b->from, sizeof(b->from), "%s", from);
	if (wake(tx, b, t) < 0) {
		release(b);
		return false;
	}
	b->asked = cb_header_ref(tx->shells->execution.shell.current->header);
	*place = b;
	cb_audit_branch(tx->records, b->shell.id, from);
	arm(tx);
	return true;
}

/* ---- requests ---- */

static bool up(struct cb_shell *l)
{
	return ((struct cb_branch *)l)->state == CB_BRANCH_UP;
}

static void begun(struct cb_shell *l)
{
	struct cb_branch *b = (struct cb_branch *)l;
	struct cb_usage jail = { 0 };

	cb_usage_read(&b->all->guest->usage, &jail);
	b->oom = jail.oom;
	cb_calls_begin(l->current->calls, 0, &b->called);
	cb_memory_watch(b->all);
}

static void note_ran(struct cb_branch *b, const struct cb_request *r)
{
	const struct cb_cell *cell = &b->shell.cell;
	struct cb_span code = { NULL, 0 };

	if (cb_request_is_execute(r))
		code = b->ran.bytes + r->execute.code.len > SOURCES_MAX ? CB_SPAN("\"\"") : r->execute.code;
	cb_undo_log_add(&b->ran, code, cb_request_is_execute(r) && cell->store ? cell->number : 0);
}

/* What it says on a comm counts until it is told that this is closed. */
static int send_request(struct cb_shell *l, struct cb_request *r, const struct cb_shell_message *m)
{
	struct cb_branch *b = (struct cb_branch *)l;
	int c = cb_shell_send(l, r, m);

	if (c >= 0 && m->phase == CB_PHASE_COMM)
		cb_comms_note(&b->comms, r);
	if (c >= 0 && (m->phase == CB_PHASE_COMM || m->phase == CB_PHASE_EXECUTING))
		note_ran(b, r);
	return c;
}

/* Whether the kernel has chosen it when memory was short, and whose. */
static enum cb_oom oom_of(struct cb_transactions *tx, const struct cb_branch *b, int status)
{
	struct cb_usage jail = { 0 };

	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL || b->state == CB_BRANCH_ENDING ||
	    b->shell.current == NULL)
		return CB_OOM_NONE;
	cb_usage_read(&tx->guest->usage, &jail);
	return cb_guest_oom(tx->guest, &b->oom, &jail.oom);
}

static void done(struct cb_shell *l, struct cb_request *r)
{
	struct cb_branch *b = (struct cb_branch *)l;

	(void)r;
	if (b->state != CB_BRANCH_WAKING)
		cb_guest_rules_go(&b->python.rules, CB_PHASE_IDLE, 0);
	b->python.nudge_at = 0;
}

void cb_branches_schedule(struct cb_transactions *tx)
{
	struct cb_branch *b;

	if (tx->branches.load.count == 0 || cb_overlay_changes_holds(tx->workspace))
		return;
	for (size_t i = 0; (b = next(tx, &i)) != NULL;)
		while (b->state == CB_BRANCH_UP && b->python.rules.phase == CB_PHASE_IDLE &&
		       b->shell.waiting.head != NULL && b->python.signals == 0 && !cb_adopt_holds(tx, b))
			cb_shell_begin(&b->shell, cb_shell_pop(&b->shell));
	arm(tx);
}

void cb_branches_signalled(struct cb_transactions *tx, uint32_t number)
{
	struct cb_branch **b = place_of(tx, number);

	if (b != NULL)
		cb_python_signalled(&(*b)->python);
}

static void take(struct cb_transactions *tx, struct cb_branch *b, struct cb_request *r)
{
	if (cb_shell_take(&b->shell, r))
		cb_loop_mark(tx->loop);
}

bool cb_branches_take(struct cb_transactions *tx, struct cb_request *r)
{
	struct cb_branch *b = cb_branches_find(tx, r->subshell_id);

	if (b == NULL || tx->guest->shutting_down || cb_shell_message_of(r) == NULL)
		return false;
	take(tx, b, r);
	return true;
}

bool cb_branches_comm(struct cb_transactions *tx, struct cb_request *r, struct cb_span id, struct cb_span target)
{
	struct cb_branch *b = cb_branches_find(tx, r->subshell_id), *each;

	/* frontends don't know where their comms come from */
	for (size_t i = 0; b == NULL && (each = next(tx, &i)) != NULL;)
		if (each->shell.id[0] != '\0' && cb_comms_has(&each->comms, id))
			b = each;
	if (b == NULL)
		return false;
	if (target.data != NULL)
		(void)cb_comms_opened(&b->comms, id, target);
	if (!cb_comms_has(&b->comms, id)) {
		cb_bracket_begin(tx->jupyter, r);
		cb_branch_comm_dropped(tx, r->header);
		cb_bracket_close(tx->jupyter, r);
		return true;
	}
	take(tx, b, r);
	return true;
}

bool cb_branches_delete(struct cb_transactions *tx, struct cb_span id)
{
	struct cb_branch *b = cb_branches_find(tx, id);

	if (b == NULL)
		return false;
	cb_audit_branch_end(tx->records, b->shell.id, "deleted");
	b->shell.id[0] = '\0';
	cb_abort_executes(&b->shell, true);
	cb_branch_end(tx, b, "the branch was ended by delete_subshell_request");
	return true;
}

/* ---- input ---- */

struct cb_shell *cb_branches_asker(struct cb_transactions *tx, const struct cb_request *reply)
{
	struct cb_shell *first = NULL;
	struct cb_branch *b;

	for (size_t i = 0; (b = next(tx, &i)) != NULL;)
		if (cb_shell_asks(&b->shell, reply) && (first == NULL || b->shell.asked_at < first->asked_at))
			first = &b->shell;
	return first;
}

static void stop(struct cb_shell *l, const char *why)
{
	cb_branch_end(((struct cb_branch *)l)->all, (struct cb_branch *)l, why);
}

static void usage(struct cb_shell *l, struct cb_usage *ret_usage)
{
	struct cb_usage_source of = CB_USAGE_SOURCE_NONE;

	cb_usage_follow(&of, ((struct cb_branch *)l)->python.pid);
	cb_usage_read(&of, ret_usage);
	cb_usage_close(&of);
}

/* It, and what descends from it. */
static struct cb_usage_source tree(const struct cb_branch *b)
{
	struct cb_usage_source of = CB_USAGE_SOURCE_NONE;

	of.init = b->python.pid;
	return of;
}

static double cpu(struct cb_shell *l)
{
	struct cb_usage_source of = tree((struct cb_branch *)l);

	return cb_usage_jail_cpu(&of);
}

static void arm_one(struct cb_shell *s)
{
	arm(((struct cb_branch *)s)->all);
}

static const struct cb_shell_ops branch_ops = {
	.max_waiting = CB_SHELLS_WAITING_MAX,
	.max_bytes = CB_SHELLS_BYTES_MAX,
	.up = up,
	.begun = begun,
	.send = send_request,
	.kill = stop,
	.done = done,
	.usage = usage,
	.cpu = cpu,
	.arm = arm_one,
	.cpu_of = "the branch",
};

static uint64_t memory_limit(const struct cb_branch *b)
{
	return b->shell.current != NULL && b->state == CB_BRANCH_UP ? b->shell.current->execute.memory : 0;
}

static void check_memory(struct cb_branch *b)
{
	struct cb_usage_source of = tree(b);

	if (memory_limit(b) > 0 && cb_usage_largest(&of) > memory_limit(b))
		cb_shell_over_memory(&b->shell);
}

static void arm(struct cb_transactions *tx)
{
	struct cb_branch *b;
	int64_t when = 0;

	for (size_t i = 0; (b = next(tx, &i)) != NULL;) {
		cb_sooner(&when, b->deadline);
		if (b->state == CB_BRANCH_ENDING)
			continue;
		cb_python_due(&b->python, &when);
		if (memory_limit(b) > 0)
			cb_shell_next_look(&tx->branches.look_at, &when);
		cb_shell_due(&b->shell, &tx->branches.look_at, &when);
	}
	cb_loop_arm(tx->loop, tx->branches.timer, when);
}

static void look_at(struct cb_transactions *tx, struct cb_branch *b, int64_t now)
{
	if (b->state == CB_BRANCH_ENDING)
		return;
	if (b->deadline != 0 && b->deadline <= now && cb_python_is_ending(&b->python))
		b->deadline = now + CLOSED_DEADLINE;
	if (b->deadline != 0 && b->deadline <= now)
		cb_branch_end(tx, b, b->state == CB_BRANCH_WAKING ? "it did not wake" : "it closed its wire");
	cb_python_look(&b->python, now);
	check_memory(b);
	if (b->state != CB_BRANCH_ENDING)
		cb_shell_look(&b->shell, now);
}

static void on_timer(void *context)
{
	struct cb_transactions *tx = context;
	int64_t now = cb_now_ns();
	struct cb_branch *b;

	tx->branches.look_at = 0;
	for (size_t i = 0; (b = next(tx, &i)) != NULL;)
		look_at(tx, b, now);
	arm(tx);
}

/* ---- the end ---- */

/* Answers all that it was asked, and forgets it. */
static void bury(struct cb_transactions *tx, struct cb_branch **place, const char *why, const char *what)
{
	struct cb_branch *b = *place;
	struct cb_branches *all = &tx->branches;
	struct cb_comms none = { 0 };

	*place = NULL; /* what comes from now on is for no one */
	if (b->shell.id[0] != '\0') {
		cb_audit_branch_end(tx->records, b->shell.id, why);
		all->last_ended = (all->last_ended + 1) % CB_BRANCHES_ENDED;
		memcpy(all->ended[all->last_ended].id, b->shell.id, sizeof(b->shell.id));
		snprintf(all->ended[all->last_ended].why, sizeof(all->ended[0].why), "%s", why);
	}
	if (b->shell.current != NULL)
		cb_shell_died(&b->shell, &(struct cb_death){ why, why, "lost", what });
	for (struct cb_request *r; (r = cb_shell_pop(&b->shell)) != NULL; cb_request_free(r)) {
		cb_bracket_begin(tx->jupyter, r);
		if (!cb_request_is_comm(r))
			cb_reply_error(tx->jupyter, r, "KernelDiedError", "%s; %s", why, what);
		cb_bracket_end(tx->jupyter, r);
	}
	cb_comms_reset(tx->jupyter, &b->comms, &none);
	cb_adopt_buried(tx, b);
	release(b);
	pause_if_congested(tx); /* others may have waited for its room */
	arm(tx);
}

void cb_branches_gone(struct cb_transactions *tx, uint32_t number, int status)
{
	struct cb_branch **place = place_of(tx, number), *b = place != NULL && number != 0 ? *place : NULL;
	struct cb_header *asked;
	enum cb_oom oom;
	char why[256];
	bool served;

	if (b == NULL)
		return;
	oom = oom_of(tx, b, status);
	if (oom == CB_OOM_LIMIT) {
		cb_shell_stop_reason(&b->shell, CB_STOP_MEMORY);
		snprintf(why, sizeof(why),
			 "the jail used more memory than limits.memory allows, and Python was killed");
	} else if (oom == CB_OOM_HOST) {
		cb_shell_stop_reason(&b->shell, CB_STOP_HOST);
		snprintf(why, sizeof(why), "%s", CB_FAILURE_HOST);
	} else if (b->state != CB_BRANCH_ENDING) {
		cb_python_end_text(status, why, sizeof(why));
	} else {
		snprintf(why, sizeof(why), "%s", b->why);
	}
	cb_branch_go(b, CB_BRANCH_ENDING);
	cb_python_read(&b->python, LAST_WORDS);
	cb_output_drain(&b->python.output);
	cb_log(CB_LOG_INFO, "branch %u has ended: %s", number, why);
	served = b->served;
	asked = cb_header_ref(b->asked);
	bury(tx, place, why, GONE);
	cb_adopt_branch_gone(tx, number);
	if (!served)
		(void)cb_checkpoint_branch_woken(tx, asked, NULL, why);
	cb_header_unref(asked);
	cb_twins_room(tx);
}

void cb_branches_jail_gone(struct cb_transactions *tx, const char *why)
{
	struct cb_branch *b;

	for (size_t i = 0; (b = next(tx, &i)) != NULL;) {
		cb_branch_go(b, CB_BRANCH_ENDING);
		cb_python_read(&b->python, LAST_WORDS);
		cb_output_drain(&b->python.output);
		bury(tx, &tx->branches.branch[i - 1], why, ALL_GONE);
	}
}

int cb_branches_init(struct cb_transactions *tx)
{
	struct cb_branches *all = &tx->branches;

	all->room.max = CB_BRANCH_FRAMES_MAX;
	all->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (all->epoll_fd < 0)
		return -errno;
	all->slot = cb_loop_add(tx->loop, NULL, all->epoll_fd, ZMQ_POLLIN, on_events, tx);
	all->timer = cb_loop_add_timer(tx->loop, on_timer, tx);
	all->resume_timer = cb_loop_add_timer(tx->loop, pause_if_congested, tx);
	return all->slot < 0 || all->timer < 0 || all->resume_timer < 0 ? -ENOSPC : 0;
}

void cb_branches_release(struct cb_transactions *tx)
{
	for (size_t i = 0; i < CB_BRANCHES_MAX; i++) {
		if (tx->branches.branch[i] != NULL)
			release(tx->branches.branch[i]);
		tx->branches.branch[i] = NULL;
	}
	cb_loop_remove(tx->loop, &tx->branches.slot);
	cb_fd_close(&tx->branches.epoll_fd);
}
