/* Twins with a pid 1 and a guest that the test plays: what must come before one is used, who takes over, and what is
 * told when nobody can. */
#include "rig_twins.h"

#include <cellblock/fd.h>

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

static bool given_up(struct rig *r)
{
	return !r->k.transactions.twins.possible;
}

/* The failed cell's error and reply. */
static void expect_failure(struct rig *r, const char *id, const char *ename, const char *words, const char *state,
			   const char *undone)
{
	rig_expect_error(r, RIG_IOPUB, "error", id, ename, words);
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_string_equal(json_string_value(rig_about(&m, "state")), state);
	if (undone != NULL) {
		char *text = json_dumps(rig_about(&m, "undone"), JSON_COMPACT);

		assert_string_equal(text, undone);
		free(text);
	}
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

/* The whole jail is ended, which nobody can take over for. */
static void expect_lost(struct rig *r, const char *id, const char *ename, const char *words)
{
	rig_await_kill(r);
	rig_die(r, -1);
	expect_failure(r, id, ename, words, "lost", NULL);
	rig_expect(r, RIG_IOPUB, "restarting", "");
}

/* So many, with a cell between each and the next. */
static void states(struct rig *r, struct rig_twin *ret, int n)
{
	for (int i = 0; i < n; i++) {
		if (i > 0)
			rig_cell(r, "a");
		ret[i] = rig_twin(r);
	}
}

static struct cb_twin *book(struct rig *r, const struct rig_twin *t)
{
	return cb_twins_find(&r->k.transactions.twins, t->number);
}

/* ---- making ---- */

/* CHECKPOINT_REPLY, REGISTERED and BORN in each order: it counts when all are there, and not before. */
static void test_in_any_order(void **state)
{
	static const char order[][4] = { "arb", "abr", "rab", "rba", "bar", "bra" };
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);

	r->policy.transactions_keep = 8;
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		struct rig_twin t = rig_twin_asked(r);

		for (int k = 0; k < 3; k++) {
			rig_barrier(r);
			assert_true(cb_twins_busy(&r->k.transactions));
			if (order[i][k] == 'a')
				rig_twin_answered(r, &t, RIG_MADE);
			else if (order[i][k] == 'r')
				rig_twin_registers(r, &t);
			else
				rig_twin_says(&t, CB_TWIN_CONTROL_BORN, t.number);
		}
		rig_until(r, rig_none_coming);
		const struct cb_twin *b = book(r, &t);

		assert_true(b != NULL && b->pid == getpid()); /* by the kernel's word */
		rig_twin_close(&t);
		rig_cell(r, "a");
	}
}

static void test_none_where_there_are_none(void **state)
{
	struct rig *r = *state = rig_new();

	r->policy.transactions_mode = CB_MODE_ALWAYS;
	r->level = CB_LEVEL_CONTAINER;
	rig_subscribe(r);
	cb_guest_want(&r->k.guest);
	rig_guest_up(r);
	assert_false(r->k.transactions.twins.possible);
	rig_cell(r, "a");
	rig_init_silent(r);
}

/* Numbers that nobody has been given, and what pid 1 does not say. */
static void test_unknown_numbers(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin t = rig_twin_asked(r);
	static const int numbers[] = { 0, -1, 77, INT32_MAX, INT32_MIN };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		rig_init_tell(r, CB_INIT_REGISTERED, numbers[i]);
		rig_init_tell(r, CB_INIT_GONE, numbers[i]);
		rig_init_tell(r, CB_INIT_RESTORED, numbers[i]);
	}
	rig_init_tell(r, CB_INIT_RESTORED, (int)t.number); /* it does not take over */
	rig_init_tell(r, (enum cb_init_op)99, (int)t.number);
	rig_twin_answered(r, &t, RIG_MADE);
	rig_twin_says(&t, CB_TWIN_CONTROL_BORN, t.number);
	rig_barrier(r);
	assert_true(cb_twins_busy(&r->k.transactions));
	rig_twin_registers(r, &t);
	rig_until(r, rig_none_coming);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	rig_twin_close(&t);
}

/* What else may lie on a control socket costs the twin, and not the guest. */
static void test_wrong_words_on_twin_control(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t;
	char big[64] = { CB_TWIN_CONTROL_BORN };

	for (int i = 0; i < 8; i++) {
		t = rig_twin_asked(r);
		r->k.loop.timer[r->k.transactions.twins.deadline_timer].deadline = INT64_MAX;
		switch (i) {
		case 0:
			rig_twin_says(&t, CB_TWIN_CONTROL_BORN, t.number + 1);
			break;
		case 1:
			rig_twin_says(&t, CB_TWIN_CONTROL_WAKE, t.number);
			break;
		case 2: /* twice */
			rig_twin_says(&t, CB_TWIN_CONTROL_BORN, t.number);
			rig_twin_says(&t, CB_TWIN_CONTROL_BORN, t.number);
			break;
		case 3:
			assert_int_equal(send(t.fd[CB_BIRTH_TWIN_CONTROL], big, 4, 0), 4);
			break;
		case 4:
			assert_int_equal(send(t.fd[CB_BIRTH_TWIN_CONTROL], big, sizeof(big), 0), sizeof(big));
			break;
		case 5:
			assert_int_equal(send(t.fd[CB_BIRTH_TWIN_CONTROL], big, 0, 0), 0);
			break;
		case 6:
			rig_twin_close(&t);
			break;
		default: /* pid 1 says that it has ended */
			rig_init_tell(r, CB_INIT_GONE, (int)t.number);
		}
		rig_init_expect(r, CB_INIT_DROP, (int)t.number);
		assert_null(book(r, &t));
		rig_twin_answered(r, &t, RIG_MADE); /* the guest knows nothing of it */
		rig_until(r, rig_none_coming);
		assert_int_equal(r->k.transactions.twins.failures, 1);
		assert_false(cb_loop_armed(&r->k.loop, r->k.transactions.twins.deadline_timer));
		r->k.transactions.twins.failures = 0;
		assert_int_equal(r->k.guest.state, CB_GUEST_UP);
		rig_twin_close(&t);
		rig_cell(r, "a");
	}
	t = rig_twin(r);
	rig_twin_close(&t);
}

/* Who makes no twin three times in a row is not asked again. */
static void test_three_failures(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t;

	for (int i = 0; i < 2; i++) { /* two, then one that works, then three */
		for (int n = 0; n < 2 + i; n++) {
			t = rig_twin_asked(r);
			rig_twin_answered(r, &t,
					  "{\"status\":\"error\",\"ename\":\"BlockingIOError\",\"evalue\":\"no\"}");
			rig_init_expect(r, CB_INIT_DROP, (int)t.number);
			rig_twin_close(&t);
			assert_int_equal(r->k.transactions.twins.possible, i == 0 || n < 2);
			assert_int_equal(strstr(r->k.shells.execution.note, "not kept any more") != NULL,
					 i == 1 && n == 2);
			r->k.shells.execution.note[0] = '\0'; /* which the next cell would say */
			rig_cell(r, "a");
		}
		if (i == 0) {
			t = rig_twin(r);
			rig_twin_close(&t);
			rig_cell(r, "a");
		}
	}
	rig_until(r, given_up);
	rig_init_silent(r);
}

/* What nobody answers has an end. */
static void test_deadlines(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin_asked(r);

	rig_twin_answered(r, &t, RIG_MADE);
	rig_twin_registers(r, &t); /* and never BORN */
	rig_barrier(r);
	rig_twin_overdue(r); /* it was to be here by now */
	rig_init_expect(r, CB_INIT_DROP, (int)t.number);
	assert_int_equal(r->k.transactions.twins.failures, 1);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	rig_twin_close(&t);
	rig_cell(r, "a");
	t = rig_twin_asked(r); /* a guest that does not even answer is asked to let go, and ended only by a user */
	rig_twin_overdue(r);
	rig_init_expect(r, CB_INIT_NUDGE, CB_WIRE_LET_GO);
	cb_twins_interrupt(&r->k.transactions);
	rig_init_expect(r, CB_INIT_NUDGE, CB_WIRE_LET_GO);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	r->k.transactions.twins.interrupted_at -= CB_DOUBLE_CLICK;
	cb_twins_interrupt(&r->k.transactions);
	rig_await_kill(r);
	rig_die(r, SIGKILL);
	rig_expect(r, RIG_IOPUB, "restarting", "");
	rig_twin_close(&t);
}

/* transactions.keep: so many beside the newest; the oldest goes. */
static void test_keep(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t[4];

	r->policy.transactions_keep = 2;
	states(r, t, 4);
	rig_init_expect(r, CB_INIT_DROP, (int)t[0].number);
	rig_init_silent(r);
	assert_null(book(r, &t[0]));
	for (int i = 0; i < 4; i++) {
		assert_true(i == 0 || book(r, &t[i]) != NULL);
		rig_twin_close(&t[i]);
	}
	rig_init_tell(r, CB_INIT_GONE, (int)t[0].number); /* what pid 1 then says is nobody's matter */
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
}

/* ---- take-over ---- */

static void test_takes_over(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
	struct rig_twin first = rig_twin(r), next;
	uint64_t request;

	rig_twins_dear(r);
	rig_cell(r, "good");
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	assert_int_equal(r->k.guest.state, CB_GUEST_RESTORING);
	struct rig_request resume = rig_twin_wakes(r, &first);

	assert_string_equal(resume.content, "{\"execution_count\":3,\"branch\":false,\"undone\":["
					    "{\"number\":1,\"code\":\"good\"},{\"number\":2,\"code\":\"bad\"}]}");
	rig_twin_resumed(r, &resume);
	next = rig_twin(r); /* made at once, before anybody is told */
	expect_failure(r, id, "KernelDiedError", "cells [1] to [2] are undone", "restored", "[1,2]");
	assert_true(r->k.transactions.twins.cost.cells == 0); /* the failed cell has not worked for the next one */
	rig_cell(r, "good");
	rig_twin_close(&next);
}

/* Says what it may not while it is to wake, or ends: the older one takes over, and without one the jail ends. */
static void test_falls_back(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin old = rig_twin(r), young, last;
	uint64_t request;

	rig_cell(r, "a");
	young = rig_twin(r);
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	rig_init_expect(r, CB_INIT_RESTORE, (int)young.number);
	rig_init_tell(r, CB_INIT_GONE, (int)young.number); /* pid 1 did not find it */
	rig_twin_close(&young);
	last = rig_twin_comes_back(r, &old);
	expect_failure(r, id, "KernelDiedError", "cells [1] to [2] are undone; a later state did not work", "restored",
		       "[1,2]");
	id = rig_begin(r, "bad", &request);
	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	struct rig_request resume = rig_twin_wakes(r, &last);

	rig_request_free(&resume);
	rig_init_tell(r, CB_INIT_EXITED, SIGKILL); /* woken, and dead before RESUMED */
	expect_lost(r, id, "KernelDiedError", "what was kept did not work when it was woken");
}

/* Pid 1 gives up before it has ended all others, and ends: that is told, and not that somebody killed it. */
static void test_others_do_not_end(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r);
	uint64_t request;
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_STUCK, (int)t.number); /* it does not take over */
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	cb_guest_stop(&r->k.guest, "");
	rig_init_expect(r, CB_INIT_RESTORE, (int)t.number);
	rig_init_tell(r, CB_INIT_STUCK, (int)t.number);
	expect_lost(r, id, "KernelDiedError", "stopped: not all that ran beside it could be ended");
}

/* Woken and silent: the deadline ends it, and the reason that was told is the cell's. */
static void test_never_resumes(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r);
	uint64_t request;
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
	struct rig_request resume = rig_twin_wakes(r, &t);

	rig_request_free(&resume);
	rig_twin_overdue(r);
	expect_lost(r, id, "KernelDiedError", "signal 6");
}

/* The same with an older one: that takes over, and what the silent one or pid 1 then says of it is too late. */
static void test_silent_one_falls_back(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin old, young, next;
	const char *id = rig_twin_dies(r, &old, &young);
	struct rig_request silent = rig_twin_wakes(r, &young);

	rig_twin_overdue(r);
	rig_init_expect(r, CB_INIT_RESTORE, (int)old.number);
	rig_twin_resumed(r, &silent);
	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	rig_barrier(r);
	assert_int_equal(r->k.guest.state, CB_GUEST_RESTORING);
	rig_init_silent(r);
	next = rig_twin_copied(r, rig_twin_restored(r, &old));
	expect_failure(r, id, "KernelDiedError",
		       "signal 11 (Segmentation fault); all variables are as they were before cell [1]", "restored",
		       "[1,2]");
	rig_cell(r, "a");
	rig_twin_close(&next);
}

/* But not for as long as there are twins. */
static void test_three_are_silent(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t[5];
	uint64_t request;

	r->policy.transactions_keep = 8;
	states(r, t, 5);
	const char *id = rig_begin(r, "bad", &request);

	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request + 1, RIG_OK);
	for (int i = 4; i > 1; i--) {
		struct rig_request silent = rig_twin_wakes(r, &t[i]);

		rig_request_free(&silent);
		rig_twin_overdue(r);
	}
	rig_await_kill(r);
	rig_init_silent(r);
	rig_die(r, -1);
	expect_failure(r, id, "WireError", "may not carry", "lost", NULL);
	rig_expect(r, RIG_IOPUB, "restarting", "");
	rig_twin_close(&t[0]);
	rig_twin_close(&t[1]);
}

/* Anything but RESUMED from one that wakes. */
static void test_wakes_with_wrong_words(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r);
	uint64_t request;
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
	struct rig_request resume = rig_twin_wakes(r, &t);

	rig_stream(r, resume.h.request, CB_WIRE_STDOUT, "forged");
	rig_request_free(&resume);
	expect_lost(r, id, "KernelDiedError", "signal 6");
}

/* The same with older ones, as it wakes and before it is believed. The cell's end is that of the guest which ran it,
 * whatever that has still said. */
static void test_wrong_words_fall_back(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t[3], next;
	uint64_t request;

	r->policy.transactions_keep = 8;
	states(r, t, 3);
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	rig_init_expect(r, CB_INIT_RESTORE, (int)t[2].number);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request + 1, RIG_OK);
	rig_barrier(r);
	assert_int_equal(r->k.guest.state, CB_GUEST_RESTORING);
	struct rig_request resume = rig_twin_restored(r, &t[2]);

	rig_stream(r, resume.h.request, CB_WIRE_STDOUT, "forged");
	rig_request_free(&resume);
	resume = rig_twin_wakes(r, &t[1]);
	rig_twin_resumed(r, &resume);
	next = rig_twin_asked(r);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, next.request + 1, RIG_OK);
	rig_init_expect(r, CB_INIT_DROP, (int)next.number);
	rig_twin_close(&next);
	resume = rig_twin_wakes(r, &t[0]);
	rig_twin_resumed(r, &resume);
	rig_barrier(r);
	rig_twin_believed(r);
	expect_failure(r, id, "KernelDiedError",
		       "signal 11 (Segmentation fault); all variables are as they were before cell [1]; cells [1] to "
		       "[3] are undone; a later state did not work when it was woken (request id that this message "
		       "may not carry",
		       "restored", "[1,2,3]");
	rig_cell(r, "a");
}

/* An idle one that ends is replaced when it is quiet; one that is dead can't take over. */
static void test_idle_one_ends(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r);
	uint64_t request;
	const char *id = rig_begin(r, "a", &request);

	rig_init_tell(r, CB_INIT_GONE, (int)t.number);
	assert_null(book(r, &t));
	rig_twin_close(&t);
	rig_end(r, id, request);
	t = rig_twin(r);
	rig_twin_close(&t);
	id = rig_begin(r, "bad", &request);
	rig_init_tell(r, CB_INIT_GONE, (int)t.number);
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	rig_init_expect(r, CB_INIT_TERMINATE, 0);
	rig_die(r, SIGSEGV);
	expect_failure(r, id, "KernelDiedError", "all variables are lost", "lost", NULL);
	rig_expect(r, RIG_IOPUB, "restarting", "");
}

/* A guest that breaks the wire's rules is replaced by its twin. */
static void test_wire_error_restores(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r), next;
	uint64_t request;
	const char *id = rig_begin(r, "bad", &request);

	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request + 1, RIG_OK);
	next = rig_twin_comes_back(r, &t);
	expect_failure(r, id, "WireError", "all variables are as they were before cell [1]", "restored", "[1]");
	rig_twin_close(&next);
}

/* Python asked, and died: the client's answer is nobody's, least of all the twin's that wakes. */
static void test_an_answer_comes_too_late(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r), next;
	uint64_t request;
	const char *id = rig_begin(r, "asks", &request);

	rig_frame(r, CB_WIRE_INPUT_REQUEST, request, "{\"prompt\":\"?\",\"password\":false}");
	rig_expect(r, RIG_STDIN, "input_request", id);
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	struct rig_request resume = rig_twin_wakes(r, &t);

	rig_send(r, RIG_STDIN, "input_reply", "{\"value\":\"late\"}", NULL);
	rig_barrier(r);
	assert_int_equal(r->k.guest.python.rules.phase, CB_PHASE_WAKING);
	rig_twin_resumed(r, &resume);
	next = rig_twin(r); /* the first that it is sent */
	expect_failure(r, id, "KernelDiedError", "all variables are as they were before cell [1]", "restored", "[1]");
	rig_twin_close(&next);
}

/* Three states, each of which wakes and dies of being copied: the cell's own end is told, and the last one is not
 * copied. */
static void test_dies_of_being_copied(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t[3], copy;
	uint64_t request;

	r->policy.transactions_keep = 2;
	states(r, t, 3);
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	for (int i = 2; i > 0; i--) {
		struct rig_request resume = rig_twin_wakes(r, &t[i]);

		rig_twin_resumed(r, &resume);
		copy = rig_twin_asked(r);
		assert_true(cb_twins_busy(&r->k.transactions));
		rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
		rig_init_expect(r, CB_INIT_DROP, (int)copy.number);
		assert_int_equal(r->k.guest.state, CB_GUEST_RESTORING);
		rig_twin_close(&copy);
	}
	struct rig_request resume = rig_twin_wakes(r, &t[0]);

	rig_twin_resumed(r, &resume);
	rig_barrier(r);
	rig_twin_believed(r);
	expect_failure(r, id, "KernelDiedError",
		       "signal 11 (Segmentation fault); all variables are as they were before cell [1]; cells [1] to "
		       "[3] are undone; a later state did not work when it was woken (Python was killed by signal 6 "
		       "(Aborted)), and this one may die of being copied",
		       "restored", "[1,2,3]");
	rig_cell(r, "a");
	rig_init_silent(r);
}

/* Woken, it answers and dies: whether that is known yet or not when it is to be copied, it is none that came back. */
static void test_dies_before_it_can_be_copied(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t[2], copy;
	uint64_t request;

	states(r, t, 2);
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	struct rig_request resume = rig_twin_wakes(r, &t[1]);

	cb_fd_close(&r->twin_control); /* it is dying: nothing can be sent to it */
	rig_twin_resumed(r, &resume);
	rig_until(r, rig_is_up);
	rig_init_expect(r, CB_INIT_TWIN, (int)t[1].number + 1);
	rig_init_expect(r, CB_INIT_DROP, (int)t[1].number + 1);
	rig_barrier(r);
	assert_true(cb_twins_confirming(&r->k.transactions.twins));
	rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
	assert_int_equal(r->k.guest.state, CB_GUEST_RESTORING);
	copy = rig_twin_comes_back(r, &t[0]);
	expect_failure(r, id, "KernelDiedError",
		       "signal 11 (Segmentation fault); all variables are as they were before cell [1]; cells [1] to "
		       "[2] are undone; a later state did not work when it was woken (Python was killed by signal 6",
		       "restored", "[1,2]");
	rig_cell(r, "a");
	rig_twin_close(&copy);
}

/* The last one dies of being copied, and pid 1 with it, which is seen before what that said. */
static void test_dies_of_being_copied_with_its_jail(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r), copy;
	uint64_t request;
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	struct rig_request resume = rig_twin_wakes(r, &t);

	rig_twin_resumed(r, &resume);
	copy = rig_twin_asked(r);
	cb_guest_go(&r->k.guest, CB_GUEST_ENDING);
	rig_die(r, SIGABRT);
	expect_failure(r, id, "KernelDiedError",
		       "signal 11 (Segmentation fault); all variables are lost, for what was kept did not work when it "
		       "was woken (Python was killed by signal 6 (Aborted))",
		       "lost", NULL);
	rig_expect(r, RIG_IOPUB, "restarting", "");
	rig_twin_close(&copy);
}

/* It dies when nothing has begun since: its copy is passed over, once, and not after a cell. */
static void test_dies_in_its_first_moments(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin old, copy, next;
	const char *id = rig_twin_takes_over(r, &old, &copy);
	uint64_t request;

	expect_failure(r, id, "KernelDiedError", "before cell [2]", "restored", "[2]");
	rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
	rig_init_expect(r, CB_INIT_DROP, (int)copy.number);
	next = rig_twin_comes_back(r, &old);
	id = rig_begin(r, "bad", &request);
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", id);

	assert_non_null(strstr(rig_text(&m, "text"), "before cell [1]; a later state did not work when it was woken "
						     "(Python was killed by signal 6 (Aborted))"));
	rig_msg_free(&m);
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV); /* this cell's own doing, for all that is known */
	copy = rig_twin_comes_back(r, &next);
	expect_failure(r, id, "KernelDiedError", "before cell [3]", "restored", "[1,3]"); /* for once */
	rig_cell(r, "a");
	old = rig_twin(r);
	id = rig_begin(r, "bad", &request);
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	next = rig_twin_comes_back(r, &old);
	expect_failure(r, id, "KernelDiedError", "before cell [5]", "restored", "[5]");
	rig_twin_close(&copy);
	rig_twin_close(&next);
}

/* That it was asked for a copy is no work that anybody gave it. */
static void test_dying_without_work_is_no_endless_loop(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t;

	for (int i = 0; i < 3; i++) {
		t = rig_twin_asked(r);
		rig_twin_close(&t);
		rig_die(r, 1 << 8);
		if (i < 2)
			rig_restarted(r);
	}
	rig_expect(r, RIG_IOPUB, "restarting", "");
	rig_barrier(r);
	assert_int_equal(r->k.guest.state, CB_GUEST_NONE);
}

/* Two take-overs between cells: the next cell tells of both. */
static void test_all_are_told(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r);
	uint64_t request;

	for (int i = 0; i < 2; i++) {
		rig_init_tell(r, CB_INIT_EXITED, i == 0 ? SIGSEGV : SIGABRT);
		t = rig_twin_comes_back(r, &t);
	}
	const char *id = rig_begin(r, "a", &request);
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", id);

	assert_non_null(strstr(rig_text(&m, "text"), "signal 11"));
	assert_non_null(strstr(rig_text(&m, "text"), "]\n[cellblock: between cells, Python was killed by signal 6"));
	rig_msg_free(&m);
	rig_end(r, id, request);
	rig_twin_close(&t);
}

/* The guest dies while it makes one: the one before it takes over, and the new one's number is forgotten. */
static void test_death_while_making(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin first = rig_twin(r), coming, next;

	rig_cell(r, "a");
	coming = rig_twin_asked(r);
	rig_twin_says(&coming, CB_TWIN_CONTROL_BORN, coming.number);
	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	assert_null(book(r, &coming));
	rig_init_expect(r, CB_INIT_DROP, (int)coming.number); /* it may be registered: then pid 1 would spare it */
	struct rig_request resume = rig_twin_wakes(r, &first);

	rig_init_tell(r, CB_INIT_REGISTERED, (int)coming.number);
	rig_twin_resumed(r, &resume);
	next = rig_twin(r);
	assert_true(next.number > coming.number);
	rig_barrier(r);
	rig_twin_close(&coming);
	rig_twin_close(&next);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_in_any_order),
		T(test_none_where_there_are_none),
		T(test_unknown_numbers),
		T(test_wrong_words_on_twin_control),
		T(test_three_failures),
		T(test_deadlines),
		T(test_keep),
		T(test_takes_over),
		T(test_falls_back),
		T(test_others_do_not_end),
		T(test_never_resumes),
		T(test_silent_one_falls_back),
		T(test_three_are_silent),
		T(test_wakes_with_wrong_words),
		T(test_wrong_words_fall_back),
		T(test_idle_one_ends),
		T(test_wire_error_restores),
		T(test_an_answer_comes_too_late),
		T(test_death_while_making),
		T(test_dies_of_being_copied),
		T(test_dies_before_it_can_be_copied),
		T(test_dies_of_being_copied_with_its_jail),
		T(test_dies_in_its_first_moments),
		T(test_dying_without_work_is_no_endless_loop),
		T(test_all_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
