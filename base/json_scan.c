/* Strict, allocation-free JSON scan; the contract is in json_scan.h.
 *
 * Trust domain: supervisor. Clients and guests write the input, and what passes here is forwarded as it is: a mistake
 * here reaches every client. Called for all content and metadata that is not parsed by jansson. Invariants: no
 * recursion (an explicit stack of CB_JSON_MAX_DEPTH frames), no allocation, every byte is looked at a fixed number of
 * times, nothing is read at or past `end`. Functions that scan take the position and return the one behind what they
 * scanned, or NULL after fail().
 */
#include <cellblock/error.h>
#include <cellblock/json_scan.h>

#include "json_keys.h"
#include "utf8.h"

#include <errno.h>

#define TEXT_OF(x) #x
#define NUMBER_TEXT(x) TEXT_OF(x)

struct frame {
	bool is_object;
	uint16_t keys; /* live keys when it was opened */
};

struct scan {
	const uint8_t *begin, *end;
	unsigned depth; /* open containers; stack[depth - 1] is the innermost */
	struct frame stack[CB_JSON_MAX_DEPTH];

	struct cb_json_field *fields; /* of the top-level object */
	size_t nfields;
	struct cb_json_field *field; /* the field that the present top-level member is, or NULL */
	const uint8_t *value;        /* start of the present top-level member's value */
	unsigned inner;              /* types allowed one level further down */

	struct cb_json_error error;
};

static const uint8_t *fail(struct scan *s, const uint8_t *p, int code, const char *reason)
{
	s->error = (struct cb_json_error){.code = code,
					  .offset = (size_t)(p - s->begin),
					  .reason = reason,
					  .field = s->field != NULL ? s->field->name : NULL};
	return NULL;
}

static const uint8_t *bad(struct scan *s, const uint8_t *p, const char *reason)
{
	return fail(s, p, CB_E_SYNTAX, p == s->end ? "input ends too early" : reason);
}

static const uint8_t *skip_space(const struct scan *s, const uint8_t *p)
{
	while (p < s->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
		p++;
	return p;
}

/* ---- strings ---- */

static int hex_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* \uXXXX at p; its code in *ret_code. */
static const uint8_t *scan_unicode(struct scan *s, const uint8_t *p, unsigned *ret_code)
{
	unsigned code = 0;

	for (int i = 2; i < 6; i++) {
		int digit = s->end - p > i ? hex_digit(p[i]) : -1;

		if (digit < 0)
			return bad(s, s->end - p > i ? p + i : s->end, "\\u without four hex digits");
		code = code << 4 | (unsigned)digit;
	}
	*ret_code = code;
	return p + 6;
}

static const uint8_t *scan_escape(struct scan *s, const uint8_t *p)
{
	const uint8_t *start = p;
	unsigned code = 0;

	if (s->end - p < 2)
		return bad(s, s->end, NULL);
	switch (p[1]) {
	case '"':
	case '\\':
	case '/':
	case 'b':
	case 'f':
	case 'n':
	case 'r':
	case 't':
		return p + 2;
	case 'u':
		break;
	default:
		return bad(s, p + 1, "unknown escape");
	}
	p = scan_unicode(s, p, &code);
	if (p == NULL || code < 0xd800 || code > 0xdfff)
		return p;
	if (code > 0xdbff || s->end - p < 2 || p[0] != '\\' || p[1] != 'u')
		return fail(s, start, CB_E_SYNTAX, "lone surrogate");
	p = scan_unicode(s, p, &code);
	if (p != NULL && (code < 0xdc00 || code > 0xdfff))
		return fail(s, start, CB_E_SYNTAX, "lone surrogate");
	return p;
}

/* A string at its opening quote; *ret_escaped is set if it holds a backslash. */
static const uint8_t *scan_string(struct scan *s, const uint8_t *p, bool *ret_escaped)
{
	for (p++;;) {
		p = cb_plain_run(p, s->end);
		if (p == s->end)
			return bad(s, p, NULL);
		if (*p == '"')
			return p + 1;
		if (*p == '\\') {
			*ret_escaped = true;
			p = scan_escape(s, p);
			if (p == NULL)
				return NULL;
		} else if (*p < 0x20) {
			return bad(s, p, "control character in a string");
		} else {
			do {
				size_t n = cb_utf8_sequence(p, s->end);

				if (n == 0)
					return bad(s, p, "invalid UTF-8");
				p += n;
			} while (p < s->end && *p >= 0x80);
		}
	}
}

/* ---- numbers and names ---- */

static const uint8_t *skip_digits(const struct scan *s, const uint8_t *p)
{
	while (p < s->end && *p >= '0' && *p <= '9')
		p++;
	return p;
}

static const uint8_t *scan_digits(struct scan *s, const uint8_t *p)
{
	const uint8_t *after = skip_digits(s, p);

	return after > p ? after : bad(s, p, "number without a digit where one must be");
}

/* Past the largest double, clients would read Infinity. Only long numbers and large exponents are worth converting. */
static const uint8_t *check_real(struct scan *s, const uint8_t *start, const uint8_t *p, bool may_be_large)
{
	double ignored;
	struct cb_span raw = { (const char *)start, (size_t)(p - start) };

	if (may_be_large && cb_json_real(raw, &ignored) < 0)
		return fail(s, start, CB_E_SYNTAX, "number larger than the largest double");
	return p;
}

static const uint8_t *scan_number(struct scan *s, const uint8_t *p, enum cb_json_type *ret_type)
{
	const uint8_t *start = p, *digits;
	bool is_real = false, may_be_large = false;

	if (*p == '-')
		p++;
	digits = p;
	p = scan_digits(s, p);
	if (p == NULL)
		return NULL;
	if (*digits == '0' && p - digits > 1)
		return bad(s, digits, "number with a leading zero");
	if (p < s->end && *p == '.') {
		is_real = true;
		p = scan_digits(s, p + 1);
		if (p == NULL)
			return NULL;
	}
	if (p < s->end && (*p | 0x20) == 'e') {
		const uint8_t *exponent = ++p;

		is_real = true;
		if (p < s->end && (*p == '+' || *p == '-'))
			p++;
		p = scan_digits(s, p);
		if (p == NULL)
			return NULL;
		may_be_large = p - exponent > 2;
	}
	if (p - start > CB_JSON_MAX_NUMBER)
		return fail(s, start, CB_E_TOO_BIG,
			    "number longer than " NUMBER_TEXT(CB_JSON_MAX_NUMBER) " characters");
	*ret_type = is_real ? CB_JSON_REAL : CB_JSON_INTEGER;
	return is_real ? check_real(s, start, p, may_be_large || p - start > 200) : p;
}

static const uint8_t *scan_name(struct scan *s, const uint8_t *p, enum cb_json_type *ret_type)
{
	static const struct {
		const char *text;
		size_t len;
		enum cb_json_type type;
	} names[] = { { "true", 4, CB_JSON_TRUE }, { "false", 5, CB_JSON_FALSE }, { "null", 4, CB_JSON_NULL } };
	size_t left = (size_t)(s->end - p);

	for (size_t i = 0; i < CB_COUNT(names); i++) {
		if (*p != (uint8_t)names[i].text[0])
			continue;
		if (left < names[i].len && memcmp(p, names[i].text, left) == 0)
			return bad(s, s->end, NULL);
		if (left >= names[i].len && memcmp(p, names[i].text, names[i].len) == 0) {
			*ret_type = names[i].type;
			return p + names[i].len;
		}
	}
	return bad(s, p, "not a JSON value");
}

/* ---- fields of the top-level object ---- */

/* Whether a top-level member's value or, one level down, an element of it has a type that the field allows. */
static bool is_allowed(struct scan *s, const uint8_t *p, enum cb_json_type type)
{
	if (s->depth == 1 && s->field != NULL && (type & s->field->types) == 0) {
		fail(s, p, CB_E_UNKNOWN, "wrong type");
		return false;
	}
	if (s->depth == 2 && (type & s->inner) == 0) {
		fail(s, p, CB_E_UNKNOWN, "wrong type inside");
		return false;
	}
	return true;
}

static void begin_member(struct scan *s, const uint8_t *p, enum cb_json_type type)
{
	unsigned inner = 0;

	s->value = p;
	if (s->field != NULL) {
		s->field->ret_type = type;
		inner = type == CB_JSON_OBJECT ? s->field->members : s->field->elements;
	}
	s->inner = inner != 0 ? inner : CB_JSON_ANY;
}

static void end_member(struct scan *s, const uint8_t *p)
{
	if (s->field != NULL)
		s->field->ret = (struct cb_span){ (const char *)s->value, (size_t)(p - s->value) };
	s->field = NULL;
}

static bool find_field(struct scan *s, struct cb_span raw, bool escaped)
{
	for (size_t i = 0; i < s->nfields; i++) {
		struct cb_json_field *f = &s->fields[i];
		struct cb_span inside = { raw.data + 1, raw.len - 2 };

		if (escaped ? !cb_json_string_is(raw, f->name) : !cb_span_is(inside, f->name))
			continue;
		s->field = f;
		if (f->forbidden)
			fail(s, (const uint8_t *)raw.data, CB_E_DENIED, "forbidden key");
		return !f->forbidden;
	}
	return true;
}

/* ---- containers ---- */

/* A key at p, with its colon; returns the start of the value. */
static const uint8_t *scan_key(struct scan *s, const uint8_t *p)
{
	const uint8_t *start = p;
	bool escaped = false;
	size_t len;
	int r;

	if (p == s->end || *p != '"')
		return bad(s, p, "expected a key");
	p = scan_string(s, p, &escaped);
	if (p == NULL)
		return NULL;
	len = (size_t)(p - start);
	r = cb_json_keys_add((struct cb_span){ (const char *)start + 1, len - 2 }, escaped, s->depth);
	if (r == -EEXIST)
		return fail(s, start, CB_E_SYNTAX, "duplicate key");
	if (r < 0)
		return fail(s, start, CB_E_TOO_BIG,
			    "more than " NUMBER_TEXT(CB_JSON_MAX_LIVE_KEYS) " keys in the objects open at one time");
	if (s->depth == 1 && !find_field(s, (struct cb_span){ (const char *)start, len }, escaped))
		return NULL;
	p = skip_space(s, p);
	if (p == s->end || *p != ':')
		return bad(s, p, "expected a colon");
	return skip_space(s, p + 1);
}

static const uint8_t *scan_scalar(struct scan *s, const uint8_t *p, enum cb_json_type *ret_type)
{
	bool ignored;

	if (*p == '"') {
		*ret_type = CB_JSON_STRING;
		return scan_string(s, p, &ignored);
	}
	if (*p == '-' || (*p >= '0' && *p <= '9'))
		return scan_number(s, p, ret_type);
	return scan_name(s, p, ret_type);
}

static const uint8_t *open_container(struct scan *s, const uint8_t *p)
{
	if (s->depth == CB_JSON_MAX_DEPTH)
		return fail(s, p, CB_E_TOO_BIG, "nested deeper than " NUMBER_TEXT(CB_JSON_MAX_DEPTH));
	s->stack[s->depth++] = (struct frame){ .is_object = *p == '{', .keys = (uint16_t)cb_json_keys_mark() };
	return skip_space(s, p + 1);
}

static void close_container(struct scan *s, const uint8_t *after)
{
	cb_json_keys_drop(s->stack[--s->depth].keys);
	if (s->depth == 1)
		end_member(s, after);
}

/* Behind a value: closes what ends here; returns the start of the next value, or with depth 0 the end of the whole. */
static const uint8_t *go_on(struct scan *s, const uint8_t *p)
{
	while (s->depth > 0) {
		bool is_object = s->stack[s->depth - 1].is_object;

		p = skip_space(s, p);
		if (p < s->end && *p == ',') {
			p = skip_space(s, p + 1);
			return is_object ? scan_key(s, p) : p;
		}
		if (p == s->end || *p != (is_object ? '}' : ']'))
			return bad(s, p, is_object ? "expected a comma or }" : "expected a comma or ]");
		close_container(s, ++p);
	}
	return p;
}

/* A value with all that is in it, without recursion. */
static const uint8_t *scan_whole(struct scan *s, const uint8_t *p, enum cb_json_type *ret_type)
{
	do {
		const uint8_t *start = p;
		enum cb_json_type type = CB_JSON_NULL;
		bool is_container;

		if (p == s->end)
			return bad(s, p, NULL);
		is_container = *p == '{' || *p == '[';
		if (is_container)
			type = *p == '{' ? CB_JSON_OBJECT : CB_JSON_ARRAY;
		else
			p = scan_scalar(s, p, &type);
		if (p == NULL || (s->depth <= 2 && !is_allowed(s, start, type)))
			return NULL;
		if (s->depth == 0)
			*ret_type = type;
		else if (s->depth == 1)
			begin_member(s, start, type);
		if (!is_container) {
			if (s->depth == 1)
				end_member(s, p);
			p = go_on(s, p);
			continue;
		}
		p = open_container(s, p);
		if (p == NULL)
			return NULL;
		if (p < s->end && *p == (type == CB_JSON_OBJECT ? '}' : ']')) {
			close_container(s, ++p);
			p = go_on(s, p);
		} else if (type == CB_JSON_OBJECT) {
			p = scan_key(s, p);
		}
	} while (p != NULL && s->depth > 0);
	return p;
}

/* ---- entry points ---- */

static int run(struct scan *s, enum cb_json_type *ret_type)
{
	const uint8_t *p = scan_whole(s, skip_space(s, s->begin), ret_type);

	cb_json_keys_drop(0);
	if (p != NULL) {
		p = skip_space(s, p);
		if (p != s->end)
			p = bad(s, p, "something behind the value");
	}
	return p != NULL ? 0 : s->error.code;
}

static void start(struct scan *s, const void *data, size_t len)
{
	s->begin = data != NULL ? data : (const void *)"";
	s->end = s->begin + (data != NULL ? len : 0);
	s->inner = CB_JSON_ANY;
}

int cb_json_scan(const void *data, size_t len, enum cb_json_type *ret_type, struct cb_json_error *err)
{
	struct scan s = { 0 };
	enum cb_json_type type = CB_JSON_NULL;
	int r;

	start(&s, data, len);
	r = run(&s, &type);
	if (r == 0 && ret_type != NULL)
		*ret_type = type;
	if (r < 0 && err != NULL)
		*err = s.error;
	return r;
}

static int check_required(struct scan *s)
{
	for (size_t i = 0; i < s->nfields; i++) {
		if (!s->fields[i].required || s->fields[i].ret.data != NULL)
			continue;
		s->field = &s->fields[i];
		fail(s, s->end, CB_E_UNKNOWN, "required key missing");
		return s->error.code;
	}
	return 0;
}

int cb_json_scan_object(const void *data, size_t len, struct cb_json_field *fields, size_t nfields,
			struct cb_json_error *err)
{
	struct scan s = { .fields = fields, .nfields = nfields };
	enum cb_json_type type = CB_JSON_NULL;
	int r;

	start(&s, data, len);
	for (size_t i = 0; i < nfields; i++)
		fields[i].ret = (struct cb_span){ 0 };
	r = run(&s, &type);
	if (r == 0 && type != CB_JSON_OBJECT) {
		fail(&s, s.begin, CB_E_UNKNOWN, "not an object");
		r = s.error.code;
	}
	if (r == 0)
		r = check_required(&s);
	if (r < 0) {
		for (size_t i = 0; i < nfields; i++)
			fields[i].ret = (struct cb_span){ 0 };
		if (err != NULL)
			*err = s.error;
	}
	return r;
}
