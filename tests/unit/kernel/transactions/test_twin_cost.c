/* What a twin costs and when it is earned, from readings as the kernel gives them. */
#include "transactions/twin_cost.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define PAGE 4096
#define MS 1000000LL

static bool about(double a, double b)
{
	return fabs(a - b) < 1e-9;
}

/* A twin for which the guest ran so many seconds. */
static void make(struct cb_twin_cost *c, double ran_s)
{
	cb_twin_cost_begun(c, (struct cb_turns){ 10, 20 });
	cb_twin_cost_made(c, (struct cb_turns){ 10 + ran_s, 20 }, 1);
}

/* Its first cell, with so many faults and seconds in the kernel, and so many pages that have come to 100000. */
static void copy(struct cb_twin_cost *c, uint64_t faults, double sys_s, uint64_t grown)
{
	struct cb_touched now = { 500 + faults, (100000 + grown) * PAGE, 1 + sys_s };

	c->before = (struct cb_touched){ 500, 100000 * PAGE, 1 };
	assert_true(cb_twin_cost_reads(c));
	cb_twin_cost_ran(c, 0.1, &now);
}

/* In a loop of like cells all that twins cost is one part in 40 of what cells work; what others had the processor for
 * earns nothing. */
static void test_earned(void **state)
{
	struct cb_twin_cost c = { 0 };

	(void)state;
	make(&c, 0.002);
	copy(&c, 500, 0, 0);
	assert_true(about(cb_twin_cost_due(&c), 40 * (4 * 0.002 + 500 * 0.5e-6)));
	assert_false(cb_twin_cost_reads(&c));
	c.worked_s = 0.32;
	assert_false(cb_twin_cost_is_earned(&c, (struct cb_turns){ 11, 20 }));
	c.worked_s = 0.34;
	assert_true(cb_twin_cost_is_earned(&c, (struct cb_turns){ 11, 20 }));
	assert_false(cb_twin_cost_is_earned(&c, (struct cb_turns){ 11, 20.1 }));
	assert_true(cb_twin_cost_is_earned(&c, (struct cb_turns){ 0, 0 })); /* another process, or none */
	make(&c, 0.002);
	assert_true(cb_twin_cost_reads(&c) && c.worked_s == 0);
}

/* One reading that is too high does not count for long. */
static void test_learning(void **state)
{
	struct cb_twin_cost c = { 0 };

	(void)state;
	make(&c, 0.004);
	assert_true(about(c.made_s, 4 * 0.004));
	make(&c, 0.100);
	assert_true(about(c.made_s, 4 * 0.052));
	make(&c, 0.002);
	assert_true(about(c.made_s, 4 * 0.002));
}

/* Where the kernel does not count turns the time is taken that the guest stood still, if it can be so. */
static void test_no_turns(void **state)
{
	static const double nonsense[] = { 0, -1, 61, 1e300, NAN };
	struct cb_turns none = { 0 };
	struct cb_twin_cost c = { 0 };

	(void)state;
	cb_twin_cost_made(&c, none, 0.003);
	assert_true(about(c.made_s, 4 * 0.003));
	for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
		cb_twin_cost_made(&c, none, nonsense[i]);
		assert_true(c.made_s == 0);
	}
}

static void test_copied(void **state)
{
	static const struct {
		uint64_t faults, grown;
		double sys_s, s;
	} is[] = {
		{ 10000, 0, 0.02, 0.02 },	     /* what it took */
		{ 10000, 0, 5, 10000 * 16e-6 },	     /* the rest of that was for something else */
		{ 10000, 0, 0, 10000 * 0.5e-6 },     /* clocks are coarse */
		{ 10000, 9000, 5, 1000 * 16e-6 },    /* new memory is no copy */
		{ 20, 9000, 5, 0 },		     /* in huge pages */
		{ 5000000, 0, 100, 100000 * 16e-6 }, /* nor is more than there was */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(is) / sizeof(is[0]); i++) {
		struct cb_twin_cost c = { 0 };

		copy(&c, is[i].faults, is[i].sys_s, is[i].grown);
		assert_true(about(c.copied_s, is[i].s));
	}
}

/* The guest has ended meanwhile: nothing is learned from the difference. */
static void test_another_process(void **state)
{
	struct cb_twin_cost c = { .copied_s = 0.5, .before = { 500, PAGE, 1 } };
	struct cb_touched now = { 0 };

	(void)state;
	cb_twin_cost_ran(&c, 0.1, &now);
	assert_true(c.copied_s == 0.5);
}

static void test_idle(void **state)
{
	struct cb_twin_cost c = { 0 };

	(void)state;
	assert_true(cb_twin_cost_idle(&c) == 50 * MS);
	c.made_s = c.copied_s = 0.02;
	assert_true(cb_twin_cost_idle(&c) == 50 * MS);
	c.copied_s = 0.98;
	assert_true(llabs(cb_twin_cost_idle(&c) - 1000 * MS) <= 1);
	c.made_s = 1e6;
	assert_true(cb_twin_cost_idle(&c) == 2000 * MS);
}

/* Each cell gets its own twin where that is known to delay it by less than 10 ms. */
static void test_small(void **state)
{
	struct cb_twin_cost c = { 0 };

	(void)state;
	assert_false(cb_twin_cost_is_small(&c)); /* nothing is known */
	make(&c, 0.003);
	assert_true(cb_twin_cost_is_small(&c));
	copy(&c, 40000, 0.02, 0); /* one cell that touches much is no habit */
	assert_true(cb_twin_cost_is_small(&c));
	make(&c, 0.003);
	copy(&c, 40000, 0.02, 0);
	assert_false(cb_twin_cost_is_small(&c));
	make(&c, 0.003);
	copy(&c, 500, 0.02, 0);
	assert_true(cb_twin_cost_is_small(&c));
	make(&c, 0.030); /* something else was busy */
	assert_true(cb_twin_cost_is_small(&c));
	for (int i = 0; i < 3; i++)
		make(&c, 0.120); /* memory has grown */
	assert_false(cb_twin_cost_is_small(&c));
	make(&c, 0.001);
	assert_true(cb_twin_cost_is_small(&c));
	cb_twin_cost_files(&c, 0.012);
	assert_false(cb_twin_cost_is_small(&c));
	cb_twin_cost_files(&c, 0.001);
	assert_true(cb_twin_cost_is_small(&c));
	c = (struct cb_twin_cost){ .readings = 1 };
	cb_twin_cost_files(&c, 0.0099);
	assert_true(cb_twin_cost_is_small(&c));
	c = (struct cb_twin_cost){ .readings = 1 };
	cb_twin_cost_files(&c, 0.0101);
	assert_false(cb_twin_cost_is_small(&c));
}

/* A first fork that was dear, in a Python that is cold on a machine that is busy, is tried once more. */
static void test_first(void **state)
{
	struct cb_twin_cost c = { 0 };

	(void)state;
	make(&c, 0.014);
	assert_true(cb_twin_cost_is_small(&c));
	make(&c, 0.014);
	assert_false(cb_twin_cost_is_small(&c));
	c = (struct cb_twin_cost){ 0 };
	make(&c, 0.019);
	assert_true(cb_twin_cost_is_small(&c));
	make(&c, 0.003);
	assert_true(cb_twin_cost_is_small(&c));
	c = (struct cb_twin_cost){ 0 };
	make(&c, 0.5);
	assert_true(cb_twin_cost_is_small(&c));
	make(&c, 0.5); /* no longer the first */
	assert_false(cb_twin_cost_is_small(&c));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_earned), cmocka_unit_test(test_learning),	       cmocka_unit_test(test_no_turns),
		cmocka_unit_test(test_copied), cmocka_unit_test(test_another_process), cmocka_unit_test(test_idle),
		cmocka_unit_test(test_small),  cmocka_unit_test(test_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
