/* Input history: SQLite, written and searched by one thread so that the loop never waits for a file. Trust domain:
 * supervisor.
 *
 * The schema is IPython's (sessions, history), so that its tools read it. The file is opened before rights are dropped;
 * the thread starts with the first line or question, after the filter is loaded, and inherits it. Queues are bounded:
 * past the bound an entry is dropped and logged.
 */
#pragma once

#include <cellblock/buffer.h>
#include <cellblock/error.h>
#include <stdbool.h>
#include <stdint.h>

#define CB_HISTORY_PATTERN 1000 /* bytes */

struct cb_history;

enum cb_history_access { CB_HISTORY_RANGE, CB_HISTORY_TAIL, CB_HISTORY_SEARCH };

struct cb_history_query {
	enum cb_history_access access;
	bool output, unique;
	int64_t session, start, stop; /* range; session 0 = current, -n = n sessions ago; stop < 0 = to the end */
	int64_t n;		      /* tail, search; < 0 = all (bounded) */
	const char *pattern;	      /* search: glob, at most CB_HISTORY_PATTERN; copied */
};

/* path ":memory:" or an absolute file path. */
int cb_history_open(const char *path, struct cb_history **ret_history, struct cb_err *err);
/* From here on its thread may be started, at once for a long journal. If it can't be, that is tried again when it is
 * needed next. */
int cb_history_start(struct cb_history *h);
int cb_history_add(struct cb_history *h, int64_t line, const char *source, size_t len);
/* The answer comes later through cb_history_fd/next with the same tag. */
int cb_history_query(struct cb_history *h, const struct cb_history_query *query, uint64_t tag);
int cb_history_fd(const struct cb_history *h); /* readable when an answer waits */
/* Takes one answer: JSON text of the reply's `history` array: [[session, line, input] or [session, line, [input,
 * null]], …]. -EAGAIN if none. */
int cb_history_next(struct cb_history *h, uint64_t *ret_tag, struct cb_buf *ret_json);
/* Ends the session: waits (bounded, at most a second) until what was added is written. NULL allowed. */
void cb_history_close(struct cb_history *h);
