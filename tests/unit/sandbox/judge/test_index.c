/* What a git index may hold: indexes that git has made, in each version, and crafted ones, byte by byte. */
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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define FILE_MODE 0100644u
#define LINK_MODE 0120000u

struct made {
	unsigned char data[1u << 20];
	size_t n;
	uint32_t version;
	char last[8192];
};

static void put(struct made *m, const void *data, size_t n)
{
	assert_true(m->n + n <= sizeof(m->data));
	memcpy(m->data + m->n, data, n);
	m->n += n;
}

static void put_number(struct made *m, uint32_t value, unsigned bytes)
{
	for (unsigned i = bytes; i-- > 0;) {
		unsigned char c = (unsigned char)(value >> 8 * i);

		put(m, &c, 1);
	}
}

static struct made *begin(uint32_t version, uint32_t entries)
{
	static struct made m;

	m.n = 0;
	m.version = version;
	m.last[0] = '\0';
	put(&m, "DIRC", 4);
	put_number(&m, version, 4);
	put_number(&m, entries, 4);
	return &m;
}

/* Below `flags`: the name's length, unless they have one. */
static void add_entry(struct made *m, const char *path, uint32_t mode, uint32_t flags, int extended)
{
	static const unsigned char nothing[24];
	size_t start = m->n, len = strlen(path), keep = 0;

	put(m, nothing, 24);
	put_number(m, mode, 4);
	put(m, nothing, 12);
	put(m, "01234567890123456789", 20);
	if ((flags & 0xfff) == 0)
		flags |= len < 0xfff ? (uint32_t)len : 0xfffu;
	put_number(m, flags | (extended >= 0 ? 0x4000u : 0), 2);
	if (extended >= 0)
		put_number(m, (uint32_t)extended, 2);
	if (m->version == 4) {
		while (m->last[keep] != '\0' && m->last[keep] == path[keep])
			keep++;
		assert_true(strlen(m->last) - keep < 128);
		put_number(m, (uint32_t)(strlen(m->last) - keep), 1);
	}
	put(m, path + keep, len - keep + 1);
	while (m->version < 4 && (m->n - start) % 8 != 0)
		put(m, "", 1);
	snprintf(m->last, sizeof(m->last), "%s", path);
}

static void add_extension(struct made *m, const char *name, const char *data, size_t n)
{
	put(m, name, 4);
	put_number(m, (uint32_t)n, 4);
	put(m, data, n);
}

/* What was left of the last index. */
static unsigned char left[1u << 20];
static size_t left_n;

static int end(struct made *m)
{
	unsigned char *exact;
	int r;

	put(m, "\1\2\3\4\5\6\7\10\11\12\1\2\3\4\5\6\7\10\11\12", 20);
	exact = malloc(m->n); /* a read past the end is seen by AddressSanitizer */
	assert_non_null(exact);
	memcpy(exact, m->data, m->n);
	left_n = m->n;
	r = cb_judge_index(exact, &left_n);
	memcpy(left, exact, left_n);
	free(exact);
	return r;
}

static int one_path(const char *path, uint32_t mode)
{
	int r = 0;

	for (uint32_t version = 2; version <= 4; version++) {
		struct made *m = begin(version, 1);
		int got;

		add_entry(m, path, mode, 0, -1);
		got = end(m);
		assert_true(version == 2 || got == r);
		r = got;
	}
	return r;
}

static void test_names(void **state)
{
	static const char *const good[] = { "a",	  "a/b/c",   ".gitignore", ".github/x", "a.git",   "...",
					    "a/.gitmodules", "..a/b", "a b",	    "\xc3\xa9", "a\\b",    "git",
					    ".gitx",	  "x:y",     "a\\",	    ".envrc",	"git~2",   "a/git~1x" };
	static const char *const bad[] = {
		"",		    "/",	  "/a",		 "a/",		 "a//b",	".",
		"..",		    "a/..",	  "../a",	 "a/../b",	 "./a",		"a/.",
		".git",		    ".git/hooks/x", ".GIT/x",	 "a/.Git/x",	 "a/.git",
		".git./x",	    ".git /x",	  ".git\\x",	 "a\\.git\\x",	 "a\\..\\b",	"git~1/x",
		"GIT~1",	    ".git::$INDEX_ALLOCATION/x", ".git:x", ".g\xe2\x80\x8cit/x", ".git\xe2\x80\x8d",
		".gi\xef\xbb\xbft", "..\\x",
	};
	char longest[PATH_MAX + 1], *at;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		if (one_path(good[i], FILE_MODE) != 0)
			fail_msg("refused: %s", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (one_path(bad[i], FILE_MODE) != -EROFS)
			fail_msg("not refused: %s", bad[i]);
	memset(longest, 'a', sizeof(longest));
	longest[NAME_MAX] = '\0';
	assert_int_equal(one_path(longest, FILE_MODE), 0);
	longest[NAME_MAX] = 'a';
	longest[NAME_MAX + 1] = '\0';
	assert_int_equal(one_path(longest, FILE_MODE), -EROFS);
	longest[NAME_MAX + 1] = 'a';
	for (at = longest + 100; at < longest + PATH_MAX; at += 100)
		*at = '/';
	longest[PATH_MAX] = '\0';
	assert_int_equal(one_path(longest, FILE_MODE), -EROFS);
	longest[PATH_MAX - 1] = '\0'; /* git's flags have no room for its length */
	assert_int_equal(one_path(longest, FILE_MODE), 0);
}

static void test_modes(void **state)
{
	static const uint32_t good[] = { 0100644, 0100755, 0100664, LINK_MODE, 0160000 };
	static const uint32_t bad[] = { 0, 0644, 0040000, 0060000, 010644, 0140000, 0x10000 | FILE_MODE, UINT32_MAX };

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_int_equal(one_path("a", good[i]), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(one_path("a", bad[i]), -EROFS);
	assert_int_equal(one_path(".gitmodules", FILE_MODE), 0);
	assert_int_equal(one_path(".gitmodules", LINK_MODE), -EROFS);
	assert_int_equal(one_path("a/.GitModules", LINK_MODE), -EROFS);
	assert_int_equal(one_path("gitmod~1", LINK_MODE), -EROFS);
}

static void test_flags(void **state)
{
	static const struct {
		uint32_t version, flags;
		int extended, r;
	} cases[] = {
		{ 2, 0, -1, 0 },
		{ 2, 0x8000, -1, 0 },
		{ 2, 3, -1, 0 },
		{ 2, 2, -1, -EROFS }, /* git would go on elsewhere */
		{ 2, 4, -1, -EROFS },
		{ 2, 12, -1, -EROFS },
		{ 2, 0xfff, -1, -EROFS },
		{ 4, 3, -1, 0 },
		{ 4, 2, -1, -EROFS },
		{ 4, 0xfff, -1, -EROFS },
		{ 2, 0, 0x4000, -EROFS },
		{ 3, 0, 0x4000, 0 },
		{ 3, 0, 0x6000, 0 },
		{ 4, 0, 0x2000, 0 },
		{ 3, 0, 0x8000, -EROFS },
		{ 3, 0, 1, -EROFS },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct made *m = begin(cases[i].version, 2);

		add_entry(m, "abc", FILE_MODE, cases[i].flags, cases[i].extended);
		add_entry(m, "abd", FILE_MODE, 0, -1);
		if (end(m) != cases[i].r)
			fail_msg("case %zu", i);
	}
}

/* Pairs and triples with their stages. */
static void test_order(void **state)
{
	static const struct {
		const char *paths[4];
		unsigned stages[4];
		int r;
	} cases[] = {
		{ { "a", "b" }, { 0 }, 0 },
		{ { "b", "a" }, { 0 }, -EROFS },
		{ { "a", "a" }, { 0 }, -EROFS },
		{ { "a", "a", "a" }, { 1, 2, 3 }, 0 },
		{ { "a", "a" }, { 2, 1 }, -EROFS },
		{ { "a", "a" }, { 0, 1 }, -EROFS },
		{ { "a", "ab", "abc" }, { 0 }, 0 },
		{ { "ab", "a" }, { 0 }, -EROFS },
		{ { "a", "\xc3" }, { 0 }, 0 },
		{ { "a", "a/b" }, { 0 }, -EROFS }, /* through a link */
		{ { "a", "a-b", "a/b" }, { 0 }, -EROFS },
		{ { "a", "a-b", "a-c", "a/b" }, { 0 }, -EROFS },
		{ { "a", "a/b/c" }, { 0 }, -EROFS },
		{ { "a-", "a/b", "a0" }, { 0 }, 0 },
		{ { "a", "a/b" }, { 1, 0 }, 0 },
		{ { "a", "a", "a/b" }, { 1, 2, 2 }, -EROFS },
		{ { "a", "a-", "a/b" }, { 1, 0, 2 }, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		for (uint32_t version = 2; version <= 4; version += 2) {
			uint32_t n = 0;
			struct made *m;

			while (n < 4 && cases[i].paths[n] != NULL)
				n++;
			m = begin(version, n);
			for (uint32_t k = 0; k < n; k++)
				add_entry(m, cases[i].paths[k], FILE_MODE, cases[i].stages[k] << 12, -1);
			if (end(m) != cases[i].r)
				fail_msg("case %zu, version %u", i, version);
		}
	}
}

static void test_extensions(void **state)
{
	static const char *const good[] = { "TREE", "REUC", "UNTR", "FSMN", "EOIE", "IEOT", "ABCD", "Zbcd" };
	static const char *const bad[] = { "link", "sdir", "tree", "[REE", "@REE", "\0\0\0\0" };
	static const char data[64] = "EOIE";
	struct made *m;
	size_t entries;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		m = begin(2, 1);
		add_entry(m, "a", FILE_MODE, 0, -1);
		entries = m->n;
		add_extension(m, good[i], data, i);
		add_extension(m, "TREE", data, sizeof(data));
		assert_int_equal(end(m), 0);
		assert_int_equal(left_n, entries + 20); /* none of it is left */
		assert_memory_equal(left, m->data, entries);
		assert_memory_not_equal(left + entries, m->data + m->n - 20, 20);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		m = begin(2, 1);
		add_entry(m, "a", FILE_MODE, 0, -1);
		add_extension(m, bad[i], data, i);
		assert_int_equal(end(m), -EROFS);
	}
	for (size_t gap = 1; gap < 8; gap++) {
		m = begin(2, 0);
		add_extension(m, "TREE", "", 0);
		put(m, "TREE\0\0\0", gap);
		assert_int_equal(end(m), -EROFS);
	}
	for (uint32_t size = 4; size < 30; size++) { /* into the hash, and past the end */
		m = begin(2, 0);
		put(m, "TREE", 4);
		put_number(m, size, 4);
		put(m, "abc", 3);
		assert_int_equal(end(m), -EROFS);
	}
	m = begin(2, 0);
	put(m, "TREE", 4);
	put_number(m, UINT32_MAX - 7, 4);
	assert_int_equal(end(m), -EROFS);
}

/* Git looks from the end, whatever lies there. */
static void test_end_mark(void **state)
{
	(void)state;
	for (size_t at = 0; at < 96; at++) {
		char name[101];
		struct made *m = begin(2, 1);
		size_t back;

		memset(name, 'a', sizeof(name) - 1);
		name[100] = '\0';
		memcpy(name + at, "EOIE", 4);
		add_entry(m, name, FILE_MODE, 0, -1);
		back = m->n - (12 + 62 + at); /* before the hash */
		assert_int_equal(end(m), back == 32 || back == 44 || back == 56 ? -EROFS : 0);
	}
}

static void test_headers(void **state)
{
	struct made *m;

	(void)state;
	left_n = 0;
	assert_int_equal(cb_judge_index(left, &left_n), -EROFS);
	for (uint32_t version = 0; version < 7; version++) {
		m = begin(version, 0);
		assert_int_equal(end(m), version >= 2 && version <= 4 ? 0 : -EROFS);
	}
	m = begin(2, 2); /* more are said than there are, and fewer */
	add_entry(m, "a", FILE_MODE, 0, -1);
	assert_int_equal(end(m), -EROFS);
	m = begin(2, UINT32_MAX);
	add_entry(m, "a", FILE_MODE, 0, -1);
	assert_int_equal(end(m), -EROFS);
	m = begin(2, 0);
	add_entry(m, "a", FILE_MODE, 0, -1);
	assert_int_equal(end(m), -EROFS);
	m = begin(2, 1);
	add_entry(m, "a", FILE_MODE, 0, -1);
	m->data[m->n - 1] = 'x'; /* behind the name's end */
	assert_int_equal(end(m), -EROFS);
	m = begin(2, 0);
	memcpy(m->data, "DIRX", 4);
	assert_int_equal(end(m), -EROFS);
}

/* What version 4 takes of the last name. */
static void test_prefixes(void **state)
{
	static const struct {
		const char *number;
		size_t n;
		int r;
	} cases[] = {
		{ "\0", 1, 0 },
		{ "\2", 1, 0 },
		{ "\3", 1, -EROFS },
		{ "\x80", 1, -EROFS },
		{ "\x80\0", 2, -EROFS },
		{ "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10, -EROFS },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct made *m = begin(4, 2);

		add_entry(m, "aa", FILE_MODE, 0, -1);
		add_entry(m, "aa/", FILE_MODE, 0, -1); /* for its head; the name is another */
		m->n -= 3;
		m->data[m->n - 1] = cases[i].number[0] == '\2' ? 1 : 3; /* the length's low byte */
		put(m, cases[i].number, cases[i].n);
		put(m, "b", 2);
		if (end(m) != cases[i].r)
			fail_msg("case %zu", i);
	}
}

/* ---- what git makes ---- */

static int shell(const char *command)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	return waitpid(pid, &status, 0) == pid ? status : -1;
}

static void run(const char *folder, const char *script)
{
	char command[4096];

	snprintf(command, sizeof(command),
		 "cd %s && export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null && ( %s ) >>%s.log 2>&1",
		 folder, script, folder);
	if (shell(command) != 0)
		fail_msg("failed: %s", script);
}

static void remove_folder(const char *folder)
{
	char log[64];

	snprintf(log, sizeof(log), "%s.log", folder);
	assert_int_equal(folder_remove(folder), 0);
	assert_int_equal(unlink(log), 0);
}

static int judge_of(const char *folder)
{
	char path[256], *data = NULL;
	size_t n = 0;
	int r;

	snprintf(path, sizeof(path), "%s/.git", folder);
	CB_AUTO_FD git = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CB_AUTO_FD fd = openat(git, "index", O_RDONLY | O_CLOEXEC);
	assert_true(git >= 0 && fd >= 0);
	r = cb_judge_git_file(CB_GIT_INDEX, git, fd, &data, &n);
	free(data);
	return r;
}

static void test_gits_own(void **state)
{
	static const char *const scripts[] = {
		"mkdir -p d/e 'd f';"
		"for i in 1 2 3 4 5 6 7 8 9; do echo $i >d/e/file$i; echo $i >d/f$i; echo $i >\"d f/$i\"; done;"
		"ln -s nowhere link; chmod +x d/f1; git add .",
		"git commit -q -m one",
		"git update-index --index-version 4",
		"touch out; git add -N out; git update-index --skip-worktree d/f2",
		"git update-index --assume-unchanged d/f3",
		"git update-index --index-version 3; git update-index --index-version 2",
		"git rm -q --cached out; git checkout -q -b b; echo x >d/f5; git commit -q -a -m b;"
		"git checkout -q -; echo y >d/f5; git commit -q -a -m c; ! git merge -q b",
		"git add d/f5",
		"git update-index --force-untracked-cache; git status",
		"git rm -r -q --cached .",
	};
	char folder[] = "/tmp/cb-index-XXXXXX";

	(void)state;
	if (shell("git --version >/dev/null 2>&1") != 0)
		skip();
	assert_non_null(mkdtemp(folder));
	run(folder, "git init -q; git config user.name x; git config user.email x@example.org");
	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++) {
		run(folder, scripts[i]);
		if (judge_of(folder) != 0)
			fail_msg("refused after: %s", scripts[i]);
	}
	run(folder, "git reset -q --hard; git update-index --split-index");
	assert_int_equal(judge_of(folder), -EROFS);
	run(folder, "git update-index --no-split-index");
	run(folder, "git -c index.threads=2 update-index --force-write-index");
	assert_int_equal(judge_of(folder), 0);
	run(folder, "printf '[extensions]\\n\\tObjectFormat = sha256\\n' >>.git/config");
	assert_int_equal(judge_of(folder), -EROFS);
	remove_folder(folder);
}

/* Whose configuration counts. */
static void test_commondir(void **state)
{
	char folder[] = "/tmp/cb-index-XXXXXX";

	(void)state;
	assert_non_null(mkdtemp(folder));
	run(folder, "mkdir -p .git common; printf 'DIRC\\0\\0\\0\\2\\0\\0\\0\\0%020d' 0 >.git/index");
	assert_int_equal(judge_of(folder), 0);
	run(folder, "echo ../common >.git/commondir");
	assert_int_equal(judge_of(folder), -EROFS); /* it is not to be seen */
	run(folder, "touch common/config");
	assert_int_equal(judge_of(folder), 0);
	run(folder, "echo '[extensions] objectformat=sha256' >common/config");
	assert_int_equal(judge_of(folder), -EROFS);
	run(folder, ": >.git/commondir");
	assert_int_equal(judge_of(folder), -EROFS);
	remove_folder(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),	  cmocka_unit_test(test_modes),	   cmocka_unit_test(test_flags),
		cmocka_unit_test(test_order),	  cmocka_unit_test(test_extensions), cmocka_unit_test(test_end_mark),
		cmocka_unit_test(test_headers),	  cmocka_unit_test(test_prefixes), cmocka_unit_test(test_gits_own),
		cmocka_unit_test(test_commondir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
