/* The queue alone: its order, who is found and taken, and a load that counts exactly what waits, held against a list of
 * the test's own. */
#include "shells/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define REQUESTS 10
#define QUEUES 2

static struct cb_request request[REQUESTS];
static char id[REQUESTS][8]; /* raw JSON strings */
static struct cb_queue q[QUEUES];
static struct cb_load load; /* that they share */

/* What must wait in each. */
static struct {
	struct cb_request *at[REQUESTS];
	size_t n;
} model[QUEUES];

size_t cb_request_bytes(const struct cb_request *r)
{
	return r->nframes;
}

static int set_up(void **state)
{
	(void)state;
	memset(q, 0, sizeof(q));
	memset(model, 0, sizeof(model));
	load = (struct cb_load){ 0 };
	return 0;
}

/* The i-th request, of i + 1 bytes. */
static struct cb_request *fresh(size_t i, enum cb_request_kind kind)
{
	int n = snprintf(id[i], sizeof(id[i]), "\"%zu\"", i);

	request[i] = (struct cb_request){ .kind = kind, .nframes = i + 1, .msg_id = { id[i], (size_t)n } };
	return &request[i];
}

static void push(size_t which, struct cb_request *r, bool first)
{
	size_t at = first ? 0 : model[which].n;

	while (first && at < model[which].n && model[which].at[at]->first)
		at++;
	memmove(&model[which].at[at + 1], &model[which].at[at],
		(model[which].n++ - at) * sizeof(model[which].at[0]));
	model[which].at[at] = r;
	if (first)
		cb_queue_push_first(&q[which], &load, r);
	else
		cb_queue_push(&q[which], &load, r);
}

/* It was the i-th, or there was none. */
static void is_out(size_t which, struct cb_request *r, size_t i)
{
	if (i >= model[which].n) {
		assert_null(r);
		return;
	}
	assert_ptr_equal(r, model[which].at[i]);
	assert_null(r->next);
	memmove(&model[which].at[i], &model[which].at[i + 1], (--model[which].n - i) * sizeof(model[which].at[0]));
}

static void check(void)
{
	size_t count = 0, bytes = 0;

	for (size_t which = 0; which < QUEUES; which++) {
		const struct cb_request *r = q[which].head;

		for (size_t i = 0; i < model[which].n; i++, r = r->next) {
			assert_ptr_equal(r, model[which].at[i]);
			count++;
			bytes += r->nframes;
		}
		assert_null(r);
	}
	assert_int_equal(load.count, count);
	assert_int_equal(load.bytes, bytes);
}

static size_t next_cell(size_t which)
{
	for (size_t i = 0; i < model[which].n; i++)
		if (cb_request_runs_code(model[which].at[i]))
			return i;
	return 0;
}

static size_t place(size_t which, const struct cb_request *r)
{
	size_t i = 0;

	while (i < model[which].n && model[which].at[i] != r)
		i++;
	return i;
}

static void test_order(void **state)
{
	(void)state;
	assert_null(cb_queue_pop(&q[0], &load));
	for (int round = 0; round < 2; round++) { /* its tail means nothing once it was empty */
		for (size_t i = 0; i < 3; i++)
			push(0, fresh(i, CB_REQUEST_EXECUTE), false);
		check();
		for (size_t i = 0; i < 3; i++) {
			assert_ptr_equal(q[0].head, &request[i]);
			is_out(0, cb_queue_pop(&q[0], &load), 0);
			check();
		}
		assert_null(cb_queue_pop(&q[0], &load));
	}
}

static void test_first(void **state)
{
	static const size_t order[] = { 0, 2, 4, 1, 3 };

	(void)state;
	push(0, fresh(0, CB_REQUEST_EXECUTE), true);
	push(0, fresh(1, CB_REQUEST_EXECUTE), false);
	push(0, fresh(2, CB_REQUEST_EXECUTE), true);
	push(0, fresh(3, CB_REQUEST_EXECUTE), false);
	push(0, fresh(4, CB_REQUEST_EXECUTE), true);
	check();
	for (size_t i = 0; i < 5; i++)
		assert_ptr_equal(cb_queue_pop(&q[0], &load), &request[order[i]]);
}

/* What frontends have sent before a cell is not whose the interrupt is. */
static void test_next_cell(void **state)
{
	static const size_t order[] = { 2, 3, 0, 1 };

	(void)state;
	assert_null(cb_queue_next_cell(&q[0]));
	assert_null(cb_queue_take_next_cell(&q[0], &load));
	push(0, fresh(0, CB_REQUEST_COMPLETE), false);
	push(0, fresh(1, CB_REQUEST_COMM_MSG), false);
	assert_ptr_equal(cb_queue_next_cell(&q[0]), &request[0]);
	push(0, fresh(2, CB_REQUEST_RUN), false);
	push(0, fresh(3, CB_REQUEST_EXECUTE), false);
	assert_ptr_equal(cb_queue_next_cell(&q[0]), &request[2]);
	check();
	for (size_t i = 0; i < 4; i++) {
		struct cb_request *r = cb_queue_take_next_cell(&q[0], &load);

		assert_ptr_equal(r, &request[order[i]]);
		is_out(0, r, place(0, r));
		check();
	}
}

static void test_named(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++)
		push(0, fresh(i, CB_REQUEST_EXECUTE), false);
	push(1, fresh(3, CB_REQUEST_EXECUTE), false);
	assert_null(cb_queue_take(&q[0], &load, CB_SPAN("\"3\""))); /* it waits elsewhere */
	assert_null(cb_queue_take(&q[0], &load, CB_SPAN("\"1")));
	assert_null(cb_queue_take(&q[0], &load, CB_SPAN("\"10\"")));
	check();
	is_out(0, cb_queue_take(&q[0], &load, CB_SPAN("\"2\"")), 2); /* the last: another follows the one before */
	push(0, fresh(4, CB_REQUEST_EXECUTE), false);
	check();
	is_out(0, cb_queue_take(&q[0], &load, CB_SPAN("\"0\"")), 0);
	is_out(0, cb_queue_take(&q[0], &load, CB_SPAN("\"1\"")), 0);
	is_out(0, cb_queue_take(&q[0], &load, CB_SPAN("\"4\"")), 0);
	assert_null(cb_queue_take(&q[0], &load, CB_SPAN("\"4\"")));
	push(0, fresh(5, CB_REQUEST_EXECUTE), false);
	check();
}

static void step(unsigned dice)
{
	static const enum cb_request_kind kind[] = { CB_REQUEST_EXECUTE, CB_REQUEST_COMM_MSG, CB_REQUEST_RUN,
						     CB_REQUEST_COMPLETE };
	size_t which = dice / 8 % QUEUES, i = dice / 16 % REQUESTS;
	struct cb_request *r = &request[i];
	bool waits = place(0, r) < model[0].n || place(1, r) < model[1].n;

	switch (dice % 8) {
	case 0:
		is_out(which, cb_queue_pop(&q[which], &load), 0);
		break;
	case 1:
		is_out(which, cb_queue_take_next_cell(&q[which], &load), next_cell(which));
		break;
	case 2:
	case 3:
		is_out(which, cb_queue_take(&q[which], &load, r->msg_id), place(which, r));
		break;
	default:
		if (!waits)
			push(which, fresh(i, kind[dice / 256 % 4]), dice % 8 == 4);
	}
	assert_ptr_equal(cb_queue_next_cell(&q[which]),
			 model[which].n > 0 ? model[which].at[next_cell(which)] : NULL);
}

static void test_any_order(void **state)
{
	unsigned dice = 16;

	(void)state;
	for (size_t i = 0; i < REQUESTS; i++)
		(void)fresh(i, CB_REQUEST_EXECUTE);
	for (int i = 0; i < 50000; i++) {
		dice = dice * 1103515245u + 12345u;
		step(dice >> 12);
		check();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup(test_order, set_up),
					    cmocka_unit_test_setup(test_first, set_up),
					    cmocka_unit_test_setup(test_next_cell, set_up),
					    cmocka_unit_test_setup(test_named, set_up),
					    cmocka_unit_test_setup(test_any_order, set_up) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
