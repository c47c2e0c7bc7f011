/* Writing JSON text into a buffer.
 *
 * A writer appends to a buffer and sets the commas. Its first failure stays in `error` and nothing is written after it,
 * so that only cb_json_done is asked how it went:
 *
 *	struct cb_json j = cb_json_begin(&b);
 *
 *	cb_json_put(&j, "status", "ok", "size", size, "limit", NULL);
 *	cb_json_array(&j, "names");
 *	for (size_t i = 0; i < n; i++)
 *		cb_json_put(&j, NULL, name[i]);
 *	r = cb_json_done(&j);
 *
 * A key is the program's own and is not escaped; NULL is for what has none: an element, or JSON text that is put in as
 * it is. A value is written by its type: text (NULL is null), bool, integers, double, CB_ROUNDED, a span of JSON text
 * (an empty one is null), NULL. An int is refused by the compiler, for a comparison is one too: cast it to bool or to
 * long. Nothing is allocated beside the buffer.
 */
#pragma once

#include <cellblock/buffer.h>
#include <stdbool.h>

struct cb_json {
	struct cb_buf *out;
	size_t start;    /* what was appended from here on is taken back if it fails */
	int error;       /* the first failure; 0 = none */
	unsigned depth;  /* of what is open, at most 32 */
	uint32_t arrays; /* a bit for each of that, the innermost lowest: whether it is an array */
	bool comma;      /* whether one belongs before the next value */
	size_t brief;    /* for logs: text is cut at so many bytes, and what is null is left out; 0 = neither */
};

struct cb_json_rounded {
	double value;
	int digits; /* behind the point; negative: as many as matter */
};

#define CB_ROUNDED(value, digits) ((struct cb_json_rounded){ (value), (digits) })

/* Opens an object. */
struct cb_json cb_json_begin(struct cb_buf *out);
/* Opens nothing: what is written goes on in a buffer of members or elements, or is a value alone. */
struct cb_json cb_json_inside(struct cb_buf *out);
#define cb_json_object(j, key) cb_json_open(j, key, false)
#define cb_json_array(j, key) cb_json_open(j, key, true)
void cb_json_open(struct cb_json *j, const char *key, bool array);
void cb_json_end(struct cb_json *j); /* of the innermost that is open */
/* Ends all that is open. The first failure, with the buffer as it was before the writer began; else 0. */
int cb_json_done(struct cb_json *j);

void cb_json_put_text(struct cb_json *j, const char *key, const char *text, size_t len);
void cb_json_more_text(struct cb_json *j, const char *text, size_t len); /* behind the text that was put last */
void cb_json_put_cstr(struct cb_json *j, const char *key, const char *text);
void cb_json_put_number(struct cb_json *j, const char *key, bool negative, unsigned long long value);
void cb_json_put_rounded(struct cb_json *j, const char *key, struct cb_json_rounded value); /* null if not finite */
void cb_json_put_null(struct cb_json *j, const char *key, const void *null);
void cb_json_put_raw(struct cb_json *j, const char *key, struct cb_span value);
/* A key that is JSON text already; a value follows, without a key. */
void cb_json_raw_key(struct cb_json *j, struct cb_span key);

static inline void cb_json_put_int(struct cb_json *j, const char *key, long long value)
{
	cb_json_put_number(j, key, value < 0, value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value);
}

static inline void cb_json_put_uint(struct cb_json *j, const char *key, unsigned long long value)
{
	cb_json_put_number(j, key, false, value);
}

static inline void cb_json_put_real(struct cb_json *j, const char *key, double value)
{
	cb_json_put_rounded(j, key, CB_ROUNDED(value, -1));
}

static inline void cb_json_put_bool(struct cb_json *j, const char *key, bool value)
{
	cb_json_put_raw(j, key, value ? CB_SPAN("true") : CB_SPAN("false"));
}

/* clang-format off */
#define CB_JSON_PUT(j, key, value) _Generic((value), \
	char *: cb_json_put_cstr, const char *: cb_json_put_cstr, bool: cb_json_put_bool, \
	long: cb_json_put_int, long long: cb_json_put_int, unsigned: cb_json_put_uint, \
	unsigned long: cb_json_put_uint, unsigned long long: cb_json_put_uint, double: cb_json_put_real, \
	struct cb_json_rounded: cb_json_put_rounded, struct cb_span: cb_json_put_raw, \
	void *: cb_json_put_null)(j, key, value)
#define CB_JSON_PUT_1(j, key, value) CB_JSON_PUT(j, key, value)
#define CB_JSON_PUT_2(j, key, value, ...) CB_JSON_PUT(j, key, value), CB_JSON_PUT_1(j, __VA_ARGS__)
#define CB_JSON_PUT_3(j, key, value, ...) CB_JSON_PUT(j, key, value), CB_JSON_PUT_2(j, __VA_ARGS__)
#define CB_JSON_PUT_4(j, key, value, ...) CB_JSON_PUT(j, key, value), CB_JSON_PUT_3(j, __VA_ARGS__)
#define CB_JSON_PUT_5(j, key, value, ...) CB_JSON_PUT(j, key, value), CB_JSON_PUT_4(j, __VA_ARGS__)
#define CB_JSON_PUT_6(j, key, value, ...) CB_JSON_PUT(j, key, value), CB_JSON_PUT_5(j, __VA_ARGS__)
#define CB_JSON_PUT_7(j, key, value, ...) CB_JSON_PUT(j, key, value), CB_JSON_PUT_6(j, __VA_ARGS__)
#define CB_JSON_PUT_8(j, key, value, ...) CB_JSON_PUT(j, key, value), CB_JSON_PUT_7(j, __VA_ARGS__)
#define CB_JSON_PICK(k1, v1, k2, v2, k3, v3, k4, v4, k5, v5, k6, v6, k7, v7, k8, v8, name, ...) name

/* Up to eight members, (key, value) each. */
#define cb_json_put(j, ...) CB_JSON_PICK(__VA_ARGS__, CB_JSON_PUT_8, 0, CB_JSON_PUT_7, 0, CB_JSON_PUT_6, 0, \
	CB_JSON_PUT_5, 0, CB_JSON_PUT_4, 0, CB_JSON_PUT_3, 0, CB_JSON_PUT_2, 0, CB_JSON_PUT_1, 0)(j, __VA_ARGS__)
/* An object of these members alone: inside of another value, as the whole of a buffer (0 or negative), … */
#define cb_json_put_object(j, key, ...) (cb_json_object(j, key), cb_json_put(j, __VA_ARGS__), cb_json_end(j))
#define cb_json_write_object(buf, ...) \
	({ struct cb_json j_ = cb_json_begin(buf); cb_json_put(&j_, __VA_ARGS__); cb_json_done(&j_); })
/* … and as a small buffer on the stack, which is declared here and needs no release. */
#define CB_JSON_SMALL(name, ...) \
	uint8_t name##_bytes[512]; \
	struct cb_buf name = { .data = name##_bytes, .cap = sizeof(name##_bytes), .max = sizeof(name##_bytes) }; \
	(void)cb_json_write_object(&name, __VA_ARGS__)
/* clang-format on */

/* Appends `text` as a JSON string with quotes. Invalid UTF-8 becomes U+FFFD, control characters are escaped. */
int cb_json_write_string(struct cb_buf *out, const char *text, size_t len);
/* The same without the surrounding quotes, for text that is written piece by piece. */
int cb_json_write_escaped(struct cb_buf *out, const char *text, size_t len);
/* Length of the longest prefix of text[0..len) that does not end in the middle of a UTF-8 sequence (at most 3 bytes
 * short). */
size_t cb_utf8_complete_prefix(const char *text, size_t len);
