/* Growing byte buffer with a ceiling.
 *
 * Invariant: len <= cap <= max. A buffer never grows beyond `max`; an append that would is refused whole with
 * CB_E_TOO_BIG and leaves the buffer as it was. Out of memory is -ENOMEM, likewise without effect.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cb_buf {
	uint8_t *data; /* owned; NULL while cap is 0 */
	size_t len;
	size_t cap;
	size_t max;
};

#define CB_BUF_INIT(maximum) ((struct cb_buf){ .max = (maximum) })

void cb_buf_release(struct cb_buf *b); /* frees, keeps max; NULL allowed; may be called twice */
static inline void cb_buf_clear(struct cb_buf *b)
{
	b->len = 0;
}
int cb_buf_reserve(struct cb_buf *b, size_t more); /* room for `more` bytes behind len */
static inline int cb_buf_append(struct cb_buf *b, const void *data, size_t n)
{
	int r = n <= b->cap - b->len ? 0 : cb_buf_reserve(b, n);

	if (r < 0)
		return r;
	if (n > 0)
		memcpy(b->data + b->len, data, n);
	b->len += n;
	return 0;
}
int cb_buf_append_str(struct cb_buf *b, const char *s);
int cb_buf_printf(struct cb_buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cb_buf_consume(struct cb_buf *b, size_t n); /* drops the first n (<= len) bytes */

#define CB_AUTO_BUF __attribute__((cleanup(cb_buf_release))) struct cb_buf

/* Borrowed bytes. `data` is NULL only for "absent"; an empty span has a pointer. */
struct cb_span {
	const char *data;
	size_t len;
};

#define CB_SPAN(literal) ((struct cb_span){ (literal), sizeof(literal) - 1 })

static inline struct cb_span cb_buf_span(const struct cb_buf *b) /* what it holds now */
{
	return (struct cb_span){ (const char *)b->data, b->len };
}

/* FNV-1a, from CB_HASH or from a secret where who chooses the text could make many alike. */
#define CB_HASH 14695981039346656037u
static inline uint64_t cb_span_hash(struct cb_span s, uint64_t h)
{
	for (size_t i = 0; i < s.len; i++)
		h = (h ^ (unsigned char)s.data[i]) * 1099511628211u;
	return h;
}

static inline int cb_span_is(struct cb_span s, const char *text)
{
	return s.data != NULL && s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}
