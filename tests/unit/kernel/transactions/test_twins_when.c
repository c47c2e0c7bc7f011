/* When a twin is made, of a guest that works between cells or could not be copied; and which ones go for it. */
#include "rig_twins.h"

/* A cell begins at once, for the newest twin has all that there is; and the one that is made behind it. */
static struct rig_twin cell_at_once(struct rig *r)
{
	rig_cell(r, "a");
	return rig_twin(r);
}

/* A cell that waits for a twin, which takes the place of the one before it. */
static struct rig_twin cell_behind_one(struct rig *r, const struct rig_twin *before)
{
	const char *id = rig_execute(r, "a");
	struct rig_twin t = rig_twin(r);

	rig_init_expect(r, CB_INIT_DROP, (int)before->number);
	rig_end(r, id, rig_begun(r, id));
	return t;
}

/* What threads and tasks have done since the newest one is in another one, before the next cell. That takes the place
 * of the newest: states from before other cells are as many as they were. */
static void test_work_between_cells(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t[4] = { rig_twin(r) };

	rig_twin_rested(r);
	t[1] = cell_at_once(r);
	rig_twin_rested(r);
	r->worked_ns++;
	t[2] = cell_behind_one(r, &t[1]);
	t[3] = rig_twin(r);
	rig_init_expect(r, CB_INIT_DROP, (int)t[0].number);
	rig_init_silent(r);
	rig_twins_close(t, 4);
}

/* It puts its pages in order behind each, which is no work of a cell's. */
static void test_what_a_copy_costs_is_no_work(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t[3] = { rig_twin(r) };

	r->worked_ns++;
	t[1] = cell_at_once(r);
	r->worked_ns++;
	rig_twin_rested(r);
	t[2] = cell_at_once(r);
	rig_twins_close(t, 3);
}

/* Where one is dear it is made in pauses only. */
static void test_work_where_a_twin_is_dear(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r);
	uint64_t request;

	rig_twins_dear(r);
	rig_twin_rested(r);
	r->worked_ns++;
	(void)rig_begin(r, "a", &request);
	rig_twin_close(&first);
}

static bool is_answered(struct rig *r)
{
	return !r->k.transactions.twins.asked;
}

enum failure { REFUSED, NOT_BORN, ENDED, FAILURES };

static void fails(struct rig *r, struct rig_twin *t, enum failure how)
{
	if (how == ENDED) {
		rig_twin_close(t);
		rig_init_expect(r, CB_INIT_DROP, (int)t->number);
	}
	rig_twin_answered(r, t,
			  how == REFUSED ? "{\"status\":\"error\",\"ename\":\"OSError\",\"evalue\":\"no room\"}"
					 : RIG_MADE);
	rig_until(r, is_answered);
	if (how == NOT_BORN)
		rig_twin_overdue(r);
	if (how != ENDED)
		rig_init_expect(r, CB_INIT_DROP, (int)t->number);
	rig_until(r, rig_none_coming);
}

/* A while later there may be room for it: the next cell has it tried again. It is the same state's, and counts once. */
static void test_one_that_failed_a_while_ago(void **state)
{
	for (enum failure how = REFUSED; how < FAILURES; how++) {
		struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
		const struct cb_twins *w = &r->k.transactions.twins;
		struct rig_twin t[4] = { rig_twin(r) };

		rig_cell(r, "a");
		t[1] = rig_twin_asked(r);
		fails(r, &t[1], how);
		rig_twin_rested(r);
		const char *id = rig_execute(r, "b");

		t[2] = rig_twin_asked(r);
		fails(r, &t[2], how);
		assert_int_equal(w->failures, 1);
		rig_end(r, id, rig_begun(r, id));
		t[3] = rig_twin(r);
		assert_int_equal(w->failures, 0);
		rig_init_silent(r);
		rig_twins_close(t, 4);
		rig_teardown(state);
	}
	*state = NULL;
}

static struct rig_twin silent_cell(struct rig *r)
{
	const char *id = rig_send(r, RIG_SHELL, "execute_request", "{\"code\":\"a\",\"silent\":true}", NULL);

	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_end(r, id, rig_guest_expect(r, CB_WIRE_EXECUTE));
	return rig_twin(r);
}

/* Nobody can ask to go back to between two cells with a number: of the states there the older ones go first, and the
 * one from before the last such cell is kept. There are no fewer states for that. */
static void test_states_between_numbers(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t[6] = { rig_twin(r) };

	t[1] = silent_cell(r);
	rig_init_silent(r);
	t[2] = silent_cell(r);
	rig_init_expect(r, CB_INIT_DROP, (int)t[0].number);
	t[3] = cell_at_once(r);
	rig_init_expect(r, CB_INIT_DROP, (int)t[1].number);
	t[4] = silent_cell(r);
	rig_init_expect(r, CB_INIT_DROP, (int)t[3].number);
	t[5] = silent_cell(r);
	rig_init_expect(r, CB_INIT_DROP, (int)t[4].number);
	rig_init_silent(r);
	rig_twins_close(t, 6);
}

/* One that fails is tried again by the next cell's, not at once: what kept it from being made is there still. */
static void test_one_that_fails(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t[2] = { rig_twin(r) };
	uint64_t request;
	const char *id;

	rig_twin_rested(r);
	id = rig_begin(r, "a", &request);
	r->worked_ns++;
	rig_end(r, id, request);
	t[1] = rig_twin_asked(r);
	id = rig_execute(r, "b");
	rig_twin_answered(r, &t[1], "{\"status\":\"error\",\"ename\":\"OSError\",\"evalue\":\"no room\"}");
	(void)rig_begun(r, id);
	rig_twins_close(t, 2);
}

/* And are busy meanwhile: clients would take an earlier idle for their end. */
static void test_cells_wait_for_it(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin_asked(r);
	const char *id = rig_execute(r, "a");
	uint64_t g;

	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_barrier(r);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_twin_answered(r, &t, RIG_MADE);
	rig_twin_says(&t, CB_TWIN_CONTROL_BORN, t.number);
	rig_barrier(r);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_twin_registers(r, &t);
	rig_expect(r, RIG_IOPUB, "execute_input", id);
	g = rig_guest_expect(r, CB_WIRE_EXECUTE);
	rig_end(r, id, g);
	rig_twin_close(&t);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_work_between_cells),
		T(test_what_a_copy_costs_is_no_work),
		T(test_work_where_a_twin_is_dear),
		T(test_one_that_fails),
		T(test_cells_wait_for_it),
		T(test_one_that_failed_a_while_ago),
		T(test_states_between_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
