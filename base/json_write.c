/* Writing JSON text; the contract is in json_write.h.
 *
 * Trust domain: all C programs. Text may be any bytes (stream text of a guest), its JSON string is always valid and in
 * UTF-8; JSON text that is put in as it is has been scanned before. Strings, and all that one writer appends, are
 * written whole or not at all.
 */
#include <cellblock/json_write.h>

#include "utf8.h"

#include <errno.h>
#include <math.h>

#define DEPTH_MAX 32u /* bits of cb_json.arrays */

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

/* ---- objects and arrays ---- */

struct cb_json cb_json_inside(struct cb_buf *out)
{
	return (struct cb_json){ .out = out, .start = out->len, .comma = out->len > 0 };
}

struct cb_json cb_json_begin(struct cb_buf *out)
{
	struct cb_json j = { .out = out, .start = out->len };

	cb_json_open(&j, NULL, false);
	return j;
}

static inline void append(struct cb_json *j, const char *text, size_t len)
{
	if (j->error == 0)
		j->error = cb_buf_append(j->out, text, len);
}

/* What stands before a value. */
static void lead(struct cb_json *j, const char *key)
{
	if (j->comma)
		append(j, ",", 1);
	j->comma = true;
	if (key == NULL)
		return;
	append(j, "\"", 1);
	append(j, key, strlen(key));
	append(j, "\":", 2);
}

void cb_json_open(struct cb_json *j, const char *key, bool array)
{
	if (j->depth++ == DEPTH_MAX && j->error == 0)
		j->error = -EINVAL;
	j->arrays = j->arrays << 1 | array;
	lead(j, key);
	append(j, array ? "[" : "{", 1);
	j->comma = false;
}

void cb_json_end(struct cb_json *j)
{
	if (j->depth-- == 0 && j->error == 0)
		j->error = -EINVAL;
	append(j, j->arrays & 1 ? "]" : "}", 1);
	j->arrays >>= 1;
	j->comma = true;
}

int cb_json_done(struct cb_json *j)
{
	while (j->error == 0 && j->depth > 0)
		cb_json_end(j);
	if (j->error < 0)
		j->out->len = j->start;
	return j->error;
}

/* ---- values ---- */

void cb_json_put_text(struct cb_json *j, const char *key, const char *text, size_t len)
{
	if (j->brief > 0 && len > j->brief)
		len = cb_utf8_complete_prefix(text, j->brief);
	lead(j, key);
	if (j->error == 0)
		j->error = cb_json_write_string(j->out, text, len);
}

void cb_json_more_text(struct cb_json *j, const char *text, size_t len)
{
	if (j->error < 0)
		return;
	j->out->len--; /* the quote at its end */
	j->error = cb_json_write_escaped(j->out, text, len);
	append(j, "\"", 1);
}

void cb_json_put_raw(struct cb_json *j, const char *key, struct cb_span value)
{
	if (value.len == 0 && key != NULL)
		cb_json_put_null(j, key, NULL);
	if (value.len == 0)
		return;
	lead(j, key);
	append(j, value.data, value.len);
}

void cb_json_raw_key(struct cb_json *j, struct cb_span key)
{
	cb_json_put_raw(j, NULL, key);
	append(j, ":", 1);
	j->comma = false;
}

void cb_json_put_null(struct cb_json *j, const char *key, const void *null)
{
	(void)null;
	if (j->brief == 0)
		cb_json_put_raw(j, key, CB_SPAN("null"));
}

void cb_json_put_cstr(struct cb_json *j, const char *key, const char *text)
{
	if (text != NULL)
		cb_json_put_text(j, key, text, strlen(text));
	else
		cb_json_put_null(j, key, NULL);
}

void cb_json_put_number(struct cb_json *j, const char *key, bool negative, unsigned long long value)
{
	char text[24], *end = text + sizeof(text), *p = end;

	do
		*--p = (char)('0' + value % 10);
	while ((value /= 10) > 0);
	if (negative)
		*--p = '-';
	lead(j, key);
	append(j, p, (size_t)(end - p));
}

void cb_json_put_rounded(struct cb_json *j, const char *key, struct cb_json_rounded r)
{
	if (!isfinite(r.value)) {
		cb_json_put_null(j, key, NULL);
		return;
	}
	lead(j, key);
	if (j->error == 0) /* 15 digits: what a person wrote with no more comes out as it was */
		j->error = r.digits < 0 ? cb_buf_printf(j->out, "%.15g", r.value)
					: cb_buf_printf(j->out, "%.*f", r.digits, r.value);
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
