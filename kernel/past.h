/* What has run since the oldest twin: for Python's `In`, and to say what a take-over undid. Trust domain: supervisor.
 */
#pragma once

#include <cellblock/buffer.h>
#include <stdbool.h>
#include <stdint.h>

#define CB_PAST_BYTES_MAX (64u << 20) /* of sources; older ones are forgotten */
#define CB_PAST_MAX 100000	      /* cells */

struct cb_past_cell {
	uint64_t cell;	/* counted up with each */
	int64_t number; /* execution count */
	bool undone;
	char *code; /* raw JSON string; NULL = none or forgotten */
	size_t len;
};

struct cb_past {
	struct cb_past_cell *item; /* in order */
	size_t count, cap, bytes;
	uint64_t last; /* count of the latest */
};

/* What has no number (a cell that was not stored, a comm message) is counted only; so it is when memory is out. */
void cb_past_add(struct cb_past *p, struct cb_span code, int64_t number);
/* Nobody can go back to `cell` or before. */
void cb_past_forget(struct cb_past *p, uint64_t cell);
/* The count of the last one that is not undone (with `skip`, of the one before it); 0 = none. */
uint64_t cb_past_latest(const struct cb_past *p, bool skip);
/* What going back to `cell` undoes: appends the numbers of all after it that are not undone already, as a JSON array;
 * gives the first and last (0 = none) and how many. */
int cb_past_after(const struct cb_past *p, uint64_t cell, struct cb_buf *out, int64_t *ret_first, int64_t *ret_last,
		  size_t *ret_count);
/* All after `cell` are undone. */
void cb_past_undo(struct cb_past *p, uint64_t cell);
/* Appends [{"number":n,"code":"…"},…] of all after `cell`. */
int cb_past_sources(const struct cb_past *p, uint64_t cell, struct cb_buf *out);
void cb_past_release(struct cb_past *p);
