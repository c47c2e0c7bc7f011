/* Fuzz target: content and metadata of execute_request.
 *
 * An input is the content and, behind a zero byte, the metadata. What is accepted must be sound: code is a JSON string
 * inside the content, and a limit was only lowered.
 */
#include <cellblock/json_scan.h>

#include <math.h>

#include "requests/rooms.h"
#include "requests/requests.h"

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			abort();                                                                                       \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct cb_request *r, double limit)
{
	struct cb_policy policy = { .timeout_cell = limit };
	static struct cb_kernel k;
	struct cb_execute_fields f;
	enum cb_json_type type = CB_JSON_NULL;
	char what[256] = "";

	k.policy = &policy;
	if (cb_execute_parse(&k, r, &f, what, sizeof(what)) < 0) {
		CHECK(what[0] != '\0' && memchr(what, 0, sizeof(what)) != NULL);
		return;
	}
	CHECK(f.code.data >= r->content.data && f.code.data + f.code.len <= r->content.data + r->content.len);
	CHECK(cb_json_scan(f.code.data, f.code.len, &type, NULL) == 0 && type == CB_JSON_STRING);
	CHECK(isfinite(f.timeout) && f.timeout >= 0 && f.timeout <= 1e9);
	CHECK(limit == 0 || (f.timeout > 0 && f.timeout <= limit));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
	size_t len = end != NULL ? (size_t)(end - data) : size;
	struct cb_request r = { .content = { len > 0 ? (const char *)data : "", len },
				.metadata = end != NULL ? (struct cb_span){ (const char *)end + 1, size - len - 1 }
							: CB_SPAN("{}") };

	check(&r, 0);
	check(&r, 10);
	return 0;
}
