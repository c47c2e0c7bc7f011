/* Where links that bear a protected name lead, over real links, which change. */
#include "../../../../sandbox/judge/parts.h"
#include "../../folder.h"

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
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char *pattern_items[] = { ".git", ".envrc", ".vscode", "*.startup", ".svn/hooks", NULL };
static const struct cb_strv patterns = { pattern_items, 5 };

/* The fine clock runs ahead of the one that times of change are read from, as on a machine that has missed ticks. */
int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = (int)syscall(SYS_clock_gettime, clock, ret);

	if (r == 0 && clock == CLOCK_REALTIME)
		ret->tv_sec++;
	return r;
}

struct place {
	char path[64];
	struct cb_leads leads[2];
	struct cb_judge judge;
};

static int setup(void **state)
{
	static struct place p;

	snprintf(p.path, sizeof(p.path), "/tmp/cb-judge-leads-XXXXXX");
	if (mkdtemp(p.path) == NULL)
		return -1;
	p.leads[0] = p.leads[1] = CB_LEADS_NONE;
	p.leads[0].source = p.leads[1].source = p.path;
	p.judge = (struct cb_judge){ .root = open(p.path, O_PATH | O_DIRECTORY | O_CLOEXEC),
				     .beside = -1,
				     .patterns = &patterns,
				     .leads = p.leads };
	*state = &p;
	return p.judge.root < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct place *p = *state;

	cb_strv_release(&p->leads[0].paths);
	cb_strv_release(&p->leads[1].paths);
	close(p->judge.root);
	return folder_remove(p->path);
}

static void folder(const struct place *p, const char *name)
{
	assert_int_equal(mkdirat(p->judge.root, name, 0755), 0);
}

static void put(const struct place *p, const char *name, const char *target)
{
	assert_int_equal(symlinkat(target, p->judge.root, name), 0);
}

static void gone(const struct place *p, const char *name)
{
	assert_int_equal(unlinkat(p->judge.root, name, 0), 0);
}

static int add(void *arg, const char *path)
{
	char *text = arg;
	size_t n = strlen(text);

	snprintf(text + n, PATH_MAX - n, "%s ", path != NULL ? path : "ANY");
	return 0;
}

/* All paths that are protected for links, in their order. */
static void leads(const struct place *p, bool about_git, const char *want)
{
	char text[PATH_MAX] = "";

	assert_int_equal(cb_leads_judge(&p->judge, about_git, add, text), 0);
	assert_string_equal(text, want);
}

static void test_each_link_on_the_way(void **state)
{
	const struct place *p = *state;

	leads(p, true, "");
	folder(p, "d");
	put(p, ".envrc", "d/envrc");
	leads(p, true, "d/envrc ");
	put(p, "d/envrc", "../e//./f");
	leads(p, true, "d/envrc e/f "); /* also of what is not there */
	folder(p, "real");
	put(p, "e", "real");
	leads(p, true, "d/envrc e real/f ");
	gone(p, "d/envrc"); /* the workspace's own folder stays as it is */
	put(p, "d/envrc", "../e/g");
	leads(p, true, "d/envrc e real/g ");
}

static void test_links_that_lead_nowhere(void **state)
{
	const struct place *p = *state;
	char whole[PATH_MAX];

	put(p, ".envrc", "../out");
	put(p, ".vscode", ".vscode");
	leads(p, true, ".vscode ");
	gone(p, ".envrc");
	put(p, ".envrc", "/etc/passwd");
	leads(p, true, ".vscode ");
	gone(p, ".envrc");
	snprintf(whole, sizeof(whole), "%s/d/x", p->path);
	put(p, ".envrc", whole);
	gone(p, ".vscode");
	leads(p, true, "d/x ");
	gone(p, ".envrc");
	snprintf(whole, sizeof(whole), "%sx/d", p->path); /* another folder, with a longer name */
	put(p, ".envrc", whole);
	leads(p, true, "");
	gone(p, ".envrc");
	put(p, ".envrc", "a/../../b"); /* a is not there: dots go up from its name */
	leads(p, true, "");
}

static void test_which_names_are_looked_at(void **state)
{
	const struct place *p = *state;

	put(p, "x.startup", "a");
	folder(p, ".svn");
	put(p, ".svn/hooks", "../b");
	folder(p, "sub");
	put(p, "sub/.envrc", "c");
	put(p, ".git", "d");
	leads(p, false, "");
}

/* Names of a folder that holds few are read, of one that holds many they are asked for. */
static void test_few_and_many(void **state)
{
	const struct place *p = *state;
	char name[32];

	put(p, ".envrc", "d");
	put(p, "plain", "e");
	leads(p, true, "d ");
	gone(p, ".envrc");
	put(p, "\xef\xbb\xbf.VSCode", "f"); /* some file systems take it for the plain name */
	leads(p, true, "f ");
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "many-%d", i);
		folder(p, name);
	}
	put(p, ".envrc", "many-7/d");
	gone(p, "\xef\xbb\xbf.VSCode");
	put(p, ".vscode", "g");
	leads(p, true, "many-7/d g ");
}

static void test_git(void **state)
{
	const struct place *p = *state;

	folder(p, ".git");
	folder(p, ".git/hooks");
	put(p, ".git/config", "../settings");
	put(p, ".git/hooks/pre-commit", "../../scripts/check");
	put(p, ".git/HEAD", "../other");
	leads(p, false, "");
	leads(p, true, "settings scripts/check ");
	gone(p, ".git/hooks/pre-commit");
	leads(p, true, "settings ");
	gone(p, ".git/config");
	assert_int_equal(unlinkat(p->judge.root, ".git/hooks", AT_REMOVEDIR), 0);
	put(p, ".git/hooks", "../myhooks");
	leads(p, true, "myhooks ");
}

static void test_too_many(void **state)
{
	struct place *p = *state;
	char name[64], target[64], text[PATH_MAX] = "";
	struct cb_leads *git = p->leads + 1;

	folder(p, ".git");
	folder(p, ".git/hooks");
	for (int i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), ".git/hooks/%d", i);
		snprintf(target, sizeof(target), "../../s/%d", i);
		put(p, name, target);
	}
	assert_int_equal(cb_leads_judge(&p->judge, true, add, text), 0);
	assert_true(strncmp(text, "ANY ", 4) == 0 && git->paths.count <= 512);
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), ".git/hooks/%d", i);
		gone(p, name);
	}
	text[0] = '\0';
	assert_int_equal(cb_leads_judge(&p->judge, true, add, text), 0);
	assert_true(strncmp(text, "ANY ", 4) != 0 && git->paths.count == 300);
}

static int refuse(void *arg, const char *path)
{
	(void)path;
	++*(int *)arg;
	return -30;
}

static void test_the_first_answer_counts(void **state)
{
	const struct place *p = *state;
	const struct cb_judge none = { .root = p->judge.root, .patterns = &patterns };
	int asked = 0;

	put(p, ".envrc", "a");
	put(p, ".vscode", "b");
	assert_int_equal(cb_leads_judge(&p->judge, true, refuse, &asked), -30);
	assert_int_equal(asked, 1);
	assert_int_equal(cb_leads_judge(&none, true, refuse, &asked), 0);
	assert_int_equal(asked, 1);
}

/* Where descriptors are short a look that failed is no answer, and none that is kept. */
static void test_want_of_descriptors(void **state)
{
	struct place *p = *state;
	const struct timespec past_grain = { .tv_nsec = 100000000 };
	struct rlimit files, few;
	int first, failed = 0, r;

	folder(p, ".git");
	folder(p, ".git/hooks");
	put(p, ".git/hooks/pre-commit", "../../scripts/pc");
	put(p, "\xef\xbb\xbf.envrc", "e");
	(void)nanosleep(&past_grain, NULL);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	first = fcntl(p->judge.root, F_DUPFD_CLOEXEC, 0);
	close(first);
	for (int more = 0; more < 4; more++) {
		char text[PATH_MAX] = "";

		p->leads[0].looked = p->leads[1].looked = false;
		few = (struct rlimit){ (rlim_t)(first + more), files.rlim_max };
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		r = cb_leads_judge(&p->judge, true, add, text);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
		failed += r == -EMFILE;
		if (r != -EMFILE) {
			assert_int_equal(r, 0);
			assert_string_equal(text, "e scripts/pc ");
		}
		leads(p, true, "e scripts/pc ");
	}
	assert_int_equal(failed, 2); /* a folder; then it, and what reads it */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each_link_on_the_way, setup, teardown),
		cmocka_unit_test_setup_teardown(test_links_that_lead_nowhere, setup, teardown),
		cmocka_unit_test_setup_teardown(test_which_names_are_looked_at, setup, teardown),
		cmocka_unit_test_setup_teardown(test_few_and_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_git, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_first_answer_counts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_want_of_descriptors, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
