/* Pages that a copy costs: who gets them anew, and when.
 *
 * Trust domain: guest. After a copy the first write to each page copies that, in an exception of 2 to 4 microseconds in
 * a virtual machine, and takes large memory out of its huge pages. So what the last cells wrote to is taken care of
 * before the next one is there, by MADV_POPULATE_WRITE (Linux 5.14, madvise(2)):
 * - large memory by the frozen copy, from its end on while it waits: then the original's pages are its own again, huge
 *   ones stay;
 * - single pages, of which a small cell writes to some hundreds, by the original, as long as no request waits;
 * - large memory that is in small pages, new or because a cell came too soon, is put into huge ones (MADV_COLLAPSE,
 *   Linux 6.1): they are copied and shared five hundred times faster. By the original as well, as long as it may.
 *
 * Which they are stands in /proc/self/pagemap: what is only here was written to since the last copy was made, or asked
 * for. To know of the latter, one copy in some takes care of no single page, and leaves out a piece of all that is
 * large. The whole is looked at only if a cell has made many pages its own, or memory has grown or shrunk.
 *
 * Invariants: asking changes nothing but where pages lie, and never takes more than PAGES_MAX pages in the original and
 * `room` bytes in a copy; where something is no longer there the kernel refuses, and that is all. Source:
 * admin-guide/mm/pagemap.rst.
 */
#include "parts.h"

#include <cellblock/wire.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <time.h>

#include "sys.h"

#define PAGE 4096UL
#define PIECE_PAGES 512
#define PIECE (PIECE_PAGES * PAGE)		    /* as large as a huge page */
#define LARGE_PAGES (PIECE_PAGES / 4)		    /* own ones of a piece that is taken care of as a whole */
#define FULL_PAGES (PIECE_PAGES - PIECE_PAGES / 16) /* that must be there: asking fills the rest */
#define PAGES_MAX 2048				    /* single ones */
#define RUNS_MAX 1024
#define LOOKED_MAX (8UL << 30)
#define MANY 1024	  /* pages: worth a look */
#define SELDOM 32	  /* copies */
#define A_FEW 8		  /* runs: some microseconds */
#define SAMPLES 16	  /* copies */
#define LONG 8		  /* pieces: such a run is sampled each time */
#define TIDY_NS 50000000L /* the loops of user code wait for it */
enum { MADV_POPULATE_WRITE_ = 23, MADV_COLLAPSE_ = 25 };
#define PRESENT (1ULL << 63)
#define OF_FILE (1ULL << 61)
#define OWN (PRESENT | 1ULL << 56) /* in this process only; a file's page too that nobody has written to */

struct run {
	uintptr_t at, end; /* an area may end before its last piece does */
	size_t n;
};

struct runs {
	struct run run[RUNS_MAX];
	size_t count, total, most;
	bool over;  /* there are more */
	bool apart; /* the next one begins a run: each lies in one area */
};

static struct runs single = { .most = PAGES_MAX }; /* pages */
static struct runs large = { .most = LOOKED_MAX / PIECE };
static enum { UNKNOWN, LEARNING, KNOWN, NEVER } state;
static int wait, left; /* copies from one time of learning to the next */
static bool sampling;  /* a piece of each large run is left out */
static unsigned sample;
static int period, next;      /* copies from one time of sampling to the next */
static long faults, resident; /* when the last copy was made */
static bool again;	      /* what is new could not be told then */
static bool looked_for;	      /* that all which is known is still there */
static size_t copied;	      /* large pieces, by this copy */
static size_t tidied;	      /* large pieces, from where this goes on */
static size_t room;	      /* for as many */

static void add(struct runs *r, uintptr_t at, uintptr_t end, size_t size)
{
	struct run *last = r->count > 0 && !r->apart ? &r->run[r->count - 1] : NULL;
	bool longer = last != NULL && last->end == at && last->at + last->n * size == at;

	if (r->total == r->most || (r->count == RUNS_MAX && !longer)) {
		r->over = true;
		return;
	}
	r->apart = false;
	if (!longer)
		r->run[r->count++] = (struct run){ .at = at };
	last = &r->run[r->count - 1];
	last->end = end;
	last->n++;
	r->total++;
}

static void clear(struct runs *r)
{
	r->count = r->total = 0;
	r->over = false;
}

/* ---- which they are ---- */

/* How many of n pages, at most a piece, are only here; a negative errno. own[] says which, *ret_there how many there
 * are. */
static long look_at_pages(long pagemap, uintptr_t at, size_t n, bool own[PIECE_PAGES], size_t *ret_there)
{
	uint64_t entries[PIECE_PAGES];
	long found = 0,
	     got = cb_sys4(SYS_pread64, pagemap, entries, n * sizeof(entries[0]), at / PAGE * sizeof(entries[0]));

	if (got < 0)
		return got;
	*ret_there = 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t entry = i < (size_t)got / sizeof(entries[0]) ? entries[i] : 0;

		own[i] = (entry & (OWN | OF_FILE)) == OWN;
		found += own[i];
		*ret_there += (entry & (PRESENT | OF_FILE)) == PRESENT;
	}
	return found;
}

struct look {
	long pagemap;
	size_t looked;
};

/* The rest of a line of /proc/self/maps: of private memory that can be written to. */
static bool is_area(const char *rest)
{
	return rest[0] == ' ' && rest[1] == 'r' && rest[2] == 'w' && rest[4] == 'p';
}

/* A line of /proc/self/maps: private memory that can be written to is looked at. */
static int look_at_line(void *context, const char *line)
{
	struct look *l = context;
	bool own[PIECE_PAGES];
	uint64_t at, end;

	line = cb_sys_number(cb_sys_number(line, 16, &at) + 1, 16, &end);
	if (!is_area(line))
		return 0;
	single.apart = large.apart = true;
	l->looked += end - at;
	if (l->looked > LOOKED_MAX)
		return -E2BIG;
	while (at < end) {
		size_t n = (PIECE - at % PIECE) / PAGE, there;
		long found;

		n = n < (end - at) / PAGE ? n : (end - at) / PAGE;
		found = look_at_pages(l->pagemap, at, n, own, &there);
		if (found < 0)
			return (int)found;
		if (there >= FULL_PAGES && found >= LARGE_PAGES)
			add(&large, at, at + n * PAGE, PIECE);
		else
			for (size_t i = 0; i < n && found > 0; i++)
				if (own[i])
					add(&single, at + i * PAGE, at + (i + 1) * PAGE, PAGE);
		at += n * PAGE;
	}
	return 0;
}

static int look(long pagemap)
{
	struct look l = { .pagemap = pagemap };
	size_t before = single.total, pieces = large.total;
	int r;

	clear(&single);
	clear(&large);
	again = false;
	r = cb_sys_lines_of("/proc/self/maps", look_at_line, &l);
	if (r < 0 || single.over)
		clear(&single); /* a later cell writes to fewer, perhaps */
	if (state == LEARNING) {
		bool known = r == 0 && !single.over;
		bool alike = single.total <= before + before / 4 && before <= single.total + single.total / 4;

		wait = known && !alike ? 1 : wait < SELDOM ? 2 * wait + !wait : SELDOM;
		left = wait;
		state = KNOWN;
	}
	tidied = 0;
	if (large.total > pieces + pieces / 4)
		period = next = 1;
	return r;
}

static size_t size_of_piece(const struct run *r, uintptr_t at)
{
	return r->end - at < PIECE ? r->end - at : PIECE;
}

/* The piece of a run that is left out this time; 0 = none. Of small runs each has its turn. */
static uintptr_t sample_of(const struct run *r)
{
	return r->n < LONG && (sample + (size_t)(r - large.run)) % LONG != 0 ? 0 : r->at + sample / LONG % r->n * PIECE;
}

/* Without runs that are empty. */
static void pack(struct runs *r)
{
	size_t kept = 0;

	r->total = 0;
	for (size_t i = 0; i < r->count; i++) {
		r->total += r->run[i].n;
		if (r->run[i].n > 0)
			r->run[kept++] = r->run[i];
	}
	r->count = kept;
}

/* What was left out and hardly written to is perhaps written to no more, or in few pages: a copy would copy the whole
 * for those, each time. The rest of it is the process's own because a copy has copied it; that is over with the next
 * one, which leaves it alone. */
static void drop_unused(long pagemap)
{
	bool own[PIECE_PAGES];
	size_t there;

	for (size_t i = 0; i < large.count; i++) {
		struct run *r = &large.run[i];
		uintptr_t at = sample_of(r);

		if (at != 0 && look_at_pages(pagemap, at, size_of_piece(r, at) / PAGE, own, &there) < LARGE_PAGES)
			r->n = 0;
	}
	pack(&large);
}

static void count(long *ret_faults, long *ret_resident)
{
	struct rusage usage = { 0 };
	char text[64] = "";
	uint64_t n = 0;
	long fd = cb_sys4(SYS_openat, AT_FDCWD, "/proc/self/statm", O_RDONLY | O_CLOEXEC, 0);
	const char *at = text;

	if (fd >= 0) {
		(void)cb_sys3(SYS_read, fd, text, sizeof(text) - 1);
		(void)cb_sys1(SYS_close, fd);
		while (*at != '\0' && *at++ != ' ')
			;
		(void)cb_sys_number(at, 10, &n);
	}
	(void)cb_sys2(SYS_getrusage, RUSAGE_SELF, &usage);
	*ret_faults = usage.ru_minflt;
	*ret_resident = (long)n;
}

/* The kernel knows how. What it says of other memory says something of that. */
static bool can_ask(void)
{
	static char page[2 * PAGE];
	uintptr_t at = ((uintptr_t)page + PAGE - 1) / PAGE * PAGE;

	return cb_sys3(SYS_madvise, at, PAGE, MADV_POPULATE_WRITE_) != -EINVAL;
}

/* A cell has made many pages its own, or memory has grown or shrunk. */
static bool is_new(void)
{
	long faults_now, resident_now, grown;

	count(&faults_now, &resident_now);
	grown = resident_now - resident;
	return faults_now - faults >= MANY || grown >= MANY || grown <= -MANY;
}

void cb_pages_look(int64_t bytes)
{
	long pagemap = -1;
	bool new;

	copied = 0;
	looked_for = false;
	room = bytes > 0 ? (size_t)bytes / PIECE : 0;
	if (bytes < 0 || (state == UNKNOWN && !can_ask()))
		state = NEVER;
	if (state == NEVER || state == UNKNOWN)
		return;
	new = is_new() || again;
	if (sampling || new || state == LEARNING)
		pagemap = cb_sys4(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
	if (pagemap >= 0) {
		again = new &&sampling;
		if (sampling)
			drop_unused(pagemap);
		else if (new || state == LEARNING)
			(void)look(pagemap);
		(void)cb_sys1(SYS_close, pagemap);
	}
	sampling = large.count > 0 && --next <= 0;
	if (sampling) {
		sample++;
		period = period < SAMPLES ? 2 * period : SAMPLES;
		next = period;
	}
}

/* ---- asking for them ---- */

/* Both lists of areas and of runs are in order. */
struct walk {
	struct runs *runs;
	size_t size; /* of what a run counts */
	size_t at;   /* the first that is not found yet */
};

static size_t count_of(uintptr_t from, uintptr_t to, size_t size)
{
	return (to - from + size - 1) / size;
}

/* The area begins within it. */
static void cut_front(struct run *r, uintptr_t from, size_t size)
{
	size_t gone = count_of(r->at, from, size);

	gone = gone < r->n ? gone : r->n;
	r->at += gone * size;
	r->n -= gone;
}

static int pass_area(void *context, const char *line)
{
	uint64_t from, to;

	line = cb_sys_number(cb_sys_number(line, 16, &from) + 1, 16, &to);
	if (!is_area(line))
		return 0;
	for (struct walk *w = context; w->runs != NULL; w++) {
		struct run *r = &w->runs->run[w->at], *end = &w->runs->run[w->runs->count];

		for (; r < end && r->end <= from; r++)
			r->n = 0;
		if (r < end && r->at < from)
			cut_front(r, from, w->size);
		while (r < end && (r->n == 0 || r->end <= to))
			r++;
		if (r < end && r->at < to) { /* what is behind may be gone, or another area's */
			r->end = to;
			r->n = count_of(r->at, to, w->size);
			r++;
		}
		w->at = (size_t)(r - w->runs->run);
	}
	return 0;
}

/* What is known may have gone since, and something else lie in its place: a file, say, that asking would fill. */
static void drop_what_has_gone(void)
{
	struct walk walks[] = { { &single, PAGE, 0 }, { &large, PIECE, 0 }, { NULL, 0, 0 } };

	(void)cb_sys_lines_of("/proc/self/maps", pass_area, walks); /* what it did not come to is forgotten */
	for (struct walk *w = walks; w->runs != NULL; w++) {
		for (; w->at < w->runs->count; w->at++)
			w->runs->run[w->at].n = 0;
		pack(w->runs);
	}
	looked_for = true;
}

static bool request_waits(void)
{
	struct pollfd wire = { .fd = CB_GUEST_FD_WIRE, .events = POLLIN };
	const struct timespec at_once = { 0 };

	return cb_sys4(SYS_ppoll, &wire, 1, &at_once, NULL) != 0;
}

static void ask_for_single(void)
{
	if (state == KNOWN && left-- == 0)
		state = LEARNING;
	if (state != KNOWN)
		return;
	for (size_t i = 0; i < single.count && (i % A_FEW != 0 || !request_waits()); i++)
		(void)cb_sys3(SYS_madvise, single.run[i].at, single.run[i].end - single.run[i].at,
			      MADV_POPULATE_WRITE_);
}

void cb_pages_get(void)
{
	if (state == UNKNOWN) {
		state = LEARNING;
	} else if (state != NEVER && !request_waits()) {
		drop_what_has_gone();
		ask_for_single();
	}
	count(&faults, &resident);
}

/* The run that has piece i of all. */
static const struct run *run_of(size_t i, uintptr_t *ret_at)
{
	const struct run *r = large.run;

	for (; i >= r->n; r++)
		i -= r->n;
	*ret_at = r->at + i * PIECE;
	return r;
}

bool cb_pages_copy(void)
{
	const struct run *r;
	uintptr_t at;

	if (!looked_for && state != NEVER && room > 0)
		drop_what_has_gone();
	if (state == NEVER || copied >= large.total || copied >= room)
		return false;
	r = run_of(large.total - ++copied, &at);
	if (!sampling || at != sample_of(r))
		(void)cb_sys3(SYS_madvise, at, size_of_piece(r, at), MADV_POPULATE_WRITE_);
	return true;
}

bool cb_pages_untidy(void)
{
	return state != NEVER && looked_for && tidied < large.total && tidied < room;
}

void cb_pages_tidy(void)
{
	int64_t end = cb_sys_now_ns() + TIDY_NS;
	const struct run *r;
	uintptr_t at;

	for (; cb_pages_untidy() && !request_waits() && cb_sys_now_ns() < end; tidied++) {
		r = run_of(tidied, &at);
		(void)cb_sys3(SYS_madvise, at, size_of_piece(r, at), MADV_COLLAPSE_);
	}
}

void cb_pages_copy_nothing(void)
{
	room = 0;
}
