/* See rig.h. */
#include "rig.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "jupyter/incoming.h"
#include "python/guest_output.h"
#include "requests/requests.h"

/* ---- running the loop ---- */

static void on_source(void *context, short revents)
{
	struct rig *r = context;

	(void)revents;
	if (r->k.loop.stop) /* the kernel has ended it just now */
		return;
	r->stopped_here = true;
	r->k.loop.stop = true;
}

static void on_timer(void *context)
{
	on_source(context, 0);
}

/* One stretch of the kernel's loop: until `source` has something, or `ms` are over. */
static void run(struct rig *r, int source, int ms)
{
	for (int i = 0; i < RIG_NSOURCES; i++)
		cb_loop_set_events(&r->k.loop, r->slot[i], i == source ? ZMQ_POLLIN : 0);
	cb_loop_arm(&r->k.loop, r->timer, cb_now_ns() + (int64_t)ms * 1000000);
	if (r->ended)
		return;
	r->stopped_here = r->k.loop.stop = false;
	assert_int_equal(cb_loop_run(&r->k.loop), 0);
	r->ended = !r->stopped_here;
}

static int64_t patience_end(void)
{
	return cb_now_ns() + (int64_t)RIG_PATIENCE * 1000000;
}

void rig_until(struct rig *r, bool (*done)(struct rig *r))
{
	for (int64_t end = patience_end(); !done(r);) {
		assert_true(cb_now_ns() < end);
		run(r, -1, 2);
	}
}

void rig_until_soon(struct rig *r)
{
	run(r, -1, 1);
}

bool rig_is_up(struct rig *r)
{
	return r->k.guest.state == CB_GUEST_UP;
}

void rig_figures(int *fd, const char *text)
{
	cb_fd_close(fd);
	*fd = memfd_create("figures", MFD_CLOEXEC);
	assert_int_equal(write(*fd, text, strlen(text)), strlen(text));
}

void rig_congest(struct rig *r, bool behind)
{
	struct cb_iopub *p = &r->k.jupyter.iopub;

	p->paced = behind;
	p->message_clock = behind ? cb_now_ns() + 2 * (int64_t)RIG_PATIENCE * 1000000 : 0;
	assert_int_equal(cb_iopub_congested(&r->k.jupyter), behind);
	cb_guest_pause_if_congested(&r->k.guest);
}

/* Linked in the place of the loop's own (tests/CMakeLists.txt). How long the kernel waits for a twin passes when a test
 * says so: a test that a busy machine holds up is no guest that does not answer. */
void __real_cb_loop_arm(struct cb_loop *l, int timer, int64_t deadline_ns);
void __wrap_cb_loop_arm(struct cb_loop *l, int timer, int64_t deadline_ns);

static struct rig *at_work;

void __wrap_cb_loop_arm(struct cb_loop *l, int timer, int64_t deadline_ns)
{
	if (at_work != NULL && l == &at_work->k.loop &&
	    (timer == at_work->k.transactions.twins.deadline_timer ||
	     timer == at_work->k.transactions.twins.rest_timer))
		deadline_ns = 0;
	if (at_work != NULL && l == &at_work->k.loop && timer == at_work->k.transactions.memory.timer)
		at_work->watched = true;
	__real_cb_loop_arm(l, timer, deadline_ns);
}

static bool has_rested(struct rig *r)
{
	return r->k.transactions.twins.rested;
}

void rig_twin_rested(struct rig *r)
{
	__real_cb_loop_arm(&r->k.loop, r->k.transactions.twins.rest_timer, cb_now_ns());
	rig_until(r, has_rested);
}

/* The guest's process is the test's own: what it has had of a processor is what the test says. */
int64_t __real_cb_usage_worked(pid_t pid, bool descendants);
int64_t __wrap_cb_usage_worked(pid_t pid, bool descendants);

int64_t __wrap_cb_usage_worked(pid_t pid, bool descendants)
{
	return at_work != NULL ? at_work->worked_ns : __real_cb_usage_worked(pid, descendants);
}

void rig_twin_overdue(struct rig *r)
{
	__real_cb_loop_arm(&r->k.loop, r->k.transactions.twins.deadline_timer, cb_now_ns());
}

/* ---- making and ending ---- */

static void *connect_client(struct rig *r, enum cb_channel ch, int type)
{
	void *s = zmq_socket(r->k.jupyter.channels.context, type);
	char url[64];

	assert_non_null(s);
	zmq_setsockopt(s, ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	if (type == ZMQ_DEALER)
		zmq_setsockopt(s, ZMQ_ROUTING_ID, "client", 6);
	snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", r->k.jupyter.conn.port[ch]);
	assert_int_equal(zmq_connect(s, url), 0);
	return s;
}

static void set_policy(struct cb_policy *p)
{
	p->name = strdup("test");
	p->limit_output = 1u << 20;
	p->limit_message = 16u << 20;
	p->timeout_grace = RIG_PATIENCE / 1000.0;
	p->transactions_mode = CB_MODE_OFF;
}

struct rig *rig_new(void)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct cb_err err = { 0 };
	bool chosen;
	int pair[2];

	assert_non_null(r);
	r->session = "s1";
	r->side = r->wire = r->out[0] = r->out[1] = r->log = r->init = r->twin_control = r->death = -1;
	set_policy(&r->policy);
	r->interpreter.version = strdup("3.11.2");
	r->k.policy = &r->policy;
	r->k.interpreter = &r->interpreter;
	r->k.jupyter.conn.ip = strdup("127.0.0.1");
	r->k.signal_fd = r->k.parent_fd = r->k.parent_slot = -1;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	r->k.guest.broker = (struct cb_broker){ .fd = pair[0] };
	r->broker = pair[1];
	assert_int_equal(cb_kernel_init(&r->k), 0);
	at_work = r;
	r->k.shutdown_timer = cb_loop_add_timer(&r->k.loop, on_timer, r);
	r->timer = cb_loop_add_timer(&r->k.loop, on_timer, r);
	assert_int_equal(cb_auth_new("sha256", RIG_KEY, strlen(RIG_KEY), &r->k.jupyter.auth), 0);
	assert_int_equal(cb_auth_new("sha256", RIG_KEY, strlen(RIG_KEY), &r->auth), 0);
	assert_int_equal(cb_session_init(&r->k.jupyter.session, r->k.jupyter.auth), 0);
	assert_int_equal(cb_channels_listen(&r->k.jupyter.channels, &r->k.jupyter.conn, &chosen, &err), 0);
	assert_int_equal(cb_channels_open(&r->k.jupyter, &err), 0);
	cb_incoming_init(0); /* the clients read in this process as well */
	r->client[RIG_SHELL] = connect_client(r, CB_SHELL, ZMQ_DEALER);
	r->client[RIG_CONTROL] = connect_client(r, CB_CONTROL, ZMQ_DEALER);
	r->client[RIG_STDIN] = connect_client(r, CB_STDIN, ZMQ_DEALER);
	r->client[RIG_IOPUB] = connect_client(r, CB_IOPUB, ZMQ_SUB);
	for (int i = RIG_SHELL; i <= RIG_IOPUB; i++)
		r->slot[i] = cb_loop_add(&r->k.loop, r->client[i], 0, 0, on_source, r);
	r->slot[RIG_BROKER] = cb_loop_add(&r->k.loop, NULL, r->broker, 0, on_source, r);
	r->slot[RIG_WIRE] = -1;
	return r;
}

void rig_subscribe(struct rig *r)
{
	zmq_setsockopt(r->client[RIG_IOPUB], ZMQ_SUBSCRIBE, "", 0);
	rig_expect(r, RIG_IOPUB, "iopub_welcome", "");
}

struct rig *rig_up(void)
{
	struct rig *r = rig_new();

	rig_subscribe(r);
	cb_guest_want(&r->k.guest);
	rig_guest_up(r);
	return r;
}

static void close_guest(struct rig *r)
{
	int *fd[] = { &r->side, &r->wire, &r->out[0], &r->out[1], &r->log, &r->init, &r->twin_control };

	cb_loop_remove(&r->k.loop, &r->slot[RIG_WIRE]);
	for (size_t i = 0; i < sizeof(fd) / sizeof(fd[0]); i++)
		cb_fd_close(fd[i]);
}

int rig_teardown(void **state)
{
	struct rig *r = *state;

	if (r == NULL)
		return 0;
	at_work = NULL;
	close_guest(r);
	cb_fd_close(&r->death);
	cb_fd_close(&r->broker);
	for (int i = RIG_SHELL; i <= RIG_IOPUB; i++)
		zmq_close(r->client[i]);
	for (size_t i = 0; i < sizeof(r->peer) / sizeof(r->peer[0]); i++)
		if (r->peer[i] != NULL)
			zmq_close(r->peer[i]);
	cb_kernel_release(&r->k);
	cb_comms_release(&r->k.guest.comms);
	cb_auth_free(r->k.jupyter.auth);
	cb_auth_free(r->auth);
	free(r->k.jupyter.conn.ip);
	free(r->policy.name);
	free(r->interpreter.version);
	free(r);
	*state = NULL;
	return 0;
}

/* ---- the client ---- */

static void send_part(void *s, const char *text, size_t len, bool more)
{
	assert_int_equal(zmq_send(s, text, len, more ? ZMQ_SNDMORE : 0), (int)len);
}

const char *rig_send(struct rig *r, enum rig_source channel, const char *type, const char *content,
		     const char *metadata)
{
	static char ids[4096][16];
	char *id = ids[r->serial % 4096], date[80] = "", subshell[80] = "", header[512], signature[CB_SIGNATURE_MAX];
	void *s = r->client[channel];
	size_t n = 0;

	snprintf(id, sizeof(ids[0]), "m%u", r->serial++);
	if (r->date != NULL)
		snprintf(date, sizeof(date), ",\"date\":\"%s\"", r->date);
	if (r->subshell != NULL && channel == RIG_SHELL)
		snprintf(subshell, sizeof(subshell), ",\"subshell_id\":\"%s\"", r->subshell);
	snprintf(header, sizeof(header), "{\"msg_id\":\"%s\",\"msg_type\":\"%s\",\"session\":\"%s\"%s%s}", id, type,
		 r->session, date, subshell);
	if (content == NULL)
		content = "{}";
	if (metadata == NULL)
		metadata = "{}";
	struct cb_span part[4] = {
		{ header, strlen(header) }, CB_SPAN("{}"), { metadata, strlen(metadata) }, { content, strlen(content) }
	};

	assert_int_equal(cb_auth_sign(r->auth, part, signature, &n), 0);
	send_part(s, "<IDS|MSG>", 9, true);
	send_part(s, signature, n, true);
	for (int i = 0; i < 4; i++)
		send_part(s, part[i].data, part[i].len, i < 3);
	return id;
}

const char *rig_execute(struct rig *r, const char *code)
{
	char content[256];

	snprintf(content, sizeof(content), "{\"code\":\"%s\"}", code);
	return rig_send(r, RIG_SHELL, "execute_request", content, NULL);
}

/* `{}` with nothing but blanks between, which tests of queues send by the gigabyte: jansson takes long for those. */
static bool is_blank_object(struct cb_span s)
{
	return s.len > 3 && s.data[0] == '{' && s.data[1] == ' ' && s.data[s.len - 1] == '}' &&
	       memcmp(s.data + 1, s.data + 2, s.len - 3) == 0;
}

static struct rig_msg parse_msg(struct rig *r, zmq_msg_t *frame, size_t n)
{
	struct rig_msg m = { 0 };
	json_t **to[4] = { &m.header, &m.parent, &m.metadata, &m.content };
	struct cb_span part[4];
	size_t d = 0;

	while (d < n && !cb_span_is(cb_frame_span(&frame[d]), "<IDS|MSG>"))
		d++;
	assert_true(d + 6 <= n);
	for (size_t i = 0; i < 4; i++) {
		json_error_t e;

		part[i] = cb_frame_span(&frame[d + 2 + i]);
		*to[i] = is_blank_object(part[i])
				 ? json_object()
				 : json_loadb(part[i].data, part[i].len, JSON_REJECT_DUPLICATES, &e);
		if (*to[i] == NULL)
			fail_msg("part %zu is no JSON: %s: %.*s", i, e.text, (int)part[i].len, part[i].data);
	}
	assert_int_equal(cb_auth_verify(r->auth, part, cb_frame_span(&frame[d + 1])), 0);
	m.nbuffers = n - d - 6;
	m.content_len = part[3].len;
	snprintf(m.type, sizeof(m.type), "%s", json_string_value(json_object_get(m.header, "msg_type")));
	if (json_object_get(m.parent, "msg_id") != NULL)
		snprintf(m.parent_id, sizeof(m.parent_id), "%s",
			 json_string_value(json_object_get(m.parent, "msg_id")));
	return m;
}

bool rig_try_recv(struct rig *r, enum rig_source channel, struct rig_msg *ret)
{
	static zmq_msg_t frame[CB_MAX_FRAMES];
	size_t n = 0;
	int more;

	do {
		assert_true(n < CB_MAX_FRAMES);
		zmq_msg_init(&frame[n]);
		if (zmq_msg_recv(&frame[n], r->client[channel], ZMQ_DONTWAIT) < 0) {
			assert_int_equal(errno, EAGAIN);
			assert_int_equal(n, 0);
			zmq_msg_close(&frame[n]);
			return false;
		}
		more = zmq_msg_more(&frame[n++]);
	} while (more);
	*ret = parse_msg(r, frame, n);
	for (size_t i = 0; i < n; i++)
		zmq_msg_close(&frame[i]);
	return true;
}

struct rig_msg rig_recv(struct rig *r, enum rig_source channel)
{
	struct rig_msg m = { 0 };

	for (int64_t end = patience_end(); !rig_try_recv(r, channel, &m);) {
		if (cb_now_ns() >= end)
			fail_msg("nothing came on channel %d", (int)channel);
		run(r, (int)channel, 1000);
		if (r->ended) /* what the kernel has sent is still on its way */
			(void)zmq_poll(&(zmq_pollitem_t){ .socket = r->client[channel], .events = ZMQ_POLLIN }, 1, 100);
	}
	return m;
}

void rig_msg_free(struct rig_msg *m)
{
	json_decref(m->header);
	json_decref(m->parent);
	json_decref(m->metadata);
	json_decref(m->content);
	*m = (struct rig_msg){ 0 };
}

const char *rig_text(const struct rig_msg *m, const char *key)
{
	const char *text = json_string_value(json_object_get(m->content, key));

	return text != NULL ? text : "";
}

json_t *rig_about(const struct rig_msg *m, const char *key)
{
	return json_object_get(json_object_get(m->metadata, "cellblock"), key);
}

struct rig_msg rig_take(struct rig *r, enum rig_source channel, const char *type, const char *parent_id)
{
	struct rig_msg m = rig_recv(r, channel);
	const char *found = strcmp(m.type, "status") == 0 ? rig_text(&m, "execution_state") : m.type;

	if (strcmp(found, type) != 0 || strcmp(m.parent_id, parent_id) != 0) {
		char *text = json_dumps(m.content, 0);

		fail_msg("expected %s of %s, got %s of %s: %s", type, parent_id, found, m.parent_id, text);
	}
	return m;
}

void rig_expect(struct rig *r, enum rig_source channel, const char *type, const char *parent_id)
{
	struct rig_msg m = rig_take(r, channel, type, parent_id);

	rig_msg_free(&m);
}

void rig_expect_error(struct rig *r, enum rig_source channel, const char *type, const char *parent_id,
		      const char *ename, const char *words)
{
	struct rig_msg m = rig_take(r, channel, type, parent_id);

	assert_string_equal(rig_text(&m, "ename"), ename);
	if (strstr(rig_text(&m, "evalue"), words) == NULL)
		fail_msg("%s: not for %s", rig_text(&m, "evalue"), words);
	rig_msg_free(&m);
}

void rig_expect_aborted(struct rig *r, const char *id)
{
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_string_equal(rig_text(&m, "status"), "aborted");
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

void rig_barrier(struct rig *r)
{
	const char *current =
		r->k.shells.execution.shell.current != NULL ? r->k.shells.execution.shell.current->header->data : NULL;
	const char *id = rig_send(r, RIG_CONTROL, "kernel_info_request", NULL, NULL);
	struct rig_msg m;

	rig_expect(r, RIG_CONTROL, "kernel_info_reply", id);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	if (current != NULL) {
		m = rig_recv(r, RIG_IOPUB);
		assert_string_equal(rig_text(&m, "execution_state"), "busy");
		assert_non_null(strstr(current, m.parent_id));
		rig_msg_free(&m);
	}
	assert_false(rig_try_recv(r, RIG_SHELL, &m));
}

/* ---- the broker and the guest ---- */

static struct cb_broker_request broker_request(struct rig *r, int *ret_fds, size_t *ret_nfds)
{
	struct cb_broker_request q;

	for (int64_t end = patience_end();;) {
		ssize_t n = cb_fd_recv(r->broker, &q, sizeof(q), ret_fds, CB_SPAWN_NFDS, ret_nfds, MSG_DONTWAIT);

		if (n == (ssize_t)sizeof(q) && (q.op == CB_BROKER_OOM_FIRST || q.op == CB_BROKER_OOM_LAST))
			continue; /* of no consequence here */
		if (n == (ssize_t)sizeof(q))
			return q;
		assert_int_equal(n, -EAGAIN);
		assert_true(cb_now_ns() < end);
		run(r, RIG_BROKER, 1000);
	}
}

static bool not_spawning(struct rig *r)
{
	return r->k.guest.state != CB_GUEST_SPAWNING || r->k.guest.generation != r->generation;
}

void rig_spawn(struct rig *r, int code)
{
	struct cb_broker_reply reply = { .event = CB_BROKER_SPAWNED,
					 .code = code,
					 .jail = r->jail + 1,
					 .step = "a step",
					 .text = "a text",
					 .cure = "a cure" };
	int fds[CB_SPAWN_NFDS];
	size_t n = 0;
	struct cb_broker_request q = broker_request(r, fds, &n);

	/* it died before it was killed; it died before it was ready */
	while ((q.op == CB_BROKER_KILL && q.jail == r->jail) || q.op == CB_BROKER_DROP)
		q = broker_request(r, fds, &n);
	reply.number = q.jail;
	r->jail++;
	r->generation = r->k.guest.generation;
	assert_int_equal(q.op, CB_BROKER_SPAWN);
	assert_int_equal(n, CB_SPAWN_NFDS);
	close_guest(r);
	r->side = fds[CB_SPAWN_SIDE];
	r->wire = fds[CB_SPAWN_WIRE];
	r->out[0] = fds[CB_SPAWN_STDOUT];
	r->out[1] = fds[CB_SPAWN_STDERR];
	r->log = fds[CB_SPAWN_LOG];
	r->init = fds[CB_SPAWN_LINK];
	r->twin_control = fds[CB_SPAWN_TWIN_CONTROL];
	cb_fd_close(&r->death);
	r->death = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	reply.guest_pid = getpid();
	reply.level = r->level;
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), sent[1 + CB_USAGE_NFDS] = { r->death };

	for (int i = 0; i < CB_USAGE_NFDS; i++)
		sent[1 + i] = null;
	assert_int_equal(cb_fd_send(r->broker, &reply, sizeof(reply), sent, code == 0 ? 1 + CB_USAGE_NFDS : 0), 0);
	close(null);
	if (code == 0)
		r->slot[RIG_WIRE] = cb_loop_add(&r->k.loop, NULL, r->wire, 0, on_source, r);
	else
		close_guest(r);
	rig_until(r, not_spawning);
}

void rig_become(struct rig *r, int fds[CB_BIRTH_NFDS])
{
	static const int from[] = { CB_BIRTH_WIRE, CB_BIRTH_STDOUT, CB_BIRTH_STDERR, CB_BIRTH_TWIN_CONTROL,
				    CB_BIRTH_SIDE };
	int *to[] = { &r->wire, &r->out[0], &r->out[1], &r->twin_control, &r->side };

	cb_loop_remove(&r->k.loop, &r->slot[RIG_WIRE]);
	for (int i = 0; i < CB_BIRTH_NFDS; i++) {
		cb_fd_close(to[i]);
		*to[i] = fds[from[i]];
		fds[from[i]] = -1;
	}
	r->slot[RIG_WIRE] = cb_loop_add(&r->k.loop, NULL, r->wire, 0, on_source, r);
}

void rig_swap_wire(struct rig *r, int *fd)
{
	int wire = r->wire;

	cb_loop_remove(&r->k.loop, &r->slot[RIG_WIRE]);
	r->wire = *fd;
	*fd = wire;
	r->slot[RIG_WIRE] = cb_loop_add(&r->k.loop, NULL, r->wire, 0, on_source, r);
}

static bool not_starting(struct rig *r)
{
	return r->k.guest.state != CB_GUEST_STARTING;
}

void rig_guest_up(struct rig *r)
{
	rig_spawn(r, 0);
	rig_frame(r, CB_WIRE_HELLO, 0, RIG_HELLO);
	rig_until(r, not_starting);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
}

void rig_await_kill(struct rig *r)
{
	int fds[CB_SPAWN_NFDS];
	size_t n = 0;
	struct cb_broker_request q = broker_request(r, fds, &n);

	assert_int_equal(q.op, CB_BROKER_KILL);
	assert_int_equal(q.jail, r->jail);
}

static bool gone(struct rig *r)
{
	return r->k.guest.pidfd < 0;
}

void rig_die(struct rig *r, int wait_status)
{
	struct cb_init_msg m = { .op = CB_INIT_EXITED, .arg = wait_status };
	uint64_t one = 1;

	if (wait_status >= 0)
		assert_int_equal(send(r->init, &m, sizeof(m), 0), (ssize_t)sizeof(m));
	close_guest(r);
	assert_int_equal(write(r->death, &one, sizeof(one)), (ssize_t)sizeof(one));
	r->end.event = CB_BROKER_ENDED;
	r->end.jail = r->jail;
	assert_int_equal(cb_fd_send(r->broker, &r->end, sizeof(r->end), NULL, 0), 0);
	rig_until(r, gone);
}

static void read_exactly(struct rig *r, void *to, size_t n)
{
	for (size_t have = 0; have < n;) {
		ssize_t got = recv(r->wire, (char *)to + have, n - have, MSG_DONTWAIT);

		assert_true(got > 0 || (got < 0 && errno == EAGAIN));
		if (got > 0)
			have += (size_t)got;
		else
			run(r, RIG_WIRE, RIG_PATIENCE);
	}
}

static char *read_text(struct rig *r, size_t n)
{
	char *text = test_calloc(n + 1, 1);

	read_exactly(r, text, n);
	return text;
}

struct rig_request rig_guest_recv(struct rig *r)
{
	struct rig_request q;

	read_exactly(r, &q.h, sizeof(q.h));
	q.content = read_text(r, q.h.content_len);
	q.metadata = read_text(r, q.h.metadata_len);
	q.rest = read_text(r, 4 * (size_t)q.h.buffer_count + q.h.buffers_len);
	return q;
}

void rig_request_free(struct rig_request *q)
{
	test_free(q->content);
	test_free(q->metadata);
	test_free(q->rest);
}

uint64_t rig_guest_expect(struct rig *r, enum cb_wire_type type)
{
	struct rig_request q = rig_guest_recv(r);

	assert_int_equal(q.h.type, type);
	rig_request_free(&q);
	return q.h.request;
}

void rig_frame_raw(struct rig *r, const struct cb_wire_header *h, const void *body, size_t len)
{
	const char *part[2] = { (const char *)h, body };
	size_t size[2] = { sizeof(*h), len };

	for (int i = 0; i < 2; i++) {
		for (size_t done = 0; done < size[i];) {
			ssize_t n = send(r->wire, part[i] + done, size[i] - done, MSG_DONTWAIT | MSG_NOSIGNAL);

			if (n > 0)
				done += (size_t)n;
			else if (errno == EAGAIN)
				run(r, -1, 1);
			else
				return; /* the kernel has closed its end: what a test expects shows elsewhere */
		}
	}
}

void rig_frame(struct rig *r, enum cb_wire_type type, uint64_t request, const char *content)
{
	struct cb_wire_header h = { .type = type, .content_len = (uint32_t)strlen(content), .request = request };

	rig_frame_raw(r, &h, content, strlen(content));
}

static void signalled(struct rig *r, struct cb_init_msg m)
{
	m.op = CB_INIT_SIGNALLED;
	assert_int_equal(send(r->init, &m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
}

static bool is_signal(const struct cb_init_msg *m)
{
	return m->op == CB_INIT_SIGNAL || m->op == CB_INIT_NUDGE;
}

void rig_signalled(struct rig *r)
{
	struct cb_init_msg m;

	while (recv(r->init, &m, sizeof(m), MSG_DONTWAIT | MSG_PEEK) == (ssize_t)sizeof(m) && is_signal(&m)) {
		(void)recv(r->init, &m, sizeof(m), MSG_DONTWAIT);
		signalled(r, m);
	}
}

uint64_t rig_begun(struct rig *r, const char *id)
{
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "execute_input", id);
	return rig_guest_expect(r, CB_WIRE_EXECUTE);
}

const char *rig_begin(struct rig *r, const char *code, uint64_t *ret_request)
{
	rig_signalled(r);
	const char *id = rig_execute(r, code);

	*ret_request = rig_begun(r, id);
	return id;
}

void rig_end(struct rig *r, const char *id, uint64_t request)
{
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request, RIG_OK);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
}

void rig_cell(struct rig *r, const char *code)
{
	uint64_t request;
	const char *id = rig_begin(r, code, &request);

	rig_end(r, id, request);
}

void rig_cell_says(struct rig *r, const char *words)
{
	const char *id = rig_execute(r, "next");

	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "execute_input", id);
	struct rig_msg m = rig_take(r, RIG_IOPUB, "stream", id);

	if (strstr(rig_text(&m, "text"), words) == NULL)
		fail_msg("%s: not %s", rig_text(&m, "text"), words);
	rig_msg_free(&m);
}

void rig_ended(struct rig *r, const char *id, const char *ename)
{
	struct rig_msg m = rig_take(r, RIG_SHELL, "execute_reply", id);

	assert_string_equal(rig_text(&m, "status"), ename == NULL ? "ok" : "error");
	assert_string_equal(rig_text(&m, "ename"), ename == NULL ? "" : ename);
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", id);
}

void rig_cell_error(struct rig *r, const char *id, const char *ename)
{
	rig_expect_error(r, RIG_IOPUB, "error", id, ename, "");
}

void rig_failed(struct rig *r, const char *id, const char *ename)
{
	rig_cell_error(r, id, ename);
	rig_ended(r, id, ename);
}

void rig_restarted(struct rig *r)
{
	rig_expect(r, RIG_IOPUB, "restarting", "");
	rig_guest_up(r);
	rig_expect(r, RIG_IOPUB, "starting", "");
}

void rig_works(struct rig *r)
{
	rig_signalled(r);
	uint64_t g;
	const char *id = rig_execute(r, "again");
	struct rig_msg m;

	g = rig_begun(r, id);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, g, RIG_OK);
	m = rig_recv(r, RIG_IOPUB);
	if (strcmp(m.type, "stream") == 0) { /* a state that was lost is said */
		assert_non_null(strstr(rig_text(&m, "text"), "lost"));
		rig_msg_free(&m);
		m = rig_recv(r, RIG_IOPUB);
	}
	assert_string_equal(rig_text(&m, "execution_state"), "idle");
	rig_msg_free(&m);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	rig_barrier(r);
}

void rig_stream(struct rig *r, uint64_t request, unsigned stream, const char *text)
{
	struct cb_wire_header h = {
		.type = CB_WIRE_STREAM, .content_len = (uint32_t)strlen(text), .request = request, .flags = stream
	};

	rig_frame_raw(r, &h, text, strlen(text));
}

int rig_interrupts(struct rig *r)
{
	struct cb_init_msg m;
	int n = 0;

	while (recv(r->init, &m, sizeof(m), MSG_DONTWAIT) == (ssize_t)sizeof(m)) {
		n += m.op == CB_INIT_SIGNAL && m.arg == SIGINT;
		if (is_signal(&m))
			signalled(r, m);
	}
	return n;
}
