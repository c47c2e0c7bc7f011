/* The cells since the oldest twin: what is undone is told once, and sources have a bound. */
#include "transactions/undo_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct cb_undo_log past;
static struct cb_buf text;

static int setup(void **state)
{
	(void)state;
	past = (struct cb_undo_log){ 0 };
	text = CB_BUF_INIT(1u << 20);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	cb_undo_log_release(&past);
	cb_buf_release(&text);
	return 0;
}

static void add(const char *code, int64_t number)
{
	cb_undo_log_add(&past, (struct cb_span){ code, strlen(code) }, number);
}

static void expect_text(const char *wanted)
{
	assert_int_equal(cb_buf_append(&text, "", 1), 0);
	assert_string_equal((const char *)text.data, wanted);
	cb_buf_clear(&text);
}

static void expect_undo(uint64_t cell, const char *wanted, int64_t first, int64_t last, size_t count)
{
	struct cb_undo_log_count live = past.live;
	struct cb_undo_log_undone u;

	live.cells -= count;
	assert_int_equal(cb_undo_log_after(&past, cell, &live, &text, &u), 0);
	cb_undo_log_undo(&past, cell, &live);
	expect_text(wanted);
	assert_int_equal(u.first, first);
	assert_int_equal(u.last, last);
	assert_int_equal(u.n.cells, count);
	assert_int_equal(u.untold, 0);
}

static void expect_sources(uint64_t cell, int64_t count, const char *wanted)
{
	struct cb_json j = cb_json_begin(&text);

	cb_undo_log_sources(&past, cell, count, &j);
	assert_int_equal(cb_json_done(&j), 0);
	expect_text(wanted);
}

/* Of the n-th latest that is not undone; 0 = there is none. */
static uint64_t latest(size_t n)
{
	const struct cb_undo_log_cell *c = cb_undo_log_latest(&past, n, UINT64_MAX);

	return c != NULL ? c->cell : 0;
}

static void test_empty(void **state)
{
	(void)state;
	assert_int_equal(latest(1), 0);
	expect_undo(0, "[]", 0, 0, 0);
	expect_sources(0, 0, "{\"undone\":[]}");
	cb_undo_log_forget(&past, 10, past.live.undone);
}

static void test_undone_once(void **state)
{
	(void)state;
	add("\"a\"", 4);
	add("\"b\"", 5);
	add("\"c\"", 6);
	assert_int_equal(latest(1), 3);
	assert_int_equal(latest(2), 2);
	assert_int_equal(latest(3), 1);
	assert_int_equal(latest(4), 0);
	assert_int_equal(cb_undo_log_between(&past, 1, UINT64_MAX), 2);
	assert_int_equal(cb_undo_log_between(&past, 3, UINT64_MAX), 0);
	expect_undo(2, "[6]", 6, 6, 1);
	assert_int_equal(latest(1), 2);
	add("\"d\"", 7);
	assert_int_equal(cb_undo_log_between(&past, 1, UINT64_MAX), 2);
	expect_undo(1, "[5,7]", 5, 7, 2); /* 6 was told before */
	expect_undo(1, "[]", 0, 0, 0);
	assert_int_equal(latest(1), 1);
	assert_int_equal(latest(2), 0);
}

/* Two cells, of which the second is undone: how many were live after each. */
static void one_undone(struct cb_undo_log_count *ret_first, struct cb_undo_log_count *ret_second)
{
	add("\"a\"", 1);
	*ret_first = past.live;
	add("\"b\"", 2);
	*ret_second = past.live;
	cb_undo_log_undo(&past, 1, ret_first);
}

/* Back to a state that was made after another one was: what that has is not undone any more. */
static void test_back_to_what_was_undone(void **state)
{
	struct cb_undo_log_count early, late;

	(void)state;
	one_undone(&early, &late);
	assert_int_equal(latest(1), 1);
	assert_int_equal(latest(2), 0);
	add("\"c\"", 3);
	cb_undo_log_undo(&past, 2, &late);
	assert_int_equal(latest(1), 2);
	assert_int_equal(latest(2), 1);
	assert_int_equal(cb_undo_log_between(&past, 0, 2), 1);
	early.undone = past.live.undone; /* a copy that was made since: what is undone stays so */
	add("\"d\"", 4);
	cb_undo_log_undo(&past, 3, &past.live);
	assert_int_equal(latest(1), 2);
}

/* Two lines from the first cell on: each has a cell that the other has not. Oftener to and fro than is kept in mind. */
static void test_between_lines(void **state)
{
	struct cb_undo_log_count first, one, other;
	struct cb_undo_log_undone u;

	(void)state;
	one_undone(&first, &one);
	add("\"c\"", 3);
	other = past.live;
	for (int i = 0; i < 2 * CB_UNDO_LOG_TURNS; i++) {
		assert_int_equal(cb_undo_log_after(&past, 2, &one, &text, &u), 0);
		expect_text("[3]");
		assert_true(u.n.cells == 1 && u.aside == 0 && u.first == 3 && u.untold == 0);
		cb_undo_log_undo(&past, 2, &one);
		assert_int_equal(latest(1), 2);
		assert_int_equal(cb_undo_log_after(&past, 3, &other, &text, &u), 0);
		expect_text("[2]");
		assert_true(u.n.cells == 1 && u.aside == 1 && u.first == 0 && u.untold == 0);
		cb_undo_log_undo(&past, 3, &other);
		assert_int_equal(latest(1), 3);
		assert_int_equal(latest(2), 1);
	}
}

/* Others ran beside it, and a point was made: what it did before that is there, what it did after that is not. */
static void test_part_of_a_cell(void **state)
{
	struct cb_undo_log_count point;
	struct cb_undo_log_undone u;
	uint64_t at, beside;

	(void)state;
	add("\"a\"", 1);
	add("\"b\"", 2);
	beside = past.last;
	cb_undo_log_runs(&past, 2);
	add("\"c\"", 3);
	add("\"silent\"", 0);
	cb_undo_log_runs(&past, 0);
	at = past.last;
	point = cb_undo_log_point(&past);
	assert_true(point.cells == 2 && point.unnumbered == 0);
	cb_undo_log_ended(&past, at, 0);
	add("\"d\"", 4);
	cb_undo_log_forget(&past, at, past.live.undone); /* what is gone back to keeps what ran then */
	cb_undo_log_ended(&past, beside, 2);
	assert_true(past.last > at && past.running.cells == 0 && past.running.unnumbered == 0);
	assert_int_equal(cb_undo_log_after(&past, at, &point, &text, &u), 0);
	expect_text("[2,4]");
	assert_true(u.n.cells == 2 && u.n.unnumbered == 1 && u.untold == 0);
	assert_true(u.partly == 1 && u.partly_last == 2 && u.first == 4 && u.last == 4);
	expect_sources(at, 3, "{\"undone\":[{\"number\":2,\"code\":\"b\"},{\"number\":4,\"code\":\"d\"}]}");
	cb_undo_log_undo(&past, at, &point);
	assert_int_equal(cb_undo_log_after(&past, at, &point, &text, &u), 0);
	expect_text("[]");
	assert_true(u.n.cells == 0 && u.partly == 0);
	assert_int_equal(latest(1), 3);
	/* its end comes when the log has been given up with its Python */
	cb_undo_log_release(&past);
	cb_undo_log_ended(&past, beside, 2);
	assert_true(past.running.cells == 0);
}

/* For In: what was undone before is among them. */
static void test_sources(void **state)
{
	(void)state;
	add("\"a\"", 1);
	add("\"b\\n\"", 2);
	cb_undo_log_add(&past, (struct cb_span){ NULL, 0 }, 3);
	expect_undo(1, "[2,3]", 2, 3, 2);
	expect_sources(1, 1, "{\"undone\":[{\"number\":2,\"code\":\"b\\n\"},{\"number\":3,\"code\":\"\"}]}");
}

/* A branch was made after the first cell, and has counted to 2: its In has a cell of its own there. */
static void test_sources_of_another_line(void **state)
{
	(void)state;
	add("\"a\"", 1);
	add("\"b\"", 2);
	add("\"c\"", 3);
	expect_sources(1, 2, "{\"undone\":[{\"number\":3,\"code\":\"c\"}]}");
	expect_sources(1, 3, "{\"undone\":[]}");
}

/* A comm message, a cell that is not stored: it counts as a change, but has no number to be told. */
static void test_without_a_number(void **state)
{
	(void)state;
	add("\"a\"", 1);
	cb_undo_log_add(&past, (struct cb_span){ NULL, 0 }, 0);
	assert_int_equal(past.last, 2);
	assert_int_equal(latest(1), 1);
	expect_undo(0, "[1]", 1, 1, 1);
}

/* But it is counted, of each kind. */
static void test_counts(void **state)
{
	struct cb_undo_log_count before = past.live;
	struct cb_undo_log_undone u;

	(void)state;
	add("\"a\"", 1);
	add("\"silent\"", 0);
	for (int i = 0; i < 3; i++)
		cb_undo_log_add(&past, (struct cb_span){ NULL, 0 }, 0);
	assert_int_equal(cb_undo_log_after(&past, 0, &before, &text, &u), 0);
	expect_text("[1]");
	assert_true(u.n.cells == 1 && u.n.unnumbered == 1 && u.n.messages == 3 && u.untold == 0);
	cb_undo_log_undo(&past, 0, &before);
	assert_int_equal(cb_undo_log_after(&past, 0, &before, &text, &u), 0);
	assert_true(u.n.cells == 0 && u.n.unnumbered == 0 && u.n.messages == 0);
}

static void message(void)
{
	cb_undo_log_add(&past, (struct cb_span){ NULL, 0 }, 0);
}

/* They are counted one by one as well where there are two lines, each with some that the other has not. */
static void test_counts_between_lines(void **state)
{
	struct cb_undo_log_count early = cb_undo_log_point(&past), late;
	struct cb_undo_log_undone u;
	uint64_t at;

	(void)state;
	add("\"silent\"", 0);
	for (int i = 0; i < 1000; i++)
		message();
	late = cb_undo_log_point(&past);
	at = past.last;
	message();
	assert_int_equal(past.last, 1002);
	assert_int_equal(past.count, 3); /* a crowd is one, but where a point lies in it */
	assert_int_equal(cb_undo_log_after(&past, at, &late, &text, &u), 0);
	assert_true(u.n.unnumbered == 0 && u.n.messages == 1);
	cb_undo_log_undo(&past, 0, &early);
	message();
	add("\"silent\"", 0);
	cb_buf_clear(&text);
	assert_int_equal(cb_undo_log_after(&past, at, &late, &text, &u), 0);
	expect_text("[]");
	assert_true(u.n.cells == 0 && u.n.unnumbered == 1 && u.n.messages == 1);
	cb_undo_log_undo(&past, at, &late);
	assert_int_equal(cb_undo_log_after(&past, 0, &early, &text, &u), 0);
	assert_true(u.n.unnumbered == 1 && u.n.messages == 1000);
	assert_int_equal(latest(1), 0);
	expect_text("[]");
	expect_sources(0, 0, "{\"undone\":[]}");
}

/* More than are known one by one: the youngest are told, how many there are is right, and the first is not guessed. */
static void test_very_many(void **state)
{
	struct cb_undo_log_count before = past.live;
	struct cb_undo_log_undone u;
	const int many = 3 * CB_UNDO_LOG_MAX;

	(void)state;
	for (int i = 1; i <= many; i++)
		add("\"a\"", i);
	assert_int_equal(cb_undo_log_after(&past, 0, &before, &text, &u), 0);
	assert_int_equal(u.n.cells, many);
	assert_int_equal(u.untold, many - CB_UNDO_LOG_TOLD);
	assert_int_equal(u.first, 0);
	assert_int_equal(u.last, many);
	assert_true(text.len < 16 * CB_UNDO_LOG_TOLD);
	cb_buf_clear(&text);
	before = past.live;
	add("\"a\"", many + 1);
	assert_int_equal(cb_undo_log_after(&past, past.last - 1, &before, &text, &u), 0);
	expect_text("[300001]");
	assert_true(u.first == many + 1 && u.n.cells == 1 && u.untold == 0);
}

static void test_forget(void **state)
{
	(void)state;
	add("\"a\"", 1);
	add("\"b\"", 2);
	add("\"c\"", 3);
	cb_undo_log_forget(&past, 2, past.live.undone);
	assert_int_equal(past.count, 1);
	assert_int_equal(past.bytes, 3);
	expect_undo(0, "[3]", 3, 3, 1);
	cb_undo_log_release(&past);
	assert_int_equal(past.last, 3); /* numbers of cells are never used twice */
	assert_int_equal(past.bytes, 0);
}

/* One that was undone stays as long as there is a state that has it. */
static void test_forget_what_was_undone(void **state)
{
	struct cb_undo_log_count early, late;

	(void)state;
	one_undone(&early, &late);
	add("\"c\"", 3);
	cb_undo_log_forget(&past, 3, 0);
	assert_int_equal(past.count, 2);
	cb_undo_log_forget(&past, 3, 1);
	assert_int_equal(past.count, 0);
}

static void expect_untold(uint64_t cell, const struct cb_undo_log_count *live, const char *wanted, size_t count)
{
	struct cb_undo_log_undone u;

	assert_int_equal(cb_undo_log_untold(&past, cell, live, &text, &u), 0);
	expect_text(wanted);
	assert_int_equal(u.n.cells, count);
	assert_int_equal(u.untold, 0);
}

/* What nobody was told of goes with what is undone next, unless that brings it back. */
static void test_told_later(void **state)
{
	struct cb_undo_log_count early, late;

	(void)state;
	past.untold = 1;
	one_undone(&early, &late);
	early.undone = past.live.undone;
	add("\"c\"", 3);
	expect_untold(2, &early, "[2,3]", 2);
	expect_undo(2, "[3]", 3, 3, 1);
	expect_untold(2, &late, "[3]", 1);
	cb_undo_log_forget(&past, 3, past.live.undone);
	assert_int_equal(past.count, 2);
	past.untold = past.live.undone + 1;
	expect_untold(3, &past.live, "[]", 0);
	cb_undo_log_forget(&past, 3, past.live.undone);
	assert_int_equal(past.count, 0);
}

/* What ran in a branch has run in the line that goes on with it. */
static void test_joined(void **state)
{
	struct cb_undo_log other = { 0 };
	struct cb_undo_log_count before;
	struct cb_undo_log_undone u;

	(void)state;
	add("\"a\"", 1);
	before = cb_undo_log_point(&past);
	cb_undo_log_add(&other, CB_SPAN("\"b\""), 2);
	cb_undo_log_add(&other, CB_SPAN("\"c\""), 0);
	cb_undo_log_add(&other, (struct cb_span){ NULL, 0 }, 0);
	cb_undo_log_add(&other, (struct cb_span){ NULL, 0 }, 0);
	other.live.cells += 7; /* forgotten */
	cb_undo_log_join(&past, &other);
	cb_undo_log_release(&other);
	assert_int_equal(latest(1), 2);
	expect_sources(1, 1, "{\"undone\":[{\"number\":2,\"code\":\"b\"}]}");
	assert_int_equal(cb_undo_log_after(&past, 1, &before, &text, &u), 0);
	expect_text("[2]");
	assert_int_equal(u.n.cells, 8);
	assert_int_equal(u.n.messages, 2);
	assert_int_equal(u.n.unnumbered, 1);
	assert_int_equal(u.untold, 7);
	assert_int_equal(past.count, 4);
	cb_undo_log_add(&past, (struct cb_span){ NULL, 0 }, 0); /* none of those */
	assert_int_equal(past.count, 5);
}

static void test_bound_of_sources(void **state)
{
	size_t size = CB_UNDO_LOG_BYTES_MAX / 3;
	char *code = test_malloc(size + CB_UNDO_LOG_BYTES_MAX);

	(void)state;
	memset(code, ' ', size + CB_UNDO_LOG_BYTES_MAX);
	for (int i = 1; i <= 4; i++)
		cb_undo_log_add(&past, (struct cb_span){ code, size }, i);
	assert_true(past.bytes <= CB_UNDO_LOG_BYTES_MAX);
	assert_null(past.item[0].code); /* the oldest went */
	assert_non_null(past.item[1].code);
	cb_undo_log_add(&past, (struct cb_span){ code, CB_UNDO_LOG_BYTES_MAX + 1 }, 5);
	assert_null(past.item[4].code);
	assert_int_equal(past.item[4].len, 0);
	assert_non_null(past.item[1].code);
	expect_undo(0, "[1,2,3,4,5]", 1, 5, 5);
	test_free(code);
}

static void test_bound_of_cells(void **state)
{
	(void)state;
	for (int i = 1; i <= CB_UNDO_LOG_MAX + 10; i++)
		add("\"\"", i);
	assert_true(past.count <= CB_UNDO_LOG_MAX);
	assert_int_equal(past.item[past.count - 1].number, CB_UNDO_LOG_MAX + 10);
	assert_true(past.item[0].number > 1);
	for (size_t i = 1; i < past.count; i++)
		assert_int_equal(past.item[i].cell, past.item[i - 1].cell + 1);
}

/* What has no number gives way to what has one, and is counted all the same; a subshell's may run then. */
static void test_bound_without_numbers(void **state)
{
	struct cb_undo_log_count before = past.live;
	struct cb_undo_log_undone u;
	uint64_t beside;

	(void)state;
	add("\"a\"", 1);
	add("\"silent\"", 0);
	beside = past.last;
	cb_undo_log_runs(&past, 0);
	for (int i = 0; i < CB_UNDO_LOG_MAX / 2; i++) {
		add("\"silent\"", 0);
		message();
	}
	add("\"b\"", 2);
	cb_undo_log_ended(&past, beside, 0);
	assert_int_equal(past.running.unnumbered, 0);
	assert_true(past.count <= CB_UNDO_LOG_MAX);
	assert_int_equal(latest(2), 1);
	assert_int_equal(cb_undo_log_after(&past, 0, &before, &text, &u), 0);
	expect_text("[1,2]");
	assert_true(u.n.cells == 2 && u.first == 1 && u.last == 2 && u.untold == 0);
	assert_true(u.n.unnumbered == CB_UNDO_LOG_MAX / 2 + 1 && u.n.messages == CB_UNDO_LOG_MAX / 2);
}

/* The buffer's bound is an error, and all the same what is gone is gone. */
static void test_no_room_for_numbers(void **state)
{
	struct cb_buf small = CB_BUF_INIT(8);
	struct cb_undo_log_count before = past.live;
	struct cb_undo_log_undone u;

	(void)state;
	for (int i = 1; i <= 9; i++)
		add("\"\"", i);
	assert_true(cb_undo_log_after(&past, 0, &before, &small, &u) < 0);
	assert_int_equal(u.n.cells, 9);
	assert_int_equal(latest(1), 9);
	cb_undo_log_undo(&past, 0, &before);
	assert_int_equal(latest(1), 0);
	cb_buf_release(&small);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_empty),
		T(test_undone_once),
		T(test_sources),
		T(test_sources_of_another_line),
		T(test_without_a_number),
		T(test_counts),
		T(test_counts_between_lines),
		T(test_very_many),
		T(test_forget),
		T(test_forget_what_was_undone),
		T(test_told_later),
		T(test_joined),
		T(test_bound_of_sources),
		T(test_bound_of_cells),
		T(test_bound_without_numbers),
		T(test_no_room_for_numbers),
		T(test_back_to_what_was_undone),
		T(test_part_of_a_cell),
		T(test_between_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
