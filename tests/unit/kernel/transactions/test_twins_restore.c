/* Twins when nothing runs: what is tried again by itself, and who takes over for one that dies then. */
#include "rig_twins.h"

#include <cellblock/fd.h>

#include <signal.h>
#include <string.h>
#include <sys/socket.h>

static bool none_coming(struct rig *r)
{
	return !cb_twins_busy(&r->k.transactions);
}

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

static void cell(struct rig *r, const char *code)
{
	uint64_t request;
	const char *id = rig_begin(r, code, &request);

	rig_end(r, id, request);
}

/* What nothing asks for is tried again by itself, but not for ever. */
static void test_tried_again(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct cb_twins *w = &r->k.transactions.twins;
	struct rig_twin t = rig_twin(r), older = { .fd = { -1, -1, -1, -1, -1 } };
	int first = (int)t.number;

	cell(r, "a");
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
	assert_true(cb_loop_armed(&r->k.loop, w->idle_timer));
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

		rig_cell_error(r, id, "KernelDiedError");
		rig_ended(r, id, "KernelDiedError");
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
	struct rig_request resume = rig_twin_wakes(r, &t);

	rig_twin_resumed(r, &resume);
	copy = rig_twin(r);
	rig_until(r, none_coming);
	assert_true(is_running(r));
	assert_non_null(strstr(r->k.shells.execution.lost, "Python was killed by signal 11"));
	rig_twin_close(&copy);
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

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_tried_again),
		T(test_dies_of_work_in_its_first_moments),
		T(test_dies_beside_a_look_at_files),
		T(test_restored_too_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
