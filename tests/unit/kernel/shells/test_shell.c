/* One shell alone: every request that was begun ends once, with its reply and idle, whatever comes in whatever order;
 * all of a cell comes before its reply. */
#include "shell_alone.h"

static void test_cell(void **state)
{
	(void)state;
	s->answer_by = 1; /* of what ran before */
	s->ask_again = 2;
	begins(CB_REQUEST_EXECUTE, 0);
	assert_true(s->answer_by == 0 && s->ask_again == 0 && arms > 0);
	assert_string_equal(sent_about, "{\"lane\":0,\"execution_count\":1,\"silent\":false,\"store_history\":true,"
					"\"allow_stdin\":true,\"cell_id\":null,\"memory\":0,\"value\":false,"
					"\"header\":null,\"more\":true}");
	assert_int_equal(count, 1);
	answers(last_id + 1, "\"ok\"", ""); /* another's */
	answers(0, "\"ok\"", "");
	expect("");
	arms = 0;
	answers(last_id, "\"ok\"", "");
	expect("drain ok flush reply ending idle done ");
	assert_true(s->current == NULL && arms > 0);
	assert_int_equal(replied_count, 1);
	is_over(0, 1);
	answers(last_id, "\"ok\"", ""); /* once more */
	expect("");
	is_over(0, 1);
}

static void test_not_stored(void **state)
{
	struct cb_request *r = fresh(CB_REQUEST_EXECUTE);

	(void)state;
	count = 4;
	r->execute.store_history = false;
	r->execute.silent = true;
	cb_shell_begin(s, r);
	expect("begun send busy told ");
	assert_int_equal(count, 4);
	assert_non_null(strstr(sent_about, "\"execution_count\":5,\"silent\":true,"));
	answers(last_id, "\"ok\"", "");
	assert_int_equal(replied_count, 4);
}

static void test_not_sent(void **state)
{
	(void)state;
	up = false;
	cb_shell_begin(s, fresh(CB_REQUEST_EXECUTE));
	expect("begun busy execute_input told no-python ending idle done ");
	up = true;
	send_result = CB_E_TOO_BIG;
	cb_shell_begin(s, fresh(CB_REQUEST_COMPLETE));
	expect("send busy unsent ending idle done ");
	log_gone = true;
	cb_shell_begin(s, fresh(CB_REQUEST_EXECUTE));
	expect("no-log ");
	for (unsigned i = 0; i < 3; i++)
		is_over(i, 1);
	assert_null(s->current);
}

/* Python is not given it: who began it answers. */
static void test_begun_here(void **state)
{
	(void)state;
	cb_shell_begin_here(s, fresh(CB_REQUEST_CHECKPOINT));
	expect("busy ");
	assert_ptr_equal(s->current, &request[0]);
	cb_shell_finish(s);
	expect("ending idle done ");
	is_over(0, 0);
}

static void test_questions(void **state)
{
	const char *reason = NULL;

	(void)state;
	begins(CB_REQUEST_COMPLETE, 0);
	assert_int_equal(cb_shell_answer(s, frame_of(CB_WIRE_INSPECT_REPLY, last_id), &reason), CB_E_DENIED);
	assert_non_null(reason);
	expect("");
	assert_int_equal(cb_shell_answer(s, frame_of(CB_WIRE_COMPLETE_REPLY, last_id), &reason), 0);
	expect("flush reply ending idle done ");
	is_over(0, 1);
	assert_int_equal(cb_shell_answer(s, frame_of(CB_WIRE_COMPLETE_REPLY, last_id), &reason), CB_E_DENIED);
	begins(CB_REQUEST_COMM_MSG, 0);
	answers(last_id, "", "");
	expect("drain flush ending idle done ");
	is_over(1, 0);
	begins(CB_REQUEST_INSPECT, 0); /* it was answered with an error, and idle said */
	s->stale = true;
	assert_int_equal(cb_shell_answer(s, frame_of(CB_WIRE_INSPECT_REPLY, last_id), &reason), 0);
	expect("flush ending done ");
	assert_int_equal(seen[2].frees, 1);
}

static void test_failed(void **state)
{
	(void)state;
	begins(CB_REQUEST_EXECUTE, 0);
	assert_true(cb_shell_take(s, fresh(CB_REQUEST_EXECUTE)));
	fails_with(last_id + 1, "\"E\"");
	expect("drain dropped-if-over ");
	fails_with(last_id, "\"E\"");
	fails_with(last_id, "\"E\""); /* only how it ends passes a limit of output */
	expect("drain error drain dropped-if-over ");
	answers(last_id, "\"error\"", "\"E\"");
	expect("drain abort failed flush reply ending idle aborted done ");
	is_over(0, 1);
	is_over(1, 1);
	begins(CB_REQUEST_EXECUTE, 0)->execute.stop_on_error = false;
	answers(last_id, "\"error\"", "\"E\"");
	expect("drain failed flush reply ending idle done ");
}

/* What is taken in with a failure ends its Python, at once or soon. */
static void test_failed_and_dies(void **state)
{
	(void)state;
	begins(CB_REQUEST_EXECUTE, 0);
	on_abort = dies;
	answers(last_id, "\"error\"", "\"E\"");
	expect("drain abort abort died ending idle aborted done ");
	is_over(0, 1);
	begins(CB_REQUEST_EXECUTE, 0);
	on_abort = stopped;
	answers(last_id, "\"error\"", "\"E\"");
	expect("drain abort ");
	assert_int_equal(seen[1].replies, 0);
	dies();
	is_over(1, 1);
}

static void test_deferred(void **state)
{
	(void)state;
	begins(CB_REQUEST_EXECUTE, 0);
	deferred = true;
	answers(last_id, "\"ok\"", "");
	expect("drain ");
	assert_ptr_equal(s->current, &request[0]);
	deferred = false;
	answers(last_id, "\"ok\"", "");
	is_over(0, 1);
}

static void test_died(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		begins(i == 0 ? CB_REQUEST_EXECUTE : CB_REQUEST_COMPLETE, i == 0 ? 1 : 0)->execute.cpu = 1;
		cb_shell_interrupt(s, true);
		assert_int_equal(asks_user(), i == 0 ? 0 : CB_E_DENIED);
		expect(i == 0 ? "soft interrupt drain flush ask " : "soft interrupt ");
		cb_shell_stopped(s);
		assert_false(cb_shell_asks(s, s->current));
		assert_int_equal(due(), 0);
		cb_shell_interrupt(s, true);
		look_after(10 * SECOND, ""); /* no clock runs any more */
		dies();
		expect(i == 0 ? "abort died ending idle aborted done " : "died-asked ending idle done ");
		is_over((unsigned)i, 1);
	}
	begins(CB_REQUEST_EXECUTE, 0);
	s->answered = true;
	cb_shell_interrupt(s, true);
	dies();
	expect("ending idle done ");
	assert_int_equal(seen[2].replies, 0);
}

static void test_room(void **state)
{
	struct cb_request *large = fresh(CB_REQUEST_EXECUTE);

	(void)state;
	large->nframes = 1000; /* one alone may be as large */
	assert_true(cb_shell_take(s, large));
	assert_false(cb_shell_take(s, fresh(CB_REQUEST_EXECUTE)));
	assert_false(cb_shell_take_first(s, fresh(CB_REQUEST_EXECUTE)));
	expect("refused refused ");
	is_over(1, 1);
	is_over(2, 1);
	assert_ptr_equal(cb_shell_pop(s), large);
	assert_true(cb_shell_take(s, fresh(CB_REQUEST_EXECUTE)));
	assert_true(cb_shell_take_first(s, fresh(CB_REQUEST_EXECUTE)));
	assert_ptr_equal(s->waiting.head, &request[4]);
	assert_true(cb_shell_take(s, fresh(CB_REQUEST_EXECUTE)));
	assert_false(cb_shell_take(s, fresh(CB_REQUEST_EXECUTE)));
	expect("refused ");
	begins(CB_REQUEST_EXECUTE, 0);
	cb_shell_release(s);
	assert_true(load.count == 0 && load.bytes == 0 && s->current == NULL && s->waiting.head == NULL);
	for (unsigned i = 3; i < 8; i++)
		assert_int_equal(seen[i].frees, 1);
}

/* ---- whatever comes, in whatever order ---- */

/* What comes for the current one, as far as python/policy.c lets it: a cell's reply not while it asks. */
static void is_answered(const struct cb_request *r, unsigned dice)
{
	static const char *const status[] = { "\"ok\"", "\"error\"" };
	static const char *const ename[] = { "\"KeyboardInterrupt\"", "\"E\"" };
	const char *reason;

	if (dice % 2 == 0)
		fails_with(r->id, ename[dice / 2 % 2]);
	else if (r->kind == CB_REQUEST_COMPLETE && !s->over)
		(void)cb_shell_answer(s, frame_of(dice & 4 ? CB_WIRE_COMPLETE_REPLY : CB_WIRE_INSPECT_REPLY, r->id),
				      &reason);
	else if (r->kind != CB_REQUEST_COMPLETE && s->asked_at == 0)
		answers(r->id, status[dice / 2 % 2], ename[dice / 4 % 2]);
}

static void goes_on(unsigned dice)
{
	switch (dice % 8) {
	case 0:
	case 1:
		is_answered(s->current, dice / 8);
		break;
	case 2:
		if (s->asked_at == 0)
			(void)asks_user();
		else
			cb_shell_input(s, CB_SPAN("{}"));
		break;
	case 3:
		cb_shell_interrupt(s, dice & 16);
		break;
	case 4:
		if (!s->over)
			cb_shell_obeyed(s);
		break;
	case 5:
		if (dice & 8)
			cb_shell_stopped(s);
		else if (dice & 16)
			dies();
		break;
	default:
		now += (int64_t)(dice / 8 % 1024) * 3 * MS;
		cpu += (double)(dice % 3) / 2;
		cb_shell_look(s, now);
	}
}

static void step(unsigned dice)
{
	static const enum cb_request_kind kind[] = { CB_REQUEST_EXECUTE, CB_REQUEST_EXECUTE, CB_REQUEST_COMPLETE,
						     CB_REQUEST_COMM_MSG };

	if (made < REQUESTS && dice % 4 == 0) {
		struct cb_request *r = fresh(kind[dice / 4 % 4]);

		r->execute.timeout = dice / 16 % 4;
		r->execute.cpu = dice / 64 % 2;
		r->execute.stop_on_error = dice / 128 % 4 == 0;
		(void)(dice & 512 ? cb_shell_take(s, r) : cb_shell_take_first(s, r));
	} else if (s->current != NULL) {
		goes_on(dice / 4);
	} else if (s->waiting.head != NULL) {
		up = dice / 4 % 8 != 0;
		cb_shell_begin(s, cb_shell_pop(s));
	}
}

static void test_any_order(void **state)
{
	unsigned dice = 16;

	for (int round = 0; round < 300; round++) {
		set_up(state);
		policy.timeout_wait = round % 3;
		policy.timeout_grace = round % 2;
		policy.timeout_interrupt = round % 5;
		s->apart = round % 4 == 3;
		for (int i = 0; i < 300; i++) {
			dice = dice * 1103515245u + 12345u;
			step(dice >> 8);
			trace[0] = '\0';
			for (unsigned n = 0; n < made; n++) {
				bool over = seen[n].frees > 0;

				if (over)
					is_over(n, !seen[n].comm);
				assert_true(over || (seen[n].idles == 0 && seen[n].replies == 0 && seen[n].late == 0));
				assert_true(over || seen[n].busy == (s->current == &request[n]));
			}
		}
		cb_shell_release(s);
		assert_true(load.count == 0 && load.bytes == 0);
		for (unsigned n = 0; n < made; n++)
			assert_int_equal(seen[n].frees, 1);
	}
}

#define TEST(name) cmocka_unit_test_setup(test_##name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(cell),
		TEST(not_stored),
		TEST(not_sent),
		TEST(begun_here),
		TEST(questions),
		TEST(failed),
		TEST(failed_and_dies),
		TEST(deferred),
		TEST(died),
		TEST(room),
		TEST(any_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
