/* Where symbolic links may lead, by their text and by what lies on their way; and links in folders that are moved. */
#include "../../../../sandbox/judge/judge.h"
#include "../../broken_folder.h"
#include "../../folder.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char *pattern_items[] = { ".git", ".envrc", "pyvenv.cfg", "mise/config.toml", NULL };
static const struct cb_strv patterns = { pattern_items, 4 };

struct place {
	char path[64];
	struct cb_judge judge;
};

static int setup(void **state)
{
	static struct place p;

	snprintf(p.path, sizeof(p.path), "/tmp/cb-judge-links-XXXXXX");
	if (mkdtemp(p.path) == NULL)
		return -1;
	p.judge = (struct cb_judge){ .root = open(p.path, O_PATH | O_DIRECTORY | O_CLOEXEC),
				     .beside = -1,
				     .patterns = &patterns,
				     .workspace = p.path };
	*state = &p;
	return p.judge.root < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct place *p = *state;

	close(p->judge.root);
	return folder_remove(p->path);
}

static void folder(const struct place *p, const char *name)
{
	assert_int_equal(mkdirat(p->judge.root, name, 0755), 0);
}

static void put(const struct place *p, const char *target, const char *name)
{
	assert_int_equal(symlinkat(target, p->judge.root, name), 0);
}

static void lead(const struct place *p, int want, const char *path, const char *target)
{
	int r = cb_judge_target(&p->judge, path, target);

	if (r != want)
		fail_msg("%s -> %s: %d, not %d", path, target, r, want);
}

static void test_text(void **state)
{
	struct place *p = *state;
	char whole[PATH_MAX];

	lead(p, 0, "l", "x");
	lead(p, 0, "l", ".");
	lead(p, 0, "l", "./x//y/.");
	lead(p, 0, "a/l", "..");
	lead(p, 0, "a/b/l", "../.././x");
	lead(p, -EPERM, "l", "..");
	lead(p, -EPERM, "a/l", "../..");
	lead(p, -EPERM, "a/b/l", "../../../x");
	lead(p, -EPERM, "a/b/l", "x/..");
	lead(p, -EPERM, "a/b/l", "../x/../y");
	lead(p, -EPERM, "l", "/");
	lead(p, -EPERM, "l", "/etc");
	lead(p, 0, "l", p->path);
	snprintf(whole, sizeof(whole), "%s/x", p->path);
	lead(p, 0, "a/l", whole);
	snprintf(whole, sizeof(whole), "%sx", p->path);
	lead(p, -EPERM, "a/l", whole);
	snprintf(whole, sizeof(whole), "%s/..", p->path);
	lead(p, -EPERM, "a/l", whole);
	memset(whole, 'x', sizeof(whole) - 1);
	whole[sizeof(whole) - 1] = '\0';
	lead(p, -EPERM, "a/l", whole);
	p->judge.workspace = NULL;
	lead(p, -EPERM, "l", p->path);
}

static void test_what_is_protected(void **state)
{
	const struct place *p = *state;

	lead(p, -EROFS, "l", ".git");
	lead(p, -EROFS, "a/l", "../.git/hooks/x");
	lead(p, -EROFS, "l", ".envrc");
	lead(p, -EROFS, "a/l", "../sub/.envrc");
	put(p, ".envrc", "there");
	lead(p, -EROFS, "l", "there");
	put(p, ".", "here");
	lead(p, -EROFS, "l", "here/.envrc");
	lead(p, 0, "l", "here/x");
}

static void test_links_on_the_way(void **state)
{
	const struct place *p = *state;
	char whole[128];

	folder(p, "a");
	put(p, "..", "up");
	put(p, "/etc", "out");
	put(p, "out", "far");
	put(p, "../x", "a/near");
	put(p, "loop", "loop");
	snprintf(whole, sizeof(whole), "%s/a", p->path);
	put(p, whole, "whole");
	lead(p, -EPERM, "l", "up");
	lead(p, -EPERM, "l", "up/x");
	lead(p, -EPERM, "l", "out/x");
	lead(p, -EPERM, "l", "far/x");
	lead(p, -EPERM, "a/l", "../far");
	lead(p, 0, "l", "a/near");
	lead(p, 0, "l", "whole/near");
	lead(p, 0, "l", "loop/x");
	lead(p, 0, "l", "missing/x");
}

/* What is linked beyond them before they are there would lead into them. */
static void test_folders_that_are_kept_in_place(void **state)
{
	const struct place *p = *state;

	folder(p, "venv");
	lead(p, 0, "l", "venv");
	folder(p, "venv/pyvenv.cfg");
	lead(p, -EROFS, "l", "venv");
	folder(p, "srv");
	folder(p, "srv/objects");
	folder(p, "srv/refs");
	lead(p, 0, "l", "srv");
	folder(p, "srv/HEAD");
	lead(p, -EROFS, "l", "srv");
	put(p, "venv", "x");
	lead(p, -EROFS, "l", "x");
	folder(p, "checkout");
	folder(p, "checkout/.git");
	lead(p, 0, "l", "checkout");
}

/* What lies below a folder: what was linked beyond the link before it was there would lead into that. */
static void test_what_lies_below_a_folder(void **state)
{
	struct place *p = *state;

	folder(p, "a");
	folder(p, "a/b");
	folder(p, "a/b/venv");
	lead(p, 0, "l", "a");
	lead(p, 0, "l", ".");
	folder(p, "a/b/venv/PYVENV.cfg");
	lead(p, -EROFS, "l", "a");
	lead(p, -EROFS, "l", ".");
	lead(p, -EROFS, "a/b/l", "..");
	folder(p, "c");
	lead(p, 0, "l", "c");
	put(p, "../a", "c/a");
	lead(p, -EROFS, "l", "c");
	assert_int_equal(unlinkat(p->judge.root, "c/a", 0), 0);
	put(p, "../../x", "c/out");
	lead(p, -EPERM, "l", "c");
	assert_int_equal(unlinkat(p->judge.root, "c/out", 0), 0);
	put(p, ".", "c/c");
	put(p, "../c", "c/d");
	lead(p, 0, "l", "c");
	entries_left = 0;
	lead(p, -EPERM, "l", "c");
	entries_left = -1;
}

static void test_repositories_below_a_folder(void **state)
{
	struct place *p = *state;
	static char *others[] = { ".envrc", NULL };
	static const struct cb_strv no_git = { others, 1 };

	folder(p, "s");
	folder(p, "s/.git"); /* which no link's text says */
	folder(p, "s/.git/pyvenv.cfg");
	folder(p, "s/r");
	folder(p, "s/r/HEAD");
	folder(p, "s/r/refs");
	lead(p, 0, "l", "s");
	folder(p, "s/r/objects");
	lead(p, -EROFS, "l", "s");
	p->judge.patterns = &no_git;
	lead(p, 0, "l", "s");
	p->judge.patterns = &patterns;
	assert_int_equal(unlinkat(p->judge.root, "s/r/HEAD", AT_REMOVEDIR), 0);
	folder(p, "s/x.git");
	lead(p, -EROFS, "l", "s");
	folder(p, "s/x.git/.git"); /* empty: no checkout */
	lead(p, -EROFS, "l", "s");
}

static void test_longer_names_and_own_paths(void **state)
{
	struct place *p = *state;
	static char *own[] = { "d/own", NULL };
	static const struct cb_strv paths = { own, 1 };

	folder(p, "d");
	lead(p, 0, "l", "d");
	lead(p, -EROFS, "l", "mise");
	lead(p, -EROFS, "l", "d/MISE");
	lead(p, 0, "l", "mise/x");
	lead(p, 0, "l", ".");
	p->judge.above = "x/mise";
	lead(p, -EROFS, "l", ".");
	lead(p, 0, "l", "d");
	p->judge.above = "mise/x";
	lead(p, 0, "l", ".");
	p->judge.paths = &paths;
	lead(p, -EROFS, "l", ".");
	lead(p, -EROFS, "l", "d");
}

/* Folders that lead to each other are looked through once each, and without a stack that grows with them. */
static void test_many_folders_that_links_lead_to(void **state)
{
	const struct place *p = *state;
	char name[32], target[32];

	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "d%d", i);
		folder(p, name);
		snprintf(name, sizeof(name), "d%d/next", i);
		snprintf(target, sizeof(target), "../d%d", (i + 1) % 1000);
		put(p, target, name);
		snprintf(name, sizeof(name), "d%d/far", i);
		snprintf(target, sizeof(target), "../d%d", i * 7 % 1000);
		put(p, target, name);
	}
	lead(p, 0, "l", "d0");
	folder(p, "d999/pyvenv.cfg");
	lead(p, -EROFS, "l", "d0");
}

/* Where descriptors are short, nothing is let in that is not looked at. */
static void test_want_of_descriptors(void **state)
{
	const struct place *p = *state;
	int first = fcntl(p->judge.root, F_DUPFD_CLOEXEC, 0), r;
	struct rlimit files, few;

	close(first);
	folder(p, "a");
	folder(p, "a/venv");
	folder(p, "a/venv/bin");
	folder(p, "a/venv/pyvenv.cfg");
	put(p, "a/venv", "x");
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	for (int more = 0; more < 10; more++) {
		for (const char *const *to = (const char *const[]){ "a/venv", "a/venv/bin", "x", NULL }; *to; to++) {
			few = (struct rlimit){ (rlim_t)(first + more), files.rlim_max };
			assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
			r = cb_judge_target(&p->judge, "l", *to);
			assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
			if (r != -EROFS && (r != -EPERM || more > 5))
				fail_msg("%s with %d descriptors: %d", *to, more, r);
		}
	}
}

static int moved(const struct place *p, const char *from, const char *to)
{
	CB_AUTO_FD fd = openat(p->judge.root, from, O_PATH | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return cb_judge_moved(&p->judge, fd, to);
}

static void test_moved_folders(void **state)
{
	const struct place *p = *state;

	folder(p, "a");
	folder(p, "a/b");
	folder(p, "a/b/c");
	put(p, "../../x", "a/b/l");
	assert_int_equal(moved(p, "a/b", "a/d"), 0);
	assert_int_equal(moved(p, "a/b", "a/d/e"), 0);
	assert_int_equal(moved(p, "a/b", "d"), -EPERM);
	assert_int_equal(moved(p, "a", "d"), 0);
	put(p, "x/..", "a/b/c/l");
	assert_int_equal(moved(p, "a", "d"), -EPERM);
	assert_int_equal(unlinkat(p->judge.root, "a/b/c/l", 0), 0);
	put(p, "/etc", "a/b/c/l");
	assert_int_equal(moved(p, "a/b/c", "a/b/d"), -EPERM);
	assert_int_equal(unlinkat(p->judge.root, "a/b/c/l", 0), 0);
	folder(p, "a/b/c/pyvenv.cfg");
	assert_int_equal(moved(p, "a", "d"), -EROFS);
}

static void test_moved_folders_whose_links_lead_on(void **state)
{
	const struct place *p = *state;

	folder(p, "a");
	folder(p, "b");
	folder(p, "b/venv");
	put(p, "../b", "a/l");
	assert_int_equal(moved(p, "a", "d"), 0);
	folder(p, "b/venv/pyvenv.cfg");
	assert_int_equal(moved(p, "a", "d"), -EROFS);
}

static void test_moved_folder_that_is_not_read_to_its_end(void **state)
{
	const struct place *p = *state;
	int r;

	folder(p, "a");
	folder(p, "a/pyvenv.cfg");
	entries_left = 0;
	r = moved(p, "a", "d");
	entries_left = -1;
	assert_int_equal(r, -EXDEV);
	assert_int_equal(moved(p, "a", "d"), -EROFS);
}

static void test_the_workspaces_path(void **state)
{
	struct cb_jail_spec spec = { .workspace_target = (char *)"/w/x" };

	(void)state;
	assert_null(cb_judge_workspace(&spec));
	spec.workspace_source = (char *)"/w/x/";
	assert_string_equal(cb_judge_workspace(&spec), "/w/x");
	spec.workspace_source = (char *)"/w";
	assert_null(cb_judge_workspace(&spec));
	spec.workspace_source = (char *)"/w/xy";
	assert_null(cb_judge_workspace(&spec));
}

#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_A_FOLDER(test_text),
		IN_A_FOLDER(test_what_is_protected),
		IN_A_FOLDER(test_links_on_the_way),
		IN_A_FOLDER(test_folders_that_are_kept_in_place),
		IN_A_FOLDER(test_what_lies_below_a_folder),
		IN_A_FOLDER(test_repositories_below_a_folder),
		IN_A_FOLDER(test_longer_names_and_own_paths),
		IN_A_FOLDER(test_many_folders_that_links_lead_to),
		IN_A_FOLDER(test_want_of_descriptors),
		IN_A_FOLDER(test_moved_folders),
		IN_A_FOLDER(test_moved_folders_whose_links_lead_on),
		IN_A_FOLDER(test_moved_folder_that_is_not_read_to_its_end),
		cmocka_unit_test(test_the_workspaces_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
