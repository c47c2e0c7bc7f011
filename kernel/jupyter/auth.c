/* HMAC signing and verification of Jupyter messages.
 *
 * Trust domain: supervisor; holds the session key. Called on raw frames before anything in them is parsed (channels.c)
 * and for every message that leaves (message.c). Invariants: the compare is constant-time over the full digest; a
 * signature is accepted once. The replay window is a ring of fixed size with a hash index over it: memory does not
 * grow.
 */
#include "auth.h"

#include <cellblock/error.h>
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdlib.h>

#define WINDOW 65536u /* signatures remembered, as many as jupyter_client does */
#define SLOTS (4 * WINDOW)
#define SEEN_BYTES 16 /* of each digest: more than enough to tell signatures apart */

struct seen {
	uint8_t digest[SEEN_BYTES];
};

struct cb_auth {
	EVP_MAC *mac;
	EVP_MAC_CTX *ctx; /* NULL: empty key */
	size_t digest_len;
	struct seen *ring; /* WINDOW entries, allocated at the first verification */
	uint32_t *slot;	   /* SLOTS entries: ring index + 1; 0 = free */
	uint64_t count;	   /* signatures ever remembered */
};

int cb_auth_new(const char *digest, const char *key, size_t key_len, struct cb_auth **ret_auth)
{
	struct cb_auth *a = calloc(1, sizeof(*a));

	if (a == NULL)
		return -ENOMEM;
	if (key_len > 0) {
		char name[32];
		OSSL_PARAM params[2];

		if (snprintf(name, sizeof(name), "%s", digest) >= (int)sizeof(name))
			goto fail;
		params[0] = OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0);
		params[1] = OSSL_PARAM_construct_end();
		a->mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
		a->ctx = a->mac != NULL ? EVP_MAC_CTX_new(a->mac) : NULL;
		if (a->ctx == NULL || EVP_MAC_init(a->ctx, (const unsigned char *)key, key_len, params) != 1)
			goto fail;
		a->digest_len = EVP_MAC_CTX_get_mac_size(a->ctx);
		if (a->digest_len < SEEN_BYTES || 2 * a->digest_len > CB_SIGNATURE_MAX)
			goto fail;
	}
	*ret_auth = a;
	return 0;
fail:
	cb_auth_free(a);
	return CB_E_UNKNOWN;
}

void cb_auth_free(struct cb_auth *a)
{
	if (a == NULL)
		return;
	EVP_MAC_CTX_free(a->ctx);
	EVP_MAC_free(a->mac);
	free(a->ring);
	free(a->slot);
	free(a);
}

static int digest_parts(struct cb_auth *a, const struct cb_span part[4], uint8_t *ret_digest)
{
	size_t n = 0;

	/* NULL key: start over with the key set at creation */
	if (EVP_MAC_init(a->ctx, NULL, 0, NULL) != 1)
		return -EIO;
	for (int i = 0; i < 4; i++)
		if (EVP_MAC_update(a->ctx, (const unsigned char *)part[i].data, part[i].len) != 1)
			return -EIO;
	return EVP_MAC_final(a->ctx, ret_digest, &n, CB_SIGNATURE_MAX / 2) == 1 ? 0 : -EIO;
}

int cb_auth_sign(struct cb_auth *a, const struct cb_span part[4], char *ret_hex, size_t *ret_len)
{
	static const char hex[] = "0123456789abcdef";
	uint8_t digest[CB_SIGNATURE_MAX / 2];

	*ret_len = 0;
	if (a->ctx == NULL)
		return 0;
	int r = digest_parts(a, part, digest);

	if (r < 0)
		return r;
	for (size_t i = 0; i < a->digest_len; i++) {
		ret_hex[2 * i] = hex[digest[i] >> 4];
		ret_hex[2 * i + 1] = hex[digest[i] & 15];
	}
	*ret_len = 2 * a->digest_len;
	return 0;
}

#define MARKED 8 /* bytes of a session that are chosen; the others follow */

/* What a message's HMAC runs over begins with a brace, so no message is signed by this. */
static int mark_of(struct cb_auth *a, const uint8_t *chosen, uint8_t ret_mark[16 - MARKED])
{
	struct cb_span part[4] = { CB_SPAN("session of a kernel"),
				   { (const char *)chosen, MARKED },
				   CB_SPAN(""),
				   CB_SPAN("") };
	uint8_t digest[CB_SIGNATURE_MAX / 2];
	int r = digest_parts(a, part, digest);

	if (r < 0)
		return r;
	memcpy(ret_mark, digest, 16 - MARKED);
	ret_mark[0] = (uint8_t)((ret_mark[0] & 0x3f) | 0x80); /* a UUID's variant */
	return 0;
}

int cb_auth_mark(struct cb_auth *a, uint8_t session[16])
{
	return a->ctx != NULL ? mark_of(a, session, session + MARKED) : 0;
}

/* A UUID in quotes to its bytes. */
static bool read_uuid(struct cb_span text, uint8_t ret_bytes[16])
{
	static const char form[] = "\"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx\"";
	size_t n = 0;

	if (text.data == NULL || text.len != sizeof(form) - 1)
		return false;
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.data[i];
		unsigned digit = c >= '0' && c <= '9'	? c - (unsigned)'0'
				 : c >= 'a' && c <= 'f' ? c - (unsigned)'a' + 10u
							: 16u;

		if (form[i] != 'x' ? c != (unsigned char)form[i] : digit > 15)
			return false;
		if (form[i] != 'x')
			continue;
		ret_bytes[n / 2] = (uint8_t)(n % 2 == 0 ? digit << 4 : ret_bytes[n / 2] | digit);
		n++;
	}
	return true;
}

bool cb_auth_is_marked(struct cb_auth *a, struct cb_span session)
{
	uint8_t bytes[16] = { 0 }, mark[16 - MARKED];

	return a->ctx != NULL && read_uuid(session, bytes) && mark_of(a, bytes, mark) == 0 &&
	       memcmp(mark, bytes + MARKED, sizeof(mark)) == 0;
}

static uint32_t slot_of(const uint8_t *digest)
{
	uint32_t h;

	memcpy(&h, digest, sizeof(h)); /* a digest is its own good hash: an attacker without the key can't choose it */
	return h % SLOTS;
}

/* Linear probing; entries are removed by closing the gap behind them, so that look-ups may stop at a free slot. */
static void forget(struct cb_auth *a, uint32_t index)
{
	uint32_t at = slot_of(a->ring[index].digest);

	while (a->slot[at] != index + 1)
		at = (at + 1) % SLOTS;
	for (uint32_t next = (at + 1) % SLOTS; a->slot[next] != 0; next = (next + 1) % SLOTS) {
		uint32_t home = slot_of(a->ring[a->slot[next] - 1].digest);

		/* may the entry at `next` move to `at`? only if its home is not between them */
		if ((next - home) % SLOTS >= (next - at) % SLOTS) {
			a->slot[at] = a->slot[next];
			at = next;
		}
	}
	a->slot[at] = 0;
}

/* CB_E_AUTH if the digest is in the window; otherwise it is remembered. */
static int remember(struct cb_auth *a, const uint8_t *digest)
{
	if (a->ring == NULL) {
		a->ring = calloc(WINDOW, sizeof(*a->ring));
		a->slot = calloc(SLOTS, sizeof(*a->slot));
		if (a->ring == NULL || a->slot == NULL) {
			free(a->ring);
			free(a->slot);
			a->ring = NULL;
			a->slot = NULL;
			return -ENOMEM;
		}
	}
	uint32_t at = slot_of(digest);

	for (; a->slot[at] != 0; at = (at + 1) % SLOTS)
		if (memcmp(a->ring[a->slot[at] - 1].digest, digest, SEEN_BYTES) == 0)
			return CB_E_AUTH;
	uint32_t index = (uint32_t)(a->count % WINDOW);

	if (a->count >= WINDOW) {
		forget(a, index);
		for (at = slot_of(digest); a->slot[at] != 0; at = (at + 1) % SLOTS)
			;
	}
	memcpy(a->ring[index].digest, digest, SEEN_BYTES);
	a->slot[at] = index + 1;
	a->count++;
	return 0;
}

int cb_auth_verify(struct cb_auth *a, const struct cb_span part[4], struct cb_span signature)
{
	uint8_t digest[CB_SIGNATURE_MAX / 2];
	char expected[CB_SIGNATURE_MAX];
	size_t n;

	if (a->ctx == NULL)
		return 0;
	int r = cb_auth_sign(a, part, expected, &n);

	if (r < 0)
		return r;
	if (signature.len != n || CRYPTO_memcmp(expected, signature.data, n) != 0)
		return CB_E_AUTH;
	for (size_t i = 0; i < SEEN_BYTES; i++) {
		unsigned hi = (unsigned char)expected[2 * i], lo = (unsigned char)expected[2 * i + 1];

		digest[i] =
			(uint8_t)((hi <= '9' ? hi - '0' : hi - 'a' + 10) << 4 | (lo <= '9' ? lo - '0' : lo - 'a' + 10));
	}
	return remember(a, digest);
}
