/* The loop: level-triggered sources in order, sources removed by handlers, timers. */
#include "jupyter/loop.h"

#include <cellblock/error.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

struct seen {
	struct cb_loop *l;
	char log[64];
	size_t n;
	int slot[2];
	int fd[2];
	int timer, left;
};

static void note(struct seen *s, char c)
{
	assert_true(s->n < sizeof(s->log) - 1);
	s->log[s->n++] = c;
}

static void read_one(struct seen *s, int i)
{
	char c;

	assert_int_equal(read(s->fd[i], &c, 1), 1);
	note(s, c);
	if (c == '.')
		s->l->stop = true;
}

static void on_first(void *context, short revents)
{
	assert_true(revents & ZMQ_POLLIN);
	read_one(context, 0);
}

static void on_second(void *context, short revents)
{
	assert_true(revents & ZMQ_POLLIN);
	read_one(context, 1);
}

static void open_pipes(struct seen *s, int out[2])
{
	for (int i = 0; i < 2; i++) {
		int p[2];

		assert_int_equal(pipe(p), 0);
		s->fd[i] = p[0];
		out[i] = p[1];
	}
	s->slot[0] = cb_loop_add(s->l, NULL, s->fd[0], ZMQ_POLLIN, on_first, s);
	s->slot[1] = cb_loop_add(s->l, NULL, s->fd[1], ZMQ_POLLIN, on_second, s);
}

static void close_pipes(struct seen *s, const int out[2])
{
	for (int i = 0; i < 2; i++) {
		close(s->fd[i]);
		close(out[i]);
	}
}

/* What is not read whole is told again; the source added first goes first. */
static void test_level_and_order(void **state)
{
	struct cb_loop l = { 0 };
	struct seen s = { .l = &l };
	int out[2];

	(void)state;
	open_pipes(&s, out);
	assert_int_equal(write(out[1], "12.", 3), 3);
	assert_int_equal(write(out[0], "ab", 2), 2);
	assert_int_equal(cb_loop_run(&l), 0);
	assert_string_equal(s.log, "a1b2.");
	close_pipes(&s, out);
}

static void on_remover(void *context, short revents)
{
	struct seen *s = context;

	(void)revents;
	read_one(s, 0);
	cb_loop_remove(s->l, &s->slot[1]);
	assert_int_equal(s->slot[1], -1);
	cb_loop_remove(s->l, &s->slot[1]); /* again: allowed */
}

static void on_end(void *context)
{
	struct seen *s = context;

	s->l->stop = true;
}

static void test_removed_by_a_handler(void **state)
{
	struct cb_loop l = { 0 };
	struct seen s = { .l = &l };
	int out[2];

	(void)state;
	open_pipes(&s, out);
	l.source[s.slot[0]].fn = on_remover;
	s.timer = cb_loop_add_timer(&l, on_end, &s);
	cb_loop_arm(&l, s.timer, cb_now_ns() + 5000000);
	assert_int_equal(write(out[0], "a", 1), 1);
	assert_int_equal(write(out[1], "1", 1), 1); /* ready in the same turn, but removed before its turn */
	assert_int_equal(cb_loop_run(&l), 0);
	assert_string_equal(s.log, "a");
	close_pipes(&s, out);
}

static void test_events_off(void **state)
{
	struct cb_loop l = { 0 };
	struct seen s = { .l = &l };
	int out[2];

	(void)state;
	open_pipes(&s, out);
	cb_loop_set_events(&l, s.slot[0], 0);
	cb_loop_set_events(&l, -1, ZMQ_POLLIN);
	assert_int_equal(write(out[0], "a", 1), 1);
	assert_int_equal(write(out[1], "1.", 2), 2);
	assert_int_equal(cb_loop_run(&l), 0);
	assert_string_equal(s.log, "1.");
	close_pipes(&s, out);
}

static void on_tick(void *context)
{
	struct seen *s = context;

	assert_false(cb_loop_armed(s->l, s->timer)); /* off before the call */
	note(s, 't');
	if (--s->left > 0)
		cb_loop_arm(s->l, s->timer, cb_now_ns() + 1000000);
	else
		s->l->stop = true;
}

static void test_timers(void **state)
{
	struct cb_loop l = { 0 };
	struct seen s = { .l = &l, .left = 3 };
	int64_t before = cb_now_ns();

	(void)state;
	(void)cb_loop_add_timer(&l, on_end, &s); /* never armed */
	s.timer = cb_loop_add_timer(&l, on_tick, &s);
	cb_loop_arm(&l, s.timer, before + 3000000);
	assert_int_equal(cb_loop_run(&l), 0);
	assert_string_equal(s.log, "ttt");
	assert_true(cb_now_ns() - before >= 5000000);
}

static void on_mark(void *context)
{
	struct seen *s = context;

	cb_loop_mark(s->l);
	cb_loop_mark(s->l);
	note(s, 'm');
	cb_loop_arm(s->l, s->timer, cb_now_ns() + 1000000);
}

static void on_turn(void *context)
{
	struct seen *s = context;

	note(s, '|');
	if (--s->left > 0)
		cb_loop_mark(s->l); /* what it began has ended at once */
}

/* Before the loop sleeps, once however often it was marked, after the handlers; not in turns that nobody marked. */
static void test_turn(void **state)
{
	struct cb_loop l = { 0 };
	struct seen s = { .l = &l, .left = 1 };
	int mark = cb_loop_add_timer(&l, on_mark, &s);

	(void)state;
	s.timer = cb_loop_add_timer(&l, on_end, &s);
	cb_loop_at_turn(&l, on_turn, &s);
	cb_loop_arm(&l, mark, cb_now_ns() + 1000000);
	assert_int_equal(cb_loop_run(&l), 0);
	assert_string_equal(s.log, "m|");
	l.stop = false;
	s.left = 3;
	cb_loop_mark(&l); /* before the first turn */
	cb_loop_arm(&l, s.timer, cb_now_ns() + 1000000);
	assert_int_equal(cb_loop_run(&l), 0);
	assert_string_equal(s.log, "m||||");
}

static void test_full(void **state)
{
	struct cb_loop l = { 0 };
	int slot = 3;

	(void)state;
	for (int i = 0; i < CB_LOOP_MAX_SOURCES; i++)
		assert_int_equal(cb_loop_add(&l, NULL, 0, ZMQ_POLLIN, on_first, NULL), i);
	assert_int_equal(cb_loop_add(&l, NULL, 0, ZMQ_POLLIN, on_first, NULL), -ENOSPC);
	cb_loop_remove(&l, &slot);
	assert_int_equal(cb_loop_add(&l, NULL, 0, ZMQ_POLLIN, on_first, NULL), 3);
	for (int i = 0; i < CB_LOOP_MAX_TIMERS; i++)
		assert_int_equal(cb_loop_add_timer(&l, on_tick, NULL), i);
	assert_int_equal(cb_loop_add_timer(&l, on_tick, NULL), -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_level_and_order),
		cmocka_unit_test(test_removed_by_a_handler),
		cmocka_unit_test(test_events_off),
		cmocka_unit_test(test_timers),
		cmocka_unit_test(test_turn),
		cmocka_unit_test(test_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
