/* From a failed step and facts about the host to cause and cure. */
#include "../../../../sandbox/report/apparmor.h"
#include "../../../../sandbox/report/diagnose.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* A host that allows everything. */
static const struct cb_host_facts fine = { .max_user_namespaces = 15000,
					   .unprivileged_userns = -1,
					   .apparmor_userns = -1,
					   .kernel_major = 6,
					   .kernel_minor = 1 };

struct row {
	struct cb_host_facts facts;
	const char *step;
	int code;
	const char *cause, *cure; /* parts of the texts; NULL = nothing found, the general cure */
};

static void check(const struct row *row)
{
	struct cb_err err = { .text = "mounting it: refused" };

	cb_diagnose_by(&row->facts, row->step, row->code, &err);
	assert_int_equal(err.code, row->code);
	assert_string_equal(err.step, row->step);
	assert_non_null(strstr(err.text, "mounting it: refused"));
	if (row->cause != NULL) {
		assert_non_null(strstr(err.text, row->cause));
		assert_non_null(strstr(err.cure, row->cure));
	} else {
		assert_string_equal(err.text, "mounting it: refused");
		assert_non_null(strstr(err.cure, "doctor"));
	}
}

#define HOST(...)                                                                                                      \
	({                                                                                                             \
		struct cb_host_facts f = fine;                                                                         \
		f.root = false;                                                                                        \
		__VA_ARGS__;                                                                                           \
		f;                                                                                                     \
	})

static void test_causes(void **state)
{
	const struct row rows[] = {
		{ HOST(f.max_user_namespaces = 0), "namespaces", -ENOSPC, "max_user_namespaces is 0", "sysctl -w" },
		{ HOST(f.root = false), "namespaces", -ENOSPC, "as many namespaces", "raise" },
		{ HOST(f.max_user_namespaces = -1), "namespaces", -EINVAL, "without user namespaces",
		  "CONFIG_USER_NS" },
		{ HOST(f.root = false), "namespaces", -EUSERS, "nested", "outside" },
		{ HOST(f.root = false), "namespaces", -EAGAIN, "limit of processes", "ulimit" },
		{ HOST(f.unprivileged_userns = 0), "namespaces", -EPERM, "unprivileged_userns_clone is 0",
		  "sysctl -w" },
		{ HOST(f.apparmor_userns = 1), "namespaces", -EPERM, "AppArmor", "apparmor.d" },
		{ HOST(f.apparmor_userns = 1), "user namespace", -EACCES, "AppArmor", "apparmor.d" },
		{ HOST(f.apparmor_userns = 1), "new root", -EPERM, "AppArmor", "apparmor.d" },
		{ HOST(memcpy(f.label, "no-userns", 10); f.label_is_own = true), "namespaces", -EACCES, "AppArmor",
		  "apparmor.d" },
		{ HOST(f.seccomp = 2), "namespaces", -EPERM, "seccomp filter", "seccomp=unconfined" },
		{ HOST(f.seccomp = 2; memcpy(f.label, "docker-default", 15)), "new root", -EACCES, "AppArmor profile",
		  "apparmor=unconfined" },
		{ HOST(f.seccomp = 2; memcpy(f.label, "docker-default", 15)), "namespaces", -EPERM, "seccomp filter",
		  "apparmor=unconfined" },
		{ HOST(f.seccomp = 2), "new root", -ENOSYS, "seccomp filter", "seccomp=unconfined" },
		/* Docker on Ubuntu: the host's sysctl is seen, and is not what refuses */
		{ HOST(f.apparmor_userns = 1; f.seccomp = 2; memcpy(f.label, "docker-default", 15)), "namespaces",
		  -EPERM, "seccomp filter", "seccomp=unconfined" },
		{ HOST(f.apparmor_userns = 1; f.seccomp = 2), "namespaces", -EPERM, "seccomp filter",
		  "seccomp=unconfined" },
		{ HOST(f.apparmor_userns = 1; memcpy(f.label, "docker-default", 15)), "new root", -EACCES,
		  "AppArmor profile", "apparmor=unconfined" },
		{ HOST(f.apparmor_userns = 1; f.seccomp = 2), "namespaces", -EACCES, "AppArmor", "apparmor.d" },
		{ HOST(f.apparmor_userns = 1; f.seccomp = 2), "session", -EPERM, "AppArmor", "apparmor.d" },
		{ HOST(f.proc_masked = true; f.seccomp = 2), "proc", -EPERM, "masked", "unmask" },
		{ HOST(f.container = true), "namespaces", -EPERM, "container", "container" },
		{ HOST(f.root = true; f.container = true), "workspace", -EPERM, "CAP_SYS_ADMIN", "--user" },
		{ HOST(f.root = true; f.seccomp = 2), "binds", -EPERM, "CAP_SYS_ADMIN", "--user" },
		{ HOST(f.kernel_major = 5; f.kernel_minor = 11), "new root", -ENOSYS, "5.12", "newer kernel" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		check(&rows[i]);
}

/* Root's shell takes the cure as it is printed: it names this very program, whatever signs are in its path. */
static void test_a_profile_names_this_program(void **state)
{
	static const char *const programs[] = {
		"/home/me/v/libexec/cellblock/cellblock-jail",
		"/home/m e/it's $(x)/libexec/cellblock/cellblock-jail",
	};
	static const char *const quoted[] = {
		": '/home/me/v/libexec/cellblock/cellblock-jail' apparmor-profile | sudo tee /etc/apparmor.d/",
		": '/home/m e/it'\\''s $(x)/libexec/cellblock/cellblock-jail' apparmor-profile | sudo tee ",
	};
	struct cb_host_facts f = fine;

	(void)state;
	f.apparmor_userns = 1;
	for (size_t i = 0; i < 2; i++) {
		struct cb_err err = { 0 };

		snprintf(f.program, sizeof(f.program), "%s", programs[i]);
		cb_diagnose_by(&f, "session", -EPERM, &err);
		assert_non_null(strstr(err.cure, quoted[i]));
		assert_non_null(strstr(err.cure, " && sudo apparmor_parser -r /etc/apparmor.d/cellblock-jail-"));
		assert_true(strlen(err.cure) < sizeof(err.cure) - 1);
	}
	memset(f.program, 'a', 500);
	f.program[0] = '/';
	f.program[500] = '\0';
	struct cb_err err = { 0 };

	cb_diagnose_by(&f, "session", -EPERM, &err);
	assert_non_null(strstr(err.cure, "apparmor_parser -r"));
	assert_null(strstr(err.cure, "aaaa"));
}

static void test_the_profile(void **state)
{
	CB_AUTO_BUF text = CB_BUF_INIT(4096);
	CB_AUTO_BUF none = CB_BUF_INIT(4096);

	(void)state;
	assert_int_equal(cb_apparmor_profile("/v [1]/*\"{a,b}\\@/jail", &text), 0);
	assert_int_equal(cb_buf_append(&text, "", 1), 0);
	static const char wanted[] = " \"/v \\[1\\]/\\*\\\"\\{a\\,b\\}\\\\\\@/jail\" flags=(unconfined) {\n"
				     "  userns,\n}\n";

	assert_non_null(strstr((char *)text.data, wanted));
	assert_int_equal(cb_apparmor_profile("/a\nprofile x {}", &none), -EINVAL);
	assert_int_equal(cb_apparmor_profile("relative", &none), -EINVAL);
}

static void test_no_cause_is_made_up(void **state)
{
	const struct row rows[] = {
		{ HOST(f.root = false), "namespaces", -EPERM, NULL, NULL },
		{ HOST(f.apparmor_userns = 1; f.root = true), "namespaces", -EPERM, NULL,
		  NULL }, /* root is not restricted */
		{ HOST(f.max_user_namespaces = 0), "new root", -ENOSPC, NULL, NULL },
		{ HOST(f.seccomp = 2), "workspace", -ENOENT, NULL, NULL },
		{ HOST(f.proc_masked = true), "new root", -EPERM, NULL, NULL },
		{ HOST(f.apparmor_userns = 1), "no such step", -EPERM, NULL, NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		check(&rows[i]);
}

static void test_a_steps_own_cure_is_kept(void **state)
{
	struct cb_err err = { .text = "workspace /w: EINVAL", .cure = "set workspace.mode" };

	(void)state;
	cb_diagnose_by(&fine, "workspace", -EINVAL, &err);
	assert_string_equal(err.cure, "set workspace.mode");
	assert_string_equal(err.text, "workspace /w: EINVAL");
}

static void test_step_may_point_into_err(void **state)
{
	struct cb_err err = { .step = "namespaces", .text = "refused" };

	(void)state;
	cb_diagnose(err.step, -EUSERS, &err);
	assert_string_equal(err.step, "namespaces");
	assert_non_null(strstr(err.text, "nested"));
}

static void test_facts_can_be_read(void **state)
{
	struct cb_host_facts facts;

	(void)state;
	cb_host_facts_read(&facts);
	assert_true(facts.kernel_major >= 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_causes),
		cmocka_unit_test(test_a_profile_names_this_program),
		cmocka_unit_test(test_the_profile),
		cmocka_unit_test(test_no_cause_is_made_up),
		cmocka_unit_test(test_a_steps_own_cure_is_kept),
		cmocka_unit_test(test_step_may_point_into_err),
		cmocka_unit_test(test_facts_can_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
