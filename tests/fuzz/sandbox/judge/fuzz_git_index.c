/* Git's index, which a cell has written and git outside reads. What is accepted is read once more here, the simple way
 * that git reads it: no name leads into git's folder, and nothing but the hash follows the last entry.
 */
#include "../../../../sandbox/judge/judge.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t get(const uint8_t *p, unsigned n)
{
	uint32_t value = 0;

	while (n-- > 0)
		value = value << 8 | *p++;
	return value;
}

static void must(bool good)
{
	if (!good)
		abort();
}

static void check_name(const char *name, size_t len)
{
	must(len > 0 && strlen(name) == len && name[0] != '/' && name[len - 1] != '/');
	must(strstr(name, "//") == NULL && strstr(name, "/../") == NULL && strncmp(name, "../", 3) != 0);
	for (const char *at = name; at != NULL; at = strchr(at, '/')) {
		at += *at == '/';
		must(strncasecmp(at, ".git", 4) != 0 || (at[4] != '\0' && at[4] != '/'));
	}
}

/* As git's create_from_disk, which looks at no bounds; returns the entry's size. */
static size_t read_entry(const uint8_t *p, uint32_t version, char *last, size_t *last_len)
{
	uint32_t flags = get(p + 60, 2);
	size_t at = (flags & 0x4000) != 0 ? 64 : 62, keep = 0, len;
	const char *name;

	if (version == 4) {
		uint64_t strip = p[at] & 127;

		while ((p[at++] & 128) != 0)
			strip = (strip + 1) << 7 | (p[at] & 127);
		must(strip <= *last_len);
		keep = *last_len - strip;
	}
	name = (const char *)p + at;
	len = flags & 0xfff;
	if (len == 0xfff)
		len = strlen(name) + keep;
	must(len < PATH_MAX && len >= keep);
	memcpy(last + keep, name, len - keep);
	last[len] = '\0';
	must(name[len - keep] == '\0');
	*last_len = len;
	check_name(last, len);
	return version == 4 ? at + len - keep + 1 : (at + len + 8) & ~(size_t)7;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char last[PATH_MAX + 1];
	size_t at = 12, len = 0, n = size;
	uint8_t *copy = malloc(size > 0 ? size : 1);

	must(copy != NULL);
	if (size > 0)
		memcpy(copy, data, size);
	if (cb_judge_index(copy, &n) < 0) {
		free(copy);
		return 0;
	}
	must(n <= size);
	data = copy;
	for (uint32_t i = get(data + 8, 4); i > 0; i--)
		at += read_entry(data + at, get(data + 4, 4), last, &len);
	must(at + 20 == n); /* nothing but the hash follows */
	free(copy);
	return 0;
}
