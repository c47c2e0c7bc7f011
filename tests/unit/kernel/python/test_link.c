/* Framing of the wire: every fragmentation, big frames, wrong lengths, tables that do not add up, and sending. */
#include "python/link.h"

#include <cellblock/error.h>
#include <cellblock/fd.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <cmocka.h>

#define MAX (8u << 20)

struct seen {
	struct cb_guest_link l;
	int peer;
	struct cb_buf log; /* what was handed on, flattened */
	size_t frames, with_body;
	int refuse;   /* the judge's answer to type 99 */
	bool release; /* on the first frame */
	int take;     /* answer of the handler */
};

static int judge(void *context, const struct cb_wire_header *h, const char **ret_reason)
{
	struct seen *s = context;

	*ret_reason = "judged";
	if (h->type == 99)
		return s->refuse;
	return (uint64_t)h->content_len + h->metadata_len + h->buffers_len > MAX ||
			       h->buffer_count > CB_WIRE_MAX_BUFFERS
		       ? CB_E_TOO_BIG
		       : 0;
}

static int take(void *context, struct cb_frame *f, const char **ret_reason)
{
	struct seen *s = context;

	*ret_reason = "taken";
	s->frames++;
	s->with_body += f->body != NULL;
	assert_int_equal(cb_buf_append(&s->log, &f->header, sizeof(f->header)), 0);
	assert_int_equal(cb_buf_append(&s->log, f->content, f->header.content_len), 0);
	assert_int_equal(cb_buf_append(&s->log, f->metadata.data, f->metadata.len), 0);
	for (size_t i = 0; i < f->header.buffer_count; i++) {
		assert_int_equal(cb_buf_append(&s->log, &f->buffer[i].len, sizeof(size_t)), 0);
		assert_int_equal(cb_buf_append(&s->log, f->buffer[i].data, f->buffer[i].len), 0);
	}
	memset(f->content - CB_FRAME_HEADROOM, 'X', CB_FRAME_HEADROOM); /* a handler may */
	if (s->release)
		cb_guest_link_release(&s->l);
	return s->take;
}

static void start(struct seen *s)
{
	int pair[2], size = 1 << 20;

	*s = (struct seen){ .log = CB_BUF_INIT(64u << 20) };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	(void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	assert_int_equal(cb_fd_set_nonblock(pair[0]), 0);
	assert_int_equal(cb_guest_link_init(&s->l, pair[0], 1u << 20), 0);
	s->peer = pair[1];
}

static void end(struct seen *s)
{
	cb_guest_link_release(&s->l);
	cb_guest_link_release(&s->l);
	cb_fd_close(&s->peer);
	cb_buf_release(&s->log);
}

static int receive(struct seen *s)
{
	const char *reason = "";

	return cb_guest_link_receive(&s->l, SIZE_MAX, judge, take, s, &reason);
}

static void frame(struct cb_buf *b, uint32_t type, size_t content, size_t metadata, const uint32_t *buffers, size_t n)
{
	struct cb_wire_header h = { .type = type,
				    .content_len = (uint32_t)content,
				    .metadata_len = (uint32_t)metadata,
				    .buffer_count = (uint32_t)n,
				    .request = 0x0102030405060708 };
	size_t total = content + metadata;

	for (size_t i = 0; i < n; i++)
		h.buffers_len += buffers[i];
	assert_int_equal(cb_buf_append(b, &h, sizeof(h)), 0);
	for (size_t i = 0; i < total; i++)
		assert_int_equal(cb_buf_append(b, &(char){ (char)(i % 251 + type) }, 1), 0);
	assert_int_equal(cb_buf_append(b, buffers, 4 * n), 0);
	for (size_t i = 0; i < h.buffers_len; i++)
		assert_int_equal(cb_buf_append(b, &(char){ (char)(i % 241) }, 1), 0);
}

/* The same bytes in pieces of every size up to 80, then in random pieces: always the same frames. */
static void test_fragments(void **state)
{
	static const uint32_t buffers[] = { 3, 0, 17 };
	CB_AUTO_BUF in = CB_BUF_INIT(64u << 20);
	CB_AUTO_BUF first = CB_BUF_INIT(64u << 20);

	(void)state;
	frame(&in, 1, 0, 0, NULL, 0);
	frame(&in, 3, 5, 0, NULL, 0);
	frame(&in, 5, 40, 7, buffers, 3);
	frame(&in, 7, 0, 2, buffers, 2);
	for (size_t piece = 1; piece <= 80 || piece == 1000000; piece = piece == 80 ? 1000000 : piece + 1) {
		struct seen s;

		start(&s);
		for (size_t at = 0; at < in.len; at += piece) {
			size_t n = in.len - at < piece ? in.len - at : piece;

			assert_int_equal(send(s.peer, in.data + at, n, 0), (ssize_t)n);
			assert_int_equal(receive(&s), 0);
		}
		assert_int_equal(s.frames, 4);
		if (piece == 1)
			assert_int_equal(cb_buf_append(&first, s.log.data, s.log.len), 0);
		assert_int_equal(s.log.len, first.len);
		assert_memory_equal(s.log.data, first.data, first.len);
		end(&s);
	}
}

/* Frames below, at and above the sizes at which a frame gets a block of its own. */
static void test_big_frames(void **state)
{
	static const size_t size[] = { (128u << 10) - 1, 128u << 10,	   (128u << 10) + 1, (256u << 10) - 32,
				       256u << 10,	 (256u << 10) + 1, 3u << 20 };
	CB_AUTO_BUF in = CB_BUF_INIT(64u << 20);
	struct seen s;
	unsigned seed = 1;

	(void)state;
	start(&s);
	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		frame(&in, 3, size[i], 0, NULL, 0);
		frame(&in, 5, 10, 5, &(uint32_t){ (uint32_t)size[i] }, 1);
		frame(&in, 7, 1, 0, NULL, 0);
	}
	for (size_t at = 0; at < in.len;) {
		size_t most = (size_t)rand_r(&seed) % 300000 + 1;
		ssize_t n = send(s.peer, in.data + at, in.len - at < most ? in.len - at : most, MSG_DONTWAIT);

		if (n > 0)
			at += (size_t)n;
		assert_int_equal(receive(&s), 0);
	}
	assert_int_equal(receive(&s), 0);
	assert_int_equal(s.frames, 3 * sizeof(size) / sizeof(size[0]));
	assert_true(s.with_body >= 6);
	/* what was handed on, but for the lengths of buffers, is what was sent, but for the tables */
	const uint8_t *a = in.data, *b = s.log.data;

	while (a < in.data + in.len) {
		struct cb_wire_header h;
		size_t body, table;

		memcpy(&h, a, sizeof(h));
		assert_memory_equal(a, b, sizeof(h));
		a += sizeof(h), b += sizeof(h);
		body = (size_t)h.content_len + h.metadata_len;
		assert_memory_equal(a, b, body);
		a += body, b += body + (h.metadata_len == 0 ? 2 : 0);
		table = h.buffer_count;
		a += 4 * table, b += 8 * table;
		assert_memory_equal(a, b, h.buffers_len);
		a += h.buffers_len, b += h.buffers_len;
	}
	assert_ptr_equal(b, s.log.data + s.log.len);
	end(&s);
}

static void test_tables_that_do_not_add_up(void **state)
{
	static const struct {
		uint32_t count, len[3], total;
	} bad[] = {
		{ 0, { 0 }, 1 },
		{ 1, { 2 }, 1 },
		{ 1, { 0 }, 1 },
		{ 2, { 1, 0xffffffff }, 0 },
		{ 3, { 1, 1, 1 }, 2 },
		{ 3, { 1, 1, 1 }, 4 },
		{ 2, { 0x80000000, 0x80000000 }, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct cb_wire_header h = { .type = 5, .buffer_count = bad[i].count, .buffers_len = bad[i].total };
		struct seen s;

		start(&s);
		assert_int_equal(send(s.peer, &h, sizeof(h), 0), sizeof(h));
		assert_int_equal(send(s.peer, bad[i].len, 4 * bad[i].count, 0), 4 * bad[i].count);
		assert_int_equal(send(s.peer, "0123456789", bad[i].total, 0), bad[i].total);
		assert_int_equal(receive(&s), CB_E_SYNTAX);
		assert_int_equal(s.frames, 0);
		end(&s);
	}
}

static void test_refusals_and_ends(void **state)
{
	struct cb_wire_header h = { .type = 99, .content_len = 0xffffffff, .buffers_len = 0xffffffff };
	struct seen s;

	(void)state;
	start(&s); /* refused by its header, before a byte of it is taken in */
	s.refuse = CB_E_DENIED;
	assert_int_equal(send(s.peer, &h, sizeof(h), 0), sizeof(h));
	assert_int_equal(receive(&s), CB_E_DENIED);
	assert_null(s.l.big);
	end(&s);

	start(&s); /* the handler's refusal ends the round: what is behind it is not handed on */
	CB_AUTO_BUF in = CB_BUF_INIT(1000);

	s.take = CB_E_UNKNOWN;
	frame(&in, 3, 5, 0, NULL, 0);
	frame(&in, 3, 5, 0, NULL, 0);
	assert_int_equal(send(s.peer, in.data, in.len, 0), (ssize_t)in.len);
	assert_int_equal(receive(&s), CB_E_UNKNOWN);
	assert_int_equal(s.frames, 1);
	end(&s);

	start(&s); /* a handler may release the link */
	s.release = true;
	assert_int_equal(send(s.peer, in.data, in.len, 0), (ssize_t)in.len);
	assert_int_equal(receive(&s), CB_E_CLOSED);
	assert_int_equal(s.frames, 1);
	end(&s);

	start(&s); /* also for a big frame */
	CB_AUTO_BUF big = CB_BUF_INIT(1u << 20);

	s.release = true;
	frame(&big, 3, 300000, 0, NULL, 0);
	assert_int_equal(send(s.peer, big.data, big.len, 0), (ssize_t)big.len);
	assert_int_equal(receive(&s), CB_E_CLOSED);
	assert_int_equal(s.frames, 1);
	end(&s);

	start(&s); /* half a frame, then the end */
	assert_int_equal(send(s.peer, big.data, 1000, 0), 1000);
	assert_int_equal(receive(&s), 0);
	cb_fd_close(&s.peer);
	assert_int_equal(receive(&s), CB_E_CLOSED);
	assert_int_equal(s.frames, 0);
	end(&s);
}

static void put_raw(struct seen *s, const struct cb_buf *b, size_t from, size_t to)
{
	while (from < to) {
		ssize_t n = send(s->peer, b->data + from, to - from, MSG_DONTWAIT);

		from += n > 0 ? (size_t)n : 0;
		assert_int_equal(receive(s), 0);
		if (n < 0 && s->l.waits)
			return;
	}
}

/* Links that share a room: what is coming in is bounded for all of them together, and nothing is lost by waiting. */
static void test_shared_room(void **state)
{
	struct cb_link_room room = { .max = 5u << 20 };
	CB_AUTO_BUF in = CB_BUF_INIT(64u << 20);
	struct seen s[4];
	size_t half;

	(void)state;
	frame(&in, 3, 3u << 20, 0, NULL, 0);
	half = in.len / 2;
	for (size_t i = 0; i < 4; i++) {
		start(&s[i]);
		s[i].l.room = &room;
		put_raw(&s[i], &in, 0, i == 0 ? half : (200u << 10));
	}
	assert_int_equal(room.waiting, 3);
	assert_int_equal(room.used, 3u << 20);
	assert_false(cb_guest_link_may_go_on(&s[1].l));
	assert_int_equal(s[1].frames + s[2].frames, 0);
	cb_guest_link_release(&s[3].l); /* one that waits ends */
	assert_int_equal(room.waiting, 2);
	put_raw(&s[0], &in, half, in.len);
	assert_int_equal(s[0].frames, 1);
	assert_int_equal(room.used, 0);
	assert_true(cb_guest_link_may_go_on(&s[1].l));
	assert_true(cb_guest_link_may_go_on(&s[2].l));
	assert_int_equal(receive(&s[1]), 0);
	assert_int_equal(room.used, 3u << 20);
	assert_false(cb_guest_link_may_go_on(&s[2].l));
	cb_guest_link_release(&s[1].l); /* one that holds room ends */
	assert_int_equal(room.used, 0);
	assert_int_equal(receive(&s[2]), 0);
	put_raw(&s[2], &in, 200u << 10, in.len);
	assert_int_equal(s[2].frames, 1);
	assert_int_equal(room.used + room.waiting, 0);
	room.max = 1; /* alone it may come however large it is */
	put_raw(&s[2], &in, 0, in.len);
	assert_int_equal(s[2].frames, 2);
	for (size_t i = 0; i < 4; i++)
		end(&s[i]);
}

static void test_budget(void **state)
{
	CB_AUTO_BUF in = CB_BUF_INIT(1u << 20);
	const char *reason;
	struct seen s;

	(void)state;
	start(&s);
	for (int i = 0; i < 3; i++)
		frame(&in, 3, 100000, 0, NULL, 0);
	assert_int_equal(send(s.peer, in.data, in.len, 0), (ssize_t)in.len);
	assert_int_equal(cb_guest_link_receive(&s.l, 1, judge, take, &s, &reason), 0);
	assert_true(s.frames < 3);
	assert_int_equal(receive(&s), 0);
	assert_int_equal(s.frames, 3);
	end(&s);
}

static void test_send(void **state)
{
	struct cb_span buffers[2] = { CB_SPAN("abc"), CB_SPAN("") };
	static char content[600000];
	struct cb_wire_header h;
	struct seen s;
	char got[64];

	(void)state;
	start(&s);
	assert_int_equal(cb_guest_link_send(&s.l, CB_WIRE_DOWN_COMM_MSG, 7, CB_SPAN("{}"), CB_SPAN("{1}"), buffers, 2),
			 0);
	assert_false(cb_guest_link_pending(&s.l));
	assert_int_equal(recv(s.peer, &h, sizeof(h), 0), sizeof(h));
	assert_true(h.type == CB_WIRE_DOWN_COMM_MSG && h.request == 7 && h.content_len == 2 && h.metadata_len == 3 &&
		    h.buffer_count == 2 && h.buffers_len == 3 && h.flags == 0);
	assert_int_equal(recv(s.peer, got, sizeof(got), 0), 2 + 3 + 8 + 3);
	assert_memory_equal(got, "{}{1}\3\0\0\0\0\0\0\0abc", 16);

	/* a guest that does not read: queued up to the bound, refused whole beyond it */
	size_t queued = 0;
	int r;

	while ((r = cb_guest_link_send(&s.l, CB_WIRE_EXECUTE, 8, (struct cb_span){ content, sizeof(content) },
				       CB_SPAN("{}"), NULL, 0)) == 0)
		queued++;
	assert_int_equal(r, CB_E_TOO_BIG);
	assert_true(queued >= 1 && cb_guest_link_pending(&s.l));
	for (size_t left = queued * (sizeof(h) + sizeof(content) + 2); left > 0;) {
		static char sink[100000];
		ssize_t n = recv(s.peer, sink, left < sizeof(sink) ? left : sizeof(sink), MSG_DONTWAIT);

		assert_true(n > 0 || errno == EAGAIN);
		left -= n > 0 ? (size_t)n : 0;
		assert_int_equal(cb_guest_link_flush(&s.l), 0);
	}
	assert_false(cb_guest_link_pending(&s.l));
	cb_fd_close(&s.peer);
	assert_int_equal(cb_guest_link_send(&s.l, CB_WIRE_EXECUTE, 8, CB_SPAN("{}"), CB_SPAN("{}"), NULL, 0),
			 CB_E_CLOSED);
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fragments),
		cmocka_unit_test(test_big_frames),
		cmocka_unit_test(test_tables_that_do_not_add_up),
		cmocka_unit_test(test_refusals_and_ends),
		cmocka_unit_test(test_shared_room),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_send),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
