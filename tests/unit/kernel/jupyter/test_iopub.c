/* The publisher: merging and order of text, what is held before the first subscriber, what is given up and in which
 * order, and a peer that does not read beside one that does. */
#include <cellblock/wire.h>
#include <stdlib.h>
#include <time.h>

#include "rig.h"

static struct cb_header *header(const char *id)
{
	struct cb_header *h = test_calloc(1, sizeof(*h) + 64);

	h->refs = 1000; /* never freed by the kernel */
	h->len = (size_t)snprintf(h->data, 64, "{\"msg_id\":\"%s\"}", id);
	return h;
}

static void text(struct rig *r, struct cb_header *h, unsigned stream, const char *s)
{
	cb_iopub_text(&r->k.jupyter, h, stream, s, strlen(s));
}

static void display(struct rig *r, enum cb_weight weight, size_t size)
{
	char *content = test_calloc(size + 16, 1);

	memset(content, ' ', size + 2);
	content[0] = '{';
	content[size + 1] = '}';
	struct cb_outgoing out = { .type = weight == CB_WEIGHT_KEEP ? "error" : "display_data",
				   .parent = CB_SPAN("{}"),
				   .metadata = CB_SPAN("{}"),
				   .content = { content, size + 2 } };

	cb_iopub_publish(&r->k.jupyter, out.type, weight, &out);
	test_free(content);
}

static void expect_text(struct rig *r, const char *parent, const char *name, const char *s)
{
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", parent);

	assert_string_equal(rig_text(&m, "name"), name);
	assert_string_equal(rig_text(&m, "text"), s);
	rig_msg_free(&m);
}

static void test_merging(void **state)
{
	struct rig *r = *state = rig_new();
	struct cb_header *a = header("a"), *b = header("b");

	rig_subscribe(r);
	text(r, a, CB_WIRE_STDOUT, "1"); /* quiet: at once */
	expect_text(r, "a", "stdout", "1");
	text(r, a, CB_WIRE_STDOUT, "2");
	text(r, a, CB_WIRE_STDOUT, "3");
	text(r, a, CB_WIRE_STDERR, "4");
	text(r, a, CB_WIRE_STDERR, "5");
	text(r, a, CB_WIRE_STDOUT, "6");
	text(r, b, CB_WIRE_STDOUT, "7");
	text(r, NULL, CB_WIRE_STDOUT, "8");
	text(r, NULL, CB_WIRE_STDOUT, "9");
	expect_text(r, "a", "stdout", "23");
	expect_text(r, "a", "stderr", "45");
	expect_text(r, "a", "stdout", "6");
	expect_text(r, "b", "stdout", "7");
	expect_text(r, "", "stdout", "89"); /* by the timer */
	text(r, a, CB_WIRE_STDOUT, "");
	rig_barrier(r);
	test_free(a);
	test_free(b);
}

static void test_order_with_others(void **state)
{
	struct rig *r = *state = rig_new();
	struct cb_header *a = header("a");

	rig_subscribe(r);
	for (int i = 0; i < 3; i++) {
		text(r, a, CB_WIRE_STDOUT, "x");
		text(r, a, CB_WIRE_STDOUT, "y");
		cb_iopub_status(&r->k.jupyter, "idle", a);
		text(r, a, CB_WIRE_STDOUT, "z");
		display(r, CB_WEIGHT_DATA, 10);
	}
	for (int i = 0; i < 3; i++) {
		char all[8] = "";
		struct rig_msg m;

		for (m = rig_recv(r, RIG_IOPUB); strcmp(m.type, "stream") == 0; m = rig_recv(r, RIG_IOPUB)) {
			snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s", rig_text(&m, "text"));
			rig_msg_free(&m);
		}
		assert_string_equal(all, "xy");
		assert_string_equal(m.type, "status");
		rig_msg_free(&m);
		expect_text(r, "a", "stdout", "z");
		rig_expect(r, RIG_IOPUB, "display_data", "");
	}
	test_free(a);
}

/* Long text is cut into messages, but never inside a character, wherever the cut falls. */
static void test_long_text(void **state)
{
	struct rig *r = *state = rig_new();
	struct cb_header *a = header("a");
	const size_t max = 256u << 10;

	rig_subscribe(r);
	for (size_t before = max - 3; before <= max; before++) {
		char *ascii = test_calloc(before + 1, 1);
		size_t got = 0, euros = 0;

		memset(ascii, 'a', before);
		text(r, a, CB_WIRE_STDERR, "!"); /* so that what follows is not sent at once */
		text(r, a, CB_WIRE_STDOUT, ascii);
		text(r, a, CB_WIRE_STDOUT, "€€€");
		cb_iopub_flush(&r->k.jupyter);
		cb_iopub_status(&r->k.jupyter, "idle", a);
		for (;;) {
			struct rig_msg m = rig_recv(r, RIG_IOPUB);
			const char *s = rig_text(&m, "text");
			bool end = strcmp(m.type, "status") == 0;

			assert_null(strstr(s, "\xef\xbf\xbd"));
			for (; *s != '\0' && strcmp(rig_text(&m, "name"), "stdout") == 0; s++)
				got++, euros += *s == '\xe2';
			rig_msg_free(&m);
			if (end)
				break;
		}
		assert_int_equal(got, before + 9);
		assert_int_equal(euros, 3);
		test_free(ascii);
	}
	test_free(a);
}

static void test_control_characters(void **state)
{
	struct rig *r = *state = rig_new();
	char *s = test_calloc((256u << 10) + 1, 1);

	rig_subscribe(r);
	memset(s, 1, 256u << 10); /* six bytes of JSON each */
	text(r, NULL, CB_WIRE_STDOUT, s);
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", "");

	assert_string_equal(rig_text(&m, "text"), s);
	rig_msg_free(&m);
	text(r, NULL, CB_WIRE_STDERR, "\xff\xc3(");
	cb_iopub_flush(&r->k.jupyter);
	m = rig_take(r, RIG_IOPUB, "stream", "");
	assert_string_equal(rig_text(&m, "text"), "\xef\xbf\xbd\xef\xbf\xbd(");
	rig_msg_free(&m);
	test_free(s);
}

/* ---- before the first subscriber ---- */

static void test_held(void **state)
{
	struct rig *r = *state = rig_new();

	cb_iopub_status(&r->k.jupyter, "starting", NULL);
	text(r, NULL, CB_WIRE_STDOUT, "early");
	display(r, CB_WEIGHT_DATA, 10);
	cb_iopub_status(&r->k.jupyter, "idle", NULL);
	assert_false(cb_iopub_congested(&r->k.jupyter));
	rig_subscribe(r); /* the welcome comes first */
	rig_expect(r, RIG_IOPUB, "starting", "");
	expect_text(r, "", "stdout", "early");
	rig_expect(r, RIG_IOPUB, "display_data", "");
	rig_expect(r, RIG_IOPUB, "idle", "");
	rig_barrier(r);
	assert_int_equal(r->k.jupyter.iopub.bytes, 0);
}

/* Text goes first, oldest first; then displays; what ends a request stays. The loss is said. */
static void test_shed_order(void **state)
{
	struct rig *r = *state = rig_new();
	const size_t mega = 1u << 20;
	char *s = test_calloc(200000, 1);
	struct cb_header *lost = header("lost");
	size_t texts = 0, displays = 0, errors = 0;
	struct rig_msg m;

	memset(s, 'a', 199999);
	for (int i = 0; i < 30; i++) { /* 6 MB of text, 6 MB of displays: all fits */
		text(r, lost, CB_WIRE_STDOUT, s);
		display(r, CB_WEIGHT_DATA, 200000);
		display(r, CB_WEIGHT_KEEP, 100);
	}
	assert_int_equal(r->k.jupyter.iopub.dropped, 0);
	for (int i = 0; i < 5; i++)
		display(r, CB_WEIGHT_DATA, mega);
	assert_true(r->k.jupyter.iopub.dropped > 0); /* text, and it is enough */
	for (int i = 0; i < 20; i++)
		display(r, CB_WEIGHT_DATA, mega);
	assert_true(r->k.jupyter.iopub.bytes <= 16 * mega);
	rig_subscribe(r);
	m = rig_take(r, RIG_IOPUB, "stream", "lost"); /* before what may be its request's end */
	assert_non_null(strstr(rig_text(&m, "text"), "given up"));
	assert_true(json_integer_value(rig_about(&m, "given_up")) > 0);
	rig_msg_free(&m);
	cb_iopub_status(&r->k.jupyter, "idle", NULL);
	for (bool end = false; !end; rig_msg_free(&m)) {
		m = rig_recv(r, RIG_IOPUB);
		end = strcmp(m.type, "status") == 0;
		texts += strcmp(m.type, "stream") == 0;
		displays += strcmp(m.type, "display_data") == 0;
		errors += strcmp(m.type, "error") == 0;
	}
	assert_int_equal(texts, 0);
	assert_true(displays > 0 && displays < 55);
	assert_int_equal(errors, 30);
	rig_barrier(r);
	test_free(lost);
	test_free(s);
}

static void test_only_kept_is_bounded_too(void **state)
{
	struct rig *r = *state = rig_new();

	for (int i = 0; i < 120; i++)
		display(r, CB_WEIGHT_KEEP, 1u << 20);
	assert_true(r->k.jupyter.iopub.bytes <= 65u << 20);
}

/* ---- a peer that does not read ---- */

static void join(struct rig *r, int number, bool stuck)
{
	void *s = r->peer[number] = zmq_socket(r->k.jupyter.channels.context, ZMQ_SUB);
	char url[64];

	if (stuck) {
		zmq_setsockopt(s, ZMQ_RCVHWM, &(int){ 1 }, sizeof(int));
		zmq_setsockopt(s, ZMQ_RCVBUF, &(int){ 4096 }, sizeof(int));
	}
	zmq_setsockopt(s, ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	zmq_setsockopt(s, ZMQ_SUBSCRIBE, "", 0);
	snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", r->k.jupyter.conn.port[CB_IOPUB]);
	assert_int_equal(zmq_connect(s, url), 0);
}

static void test_stuck_peer(void **state)
{
	struct rig *r = *state = rig_new();
	const int total = 3000;
	int seen = 0, sent = 0;
	bool blocked = false;

	rig_subscribe(r);
	join(r, 0, true);
	rig_expect(r, RIG_IOPUB, "iopub_welcome", ""); /* its welcome is told to all */
	/* like a kernel that heeds congestion, with a client that reads at its own pace: it gets every display */
	for (int64_t end = cb_now_ns() + 90000000000; seen < total && cb_now_ns() < end;) {
		struct rig_msg m;

		for (int i = 0; i < 200 && sent < total && !cb_iopub_congested(&r->k.jupyter); i++, sent++)
			display(r, CB_WEIGHT_DATA, 20000);
		blocked |= r->k.jupyter.iopub.head != NULL;
		rig_until_soon(r);
		for (int i = 0; i < 100 && rig_try_recv(r, RIG_IOPUB, &m); i++) {
			seen += strcmp(m.type, "display_data") == 0;
			rig_msg_free(&m);
		}
	}
	assert_true(blocked); /* else the peer was not stuck and nothing was tried */
	assert_int_equal(seen, total);
	assert_int_equal(r->k.jupyter.iopub.dropped, 0);
	/* later messages go past the stuck one at once, and a newcomer is welcomed */
	cb_iopub_status(&r->k.jupyter, "idle", NULL);
	assert_null(r->k.jupyter.iopub.head);
	rig_expect(r, RIG_IOPUB, "idle", "");
	join(r, 1, false);
	rig_expect(r, RIG_IOPUB, "iopub_welcome", "");
}

static void huge_display(struct rig *r, size_t size)
{
	struct cb_body *body = cb_body_new(size);

	memset(body->data, ' ', size);
	body->data[0] = '{';
	body->data[size - 1] = '}';
	struct cb_outgoing out = { .type = "display_data",
				   .parent = CB_SPAN("{}"),
				   .metadata = CB_SPAN("{}"),
				   .content = { (char *)body->data, size },
				   .content_body = body };

	cb_iopub_publish(&r->k.jupyter, "display_data", CB_WEIGHT_DATA, &out);
	cb_body_unref(body);
}

/* Its queue and libzmq's are full, and room is told of in lumps: it gets all the same, if it reads on at its pace. */
static void test_slow_peer(void **state)
{
	struct rig *r = *state = rig_new();
	const int total = 1400, slowly = 600;
	const struct timespec pace = { 0, 4000000 };
	struct cb_iopub *p = &r->k.jupyter.iopub;
	int seen = 0;
	char topic[64];

	join(r, 0, true);
	rig_until_soon(r);
	while (!p->subscribed)
		rig_until_soon(r);
	for (int i = 0; i < total; i++)
		display(r, CB_WEIGHT_DATA, 20000);
	assert_non_null(p->head); /* else nothing was tried */
	for (int64_t now = cb_now_ns(), last = now, end = now + 90000000000; seen < total && now < end; last = now) {
		int more = 0;

		now = cb_now_ns();
		if (now - last > 2 * pace.tv_nsec) /* the machine's pace, not the peer's */
			p->blocked_since += now - last - 2 * pace.tv_nsec;
		rig_until_soon(r);
		if (zmq_recv(r->peer[0], topic, sizeof(topic), ZMQ_DONTWAIT) < 0)
			continue;
		seen += strncmp(topic, "display_data", 12) == 0;
		do {
			zmq_getsockopt(r->peer[0], ZMQ_RCVMORE, &more, &(size_t){ sizeof(more) });
			if (more)
				zmq_recv(r->peer[0], topic, sizeof(topic), 0);
		} while (more);
		if (seen < slowly)
			nanosleep(&pace, NULL);
	}
	assert_int_equal(seen, total);
}

/* That Python has taken an interrupt is among what is not read else; what comes with it is bounded all the same. */
static void test_an_interrupt_is_heard_of_behind_a_slow_reader(void **state)
{
	struct rig *r = *state = rig_new();
	struct cb_iopub *p = &r->k.jupyter.iopub;
	struct cb_lanes *lanes = &r->k.shells.lanes;
	struct cb_branch branch = { 0 };
	int64_t *interrupted_at[] = { &r->k.shells.execution.shell.interrupted_at, &lanes->comms.interrupted_at,
				      &lanes->sub[CB_SUBSHELLS_MAX - 1].interrupted_at,
				      &lanes->beside[CB_SUBSHELLS_MAX - 1].interrupted_at,
				      &branch.shell.interrupted_at };
	struct rig_msg m;

	rig_subscribe(r);
	join(r, 0, true);
	rig_expect(r, RIG_IOPUB, "iopub_welcome", "");
	for (int64_t end = cb_now_ns() + 90000000000; p->bytes <= 17u << 20 && cb_now_ns() < end;) {
		display(r, CB_WEIGHT_DATA, 100000);
		while (rig_try_recv(r, RIG_IOPUB, &m))
			rig_msg_free(&m);
	}
	p->blocked_since = cb_now_ns(); /* its patience is not the point */
	assert_true(cb_iopub_congested(&r->k.jupyter));
	r->k.transactions.branches.branch[CB_BRANCHES_MAX - 1] = &branch;
	for (size_t i = 0; i < sizeof(interrupted_at) / sizeof(interrupted_at[0]); i++) {
		*interrupted_at[i] = cb_now_ns();
		assert_false(cb_iopub_congested(&r->k.jupyter));
		*interrupted_at[i] = 0;
		p->blocked_since = cb_now_ns();
		assert_true(cb_iopub_congested(&r->k.jupyter));
	}
	r->k.transactions.branches.branch[CB_BRANCHES_MAX - 1] = NULL;
	*interrupted_at[0] = cb_now_ns();
	for (int i = 0; i < 100; i++) {
		display(r, CB_WEIGHT_DATA, 1u << 20);
		assert_true(p->bytes <= 64u << 20);
	}
	*interrupted_at[0] = 0;
	p->blocked_since = cb_now_ns();
	assert_true(cb_iopub_congested(&r->k.jupyter));
}

/* Nobody is to blame for what is larger than all that may be in flight. */
static void test_one_huge_display(void **state)
{
	struct rig *r = *state = rig_new();

	rig_subscribe(r);
	huge_display(r, 257u << 20);
	assert_null(r->k.jupyter.iopub.head);
	rig_expect(r, RIG_IOPUB, "display_data", "");
}

/* While all is blocked by a peer, a newcomer's welcome waits its turn but is not lost. */
static void test_welcome_while_blocked(void **state)
{
	struct rig *r = *state = rig_new();
	struct rig_msg m;

	rig_subscribe(r);
	join(r, 0, true);
	rig_expect(r, RIG_IOPUB, "iopub_welcome", "");
	for (int64_t end = cb_now_ns() + 90000000000; r->k.jupyter.iopub.head == NULL && cb_now_ns() < end;) {
		display(r, CB_WEIGHT_DATA, 20000);
		while (rig_try_recv(r, RIG_IOPUB, &m))
			rig_msg_free(&m);
	}
	assert_non_null(r->k.jupyter.iopub.head);
	int welcomes = 0;

	join(r, 1, false);
	for (int64_t end = cb_now_ns() + 90000000000; welcomes == 0 && cb_now_ns() < end;) {
		rig_until_soon(r);
		while (rig_try_recv(r, RIG_IOPUB, &m)) {
			welcomes += strcmp(m.type, "iopub_welcome") == 0;
			rig_msg_free(&m);
		}
	}
	assert_int_equal(welcomes, 1);
}

/* What is queued is tried once more, now. */
static void retry(struct rig *r)
{
	cb_loop_arm(&r->k.loop, r->k.jupyter.iopub.timer, cb_now_ns());
	rig_until_soon(r);
}

static void huge_metadata(struct rig *r, size_t size)
{
	char *metadata = test_calloc(size, 1);

	memset(metadata, ' ', size);
	metadata[0] = '{';
	metadata[size - 1] = '}';
	struct cb_outgoing out = { .type = "comm_msg",
				   .parent = CB_SPAN("{}"),
				   .metadata = { metadata, size },
				   .content = CB_SPAN("{}") };

	cb_iopub_publish(&r->k.jupyter, "comm_msg", CB_WEIGHT_DATA, &out);
	test_free(metadata);
}

/* What is held for a stuck one is bounded. */
static void fill_flight(struct rig *r, void (*say)(struct rig *, size_t))
{
	struct rig_msg m;

	join(r, 0, true);
	rig_expect(r, RIG_IOPUB, "iopub_welcome", "");
	for (int i = 0; i < 90; i++) {
		say(r, 4u << 20);
		rig_until_soon(r);
		while (rig_try_recv(r, RIG_IOPUB, &m))
			rig_msg_free(&m);
		assert_true(cb_bodies_in_flight() <= (256u + 64 + 8) << 20);
		assert_true(r->k.jupyter.iopub.bytes <= 64u << 20);
	}
	assert_true(cb_bodies_in_flight() >= 256u << 20); /* else nothing was tried */
}

/* Patience is over: what is large is given up. */
static void give_up(struct rig *r)
{
	struct cb_iopub *p = &r->k.jupyter.iopub;

	for (int i = 0; i < 100 && p->head != NULL; i++) {
		p->full_since -= 60 * 1000000000LL;
		retry(r);
	}
	assert_null(p->head);
}

/* What ends a request gets past the stuck one to the one that reads. */
static void test_bytes_in_flight(void **state)
{
	struct rig *r = *state = rig_new();
	struct rig_msg m;
	bool idle = false;

	rig_subscribe(r);
	fill_flight(r, huge_display);
	cb_iopub_status(&r->k.jupyter, "idle", NULL);
	while (!idle) {
		m = rig_recv(r, RIG_IOPUB);
		idle = strcmp(rig_text(&m, "execution_state"), "idle") == 0;
		rig_msg_free(&m);
	}
}

/* What a message has copied counts as well. */
static void test_copies_in_flight(void **state)
{
	struct rig *r = *state = rig_new();

	rig_subscribe(r);
	fill_flight(r, huge_metadata);
}

/* Reads to the idle of a request; what came of text, small displays and code. */
static void read_seen(struct rig *r, const char *id, size_t *text_seen, size_t *displays, size_t *large, bool *told)
{
	bool idle = false;

	*text_seen = *displays = *large = 0;
	*told = false;
	while (!idle) {
		struct rig_msg m = rig_recv(r, RIG_IOPUB);
		bool of = strcmp(m.parent_id, id) == 0;

		idle = of && strcmp(rig_text(&m, "execution_state"), "idle") == 0;
		if (strcmp(rig_text(&m, "name"), "stdout") == 0)
			*text_seen += strlen(rig_text(&m, "text"));
		*told |= of && strstr(rig_text(&m, "text"), "given up") != NULL;
		*displays += strcmp(m.type, "display_data") == 0 && m.content_len < 100;
		*large += strcmp(m.type, "execute_input") == 0 || strcmp(m.type, "error") == 0;
		rig_msg_free(&m);
	}
}

/* The stuck one never reads: text and what is small are not given up for that. Large code and errors are. */
static void test_beside_a_full_flight(void **state)
{
	struct rig *r = *state = rig_up();
	const size_t len = 300000;
	char *s = test_calloc(len + 1, 1), *content = test_calloc(100000, 1);
	size_t text_seen, displays, large;
	bool told;

	memset(s, 'a', len);
	memset(content, '#', 99998);
	memcpy(content, "{\"code\":\"", 9);
	memcpy(content + 99997, "\"}", 3);
	fill_flight(r, huge_display);
	give_up(r);
	text(r, NULL, CB_WIRE_STDOUT, s);
	display(r, CB_WEIGHT_DATA, 10);
	cb_iopub_status(&r->k.jupyter, "idle", NULL);
	read_seen(r, "", &text_seen, &displays, &large, &told);
	assert_true(told); /* else nothing was tried */
	assert_int_equal(text_seen, len);
	assert_int_equal(displays, 1);
	const char *id = rig_send(r, RIG_SHELL, "execute_request", content, NULL);

	memcpy(content, "{\"ename\":\"ValueError\",\"traceback\":[],\"evalue\":\"", 47);
	uint64_t request = rig_guest_expect(r, CB_WIRE_EXECUTE);

	rig_frame(r, CB_WIRE_ERROR, request, content);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request, RIG_OK);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	give_up(r);
	read_seen(r, id, &text_seen, &displays, &large, &told);
	assert_int_equal(large, 0);
	assert_true(told);
	test_free(content);
	test_free(s);
}

/* Nobody reads until the kernel has ended; who reads then gets all, beside one who still does not. */
static void test_what_waits_goes_out_at_the_end(void **state)
{
	struct rig *r = *state = rig_new();
	struct cb_iopub *p = &r->k.jupyter.iopub;
	int sent = 0, seen = 0;
	bool idle = false;

	rig_subscribe(r);
	join(r, 0, true);
	rig_expect(r, RIG_IOPUB, "iopub_welcome", "");
	for (; p->bytes < 1u << 20; sent++)
		display(r, CB_WEIGHT_DATA, 2000);
	cb_iopub_status(&r->k.jupyter, "idle", NULL);
	text(r, NULL, CB_WIRE_STDOUT, "last");
	cb_kernel_answer_the_rest(&r->k);
	assert_null(p->head); /* a kernel runs no loop after that */
	while (!idle) {
		struct rig_msg m = rig_recv(r, RIG_IOPUB);

		idle = strcmp(rig_text(&m, "execution_state"), "idle") == 0;
		seen += strcmp(m.type, "display_data") == 0;
		rig_msg_free(&m);
	}
	assert_int_equal(seen, sent);
	expect_text(r, "", "stdout", "last");
}

static void test_welcome_names_the_prefix(void **state)
{
	struct rig *r = *state = rig_new();

	rig_subscribe(r);
	zmq_setsockopt(r->client[RIG_IOPUB], ZMQ_SUBSCRIBE, "st\"a", 4);
	struct rig_msg m = rig_take(r, RIG_IOPUB, "iopub_welcome", "");

	assert_string_equal(rig_text(&m, "subscription"), "st\"a");
	rig_msg_free(&m);
	zmq_setsockopt(r->client[RIG_IOPUB], ZMQ_SUBSCRIBE, "\xff\xfe", 2); /* no UTF-8: no welcome */
	zmq_setsockopt(r->client[RIG_IOPUB], ZMQ_SUBSCRIBE, "b", 1);
	m = rig_take(r, RIG_IOPUB, "iopub_welcome", "");
	assert_string_equal(rig_text(&m, "subscription"), "b");
	rig_msg_free(&m);
}

/* The time in which the kernel itself was stopped is nobody's fault. */
static void test_a_kernel_that_was_stopped(void **state)
{
	struct rig *r = *state = rig_new();
	struct cb_iopub *p = &r->k.jupyter.iopub;
	struct rig_msg m;

	rig_subscribe(r);
	join(r, 0, true);
	rig_expect(r, RIG_IOPUB, "iopub_welcome", "");
	while (p->head == NULL) {
		display(r, CB_WEIGHT_DATA, 20000);
		while (rig_try_recv(r, RIG_IOPUB, &m))
			rig_msg_free(&m);
	}
	p->blocked_since -= 60 * 1000000000LL;
	p->looked_at -= 60 * 1000000000LL;
	retry(r);
	assert_non_null(p->head);
	p->blocked_since -= 60 * 1000000000LL; /* with the kernel at work it is set aside, for the other's sake */
	retry(r);
	assert_null(p->head);
}

/* Also while so much is in flight that all output is given up: who reads is told before the request's end. */
static void test_a_loss_is_told_before_the_end(void **state)
{
	struct rig *r = *state = rig_new();
	struct cb_iopub *p = &r->k.jupyter.iopub;
	struct rig_msg m;
	bool told = false, idle = false;

	rig_subscribe(r);
	join(r, 0, true);
	rig_expect(r, RIG_IOPUB, "iopub_welcome", "");
	while (p->head == NULL || p->full_since == 0) {
		huge_display(r, 4u << 20);
		rig_until_soon(r);
		while (rig_try_recv(r, RIG_IOPUB, &m))
			rig_msg_free(&m);
	}
	for (int i = 0; i < 100 && p->dropped == 0; i++) {
		p->full_since -= 60 * 1000000000LL;
		retry(r);
	}
	assert_true(p->dropped > 0); /* else nothing was tried */
	cb_iopub_status(&r->k.jupyter, "idle", NULL);
	while (!idle) {
		m = rig_recv(r, RIG_IOPUB);
		idle = strcmp(rig_text(&m, "execution_state"), "idle") == 0;
		told |= strstr(rig_text(&m, "text"), "given up") != NULL;
		rig_msg_free(&m);
	}
	assert_true(told);
}

/* Nobody waits for the sake of who listens alone: it gets all, however late; only the guest is no longer held back. */
static void test_who_is_alone_loses_nothing(void **state)
{
	struct rig *r = *state = rig_new();
	struct cb_iopub *p = &r->k.jupyter.iopub;
	int sent = 0, seen = 0;
	char part[32768];
	bool idle = false;

	zmq_close(r->client[RIG_IOPUB]);
	r->client[RIG_IOPUB] = NULL;
	join(r, 0, true);
	while (!p->subscribed || p->connected.n != 1)
		rig_until_soon(r);
	for (; !cb_iopub_congested(&r->k.jupyter); sent++)
		display(r, CB_WEIGHT_DATA, 20000);
	p->blocked_since -= 60 * 1000000000LL;
	assert_false(cb_iopub_congested(&r->k.jupyter));
	cb_iopub_status(&r->k.jupyter, "idle", NULL);
	retry(r);
	assert_non_null(p->head);
	for (int64_t heard = cb_now_ns(); !idle && cb_now_ns() < heard + 90000000000; rig_until_soon(r)) {
		for (int n; (n = zmq_recv(r->peer[0], part, sizeof(part) - 1, ZMQ_DONTWAIT)) >= 0;) {
			heard = cb_now_ns();
			part[n < (int)sizeof(part) - 1 ? n : (int)sizeof(part) - 1] = '\0';
			seen += strcmp(part, "display_data") == 0;
			idle |= strstr(part, "\"idle\"") != NULL;
		}
	}
	assert_true(idle);
	assert_int_equal(seen, sent);
	assert_int_equal(p->dropped, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_merging),
		T(test_order_with_others),
		T(test_long_text),
		T(test_control_characters),
		T(test_held),
		T(test_shed_order),
		T(test_only_kept_is_bounded_too),
		T(test_stuck_peer),
		T(test_slow_peer),
		T(test_bytes_in_flight),
		T(test_copies_in_flight),
		T(test_beside_a_full_flight),
		T(test_what_waits_goes_out_at_the_end),
		T(test_an_interrupt_is_heard_of_behind_a_slow_reader),
		T(test_one_huge_display),
		T(test_welcome_while_blocked),
		T(test_welcome_names_the_prefix),
		T(test_a_kernel_that_was_stopped),
		T(test_a_loss_is_told_before_the_end),
		T(test_who_is_alone_loses_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
