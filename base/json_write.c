/* Writing JSON text; the contract is in json_write.h.
 *
 * Trust domain: all C programs. The input may be any bytes (stream text of a guest); the output is always a valid JSON
 * string in UTF-8. Appends are all or nothing: on failure the buffer is as it was.
 */
#include <cellblock/json_write.h>

#include "utf8.h"

static int put_escape(struct cb_buf *out, uint8_t c)
{
	static const char hex[] = "0123456789abcdef";
	static const char short_names[] = "\"\\\b\f\n\r\t", short_forms[] = "\"\\bfnrt";
	const char *found = c != 0 ? memchr(short_names, c, sizeof(short_names) - 1) : NULL;
	char text[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };

	if (found == NULL)
		return cb_buf_append(out, text, sizeof(text));
	text[1] = short_forms[found - short_names];
	return cb_buf_append(out, text, 2);
}

int cb_json_write_escaped(struct cb_buf *out, const char *text, size_t len)
{
	const uint8_t *p = len > 0 ? (const uint8_t *)text : (const uint8_t *)"", *end = p + len, *run = p;
	size_t before = out->len;
	int r = 0;

	while (p < end && r == 0) {
		size_t n;

		p = cb_plain_run(p, end);
		if (p == end)
			break;
		n = cb_utf8_sequence(p, end);
		if (n > 1) {
			p += n;
			continue;
		}
		r = cb_buf_append(out, run, (size_t)(p - run));
		if (r == 0)
			r = n > 0 ? put_escape(out, *p) : cb_buf_append(out, "\xef\xbf\xbd", 3);
		run = ++p;
	}
	if (r == 0)
		r = cb_buf_append(out, run, (size_t)(p - run));
	if (r < 0)
		out->len = before;
	return r;
}

int cb_json_write_string(struct cb_buf *out, const char *text, size_t len)
{
	size_t before = out->len;
	int r = cb_buf_append(out, "\"", 1);

	if (r == 0)
		r = cb_json_write_escaped(out, text, len);
	if (r == 0)
		r = cb_buf_append(out, "\"", 1);
	if (r < 0)
		out->len = before;
	return r;
}

int cb_json_write_cstr(struct cb_buf *out, const char *text)
{
	return cb_json_write_string(out, text, strlen(text));
}

size_t cb_utf8_complete_prefix(const char *text, size_t len)
{
	size_t back = len < 3 ? len : 3;

	for (size_t n = 1; n <= back; n++) {
		uint8_t c = (uint8_t)text[len - n];

		if ((c & 0xc0) == 0x80)
			continue;
		return n < cb_utf8_length(c) ? len - n : len;
	}
	return len;
}
