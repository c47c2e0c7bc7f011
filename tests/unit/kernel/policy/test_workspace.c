/* The home rule: which folders can't be a workspace. */
#include "policy/workspace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_refused(void **state)
{
	static const char *const bad[] = { "/",	       "/usr",	     "/usr/local/src",	 "/etc",
					   "/etc/x",   "/tmp",	     "/var/tmp",	 "/home",
					   "/dev/shm", "/proc/self", "/run/cellblock/x", "/root",
					   "/lib64",   "/opt" };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (cb_workspace_refusal(bad[i]) == NULL)
			fail_msg("%s is no workspace", bad[i]);
	}
}

static void test_allowed(void **state)
{
	static const char *const good[] = { "/tmp/work",  "/srv/notebooks",	"/opt/data", "/home/someone-else/work",
					    "/var/tmp/x", "/run/media/me/disk", "/usrlocal", "/work" };

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		if (cb_workspace_refusal(good[i]) != NULL)
			fail_msg("%s is a workspace, not %s", good[i], cb_workspace_refusal(good[i]));
	}
}

static void test_home_and_its_parents(void **state)
{
	char folder[] = "/tmp/cb-home-XXXXXX", home[64], link[64], inside[64];

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(home, sizeof(home), "%s/me", folder);
	snprintf(link, sizeof(link), "%s/link", folder);
	snprintf(inside, sizeof(inside), "%s/me/work", folder);
	assert_int_equal(mkdir(home, 0700), 0);
	assert_int_equal(symlink("me", link), 0);
	setenv("HOME", link, 1); /* a home that is named by a link is still one */
	assert_non_null(cb_workspace_refusal(home));
	assert_non_null(cb_workspace_refusal(folder));
	assert_null(cb_workspace_refusal(inside));
	unlink(link);
	rmdir(home);
	assert_int_equal(rmdir(folder), 0);
}

/* Other kernels' histories, whatever this one's policy says of its own. */
static void test_histories_are_used(void **state)
{
	CB_AUTO_STRV used = { 0 };

	(void)state;
	setenv("HOME", "/no-home/me", 1);
	setenv("XDG_DATA_HOME", "/no-home/data", 1);
	assert_int_equal(cb_workspace_used(&used), 0);
	unsetenv("XDG_DATA_HOME");
	assert_true(cb_strv_has(&used, "/no-home/me/.local/share/cellblock"));
	assert_true(cb_strv_has(&used, "/no-home/data/cellblock"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_refused), cmocka_unit_test(test_allowed),
					    cmocka_unit_test(test_home_and_its_parents),
					    cmocka_unit_test(test_histories_are_used) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
