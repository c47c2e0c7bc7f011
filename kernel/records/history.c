/* Input history in SQLite, by a thread of its own.
 *
 * Role: see history.h. Trust domain: supervisor; sources come from clients, patterns too.
 *
 * Invariants: every file is open before rights are dropped, since afterwards none can be opened for writing: the
 * journal is the WAL, opened and mapped by the first transaction, or memory where the file system has none; temporary
 * tables stay in memory. The connection is used by one thread at a time: the opener until the thread is needed (a first
 * line or question, or a long journal), then the thread, after it ended the closer. All values are bound, never written
 * into SQL. What is queued is bounded in number and bytes. A database that another program has locked is waited for
 * once, for a moment; then lines go to a temporary table until it is free, and questions are answered from what can be
 * read.
 */
#include "history.h"

#include <cellblock/clock.h>
#include <cellblock/json_write.h>
#include <cellblock/log.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sqlite3.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/paths.h"
#include "setup/files.h"
#include "worker.h"

#define STEP "history"
#define MAX_JOBS 1024
#define MAX_QUEUED_BYTES (64u << 20)
#define MAX_ANSWER (16u << 20)
#define MAX_ROWS 100000
#define MEMORY_PAGES "65536" /* of 4 KiB: what a history in memory may take */
#define OPEN_MS 1000 /* how long a locked database is waited for: by the kernel's start, all in all; */
#define BUSY_MS 500  /* by the thread, once, until it has been free again; */
#define END_MS 200   /* and at the end */
#define BUSY_STEP_MS 5
#define RETRY_S 1
#define PATIENCE_S 1 /* at the end */
#define LONG_JOURNAL (128 << 10) /* bytes */

struct job {
	struct job *next;
	bool is_query;
	int64_t line; /* add */
	char *text;   /* add: the source; query: the pattern or NULL */
	size_t len;
	struct cb_history_query query;
	uint64_t tag;
	struct cb_buf answer; /* elements of a JSON array */
};

struct queue {
	struct job *first, **last;
	size_t count, bytes;
};

struct cb_history {
	sqlite3 *db;
	sqlite3_stmt *add, *keep; /* a line to the file; to the temporary table `waiting` */
	int64_t session;
	int64_t busy_until;	 /* the connection waits no longer for a lock */
	bool locked;		 /* it was the last time */
	bool unwritten;		 /* a line could not be written, and that was said */
	size_t kept, kept_bytes; /* lines in `waiting` */
	int event_fd;
	bool long_journal;	 /* left by kernels that were killed: each start reads all of it */
	bool ready;		 /* the thread may be started */
	struct cb_worker worker;
	struct queue waiting, answered; /* under its lock */
};

/* ---- queues ---- */

static void queue_push(struct queue *q, struct job *job)
{
	job->next = NULL;
	*q->last = job;
	q->last = &job->next;
	q->count++;
	q->bytes += job->len;
}

static struct job *queue_pop(struct queue *q)
{
	struct job *job = q->first;

	if (job == NULL)
		return NULL;
	q->first = job->next;
	if (q->first == NULL)
		q->last = &q->first;
	q->count--;
	q->bytes -= job->len;
	return job;
}

static void job_free(struct job *job)
{
	if (job == NULL)
		return;
	free(job->text);
	cb_buf_release(&job->answer);
	free(job);
}

/* ---- SQL ---- */

static const char schema[] =
	"CREATE TABLE IF NOT EXISTS sessions (session integer primary key autoincrement, start timestamp, end "
	"timestamp,"
	" num_cmds integer, remark text);"
	"CREATE TABLE IF NOT EXISTS history (session integer, line integer, source text, source_raw text,"
	" PRIMARY KEY (session, line));"
	"CREATE TABLE IF NOT EXISTS output_history (session integer, line integer, output text, PRIMARY KEY (session, "
	"line));";

static int sql_failed(struct cb_history *h, const char *path, struct cb_err *err)
{
	return cb_err_set(err, -EIO, STEP, "Move the file away, or set history.file to another one or to \":memory:\".",
			  "history.file %s: %s", path, h->db != NULL ? sqlite3_errmsg(h->db) : "out of memory");
}

static int on_busy(void *context, int count)
{
	const struct cb_history *h = context;

	(void)count;
	if (cb_now_ns() >= h->busy_until)
		return 0;
	(void)poll(NULL, 0, BUSY_STEP_MS);
	return 1;
}

static void wait_for_locks(struct cb_history *h, int ms)
{
	h->busy_until = cb_now_ns() + ms * 1000000LL;
}

static bool is_locked(int r)
{
	return (r & 0xff) == SQLITE_BUSY || (r & 0xff) == SQLITE_LOCKED;
}

/* WAL where the file system can do it: readers and writers of several kernels do not block each other. */
static int choose_journal(struct cb_history *h)
{
	sqlite3_stmt *stmt = NULL;
	bool wal = false;
	int r = sqlite3_prepare_v2(h->db, "PRAGMA journal_mode=WAL", -1, &stmt, NULL);

	if (r == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW)
		wal = sqlite3_stricmp((const char *)sqlite3_column_text(stmt, 0), "wal") == 0;
	sqlite3_finalize(stmt);
	return wal ? SQLITE_OK : sqlite3_exec(h->db, "PRAGMA journal_mode=MEMORY", NULL, NULL, NULL);
}

static int begin_session(struct cb_history *h)
{
	int r = sqlite3_exec(h->db,
			     "INSERT INTO sessions (start) VALUES (strftime('%Y-%m-%d %H:%M:%f', 'now', 'localtime'))",
			     NULL, NULL, NULL);

	h->session = sqlite3_last_insert_rowid(h->db);
	return r;
}

static int open_db(struct cb_history *h, const char *path)
{
	int r = sqlite3_open_v2(
		path, &h->db,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE, NULL);

	if (r == SQLITE_OK)
		r = sqlite3_db_config(h->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	wait_for_locks(h, OPEN_MS);
	if (r == SQLITE_OK)
		r = sqlite3_busy_handler(h->db, on_busy, h);
	if (r == SQLITE_OK)
		r = sqlite3_exec(h->db,
				 "PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON;",
				 NULL, NULL, NULL);
	if (r == SQLITE_OK && strcmp(path, ":memory:") == 0)
		r = sqlite3_exec(h->db, "PRAGMA page_size=4096; PRAGMA max_page_count=" MEMORY_PAGES, NULL, NULL, NULL);
	if (r == SQLITE_OK)
		r = choose_journal(h);
	if (r == SQLITE_OK)
		r = sqlite3_exec(h->db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
	if (r == SQLITE_OK)
		r = sqlite3_exec(h->db, schema, NULL, NULL, NULL);
	if (r == SQLITE_OK)
		r = begin_session(h);
	if (r == SQLITE_OK)
		r = sqlite3_exec(
			h->db,
			"CREATE TEMP TABLE waiting (session integer, line integer, source text, source_raw text,"
			" PRIMARY KEY (session, line))",
			NULL, NULL, NULL);
	if (r == SQLITE_OK)
		r = sqlite3_prepare_v2(h->db, "INSERT OR REPLACE INTO main.history VALUES (?, ?, ?, ?)", -1, &h->add,
				       NULL);
	if (r == SQLITE_OK)
		r = sqlite3_prepare_v2(h->db, "INSERT OR REPLACE INTO temp.waiting VALUES (?, ?, ?, ?)", -1, &h->keep,
				       NULL);
	return r;
}

/* SQLite would follow the umask: input may hold what is nobody else's business. */
static int make_file(const char *path, struct cb_err *err)
{
	CB_AUTO_PATH folder = cb_path_parent(path);
	struct stat st;
	int fd, r = folder != NULL ? cb_file_make_folders(folder, 0700) : -ENOMEM;

	if (r < 0)
		return cb_err_set(err, r, STEP, "Set history.file to \":memory:\" or to a path that you can write.",
				  "history.file %s: its folder can't be made: %s", path, strerror(-r));
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
	if (fd < 0)
		return cb_err_set(err, -errno, STEP,
				  "Set history.file to \":memory:\" or to a path that you can write.",
				  "history.file %s: %s", path, strerror(errno));
	if (fstat(fd, &st) == 0 && (st.st_mode & 0600) != 0600) /* new, under an umask that keeps us out ourselves */
		(void)fchmod(fd, 0600);
	close(fd);
	return 0;
}

/* SQLite keeps it beside the file that a link leads to. */
static bool has_long_journal(const char *path)
{
	CB_AUTO_PATH real = cb_path_real(path);
	CB_AUTO_PATH journal = real != NULL ? cb_path_format("%s-wal", real) : NULL;
	struct stat st;

	return journal != NULL && stat(journal, &st) == 0 && st.st_size > LONG_JOURNAL;
}

static void destroy(struct cb_history *h)
{
	struct job *job;

	while ((job = queue_pop(&h->waiting)) != NULL || (job = queue_pop(&h->answered)) != NULL)
		job_free(job);
	sqlite3_finalize(h->add);
	sqlite3_finalize(h->keep);
	sqlite3_close(h->db);
	if (h->event_fd >= 0)
		close(h->event_fd);
	free(h);
}

int cb_history_open(const char *path, struct cb_history **ret_history, struct cb_err *err)
{
	struct cb_history *h = calloc(1, sizeof(*h));
	int r = 0;

	if (h == NULL)
		return cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
	h->waiting.last = &h->waiting.first;
	h->answered.last = &h->answered.first;
	h->worker = CB_WORKER_NONE;
	h->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (h->event_fd < 0)
		r = cb_err_set(err, -errno, STEP, NULL, "eventfd: %s", strerror(errno));
	if (r == 0 && strcmp(path, ":memory:") != 0)
		r = make_file(path, err);
	h->long_journal = r == 0 && has_long_journal(path);
	if (r == 0 && open_db(h, path) != SQLITE_OK)
		r = sql_failed(h, path, err);
	if (r < 0) {
		destroy(h);
		return r;
	}
	*ret_history = h;
	return 0;
}

/* ---- the thread ---- */

/* Notes how an access of the file went; says so once when it turns out to be locked, and once when it is free. */
static bool note_lock(struct cb_history *h, int r)
{
	bool locked = is_locked(r);

	if (locked && !h->locked)
		cb_log(CB_LOG_WARNING, "history: the database is locked by another program; lines are kept in memory "
				       "until it is free");
	else if (!locked && h->locked)
		cb_log(CB_LOG_INFO, "history: the database is free again");
	h->locked = locked;
	return locked;
}

static int insert(struct cb_history *h, sqlite3_stmt *stmt, const struct job *job)
{
	int r = sqlite3_bind_int64(stmt, 1, h->session);

	if (r == SQLITE_OK)
		r = sqlite3_bind_int64(stmt, 2, job->line);
	for (int i = 3; i <= 4 && r == SQLITE_OK; i++)
		r = sqlite3_bind_text(stmt, i, job->text, (int)job->len, SQLITE_STATIC);
	if (r == SQLITE_OK)
		r = sqlite3_step(stmt);
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return r == SQLITE_DONE ? SQLITE_OK : r;
}

/* Lines that had to wait go to the file, all or none. */
static void write_kept(struct cb_history *h)
{
	int r;

	if (h->kept == 0)
		return;
	r = sqlite3_exec(h->db,
			 "BEGIN IMMEDIATE; INSERT OR REPLACE INTO main.history SELECT * FROM temp.waiting; COMMIT",
			 NULL, NULL, NULL);
	if (sqlite3_get_autocommit(h->db) == 0)
		(void)sqlite3_exec(h->db, "ROLLBACK", NULL, NULL, NULL);
	if (note_lock(h, r))
		return;
	if (r != SQLITE_OK)
		cb_log(CB_LOG_WARNING, "history: %zu lines were not written: %s", h->kept, sqlite3_errstr(r));
	(void)sqlite3_exec(h->db, "DELETE FROM temp.waiting", NULL, NULL, NULL);
	h->kept = h->kept_bytes = 0;
}

static void write_line(struct cb_history *h, const struct job *job)
{
	int r = h->kept > 0 ? SQLITE_BUSY : insert(h, h->add, job);

	if (note_lock(h, r)) {
		if (h->kept >= MAX_JOBS || h->kept_bytes + job->len > MAX_QUEUED_BYTES)
			r = SQLITE_FULL;
		else
			r = insert(h, h->keep, job);
		if (r == SQLITE_OK) {
			h->kept++;
			h->kept_bytes += job->len;
		}
	}
	if (r == SQLITE_OK || h->unwritten)
		return;
	h->unwritten = true;
	cb_log(CB_LOG_WARNING, "history: a line was not written, nor may others be, of which nothing is said: %s",
	       sqlite3_errstr(r));
}

#define COLUMNS "SELECT history.session, history.line, history.source_raw, output_history.output"
#define OUTPUTS " LEFT JOIN main.output_history AS output_history USING (session, line)"

/* What a query reads: the file; and lines that wait for it; and nothing but these, while the file can't be read. */
static const char *const sources[] = {
	" FROM main.history AS history" OUTPUTS,
	" FROM (SELECT * FROM main.history UNION ALL SELECT * FROM temp.waiting) AS history" OUTPUTS,
	" FROM temp.waiting AS history LEFT JOIN (SELECT NULL AS session, NULL AS line, NULL AS output)"
	" AS output_history USING (session, line)",
};

enum { FROM_FILE, FROM_BOTH, FROM_WAITING };

/* Parameters: ?1 session, ?2 start, ?3 stop, ?4 pattern, ?5 the limit. The tail's and the search's rows come youngest
 * first: those are to be told if there is no room for all. malloc'd. */
static char *query_text(const struct cb_history_query *q, int source)
{
	const char *from = sources[source];

	switch (q->access) {
	case CB_HISTORY_RANGE:
		return cb_path_format(
			COLUMNS "%s WHERE session = ?1 AND line >= ?2 AND line < ?3 ORDER BY line LIMIT ?5", from);
	case CB_HISTORY_TAIL:
		return cb_path_format(COLUMNS "%s ORDER BY session DESC, line DESC LIMIT ?5", from);
	case CB_HISTORY_SEARCH:
		if (q->unique)
			return cb_path_format("SELECT session, line, source_raw, output FROM (" COLUMNS
					      ", row_number() OVER"
					      " (PARTITION BY source_raw ORDER BY session DESC, line DESC) AS nth%s"
					      " WHERE source_raw GLOB ?4) WHERE nth = 1"
					      " ORDER BY session DESC, line DESC LIMIT ?5",
					      from);
		return cb_path_format(COLUMNS "%s WHERE source_raw GLOB ?4"
					      " ORDER BY session DESC, line DESC LIMIT ?5",
				      from);
	}
	return NULL;
}

static void write_column(struct cb_json *j, sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);

	if (text == NULL)
		cb_json_put(j, NULL, NULL);
	else
		cb_json_put_text(j, NULL, text, (size_t)sqlite3_column_bytes(stmt, column));
}

static int write_row(const struct cb_history_query *q, sqlite3_stmt *stmt, struct cb_buf *out)
{
	struct cb_json j = cb_json_inside(out);

	cb_json_array(&j, NULL);
	cb_json_put(&j, NULL, (long long)sqlite3_column_int64(stmt, 0), NULL,
		    (long long)sqlite3_column_int64(stmt, 1));
	if (q->output)
		cb_json_array(&j, NULL);
	write_column(&j, stmt, 2);
	if (q->output)
		write_column(&j, stmt, 3);
	return cb_json_done(&j);
}

static int bind_query(struct cb_history *h, const struct job *job, sqlite3_stmt *stmt)
{
	const struct cb_history_query *q = &job->query;
	int64_t session = q->session > 0 ? q->session : h->session + q->session;
	int64_t rows = q->access != CB_HISTORY_RANGE && q->n >= 0 && q->n < MAX_ROWS ? q->n : MAX_ROWS;
	int r = sqlite3_bind_int64(stmt, 5, rows);

	if (r == SQLITE_OK && q->access == CB_HISTORY_RANGE) {
		r = sqlite3_bind_int64(stmt, 1, session);
		if (r == SQLITE_OK)
			r = sqlite3_bind_int64(stmt, 2, q->start);
		if (r == SQLITE_OK)
			r = sqlite3_bind_int64(stmt, 3, q->stop < 0 ? INT64_MAX : q->stop);
	}
	if (r == SQLITE_OK && q->access == CB_HISTORY_SEARCH)
		r = sqlite3_bind_text(stmt, 4, job->text != NULL ? job->text : "*", -1, SQLITE_STATIC);
	return r;
}

/* `end`: of each row, in bytes; a comma is between two. */
static int turn_round(struct cb_buf *rows, const size_t *end, size_t n)
{
	struct cb_buf turned = CB_BUF_INIT(MAX_ANSWER);
	int r = 0;

	for (size_t i = n; i-- > 0 && r == 0;) {
		size_t start = i > 0 ? end[i - 1] + 1 : 0;

		if (turned.len > 0)
			r = cb_buf_append(&turned, ",", 1);
		if (r == 0)
			r = cb_buf_append(&turned, rows->data + start, end[i] - start);
	}
	cb_buf_release(rows);
	*rows = turned;
	return r;
}

/* SQLITE_DONE, SQLITE_ROW when there is no room for more, else what failed. */
static int read_rows(struct cb_history *h, struct job *job, int source)
{
	CB_AUTO_PATH text = query_text(&job->query, source);
	CB_AUTO_BUF ends = CB_BUF_INIT(MAX_ROWS * sizeof(size_t));
	sqlite3_stmt *stmt = NULL;
	int r = text != NULL ? sqlite3_prepare_v2(h->db, text, -1, &stmt, NULL) : SQLITE_NOMEM;

	cb_buf_release(&job->answer);
	job->answer = CB_BUF_INIT(MAX_ANSWER);
	if (r == SQLITE_OK)
		r = bind_query(h, job, stmt);
	while (r == SQLITE_OK || r == SQLITE_ROW) {
		r = sqlite3_step(stmt);
		if (r != SQLITE_ROW)
			break;
		if (write_row(&job->query, stmt, &job->answer) == 0)
			r = cb_buf_append(&ends, &job->answer.len, sizeof(size_t)) == 0 ? r : SQLITE_NOMEM;
		else if (ends.len > 0) /* a first one has no room at all: the others may */
			break;
	}
	sqlite3_finalize(stmt);
	if (job->query.access != CB_HISTORY_RANGE &&
	    turn_round(&job->answer, (const size_t *)(const void *)ends.data, ends.len / sizeof(size_t)) < 0)
		r = SQLITE_NOMEM;
	return r;
}

static void answer_query(struct cb_history *h, struct job *job)
{
	int r = read_rows(h, job, h->kept > 0 ? FROM_BOTH : FROM_FILE);

	if (is_locked(r)) {
		(void)note_lock(h, r);
		r = read_rows(h, job, FROM_WAITING);
	}
	if (r != SQLITE_DONE && r != SQLITE_ROW)
		cb_log(CB_LOG_WARNING, "history: a query failed: %s", sqlite3_errstr(r));
}

/* Lines wait for the file: it is looked at again soon, also when nobody asks. */
static void wait_for_more(struct cb_history *h)
{
	if (cb_worker_wait(&h->worker, h->kept > 0 ? RETRY_S : 0))
		return;
	pthread_mutex_unlock(&h->worker.lock);
	wait_for_locks(h, 0);
	write_kept(h);
	pthread_mutex_lock(&h->worker.lock);
}

static void *history_thread(void *context)
{
	struct cb_history *h = context;

	if (h->long_journal) { /* what others read just now stays */
		wait_for_locks(h, 0);
		(void)sqlite3_wal_checkpoint_v2(h->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	}
	pthread_mutex_lock(&h->worker.lock);
	for (;;) {
		struct job *job = queue_pop(&h->waiting);

		if (job == NULL && h->worker.ending)
			break;
		if (job == NULL) {
			wait_for_more(h);
			continue;
		}
		pthread_mutex_unlock(&h->worker.lock);
		wait_for_locks(h, h->locked ? 0 : BUSY_MS);
		write_kept(h);
		if (job->is_query)
			answer_query(h, job);
		else
			write_line(h, job);
		pthread_mutex_lock(&h->worker.lock);
		if (job->is_query) {
			queue_push(&h->answered, job);
			eventfd_write(h->event_fd, 1);
		} else {
			job_free(job);
		}
	}
	pthread_mutex_unlock(&h->worker.lock);
	return NULL;
}

/* Many kernels live for long before a first cell, or never have one: a thread has a stack, and memory of its own. */
static int need_thread(struct cb_history *h)
{
	return h->worker.started || !h->ready ? 0 : cb_worker_start(&h->worker, history_thread, h);
}

int cb_history_start(struct cb_history *h)
{
	h->ready = true;
	return h->long_journal ? need_thread(h) : 0;
}

/* ---- the loop's side ---- */

/* Takes ownership of the job. */
static int enqueue(struct cb_history *h, struct job *job)
{
	int r = need_thread(h);

	pthread_mutex_lock(&h->worker.lock);
	if (h->worker.ending || h->waiting.count >= MAX_JOBS || h->waiting.bytes + job->len > MAX_QUEUED_BYTES ||
	    (job->is_query && h->answered.count >= MAX_JOBS))
		r = CB_E_TOO_BIG;
	else if (r == 0)
		queue_push(&h->waiting, job);
	cb_worker_wake(&h->worker);
	pthread_mutex_unlock(&h->worker.lock);
	if (r < 0)
		job_free(job);
	return r;
}

int cb_history_add(struct cb_history *h, int64_t line, const char *source, size_t len)
{
	struct job *job = len < MAX_QUEUED_BYTES ? calloc(1, sizeof(*job)) : NULL;
	int r;

	if (job == NULL)
		return len < MAX_QUEUED_BYTES ? -ENOMEM : CB_E_TOO_BIG;
	job->line = line;
	job->len = len;
	job->text = malloc(len + 1);
	if (job->text == NULL) {
		job_free(job);
		return -ENOMEM;
	}
	memcpy(job->text, source, len);
	job->text[len] = '\0';
	r = enqueue(h, job);
	if (r < 0)
		cb_log(CB_LOG_WARNING, "history: %s, line %lld is not kept",
		       r == CB_E_TOO_BIG ? "the queue is full" : "its thread can't be started", (long long)line);
	return r;
}

int cb_history_query(struct cb_history *h, const struct cb_history_query *query, uint64_t tag)
{
	struct job *job;

	if (query->pattern != NULL && strlen(query->pattern) > CB_HISTORY_PATTERN)
		return CB_E_TOO_BIG;
	job = calloc(1, sizeof(*job));
	if (job == NULL)
		return -ENOMEM;
	job->is_query = true;
	job->query = *query;
	job->query.pattern = NULL;
	job->tag = tag;
	job->text = query->pattern != NULL ? strdup(query->pattern) : NULL;
	if (query->pattern != NULL && job->text == NULL) {
		job_free(job);
		return -ENOMEM;
	}
	return enqueue(h, job);
}

int cb_history_fd(const struct cb_history *h)
{
	return h->event_fd;
}

int cb_history_next(struct cb_history *h, uint64_t *ret_tag, struct cb_buf *ret_json)
{
	struct cb_json j = cb_json_inside(ret_json);
	struct job *job;
	eventfd_t n;
	int r;

	pthread_mutex_lock(&h->worker.lock);
	job = queue_pop(&h->answered);
	if (job == NULL)
		eventfd_read(h->event_fd, &n);
	pthread_mutex_unlock(&h->worker.lock);
	if (job == NULL)
		return -EAGAIN;
	cb_json_array(&j, NULL);
	cb_json_put_raw(&j, NULL, cb_buf_span(&job->answer));
	r = cb_json_done(&j);
	if (r == 0)
		*ret_tag = job->tag;
	job_free(job);
	return r;
}

void cb_history_close(struct cb_history *h)
{
	sqlite3_stmt *stmt = NULL;

	if (h == NULL)
		return;
	if (cb_worker_end(&h->worker, PATIENCE_S) < 0) {
		cb_log(CB_LOG_WARNING, "history: what was added last may be lost, the file is busy");
		return; /* the thread still uses it; the process is about to end */
	}
	wait_for_locks(h, END_MS);
	write_kept(h);
	if (h->kept > 0)
		cb_log(CB_LOG_WARNING, "history: %zu lines were not written, the database is locked", h->kept);
	if (sqlite3_prepare_v2(h->db,
			       "UPDATE sessions SET end = strftime('%Y-%m-%d %H:%M:%f', 'now', 'localtime'),"
			       " num_cmds = (SELECT count(*) FROM history WHERE session = ?1) WHERE session = ?1",
			       -1, &stmt, NULL) == SQLITE_OK &&
	    sqlite3_bind_int64(stmt, 1, h->session) == SQLITE_OK)
		sqlite3_step(stmt);
	sqlite3_finalize(stmt);
	destroy(h);
}
