/* Named checkpoints and rollback with a pid 1 and a guest that the test plays: names from clients are bounded,
 * each request is answered, going back to a name leaves it there. */
#include "rig_twins.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>

static void expect_reply(struct rig *r, const char *type, const char *id, const char *status, const char *words)
{
	struct rig_msg m = rig_take(r, RIG_CONTROL, type, id);
	char *text = json_dumps(m.content, JSON_COMPACT);

	assert_string_equal(rig_text(&m, "status"), status);
	if (strstr(text, words) == NULL)
		fail_msg("%s: not for %s", text, words);
	free(text);
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

static const char *ask(struct rig *r, const char *what, const char *content)
{
	char type[64];

	snprintf(type, sizeof(type), "cellblock_%s_request", what);
	const char *id = rig_send(r, RIG_CONTROL, type, content, NULL);

	rig_expect(r, RIG_IOPUB, "busy", id);
	return id;
}

static void refused(struct rig *r, const char *what, const char *content, const char *words)
{
	char type[64];
	const char *id = ask(r, what, content);

	snprintf(type, sizeof(type), "cellblock_%s_reply", what);
	expect_reply(r, type, id, "error", words);
}

static struct rig_twin make(struct rig *r, const char *name)
{
	char content[64];

	snprintf(content, sizeof(content), "{\"name\":\"%s\"}", name);
	const char *id = ask(r, "checkpoint", content);
	struct rig_twin t = rig_twin(r);

	expect_reply(r, "cellblock_checkpoint_reply", id, "ok", name);
	return t;
}

static void test_names(void **state)
{
	char long_name[CB_CHECKPOINT_NAME + 16];
	const char *const bad[] = {
		"{}",
		"{\"name\":1}",
		"{\"name\":null}",
		"{\"name\":\"\"}",
		"{\"name\":\"a\\nb\"}",
		"{\"name\":\"\\u007f\"}",
		long_name,
	};
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin t[4];

	snprintf(long_name, sizeof(long_name), "{\"name\":\"%0*d\"}", CB_CHECKPOINT_NAME, 0);
	t[0] = rig_twin(r);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused(r, "checkpoint", bad[i], "name");
	refused(r, "rollback", "{\"name\":7}", "name");
	refused(r, "rollback", "{\"name\":\"x\"}", "there is no checkpoint");
	refused(r, "delete_checkpoint", "{\"name\":\"x\"}", "there is no checkpoint");
	t[1] = make(r, "a");
	t[2] = make(r, "b");
	refused(r, "checkpoint", "{\"name\":\"c\"}", "transactions.names is 2");
	t[3] = make(r, "a"); /* again: the other one goes when this one is there */
	rig_init_expect(r, CB_INIT_DROP, (int)t[1].number);
	expect_reply(r, "cellblock_list_checkpoints_reply", ask(r, "list_checkpoints", NULL), "ok", "\"b\"");
	expect_reply(r, "cellblock_delete_checkpoint_reply", ask(r, "delete_checkpoint", "{\"name\":\"b\"}"), "ok",
		     "ok");
	rig_init_expect(r, CB_INIT_DROP, (int)t[2].number);
	refused(r, "rollback", "{\"name\":\"b\"}", "there is no checkpoint");
	rig_init_silent(r);
	rig_twins_close(t, 4);
}

static void test_off(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_OFF);

	refused(r, "checkpoint", "{\"name\":\"a\"}", "transactions.mode is \\\"off\\\"");
	refused(r, "rollback", "{}", "transactions.mode is \\\"off\\\"");
	expect_reply(r, "cellblock_list_checkpoints_reply", ask(r, "list_checkpoints", NULL), "ok", "[]");
}

static void test_not_below_no_cgroup(void **state)
{
	struct rig *r = *state = rig_new();

	r->policy.transactions_mode = CB_MODE_AUTO;
	r->level = CB_LEVEL_CONTAINER;
	rig_subscribe(r);
	cb_guest_want(&r->k.guest);
	rig_guest_up(r);
	refused(r, "checkpoint", "{\"name\":\"a\"}", "below no-cgroup");
}

static void not_made(struct rig *r)
{
	const char *id = ask(r, "checkpoint", "{\"name\":\"b\"}");
	struct rig_twin n = rig_twin_asked(r);

	rig_twin_answered(r, &n,
			  "{\"status\":\"error\",\"ename\":\"OSError\",\"evalue\":\"no more, sch\\u00f6n\"}");
	expect_reply(r, "cellblock_checkpoint_reply", id, "error", "OSError: no more, schön");
	rig_init_expect(r, CB_INIT_DROP, (int)n.number);
	rig_twin_close(&n);
}

/* The guest can't, or its copy ends: the request is answered with why. */
static void test_not_made(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin t = rig_twin(r), n;

	rig_twin_close(&t);
	not_made(r);
	const char *id = ask(r, "checkpoint", "{\"name\":\"a\"}");
	n = rig_twin_asked(r);
	rig_init_tell(r, CB_INIT_GONE, (int)n.number);
	rig_twin_answered(r, &n, RIG_MADE);
	expect_reply(r, "cellblock_checkpoint_reply", id, "error", "ended at its birth");
	rig_init_expect(r, CB_INIT_DROP, (int)n.number);
	rig_twin_close(&n);
	n = make(r, "a");
	rig_twin_close(&n);
}

static void test_guest_dies_at_a_checkpoint(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin t = rig_twin(r), n;
	const char *id = ask(r, "checkpoint", "{\"name\":\"a\"}");

	n = rig_twin_asked(r);
	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	rig_init_expect(r, CB_INIT_DROP, (int)n.number);
	struct rig_request resume = rig_twin_wakes(r, &t);

	rig_twin_resumed(r, &resume);
	rig_twin_close(&n);
	n = rig_twin(r);
	expect_reply(r, "cellblock_checkpoint_reply", id, "error", "KernelDiedError");
	rig_twin_close(&n);
}

/* The request `id` goes back to `a`: a copy of it takes over, and is copied in its turn. The reply says so. */
static void comes_back(struct rig *r, const char *id, const struct rig_twin *a, const char *words)
{
	struct rig_twin bred = rig_twin_bred(r, a), next;

	rig_twin_registers(r, &bred);
	rig_twin_says(&bred, CB_TWIN_CONTROL_BORN, bred.number);
	next = rig_twin_comes_back(r, &bred);
	expect_reply(r, "cellblock_rollback_reply", id, "ok", words);
	rig_twin_close(&next);
}

/* The only state that is left takes over: it can't be deleted meanwhile, for then nothing would. */
static void test_deleted_while_it_takes_over(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r), a = make(r, "a"), next;
	uint64_t request;

	r->k.transactions.twins.possible = false; /* no other one before the cell, however long that takes to come */
	rig_init_tell(r, CB_INIT_GONE, (int)first.number);
	rig_twin_close(&first);
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	struct rig_request resume = rig_twin_wakes(r, &a);

	refused(r, "delete_checkpoint", "{\"name\":\"a\"}", "there is no checkpoint");
	rig_twin_resumed(r, &resume);
	next = rig_twin(r);
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	rig_msg_free(&m);
	assert_non_null(cb_twins_named(&r->k.transactions, "a"));
	rig_twin_close(&next);
}

/* Held until something is asked of it: for how long nobody knows. All that there is goes on without the name. */
static void test_deleted_while_it_is_held(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r), a = make(r, "a");

	rig_init_tell(r, CB_INIT_GONE, (int)first.number);
	rig_twin_close(&first);
	r->k.transactions.twins.idle_deaths = 3;
	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	rig_init_expect(r, CB_INIT_RESTORE, (int)a.number);
	rig_init_tell(r, CB_INIT_RESTORED, (int)a.number);
	rig_barrier(r);
	refused(r, "delete_checkpoint", "{\"name\":\"b\"}", "there is no checkpoint");
	const char *id = ask(r, "delete_checkpoint", "{\"name\":\"a\"}");

	expect_reply(r, "cellblock_delete_checkpoint_reply", id, "ok", "ok");
	id = ask(r, "list_checkpoints", "{}");
	expect_reply(r, "cellblock_list_checkpoints_reply", id, "ok", "\"checkpoints\":[]");
	(void)rig_execute(r, "next");
	first = rig_twin_copied(r, rig_twin_goes_on(r, &a));
	assert_null(cb_twins_named(&r->k.transactions, "a"));
	rig_twin_close(&first);
}

static bool is_born(struct rig *r)
{
	return r->k.transactions.twins.coming != NULL && r->k.transactions.twins.coming->born;
}

/* The one that is still being made has the name not yet. */
static void test_deleted_while_it_is_made(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r), n;
	const char *id = ask(r, "checkpoint", "{\"name\":\"a\"}");

	n = rig_twin_asked(r);
	rig_twin_registers(r, &n);
	rig_twin_says(&n, CB_TWIN_CONTROL_BORN, n.number);
	rig_until(r, is_born);
	refused(r, "delete_checkpoint", "{\"name\":\"a\"}", "there is no checkpoint");
	rig_twin_answered(r, &n, RIG_MADE);
	expect_reply(r, "cellblock_checkpoint_reply", id, "ok", "\"a\"");
	rig_twin_close(&first);
	rig_twin_close(&n);
}

/* A named one is all that is left, and takes over for a cell; `a` is its. The cell's id. */
static const char *only_a_name(struct rig *r, struct rig_twin *a, struct rig_request *ret_resume)
{
	struct rig_twin first = rig_twin(r);
	uint64_t request;

	*a = make(r, "a");
	rig_twins_dear(r);
	rig_init_tell(r, CB_INIT_GONE, (int)first.number);
	rig_twin_close(&first);
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	*ret_resume = rig_twin_wakes(r, a);
	return id;
}

/* It serves the main line then, and the name is told to be gone. */
static void test_a_name_takes_over_and_is_not_copied(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_request resume;
	struct rig_twin a, next;
	const char *id = only_a_name(r, &a, &resume);

	rig_twin_resumed(r, &resume);
	next = rig_twin_asked(r);
	rig_twin_answered(r, &next, "{\"status\":\"error\",\"ename\":\"OSError\",\"evalue\":\"no more\"}");
	rig_init_expect(r, CB_INIT_DROP, (int)next.number);
	rig_twin_close(&next);
	rig_twin_believed(r);
	rig_failed(r, id, "KernelDiedError");
	rig_cell_says(r, "the checkpoint a is gone");
}

/* It serves and its copy is there, but it is not believed yet. The cell's id. */
static const char *a_name_is_looked_at(struct rig *r, struct rig_twin *ret_copy)
{
	struct rig_request resume;
	struct rig_twin a;
	const char *id = only_a_name(r, &a, &resume);

	rig_twin_resumed(r, &resume);
	*ret_copy = rig_twin_unsure(r);
	return id;
}

/* What was deleted meanwhile is not told to be lost. */
static void test_deleted_before_it_is_believed(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin copy;
	const char *id = a_name_is_looked_at(r, &copy);

	expect_reply(r, "cellblock_delete_checkpoint_reply", ask(r, "delete_checkpoint", "{\"name\":\"a\"}"), "ok",
		     "ok");
	rig_init_expect(r, CB_INIT_DROP, (int)copy.number);
	rig_expect(r, RIG_IOPUB, "busy", id); /* it runs on */
	rig_twin_close(&copy);
	rig_twin_believed(r);
	rig_failed(r, id, "KernelDiedError");
	assert_string_equal(r->k.shells.execution.note, "");
}

/* It dies before it is believed, its copy is there already: that is no better, and not woken again and again. */
static void test_a_name_takes_over_in_vain(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin next;

	(void)a_name_is_looked_at(r, &next);
	rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
	rig_init_expect(r, CB_INIT_DROP, (int)next.number);
	rig_await_kill(r);
	rig_twin_close(&next);
	rig_die(r, -1);
	rig_guest_up(r);
	assert_non_null(strstr(r->k.shells.execution.note, "the checkpoint a is gone"));
}

/* A younger state goes when the one that is gone back to is known to work; else it is what is left. */
static void test_back_to_one_that_does_not_work(void **state)
{
	enum { DIES, DIES_OF_BEING_COPIED, WORKS };

	for (int how = DIES; how <= WORKS; how++) {
		struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
		struct rig_twin oldest = rig_twin(r), old, young, copy;

		r->policy.transactions_keep = 2;
		rig_cell(r, "a");
		old = rig_twin(r);
		rig_cell(r, "a");
		young = rig_twin(r);
		const char *id = ask(r, "rollback", "{}");
		struct rig_request resume = rig_twin_wakes(r, &old);

		if (how == DIES) {
			rig_request_free(&resume);
		} else {
			rig_twin_resumed(r, &resume);
			copy = how == WORKS ? rig_twin(r) : rig_twin_asked(r);
		}
		if (how == WORKS) {
			rig_init_expect(r, CB_INIT_DROP, (int)young.number);
			expect_reply(r, "cellblock_rollback_reply", id, "ok", "\"undone\":[2]");
			assert_int_equal(cb_twins_count(&r->k.transactions.twins), 2);
			rig_twin_close(&young);
		} else {
			rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
			if (how == DIES_OF_BEING_COPIED) {
				rig_init_expect(r, CB_INIT_DROP, (int)copy.number);
				rig_twin_close(&copy);
			}
			copy = rig_twin_comes_back(r, &young);
			expect_reply(r, "cellblock_rollback_reply", id, "error",
				     "the state that was asked for did not work when it was woken (Python was killed "
				     "by signal 6");
			rig_cell_says(r, "all variables are as they were before it; another state did not work");
		}
		rig_twin_close(&copy);
		rig_twin_close(&oldest);
		rig_teardown(state);
	}
	*state = NULL;
}

/* What is under way ends with its jail: what the next one fails at is told as what it is. */
static void test_the_jail_ends_at_a_rollback(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r), n;

	rig_twins_dear(r);
	rig_cell(r, "a");
	const char *id = ask(r, "rollback", "{}");

	rig_init_expect(r, CB_INIT_RESTORE, (int)first.number);
	rig_init_tell(r, CB_INIT_STUCK, (int)first.number);
	rig_await_kill(r);
	rig_die(r, -1);
	expect_reply(r, "cellblock_rollback_reply", id, "error", "KernelDiedError");
	rig_twin_close(&first);
	rig_restarted(r);
	first = rig_twin(r);
	id = ask(r, "checkpoint", "{\"name\":\"a\"}");
	n = rig_twin_asked(r);
	rig_twin_answered(r, &n, "{\"status\":\"error\",\"ename\":\"OSError\",\"evalue\":\"no more\"}");
	expect_reply(r, "cellblock_checkpoint_reply", id, "error", "no copy could be made");
	rig_twin_close(&first);
	rig_twin_close(&n);
}

/* That none is made any more does not say that there are none. */
static void test_names_where_no_more_are_made(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r), a = make(r, "a");

	rig_twins_dear(r);
	for (int i = 0; i < 3; i++)
		not_made(r);
	r->watched = false;
	(void)rig_execute(r, "cell");
	struct rig_request q = rig_guest_recv(r);

	assert_int_equal(q.h.type, CB_WIRE_EXECUTE);
	assert_non_null(strstr(q.metadata, "\"checkpoints\":[{\"name\":\"a\""));
	assert_non_null(strstr(q.metadata, "\"no_copies\":\"the state is not kept any more, for it could not be 3 "
					   "times in a row: OSError: no more, schön\""));
	assert_true(r->watched); /* they have memory still */
	rig_request_free(&q);
	rig_twin_close(&first);
	rig_twin_close(&a);
}

/* A copy takes over, so the name stays; twice. */
static void test_back_to_a_name(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r), a = make(r, "a");

	cb_twins_named(&r->k.transactions, "a")->left_out.native = 2;
	for (int i = 0; i < 2; i++) {
		const char *id = ask(r, "rollback", "{\"name\":\"a\"}");

		comes_back(r, id, &a, "2 threads that Python does not know did not come back");
		expect_reply(r, "cellblock_list_checkpoints_reply", ask(r, "list_checkpoints", NULL), "ok", "\"a\"");
		struct cb_init_msg m;

		while (recv(r->init, &m, sizeof(m), MSG_DONTWAIT) > 0) /* older ones that go */
			assert_int_equal(m.op, CB_INIT_DROP);
	}
	rig_twin_close(&first);
	rig_twin_close(&a);
}

/* Where Python could not be copied any more what has a name can be had still, and is copied again. */
static void test_back_to_a_name_without_copies(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r), a = make(r, "a");

	r->k.transactions.twins.possible = false;
	refused(r, "checkpoint", "{\"name\":\"b\"}", "can't be copied");
	refused(r, "rollback", "{\"name\":\"b\"}", "can't be copied");
	const char *id = ask(r, "rollback", "{\"name\":\"a\"}");

	comes_back(r, id, &a, "\"restored_to\"");
	assert_true(r->k.transactions.twins.possible);
	rig_twin_close(&first);
	rig_twin_close(&a);
}

/* The copy is not born, or the name's own process has ended: the request says so, and the state is kept. */
static void test_copy_is_not_born(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r), a = make(r, "a"), bred;
	const char *id = ask(r, "rollback", "{\"name\":\"a\"}");

	bred = rig_twin_bred(r, &a);
	rig_twin_says(&bred, CB_TWIN_CONTROL_BORN, bred.number + 5);
	expect_reply(r, "cellblock_rollback_reply", id, "error", "said what it may not");
	rig_init_expect(r, CB_INIT_DROP, (int)bred.number);
	rig_twin_close(&bred);
	id = ask(r, "rollback", "{\"name\":\"a\"}");
	bred = rig_twin_bred(r, &a);
	rig_twin_overdue(r);
	expect_reply(r, "cellblock_rollback_reply", id, "error",
		     "the checkpoint could not be restored: the twin did not come");
	rig_init_expect(r, CB_INIT_DROP, (int)bred.number);
	rig_twin_close(&bred);
	rig_init_tell(r, CB_INIT_GONE, (int)a.number);
	refused(r, "rollback", "{\"name\":\"a\"}", "there is no checkpoint");
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	assert_int_equal(r->k.transactions.twins.failures, 0); /* Python itself made none of them */
	rig_twin_close(&first);
	rig_twin_close(&a);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_names),
		T(test_off),
		T(test_not_below_no_cgroup),
		T(test_not_made),
		T(test_guest_dies_at_a_checkpoint),
		T(test_deleted_while_it_takes_over),
		T(test_back_to_a_name),
		T(test_back_to_a_name_without_copies),
		T(test_copy_is_not_born),
		T(test_deleted_while_it_is_held),
		T(test_deleted_while_it_is_made),
		T(test_a_name_takes_over_and_is_not_copied),
		T(test_deleted_before_it_is_believed),
		T(test_a_name_takes_over_in_vain),
		T(test_back_to_one_that_does_not_work),
		T(test_the_jail_ends_at_a_rollback),
		T(test_names_where_no_more_are_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
