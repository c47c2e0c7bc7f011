/* Input history: what is added is found, by range, tail and search; sessions count up; several kernels share a file. */
#include "history.h"

#include "paths.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static struct cb_history *open_started(const char *path)
{
	struct cb_history *h = NULL;
	struct cb_err err = { 0 };

	if (cb_history_open(path, &h, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(cb_history_start(h), 0);
	return h;
}

static json_t *ask(struct cb_history *h, const struct cb_history_query *query)
{
	static uint64_t tag = 100;
	CB_AUTO_BUF answer = CB_BUF_INIT(1 << 20);
	struct pollfd p = { .fd = cb_history_fd(h), .events = POLLIN };
	uint64_t got = 0;
	json_t *root;

	assert_int_equal(cb_history_query(h, query, ++tag), 0);
	assert_int_equal(poll(&p, 1, 20000), 1);
	assert_int_equal(cb_history_next(h, &got, &answer), 0);
	assert_int_equal(got, tag);
	assert_int_equal(cb_history_next(h, &got, &answer), -EAGAIN);
	root = json_loadb((const char *)answer.data, answer.len, 0, NULL);
	assert_true(json_is_array(root));
	return root;
}

static void add(struct cb_history *h, int64_t line, const char *source)
{
	assert_int_equal(cb_history_add(h, line, source, strlen(source)), 0);
}

static void expect(json_t *rows, size_t index, int64_t line, const char *source)
{
	json_t *row = json_array_get(rows, index);

	assert_int_equal(json_integer_value(json_array_get(row, 1)), line);
	assert_string_equal(json_string_value(json_array_get(row, 2)), source);
}

static void test_queries(void **state)
{
	struct cb_history *h = open_started(":memory:");
	json_t *rows;

	(void)state;
	add(h, 1, "a = 1");
	add(h, 2, "b = 'ä\"\\n\x01'");
	add(h, 3, "a = 1");
	add(h, 4, "print(a)");
	rows = ask(h, &(struct cb_history_query){ .access = CB_HISTORY_RANGE, .start = 2, .stop = 4 });
	assert_int_equal(json_array_size(rows), 2);
	expect(rows, 0, 2, "b = 'ä\"\\n\x01'");
	expect(rows, 1, 3, "a = 1");
	assert_int_equal(json_integer_value(json_array_get(json_array_get(rows, 0), 0)),
			 1); /* the session's number, not 0 */
	json_decref(rows);
	rows = ask(h, &(struct cb_history_query){ .access = CB_HISTORY_RANGE, .start = 3, .stop = -1 });
	assert_int_equal(json_array_size(rows), 2);
	json_decref(rows);
	rows = ask(h, &(struct cb_history_query){ .access = CB_HISTORY_RANGE, .session = -1, .start = 0, .stop = -1 });
	assert_int_equal(json_array_size(rows), 0);
	json_decref(rows);
	rows = ask(h, &(struct cb_history_query){ .access = CB_HISTORY_TAIL, .n = 2 });
	assert_int_equal(json_array_size(rows), 2);
	expect(rows, 0, 3, "a = 1");
	expect(rows, 1, 4, "print(a)");
	json_decref(rows);
	rows = ask(h, &(struct cb_history_query){ .access = CB_HISTORY_TAIL, .n = -1 });
	assert_int_equal(json_array_size(rows), 4);
	json_decref(rows);
	rows = ask(h, &(struct cb_history_query){ .access = CB_HISTORY_SEARCH, .pattern = "a*", .n = -1 });
	assert_int_equal(json_array_size(rows), 2);
	json_decref(rows);
	rows = ask(h,
		   &(struct cb_history_query){ .access = CB_HISTORY_SEARCH, .pattern = "a*", .n = -1, .unique = true });
	assert_int_equal(json_array_size(rows), 1);
	expect(rows, 0, 3, "a = 1");
	json_decref(rows);
	rows = ask(h, &(struct cb_history_query){ .access = CB_HISTORY_SEARCH, .pattern = "*' OR 1=1 --", .n = 5 });
	assert_int_equal(json_array_size(rows), 0);
	json_decref(rows);
	rows = ask(h, &(struct cb_history_query){ .access = CB_HISTORY_TAIL, .n = 1, .output = true });
	assert_string_equal(json_string_value(json_array_get(json_array_get(json_array_get(rows, 0), 2), 0)),
			    "print(a)");
	assert_true(json_is_null(json_array_get(json_array_get(json_array_get(rows, 0), 2), 1)));
	json_decref(rows);
	cb_history_close(h);
}

static void test_sessions_share_a_file(void **state)
{
	CB_AUTO_PATH path = cb_path_format("%s/new/history.sqlite", folder);
	struct cb_history *first = open_started(path), *second = open_started(path);
	struct stat st;
	json_t *rows;

	(void)state;
	add(first, 1, "from the first");
	cb_history_close(first); /* what was added is written */
	add(second, 1, "from the second");
	rows = ask(second, &(struct cb_history_query){ .access = CB_HISTORY_TAIL, .n = 10 });
	assert_int_equal(json_array_size(rows), 2);
	expect(rows, 0, 1, "from the first");
	json_decref(rows);
	rows = ask(second,
		   &(struct cb_history_query){ .access = CB_HISTORY_RANGE, .session = -1, .start = 1, .stop = 2 });
	assert_int_equal(json_array_size(rows), 1);
	expect(rows, 0, 1, "from the first");
	json_decref(rows);
	cb_history_close(second);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	second = open_started(path);
	rows = ask(second, &(struct cb_history_query){ .access = CB_HISTORY_TAIL, .n = 10 });
	assert_int_equal(json_array_size(rows), 2);
	json_decref(rows);
	cb_history_close(second);
}

static void test_bad_files(void **state)
{
	CB_AUTO_PATH path = cb_path_format("%s/garbage", folder);
	struct cb_history *h = NULL;
	struct cb_err err = { 0 };
	FILE *f = fopen(path, "w");

	(void)state;
	for (int i = 0; i < 1000; i++)
		fputs("this is no database ", f);
	fclose(f);
	assert_true(cb_history_open(path, &h, &err) < 0);
	assert_non_null(strstr(err.text, path));
	assert_null(h);
	assert_true(cb_history_open(folder, &h, &err) < 0);
	cb_history_close(NULL);
}

static void test_bounds(void **state)
{
	char pattern[2000];
	struct cb_history *h = NULL;
	struct cb_err err = { 0 };
	int r = 0, i;

	(void)state;
	assert_int_equal(cb_history_open(":memory:", &h, &err), 0);
	/* The thread has not started: the queue fills and then refuses, in bounded time. */
	for (i = 0; i < 100000 && r == 0; i++)
		r = cb_history_add(h, i, "x", 1);
	assert_int_equal(r, CB_E_TOO_BIG);
	memset(pattern, '*', sizeof(pattern) - 1);
	pattern[sizeof(pattern) - 1] = '\0';
	assert_int_equal(
		cb_history_query(h, &(struct cb_history_query){ .access = CB_HISTORY_SEARCH, .pattern = pattern }, 1),
		CB_E_TOO_BIG);
	cb_history_close(h);
}

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/cb-history-XXXXXX");
	return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
	static const char *const names[] = {
		"new/history.sqlite", "new/history.sqlite-wal", "new/history.sqlite-shm", "garbage", "new", ""
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		CB_AUTO_PATH path = cb_path_format("%s/%s", folder, names[i]);

		remove(path);
	}
	return access(folder, F_OK) == 0 ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_queries),
					    cmocka_unit_test(test_sessions_share_a_file),
					    cmocka_unit_test(test_bad_files), cmocka_unit_test(test_bounds) };

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
