/* SHA-1, as git ends its index with, and as zygotes are named by what they were made of: a sum against accidents, no
 * proof of anything.
 *
 * Trust domain: whoever asks; the bytes of an index were chosen by hostile code. Pure, allocates nothing. The sandbox
 * links no library that has it.
 */
#include "sha1.h"

#include <stdint.h>
#include <string.h>

#define BLOCK 64u

static uint32_t turn(uint32_t x, unsigned n)
{
	return x << n | x >> (32 - n);
}

static uint32_t load(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store(unsigned char *p, uint32_t x)
{
	for (unsigned i = 0; i < 4; i++)
		p[i] = (unsigned char)(x >> (24 - 8 * i));
}

static uint32_t mix(unsigned round, uint32_t b, uint32_t c, uint32_t d)
{
	static const uint32_t added[] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };
	uint32_t f = round == 0 ? (b & c) | (~b & d) : round == 2 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;

	return f + added[round];
}

static void add_block(uint32_t h[5], const unsigned char block[BLOCK])
{
	uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];

	for (unsigned i = 0; i < 16; i++)
		w[i] = load(block + 4 * (size_t)i);
	for (unsigned i = 16; i < 80; i++)
		w[i] = turn(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	for (unsigned i = 0; i < 80; i++) {
		uint32_t next = turn(a, 5) + mix(i / 20, b, c, d) + e + w[i];

		e = d;
		d = c;
		c = turn(b, 30);
		b = a;
		a = next;
	}
	h[0] += a;
	h[1] += b;
	h[2] += c;
	h[3] += d;
	h[4] += e;
}

void cb_sha1(const void *data, size_t n, unsigned char ret[CB_SHA1])
{
	uint32_t h[5] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };
	unsigned char last[2 * BLOCK] = { 0 };
	const unsigned char *at = data;
	size_t left = n, blocks;

	for (; left >= BLOCK; left -= BLOCK, at += BLOCK)
		add_block(h, at);
	if (left > 0)
		memcpy(last, at, left);
	last[left] = 0x80;
	blocks = left + 9 > BLOCK ? 2 : 1;
	store(last + blocks * BLOCK - 8, (uint32_t)((uint64_t)n >> 29));
	store(last + blocks * BLOCK - 4, (uint32_t)((uint64_t)n << 3));
	for (size_t i = 0; i < blocks; i++)
		add_block(h, last + i * BLOCK);
	for (size_t i = 0; i < 5; i++)
		store(ret + 4 * i, h[i]);
}
