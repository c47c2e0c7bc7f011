/* Decoded bytes of raw JSON strings, one at a time. Internal to base/; only for strings that the scan has accepted. */
#pragma once

#include <cellblock/buffer.h>

/* Walks the inside of a string (without its quotes). */
struct cb_json_cursor {
	const uint8_t *p, *end;
	uint8_t held[4]; /* the rest of an escape that stands for several bytes */
	unsigned at, nheld;
};

static inline struct cb_json_cursor cb_json_cursor(const uint8_t *inside, size_t len)
{
	return (struct cb_json_cursor){ .p = inside, .end = inside + len };
}

int cb_json_next_byte(struct cb_json_cursor *c); /* the next byte, -1 at the end */
