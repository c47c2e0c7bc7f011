/* Giving up capabilities, in a child with all of them (a user namespace of its own): nothing is left, nothing comes
 * back. */
#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../../../sandbox/shared/jail.h"
#include "../../../../sandbox/walls/caps.h"

enum { DONE, NO_NAMESPACE, NOT_ALL_AT_FIRST, STEP_FAILED, SETS, BOUNDING, AMBIENT, BITS, NEW_PRIVS, CAME_BACK };

static int caps(struct __user_cap_data_struct ret_sets[2])
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return (int)syscall(SYS_capget, &head, ret_sets);
}

static bool any_in(int option, unsigned long argument)
{
	for (unsigned long cap = 0; cap < 64; cap++)
		if (prctl(option, argument != 0 ? argument : cap, argument != 0 ? cap : 0, 0, 0) > 0)
			return true;
	return false;
}

static int child(void)
{
	struct __user_cap_data_struct sets[2] = { 0 }, all[2] = { { ~0u, ~0u, ~0u }, { ~0u, ~0u, ~0u } };
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct cb_jail jail = { 0 };

	if (unshare(CLONE_NEWUSER) < 0)
		return NO_NAMESPACE;
	if (caps(sets) < 0 || (sets[0].effective & 1) == 0)
		return NOT_ALL_AT_FIRST;
	if (cb_step_caps(&jail, NULL) < 0)
		return STEP_FAILED;
	if (caps(sets) < 0 || (sets[0].effective | sets[0].permitted | sets[0].inheritable | sets[1].effective |
			       sets[1].permitted | sets[1].inheritable) != 0)
		return SETS;
	if (any_in(PR_CAPBSET_READ, 0))
		return BOUNDING;
	if (any_in(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET))
		return AMBIENT;
	if ((prctl(PR_GET_SECUREBITS) &
	     (SECBIT_NOROOT_LOCKED | SECBIT_NOROOT | SECBIT_KEEP_CAPS | SECBIT_KEEP_CAPS_LOCKED)) !=
	    (SECBIT_NOROOT_LOCKED | SECBIT_NOROOT | SECBIT_KEEP_CAPS_LOCKED))
		return BITS;
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		return NEW_PRIVS;
	return syscall(SYS_capset, &head, all) == 0 || prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) == 0 ? CAME_BACK : DONE;
}

static void test_nothing_is_left(void **state)
{
	int status = -1;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NO_NAMESPACE)
		skip();
	assert_int_equal(WEXITSTATUS(status), DONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_nothing_is_left) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
