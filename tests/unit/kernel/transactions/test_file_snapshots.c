/* Requests to the broker about a workspace's files: one at a time, in turns with clients', whatever it answers. */
#include "rig_twins.h"

#include <cellblock/fd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct cb_broker_request asked;
static int pipe_fd = -1;

static bool got_request(struct rig *r)
{
	size_t n = 0;

	return cb_fd_recv(r->broker, &asked, sizeof(asked), &pipe_fd, 1, &n, MSG_DONTWAIT) == (ssize_t)sizeof(asked);
}

static void expect(struct rig *r, uint32_t op, uint32_t number)
{
	rig_until(r, got_request);
	assert_int_equal(asked.op, op);
	assert_int_equal(asked.jail, number);
	assert_true(pipe_fd >= 0);
}

/* After others: who is to end first where memory is short is told as well. */
static void await(struct rig *r, uint32_t op)
{
	do
		rig_until(r, got_request);
	while (asked.op != op);
}

static void answer(const char *text)
{
	assert_int_equal(write(pipe_fd, text, strlen(text)), strlen(text));
	cb_fd_close(&pipe_fd);
}

static struct rig *overlay_up(void)
{
	struct rig *r = rig_up();

	r->k.workspace.mode = CB_WORKSPACE_OVERLAY;
	r->k.guest.level = CB_LEVEL_FULL;
	assert_true(cb_file_snapshots_on(&r->k.transactions));
	r->k.transactions.twins.twin[0].number = 5;
	r->k.transactions.twins.twin[0].snapshot = 5;
	r->k.transactions.twins.twin[0].files = CB_FILES_COMING;
	return r;
}

static bool kept(struct rig *r)
{
	return r->k.transactions.twins.twin[0].files == CB_FILES_KEPT;
}

static bool stays(struct rig *r)
{
	return r->k.transactions.twins.twin[0].files == CB_FILES_STAY;
}

/* A copy that was bred goes back to the same files: the last one that has them forgets them. */
static void test_shared_by_a_copy(void **state)
{
	struct rig *r = *state = overlay_up();
	struct cb_twin *t = r->k.transactions.twins.twin;

	t[0].files = CB_FILES_KEPT;
	t[1] = (struct cb_twin){
		.number = 6, .use = CB_TWIN_ROLLBACK, .ends = t[0].ends, .files = CB_FILES_KEPT, .snapshot = 5
	};
	cb_twins_forget(&r->k.transactions, &t[0]);
	assert_int_equal(r->k.broker_queue.count, 0);
	cb_twins_forget(&r->k.transactions, &t[1]);
	expect(r, CB_BROKER_FORGET, 5);
	answer("");
}

static bool free_again(struct rig *r)
{
	return r->k.broker_queue.count == 0;
}

static void test_one_at_a_time(void **state)
{
	struct rig *r = *state = overlay_up();

	cb_file_snapshots_ask(&r->k.transactions, CB_BROKER_SNAPSHOT, 5);
	cb_file_snapshots_ask(&r->k.transactions, CB_BROKER_FORGET, 4);
	expect(r, CB_BROKER_SNAPSHOT, 5);
	rig_until_soon(r);
	assert_false(got_request(r));
	assert_false(kept(r));
	answer("{\"status\":\"ok\",\"entries\":1,\"left\":0,\"reason\":\"\",\"cpu_s\":0.25}");
	rig_until(r, kept);
	assert_true(r->k.transactions.twins.cost.files_s == 0.25); /* it is part of what a twin delays cells by */
	assert_string_equal(r->k.transactions.twins.twin[0].files_problem, "");
	expect(r, CB_BROKER_FORGET, 4);
	answer("{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\"\",\"traceback\":[]}"); /* nobody's matter */
	rig_until(r, free_again);
}

static void test_answers(void **state)
{
	static const struct {
		const char *text, *problem;
		bool done;
	} tried[] = {
		{ "{\"status\":\"ok\",\"left\":1,\"reason\":\"a: full\"}", "a: full", true },
		{ "{\"status\":\"ok\",\"left\":3,\"reason\":\"a: full\"}", "a: full and 2 more", true },
		{ "{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\"no such\",\"traceback\":[]}", "no such",
		  false },
		{ "", "the process that builds jails gave no whole answer", false },
		{ "{\"status\":\"ok\"", "the process that builds jails gave no whole answer", false },
		{ "[]", "the process that builds jails gave no whole answer", false },
	};
	struct rig *r = *state = overlay_up();

	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		r->k.transactions.twins.twin[0].files = CB_FILES_COMING;
		cb_file_snapshots_ask(&r->k.transactions, CB_BROKER_SNAPSHOT, 5);
		expect(r, CB_BROKER_SNAPSHOT, 5);
		answer(tried[i].text);
		rig_until(r, tried[i].done ? kept : stays);
		assert_string_equal(r->k.transactions.twins.twin[0].files_problem, tried[i].problem);
		if (tried[i].done)
			continue;
		expect(r, CB_BROKER_FORGET, 5);
		answer("{\"status\":\"ok\"}");
	}
}

/* None of them is back: nothing else is said. */
static void test_not_brought_back(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r), copy;
	struct cb_twin *kept_one = cb_twins_find(&r->k.transactions.twins, t.number);
	uint64_t request;
	const char *id = rig_begin(r, "bad", &request);

	kept_one->files = CB_FILES_KEPT;
	kept_one->snapshot = t.number;
	r->k.transactions.twins.written++; /* a client has */
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	rig_init_expect(r, CB_INIT_RESTORE, (int)t.number);
	rig_init_tell(r, CB_INIT_RESTORED, (int)t.number);
	await(r, CB_BROKER_RESTORE);
	assert_int_equal(asked.jail, t.number);
	answer("{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\"no such\",\"traceback\":[]}");
	copy = rig_twin_copied(r, rig_twin_goes_on(r, &t));
	rig_expect_error(r, RIG_IOPUB, "error", id, "KernelDiedError",
			 "; all variables are as they were before cell [1]; the workspace's files did not come back: "
			 "no such");
	assert_null(strstr(r->k.transactions.twins.outcome, "requests"));
	rig_ended(r, id, "KernelDiedError");
	rig_twin_close(&copy);
}

/* It is killed while they come back: the state before it takes over. */
static void test_killed_meanwhile(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin old = rig_twin(r), young, copy;
	uint64_t request;

	rig_cell(r, "a");
	young = rig_twin(r);
	struct cb_twin *kept_one = cb_twins_find(&r->k.transactions.twins, young.number);

	kept_one->files = CB_FILES_KEPT;
	kept_one->snapshot = young.number;
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	rig_init_expect(r, CB_INIT_RESTORE, (int)young.number);
	rig_init_tell(r, CB_INIT_RESTORED, (int)young.number);
	await(r, CB_BROKER_RESTORE);
	rig_twin_close(&young);
	answer("{\"status\":\"ok\",\"left\":0,\"reason\":\"\"}");
	copy = rig_twin_comes_back(r, &old);
	rig_expect_error(r, RIG_IOPUB, "error", id, "KernelDiedError",
			 "a later state did not work when it was woken (it had ended)");
	rig_ended(r, id, "KernelDiedError");
	rig_twin_close(&copy);
}

/* The state before it has the same files, as the one that a copy is bred of: what is brought back when that one is
 * killed is not what is brought back for the other, beside which others run yet. */
static void test_killed_meanwhile_by_a_copy(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t[2] = { rig_twin(r) }, copy;
	struct cb_twin_control_msg m;

	rig_cell(r, "a");
	t[1] = rig_twin(r);
	for (int i = 0; i < 2; i++) {
		struct cb_twin *has = cb_twins_find(&r->k.transactions.twins, t[i].number);

		has->files = CB_FILES_KEPT;
		has->snapshot = t[0].number;
	}
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	rig_init_expect(r, CB_INIT_RESTORE, (int)t[1].number);
	rig_init_tell(r, CB_INIT_RESTORED, (int)t[1].number);
	await(r, CB_BROKER_RESTORE);
	rig_init_tell(r, CB_INIT_GONE, (int)t[1].number);
	rig_init_expect(r, CB_INIT_RESTORE, (int)t[0].number);
	answer("{\"status\":\"ok\",\"left\":0,\"reason\":\"\"}");
	rig_until(r, free_again);
	assert_true(recv(t[0].fd[CB_BIRTH_TWIN_CONTROL], &m, sizeof(m), MSG_DONTWAIT) < 0);
	rig_init_tell(r, CB_INIT_RESTORED, (int)t[0].number);
	await(r, CB_BROKER_RESTORE);
	answer("{\"status\":\"ok\",\"left\":0,\"reason\":\"\"}");
	copy = rig_twin_copied(r, rig_twin_goes_on(r, &t[0]));
	rig_twin_close(&t[1]);
	rig_twin_close(&copy);
}

/* What it has said before it is woken is said to nobody, least of all in the name of the one that died. */
static void test_it_speaks_before_it_is_woken(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin old = rig_twin(r), young, copy;
	uint64_t request;

	rig_cell(r, "a");
	young = rig_twin(r);
	struct cb_twin *kept_one = cb_twins_find(&r->k.transactions.twins, young.number);

	kept_one->files = CB_FILES_KEPT;
	kept_one->snapshot = young.number;
	const char *id = rig_begin(r, "bad", &request);

	rig_swap_wire(r, &young.fd[CB_BIRTH_WIRE]);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request, RIG_OK);
	rig_swap_wire(r, &young.fd[CB_BIRTH_WIRE]);
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	rig_init_expect(r, CB_INIT_RESTORE, (int)young.number);
	rig_init_tell(r, CB_INIT_RESTORED, (int)young.number);
	await(r, CB_BROKER_RESTORE);
	rig_barrier(r); /* it is not answered */
	answer("{\"status\":\"ok\",\"left\":0,\"reason\":\"\"}");
	struct rig_request resume = rig_twin_goes_on(r, &young);

	rig_request_free(&resume);
	copy = rig_twin_comes_back(r, &old);
	rig_expect_error(r, RIG_IOPUB, "error", id, "KernelDiedError", "a later state did not work when it was woken");
	rig_ended(r, id, "KernelDiedError");
	rig_twin_close(&copy);
}

static void test_turns_with_a_client(void **state)
{
	struct rig *r = *state = overlay_up();

	cb_file_snapshots_ask(&r->k.transactions, CB_BROKER_SNAPSHOT, 5);
	expect(r, CB_BROKER_SNAPSHOT, 5);
	const char *id = rig_send(r, RIG_CONTROL, "cellblock_file_request", "{\"op\":\"changes\"}", NULL);

	rig_expect(r, RIG_IOPUB, "busy", id);
	assert_false(got_request(r));
	answer("{\"status\":\"ok\",\"left\":0,\"reason\":\"\"}");
	expect(r, CB_BROKER_CHANGES, 0);
	cb_file_snapshots_ask(&r->k.transactions, CB_BROKER_FORGET, 4);
	rig_until_soon(r);
	assert_int_equal(r->k.broker_queue.count, 2); /* it waits */
	answer("{\"status\":\"ok\",\"changes\":[]}");
	rig_expect(r, RIG_CONTROL, "cellblock_file_reply", id);
	expect(r, CB_BROKER_FORGET, 4);
	answer("");
	rig_until(r, free_again);
}

static bool got_word(struct rig *r)
{
	return recv(r->broker, &asked, sizeof(asked), MSG_DONTWAIT) == (ssize_t)sizeof(asked);
}

static void time_is_up(struct rig *r)
{
	cb_loop_arm(&r->k.loop, r->k.broker_queue.timer, 1);
}

static void test_what_takes_too_long_is_told_to_end(void **state)
{
	struct rig *r = *state = overlay_up();

	cb_file_snapshots_ask(&r->k.transactions, CB_BROKER_SNAPSHOT, 5);
	expect(r, CB_BROKER_SNAPSHOT, 5);
	time_is_up(r);
	rig_until(r, got_word);
	assert_int_equal(asked.op, CB_BROKER_STOP);
	assert_true(cb_broker_queue_begun(&r->k.broker_queue, CB_BROKER_SNAPSHOT)); /* what it says now still counts */
	answer("{\"status\":\"ok\",\"left\":1,\"reason\":\"what was not reached: it took too long\"}");
	rig_until(r, kept);
	assert_string_equal(r->k.transactions.twins.twin[0].files_problem, "what was not reached: it took too long");
}

static bool lacks_files(struct rig *r)
{
	return !r->k.transactions.twins.asked && cb_twin_is_ready(r->k.transactions.twins.coming);
}

static bool has_come(struct rig *r)
{
	return r->k.transactions.twins.coming == NULL;
}

/* All of a twin is there but its files, and nothing else is awaited. */
static struct rig_twin without_files(struct rig *r, const char *id, uint64_t request)
{
	rig_end(r, id, request);
	struct rig_twin t = rig_twin_asked(r);

	rig_twin_comes(r, &t, RIG_MADE);
	rig_until(r, lacks_files);
	return t;
}

static void test_files_have_a_clock_of_their_own(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin first = rig_twin(r), t;
	uint64_t request;
	const char *id = rig_begin(r, "a", &request);

	r->k.workspace.mode = CB_WORKSPACE_OVERLAY;
	t = without_files(r, id, request);
	await(r, CB_BROKER_SNAPSHOT);
	rig_twin_overdue(r);
	rig_init_silent(r);
	time_is_up(r);
	rig_until(r, got_word);
	assert_int_equal(asked.op, CB_BROKER_STOP);
	answer("{\"status\":\"ok\",\"left\":1,\"reason\":\"what was not reached: it took too long\"}");
	rig_until(r, has_come);
	assert_non_null(cb_twins_find(&r->k.transactions.twins, t.number));
	assert_int_equal(cb_twins_find(&r->k.transactions.twins, t.number)->files, CB_FILES_KEPT);
	rig_twin_close(&first);
	rig_twin_close(&t);
}

/* It has not begun, for a client's list has its turn, and that may take for ever. */
static void test_files_behind_a_list(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin first = rig_twin(r), t;
	uint64_t request;
	const char *id = rig_begin(r, "a", &request), *list;

	r->k.workspace.mode = CB_WORKSPACE_OVERLAY;
	list = rig_send(r, RIG_CONTROL, "cellblock_file_request", "{\"op\":\"changes\"}", NULL);
	rig_expect(r, RIG_IOPUB, "busy", list);
	await(r, CB_BROKER_CHANGES);
	t = without_files(r, id, request);
	rig_twin_overdue(r);
	rig_init_expect(r, CB_INIT_DROP, (int)t.number);
	answer("{\"status\":\"ok\",\"changes\":[]}");
	rig_expect(r, RIG_CONTROL, "cellblock_file_reply", list);
	rig_twin_close(&first);
	rig_twin_close(&t);
}

/* Who writes files back and does not end is not left beside a jail that goes on. */
static void test_the_jail_does_not_go_on_beside_it(void **state)
{
	struct rig *r = *state = overlay_up();

	r->k.transactions.twins.waking = &r->k.transactions.twins.twin[0];
	cb_guest_restoring(&r->k.guest);
	cb_file_snapshots_ask(&r->k.transactions, CB_BROKER_RESTORE, 5);
	expect(r, CB_BROKER_RESTORE, 5);
	time_is_up(r);
	rig_until(r, got_word);
	assert_int_equal(asked.op, CB_BROKER_STOP);
	time_is_up(r);
	rig_until(r, got_word);
	assert_int_equal(asked.op, CB_BROKER_KILL);
	rig_until(r, free_again);
	assert_int_equal(r->k.guest.state, CB_GUEST_ENDING);
	cb_fd_close(&pipe_fd);
}

static void test_only_of_an_overlay(void **state)
{
	struct rig *r = *state = overlay_up();

	r->k.workspace.mode = CB_WORKSPACE_RW;
	assert_false(cb_file_snapshots_on(&r->k.transactions));
	r->k.workspace.mode = CB_WORKSPACE_OVERLAY;
	r->k.guest.level = CB_LEVEL_CONTAINER;
	assert_false(cb_file_snapshots_on(&r->k.transactions));
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_one_at_a_time),
		T(test_answers),
		T(test_not_brought_back),
		T(test_killed_meanwhile),
		T(test_killed_meanwhile_by_a_copy),
		T(test_it_speaks_before_it_is_woken),
		T(test_shared_by_a_copy),
		T(test_turns_with_a_client),
		T(test_what_takes_too_long_is_told_to_end),
		T(test_files_have_a_clock_of_their_own),
		T(test_files_behind_a_list),
		T(test_the_jail_does_not_go_on_beside_it),
		T(test_only_of_an_overlay),
	};
#undef T
	return cmocka_run_group_tests(tests, NULL, NULL);
}
