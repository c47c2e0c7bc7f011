/* The cells since the oldest twin. Trust domain: supervisor; sources come from clients and have passed the strict scan.
 */
#include "undo_log.h"

#include <stdlib.h>

static void drop_code(struct cb_undo_log *p, struct cb_undo_log_cell *c)
{
	p->bytes -= c->len;
	free(c->code);
	c->code = NULL;
	c->len = 0;
}

static void drop_first(struct cb_undo_log *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		drop_code(p, &p->item[i]);
		free(p->item[i].turn);
	}
	p->count -= n;
	memmove(p->item, p->item + n, p->count * sizeof(*p->item));
}

static void drop_unnumbered(struct cb_undo_log *p)
{
	size_t kept = 0;

	for (size_t i = 0; i < p->count; i++) {
		if (p->item[i].number > 0)
			p->item[kept++] = p->item[i];
		else
			free(p->item[i].turn);
	}
	p->count = kept;
}

static bool is_live(const struct cb_undo_log_cell *c)
{
	return c->turns % 2 == 0;
}

static bool is_numbered(const struct cb_undo_log_cell *c)
{
	return c->number > 0 && is_live(c);
}

/* Whether it is in what was made after `cell`, when so many were live. */
static bool is_in(const struct cb_undo_log_cell *c, uint64_t cell, const struct cb_undo_log_count *live)
{
	size_t n = c->turns;

	while (n > 0 && c->turn[n - 1] > live->undone)
		n--;
	return c->ended <= cell && n % 2 == 0;
}

/* Undone, or back. Of very many times those in the middle are forgotten: between old names one may go to and fro. */
static void turn(struct cb_undo_log_cell *c, uint64_t time)
{
	const size_t half = CB_UNDO_LOG_TURNS / 2;
	uint64_t *more = c->turns < CB_UNDO_LOG_TURNS ? realloc(c->turn, (c->turns + 1) * sizeof(*more)) : NULL;

	if (c->turns >= CB_UNDO_LOG_TURNS) {
		c->turns -= 2;
		memmove(c->turn + half, c->turn + half + 2, (c->turns - half) * sizeof(*c->turn));
	} else if (more == NULL) { /* memory is out */
		return;
	} else {
		c->turn = more;
	}
	c->turn[c->turns++] = time;
}

static int make_room(struct cb_undo_log *p)
{
	size_t cap = p->cap > 0 ? 2 * p->cap : 16;
	struct cb_undo_log_cell *item;

	if (p->count >= CB_UNDO_LOG_MAX)
		drop_unnumbered(p);
	if (p->count >= CB_UNDO_LOG_MAX)
		drop_first(p, CB_UNDO_LOG_MAX / 8);
	if (p->count < p->cap)
		return 0;
	item = realloc(p->item, cap * sizeof(*item));
	if (item == NULL)
		return -1;
	p->item = item;
	p->cap = cap;
	return 0;
}

/* Crowds of messages are one entry, as long as all points have all of them or none. */
static bool goes_with_last(struct cb_undo_log *p)
{
	struct cb_undo_log_cell *c = p->count > 0 ? &p->item[p->count - 1] : NULL;

	if (c == NULL || c->messages == 0 || c->ended != p->last || c->turns > 0 || p->point == p->last)
		return false;
	c->messages++;
	c->ended = ++p->last;
	return true;
}

void cb_undo_log_add(struct cb_undo_log *p, struct cb_span code, int64_t number)
{
	bool message = number <= 0 && code.data == NULL;

	*(number > 0 ? &p->live.cells : message ? &p->live.messages : &p->live.unnumbered) += 1;
	if (message && goes_with_last(p))
		return;
	struct cb_undo_log_cell c = {
		.cell = ++p->last, .ended = p->last, .number = number > 0 ? number : 0, .messages = message
	};

	if (make_room(p) < 0)
		return;
	if (c.number > 0 && code.data != NULL && code.len <= CB_UNDO_LOG_BYTES_MAX &&
	    (c.code = malloc(code.len)) != NULL) {
		memcpy(c.code, code.data, code.len);
		c.len = code.len;
	}
	p->item[p->count++] = c;
	p->bytes += c.len;
	for (size_t i = 0; i < p->count && p->bytes > CB_UNDO_LOG_BYTES_MAX; i++)
		drop_code(p, &p->item[i]);
}

void cb_undo_log_join(struct cb_undo_log *p, const struct cb_undo_log *other)
{
	struct cb_undo_log_count all = p->live;

	all.cells += other->live.cells; /* those that it has forgotten are counted */
	all.unnumbered += other->live.unnumbered;
	all.messages += other->live.messages;
	for (size_t i = 0; i < other->count; i++) {
		const struct cb_undo_log_cell *c = &other->item[i];
		const char *code = c->code != NULL ? c->code : "\"\"";

		for (uint64_t m = 0; m < c->messages; m++)
			cb_undo_log_add(p, (struct cb_span){ NULL, 0 }, 0);
		if (c->messages == 0)
			cb_undo_log_add(p, (struct cb_span){ code, c->code != NULL ? c->len : 2 }, c->number);
	}
	p->live = all;
	p->point = p->last; /* what comes now is none of these */
}

static uint64_t *running(struct cb_undo_log *p, int64_t number)
{
	return number > 0 ? &p->running.cells : &p->running.unnumbered;
}

static struct cb_undo_log_cell *find(struct cb_undo_log *p, uint64_t cell)
{
	for (size_t i = p->count; i > 0 && p->item[i - 1].cell >= cell; i--)
		if (p->item[i - 1].cell == cell)
			return &p->item[i - 1];
	return NULL;
}

void cb_undo_log_runs(struct cb_undo_log *p, int64_t number)
{
	struct cb_undo_log_cell *c = find(p, p->last);

	*running(p, number) += 1;
	if (c != NULL)
		c->ended = UINT64_MAX;
}

void cb_undo_log_ended(struct cb_undo_log *p, uint64_t cell, int64_t number)
{
	struct cb_undo_log_cell *c = find(p, cell);

	p->last++;
	if (*running(p, number) > 0) /* else its Python has ended, and the log with it */
		*running(p, number) -= 1;
	if (c != NULL)
		c->ended = p->last;
}

struct cb_undo_log_count cb_undo_log_point(struct cb_undo_log *p)
{
	struct cb_undo_log_count live = p->live;

	p->point = p->last;
	live.cells -= p->running.cells;
	live.unnumbered -= p->running.unnumbered;
	return live;
}

static bool is_alike(const struct cb_undo_log_cell *c, uint64_t cell, uint64_t undone)
{
	return c->ended <= cell && (c->turns == 0 || c->turn[c->turns - 1] <= undone);
}

static bool is_untold(const struct cb_undo_log_cell *c, uint64_t from)
{
	return !is_live(c) && from != 0 && c->turn[c->turns - 1] >= from;
}

void cb_undo_log_forget(struct cb_undo_log *p, uint64_t cell, uint64_t undone)
{
	size_t n = 0;

	while (n < p->count && is_alike(&p->item[n], cell, undone) && !is_untold(&p->item[n], p->untold))
		n++;
	if (n > 0)
		drop_first(p, n);
}

const struct cb_undo_log_cell *cb_undo_log_latest(const struct cb_undo_log *p, size_t n, uint64_t end)
{
	for (size_t i = p->count; i > 0; i--)
		if (is_numbered(&p->item[i - 1]) && p->item[i - 1].cell < end && --n == 0)
			return &p->item[i - 1];
	return NULL;
}

size_t cb_undo_log_between(const struct cb_undo_log *p, uint64_t cell, uint64_t end)
{
	size_t n = 0;

	for (size_t i = 0; i < p->count; i++)
		n += is_numbered(&p->item[i]) && p->item[i].ended > cell && p->item[i].cell < end;
	return n;
}

static uint64_t more(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* What is undone now, or was and is not told. */
static bool is_undone(const struct cb_undo_log_cell *c, uint64_t cell, const struct cb_undo_log_count *live,
		      uint64_t untold)
{
	return (is_live(c) || is_untold(c, untold)) && !is_in(c, cell, live);
}

static void count_undone(const struct cb_undo_log_cell *c, uint64_t cell, struct cb_undo_log_count *known,
			 struct cb_undo_log_undone *u)
{
	known->messages += c->messages;
	known->unnumbered += c->number == 0 && c->messages == 0;
	if (c->number == 0)
		return;
	known->cells++;
	u->aside += c->ended <= cell;
	if (c->cell <= cell && c->ended > cell) {
		u->partly++;
		u->partly_last = c->number;
	}
	if (c->cell <= cell)
		return;
	u->first = u->first == 0 ? c->number : u->first;
	u->last = c->number;
}

static int undone_after(const struct cb_undo_log *p, uint64_t cell, const struct cb_undo_log_count *live,
			uint64_t untold, struct cb_buf *out, struct cb_undo_log_undone *ret)
{
	struct cb_undo_log_undone u = { 0 };
	struct cb_undo_log_count known = { 0 }, before = { 0 };
	struct cb_json j = cb_json_inside(out);
	uint64_t told = 0;

	for (size_t i = 0; i < p->count; i++)
		if (is_undone(&p->item[i], cell, live, untold))
			count_undone(&p->item[i], cell, is_live(&p->item[i]) ? &known : &before, &u);
	cb_json_array(&j, NULL);
	for (size_t i = 0, seen = 0; i < p->count; i++) {
		const struct cb_undo_log_cell *c = &p->item[i];

		if (c->number == 0 || !is_undone(c, cell, live, untold) ||
		    ++seen + CB_UNDO_LOG_TOLD <= known.cells + before.cells)
			continue;
		cb_json_put(&j, NULL, c->number);
		told++;
	}
	/* those of which not each is known: memory was out, or they were too many */
	u.n.cells = before.cells + larger(known.cells, more(p->live.cells, live->cells));
	u.n.unnumbered = before.unnumbered + larger(known.unnumbered, more(p->live.unnumbered, live->unnumbered));
	u.n.messages = before.messages + larger(known.messages, more(p->live.messages, live->messages));
	if (u.n.cells > before.cells + known.cells)
		u.first = 0;
	u.untold = u.n.cells - told;
	*ret = u;
	return cb_json_done(&j);
}

int cb_undo_log_after(const struct cb_undo_log *p, uint64_t cell, const struct cb_undo_log_count *live,
		      struct cb_buf *out, struct cb_undo_log_undone *ret)
{
	return undone_after(p, cell, live, 0, out, ret);
}

int cb_undo_log_untold(const struct cb_undo_log *p, uint64_t cell, const struct cb_undo_log_count *live,
		       struct cb_buf *out, struct cb_undo_log_undone *ret)
{
	return undone_after(p, cell, live, p->untold, out, ret);
}

void cb_undo_log_undo(struct cb_undo_log *p, uint64_t cell, const struct cb_undo_log_count *live)
{
	uint64_t times = p->live.undone + 1;

	for (size_t i = 0; i < p->count; i++) {
		struct cb_undo_log_cell *c = &p->item[i];

		if (is_live(c) != is_in(c, cell, live))
			turn(c, times);
	}
	p->live = *live;
	p->live.undone = times;
}

void cb_undo_log_sources(const struct cb_undo_log *p, uint64_t cell, int64_t count, struct cb_json *j)
{
	cb_json_array(j, "undone");
	for (size_t i = 0; i < p->count; i++) {
		const struct cb_undo_log_cell *c = &p->item[i];
		struct cb_span code = { c->code, c->len };

		if (c->number > 0 && c->ended > cell && (c->cell <= cell || c->number > count))
			cb_json_put_object(j, NULL, "number", c->number, "code",
					   code.data != NULL ? code : CB_SPAN("\"\""));
	}
	cb_json_end(j);
}

void cb_undo_log_release(struct cb_undo_log *p)
{
	if (p->count > 0)
		drop_first(p, p->count);
	free(p->item);
	*p = (struct cb_undo_log){ .last = p->last, .live = p->live };
}
