/* What cells ask for, %checkpoint and %rollback, with a pid 1 and a guest that the test plays: a cell is as hostile as
 * any guest, so what it asks for is bounded, and what is not made is told. */
#include "rig_twins.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void answer(struct rig *r, uint64_t request, const char *metadata)
{
	char body[1024];
	int n = snprintf(body, sizeof(body), "%s%s", RIG_OK, metadata);
	struct cb_wire_header h = { .type = CB_WIRE_EXECUTE_REPLY,
				    .content_len = (uint32_t)strlen(RIG_OK),
				    .metadata_len = (uint32_t)strlen(metadata),
				    .request = request };

	rig_frame_raw(r, &h, body, (size_t)n);
}

static const char *ended_cell(struct rig *r, const char *metadata)
{
	const char *id = rig_execute(r, "a");

	answer(r, rig_begun(r, id), metadata);
	return id;
}

static void expect_end(struct rig *r, const char *id)
{
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
}

/* What the dead one's cell had asked for is not made of the state that takes over. */
static void test_asked_for_by_the_dead(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r), next;
	uint64_t request;

	rig_twins_dear(r);
	const char *id = rig_begin(r, "last", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	rig_init_expect(r, CB_INIT_RESTORE, (int)first.number);
	answer(r, request, "{\"checkpoint\":[\"a\"]}");
	expect_end(r, id);
	next = rig_twin_copied(r, rig_twin_restored(r, &first));
	rig_barrier(r);
	assert_null(r->k.transactions.twins.coming);
	rig_cell_says(r, "%checkpoint a: not made, for Python ended before");
	rig_twin_close(&next);
}

/* Each is named, and told of once, with what the system said. */
static void test_asked_for_without_descriptors(void **state)
{
#define NO_FILES ": not made: no copy could be made (Too many open files)]\n"
	static const char words[] = "[cellblock: %checkpoint a" NO_FILES "[cellblock: %checkpoint b" NO_FILES;
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r);
	struct rlimit files, none;

	rig_twins_dear(r);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	none = files;
	none.rlim_cur = (rlim_t)dup(r->broker); /* the lowest that is free */
	close((int)none.rlim_cur);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	expect_end(r, ended_cell(r, "{\"checkpoint\":[\"a\",\"b\"]}"));
	rig_barrier(r);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	assert_string_equal(r->k.shells.execution.note, words);
	rig_twin_close(&first);
}

/* What a cell's metadata asks for is hostile: what is no name makes nothing, and there are so many at most. */
static void test_asked_by_cells(void **state)
{
	static const char *const odd[] = {
		"{\"checkpoint\":\"a\"}",
		"{\"checkpoint\":[1]}",
		"{\"checkpoint\":[]}",
		"{\"rollback\":7}",
	};
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r), a, b, beside;

	rig_twins_dear(r);
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		expect_end(r, ended_cell(r, odd[i]));
	assert_int_equal(r->k.transactions.checkpoints.nasked, 0);
	expect_end(r, ended_cell(r, "{\"checkpoint\":[\"a \\\"]\",\"b\",\"c\"]}"));
	a = rig_twin(r);
	b = rig_twin(r);
	assert_non_null(cb_twins_named(&r->k.transactions, "a \"]"));
	assert_non_null(cb_twins_named(&r->k.transactions, "b"));
	beside = rig_twin(r);
	assert_string_equal(r->k.transactions.twins.coming_name, "");
	rig_cell_says(r, "transactions.names is 2"); /* the third has no room */
	rig_twin_close(&first);
	rig_twin_close(&a);
	rig_twin_close(&b);
	rig_twin_close(&beside);
}

/* What is no name is not made, and that is told. */
static void test_names_that_are_none(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r);
	char metadata[400];

	rig_twins_dear(r);
	snprintf(metadata, sizeof(metadata), "{\"checkpoint\":[\"\",\"a\\u0000\",\"a\\tb\",\"%0128d\"]}", 0);
	expect_end(r, ended_cell(r, metadata));
	assert_int_equal(r->k.transactions.checkpoints.nasked, 0);
	rig_init_silent(r);
	rig_cell_says(r, "%checkpoint: 4 not made: a cell may ask for 16, with names of 1 to 127 bytes without");
	rig_twin_close(&first);
}

/* What is asked for beyond the bound is not made, and that is told. */
static void test_flood_of_names(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r);
	char metadata[900] = "{\"checkpoint\":[\"n\"";

	rig_twins_dear(r);
	for (int i = 0; i < 100; i++)
		snprintf(metadata + strlen(metadata), sizeof(metadata) - strlen(metadata), ",\"n%d\"", i);
	snprintf(metadata + strlen(metadata), sizeof(metadata) - strlen(metadata), "]}");
	r->policy.transactions_names = 0; /* what is asked for is refused, one after the other */
	expect_end(r, ended_cell(r, metadata));
	assert_true(r->k.transactions.checkpoints.nasked <= CB_CHECKPOINT_ASKED);
	rig_init_silent(r);
	rig_cell_says(r, "%checkpoint: 85 not made: a cell may ask for 16");
	rig_twin_close(&first);
}

/* Exactly so many cells or none; what else could be had is named. */
static void test_undo_by_a_cell(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r);
	const char *id;
	static const struct {
		const char *asks, *says;
	} is[] = {
		{ "{\"undo\":1}",
		  "%undo: the state from before cell [2] is not kept; %undo 3 goes back to the one before it" },
		{ "{\"undo\":7}", "%undo: no more than 3 cells have run" },
		{ "{\"undo\":0}", "no such name or number" },
		{ "{\"undo\":4000000000}", "no such name or number" },
	};

	rig_twins_dear(r);
	rig_cell(r, "a");
	rig_cell(r, "a");
	for (size_t i = 0; i < sizeof(is) / sizeof(is[0]); i++) {
		id = ended_cell(r, is[i].asks);
		struct rig_msg m = rig_take(r, RIG_IOPUB, "error", id);

		if (i < 2 && strstr(rig_text(&m, "evalue"), is[i].says) == NULL)
			fail_msg("%s: not %s", rig_text(&m, "evalue"), is[i].says);
		rig_msg_free(&m);
		rig_expect(r, RIG_SHELL, "execute_reply", id);
		rig_expect(r, RIG_IOPUB, "idle", id);
	}
	rig_twin_close(&first);
}

/* %rollback: the cell's reply comes when the state is back, with its own number. */
static void test_rollback_by_a_cell(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r), next;

	rig_twins_dear(r);
	rig_cell(r, "a");
	const char *id = ended_cell(r, "{\"rollback\":null}");

	next = rig_twin_comes_back(r, &first);
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", id);

	assert_non_null(strstr(rig_text(&m, "text"), "as they were before cell [1]; cells [1] to [2] are undone"));
	rig_msg_free(&m);
	m = rig_take(r, RIG_SHELL, "execute_reply", id);
	assert_string_equal(rig_text(&m, "status"), "ok");
	assert_int_equal(json_integer_value(json_object_get(m.content, "execution_count")), 2);
	assert_string_equal(json_string_value(rig_about(&m, "state")), "restored");
	assert_int_equal(json_array_size(rig_about(&m, "undone")), 2);
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_twin_close(&next);
	id = ended_cell(r, "{\"rollback\":\"nowhere\"}");
	m = rig_take(r, RIG_IOPUB, "error", id);
	assert_non_null(strstr(rig_text(&m, "evalue"), "there is no checkpoint"));
	rig_msg_free(&m);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_asked_for_by_the_dead),
		T(test_asked_for_without_descriptors),
		T(test_asked_by_cells),
		T(test_names_that_are_none),
		T(test_flood_of_names),
		T(test_undo_by_a_cell),
		T(test_rollback_by_a_cell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
