/* What a git index may hold: see judge.h.
 *
 * Trust domain: whoever judges; every byte of the index was chosen by hostile code. Reads what it is given and, for a
 * file, the configuration beside it, which cells can't write. Writes nothing.
 *
 * Git believes its index: it does not look at the names in it again when it writes files from it. So what is accepted
 * has one meaning to everybody who reads it, and only names that git itself would have let in: versions 2, 3 and 4, in
 * order, with no entry below another that is no folder. Extensions that change what the entries mean (link, sdir) are
 * refused. The others are taken out: git believes them, too, and commits the trees that TREE names instead of the
 * entries, but does without them. So the hash at the end is made anew.
 */
#include "../shared/sha1.h"
#include "parts.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HASH CB_SHA1 /* of objects and at the end */
#define HEADER 12u   /* "DIRC", version, number of entries */
#define MODE_AT 24u
#define FLAGS_AT (40u + HASH)
#define NAME_MASK 0xfffu
#define EXTENDED 0x4000u
#define EXTENDED_KNOWN 0x6000u /* intent to add, skip worktree */
#define STAGE_SHIFT 12
#define GITLINK 0160000u
#define PATHS_MAX (1ull << 30) /* bytes of all names: version 4 makes much of little */
#define CONFIG_MAX (1u << 20)

struct index {
	const unsigned char *data;
	size_t at, end; /* end: where the hash begins */
	uint32_t version;
	uint64_t paths;
	/* the last entry's, and for each beginning of it the stages in which there is an entry of that name */
	char path[PATH_MAX];
	unsigned char stages[PATH_MAX];
	size_t len;
	unsigned stage;
};

static uint32_t get32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint32_t get16(const unsigned char *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

/* ---- names ---- */

/* Git reads it for the submodules' settings, and never through a link. */
static bool is_modules(const char *folded)
{
	return strcmp(folded, ".gitmodules") == 0 || strncmp(folded, "gitmod~", 7) == 0 ||
	       strncmp(folded, "gi7eba~", 7) == 0;
}

/* A backslash separates, too, where the index may be copied to. */
static bool is_component(const char *s, size_t n, bool link)
{
	char folded[NAME_MAX + 1];

	if (n == 0 || n > NAME_MAX || (n == 1 && s[0] == '.'))
		return false;
	for (;;) {
		const char *next = memchr(s, '\\', n);
		size_t k = next != NULL ? (size_t)(next - s) : n;
		size_t f = cb_name_fold(s, k, folded);

		if ((k == 2 && s[0] == '.' && s[1] == '.') || cb_git_is_dot(folded, f) || (link && is_modules(folded)))
			return false;
		if (next == NULL)
			return true;
		s += k + 1;
		n -= k + 1;
	}
}

static bool is_path(const char *path, size_t n, bool link)
{
	for (;;) {
		const char *slash = memchr(path, '/', n);
		size_t k = slash != NULL ? (size_t)(slash - path) : n;

		if (!is_component(path, k, link))
			return false;
		if (slash == NULL)
			return true;
		path += k + 1;
		n -= k + 1;
	}
}

/* After the last one, as git sorts: by bytes, then by stage. `same`: bytes that both begin with. */
static bool is_next(const struct index *x, const char *path, size_t n, size_t same, unsigned stage)
{
	if (same == x->len && same == n)
		return x->stage > 0 && stage > x->stage;
	if (same == x->len || same == n)
		return same == x->len;
	return (unsigned char)path[same] > (unsigned char)x->path[same];
}

/* Takes the name of the next entry: `keep` bytes of the last one's, then n at `rest`. */
static bool take_name(struct index *x, size_t keep, const char *rest, size_t n, uint32_t mode, unsigned stage)
{
	char path[PATH_MAX];
	size_t len = keep + n, same = keep;

	x->paths += len;
	if (len >= sizeof(path) || x->paths > PATHS_MAX)
		return false;
	memcpy(path, x->path, keep);
	memcpy(path + keep, rest, n);
	while (same < x->len && same < len && path[same] == x->path[same])
		same++;
	if (!is_path(path, len, S_ISLNK(mode)) || !is_next(x, path, len, same, stage))
		return false;
	memset(x->stages + same + 1, 0, x->len - same);
	for (size_t i = 0; i < len; i++)
		if (path[i] == '/' && (x->stages[i] >> stage & 1) != 0)
			return false; /* below what is no folder: a link, say */
	memcpy(x->path, path, len);
	x->len = len;
	x->stage = stage;
	x->stages[len] = (unsigned char)(x->stages[len] | 1u << stage);
	return true;
}

/* ---- entries ---- */

/* Git's: each further byte adds one more, so that there is one way to write a number. */
static bool take_number(struct index *x, size_t max, size_t *ret)
{
	size_t value = 0;

	for (;;) {
		unsigned char c;

		if (x->at >= x->end)
			return false;
		c = x->data[x->at++];
		value = value << 7 | (c & 0x7f);
		if (value > max)
			return false;
		if ((c & 0x80) == 0) {
			*ret = value;
			return true;
		}
		value++;
	}
}

static bool take_padding(struct index *x, size_t start)
{
	size_t stop = start + ((x->at - start + 8) & ~(size_t)7);

	if (stop > x->end)
		return false;
	while (x->at < stop)
		if (x->data[x->at++] != 0)
			return false;
	return true;
}

static bool take_entry(struct index *x)
{
	size_t start = x->at, strip = 0, keep = 0, n;
	const unsigned char *entry = x->data + start, *nul;
	uint32_t mode, flags;

	if (x->end - start < FLAGS_AT + 4) /* and a name's first byte and its end, or more flags */
		return false;
	mode = get32(entry + MODE_AT);
	flags = get16(entry + FLAGS_AT);
	x->at += FLAGS_AT + 2;
	if (mode > UINT16_MAX || (!S_ISREG(mode) && !S_ISLNK(mode) && (mode & S_IFMT) != GITLINK))
		return false;
	if ((flags & EXTENDED) != 0) {
		if (x->version < 3 || (get16(entry + FLAGS_AT + 2) & ~EXTENDED_KNOWN) != 0)
			return false;
		x->at += 2;
	}
	if (x->version == 4) {
		if (!take_number(x, x->len, &strip))
			return false;
		keep = x->len - strip;
	}
	nul = memchr(x->data + x->at, 0, x->end - x->at);
	if (nul == NULL)
		return false;
	n = (size_t)(nul - x->data) - x->at;
	if (keep + n < NAME_MASK ? (flags & NAME_MASK) != keep + n : (flags & NAME_MASK) != NAME_MASK)
		return false;
	if (!take_name(x, keep, (const char *)x->data + x->at, n, mode, flags >> STAGE_SHIFT & 3))
		return false;
	x->at += n;
	if (x->version < 4)
		return take_padding(x, start);
	x->at++;
	return true;
}

/* ---- what follows ---- */

/* Up to the hash without a gap; what git may pass over begins with a capital. */
static bool take_extensions(struct index *x)
{
	while (x->at < x->end) {
		const unsigned char *head = x->data + x->at;
		uint32_t n;

		if (x->end - x->at < 8 || head[0] < 'A' || head[0] > 'Z')
			return false;
		n = get32(head + 4);
		x->at += 8;
		if (n > x->end - x->at)
			return false;
		x->at += n;
	}
	return true;
}

/* Git looks for it from the end, before it reads anything else: it lies 24 bytes before the hash, with its header 32.
 * Whatever else these bytes are a part of, and whichever hash is meant. */
static bool has_end_mark(const unsigned char *data, size_t n)
{
	static const size_t places[] = { 20 + 32, 32 + 32, 20 + 44, 32 + 44 };

	for (size_t i = 0; i < CB_COUNT(places); i++)
		if (n >= places[i] && memcmp(data + n - places[i], "EOIE", 4) == 0)
			return true;
	return false;
}

int cb_judge_index(void *data, size_t *n)
{
	struct index x = { .data = data, .at = HEADER };
	size_t entries_end;
	uint32_t entries;

	if (*n < HEADER + HASH || memcmp(data, "DIRC", 4) != 0)
		return -EROFS;
	x.end = *n - HASH;
	x.version = get32(x.data + 4);
	entries = get32(x.data + 8);
	if (x.version < 2 || x.version > 4)
		return -EROFS;
	for (uint32_t i = 0; i < entries; i++)
		if (!take_entry(&x))
			return -EROFS;
	entries_end = x.at;
	if (!take_extensions(&x))
		return -EROFS;
	cb_sha1(data, entries_end, (unsigned char *)data + entries_end);
	if (has_end_mark(data, entries_end + HASH))
		return -EROFS;
	*n = entries_end + HASH;
	return 0;
}

/* ---- of a repository ---- */

/* The folder whose configuration counts: a worktree names another. Relative to `folder`. */
static int find_config(int folder, char path[PATH_MAX + 16])
{
	CB_AUTO_FD fd = openat(folder, "commondir", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	char *text = NULL;
	size_t n = 0;
	int r;

	if (fd < 0 && errno != ENOENT)
		return -errno;
	snprintf(path, PATH_MAX + 16, "config");
	if (fd < 0)
		return 0;
	r = cb_fd_read_all(fd, PATH_MAX - 1, &text, &n);
	if (r == 0) {
		while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
			n--;
		if (n == 0)
			r = -EINVAL;
		snprintf(path, PATH_MAX + 16, "%.*s/config", (int)n, text);
	}
	free(text);
	return r;
}

static bool names_format(const char *text, size_t n)
{
	static const char key[] = "objectformat";

	for (size_t i = 0; i + sizeof(key) - 1 <= n; i++)
		if (strncasecmp(text + i, key, sizeof(key) - 1) == 0)
			return true;
	return false;
}

/* Objects have names of another length where the configuration says so: then the same bytes are other entries. */
int cb_index_format(int folder)
{
	char path[PATH_MAX + 16];
	CB_AUTO_FD fd = -1;
	char *text = NULL;
	size_t n = 0;
	int r = find_config(folder, path);

	if (r < 0)
		return -EROFS;
	fd = openat(folder, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT && strcmp(path, "config") == 0 ? 0 : -EROFS;
	r = cb_fd_read_all(fd, CONFIG_MAX, &text, &n) < 0 || names_format(text, n) ? -EROFS : 0;
	free(text);
	return r;
}
