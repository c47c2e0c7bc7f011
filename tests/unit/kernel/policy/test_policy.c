/* Loading policies: where they come from, in which order they count, what is refused. */
#include "policy/policy.h"

#include "../../folder.h"
#include "policy/keys.h"
#include "policy/parse.h"
#include "policy/paths.h"
#include "setup/files.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static char *write_file(const char *name, const char *text)
{
	char *path = cb_path_format("%s/%s", folder, name);
	CB_AUTO_PATH parent = cb_path_parent(path);
	FILE *f;

	assert_int_equal(cb_file_make_folders(parent, 0700), 0);
	f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	return path;
}

static int load(const char *which, const char *set, struct cb_policy *p, struct cb_err *err)
{
	char word[200];
	char *sets[] = { word };

	snprintf(word, sizeof(word), "%s", set != NULL ? set : "");
	*err = (struct cb_err){ 0 };
	return cb_policy_load(which, sets, set != NULL, p, err);
}

static void expect_error(int code, const char *which, const char *set, const char *word)
{
	struct cb_policy p;
	struct cb_err err;

	assert_int_equal(load(which, set, &p, &err), code);
	assert_int_equal(err.code, code);
	if (strstr(err.text, word) == NULL && strstr(err.cure, word) == NULL)
		fail_msg("no \"%s\" in \"%s\" / \"%s\"", word, err.text, err.cure);
}

static void test_built_in(void **state)
{
	struct cb_policy p;
	struct cb_err err;

	(void)state;
	assert_int_equal(load(NULL, NULL, &p, &err), 0);
	assert_string_equal(p.name, "notebook");
	assert_int_equal(p.workspace_mode, CB_WS_RW);
	assert_int_equal(p.network_mode, CB_NETWORK_NONE);
	assert_int_equal(p.limit_pids, 4096);
	assert_int_equal(p.limit_message, 64 << 20);
	assert_true(p.limit_memory > 32 << 20);
	assert_false(p.workspace_path_explicit);
	assert_int_equal(p.workspace_path[0], '/');
	assert_int_equal(p.history_file[0], '/');
	cb_policy_release(&p);
	assert_int_equal(load("agent", NULL, &p, &err), 0);
	assert_true(p.timeout_cell > 119 && p.timeout_cell < 121);
	assert_int_equal(p.limit_memory, 512u << 20);
	assert_true(p.workspace_target_neutral);
	assert_string_equal(p.history_file, ":memory:");
	assert_int_equal(p.env_pass.count, 0);
	assert_int_equal(p.workspace_mode, CB_WS_OVERLAY);
	assert_int_equal(p.workspace_size, 256u << 20);
	cb_policy_release(&p);
}

static void test_environment_and_file(void **state)
{
	CB_AUTO_PATH path = write_file("mine.json", "{\"timeout\": {\"cell\": 7, \"grace\": 1}, \"limits.pids\": 50}");
	CB_AUTO_PATH named = write_file("config/cellblock/own.json", "{\"timeout\": {\"cell\": 8}}");
	struct cb_policy p;
	struct cb_err err;

	(void)state;
	setenv("CELLBLOCK_POLICY", path, 1);
	assert_int_equal(load(NULL, NULL, &p, &err), 0);
	assert_true(p.timeout_cell > 6.9 && p.timeout_cell < 7.1);
	assert_int_equal(p.limit_pids, 50);
	assert_int_equal(p.files.count, 1);
	cb_policy_release(&p);
	/* --set beats the file, --policy the environment */
	assert_int_equal(load(NULL, "timeout.cell=9", &p, &err), 0);
	assert_true(p.timeout_cell > 8.9 && p.timeout_cell < 9.1);
	cb_policy_release(&p);
	assert_int_equal(load("own", NULL, &p, &err), 0);
	assert_true(p.timeout_cell > 7.9 && p.timeout_cell < 8.1);
	cb_policy_release(&p);
	unsetenv("CELLBLOCK_POLICY");
}

static void test_names(void **state)
{
	(void)state;
	expect_error(CB_E_UNKNOWN, "agnet", NULL, "agent");
	expect_error(CB_E_UNKNOWN, "no-such-policy", NULL, "notebook");
	expect_error(CB_E_UNKNOWN, "..", NULL, "no name");
	expect_error(-ENOENT, "/no/such/file.json", NULL, "/no/such/file.json");
}

/* Jupyter's order: JUPYTER_CONFIG_PATH, the user's own folder, environments. */
static void test_config_paths(void **state)
{
	CB_AUTO_PATH first = write_file("first/cellblock/team.json", "{\"limits\": {\"pids\": 11}}");
	CB_AUTO_PATH second = write_file("second/cellblock/team.json", "{\"limits\": {\"pids\": 12}}");
	CB_AUTO_PATH venv = write_file("venv/etc/jupyter/cellblock/venv-only.json", "{\"limits\": {\"pids\": 13}}");
	CB_AUTO_PATH here = write_file("work/cellblock/here.json", "{}");
	CB_AUTO_PATH config = cb_path_format("relative:%s/first:%s/second", folder, folder);
	CB_AUTO_PATH environment = cb_path_format("%s/venv", folder);
	CB_AUTO_PATH work = cb_path_format("%s/work", folder);
	struct cb_policy p;
	struct cb_err err;

	(void)state;
	setenv("JUPYTER_CONFIG_PATH", config, 1);
	setenv("VIRTUAL_ENV", environment, 1);
	assert_int_equal(load("team", NULL, &p, &err), 0);
	assert_int_equal(p.limit_pids, 11);
	assert_string_equal(p.name, first);
	cb_policy_release(&p);
	assert_int_equal(unlink(first), 0);
	assert_int_equal(load("team", NULL, &p, &err), 0);
	assert_int_equal(p.limit_pids, 12);
	cb_policy_release(&p);
	assert_int_equal(load("venv-only", NULL, &p, &err), 0);
	assert_int_equal(p.limit_pids, 13);
	cb_policy_release(&p);
	expect_error(CB_E_UNKNOWN, "venv-onyl", NULL, "venv-only");
	/* never from where cells write, however it is asked for */
	assert_int_equal(chdir(work), 0);
	expect_error(CB_E_UNKNOWN, "here", NULL, "unknown");
	setenv("JUPYTER_CONFIG_PATH", work, 1);
	setenv("VIRTUAL_ENV", work, 1);
	expect_error(CB_E_DENIED, "here", NULL, "workspace");
	unsetenv("JUPYTER_CONFIG_PATH");
	unsetenv("VIRTUAL_ENV");
}

/* A later one of that name may allow more. */
static void test_one_that_cannot_be_reached(void **state)
{
	CB_AUTO_PATH first = write_file("far/cellblock/other.json", "{}");
	CB_AUTO_PATH second = write_file("near/cellblock/strict.json", "{}");
	CB_AUTO_PATH strict = cb_path_format("%s/far/cellblock/strict.json", folder);
	CB_AUTO_PATH far = cb_path_format("%s/far", folder);
	CB_AUTO_PATH disk = cb_path_format("%s/disk", folder);
	CB_AUTO_PATH below = cb_path_format("%s/far/cellblock", folder);
	CB_AUTO_PATH config = cb_path_format("%s/far:%s/near", folder, folder);
	struct cb_policy p;
	struct cb_err err;

	(void)state;
	setenv("JUPYTER_CONFIG_PATH", config, 1);
	assert_int_equal(load("strict", NULL, &p, &err), 0); /* in the first there is none */
	assert_string_equal(p.name, second);
	cb_policy_release(&p);
	assert_int_equal(symlink("/no/such/disk/strict.json", strict), 0);
	expect_error(-ENOENT, "strict", NULL, strict);
	assert_int_equal(unlink(strict) | symlink("strict.json", strict), 0);
	expect_error(-ELOOP, "strict", NULL, strict);
	assert_int_equal(unlink(strict) | rename(far, disk) | symlink("/no/such/disk", far), 0);
	expect_error(-ENOENT, "strict", NULL, strict);
	assert_int_equal(unlink(far) | symlink("disk", far), 0); /* mounted again */
	assert_int_equal(load("strict", NULL, &p, &err), 0);
	cb_policy_release(&p);
	assert_int_equal(unlink(first) | rmdir(below), 0);
	assert_int_equal(load("strict", NULL, &p, &err), 0);
	cb_policy_release(&p);
	unsetenv("JUPYTER_CONFIG_PATH");
}

static void expect_bad_file(int code, const char *text, const char *word)
{
	CB_AUTO_PATH path = write_file("bad.json", text);

	expect_error(code, path, NULL, word);
	expect_error(code, path, NULL, code == CB_E_NOT_BUILT ? "not built" : "bad.json");
}

static void test_bad_files(void **state)
{
	(void)state;
	expect_bad_file(CB_E_SYNTAX, "", "line");
	expect_bad_file(CB_E_SYNTAX, "[]", "object");
	expect_bad_file(CB_E_SYNTAX, "{\"timeout\": {\"cell\": 1, \"cell\": 2}}", "duplicate");
	expect_bad_file(CB_E_SYNTAX, "{\"timeout\": {\"cell\": 1}, \"timeout.cell\": 2}", "twice");
	expect_bad_file(CB_E_UNKNOWN, "{\"timeout\": {\"cel\": 1}}", "timeout.cell");
	expect_bad_file(CB_E_UNKNOWN, "{\"limit\": {\"pids\": 1}}", "limit");
	expect_bad_file(CB_E_UNKNOWN, "{\"memory\": \"1G\"}", "limits.memory");
	expect_bad_file(CB_E_SYNTAX, "{\"timeout\": 3}", "object");
	expect_bad_file(CB_E_SYNTAX, "{\"timeout\": {\"cell\": \"3\"}}", "seconds");
	expect_bad_file(CB_E_SYNTAX, "{\"network\": {\"mode\": \"ful\"}}", "full");
	expect_bad_file(CB_E_NOT_BUILT, "{\"network\": {\"mode\": \"allow\"}}", "none");
}

static void test_file_mode(void **state)
{
	CB_AUTO_PATH path = write_file("open.json", "{}");

	(void)state;
	assert_int_equal(chmod(path, 0646), 0);
	expect_error(-EPERM, path, NULL, "other users");
}

static void test_not_in_workspace(void **state)
{
	CB_AUTO_PATH path = write_file("work/inside.json", "{}");
	CB_AUTO_PATH set = cb_path_format("workspace.path=%s/work", folder);
	CB_AUTO_PATH link = cb_path_format("%s/link.json", folder);
	struct cb_policy p;
	struct cb_err err;
	char tmpfs[] = "workspace.mode=tmpfs";
	char *sets[] = { set, tmpfs };

	(void)state;
	expect_error(CB_E_DENIED, path, set, "workspace");
	assert_int_equal(symlink(path, link), 0);
	expect_error(CB_E_DENIED, link, set, "workspace"); /* where it lies counts, not how it is named */
	/* cells could lead a link to another one */
	CB_AUTO_PATH outside = write_file("outside/other.json", "{}");
	CB_AUTO_PATH way = cb_path_format("%s/work/way", folder);
	CB_AUTO_PATH by_way = cb_path_format("%s/work/way/other.json", folder);

	assert_int_equal(symlink("../outside", way), 0);
	expect_error(CB_E_DENIED, by_way, set, way);
	expect_error(CB_E_DENIED, by_way, set, "the link to the policy");
	assert_int_equal(cb_policy_load(outside, (char *[]){ set, NULL }, 1, &p, &err), 0);
	cb_policy_release(&p);
	assert_int_equal(unlink(way), 0);
	assert_int_equal(cb_policy_load(path, (char *[]){ set, NULL }, 1, &p, &err), CB_E_DENIED);
	assert_non_null(strstr(err.text, "which cells can write"));
	assert_int_equal(cb_policy_load(path, (char *[]){ set, (char[]){ "workspace.mode=ro" } }, 2, &p, &err),
			 CB_E_DENIED);
	assert_non_null(strstr(err.text, "which cells of a kernel with workspace.mode \"rw\" can write"));
	assert_int_equal(cb_policy_load(path, sets, 2, &p, &err), 0);
	cb_policy_release(&p);
}

/* Cells see an empty folder in memory instead, whatever the environment says. */
static void test_where_the_default_is_no_workspace(void **state)
{
	CB_AUTO_PATH file = write_file("home/.jupyter/cellblock/lab.json", "{}");
	CB_AUTO_PATH here = cb_path_parent(file);
	CB_AUTO_PATH home = cb_path_format("%s/home", folder);
	CB_AUTO_PATH before = cb_path_home();
	CB_AUTO_PATH set = cb_path_format("workspace.path=%s", here);
	struct cb_policy p;
	struct cb_err err;

	(void)state;
	assert_int_equal(chdir(here), 0);
	setenv("HOME", home, 1);
	assert_int_equal(load("./lab.json", NULL, &p, &err), 0);
	cb_policy_release(&p);
	expect_error(CB_E_DENIED, "./lab.json", set, "workspace");
	setenv("HOME", before, 1);
	expect_error(CB_E_DENIED, "./lab.json", NULL, "workspace");
	assert_int_equal(chdir("../../../work"), 0);
}

static void test_sets(void **state)
{
	struct cb_policy p;
	struct cb_err err;

	(void)state;
	expect_error(CB_E_UNKNOWN, NULL, "timeout.cel=1", "timeout.cell");
	expect_error(CB_E_SYNTAX, NULL, "limits.pids=many", "limits.pids");
	expect_error(CB_E_NOT_BUILT, NULL, "network.mode=allow", "not built");
	expect_error(CB_E_SYNTAX, NULL, "warm.mode=always", "\"off\", \"auto\"");
	assert_int_equal(load(NULL, "env.set.NAME=a b", &p, &err), 0);
	assert_string_equal(p.env_set.items[0], "NAME=a b");
	cb_policy_release(&p);
	expect_error(CB_E_SYNTAX, NULL, "env.set.1X=a", "env.set");
	assert_int_equal(load(NULL, "workspace.path=/tmp", &p, &err), 0);
	assert_true(p.workspace_path_explicit);
	cb_policy_release(&p);
	assert_int_equal(load(NULL, "history.file=none", &p, &err), 0);
	assert_null(p.history_file);
	cb_policy_release(&p);
}

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/cb-policy-XXXXXX");
	if (mkdtemp(folder) == NULL)
		return -1;
	static const char *const below[] = { "work", "config", "config/cellblock" };
	for (size_t i = 0; i < 3; i++) {
		CB_AUTO_PATH path = cb_path_format("%s/%s", folder, below[i]);

		if (mkdir(path, 0755) < 0)
			return -1;
		if (i == 1)
			setenv("JUPYTER_CONFIG_DIR", path, 1);
	}
	unsetenv("CELLBLOCK_POLICY");
	/* The current folder is the default workspace, in which no policy may lie. */
	return chdir(folder) < 0 ? -1 : chdir("work");
}

static int remove_folder(void **state)
{
	(void)state;
	return folder_remove(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_built_in),
		cmocka_unit_test(test_environment_and_file),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_config_paths),
		cmocka_unit_test(test_one_that_cannot_be_reached),
		cmocka_unit_test(test_bad_files),
		cmocka_unit_test(test_file_mode),
		cmocka_unit_test(test_not_in_workspace),
		cmocka_unit_test(test_where_the_default_is_no_workspace),
		cmocka_unit_test(test_sets),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
