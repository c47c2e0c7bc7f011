/* Memory, with a broker and a pid 1 that the test plays: who goes when it is short, and who ends when it is over. */
#include "rig_twins.h"

#include <cellblock/fd.h>
#include <inttypes.h>
#include <signal.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define GIB (1ull << 30)
#define LARGE (16u << 20)
#define LIMIT (16 * GIB) /* what processes of the test itself have is little */

/* A look that began then. */
static void tell_of(struct rig *r, int64_t looked_ms, uint64_t used, uint64_t anonymous)
{
	struct cb_broker_reply notice = { .event = CB_BROKER_MEMORY,
					  .jail = r->jail,
					  .watchdog = used,
					  .anonymous = anonymous,
					  .looked_ms = looked_ms };

	assert_int_equal(cb_fd_send(r->broker, &notice, sizeof(notice), NULL, 0), 0);
}

/* One that is younger than all that has been. */
static void tell(struct rig *r, uint64_t used, uint64_t anonymous)
{
	tell_of(r, cb_now_ms() + 10000, used, anonymous);
}

static bool is_read(struct rig *r)
{
	int waiting = 0;

	return ioctl(r->broker, SIOCOUTQ, &waiting) == 0 && waiting == 0;
}

/* As the broker does: where the look at who has what took too long, on a machine that is very busy, nothing goes. */
static void tell_until_dropped(struct rig *r, uint64_t used, uint64_t anonymous, const struct rig_twin *t)
{
	int64_t end = cb_now_ms() + RIG_PATIENCE;
	struct cb_init_msg m;

	do {
		tell(r, used, anonymous);
		rig_until(r, is_read);
	} while (recv(r->init, &m, sizeof(m), MSG_DONTWAIT | MSG_PEEK) < 0 && cb_now_ms() < end);
	rig_init_expect(r, CB_INIT_DROP, (int)t->number);
}

/* Those that are told to end have ended: the rig's twins are this very process. */
static void all_ended(struct rig *r)
{
	memset(r->k.transactions.twins.ending, 0, sizeof(r->k.transactions.twins.ending));
}

static struct rig *up(void)
{
	struct rig *r = rig_twins_up(CB_MODE_ALWAYS);

	r->policy.limit_memory = LIMIT;
	r->k.guest.usage.init = getpid(); /* not what runs beside it: a walk through much is cut short */
	return r;
}

/* The cell's line on stderr, then its reply with what was given up. */
static void expect_given_up(struct rig *r, const char *id, uint64_t request, const char *words, int n)
{
	bool told = words == NULL;
	struct rig_msg m;

	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request, RIG_OK);
	for (int i = 0; i < n && !told; i++) { /* one message for all lines, if they came soon after each other */
		m = rig_take(r, RIG_IOPUB, "stream", id);
		assert_string_equal(rig_text(&m, "name"), "stderr");
		told = strstr(rig_text(&m, "text"), words) != NULL;
		if (!told && i == n - 1)
			fail_msg("%s: not for %s", rig_text(&m, "text"), words);
		rig_msg_free(&m);
	}
	m = rig_take(r, RIG_SHELL, "execute_reply", id);
	assert_int_equal(json_integer_value(rig_about(&m, "given_up")), n);
	assert_string_equal(json_string_value(rig_about(&m, "state")), "kept");
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

/* The oldest, then the next one, and not what is no great help. */
static void test_given_up(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin old = rig_twin(r), young;
	uint64_t request;

	rig_cell(r, "cell");
	young = rig_twin(r);
	const char *id = rig_begin(r, "cell", &request);

	tell(r, 15 * GIB, GIB / 2); /* they have too little */
	tell(r, 15 * GIB, 0);	    /* it is not known */
	rig_barrier(r);
	rig_init_silent(r);
	tell_until_dropped(r, 15 * GIB, 4 * GIB, &old);
	all_ended(r);
	expect_given_up(r, id, request, "an older state is given up", 1);
	rig_twin_close(&old);
	old = rig_twin(r);
	id = rig_begin(r, "cell", &request);
	tell_until_dropped(r, 15 * GIB, 4 * GIB, &young);
	all_ended(r);
	tell_until_dropped(r, 15 * GIB, 4 * GIB, &old);
	all_ended(r);
	tell(r, 15 * GIB, 4 * GIB); /* there is none left */
	expect_given_up(r, id, request, "all variables are lost", 2);
	rig_twin_close(&old);
	rig_twin_close(&young);
	young = rig_twin(r);
	id = rig_begin(r, "cell", &request);
	expect_given_up(r, id, request, NULL, 0);
	rig_twin_close(&young);
}

/* One after each of so many cells, but the first. */
static void states(struct rig *r, struct rig_twin *t, int n)
{
	r->policy.transactions_keep = (uint64_t)n - 1;
	for (int i = 0; i < n; i++) {
		if (i > 0)
			rig_works(r);
		t[i] = rig_twin(r);
	}
}

/* A younger state than the one that is gone back to goes anyway: no other is given up, and nobody is told. */
static void test_one_that_is_undone(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin t[4], copy;

	states(r, t, 4);
	const char *id = rig_send(r, RIG_CONTROL, "cellblock_rollback_request", "{\"cells\":2}", NULL);
	struct rig_request resume = rig_twin_wakes(r, &t[1]);

	rig_twin_resumed(r, &resume);
	copy = rig_twin_asked(r);
	tell_until_dropped(r, 15 * GIB, 4 * GIB, &t[2]);
	rig_twin_comes(r, &copy, RIG_MADE);
	rig_expect(r, RIG_CONTROL, "cellblock_rollback_reply", id);
	assert_non_null(cb_twins_find(&r->k.transactions.twins, t[0].number));
	assert_string_equal(r->k.transactions.memory.note, "");
	rig_twin_close(&t[0]);
	rig_twin_close(&t[2]);
	rig_twin_close(&t[3]);
	rig_twin_close(&copy);
}

/* But the youngest, which is the present one, is what there is if the one that is gone back to does not work: an older
 * one goes before it. */
static void test_the_present_one_comes_back(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin t[4], copy;

	states(r, t, 4);
	const char *id = rig_send(r, RIG_CONTROL, "cellblock_rollback_request", "{}", NULL);
	struct rig_request resume = rig_twin_wakes(r, &t[2]);

	rig_twin_resumed(r, &resume);
	copy = rig_twin_asked(r);
	tell_until_dropped(r, 15 * GIB, 4 * GIB, &t[0]);
	all_ended(r);
	assert_int_equal(r->k.transactions.memory.given_up, 1);
	rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
	rig_init_expect(r, CB_INIT_DROP, (int)copy.number);
	rig_twin_close(&copy);
	copy = rig_twin_comes_back(r, &t[3]);
	rig_expect_error(r, RIG_CONTROL, "cellblock_rollback_reply", id, "KernelDiedError", "did not work");
	rig_twin_close(&t[0]);
	rig_twin_close(&t[1]);
	rig_twin_close(&copy);
}

/* Where it is the last one it is given up like any other, and that is told. */
static void test_the_present_one_is_given_up(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin t[3], copy;

	states(r, t, 3);
	(void)rig_send(r, RIG_CONTROL, "cellblock_rollback_request", "{\"cells\":2}", NULL);
	struct rig_request resume = rig_twin_wakes(r, &t[0]);

	rig_twin_resumed(r, &resume);
	copy = rig_twin_asked(r);
	tell_until_dropped(r, 15 * GIB, 4 * GIB, &t[1]);
	all_ended(r);
	assert_int_equal(r->k.transactions.memory.given_up, 0);
	tell_until_dropped(r, 15 * GIB, 4 * GIB, &t[2]);
	all_ended(r);
	assert_true(r->k.transactions.memory.given_up == 1 && r->k.transactions.memory.none_left);
	rig_twin_close(&t[1]);
	rig_twin_close(&t[2]);
	rig_twin_close(&copy);
}

/* What a look saw of a twin that has been given up meanwhile costs neither the next one nor the guest; nor does what it
 * saw before there was this one. */
static void test_old_looks(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin old = rig_twin(r), young;
	uint64_t request;
	const char *id = rig_begin(r, "cell", &request);
	int64_t before;

	tell_until_dropped(r, 15 * GIB, 4 * GIB, &old);
	before = cb_now_ms();
	expect_given_up(r, id, request, "all variables are lost", 1);
	rig_twin_close(&old);
	young = rig_twin(r);
	id = rig_begin(r, "cell", &request);
	tell_of(r, before - 1000, 15 * GIB, 4 * GIB);
	tell_of(r, before - 1000, 20 * GIB, 4 * GIB);
	tell_of(r, before, 15 * GIB, 4 * GIB);
	rig_barrier(r);
	rig_init_silent(r);
	expect_given_up(r, id, request, NULL, 0);
	rig_twin_close(&young);
}

static pid_t one_that_lives(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	assert_true(pid > 0);
	return pid;
}

/* On a busy machine one that is given up takes its time to end, and a look in that time still sees what it has. */
static void test_one_that_has_not_ended(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin t = rig_twin(r);
	struct cb_twin *twin = cb_twins_find(&r->k.transactions.twins, t.number);
	uint64_t request;
	const char *id = rig_begin(r, "cell", &request);
	pid_t pid = one_that_lives();

	assert_non_null(twin);
	twin->pid = pid;
	tell_until_dropped(r, 15 * GIB, 4 * GIB, &t);
	rig_expect(r, RIG_IOPUB, "stream", id);
	tell(r, 17 * GIB, 4 * GIB);
	rig_barrier(r);
	rig_init_silent(r);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	tell(r, 17 * GIB, 0);
	rig_await_kill(r);
	rig_die(r, -1);
	rig_expect_error(r, RIG_IOPUB, "error", id, "CellMemoryError", "all variables are lost");
	rig_twin_close(&t);
}

static bool is_watched(struct rig *r)
{
	return r->watched;
}

/* So it is where we look ourselves, with a control group: what that one has may be enough. */
static void test_our_own_looks_wait_for_its_end(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin t = rig_twin(r);
	struct cb_usage_source *usage = &r->k.guest.usage;
	pid_t pid = one_that_lives();
	uint64_t request;

	rig_figures(&usage->cgroup[CB_USAGE_MEMORY], "16106127360\n");
	rig_figures(&usage->cgroup[CB_USAGE_STAT], "anon 4294967296\n");
	r->k.transactions.twins.ending[0] = (struct cb_twin_ending){ .pid = pid, .since_ns = cb_now_ns() };
	const char *id = rig_begin(r, "cell", &request);

	for (int looks = 0; looks < 3; looks++) {
		r->watched = false;
		rig_until(r, is_watched);
	}
	rig_init_silent(r);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	rig_init_expect(r, CB_INIT_DROP, (int)t.number);
	expect_given_up(r, id, request, "memory is short", 1);
	rig_twin_close(&t);
	cb_fd_close(&usage->cgroup[CB_USAGE_MEMORY]);
	cb_fd_close(&usage->cgroup[CB_USAGE_STAT]);
}

/* Over the limit also without it: it takes over. */
static void test_over(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin t = rig_twin(r), next;
	uint64_t request;
	const char *id = rig_begin(r, "cell", &request);

	tell(r, 20 * GIB, 3 * GIB);
	struct rig_request resume = rig_twin_wakes(r, &t);

	tell(r, 20 * GIB, 3 * GIB); /* the broker goes on looking */
	rig_twin_resumed(r, &resume);
	next = rig_twin(r);
	rig_expect_error(r, RIG_IOPUB, "error", id, "CellMemoryError",
			 "limits.memory allows (limit 16384.0 MiB, peak 20480.0 MiB)");
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_string_equal(json_string_value(rig_about(&m, "state")), "restored");
	assert_string_equal(json_string_value(rig_about(&m, "limit")), "memory");
	assert_null(rig_about(&m, "given_up"));
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_twin_close(&next);
}

/* Nobody can take over, and nobody is asked twice. */
static void test_over_without(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin t = rig_twin(r);
	uint64_t request;

	r->k.transactions.twins.again_ns = INT64_MAX; /* no other one before the cell, however long it takes to come */
	rig_init_tell(r, CB_INIT_GONE, (int)t.number);
	rig_twin_close(&t);
	const char *id = rig_begin(r, "cell", &request);

	tell(r, 17 * GIB, 0);
	rig_await_kill(r);
	tell(r, 17 * GIB, 0);
	rig_die(r, -1);
	rig_expect_error(r, RIG_IOPUB, "error", id, "CellMemoryError", "all variables are lost");
}

/* A twin may copy half of what the jail still has, and nothing where that is not known or a branch is made. */
static void test_room(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin t[3] = { rig_twin(r) };
	char *large = malloc(LARGE); /* of a small one there is nothing to copy */
	const uint64_t limit[3] = { 0, LIMIT, 1 };

	assert_non_null(large);
	memset(large, 1, LARGE);
	for (int i = 1; i < 3; i++) {
		r->policy.limit_memory = limit[i];
		rig_cell(r, "cell");
		t[i] = rig_twin(r);
	}
	assert_true(t[1].room <= LIMIT / 2 - LIMIT / 16 && t[1].room > 0);
	assert_int_equal(t[2].room, 0);
	free(large);
	for (int i = 0; i < 3; i++)
		rig_twin_close(&t[i]);
}

/* A jail that has ended is nobody's matter. */
static void test_of_another_jail(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin t = rig_twin(r);

	r->jail += 7;
	tell(r, 20 * GIB, 0);
	r->jail -= 7;
	rig_barrier(r);
	rig_init_silent(r);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	rig_twin_close(&t);
}

static bool has_looked(struct rig *r)
{
	return r->k.transactions.twins.settled == 1;
}

static bool has_looked_again(struct rig *r)
{
	return r->k.transactions.twins.settled == 2;
}

/* The kernel has not yet given back what one that was killed for memory had: nobody is woken into that. */
static void test_memory_comes_back_first(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin twin = rig_twin(r), next;
	int *cgroup = r->k.guest.usage.cgroup;
	uint64_t request;
	char text[64];

	rig_figures(&cgroup[CB_USAGE_EVENTS], "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
	const char *id = rig_begin(r, "bad", &request);

	snprintf(text, sizeof(text), "%" PRIu64 "\n", r->policy.limit_memory - 4096);
	rig_figures(&cgroup[CB_USAGE_MEMORY], text);
	rig_figures(&cgroup[CB_USAGE_STAT], "inactive_file 0\nanon 0\n");
	rig_figures(&cgroup[CB_USAGE_EVENTS], "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	rig_init_expect(r, CB_INIT_RESTORE, (int)twin.number);
	rig_init_tell(r, CB_INIT_RESTORED, (int)twin.number);
	rig_until(r, has_looked);
	rig_twin_overdue(r);
	rig_until(r, has_looked_again);
	assert_int_not_equal(r->k.guest.python.rules.phase, CB_PHASE_WAKING);
	rig_figures(&cgroup[CB_USAGE_MEMORY], "0\n");
	rig_twin_overdue(r);
	next = rig_twin_copied(r, rig_twin_goes_on(r, &twin));
	rig_expect_error(r, RIG_IOPUB, "error", id, "CellMemoryError", "before cell [1]");
	rig_twin_close(&next);
}

/* The host was short of memory, and took the guest: the cell is undone, and not to blame. */
static void test_killed_by_the_host(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin twin = rig_twin(r), next;
	int *events = &r->k.guest.usage.cgroup[CB_USAGE_EVENTS];
	uint64_t request;

	rig_figures(events, "low 0\noom 0\noom_kill 0\n");
	const char *id = rig_begin(r, "good", &request);

	rig_figures(events, "low 0\noom 0\noom_kill 1\n");
	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	next = rig_twin_comes_back(r, &twin);
	rig_expect_error(r, RIG_IOPUB, "error", id, "KernelDiedError", "killed by the host, which was short of memory");
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_string_equal(json_string_value(rig_about(&m, "by")), "outside");
	assert_string_equal(json_string_value(rig_about(&m, "state")), "restored");
	assert_true(json_is_null(rig_about(&m, "limit")));
	rig_msg_free(&m);
	rig_twin_close(&next);
}

static int64_t looks_at(const struct rig *r)
{
	return r->k.loop.timer[r->k.transactions.memory.timer].deadline;
}

static int64_t planned;

static bool looked_beside(struct rig *r)
{
	return looks_at(r) != planned;
}

/* The main line comes back, and something runs beside it: that is looked at on. */
static void test_while_a_state_comes_back(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin twin = rig_twin(r);
	uint64_t request;
	const char *id = rig_begin(r, "cell", &request);

	r->k.guest.state = CB_GUEST_RESTORING;
	cb_memory_watch(&r->k.transactions);
	planned = looks_at(r);
	assert_int_not_equal(planned, 0);
	rig_until(r, looked_beside);
	assert_true(r->k.transactions.memory.armed);
	assert_int_not_equal(looks_at(r), 0);
	r->k.guest.state = CB_GUEST_UP;
	rig_end(r, id, request);
	rig_twin_close(&twin);
}

/* Who died of itself again and again is not woken before there is a request; what runs beside it is looked at on, and
 * the older states go first, as beside a Python that is up: once by the broker's word, then by our own look. */
static void test_while_a_state_is_held(void **state)
{
	struct rig *r = *state = up();
	struct rig_twin t[3];
	struct cb_usage_source *usage = &r->k.guest.usage;
	struct cb_transactions *tx = &r->k.transactions;

	states(r, t, 3);
	tx->twins.idle_deaths = CB_IDLE_DEATHS;
	rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
	rig_init_expect(r, CB_INIT_RESTORE, (int)t[2].number);
	rig_init_tell(r, CB_INIT_RESTORED, (int)t[2].number);
	assert_non_null(cb_twins_held(&tx->twins));
	snprintf(cb_twins_held(&tx->twins)->name, CB_CHECKPOINT_NAME, "named");
	tell_until_dropped(r, 15 * GIB, 4 * GIB, &t[0]);
	all_ended(r);
	rig_figures(&usage->cgroup[CB_USAGE_MEMORY], "16106127360\n");
	rig_figures(&usage->cgroup[CB_USAGE_STAT], "anon 4294967296\n");
	tx->branches.load.count = 1; /* as if a branch had something to do */
	cb_memory_watch(tx);
	rig_init_expect(r, CB_INIT_DROP, (int)t[1].number);
	tx->branches.load.count = 0;
	assert_int_equal(tx->memory.given_up, 2);
	assert_false(tx->memory.none_left); /* the one that is held stays */
	assert_non_null(strstr(tx->memory.note, "an older state is given up"));
	cb_fd_close(&usage->cgroup[CB_USAGE_MEMORY]);
	cb_fd_close(&usage->cgroup[CB_USAGE_STAT]);
	rig_twins_close(t, 3);
}

/* Its pid 1 is known from the first Python on: who takes over may have ended before it is looked at. */
static void test_a_jail_keeps_its_pid_1(void **state)
{
	static const int none[CB_USAGE_NFDS] = { [0 ... CB_USAGE_NFDS - 1] = -1 };
	struct cb_usage_source of = CB_USAGE_SOURCE_NONE;
	pid_t gone = fork();

	(void)state;
	if (gone == 0)
		_exit(0);
	assert_int_equal(waitpid(gone, NULL, 0), gone);
	cb_usage_open(&of, getpid(), none);
	assert_int_equal(of.init, getppid());
	const pid_t broker = of.broker;

	cb_usage_follow(&of, gone);
	assert_int_equal(of.init, getppid());
	assert_int_equal(of.broker, broker);
	cb_usage_close(&of);
	assert_int_equal(of.init, 0); /* the next jail has another */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_jail_keeps_its_pid_1),
		cmocka_unit_test_teardown(test_given_up, rig_teardown),
		cmocka_unit_test_teardown(test_one_that_is_undone, rig_teardown),
		cmocka_unit_test_teardown(test_the_present_one_comes_back, rig_teardown),
		cmocka_unit_test_teardown(test_the_present_one_is_given_up, rig_teardown),
		cmocka_unit_test_teardown(test_old_looks, rig_teardown),
		cmocka_unit_test_teardown(test_one_that_has_not_ended, rig_teardown),
		cmocka_unit_test_teardown(test_our_own_looks_wait_for_its_end, rig_teardown),
		cmocka_unit_test_teardown(test_over, rig_teardown),
		cmocka_unit_test_teardown(test_over_without, rig_teardown),
		cmocka_unit_test_teardown(test_room, rig_teardown),
		cmocka_unit_test_teardown(test_of_another_jail, rig_teardown),
		cmocka_unit_test_teardown(test_memory_comes_back_first, rig_teardown),
		cmocka_unit_test_teardown(test_killed_by_the_host, rig_teardown),
		cmocka_unit_test_teardown(test_while_a_state_comes_back, rig_teardown),
		cmocka_unit_test_teardown(test_while_a_state_is_held, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
