/* Splitting and building of Jupyter messages; see message.h.
 *
 * Trust domain: supervisor. Invariant: nothing of a request is parsed before auth.c has verified the raw frames. Called
 * by channels.c for what comes in and for replies, and by iopub.c.
 */
#include "message.h"

#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <time.h>

#include "loop.h"
#include "tools.h"

#define COPY_BELOW 16384 /* smaller contents are copied: cheaper than a shared body */
#define READERS 64	 /* who leave replies unread, and are told apart */

static size_t in_flight; /* atomic */
static struct {
	uint64_t reader;
	size_t bytes; /* atomic; 0 = nobody's */
} unread[READERS + 1]; /* the last: of all who come when the others are taken */

struct cb_header *cb_header_ref(struct cb_header *h)
{
	if (h != NULL)
		h->refs++;
	return h;
}

void cb_header_unref(struct cb_header *h)
{
	if (h != NULL && --h->refs == 0)
		free(h);
}

static struct cb_header *header_new(struct cb_span s)
{
	struct cb_header *h = malloc(sizeof(*h) + s.len + 1);

	if (h == NULL)
		return NULL;
	h->refs = 1;
	h->len = s.len;
	memcpy(h->data, s.data, s.len);
	h->data[s.len] = '\0';
	return h;
}

size_t cb_request_bytes(const struct cb_request *r)
{
	size_t n = sizeof(*r);

	for (size_t i = 0; i < r->nframes; i++)
		n += zmq_msg_size(&r->frame[i]);
	return n;
}

bool cb_request_same_client(const struct cb_request *a, const struct cb_request *b)
{
	if (a->nident != b->nident)
		return false;
	for (size_t i = 0; i < a->nident; i++) {
		struct cb_span x = cb_frame_span(&a->frame[i]), y = cb_frame_span(&b->frame[i]);

		if (x.len != y.len || memcmp(x.data, y.data, x.len) != 0)
			return false;
	}
	return true;
}

void cb_frames_close(zmq_msg_t *frame, size_t n)
{
	for (size_t i = 0; i < n; i++)
		zmq_msg_close(&frame[i]);
}

void cb_request_free(struct cb_request *r)
{
	if (r == NULL)
		return;
	cb_frames_close(r->frame, r->nframes);
	free(r->frame);
	cb_header_unref(r->header);
	cb_calls_free(r->calls);
	free(r);
}

struct cb_span cb_frame_span(zmq_msg_t *frame)
{
	return (struct cb_span){ zmq_msg_data(frame), zmq_msg_size(frame) };
}

double cb_date_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void cb_date_format(double seconds, char *ret)
{
	static _Thread_local time_t cached = -1; /* the log's thread writes dates, too */
	static _Thread_local char second[32];
	time_t whole = (time_t)seconds; /* never before 1970 */
	struct tm tm;

	if (whole != cached) {
		gmtime_r(&whole, &tm);
		snprintf(second, sizeof(second), "%04u-%02u-%02uT%02u:%02u:%02u.",
			 (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)tm.tm_mon + 1, (unsigned)tm.tm_mday,
			 (unsigned)tm.tm_hour, (unsigned)tm.tm_min, (unsigned)tm.tm_sec);
		cached = whole;
	}
	snprintf(ret, 28, "%.20s%06uZ", second, (unsigned)((seconds - (double)whole) * 1e6) % 1000000);
}

static bool digits(const char **p, const char *end, int n, int *ret)
{
	int v = 0;

	for (int i = 0; i < n; i++, (*p)++) {
		if (*p >= end || **p < '0' || **p > '9')
			return false;
		v = 10 * v + (**p - '0');
	}
	*ret = v;
	return true;
}

static bool literal(const char **p, const char *end, const char *any_of)
{
	if (*p >= end || **p == '\0' || strchr(any_of, **p) == NULL)
		return false;
	(*p)++;
	return true;
}

double cb_date_parse(const char *text, size_t len)
{
	const char *p = text, *end = text + len;
	struct tm tm = { 0 };
	double fraction = 0, unit = 0.1;
	int sign = 0, hours = 0, minutes = 0;

	if (!digits(&p, end, 4, &tm.tm_year) || !literal(&p, end, "-") || !digits(&p, end, 2, &tm.tm_mon) ||
	    !literal(&p, end, "-") || !digits(&p, end, 2, &tm.tm_mday) || !literal(&p, end, "Tt ") ||
	    !digits(&p, end, 2, &tm.tm_hour) || !literal(&p, end, ":") || !digits(&p, end, 2, &tm.tm_min) ||
	    !literal(&p, end, ":") || !digits(&p, end, 2, &tm.tm_sec))
		return NAN;
	if (literal(&p, end, ".,"))
		for (; p < end && *p >= '0' && *p <= '9'; p++, unit /= 10)
			fraction += (*p - '0') * unit;
	if (p < end && (*p == '+' || *p == '-')) {
		sign = *p++ == '+' ? 1 : -1;
		if (!digits(&p, end, 2, &hours) || (literal(&p, end, ":"), !digits(&p, end, 2, &minutes)))
			return NAN;
	} else {
		(void)literal(&p, end, "Zz"); /* a date without a zone is taken as UTC */
	}
	if (p != end || tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31)
		return NAN;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	return (double)timegm(&tm) - sign * (hours * 3600 + minutes * 60) + fraction;
}

static int parse_header(struct cb_request *r)
{
	struct cb_json_field f[] = {
		{ .name = "msg_id", .types = CB_JSON_STRING, .required = true },
		{ .name = "msg_type", .types = CB_JSON_STRING, .required = true },
		{ .name = "session", .types = CB_JSON_ANY },
		{ .name = "date", .types = CB_JSON_ANY },
		{ .name = "subshell_id", .types = CB_JSON_STRING | CB_JSON_NULL },
	};
	int c = cb_json_scan_object(r->header->data, r->header->len, f, 5, NULL);

	if (c < 0)
		return c;
	CB_AUTO_BUF type = CB_BUF_INIT(CB_TYPE_MAX);

	c = cb_json_string_decode(f[1].ret, &type);
	if (c < 0)
		return c;
	if (type.len == 0 || type.len >= CB_TYPE_MAX)
		return CB_E_SYNTAX;
	for (size_t i = 0; i < type.len; i++) /* it is written into the header of the reply as it is */
		if (type.data[i] < 0x20 || type.data[i] == '"' || type.data[i] == '\\')
			return CB_E_SYNTAX;
	memcpy(r->type, type.data, type.len);
	r->type[type.len] = '\0';
	r->kind = cb_request_kind_of(r->type);
	r->msg_id = f[0].ret;
	/* else it names nobody, and as raw JSON it could hold a newline, or a number that is too large */
	if (f[2].ret_type == CB_JSON_STRING)
		r->session = f[2].ret;
	if (f[4].ret.data != NULL && f[4].ret_type == CB_JSON_STRING)
		r->subshell_id = r->sent_to = f[4].ret;
	r->date = NAN;
	if (f[3].ret.data != NULL && f[3].ret_type == CB_JSON_STRING && f[3].ret.len >= 2)
		r->date = cb_date_parse(f[3].ret.data + 1, f[3].ret.len - 2);
	r->date_is_whole = !isnan(r->date) && memchr(f[3].ret.data, '.', f[3].ret.len) == NULL &&
			   memchr(f[3].ret.data, ',', f[3].ret.len) == NULL;
	return 0;
}

/* Finds the delimiter and the parts behind it. */
static int split(struct cb_request *r, struct cb_span part[4], struct cb_span *ret_signature)
{
	size_t d = 0;

	while (d < r->nframes && !cb_span_is(cb_frame_span(&r->frame[d]), "<IDS|MSG>"))
		d++;
	if (d > CB_MAX_IDENTITIES || d + 6 > r->nframes)
		return CB_E_SYNTAX;
	r->nident = d;
	r->first_buffer = d + 6;
	*ret_signature = cb_frame_span(&r->frame[d + 1]);
	for (size_t i = 0; i < 4; i++)
		part[i] = cb_frame_span(&r->frame[d + 2 + i]);
	r->metadata = part[2];
	r->content = part[3];
	return part[0].len > CB_HEADER_MAX || r->nframes - r->first_buffer > CB_MAX_BUFFERS ? CB_E_TOO_BIG : 0;
}

int cb_request_from_frames(struct cb_auth *auth, enum cb_channel channel, zmq_msg_t *frame, size_t nframes,
			   struct cb_request **ret_request, const char **ret_reason)
{
	struct cb_request *r = calloc(1, sizeof(*r));
	zmq_msg_t *own = calloc(nframes, sizeof(*own));
	struct cb_span part[4], signature;
	int c = -ENOMEM;

	*ret_reason = "out of memory";
	if (r == NULL || own == NULL) {
		cb_frames_close(frame, nframes);
		free(own);
		free(r);
		return c;
	}
	r->frame = own;
	r->nframes = nframes;
	r->channel = channel;
	for (size_t i = 0; i < nframes; i++) {
		zmq_msg_init(&own[i]);
		zmq_msg_move(&own[i], &frame[i]);
		zmq_msg_close(&frame[i]);
	}
	*ret_reason = "no delimiter, too few or too many frames, or a header too long";
	c = split(r, part, &signature);
	if (c < 0)
		goto fail;
	*ret_reason = "signature absent, wrong, or seen before";
	c = cb_auth_verify(auth, part, signature);
	if (c < 0)
		goto fail;
	*ret_reason = "header is no JSON object with a msg_id and a plain msg_type";
	r->header = header_new(part[0]);
	c = r->header != NULL ? parse_header(r) : -ENOMEM;
	if (c < 0)
		goto fail;
	r->arrived_ns = cb_now_ns();
	r->arrived_date = cb_date_now();
	*ret_request = r;
	return 0;
fail:
	cb_request_free(r);
	return c;
}

struct cb_body *cb_body_new(size_t size)
{
	struct cb_body *b = malloc(sizeof(*b));

	if (b == NULL)
		return NULL;
	*b = (struct cb_body){ .refs = 1, .size = size, .data = malloc(size > 0 ? size : 1) };
	if (b->data == NULL) {
		free(b);
		return NULL;
	}
	return b;
}

void cb_body_unref(struct cb_body *b)
{
	if (b != NULL && __atomic_sub_fetch(&b->refs, 1, __ATOMIC_ACQ_REL) == 0) {
		free(b->data);
		free(b);
	}
}

size_t cb_bodies_in_flight(void)
{
	return __atomic_load_n(&in_flight, __ATOMIC_RELAXED);
}

size_t cb_replies_in_flight(void)
{
	size_t sum = 0;

	for (size_t i = 0; i <= READERS; i++)
		sum += __atomic_load_n(&unread[i].bytes, __ATOMIC_RELAXED);
	return sum;
}

size_t *cb_replies_to(uint64_t reader)
{
	size_t unused = READERS;

	for (size_t i = 0; i < READERS; i++) {
		size_t bytes = __atomic_load_n(&unread[i].bytes, __ATOMIC_RELAXED);

		if (bytes > 0 && unread[i].reader == reader)
			return &unread[i].bytes;
		if (bytes == 0)
			unused = i;
	}
	if (unused == READERS)
		return &unread[READERS].bytes;
	unread[unused].reader = reader;
	return &unread[unused].bytes;
}

struct share {
	struct cb_body *body;
	size_t *counter, bytes;
};

static void share_done(void *data, void *hint)
{
	struct share *s = hint;

	(void)data;
	__atomic_sub_fetch(s->counter, s->bytes, __ATOMIC_RELAXED);
	cb_body_unref(s->body);
	free(s);
}

/* A frame over `s`, which the body owns. */
static int shared_frame(zmq_msg_t *ret_frame, struct cb_span s, struct cb_body *body, size_t *counter, size_t bytes)
{
	struct share *share = malloc(sizeof(*share));

	if (share == NULL)
		return -ENOMEM;
	*share = (struct share){ .body = body, .counter = counter, .bytes = bytes };
	__atomic_add_fetch(&body->refs, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(counter, bytes, __ATOMIC_RELAXED);
	union {
		const char *in;
		void *out;
	} data = { .in = s.data };

	if (zmq_msg_init_data(ret_frame, data.out, s.len, share_done, share) != 0) {
		share_done(NULL, share);
		return -ENOMEM;
	}
	return 0;
}

static bool is_shared(struct cb_span s, const struct cb_body *body)
{
	return body != NULL && s.len >= COPY_BELOW;
}

/* A frame over `s`: shared when a body owns it and it is big, else copied. */
static int frame_over(zmq_msg_t *ret_frame, struct cb_span s, struct cb_body *body)
{
	if (is_shared(s, body))
		return shared_frame(ret_frame, s, body, &in_flight, s.len);
	if (zmq_msg_init_size(ret_frame, s.len) != 0)
		return -ENOMEM;
	if (s.len > 0)
		memcpy(zmq_msg_data(ret_frame), s.data, s.len);
	return 0;
}

/* It is given back last. Until then it counts for the whole reply, with all that its body keeps; or on iopub for what
 * was copied, beside the shared frames, which count themselves. */
static int last_frame(zmq_msg_t *ret_frame, struct cb_span s, struct cb_body *body, size_t *counter, size_t bytes)
{
	struct cb_body *copy;
	int r;

	if (is_shared(s, body))
		return shared_frame(ret_frame, s, body, counter,
				    bytes + (counter == &in_flight ? s.len : body->size - s.len));
	copy = cb_body_new(s.len);
	if (copy == NULL)
		return -ENOMEM;
	if (s.len > 0)
		memcpy(copy->data, s.data, s.len);
	s.data = (const char *)copy->data;
	r = shared_frame(ret_frame, s, copy, counter, bytes);
	cb_body_unref(copy);
	return r;
}

static size_t bytes_of_reply(const struct cb_outgoing *out, const struct cb_span part[4])
{
	size_t bytes = out->identities + (CB_MAX_IDENTITIES + 6 + out->nbuffers) * CB_FRAME_BYTES;

	for (size_t i = 0; i < 4; i++)
		bytes += part[i].len;
	for (size_t i = 0; i < out->nbuffers; i++)
		bytes += out->buffers[i].len;
	return bytes;
}

/* What no shared frame counts. (Of a body that is shared no more is kept beside its frames than was copied from it.) */
static size_t bytes_copied(const struct cb_outgoing *out, const struct cb_span part[4])
{
	size_t bytes = (6 + out->nbuffers) * CB_FRAME_BYTES + part[0].len + part[1].len;

	bytes += is_shared(part[2], out->metadata_body) ? 0 : part[2].len;
	bytes += is_shared(part[3], out->content_body) ? 0 : part[3].len;
	for (size_t i = 0; i < out->nbuffers; i++)
		bytes += is_shared(out->buffers[i], out->buffers_body) ? 0 : out->buffers[i].len;
	return bytes;
}

int cb_session_init(struct cb_session *s, struct cb_auth *auth)
{
	uint8_t b[16];

	if (RAND_bytes(b, sizeof(b)) != 1)
		return -EIO;
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	if (auth != NULL && cb_auth_mark(auth, b) < 0)
		return -EIO;
	size_t n = 0;

	for (size_t i = 0; i < sizeof(b); i++)
		n += (size_t)snprintf(s->id + n, sizeof(s->id) - n, "%s%02x",
				      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
	s->serial = 0;
	return 0;
}

int cb_outgoing_frames(struct cb_session *session, struct cb_auth *auth, const struct cb_outgoing *out,
		       zmq_msg_t *ret_frame, size_t *ret_nframes)
{
	char id[64], date[28], signature[CB_SIGNATURE_MAX];
	size_t signature_len, n = 0;

	cb_date_format(cb_date_now(), date);
	snprintf(id, sizeof(id), "%s_%" PRIu64, session->id, session->serial++);
	CB_JSON_SMALL(header, "msg_id", id, "msg_type", out->type, "username", "cellblock", "session", session->id,
		      "date", date, "version", "5.4");
	struct cb_span part[4] = { cb_buf_span(&header), out->parent, out->metadata, out->content };
	int r = cb_auth_sign(auth, part, signature, &signature_len);

	if (r < 0)
		return r;
	size_t bytes = out->unread != NULL ? bytes_of_reply(out, part) : bytes_copied(out, part);
	size_t *counter = out->unread != NULL ? out->unread : bytes > CB_MESSAGE_SMALL ? &in_flight : NULL;
	struct cb_span lead[5] = { CB_SPAN("<IDS|MSG>"), { signature, signature_len }, part[0], part[1], part[2] };

	for (; n < 5 && r == 0; n++)
		r = frame_over(&ret_frame[n], lead[n], n == 4 ? out->metadata_body : NULL);
	for (size_t i = 0; i <= out->nbuffers && r == 0; i++) {
		struct cb_span s = i == 0 ? out->content : out->buffers[i - 1];
		struct cb_body *body = i == 0 ? out->content_body : out->buffers_body;

		r = counter != NULL && i == out->nbuffers
			    ? last_frame(&ret_frame[n++], s, body, counter, bytes)
			    : frame_over(&ret_frame[n++], s, body);
	}
	if (r < 0) {
		/* the frame that failed is the last one counted and was not opened */
		cb_frames_close(ret_frame, n - 1);
		return r;
	}
	*ret_nframes = n;
	return 0;
}
