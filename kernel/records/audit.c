/* The audit log's file. See audit.h.
 *
 * Role: one line for each event, in a chain. Trust domain: supervisor. Invariants: the loop only takes a lock that is
 * held for moments, never waits for the file; a line is written whole or not at all; each line is written under a lock
 * on the file and after a look at its end, so the chain holds across kernels that share the file; what was queued but
 * could not be written is counted, and the count is written; that our last line is gone is written too.
 */
#include "audit.h"

#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "jupyter/loop.h"
#include "jupyter/message.h"
#include "policy/paths.h"
#include "setup/files.h"
#include "worker.h"

#define STEP "audit"
#define CURE "Set audit.file to \"none\" or to a file of its own in a folder that only you can write."
#define MAX_LINES 4096
#define SECOND 1000000000LL
#define PATIENCE_S 2 /* at the end, and so often while it goes on */
#define PATIENCE_TIMES 5

/* Lines a second that may go on for ever, and how many may come at once. */
#define RATE 500
#define BURST 4000
#define RARE_RATE 2
#define RARE_BURST 50

struct line {
	struct line *next;
	size_t len;
	char text[];
};

struct bucket {
	double level, rate, burst;
	int64_t at;
};

struct cb_audit {
	int fd;
	char *path;
	char kernel[41];
	struct bucket often, rarely; /* of the loop's side */
	struct cb_worker worker;
	struct line *first, **last; /* under its lock, as what follows */
	size_t count;
	unsigned long long dropped; /* since the log said so last */
	_Atomic unsigned long long written; /* lines, ever */

	/* the writer's alone */
	off_t begin, end; /* of our last line */
	char prev[CB_AUDIT_HASH];
	bool failing;
	bool lost; /* a line, ever */
};

/* ---- the file ---- */

static int failed(const char *path, int code, const char *what, struct cb_err *err)
{
	return cb_err_set(err, code, STEP, CURE, "audit.file %s: %s", path, what);
}

static int open_file(struct cb_audit *a, struct cb_err *err)
{
	CB_AUTO_PATH folder = cb_path_parent(a->path);
	struct stat st;
	int r = folder != NULL ? cb_file_make_folders(folder, 0700) : -ENOMEM;

	if (r < 0)
		return failed(a->path, r, "its folder can't be made", err);
	a->fd = open(a->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
	if (a->fd < 0)
		return failed(a->path, -errno, errno == ELOOP ? "it is a symbolic link" : strerror(errno), err);
	if (fstat(a->fd, &st) < 0 || !S_ISREG(st.st_mode))
		return failed(a->path, -EINVAL, "not a regular file", err);
	if (st.st_uid != geteuid() || st.st_nlink != 1)
		return failed(a->path, -EPERM, "it belongs to another user or has a second name", err);
	/* an older file with other rights is ours: nobody else reads on */
	if (fchmod(a->fd, 0600) < 0)
		return failed(a->path, -errno, strerror(errno), err);
	/* each line takes a lock: where there are none, no line would ever be written */
	if (flock(a->fd, LOCK_SH | LOCK_NB) < 0 && errno != EWOULDBLOCK)
		return failed(a->path, -errno, "files can't be locked on its file system: name one on another", err);
	(void)flock(a->fd, LOCK_UN);
	return 0;
}

/* The hash of the file's last line, when others have written since, or at our first line. */
static int look_at_end(struct cb_audit *a, off_t size)
{
	char tail[2 * CB_AUDIT_LINE_MAX];
	size_t want = size < (off_t)sizeof(tail) ? (size_t)size : sizeof(tail);
	ssize_t n = pread(a->fd, tail, want, size - (off_t)want);
	size_t stop, start;

	if (n != (ssize_t)want)
		return n < 0 ? -errno : -EIO;
	if (want == 0) {
		memcpy(a->prev, CB_AUDIT_NO_LINE, sizeof(a->prev));
		return 0;
	}
	stop = want;
	if (tail[stop - 1] == '\n')
		stop--;
	else if (write(a->fd, "\n", 1) != 1) /* cut by a crash: `cellblock audit` will name that line */
		return -EIO;
	start = stop;
	while (start > 0 && tail[start - 1] != '\n')
		start--;
	return cb_audit_hash(tail + start, stop - start, a->prev);
}

/* Whether our last line is where it was: what others add comes behind it. */
static bool last_line_is_there(const struct cb_audit *a, off_t size)
{
	char line[CB_AUDIT_LINE_MAX], hash[CB_AUDIT_HASH];
	size_t len = (size_t)(a->end - a->begin);

	return size >= a->end && len > 0 && len <= sizeof(line) && pread(a->fd, line, len, a->begin) == (ssize_t)len &&
	       line[len - 1] == '\n' && cb_audit_hash(line, len - 1, hash) == 0 && strcmp(hash, a->prev) == 0;
}

/* Writes one line whole, or leaves the file as it was. */
static int append(struct cb_audit *a, struct cb_span members)
{
	CB_AUTO_BUF line = CB_BUF_INIT(CB_AUDIT_LINE_MAX);
	char hash[CB_AUDIT_HASH];
	struct stat st;
	ssize_t n;
	int r = 0;

	if (fstat(a->fd, &st) < 0)
		return -errno;
	if (st.st_nlink == 0)
		return -ENOENT;
	if (st.st_size != a->end || a->prev[0] == '\0')
		r = look_at_end(a, st.st_size);
	if (r == 0 && fstat(a->fd, &st) < 0)
		r = -errno;
	if (r == 0)
		r = cb_audit_seal(members, a->prev, &line);
	if (r == 0)
		r = cb_audit_hash(line.data, line.len - 1, hash);
	if (r < 0)
		return r;
	n = write(a->fd, line.data, line.len);
	if (n != (ssize_t)line.len) {
		r = n < 0 ? -errno : -ENOSPC;
		if (n > 0 && ftruncate(a->fd, st.st_size) < 0)
			cb_log(CB_LOG_WARNING, "audit: a line was cut: %s", cb_err_name(-errno));
		a->end = -1;
		return r;
	}
	a->begin = st.st_size;
	a->end = st.st_size + (off_t)line.len;
	memcpy(a->prev, hash, sizeof(hash));
	return 0;
}

static int write_members(const struct cb_audit *a, const char *event, struct cb_span more, struct cb_buf *out)
{
	struct cb_json j = cb_json_inside(out);
	char date[28];

	cb_date_format(cb_date_now(), date);
	cb_json_put(&j, "time", date, "kernel", a->kernel, "event", event);
	cb_json_put_raw(&j, NULL, more);
	return cb_json_done(&j);
}

/* What the log tells of itself. */
static int append_own(struct cb_audit *a, const char *event, const struct cb_buf *more)
{
	CB_AUTO_BUF members = CB_BUF_INIT(CB_AUDIT_LINE_MAX);
	int r = write_members(a, event, cb_buf_span(more), &members);

	return r == 0 ? append(a, cb_buf_span(&members)) : r;
}

/* Lines that were taken out at the end leave no trace in the chain of those that follow: the log itself says it. */
static int note_cut(struct cb_audit *a)
{
	CB_AUTO_BUF more = CB_BUF_INIT(CB_AUDIT_MEMBERS_MAX);
	struct stat st;

	if (a->end < 0 || a->prev[0] == '\0' || fstat(a->fd, &st) < 0 || last_line_is_there(a, st.st_size))
		return 0;
	cb_log(CB_LOG_ERROR, "audit.file %s: lines were changed or taken out that this kernel wrote", a->path);
	cb_audit_put(&more, "last", (const char *)a->prev);
	a->end = -1;
	return append_own(a, "cut", &more);
}

/* Returns how many lines were lost. */
static unsigned long long write_lines(struct cb_audit *a, struct line *lines, unsigned long long dropped)
{
	unsigned long long lost = dropped;
	int r = flock(a->fd, LOCK_EX) < 0 ? -errno : note_cut(a);

	if (r == 0 && dropped > 0) {
		CB_AUTO_BUF more = CB_BUF_INIT(CB_AUDIT_MEMBERS_MAX);

		cb_audit_put(&more, "lines", dropped);
		r = append_own(a, "dropped", &more);
		a->lost = true;
		if (r == 0)
			lost = 0;
	}
	while (lines != NULL) {
		struct line *next = lines->next;

		if (r == 0)
			r = append(a, (struct cb_span){ lines->text, lines->len });
		a->written++;
		lost += r < 0;
		free(lines);
		lines = next;
	}
	(void)flock(a->fd, LOCK_UN);
	if (r < 0 && !a->failing)
		cb_log(CB_LOG_ERROR, "audit.file %s %s", a->path,
		       r == -ENOENT ? "was deleted: lines are lost until the kernel is started anew"
				    : cb_err_name(r));
	a->failing = r < 0;
	a->lost |= lost > 0;
	return lost;
}

static void *audit_thread(void *context)
{
	struct cb_audit *a = context;
	bool last = false;

	pthread_mutex_lock(&a->worker.lock);
	while (!last) {
		while (a->first == NULL && !a->worker.ending)
			(void)cb_worker_wait(&a->worker, 0);
		struct line *lines = a->first;
		unsigned long long dropped = a->dropped;

		last = a->worker.ending;
		a->first = NULL;
		a->last = &a->first;
		a->count = 0;
		a->dropped = 0;
		pthread_mutex_unlock(&a->worker.lock);
		dropped = write_lines(a, lines, dropped);
		if (last && fdatasync(a->fd) < 0)
			a->lost = true;
		pthread_mutex_lock(&a->worker.lock);
		a->dropped += dropped;
	}
	pthread_mutex_unlock(&a->worker.lock);
	return NULL;
}

/* ---- the loop's side ---- */

static bool admit(struct bucket *b)
{
	int64_t now = cb_now_ns();

	b->level += (double)(now - b->at) / (double)SECOND * b->rate;
	if (b->level > b->burst)
		b->level = b->burst;
	b->at = now;
	if (b->level < 1)
		return false;
	b->level -= 1;
	return true;
}

static void enqueue(struct cb_audit *a, const char *event, struct cb_span members, bool admitted)
{
	CB_AUTO_BUF text = CB_BUF_INIT(CB_AUDIT_LINE_MAX - 100); /* room for the seal */
	struct line *line = NULL;

	/* a newline in it would be two lines, and the chain would not hold */
	admitted = admitted && (members.len == 0 || memchr(members.data, '\n', members.len) == NULL);
	if (admitted && write_members(a, event, members, &text) == 0)
		line = malloc(sizeof(*line) + text.len);
	if (line != NULL) {
		line->next = NULL;
		line->len = text.len;
		memcpy(line->text, text.data, text.len);
	}
	pthread_mutex_lock(&a->worker.lock);
	if (line == NULL || a->worker.ending || a->count >= MAX_LINES) {
		a->dropped++;
		free(line);
	} else {
		*a->last = line;
		a->last = &line->next;
		a->count++;
		cb_worker_wake(&a->worker);
	}
	pthread_mutex_unlock(&a->worker.lock);
}

void cb_audit_add(struct cb_audit *a, const char *event, struct cb_span members)
{
	enqueue(a, event, members, admit(&a->often));
}

void cb_audit_add_rarely(struct cb_audit *a, const char *event, struct cb_span members)
{
	enqueue(a, event, members, admit(&a->rarely) && admit(&a->often));
}

enum cb_audit_place cb_audit_look(const struct cb_audit *a)
{
	struct stat st, there;

	if (fstat(a->fd, &st) < 0)
		return CB_AUDIT_THERE;
	if (st.st_nlink == 0)
		return CB_AUDIT_DELETED;
	if (lstat(a->path, &there) < 0)
		return errno == ENOENT || errno == ENOTDIR ? CB_AUDIT_MOVED : CB_AUDIT_THERE; /* or we may not look */
	return there.st_dev == st.st_dev && there.st_ino == st.st_ino ? CB_AUDIT_THERE : CB_AUDIT_MOVED;
}

const char *cb_audit_path(const struct cb_audit *a)
{
	return a->path;
}

static void destroy(struct cb_audit *a)
{
	while (a->first != NULL) {
		struct line *next = a->first->next;

		free(a->first);
		a->first = next;
	}
	cb_fd_close(&a->fd);
	free(a->path);
	free(a);
}

int cb_audit_open(const char *path, const char *kernel, struct cb_audit **ret_audit, struct cb_err *err)
{
	struct cb_audit *a = calloc(1, sizeof(*a));
	int r;

	if (a == NULL)
		return cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
	a->fd = -1;
	a->end = -1;
	a->last = &a->first;
	a->often = (struct bucket){ .level = BURST, .rate = RATE, .burst = BURST, .at = cb_now_ns() };
	a->rarely = (struct bucket){ .level = RARE_BURST, .rate = RARE_RATE, .burst = RARE_BURST, .at = cb_now_ns() };
	snprintf(a->kernel, sizeof(a->kernel), "%s", kernel);
	a->worker = CB_WORKER_NONE;
	a->path = strdup(path);
	r = a->path != NULL ? open_file(a, err) : cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
	if (r < 0) {
		destroy(a);
		return r;
	}
	*ret_audit = a;
	return 0;
}

int cb_audit_start(struct cb_audit *a)
{
	return cb_worker_start(&a->worker, audit_thread, a);
}

/* A file that others hold, or a disk that stands, is not waited for; a machine that is busy is, as long as lines are
 * written. */
static bool ends(struct cb_audit *a)
{
	int r = -ETIMEDOUT;

	for (int i = 0; i < PATIENCE_TIMES && r < 0; i++) {
		unsigned long long before = a->written;

		r = cb_worker_end(&a->worker, PATIENCE_S);
		if (a->written == before)
			break;
	}
	return r == 0;
}

int cb_audit_close(struct cb_audit *a)
{
	bool lost;

	if (a == NULL)
		return 0;
	if (!ends(a)) {
		cb_log(CB_LOG_WARNING, "audit: the last lines may be lost, the file is busy");
		return -ETIMEDOUT; /* the thread still uses it; the process is about to end */
	}
	lost = a->lost || a->first != NULL || a->dropped > 0;
	destroy(a);
	return lost ? -EIO : 0;
}
