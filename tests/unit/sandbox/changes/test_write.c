/* Entries that are put into the workspace: what others have made beside them stays. */
#include "../../../../sandbox/changes/overlay_changes.h"
#include "../../broken_folder.h"
#include "../../folder.h"

#include <cellblock/fd.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#define OTHERS 4

static char root[] = "/tmp/cb-write-XXXXXX";

static int setup(void **state)
{
	(void)state;
	return mkdtemp(root) == NULL || chdir(root) < 0 || mknod("f", S_IFREG | 0644, 0) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	return chdir("/") < 0 ? -1 : folder_remove(root);
}

/* In another container a process of this number writes into the same folder. */
static void test_temporary_files_of_others(void **state)
{
	CB_AUTO_FD folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct cb_jail jail = { .from_root = false };
	const struct cb_layer layer = { .jail = &jail, .root = folder };
	const struct cb_layer_entry e = { .path = "g", .name = "g", .upper = -1, .lower = folder };
	struct cb_links links = { 0 };
	struct stat f, g;
	char name[64];

	(void)state;
	for (int i = 0; i < OTHERS; i++) {
		snprintf(name, sizeof(name), ".cellblock-commit-%d-%d", (int)getpid(), i);
		assert_int_equal(mknod(name, S_IFREG | 0644, 0), 0);
	}
	assert_int_equal(lstat("f", &f), 0);
	cb_links_add(&links, &f, "f", &f);
	assert_int_equal(cb_layer_write_name(&layer, &e, cb_links_find(&links, &f)), 0);
	assert_int_equal(lstat("g", &g), 0);
	assert_int_equal(g.st_ino, f.st_ino);
	for (int i = 0; i < OTHERS; i++) {
		snprintf(name, sizeof(name), ".cellblock-commit-%d-%d", (int)getpid(), i);
		assert_int_equal(access(name, F_OK), 0);
	}
	cb_links_release(&links);
}

/* Its names are not taken for all: what is not among them would be removed elsewhere. */
static void test_list_that_breaks_off(void **state)
{
	CB_AUTO_FD folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CB_AUTO_STRV whole = { 0 };
	int r;

	(void)state;
	assert_int_equal(cb_layer_list(folder, &whole), 0);
	assert_true(whole.count > 1);
	for (size_t i = 0; i < whole.count; i++) {
		CB_AUTO_STRV names = { 0 };

		entries_left = (int)i;
		r = cb_layer_list(folder, &names);
		entries_left = -1;
		assert_int_equal(r, -EIO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_temporary_files_of_others),
					    cmocka_unit_test(test_list_that_breaks_off) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
