/* Jupyter messages: frames of a request, and what is needed to answer it. Trust domain: supervisor.
 *
 * A request keeps the frames it came in. Its header frame is echoed verbatim as the parent header of every answer, also
 * long after the request has ended (output of a thread that outlives its cell), so the header is a counted object of
 * its own.
 */
#pragma once

#include <cellblock/buffer.h>
#include <cellblock/error.h>
#include <stdbool.h>
#include <string.h>
#include <zmq.h>

#include "auth.h"
#include "request_kind.h"
#include "setup/connection_file.h"
#include "traceparent.h"

#define CB_MAX_IDENTITIES 4
#define CB_MAX_BUFFERS 1024
#define CB_MAX_FRAMES (CB_MAX_IDENTITIES + 6 + CB_MAX_BUFFERS)
#define CB_TYPE_MAX 64	    /* bytes of a msg_type, with NUL */
#define CB_HEADER_MAX 16384 /* bytes of a header frame */
#define CB_FRAME_BYTES 128  /* what libzmq has for a frame beside its bytes, about */
#define CB_MESSAGE_SMALL 65536 /* bytes of one on iopub, with those of its frames; nothing of it is counted */

/* A request's header frame, shared and immutable. */
struct cb_header {
	unsigned refs;
	size_t len;
	char data[];
};

struct cb_header *cb_header_ref(struct cb_header *h);
void cb_header_unref(struct cb_header *h); /* NULL allowed */
static inline struct cb_span cb_header_span(const struct cb_header *h)
{
	return h != NULL ? (struct cb_span){ h->data, h->len } : CB_SPAN("{}");
}

/* What an execute_request asks for; code lies in its content. */
struct cb_execute_fields {
	struct cb_span code;
	bool silent, allow_stdin;
	bool store_history, stop_on_error; /* false with silent */
	bool value;			   /* the result as data, too */
	struct cb_span env;		   /* raw object of texts, or absent */
	struct cb_span user_expressions;   /* likewise */
	/* the lower of policy and metadata.cellblock */
	double timeout, cpu; /* seconds */
	uint64_t memory;     /* bytes, if it lowers limits.memory; else 0 */
};

struct cb_calls;

struct cb_request {
	enum cb_channel channel;
	zmq_msg_t *frame; /* owned, nframes of them */
	size_t nframes;
	size_t nident;	     /* frames in front of the delimiter */
	size_t first_buffer; /* index of the first buffer frame */
	struct cb_header *header;
	char type[CB_TYPE_MAX];
	enum cb_request_kind kind; /* by its type */
	struct cb_span msg_id;	   /* raw JSON string in header->data, as all four */
	struct cb_span session;	   /* data NULL if absent or no string */
	struct cb_span subshell_id;
	struct cb_span sent_to; /* the same as it came: an adoption makes what waits in a branch the main line's */
	double date; /* header.date as seconds since the epoch; NAN if absent or unreadable */
	bool date_is_whole; /* it has no fraction: what was sent in that second may be up to one later */
	struct cb_span metadata, content;
	char traceparent[CB_TRACEPARENT_SIZE]; /* of metadata.cellblock; "" = none */
	struct cb_execute_fields execute; /* of an execute_request that was found good */
	struct cb_calls *calls;		  /* owned; of a cell that may call host tools */

	int64_t arrived_ns;	 /* monotonic */
	double arrived_date;	 /* wall clock */
	bool first;		 /* it goes before others that wait */
	bool announced;		 /* `busy` was said though it still waits */
	uint64_t id;		 /* on the wire to the guest; 0 = not sent there */
	bool interrupted;	 /* before it could be begun */
	int64_t held_ns;	 /* since then this cell waits for a question to be answered; 0 = it does not */
	struct cb_request *next; /* in what it waits in */
};

static inline bool cb_request_is_execute(const struct cb_request *r)
{
	return r->kind == CB_REQUEST_EXECUTE;
}

static inline bool cb_request_runs_code(const struct cb_request *r)
{
	return cb_request_is_execute(r) || r->kind == CB_REQUEST_RUN;
}

/* These have no reply. */
static inline bool cb_request_is_comm(const struct cb_request *r)
{
	return r->kind == CB_REQUEST_COMM_OPEN || r->kind == CB_REQUEST_COMM_MSG || r->kind == CB_REQUEST_COMM_CLOSE;
}

/* Whether this is the request that a client names; id: a raw JSON string. NULL allowed. */
static inline bool cb_request_named(const struct cb_request *r, struct cb_span id)
{
	return r != NULL && r->msg_id.len == id.len && memcmp(r->msg_id.data, id.data, id.len) == 0;
}

/* Whether it was sent to the subshell or branch that a client names, which may be gone; id: likewise. */
static inline bool cb_request_sent_to(const struct cb_request *r, struct cb_span id)
{
	return r->sent_to.len == id.len && memcmp(r->sent_to.data, id.data, id.len) == 0;
}

void cb_request_free(struct cb_request *r);					     /* NULL allowed */
size_t cb_request_bytes(const struct cb_request *r);				     /* that it holds: its frames */
bool cb_request_same_client(const struct cb_request *a, const struct cb_request *b); /* by their identities */

/* Frames as received (ownership passes, also on failure) into a request: split, verified, then its header parsed.
 * Codes: CB_E_SYNTAX (no delimiter, too few frames, header no JSON object), CB_E_TOO_BIG, CB_E_AUTH. */
int cb_request_from_frames(struct cb_auth *auth, enum cb_channel channel, zmq_msg_t *frame, size_t nframes,
			   struct cb_request **ret_request, const char **ret_reason);

/* ISO 8601 (as in protocol.md 1.2) to seconds; NAN if it is none. */
double cb_date_parse(const char *text, size_t len);
double cb_date_now(void);
/* "2026-01-31T12:34:56.123456Z"; ret takes 28 bytes. */
void cb_date_format(double seconds, char *ret);

struct cb_span cb_frame_span(zmq_msg_t *frame);
void cb_frames_close(zmq_msg_t *frame, size_t n);

/* A counted block of bytes that outgoing frames may share without a copy (big displays). */
struct cb_body {
	unsigned refs; /* atomic: libzmq's I/O thread gives its share back */
	size_t size;   /* counted against the bytes in flight while a frame holds it */
	uint8_t *data; /* owned, malloc'd */
};
struct cb_body *cb_body_new(size_t size); /* NULL when out of memory */
void cb_body_unref(struct cb_body *b);
/* Bytes of bodies, and of larger copies, in frames that were made and not yet sent, what slow readers make libzmq keep
 * among them. */
size_t cb_bodies_in_flight(void);
/* The same of replies, which are counted apart and with all of their frames; and the counter of those to one reader,
 * named by a hash. Who comes while many leave replies unread shares a counter. */
size_t cb_replies_in_flight(void);
size_t *cb_replies_to(uint64_t reader);

/* An outgoing message. All spans are borrowed for the call; `content_body` (may be NULL) owns content.data and is
 * shared, not copied; the same of metadata and buffers. The last frame of a reply is shared or copied with the count of
 * all, that of another message with the count of what was copied, where that is much. */
struct cb_outgoing {
	const char *type;
	struct cb_span parent;	 /* "{}" where there is none */
	struct cb_span metadata; /* "{}" */
	struct cb_body *metadata_body;
	struct cb_span content;
	struct cb_body *content_body;
	const struct cb_span *buffers;
	size_t nbuffers;
	struct cb_body *buffers_body;
	size_t *unread;	   /* of a reply: where it is counted; else NULL */
	size_t identities; /* of a reply: bytes in front of the frames made here */
};

/* The session that all our headers carry, and the counter of their ids. */
struct cb_session {
	char id[40];
	uint64_t serial;
};
/* With `auth` it is marked as a kernel's own (auth.h). */
int cb_session_init(struct cb_session *s, struct cb_auth *auth);

/* Builds the frames behind the identities or topic: delimiter, signature, header, parent, metadata, content, buffers.
 * ret_frame takes 6 + nbuffers + 1 messages; on failure none is left open. */
int cb_outgoing_frames(struct cb_session *session, struct cb_auth *auth, const struct cb_outgoing *out,
		       zmq_msg_t *ret_frame, size_t *ret_nframes);
