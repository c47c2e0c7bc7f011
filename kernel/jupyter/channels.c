/* The five channels.
 *
 * Trust domain: supervisor. The listening sockets are made by hand while the process still has its rights (a port in
 * use is then one clear error) and handed to libzmq by ZMQ_USE_FD, so that the supervisor's filter can refuse to bind
 * anything later. Invariants: no send blocks; every socket has limits for what comes in (incoming.c: for messages that
 * are not whole yet), and a linger; iopub and heartbeats have high-water marks; replies that clients leave unread are
 * bounded by bytes, of each and of all, and a large one beyond that becomes an error that says so, but who reads always
 * gets what is small; a peer is served at most BATCH messages a turn. Called by the loop; hands verified requests to
 * router.c.
 */
#include "channels.h"

#include <arpa/inet.h>
#include <cellblock/fd.h>
#include <cellblock/json_write.h>
#include <cellblock/log.h>
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "incoming.h"
#include "jupyter.h"
#include "loop.h"
#include "policy/policy.h"

#define BATCH 64       /* messages taken from one socket a turn */
#define DRAIN_MAX 4096 /* messages taken in at a failure, and at the end */
#define REPLY_HWM 0	/* none: a full ROUTER drops without a word; refuse_large() bounds bytes, frames among them */
#define ECHO_HWM 100	/* of who does not read his heartbeats */
#define ECHO_MAX 4096	/* bytes of one */
#define SHARES 4	/* of all clients together, where largest() is the share of one on a channel */
#define SHARE_FREE (1u << 20) /* of small ones, whatever others leave unread */
#define REPLY_SMALL 16384
#define FRAME_FLOOR (64 << 20)

static int endpoint(const struct cb_connection *conn, enum cb_channel ch, char *ret, size_t size)
{
	int n = conn->ipc			? snprintf(ret, size, "ipc://%s-%d", conn->ip, conn->port[ch])
		: strchr(conn->ip, ':') != NULL ? snprintf(ret, size, "tcp://[%s]:%d", conn->ip, conn->port[ch])
						: snprintf(ret, size, "tcp://%s:%d", conn->ip, conn->port[ch]);

	return n < (int)size ? 0 : CB_E_TOO_BIG;
}

static int listen_ipc(const struct cb_connection *conn, enum cb_channel ch, int *ret_fd, struct cb_err *err)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *step = cb_channel_name(ch);

	if (snprintf(a.sun_path, sizeof(a.sun_path), "%s-%d", conn->ip, conn->port[ch]) >= (int)sizeof(a.sun_path))
		return cb_err_set(err, CB_E_TOO_BIG, step,
				  "Use a shorter runtime folder (JUPYTER_RUNTIME_DIR) or transport tcp.",
				  "the socket path %s-%d is longer than %zu bytes", conn->ip, conn->port[ch],
				  sizeof(a.sun_path) - 1);
	CB_AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return cb_err_set(err, -errno, step, NULL, "can't make a unix socket: %s", strerror(errno));
	(void)unlink(a.sun_path); /* left behind by a former kernel of this connection file */
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 128) < 0)
		return cb_err_set(err, -errno, step, "Check that the folder exists and is writable.",
				  "can't listen on %s: %s", a.sun_path, strerror(errno));
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

static int listen_tcp(struct cb_connection *conn, enum cb_channel ch, int *ret_fd, struct cb_err *err)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
				  .ai_socktype = SOCK_STREAM },
			*ai = NULL;
	const char *step = cb_channel_name(ch);
	char port[16];
	int one = 1;

	snprintf(port, sizeof(port), "%d", conn->port[ch]);
	int g = getaddrinfo(conn->ip, port, &hints, &ai);

	if (g != 0)
		return cb_err_set(err, CB_E_SYNTAX, step, "Give a numeric address such as 127.0.0.1.",
				  "ip \"%s\" is no address: %s", conn->ip, gai_strerror(g));
	CB_AUTO_FD fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r = fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
				bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, 128) < 0
			? -errno
			: 0;

	freeaddrinfo(ai);
	if (r < 0)
		return cb_err_set(err, r, step,
				  r == -EADDRINUSE ? "Another process took the port: start the kernel again." : NULL,
				  "can't listen on %s port %d: %s", conn->ip, conn->port[ch], strerror(-r));
	if (conn->port[ch] == 0) {
		struct sockaddr_storage a;
		socklen_t len = sizeof(a);

		if (getsockname(fd, (struct sockaddr *)&a, &len) < 0)
			return cb_err_set(err, -errno, step, NULL, "getsockname: %s", strerror(errno));
		conn->port[ch] = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
							       : ((struct sockaddr_in *)&a)->sin_port);
	}
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

int cb_channels_listen(struct cb_channels *c, struct cb_connection *conn, bool *ret_chosen, struct cb_err *err)
{
	*ret_chosen = false;
	for (int ch = 0; ch < CB_NCHANNELS; ch++)
		c->listen_fd[ch] = c->slot[ch] = -1;
	for (int ch = 0; ch < CB_NCHANNELS; ch++) {
		bool choose = conn->port[ch] == 0;

		if (choose && conn->ipc)
			conn->port[ch] = ch + 1;
		int r = conn->ipc ? listen_ipc(conn, ch, &c->listen_fd[ch], err)
				  : listen_tcp(conn, ch, &c->listen_fd[ch], err);

		if (r < 0)
			return r;
		*ret_chosen |= choose;
	}
	return 0;
}

static int set_int(void *socket, int option, int value)
{
	return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0 ? 0 : -errno;
}

/* A peer that is gone without closing (laptop asleep) is found, and its queue given back. TCP looks while nothing is
 * on its way; on iopub something often is, so that there are heartbeats, too. They wait behind megabytes that a slow
 * reader has still to take, and who takes them is not to be cut: hence the long time. Not elsewhere: libzmq aborts when
 * one is due for a peer that it has stopped to read and that hung up, as the router sockets' peers do whose identity
 * another has taken over. */
static int set_liveness(void *s, enum cb_channel ch)
{
	static const int options[][2] = { { ZMQ_TCP_KEEPALIVE, 1 },	    { ZMQ_TCP_KEEPALIVE_IDLE, 10 },
					  { ZMQ_TCP_KEEPALIVE_INTVL, 10 },  { ZMQ_TCP_KEEPALIVE_CNT, 2 },
					  { ZMQ_HEARTBEAT_IVL, 10000 },	    { ZMQ_HEARTBEAT_TIMEOUT, 120000 } };
	size_t n = CB_COUNT(options) - (ch == CB_IOPUB ? 0 : 2);
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = set_int(s, options[i][0], options[i][1]);
	return r;
}

/* Of one part, and of all parts of a message: above limits.message, so that what is signed and too large can be
 * answered; below what would hurt. */
static int64_t largest(const struct cb_jupyter *jp)
{
	int64_t limit = (int64_t)jp->policy->limit_message;

	return 2 * limit > FRAME_FLOOR ? 2 * limit : FRAME_FLOOR;
}

static int set_common(struct cb_jupyter *jp, void *s, enum cb_channel ch)
{
	int64_t max = ch == CB_HB ? 1024 : largest(jp);
	int r = zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &max, sizeof(max)) == 0 ? 0 : -errno;

	const int options[][2] = {
		{ ZMQ_LINGER, 1000 },
		{ ZMQ_SNDHWM, ch == CB_IOPUB ? CB_IOPUB_HWM : ch == CB_HB ? ECHO_HWM : REPLY_HWM },
		{ ZMQ_RCVHWM, 1000 },
		{ ZMQ_IPV6, strchr(jp->conn.ip, ':') != NULL },
		{ ZMQ_USE_FD, jp->channels.listen_fd[ch] },
	};
	for (size_t i = 0; i < CB_COUNT(options) && r == 0; i++)
		r = set_int(s, options[i][0], options[i][1]);
	if (r == 0)
		r = set_liveness(s, ch);
	if (r == 0 && ch == CB_IOPUB) {
		r = set_int(s, ZMQ_XPUB_VERBOSE, 1);
		if (r == 0)
			r = set_int(s, ZMQ_XPUB_NODROP, 1);
	} else if (r == 0) {
		r = set_int(s, ZMQ_ROUTER_HANDOVER, 1); /* a client that reconnects with its old identity takes over */
	}
	if (r == 0 && ch == CB_STDIN)
		r = set_int(s, ZMQ_ROUTER_MANDATORY, 1); /* who asks a client that is gone is told */
	if (r == 0 && jp->conn.curve_secret[0] != '\0') {
		r = set_int(s, ZMQ_CURVE_SERVER, 1);
		if (r == 0 && zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, jp->conn.curve_secret, 41) != 0)
			r = -errno;
	}
	return r;
}

/* One multipart message. -EAGAIN when none waits; CB_E_TOO_BIG when it had too many frames, or too large ones all
 * together (taken off and dropped): nobody has said yet that its sender has the key. */
static int receive(void *s, size_t most, zmq_msg_t *frame, size_t *ret_n)
{
	size_t n = 0, bytes = 0;
	bool dropped = false;
	int more;

	do {
		zmq_msg_t *m = &frame[n];

		zmq_msg_init(m);
		if (zmq_msg_recv(m, s, ZMQ_DONTWAIT) < 0) {
			int r = -errno;

			cb_frames_close(frame, n + 1);
			return r;
		}
		more = zmq_msg_more(m);
		bytes += zmq_msg_size(m) + CB_FRAME_BYTES;
		if (!more)
			cb_incoming_delivered(m);
		if (n + 1 < CB_MAX_FRAMES && bytes <= most) {
			n++;
		} else {
			dropped = true;
			zmq_msg_close(m);
		}
	} while (more);
	if (dropped) {
		cb_frames_close(frame, n);
		return CB_E_TOO_BIG;
	}
	*ret_n = n;
	return 0;
}

/* Takes the frames in any case. */
static int send_all(void *s, zmq_msg_t *frame, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		if (r == 0 && zmq_msg_send(&frame[i], s, ZMQ_DONTWAIT | (i + 1 < n ? ZMQ_SNDMORE : 0)) < 0)
			r = -errno;
		if (r < 0)
			zmq_msg_close(&frame[i]);
	}
	return r;
}

/* Nobody needs a key for this. */
static void on_heartbeat(void *context, short revents)
{
	struct cb_jupyter *jp = context;
	void *s = jp->channels.socket[CB_HB];
	static zmq_msg_t frame[CB_MAX_FRAMES];

	(void)revents;
	for (int i = 0; i < BATCH; i++) {
		size_t n = 0;
		int r = receive(s, ECHO_MAX, frame, &n);

		if (r == 0)
			(void)send_all(s, frame, n);
		else if (r != CB_E_TOO_BIG)
			return;
	}
}

/* `at_end`: also when the loop has stopped. */
static void take(struct cb_jupyter *jp, enum cb_channel ch, int most, bool at_end)
{
	static zmq_msg_t frame[CB_MAX_FRAMES];

	for (int i = 0; i < most && (at_end || !jp->loop->stop); i++) {
		struct cb_request *r = NULL;
		const char *reason = "too many frames, or too large ones";
		size_t n = 0;
		int c = receive(jp->channels.socket[ch], (size_t)largest(jp), frame, &n);

		if (c == -EAGAIN || c == -EINTR)
			return;
		if (c == 0)
			c = cb_request_from_frames(jp->auth, ch, frame, n, &r, &reason);
		if (c == 0 && cb_auth_is_marked(jp->auth, r->session)) {
			reason = "one of the kernel's own messages, sent back";
			cb_request_free(r);
			c = CB_E_AUTH;
		}
		if (c < 0) {
			/* who sends this has no key: no answer, and no more than a line */
			if (cb_log_limit(&jp->channels.dropped))
				cb_log(CB_LOG_WARNING, "%s: message dropped: %s", cb_channel_name(ch), reason);
			jp->events->dropped(jp->kernel, cb_channel_name(ch), reason);
			continue;
		}
		jp->events->request(jp->kernel, r);
	}
}

static void on_shell(void *context, short revents)
{
	(void)revents;
	take(context, CB_SHELL, BATCH, false);
}

static void on_control(void *context, short revents)
{
	(void)revents;
	take(context, CB_CONTROL, BATCH, false);
}

static void on_stdin(void *context, short revents)
{
	(void)revents;
	take(context, CB_STDIN, BATCH, false);
}

static void on_iopub(void *context, short revents)
{
	(void)revents;
	cb_iopub_subscriptions(context);
}

void cb_channels_drain_shell(struct cb_jupyter *jp)
{
	take(jp, CB_SHELL, DRAIN_MAX, false);
}

void cb_channels_drain_stdin(struct cb_jupyter *jp)
{
	take(jp, CB_STDIN, BATCH, false);
}

void cb_channels_drain_at_end(struct cb_jupyter *jp)
{
	take(jp, CB_CONTROL, DRAIN_MAX, true);
	take(jp, CB_SHELL, DRAIN_MAX, true);
}

int cb_channels_open(struct cb_jupyter *jp, struct cb_err *err)
{
	static const struct {
		enum cb_channel channel;
		int type;
		cb_loop_fn fn;
	} order[] = {
		/* served in this order: liveness and control before work */
		{ CB_HB, ZMQ_ROUTER, on_heartbeat }, { CB_CONTROL, ZMQ_ROUTER, on_control },
		{ CB_IOPUB, ZMQ_XPUB, on_iopub },    { CB_STDIN, ZMQ_ROUTER, on_stdin },
		{ CB_SHELL, ZMQ_ROUTER, on_shell },
	};
	struct cb_channels *c = &jp->channels;

	cb_incoming_init((uint64_t)largest(jp));
	c->context = zmq_ctx_new();
	if (c->context == NULL)
		return cb_err_set(err, -errno, "zeromq", NULL, "zmq_ctx_new: %s", zmq_strerror(errno));
	zmq_ctx_set(c->context, ZMQ_MAX_SOCKETS, 16);
	for (size_t i = 0; i < CB_COUNT(order); i++) {
		enum cb_channel ch = order[i].channel;
		char url[256];

		c->socket[ch] = zmq_socket(c->context, order[i].type);
		int r = c->socket[ch] != NULL ? set_common(jp, c->socket[ch], ch) : -errno;

		if (r == 0)
			r = endpoint(&jp->conn, ch, url, sizeof(url));
		if (r == 0 && ch == CB_IOPUB)
			r = cb_connected_open(jp);
		if (r == 0 && zmq_bind(c->socket[ch], url) != 0)
			r = -errno;
		if (r < 0)
			return cb_err_set(err, r, cb_channel_name(ch), NULL, "can't open the %s channel: %s",
					  cb_channel_name(ch), zmq_strerror(-r));
		c->slot[ch] = cb_loop_add(jp->loop, c->socket[ch], 0, ZMQ_POLLIN, order[i].fn, jp);
	}
	return 0;
}

void cb_channels_close(struct cb_jupyter *jp)
{
	struct cb_channels *c = &jp->channels;

	cb_connected_close(jp);
	for (int ch = 0; ch < CB_NCHANNELS; ch++) {
		if (c->socket[ch] != NULL)
			zmq_close(c->socket[ch]);
		if (jp->conn.ipc) {
			char path[128];

			/* libzmq leaves sockets that it was handed; after leaving root this may fail: the client cleans
			 * up as well */
			if (snprintf(path, sizeof(path), "%s-%d", jp->conn.ip, jp->conn.port[ch]) < (int)sizeof(path))
				(void)unlink(path);
		}
	}
	if (c->context != NULL)
		zmq_ctx_term(c->context); /* waits for unsent replies, at most the linger */
}

/* Who reads it, as a hash: each connection has a queue of its own, the client's on other channels are others. */
static uint64_t reader_of(enum cb_channel channel, const struct cb_request *to)
{
	struct cb_span name = to->nident > 0 ? cb_frame_span(&to->frame[0]) : (struct cb_span){ NULL, 0 };

	return cb_span_hash(name, CB_HASH ^ (uint64_t)channel);
}

/* A cell's metadata when its reply is an error of ours: what became of the state, and what was used, stay true. */
static int blame_nobody(struct cb_span metadata, struct cb_buf *text)
{
	struct cb_json_field f[] = {
		{ .name = "started", .types = CB_JSON_ANY, .required = true },
		{ .name = "engine", .types = CB_JSON_ANY, .required = true },
		{ .name = "cellblock", .types = CB_JSON_OBJECT, .required = true },
	};

	if (cb_json_scan_object(metadata.data, metadata.len, f, 3, NULL) < 0)
		return CB_E_SYNTAX; /* no cell's */
	struct cb_span about = { f[2].ret.data + 1, f[2].ret.len - 2 };
	struct cb_json j = cb_json_begin(text);

	cb_json_put(&j, "started", f[0].ret, "status", "error", "dependencies_met", (bool)true, "engine", f[1].ret);
	cb_json_object(&j, "cellblock");
	cb_json_put(&j, NULL, about, "by", "kernel");
	return cb_json_done(&j);
}

/* Puts an error in place of what is too large while so much is unread. A question can't be one. */
static int refuse_large(struct cb_jupyter *jp, enum cb_channel channel, struct cb_outgoing *out, struct cb_buf *text,
			struct cb_buf *metadata)
{
	/* bytes that were not taken yet, by one client on one channel and by all; twice as many where they are small */
	size_t share = (size_t)largest(jp), most = SHARES * share;
	size_t own = __atomic_load_n(out->unread, __ATOMIC_RELAXED), all = cb_replies_in_flight();
	size_t large = out->content.len;

	for (size_t i = 0; i < out->nbuffers; i++)
		large += out->buffers[i].len;
	if (own > 2 * share || (own > SHARE_FREE && all > 2 * most))
		return -ENOBUFS;
	if (large <= REPLY_SMALL || (own <= share && all <= most))
		return 0;
	if (channel == CB_STDIN)
		return -ENOBUFS;
	out->content_body = NULL;
	out->nbuffers = 0;
	char evalue[192];

	snprintf(evalue, sizeof(evalue),
		 "the request was served, but its reply was left out: replies of more than %zu MiB wait for %s",
		 (own > share ? share : most) >> 20,
		 own > share ? "this client, which does not read them" : "clients that do not read them");
	int r = cb_json_write_object(text, "status", "error", "ename", "KernelBusyError", "evalue", evalue, "traceback",
				     CB_SPAN("[]"));

	out->content = cb_buf_span(text);
	if (r == 0 && blame_nobody(out->metadata, metadata) == 0)
		out->metadata = cb_buf_span(metadata);
	return r;
}

int cb_channels_send(struct cb_jupyter *jp, enum cb_channel channel, const struct cb_request *to,
		     const struct cb_outgoing *out)
{
	zmq_msg_t frame[CB_MAX_IDENTITIES + 8]; /* replies have one buffer at most */
	CB_AUTO_BUF traced = CB_BUF_INIT(CB_TRACEPARENT_SIZE + 64);
	CB_AUTO_BUF refusal = CB_BUF_INIT(1024), blame = CB_BUF_INIT(out->metadata.len + 64);
	struct cb_outgoing said = *out;
	size_t n = 0, body = 0;

	/* a reply without metadata of its own repeats the mark; failure.c puts it into those of cells */
	if (channel == to->channel && to->traceparent[0] != '\0' && cb_span_is(out->metadata, "{}")) {
		struct cb_json j = cb_json_begin(&traced);

		cb_json_put_object(&j, "cellblock", "traceparent", to->traceparent);
		if (cb_json_done(&j) == 0)
			said.metadata = cb_buf_span(&traced);
	}

	said.unread = cb_replies_to(reader_of(channel, to));
	for (; n < to->nident; n++) {
		zmq_msg_init(&frame[n]);
		zmq_msg_copy(&frame[n], &to->frame[n]);
		said.identities += zmq_msg_size(&frame[n]);
	}
	int r = refuse_large(jp, channel, &said, &refusal, &blame);

	if (r == 0)
		r = cb_outgoing_frames(&jp->session, jp->auth, &said, &frame[n], &body);
	if (r == 0)
		r = send_all(jp->channels.socket[channel], frame, n + body);
	else
		cb_frames_close(frame, n);
	if (r < 0 && cb_log_limit(&jp->channels.unsent))
		cb_log(CB_LOG_WARNING, "%s: %s not sent: %s", cb_channel_name(channel), out->type, cb_err_name(r));
	return r;
}

void cb_reply_full(struct cb_jupyter *jp, const struct cb_request *to, struct cb_span metadata, struct cb_span content,
		   struct cb_body *body)
{
	char type[CB_TYPE_MAX + 8];
	size_t n = strlen(to->type), suffix = strlen("_request");

	if (n > suffix && strcmp(to->type + n - suffix, "_request") == 0)
		n -= suffix;
	snprintf(type, sizeof(type), "%.*s_reply", (int)n, to->type);
	struct cb_outgoing out = { .type = type,
				   .parent = cb_header_span(to->header),
				   .metadata = metadata,
				   .content = content,
				   .content_body = body };

	(void)cb_channels_send(jp, to->channel, to, &out);
}

void cb_reply(struct cb_jupyter *jp, const struct cb_request *to, struct cb_span content)
{
	cb_reply_full(jp, to, CB_SPAN("{}"), content, NULL);
}

void cb_reply_json(struct cb_jupyter *jp, const struct cb_request *to, struct cb_json *j)
{
	if (cb_json_done(j) == 0)
		cb_reply(jp, to, cb_buf_span(j->out));
	else
		cb_reply_error(jp, to, "MemoryError", "no memory for the reply");
}

void cb_reply_error(struct cb_jupyter *jp, const struct cb_request *to, const char *ename, const char *format, ...)
{
	char evalue[1024];
	va_list ap;

	va_start(ap, format);
	vsnprintf(evalue, sizeof(evalue), format, ap);
	va_end(ap);
	CB_AUTO_BUF b = CB_BUF_INIT(16384);

	if (cb_json_write_object(&b, "status", "error", "ename", ename, "evalue", evalue, "traceback",
				 CB_SPAN("[]")) == 0)
		cb_reply(jp, to, cb_buf_span(&b));
}

bool cb_read_content(struct cb_jupyter *jp, const struct cb_request *r, struct cb_json_field *fields, size_t n)
{
	struct cb_json_error e = { 0 };

	if (cb_json_scan_object(r->content.data, r->content.len, fields, n, &e) == 0)
		return true;
	cb_reply_error(jp, r, "MalformedRequestError", "%s: content: %s%s%s", r->type, e.field != NULL ? e.field : "",
		       e.field != NULL ? ": " : "", e.reason);
	return false;
}
