/* What commits have left behind them: see written.h.
 *
 * Trust domain: the broker and its children. Invariants: an inode is in one of a few places, which its number says; all
 * of these are looked at, so that nothing has to be removed from among them.
 */
#include "written.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define STATES (1u << 20) /* as many as a layer has entries, mostly; what is not used takes no memory */
#define PLACES 32u	  /* of one inode */

struct cb_written {
	struct state {
		uint64_t ino; /* 0 = free */
		int64_t changed, modified;
	} states[STATES];
};

static int64_t in_ns(struct timespec t)
{
	return (int64_t)((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec);
}

/* Neighbours stay neighbours, so that few pages are touched; those of another group of inodes begin elsewhere. */
static size_t place(uint64_t ino, unsigned i)
{
	return (size_t)((ino + (ino >> 20) * 0x9e3779b1u + i) % STATES);
}

struct cb_written *cb_written_new(void)
{
	void *memory = mmap(NULL, sizeof(struct cb_written), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory != MAP_FAILED ? memory : NULL;
}

void cb_written_note(struct cb_written *w, const struct stat *st)
{
	struct state *best = NULL;

	if (w == NULL)
		return;
	for (unsigned i = 0; i < PLACES; i++) {
		struct state *s = &w->states[place(st->st_ino, i)];

		if (s->ino == st->st_ino) {
			best = s;
			break;
		}
		if (best == NULL || (best->ino != 0 && (s->ino == 0 || s->changed < best->changed)))
			best = s;
	}
	*best = (struct state){ .ino = st->st_ino, .changed = in_ns(st->st_ctim), .modified = in_ns(st->st_mtim) };
}

static const struct state *find(const struct cb_written *w, const struct stat *st)
{
	for (unsigned i = 0; w != NULL && i < PLACES; i++) {
		const struct state *s = &w->states[place(st->st_ino, i)];

		if (s->ino == st->st_ino)
			return s->changed == in_ns(st->st_ctim) ? s : NULL;
	}
	return NULL;
}

bool cb_written_has(const struct cb_written *w, const struct stat *st)
{
	const struct state *s = find(w, st);

	return s != NULL && s->modified == in_ns(st->st_mtim);
}

struct timespec cb_written_modified(const struct cb_written *w, const struct stat *st)
{
	const struct state *s = find(w, st);
	struct timespec t;

	if (s == NULL)
		return st->st_mtim;
	t = (struct timespec){ .tv_sec = s->modified / 1000000000, .tv_nsec = s->modified % 1000000000 };
	if (t.tv_nsec < 0) {
		t.tv_sec--;
		t.tv_nsec += 1000000000;
	}
	return t;
}
