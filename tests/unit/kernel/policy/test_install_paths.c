/* Where our own programs lie: beside this program's folder, whatever PATH and the current folder say. */
#include "policy/install_paths.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static void test_beside_this_program(void **state)
{
	struct cb_install_paths install_paths;
	struct cb_err err = { 0 };
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int r;

	(void)state;
	assert_true(n > 0);
	self[n] = '\0';
	assert_int_equal(chdir("/"), 0);
	setenv("PATH", "/nowhere", 1);
	r = cb_install_paths_find(&install_paths, &err);
	if (r < 0) { /* the other programs are not built */
		assert_int_equal(r, -ENOENT);
		assert_non_null(strstr(err.text, "/libexec/cellblock/"));
		return;
	}
	assert_string_equal(install_paths.self, self);
	assert_non_null(strstr(install_paths.jail, "/libexec/cellblock/cellblock-jail"));
	assert_int_equal(access(install_paths.jail, X_OK), 0);
	assert_non_null(strstr(install_paths.guest, "/libexec/cellblock/guest"));
	cb_install_paths_release(&install_paths);
	assert_null(install_paths.self);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_beside_this_program) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
