/* What workspace.protect means: matching of patterns, and the walk with its bounds, over folders made for the test. */
#include "../../../sandbox/protect.h"
#include "../folder.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

struct place {
	char path[64];
	int fd;
};

static int setup(void **state)
{
	static struct place place;

	snprintf(place.path, sizeof(place.path), "/tmp/cb-protect-XXXXXX");
	if (mkdtemp(place.path) == NULL)
		return -1;
	place.fd = open(place.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	*state = &place;
	return place.fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct place *place = *state;

	close(place->fd);
	return folder_remove(place->path);
}

/* "a/b/" is a folder, "a/b" a file, "a@" a link to nowhere; parents are made. */
static void make(const struct place *place, const char *what)
{
	char path[512];
	size_t n = strlen(what);

	snprintf(path, sizeof(path), "%s", what);
	for (char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		assert_true(mkdirat(place->fd, path, 0755) == 0 || errno == EEXIST);
		*slash = '/';
	}
	if (what[n - 1] == '/')
		return;
	if (what[n - 1] == '@') {
		path[n - 1] = '\0';
		assert_int_equal(symlinkat("/nowhere", place->fd, path), 0);
		return;
	}
	CB_AUTO_FD fd = openat(place->fd, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
}

static void find(const struct place *place, const char *const *patterns, struct cb_protect_list *list)
{
	struct cb_strv v = { 0 };

	for (; *patterns != NULL; patterns++)
		assert_int_equal(cb_strv_add(&v, *patterns), 0);
	assert_int_equal(cb_protect_find(place->fd, &v, list), 0);
	cb_protect_finish(list);
	cb_strv_release(&v);
}

static void expect(const struct cb_protect_list *list, const char *const *paths)
{
	size_t n = 0;

	for (; paths[n] != NULL; n++) {
		assert_true(n < list->paths.count);
		assert_string_equal(list->paths.items[n], paths[n]);
	}
	assert_int_equal(list->paths.count, n);
}

static void test_matches(void **state)
{
	(void)state;
	assert_true(cb_protect_matches(".envrc", ".envrc"));
	assert_true(cb_protect_matches(".envrc", "a/b/.envrc"));
	assert_false(cb_protect_matches(".envrc", "a/.envrc/b"));
	assert_false(cb_protect_matches(".envrc", "a/x.envrc"));
	assert_true(cb_protect_matches(".git/hooks", ".git/hooks"));
	assert_true(cb_protect_matches(".git/hooks", "sub/.git/hooks"));
	assert_false(cb_protect_matches(".git/hooks", "hooks"));
	assert_false(cb_protect_matches(".git/hooks", "x.git/hooks"));
	assert_true(cb_protect_matches("*.pth", "lib/evil.pth"));
	assert_false(cb_protect_matches("*.pth", "lib/evil.pth/x"));
	assert_false(cb_protect_matches("a/*", "a/b/c"));
}

static void test_repositories(void **state)
{
	const struct place *place = *state;
	struct cb_protect_list list = { 0 };

	make(place, ".git/hooks/pre-commit");
	make(place, ".git/config");
	make(place, ".git/HEAD");
	make(place, ".git/objects/aa/.git/config"); /* not looked at */
	make(place, ".git/modules/deep/m/HEAD");
	make(place, ".git/modules/deep/m/objects/");
	make(place, ".git/modules/deep/m/refs/");
	make(place, ".git/modules/deep/m/config");
	make(place, ".git/worktrees/w/HEAD");
	make(place, ".git/worktrees/w/commondir");
	make(place, ".git/commondir");
	make(place, "sub/r/.git/hooks/");
	make(place, "sub/gitlink/.git");
	make(place, "bare/HEAD");
	make(place, "bare/objects/");
	make(place, "bare/refs/");
	make(place, "bare/config");
	make(place, "plain/config");
	find(place, (const char *const[]){ ".git/hooks", ".git/config", NULL }, &list);
	expect(&list, (const char *const[]){ ".git/commondir", ".git/config", ".git/hooks",
					     ".git/modules/deep/m/config", ".git/worktrees/w/commondir", "bare/config",
					     "sub/gitlink/.git", "sub/r/.git/hooks", NULL });
	assert_false(list.cut);
	cb_protect_release(&list);
}

static void test_prefixes(void **state)
{
	const struct place *place = *state;
	struct cb_protect_list list = { 0 };

	make(place, "venv/pyvenv.cfg");
	make(place, "venv/.vscode/");
	make(place, "a/conda/conda-meta/history");
	make(place, "a/not/conda-meta-x");
	make(place, "deep/.vscode/settings.json");
	find(place, (const char *const[]){ "pyvenv.cfg", "conda-meta", ".vscode", NULL }, &list);
	expect(&list, (const char *const[]){ "a/conda", "deep/.vscode", "venv", NULL });
	cb_protect_release(&list);
}

static void test_workspace_is_a_prefix(void **state)
{
	const struct place *place = *state;
	struct cb_protect_list list = { 0 };

	make(place, "pyvenv.cfg");
	make(place, "bin/python");
	make(place, "lib/python3/x.py");
	make(place, "lib64@");
	make(place, "notebooks/sub/pyvenv.cfg");
	find(place, (const char *const[]){ "pyvenv.cfg", NULL }, &list);
	expect(&list, (const char *const[]){ "bin", "lib", "notebooks/sub", "pyvenv.cfg", NULL });
	cb_protect_release(&list);
}

static void test_links_are_held_not_followed(void **state)
{
	const struct place *place = *state;
	struct cb_protect_list list = { 0 };

	make(place, ".vscode@");
	make(place, "other@");
	assert_int_equal(symlinkat("..", place->fd, "up"), 0);
	find(place, (const char *const[]){ ".vscode", NULL }, &list);
	expect(&list, (const char *const[]){ ".vscode", NULL });
	assert_int_equal(list.links, 1);
	cb_protect_release(&list);
}

static void test_skipped_folders(void **state)
{
	const struct place *place = *state;
	struct cb_protect_list list = { 0 };

	make(place, "node_modules/p/.envrc");
	make(place, "src/.envrc");
	find(place, (const char *const[]){ ".envrc", NULL }, &list);
	expect(&list, (const char *const[]){ "src/.envrc", NULL });
	cb_protect_release(&list);
}

static void test_depth_is_bounded(void **state)
{
	const struct place *place = *state;
	struct cb_protect_list list = { 0 };
	char path[512] = "";
	size_t n = 0;

	for (unsigned i = 0; i < CB_PROTECT_MAX_DEPTH + 2; i++)
		n += (size_t)snprintf(path + n, sizeof(path) - n, "d/");
	snprintf(path + n, sizeof(path) - n, ".envrc");
	make(place, path);
	make(place, "d/d/.envrc");
	find(place, (const char *const[]){ ".envrc", NULL }, &list);
	expect(&list, (const char *const[]){ "d/d/.envrc", NULL });
	assert_true(list.cut);
	cb_protect_release(&list);
}

/* Breadth first: what lies near the top is found though a deep folder has more entries than are looked at. */
static void test_entries_are_bounded(void **state)
{
	const struct place *place = *state;
	struct cb_protect_list list = { 0 };
	CB_AUTO_FD fd = -1;
	char name[32];

	make(place, "big/x/");
	make(place, "zoo/.envrc");
	fd = openat(place->fd, "big/x", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (unsigned i = 0; i < CB_PROTECT_MAX_ENTRIES + 10; i++) {
		snprintf(name, sizeof(name), "%u", i);
		assert_int_equal(mknodat(fd, name, S_IFREG | 0600, 0), 0);
	}
	find(place, (const char *const[]){ ".envrc", NULL }, &list);
	expect(&list, (const char *const[]){ "zoo/.envrc", NULL });
	assert_true(list.cut);
	cb_protect_release(&list);
}

static void test_results_are_bounded(void **state)
{
	struct cb_protect_list list = { 0 };
	char name[32];

	(void)state;
	for (unsigned i = 0; i < CB_PROTECT_MAX_FOUND + 5; i++) {
		snprintf(name, sizeof(name), "%u", i);
		assert_int_equal(cb_protect_add(&list, name), 0);
	}
	assert_int_equal(list.paths.count, CB_PROTECT_MAX_FOUND);
	assert_true(list.cut);
	cb_protect_release(&list);
}

static void test_finish_drops_what_lies_below(void **state)
{
	static const char *const added[] = { "a/b", "a-b", "a", "b/c", "a/b/c", "b/c", "ab" };
	struct cb_protect_list list = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(added) / sizeof(*added); i++)
		assert_int_equal(cb_protect_add(&list, added[i]), 0);
	cb_protect_finish(&list);
	expect(&list, (const char *const[]){ "a", "a-b", "ab", "b/c", NULL });
	cb_protect_release(&list);
}

static bool covers(const struct place *place, const char *path, bool folder)
{
	static char git[] = ".git/hooks", envrc[] = ".envrc", marker[] = "pyvenv.cfg";
	char *items[] = { git, envrc, marker, NULL };
	const struct cb_strv patterns = { items, 3 };
	const char *slash = strrchr(path, '/');
	char parent[512];
	int folders[2] = { -1, -1 };
	bool result;

	snprintf(parent, sizeof(parent), "%.*s", slash != NULL ? (int)(slash - path) : 1, slash != NULL ? path : ".");
	folders[1] = openat(place->fd, parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	result = cb_protect_covers(&patterns, folders, path, slash != NULL ? slash + 1 : path, folder);
	close(folders[1]);
	return result;
}

/* What may not come into being: asked for names that are not there yet. */
static void test_covers(void **state)
{
	const struct place *place = *state;

	make(place, "sub/.git/");
	make(place, "bare/HEAD");
	make(place, "bare/objects/");
	make(place, "bare/refs/");
	make(place, "env/pyvenv.cfg");
	assert_true(covers(place, ".envrc", false));
	assert_true(covers(place, "sub/.envrc", true));
	assert_false(covers(place, "sub/envrc", false));
	assert_true(covers(place, "sub/.git/hooks", true));
	assert_true(covers(place, "sub/.git/commondir", false));
	assert_false(covers(place, "sub/.git/index", false));
	assert_true(covers(place, "bare/hooks", true));
	assert_false(covers(place, "sub/hooks", true));
	assert_false(covers(place, ".git", true));
	assert_true(covers(place, "sub/.git", false));
	assert_true(covers(place, "env", true));
	assert_false(covers(place, "sub", true));
	assert_false(covers(place, "bin", true));
	make(place, "pyvenv.cfg");
	assert_true(covers(place, "bin", true));
}

/* What was allowed while its folder was nothing special must not become special with a later entry. */
static void test_covers_what_completes(void **state)
{
	const struct place *place = *state;

	make(place, "bare/config");
	assert_false(covers(place, "bare/hooks", true));
	assert_false(covers(place, "bare/HEAD", false));
	assert_false(covers(place, "bare/objects", true));
	make(place, "bare/hooks/post-update");
	make(place, "bare/objects/");
	make(place, "bare/refs/");
	assert_true(covers(place, "bare/HEAD", false));
	assert_false(covers(place, "bare/description", false));
	make(place, "late/HEAD");
	make(place, "late/refs/");
	assert_false(covers(place, "late/objects", true));
	make(place, "late/hooks/");
	assert_true(covers(place, "late/objects", true));
	make(place, "tree/gitdir");
	make(place, "tree/HEAD");
	assert_true(covers(place, "tree/commondir", false));
	make(place, "led/HEAD");
	assert_true(covers(place, "led/commondir", false));
	make(place, "host/.git/hooks/old"); /* whole already: what git writes in it all day */
	make(place, "host/.git/HEAD");
	make(place, "host/.git/objects/");
	make(place, "host/.git/refs/");
	assert_false(covers(place, "host/.git/HEAD", false));
	make(place, "env/bin/python");
	assert_true(covers(place, "env/pyvenv.cfg", false));
	assert_true(covers(place, "env/bin/pyvenv.cfg", false));
}

int main(void)
{
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matches),
		IN_A_FOLDER(test_covers),
		IN_A_FOLDER(test_covers_what_completes),
		IN_A_FOLDER(test_repositories),
		IN_A_FOLDER(test_prefixes),
		IN_A_FOLDER(test_workspace_is_a_prefix),
		IN_A_FOLDER(test_links_are_held_not_followed),
		IN_A_FOLDER(test_skipped_folders),
		IN_A_FOLDER(test_depth_is_bounded),
		IN_A_FOLDER(test_entries_are_bounded),
		cmocka_unit_test(test_results_are_bounded),
		cmocka_unit_test(test_finish_drops_what_lies_below),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
