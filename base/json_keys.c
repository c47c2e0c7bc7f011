/* Live keys of a JSON scan: finds duplicates in linear time whatever the input.
 *
 * Trust domain: supervisor; keys are chosen by clients and guests. Two things keep an attacker from slow chains: the
 * hash is a polynomial over the decoded bytes, taken at a secret point modulo the prime 2^61-1 (two different keys
 * collide with a chance of at most length / 2^61, whatever they are), and the nesting depth takes part in it, so that
 * equal keys of nested objects do not share a chain. Objects close in the reverse order of opening: an entry that is
 * removed is always the head of its chain.
 */
#include "json_keys.h"

#include <cellblock/error.h>
#include <cellblock/json_scan.h>

#include "json_value.h"

#include <errno.h>
#include <sys/auxv.h>

#define BUCKETS 65536u
#define PRIME ((1ull << 61) - 1)
#define CHUNK 7 /* bytes to a step: 56 bits stay below the prime */

_Static_assert(CB_JSON_MAX_LIVE_KEYS < UINT16_MAX, "links are 16 bits, 0 means none");

struct entry {
	uint64_t hash;
	struct cb_span inside; /* borrowed from the input */
	uint16_t next;         /* number + 1 of the next entry of this bucket */
	uint16_t depth;
	bool escaped;
};

static struct entry entries[CB_JSON_MAX_LIVE_KEYS];
static uint16_t heads[BUCKETS];
static unsigned live;
static uint64_t point, spread; /* secret; 0 = not chosen yet */

static uint64_t reduce(uint64_t sum) /* of at most two numbers up to PRIME */
{
	return sum >= PRIME ? sum - PRIME : sum;
}

static uint64_t mul_mod(uint64_t a, uint64_t b) /* both below PRIME */
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return reduce(((uint64_t)product & PRIME) + (uint64_t)(product >> 61));
}

static uint64_t step(uint64_t hash, uint64_t chunk)
{
	return mul_mod(reduce(hash + chunk), point);
}

/* The kernel gives every process 16 random bytes: no system call is needed that a filter might refuse. */
static void choose_secret(void)
{
	uint64_t random[2];

	memcpy(random, (const void *)getauxval(AT_RANDOM), sizeof(random));
	point = (random[0] ^ random[1] << 17) % (PRIME - 2) + 2;
	spread = (random[1] ^ random[0] << 29) % (PRIME - 2) + 2;
}

/* n (<= CHUNK) bytes as a number; from four on two overlapping words do. */
static uint64_t load(const uint8_t *p, size_t n)
{
	uint64_t chunk = 0;
	uint32_t low, high;

	if (n >= 4) {
		memcpy(&low, p, 4);
		memcpy(&high, p + n - 4, 4);
		return low | (uint64_t)high << 8 * (n - 4);
	}
	for (size_t i = 0; i < n; i++)
		chunk |= (uint64_t)p[i] << 8 * i;
	return chunk;
}

static uint64_t hash_plain(const uint8_t *p, size_t len, size_t *ret_len)
{
	uint64_t hash = 0;
	size_t left = len;

	for (; left >= CHUNK; left -= CHUNK, p += CHUNK)
		hash = step(hash, load(p, CHUNK));
	*ret_len = len;
	return step(hash, load(p, left));
}

static uint64_t hash_decoded(const uint8_t *p, size_t len, size_t *ret_len)
{
	struct cb_json_cursor c = cb_json_cursor(p, len);
	uint64_t hash = 0;
	uint8_t chunk[CHUNK];
	size_t n = 0, total = 0;
	int byte;

	while ((byte = cb_json_next_byte(&c)) >= 0) {
		chunk[n++] = (uint8_t)byte;
		total++;
		if (n == CHUNK) {
			hash = step(hash, load(chunk, CHUNK));
			n = 0;
		}
	}
	*ret_len = total;
	return step(hash, load(chunk, n));
}

static uint64_t hash_key(struct cb_span inside, bool escaped, unsigned depth)
{
	const uint8_t *p = (const uint8_t *)inside.data;
	size_t len;
	uint64_t hash = escaped ? hash_decoded(p, inside.len, &len) : hash_plain(p, inside.len, &len);

	/* The length tells a last chunk from one with zeros behind it. */
	return step(hash, ((uint64_t)len << 10 | depth) & PRIME);
}

static bool same(const struct entry *e, struct cb_span inside, bool escaped)
{
	struct cb_json_cursor a, b;
	int byte;

	if (!escaped && !e->escaped)
		return e->inside.len == inside.len && memcmp(e->inside.data, inside.data, inside.len) == 0;
	a = cb_json_cursor((const uint8_t *)e->inside.data, e->inside.len);
	b = cb_json_cursor((const uint8_t *)inside.data, inside.len);
	do {
		byte = cb_json_next_byte(&a);
		if (byte != cb_json_next_byte(&b))
			return false;
	} while (byte >= 0);
	return true;
}

static uint16_t *bucket(uint64_t hash)
{
	return &heads[mul_mod(hash, spread) % BUCKETS];
}

unsigned cb_json_keys_mark(void)
{
	return live;
}

int cb_json_keys_add(struct cb_span inside, bool escaped, unsigned depth)
{
	uint64_t hash;
	uint16_t *head;

	if (live == CB_JSON_MAX_LIVE_KEYS)
		return CB_E_TOO_BIG;
	if (point == 0)
		choose_secret();
	hash = hash_key(inside, escaped, depth);
	head = bucket(hash);
	for (unsigned i = *head; i != 0; i = entries[i - 1].next) {
		const struct entry *e = &entries[i - 1];

		if (e->hash == hash && e->depth == depth && same(e, inside, escaped))
			return -EEXIST;
	}
	entries[live] = (struct entry){
		.hash = hash, .inside = inside, .next = *head, .depth = (uint16_t)depth, .escaped = escaped
	};
	*head = (uint16_t)++live;
	return 0;
}

void cb_json_keys_drop(unsigned mark)
{
	while (live > mark) {
		live--;
		*bucket(entries[live].hash) = entries[live].next;
	}
}
