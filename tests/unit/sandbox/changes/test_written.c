/* What commits have left is known as it was, and is bounded. */
#include "../../../../sandbox/changes/written.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

#define MANY 100u /* of inodes that are in the same places */

static struct stat entry(uint64_t ino, long changed)
{
	return (struct stat){ .st_ino = ino, .st_ctim = { 1700000000, changed }, .st_mtim = { 5, 6 } };
}

static void test_states(void **state)
{
	struct cb_written *w = cb_written_new();
	struct stat a = entry(7, 1), b = entry(8, 1);

	(void)state;
	assert_non_null(w);
	assert_false(cb_written_has(w, &a));
	cb_written_note(w, &a);
	cb_written_note(w, &b);
	assert_true(cb_written_has(w, &a) && cb_written_has(w, &b));
	a.st_mtim.tv_nsec++;
	assert_false(cb_written_has(w, &a));
	a = entry(7, 2);
	assert_false(cb_written_has(w, &a));
	cb_written_note(w, &a);
	assert_true(cb_written_has(w, &a) && cb_written_has(w, &b));
	a = entry(7, 1);
	assert_false(cb_written_has(w, &a));
}

/* A commit has written in a folder that is none of its own. */
static void test_noted_with_another_time_of_modification(void **state)
{
	struct cb_written *w = cb_written_new();
	struct stat a = entry(7, 1);

	(void)state;
	assert_non_null(w);
	cb_written_note(w, &a);
	a.st_mtim.tv_sec = 1700000000;
	assert_false(cb_written_has(w, &a));
	assert_int_equal(cb_written_modified(w, &a).tv_sec, 5);
	assert_int_equal(cb_written_modified(w, &a).tv_nsec, 6);
	a.st_ctim.tv_nsec++;
	assert_int_equal(cb_written_modified(w, &a).tv_sec, 1700000000);
	assert_int_equal(cb_written_modified(NULL, &a).tv_sec, 1700000000);
	a.st_mtim = (struct timespec){ -2, 3 };
	cb_written_note(w, &a);
	assert_int_equal(cb_written_modified(w, &a).tv_sec, -2);
	assert_int_equal(cb_written_modified(w, &a).tv_nsec, 3);
}

static void test_the_oldest_goes(void **state)
{
	struct cb_written *w = cb_written_new();
	unsigned known = 0;

	(void)state;
	assert_non_null(w);
	for (unsigned i = 0; i < MANY; i++) {
		struct stat st = entry(1 + ((uint64_t)i << 52), (long)i);

		cb_written_note(w, &st);
		assert_true(cb_written_has(w, &st));
	}
	for (unsigned i = 0; i < MANY; i++) {
		struct stat st = entry(1 + ((uint64_t)i << 52), (long)i);

		assert_true(cb_written_has(w, &st) || known == 0);
		known += cb_written_has(w, &st);
	}
	assert_true(known > 0 && known < MANY);
}

static void test_no_memory(void **state)
{
	struct stat a = entry(7, 1);

	(void)state;
	cb_written_note(NULL, &a);
	assert_false(cb_written_has(NULL, &a));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_states),
					    cmocka_unit_test(test_noted_with_another_time_of_modification),
					    cmocka_unit_test(test_the_oldest_goes), cmocka_unit_test(test_no_memory) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
