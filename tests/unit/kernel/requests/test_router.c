/* Which message on which channel gets what: each type of the protocol, unknown ones, and the brackets of busy and idle.
 */
#include "rig.h"

#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Answered at once, on its own channel, between busy and idle; while a cell runs its busy is said again. */
static void test_at_once(void **state)
{
	static const char *const type[] = { "kernel_info", "comm_info", "connect", "interrupt" };
	static const enum rig_source channel[] = { RIG_SHELL, RIG_CONTROL };
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *cell = NULL;

	for (int running = 0; running < 2; running++) {
		if (running)
			cell = rig_begin(r, "a", &g);
		for (size_t i = 0; i < 4; i++) {
			for (size_t c = 0; c < 2; c++) {
				char request[64], reply[64];

				snprintf(request, sizeof(request), "%s_request", type[i]);
				snprintf(reply, sizeof(reply), "%s_reply", type[i]);
				const char *id = rig_send(r, channel[c], request, NULL, NULL);
				struct rig_msg m = rig_take(r, channel[c], reply, id);

				assert_string_equal(rig_text(&m, "status"), "ok");
				rig_msg_free(&m);
				rig_expect(r, RIG_IOPUB, "busy", id);
				rig_expect(r, RIG_IOPUB, "idle", id);
				if (running)
					rig_expect(r, RIG_IOPUB, "busy", cell);
			}
		}
	}
}

static void test_before_the_guest(void **state)
{
	struct rig *r = *state = rig_new();

	rig_subscribe(r);
	const char *id = rig_send(r, RIG_SHELL, "kernel_info_request", NULL, NULL);
	struct rig_msg m = rig_take(r, RIG_SHELL, "kernel_info_reply", id);
	json_t *language = json_object_get(m.content, "language_info");

	assert_string_equal(json_string_value(json_object_get(language, "version")), "3.11.2");
	rig_msg_free(&m);
}

/* What cells get decides how they are shown, not what is installed. */
static void test_lexer(void **state)
{
	static char old[] = "7.20.0", new[] = "7.21.0";
	static const struct {
		char *ipython;
		const char *lexer;
	} known[] = { { NULL, "python3" }, { old, "python3" }, { new, "ipython3" } };
	struct rig *r = *state = rig_new();

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		r->interpreter.ipython_version = known[i].ipython;
		const char *id = rig_send(r, RIG_SHELL, "kernel_info_request", NULL, NULL);
		struct rig_msg m = rig_take(r, RIG_SHELL, "kernel_info_reply", id);
		json_t *language = json_object_get(m.content, "language_info");

		assert_string_equal(json_string_value(json_object_get(language, "pygments_lexer")), known[i].lexer);
		rig_msg_free(&m);
	}
}

static void test_unknown(void **state)
{
	static const enum rig_source channel[] = { RIG_SHELL, RIG_CONTROL };
	struct rig *r = *state = rig_up();

	for (size_t c = 0; c < 2; c++) {
		const char *id = rig_send(r, channel[c], "no_such_request", "not JSON", NULL);
		struct rig_msg m = rig_take(r, channel[c], "no_such_reply", id);

		assert_string_equal(rig_text(&m, "status"), "error");
		rig_msg_free(&m);
		rig_expect(r, RIG_IOPUB, "busy", id);
		rig_expect(r, RIG_IOPUB, "idle", id);
		id = rig_send(r, channel[c], "something", NULL, NULL); /* no request: no reply */
		rig_expect(r, RIG_IOPUB, "busy", id);
		rig_expect(r, RIG_IOPUB, "idle", id);
	}
	rig_barrier(r);
}

/* A type on a channel where it does not belong is unknown there. */
static void test_wrong_channel(void **state)
{
	static const char *const type[] = { "execute", "complete", "inspect", "is_complete" };
	struct rig *r = *state = rig_up();

	for (size_t i = 0; i < 4; i++) {
		char request[64], reply[64];

		snprintf(request, sizeof(request), "%s_request", type[i]);
		snprintf(reply, sizeof(reply), "%s_reply", type[i]);
		const char *id = rig_send(r, RIG_CONTROL, request, "{\"code\":\"a\"}", NULL);
		struct rig_msg m = rig_take(r, RIG_CONTROL, reply, id);

		assert_string_equal(rig_text(&m, "status"), "error");
		rig_msg_free(&m);
		rig_expect(r, RIG_IOPUB, "busy", id);
		rig_expect(r, RIG_IOPUB, "idle", id);
	}
	(void)rig_send(r, RIG_STDIN, "execute_request", "{\"code\":\"a\"}", NULL);
	(void)rig_send(r, RIG_STDIN, "kernel_info_request", NULL, NULL);
	rig_barrier(r);
	assert_int_equal(r->k.shells.execution.number, 0);
}

/* What has no valid signature gets no answer, and does no harm to what has. */
static void test_unsigned(void **state)
{
	struct rig *r = *state = rig_up();
	static const char *const part[] = {
		"<IDS|MSG>", "", "{\"msg_id\":\"x\",\"msg_type\":\"kernel_info_request\"}", "{}", "{}", "{}",
	};

	for (int i = 0; i < 6; i++)
		zmq_send(r->client[RIG_CONTROL], part[i], strlen(part[i]), i < 5 ? ZMQ_SNDMORE : 0);
	zmq_send(r->client[RIG_CONTROL], "", 0, 0);
	for (int i = 0; i < 2000; i++)
		zmq_send(r->client[RIG_CONTROL], "x", 1, i < 1999 ? ZMQ_SNDMORE : 0);
	rig_barrier(r);
}

/* Whoever has no key can't fill the log's disk. */
static void test_unsigned_without_end(void **state)
{
	struct rig *r = *state = rig_up();
	int log = memfd_create("log", MFD_CLOEXEC);
	int64_t begun = cb_now_ns(), most;
	char *said, *at;
	size_t len;
	int lines = 0;

	cb_log_init("test", CB_LOG_WARNING, log);
	for (int i = 0; i < 3000; i++)
		zmq_send(r->client[RIG_CONTROL], "x", 1, 0);
	rig_barrier(r);
	cb_log_init("test", CB_LOG_WARNING, STDERR_FILENO);
	most = CB_LOG_LINES_A_SECOND * (2 + (cb_now_ns() - begun) / 1000000000LL);
	assert_int_equal(lseek(log, 0, SEEK_SET), 0);
	assert_int_equal(cb_fd_read_all(log, 16 << 20, &said, &len), 0);
	for (at = said; (at = strstr(at, "message dropped")) != NULL; at++)
		lines++;
	assert_in_range(lines, 1, most);
	free(said);
	close(log);
}

/* From here on what the client sends is there when the send is over; by TCP it comes at some later time. */
static void connect_at_once(struct rig *r, enum rig_source source, enum cb_channel channel, const char *url)
{
	char tcp[64];

	snprintf(tcp, sizeof(tcp), "tcp://127.0.0.1:%d", r->k.jupyter.conn.port[channel]);
	assert_int_equal(zmq_bind(r->k.jupyter.channels.socket[channel], url), 0);
	assert_int_equal(zmq_disconnect(r->client[source], tcp), 0);
	zmq_setsockopt(r->client[source], ZMQ_ROUTING_ID, "at once", 7);
	assert_int_equal(zmq_connect(r->client[source], url), 0);
}

/* What came in the loop's last turn is answered too. */
static void test_the_last_requests(void **state)
{
	static const enum cb_channel channel[] = { CB_SHELL, CB_CONTROL };
	struct rig *r = *state = rig_up();

	for (size_t i = 0; i < 2; i++)
		cb_loop_set_events(&r->k.loop, r->k.jupyter.channels.slot[channel[i]], 0);
	connect_at_once(r, RIG_SHELL, CB_SHELL, "inproc://shell");
	connect_at_once(r, RIG_CONTROL, CB_CONTROL, "inproc://control");
	const char *info = rig_send(r, RIG_CONTROL, "kernel_info_request", NULL, NULL);
	const char *state_of = rig_send(r, RIG_CONTROL, "cellblock_checkpoint_request", "{\"name\":\"a\"}", NULL);
	const char *comm = rig_send(r, RIG_SHELL, "comm_msg", "{\"comm_id\":\"c\",\"data\":{}}", NULL);
	const char *history = rig_send(r, RIG_SHELL, "history_request", "{\"hist_access_type\":\"tail\"}", NULL);
	const char *cell = rig_execute(r, "a");

	r->k.loop.stop = true;
	cb_kernel_answer_the_rest(&r->k);
	rig_expect(r, RIG_CONTROL, "kernel_info_reply", info);
	rig_expect_error(r, RIG_CONTROL, "cellblock_checkpoint_reply", state_of, "KernelBusyError", "shutting down");
	rig_expect_error(r, RIG_SHELL, "history_reply", history, "KernelBusyError", "shutting down");
	rig_expect_error(r, RIG_SHELL, "execute_reply", cell, "KernelBusyError", "shutting down");
	const char *const all[] = { info, state_of, comm, history, cell };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		rig_expect(r, RIG_IOPUB, "busy", all[i]);
		rig_expect(r, RIG_IOPUB, "idle", all[i]);
	}
}

static bool ended(struct rig *r)
{
	return r->ended;
}

static void test_shutdown(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id = rig_send(r, RIG_SHELL, "shutdown_request", "{\"restart\":\"yes\"}", NULL);
	struct rig_msg m = rig_take(r, RIG_SHELL, "shutdown_reply", id);

	assert_string_equal(rig_text(&m, "status"), "error"); /* and goes on */
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	id = rig_send(r, RIG_CONTROL, "shutdown_request", "{\"restart\":false}", NULL);
	m = rig_take(r, RIG_CONTROL, "shutdown_reply", id);
	assert_string_equal(rig_text(&m, "status"), "ok");
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "shutdown_reply", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	/* the guest is asked to end by itself; cells get no place any more */
	assert_int_equal(rig_guest_expect(r, CB_WIRE_SHUTDOWN), 0);
	id = rig_execute(r, "late");
	rig_expect_error(r, RIG_SHELL, "execute_reply", id, "KernelBusyError", "");
	rig_die(r, 0);
	rig_until(r, ended);
}

static void test_shutdown_while_running(void **state)
{
	struct rig *r = *state = rig_up();
	uint64_t g;
	const char *cell = rig_begin(r, "a", &g);
	const char *id = rig_send(r, RIG_CONTROL, "shutdown_request", "{\"restart\":true}", NULL);
	struct rig_msg m = rig_take(r, RIG_CONTROL, "shutdown_reply", id);

	assert_true(json_is_true(json_object_get(m.content, "restart")));
	rig_msg_free(&m);
	rig_await_kill(r);
	rig_die(r, SIGKILL);
	rig_expect(r, RIG_SHELL, "execute_reply", cell);
	rig_until(r, ended);
}

static void test_heartbeat(void **state)
{
	struct rig *r = *state = rig_up();
	char url[64], got[8];

	r->peer[0] = zmq_socket(r->k.jupyter.channels.context, ZMQ_REQ);
	zmq_setsockopt(r->peer[0], ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", r->k.jupyter.conn.port[CB_HB]);
	assert_int_equal(zmq_connect(r->peer[0], url), 0);
	assert_int_equal(zmq_send(r->peer[0], "ping", 4, 0), 4);
	for (int i = 0; i < 100000 && zmq_recv(r->peer[0], got, sizeof(got), ZMQ_DONTWAIT) != 4; i++)
		rig_until_soon(r);
	assert_memory_equal(got, "ping", 4);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_at_once),
		T(test_before_the_guest),
		T(test_lexer),
		T(test_unknown),
		T(test_wrong_channel),
		T(test_unsigned),
		T(test_unsigned_without_end),
		T(test_the_last_requests),
		T(test_shutdown),
		T(test_shutdown_while_running),
		T(test_heartbeat),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
