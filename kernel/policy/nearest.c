/* Nearest known word, by edit distance with swaps of neighbours counted once.
 *
 * Role: messages of options.c and of this folder. Trust domain: supervisor, at start.
 * Invariants: no allocation; words longer than MAX_WORD have no neighbours.
 */
#include "nearest.h"

#include <string.h>

#define MAX_WORD 63

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;

	return m < c ? m : c;
}

static unsigned edit_distance(const char *a, size_t la, const char *b, size_t lb)
{
	unsigned rows[3][MAX_WORD + 1];
	unsigned *before = rows[0], *last = rows[1], *now = rows[2];

	for (size_t j = 0; j <= lb; j++)
		last[j] = (unsigned)j;
	for (size_t i = 1; i <= la; i++) {
		unsigned *spare = before;

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= lb; j++) {
			now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    before[j - 2] + 1 < now[j])
				now[j] = before[j - 2] + 1;
		}
		before = last;
		last = now;
		now = spare;
	}
	return last[lb];
}

void cb_nearest_offer(struct cb_nearest *n, const char *known)
{
	size_t la = strlen(n->word), lb = strlen(known);
	unsigned distance;

	if (la == 0 || la > MAX_WORD || lb > MAX_WORD)
		return;
	distance = edit_distance(n->word, la, known, lb);
	if (distance > 1 + lb / 4 || distance >= lb || (n->best != NULL && distance >= n->distance))
		return;
	n->best = known;
	n->distance = distance;
}
