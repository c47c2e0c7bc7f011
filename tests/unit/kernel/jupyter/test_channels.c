/* What clients leave unread costs a bounded amount of memory, and nobody else's replies or output. */
#include <errno.h>
#include <stdlib.h>

#include "rig.h"

#define MIB (1u << 20)
#define MOST (256 * MIB)
#define SHARE (64 * MIB)
#define STUCK 4 /* peers of the rig */

static const char *const stuck_name[STUCK] = { "stuck0", "stuck1", "stuck2", "stuck3" };

static void *peer(struct rig *r, int number, enum cb_channel ch, bool stuck)
{
	void *s = zmq_socket(r->k.jupyter.channels.context, ZMQ_DEALER);
	char url[64];

	if (stuck) {
		zmq_setsockopt(s, ZMQ_RCVHWM, &(int){ 1 }, sizeof(int));
		zmq_setsockopt(s, ZMQ_RCVBUF, &(int){ 4096 }, sizeof(int));
	}
	zmq_setsockopt(s, ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	if (number < 0) {
		zmq_setsockopt(s, ZMQ_ROUTING_ID, "client", 6);
	} else {
		zmq_setsockopt(s, ZMQ_ROUTING_ID, stuck_name[number], strlen(stuck_name[number]));
		r->peer[number] = s;
	}
	snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", r->k.jupyter.conn.port[ch]);
	assert_int_equal(zmq_connect(s, url), 0);
	return s;
}

/* To the running cell's client, or to one of the peers. */
static int reply_to(struct rig *r, int number, enum cb_channel ch, size_t len, bool shared)
{
	struct cb_body *body = cb_body_new(len);
	struct cb_outgoing out = { .type = "execute_reply",
				   .parent = CB_SPAN("{}"),
				   .metadata = CB_SPAN("{\"started\":\"s\",\"status\":\"ok\",\"engine\":\"e\","
						       "\"cellblock\":{\"state\":\"kept\"}}") };
	struct cb_request to = *r->k.shells.execution.shell.current;
	zmq_msg_t name;
	int code;

	zmq_msg_init(&name);
	if (number >= 0) {
		zmq_msg_init_size(&name, strlen(stuck_name[number]));
		memcpy(zmq_msg_data(&name), stuck_name[number], strlen(stuck_name[number]));
		to.frame = &name;
	}
	memset(body->data, ' ', len);
	memcpy(body->data, "{}", 2);
	out.content = (struct cb_span){ (const char *)body->data, len };
	out.content_body = shared ? body : NULL;
	code = cb_channels_send(&r->k.jupyter, ch, &to, &out);
	zmq_msg_close(&name);
	cb_body_unref(body);
	return code;
}

static int reply(struct rig *r, enum cb_channel ch, size_t len, bool shared)
{
	return reply_to(r, -1, ch, len, shared);
}

static bool nothing_in_flight(struct rig *r)
{
	(void)r;
	return cb_replies_in_flight() == 0;
}

/* A peer that does not read is connected when its request is served. */
static void stick(struct rig *r, int number)
{
	void *client = r->client[RIG_CONTROL];

	r->client[RIG_CONTROL] = peer(r, number, CB_CONTROL, true);
	const char *id = rig_send(r, RIG_CONTROL, "kernel_info_request", NULL, NULL);

	r->client[RIG_CONTROL] = client;
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_expect(r, RIG_IOPUB, "busy", "m0"); /* still */
}

static void expect_whole(struct rig *r)
{
	assert_int_equal(reply(r, CB_CONTROL, 4 * MIB, true), 0);
	struct rig_msg m = rig_take(r, RIG_CONTROL, "execute_reply", "");

	assert_int_equal(m.content_len, 4 * MIB);
	assert_string_equal(json_string_value(json_object_get(m.metadata, "status")), "ok");
	rig_msg_free(&m);
}

/* In place of a large reply; no cell is to blame, and what became of the state is still told. */
static void expect_error_instead(struct rig *r)
{
	assert_int_equal(reply(r, CB_CONTROL, 4 * MIB, true), 0);
	struct rig_msg m = rig_take(r, RIG_CONTROL, "execute_reply", "");

	assert_string_equal(rig_text(&m, "ename"), "KernelBusyError");
	assert_non_null(strstr(rig_text(&m, "evalue"), "do not read"));
	assert_string_equal(json_string_value(json_object_get(m.metadata, "status")), "error");
	assert_string_equal(json_string_value(json_object_get(m.metadata, "started")), "s");
	assert_string_equal(json_string_value(rig_about(&m, "by")), "kernel");
	assert_string_equal(json_string_value(rig_about(&m, "state")), "kept");
	rig_msg_free(&m);
}

static void expect_small(struct rig *r)
{
	assert_int_equal(reply(r, CB_CONTROL, 100, false), 0);
	rig_expect(r, RIG_CONTROL, "execute_reply", "");
	assert_int_equal(reply(r, CB_STDIN, 100, false), 0);
}

static void test_replies_that_nobody_reads(void **state)
{
	struct rig *r = *state = rig_up();
	bool refused = false;
	uint64_t request;

	zmq_close(r->client[RIG_SHELL]);
	r->client[RIG_SHELL] = peer(r, -1, CB_SHELL, true);
	(void)rig_begin(r, "1", &request);
	rig_until(r, nothing_in_flight);
	(void)rig_send(r, RIG_CONTROL, "kernel_info_request", NULL, NULL);
	rig_expect(r, RIG_IOPUB, "busy", "m1");
	rig_expect(r, RIG_IOPUB, "idle", "m1");
	rig_expect(r, RIG_IOPUB, "busy", "m0"); /* still */
	rig_expect(r, RIG_CONTROL, "kernel_info_reply", "m1");
	expect_whole(r);
	for (int i = 0; i < 120; i++) {
		assert_int_equal(reply(r, CB_SHELL, 4 * MIB, i % 2 == 0), 0);
		rig_until_soon(r);
		assert_true(cb_replies_in_flight() <= SHARE + 5 * MIB);
	}
	assert_true(cb_replies_in_flight() > SHARE); /* else nothing was tried */
	assert_int_equal(cb_bodies_in_flight(), 0);
	/* who reads has all of his, whatever his size */
	expect_whole(r);
	expect_small(r);
	for (int number = 0; number < STUCK; number++) {
		stick(r, number);
		for (int i = 0; i < 30; i++)
			assert_int_equal(reply_to(r, number, CB_CONTROL, 4 * MIB, i % 2 == 0), 0);
		assert_true(cb_replies_in_flight() <= MOST + 5 * MIB);
	}
	assert_true(cb_replies_in_flight() > MOST); /* else nothing was tried */
	/* the last bound is everybody's: who reads is told, in place of what is large */
	expect_error_instead(r);
	expect_small(r);
	/* small ones have a bound of their own, for those who do not read them */
	for (int i = 0, code = 0; i < 40000 && code == 0; i++) {
		code = i % 5 == 4 ? reply(r, CB_SHELL, 16000, false) : reply_to(r, i % 5, CB_CONTROL, 16000, false);
		refused = code == -ENOBUFS;
		assert_true(cb_replies_in_flight() <= 2 * (size_t)MOST + MIB);
	}
	assert_true(refused);
	assert_true(cb_replies_in_flight() > 2 * (size_t)MOST); /* all together, not one alone */
	expect_error_instead(r);
	expect_small(r);
	zmq_close(r->client[RIG_SHELL]);
	r->client[RIG_SHELL] = NULL;
	for (int number = 0; number < STUCK; number++) {
		zmq_close(r->peer[number]);
		r->peer[number] = NULL;
	}
	rig_until(r, nothing_in_flight);
	assert_int_equal(reply(r, CB_SHELL, 4 * MIB, true), 0);
}

/* They are bounded by their bytes alone, and none is lost without a word. */
static void test_many_small_replies(void **state)
{
	struct rig *r = *state = rig_up();
	const int total = 20000;
	uint64_t request;

	(void)rig_begin(r, "1", &request);
	for (int i = 0; i < total; i++)
		assert_int_equal(reply(r, CB_SHELL, 3000, false), 0);
	for (int i = 0; i < total; i++)
		rig_expect(r, RIG_SHELL, "execute_reply", "");
}

static char echo[64];

static bool echoed(struct rig *r)
{
	return zmq_recv(r->peer[0], echo, sizeof(echo) - 1, ZMQ_DONTWAIT) >= 0;
}

/* Nobody needs a key for those. */
static void test_a_heartbeat_that_is_none(void **state)
{
	struct rig *r = *state = rig_new();
	void *s = peer(r, 0, CB_HB, false);
	char part[1000] = "part";

	for (int i = 0; i < 64; i++)
		assert_true(zmq_send(s, part, sizeof(part), i < 63 ? ZMQ_SNDMORE : 0) >= 0);
	for (int i = 0; i < 1000; i++) /* small on the wire, not so in a queue */
		assert_true(zmq_send(s, "", 0, i < 999 ? ZMQ_SNDMORE : 0) >= 0);
	assert_true(zmq_send(s, "", 0, ZMQ_SNDMORE) >= 0);
	assert_true(zmq_send(s, "ping", 4, 0) >= 0);
	rig_until(r, echoed);
	assert_string_equal(echo, "");
	rig_until(r, echoed);
	assert_string_equal(echo, "ping");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_replies_that_nobody_reads, rig_teardown),
		cmocka_unit_test_teardown(test_many_small_replies, rig_teardown),
		cmocka_unit_test_teardown(test_a_heartbeat_that_is_none, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
