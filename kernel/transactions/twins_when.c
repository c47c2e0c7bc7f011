/* Twins: when one is made.
 *
 * Trust domain: supervisor; see twins.c. Only while nothing runs; with mode auto after each cell where that delays the
 * next one by little, else when the cells since the last one have earned it, or when nobody is waiting (twin_cost.c).
 */
#include "kernel.h"
#include "twins_parts.h"

/* A cell waits so many ns for the answer to a debugger's request: JupyterLab asks when a notebook opens. */
#define DEBUGGER 1000000000LL

bool cb_twins_busy(const struct cb_kernel *k)
{
	return k->twins.asked || k->twins.coming != NULL || k->twins.confirming;
}

void cb_twins_touched(struct cb_kernel *k, struct cb_span code, int64_t number)
{
	k->twins.confirmed_ns = 0;
	if (!k->twins.possible && cb_twins_next(&k->twins) == NULL)
		return;
	cb_undo_log_add(&k->twins.past, code, number);
	k->twins.stale = true;
	k->twins.after_cell |= code.data != NULL;
}

/* But for a debugger's request, which is perhaps being answered. */
static bool is_due(const struct cb_kernel *k)
{
	const struct cb_twins *w = &k->twins;

	return w->possible && w->stale && cb_now_ns() >= w->again_ns && !cb_twins_busy(k) &&
	       k->guest.state == CB_GUEST_UP && k->guest.python.rules.phase == CB_PHASE_IDLE &&
	       k->shells.execution.shell.current == NULL && !cb_lanes_busy(&k->shells) && !k->guest.shutting_down;
}

static bool is_time(const struct cb_kernel *k)
{
	return is_due(k) && !cb_debug_busy(&k->shells);
}

/* The guest's turns are read only if that may do. */
static bool is_earned(const struct cb_kernel *k)
{
	const struct cb_twin_cost *c = &k->twins.cost;

	return c->worked_s >= cb_twin_cost_due(c) && cb_twin_cost_is_earned(c, cb_usage_turns(&k->guest.usage));
}

/* A checkpoint with a name holds the present state, but no failure goes back to it: one beside it costs little more. */
static bool is_named(const struct cb_kernel *k)
{
	const struct cb_twins *w = &k->twins;

	for (int i = 0; i < CB_TWINS_MAX; i++)
		if (cb_twin_is_ready(&w->twin[i]) && w->twin[i].name[0] != '\0' && w->twin[i].cell == w->past.last)
			return true;
	return false;
}

/* What the last cell did is safe from the next one. Messages of widgets, which come in crowds, get no twin each, but
 * one before the next cell: cb_twins_before. */
static bool is_promised(const struct cb_kernel *k)
{
	return k->twins.after_cell && cb_twin_cost_is_small(&k->twins.cost);
}

static struct cb_touched touched(const struct cb_kernel *k)
{
	struct cb_touched t = { .own_bytes = cb_usage_of(k->guest.python.pid) };

	t.faults = cb_usage_faults(&k->guest.usage, &t.sys_s);
	return t;
}

static void note_touched(struct cb_kernel *k)
{
	struct cb_twins *w = &k->twins;

	w->cost_reads = w->possible && cb_twin_cost_reads(&w->cost);
	if (w->cost_reads)
		w->cost.before = touched(k);
}

void cb_twins_begins(struct cb_kernel *k, struct cb_shell *s)
{
	bool main = s == &k->shells.execution.shell;

	cb_twins_touched(k, s->current->execute.code, s->cell.store ? s->cell.number : 0);
	cb_calls_begin(s->current->calls, k->twins.past.last);
	if (main) {
		k->twins.cell = k->twins.past.last;
		note_touched(k);
	}
	if (main || k->shells.execution.shell.current == NULL)
		cb_memory_cell_begins(k);
	else
		cb_memory_watch(k);
}

void cb_twins_cell_ended(struct cb_kernel *k, double seconds)
{
	struct cb_twins *w = &k->twins;

	if (!k->shells.execution.taken_over) { /* else it was the dead guest's */
		struct cb_touched now = { 0 };

		if (w->cost_reads)
			now = touched(k);
		cb_twin_cost_ran(&w->cost, seconds, w->cost_reads ? &now : NULL);
	}
	w->cost_reads = false;
}

void cb_twins_on_idle(void *context)
{
	struct cb_kernel *k = context;

	if (is_time(k) && k->shells.execution.shell.waiting.head == NULL)
		(void)cb_twins_make(k, NULL);
	cb_loop_mark(&k->loop); /* a cell may have waited for this */
}

void cb_twins_quiet(struct cb_kernel *k)
{
	cb_checkpoints_quiet(k);
	if (k->twins.stale && k->twins.again_ns > cb_now_ns())
		cb_loop_arm(&k->loop, k->twins.idle_timer, k->twins.again_ns);
	if (!is_time(k))
		return;
	if (k->policy->transactions_mode == CB_MODE_ALWAYS || is_named(k) || is_promised(k) || is_earned(k))
		(void)cb_twins_make(k, NULL);
	else
		cb_loop_arm(&k->loop, k->twins.idle_timer, cb_now_ns() + cb_twin_cost_idle(&k->twins.cost));
}

bool cb_twins_before(struct cb_kernel *k, const struct cb_request *r)
{
	struct cb_twins *w = &k->twins;
	int64_t now = cb_now_ns(), since = w->held_ns;

	w->held_ns = 0;
	if (!cb_request_is_execute(r) || !is_due(k) ||
	    (k->policy->transactions_mode != CB_MODE_ALWAYS && !cb_twin_cost_is_small(&k->twins.cost)))
		return false;
	if (!cb_debug_busy(&k->shells))
		return cb_twins_make(k, NULL);
	if (since != 0 && now - since >= DEBUGGER)
		return false;
	w->held_ns = since != 0 ? since : now;
	cb_loop_arm(&k->loop, w->idle_timer, w->held_ns + DEBUGGER);
	return true;
}

void cb_twins_room(struct cb_kernel *k)
{
	struct cb_twins *w = &k->twins;

	w->possible =
		k->policy->transactions_mode != CB_MODE_OFF && k->guest.level >= CB_LEVEL_NO_CGROUP && !k->shells.bash;
	w->failures = 0;
}

void cb_twins_guest_up(struct cb_kernel *k)
{
	struct cb_twins *w = &k->twins;

	cb_twins_room(k);
	if (w->possible)
		(void)cb_twins_make(k, NULL);
}
