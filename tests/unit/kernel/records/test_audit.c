/* The audit log: the chain holds across kernels and shows every change; lines are bounded in size and rate. */
#include "records/audit.h"

#include "policy/paths.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static char path[96];
static int no_locks; /* what a file system without them says */

int flock(int fd, int operation)
{
	if (no_locks == 0)
		return (int)syscall(SYS_flock, fd, operation);
	errno = no_locks;
	return -1;
}

static struct cb_audit *open_log(const char *kernel)
{
	struct cb_audit *a = NULL;
	struct cb_err err = { 0 };

	if (cb_audit_open(path, kernel, &a, &err) < 0)
		fail_msg("%s", err.text);
	return a;
}

static void add(struct cb_audit *a, const char *event, const char *text)
{
	CB_AUTO_BUF m = CB_BUF_INIT(CB_AUDIT_MEMBERS_MAX);

	cb_audit_put(&m, "text", text);
	cb_audit_add(a, event, cb_buf_span(&m));
}

static void write_log(const char *kernel, int lines)
{
	struct cb_audit *a = open_log(kernel);

	assert_int_equal(cb_audit_start(a), 0);
	for (int i = 0; i < lines; i++)
		add(a, "x", "y");
	assert_int_equal(cb_audit_close(a), 0);
}

static char *read_log(size_t *ret_len)
{
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text;

	assert_int_equal(cb_fd_read_all(fd, 64 << 20, &text, ret_len), 0);
	return text;
}

/* The number of the first bad line, 0 = the chain holds. */
static int first_bad(const char *text, size_t len)
{
	char prev[CB_AUDIT_HASH] = CB_AUDIT_NO_LINE, reason[200];
	int n = 0;

	for (const char *at = text, *newline; (newline = memchr(at, '\n', len - (size_t)(at - text))) != NULL;
	     at = newline + 1) {
		n++;
		if (cb_audit_check(at, (size_t)(newline - at), prev, reason, sizeof(reason)) < 0)
			return n;
		assert_int_equal(cb_audit_hash(at, (size_t)(newline - at), prev), 0);
		assert_true((size_t)(newline - at) < CB_AUDIT_LINE_MAX);
	}
	return 0;
}

static void expect_log(int lines)
{
	size_t len, n = 0;
	char *text = read_log(&len);

	assert_int_equal(first_bad(text, len), 0);
	for (size_t i = 0; i < len; i++)
		n += text[i] == '\n';
	assert_int_equal(n, lines);
	free(text);
}

static void test_chain_goes_on(void **state)
{
	struct stat st;

	(void)state;
	write_log("a", 3);
	expect_log(3);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	write_log("b", 2);
	expect_log(5);
}

/* Two kernels with one file, line by line in turn and then both at once. */
static void test_shared_file(void **state)
{
	struct cb_audit *a = open_log("a"), *b = open_log("b");

	(void)state;
	assert_int_equal(cb_audit_start(a), 0);
	assert_int_equal(cb_audit_start(b), 0);
	for (int i = 0; i < 500; i++) {
		add(a, "x", "from a");
		add(b, "x", "from b, with more text");
	}
	cb_audit_close(a);
	cb_audit_close(b);
	expect_log(1000);
}

static void test_every_change_shows(void **state)
{
	size_t len, at;
	char *text;

	(void)state;
	write_log("a", 5);
	text = read_log(&len);
	at = (size_t)(strchr(text, '\n') - text) + 1;
	text[at + 20] ^= 1; /* in line 2: of the time, so it is still JSON */
	assert_int_equal(first_bad(text, len), 3);
	text[at + 20] ^= 1;
	assert_int_equal(first_bad(text, len), 0);
	assert_int_equal(first_bad(text + at, len - at), 1); /* the first line is gone */
	char *second_end = strchr(text + at, '\n') + 1;

	memmove(text + at, second_end, len - (size_t)(second_end - text)); /* the second */
	assert_int_equal(first_bad(text, len - ((size_t)(second_end - text) - at)), 2);
	free(text);
}

static void test_text_is_cut_and_escaped(void **state)
{
	static char big[100000];
	struct cb_audit *a = open_log("a");
	CB_AUTO_BUF m = CB_BUF_INIT(CB_AUDIT_MEMBERS_MAX);
	size_t len;

	(void)state;
	memset(big, '\x01', sizeof(big) - 1);
	for (int i = 0; i < 20; i++)
		cb_audit_put(&m, "big", big); /* the same key: never checked here */
	assert_true(m.len <= CB_AUDIT_MEMBERS_MAX);
	cb_buf_clear(&m);
	cb_audit_put(&m, "bad", "a\x1b[31m\n\"\\\xff\u202e", "cut", big, "n", 1.5, "absent", NULL);
	assert_int_equal(cb_audit_start(a), 0);
	cb_audit_add(a, "x", cb_buf_span(&m));
	cb_audit_close(a);
	expect_log(1);
	char *text = read_log(&len);

	assert_null(strchr(text, '\x1b'));
	assert_int_equal(strlen(text), len);
	json_t *root = json_loads(text, 0, NULL);

	assert_string_equal(json_string_value(json_object_get(root, "bad")), "a\x1b[31m\n\"\\\xef\xbf\xbd\u202e");
	assert_int_equal(json_string_length(json_object_get(root, "cut")), CB_AUDIT_TEXT_MAX);
	assert_null(json_object_get(root, "absent"));
	json_decref(root);
	free(text);
}

static void test_rate_is_bounded_and_said(void **state)
{
	struct cb_audit *a = open_log("a");
	size_t len;
	int n = 0;

	(void)state;
	for (int i = 0; i < 10000; i++)
		cb_audit_add_rarely(a, "rare", CB_SPAN(""));
	for (int i = 0; i < 10000; i++)
		add(a, "often", "t");
	assert_int_equal(cb_audit_start(a), 0);
	assert_int_equal(cb_audit_close(a), -EIO);
	char *text = read_log(&len);

	assert_int_equal(first_bad(text, len), 0);
	for (const char *at = text; (at = strstr(at, "\"rare\"")) != NULL; at++)
		n++;
	assert_in_range(n, 1, 100);
	assert_true(len < 4096 * 300);
	assert_non_null(strstr(text, "\"event\":\"dropped\",\"lines\":"));
	free(text);
}

/* While somebody else holds the file nobody waits but the writer. */
static void test_a_busy_file(void **state)
{
	struct cb_audit *a = open_log("a");
	CB_AUTO_FD holder = open(path, O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(flock(holder, LOCK_EX), 0);
	assert_int_equal(cb_audit_start(a), 0);
	for (int i = 0; i < 100; i++)
		add(a, "x", "y");
	assert_int_equal(flock(holder, LOCK_UN), 0);
	assert_int_equal(cb_audit_close(a), 0);
	expect_log(100);
}

/* What a crash has cut is named; what follows is in the chain again. */
static void test_after_a_cut(void **state)
{
	size_t len;
	char *text;

	(void)state;
	write_log("a", 2);
	text = read_log(&len);
	free(text);
	assert_int_equal(truncate(path, (off_t)len - 10), 0);
	write_log("b", 2);
	text = read_log(&len);
	assert_int_equal(first_bad(text, len), 2);
	free(text);
}

/* A line with a newline would be two. */
static void test_no_member_breaks_a_line(void **state)
{
	struct cb_audit *a = open_log("a");

	(void)state;
	cb_audit_add(a, "x", CB_SPAN(",\"session\":[\n1]"));
	add(a, "x", "y");
	assert_int_equal(cb_audit_start(a), 0);
	assert_int_equal(cb_audit_close(a), -EIO);
	expect_log(2); /* the other, and that one was dropped */
}

static void test_where_the_file_is(void **state)
{
	struct cb_audit *a = open_log("a");
	char away[128];

	(void)state;
	assert_int_equal(cb_audit_look(a), CB_AUDIT_THERE);
	snprintf(away, sizeof(away), "%s.1", path);
	assert_int_equal(rename(path, away), 0);
	assert_int_equal(cb_audit_look(a), CB_AUDIT_MOVED);
	assert_int_equal(rename(away, path), 0);
	assert_int_equal(cb_audit_look(a), CB_AUDIT_THERE);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(cb_audit_look(a), CB_AUDIT_DELETED);
	add(a, "x", "lost");
	assert_int_equal(cb_audit_start(a), 0);
	assert_int_equal(cb_audit_close(a), -EIO);
	assert_true(access(path, F_OK) < 0);
}

static void expect_refused(const char *at, int code, const char *why)
{
	struct cb_audit *a = NULL;
	struct cb_err err = { 0 };

	assert_int_equal(cb_audit_open(at, "a", &a, &err), code);
	assert_non_null(strstr(err.text, why));
	assert_null(a);
}

static void test_refused_files(void **state)
{
	char other[128];

	(void)state;
	write_log("a", 1);
	snprintf(other, sizeof(other), "%s/link", folder);
	assert_int_equal(symlink(path, other), 0);
	expect_refused(other, -ELOOP, "symbolic link");
	assert_int_equal(unlink(other), 0);
	assert_int_equal(link(path, other), 0);
	expect_refused(other, -EPERM, "second name");
	assert_int_equal(unlink(other), 0);
	assert_int_equal(mkfifo(other, 0600), 0);
	expect_refused(other, -EINVAL, "regular");
	assert_int_equal(unlink(other), 0);
	expect_refused(folder, -EISDIR, "irectory");
}

/* Nothing would ever be written there. */
static void test_a_file_system_without_locks(void **state)
{
	static const int said[] = { ENOSYS, ENOLCK, EOPNOTSUPP };
	struct cb_audit *a;

	(void)state;
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		no_locks = said[i];
		expect_refused(path, -said[i], "can't be locked");
	}
	no_locks = EWOULDBLOCK; /* another kernel writes a line just now */
	a = open_log("a");
	no_locks = 0;
	assert_int_equal(cb_audit_close(a), 0);
	write_log("b", 1);
	expect_log(1);
}

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/cb-audit-XXXXXX");
	if (mkdtemp(folder) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/below/audit.jsonl", folder);
	return 0;
}

static int remove_folder(void **state)
{
	CB_AUTO_PATH below = cb_path_parent(path);

	(void)state;
	unlink(path);
	rmdir(below);
	return rmdir(folder);
}

#define T(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_chain_goes_on),
		T(test_shared_file),
		T(test_every_change_shows),
		T(test_text_is_cut_and_escaped),
		T(test_rate_is_bounded_and_said),
		T(test_a_busy_file),
		T(test_after_a_cut),
		T(test_no_member_breaks_a_line),
		T(test_where_the_file_is),
		T(test_refused_files),
		T(test_a_file_system_without_locks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
