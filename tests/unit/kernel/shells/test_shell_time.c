/* One shell alone, and time: what overruns its limits is interrupted first, and ended by force only if it does not
 * end; the clock that stands while a user is asked; interrupts. */
#include <math.h>

#include "shell_alone.h"

/* ---- limits ---- */

static void test_over_time(void **state)
{
	(void)state;
	begins(CB_REQUEST_EXECUTE, 2);
	assert_int_equal(due(), now + 2 * SECOND);
	look_after(2 * SECOND - 1, "");
	look_after(1, "timeout.cell interrupt ");
	assert_int_equal(s->cell.stop, CB_STOP_TIME_SOFT);
	assert_true(due() > now + 3 * SECOND - MS && due() < now + 3 * SECOND + MS);
	look_after(2 * SECOND, ""); /* its grace */
	cb_shell_wait(s, true);	    /* in it a cell gets no more time */
	assert_false(s->cell.waits);
	look_after(2 * SECOND, "kill ");
	assert_int_equal(s->cell.stop, CB_STOP_TIME_HARD);
	look_after(SECOND, "");
	dies();
	is_over(0, 1);
	set_up(state);
	policy.timeout_grace = 0;
	begins(CB_REQUEST_EXECUTE, 2);
	look_after(2 * SECOND, "timeout.cell kill ");
	look_after(2 * SECOND, "");
}

/* What the user hears is the limit, and once. */
static void test_late(void **state)
{
	(void)state;
	begins(CB_REQUEST_EXECUTE, 1);
	look_after(SECOND, "timeout.cell interrupt ");
	fails_with(last_id, "\"KeyboardInterrupt\"");
	fails_with(last_id, "\"KeyboardInterrupt\"");
	expect("drain limit-error drain dropped-if-over ");
	answers(last_id, "\"error\"", "\"KeyboardInterrupt\"");
	expect("drain abort limit-reply ending idle aborted done ");
	begins(CB_REQUEST_EXECUTE, 1);
	look_after(SECOND, "timeout.cell interrupt ");
	answers(last_id, "\"ok\"", ""); /* it swallowed the interrupt */
	expect("drain abort limit-reply ending idle aborted done ");
	begins(CB_REQUEST_EXECUTE, 1);
	look_after(SECOND, "timeout.cell interrupt ");
	fails_with(last_id, "\"ValueError\"");
	expect("drain error ");
	answers(last_id, "\"error\"", "\"ValueError\"");
	expect("drain abort failed flush reply ending idle aborted done ");
	for (unsigned i = 0; i < 3; i++)
		is_over(i, 1);
}

static void test_over_cpu(void **state)
{
	struct cb_request *r = fresh(CB_REQUEST_EXECUTE);
	int64_t look_at = 0, when = 0, first;

	(void)state;
	r->execute.cpu = 1;
	cb_shell_begin(s, r);
	trace[0] = '\0';
	cb_shell_due(s, &look_at, &when);
	first = look_at;
	assert_true(when == first && first > now && first <= now + SECOND);
	now += SECOND / 4;
	cb_shell_due(s, &look_at, &when); /* it stays, however often it is asked for */
	assert_int_equal(look_at, first);
	cpu += 0.9;
	look_after(SECOND, "");
	cpu += 0.2;
	look_after(SECOND, "timeout.cpu interrupt ");
	assert_true(s->cell.over_cpu);
	look_after(SECOND, "");
	cb_shell_over_memory(s);
	expect("metadata.cellblock.memory kill ");
	assert_int_equal(s->cell.stop, CB_STOP_MEMORY);
	cb_shell_stop_reason(s, CB_STOP_INTERRUPT); /* one stands already */
	assert_int_equal(s->cell.stop, CB_STOP_MEMORY);
}

/* ---- questions to the user, and the clock meanwhile ---- */

static void asks(void)
{
	assert_int_equal(asks_user(), 0);
	expect("drain flush ask ");
	assert_true(s->cell.waits);
	assert_int_equal(python.rules.phase, CB_PHASE_INPUT);
}

static void is_given(void)
{
	cb_shell_input(s, CB_SPAN("{}"));
	expect("input ");
	assert_false(s->cell.waits);
	assert_int_equal(python.rules.phase, CB_PHASE_EXECUTING);
}

static void test_clock_stands(void **state)
{
	(void)state;
	begins(CB_REQUEST_EXECUTE, 2);
	now += SECOND;
	asks();
	assert_true(due() > now); /* a look whether it computes, and no deadline */
	cpu += 1;
	look_after(100 * SECOND, ""); /* less than a twentieth of a processor */
	is_given();
	assert_int_equal(due(), now + SECOND);
	look_after(SECOND, "timeout.cell interrupt ");
}

static void test_works_while_it_asks(void **state)
{
	(void)state;
	begins(CB_REQUEST_EXECUTE, 3);
	asks();
	cpu += 2;
	look_after(2 * SECOND, ""); /* of 3 */
	cpu += 2;
	policy.timeout_grace = 0; /* a wait is interrupted all the same */
	look_after(2 * SECOND, "timeout.cell interrupt ");
	assert_false(s->cell.wait_over);
}

/* Many short waits are no way around the clock. */
static void test_short_waits(void **state)
{
	(void)state;
	for (int works = 0; works < 2; works++) {
		begins(CB_REQUEST_EXECUTE, 2);
		for (int i = 0; i < 25; i++) {
			asks();
			now += SECOND / 10;
			cpu += works ? 0.1 : 0;
			is_given();
		}
		assert_int_equal(due(), works ? now + 1 : now + 2 * SECOND);
		answers(last_id, "\"ok\"", "");
		trace[0] = '\0';
	}
}

static void test_asks_too_long(void **state)
{
	(void)state;
	begins(CB_REQUEST_EXECUTE, 0);
	asks();
	assert_int_equal(due(), 0); /* no limit, so nobody looks */
	assert_false(cb_shell_spend(s, 5));
	is_given();
	cb_shell_release(s);
	policy.timeout_wait = 5;
	begins(CB_REQUEST_EXECUTE, 2);
	asks();
	look_after(5 * SECOND - 1, "");
	look_after(1, "timeout.wait interrupt ");
	assert_true(s->cell.wait_over);
	cpu += 3;
	look_after(2 * SECOND, ""); /* it has its grace */
}

/* Where somebody else looks at the work of who asks, that is told. */
static void test_wait_is_told(void **state)
{
	(void)state;
	ops.waits = told_of_wait;
	begins(CB_REQUEST_EXECUTE, 2);
	assert_int_equal(asks_user(), 0);
	expect("drain flush ask stands ");
	assert_int_equal(due(), 0);
	ops.cpu = NULL;
	assert_int_equal(due(), 0);
	assert_false(cb_shell_spend(s, 1.5));
	assert_true(cb_shell_spend(s, 1));
	assert_true(cb_shell_spend(s, 1));
	cb_shell_asked(s);
	expect("runs ");
	assert_int_equal(due(), now + 1);
	cb_shell_asked(s); /* nobody asks */
	expect("");
}

static void test_may_not_ask(void **state)
{
	(void)state;
	assert_int_equal(asks_user(), CB_E_DENIED);
	begins(CB_REQUEST_COMPLETE, 0);
	assert_int_equal(asks_user(), CB_E_DENIED);
	cb_shell_release(s);
	begins(CB_REQUEST_EXECUTE, 0)->execute.allow_stdin = false;
	assert_int_equal(asks_user(), CB_E_DENIED);
	request[1].execute.allow_stdin = true;
	asks();
	assert_int_equal(asks_user(), CB_E_DENIED); /* one at a time, */
	s->ask_again = 1;		      /* unless an interrupt may have crossed it */
	asks();
	assert_int_equal(asks_user(), CB_E_DENIED);
	is_given();
	ask_result = CB_E_SYNTAX; /* a broken rule: it does not wait */
	assert_int_equal(asks_user(), CB_E_SYNTAX);
	assert_true(s->asked_at == 0 && !s->cell.waits);
	trace[0] = '\0';
	ask_result = CB_STDIN_NOBODY;
	assert_int_equal(asks_user(), 0);
	expect("drain flush ask nobody input ");
	assert_false(s->cell.waits);
	for (int i = 0; i < 2; i++) { /* the answer would be for another Python */
		all.execution.taken_over = i == 0;
		s->over = i == 1;
		assert_int_equal(asks_user(), 0);
		expect("");
		assert_int_equal(s->asked_at, 0);
	}
}

/* A question that has reached nobody yet is looked at until it or its cell is over. */
static void test_asked_again(void **state)
{
	(void)state;
	begins(CB_REQUEST_EXECUTE, 0);
	asks();
	s->unsent.again_at = now + MS;
	assert_int_equal(due(), now + MS);
	look_after(MS, "again ");
	cb_shell_stopped(s);
	look_after(MS, "");
	assert_int_equal(due(), 0);
	dies();
	assert_int_equal(s->unsent.again_at, 0);
}

static void test_whose_answer(void **state)
{
	struct cb_request *cell = begins(CB_REQUEST_EXECUTE, 0), answer = { .nident = 1 };

	(void)state;
	cell->nident = 1;
	cell->sent_to = CB_SPAN("\"a\"");
	assert_false(cb_shell_asks(s, &answer));
	asks();
	assert_true(cb_shell_asks(s, &answer));
	answer.sent_to = CB_SPAN("\"a\"");
	assert_true(cb_shell_asks(s, &answer));
	answer.sent_to = CB_SPAN("\"b\"");
	assert_false(cb_shell_asks(s, &answer));
	answer = (struct cb_request){ .nident = 2 };
	assert_false(cb_shell_asks(s, &answer));
}

/* ---- interrupts ---- */

static void test_interrupt(void **state)
{
	(void)state;
	policy.timeout_interrupt = 9;
	begins(CB_REQUEST_EXECUTE, 0);
	cb_shell_interrupt(s, true);
	expect("soft interrupt ");
	now += CB_DOUBLE_CLICK - 1;
	cb_shell_interrupt(s, true); /* the same click */
	expect("");
	assert_true(due() > now && due() <= now + SECOND);
	look_after(SECOND - CB_DOUBLE_CLICK, "");
	look_after(SECOND, "notice ");
	look_after(SECOND, "");
	cb_shell_interrupt(s, false);
	expect("");
	cb_shell_interrupt(s, true);
	expect("hard kill ");
	assert_int_equal(s->cell.stop, CB_STOP_INTERRUPT);
	cb_shell_stopped(s);
	look_after(10 * SECOND, "");
	dies();
	is_over(0, 1);
}

static void test_obeyed(void **state)
{
	(void)state;
	policy.timeout_interrupt = 2;
	begins(CB_REQUEST_EXECUTE, 0);
	asks();
	cb_shell_interrupt(s, true);
	expect("soft interrupt ");
	cb_shell_obeyed(s); /* that ends the question, too */
	assert_true(s->asked_at == 0 && python.rules.phase == CB_PHASE_EXECUTING && due() == 0);
	now += SECOND;
	cb_shell_interrupt(s, true);
	expect("soft interrupt ");
	look_after(SECOND, "notice ");
	assert_int_equal(due(), now + SECOND);
	look_after(SECOND - 1, "");
	look_after(1, "hard kill "); /* timeout.interrupt */
	look_after(SECOND, "");
}

/* That one beside the main thread has taken it is not said. */
static void test_interrupt_apart(void **state)
{
	(void)state;
	s->apart = true;
	policy.timeout_interrupt = 2;
	begins(CB_REQUEST_EXECUTE, 0);
	cb_shell_interrupt(s, true);
	cb_shell_interrupt(s, true);
	expect("soft interrupt soft interrupt ");
	assert_int_equal(due(), 0);
	now += CB_DOUBLE_CLICK;
	cb_shell_interrupt(s, false);
	expect("soft interrupt ");
	cb_shell_interrupt(s, true);
	expect("hard kill ");
}

static void test_interrupt_of_what_waits(void **state)
{
	(void)state;
	assert_true(cb_shell_take(s, fresh(CB_REQUEST_COMPLETE)));
	assert_true(cb_shell_take(s, fresh(CB_REQUEST_EXECUTE)));
	cb_shell_interrupt(s, true);
	expect("");
	cb_shell_begin(s, cb_shell_pop(s));
	expect("send busy ");
	cb_shell_finish(s);
	trace[0] = '\0';
	cb_shell_begin(s, cb_shell_pop(s));
	expect("begun send busy execute_input told soft interrupt ");
	answers(last_id, "\"ok\"", "");
	trace[0] = '\0';
	begins(CB_REQUEST_EXECUTE, 0);
	assert_true(cb_shell_take(s, fresh(CB_REQUEST_EXECUTE)));
	assert_int_equal(cb_shell_interrupt_one(s, CB_SPAN("\"9\"")), CB_FOUND_NOWHERE);
	assert_int_equal(cb_shell_interrupt_one(s, CB_SPAN("\"3\"")), CB_FOUND_WAITING);
	expect("abort-one ");
	assert_true(loop.marked && s->waiting.head == NULL);
	is_over(3, 1);
	assert_int_equal(cb_shell_interrupt_one(s, CB_SPAN("\"2\"")), CB_FOUND_RUNNING);
	expect("soft interrupt ");
}

/* A cell that was sent after an interrupt is not whose that is; but a clock may be set back. */
static void test_came_after(void **state)
{
	struct cb_request *cell = fresh(CB_REQUEST_EXECUTE), i = { .date = 10, .session = CB_SPAN("\"s\"") };

	(void)state;
	cell->date = 11;
	cell->session = CB_SPAN("\"s\"");
	i.arrived_ns = cell->arrived_ns = now;
	assert_false(cb_shell_came_after(s, &i));
	assert_true(cb_shell_take(s, cell));
	assert_false(cb_shell_came_after(s, NULL));
	assert_true(cb_shell_came_after(s, &i));
	i.date = 11;
	assert_false(cb_shell_came_after(s, &i));
	i.date = NAN;
	assert_false(cb_shell_came_after(s, &i));
	i.date = 10;
	i.session = CB_SPAN("\"t\"");
	assert_false(cb_shell_came_after(s, &i));
	i.session = CB_SPAN("\"s");
	assert_false(cb_shell_came_after(s, &i));
	i.session = cell->session;
	i.arrived_ns = now + 2 * SECOND;
	assert_false(cb_shell_came_after(s, &i));
	now += 3 * SECOND; /* it waited */
	cb_shell_begin(s, cb_shell_pop(s));
	i.arrived_ns = now + SECOND;
	assert_true(cb_shell_came_after(s, &i));
	now += SECOND;
	i.arrived_ns = now + SECOND;
	assert_false(cb_shell_came_after(s, &i));
}

#define TEST(name) cmocka_unit_test_setup(test_##name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(over_time),
		TEST(late),
		TEST(over_cpu),
		TEST(clock_stands),
		TEST(works_while_it_asks),
		TEST(short_waits),
		TEST(asks_too_long),
		TEST(wait_is_told),
		TEST(may_not_ask),
		TEST(asked_again),
		TEST(whose_answer),
		TEST(interrupt),
		TEST(obeyed),
		TEST(interrupt_apart),
		TEST(interrupt_of_what_waits),
		TEST(came_after),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
