/* Twins when nothing runs: what is tried again by itself, and who takes over for one that dies then. */
#include "rig_twins.h"

#include <cellblock/fd.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static bool is_running(struct rig *r)
{
	return r->k.shells.execution.shell.current != NULL;
}

static int helper = -1;

static bool has_helper(struct rig *r)
{
	struct cb_init_msg m;
	size_t n = 0;

	return cb_fd_recv(r->init, &m, sizeof(m), &helper, 1, &n, MSG_DONTWAIT) == (ssize_t)sizeof(m) && n == 1;
}

/* Its time may have come already, on a machine that is busy. */
static bool is_tried_again(struct rig *r)
{
	return cb_loop_armed(&r->k.loop, r->k.transactions.twins.idle_timer) || cb_twins_busy(&r->k.transactions);
}

/* What nothing asks for is tried again by itself, but not for ever. */
static void test_tried_again(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct cb_twins *w = &r->k.transactions.twins;
	struct rig_twin t = rig_twin(r), older = { .fd = { -1, -1, -1, -1, -1 } };
	int first = (int)t.number;

	rig_cell(r, "a");
	for (int i = 0; i < 4; i++) {
		rig_twin_close(&older);
		older = t;
		t = rig_twin_asked(r);
		rig_twin_answered(r, &t,
				  "{\"status\":\"error\",\"ename\":\"TimeoutError\",\"evalue\":\"they go on\"}");
		rig_init_expect(r, CB_INIT_DROP, (int)t.number);
		assert_int_equal(cb_loop_armed(&r->k.loop, w->idle_timer), i < 3);
		w->again_ns = 0; /* a second later */
		if (i < 3)
			cb_loop_arm(&r->k.loop, w->idle_timer, 1);
	}
	rig_barrier(r);
	rig_init_silent(r);
	rig_twin_close(&older);
	rig_twin_close(&t);
	rig_signalled(r);
	const char *id = rig_execute(r, "a"); /* the next cell tries it */

	older = rig_twin(r);
	rig_end(r, id, rig_begun(r, id));
	t = rig_twin(r);
	rig_init_expect(r, CB_INIT_DROP, first);
	rig_init_tell(r, CB_INIT_GONE, (int)t.number); /* the one from before the cell is no such state */
	rig_twin_close(&t);
	assert_true(is_tried_again(r));
	t = rig_twin(r);
	rig_twin_close(&t);
	rig_twin_close(&older);
}

/* It is asked for a copy, does not answer, and its user does not wait. */
static void stop_by_interrupts(struct rig *r)
{
	(void)rig_send(r, RIG_CONTROL, "cellblock_checkpoint_request", "{\"name\":\"a\"}", NULL);
	struct rig_twin named = rig_twin_asked(r);

	cb_twins_interrupt(&r->k.transactions);
	rig_init_expect(r, CB_INIT_NUDGE, CB_WIRE_LET_GO);
	rig_init_expect(r, CB_INIT_SIGNAL, SIGINT);
	cb_python_interrupt_no_more(&r->k.guest.python); /* it has heard it, and goes on */
	r->k.transactions.twins.interrupted_at -= CB_DOUBLE_CLICK;
	cb_twins_interrupt(&r->k.transactions);
	rig_init_expect(r, CB_INIT_DROP, (int)named.number);
	rig_twin_close(&named);
}

/* What it was asked for meanwhile, or that its user ended it, is reason enough: no answered cell goes with it. */
static void test_dies_of_work_in_its_first_moments(void **state)
{
	enum { QUESTION, COMMAND, COMMAND_BESIDE, STOPPED };

	for (int how = QUESTION; how <= STOPPED; how++) {
		struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
		struct rig_twin old, copy;
		const char *id = rig_twin_takes_over(r, &old, &copy);

		rig_failed(r, id, "KernelDiedError");
		assert_true(r->k.transactions.twins.confirmed_ns != 0);
		if (how == QUESTION) {
			(void)rig_send(r, RIG_SHELL, "complete_request", "{\"code\":\"a\",\"cursor_pos\":1}", NULL);
			(void)rig_guest_expect(r, CB_WIRE_COMPLETE);
		} else if (how != STOPPED) {
			enum rig_source channel = how == COMMAND ? RIG_SHELL : RIG_CONTROL;

			id = rig_send(r, channel, "cellblock_run_request", "{\"argv\":[\"a\"]}", NULL);
			rig_until(r, has_helper);
			cb_fd_close(&helper); /* it has ended */
			rig_expect(r, channel, "cellblock_run_reply", id);
		}
		if (how == STOPPED)
			stop_by_interrupts(r);
		else
			rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
		rig_init_expect(r, CB_INIT_RESTORE, (int)copy.number);
		rig_twin_close(&old);
		rig_twin_close(&copy);
		rig_teardown(state);
	}
	*state = NULL;
}

/* A look at the workspace goes on without Python, and tells of nothing: the next cell does. */
static void test_dies_beside_a_look_at_files(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r), copy;

	r->k.workspace.mode = CB_WORKSPACE_OVERLAY;
	(void)rig_send(r, RIG_SHELL, "cellblock_file_request", "{\"op\":\"changes\"}", NULL);
	rig_until(r, is_running);
	r->k.workspace.mode = CB_WORKSPACE_RW; /* no copies of files here */
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	copy = rig_twin_comes_back(r, &t);
	rig_until(r, rig_none_coming);
	assert_true(is_running(r));
	assert_non_null(strstr(r->k.shells.execution.lost, "Python was killed by signal 11"));
	rig_twin_close(&copy);
}

static bool opens(struct rig *r)
{
	return r->k.shells.execution.shell.waiting.head != NULL;
}

static const char *open_comm(struct rig *r, const char *content)
{
	const char *id = rig_send(r, RIG_SHELL, "comm_open", content, NULL);

	rig_until(r, opens);
	return id;
}

static bool is_open(struct rig *r, const char *name)
{
	return cb_comms_has(&r->k.guest.comms, (struct cb_span){ name, strlen(name) });
}

/* A client opens it while a cell runs, and one while a state comes back: what Python was not told of when the state was
 * kept is not open in it, and what waits is opened in the state that has come back. Until then it is listed. */
static void test_comms_that_wait(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin first = rig_twin(r), t, copy;
	uint64_t request;
	const char *cell = rig_begin(r, "a", &request);
	const char *id = open_comm(r, "{\"comm_id\":\"c\",\"target_name\":\"t\",\"data\":{}}");
	const char *asked = rig_send(r, RIG_CONTROL, "comm_info_request", NULL, NULL);
	struct rig_msg m = rig_take(r, RIG_CONTROL, "comm_info_reply", asked);

	assert_non_null(json_object_get(json_object_get(m.content, "comms"), "c"));
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "busy", asked);
	rig_expect(r, RIG_IOPUB, "idle", asked);
	rig_expect(r, RIG_IOPUB, "busy", cell); /* it runs on */
	rig_end(r, cell, request);
	t = rig_twin(r);
	(void)rig_guest_expect(r, CB_WIRE_DOWN_COMM_OPEN);
	rig_expect(r, RIG_IOPUB, "busy", id);
	assert_true(is_open(r, "\"c\""));
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	(void)open_comm(r, "{\"comm_id\":\"d\",\"target_name\":\"t\",\"data\":{}}");
	copy = rig_twin_comes_back(r, &t);
	(void)rig_guest_expect(r, CB_WIRE_DOWN_COMM_OPEN);
	assert_false(is_open(r, "\"c\""));
	assert_true(is_open(r, "\"d\""));
	rig_twin_close(&first);
	rig_twin_close(&copy);
}

/* What can't be handed to Python opens nothing, and changes no state. */
static void test_a_comm_that_is_not_sent(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r);
	uint64_t last = r->k.transactions.twins.undo_log.last;

	cb_buf_release(&r->k.guest.python.link.tx);
	r->k.guest.python.link.tx.max = 1;
	const char *id = rig_send(r, RIG_SHELL, "comm_open",
				  "{\"comm_id\":\"c\",\"target_name\":\"t\",\"data\":{}}", NULL);

	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	assert_false(is_open(r, "\"c\""));
	assert_int_equal(r->k.transactions.twins.undo_log.last, last);
	rig_twin_close(&t);
}

/* Its jail is being ended: what pid 1 says of it then wakes nobody. */
static void test_restored_too_late(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r);
	struct cb_twin_control_msg m;

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	rig_init_expect(r, CB_INIT_RESTORE, (int)t.number);
	cb_guest_kill(&r->k.guest, "enough");
	rig_init_tell(r, CB_INIT_RESTORED, (int)t.number);
	assert_true(recv(t.fd[CB_BIRTH_TWIN_CONTROL], &m, sizeof(m), MSG_DONTWAIT) < 0);
	assert_int_equal(r->k.guest.state, CB_GUEST_ENDING);
	rig_twin_close(&t);
}

/* It is killed while others are ended: the state before it takes over. */
static void test_killed_before_it_is_woken(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin old, young, copy;
	const char *id = rig_twin_dies(r, &old, &young);

	rig_init_expect(r, CB_INIT_RESTORE, (int)young.number);
	rig_twin_close(&young);
	rig_init_tell(r, CB_INIT_RESTORED, (int)young.number);
	copy = rig_twin_comes_back(r, &old);
	rig_expect_error(r, RIG_IOPUB, "error", id, "KernelDiedError",
			 "signal 11 (Segmentation fault); all variables are as they were before cell [1]; cells [1] to "
			 "[2] are undone; a later state did not work when it was woken (it had ended)");
	rig_ended(r, id, "KernelDiedError");
	rig_twin_close(&copy);
}

/* Its state has come back, and died with nothing to do, three times: so it is not woken for nothing once more. */
static struct rig_twin left_to_a_request(struct rig *r)
{
	struct cb_twin_control_msg m;
	struct rig_twin t = rig_twin(r);

	for (int i = 0; i < 3; i++) {
		rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
		t = rig_twin_comes_back(r, &t);
		rig_until(r, rig_none_coming);
	}
	assert_string_equal(r->k.shells.execution.note, "");
	rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
	rig_init_expect(r, CB_INIT_RESTORE, (int)t.number);
	rig_init_tell(r, CB_INIT_RESTORED, (int)t.number);
	rig_barrier(r);
	assert_true(recv(t.fd[CB_BIRTH_TWIN_CONTROL], &m, sizeof(m), MSG_DONTWAIT) < 0);
	assert_non_null(strstr(r->k.shells.execution.note, "Python has ended 3 times while nothing was asked of it"));
	return t;
}

/* What the broker was last told of whom the kernel's OOM killer is to take; 0 = nothing since then. */
static uint32_t rank(struct rig *r)
{
	struct cb_broker_request q;
	uint32_t last = 0;

	while (recv(r->broker, &q, sizeof(q), MSG_DONTWAIT) == (ssize_t)sizeof(q))
		if (q.op == CB_BROKER_OOM_FIRST || q.op == CB_BROKER_OOM_LAST)
			last = q.op;
	return last;
}

/* While it is held there is no copy of it: it goes first for the host's lack of memory only when it is woken. */
static void test_a_held_state_is_spared(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = left_to_a_request(r);

	assert_int_equal(rank(r), CB_BROKER_OOM_LAST);
	(void)rig_execute(r, "a");
	struct rig_request resume = rig_twin_goes_on(r, &t);

	assert_int_equal(rank(r), CB_BROKER_OOM_FIRST);
	rig_twin_resumed(r, &resume);
	t = rig_twin(r);
	assert_int_equal(rank(r), CB_BROKER_OOM_LAST); /* its copy */
	rig_twin_close(&t);
}

/* Pid 1 says it once of each that it is told to restore. */
static void test_restored_is_said_again(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = left_to_a_request(r);

	rig_init_tell(r, CB_INIT_RESTORED, (int)t.number);
	assert_ptr_equal(cb_twins_held(&r->k.transactions.twins), r->k.transactions.twins.waking);
	(void)rig_execute(r, "a");
	struct rig_request resume = rig_twin_goes_on(r, &t);

	rig_init_tell(r, CB_INIT_RESTORED, (int)t.number);
	t = rig_twin_copied(r, resume);
	(void)rig_guest_expect(r, CB_WIRE_EXECUTE);
	rig_twin_close(&t);
}

/* As a server in a thread, which the host's lack of memory ends every few weeks. */
static void test_dies_long_after_it_came_back(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r);

	for (int i = 0; i < 5; i++) {
		if (i > 0)
			r->k.transactions.twins.confirmed_ns -= 601 * 1000000000LL;
		rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
		t = rig_twin_comes_back(r, &t);
		rig_until(r, rig_none_coming);
	}
	assert_string_equal(r->k.shells.execution.note, "");
	rig_twin_close(&t);
}

static void test_dies_of_itself_again_and_again(void **state)
{
	static const char *const asks[][2] = { { "execute_request", "{\"code\":\"a\"}" },
					       { "complete_request", "{\"code\":\"a\",\"cursor_pos\":1}" },
					       { "cellblock_run_request", "{\"argv\":[\"a\"]}" } };

	for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++) {
		struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
		struct rig_twin t = left_to_a_request(r);

		(void)rig_send(r, RIG_SHELL, asks[i][0], asks[i][1], NULL);
		t = rig_twin_copied(r, rig_twin_goes_on(r, &t));
		if (i == 0)
			(void)rig_guest_expect(r, CB_WIRE_EXECUTE);
		rig_twin_close(&t);
		rig_teardown(state);
	}
	*state = NULL;
}

/* Nobody has any: the jail is not kept for it. */
static void test_dies_of_itself_and_is_not_used(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = left_to_a_request(r);

	cb_guest_retire(&r->k.guest);
	rig_await_kill(r);
	rig_die(r, -1);
	assert_non_null(strstr(r->k.shells.execution.lost, "timeout.idle"));
	rig_twin_close(&t);
}

/* Of two states the younger serves, and is not believed yet. */
static void is_looked_at(struct rig *r, struct rig_twin *ret_old, struct rig_twin *ret_copy)
{
	struct rig_twin young;

	(void)rig_twin_dies(r, ret_old, &young);
	struct rig_request resume = rig_twin_wakes(r, &young);

	rig_twin_resumed(r, &resume);
	*ret_copy = rig_twin_unsure(r);
}

/* A command that ends with it is told why. */
static void test_a_command_ends_with_one_that_is_looked_at(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin old, copy;

	is_looked_at(r, &old, &copy);
	const char *id = rig_send(r, RIG_CONTROL, "cellblock_run_request", "{\"argv\":[\"a\"]}", NULL);

	rig_until(r, has_helper);
	rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
	rig_expect_error(r, RIG_CONTROL, "cellblock_run_reply", id, "KernelDiedError", "Python was killed by signal 6");
	rig_init_expect(r, CB_INIT_DROP, (int)copy.number);
	rig_init_expect(r, CB_INIT_RESTORE, (int)old.number);
	cb_fd_close(&helper);
	rig_twin_close(&old);
	rig_twin_close(&copy);
}

/* It is looked at, the kernel is shut down, and it ends as it was told to: no other one is woken for that. */
static void test_none_is_woken_for_a_shutdown(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin old, copy;

	is_looked_at(r, &old, &copy);
	(void)rig_send(r, RIG_CONTROL, "shutdown_request", "{\"restart\":false}", NULL);
	(void)rig_guest_expect(r, CB_WIRE_SHUTDOWN);
	rig_init_tell(r, CB_INIT_EXITED, 0);
	rig_init_expect(r, CB_INIT_DROP, (int)copy.number);
	assert_int_equal(r->k.guest.state, CB_GUEST_ENDING);
	rig_twin_close(&old);
	rig_twin_close(&copy);
}

static bool wire_is_shut(struct rig *r)
{
	return r->k.guest.link_slot < 0;
}

/* It shuts its wire, lives on, and nothing more is heard of it: long enough. */
static void shuts_its_wire(struct rig *r)
{
	assert_int_equal(shutdown(r->wire, SHUT_WR), 0);
	rig_until(r, wire_is_shut);
	cb_loop_arm(&r->k.loop, r->k.guest.deadline_timer, 1);
}

/* Of two states the younger serves, and is to be copied. */
static const char *is_to_be_copied(struct rig *r, struct rig_twin *ret_old, struct rig_twin *ret_copy)
{
	struct rig_twin young;
	const char *id = rig_twin_dies(r, ret_old, &young);
	struct rig_request resume = rig_twin_wakes(r, &young);

	rig_twin_resumed(r, &resume);
	*ret_copy = rig_twin_asked(r);
	return id;
}

/* The older one takes over. Where the younger may have died of being copied it is looked at alone, for it is the last.
 */
static void the_older_serves(struct rig *r, const char *id, struct rig_twin *old, bool copied, const char *why)
{
	struct rig_request resume = rig_twin_wakes(r, old);

	if (copied) {
		*old = rig_twin_copied(r, resume);
	} else {
		rig_twin_resumed(r, &resume);
		rig_until(r, rig_is_up);
		rig_twin_believed(r);
	}
	rig_expect_error(r, RIG_IOPUB, "error", id, "KernelDiedError", why);
	rig_ended(r, id, "KernelDiedError");
}

static bool is_answered(struct rig *r)
{
	return !r->k.transactions.twins.asked;
}

/* Before it is believed, and whether it has answered that it can't be copied or not. */
static void test_it_shuts_its_wire(void **state)
{
	for (int answers = 0; answers < 2; answers++) {
		struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
		struct rig_twin old, copy;
		const char *id = is_to_be_copied(r, &old, &copy);

		if (answers) {
			rig_twin_answered(r, &copy,
					  "{\"status\":\"error\",\"ename\":\"OSError\",\"evalue\":\"no\"}");
			rig_until(r, is_answered);
		}
		shuts_its_wire(r);
		rig_init_expect(r, CB_INIT_DROP, (int)copy.number);
		the_older_serves(r, id, &old, answers, "did not work when it was woken (it closed its wire)");
		rig_twin_close(&old);
		rig_twin_close(&copy);
		rig_teardown(state);
	}
	*state = NULL;
}

static bool is_let_go(struct rig *r)
{
	return r->k.guest.python.signals > 0;
}

/* Its clock, so many seconds later. */
static void waits_for_its_copy(struct rig *r, int64_t seconds)
{
	r->k.transactions.twins.silent_ns -= seconds * 1000000000LL;
	rig_twin_overdue(r);
}

/* It does not answer whether it can be copied: the failed cell is answered all the same. */
static void test_it_is_not_copied(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin old, copy;
	const char *id = is_to_be_copied(r, &old, &copy);

	rig_congest(r, true);
	waits_for_its_copy(r, 16); /* it was not heard */
	rig_until(r, is_let_go);
	rig_congest(r, false);
	rig_signalled(r);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	waits_for_its_copy(r, 16);
	rig_init_expect(r, CB_INIT_DROP, (int)copy.number);
	the_older_serves(r, id, &old, false,
			 "did not work when it was woken (it could not be copied: Python did not answer)");
	rig_cell(r, "a");
	rig_twin_close(&copy);
}

/* Its jail is being ended before it has waited for so long: no other takes over in that. */
static void test_it_is_not_copied_while_its_jail_ends(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin old, copy;
	const char *id = is_to_be_copied(r, &old, &copy);

	cb_guest_kill(&r->k.guest, "enough");
	waits_for_its_copy(r, 16);
	rig_until(r, is_let_go);
	assert_int_equal(r->k.guest.state, CB_GUEST_ENDING);
	rig_expect(r, RIG_IOPUB, "stream", id); /* it waits */
	rig_await_kill(r);
	rig_die(r, -1);
	rig_expect_error(r, RIG_IOPUB, "error", id, "KernelDiedError", "all variables are lost");
	rig_twin_close(&old);
	rig_twin_close(&copy);
}

/* Without an older one all is lost with it: it has more time. */
static void test_the_last_one_is_not_copied(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r), copy;
	struct rig_request resume;

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	resume = rig_twin_wakes(r, &t);
	rig_twin_resumed(r, &resume);
	copy = rig_twin_asked(r);
	waits_for_its_copy(r, 40);
	rig_until(r, is_let_go);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	waits_for_its_copy(r, 40);
	rig_await_kill(r);
	rig_die(r, -1);
	assert_non_null(strstr(r->k.shells.execution.lost, "all variables are lost"));
	rig_twin_close(&copy);
}

/* Its jail ends, and with it who could be ready: what it has still said of that makes none ready. */
static void test_it_resumes_too_late(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r);

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	struct rig_request resume = rig_twin_wakes(r, &t);

	cb_loop_set_events(&r->k.loop, r->k.guest.link_slot, 0); /* it came while the end was looked at */
	rig_twin_resumed(r, &resume);
	rig_die(r, -1);
	assert_int_not_equal(r->k.guest.state, CB_GUEST_UP);
	assert_non_null(strstr(r->k.shells.execution.lost, "all variables are lost"));
}

/* That it serves is heard also where its output would have to wait. */
static void test_it_wakes_behind_slow_clients(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r), next;

	rig_congest(r, true);
	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	struct rig_request resume = rig_twin_wakes(r, &t);

	for (int i = 0; i < 20; i++) /* it is looked again and again whether they are still behind */
		rig_until_soon(r);
	rig_twin_resumed(r, &resume);
	rig_until(r, rig_is_up);
	rig_congest(r, false);
	next = rig_twin(r);
	rig_twin_close(&next);
}

/* All is lost between cells, and then the new Python's state is restored: the next cell says that all was lost. */
static void test_a_loss_is_not_made_good(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin t = rig_twin(r), copy;
	uint64_t request;

	rig_init_tell(r, CB_INIT_GONE, (int)t.number);
	rig_twin_close(&t);
	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	rig_init_expect(r, CB_INIT_TERMINATE, 0);
	rig_die(r, SIGKILL);
	rig_restarted(r);
	t = rig_twin(r);
	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	copy = rig_twin_comes_back(r, &t);
	const char *id = rig_begin(r, "a", &request);

	rig_expect(r, RIG_IOPUB, "stream", id);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request, RIG_OK);
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_string_equal(json_string_value(rig_about(&m, "state")), "lost");
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_twin_close(&copy);
}

static void expect_undone(const struct rig_msg *m, int64_t first_told, int64_t last, int64_t before)
{
	json_t *undone = rig_about(m, "undone");
	size_t n = json_array_size(undone);

	assert_int_equal(n, last - first_told + 1);
	assert_int_equal(json_integer_value(json_array_get(undone, 0)), first_told);
	assert_int_equal(json_integer_value(json_array_get(undone, n - 1)), last);
	assert_int_equal(json_integer_value(rig_about(m, "undone_before")), before);
	assert_true(before > 0 || rig_about(m, "undone_before") == NULL);
	assert_int_equal(json_integer_value(rig_about(m, "restored_to")), 1);
}

/* Where copies are dear there may be any number: the youngest are listed, those before them counted, and the first is
 * named as long as it is known. */
static void test_many_cells_behind_one_state(void **state)
{
	static const struct {
		int64_t ran; /* behind the state, before the one that fails */
		int64_t before;
		const char *words;
	} cases[] = {
		{ CB_UNDO_LOG_TOLD - 1, 0, "before cell [2]; cells [2] to [1001] are undone" },
		{ CB_UNDO_LOG_TOLD + 5, 6, "before cell [2]; cells [2] to [1007] are undone" },
		{ CB_UNDO_LOG_MAX - 2, 98999, "before cell [2]; cells [2] to [100000] are undone" },
		{ CB_UNDO_LOG_MAX + 7, 99008,
		  "before the first cell after [1]; 100008 cells up to [100009] are undone" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rig *r = *state = rig_twins_up(CB_MODE_AUTO);
		struct rig_twin old = rig_twin(r), t, copy;
		int64_t *number = &r->k.shells.execution.number, last = cases[i].ran + 2;
		uint64_t request;

		rig_cell(r, "a");
		t = rig_twin(r);
		rig_twins_dear(r);
		for (int64_t n = 0; n < cases[i].ran; n++)
			cb_twins_touched(&r->k.transactions, CB_SPAN("\"b\""), ++*number);
		const char *id = rig_begin(r, "bad", &request);

		assert_int_equal(*number, last);
		rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
		copy = rig_twin_comes_back(r, &t);
		rig_expect_error(r, RIG_IOPUB, "error", id, "KernelDiedError", cases[i].words);
		struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

		assert_non_null(strstr(rig_text(&m, "evalue"), cases[i].words));
		expect_undone(&m, last - (CB_UNDO_LOG_TOLD - 1), last, cases[i].before);
		rig_msg_free(&m);
		rig_twin_close(&old);
		rig_twin_close(&copy);
		rig_teardown(state);
	}
	*state = NULL;
}

static void completed(struct cb_tools *tools, uint64_t id, uint64_t cell)
{
	struct cb_called c = { .id = id, .cell = cell, .number = (int64_t)cell, .tool = "pay" };

	tools->done.item[tools->done.count++] = c;
}

static void expect_calls(struct rig *r, const char *wanted)
{
	const struct cb_buf *calls = &r->k.transactions.twins.calls;

	assert_int_equal(calls->len, strlen(wanted));
	assert_memory_equal(calls->data, wanted, calls->len);
}

/* Host tools' calls whose cells are gone are told with those of earlier losses that nobody was told of. */
static void test_calls_of_two_losses(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct cb_tools *tools = &r->k.jupyter.tools;
	bool *owed = &r->k.shells.execution.lost_owed;
	static const char both[] = "[{\"id\":\"1\",\"tool\":\"pay\",\"cell\":5},"
				   "{\"id\":\"2\",\"tool\":\"pay\",\"cell\":6}]";

	tools->done.item = calloc(CB_CALLS_DONE, sizeof(*tools->done.item));
	completed(tools, 1, 5);
	cb_twins_undo_calls(&r->k.transactions, 4);
	expect_calls(r, "[{\"id\":\"1\",\"tool\":\"pay\",\"cell\":5}]");
	*owed = true; /* told with the next cell */
	completed(tools, 2, 6);
	cb_twins_undo_calls(&r->k.transactions, 4);
	expect_calls(r, both);
	cb_twins_undo_calls(&r->k.transactions, 4);
	expect_calls(r, both);
	*owed = false;
	completed(tools, 3, 7);
	cb_twins_undo_calls(&r->k.transactions, 4);
	expect_calls(r, "[{\"id\":\"3\",\"tool\":\"pay\",\"cell\":7}]");
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_tried_again),
		T(test_dies_of_work_in_its_first_moments),
		T(test_dies_beside_a_look_at_files),
		T(test_comms_that_wait),
		T(test_a_comm_that_is_not_sent),
		T(test_restored_too_late),
		T(test_killed_before_it_is_woken),
		T(test_dies_of_itself_again_and_again),
		T(test_a_held_state_is_spared),
		T(test_restored_is_said_again),
		T(test_dies_long_after_it_came_back),
		T(test_dies_of_itself_and_is_not_used),
		T(test_a_loss_is_not_made_good),
		T(test_calls_of_two_losses),
		T(test_many_cells_behind_one_state),
		T(test_none_is_woken_for_a_shutdown),
		T(test_a_command_ends_with_one_that_is_looked_at),
		T(test_it_wakes_behind_slow_clients),
		T(test_it_shuts_its_wire),
		T(test_it_is_not_copied),
		T(test_it_is_not_copied_while_its_jail_ends),
		T(test_the_last_one_is_not_copied),
		T(test_it_resumes_too_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
