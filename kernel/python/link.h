/* The byte stream to and from the guest: framing and bounds, nothing about meaning. Trust domain: supervisor; all input
 * hostile. */
#pragma once

#include <cellblock/buffer.h>
#include <cellblock/wire.h>

#include "jupyter/message.h"

/* From the end of a wire to the end of its guest, which pid 1 tells: a fork bomb keeps pid 1 waiting. */
#define CB_LINK_CLOSED_NS 3000000000LL

/* Bytes in front of a frame's content that the receiver of a frame may overwrite (to put execution_count in without a
 * copy). */
#define CB_FRAME_HEADROOM CB_WIRE_HEADER_SIZE

/* A whole frame. Content, metadata and buffers point into one writable block; `body` owns it if it is not NULL (then it
 * may be shared), else it is the receive buffer and valid only for the call. */
struct cb_frame {
	struct cb_wire_header header;
	char *content;
	struct cb_span metadata; /* "{}" when absent */
	struct cb_span buffer[CB_WIRE_MAX_BUFFERS];
	struct cb_body *body;
};

/* What frames that are still coming in may hold together, of links that share it. One alone may always come. */
struct cb_link_room {
	size_t used, max;
	unsigned waiting; /* links that have a frame for which there is no room yet */
};

struct cb_guest_link {
	struct cb_link_room *room; /* NULL: its own limit is enough */
	bool waits;		   /* nothing is read of it until there is room */
	int fd; /* owned, non-blocking stream socket; -1 = closed */
	uint8_t *rx;
	size_t start, end;
	uint64_t received; /* bytes, ever */
	struct cb_body *big; /* a frame that does not fit the receive buffer, being filled */
	struct cb_wire_header big_header;
	size_t big_have, big_need;
	uint64_t big_count; /* of such frames, ever */
	struct cb_buf tx;
	size_t tx_sent;
};

/* Judges a header before a byte of its body is taken in: 0 or a negative code with a static *ret_reason. */
typedef int (*cb_link_judge_fn)(void *context, const struct cb_wire_header *h, const char **ret_reason);
/* Takes one whole frame. A negative return ends cb_guest_link_receive with that code. */
typedef int (*cb_link_frame_fn)(void *context, struct cb_frame *frame, const char **ret_reason);

/* Bytes that may wait to be sent: two of the largest messages, and what goes along with them. */
static inline size_t cb_guest_link_tx_max(uint64_t max_message)
{
	return 2 * max_message + (1u << 20);
}
int cb_guest_link_init(struct cb_guest_link *l, int fd, size_t tx_max); /* takes fd over unless it fails */
void cb_guest_link_release(struct cb_guest_link *l);
/* Reads and hands on frames until nothing is left (0), `budget` bytes are done (0), the peer is gone (CB_E_CLOSED) or a
 * rule is broken (another negative code, *ret_reason set). A handler may release the link: then CB_E_CLOSED. */
int cb_guest_link_receive(struct cb_guest_link *l, size_t budget, cb_link_judge_fn judge, cb_link_frame_fn take,
			  void *context, const char **ret_reason);
/* Queues a frame and sends what the socket takes now. CB_E_TOO_BIG when the queue is full: nothing is queued then. */
int cb_guest_link_send(struct cb_guest_link *l, enum cb_wire_type type, uint64_t request, struct cb_span content,
		       struct cb_span metadata, const struct cb_span *buffers, size_t nbuffers);
int cb_guest_link_flush(struct cb_guest_link *l); /* 0 or CB_E_CLOSED */
void cb_guest_link_drop(struct cb_guest_link *l); /* nobody takes what waits to be sent */
/* It waits, and there is room now: time to receive again. */
bool cb_guest_link_may_go_on(const struct cb_guest_link *l);
static inline int cb_guest_link_pending(const struct cb_guest_link *l)
{
	return l->tx.len > l->tx_sent;
}
/* What its socket is watched for. */
static inline short cb_guest_link_events(const struct cb_guest_link *l)
{
	return (short)(ZMQ_POLLIN | (cb_guest_link_pending(l) ? ZMQ_POLLOUT : 0));
}
/* A frame has begun, and not all of it has come. */
static inline int cb_guest_link_half(const struct cb_guest_link *l)
{
	return l->big != NULL || l->end > l->start;
}
