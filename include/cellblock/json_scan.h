/* Strict, allocation-free JSON scan.
 *
 * Bytes from clients and guests are forwarded, not re-encoded; this scan is what makes that safe. It accepts exactly
 * RFC 8259 with: valid UTF-8 (no surrogates, no overlong forms), no lone \uD800–\uDFFF escapes, no NaN or Infinity, no
 * duplicate keys in any object (compared decoded), and the caps below. Time is linear in the input for any input. Not
 * thread-safe: one static table of live keys serves all calls (only the supervisor's main thread scans).
 */
#pragma once

#include <cellblock/buffer.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CB_JSON_MAX_DEPTH 256
#define CB_JSON_MAX_LIVE_KEYS 60000 /* keys of all objects open at one time */
#define CB_JSON_MAX_NUMBER 4300 /* characters; Python refuses to convert longer integers */

enum cb_json_type {
	CB_JSON_OBJECT = 1 << 0,
	CB_JSON_ARRAY = 1 << 1,
	CB_JSON_STRING = 1 << 2,
	CB_JSON_INTEGER = 1 << 3, /* a number without fraction and exponent */
	CB_JSON_REAL = 1 << 4,    /* any other number */
	CB_JSON_TRUE = 1 << 5,
	CB_JSON_FALSE = 1 << 6,
	CB_JSON_NULL = 1 << 7,

	CB_JSON_BOOL = CB_JSON_TRUE | CB_JSON_FALSE,
	CB_JSON_NUMBER = CB_JSON_INTEGER | CB_JSON_REAL,
	CB_JSON_ANY = 0xff,
};

/* A key of the top-level object that the caller wants. `name` is compared with the decoded key. */
struct cb_json_field {
	const char *name;
	unsigned types; /* allowed types, CB_JSON_* or'ed */
	bool required;
	bool forbidden;        /* an object with this key is refused (CB_E_DENIED) */
	unsigned elements;     /* for arrays: allowed types of elements; 0 = any */
	unsigned members;      /* for objects: allowed types of member values; 0 = any */
	struct cb_span ret;    /* out: raw bytes of the value, quotes included; data NULL if absent */
	enum cb_json_type ret_type;
};

struct cb_json_error {
	int code;           /* CB_E_SYNTAX, CB_E_TOO_BIG, CB_E_UNKNOWN (wrong type), CB_E_DENIED */
	size_t offset;      /* byte where it was noticed */
	const char *reason; /* static text, e.g. "duplicate key"; for field errors: what is wrong */
	const char *field;  /* name of the field concerned or NULL */
};

/* Scans any JSON value that fills the whole input. 0 or a negative code; *ret_type is its type. err may be NULL. */
int cb_json_scan(const void *data, size_t len, enum cb_json_type *ret_type, struct cb_json_error *err);

/* Scans an object and finds `fields` at its top level. Other keys are scanned and ignored. err may be NULL. */
int cb_json_scan_object(const void *data, size_t len, struct cb_json_field *fields, size_t nfields,
			struct cb_json_error *err);

/* Decodes a raw string value (quotes included, as in cb_json_field.ret; already scanned) and appends UTF-8 to out. */
int cb_json_string_decode(struct cb_span raw, struct cb_buf *out);

/* Whether a raw string value (already scanned) decodes to `text`. */
bool cb_json_string_is(struct cb_span raw, const char *text);

/* Value of a scanned integer; CB_E_TOO_BIG if it does not fit. */
int cb_json_int(struct cb_span raw, int64_t *ret_value);
/* Value of a scanned number. */
int cb_json_real(struct cb_span raw, double *ret_value);

/* Walks an array (a raw value, already scanned): *rest is the array at first, then what is behind the element that was
 * given. False at its end. */
bool cb_json_next_element(struct cb_span *rest, struct cb_span *ret_element);
