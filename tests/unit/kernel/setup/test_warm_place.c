/* Where zygotes are found: as the host's root below /run, else where only their user can be. */
#include "setup/warm_place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <cellblock/sandbox.h>

#include "policy/paths.h"

static void expect(const char *runtime, const char *place)
{
	CB_AUTO_PATH got = NULL;

	if (runtime != NULL)
		setenv("XDG_RUNTIME_DIR", runtime, 1);
	else
		unsetenv("XDG_RUNTIME_DIR");
	got = cb_warm_place();
	assert_string_equal(got, cb_is_host_root() ? "/run/cellblock/warm" : place);
}

static void test_places(void **state)
{
	char folder[] = "/tmp/cb-place-XXXXXX", other[64], mine[96], slash[96], file[96], dots[96], long_name[5000];

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(other, sizeof(other), "/tmp/cellblock-%u/warm", (unsigned)geteuid());
	snprintf(mine, sizeof(mine), "%s/cellblock/warm", folder);
	snprintf(slash, sizeof(slash), "%s/", folder);
	snprintf(dots, sizeof(dots), "%s/./../%s//", folder, folder + 5);
	snprintf(file, sizeof(file), "%s/file", folder);
	expect(folder, mine);
	expect(slash, mine); /* a path as the jail's description takes it */
	expect(dots, mine);
	expect(NULL, other);
	expect("", other);
	expect("tmp", other);
	expect(geteuid() != 0 ? "/" : "/nonexistent", other);
	expect(file, other);
	FILE *f = fopen(file, "we");
	assert_non_null(f);
	fclose(f);
	expect(file, other);
	memset(long_name, 'a', sizeof(long_name));
	long_name[0] = '/';
	long_name[sizeof(long_name) - 1] = '\0';
	expect(long_name, other);
	unlink(file);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_places) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
