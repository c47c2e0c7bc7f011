/* Values of scanned JSON text: strings decoded, numbers converted; the contracts are in json_scan.h.
 *
 * Trust domain: supervisor. Everything here relies on the scan: escapes are whole, surrogates are paired, numbers are
 * well formed and at most CB_JSON_MAX_NUMBER characters long. Allocates only in the caller's buffer.
 */
#include <cellblock/error.h>
#include <cellblock/json_scan.h>

#include "json_value.h"

#include <stdlib.h>

static uint32_t hex4(const uint8_t *p)
{
	uint32_t value = 0;

	for (int i = 0; i < 4; i++)
		value = value << 4 | (p[i] <= '9' ? p[i] & 0xfu : (p[i] & 0xfu) + 9);
	return value;
}

static unsigned encode(uint32_t c, uint8_t *out)
{
	unsigned n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const uint8_t leads[] = { 0, 0x00, 0xc0, 0xe0, 0xf0 };

	for (unsigned i = n - 1; i > 0; i--) {
		out[i] = (uint8_t)(0x80 | (c & 0x3f));
		c >>= 6;
	}
	out[0] = (uint8_t)(leads[n] | c);
	return n;
}

/* Takes one escape at c->p and holds what it stands for. */
static void unescape(struct cb_json_cursor *c)
{
	static const char letters[] = "bfnrt", means[] = "\b\f\n\r\t";
	uint8_t letter = c->p[1];
	const char *at = strchr(letters, letter);
	uint32_t code;

	c->at = 0;
	c->nheld = 1;
	c->p += 2;
	if (letter != 'u') { /* or it is a quote, a backslash or a slash */
		c->held[0] = at != NULL ? (uint8_t)means[at - letters] : letter;
		return;
	}
	code = hex4(c->p);
	c->p += 4;
	if (code >= 0xd800 && code < 0xe000) {
		code = 0x10000 + ((code - 0xd800) << 10) + (hex4(c->p + 2) - 0xdc00);
		c->p += 6;
	}
	c->nheld = encode(code, c->held);
}

int cb_json_next_byte(struct cb_json_cursor *c)
{
	if (c->at == c->nheld) {
		if (c->p == c->end)
			return -1;
		if (*c->p != '\\')
			return *c->p++;
		unescape(c);
	}
	return c->held[c->at++];
}

int cb_json_string_decode(struct cb_span raw, struct cb_buf *out)
{
	struct cb_json_cursor c = cb_json_cursor((const uint8_t *)raw.data + 1, raw.len - 2);
	size_t before = out->len;
	int r = 0;

	while (r == 0 && c.p < c.end) {
		const uint8_t *escape = memchr(c.p, '\\', (size_t)(c.end - c.p));
		const uint8_t *run_end = escape != NULL ? escape : c.end;

		r = cb_buf_append(out, c.p, (size_t)(run_end - c.p));
		c.p = run_end;
		if (r == 0 && escape != NULL) {
			unescape(&c);
			r = cb_buf_append(out, c.held, c.nheld);
		}
	}
	if (r < 0)
		out->len = before;
	return r;
}

bool cb_json_string_is(struct cb_span raw, const char *text)
{
	struct cb_json_cursor c = cb_json_cursor((const uint8_t *)raw.data + 1, raw.len - 2);

	for (; *text != '\0'; text++)
		if (cb_json_next_byte(&c) != (uint8_t)*text)
			return false;
	return cb_json_next_byte(&c) == -1;
}

int cb_json_int(struct cb_span raw, int64_t *ret_value)
{
	bool negative = raw.data[0] == '-';
	int64_t value = 0;

	/* Counted downwards: the negative range is the larger one. */
	for (size_t i = negative; i < raw.len; i++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_sub_overflow(value, raw.data[i] - '0', &value))
			return CB_E_TOO_BIG;
	if (!negative && __builtin_sub_overflow((int64_t)0, value, &value))
		return CB_E_TOO_BIG;
	*ret_value = value;
	return 0;
}

int cb_json_real(struct cb_span raw, double *ret_value)
{
	char text[CB_JSON_MAX_NUMBER + 1];
	double value;

	if (raw.len > CB_JSON_MAX_NUMBER)
		return CB_E_TOO_BIG;
	memcpy(text, raw.data, raw.len);
	text[raw.len] = '\0';
	value = strtod(text, NULL);
	if (__builtin_isinf(value))
		return CB_E_TOO_BIG;
	*ret_value = value;
	return 0;
}
