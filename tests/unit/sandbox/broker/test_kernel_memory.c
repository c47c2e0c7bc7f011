/* What a process makes the kernel hold, looked at from outside: without the time for it all counts with its most. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../../../sandbox/broker/kernel_memory.h"

#define LOCKS 3000    /* their lines are more than one read takes */
#define MAPPINGS 3000 /* likewise */

static unsigned asked;

static bool is_late(const void *end)
{
	return asked++ >= *(const unsigned *)end;
}

/* Our own, when the time is over at the n-th time that it is asked for. */
static uint64_t look(unsigned n)
{
	const pid_t pid[] = { getpid(), getpid() };
	const struct cb_kernel_look l = {
		.pid = pid, .count = 2, .sockets = -1, .open_files = 1024, .is_late = is_late, .end = &n
	};

	asked = 0;
	return cb_kernel_memory(&l);
}

static void test_less_time_is_never_less(void **state)
{
	char name[] = "/tmp/cb-locks-XXXXXX";
	int file = mkstemp(name);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, MAPPINGS * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned asks;

	(void)state;
	assert_true(file >= 0 && unlink(name) == 0 && p != MAP_FAILED);
	uint64_t before = look(UINT32_MAX);

	for (off_t i = 0; i < LOCKS; i++) {
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * i, .l_len = 1 };

		assert_int_equal(fcntl(file, F_OFD_SETLK, &lock), 0);
	}
	for (size_t i = 0; i < MAPPINGS; i += 2)
		assert_int_equal(mprotect(p + i * page, page, PROT_READ), 0);
	uint64_t all = look(UINT32_MAX);

	asks = asked;
	assert_true(all > before + (uint64_t)(LOCKS + MAPPINGS) * 200);
	assert_true(asks > 10);
	for (unsigned n = 0; n < asks; n++)
		if (look(n) < all)
			fail_msg("the time was over at look %u of %u: %lu bytes, and there are %lu", n, asks,
				 (unsigned long)look(n), (unsigned long)all);
	assert_int_equal(close(file), 0);
	assert_int_equal(munmap(p, MAPPINGS * page), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_less_time_is_never_less) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
