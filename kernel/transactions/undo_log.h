/* What has run since the oldest twin: for Python's `In`, and to say what a take-over undid. Trust domain: supervisor.
 */
#pragma once

#include <cellblock/json_write.h>
#include <stdbool.h>
#include <stdint.h>

#define CB_UNDO_LOG_BYTES_MAX (64u << 20) /* of sources; older ones are forgotten */
/* That are known one by one: cells with a number, and in what room these leave what has none; all are counted. */
#define CB_UNDO_LOG_MAX 100000
#define CB_UNDO_LOG_TOLD 1000		  /* numbers that are told one by one */
#define CB_UNDO_LOG_TURNS 64		  /* of a cell's, that are kept in mind */

struct cb_undo_log_cell {
	uint64_t cell;	   /* counted up with each */
	uint64_t ended;	   /* the count then: its own, but for one that others ran beside; UINT64_MAX = it runs */
	int64_t number;	   /* execution count; 0 = a cell that was not stored, or messages */
	uint64_t messages; /* so many, up to `ended`, between which no point was made; 0 = it is a cell */
	uint64_t *turn;	 /* by which times of going back it was undone, came back, was undone …; owned */
	size_t turns;
	char *code;	 /* raw JSON string; NULL = none or forgotten */
	size_t len;
};

/* How many have run, ever, that are not undone. */
struct cb_undo_log_count {
	uint64_t cells, unnumbered, messages; /* unnumbered: cells that were not stored; messages: of comms */
	uint64_t undone;		      /* how many times it was gone back until then */
};

/* What going back to a point undoes. */
struct cb_undo_log_undone {
	struct cb_undo_log_count n;
	int64_t first, last; /* numbers; 0 = none, or not known any more */
	uint64_t partly;     /* of n.cells: a part of them is in what is gone back to; first and last leave them out */
	int64_t partly_last; /* the number of the last of these */
	uint64_t aside;	     /* of n.cells: before it, but undone when it was made; left out likewise */
	uint64_t untold;     /* cells whose numbers are not in the list */
};

struct cb_undo_log {
	struct cb_undo_log_cell *item; /* in order */
	size_t count, cap, bytes;
	uint64_t last; /* count of the latest, or of the latest end of one that others ran beside */
	struct cb_undo_log_count live;
	uint64_t untold; /* of what was undone at this time and later ones nobody was told yet; 0 = of nothing */
	uint64_t point; /* the count when a point was made last */
	struct cb_undo_log_count running; /* of those: others may run beside them */
};

/* Without a number: it is a comm message if it has no code, else a cell that was not stored. */
void cb_undo_log_add(struct cb_undo_log *p, struct cb_span code, int64_t number);
/* What another one knows of has run here, too. */
void cb_undo_log_join(struct cb_undo_log *p, const struct cb_undo_log *other);
/* Others may begin, and points be made to go back to, before the cell that was added last has ended. */
void cb_undo_log_runs(struct cb_undo_log *p, int64_t number);
void cb_undo_log_ended(struct cb_undo_log *p, uint64_t cell, int64_t number);
/* A point is made now, at `last`: how many have run and are in it. */
struct cb_undo_log_count cb_undo_log_point(struct cb_undo_log *p);
/* How many with a number are known that have ended after `cell` and begun before `end`, and are not undone. */
size_t cb_undo_log_between(const struct cb_undo_log *p, uint64_t cell, uint64_t end);
/* Nobody can go back to before `cell`, or to what was made before it was gone back `undone` times: what all have that
 * can be gone back to, or none, is forgotten, if it was told. */
void cb_undo_log_forget(struct cb_undo_log *p, uint64_t cell, uint64_t undone);
/* The n-th latest before `end`, counted from 1, of those with a number that are known and not undone; NULL = there are
 * fewer. */
const struct cb_undo_log_cell *cb_undo_log_latest(const struct cb_undo_log *p, size_t n, uint64_t end);
/* What going back to `cell` undoes, when so many were live: appends the numbers of those that it has not and that are
 * not undone already, as a JSON array, of very many the youngest. */
int cb_undo_log_after(const struct cb_undo_log *p, uint64_t cell, const struct cb_undo_log_count *live,
		      struct cb_buf *out, struct cb_undo_log_undone *ret);
/* The same with what was undone before, and nobody was told of. */
int cb_undo_log_untold(const struct cb_undo_log *p, uint64_t cell, const struct cb_undo_log_count *live,
		       struct cb_buf *out, struct cb_undo_log_undone *ret);
/* All after `cell` are undone, and of those before it the ones that were when so many were live. */
void cb_undo_log_undo(struct cb_undo_log *p, uint64_t cell, const struct cb_undo_log_count *live);
/* "undone":[{"number":n,"code":"…"},…] of all after `cell`, for a state in which `count` had been counted: a number up
 * to that of one that began later is another line's, and the state has a cell of its own there. */
void cb_undo_log_sources(const struct cb_undo_log *p, uint64_t cell, int64_t count, struct cb_json *j);
void cb_undo_log_release(struct cb_undo_log *p);
