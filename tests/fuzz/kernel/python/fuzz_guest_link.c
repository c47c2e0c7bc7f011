/* Fuzz target: the bytes of a guest through framing, permission table and content scan.
 *
 * The first byte of an input chooses the phase to start in and the size of the pieces in which the rest arrives; each
 * frame that is let through moves on to the next phase. Input that gets through must be what a client may be given:
 * strict JSON, with the count where it belongs.
 */
#include <cellblock/error.h>
#include <cellblock/fd.h>
#include <cellblock/json_scan.h>

#include <sys/socket.h>

#include "python/python.h"
#include "transactions/checkpoints.h"
#include "transactions/twins.h"

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			abort();                                                                                       \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct cb_guest_rules rules;

static int judge(void *context, const struct cb_wire_header *h, const char **ret_reason)
{
	(void)context;
	return cb_guest_policy_header(&rules, h, ret_reason);
}

static void check_count(struct cb_frame *f)
{
	struct cb_json_field field[] = { { .name = "execution_count", .types = CB_JSON_INTEGER, .required = true } };
	struct cb_span s = cb_frame_with_count(f, INT32_MAX);

	CHECK(s.data >= f->content - CB_FRAME_HEADROOM && s.data + s.len == f->content + f->header.content_len);
	CHECK(cb_json_scan_object(s.data, s.len, field, 1, NULL) == 0);
	CHECK(cb_span_is(field[0].ret, "2147483647"));
}

static void check_wishes(const struct cb_frame *f)
{
	static struct cb_checkpoints c;
	struct cb_back back;
	bool valid = false;

	c.nasked = 0;
	if (cb_checkpoint_wishes(&c, f->metadata, &back, &valid) && valid)
		CHECK(memchr(back.name, '\0', sizeof(back.name)) != NULL && back.undo <= CB_UNDO_LOG_MAX);
	CHECK(c.nasked <= CB_CHECKPOINT_ASKED);
	for (unsigned i = 0; i < c.nasked; i++)
		CHECK(c.asked[i][0] != '\0' && memchr(c.asked[i], '\0', sizeof(c.asked[i])) != NULL);
}

static int take(void *context, struct cb_frame *f, const char **ret_reason)
{
	struct cb_guest_content c;
	uint64_t sum = 0;
	int r = cb_guest_policy_content(f, &c, ret_reason);

	(void)context;
	CHECK(r == 0 || *ret_reason != NULL);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < f->header.buffer_count; i++) {
		sum += f->buffer[i].len;
		if (f->buffer[i].len > 0) /* within the block: the sanitizer looks */
			(void)*(const volatile char *)&f->buffer[i].data[f->buffer[i].len - 1];
	}
	CHECK(sum == f->header.buffers_len);
	CHECK(cb_json_scan_object(f->metadata.data, f->metadata.len, NULL, 0, NULL) == 0);
	if (f->header.type != CB_WIRE_STREAM)
		CHECK(cb_json_scan_object(f->content, f->header.content_len, NULL, 0, NULL) == 0);
	if (f->header.type == CB_WIRE_EXECUTE_RESULT || f->header.type == CB_WIRE_EXECUTE_REPLY)
		check_count(f);
	if (f->header.type == CB_WIRE_EXECUTE_REPLY)
		check_wishes(f);
	if (f->header.type == CB_WIRE_CHECKPOINT_REPLY)
		cb_left_out_take(&(struct cb_left_out){ 0 }, c.left_out);
	rules.phase = rules.phase == CB_PHASE_WAKING ? CB_PHASE_STARTING : (enum cb_wire_phase)(rules.phase << 1);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cb_guest_link l;
	const char *reason = NULL;
	int pair[2], r = 0;

	if (size < 1 || size > (1u << 20))
		return 0;
	rules = (struct cb_guest_rules){ .phase = (enum cb_wire_phase)(1 << (data[0] % 8)),
					 .first_id = 1,
					 .last_id = 2,
					 .current = 2,
					 .max_message = 1u << 20 };
	size_t piece = data[0] < 128 ? SIZE_MAX : (size_t)(data[0] - 127) * 7;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
	CHECK(cb_guest_link_init(&l, pair[0], 1u << 16) == 0);
	for (data++, size--; size > 0 && r == 0;) {
		ssize_t n = send(pair[1], data, size < piece ? size : piece, 0);

		if (n > 0) {
			data += n;
			size -= (size_t)n;
		}
		r = cb_guest_link_receive(&l, SIZE_MAX, judge, take, NULL, &reason);
		CHECK(r <= 0 && (r == 0 || reason != NULL));
	}
	cb_guest_link_release(&l);
	cb_fd_close(&pair[1]);
	return 0;
}
