/* Paths of the workspace: where they lead, and that none leads out, whatever links there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../../../sandbox/jobs/job.h"
#include "../../folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char outer[] = "/tmp/cellblock-test-XXXXXX";
static char workspace[128];

static int set_up(void **state)
{
	(void)state;
	assert_non_null(mkdtemp(outer));
	snprintf(workspace, sizeof(workspace), "%s/w", outer);
	assert_int_equal(chdir(outer), 0);
	assert_int_equal(close(open("secret", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
	assert_int_equal(mkdir("w", 0700) | mkdir("w/a", 0700) | mkdir("w/a/b", 0700), 0);
	assert_int_equal(close(open("w/a/f", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
	assert_int_equal(symlink("../a/f", "w/a/up") | symlink("a", "w/la") | symlink("../secret", "w/out") |
				 symlink("/etc", "w/etc") | symlink("loop", "w/loop") | symlink("..", "w/a/b/dots") |
				 symlink("none", "w/dead") | mkfifo("w/pipe", 0600),
			 0);
	char text[192];

	snprintf(text, sizeof(text), "%s/a", workspace);
	assert_int_equal(symlink(text, "w/absolute"), 0);
	snprintf(text, sizeof(text), "%sx", workspace);
	assert_int_equal(symlink(text, "w/beside"), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return chdir("/") < 0 ? -1 : folder_remove(outer);
}

struct expectation {
	const char *path;
	unsigned flags;
	int code;	   /* 0, or the error */
	const char *place; /* below the workspace */
};

static void check(const struct expectation *e)
{
	struct cb_job_place place = { .folder = -1 };
	int r = cb_job_find(workspace, e->path, e->flags, &place);
	char link[64], folder[PATH_MAX], all[2 * PATH_MAX];
	ssize_t n;

	if (r != e->code)
		fail_msg("%s: %d, expected %d", e->path, r, e->code);
	if (r < 0)
		return;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", place.folder);
	n = readlink(link, folder, sizeof(folder) - 1);
	assert_true(n > 0);
	folder[n] = '\0';
	snprintf(all, sizeof(all), "%s/%s", folder, place.name);
	assert_int_equal(strncmp(all, workspace, strlen(workspace)), 0);
	assert_string_equal(all + strlen(workspace), e->place);
	assert_int_equal(place.is_root, strcmp(e->place, "/.") == 0);
	close(place.folder);
}

static void test_find(void **state)
{
	static const struct expectation expected[] = {
		{ "a/f", CB_PLACE_FOLLOW, 0, "/a/f" },
		{ "./a//f", CB_PLACE_FOLLOW, 0, "/a/f" },
		{ "a/../a/f", CB_PLACE_FOLLOW, 0, "/a/f" },
		{ "", CB_PLACE_FOLLOW, 0, "/." },
		{ ".", CB_PLACE_FOLLOW, 0, "/." },
		{ "a/..", CB_PLACE_FOLLOW, 0, "/." },
		{ "a/", CB_PLACE_FOLLOW, 0, "/a" },
		{ "a/.", CB_PLACE_FOLLOW, 0, "/a/." },
		{ "new", CB_PLACE_FOLLOW, 0, "/new" },
		{ "a/up", CB_PLACE_FOLLOW, 0, "/a/f" },
		{ "a/up", 0, 0, "/a/up" },
		{ "la/b", CB_PLACE_FOLLOW, 0, "/a/b" },
		{ "la", 0, 0, "/la" },
		{ "la/up", 0, 0, "/a/up" },
		{ "absolute/f", CB_PLACE_FOLLOW, 0, "/a/f" },
		{ "a/b/dots/b/dots/f", CB_PLACE_FOLLOW, 0, "/a/f" },
		{ "pipe", CB_PLACE_FOLLOW, 0, "/pipe" },
		{ "dead", CB_PLACE_FOLLOW, 0, "/none" },
		{ "..", CB_PLACE_FOLLOW, -EXDEV, NULL },
		{ "../secret", CB_PLACE_FOLLOW, -EXDEV, NULL },
		{ "../w/a/f", CB_PLACE_FOLLOW, -EXDEV, NULL },
		{ "a/../../secret", CB_PLACE_FOLLOW, -EXDEV, NULL },
		{ "a/b/dots/../..", CB_PLACE_FOLLOW, -EXDEV, NULL },
		{ "out", CB_PLACE_FOLLOW, -EXDEV, NULL },
		{ "out", 0, 0, "/out" },
		{ "etc/passwd", CB_PLACE_FOLLOW, -EXDEV, NULL },
		{ "etc/passwd", 0, -EXDEV, NULL },
		{ "beside", CB_PLACE_FOLLOW, -EXDEV, NULL },
		{ "/etc/passwd", CB_PLACE_FOLLOW, -EXDEV, NULL },
		{ "loop", CB_PLACE_FOLLOW, -ELOOP, NULL },
		{ "a/f/x", CB_PLACE_FOLLOW, -ENOTDIR, NULL },
		{ "pipe/x", CB_PLACE_FOLLOW, -ENOTDIR, NULL },
		{ "no/f", CB_PLACE_FOLLOW, -ENOENT, NULL },
		{ "no/such/f", CB_PLACE_FOLLOW | CB_PLACE_PARENTS, 0, "/no/such/f" },
		{ "../no/f", CB_PLACE_FOLLOW | CB_PLACE_PARENTS, -EXDEV, NULL },
		{ "out/no/f", CB_PLACE_FOLLOW | CB_PLACE_PARENTS, -EXDEV, NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
		check(&expected[i]);
	char path[PATH_MAX], name[400];

	snprintf(path, sizeof(path), "%s/a/f", workspace);
	check(&(struct expectation){ path, CB_PLACE_FOLLOW, 0, "/a/f" });
	check(&(struct expectation){ workspace, CB_PLACE_FOLLOW, 0, "/." });
	snprintf(path, sizeof(path), "%sx/a", workspace);
	check(&(struct expectation){ path, CB_PLACE_FOLLOW, -EXDEV, NULL });
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	check(&(struct expectation){ name, CB_PLACE_FOLLOW, -ENAMETOOLONG, NULL });
}

/* A chain of links that grows the path never overruns it. */
static void test_long_links(void **state)
{
	static char target[3900], deep[256];

	(void)state;
	for (size_t i = 0; i < sizeof(target) - 1; i++)
		target[i] = i % 2 == 0 ? '.' : '/';
	memcpy(target + sizeof(target) - 3, "/l", 3);
	snprintf(deep, sizeof(deep), "%s/l", workspace);
	assert_int_equal(symlink(target, deep), 0);
	check(&(struct expectation){ "l/x", CB_PLACE_FOLLOW, -ELOOP, NULL });
	check(&(struct expectation){ "l/l/l/l", CB_PLACE_FOLLOW, -ELOOP, NULL });
}

static unsigned open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_nothing_stays_open(void **state)
{
	unsigned before = open_fds();
	static const char *const paths[] = { "a/b/dots/f", "out", "a/f/x", "loop", "../x", "absolute/f", "no/f" };

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct cb_job_place place;

		if (cb_job_find(workspace, paths[i], CB_PLACE_FOLLOW, &place) == 0)
			close(place.folder);
		assert_int_equal(open_fds(), before);
	}
}

static void test_dents(void **state)
{
	static struct cb_dents dents;
	unsigned count = 0;
	int code = 1, fd = open(workspace, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *name;

	(void)state;
	while ((name = cb_dents_next(&dents, fd, &code)) != NULL) {
		assert_true(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
		count++;
	}
	assert_int_equal(code, 0);
	assert_true(count >= 9);
	close(fd);
	dents = (struct cb_dents){ 0 };
	assert_null(cb_dents_next(&dents, -1, &code));
	assert_int_equal(code, -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_long_links),
		cmocka_unit_test(test_nothing_stays_open),
		cmocka_unit_test(test_dents),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
