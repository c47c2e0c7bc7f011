/* Fuzz target: the walk over the elements of a scanned array.
 *
 * An input is JSON. What the scan finds to be an array is walked, and each array in it in its turn: as many elements as
 * jansson counts, each a whole value of the type that is said, inside the array and behind the one before.
 */
#include <cellblock/json_scan.h>

#include <jansson.h>

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			abort();                                                                                       \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(struct cb_span array, const json_t *theirs)
{
	struct cb_span rest = array, element = { NULL, 0 };
	const char *behind = array.data;
	enum cb_json_type scanned = 0;
	size_t n = 0;

	for (; cb_json_next_element(&rest, &element); n++) {
		CHECK(element.len > 0 && element.data > behind && rest.data >= element.data + element.len &&
		      rest.data + rest.len == array.data + array.len);
		behind = element.data + element.len - 1;
		CHECK(cb_json_scan(element.data, element.len, &scanned, NULL) == 0);
		if (scanned == CB_JSON_ARRAY)
			walk(element, theirs != NULL ? json_array_get(theirs, n) : NULL);
	}
	CHECK(theirs == NULL || json_array_size(theirs) == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum cb_json_type type = 0;

	while (size > 0 && (*data == ' ' || *data == '\t' || *data == '\n' || *data == '\r'))
		data++, size--;
	if (cb_json_scan(data, size, &type, NULL) < 0 || type != CB_JSON_ARRAY)
		return 0;
	while (data[size - 1] != ']')
		size--;
	json_t *theirs = json_loadb((const char *)data, size, JSON_ALLOW_NUL, NULL); /* NULL: limits of its own */

	walk((struct cb_span){ (const char *)data, size }, theirs);
	json_decref(theirs);
	return 0;
}
