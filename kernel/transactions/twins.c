/* Twins: which there are, and what others say of them.
 *
 * Trust domain: supervisor; twins and what they say are hostile like any guest. Invariants: one twin at a time is being
 * made; one can take over only if pid 1 has it registered and it has said so on a control socket of its own; a state is
 * said to be restored only when RESUMED came from it. How one is made is in twins_make.c, when in twins_when.c, and the
 * take-over in twins_restore.c.
 */
#include "twins.h"

#include <cellblock/clock.h>
#include <cellblock/log.h>
#include <errno.h>

#include "branches.h"
#include "checkpoints.h"
#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "memory.h"
#include "python/broker_queue.h"
#include "python/guest.h"
#include "python/usage.h"
#include "shells/failure.h"

#define COPIED_BYTES_S 256e6	  /* that the slowest machine copies in a second, about */
#define ENDING_MOST 30000000000LL /* ns */
#define CALLS_MAX (CB_METADATA_MAX / 8)

bool cb_twin_is_ready(const struct cb_twin *t)
{
	return t->number != 0 && t->registered && t->born;
}

struct cb_twin *cb_twins_find(struct cb_twins *w, uint32_t number)
{
	for (struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		if (t->number == number)
			return t;
	return NULL;
}

static struct cb_twin *pick(struct cb_twins *w, bool named, bool oldest)
{
	struct cb_twin *best = NULL;

	for (struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		if (cb_twin_is_ready(t) && t != w->waking && (t->name[0] != '\0') == named && t->use == CB_TWIN_KEPT &&
		    (!oldest || t != w->coming) && (best == NULL || (t->number > best->number) != oldest))
			best = t;
	return best;
}

struct cb_twin *cb_twins_pick(struct cb_twins *w, bool oldest)
{
	return pick(w, false, oldest);
}

struct cb_twin *cb_twins_next(struct cb_twins *w)
{
	struct cb_twin *unnamed = pick(w, false, false);

	return unnamed != NULL ? unnamed : pick(w, true, false);
}

struct cb_twin *cb_twins_other_named(struct cb_twins *w, const struct cb_twin *than)
{
	for (struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		if (cb_twin_is_ready(t) && t != than && t != w->waking && t != w->coming &&
		    strcmp(t->name, than->name) == 0)
			return t;
	return NULL;
}

struct cb_twin *cb_twins_named(struct cb_transactions *tx, const char *name)
{
	struct cb_twin wanted = { 0 };

	snprintf(wanted.name, sizeof(wanted.name), "%s", name);
	return cb_twins_other_named(&tx->twins, &wanted);
}

struct cb_twin *cb_twins_before_cell(struct cb_transactions *tx, uint64_t cell)
{
	struct cb_twin *first = tx->twins.twin, *best = NULL;

	for (struct cb_twin *t = first; t < first + CB_TWINS_MAX; t++)
		if (cb_twin_is_ready(t) && t->name[0] == '\0' && t->cell < cell &&
		    (best == NULL || t->number > best->number))
			best = t;
	return best;
}

size_t cb_twins_count(const struct cb_twins *w)
{
	size_t n = 0;

	for (const struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		n += cb_twin_is_ready(t) && t->name[0] == '\0';
	return n;
}

/* A copy that was bred goes back to the files of the one that it is of. */
static bool is_last_with_its_files(const struct cb_twins *w, const struct cb_twin *t)
{
	for (const struct cb_twin *other = w->twin; other < w->twin + CB_TWINS_MAX; other++)
		if (other != t && other->number != 0 && other->files != CB_FILES_STAY && other->snapshot == t->snapshot)
			return false;
	return t->files != CB_FILES_STAY;
}

void cb_twins_forget(struct cb_transactions *tx, struct cb_twin *t)
{
	struct cb_twins *w = &tx->twins;

	if (t == w->coming) {
		cb_loop_remove(tx->loop, &w->twin_control_slot);
		w->coming = NULL;
	}
	if (t == w->waking)
		w->waking = NULL;
	if (is_last_with_its_files(w, t))
		cb_file_snapshots_ask(tx, CB_BROKER_FORGET, t->snapshot);
	cb_guest_ends_close(&t->ends);
	cb_comms_release(&t->comms);
	*t = (struct cb_twin){ .ends = CB_GUEST_ENDS_NONE };
}

void cb_twins_drop(struct cb_transactions *tx, struct cb_twin *t)
{
	(void)cb_pid1_tell(&tx->guest->pid1, CB_INIT_DROP, (int)t->number, 0);
	if (t->pid > 0)
		tx->twins.ending[tx->twins.ending_next++ % CB_TWINS_ENDING_MAX] =
			(struct cb_twin_ending){ .pid = t->pid, .since_ns = cb_now_ns(), .cpu_s = t->cpu_s };
	cb_twins_forget(tx, t);
}

size_t cb_twins_unnamed(struct cb_transactions *tx, int64_t before_ms, pid_t ret_pid[CB_TWINS_MAX])
{
	const struct cb_twins *w = &tx->twins;
	size_t n = 0;

	for (const struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		if (cb_twin_is_ready(t) && t != w->waking && t != w->coming && t->name[0] == '\0' &&
		    t->use == CB_TWIN_KEPT && t->asked_ms < before_ms)
			ret_pid[n++] = t->pid;
	return n;
}

/* Its process is there; a number may be another's by now. */
static bool ends_still(const struct cb_twin_ending *e, struct cb_usage_process *ret)
{
	return e->pid != 0 && cb_now_ns() - e->since_ns <= ENDING_MOST && cb_usage_process(e->pid, ret);
}

/* What the ends of twins have taken since the last call. Only one that exits counts, which runs no code any more. */
static double spent_ending(struct cb_twins *w, bool *ret_any)
{
	double sum = 0;

	*ret_any = false;
	for (struct cb_twin_ending *e = w->ending; e < w->ending + CB_TWINS_ENDING_MAX; e++) {
		struct cb_usage_process p = { 0 };

		if (!ends_still(e, &p)) {
			e->pid = 0;
			continue;
		}
		if (p.exiting && p.own > e->cpu_s)
			sum += p.own - e->cpu_s;
		e->cpu_s = p.own;
		*ret_any = true;
	}
	return sum;
}

bool cb_twins_end_soon(struct cb_transactions *tx)
{
	for (int i = 0; i < CB_TWINS_ENDING_MAX; i++) {
		struct cb_usage_process p;

		if (ends_still(&tx->twins.ending[i], &p))
			return true;
	}
	return false;
}

double cb_twins_spent(struct cb_transactions *tx, bool *ret_ending)
{
	struct cb_twins *w = &tx->twins;
	double sum = spent_ending(w, ret_ending);

	for (struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++) {
		double spent, most = (double)t->room / COPIED_BYTES_S - t->copied_s;
		struct cb_usage_process p = { 0 };

		if (t->number == 0 || t->pid <= 0 || most <= 0 || !cb_usage_process(t->pid, &p))
			continue;
		spent = p.own - t->cpu_s;
		t->cpu_s = p.own;
		spent = spent < most ? spent : most;
		t->copied_s += spent > 0 ? spent : 0;
		sum += spent > 0 ? spent : 0;
	}
	return sum;
}

bool cb_twins_any(struct cb_transactions *tx)
{
	return cb_twins_next(&tx->twins) != NULL;
}

struct cb_twin *cb_twins_undone(struct cb_twins *w, bool oldest)
{
	struct cb_twin *best = NULL;

	for (struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		if (cb_twins_confirming(w) && cb_twin_is_ready(t) && t->number <= w->before_copy &&
		    t->name[0] == '\0' && t->cell > w->woken.cell &&
		    (best == NULL || (t->number > best->number) != oldest))
			best = t;
	return best;
}

bool cb_twins_confirming(const struct cb_twins *w)
{
	return w->takeover >= CB_TAKEOVER_COPYING;
}

struct cb_twin *cb_twins_held(const struct cb_twins *w)
{
	return w->takeover == CB_TAKEOVER_HELD ? w->waking : NULL;
}

bool cb_twins_hold(const struct cb_transactions *tx)
{
	return tx->guest->state == CB_GUEST_RESTORING && cb_twins_held(&tx->twins) != NULL;
}

size_t cb_twins_give_up(struct cb_transactions *tx)
{
	struct cb_twin *t = cb_twins_pick(&tx->twins, true);

	if (t != NULL)
		cb_twins_drop(tx, t);
	if (cb_twins_count(&tx->twins) == 0)
		cb_twins_want_again(tx);
	return cb_twins_count(&tx->twins);
}

static void older(uint64_t *cell, uint64_t *undone, uint64_t its_cell, const struct cb_undo_log_count *live)
{
	*cell = its_cell < *cell ? its_cell : *cell;
	*undone = live->undone < *undone ? live->undone : *undone;
}

bool cb_twins_owe(const struct cb_transactions *tx)
{
	return tx->shells->execution.lost_owed;
}

void cb_twins_told(struct cb_transactions *tx)
{
	if (!cb_twins_owe(tx))
		tx->twins.undo_log.untold = tx->twins.undo_log.live.undone + 1;
}

void cb_twins_undo_calls(struct cb_transactions *tx, int64_t cell)
{
	struct cb_twins *w = &tx->twins;
	CB_AUTO_BUF calls = CB_BUF_INIT(CALLS_MAX);

	cb_tools_undone(&tx->jupyter->tools, cell, &calls, w->calls_text, sizeof(w->calls_text));
	if (!cb_twins_owe(tx) || w->calls.len + calls.len > CALLS_MAX) /* no room for both */
		cb_buf_clear(&w->calls);
	if (calls.len == 0)
		return;
	if (w->calls.len > 0) { /* one array of two */
		w->calls.data[w->calls.len - 1] = ',';
		(void)cb_buf_append(&w->calls, calls.data + 1, calls.len - 1);
	} else {
		(void)cb_buf_append(&w->calls, calls.data, calls.len);
	}
}

void cb_twins_forget_past(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;
	/* what is undone is to be told yet */
	bool confirming = cb_twins_confirming(w);
	uint64_t oldest = confirming ? w->woken.cell : w->undo_log.last;
	uint64_t undone = confirming ? w->woken.live.undone : w->undo_log.live.undone;

	for (const struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		if (t->number != 0)
			older(&oldest, &undone, t->cell, &t->live);
	for (int i = 0; i < CB_BRANCHES_MAX; i++) /* one may be adopted */
		if (tx->branches.branch[i] != NULL)
			older(&oldest, &undone, tx->branches.branch[i]->cell, &tx->branches.branch[i]->live);
	cb_twins_told(tx);
	cb_undo_log_forget(&w->undo_log, oldest, undone);
}

/* ---- what others say ---- */

void cb_twins_init_said(struct cb_transactions *tx, const struct cb_init_msg *m)
{
	struct cb_twins *w = &tx->twins;
	struct cb_twin *t = m->arg > 0 ? cb_twins_find(w, (uint32_t)m->arg) : NULL;

	if (t == NULL) {
		if (m->op == CB_INIT_GONE && m->arg > 0)
			cb_branches_gone(tx, (uint32_t)m->arg, m->status);
		return;
	}
	if (m->op == CB_INIT_REGISTERED) {
		t->registered = true;
		cb_twins_check_ready(tx);
	} else if (m->op == CB_INIT_RESTORED && t == w->waking) {
		cb_twins_restored(tx);
	} else if (m->op == CB_INIT_STUCK && t == w->waking) {
		cb_log(CB_LOG_WARNING, "pid 1 could not kill all that ran in the jail; %d of it hide", m->status);
		cb_guest_kill(tx->guest, "not all that ran beside it could be ended");
	} else if (m->op == CB_INIT_GONE && t == w->waking) {
		cb_twins_failed(tx, "it had ended");
	} else if (m->op == CB_INIT_GONE && t == w->coming) {
		cb_twins_lost_at_birth(tx, "it ended at its birth");
	} else if (m->op == CB_INIT_GONE) {
		bool youngest = t == cb_twins_pick(w, false);

		cb_log(CB_LOG_INFO, "twin %u has ended", t->number);
		if (!cb_twins_confirming(w) || t->number <= w->before_copy) /* else cb_twins_confirm tells of it */
			cb_checkpoint_lost(tx, t->name, "its copy has ended");
		cb_twins_forget(tx, t);
		if (youngest)
			cb_twins_want_again(tx);
	}
}

/* All but its copy of the files is there, and that is being made, by a clock of its own (file_snapshots.c). What
 * clients ask of the broker before it has none. */
static bool files_come(const struct cb_transactions *tx)
{
	const struct cb_twin *t = tx->twins.coming;

	return t != NULL && cb_twin_is_ready(t) && t->files == CB_FILES_COMING &&
	       cb_broker_queue_begun(tx->queue, CB_BROKER_SNAPSHOT);
}

/* One is being made. */
static void coming_late(struct cb_transactions *tx)
{
	if (tx->twins.asked && cb_twins_copied_late(tx))
		cb_twins_failed(tx, "it could not be copied: Python did not answer");
	else if (tx->twins.asked)
		cb_twins_let_go(tx);
	else if (files_come(tx))
		cb_twins_check_ready(tx); /* waits on */
	else
		cb_twins_not_made(tx, "the twin did not come");
}

static void on_deadline(void *context)
{
	struct cb_transactions *tx = context;

	switch (tx->twins.takeover) {
	case CB_TAKEOVER_SETTLING:
		cb_twins_restored(tx);
		break;
	case CB_TAKEOVER_ENDING:
	case CB_TAKEOVER_WAKING:
		cb_twins_waking_late(tx);
		break;
	case CB_TAKEOVER_LOOKING:
		cb_twins_looked_at(tx);
		break;
	case CB_TAKEOVER_NONE:
	case CB_TAKEOVER_COPYING:
		coming_late(tx);
		break;
	case CB_TAKEOVER_FILES: /* that has a clock of its own */
	case CB_TAKEOVER_HELD:	/* for any time */
		break;
	}
}

/* ---- life ---- */

void cb_twins_jail_gone(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	for (struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		if (t->number != 0)
			cb_twins_forget(tx, t);
	cb_twins_go(w, CB_TAKEOVER_NONE);
	w->asked = w->possible = w->rested = false;
	w->confirmed_ns = 0;
	cb_checkpoints_gone(tx);
	cb_twins_undo_calls(tx, -1);
	cb_loop_arm(tx->loop, w->idle_timer, 0);
	cb_loop_arm(tx->loop, w->deadline_timer, 0);
	cb_twins_forget_past(tx);
}

int cb_twins_init(struct cb_transactions *tx)
{
	struct cb_twins *w = &tx->twins;

	for (struct cb_twin *t = w->twin; t < w->twin + CB_TWINS_MAX; t++)
		t->ends = CB_GUEST_ENDS_NONE;
	w->twin_control_slot = -1;
	w->undone = CB_BUF_INIT(CB_METADATA_MAX / 2);
	w->untold = CB_BUF_INIT(CB_METADATA_MAX / 2);
	w->calls = CB_BUF_INIT(CALLS_MAX);
	w->idle_timer = cb_loop_add_timer(tx->loop, cb_twins_on_idle, tx);
	w->deadline_timer = cb_loop_add_timer(tx->loop, on_deadline, tx);
	w->rest_timer = cb_loop_add_timer(tx->loop, cb_twins_on_rest, tx);
	return w->idle_timer < 0 || w->deadline_timer < 0 || w->rest_timer < 0 || cb_memory_init(tx) < 0 ? -ENOSPC : 0;
}

void cb_twins_release(struct cb_transactions *tx)
{
	cb_twins_jail_gone(tx);
	cb_undo_log_release(&tx->twins.undo_log);
	cb_undo_log_release(&tx->twins.adopted_ran);
	cb_called_release(&tx->twins.adopted_called);
	cb_buf_release(&tx->twins.undone);
	cb_buf_release(&tx->twins.untold);
	cb_buf_release(&tx->twins.calls);
}
