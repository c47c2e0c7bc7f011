/* Walks the elements of a scanned JSON array; the contract is in json_scan.h.
 *
 * Trust domain: supervisor. Relies on the scan: brackets are paired, strings end. Allocates nothing.
 */
#include <cellblock/json_scan.h>

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Behind the string that begins at p. */
static const char *skip_string(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		if (*p == '\\')
			p++;
	return p < end ? p + 1 : end;
}

bool cb_json_next_element(struct cb_span *rest, struct cb_span *ret_element)
{
	const char *p = rest->data, *end = rest->data + rest->len, *start;
	size_t depth = 0;

	if (p == end || *p == ']')
		return false;
	for (p++; p < end && is_space(*p);) /* the bracket, or the comma behind the last one */
		p++;
	if (p == end || *p == ']')
		return false;
	start = p;
	while (p < end && (depth > 0 || (*p != ',' && *p != ']'))) {
		if (*p == '"') {
			p = skip_string(p, end);
			continue;
		}
		depth += *p == '{' || *p == '[';
		depth -= *p == '}' || *p == ']';
		p++;
	}
	*rest = (struct cb_span){ p, (size_t)(end - p) };
	while (p > start && is_space(p[-1]))
		p--;
	*ret_element = (struct cb_span){ start, (size_t)(p - start) };
	return true;
}
