/* What git's references may be called, and what may be in them: see parts.h.
 *
 * Trust domain: whoever judges; every byte was chosen by hostile code. Pure, allocates nothing.
 *
 * Git believes its references: where one names another (HEAD does, and any other may) git writes that one, its lock and
 * its log, and joins the name to its folder's as it is. So a name may be here only if `git check-ref-format` would let
 * it in, and only below refs: it then leads to no other place. What git does not write itself is refused.
 */
#include "parts.h"

#include <string.h>

#define HEX_SHORT 40u /* of SHA-1, and of SHA-256 */
#define HEX_LONG 64u

static const char below[] = "refs/";
static const char leads[] = "ref: ";

/* ---- names ---- */

static bool is_plain(unsigned char c)
{
	return c > ' ' && c != 0x7f && strchr("~^:?*[\\", c) == NULL;
}

static bool is_component(const char *s, size_t n)
{
	if (n == 0 || n > NAME_MAX || s[0] == '.' || (n >= 5 && memcmp(s + n - 5, ".lock", 5) == 0))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!is_plain((unsigned char)s[i]))
			return false;
		if (i > 0 && ((s[i - 1] == '.' && s[i] == '.') || (s[i - 1] == '@' && s[i] == '{')))
			return false;
	}
	return true;
}

bool cb_ref_is_name(const char *name, size_t n)
{
	size_t at = sizeof(below) - 1;

	if (n >= PATH_MAX || n <= at || memcmp(name, below, at) != 0 || name[n - 1] == '.')
		return false;
	for (;;) {
		const char *slash = memchr(name + at, '/', n - at);
		size_t k = slash != NULL ? (size_t)(slash - name) - at : n - at;

		if (!is_component(name + at, k))
			return false;
		if (slash == NULL)
			return true;
		at += k + 1;
	}
}

/* ---- contents ---- */

static bool is_hex(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
			return false;
	return n == HEX_SHORT || n == HEX_LONG;
}

bool cb_ref_is_content(const char *data, size_t n)
{
	size_t k = sizeof(leads) - 1;

	if (n == 0 || data[--n] != '\n')
		return false;
	if (n > k && memcmp(data, leads, k) == 0)
		return cb_ref_is_name(data + k, n - k);
	return is_hex(data, n);
}

/* "object name", or "^object" for what the tag of the line before leads to. */
static bool is_line(const char *line, size_t n, bool after)
{
	const char *space = memchr(line, ' ', n);
	size_t k = space != NULL ? (size_t)(space - line) : n;

	if (n > 0 && line[0] == '^')
		return after && is_hex(line + 1, n - 1);
	return k < n && is_hex(line, k) && cb_ref_is_name(line + k + 1, n - k - 1);
}

bool cb_ref_is_packed(const char *data, size_t n)
{
	bool after = false;

	for (size_t at = 0; at < n;) {
		const char *end = memchr(data + at, '\n', n - at);
		size_t k = end != NULL ? (size_t)(end - data) - at : 0;

		if (end == NULL || (!(at == 0 && k > 0 && data[0] == '#') && !is_line(data + at, k, after)))
			return false;
		after = data[at] != '^' && data[at] != '#';
		at += k + 1;
	}
	return true;
}
