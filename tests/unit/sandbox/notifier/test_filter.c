/* The notifier's filter as a program: which jails have one, and that one without a notifier is refused. */
#include "../../../../sandbox/notifier/notifier.h"
#include "../../../../sandbox/shared/jail.h"

#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static unsigned length(enum cb_workspace_mode mode, enum cb_network_mode network)
{
	struct cb_jail_spec spec = { .workspace_mode = mode, .network = network, .notifier = true };
	struct cb_jail jail = { .spec = &spec };
	struct cb_notify_program program = { .len = 1 };
	unsigned n;

	assert_int_equal(cb_notify_compile(&jail, &program, NULL), 0);
	assert_int_equal(program.len != 0, cb_notify_installed(&jail));
	n = program.len;
	if (n > 0) {
		assert_int_equal(program.insns[n - 1].code, BPF_RET | BPF_K);
		assert_int_equal(program.insns[n - 1].k, SECCOMP_RET_ALLOW);
	}
	return n;
}

static void test_the_program_is_as_long_as_what_is_notified(void **state)
{
	(void)state;
	assert_int_equal(length(CB_WORKSPACE_RO, CB_NETWORK_FULL), 0);
	assert_true(length(CB_WORKSPACE_RO, CB_NETWORK_NONE) > 1);
	assert_true(length(CB_WORKSPACE_RW, CB_NETWORK_FULL) > length(CB_WORKSPACE_RO, CB_NETWORK_NONE));
	assert_true(length(CB_WORKSPACE_RW, CB_NETWORK_NONE) > length(CB_WORKSPACE_RW, CB_NETWORK_FULL));
}

static void test_what_nobody_can_judge_is_refused(void **state)
{
	struct cb_jail_spec spec = { .workspace_mode = CB_WORKSPACE_RW, .network = CB_NETWORK_FULL };
	struct cb_jail jail = { .spec = &spec };
	struct cb_notify_program program = { .len = 7 };
	struct cb_err err = { 0 };

	(void)state;
	assert_int_equal(cb_notify_compile(&jail, &program, &err), CB_E_DENIED);
	assert_int_equal(program.len, 0);
	assert_int_equal(cb_notify_install(&jail, &err), CB_E_DENIED);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_the_program_is_as_long_as_what_is_notified),
					    cmocka_unit_test(test_what_nobody_can_judge_is_refused) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
