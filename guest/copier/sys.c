/* What several need of the kernel in more than one call. Trust domain: guest. See sys.h. */
#include "sys.h"

#include <fcntl.h>
#include <time.h>

/* Of getdents64(2). */
struct entry {
	uint64_t ino, off;
	unsigned short size;
	unsigned char type;
	char name[];
};

/* -1: it is none. */
static int number_of(const char *name)
{
	int n = 0;

	for (; *name >= '0' && *name <= '9' && n < 100000000; name++)
		n = 10 * n + (*name - '0');
	return *name == '\0' ? n : -1;
}

const char *cb_sys_number(const char *text, unsigned base, uint64_t *ret)
{
	uint64_t n = 0;

	for (;; text++) {
		unsigned digit = *text >= '0' && *text <= '9'	? (unsigned)(*text - '0')
				 : *text >= 'a' && *text <= 'f' ? (unsigned)(*text - 'a') + 10
								: 99;
		if (digit >= base)
			break;
		n = n * base + digit;
	}
	*ret = n;
	return text;
}

bool cb_sys_begins(const char *text, const char *with)
{
	while (*with != '\0')
		if (*text++ != *with++)
			return false;
	return true;
}

const char *cb_sys_number_after(const char *text, const char *name, unsigned base, uint64_t *ret)
{
	while (*text != '\0' && !cb_sys_begins(text, name))
		text++;
	if (*text == '\0')
		return NULL;
	while (*name != '\0')
		name++, text++;
	while (*text == ' ' || *text == '\t')
		text++;
	return cb_sys_number(text, base, ret);
}

const char *cb_sys_path(char *path, const char *folder, int n, const char *tail)
{
	char digits[12], *first = digits + sizeof(digits) - 1;
	char *to = path;

	*first = '\0';
	do
		*--first = (char)('0' + n % 10);
	while ((n /= 10) != 0);
	while (*folder != '\0')
		*to++ = *folder++;
	while (*first != '\0')
		*to++ = *first++;
	while ((*to++ = *tail++) != '\0')
		;
	return path;
}

int64_t cb_sys_now_ns(void)
{
	struct timespec t = { 0 };

	(void)cb_sys2(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int cb_sys_lines_of(const char *path, int (*each)(void *context, const char *line), void *context)
{
	char text[4096 + 1];
	long n = 0, have = 0, fd = cb_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	bool cut = false;
	int r = 0;

	if (fd < 0)
		return (int)fd;
	while (r >= 0 && (n = cb_sys3(SYS_read, fd, text + have, 4096 - have)) > 0) {
		long at = 0;

		have += n;
		for (long end = 0; end < have && r >= 0; end++) {
			if (text[end] != '\n' && !(at == 0 && end == 4095))
				continue;
			text[end] = '\0';
			r = cut ? 0 : each(context, text + at);
			cut = at == 0 && end == 4095;
			at = end + 1;
		}
		for (long i = at; i < have; i++)
			text[i - at] = text[i];
		have -= at;
	}
	(void)cb_sys1(SYS_close, fd);
	return r < 0 ? r : n < 0 ? (int)n : 0;
}

int cb_sys_numbers_in(const char *folder, int (*each)(void *context, int n), void *context)
{
	union {
		char bytes[4096];
		uint64_t align;
	} list;
	long got = 0, fd = cb_sys4(SYS_openat, AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	int r = 0;

	if (fd < 0)
		return (int)fd;
	while (r >= 0 && (got = cb_sys3(SYS_getdents64, fd, list.bytes, sizeof(list.bytes))) > 0)
		for (long at = 0; at < got && r >= 0;) {
			const struct entry *e = (const void *)(list.bytes + at);
			int n = number_of(e->name);

			at += e->size;
			if (n >= 0)
				r = each(context, n);
		}
	(void)cb_sys1(SYS_close, fd);
	return r < 0 ? r : got < 0 ? (int)got : 0;
}
