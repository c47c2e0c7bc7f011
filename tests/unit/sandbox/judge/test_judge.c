/* The judge of names: each rule with what is allowed and what is refused, over real folders, which change as the judge
 * allows. test_random.c tries sequences. */
#include "../../../../sandbox/judge/judge.h"
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

/* In the place of the C library's: as of a file system with short names, which are there and not listed. */
static const char *short_name, *long_name;

static const char *meant(const char *name)
{
	return short_name != NULL && strcasecmp(name, short_name) == 0 ? long_name : name;
}

int fstatat(int folder, const char *restrict name, struct stat *restrict st, int flags)
{
	return (int)syscall(SYS_newfstatat, folder, meant(name), st, flags);
}

int openat(int folder, const char *name, int flags, ...)
{
	va_list more;
	mode_t mode;

	va_start(more, flags);
	mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
	va_end(more);
	return (int)syscall(SYS_openat, folder, meant(name), flags, mode);
}

static char *pattern_items[] = { ".git",    ".vscode",	".envrc",     "docs/conf.py", "*.startup",
				 ".svn/hooks", "pyvenv.cfg", "conda-meta", "x/*.run",	  NULL };
static const struct cb_strv patterns = { pattern_items, 9 };
static char *path_items[] = { "own/kernels/me", "own/history.sqlite", NULL };
static const struct cb_strv paths = { path_items, 2 };

struct place {
	char path[64], beside[64];
	struct cb_judge judge;
};

static int setup(void **state)
{
	static struct place p;

	snprintf(p.path, sizeof(p.path), "/tmp/cb-judge-XXXXXX");
	snprintf(p.beside, sizeof(p.beside), "/tmp/cb-judge-XXXXXX");
	if (mkdtemp(p.path) == NULL || mkdtemp(p.beside) == NULL)
		return -1;
	p.judge = (struct cb_judge){ .root = open(p.path, O_PATH | O_DIRECTORY | O_CLOEXEC),
				     .beside = -1,
				     .patterns = &patterns,
				     .paths = &paths };
	*state = &p;
	return p.judge.root < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct place *p = *state;

	close(p->judge.root);
	cb_fd_close(&p->judge.beside);
	return folder_remove(p->path) == 0 && folder_remove(p->beside) == 0 ? 0 : -1;
}

/* "a/b/" is a folder, "a/b" a file, "a@" a link to nowhere; parents are made. */
static void make_in(const char *top, const char *what)
{
	char path[PATH_MAX];
	size_t top_len = strlen(top), n = (size_t)snprintf(path, sizeof(path), "%s/%s", top, what);

	for (char *slash = strchr(path + top_len + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
		*slash = '/';
	}
	if (path[n - 1] == '/')
		return;
	if (path[n - 1] == '@') {
		path[n - 1] = '\0';
		assert_int_equal(symlink("nowhere", path), 0);
		return;
	}
	CB_AUTO_FD fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
}

static void make(const struct place *p, const char *what)
{
	make_in(p->path, what);
}

static int ask(const struct place *p, enum cb_act act, const char *path, mode_t type, const char *content)
{
	CB_AUTO_FD folder = content != NULL ? openat(p->judge.root, content, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	struct cb_judged judged;
	int r;

	assert_true(content == NULL || folder >= 0);
	r = cb_judge(&p->judge, path, act, type, folder, &judged);
	if (r == 0 && p->judge.beside < 0) {
		const char *slash = strrchr(path, '/');

		assert_true(judged.parent >= 0);
		assert_string_equal(judged.name, slash != NULL ? slash + 1 : path);
	}
	assert_true((r == -EROFS) == (judged.refused[0] != '\0') || r == -ENOENT);
	assert_true(r == 0 || judged.parent < 0);
	cb_fd_close(&judged.parent);
	return r;
}

static void expect(const struct place *p, int want, enum cb_act act, mode_t type, const char *const *list)
{
	for (; *list != NULL; list++) {
		int r = ask(p, act, *list, type, NULL);

		if (r != want)
			fail_msg("%s: %d, not %d", *list, r, want);
	}
}
#define ALL(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define MAKES(type, ...) expect(p, 0, CB_ACT_MAKE, type, ALL(__VA_ARGS__))
#define MAKES_NOT(type, ...) expect(p, -EROFS, CB_ACT_MAKE, type, ALL(__VA_ARGS__))
#define CHANGES(type, ...) expect(p, 0, CB_ACT_CHANGE, type, ALL(__VA_ARGS__))
#define CHANGES_NOT(type, ...) expect(p, -EROFS, CB_ACT_CHANGE, type, ALL(__VA_ARGS__))
#define REMOVES(type, ...) expect(p, 0, CB_ACT_REMOVE, type, ALL(__VA_ARGS__))
#define REMOVES_NOT(type, ...) expect(p, -EROFS, CB_ACT_REMOVE, type, ALL(__VA_ARGS__))

static void move(const struct place *p, int want, const char *from, const char *to)
{
	int r = ask(p, CB_ACT_REMOVE, from, S_IFDIR, NULL);

	if (r == 0)
		r = ask(p, CB_ACT_MAKE, to, S_IFDIR, from);
	if (r != want)
		fail_msg("%s to %s: %d, not %d", from, to, r, want);
}

static void test_names(void **state)
{
	struct place *p = *state;

	make(p, "a/b/");
	make(p, ".envrc");
	make(p, ".vscode/settings.json");
	make(p, "a/.vscode/x/");
	MAKES(S_IFREG, "f", "a/f", "a/b/envrc", "a/b/.envrc2", "a/vscode", "startup", "a/x.startups", ".gitignore");
	MAKES(S_IFLNK, "f", "a/f");
	MAKES(S_IFIFO, "f");
	MAKES_NOT(S_IFREG, ".envrc", "a/.envrc", "a/b/.envrc", "a/.vscode/x/new", "x.startup", "a/b/.startup");
	MAKES_NOT(S_IFDIR, ".envrc", "a/b/.vscode", "a/.vscode/x/d");
	MAKES_NOT(S_IFLNK, ".envrc", "a/.vscode");
	CHANGES_NOT(S_IFREG, ".envrc", ".vscode/settings.json");
	CHANGES_NOT(S_IFDIR, ".vscode", "a/.vscode", "a/.vscode/x");
	REMOVES_NOT(S_IFREG, ".envrc", ".vscode/settings.json");
	REMOVES_NOT(S_IFDIR, ".vscode", "a/.vscode/x");
	expect(p, -EROFS, CB_ACT_LINK, S_IFREG, ALL(".envrc", ".vscode/settings.json"));
	expect(p, -ENOENT, CB_ACT_REMOVE, S_IFREG, ALL("a/.envrc", "none/.envrc", "none/f"));
	expect(p, -ENOENT, CB_ACT_MAKE, S_IFREG, ALL("none/f"));
}

static void test_other_spellings(void **state)
{
	struct place *p = *state;

	make(p, "repo/.git/hooks/");
	MAKES_NOT(S_IFREG, ".ENVRC", ".envrc.", ".envrc ", ".envrc::$DATA", ".env\u200crc", "\ufeff.envrc", ".Envrc. .",
		  "PYVENV.cfg", "docs\u00adx.\ufb06artup", ".envrc\\x");
	MAKES_NOT(S_IFDIR, ".GIT", ".Git", "git~1", "GIT~1", ".git.", ".git ", ".g\u200dit", ".git\u2060",
		  "a.\u00adstartup", ".v\u017fcode", ".VSCODE", "repo/.git/HOOKS", "repo/.git/Objects");
	MAKES(S_IFREG, "pyvenv.c\ufb01g.x", "caf\u00e9", "\xff\xfe", ".\xc0\xaf", "K", "git~2", "agit~1");
	make(p, "up/.GIT/");
	make(p, "up/.VSCode/");
	MAKES_NOT(S_IFREG, "up/.GIT/hooks", "up/.GIT/index", "up/.VSCode/x");
	CHANGES_NOT(S_IFDIR, "up/.GIT", "up/.VSCode");
}

static void test_markers(void **state)
{
	struct place *p = *state;

	make(p, "env/pyvenv.cfg");
	make(p, "env/bin/python");
	make(p, "conda/conda-meta/");
	make(p, "plain/bin/");
	MAKES(S_IFREG, "bin", "lib", "plain/bin/x", "Scripts", "plain/conda-meta.txt");
	MAKES_NOT(S_IFREG, "pyvenv.cfg", "plain/pyvenv.cfg", "env/x", "env/bin/x", "conda/x", "plain/bin/conda-meta");
	MAKES_NOT(S_IFDIR, "conda-meta", "plain/conda-meta", "plain/CONDA-META", "env/d");
	CHANGES_NOT(S_IFREG, "env/bin/python", "env/pyvenv.cfg");
	CHANGES_NOT(S_IFDIR, "env", "env/bin", "conda");
	REMOVES_NOT(S_IFDIR, "env", "env/bin", "conda", "conda/conda-meta");
	move(p, -EROFS, "env", "moved");
	assert_int_equal(ask(p, CB_ACT_MAKE, "moved", S_IFDIR, "env"), -EROFS);
	move(p, 0, "plain", "moved");
}

static void test_workspace_is_a_prefix(void **state)
{
	struct place *p = *state;

	make(p, "pyvenv.cfg");
	make(p, "bin/python");
	make(p, "notebooks/");
	MAKES(S_IFREG, "x.ipynb", "notebooks/bin", "binary");
	MAKES_NOT(S_IFREG, "bin/x", "lib64", "LIB", "Scripts", "pyvenv.cfg", "bin");
	MAKES_NOT(S_IFDIR, "etc", "sbin", "share", "include", "libexec");
	CHANGES_NOT(S_IFREG, "bin/python", "pyvenv.cfg");
	REMOVES_NOT(S_IFDIR, "bin");
	REMOVES(S_IFDIR, "notebooks");
}

static void test_longer_patterns(void **state)
{
	struct place *p = *state;

	make(p, "docs/conf.py");
	make(p, "docs/sub/docs/");
	make(p, "new/conf.py");
	make(p, "other/");
	make(p, "x/y/");
	make(p, "a/x/");
	MAKES(S_IFREG, "docs/conf", "docs/sub/conf.py", "conf.py", "docs", "x/run");
	MAKES(S_IFDIR, "other/docs", "docs/sub/docs", "other/.svn");
	MAKES_NOT(S_IFREG, "docs/conf.py", "docs/sub/docs/conf.py", "DOCS/Conf.py", "docs/sub/Docs/conf.py", "x/a.run");
	CHANGES_NOT(S_IFREG, "docs/conf.py");
	CHANGES(S_IFDIR, "docs");
	MAKES_NOT(S_IFLNK, "other/docs", ".svn", "x", "other/X");
	move(p, -EROFS, "docs", "elsewhere");
	move(p, -EROFS, "new", "other/docs");
	move(p, 0, "other", "new/docs");
	move(p, 0, "docs/sub", "other/sub");
	move(p, 0, "docs/sub/docs", "free");
	move(p, 0, "x", "free");
	make(p, "x/a.RUN");
	move(p, -EROFS, "x", "free");
	move(p, -EROFS, "x", "a/x");
	move(p, 0, "a/x", "free");
	move(p, 0, "a", "free");
}

static void test_our_own(void **state)
{
	struct place *p = *state;

	make(p, "own/kernels/me/kernel.json");
	make(p, "own/kernels/other/");
	make(p, "from/kernels/me/");
	MAKES(S_IFREG, "own/f", "own/kernels/f", "own/kernels/mee", "own/kernels/other/f", "own/history.sqlite-x");
	MAKES_NOT(S_IFREG, "own/history.sqlite", "own/kernels/me/x", "own/kernels/ME", "OWN/history.sqlite");
	MAKES_NOT(S_IFLNK, "own", "own/kernels", "own/kernels/me");
	CHANGES_NOT(S_IFREG, "own/kernels/me/kernel.json");
	CHANGES(S_IFDIR, "own", "own/kernels");
	REMOVES_NOT(S_IFDIR, "own", "own/kernels", "own/kernels/me");
	REMOVES(S_IFDIR, "own/kernels/other");
	move(p, -EROFS, "own", "x");
	move(p, -EROFS, "from", "own");
	folder_remove(p->path);
	assert_int_equal(mkdir(p->path, 0755), 0);
	close(p->judge.root);
	p->judge.root = open(p->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	MAKES(S_IFDIR, "own");
	MAKES_NOT(S_IFREG, "own");
}

static void make_repository(const struct place *p, const char *at)
{
	static const char *const parts[] = { "HEAD",	       "config",     "index",	   "objects/info/",
					     "objects/pack/", "refs/heads/main", "logs/HEAD", "logs/refs/heads/",
					     "hooks/pre-commit", "info/exclude" };
	char path[256];

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		snprintf(path, sizeof(path), "%s/%s", at, parts[i]);
		make(p, path);
	}
}

static const char *const may[] = {
	"HEAD", "HEAD.lock", "index", "index.lock", "ORIG_HEAD", "FETCH_HEAD", "packed-refs",
	"packed-refs.lock", "packed-refs.new", "COMMIT_EDITMSG", "MERGE_HEAD", "MERGE_MSG",
	"CHERRY_PICK_HEAD.lock", "gc.pid.lock", "info/refs", "info/refs_aB3x",
	"index.stash.123", "index.stash.123.lock", "next-index-9.lock",
	"objects/aa", "objects/pack/tmp_pack_X", "objects/info/commit-graph.lock",
	"objects/info/packs", "refs/heads/feature.lock", "refs/heads/hooks", "refs/stash", "logs/HEAD",
	"logs/ORIG_HEAD", "logs/HEAD.lock", "logs/refs/heads/b.lock", "logs/refs/.tmp-renamed-log", NULL
};
static const char *const may_not[] = {
	"config", "config.lock", "config.worktree", "hooks", "hooks/post-merge", "hooks/new", "description",
	"info", "info/refsx", "info/ref",
	"info/attributes", "info/exclude", "commondir", "gitdir", "rebase-merge", "rebase-apply",
	"sequencer", "MERGE_RR", "MERGE_AUTOSTASH", "BISECT_LOG", "ADD_EDIT.patch", "fsmonitor--daemon.ipc",
	"index.stash.x", "index.stash.", "index.stash.1f", "next-index-", "sharedindex.00ff", "sharedindex.00ff.lock",
	".lock", "anything", "Head", "INDEX",
	"objects/info/alternates", "objects/info/alternates.lock", "objects/info/ALTERNATES",
	"objects/info/http-alternates", "modules", "worktrees", "refs", "objects", "logs",
	"logs/refs", "logs/config", "logs/hooks", "logs/COMMIT_EDITMSG", "logs/refs/.x", "logs/refs/a..b", "refs/.x",
	"refs/heads/a b", "refs/heads/.tmp-renamed-log", "refs/heads/x.lock.lock", "refs/heads/a:b", "refs/.lock", NULL
};

/* In the folder `at`, which is one of git's, whatever its name. */
static void try_git_folder(const struct place *p, const char *at)
{
	char path[256];

	for (size_t i = 0; may[i] != NULL; i++) {
		snprintf(path, sizeof(path), "%s/%s", at, may[i]);
		MAKES(S_IFREG, path);
		MAKES_NOT(S_IFLNK, path);
		MAKES_NOT(S_IFIFO, path);
		MAKES_NOT(S_IFSOCK, path);
	}
	for (size_t i = 0; may_not[i] != NULL; i++) {
		snprintf(path, sizeof(path), "%s/%s", at, may_not[i]);
		MAKES_NOT(S_IFREG, path);
		MAKES_NOT(S_IFLNK, path);
	}
}

static void test_git_folders(void **state)
{
	struct place *p = *state;

	make_repository(p, "repo/.git");
	make_repository(p, "bare");
	make_repository(p, "repo/.git/modules/deep/m");
	make(p, "repo/.git/worktrees/w/HEAD");
	make(p, "repo/.git/worktrees/w/commondir");
	make(p, "repo/.git/worktrees/w/gitdir");
	make(p, "repo/.git/worktrees/w/refs/");
	try_git_folder(p, "repo/.git");
	try_git_folder(p, "bare");
	try_git_folder(p, "repo/.git/modules/deep/m");
	MAKES(S_IFREG, "repo/.git/worktrees/w/index.lock", "repo/.git/worktrees/w/HEAD",
	      "repo/.git/worktrees/w/refs/x");
	MAKES_NOT(S_IFREG, "repo/.git/worktrees/w/gitdir", "repo/.git/worktrees/w/commondir",
		  "repo/.git/worktrees/w/config.worktree", "repo/.git/worktrees/w/locked", "repo/.git/worktrees/x",
		  "repo/.git/modules/x", "repo/.git/modules/deep/HEAD");
	MAKES_NOT(S_IFDIR, "repo/.git/worktrees/x", "repo/.git/modules/deep/x", "repo/.git/hooks", "repo/.git/new",
		  "repo/.git/rebase-merge", "bare/hooks", "bare/.git", "repo/.git/.git", "repo/.git/refs/heads/x.lock",
		  "repo/.git/logs/hooks", "repo/.git/logs/HEAD", "repo/.git/logs/refs/a..b");
	MAKES(S_IFDIR, "repo/.git/refs/heads/x", "repo/.git/objects/ab", "repo/.git/logs", "repo/.git/logs/refs",
	      "bare/objects/pack");
	CHANGES(S_IFREG, "repo/.git/HEAD", "repo/.git/index", "bare/refs/heads/main");
	CHANGES_NOT(S_IFREG, "repo/.git/config", "repo/.git/hooks/pre-commit", "bare/config", "repo/.git/info/exclude");
	CHANGES(S_IFDIR, "repo", "repo/.git", "bare", "repo/.git/objects", "repo/.git/modules",
		"repo/.git/modules/deep");
	CHANGES_NOT(S_IFDIR, "repo/.git/hooks", "repo/.git/info");
	REMOVES(S_IFREG, "repo/.git/index", "repo/.git/refs/heads/main", "repo/.git/logs/HEAD");
	REMOVES_NOT(S_IFREG, "repo/.git/HEAD", "repo/.git/config", "bare/HEAD", "repo/.git/hooks/pre-commit");
	REMOVES_NOT(S_IFDIR, "repo/.git", "bare", "repo/.git/refs", "bare/objects", "repo/.git/hooks",
		    "repo/.git/modules/deep/m", "repo/.git/modules");
	REMOVES(S_IFDIR, "repo/.git/logs", "repo/.git/refs/heads", "repo/.git/objects/pack");
}

/* What will be a bare repository if somebody makes one there. */
static void test_names_of_bare_repositories(void **state)
{
	struct place *p = *state;

	make(p, "x.git/objects/");
	make(p, "a/Y.GIT./");
	make(p, "file.git");
	make(p, "linked.git@");
	make(p, "dir/");
	MAKES(S_IFDIR, "z.git", "a/z.git", "x.git/objects", "x.git/refs");
	MAKES(S_IFREG, "z.git", "x.git/objects/aa", "x.gitx", "dir/git", "x.git.d");
	MAKES_NOT(S_IFLNK, "z.git", "x.git/HEAD");
	MAKES_NOT(S_IFREG, "x.git/config", "x.git/hooks", "x.git/hooks/update", "x.git/new", "a/Y.GIT./config");
	MAKES_NOT(S_IFDIR, "x.git/hooks", "x.git/info", "x.git/sub", "a/Y.GIT./hooks");
	CHANGES(S_IFDIR, "x.git");
	CHANGES(S_IFREG, "file.git");
	REMOVES(S_IFREG, "file.git");
	REMOVES(S_IFDIR, "x.git");
	move(p, -EROFS, "dir", "z.git");
	/* a work tree of git outside; a cell can make neither */
	make(p, "tree.git/.git/");
	MAKES_NOT(S_IFREG, "tree.git/f");
	make_repository(p, "tree.git/.git");
	MAKES(S_IFREG, "tree.git/f", "tree.git/hooks");
	MAKES_NOT(S_IFREG, "tree.git/.git/config");
	make(p, "worktree.git/.git");
	MAKES(S_IFREG, "worktree.git/f");
}

static void test_git_moves(void **state)
{
	struct place *p = *state;

	make_repository(p, "repo/.git");
	make_repository(p, "bare");
	make(p, "dir/hooks/x");
	make(p, "empty/");
	move(p, 0, "repo", "moved");
	move(p, -EROFS, "repo/.git", "repo/git");
	move(p, -EROFS, "bare", "other");
	move(p, -EROFS, "dir", ".git");
	move(p, -EROFS, "empty", ".git");
	move(p, -EROFS, "empty", "repo/.git/objects/x");
	move(p, -EROFS, "dir/hooks", "repo/.git/hooks");
	move(p, -EROFS, "dir/hooks", "bare/refs/hooks");
	move(p, -EROFS, "repo/.git/hooks", "free");
	assert_int_equal(ask(p, CB_ACT_MAKE, "copy", S_IFDIR, "bare"), -EROFS);
}

static void test_dot_git(void **state)
{
	struct place *p = *state;

	make(p, "a/.git/");
	make(p, "sub/.git");
	make(p, "linked/.git@");
	MAKES(S_IFDIR, ".git", "a/.git");
	MAKES_NOT(S_IFREG, ".git", "a/.git", "sub/.git", "a/.git/hooks", "a/.git/config", "a/.git/commondir");
	MAKES_NOT(S_IFLNK, ".git", "sub/.git", "linked/.git");
	MAKES_NOT(S_IFDIR, "a/.git/hooks", "a/.git/info", "a/.git/x");
	CHANGES_NOT(S_IFREG, "sub/.git");
	CHANGES_NOT(S_IFLNK, "linked/.git");
	REMOVES_NOT(S_IFREG, "sub/.git");
	REMOVES_NOT(S_IFLNK, "linked/.git");
	REMOVES(S_IFDIR, "a/.git");
	make(p, "a/.git/index");
	REMOVES_NOT(S_IFDIR, "a/.git");
}

static void test_no_repository_is_made(void **state)
{
	struct place *p = *state;

	MAKES(S_IFREG, "HEAD", "notes");
	MAKES(S_IFDIR, "objects", "refs");
	MAKES_NOT(S_IFREG, "commondir", "Commondir");
	make(p, "b/HEAD");
	make(p, "b/refs/");
	make(p, "b/sub/");
	MAKES(S_IFDIR, "b/sub/objects", "b/objects2");
	MAKES_NOT(S_IFDIR, "b/objects", "b/OBJECTS");
	MAKES_NOT(S_IFREG, "b/objects");
	MAKES_NOT(S_IFLNK, "b/objects");
	make(p, "c/objects@");
	make(p, "c/refs");
	MAKES_NOT(S_IFREG, "c/HEAD", "c/head");
	MAKES_NOT(S_IFLNK, "c/HEAD");
	make(p, "d/Head");
	make(p, "d/Objects/");
	MAKES_NOT(S_IFDIR, "d/refs", "d/REFS");
	make(p, "e/.git/HEAD");
	make(p, "e/.git/refs/");
	MAKES_NOT(S_IFDIR, "e/.git/objects");
	make(p, "f/commondir");
	MAKES_NOT(S_IFREG, "f/HEAD");
	make(p, "from/x/");
	make(p, "g/HEAD");
	make(p, "g/objects/");
	move(p, -EROFS, "from", "g/refs");
	/* names that git itself uses below its folder */
	make_repository(p, "r/.git");
	MAKES(S_IFDIR, "r/.git/logs/refs");
	MAKES(S_IFREG, "r/.git/HEAD");
}

static void test_made_meanwhile(void **state)
{
	struct place *p = *state;
	struct cb_judged judged;

	make(p, "b/HEAD");
	assert_int_equal(cb_judge(&p->judge, "b/refs", CB_ACT_MAKE, S_IFDIR, -1, &judged), 0);
	assert_true(judged.maker);
	make(p, "b/refs/");
	assert_int_equal(cb_judge_made(&judged), 0);
	make(p, "b/objects/"); /* by another jail */
	assert_int_equal(cb_judge_made(&judged), -EROFS);
	close(judged.parent);
	assert_int_equal(cb_judge(&p->judge, "b/HEAD", CB_ACT_MAKE, S_IFREG, -1, &judged), 0);
	assert_false(judged.maker); /* it is one anyway */
	close(judged.parent);
}

static int link_of(const struct place *p, const char *from, const char *to, mode_t type)
{
	struct cb_judged a, b;
	int r = cb_judge_link(&p->judge, from, to, type, &a, &b);

	assert_true((r == 0) == (a.parent >= 0) && (r == 0) == (b.parent >= 0));
	cb_fd_close(&a.parent);
	cb_fd_close(&b.parent);
	return r;
}

static int link_to(const struct place *p, const char *from, const char *to)
{
	return link_of(p, from, to, S_IFREG);
}

/* A second name of a symbolic link is one that no link may be made with. */
static void test_links_of_links(void **state)
{
	static const char *const names[] = { "new.git", "docs", "a/docs", ".svn", "repo/.git/MERGE_MSG" };
	struct place *p = *state;

	make_repository(p, "repo/.git");
	make(p, "a/");
	make(p, "l@");
	make(p, "repo/.git/objects/l@");
	assert_int_equal(link_of(p, "l", "m", S_IFLNK), 0);
	assert_int_equal(link_of(p, "l", "a/m", S_IFLNK), 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		MAKES_NOT(S_IFLNK, names[i]);
		assert_int_equal(link_of(p, "l", names[i], S_IFLNK), -EROFS);
	}
	assert_int_equal(link_of(p, "repo/.git/objects/l", "repo/.git/objects/m", S_IFLNK), -EROFS);
}

static void test_links(void **state)
{
	struct place *p = *state;

	make_repository(p, "repo/.git");
	make_repository(p, "bare");
	make(p, "f");
	make(p, ".envrc");
	make(p, "docs/conf.py");
	assert_int_equal(link_to(p, "f", "g"), 0);
	assert_int_equal(link_to(p, "f", "repo/g"), 0);
	assert_int_equal(link_to(p, "f", ".envrc"), -EROFS);
	assert_int_equal(link_to(p, ".envrc", "f"), -EROFS);
	assert_int_equal(link_to(p, "docs/conf.py", "f"), -EROFS);
	assert_int_equal(link_to(p, "f", "repo/.git/COMMIT_EDITMSG"), -EROFS);
	assert_int_equal(link_to(p, "repo/.git/index", "f"), -EROFS);
	assert_int_equal(link_to(p, "repo/.git/index", "bare/index"), -EROFS);
	assert_int_equal(link_to(p, "repo/.git/hooks/pre-commit", "repo/.git/objects/x"), -EROFS);
	assert_int_equal(link_to(p, "repo/.git/refs/heads/main", "repo/.git/objects/x"), 0);
}

/* Only * and ? stand for others. */
static void test_names_with_brackets(void **state)
{
	struct place *p = *state;
	static char *items[] = { "run[1].sh", "a[1]*.sh", "b\\c", "*[x]?", "[d]/e", NULL };
	const struct cb_strv some = { items, 5 };

	make(p, "sub/");
	make(p, "[d]/");
	make(p, "d/");
	p->judge.patterns = &some;
	p->judge.paths = NULL;
	MAKES_NOT(S_IFREG, "run[1].sh", "sub/RUN[1].sh", "a[1].sh", "a[1]bc.sh", "b\\c", "sub/B\\c", "[x]1", "y[X]z",
		  "[d]/e");
	MAKES(S_IFREG, "run1.sh", "a1.sh", "a1bc.sh", "bc", "b", "x1", "yxz", "y[x]", "d/e");
}

/* Who wants git to be read only, in a cell, says so. */
static void test_git_can_be_closed_further(void **state)
{
	struct place *p = *state;
	static char *items[] = { ".git", ".git/index", ".git/refs", NULL };
	const struct cb_strv more = { items, 3 };

	make_repository(p, "repo/.git");
	p->judge.patterns = &more;
	p->judge.paths = NULL;
	MAKES(S_IFREG, "repo/.git/index.lock", "repo/.git/HEAD");
	MAKES_NOT(S_IFREG, "repo/.git/index", "repo/.git/refs/x", "repo/.git/config");
}

static void test_git_rules_need_a_pattern(void **state)
{
	struct place *p = *state;
	static char *items[] = { ".envrc", ".gitmodules", NULL };
	const struct cb_strv few = { items, 2 };

	make_repository(p, "repo/.git");
	make(p, "env/pyvenv.cfg");
	p->judge.patterns = &few;
	p->judge.paths = NULL;
	MAKES(S_IFREG, "repo/.git/config", "repo/.git/hooks/x", "commondir", "env/x", "pyvenv.cfg");
	MAKES_NOT(S_IFREG, ".envrc", ".gitmodules");
}

static void test_paths_that_are_none(void **state)
{
	struct place *p = *state;
	char name[PATH_MAX + 64];

	make(p, "a/b/f");
	make(p, "link@");
	assert_int_equal(symlinkat("a", p->judge.root, "to"), 0);
	expect(p, -EINVAL, CB_ACT_MAKE, S_IFREG, ALL("/a", "a//b", "a/", "a/./b", "..", "a/../b", "."));
	expect(p, -ELOOP, CB_ACT_MAKE, S_IFREG, ALL("link/x", "to/x", "to/b/x"));
	expect(p, -ENOTDIR, CB_ACT_MAKE, S_IFREG, ALL("a/b/f/x"));
	memset(name, 'n', sizeof(name));
	name[NAME_MAX + 1] = '\0';
	expect(p, -ENAMETOOLONG, CB_ACT_MAKE, S_IFREG, ALL(name));
	memset(name, 'n', sizeof(name));
	for (size_t i = 100; i < sizeof(name); i += 100)
		name[i] = '/';
	name[sizeof(name) - 1] = '\0';
	expect(p, -ENAMETOOLONG, CB_ACT_MAKE, S_IFREG, ALL(name));
	assert_int_equal(ask(p, CB_ACT_LINK, "a", S_IFDIR, NULL), -EPERM);
	assert_int_equal(ask(p, CB_ACT_REMOVE, "", S_IFDIR, NULL), -EBUSY);
	CHANGES(S_IFDIR, "");
}

/* As deep and as full as a cell can make it. */
static void test_nothing_bounds_the_look(void **state)
{
	struct place *p = *state;
	char path[PATH_MAX] = "";
	size_t n = 0;
	int at = dup(p->judge.root);

	make(p, "junk/");
	for (int i = 0; i < 3000; i++) {
		snprintf(path, sizeof(path), "junk/%d", i);
		make(p, path);
	}
	make(p, "junk/HEAD");
	make(p, "junk/objects/");
	MAKES_NOT(S_IFDIR, "junk/refs");
	path[0] = '\0';
	while (n < PATH_MAX - 64) {
		int next;

		assert_int_equal(mkdirat(at, "d", 0755), 0);
		next = openat(at, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = next;
		n += (size_t)snprintf(path + n, sizeof(path) - n, "d/");
	}
	assert_int_equal(mkdirat(at, ".git", 0755), 0);
	close(at);
	snprintf(path + n, sizeof(path) - n, "f");
	MAKES(S_IFREG, path);
	snprintf(path + n, sizeof(path) - n, ".envrc");
	MAKES_NOT(S_IFREG, path);
	snprintf(path + n, sizeof(path) - n, ".git/hooks");
	MAKES_NOT(S_IFREG, path);
}

static void test_closed_folders(void **state)
{
	struct place *p = *state;

	if (geteuid() == 0) { /* root sees all */
		assert_int_equal(chown(p->path, 65534, 65534), 0);
		assert_int_equal(seteuid(65534), 0);
	}
	make(p, "closed/in/");
	make(p, "dark/");
	assert_int_equal(fchmodat(p->judge.root, "closed", 0, 0), 0);
	assert_int_equal(fchmodat(p->judge.root, "dark", 0300, 0), 0);
	expect(p, -EACCES, CB_ACT_MAKE, S_IFREG, ALL("closed/f", "closed/in/f", "dark/HEAD"));
	MAKES(S_IFREG, "dark/f");
	assert_int_equal(fchmodat(p->judge.root, "closed", 0700, 0), 0);
	assert_int_equal(fchmodat(p->judge.root, "dark", 0700, 0), 0);
	assert_int_equal(seteuid(getuid()), 0);
}

static void test_beside(void **state)
{
	struct place *p = *state;

	make(p, "both/HEAD");
	make(p, "env/");
	make(p, "was-file");
	make_in(p->beside, "both/objects/");
	make_in(p->beside, "env/pyvenv.cfg");
	make_in(p->beside, "new/conda-meta/");
	make_in(p->beside, "new2/d/f");
	make_in(p->beside, "bare/objects/");
	make_in(p->beside, "bare/refs/");
	make_in(p->beside, "bare/HEAD");
	make_in(p->beside, "was-file/x");
	p->judge.beside = open(p->beside, O_PATH | O_DIRECTORY | O_CLOEXEC);
	MAKES(S_IFREG, "new2/d/f", "new2/d/g", "was-file/x");
	MAKES_NOT(S_IFDIR, "both/refs", "new", "bare/refs", "bare/objects", "bare/hooks");
	MAKES_NOT(S_IFREG, "env/x", "new/x", "bare/HEAD", "bare/config", "bare/x");
	CHANGES_NOT(S_IFDIR, "env");
	MAKES(S_IFDIR, "bare", "new2", "new2/d");
	expect(p, -ENOENT, CB_ACT_MAKE, S_IFREG, ALL("none/f"));
}

static void test_own_paths_of_a_description(void **state)
{
	static char one[] = "/w/x/venv", itself[] = "/w/x", above[] = "/w", other[] = "/w/xy/a", two[] = "/w/x/h.db";
	char *items[] = { one, itself, above, other, two };
	static char inside[] = "/workspace", ro[] = "/workspace/a/ro", rw[] = "/workspace/rw", far[] = "/data";
	struct cb_bind binds[] = { { .target = ro, .mode = CB_BIND_RO },
				   { .target = rw, .mode = CB_BIND_RW },
				   { .target = far, .mode = CB_BIND_RO } };
	struct cb_jail_spec spec = { .workspace_source = itself,
				     .workspace_target = inside,
				     .protect_paths = { items, 5 },
				     .binds = binds,
				     .nbinds = 3 };
	struct cb_strv v = { 0 };

	(void)state;
	assert_int_equal(cb_judge_paths(&spec, &v), 0);
	assert_int_equal(v.count, 3);
	assert_string_equal(v.items[0], "venv");
	assert_string_equal(v.items[1], "h.db");
	assert_string_equal(v.items[2], "a/ro"); /* a mount in the workspace */
	cb_strv_release(&v);
}

/* VFAT: what has a short name has it for every act. Where the short one is a name of its own it is as any other. */
static void test_short_names(void **state)
{
	struct place *p = *state;

	make(p, "v/lib/site.py");
	make(p, "v/pyvenv.cfg");
	make(p, "s.startup");
	make(p, "a/x~1.txt");
	make(p, "a/x~1/f");
	make(p, "a/f~.~1~");
	CHANGES(S_IFREG, "a/x~1.txt", "a/x~1/f", "a/f~.~1~", "a/none~1");
	MAKES(S_IFREG, "a/x~1.txt", "a/x~1/g", "new~1", "S23456~1.STA");
	REMOVES(S_IFREG, "a/x~1.txt");
	short_name = "S23456~1.STA";
	long_name = "s.startup";
	CHANGES_NOT(S_IFREG, "S23456~1.STA", "s23456~1.sta");
	MAKES_NOT(S_IFREG, "S23456~1.STA");
	REMOVES_NOT(S_IFREG, "S23456~1.STA");
	short_name = "S~X\u00e4\u00d6\u00df~1.S~A";
	CHANGES_NOT(S_IFREG, "S~X\u00e4\u00d6\u00df~1.S~A");
	short_name = "D23456~1";
	long_name = "a";
	MAKES_NOT(S_IFREG, "D23456~1/f");
	CHANGES(S_IFREG, "a/x~1.txt", "new~1");
	short_name = NULL;
	p->judge.beside = open(p->beside, O_PATH | O_DIRECTORY | O_CLOEXEC);
	make_in(p->beside, "a/y~1");
	CHANGES(S_IFREG, "a/y~1", "a/x~1.txt");
	short_name = "S23456~1.STA";
	long_name = "s.startup";
	CHANGES_NOT(S_IFREG, "S23456~1.STA");
	make_in(p->beside, "layer.only"); /* it is in memory: no short names, and it is not looked through */
	short_name = "L23456~1.ONL";
	long_name = "layer.only";
	CHANGES(S_IFREG, "L23456~1.ONL");
	short_name = NULL;
}

int main(void)
{
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		IN_A_FOLDER(test_names),
		IN_A_FOLDER(test_other_spellings),
		IN_A_FOLDER(test_markers),
		IN_A_FOLDER(test_workspace_is_a_prefix),
		IN_A_FOLDER(test_longer_patterns),
		IN_A_FOLDER(test_our_own),
		IN_A_FOLDER(test_git_folders),
		IN_A_FOLDER(test_git_moves),
		IN_A_FOLDER(test_names_of_bare_repositories),
		IN_A_FOLDER(test_dot_git),
		IN_A_FOLDER(test_no_repository_is_made),
		IN_A_FOLDER(test_made_meanwhile),
		IN_A_FOLDER(test_links),
		IN_A_FOLDER(test_links_of_links),
		IN_A_FOLDER(test_names_with_brackets),
		IN_A_FOLDER(test_git_can_be_closed_further),
		IN_A_FOLDER(test_git_rules_need_a_pattern),
		IN_A_FOLDER(test_paths_that_are_none),
		IN_A_FOLDER(test_nothing_bounds_the_look),
		IN_A_FOLDER(test_closed_folders),
		IN_A_FOLDER(test_beside),
		IN_A_FOLDER(test_short_names),
		cmocka_unit_test(test_own_paths_of_a_description),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
