/* Making text harmless for terminals.
 *
 * Role: names of files, words of guests and interpreters, what an error quotes: a terminal obeys escape sequences in
 * them, and characters that turn the direction of text make one name look like another. Trust domain: all C programs;
 * the text is hostile. Invariant: what comes out has no byte below a blank, no DEL, and is UTF-8.
 */
#include <cellblock/visible.h>

#include "utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Characters that act or hide: C1 controls, soft hyphen, directions, separators, joiners, tags. */
static bool acts(uint32_t c)
{
	return (c >= 0x80 && c < 0xa0) || c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
	       (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
	       (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f);
}

/* Of a valid sequence. */
static uint32_t decode(const uint8_t *p, size_t n)
{
	uint32_t c = n == 1 ? *p : *p & (0x7fu >> n);

	for (size_t i = 1; i < n; i++)
		c = c << 6 | (p[i] & 0x3fu);
	return c;
}

size_t cb_visible_character(const char *text, const char *end, char ret_piece[CB_VISIBLE_PIECE])
{
	const uint8_t *p = (const uint8_t *)text;
	size_t n = cb_utf8_sequence(p, (const uint8_t *)end);
	size_t taken = n > 0 ? n : 1;

	if (n > 0 && *p >= 0x20 && *p != 0x7f && !acts(decode(p, n))) {
		memcpy(ret_piece, p, n);
		ret_piece[n] = '\0';
		return n;
	}
	for (size_t i = 0; i < taken; i++)
		snprintf(ret_piece + 4 * i, CB_VISIBLE_PIECE - 4 * i, "\\x%02x", p[i]);
	return taken;
}

size_t cb_visible(const char *text, size_t len, char *ret_text, size_t size)
{
	const char *end = text + len;
	size_t out = 0;

	while (text < end) {
		char piece[CB_VISIBLE_PIECE];
		size_t n;

		text += cb_visible_character(text, end, piece);
		n = strlen(piece);
		if (out + n >= size)
			break;
		memcpy(ret_text + out, piece, n);
		out += n;
	}
	if (size > 0)
		ret_text[out] = '\0';
	return out;
}

char *cb_visible_copy(const char *text)
{
	size_t len = strlen(text), size = 4 * len + 1;
	char *copy = malloc(size);

	if (copy != NULL)
		(void)cb_visible(text, len, copy, size);
	return copy;
}

const char *cb_shown(const char *text)
{
	static char *shown[CB_SHOWN_MAX];
	static size_t next;
	char **slot = &shown[next++ % CB_SHOWN_MAX];

	free(*slot);
	*slot = cb_visible_copy(text);
	return *slot != NULL ? *slot : "?";
}
