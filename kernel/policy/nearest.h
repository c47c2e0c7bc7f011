/* Which of the known words was probably meant: for "did you mean" in messages. Trust domain: supervisor, at start. */
#pragma once

struct cb_nearest {
	const char *word; /* what was written */
	const char *best; /* the nearest word offered so far; NULL = none is near */
	unsigned distance;
};

#define CB_NEAREST(text) ((struct cb_nearest){ .word = (text) })

/* Offers one known word. It is kept if it needs fewer changes than the best so far, and few against its length. */
void cb_nearest_offer(struct cb_nearest *n, const char *known);
