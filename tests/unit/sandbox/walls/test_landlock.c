/* What each version of Landlock is asked for, as bits of the kernel's interface; and, where this kernel has it, that
 * the rules hold for the process that put them on itself.
 */
#include "../../../../sandbox/walls/landlock.h"
#include "../../folder.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TRUNCATE (1u << 14)
#define IOCTL_DEV (1u << 15)

static void test_handled_by_version(void **state)
{
	(void)state;
	assert_int_equal(cb_landlock_handled(2).files, 0x3fff);
	assert_int_equal(cb_landlock_handled(3).files, 0x7fff);
	assert_int_equal(cb_landlock_handled(4).files, 0x7fff);
	assert_int_equal(cb_landlock_handled(5).files, 0xffff);
	assert_int_equal(cb_landlock_handled(99).files, 0xffff);
	assert_int_equal(cb_landlock_handled(5).scopes, 0);
	assert_int_equal(cb_landlock_handled(6).scopes, 3);
	assert_int_equal(cb_landlock_handled(99).scopes, 3);
	assert_int_equal(cb_landlock_handled(99).network, 0); /* the network namespace's business */
}

static void test_allowed(void **state)
{
	(void)state;
	assert_int_equal(cb_landlock_allowed(5, CB_LANDLOCK_READ, true), 0x000d);
	assert_int_equal(cb_landlock_allowed(5, CB_LANDLOCK_READ, false), 0x0005);
	/* all but reading, running, devices to make and devices to speak to */
	assert_int_equal(cb_landlock_allowed(5, CB_LANDLOCK_WRITE, true), 0xffff & ~(0x000d | 0x0840 | IOCTL_DEV));
	assert_int_equal(cb_landlock_allowed(5, CB_LANDLOCK_WRITE, false), 0x0002 | TRUNCATE);
	assert_int_equal(cb_landlock_allowed(5, CB_LANDLOCK_DEVICES, true), 0x0002 | TRUNCATE | IOCTL_DEV);
	assert_int_equal(cb_landlock_allowed(5, 0, true), 0);
}

/* The kernel answers EINVAL to a right that the rules do not rule over, and to a folder's right on a file. */
static void test_allowed_is_handled(void **state)
{
	(void)state;
	for (int version = 2; version < 12; version++) {
		for (unsigned rights = 0; rights < 8; rights++) {
			uint64_t folder = cb_landlock_allowed(version, rights, true);
			uint64_t file = cb_landlock_allowed(version, rights, false);

			assert_int_equal(folder & ~cb_landlock_handled(version).files, 0);
			assert_int_equal(file & ~(folder & 0xc007), 0);
		}
	}
}

/* In a child. 0 = all as it should be, else the number of what is wrong; 100 = could not be tried. */
static int try_rules(int version, const char *folder)
{
	struct cb_landlock_place places[2] = { { .rights = CB_LANDLOCK_READ },
					       { .rights = CB_LANDLOCK_READ | CB_LANDLOCK_WRITE } };
	struct cb_err err = { 0 };

	if (chdir(folder) < 0 || mkdir("ro", 0755) < 0 || mkdir("rw", 0755) < 0)
		return 100;
	places[0].fd = open("ro", O_PATH);
	places[1].fd = open("rw", O_PATH);
	if (places[0].fd < 0 || places[1].fd < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    cb_landlock_restrict(version, places, 2, &err) < 0)
		return 100;
	if (open("rw/new", O_CREAT | O_WRONLY, 0644) < 0)
		return 1;
	if (open("ro/new", O_CREAT | O_WRONLY, 0644) >= 0 || errno != EACCES)
		return 2;
	if (open("ro", O_RDONLY | O_DIRECTORY) < 0)
		return 3;
	if (open("/etc/passwd", O_RDONLY) >= 0 || errno != EACCES)
		return 4;
	if (mkdir("rw/sub", 0755) < 0 || rename("rw/new", "rw/sub/new") < 0)
		return 5;
	if (rename("rw/sub/new", "ro/new") == 0)
		return 6;
	return 0;
}

static void test_rules_hold(void **state)
{
	char folder[] = "/tmp/cb-landlock-XXXXXX";
	int version = cb_landlock_version(), status;
	pid_t pid;

	(void)state;
	if (version == 0)
		skip();
	assert_non_null(mkdtemp(folder));
	pid = fork();
	if (pid == 0)
		_exit(try_rules(version, folder));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	(void)folder_remove(folder);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_handled_by_version),
		cmocka_unit_test(test_allowed),
		cmocka_unit_test(test_allowed_is_handled),
		cmocka_unit_test(test_rules_hold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
