/* Fuzz target: frames of a client into a request, and its header back out as the header of a reply.
 *
 * An input is the frames of one message, each ended by a zero byte. The key is empty, so that what stands behind the
 * signature is reached.
 */
#include <cellblock/json_scan.h>

#include <math.h>

#include "jupyter/message.h"

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			abort();                                                                                       \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static zmq_msg_t frame[CB_MAX_FRAMES];

static size_t split(const uint8_t *data, size_t size)
{
	size_t n = 0;

	while (size > 0 && n < CB_MAX_FRAMES - 1) { /* channels.c takes no more */
		const uint8_t *end = memchr(data, 0, size);
		size_t len = end != NULL ? (size_t)(end - data) : size, used = end != NULL ? len + 1 : len;

		zmq_msg_init_size(&frame[n], len);
		if (len > 0)
			memcpy(zmq_msg_data(&frame[n]), data, len);
		n++;
		data += used;
		size -= used;
	}
	return n;
}

static void check_reply(struct cb_auth *auth, const struct cb_request *r)
{
	static struct cb_session session = { .id = "fuzz" };
	struct cb_json_field f[] = { { .name = "msg_type", .types = CB_JSON_STRING, .required = true } };
	struct cb_outgoing out = { .type = r->type,
				   .parent = cb_header_span(r->header),
				   .metadata = CB_SPAN("{}"),
				   .content = CB_SPAN("{}") };
	zmq_msg_t reply[7];
	size_t n = 0;

	CHECK(cb_outgoing_frames(&session, auth, &out, reply, &n) == 0 && n == 6);
	struct cb_span header = cb_frame_span(&reply[2]), parent = cb_frame_span(&reply[3]);

	CHECK(cb_json_scan_object(header.data, header.len, f, 1, NULL) == 0);
	CHECK(cb_json_string_is(f[0].ret, r->type));
	CHECK(cb_json_scan_object(parent.data, parent.len, NULL, 0, NULL) == 0);
	for (size_t i = 0; i < n; i++)
		zmq_msg_close(&reply[i]);
}

static void check_request(const struct cb_request *r)
{
	const char *begin = r->header->data, *end = begin + r->header->len;

	CHECK(r->nident <= CB_MAX_IDENTITIES && r->first_buffer == r->nident + 6);
	CHECK(r->first_buffer <= r->nframes && r->nframes - r->first_buffer <= CB_MAX_BUFFERS);
	CHECK(r->header->len <= CB_HEADER_MAX && strlen(r->type) > 0 && strlen(r->type) < CB_TYPE_MAX);
	CHECK(r->session.data == NULL || (r->session.data >= begin && r->session.data + r->session.len <= end));
	CHECK(r->subshell_id.data == NULL ||
	      (r->subshell_id.data >= begin && r->subshell_id.data + r->subshell_id.len <= end));
	CHECK(isnan(r->date) || fabs(r->date) < 1e13);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct cb_auth *auth;
	struct cb_request *r = NULL;
	const char *reason = NULL;

	if (auth == NULL)
		CHECK(cb_auth_new("sha256", "", 0, &auth) == 0);
	int c = cb_request_from_frames(auth, CB_SHELL, frame, split(data, size), &r, &reason);

	if (c == 0) {
		check_request(r);
		check_reply(auth, r);
	} else {
		CHECK(r == NULL && reason != NULL);
	}
	cb_request_free(r);
	return 0;
}
