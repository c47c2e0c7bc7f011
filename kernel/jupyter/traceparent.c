/* `traceparent` of W3C Trace Context. See traceparent.h.
 *
 * Role: the one place that looks at what clients say about their traces. Trust domain: supervisor. Invariants: what is
 * given is "" or 55 characters of [0-9a-f-], so it may go into JSON and into a log as it is; anything else costs the
 * request nothing.
 */
#include "traceparent.h"

#include <cellblock/json_scan.h>

/* 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 */
enum { VERSION = 0, TRACE = 3, PARENT = 36, FLAGS = 53, END = 55 };

#define RAW_MAX 512 /* of the JSON text: a later version may be longer, and escapes take six characters */

static bool is_hex(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
			return false;
	return true;
}

/* An id is hex, and not all zero. */
static bool is_id(const char *text, size_t len)
{
	return is_hex(text, len) && memcmp(text, "00000000000000000000000000000000", len) != 0;
}

bool cb_traceparent_parse(const char *text, size_t len, char ret[CB_TRACEPARENT_SIZE])
{
	if (len < END || text[TRACE - 1] != '-' || text[PARENT - 1] != '-' || text[FLAGS - 1] != '-' ||
	    !is_hex(text + VERSION, 2) || !is_id(text + TRACE, 32) || !is_id(text + PARENT, 16) ||
	    !is_hex(text + FLAGS, 2))
		return false;
	bool known = memcmp(text, "00", 2) == 0;

	if (memcmp(text, "ff", 2) == 0 || (len > END && (known || text[END] != '-')))
		return false;
	memcpy(ret, text, END);
	ret[END] = '\0';
	if (known)
		return true;
	memcpy(ret, "00", 2);
	ret[FLAGS] = '0'; /* only `sampled` is sure to mean the same */
	ret[FLAGS + 1] = strchr("13579bdf", text[FLAGS + 1]) != NULL ? '1' : '0';
	return true;
}

void cb_traceparent_of(struct cb_span metadata, char ret[CB_TRACEPARENT_SIZE])
{
	struct cb_json_field outer = { .name = "cellblock", .types = CB_JSON_OBJECT };
	struct cb_json_field inner = { .name = "traceparent", .types = CB_JSON_STRING };
	CB_AUTO_BUF text = CB_BUF_INIT(RAW_MAX);

	ret[0] = '\0';
	if (metadata.len <= 2 || cb_json_scan_object(metadata.data, metadata.len, &outer, 1, NULL) < 0 ||
	    outer.ret.data == NULL || cb_json_scan_object(outer.ret.data, outer.ret.len, &inner, 1, NULL) < 0 ||
	    inner.ret.data == NULL || inner.ret.len > RAW_MAX || cb_json_string_decode(inner.ret, &text) < 0 ||
	    text.len == 0)
		return;
	(void)cb_traceparent_parse((const char *)text.data, text.len, ret);
}
