/* Fuzz target: the JSON scan, the values read from what it accepts, and the JSON writer.
 *
 * jansson is the second opinion: what we accept it must accept, but for the limits that it has and JSON has not; what
 * we call a syntax error it must refuse too. The first byte of an input plays no special part: a corpus file is plain
 * JSON.
 */
#include <cellblock/error.h>
#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>

#include <jansson.h>

#define CHECK(condition) \
	do {             \
		if (!(condition)) \
			abort(); \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compare(const uint8_t *data, size_t size, const struct cb_json_error *ours, int r)
{
	json_error_t error;
	json_t *theirs =
		json_loadb((const char *)data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);

	if (r == 0 && theirs == NULL) {
		enum json_error_code code = json_error_code(&error);

		CHECK(code == json_error_numeric_overflow || code == json_error_null_byte_in_key);
	}
	if (theirs != NULL && memchr(data, 0, size) == NULL) /* jansson passes over zero bytes */
		CHECK(r == 0 || ours->code == CB_E_TOO_BIG);
	json_decref(theirs);
}

/* A string, decoded and written again, is a valid string with the same value. */
static void check_string(struct cb_span raw)
{
	CB_AUTO_BUF decoded = CB_BUF_INIT(1u << 20);
	CB_AUTO_BUF written = CB_BUF_INIT(1u << 23);
	CB_AUTO_BUF again = CB_BUF_INIT(1u << 20);
	enum cb_json_type type = 0;

	CHECK(cb_json_string_decode(raw, &decoded) == 0);
	CHECK(cb_json_write_string(&written, (const char *)decoded.data, decoded.len) == 0);
	CHECK(cb_json_scan(written.data, written.len, &type, NULL) == 0 && type == CB_JSON_STRING);
	CHECK(cb_json_string_decode((struct cb_span){ (char *)written.data, written.len }, &again) == 0);
	CHECK(again.len == decoded.len && (again.len == 0 || memcmp(again.data, decoded.data, again.len) == 0));
	CHECK(cb_buf_append(&decoded, "", 1) == 0);
	if (strlen((char *)decoded.data) == decoded.len - 1)
		CHECK(cb_json_string_is(raw, (char *)decoded.data));
}

static void check_value(const struct cb_json_field *field)
{
	enum cb_json_type type = 0;
	int64_t integer = 0;
	double real = 0;

	if (field->ret.data == NULL)
		return;
	CHECK(cb_json_scan(field->ret.data, field->ret.len, &type, NULL) == 0 && type == field->ret_type);
	if (type == CB_JSON_STRING)
		check_string(field->ret);
	if (type == CB_JSON_INTEGER && cb_json_int(field->ret, &integer) == 0 && cb_json_real(field->ret, &real) == 0)
		CHECK((double)integer == real);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cb_json_field fields[] = {
		{ .name = "a", .types = CB_JSON_ANY },
		{ .name = "b", .types = CB_JSON_ARRAY | CB_JSON_STRING, .elements = CB_JSON_NUMBER, .required = true },
		{ .name = "c", .types = CB_JSON_OBJECT, .members = CB_JSON_STRING | CB_JSON_NULL },
		{ .name = "", .types = CB_JSON_ANY, .forbidden = true },
	};
	struct cb_json_error error = { 0 };
	enum cb_json_type type = 0;
	CB_AUTO_BUF written = CB_BUF_INIT(size * 6 + 2);
	int r = cb_json_scan(data, size, &type, &error);

	compare(data, size, &error, r);
	if (r == 0 && type == CB_JSON_STRING) {
		while (size > 0 && data[size - 1] != '"')
			size--;
		while (data[0] != '"')
			data++, size--;
		check_string((struct cb_span){ (const char *)data, size });
	}
	if (cb_json_scan_object(data, size, fields, 4, &error) == 0) {
		CHECK(r == 0 && type == CB_JSON_OBJECT && fields[1].ret.data != NULL && fields[3].ret.data == NULL);
		for (size_t i = 0; i < 4; i++)
			check_value(&fields[i]);
	}
	CHECK(cb_json_write_string(&written, (const char *)data, size) == 0);
	CHECK(cb_json_scan(written.data, written.len, &type, NULL) == 0 && type == CB_JSON_STRING);
	return 0;
}
