/* What git's references may be called and hold: as `git check-ref-format` says, and as git writes them. */
#include "../../../../sandbox/judge/parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define OID "0123456789abcdef0123456789abcdef01234567"
#define OID_LONG OID "89abcdef0123456789abcdef"

static const char *const good_names[] = {
	"refs/stash",	   "refs/heads/main", "refs/heads/a/b/c", "refs/remotes/origin/HEAD", "refs/heads/a.b",
	"refs/heads/a./b", "refs/heads/@",    "refs/heads/{a}",	  "refs/heads/\xc3\xa4",      "refs/heads/-a",
	"refs/heads/lock", "refs/heads/a@b",
};
static const char *const bad_names[] = {
	"",		  "refs",	      "refs/",		  "HEAD",	      "heads/main",	"refsx/a",
	"/refs/heads/a",  "refs//a",	      "refs/heads/",	  "refs/./a",	      "refs/../a",	"refs/heads/..",
	"../../out/name", "refs/heads/a..b",  "refs/heads/.a",	  "refs/heads/a.",    "refs/a.lock",	"refs/a.lock/b",
	"refs/heads/a b", "refs/heads/a\tb",  "refs/heads/a\x7f", "refs/heads/a~1", "refs/heads/a^", "refs/heads/a:b",
	"refs/heads/a?", "refs/heads/a*", "refs/heads/[a", "refs/heads/a\\b", "refs/heads/a@{", "refs/heads/a\n",
	"Refs/heads/a",	  "refs/heads/.lock",
};

static void test_names(void **state)
{
	static char much[PATH_MAX + 1];

	(void)state;
	for (size_t i = 0; i < CB_COUNT(good_names); i++)
		if (!cb_ref_is_name(good_names[i], strlen(good_names[i])))
			fail_msg("refused: %s", good_names[i]);
	for (size_t i = 0; i < CB_COUNT(bad_names); i++)
		if (cb_ref_is_name(bad_names[i], strlen(bad_names[i])))
			fail_msg("accepted: %s", bad_names[i]);
	assert_false(cb_ref_is_name("refs/heads/a\0b", 14));
	memset(much, 'a', PATH_MAX);
	memcpy(much, "refs/", 5);
	assert_true(cb_ref_is_name(much, 5 + NAME_MAX));
	assert_false(cb_ref_is_name(much, 5 + NAME_MAX + 1));
	for (size_t i = 5; i < PATH_MAX; i += 2)
		much[i] = '/';
	assert_false(cb_ref_is_name(much, PATH_MAX - 1));
	for (size_t i = 5; i < PATH_MAX; i++)
		much[i] = i % 2 == 0 ? '/' : 'a';
	assert_true(cb_ref_is_name(much, PATH_MAX - 2));
	assert_false(cb_ref_is_name(much, PATH_MAX));
}

static int check_ref_format(const char *name)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		execlp("git", "git", "check-ref-format", name, (char *)NULL);
		_exit(127);
	}
	return waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -1;
}

/* Git itself lets none in that we refuse, but those that are not below refs, and the other way round. */
static void test_git_agrees(void **state)
{
	(void)state;
	if (check_ref_format("refs/heads/a") != 0)
		skip();
	for (size_t i = 0; i < CB_COUNT(good_names); i++)
		if (check_ref_format(good_names[i]) != 0)
			fail_msg("git refuses: %s", good_names[i]);
	for (size_t i = 0; i < CB_COUNT(bad_names); i++)
		if (strncmp(bad_names[i], "refs/", 5) == 0 && check_ref_format(bad_names[i]) == 0)
			fail_msg("git accepts: %s", bad_names[i]);
}

static bool content(const char *text)
{
	char *exact = malloc(strlen(text) + 1); /* a read past the end is seen by AddressSanitizer */
	bool is;

	assert_non_null(exact);
	memcpy(exact, text, strlen(text));
	is = cb_ref_is_content(exact, strlen(text));
	free(exact);
	return is;
}

static void test_contents(void **state)
{
	static const char *const good[] = { OID "\n", OID_LONG "\n", "ref: refs/heads/main\n", "ref: refs/a\n" };
	static const char *const bad[] = {
		"", "\n", OID, OID " \n", OID "\n\n", "0" OID "\n", "0123456789ABCDEF0123456789ABCDEF01234567\n",
		"ref: \n", "ref: refs/heads/main", "ref: ../config\n", "ref: commondir\n", "ref:refs/heads/main\n",
		"ref:  refs/heads/main\n", "ref: refs/heads/main \n", "ref: refs/heads/main\n\n", "ref: /etc/passwd\n",
		"ref: refs/../config\n", "ref: HEAD\n", "gitdir: x\n", OID "\nref: refs/heads/main\n",
	};

	(void)state;
	for (size_t i = 0; i < CB_COUNT(good); i++)
		if (!content(good[i]))
			fail_msg("refused: %s", good[i]);
	for (size_t i = 0; i < CB_COUNT(bad); i++)
		if (content(bad[i]))
			fail_msg("accepted: %s", bad[i]);
}

static void test_packed(void **state)
{
	static const char *const good[] = {
		"",
		"# pack-refs with: peeled fully-peeled sorted \n",
		"# pack-refs with: peeled fully-peeled sorted \n" OID " refs/heads/main\n",
		OID " refs/heads/a\n" OID " refs/tags/t\n^" OID "\n" OID " refs/tags/u\n",
	};
	static const char *const bad[] = {
		"\n", OID "\n", OID " refs/heads/main", OID " refs/heads/../../x\n", OID " HEAD\n", OID "  refs/a\n",
		"^" OID "\n", OID " refs/a\n^" OID "\n^" OID "\n", OID " refs/a\n# x\n", OID " refs/a\n^x\n",
		"# x", "# x\n^" OID "\n", "ref: refs/heads/main\n", " refs/heads/main\n", OID " refs/a\n\n",
	};

	(void)state;
	for (size_t i = 0; i < CB_COUNT(good); i++)
		if (!cb_ref_is_packed(good[i], strlen(good[i])))
			fail_msg("refused: %s", good[i]);
	for (size_t i = 0; i < CB_COUNT(bad); i++)
		if (cb_ref_is_packed(bad[i], strlen(bad[i])))
			fail_msg("accepted: %s", bad[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_git_agrees),
		cmocka_unit_test(test_contents),
		cmocka_unit_test(test_packed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
