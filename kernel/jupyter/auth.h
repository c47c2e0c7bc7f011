/* Message authentication: HMAC over the four JSON frames, constant-time verification, replay refused. Trust domain:
 * supervisor. */
#pragma once

#include <cellblock/buffer.h>
#include <stdbool.h>
#include <stdint.h>

#define CB_SIGNATURE_MAX 128 /* hex digits of the longest digest (64 bytes) */

struct cb_auth;

/* `digest` is libcrypto's name of the hash. An empty key switches signing and checking off, both ways. */
int cb_auth_new(const char *digest, const char *key, size_t key_len, struct cb_auth **ret_auth);
void cb_auth_free(struct cb_auth *a);

/* Signs header, parent header, metadata, content. ret_hex takes CB_SIGNATURE_MAX bytes; *ret_len is 0 with an empty
 * key. */
int cb_auth_sign(struct cb_auth *a, const struct cb_span part[4], char *ret_hex, size_t *ret_len);
/* 0, or CB_E_AUTH: absent, wrong, or seen before (the last 65536 are remembered). */
int cb_auth_verify(struct cb_auth *a, const struct cb_span part[4], struct cb_span signature);

/* Whoever listens on iopub gets messages that are signed: by us. They must not be taken for a client's, also not after
 * a restart with the same key. So our sessions are marked: the second half of their 16 bytes follows from the first and
 * the key. */
int cb_auth_mark(struct cb_auth *a, uint8_t session[16]);
/* Whether a raw JSON string is the UUID of a session that was marked with this key. Never with an empty one. */
bool cb_auth_is_marked(struct cb_auth *a, struct cb_span session);
