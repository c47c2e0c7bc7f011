/* Input history: what is added is found, by range, tail and search; sessions count up; several kernels share a file. */
#include "records/history.h"

#include "policy/paths.h"

#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <cellblock/proc_stat.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 60000

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
	CB_AUTO_BUF answer = CB_BUF_INIT(20 << 20);
	struct pollfd p = { .fd = cb_history_fd(h), .events = POLLIN };
	uint64_t got = 0;
	json_t *root;

	assert_int_equal(cb_history_query(h, query, ++tag), 0);
	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
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

static uint64_t count_threads(void)
{
	char status[8192];

	assert_int_equal(cb_proc_text(AT_FDCWD, "/proc/self/status", status, sizeof(status)), 0);
	return cb_proc_number(status, "\nThreads:", 10, 0);
}

static off_t journal_size(const char *path)
{
	CB_AUTO_PATH journal = cb_path_format("%s-wal", path);
	struct stat st;

	assert_int_equal(stat(journal, &st), 0);
	return st.st_size;
}

static const struct cb_history_query first_line = {
	.access = CB_HISTORY_RANGE, .session = 1, .start = 1, .stop = 2
};

/* As a kernel does that is killed. */
static void leave_long_journal(const char *path)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct cb_history *h = open_started(path);

		for (int i = 1; i <= 200; i++)
			add(h, i, "a line");
		json_decref(ask(h, &first_line)); /* all are written */
		_exit(0);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(journal_size(path) > 256 << 10);
}

/* `opened`: another name of it, perhaps. */
static void expect_put_away(const char *path, const char *opened)
{
	struct cb_history *h;
	json_t *rows;

	leave_long_journal(path);
	h = open_started(opened);
	rows = ask(h, &first_line);
	expect(rows, 0, 1, "a line");
	json_decref(rows);
	assert_int_equal(journal_size(path), 0);
	cb_history_close(h);
}

/* Each start would read all that kernels which were killed have left in the journal: one puts it into the file. */
static void test_a_long_journal_is_put_away(void **state)
{
	CB_AUTO_PATH path = cb_path_format("%s/killed/history.sqlite", folder);
	CB_AUTO_PATH other = cb_path_format("%s/killed/other.sqlite", folder);
	CB_AUTO_PATH link = cb_path_format("%s/link", folder);

	(void)state;
	expect_put_away(path, path);
	assert_int_equal(symlink(other, link), 0);
	expect_put_away(other, link);
}

/* Nor does it wait for a first line, which may never come. */
static void test_a_long_journal_is_put_away_at_once(void **state)
{
	CB_AUTO_PATH path = cb_path_format("%s/killed/idle.sqlite", folder);
	int status = 1;
	pid_t pid;

	(void)state;
	leave_long_journal(path);
	pid = fork(); /* it has one thread, whatever the tests before have left */
	if (pid == 0) {
		(void)open_started(path);
		_exit(count_threads() == 2 ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
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

/* Locks as another program would hold them, which SQLite's own locks of this process run into. */
static int hold_locks(const char *path, off_t from, off_t n)
{
	CB_AUTO_PATH file = cb_path_format("%s-shm", path);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = n };
	int fd = open(file, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
	return fd;
}

static void test_a_locked_database_is_not_waited_for(void **state)
{
	CB_AUTO_PATH path = cb_path_format("%s/new/history.sqlite", folder);
	struct cb_history *h = open_started(path), *other = open_started(path);
	const struct cb_history_query all = { .access = CB_HISTORY_RANGE, .start = 1, .stop = -1 };
	json_t *rows;
	int lock;

	(void)state;
	add(h, 1, "before");
	json_decref(ask(h, &all));	 /* it is written */
	lock = hold_locks(path, 120, 1); /* the writer's */
	for (int i = 2; i < 22; i++)	 /* each would cost the whole wait */
		add(h, i, "meanwhile");
	rows = ask(h, &all);
	assert_int_equal(json_array_size(rows), 21);
	expect(rows, 0, 1, "before");
	expect(rows, 20, 21, "meanwhile");
	json_decref(rows);
	rows = ask(h, &(struct cb_history_query){ .access = CB_HISTORY_TAIL, .n = 3, .output = true });
	assert_int_equal(json_array_size(rows), 3);
	json_decref(rows);
	rows = ask(h, &(struct cb_history_query){
			      .access = CB_HISTORY_SEARCH, .pattern = "mean*", .n = 5, .unique = true });
	assert_int_equal(json_array_size(rows), 1);
	json_decref(rows);
	close(lock);
	add(h, 22, "after");
	rows = ask(h, &all);
	assert_int_equal(json_array_size(rows), 22);
	json_decref(rows);
	rows = ask(other, &(struct cb_history_query){ .access = CB_HISTORY_TAIL, .n = 22 });
	assert_int_equal(json_array_size(rows), 22); /* they are in the file */
	json_decref(rows);
	cb_history_close(h);
	cb_history_close(other);
}

static void test_a_database_that_cannot_be_read(void **state)
{
	CB_AUTO_PATH path = cb_path_format("%s/nowal", folder);
	CB_AUTO_PATH lock = cb_path_format("%s.lock", path);
	const struct cb_history_query all = { .access = CB_HISTORY_RANGE, .start = 1, .stop = -1, .output = true };
	sqlite3_vfs *usual = sqlite3_vfs_find(NULL);
	struct cb_history *h;
	json_t *rows;

	(void)state;
	/* locks by a file: no WAL, as on a network's file system, so that a writer keeps readers out */
	assert_int_equal(sqlite3_vfs_register(sqlite3_vfs_find("unix-dotfile"), 1), SQLITE_OK);
	h = open_started(path);
	assert_int_equal(sqlite3_vfs_register(usual, 1), SQLITE_OK);
	add(h, 1, "before");
	json_decref(ask(h, &all));
	assert_int_equal(mkdir(lock, 0700), 0);
	for (int i = 2; i < 12; i++)
		add(h, i, "meanwhile");
	for (int i = 0; i < 5; i++) {
		rows = ask(h, &all);
		assert_int_equal(json_array_size(rows), 10); /* what is known without the file */
		json_decref(rows);
	}
	assert_int_equal(rmdir(lock), 0);
	rows = ask(h, &all);
	assert_int_equal(json_array_size(rows), 11);
	json_decref(rows);
	cb_history_close(h);
}

/* What there is no room for in an answer are the oldest. */
static void test_the_youngest_are_told(void **state)
{
	const struct cb_history_query query[] = {
		{ .access = CB_HISTORY_TAIL, .n = -1 },
		{ .access = CB_HISTORY_SEARCH, .pattern = "*", .n = -1 },
		{ .access = CB_HISTORY_SEARCH, .pattern = "*", .n = -1, .unique = true, .output = true },
	};
	struct cb_history *h = open_started(":memory:");
	size_t size = 6 << 20;
	char *line = test_calloc(size + 1, 1);

	(void)state;
	memset(line, 'x', size);
	for (int i = 1; i <= 4; i++) {
		line[0] = (char)('0' + i);
		add(h, i, line);
	}
	test_free(line);
	for (size_t i = 0; i < sizeof(query) / sizeof(query[0]); i++) {
		json_t *rows = ask(h, &query[i]);

		assert_int_equal(json_array_size(rows), 2);
		for (size_t k = 0; k < 2; k++)
			assert_int_equal(json_integer_value(json_array_get(json_array_get(rows, k), 1)), 3 + k);
		json_decref(rows);
	}
	cb_history_close(h);
}

static size_t count_rows(struct cb_history *h, int64_t from, int64_t to)
{
	json_t *rows = ask(h, &(struct cb_history_query){ .access = CB_HISTORY_RANGE, .start = from, .stop = to });
	size_t n = json_array_size(rows);

	json_decref(rows);
	return n;
}

static void test_memory_is_bounded(void **state)
{
	struct cb_history *h = open_started(":memory:");
	int log = memfd_create("log", MFD_CLOEXEC);
	size_t size = 8 << 20, len; /* it is kept twice, as source and as source_raw */
	char *line = test_calloc(size + 1, 1), *said, *at;

	(void)state;
	cb_log_init("test", CB_LOG_WARNING, log);
	memset(line, 'x', size);
	for (int i = 1; i <= 20; i++) {
		add(h, i, line);
		(void)count_rows(h, 0, 0); /* it is written, or not */
	}
	test_free(line);
	assert_int_equal(count_rows(h, 1, 2), 1);
	assert_int_equal(count_rows(h, 17, -1), 0);
	assert_int_equal(lseek(log, 0, SEEK_SET), 0);
	assert_int_equal(cb_fd_read_all(log, 1 << 20, &said, &len), 0);
	at = strstr(said, "not written");
	assert_non_null(at);
	assert_null(strstr(at + 1, "not written"));
	free(said);
	cb_log_init("test", CB_LOG_WARNING, STDERR_FILENO);
	close(log);
	cb_history_close(h);
}

/* First of all tests: threads of others that were joined may still be counted. */
static void test_no_thread_before_it_is_needed(void **state)
{
	uint64_t before = count_threads();
	struct cb_history *lines = open_started(":memory:"), *questions = open_started(":memory:");

	(void)state;
	assert_int_equal(count_threads(), before);
	add(lines, 1, "a = 1");
	assert_int_equal(count_threads(), before + 1);
	assert_int_equal(count_rows(questions, 0, -1), 0);
	assert_int_equal(count_threads(), before + 2);
	assert_int_equal(count_rows(lines, 0, -1), 1);
	add(questions, 1, "b = 1");
	assert_int_equal(count_threads(), before + 2);
	cb_history_close(lines);
	cb_history_close(questions);
	cb_history_close(open_started(":memory:")); /* nobody is waited for */
}

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/cb-history-XXXXXX");
	return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
	static const char *const names[] = { "new/history.sqlite",
					     "new/history.sqlite-wal",
					     "new/history.sqlite-shm",
					     "killed/history.sqlite",
					     "killed/history.sqlite-wal",
					     "killed/history.sqlite-shm",
					     "killed/other.sqlite",
					     "killed/other.sqlite-wal",
					     "killed/other.sqlite-shm",
					     "killed/idle.sqlite",
					     "killed/idle.sqlite-wal",
					     "killed/idle.sqlite-shm",
					     "link",
					     "garbage",
					     "new",
					     "killed",
					     "nowal",
					     "nowal.lock",
					     "" };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		CB_AUTO_PATH path = cb_path_format("%s/%s", folder, names[i]);

		remove(path);
	}
	return access(folder, F_OK) == 0 ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_thread_before_it_is_needed),
					    cmocka_unit_test(test_queries),
					    cmocka_unit_test(test_sessions_share_a_file),
					    cmocka_unit_test(test_a_locked_database_is_not_waited_for),
					    cmocka_unit_test(test_a_database_that_cannot_be_read),
					    cmocka_unit_test(test_bad_files),
					    cmocka_unit_test(test_a_long_journal_is_put_away),
					    cmocka_unit_test(test_a_long_journal_is_put_away_at_once),
					    cmocka_unit_test(test_the_youngest_are_told),
					    cmocka_unit_test(test_memory_is_bounded),
					    cmocka_unit_test(test_bounds) };

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
