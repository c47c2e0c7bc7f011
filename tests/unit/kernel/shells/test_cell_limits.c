/* The limits that take looking, alone: the test plays the clock, what the jail has used, and the shell that is told. */
#include "shells/cell_limits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#include "jupyter/loop.h"
#include "python/guest.h"
#include "shells/shell.h"

#define SECOND 1000000000LL
#define TIMER 3

static struct cb_shells all;
static struct cb_loop loop;
static struct cb_guest guest;
static struct cb_cell_limits *const m = &all.execution.cell_limits;
static struct cb_shell *const s = &all.execution.shell;
static struct cb_request cell;

static int64_t now, late; /* late: so many ns every timer is */
static cb_timer_fn on_timer;
static bool counts;	   /* there is a control group */
static double used, spent; /* by the jail; of that by copies, since the last look */
static bool copy_ends;
static uint64_t largest;
static unsigned readings;

/* What the shell was told. */
static unsigned over_cpu, over_clock, over_memory;
static double taken; /* off the clock that stands */
static bool none_left;

int64_t __wrap_cb_now_ns(void);

int64_t __wrap_cb_now_ns(void)
{
	return now;
}

int cb_loop_add_timer(struct cb_loop *l, cb_timer_fn fn, void *context)
{
	assert_true(l == &loop && context == &all);
	on_timer = fn;
	return TIMER;
}

void cb_loop_arm(struct cb_loop *l, int timer, int64_t deadline_ns)
{
	assert_int_equal(timer, TIMER);
	l->timer[timer].deadline = deadline_ns;
}

bool cb_usage_counts_cpu(const struct cb_usage_source *u)
{
	assert_ptr_equal(u, &guest.usage);
	return counts;
}

double cb_usage_jail_cpu(const struct cb_usage_source *u)
{
	(void)u;
	assert_true(counts);
	readings++;
	return used;
}

double cb_usage_advance(struct cb_usage_ledger *l, const struct cb_usage_source *u, double elapsed_s)
{
	static double last;
	double delta = used - last;

	(void)u;
	assert_true(!counts && l == &m->ledger && elapsed_s >= 0);
	readings++;
	last = used;
	return delta;
}

uint64_t cb_usage_largest(const struct cb_usage_source *u)
{
	(void)u;
	return largest;
}

void cb_shell_over_time(struct cb_shell *shell, bool cpu, bool wait_over)
{
	assert_true(shell == s && !wait_over);
	*(cpu ? &over_cpu : &over_clock) += 1;
	shell->cell.stop = CB_STOP_TIME_SOFT;
}

void cb_shell_over_memory(struct cb_shell *shell)
{
	over_memory++;
	shell->cell.stop = CB_STOP_MEMORY;
}

bool cb_shell_spend(struct cb_shell *shell, double seconds)
{
	assert_ptr_equal(shell, s);
	taken += seconds;
	return none_left;
}

static double spent_on_copies(struct cb_transactions *tx, bool *ret_ending)
{
	double was = spent;

	(void)tx;
	*ret_ending = copy_ends;
	spent = 0;
	return was;
}

static const struct cb_shells_keeper keeper = { .spent_on_copies = spent_on_copies };

static int set_up(void **state)
{
	(void)state;
	memset(&all, 0, sizeof(all));
	all.loop = &loop;
	all.guest = &guest;
	all.keeper = &keeper;
	s->all = &all;
	s->current = &cell;
	now = 1000 * SECOND;
	late = 0;
	counts = true;
	used = 50;
	spent = taken = 0;
	copy_ends = none_left = false;
	largest = 0;
	readings = over_cpu = over_clock = over_memory = 0;
	loop.timer[TIMER].deadline = 0;
	return cb_cell_limits_init(&all) == TIMER ? 0 : -1;
}

static double processors(void)
{
	return (double)sysconf(_SC_NPROCESSORS_ONLN);
}

static double armed_in(void)
{
	int64_t deadline = loop.timer[TIMER].deadline;

	return deadline != 0 ? (double)(deadline - now) / (double)SECOND : INFINITY;
}

/* It comes when it is due, and the jail has worked on `share` of one processor until then. */
static void tick(double share)
{
	double in = armed_in();

	assert_true(isfinite(in) && in > 0);
	now += (int64_t)(in * (double)SECOND) + late;
	used += in * share;
	loop.timer[TIMER].deadline = 0;
	on_timer(&all);
}

static bool near(double a, double b)
{
	return fabs(a - b) < 0.001;
}

static void test_no_limits(void **state)
{
	(void)state;
	cb_cell_limits_start(&all, 0, 0);
	assert_int_equal(readings, 0); /* it costs nothing */
	assert_true(isinf(armed_in()));
}

/* Never before all processors could have used the rest up, never later than that; and a few times in all. */
static void test_cpu(void **state)
{
	unsigned looks = 0;

	(void)state;
	cb_cell_limits_start(&all, 60, 0);
	assert_true(near(armed_in(), 60 / processors() < 5 ? 60 / processors() : 5));
	for (; over_cpu == 0; looks++) {
		double left = 60 - m->used;

		assert_true(armed_in() <= left / processors() + 0.021 && armed_in() >= 0.0199 && armed_in() < 5.001);
		tick(1);
		assert_true(over_cpu == 0 || used - 50 >= 60);
		assert_true(looks < 1000);
	}
	assert_true(used - 50 < 60 + 0.1);
	assert_true(looks < 12 * (unsigned)processors() + 200);
	assert_int_equal(over_cpu, 1);
	assert_true(isinf(armed_in())); /* its time is over: no more of it */
}

/* What was used before it began is no cell's, and a walk that finds more than time allows is not believed. */
static void test_no_more_than_time_allows(void **state)
{
	(void)state;
	cb_cell_limits_start(&all, 60, 0);
	assert_true(near(m->used, 0));
	tick(0);
	used += 1000;
	now += SECOND;
	on_timer(&all);
	assert_true(m->used <= processors() + 0.051 && m->used >= processors());
	assert_int_equal(over_cpu, 0);
}

/* What is counted is not taken back; what copies have used is nobody's. */
static void test_copies(void **state)
{
	(void)state;
	cb_cell_limits_start(&all, 100, 0);
	now += SECOND;
	used += 0.5;
	spent = 0.25;
	on_timer(&all);
	assert_true(near(m->used, 0.25));
	spent = 7; /* more than is counted yet */
	now += SECOND;
	on_timer(&all);
	assert_true(near(m->used, 0));
	now += SECOND;
	used += 0.5;
	copy_ends = true; /* its last moments count as the cell's: looked at soon */
	on_timer(&all);
	assert_true(near(m->used, 0.5));
	assert_true(near(armed_in(), 0.02));
}

/* Without a control group what comes and goes between two looks is unseen: often, and at no time known before. */
static void test_sampled(void **state)
{
	double least = 1, most = 0;

	(void)state;
	counts = false;
	late = 777777;
	cb_cell_limits_start(&all, 1e6, 0);
	assert_true(near(m->used, 0));
	for (int i = 0; i < 200; i++) {
		double in = armed_in();

		assert_true(in >= 0.0499 && in <= 0.1501);
		least = in < least ? in : least;
		most = in > most ? in : most;
		tick(0.5);
	}
	assert_true(most - least > 0.01);
	assert_true(near(m->used, used - 50));
}

/* A wait stops the cell's clock only while the jail does nothing. */
static void test_waits(void **state)
{
	(void)state;
	cb_cell_limits_start(&all, 0, 0);
	cb_cell_limits_wait(&all, true);
	assert_true(near(armed_in(), 1));
	tick(0.04);
	assert_true(near(taken, 0));
	tick(0.5);
	assert_true(near(taken, 1));
	now += SECOND / 4;
	used += 0.2;
	cb_cell_limits_wait(&all, false); /* also one that is shorter than a period */
	assert_true(near(taken, 1.25));
	assert_true(isinf(armed_in()));
	cb_cell_limits_wait(&all, true);
	now += SECOND / 4;
	used += 0.01; /* a thread that looks now and then for work */
	cb_cell_limits_wait(&all, false);
	assert_true(near(taken, 1.25));
	cb_cell_limits_wait(&all, true);
	none_left = true;
	tick(1);
	assert_int_equal(over_clock, 1);
	assert_true(isinf(armed_in()));
}

/* The wait is no way around the limit of CPU time. */
static void test_waits_and_cpu(void **state)
{
	(void)state;
	cb_cell_limits_start(&all, 3, 0);
	now += SECOND;
	used += 1;
	cb_cell_limits_wait(&all, true);
	assert_true(near(m->used, 1));
	while (over_cpu == 0 && over_clock == 0)
		tick(1);
	assert_int_equal(over_cpu, 1);
}

/* Memory is watched until the cell has ended, also in its grace; once it is killed nothing is. */
static void test_memory(void **state)
{
	(void)state;
	cb_cell_limits_start(&all, 0.5, 100);
	for (int i = 0; i < 20; i++) {
		assert_true(armed_in() < 0.1001);
		largest = 100;
		tick(1);
	}
	assert_int_equal(over_cpu, 1);
	assert_int_equal(over_memory, 0);
	double at = m->used;

	tick(1);
	assert_true(near(m->used, at)); /* no time of its grace */
	largest = 101;
	tick(1);
	assert_int_equal(over_memory, 1);
	assert_true(isinf(armed_in()));
	on_timer(&all);
	assert_int_equal(over_memory, 1);
}

static void test_end(void **state)
{
	(void)state;
	cb_cell_limits_start(&all, 1, 100);
	cb_cell_limits_stop(&all);
	assert_true(isinf(armed_in()));
	s->current = NULL;
	used += 5;
	largest = 200;
	now += 5 * SECOND;
	on_timer(&all); /* it was on its way */
	assert_int_equal(over_cpu + over_memory, 0);
	s->current = &cell; /* the next one begins at nothing, and does not wait */
	m->waits = true;
	cb_cell_limits_start(&all, 1, 0);
	assert_true(near(m->used, 0));
	tick(0);
	assert_true(near(m->used, 0));
	tick(1);
	assert_true(near(taken, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup(test_no_limits, set_up),
					    cmocka_unit_test_setup(test_cpu, set_up),
					    cmocka_unit_test_setup(test_no_more_than_time_allows, set_up),
					    cmocka_unit_test_setup(test_copies, set_up),
					    cmocka_unit_test_setup(test_sampled, set_up),
					    cmocka_unit_test_setup(test_waits, set_up),
					    cmocka_unit_test_setup(test_waits_and_cpu, set_up),
					    cmocka_unit_test_setup(test_memory, set_up),
					    cmocka_unit_test_setup(test_end, set_up) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
