/* stop_on_error: what a failed cell takes with it, by place in the queue and by the client's dates; never too much. */
#include "shells/abort.h"
#include "rig.h"

#include <math.h>

/* ---- end to end: the queue at the moment of failure ---- */

static void fail_cell(struct rig *r, const char *id, uint64_t g)
{
	rig_frame(r, CB_WIRE_ERROR, g, RIG_ERROR_CONTENT("E"));
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_ERROR("E"));
	rig_expect(r, RIG_IOPUB, "error", id);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

static void wait_for_queue(struct rig *r, size_t count)
{
	for (int i = 0; i < 1000 && r->k.shells.execution.load.count < count; i++)
		rig_barrier(r);
	assert_int_equal(r->k.shells.execution.load.count, count);
}

static void test_queue(void **state)
{
	struct rig *r = *state = rig_up();
	const char *a = rig_execute(r, "a");
	uint64_t g = rig_begun(r, a);
	const char *b = rig_execute(r, "b");
	const char *c = rig_send(r, RIG_SHELL, "is_complete_request", "{\"code\":\"a\"}", NULL);
	const char *d = rig_execute(r, "d");

	wait_for_queue(r, 3);
	fail_cell(r, a, g);
	rig_expect_aborted(r, b);
	rig_expect_aborted(r, d);
	/* what is no cell is served all the same */
	rig_expect(r, RIG_IOPUB, "busy", c);
	rig_frame(r, CB_WIRE_IS_COMPLETE_REPLY, rig_guest_expect(r, CB_WIRE_IS_COMPLETE), "{\"status\":\"complete\"}");
	rig_expect(r, RIG_SHELL, "is_complete_reply", c);
	rig_expect(r, RIG_IOPUB, "idle", c);
	/* and later cells run */
	const char *e = rig_execute(r, "e");

	g = rig_begun(r, e);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	rig_expect(r, RIG_SHELL, "execute_reply", e);
	rig_expect(r, RIG_IOPUB, "idle", e);
	assert_int_equal(r->k.shells.execution.number, 2); /* the aborted took no numbers */
	rig_barrier(r);
}

static void test_not_asked_for(void **state)
{
	static const char *const content[] = { "{\"code\":\"a\",\"stop_on_error\":false}" };
	struct rig *r = *state = rig_up();
	const char *a = rig_send(r, RIG_SHELL, "execute_request", content[0], NULL);
	uint64_t g = rig_begun(r, a);
	const char *b = rig_execute(r, "b");

	wait_for_queue(r, 1);
	fail_cell(r, a, g);
	(void)rig_begun(r, b);
}

static void test_silent_failure_aborts_nothing(void **state)
{
	struct rig *r = *state = rig_up();
	const char *a = rig_send(r, RIG_SHELL, "execute_request", "{\"code\":\"a\",\"silent\":true}", NULL);

	rig_expect(r, RIG_IOPUB, "busy", a);
	uint64_t g = rig_guest_expect(r, CB_WIRE_EXECUTE);
	const char *b = rig_execute(r, "b");

	wait_for_queue(r, 1);
	fail_cell(r, a, g);
	(void)rig_begun(r, b);
}

static void test_thousands(void **state)
{
	struct rig *r = *state = rig_up();
	const char *a = rig_execute(r, "a");
	uint64_t g = rig_begun(r, a);

	for (int i = 0; i < 2000; i++)
		(void)rig_execute(r, "b");
	wait_for_queue(r, 2000);
	fail_cell(r, a, g);
	for (int i = 0; i < 2000; i++) {
		struct rig_msg m = rig_recv(r, RIG_SHELL);

		assert_string_equal(rig_text(&m, "status"), "aborted");
		rig_msg_free(&m);
		m = rig_recv(r, RIG_IOPUB);
		rig_msg_free(&m);
		m = rig_recv(r, RIG_IOPUB);
		assert_string_equal(rig_text(&m, "execution_state"), "idle");
		rig_msg_free(&m);
	}
	rig_barrier(r);
	assert_int_equal(r->k.shells.execution.load.count, 0);
	assert_int_equal(r->k.shells.execution.load.bytes, 0);
}

/* ---- by date ---- */

#define T0 1000000.0 /* our clock at the failure */

/* A request of `session` dated `date` that arrives at `arrived`. */
static struct cb_request *request(const char *session, double date, double arrived)
{
	static struct cb_request q[4];
	static unsigned next;
	struct cb_request *r = &q[next++ % 4];

	*r = (struct cb_request){ .date = date, .arrived_date = arrived, .arrived_ns = (int64_t)(arrived * 1e9) };
	r->kind = CB_REQUEST_EXECUTE;
	if (session != NULL)
		r->session = (struct cb_span){ session, strlen(session) };
	return r;
}

static bool arrives(struct cb_execution *x, const struct cb_request *r)
{
	cb_abort_note_arrival(x, r);
	return cb_abort_applies(x, r);
}

/* A session whose request failed at T0; its clock is `skew` seconds behind ours, messages take 1 ms. */
static struct cb_execution *failed(double skew)
{
	static struct cb_execution x;
	struct cb_request *q = request("\"s\"", T0 - 1 - skew, T0 - 1 + 0.001);

	memset(&x, 0, sizeof(x));
	assert_false(arrives(&x, q));
	for (int i = 0; i < CB_SESSIONS_MAX; i++) {
		if (x.session[i].hash == 0)
			continue;
		x.session[i].failed_date = q->date;
		x.session[i].failed_at = T0;
	}
	return &x;
}

static void test_dates(void **state)
{
	static const double skew[] = { 0, 3600, -3600, 1e8, 0.3 };

	(void)state;
	for (size_t i = 0; i < sizeof(skew) / sizeof(skew[0]); i++) {
		double s = skew[i];
		struct cb_execution *x = failed(s);

		/* sent before the failure was known, held up on the way */
		assert_true(arrives(x, request("\"s\"", T0 - 0.5 - s, T0 + 0.2)));
		/* sent before, but seconds ago: nothing is on its way for a minute */
		assert_false(arrives(x, request("\"s\"", T0 - 0.5 - s, T0 + 100)));
		/* sent after it */
		assert_false(arrives(x, request("\"s\"", T0 + 0.1 - s, T0 + 0.101)));
		assert_false(arrives(x, request("\"s\"", T0 + 0.1 - s, T0 + 5)));
		/* older than the one that failed: not of this run */
		assert_false(arrives(x, request("\"s\"", T0 - 2 - s, T0 + 0.2)));
		/* another session */
		x = failed(s);
		assert_false(arrives(x, request("\"other\"", T0 - 0.5 - s, T0 + 0.2)));
	}
}

/* Our clock is set back after the failure: what the client sends from then on seems to have come before it. */
static void test_our_clock_is_set_back(void **state)
{
	(void)state;
	for (double by = 0.5; by < 1e5; by *= 10) {
		struct cb_execution *x = failed(0);

		for (double after = 0.1; after < 70; after *= 2) {
			struct cb_request *q = request("\"s\"", T0 + after, T0 + after + 0.001 - by);

			q->arrived_ns = (int64_t)((T0 + after + 0.001) * 1e9);
			assert_false(arrives(x, q));
		}
	}
}

/* A client's clock that was ahead once, and was set right: what that says of its skew is not believed for ever. */
static void test_a_clients_clock_was_ahead(void **state)
{
	static struct cb_execution x;

	(void)state;
	for (double sent = T0 - 3600; sent < T0; sent += 60)
		assert_false(arrives(&x, request("\"s\"", sent + (sent < T0 - 3000 ? 30 : 0), sent + 0.001)));
	for (int i = 0; i < CB_SESSIONS_MAX; i++) {
		x.session[i].failed_date = T0 - 60;
		x.session[i].failed_at = T0;
	}
	assert_false(arrives(&x, request("\"s\"", T0 + 0.1, T0 + 0.101)));
	assert_true(arrives(&x, request("\"s\"", T0 - 0.5, T0 + 0.2)));
}

/* Emacs' EIN dates so. What was sent at 10.6, after a failure at 10.5, has the date 10. */
static void test_dates_of_whole_seconds(void **state)
{
	static struct cb_execution x;
	struct cb_request *q = request("\"s\"", 9, 9.301);

	(void)state;
	assert_false(arrives(&x, q));
	for (int i = 0; i < CB_SESSIONS_MAX; i++) {
		if (x.session[i].hash == 0)
			continue;
		x.session[i].failed_date = 9;
		x.session[i].failed_at = 10.5;
	}
	q = request("\"s\"", 10, 10.601);
	q->date_is_whole = true;
	assert_false(arrives(&x, q));
	q = request("\"s\"", 10, 10.602);
	assert_true(arrives(&x, q)); /* sent at 10.0 */
	for (int i = 0; i < CB_SESSIONS_MAX; i++)
		x.session[i].failed_at += x.session[i].hash != 0 ? 1 : 0;
	q = request("\"s\"", 10, 11.602);
	q->date_is_whole = true;
	assert_true(arrives(&x, q)); /* before 11, whenever that was */
}

static void test_useless_dates(void **state)
{
	struct cb_execution *x = failed(0);

	(void)state;
	assert_false(arrives(x, request("\"s\"", NAN, T0 + 0.001)));	/* none */
	assert_false(arrives(x, request(NULL, T0 - 0.5, T0 + 0.001)));	/* no session */
	assert_false(arrives(x, request("\"s\"", T0 - 1, T0 + 0.001))); /* always the same */
	struct cb_request *q = request("\"s\"", T0 - 0.5, T0 + 0.2);

	q->kind = CB_REQUEST_COMPLETE;
	assert_false(arrives(x, q)); /* no cell */
}

static void test_many_sessions(void **state)
{
	struct cb_execution *x = failed(0);
	char name[100][16];

	(void)state;
	for (int i = 0; i < 100; i++) { /* the table does not grow; the latest are known */
		snprintf(name[i], sizeof(name[i]), "\"%d\"", i);
		assert_false(arrives(x, request(name[i], T0 + i, T0 + i + 0.001)));
	}
	assert_false(arrives(x, request("\"s\"", T0 - 0.5, T0 + 0.2))); /* forgotten: no harm */
}

static void test_stop_on_error_timeout(void **state)
{
	struct rig *r = *state = rig_up();

	r->k.shells.execution.stop_on_error_timeout = 1e30; /* also a silly one */
	const char *a = rig_execute(r, "a");

	fail_cell(r, a, rig_begun(r, a));
	rig_expect_aborted(r, rig_execute(r, "b"));
	r->k.shells.execution.abort_until = 0;
	(void)rig_begun(r, rig_execute(r, "c"));
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_queue),
		T(test_not_asked_for),
		T(test_silent_failure_aborts_nothing),
		T(test_thousands),
		T(test_dates),
		T(test_our_clock_is_set_back),
		T(test_a_clients_clock_was_ahead),
		T(test_dates_of_whole_seconds),
		T(test_useless_dates),
		T(test_many_sessions),
		T(test_stop_on_error_timeout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
