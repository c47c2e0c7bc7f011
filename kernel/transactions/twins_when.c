/* Twins: when one is made.
 *
 * Trust domain: supervisor; see twins.c. Only while nothing runs; with mode auto after each cell where that delays the
 * next one by little, else when the cells since the last one have earned it, or when nobody is waiting (twin_cost.c).
 */
#include <cellblock/log.h>
#include <inttypes.h>

#include "branches.h"
#include "checkpoints.h"
#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "jupyter/tools.h"
#include "memory.h"
#include "policy/policy.h"
#include "python/guest.h"
#include "shells/debug.h"
#include "shells/lanes.h"
#include "shells/shell.h"
#include "twins.h"
#include "workspace/jobs.h"

/* A cell waits so many ns for the answer to a question: JupyterLab asks the debugger when a notebook opens, and for
 * completions while somebody types. */
#define QUESTION 1000000000LL
#define REST 300000000LL /* ns after its copy, in which Python takes care of its pages (guest/copier/pages.c) */
#define AGAIN_MAX 3 /* while nothing runs: what goes wrong by itself does so each time */

bool cb_twins_busy(const struct cb_transactions *tx)
{
	return tx->twins.asked || tx->twins.coming != NULL || cb_twins_confirming(&tx->twins);
}

void cb_twins_touched(struct cb_transactions *tx, struct cb_span code, int64_t number)
{
	tx->twins.confirmed_ns = 0;
	tx->twins.again = 0;
	tx->twins.unmade = false;
	tx->twins.idle_deaths = 0;
	if (!tx->twins.possible && cb_twins_next(&tx->twins) == NULL && !cb_branches_any(tx))
		return; /* there is nothing that could take over */
	cb_undo_log_add(&tx->twins.undo_log, code, number);
	tx->twins.stale = true;
	tx->twins.after_cell |= code.data != NULL;
}

static void files_changed(struct cb_transactions *tx, uint64_t *times)
{
	struct cb_twins *w = &tx->twins;

	if (!cb_file_snapshots_on(tx))
		return;
	++*times;
	w->again = 0;
	w->stale = w->after_cell = true;
	cb_twins_quiet(tx);
}

void cb_twins_files_written(struct cb_transactions *tx)
{
	files_changed(tx, &tx->twins.written);
}

void cb_twins_files_committed(struct cb_transactions *tx)
{
	files_changed(tx, &tx->twins.commits);
}

/* Completions, inspections and the debugger's requests. */
static bool is_asked(const struct cb_transactions *tx)
{
	return cb_debug_busy(tx->shells) || cb_lanes_asked(tx->shells);
}

/* A copy of the files now would have a part of what one request writes. A command may run for hours, in which cells are
 * not to be without a twin. */
static bool is_written_to(const struct cb_transactions *tx)
{
	return cb_file_snapshots_on(tx) && cb_jobs_write(tx->workspace, false);
}

/* But for a question, which is perhaps being answered. */
static bool is_due(const struct cb_transactions *tx)
{
	const struct cb_twins *w = &tx->twins;

	return w->possible && w->stale && cb_now_ns() >= w->again_ns && !cb_twins_busy(tx) &&
	       tx->guest->state == CB_GUEST_UP && tx->guest->python.rules.phase == CB_PHASE_IDLE &&
	       tx->shells->execution.shell.current == NULL && !cb_lanes_run(tx->shells) && !tx->guest->shutting_down &&
	       !is_written_to(tx);
}

/* Messages of widgets that wait behind each other share one. */
static bool is_time(const struct cb_transactions *tx)
{
	return is_due(tx) && !is_asked(tx) && !cb_lanes_busy(tx->shells) && tx->twins.again <= AGAIN_MAX;
}

/* The guest's turns are read only if that may do. */
static bool is_earned(const struct cb_transactions *tx)
{
	const struct cb_twin_cost *c = &tx->twins.cost;

	return c->worked_s >= cb_twin_cost_due(c) && cb_twin_cost_is_earned(c, cb_usage_turns(&tx->guest->usage));
}

/* A checkpoint with a name holds the present state, but no failure goes back to it: one beside it costs little more. */
static bool is_named(const struct cb_transactions *tx)
{
	const struct cb_twins *w = &tx->twins;

	for (const struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		if (cb_twin_is_ready(t) && t->name[0] != '\0' && t->cell == w->undo_log.last)
			return true;
	return false;
}

/* What the last cell did is safe from the next one. Messages of widgets, which come in crowds, get no twin each, but
 * one before the next cell: cb_twins_before. */
static bool is_promised(const struct cb_transactions *tx)
{
	return tx->twins.after_cell && cb_twin_cost_is_small(&tx->twins.cost);
}

static struct cb_touched touched(const struct cb_transactions *tx)
{
	struct cb_touched t = { .own_bytes = cb_usage_of(tx->guest->python.pid) };

	t.faults = cb_usage_faults(&tx->guest->usage, &t.sys_s);
	return t;
}

static void note_touched(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	w->cost_reads = w->possible && cb_twin_cost_reads(&w->cost);
	if (w->cost_reads)
		w->cost.before = touched(tx);
}

void cb_twins_begins(struct cb_transactions *tx, struct cb_shell *s)
{
	bool main = s == &tx->shells->execution.shell;
	int64_t number = s->cell.store ? s->cell.number : 0;
	uint64_t before = tx->twins.undo_log.last;

	cb_twins_touched(tx, s->current->execute.code, number);
	s->cell.kept_as = tx->twins.undo_log.last;
	cb_calls_begin(s->current->calls, s->cell.kept_as, &tx->jupyter->tools.done);
	if (main)
		note_touched(tx);
	else if (s->cell.kept_as != before)
		cb_undo_log_runs(&tx->twins.undo_log, number);
	else /* there are no twins */
		s->cell.kept_as = 0;
	if (main || tx->shells->execution.shell.current == NULL)
		cb_memory_cell_begins(tx);
	else
		cb_memory_watch(tx);
}

void cb_twins_beside_ended(struct cb_transactions *tx, const struct cb_shell *s)
{
	if (s->cell.kept_as == 0)
		return;
	cb_undo_log_ended(&tx->twins.undo_log, s->cell.kept_as, s->cell.store ? s->cell.number : 0);
	cb_tools_ended(&tx->jupyter->tools, s->cell.kept_as, tx->twins.undo_log.last);
}

void cb_twins_cell_ended(struct cb_transactions *tx, double seconds)
{
	struct cb_twins *w = &tx->twins;

	if (!tx->shells->execution.taken_over) { /* else it was the dead guest's */
		struct cb_touched now = { 0 };

		if (w->cost_reads)
			now = touched(tx);
		cb_twin_cost_ran(&w->cost, seconds, w->cost_reads ? &now : NULL);
	}
	w->cost_reads = false;
}

void cb_twins_on_idle(void *context)
{
	struct cb_transactions *tx = context;

	if (is_time(tx) && tx->shells->execution.shell.waiting.head == NULL)
		(void)cb_twins_make(tx, NULL);
	cb_loop_mark(tx->loop); /* a cell may have waited for this */
}

/* It may be armed already, for a twin or for a cell that is held: who looks first looks for both. */
static void arm_sooner(struct cb_transactions *tx, int64_t when)
{
	cb_sooner(&when, tx->loop->timer[tx->twins.idle_timer].deadline);
	cb_loop_arm(tx->loop, tx->twins.idle_timer, when);
}

void cb_twins_want_again(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;
	int64_t idle = cb_now_ns() + cb_twin_cost_idle(&w->cost);

	w->again += !w->stale;
	w->stale = true;
	if (w->again > AGAIN_MAX) /* the next cell tries it */
		return;
	arm_sooner(tx, w->again_ns > idle ? w->again_ns : idle);
}

void cb_twins_quiet(struct cb_transactions *tx)
{
	cb_checkpoints_quiet(tx);
	if (tx->twins.stale && tx->twins.again_ns > cb_now_ns() && tx->twins.again <= AGAIN_MAX)
		cb_loop_arm(tx->loop, tx->twins.idle_timer, tx->twins.again_ns);
	if (!is_time(tx))
		return;
	if (tx->policy->transactions_mode == CB_MODE_ALWAYS || is_named(tx) || is_promised(tx) || is_earned(tx))
		(void)cb_twins_make(tx, NULL);
	else
		cb_loop_arm(tx->loop, tx->twins.idle_timer, cb_now_ns() + cb_twin_cost_idle(&tx->twins.cost));
}

/* Else the next cell begins without one, and this says why more than itself may be undone with it. */
static bool is_affordable(const struct cb_transactions *tx)
{
	const struct cb_twin_cost *c = &tx->twins.cost;

	if (tx->policy->transactions_mode == CB_MODE_ALWAYS || cb_twin_cost_is_small(c))
		return true;
	if (c->readings > 0) /* else nothing is known of it */
		cb_log(CB_LOG_INFO, "no twin was made behind cell [%" PRId64 "]: it would delay the next by %.1f ms",
		       tx->shells->execution.number, cb_twin_cost_delay(c) * 1e3);
	return false;
}

static int64_t worked(const struct cb_transactions *tx)
{
	return cb_usage_worked(tx->guest->python.pid, cb_file_snapshots_on(tx));
}

void cb_twins_try(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	if (w->unmade && w->failures > 0) /* of the same state: it counts once */
		w->failures--;
	w->unmade = w->rested = false;
	cb_loop_arm(tx->loop, w->rest_timer, 0);
}

void cb_twins_rest(struct cb_transactions *tx)
{
	cb_loop_arm(tx->loop, tx->twins.rest_timer, cb_now_ns() + REST);
}

void cb_twins_on_rest(void *context)
{
	struct cb_transactions *tx = context;

	tx->twins.rested = true;
	tx->twins.worked_ns = worked(tx);
}

/* Threads and tasks have gone on behind the newest one, or what writes files that go back: programs that a cell has
 * begun, or clients. Who waits uses no processor at all, so any use counts; but no cell is held up for a question's. Or
 * there is no such one, and by now there may be room for it. */
static void look_for_work(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	if (w->possible && !w->stale && w->rested && !is_asked(tx))
		w->stale = w->unmade || worked(tx) != w->worked_ns ||
			   (cb_file_snapshots_on(tx) && cb_jobs_write(tx->workspace, true));
}

bool cb_twins_before(struct cb_transactions *tx, struct cb_request *r)
{
	struct cb_twins *w = &tx->twins;
	int64_t now = cb_now_ns();

	if (!cb_request_is_execute(r) && cb_shell_message_of(r) != NULL)
		w->confirmed_ns = 0; /* who dies now may die of that */
	if (cb_request_is_execute(r))
		look_for_work(tx);
	if (!cb_request_is_execute(r) || !is_due(tx) || !is_affordable(tx))
		return false;
	if (!is_asked(tx))
		return cb_twins_make(tx, NULL);
	if (r->held_ns == 0)
		r->held_ns = now;
	if (now - r->held_ns >= QUESTION)
		return false;
	arm_sooner(tx, r->held_ns + QUESTION);
	return true;
}

void cb_twins_room(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	if (w->copy_kills) /* room is not what it lacks */
		return;
	w->possible = tx->policy->transactions_mode != CB_MODE_OFF && tx->guest->level >= CB_LEVEL_NO_CGROUP &&
		      !tx->shells->bash;
	w->failures = 0;
}

void cb_twins_guest_up(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	w->copy_kills = tx->checkpoints.rolling = false; /* they were the jail's before it */
	w->passed_over = w->again = w->idle_deaths = 0;
	cb_twins_room(tx);
	if (w->possible)
		(void)cb_twins_make(tx, NULL);
}
