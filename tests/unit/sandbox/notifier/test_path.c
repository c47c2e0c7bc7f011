/* What the kernel says of a caller, however long: a user in many groups. */
#include "../../../../sandbox/notifier/calls.h"
#include "../../folder.h"

#include <cellblock/fd.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static char folder[] = "/tmp/cb-path-XXXXXX";

/* As /proc/TID/status has it. */
static struct cb_request caller_in(unsigned groups, unsigned pending, unsigned blocked)
{
	struct cb_request q = CB_REQUEST(NULL, CB_NOTIFY_FROM_GUEST, 0);
	FILE *f;

	q.caller = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(q.caller >= 0);
	f = fopen("status", "w");
	assert_non_null(f);
	(void)fprintf(f, "Name:\tx\nUmask:\t0027\nGroups:\t");
	for (unsigned i = 0; i < groups; i++)
		(void)fprintf(f, "65534 ");
	(void)fprintf(f, "\nSigPnd:\t0\nShdPnd:\t%016x\nSigBlk:\t%016x\nSigIgn:\t0\n", pending, blocked);
	assert_int_equal(fclose(f), 0);
	return q;
}

static bool interrupted(unsigned groups, unsigned pending, unsigned blocked)
{
	struct cb_request q = caller_in(groups, pending, blocked);
	bool is = cb_caller_interrupted(&q);

	cb_fd_close(&q.caller);
	return is;
}

static void test_signals(void **state)
{
	(void)state;
	for (unsigned groups = 1; groups <= 65536; groups *= 16) {
		assert_false(interrupted(groups, 0, 0));
		assert_true(interrupted(groups, 2, 0));
		assert_false(interrupted(groups, 2, 2));
	}
}

static void test_numbers(void **state)
{
	struct cb_request q = caller_in(1000, 0, 0x10);

	(void)state;
	assert_int_equal(cb_caller_status(&q, "\nUmask:\t", 8), 027);
	assert_int_equal(cb_caller_status(&q, "\nSigBlk:\t", 16), 0x10);
	assert_int_equal(cb_caller_status(&q, "\nNone:\t", 10), -1);
	cb_fd_close(&q.caller);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_signals), cmocka_unit_test(test_numbers) };
	int r;

	if (mkdtemp(folder) == NULL || chdir(folder) < 0)
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	return chdir("/") < 0 || folder_remove(folder) < 0 ? 1 : r;
}
