/* Runs of plain text and UTF-8 sequences, for the JSON scan, the JSON writer and the log. Internal to base/. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the sequence that starts with `lead`; 1 also for what cannot start one. */
static inline size_t cb_utf8_length(uint8_t lead)
{
	if (lead >= 0xc2 && lead <= 0xdf)
		return 2;
	if (lead >= 0xe0 && lead <= 0xef)
		return 3;
	return lead >= 0xf0 && lead <= 0xf4 ? 4 : 1;
}

/* Bytes of the valid sequence at p (p < end), 0 if there is none: no overlong forms, no surrogates, nothing past
 * U+10FFFF. */
static inline size_t cb_utf8_sequence(const uint8_t *p, const uint8_t *end)
{
	size_t n = cb_utf8_length(*p);
	uint8_t low = 0x80, high = 0xbf; /* range of the second byte */

	if (n == 1)
		return *p < 0x80 ? 1 : 0;
	if ((size_t)(end - p) < n)
		return 0;
	if (*p == 0xe0)
		low = 0xa0;
	else if (*p == 0xed)
		high = 0x9f;
	else if (*p == 0xf0)
		low = 0x90;
	else if (*p == 0xf4)
		high = 0x8f;
	if (p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte in memory must be the lowest of a word");

/* First byte in [p, end) that is not plain in a JSON string (a control, '"', '\\' or not ASCII), or end. Eight bytes a
 * step: a subtraction sets the top bit of every byte below the bound; its borrow can only mark bytes above one that is
 * marked rightly. */
static inline const uint8_t *cb_plain_run(const uint8_t *p, const uint8_t *end)
{
	const uint64_t ones = 0x0101010101010101u;

	while (end - p >= 8) {
		uint64_t x, special;

		memcpy(&x, p, sizeof(x));
		special =
			(x | (x - ones * 0x20) | ((x ^ ones * '"') - ones) | ((x ^ ones * '\\') - ones)) & ones * 0x80;
		if (special != 0)
			return p + __builtin_ctzll(special) / 8;
		p += 8;
	}
	while (p < end && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\')
		p++;
	return p;
}
