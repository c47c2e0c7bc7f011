/* Where the audit log may lie: not in what a jail shows of the system, where cells of the same user could lock it. */
#include "setup/jail_spec.h"

#include "../../folder.h"
#include "policy/paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64]; /* image/usr/ */

/* Of a command, which needs no interpreter. */
static int plan(const char *audit, const char *root, struct cb_err *err)
{
	CB_AUTO_PATH file = cb_path_format("audit.file=%s", audit);
	CB_AUTO_PATH image = cb_path_format("root.path=%s", root);
	char *sets[] = { (char[]){ "workspace.mode=tmpfs" }, file, image };
	char *argv[] = { (char[]){ "/usr/bin/true" }, NULL };
	struct cb_jail_spec spec;
	struct cb_policy policy;
	int r;

	*err = (struct cb_err){ 0 };
	assert_int_equal(cb_policy_load("notebook", sets, 3, &policy, err), 0);
	struct cb_jail_spec_input in = { .policy = &policy, .argv = argv };

	r = cb_jail_spec_make(&in, &spec, err);
	if (r == 0)
		cb_jail_spec_release(&spec);
	cb_policy_release(&policy);
	return r;
}

/* What belongs to root alone the cells of its kernels, which are another user's, can't open. */
static void expect_refused(const char *audit, const char *root, const char *why)
{
	struct cb_err err;
	int r = plan(audit, root, &err);

	if (cb_is_host_root()) {
		assert_int_equal(r, 0);
		return;
	}
	assert_int_equal(r, CB_E_DENIED);
	assert_non_null(strstr(err.text, why));
	assert_non_null(strstr(err.text, "where cells could read it and hold locks on it"));
}

static void test_in_what_cells_see_of_the_system(void **state)
{
	CB_AUTO_PATH image = cb_path_format("%s/image", folder);
	CB_AUTO_PATH inside = cb_path_format("%s/image/usr/new/audit.jsonl", folder);
	CB_AUTO_PATH link = cb_path_format("%s/link", folder);
	CB_AUTO_PATH by_link = cb_path_format("%s/link/audit.jsonl", folder);
	struct cb_err err;

	(void)state;
	assert_int_equal(symlink("/usr", link), 0);
	expect_refused("/usr/x/audit.jsonl", "host", "lies in the system's folder /usr");
	expect_refused(by_link, "host", "lies in the system's folder /usr");
	expect_refused(inside, image, "lies in root.path ");
	/* the other one is not shown */
	assert_int_equal(plan(inside, "host", &err), 0);
	assert_int_equal(plan("/usr/x/audit.jsonl", image, &err), 0);
	assert_int_equal(plan("/usrlocal/audit.jsonl", "host", &err), 0);
}

static int make_folder(void **state)
{
	CB_AUTO_PATH image = NULL;
	CB_AUTO_PATH usr = NULL;

	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/cb-plan-XXXXXX");
	if (mkdtemp(folder) == NULL)
		return -1;
	image = cb_path_format("%s/image", folder);
	usr = cb_path_format("%s/image/usr", folder);
	unsetenv("CELLBLOCK_POLICY");
	setenv("HOME", folder, 1);
	return mkdir(image, 0755) == 0 && mkdir(usr, 0755) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
	(void)state;
	return folder_remove(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_in_what_cells_see_of_the_system) };

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
