/* The words of failure: which limit, what was done, what became of the state; and that they fit whatever is put in. */
#include "shells/failure.h"
#include "rig.h"

#include <cellblock/fd.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void test_death_text(void **state)
{
	static struct cb_kernel k;
	static const struct cb_policy policy = { .limit_memory = 512u << 20 };
	static const struct {
		int status;
		const char *says;
	} death[] = {
		{ SIGSEGV, "signal 11" }, { SIGKILL, "memory" }, { SIGSYS, "system call" },
		{ 3 << 8, "status 3" },	  { 0, "status 0" },
	};

	(void)state;
	k.shells.guest = &k.guest;
	assert_non_null(strstr(cb_failure_death_text(&k.shells), "from outside"));
	k.guest.exited = true;
	for (size_t i = 0; i < sizeof(death) / sizeof(death[0]); i++) {
		k.guest.wait_status = death[i].status;
		assert_non_null(strstr(cb_failure_death_text(&k.shells), death[i].says));
	}
	snprintf(k.guest.verdict, sizeof(k.guest.verdict), "time limit");
	assert_non_null(strstr(cb_failure_death_text(&k.shells), "stopped: time limit"));
	k.shells.policy = &policy;
	k.guest.verdict[0] = '\0';
	k.guest.end_known = true;
	k.guest.level = CB_LEVEL_FULL;
	k.guest.end = (struct cb_broker_reply){ .oom = { 2, 5 }, .memory_peak = 300u << 20 };
	k.shells.execution.shell.cell.usage_at_start.oom = (struct cb_oom_count){ 1, 4 };
	assert_null(strstr(cb_failure_death_text(&k.shells), "limits.memory")); /* it exited by itself */
	k.guest.wait_status = SIGKILL;
	assert_non_null(strstr(cb_failure_death_text(&k.shells), "(limit 512.0 MiB, peak 300.0 MiB)"));
	k.guest.end.oom.limit_met = 0; /* the host's lack: the figures of its own limit say nothing */
	assert_non_null(strstr(cb_failure_death_text(&k.shells), "killed by the host, which was short of memory"));
	assert_null(strstr(cb_failure_death_text(&k.shells), "MiB"));
	k.guest.level = CB_LEVEL_CONTAINER; /* a cell may have seen to that */
	assert_non_null(strstr(cb_failure_death_text(&k.shells), "(limit 512.0 MiB, peak 300.0 MiB)"));
	k.guest.level = CB_LEVEL_FULL;
	k.shells.execution.shell.cell.usage_at_start.oom.kills = 2; /* an earlier cell's child */
	assert_null(strstr(cb_failure_death_text(&k.shells), "short of memory"));
	assert_null(strstr(cb_failure_death_text(&k.shells), "limits.memory"));
	k.guest.end.watchdog = 600u << 20;
	assert_non_null(strstr(cb_failure_death_text(&k.shells), "(limit 512.0 MiB, peak 600.0 MiB)"));
}

static void test_limit_and_metadata(void **state)
{
	static struct cb_kernel k;
	static const struct cb_policy policy;
	static struct cb_request q = { .id = 1 };
	static const struct {
		enum cb_stop stop;
		bool cut;
		const char *limit;
	} tried[] = {
		{ CB_STOP_NONE, false, NULL },	     { CB_STOP_NONE, true, "output" },
		{ CB_STOP_TIME_SOFT, true, "time" }, { CB_STOP_TIME_HARD, false, "time" },
		{ CB_STOP_INTERRUPT, false, NULL },  { CB_STOP_WIRE, false, NULL },
	};

	(void)state;
	k.policy = &policy;
	k.guest.broker = CB_BROKER_NONE;
	assert_int_equal(cb_kernel_init(&k), 0);
	k.shells.execution.shell.current = &q;
	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		CB_AUTO_BUF b = CB_BUF_INIT(4096);

		k.shells.execution.shell.cell.stop = tried[i].stop;
		cb_output_parent(&k.guest.python.output, q.id)->output_cut = tried[i].cut;
		const char *limit = cb_failure_limit(&k.shells.execution.shell);

		assert_int_equal(limit == NULL, tried[i].limit == NULL);
		if (limit != NULL)
			assert_string_equal(limit, tried[i].limit);
		cb_failure_metadata(&k.shells.execution.shell, "ok", "kept", limit, NULL, &b);
		json_t *m = json_loadb((char *)b.data, b.len, 0, NULL), *c = json_object_get(m, "cellblock");

		assert_non_null(c);
		assert_int_equal(json_is_null(json_object_get(c, "limit")), limit == NULL);
		assert_string_equal(json_string_value(json_object_get(c, "state")), "kept");
		assert_true(json_is_number(json_object_get(json_object_get(c, "usage"), "wall_s")));
		json_decref(m);
	}
}

/* What was lost or came back before the cell is told with it, unless the cell itself lost more. */
static void test_state_from_before(void **state)
{
	struct rig *r = *state = rig_up();
	struct cb_execution *x = &r->k.shells.execution;
	static const struct {
		bool restored;
		const char *state, *said;
	} tried[] = { { true, "kept", "restored" }, { true, "lost", "lost" }, { false, "kept", "lost" } };
	uint64_t g;

	const char *id = rig_begin(r, "a", &g);

	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		CB_AUTO_BUF b = CB_BUF_INIT(CB_METADATA_MAX);

		x->lost_owed = true;
		x->lost_restored = tried[i].restored;
		cb_failure_metadata(&x->shell, "ok", tried[i].state, NULL, NULL, &b);
		json_t *m = json_loadb((char *)b.data, b.len, 0, NULL);

		assert_string_equal(json_string_value(json_object_get(json_object_get(m, "cellblock"), "state")),
				    tried[i].said);
		json_decref(m);
	}
	x->lost_owed = false;
	rig_end(r, id, g);
}

/* Text of any length and any characters, in `error` and in the reply. */
static void test_long_reasons(void **state)
{
	struct rig *r = *state = rig_up();
	static char text[5000];
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	memset(text, '"', sizeof(text) - 1);
	text[10] = '\n';
	text[11] = '\xff';
	cb_failure_reply(&r->k.shells.execution.shell, "KernelDiedError", "lost", "%s", text);
	struct rig_msg e = rig_take(r, RIG_IOPUB, "error", id), m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_string_equal(rig_text(&e, "ename"), "KernelDiedError");
	assert_string_equal(rig_text(&e, "evalue"), rig_text(&m, "evalue"));
	assert_int_equal(json_array_size(json_object_get(e.content, "traceback")), 1);
	assert_int_equal(json_array_size(json_object_get(m.content, "traceback")), 1);
	assert_int_equal(json_integer_value(json_object_get(m.content, "execution_count")), 1);
	rig_msg_free(&e);
	rig_msg_free(&m);
}

static void test_isolation(void **state)
{
	struct rig *r = *state = rig_up();
	struct cb_err *f = &r->k.guest.failure;
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	memset(f->step, 'a', sizeof(f->step) - 1);
	memset(f->text, 'b', sizeof(f->text) - 1);
	memset(f->cure, 'c', sizeof(f->cure) - 1);
	cb_failure_unsent(&r->k.shells.execution.shell, false, CB_E_CLOSED);
	struct rig_msg m = rig_take(r, RIG_IOPUB, "error", id);

	assert_non_null(strstr(rig_text(&m, "evalue"), f->step));
	assert_non_null(strstr(rig_text(&m, "evalue"), f->text));
	assert_non_null(strstr(rig_text(&m, "evalue"), f->cure));
	rig_msg_free(&m);
}

/* Of a death that something outside the jail has brought about no cell is told to be at fault. */
static void test_by_whom(void **state)
{
	static const struct {
		int wait_status;
		enum cb_isolation_level level;
		const char *by;
	} deaths[] = {
		{ 9, CB_LEVEL_FULL, "kernel" },	     { 3 << 8, CB_LEVEL_FULL, "kernel" },
		{ -1, CB_LEVEL_FULL, "outside" },    { -1, CB_LEVEL_NO_CGROUP, "outside" },
		{ -1, CB_LEVEL_CONTAINER, "kernel" }, { -1, CB_LEVEL_NONE, "kernel" }, /* a cell can do it */
	};
	struct rig *r = *state = rig_up();

	for (size_t i = 0; i < sizeof(deaths) / sizeof(deaths[0]); i++) {
		uint64_t request;
		const char *id = rig_begin(r, "1", &request);

		r->k.guest.level = deaths[i].level;
		rig_die(r, deaths[i].wait_status);
		rig_cell_error(r, id, "KernelDiedError");
		struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

		assert_string_equal(json_string_value(rig_about(&m, "by")), deaths[i].by);
		rig_msg_free(&m);
		rig_expect(r, RIG_IOPUB, "idle", id);
		rig_restarted(r);
	}
}

/* The kernel's OOM killer takes guests first, also where not the jail but the host is short of memory. */
static void test_whose_memory_was_short(void **state)
{
	static const struct {
		enum cb_isolation_level level;
		struct cb_oom_count oom;
		const char *ename, *limit, *by;
	} deaths[] = {
		{ CB_LEVEL_FULL, { 1, 0 }, "KernelDiedError", NULL, "outside" },
		{ CB_LEVEL_FULL, { 1, 1 }, "CellMemoryError", "memory", "kernel" },
		{ CB_LEVEL_FULL, { 0, 1 }, "KernelDiedError", NULL, "kernel" }, /* by another's signal */
		{ CB_LEVEL_CONTAINER, { 1, 0 }, "CellMemoryError", "memory", "kernel" },
	};
	struct rig *r = *state = rig_up();

	for (size_t i = 0; i < sizeof(deaths) / sizeof(deaths[0]); i++) {
		uint64_t request;
		const char *id = rig_begin(r, "1", &request);

		r->k.guest.level = deaths[i].level;
		r->end.oom = deaths[i].oom;
		rig_die(r, SIGKILL);
		rig_cell_error(r, id, deaths[i].ename);
		struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);
		json_t *limit = rig_about(&m, "limit");

		assert_string_equal(rig_text(&m, "ename"), deaths[i].ename);
		assert_string_equal(json_string_value(rig_about(&m, "by")), deaths[i].by);
		assert_int_equal(json_is_null(limit), deaths[i].limit == NULL);
		if (deaths[i].limit != NULL)
			assert_string_equal(json_string_value(limit), deaths[i].limit);
		rig_msg_free(&m);
		rig_expect(r, RIG_IOPUB, "idle", id);
		rig_restarted(r);
	}
}

/* A child was killed, and the cell went on: that is its limit only where it was the jail's. */
static void test_whose_memory_a_childs_was(void **state)
{
	static const struct {
		const char *before, *after, *limit;
	} tried[] = {
		{ "low 0\noom 0\noom_kill 0\n", "low 0\noom 0\noom_kill 1\n", NULL },
		{ "low 0\noom 0\noom_kill 0\n", "low 0\noom 2\noom_kill 1\n", "memory" },
		{ "low 0\noom 2\noom_kill 1\n", "low 0\noom 2\noom_kill 2\n", "memory" },
		{ "low 0\noom 2\noom_kill 1\n", "low 0\noom 2\noom_kill 1\n", NULL },
	};
	struct rig *r = *state = rig_up();
	int *events = &r->k.guest.usage.cgroup[CB_USAGE_EVENTS];

	r->k.guest.level = CB_LEVEL_FULL;
	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		uint64_t request;

		rig_figures(events, tried[i].before);
		const char *id = rig_begin(r, "1", &request);

		rig_figures(events, tried[i].after);
		rig_frame(r, CB_WIRE_EXECUTE_REPLY, request, RIG_ERROR("ValueError"));
		struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);
		json_t *limit = rig_about(&m, "limit");

		assert_int_equal(json_is_null(limit), tried[i].limit == NULL);
		if (tried[i].limit != NULL)
			assert_string_equal(json_string_value(limit), tried[i].limit);
		rig_msg_free(&m);
		rig_expect(r, RIG_IOPUB, "idle", id);
	}
}

static void test_time_keeps_the_traceback(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *id = rig_begin(r, "a", &g);

	r->k.shells.execution.shell.current->execute.timeout = 1.5;
	cb_failure_publish_timeout(&r->k.shells.execution.shell, CB_SPAN("[\"one\",\"two\"]"));
	struct rig_msg m = rig_take(r, RIG_IOPUB, "error", id);

	assert_string_equal(rig_text(&m, "ename"), "CellTimeoutError");
	assert_non_null(strstr(rig_text(&m, "evalue"), "1.5 s"));
	assert_int_equal(json_array_size(json_object_get(m.content, "traceback")), 3);
	rig_msg_free(&m);
	cb_failure_publish_timeout(&r->k.shells.execution.shell, CB_SPAN("[ ]"));
	m = rig_take(r, RIG_IOPUB, "error", id);
	assert_int_equal(json_array_size(json_object_get(m.content, "traceback")), 1);
	rig_msg_free(&m);
}

/* A cell that goes on to say what it was stopped by is told of its limit once; the rest is its output. */
static void test_time_is_told_once(void **state)
{
	struct rig *r = *state = rig_up();
	struct cb_shell *s = &r->k.shells.execution.shell;
	uint64_t g;

	r->policy.limit_output = 200;
	const char *id = rig_begin(r, "a", &g);

	rig_frame(r, CB_WIRE_ERROR, g, RIG_ERROR_CONTENT("E")); /* shown by the cell, which went on */
	rig_cell_error(r, id, "E");
	s->current->execute.timeout = 1.5;
	s->cell.stop = CB_STOP_TIME_SOFT;
	rig_frame(r, CB_WIRE_ERROR, g, RIG_ERROR_CONTENT("KeyboardInterrupt"));
	rig_cell_error(r, id, "CellTimeoutError");
	rig_frame(r, CB_WIRE_ERROR, g, RIG_ERROR_CONTENT("KeyboardInterrupt"));
	rig_cell_error(r, id, "KeyboardInterrupt");
	for (int i = 0; i < 10; i++)
		rig_frame(r, CB_WIRE_ERROR, g, RIG_ERROR_CONTENT("KeyboardInterrupt"));
	struct rig_msg m = rig_take(r, RIG_IOPUB, "error", id);

	rig_msg_free(&m);
	m = rig_take(r, RIG_IOPUB, "stream", id);
	assert_non_null(strstr(rig_text(&m, "text"), "limits.output"));
	rig_msg_free(&m);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_ERROR("KeyboardInterrupt"));
	rig_ended(r, id, "CellTimeoutError");
	rig_barrier(r);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_death_text),   T(test_limit_and_metadata), T(test_state_from_before),
		T(test_long_reasons), T(test_isolation),	  T(test_time_keeps_the_traceback),
		T(test_by_whom),      T(test_time_is_told_once),
		T(test_whose_memory_was_short), T(test_whose_memory_a_childs_was),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
