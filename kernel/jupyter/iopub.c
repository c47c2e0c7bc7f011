/* Publishing.
 *
 * Trust domain: supervisor. Nothing else sends on the iopub socket. Invariants: one order for all messages; text is
 * merged only with adjacent text of the same stream and request; what is queued here is bounded by QUEUE_MAX bytes, and
 * by four times as many where nothing else is left than what ends requests.
 *
 * Slow readers. The socket is an XPUB with NODROP, so that a full peer is said (EAGAIN) instead of its messages
 * silently lost. Then messages queue here. After PATIENCE without any progress one message goes out with NODROP off:
 * whoever reads has long emptied its queue and gets it, and ZeroMQ leaves the peers that are full out until they read
 * again. A peer that is alone keeps nobody waiting: for it all stays queued, and only the guest is held back no longer.
 * Progress is seen in lumps: libzmq says that there is room again when half of a queue is empty, here and in the
 * client, a thousand messages by default in each. Who takes a hundred messages a second is so no stranger to seconds
 * without any; PATIENCE is long enough for half of that.
 * If the queue itself grows over its bound, text is given up first, then displays, with a notice on stderr. What ends a
 * request is given up last. Bytes inside libzmq are bounded too: what is big is counted, and past IN_FLIGHT_MAX beside
 * itself new big text or a big display waits here as if blocked; there progress is that they become fewer. Who never
 * reads again keeps them there as long as its connection lasts, and libzmq can't be told to end that: then what is big
 * is given up for all, and text goes on in small pieces. What is small is bounded by the high-water mark.
 *
 * Notebook servers drop outputs over 1 MB of text or 1000 messages a second, counted over 3 seconds and anew after each
 * idle. Under such a server the guest is read no faster than that, so that nothing is dropped; but an interrupt on its
 * way is not held up.
 */
#include "iopub.h"

#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>
#include <cellblock/log.h>
#include <cellblock/states.h>
#include <cellblock/wire.h>
#include <errno.h>
#include <stdlib.h>

#include "jupyter.h"
#include "loop.h"

#define MS 1000000LL
#define TEXT_MAX (256u << 10) /* a stream message is flushed at this size */
#define TEXT_DELAY (25 * MS)  /* text waits this long for more: a cell's prints are one output in the notebook */
#define QUEUE_MAX (64u << 20)
#define HELD_MAX (16u << 20) /* before the first subscription */
#define CONGESTED (16u << 20)
#define TEXT_SMALL 8192 /* of text: its message is small also where each byte is six in JSON */
#define IN_FLIGHT_MAX (256u << 20)
#define PATIENCE (10000 * MS)
#define RETRY (5 * MS)
#define NOTICE (1000 * MS) /* looks whether what was given up can be told, while nothing waits to be sent */
#define RETRY_LATE (1000 * MS) /* no more counts as patience: this process was stopped itself */
#define TEXT_RATE 600000 /* bytes a second: less than allowed, since a busy server sees them in bunches */
#define TEXT_BURST (400 * MS)
#define MESSAGE_RATE 600
#define MESSAGE_BURST (500 * MS)
#define ENVELOPE 700 /* bytes of a message beside its content, about */
#define FEW 8	     /* frames of a message without buffers, its topic among them */
#define PARENT 4     /* its place among them */

struct cb_iopub_entry {
	struct cb_iopub_entry *next;
	enum cb_weight weight;
	size_t bytes;
	size_t nframes;
	zmq_msg_t frame[];
};

static void set_nodrop(struct cb_jupyter *jp, int on)
{
	zmq_setsockopt(jp->channels.socket[CB_IOPUB], ZMQ_XPUB_NODROP, &on, sizeof(on));
}

/* Sends all frames or (-EAGAIN) none: libzmq decides about the high-water mark at the first frame. */
static int send_frames(struct cb_jupyter *jp, zmq_msg_t *frame, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (zmq_msg_send(&frame[i], jp->channels.socket[CB_IOPUB],
				 ZMQ_DONTWAIT | (i + 1 < n ? ZMQ_SNDMORE : 0)) >= 0)
			continue;
		if (i == 0)
			return -errno;
		cb_log(CB_LOG_ERROR, "iopub: message torn: %s", cb_err_name(-errno));
		cb_frames_close(frame + i, n - i);
		return 0;
	}
	return 0;
}

/* `size`: of the message. `own`: bytes that it brings itself, and the queue. */
static bool over_in_flight(enum cb_weight weight, size_t size, size_t own)
{
	return weight != CB_WEIGHT_KEEP && size > CB_MESSAGE_SMALL && cb_bodies_in_flight() > IN_FLIGHT_MAX + own;
}

static size_t size_of(zmq_msg_t *frame, size_t n)
{
	size_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += zmq_msg_size(&frame[i]) + CB_FRAME_BYTES;
	return bytes;
}

static void entry_free(struct cb_iopub_entry *e)
{
	cb_frames_close(e->frame, e->nframes);
	free(e);
}

/* What is given up is told where the first of it stood, and to who asked for that. */
static void note_dropped(struct cb_iopub *p, struct cb_iopub_entry *e)
{
	struct cb_span parent = e->nframes > PARENT ? cb_frame_span(&e->frame[PARENT]) : CB_SPAN("{}");

	if (p->dropped == 0) {
		cb_buf_clear(&p->dropped_parent);
		(void)cb_buf_append(&p->dropped_parent, parent.data, parent.len);
	}
	p->dropped += e->bytes;
}

/* Gives up the oldest entries of one weight until the queue fits. */
static void shed(struct cb_iopub *p, enum cb_weight weight, size_t limit)
{
	struct cb_iopub_entry **at = &p->head, *last = NULL;

	while (*at != NULL) {
		struct cb_iopub_entry *e = *at;

		if (p->bytes > limit && e->weight == weight) {
			*at = e->next;
			p->bytes -= e->bytes;
			p->in_flight -= p->in_flight < e->bytes ? p->in_flight : e->bytes;
			note_dropped(p, e);
			entry_free(e);
			continue;
		}
		last = e;
		at = &e->next;
	}
	p->tail = last;
}

/* Takes the frames only if it succeeds. */
static int enqueue(struct cb_iopub *p, enum cb_weight weight, zmq_msg_t *frame, size_t n)
{
	struct cb_iopub_entry *e = malloc(sizeof(*e) + n * sizeof(e->frame[0]));
	size_t limit = p->subscribed ? QUEUE_MAX : HELD_MAX;

	if (e == NULL)
		return -ENOMEM;
	*e = (struct cb_iopub_entry){ .weight = weight, .nframes = n, .bytes = sizeof(*e) + size_of(frame, n) };
	for (size_t i = 0; i < n; i++) {
		zmq_msg_init(&e->frame[i]);
		zmq_msg_move(&e->frame[i], &frame[i]);
	}
	if (p->tail != NULL)
		p->tail->next = e;
	else
		p->head = e;
	p->tail = e;
	p->bytes += e->bytes;
	if (p->bytes > limit)
		shed(p, CB_WEIGHT_TEXT, limit / 2);
	if (p->bytes > limit)
		shed(p, CB_WEIGHT_DATA, limit / 2);
	if (p->bytes > 4 * limit) /* status and errors alone: nobody has read for a very long time */
		shed(p, CB_WEIGHT_KEEP, 2 * limit);
	return 0;
}

/* Each clock runs ahead by the time that what was sent takes at the rate, from a burst behind the present on. */
static void advance(int64_t *clock, int64_t now, int64_t burst, int64_t cost)
{
	*clock = (*clock > now - burst ? *clock : now - burst) + cost;
}

static void pace(struct cb_iopub *p, enum cb_weight weight, size_t bytes)
{
	int64_t now = cb_now_ns();

	if (!p->paced || weight == CB_WEIGHT_KEEP)
		return;
	advance(&p->message_clock, now, MESSAGE_BURST, 1000 * MS / MESSAGE_RATE);
	if (weight == CB_WEIGHT_TEXT)
		advance(&p->text_clock, now, TEXT_BURST, (int64_t)(bytes + ENVELOPE) * (1000 * MS / TEXT_RATE));
}

/* Takes the frames in any case. */
static int send_or_queue(struct cb_jupyter *jp, enum cb_weight weight, zmq_msg_t *frame, size_t n)
{
	struct cb_iopub *p = &jp->iopub;
	bool flows = cb_bodies_in_flight() <= IN_FLIGHT_MAX; /* then its own size need not be counted */
	size_t size = flows ? 0 : size_of(frame, n);
	int r = -EAGAIN;

	if (flows)
		p->full_since = 0;
	/* what was given up is told before that request's end */
	if (p->subscribed && p->head == NULL && p->dropped == 0 && !over_in_flight(weight, size, size))
		r = send_frames(jp, frame, n);
	if (r == -EAGAIN) {
		bool first = p->head == NULL;

		r = enqueue(p, weight, frame, n);
		if (first && p->subscribed) {
			p->blocked_since = p->looked_at = cb_now_ns();
			cb_loop_arm(jp->loop, p->timer, p->blocked_since + RETRY);
		}
	}
	if (r < 0)
		cb_frames_close(frame, n);
	return r;
}

/* A message's frames, FEW and its buffers. The first is its topic, or the prefix that was subscribed to. */
static int build(struct cb_jupyter *jp, const char *topic, size_t len, const struct cb_outgoing *out, zmq_msg_t *frame,
		 size_t *ret_n)
{
	size_t n = 0;
	int r;

	if (zmq_msg_init_size(frame, len) != 0)
		return -ENOMEM;
	if (len > 0)
		memcpy(zmq_msg_data(frame), topic, len);
	r = cb_outgoing_frames(&jp->session, jp->auth, out, frame + 1, &n);
	if (r < 0)
		zmq_msg_close(frame);
	*ret_n = n + 1;
	return r;
}

static void build_and_send(struct cb_jupyter *jp, const char *topic, enum cb_weight weight,
			   const struct cb_outgoing *out)
{
	zmq_msg_t few[2 * FEW], *frame = few;
	size_t n = 0;
	int r = -ENOMEM;

	if (out->nbuffers > FEW)
		frame = malloc((out->nbuffers + FEW) * sizeof(*frame));
	pace(&jp->iopub, weight, out->content.len);
	if (frame != NULL)
		r = build(jp, topic, strlen(topic), out, frame, &n);
	if (r == 0)
		r = send_or_queue(jp, weight, frame, n);
	if (r < 0)
		cb_log(CB_LOG_ERROR, "iopub: %s not sent: %s", out->type, cb_err_name(r));
	if (frame != few)
		free(frame);
}

void cb_iopub_publish(struct cb_jupyter *jp, const char *topic, enum cb_weight weight, const struct cb_outgoing *out)
{
	cb_iopub_flush(jp);
	build_and_send(jp, topic, weight, out);
}

void cb_iopub_content(struct cb_jupyter *jp, const char *type, enum cb_weight weight, const struct cb_header *parent,
		      struct cb_span content)
{
	struct cb_outgoing out = {
		.type = type, .parent = cb_header_span(parent), .metadata = CB_SPAN("{}"), .content = content
	};

	cb_iopub_publish(jp, type, weight, &out);
}

void cb_iopub_status(struct cb_jupyter *jp, const char *state, struct cb_header *parent)
{
	CB_JSON_SMALL(content, "execution_state", state);

	cb_iopub_content(jp, "status", CB_WEIGHT_KEEP, parent, cb_buf_span(&content));
	jp->iopub.busy = strcmp(state, "busy") == 0;
	if (strcmp(state, "idle") == 0)
		jp->iopub.text_clock = jp->iopub.message_clock = 0;
}

static void send_text(struct cb_jupyter *jp, struct cb_header *parent, unsigned stream, const char *text, size_t len)
{
	const char *name = stream == CB_WIRE_STDERR ? "stderr" : "stdout";
	struct cb_body *body = NULL;
	CB_AUTO_BUF b = CB_BUF_INIT(8 * (size_t)TEXT_MAX);
	struct cb_json j = cb_json_begin(&b);

	cb_json_put(&j, "name", name);
	cb_json_put_text(&j, "text", text, len);
	if (cb_json_done(&j) < 0) {
		cb_log(CB_LOG_ERROR, "iopub: %zu bytes of text lost: out of memory", len);
		return;
	}
	struct cb_outgoing out = { .type = "stream",
				   .parent = cb_header_span(parent),
				   .metadata = CB_SPAN("{}"),
				   .content = cb_buf_span(&b) };

	if (b.len > 65536 && (body = cb_body_new(0)) != NULL) { /* hand the buffer over instead of copying it */
		free(body->data);
		body->data = b.data;
		body->size = b.len;
		b.data = NULL;
		out.content_body = body;
	}
	build_and_send(jp, stream == CB_WIRE_STDERR ? "stream.stderr" : "stream.stdout", CB_WEIGHT_TEXT, &out);
	cb_body_unref(body);
}

void cb_iopub_flush(struct cb_jupyter *jp)
{
	struct cb_iopub *p = &jp->iopub;

	if (p->text.len == 0)
		return;
	struct cb_header *parent = p->text_parent;

	p->text_parent = NULL;
	send_text(jp, parent, p->text_stream, (const char *)p->text.data, p->text.len);
	cb_header_unref(parent);
	cb_buf_clear(&p->text);
	cb_loop_arm(jp->loop, p->text_timer, 0);
}

void cb_iopub_text(struct cb_jupyter *jp, struct cb_header *parent, unsigned stream, const void *text, size_t len)
{
	struct cb_iopub *p = &jp->iopub;
	size_t most = cb_bodies_in_flight() > IN_FLIGHT_MAX ? TEXT_SMALL : TEXT_MAX;
	const char *at = text;

	if (p->text.len > 0 && (p->text_parent != parent || p->text_stream != stream))
		cb_iopub_flush(jp);
	while (len > 0) {
		size_t room = p->text.len < most ? most - p->text.len : 0, n = len < room ? len : room;

		if (n < len) { /* don't cut a character in two */
			size_t whole = cb_utf8_complete_prefix(at, n);

			if (whole == 0 &&
			    p->text.len > 0) { /* the next character has no room: it begins the next message */
				cb_iopub_flush(jp);
				continue;
			}
			n = whole > 0 ? whole : n;
		}
		if (cb_buf_append(&p->text, at, n) < 0) {
			cb_log(CB_LOG_ERROR, "iopub: %zu bytes of text lost: out of memory", len);
			return;
		}
		if (p->text_parent == NULL) {
			p->text_parent = cb_header_ref(parent);
			p->text_stream = stream;
		}
		at += n;
		len -= n;
		if (len > 0 || p->text.len >= most)
			cb_iopub_flush(jp);
	}
	if (p->text.len > 0 && !cb_loop_armed(jp->loop, p->text_timer))
		cb_loop_arm(jp->loop, p->text_timer, cb_now_ns() + TEXT_DELAY);
}

static void on_text_timer(void *context)
{
	cb_iopub_flush(context);
}

/* Straight to the socket; where that takes nothing, later. */
static void notice_dropped(struct cb_jupyter *jp)
{
	struct cb_iopub *p = &jp->iopub;
	zmq_msg_t frame[FEW];
	char text[160];
	size_t n = 0;

	snprintf(text, sizeof(text),
		 "\n[cellblock: %zu bytes of output were given up: a client was not reading]\n", p->dropped);
	CB_JSON_SMALL(content, "name", "stderr", "text", text);
	CB_JSON_SMALL(given_up, "given_up", (int64_t)p->dropped);
	CB_JSON_SMALL(metadata, "cellblock", cb_buf_span(&given_up));
	struct cb_outgoing out = { .type = "stream",
				   .parent = p->dropped_parent.len > 0 ? cb_buf_span(&p->dropped_parent)
								       : CB_SPAN("{}"),
				   .metadata = cb_buf_span(&metadata),
				   .content = cb_buf_span(&content) };

	if (build(jp, "stream.stderr", strlen("stream.stderr"), &out, frame, &n) < 0)
		return;
	if (send_frames(jp, frame, n) < 0) {
		cb_frames_close(frame, n);
		return;
	}
	p->dropped = 0;
	cb_log(CB_LOG_WARNING, "iopub: output given up, a subscriber does not read");
}

static bool out_of_patience(const struct cb_iopub *p, int64_t now)
{
	return p->head != NULL && p->subscribed && now - p->blocked_since > PATIENCE;
}

/* Nobody can be sent anything for the sake of a peer that is full: one message that it does not get sets it aside. */
static int send_past_the_full(struct cb_jupyter *jp, struct cb_iopub_entry *e)
{
	cb_log(CB_LOG_WARNING, "iopub: a subscriber has not read for ten seconds; it loses messages");
	set_nodrop(jp, 0);
	if (jp->iopub.dropped > 0 && e->weight == CB_WEIGHT_KEEP) /* it may be its request's end */
		notice_dropped(jp);
	int r = send_frames(jp, e->frame, e->nframes);

	set_nodrop(jp, 1);
	return r;
}

static void look_at_flight(struct cb_iopub *p, int64_t now)
{
	size_t n = cb_bodies_in_flight();

	if (n <= IN_FLIGHT_MAX)
		p->full_since = 0;
	else if (n < p->in_flight || p->full_since == 0)
		p->full_since = now;
	p->in_flight = n;
}

/* Time in which nobody could be served is not counted against who does not read. */
static void leave_out_late_look(struct cb_iopub *p, int64_t now)
{
	int64_t late = now - p->looked_at - RETRY_LATE;

	if (late > 0) {
		p->blocked_since += late;
		p->full_since += p->full_since != 0 ? late : 0;
	}
	p->looked_at = now;
}

/* True if the first entry was sent, or given up. */
static bool try_first(struct cb_jupyter *jp, int64_t now)
{
	struct cb_iopub *p = &jp->iopub;
	struct cb_iopub_entry *e = p->head;
	int r;

	if (over_in_flight(e->weight, e->bytes, p->bytes)) {
		if (p->connected.n <= 1 || p->full_since == 0 || now - p->full_since <= PATIENCE)
			return false;
		note_dropped(p, e); /* libzmq holds all that it may and nobody takes it */
		return true;
	}
	r = send_frames(jp, e->frame, e->nframes);
	if (r == -EAGAIN && p->connected.n > 1 && out_of_patience(p, now))
		r = send_past_the_full(jp, e);
	if (r == -EAGAIN)
		return false;
	if (r < 0)
		cb_log(CB_LOG_ERROR, "iopub: a message was not sent: %s", cb_err_name(r));
	p->blocked_since = now; /* progress */
	return true;
}

static void remove_first(struct cb_iopub *p)
{
	struct cb_iopub_entry *e = p->head;

	p->head = e->next;
	if (p->head == NULL)
		p->tail = NULL;
	p->bytes -= e->bytes;
	entry_free(e);
}

/* Sends what the queue holds. */
static void on_retry(void *context)
{
	struct cb_jupyter *jp = context;
	struct cb_iopub *p = &jp->iopub;
	int64_t now = cb_now_ns();

	if (p->head != NULL)
		leave_out_late_look(p, now);
	look_at_flight(p, now);
	while (p->head != NULL) {
		if (p->dropped > 0 && p->head->weight == CB_WEIGHT_KEEP) /* it may be its request's end */
			notice_dropped(jp);
		if (!try_first(jp, now))
			break;
		remove_first(p);
	}
	CB_HOLDS((p->head == NULL) == (p->bytes == 0));
	p->in_flight = cb_bodies_in_flight(); /* what was given up here is no progress */
	if (p->head == NULL) {
		p->blocked_since = 0;
		if (p->dropped > 0 && p->in_flight <= IN_FLIGHT_MAX) /* else more is given up meanwhile */
			notice_dropped(jp);
	}
	if (p->head != NULL || p->dropped > 0)
		cb_loop_arm(jp->loop, p->timer, now + (p->head != NULL ? RETRY : NOTICE));
}

/* All that is queued: without a high-water mark no peer is full, and who reads gets it while the socket lingers. It is
 * in memory already, and no more comes. */
void cb_iopub_end(struct cb_jupyter *jp)
{
	struct cb_iopub *p = &jp->iopub;
	const int none = 0;

	cb_iopub_flush(jp);
	zmq_setsockopt(jp->channels.socket[CB_IOPUB], ZMQ_SNDHWM, &none, sizeof(none));
	while (p->head != NULL) {
		if (p->dropped > 0 && p->head->weight == CB_WEIGHT_KEEP)
			notice_dropped(jp);
		if (send_frames(jp, p->head->frame, p->head->nframes) < 0)
			note_dropped(p, p->head);
		remove_first(p);
	}
	if (p->dropped > 0)
		notice_dropped(jp);
}

bool cb_iopub_congested(const struct cb_jupyter *jp)
{
	const struct cb_iopub *p = &jp->iopub;
	int64_t now = cb_now_ns();
	bool ahead = p->paced && (p->text_clock > now || p->message_clock > now);

	/* else an interrupt that Python has taken would seem to wait, and a second one end it; the queue is bounded */
	return p->subscribed && ((p->bytes > CONGESTED && !out_of_patience(p, now)) || ahead) &&
	       !jp->events->interrupts(jp->kernel);
}

static void welcome(struct cb_jupyter *jp, const char *prefix, size_t len)
{
	CB_AUTO_BUF b = CB_BUF_INIT(65536);
	CB_AUTO_BUF named = CB_BUF_INIT(65536);
	CB_AUTO_BUF text = CB_BUF_INIT(65536);
	zmq_msg_t frame[FEW];
	size_t n = 0;

	/* a prefix that is no UTF-8 can't be named in JSON: no welcome (JEP 65) */
	if (cb_json_write_string(&text, prefix, len) < 0 || cb_json_string_decode(cb_buf_span(&text), &named) < 0 ||
	    named.len != len || (len > 0 && memcmp(named.data, prefix, len) != 0) ||
	    cb_json_write_object(&b, "subscription", cb_buf_span(&text)) < 0)
		return;
	struct cb_outgoing out = { .type = "iopub_welcome",
				   .parent = CB_SPAN("{}"),
				   .metadata = CB_SPAN("{}"),
				   .content = cb_buf_span(&b) };

	if (build(jp, prefix, len, &out, frame, &n) < 0)
		return;
	/* straight to the socket, before what is held; if that is full, a subscriber before this one has filled it */
	if (send_frames(jp, frame, n) < 0)
		(void)send_or_queue(jp, CB_WEIGHT_KEEP, frame, n);
}

/* The socket tells of every subscription; who listens at all is told by the connections. */
void cb_iopub_subscriptions(struct cb_jupyter *jp)
{
	for (int i = 0; i < 64; i++) {
		zmq_msg_t m;

		zmq_msg_init(&m);
		if (zmq_msg_recv(&m, jp->channels.socket[CB_IOPUB], ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(&m);
			return;
		}
		const char *data = zmq_msg_data(&m);

		if (zmq_msg_size(&m) > 0 && data[0] == 1) {
			welcome(jp, data + 1, zmq_msg_size(&m) - 1);
			if (!jp->iopub.subscribed) {
				jp->iopub.subscribed = true;
				jp->iopub.blocked_since = jp->iopub.looked_at = cb_now_ns();
				on_retry(jp);
			}
		}
		zmq_msg_close(&m);
	}
}

int cb_iopub_init(struct cb_jupyter *jp)
{
	struct cb_iopub *p = &jp->iopub;

	*p = (struct cb_iopub){ .text = CB_BUF_INIT(TEXT_MAX),
				  .dropped_parent = CB_BUF_INIT(1u << 20),
				  .paced = getenv("JPY_SESSION_NAME") != NULL };
	p->timer = cb_loop_add_timer(jp->loop, on_retry, jp);
	p->text_timer = cb_loop_add_timer(jp->loop, on_text_timer, jp);
	return p->timer < 0 || p->text_timer < 0 ? -ENOSPC : 0;
}

void cb_iopub_release(struct cb_jupyter *jp)
{
	struct cb_iopub *p = &jp->iopub;

	while (p->head != NULL)
		remove_first(p);
	cb_buf_release(&p->text);
	cb_buf_release(&p->dropped_parent);
	cb_header_unref(p->text_parent);
}
