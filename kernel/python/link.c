/* Framing of the wire (include/cellblock/wire.h).
 *
 * Trust domain: supervisor; everything read is hostile. Invariants: at most RX_SIZE bytes plus one frame (whose size
 * the judge has allowed) are held for reading, of links that share a room no more than that of frames together, and
 * tx.max for writing; lengths are summed in 64 bits. Small frames are handed on in place; a frame that does not fit
 * half the buffer gets a block of its own and is received straight into it.
 */
#include "link.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#define RX_SIZE (256u << 10)
#define BIG (RX_SIZE / 2)

int cb_guest_link_init(struct cb_guest_link *l, int fd, size_t tx_max)
{
	*l = (struct cb_guest_link){ .fd = -1, .tx = CB_BUF_INIT(tx_max), .rx = malloc(RX_SIZE) };
	if (l->rx == NULL)
		return -ENOMEM;
	l->fd = fd;
	return 0;
}

static uint64_t body_size(const struct cb_wire_header *h)
{
	return (uint64_t)h->content_len + h->metadata_len + 4ull * h->buffer_count + h->buffers_len;
}

/* ---- room ---- */

static bool has_room(const struct cb_link_room *room, uint64_t size)
{
	return room == NULL || room->used == 0 || room->used + size <= room->max;
}

static void set_waits(struct cb_guest_link *l, bool waits)
{
	if (l->waits != waits && waits)
		l->room->waiting++;
	else if (l->waits != waits)
		l->room->waiting--;
	l->waits = waits;
}

static void take_room(struct cb_guest_link *l, size_t size)
{
	if (l->room != NULL)
		l->room->used += size;
}

static void give_back_room(struct cb_guest_link *l)
{
	if (l->room != NULL && l->big != NULL)
		l->room->used -= l->big_need;
}

bool cb_guest_link_may_go_on(const struct cb_guest_link *l)
{
	struct cb_wire_header h;

	if (!l->waits || l->fd < 0)
		return false;
	memcpy(&h, l->rx + l->start, sizeof(h));
	return has_room(l->room, body_size(&h));
}

void cb_guest_link_release(struct cb_guest_link *l)
{
	if (l->room != NULL)
		set_waits(l, false);
	give_back_room(l);
	cb_fd_close(&l->fd);
	free(l->rx);
	l->rx = NULL;
	cb_body_unref(l->big);
	l->big = NULL;
	cb_buf_release(&l->tx);
}

/* Lays a frame over its block. CB_E_SYNTAX if the table of buffer lengths does not add up. */
static int lay_out(struct cb_frame *f, const struct cb_wire_header *h, uint8_t *block, struct cb_body *body)
{
	const uint8_t *at = block + h->content_len + h->metadata_len;
	const uint8_t *data = at + 4ull * h->buffer_count;
	uint64_t left = h->buffers_len;

	f->header = *h;
	f->body = body;
	f->content = (char *)block;
	f->metadata = h->metadata_len > 0 ? (struct cb_span){ (char *)block + h->content_len, h->metadata_len }
					  : CB_SPAN("{}");
	for (uint32_t i = 0; i < h->buffer_count; i++, at += 4) {
		uint32_t n;

		memcpy(&n, at, sizeof(n));
		if (n > left)
			return CB_E_SYNTAX;
		f->buffer[i] = (struct cb_span){ (const char *)data, n };
		data += n;
		left -= n;
	}
	return left == 0 ? 0 : CB_E_SYNTAX;
}

/* Hands on one frame that lies whole at `block`. */
static int deliver(struct cb_guest_link *l, const struct cb_wire_header *h, uint8_t *block, struct cb_body *body,
		   cb_link_frame_fn take, void *context, const char **ret_reason)
{
	static struct cb_frame frame; /* big, and frames are handled one at a time */

	*ret_reason = "buffer lengths do not add up";
	int r = lay_out(&frame, h, block, body);

	if (r == 0)
		r = take(context, &frame, ret_reason);
	return r < 0 ? r : l->fd < 0 ? CB_E_CLOSED : 0;
}

/* Hands on what lies whole in the receive buffer; starts a big frame if one has begun. */
static int parse(struct cb_guest_link *l, cb_link_judge_fn judge, cb_link_frame_fn take, void *context,
		 const char **ret_reason)
{
	while (l->end - l->start >= CB_WIRE_HEADER_SIZE) {
		struct cb_wire_header h;

		memcpy(&h, l->rx + l->start, sizeof(h));
		int r = judge(context, &h, ret_reason);

		if (r < 0)
			return r;
		uint64_t size = body_size(&h);
		size_t have = l->end - l->start - CB_WIRE_HEADER_SIZE;
		uint8_t *block = l->rx + l->start + CB_WIRE_HEADER_SIZE;

		if (have >= size) {
			r = deliver(l, &h, block, NULL, take, context, ret_reason);
			if (r < 0)
				return r;
			l->start += CB_WIRE_HEADER_SIZE + (size_t)size;
			continue;
		}
		if (size <= BIG)
			break;
		if (!has_room(l->room, size)) {
			set_waits(l, true);
			break;
		}
		take_room(l, (size_t)size);
		l->big = cb_body_new((size_t)size + CB_FRAME_HEADROOM);
		if (l->big == NULL) {
			if (l->room != NULL)
				l->room->used -= (size_t)size;
			*ret_reason = "out of memory for a frame";
			return -ENOMEM;
		}
		memcpy(l->big->data + CB_FRAME_HEADROOM, block, have);
		l->big_count++;
		l->big_header = h;
		l->big_have = have;
		l->big_need = (size_t)size;
		l->start = l->end = 0;
		return 0;
	}
	memmove(l->rx, l->rx + l->start, l->end - l->start);
	l->end -= l->start;
	l->start = 0;
	return 0;
}

int cb_guest_link_receive(struct cb_guest_link *l, size_t budget, cb_link_judge_fn judge, cb_link_frame_fn take,
			  void *context, const char **ret_reason)
{
	if (l->waits) {
		if (!cb_guest_link_may_go_on(l))
			return 0;
		set_waits(l, false);
		int r = parse(l, judge, take, context, ret_reason);

		if (r < 0)
			return r;
	}
	for (size_t done = 0; done < budget && !l->waits;) {
		uint8_t *to = l->big != NULL ? l->big->data + CB_FRAME_HEADROOM + l->big_have : l->rx + l->end;
		size_t room = l->big != NULL ? l->big_need - l->big_have : RX_SIZE - l->end;

		if (l->big == NULL && room > budget - done)
			room = budget - done; /* one read of small frames is many messages */
		ssize_t n = recv(l->fd, to, room, MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : CB_E_CLOSED;
		if (n == 0)
			return CB_E_CLOSED;
		done += (size_t)n;
		l->received += (uint64_t)n;
		int r = 0;

		if (l->big == NULL) {
			l->end += (size_t)n;
			r = parse(l, judge, take, context, ret_reason);
		} else if ((l->big_have += (size_t)n) == l->big_need) {
			struct cb_body *body = l->big;

			give_back_room(l);
			l->big = NULL;
			r = deliver(l, &l->big_header, body->data + CB_FRAME_HEADROOM, body, take, context, ret_reason);
			cb_body_unref(body);
		}
		if (r < 0)
			return r;
		if ((size_t)n < room)
			return 0; /* the socket was emptied: no second call to hear EAGAIN */
	}
	return 0;
}

int cb_guest_link_send(struct cb_guest_link *l, enum cb_wire_type type, uint64_t request, struct cb_span content,
		       struct cb_span metadata, const struct cb_span *buffers, size_t nbuffers)
{
	struct cb_wire_header h = { .type = type,
				    .content_len = (uint32_t)content.len,
				    .metadata_len = (uint32_t)metadata.len,
				    .buffer_count = (uint32_t)nbuffers,
				    .request = request };
	uint64_t total = 0;

	for (size_t i = 0; i < nbuffers; i++)
		total += buffers[i].len;
	if (nbuffers > CB_WIRE_MAX_BUFFERS || total + content.len + metadata.len > CB_WIRE_LARGE)
		return CB_E_TOO_BIG;
	h.buffers_len = (uint32_t)total;
	if (l->tx_sent > 0) {
		cb_buf_consume(&l->tx, l->tx_sent);
		l->tx_sent = 0;
	}
	int r = cb_buf_reserve(&l->tx, (size_t)body_size(&h) + sizeof(h));

	if (r < 0)
		return r;
	/* room is reserved: the appends can't fail */
	(void)cb_buf_append(&l->tx, &h, sizeof(h));
	(void)cb_buf_append(&l->tx, content.data, content.len);
	(void)cb_buf_append(&l->tx, metadata.data, metadata.len);
	for (size_t i = 0; i < nbuffers; i++) {
		uint32_t n = (uint32_t)buffers[i].len;

		(void)cb_buf_append(&l->tx, &n, sizeof(n));
	}
	for (size_t i = 0; i < nbuffers; i++)
		(void)cb_buf_append(&l->tx, buffers[i].data, buffers[i].len);
	return cb_guest_link_flush(l);
}

void cb_guest_link_drop(struct cb_guest_link *l)
{
	if (l->tx.cap > (1u << 20)) /* don't keep the room of one huge request */
		cb_buf_release(&l->tx);
	cb_buf_clear(&l->tx);
	l->tx_sent = 0;
}

int cb_guest_link_flush(struct cb_guest_link *l)
{
	while (cb_guest_link_pending(l)) {
		ssize_t n = send(l->fd, l->tx.data + l->tx_sent, l->tx.len - l->tx_sent, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : CB_E_CLOSED;
		l->tx_sent += (size_t)n;
	}
	cb_guest_link_drop(l);
	return 0;
}
