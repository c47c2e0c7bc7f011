/* Message authentication: HMAC over the four JSON frames, constant-time verification, replay refused. Trust domain:
 * supervisor. */
#pragma once

#include <cellblock/buffer.h>
#include <stdbool.h>

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
