/* Names as file systems may understand them: see parts.h.
 *
 * Trust domain: whoever judges; the names were chosen by hostile code. Pure, allocates nothing.
 *
 * A workspace may lie on a file system that folds case, or be copied to one, and some of these pass over characters
 * altogether. What is protected on one of them is protected on all: so names are compared folded. Folded are ASCII
 * letters, the few others that become ASCII ones, characters that are passed over (what git's is_hfs_dotgit knows, and
 * Unicode's default ignorables), and what Windows cuts off: dots and blanks at the end, and all from a ':' or '\' on.
 */
#include "parts.h"

#include <fnmatch.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

static const struct folding {
	uint32_t first, last;
	const char *to;
} foldings[] = {
	{ 0xad, 0xad, "" },	{ 0xdf, 0xdf, "ss" },	   { 0x17f, 0x17f, "s" },     { 0x34f, 0x34f, "" },
	{ 0x61c, 0x61c, "" },	{ 0x115f, 0x1160, "" },	   { 0x17b4, 0x17b5, "" },    { 0x180b, 0x180f, "" },
	{ 0x1e9e, 0x1e9e, "ss" }, { 0x200b, 0x200f, "" },  { 0x202a, 0x202e, "" },    { 0x2060, 0x206f, "" },
	{ 0x212a, 0x212a, "k" }, { 0x3164, 0x3164, "" },   { 0xfb00, 0xfb00, "ff" },  { 0xfb01, 0xfb01, "fi" },
	{ 0xfb02, 0xfb02, "fl" }, { 0xfb03, 0xfb03, "ffi" }, { 0xfb04, 0xfb04, "ffl" }, { 0xfb05, 0xfb06, "st" },
	{ 0xfe00, 0xfe0f, "" }, { 0xfeff, 0xfeff, "" },	   { 0xffa0, 0xffa0, "" },    { 0xfff0, 0xfff8, "" },
	{ 0x1bca0, 0x1bca3, "" }, { 0x1d173, 0x1d17a, "" }, { 0xe0000, 0xe0fff, "" },
};

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* The character at s and its length; 0 if it is no UTF-8. */
static size_t decode(const unsigned char *s, size_t n, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	uint32_t c = s[0] & (0x7fu >> len);

	if (s[0] < 0xc0 || s[0] > 0xf7 || len > n)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	*ret = c;
	return c >= least[len] ? len : 0;
}

/* A character outside ASCII. No fold is longer than what it stands for. */
static size_t fold_wide(const char *name, size_t n, char *out, size_t *ret_written)
{
	uint32_t c = 0;
	size_t len = decode((const unsigned char *)name, n, &c);

	for (size_t i = 0; len > 0 && i < CB_COUNT(foldings); i++) {
		if (c >= foldings[i].first && c <= foldings[i].last) {
			*ret_written = strlen(foldings[i].to);
			memcpy(out, foldings[i].to, *ret_written);
			return len;
		}
	}
	len = len > 0 ? len : 1;
	memcpy(out, name, len);
	*ret_written = len;
	return len;
}

size_t cb_name_fold(const char *name, size_t n, char *out)
{
	size_t have = 0;

	for (size_t i = 0; i < n && name[i] != ':' && name[i] != '\\';) {
		size_t written = 1;

		if ((unsigned char)name[i] < 0x80)
			out[have] = lower(name[i++]);
		else
			i += fold_wide(name + i, n - i, out + have, &written);
		have += written;
	}
	while (have > 0 && (out[have - 1] == '.' || out[have - 1] == ' '))
		have--;
	out[have] = '\0';
	return have;
}

static bool is_special(char c)
{
	return c == '*' || c == '?';
}

static bool has_special(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_special(s[i]))
			return true;
	return false;
}

bool cb_name_is_glob(const char *pattern)
{
	return strpbrk(pattern, "*?") != NULL;
}

static bool glob_fits(const char *pattern, size_t p, const char *name, size_t n)
{
	char glob[2 * PATH_MAX], text[NAME_MAX + 1];
	size_t have = 0;

	if (pattern[0] == '*' && !has_special(pattern + 1, p - 1)) /* the usual one, at a tenth of the cost */
		return n >= p - 1 && strncasecmp(pattern + 1, name + n - (p - 1), p - 1) == 0;
	if (2 * p >= sizeof(glob) || n >= sizeof(text))
		return true; /* longer than any name: never let through */
	for (size_t i = 0; i < p; i++) { /* to fnmatch more is special than to us */
		if (pattern[i] == '[' || pattern[i] == '\\')
			glob[have++] = '\\';
		glob[have++] = pattern[i];
	}
	glob[have] = '\0';
	memcpy(text, name, n);
	text[n] = '\0';
	return fnmatch(glob, text, FNM_CASEFOLD) == 0;
}

static bool part_fits(const char *pattern, size_t p, const char *name, size_t n)
{
	if (has_special(pattern, p))
		return glob_fits(pattern, p, name, n);
	return p == n && strncasecmp(pattern, name, n) == 0;
}

/* Cheap, and true for nearly every pair. */
static bool begins_otherwise(const char *pattern, const char *at)
{
	return !is_special(*pattern) && lower(*pattern) != lower(*at);
}

enum cb_fit cb_name_fits(const char *pattern, const char *at, const char *folded, const char **ret_rest)
{
	if (begins_otherwise(pattern, at) && begins_otherwise(pattern, folded))
		return CB_FIT_NONE;
	for (;;) {
		size_t p = strcspn(pattern, "/"), n = strcspn(at, "/"), f = strcspn(folded, "/");

		if (!part_fits(pattern, p, at, n) && !part_fits(pattern, p, folded, f))
			return CB_FIT_NONE;
		if (pattern[p] == '\0')
			return CB_FIT_ALL;
		if (at[n] == '\0') {
			*ret_rest = pattern + p + 1;
			return CB_FIT_HEAD;
		}
		pattern += p + 1;
		at += n + 1;
		folded += f + 1;
	}
}

bool cb_name_among(const char *at, size_t n, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(list[i]) == n && memcmp(at, list[i], n) == 0)
			return true;
	return false;
}
