/* Notes for the next cell: they come one after the other, and what does not fit is logged whole. */
#include "shells/shells.h"
#include "rig.h"

#include <cellblock/log.h>

#include <stdlib.h>
#include <sys/mman.h>

static struct cb_execution x;
static int out = -1;

static int setup(void **state)
{
	(void)state;
	x.note[0] = '\0';
	out = memfd_create("log", MFD_CLOEXEC);
	cb_log_init("test", CB_LOG_WARNING, out);
	return out < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	cb_log_init("test", CB_LOG_WARNING, STDERR_FILENO);
	return close(out);
}

static const char *logged(void)
{
	static char text[8192];
	ssize_t n = pread(out, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static void test_two(void **state)
{
	(void)state;
	cb_execution_note(&x, "%s %d", "one", 1);
	cb_execution_note(&x, "two");
	assert_string_equal(x.note, "[cellblock: one 1]\n[cellblock: two]\n");
	assert_string_equal(logged(), "");
}

static void test_full(void **state)
{
	char before[sizeof(x.note)];

	(void)state;
	while (strlen(x.note) + 100 < sizeof(x.note))
		cb_execution_note(&x, "%050d", 0);
	assert_string_equal(logged(), "");
	memcpy(before, x.note, sizeof(before));
	cb_execution_note(&x, "%0100d, of which nothing is lost", 0);
	assert_string_equal(x.note, before);
	assert_non_null(strstr(logged(), "000, of which nothing is lost"));
	/* a shorter one still has room, to the last byte */
	size_t room = sizeof(x.note) - strlen(x.note);

	cb_execution_note(&x, "%0*d", (int)(room - sizeof("[cellblock: ]\n") + 1), 0);
	assert_string_equal(x.note, before);
	cb_execution_note(&x, "%0*d", (int)(room - sizeof("[cellblock: ]\n")), 0);
	assert_int_equal(strlen(x.note), sizeof(x.note) - 1);
	cb_execution_note(&x, "late");
	assert_non_null(strstr(logged(), "late"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_two, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
