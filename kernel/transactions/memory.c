/* Memory of the jail: what is given up when it is short, and who ends when it is over.
 *
 * Trust domain: supervisor. Twins hold what cells have since changed a second time, and that counts in limits.memory.
 * From CB_MEMORY_SHORT on, if twins without a name have much memory of their own and the jail fits without it, the
 * oldest is given up; then it is looked again. What a cell takes anew is no twin's, so a bomb costs none: it goes on to
 * the limit. There the kernel's OOM killer, or without control group we, end a branch that has more than the guest, or
 * else the guest, and the youngest twin takes over. Own memory is what is anonymous in the jail less what each other
 * process has, which is too little where those share it among themselves, as a cell's forks do; so it is at least what
 * a twin has more than each of them. When the whole host, or the container that we are in, runs short, twins are given
 * up likewise.
 *
 * With a control group we look, while cells run; without, the broker does and tells.
 */
#include "memory.h"

#include <cellblock/host_memory.h>
#include <cellblock/log.h>
#include <inttypes.h>
#include <stdio.h>

#include "branches.h"
#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "policy/policy.h"
#include "python/guest.h"
#include "records/audit_events.h"
#include "shells/lanes.h"
#include "shells/shell.h"
#include "twins.h"

#define MS 1000000LL
#define SOONEST (10 * MS)
#define LATEST (250 * MS)
#define BYTES_PER_NS 4		 /* no jail takes memory faster than all processors can clear it; about */
#define LITTLE (8u << 20)	 /* bytes of a Python that has nothing large */
#define OWN(limit) ((limit) / 8) /* bytes that are worth a state: for a cell that would need more all is lost */

/* ---- giving up ---- */

static void say(struct cb_transactions *tx, uint64_t used, bool none_left)
{
	struct cb_memory_watch *m = &tx->memory;
	const struct cb_request *r = tx->shells->execution.shell.current;
	const char *whose = used > CB_MEMORY_SHORT(tx->policy->limit_memory) ? "limits.memory" : "the whole host's";
	const char *what = !none_left ? "an older state is given up for this cell; %rollback does not reach it any more"
			   : cb_twins_any(tx)
				   ? "the state before this cell is given up for it; if the cell fails for good, the "
				     "latest checkpoint with a name comes back"
				   : "the state before this cell is given up for it; if the cell fails for good, all "
				     "variables are lost";
	int n = snprintf(m->note, sizeof(m->note), "[cellblock: memory is short (%s): %s]\n", whose, what);

	if (r == NULL || !cb_request_is_execute(r))
		r = cb_lanes_running(tx->shells);
	if (r == NULL)
		return; /* the next cell says it */
	cb_iopub_text(tx->jupyter, r->header, CB_WIRE_STDERR, m->note, (size_t)n);
	m->note[0] = '\0';
}

void cb_memory_freed(struct cb_transactions *tx)
{
	tx->memory.freed_ms = cb_now_ms();
}

/* What would be free without those twins; too much only where processes have each another part of what a twin has. */
static uint64_t own_of(const struct cb_transactions *tx, const pid_t *twin, size_t n, uint64_t anonymous)
{
	uint64_t largest, others = cb_usage_anonymous(&tx->guest->usage, twin, n, &largest);
	uint64_t own = anonymous > others ? anonymous - others : 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t has = cb_usage_anonymous_of(twin[i]);

		own = has > largest && has - largest > own ? has - largest : own;
	}
	return own;
}

/* True: it is expected to help. A twin that is younger than the look is not to blame for what that saw. */
static bool give_up(struct cb_transactions *tx, uint64_t used, uint64_t anonymous, int64_t looked_ms)
{
	struct cb_memory_watch *m = &tx->memory;
	uint64_t limit = tx->policy->limit_memory, own;
	struct cb_twin *undone = cb_twins_undone(&tx->twins, true);
	pid_t twin[CB_TWINS_MAX];
	size_t n = cb_twins_unnamed(tx, looked_ms, twin);
	bool none_left;

	if (n == 0)
		return false;
	own = own_of(tx, twin, n, anonymous);
	if (own < OWN(limit) || used - own >= limit)
		return false;
	/* it would go anyway, and nobody is told; but the youngest takes over if the woken one does not work */
	if (undone != cb_twins_undone(&tx->twins, false) && undone->asked_ms < looked_ms) {
		cb_twins_drop(tx, undone);
		cb_memory_freed(tx);
		return true;
	}
	n = cb_twins_give_up(tx);
	none_left = n == 0 && !cb_twins_hold(tx); /* else what is held may have a name, and is not given up */
	cb_memory_freed(tx);
	cb_log(CB_LOG_INFO, "memory is short: %" PRIu64 " bytes, %" PRIu64 " of them twins'; one is given up, %zu stay",
	       used, own, n);
	m->given_up++;
	m->none_left = m->none_left || none_left;
	say(tx, used, none_left);
	return true;
}

/* ---- over the limit ---- */

/* The branch that has most, with what descends from it, ends, if that is more than `than`. False if none has; true also
 * while one that was chosen before is ending. */
static bool branch_gives_way(struct cb_transactions *tx, uint64_t than)
{
	struct cb_branch *largest = NULL;

	for (size_t i = 0; i < CB_BRANCHES_MAX; i++) {
		struct cb_branch *b = tx->branches.branch[i];
		uint64_t bytes = b != NULL ? cb_usage_tree(b->python.pid) : 0;

		if (b != NULL && b->state == CB_BRANCH_ENDING && b->shell.cell.stop == CB_STOP_MEMORY)
			return true; /* that one first */
		if (b == NULL || b->state == CB_BRANCH_ENDING || bytes <= than)
			continue;
		largest = b;
		than = bytes;
	}
	if (largest == NULL)
		return false;
	cb_shell_stop_reason(&largest->shell, CB_STOP_MEMORY);
	cb_branch_end(tx, largest, "the jail used more memory than limits.memory allows, and the branch most of it");
	return true;
}

/* Else twins are about to go, or all that uses memory is. */
static bool goes_on(const struct cb_transactions *tx)
{
	return tx->guest->state == CB_GUEST_UP || cb_twins_hold(tx);
}

static void over(struct cb_transactions *tx, uint64_t used)
{
	struct cb_guest *g = tx->guest;

	if (cb_twins_hold(tx) && branch_gives_way(tx, 0))
		return;
	if (g->state != CB_GUEST_STARTING && g->state != CB_GUEST_UP)
		return; /* it ends already, or a twin takes over; if that does not help, the broker ends the jail */
	if (branch_gives_way(tx, cb_usage_tree(g->python.pid)))
		return;
	tx->guest->over_memory = used;
	cb_audit_limit(tx->records, "limits.memory");
	cb_shell_stop_reason(&tx->shells->execution.shell, CB_STOP_MEMORY);
	cb_guest_stop(tx->guest, "limit of memory");
}

void cb_memory_told(struct cb_transactions *tx, const struct cb_broker_reply *notice)
{
	if (notice->looked_ms <= tx->memory.freed_ms || cb_twins_end_soon(tx))
		return; /* the broker looks again, and ends a jail that stays over the limit */
	if (goes_on(tx) && give_up(tx, notice->watchdog, notice->anonymous, notice->looked_ms))
		return;
	if (notice->watchdog > tx->policy->limit_memory)
		over(tx, notice->watchdog);
}

/* ---- looking ---- */

static void arm(struct cb_transactions *tx)
{
	struct cb_memory_watch *m = &tx->memory;
	uint64_t enough = CB_MEMORY_SHORT(tx->policy->limit_memory);
	int64_t in = m->used < enough ? (int64_t)((enough - m->used) / BYTES_PER_NS) : 0;

	in = in < SOONEST ? SOONEST : in > LATEST ? LATEST : in;
	m->armed = true;
	cb_loop_arm(tx->loop, m->timer, cb_now_ns() + in);
}

static void on_timer(void *context)
{
	struct cb_transactions *tx = context;
	struct cb_memory_watch *m = &tx->memory;
	uint64_t enough = CB_MEMORY_SHORT(tx->policy->limit_memory), anonymous = 0;

	m->armed = false;
	if (tx->shells->execution.shell.current == NULL && !cb_lanes_busy(tx->shells) && !cb_branches_busy(tx))
		return;
	if (tx->guest->state == CB_GUEST_RESTORING) /* branches go on meanwhile */
		arm(tx);
	if (!goes_on(tx))
		return;
	if (cb_host_memory_short())
		enough = 0;
	if (!cb_usage_memory(&tx->guest->usage, enough, &m->used, &anonymous))
		return; /* no control group */
	if (m->used > enough && !cb_twins_end_soon(tx)) /* what the last one had may be enough */
		(void)give_up(tx, m->used, anonymous, cb_now_ms());
	arm(tx);
}

void cb_memory_watch(struct cb_transactions *tx)
{
	if (!tx->memory.armed && (tx->twins.possible || cb_twins_any(tx)))
		arm(tx);
}

void cb_memory_cell_begins(struct cb_transactions *tx)
{
	if (tx->memory.note[0] == '\0') { /* else it counts as this cell's, which says so */
		tx->memory.given_up = 0;
		tx->memory.none_left = false;
	}
	cb_memory_watch(tx);
}

uint64_t cb_memory_room(struct cb_transactions *tx)
{
	uint64_t enough = CB_MEMORY_SHORT(tx->policy->limit_memory), used = 0, left, anonymous;

	if (cb_usage_of(tx->guest->python.pid) < LITTLE || cb_host_memory_short())
		return 0;
	if (!cb_usage_memory(&tx->guest->usage, enough / 4, &used, &anonymous)) /* what some share counts for each */
		used = cb_usage_anonymous(&tx->guest->usage, NULL, 0, NULL);
	if (used >= enough)
		return 0;
	left = cb_host_memory_left() / 4; /* others have memory as well, and nobody looks between cells */
	return (enough - used) / 2 < left ? (enough - used) / 2 : left;
}

int cb_memory_init(struct cb_transactions *tx)
{
	tx->memory.timer = cb_loop_add_timer(tx->loop, on_timer, tx);
	return tx->memory.timer;
}
