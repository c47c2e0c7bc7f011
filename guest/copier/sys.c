/* What several need of the kernel in more than one call. Trust domain: guest. See sys.h. */
#include "sys.h"

#include <fcntl.h>

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
