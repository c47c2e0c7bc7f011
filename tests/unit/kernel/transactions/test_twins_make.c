/* Making twins of a Python that is not read, that does not take what it is sent, or that can't be sent anything. */
#include "rig_twins.h"

#include <cellblock/fd.h>
#include <string.h>
#include <sys/socket.h>

static bool is_answered(struct rig *r)
{
	return !r->k.transactions.twins.asked;
}

static bool is_let_go(struct rig *r)
{
	return r->k.guest.python.signals > 0;
}

static bool a_cell_waits(struct rig *r)
{
	return r->k.shells.execution.shell.waiting.head != NULL;
}

/* Asked for behind an answered cell, of which a thread prints more than clients take. */
static struct rig_twin asked_behind_slow_clients(struct rig *r)
{
	rig_cell(r, "a");
	struct rig_twin t = rig_twin_asked(r);

	rig_congest(r, true);
	return t;
}

/* Its answer is there. Who interrupts is not taken for one who waits in vain, and the answered cell is not undone. */
static void test_an_interrupt_behind_slow_clients(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin first = rig_twin(r), t = asked_behind_slow_clients(r);
	struct cb_transactions *tx = &r->k.transactions;

	rig_twin_comes(r, &t, RIG_MADE);
	for (int i = 0; i < 20; i++)
		rig_until_soon(r);
	assert_true(tx->twins.asked);
	cb_twins_interrupt(tx);
	rig_until(r, is_answered);
	tx->twins.interrupted_at -= CB_DOUBLE_CLICK;
	cb_twins_interrupt(tx);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	rig_congest(r, false); /* the interrupt is over */
	rig_until(r, rig_none_coming);
	rig_twin_close(&first);
	rig_twin_close(&t);
}

/* A cell waits. That Python is held up is said of it when it was heard all the time. */
static void test_held_up_by_slow_clients(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin first = rig_twin(r), t = asked_behind_slow_clients(r);
	struct cb_twins *w = &r->k.transactions.twins;
	const char *id = rig_execute(r, "b");

	rig_until(r, a_cell_waits);
	w->silent_ns -= 3 * 1000000000LL;
	rig_twin_overdue(r);
	rig_until(r, is_let_go);
	assert_false(w->slow_told);
	rig_congest(r, false);
	rig_expect(r, RIG_IOPUB, "busy", id);
	cb_twins_let_go(&r->k.transactions);
	assert_false(w->slow_told); /* not at once */
	w->silent_ns -= 3 * 1000000000LL;
	cb_twins_let_go(&r->k.transactions);
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", id);

	assert_non_null(strstr(rig_text(&m, "text"), "is held up"));
	rig_msg_free(&m);
	rig_twin_close(&first);
	rig_twin_close(&t);
}

/* Its descriptors stay in flight, whatever it says that it has tried. */
static void test_births_that_are_not_taken(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);

	for (int i = 0; i < 3; i++) {
		rig_frame(r, CB_WIRE_CHECKPOINT_REPLY, rig_guest_expect(r, CB_WIRE_CHECKPOINT),
			  "{\"status\":\"error\",\"ename\":\"TimeoutError\",\"evalue\":\"they go on\"}");
		rig_until(r, rig_none_coming);
		assert_int_equal(r->k.transactions.twins.failures, i + 1);
		assert_int_equal(r->k.transactions.twins.again_ns, 0);
		if (i < 2)
			rig_cell(r, "a");
	}
	assert_false(r->k.transactions.twins.possible);
	assert_non_null(strstr(r->k.shells.execution.note, "not kept any more"));
}

/* The same of births that are looked at (MSG_PEEK), of which a twin comes. */
static void test_births_that_are_left_in_flight(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin first = rig_twin(r), t[3];
	char left;

	for (unsigned i = 0; i < 3; i++) {
		rig_cell(r, "a");
		t[i] = rig_twin_asked(r);
		assert_int_equal(send(r->k.guest.python.twin_control, "x", 1, MSG_NOSIGNAL), 1);
		rig_twin_comes(r, &t[i], RIG_MADE);
		rig_until(r, rig_none_coming);
		if (i > 0) /* two are kept */
			rig_init_expect(r, CB_INIT_DROP, (int)(i == 1 ? first : t[0]).number);
		assert_int_equal(r->k.transactions.twins.failures, i + 1);
		assert_int_equal(recv(r->twin_control, &left, 1, MSG_DONTWAIT), 1);
	}
	assert_false(r->k.transactions.twins.possible);
	assert_non_null(strstr(r->k.shells.execution.note, "does not take what it is sent"));
	rig_twins_close(t, 3);
	rig_twin_close(&first);
}

static void fill(int control)
{
	while (send(control, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
}

/* The last cell was without a net: the next one says so. */
static void test_a_control_socket_that_is_full(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin first = rig_twin(r);

	fill(r->k.guest.python.twin_control);
	rig_cell(r, "a");
	rig_init_expect(r, CB_INIT_TWIN, (int)first.number + 1);
	rig_init_expect(r, CB_INIT_DROP, (int)first.number + 1);
	assert_non_null(strstr(r->k.shells.execution.note,
			       "no copy of the state could be made (Resource temporarily unavailable)"));
	rig_twin_close(&first);
}

/* Clients ask for copies of a state that takes nothing: it is sent none. */
static void test_a_state_that_takes_nothing(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin first = rig_twin(r);
	const char *id = rig_send(r, RIG_CONTROL, "cellblock_checkpoint_request", "{\"name\":\"a\"}", NULL);
	struct rig_twin named = rig_twin(r);
	int control = cb_twins_named(&r->k.transactions, "a")->ends.twin_control;

	rig_expect(r, RIG_CONTROL, "cellblock_checkpoint_reply", id);
	assert_int_equal(send(control, "x", 1, MSG_NOSIGNAL), 1);
	id = rig_send(r, RIG_CONTROL, "cellblock_rollback_request", "{\"name\":\"a\"}", NULL);
	rig_expect_error(r, RIG_CONTROL, "cellblock_rollback_reply", id, "CheckpointError",
			 "the checkpoint could not be restored");
	rig_twin_close(&first);
	rig_twin_close(&named);
}

/* What it was to be asked finds no room: it has not been asked, and the next cell runs. */
static void test_a_question_that_is_not_sent(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin first = rig_twin(r), t = { .fd = { -1, -1, -1, -1, -1 } };
	struct cb_buf *tx = &r->k.guest.python.link.tx;
	struct cb_twin_control_msg m;
	size_t max = tx->max, n = 0;
	uint64_t request;
	const char *id = rig_begin(r, "a", &request);

	cb_buf_release(tx);
	tx->max = 1;
	rig_end(r, id, request);
	rig_init_expect(r, CB_INIT_TWIN, (int)first.number + 1);
	rig_init_expect(r, CB_INIT_DROP, (int)first.number + 1);
	assert_int_equal(r->k.guest.python.rules.phase, CB_PHASE_IDLE);
	assert_int_equal(r->k.transactions.twins.failures, 1); /* what was sent before it lies there */
	tx->max = max;
	assert_int_equal(cb_fd_recv(r->twin_control, &m, sizeof(m), t.fd, CB_BIRTH_NFDS, &n, MSG_DONTWAIT), sizeof(m));
	rig_twin_close(&t);
	id = rig_execute(r, "b");
	t = rig_twin(r); /* for it */
	rig_end(r, id, rig_begun(r, id));
	assert_true(r->k.transactions.twins.possible);
	rig_twin_close(&first);
	rig_twin_close(&t);
}

/* It reads nothing, and guesses what it is to answer. */
static void test_births_without_questions(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin first = rig_twin(r);
	struct cb_buf *tx = &r->k.guest.python.link.tx;
	size_t max = tx->max;

	for (int i = 0; i < 3; i++) {
		uint64_t request;
		const char *id = rig_begin(r, "a", &request);

		assert_true(r->k.transactions.twins.possible);
		cb_buf_release(tx);
		tx->max = 1;
		rig_end(r, id, request);
		rig_barrier(r);
		tx->max = max;
		r->k.transactions.twins.stale = false; /* the next cell asks for none */
	}
	assert_false(r->k.transactions.twins.possible);
	rig_twin_close(&first);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_an_interrupt_behind_slow_clients),
		T(test_held_up_by_slow_clients),
		T(test_births_that_are_not_taken),
		T(test_births_that_are_left_in_flight),
		T(test_a_control_socket_that_is_full),
		T(test_a_state_that_takes_nothing),
		T(test_a_question_that_is_not_sent),
		T(test_births_without_questions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
