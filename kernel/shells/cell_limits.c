/* The limits of a running cell that take looking: CPU time and memory.
 *
 * Role: timeout.cpu, a request's own limit of memory (which Python enforces itself, by RLIMIT_DATA; here it is watched
 * from outside, since code may lift that one up to the policy's), and that a wait for input stops the cell's clock only
 * while the jail does nothing. Trust domain: supervisor. Readings come from /proc (usage.c), never from the guest.
 * Invariants: a reading is taken no sooner than the rest of the limit could be used up by all processors, so that a
 * cell is looked at a few times, not all the time; what has been counted is never taken back; memory is watched until
 * the cell has ended, also while one that is over its time has its grace.
 */
#include "cell_limits.h"

#include <unistd.h>

#include "execution.h"
#include "jupyter/loop.h"
#include "python/guest.h"
#include "shell.h"

#define SECOND 1000000000LL
#define SOONEST (SECOND / 50)
#define LATEST (5 * SECOND)
#define SAMPLE (SECOND / 10) /* where processes could come and go between two looks, unseen */
#define SLACK 0.05	     /* s: the clock of /proc ticks in hundredths */
#define WAIT_PERIOD SECOND
#define MEMORY_PERIOD (SECOND / 10)

static double processors(void)
{
	static long n;

	if (n == 0)
		n = sysconf(_SC_NPROCESSORS_ONLN);
	return n > 0 ? (double)n : 1;
}

static void arm(struct cb_shells *sh)
{
	struct cb_cell_limits *m = &sh->execution.cell_limits;
	int64_t in = LATEST;

	if (sh->execution.shell.cell.stop != CB_STOP_NONE) { /* its time is over */
		cb_loop_arm(sh->loop, m->timer, m->memory > 0 ? cb_now_ns() + MEMORY_PERIOD : 0);
		return;
	}
	if (m->limit > 0) {
		double left = (m->limit - m->used) / processors() * (double)SECOND;

		in = left < (double)SOONEST ? SOONEST : left < (double)LATEST ? (int64_t)left : LATEST;
	}
	if (m->limit > 0 && m->sampled && in > SAMPLE / 2) /* when it is looked at is not to be known before */
		in = SAMPLE / 2 + cb_now_ns() / 64 % SAMPLE;
	if (m->limit > 0 && m->ending)
		in = SOONEST;
	if (m->waits && in > WAIT_PERIOD)
		in = WAIT_PERIOD;
	if (m->memory > 0 && in > MEMORY_PERIOD)
		in = MEMORY_PERIOD;
	if (m->limit <= 0 && !m->waits && m->memory == 0)
		cb_loop_arm(sh->loop, m->timer, 0);
	else
		cb_loop_arm(sh->loop, m->timer, cb_now_ns() + in);
}

/* What was used since the last reading. */
static double advance(struct cb_shells *sh, double *ret_elapsed)
{
	struct cb_cell_limits *m = &sh->execution.cell_limits;
	int64_t now_ns = cb_now_ns();
	double now, delta;

	*ret_elapsed = (double)(now_ns - m->last_ns) / (double)SECOND;
	m->last_ns = now_ns;
	if (m->sampled) {
		delta = cb_usage_advance(&m->ledger, &sh->guest->usage, *ret_elapsed);
	} else {
		now = cb_usage_jail_cpu(&sh->guest->usage);
		delta = now - m->last;
		m->last = now;
	}
	/* a walk may miss a process that is just adopted and find it the next time: no more than time itself allows */
	if (delta > *ret_elapsed * processors() + SLACK)
		delta = *ret_elapsed * processors() + SLACK;
	delta -= sh->keeper->spent_on_copies(sh->kept,
					     &m->ending); /* after a cell, but for the next one: nobody's time */
	m->used = m->used + delta > 0 ? m->used + delta : 0;
	return delta > 0 ? delta : 0;
}

static void on_timer(void *context)
{
	struct cb_shells *sh = context;
	struct cb_cell_limits *m = &sh->execution.cell_limits;
	struct cb_shell *s = &sh->execution.shell;
	double elapsed = 0, delta = 0;

	if (s->current == NULL || (s->cell.stop != CB_STOP_NONE && s->cell.stop != CB_STOP_TIME_SOFT))
		return;
	if (s->cell.stop == CB_STOP_NONE)
		delta = advance(sh, &elapsed);
	if (s->cell.stop == CB_STOP_NONE && m->limit > 0 && m->used >= m->limit) {
		cb_shell_over_time(s, true, false);
		arm(sh);
		return;
	}
	if (m->memory > 0 && cb_usage_largest(&sh->guest->usage) > m->memory) {
		cb_shell_over_memory(s);
		return;
	}
	if (s->cell.stop == CB_STOP_NONE && m->waits && delta > elapsed * CB_WAIT_SHARE && cb_shell_spend(s, elapsed))
		cb_shell_over_time(s, false, false);
	arm(sh);
}

void cb_cell_limits_start(struct cb_shells *sh, double cpu, uint64_t memory)
{
	struct cb_cell_limits *m = &sh->execution.cell_limits;
	double elapsed;

	m->limit = cpu;
	m->memory = memory;
	m->waits = false;
	m->used = m->last = 0;
	m->last_ns = cb_now_ns();
	m->sampled = false;
	if (cpu <= 0 && memory == 0)
		return;
	m->sampled = !cb_usage_counts_cpu(&sh->guest->usage);
	m->ledger.count = 0;
	(void)advance(sh, &elapsed);
	m->used = m->ledger.unseen = 0;
	arm(sh);
}

void cb_cell_limits_wait(struct cb_shells *sh, bool waits)
{
	struct cb_cell_limits *m = &sh->execution.cell_limits;
	double elapsed, delta = advance(sh, &elapsed);

	if (m->waits && delta > elapsed * CB_WAIT_SHARE) /* also one that is shorter than a period */
		(void)cb_shell_spend(&sh->execution.shell, elapsed);
	if (waits && m->limit <= 0)
		m->used = 0;
	m->waits = waits;
	arm(sh);
}

void cb_cell_limits_stop(struct cb_shells *sh)
{
	cb_loop_arm(sh->loop, sh->execution.cell_limits.timer, 0);
}

int cb_cell_limits_init(struct cb_shells *sh)
{
	sh->execution.cell_limits.timer = cb_loop_add_timer(sh->loop, on_timer, sh);
	return sh->execution.cell_limits.timer;
}
