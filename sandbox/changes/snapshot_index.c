/* The index of an overlay workspace's snapshots: see snapshot_index.h.
 *
 * Trust domain: broker's child, outside; the jail sees neither the index nor what it holds. Invariants: one process at
 * a time works on it; one that died of it leaves `busy`, and the index is not believed any more. What a page of it
 * needs is taken from the layer before it is touched, so that a full layer is an error and no signal.
 *
 * A snapshot holds nothing of what did not change since the one before: a state serves all snapshots from its own on,
 * up to the name's next state. A state that ended is in the list of the youngest snapshot that still sees it; when that
 * one is dropped it goes, or to the snapshot before. So all costs go by what changed.
 */
#include "snapshot_index.h"

#include "overlay_changes.h"

#include <cellblock/buffer.h>
#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAME "index"
#define MAGIC 0x43425831u
#define SLOT 64u
#define GROWTH (64u << 10)
#define BUCKETS_FIRST 256u /* two tables of them */

struct content {
	uint32_t refs;
};

struct cb_living {
	uint32_t number;
	cb_slot older; /* the living snapshot before it */
	cb_slot ended; /* states that ended after it */
};

static void *record(const struct cb_kept *ix, cb_slot slot)
{
	return (char *)ix->head + (size_t)slot * SLOT;
}

static void *at(const struct cb_kept *ix, cb_slot slot)
{
	return slot == 0 ? NULL : record(ix, slot);
}

struct cb_node *cb_kept_node(const struct cb_kept *ix, cb_slot slot)
{
	return at(ix, slot);
}

struct cb_state *cb_kept_state(const struct cb_kept *ix, cb_slot slot)
{
	return at(ix, slot);
}

cb_slot cb_kept_slot(const struct cb_kept *ix, const void *record)
{
	return record == NULL ? 0 : (cb_slot)((size_t)((const char *)record - (const char *)ix->head) / SLOT);
}

/* ---- room ---- */

static cb_slot slots(size_t bytes)
{
	return (cb_slot)((bytes + SLOT - 1) / SLOT);
}

static cb_slot take_new(struct cb_kept *ix, cb_slot count)
{
	struct cb_kept_head *h = ix->head;
	cb_slot first = h->used;

	while (h->limit - h->used < count) {
		if ((size_t)h->limit * SLOT + GROWTH > CB_KEPT_MAX ||
		    posix_fallocate(ix->fd, (off_t)h->limit * SLOT, GROWTH) != 0)
			return 0;
		h->limit += GROWTH / SLOT;
	}
	h->used += count;
	return first;
}

static void give_back(struct cb_kept *ix, cb_slot slot, size_t bytes)
{
	cb_slot *list = &ix->head->free[slots(bytes)];

	*(cb_slot *)record(ix, slot) = *list;
	*list = slot;
}

static void *take(struct cb_kept *ix, size_t bytes)
{
	cb_slot *list = &ix->head->free[slots(bytes)], slot = *list;

	if (slot != 0)
		*list = *(cb_slot *)record(ix, slot);
	else
		slot = take_new(ix, slots(bytes));
	return slot == 0 ? NULL : memset(record(ix, slot), 0, (size_t)slots(bytes) * SLOT);
}

/* ---- tables: names first, then inode numbers ---- */

static uint32_t mix(uint64_t x)
{
	x *= 0x9e3779b97f4a7c15ull;
	return (uint32_t)(x >> 32);
}

static uint32_t hash_name(cb_slot parent, const char *name)
{
	return mix(cb_span_hash((struct cb_span){ name, strlen(name) }, parent + CB_HASH));
}

static cb_slot *name_chain(const struct cb_kept *ix, cb_slot parent, const char *name)
{
	return (cb_slot *)record(ix, ix->head->tables) + (hash_name(parent, name) & (ix->head->buckets - 1));
}

static cb_slot *ino_chain(const struct cb_kept *ix, uint64_t ino)
{
	return (cb_slot *)record(ix, ix->head->tables) + ix->head->buckets + (mix(ino) & (ix->head->buckets - 1));
}

static void chain_ino(struct cb_kept *ix, struct cb_node *n)
{
	cb_slot *first = ino_chain(ix, n->ino);

	n->by_ino_prev = 0;
	n->by_ino = *first;
	if (*first != 0)
		cb_kept_node(ix, *first)->by_ino_prev = cb_kept_slot(ix, n);
	*first = cb_kept_slot(ix, n);
}

static void chain_node(struct cb_kept *ix, struct cb_node *n)
{
	cb_slot *to = name_chain(ix, n->parent, n->name);

	n->by_name = *to;
	*to = cb_kept_slot(ix, n);
	if (n->ino != 0)
		chain_ino(ix, n);
}

/* From there on in its chain. */
static cb_slot next_of_ino(struct cb_kept *ix, cb_slot slot, uint64_t ino)
{
	for (ix->steps++; slot != 0 && cb_kept_node(ix, slot)->ino != ino; ix->steps++)
		slot = cb_kept_node(ix, slot)->by_ino;
	return slot;
}

static void unchain_ino(struct cb_kept *ix, const struct cb_node *n)
{
	if (ix->next_ino == cb_kept_slot(ix, n))
		ix->next_ino = next_of_ino(ix, n->by_ino, n->ino);
	if (n->by_ino_prev != 0)
		cb_kept_node(ix, n->by_ino_prev)->by_ino = n->by_ino;
	else
		*ino_chain(ix, n->ino) = n->by_ino;
	if (n->by_ino != 0)
		cb_kept_node(ix, n->by_ino)->by_ino_prev = n->by_ino_prev;
}

/* Twice as many; where there is no room for that chains get longer. */
static int make_tables(struct cb_kept *ix, uint32_t buckets)
{
	struct cb_kept_head *h = ix->head;
	size_t bytes = 2 * sizeof(cb_slot) * (size_t)buckets;
	cb_slot old = h->tables, tables = take_new(ix, slots(bytes));
	uint32_t had = h->buckets;
	const cb_slot *chains = at(ix, old);

	if (tables == 0)
		return -ENOSPC;
	memset(record(ix, tables), 0, bytes);
	h->tables = tables;
	h->buckets = buckets;
	if (h->root != 0 && cb_kept_node(ix, h->root)->ino != 0)
		chain_ino(ix, cb_kept_node(ix, h->root)); /* it has no name */
	for (uint32_t i = 0; i < had; i++) { /* each other node is in the first of the two */
		for (cb_slot slot = chains[i], next; slot != 0; slot = next) {
			next = cb_kept_node(ix, slot)->by_name;
			chain_node(ix, cb_kept_node(ix, slot));
		}
	}
	if (ix->next_ino != 0) { /* the order is another */
		uint64_t ino = cb_kept_node(ix, ix->next_ino)->ino;

		ix->next_ino = next_of_ino(ix, *ino_chain(ix, ino), ino);
	}
	for (cb_slot i = 0; old != 0 && i < slots(2 * sizeof(cb_slot) * (size_t)had); i++)
		give_back(ix, old + i, SLOT);
	return 0;
}

/* ---- nodes ---- */

static size_t node_size(size_t len)
{
	return sizeof(struct cb_node) + len + 1;
}

struct cb_node *cb_kept_find(const struct cb_kept *ix, const struct cb_node *parent, const char *name)
{
	cb_slot above = cb_kept_slot(ix, parent);
	struct cb_node *n = cb_kept_node(ix, *name_chain(ix, above, name));

	while (n != NULL && (n->parent != above || strcmp(n->name, name) != 0))
		n = cb_kept_node(ix, n->by_name);
	return n;
}

struct cb_node *cb_kept_add(struct cb_kept *ix, const struct cb_node *parent, const char *name)
{
	size_t len = strlen(name);
	cb_slot above = cb_kept_slot(ix, parent);
	struct cb_node *n = len <= NAME_MAX ? take(ix, node_size(len)) : NULL;
	struct cb_node *p = cb_kept_node(ix, above);

	if (n == NULL)
		return NULL;
	n->parent = above;
	n->len = (uint8_t)len;
	memcpy(n->name, name, len + 1);
	chain_node(ix, n);
	if (p != NULL) {
		n->next = p->child;
		if (p->child != 0)
			cb_kept_node(ix, p->child)->prev = cb_kept_slot(ix, n);
		p->child = cb_kept_slot(ix, n);
	}
	if (++ix->head->nodes > ix->head->buckets)
		(void)make_tables(ix, 2 * ix->head->buckets);
	return n;
}

struct cb_node *cb_kept_next_by_ino(const struct cb_kept *ix, const struct cb_node *node)
{
	struct cb_node *n = cb_kept_node(ix, node->by_ino);

	while (n != NULL && n->ino != node->ino)
		n = cb_kept_node(ix, n->by_ino);
	return n;
}

struct cb_node *cb_kept_by_ino(const struct cb_kept *ix, uint64_t ino)
{
	struct cb_node *n = cb_kept_node(ix, *ino_chain(ix, ino));

	return n == NULL || n->ino == ino
		       ? n
		       : cb_kept_next_by_ino(ix, &(struct cb_node){ .by_ino = n->by_ino, .ino = ino });
}

struct cb_node *cb_kept_each_by_ino(struct cb_kept *ix, uint64_t ino)
{
	ix->next_ino = next_of_ino(ix, *ino_chain(ix, ino), ino);
	return cb_kept_next_each_by_ino(ix);
}

struct cb_node *cb_kept_next_each_by_ino(struct cb_kept *ix)
{
	struct cb_node *n = cb_kept_node(ix, ix->next_ino);

	if (n != NULL)
		ix->next_ino = next_of_ino(ix, n->by_ino, n->ino);
	return n;
}

void cb_kept_set_ino(struct cb_kept *ix, struct cb_node *node, uint64_t ino)
{
	if (node->ino != 0)
		unchain_ino(ix, node);
	node->ino = ino;
	node->by_ino = 0;
	if (ino != 0)
		chain_ino(ix, node);
}

void cb_kept_set_hot(struct cb_kept *ix, struct cb_node *node, bool hot)
{
	cb_slot *first = &ix->head->hot;

	if (node->hot == hot)
		return;
	node->hot = hot;
	if (hot) {
		node->hot_prev = 0;
		node->hot_next = *first;
		if (*first != 0)
			cb_kept_node(ix, *first)->hot_prev = cb_kept_slot(ix, node);
		*first = cb_kept_slot(ix, node);
		return;
	}
	if (ix->next_hot == cb_kept_slot(ix, node))
		ix->next_hot = node->hot_next;
	if (node->hot_prev != 0)
		cb_kept_node(ix, node->hot_prev)->hot_next = node->hot_next;
	else
		*first = node->hot_next;
	if (node->hot_next != 0)
		cb_kept_node(ix, node->hot_next)->hot_prev = node->hot_prev;
}

struct cb_node *cb_kept_each_hot(struct cb_kept *ix)
{
	ix->next_hot = ix->head->hot;
	return cb_kept_next_each_hot(ix);
}

struct cb_node *cb_kept_next_each_hot(struct cb_kept *ix)
{
	struct cb_node *n = cb_kept_node(ix, ix->next_hot);

	if (n != NULL)
		ix->next_hot = n->hot_next;
	return n;
}

static void remove_node(struct cb_kept *ix, struct cb_node *n)
{
	cb_slot slot = cb_kept_slot(ix, n);
	cb_slot *to = name_chain(ix, n->parent, n->name);

	while (*to != slot)
		to = &cb_kept_node(ix, *to)->by_name;
	*to = n->by_name;
	cb_kept_set_ino(ix, n, 0);
	cb_kept_set_hot(ix, n, false);
	if (n->prev != 0)
		cb_kept_node(ix, n->prev)->next = n->next;
	else
		cb_kept_node(ix, n->parent)->child = n->next;
	if (n->next != 0)
		cb_kept_node(ix, n->next)->prev = n->prev;
	ix->head->nodes--;
	give_back(ix, slot, node_size(n->len));
}

/* ---- contents ---- */

const char *cb_kept_content_name(cb_slot content, char name[CB_CONTENT_NAME])
{
	snprintf(name, CB_CONTENT_NAME, "%x", content);
	return name;
}

cb_slot cb_kept_content(struct cb_kept *ix)
{
	struct content *c = take(ix, sizeof(*c));

	if (c != NULL)
		c->refs = 1;
	return cb_kept_slot(ix, c);
}

void cb_kept_hold(const struct cb_kept *ix, cb_slot content)
{
	struct content *c = at(ix, content);

	if (c != NULL)
		c->refs++;
}

void cb_kept_let_go(struct cb_kept *ix, cb_slot content)
{
	struct content *c = at(ix, content);
	char name[CB_CONTENT_NAME];

	if (c == NULL || --c->refs > 0)
		return;
	(void)unlinkat(ix->store, cb_kept_content_name(content, name), 0);
	give_back(ix, content, sizeof(*c));
}

/* ---- states ---- */

struct cb_state *cb_kept_at(const struct cb_kept *ix, const struct cb_node *node, uint32_t number)
{
	struct cb_state *s = node != NULL ? cb_kept_state(ix, node->state) : NULL;

	while (s != NULL && s->from > number)
		s = cb_kept_state(ix, s->older);
	return s != NULL && s->kind != CB_STATE_ABSENT ? s : NULL;
}

static void free_state(struct cb_kept *ix, struct cb_state *s)
{
	cb_slot slot = cb_kept_slot(ix, s);
	struct cb_node *n = cb_kept_node(ix, s->node);
	cb_slot *to = &n->state;

	while (*to != slot)
		to = &cb_kept_state(ix, *to)->older;
	*to = s->older;
	cb_kept_let_go(ix, s->content);
	give_back(ix, slot, sizeof(*s));
}

void cb_kept_prune(struct cb_kept *ix, struct cb_node *n)
{
	while (n->parent != 0 && n->child == 0) {
		struct cb_state *s = cb_kept_state(ix, n->state);
		struct cb_node *above = cb_kept_node(ix, n->parent);

		if (s != NULL && (s->kind != CB_STATE_ABSENT || s->older != 0))
			return;
		if (s != NULL)
			free_state(ix, s);
		remove_node(ix, n);
		n = above;
	}
}

/* `s` has a younger state: it is kept for the youngest snapshot before that. */
static void retire(struct cb_kept *ix, struct cb_state *s)
{
	struct cb_living *seen = at(ix, ix->head->living);

	if (seen != NULL && seen->number == ix->head->last)
		seen = at(ix, seen->older);
	if (seen == NULL || s->from > seen->number) {
		free_state(ix, s);
		return;
	}
	s->next = seen->ended;
	seen->ended = cb_kept_slot(ix, s);
}

int cb_kept_set(struct cb_kept *ix, struct cb_node *node, const struct cb_state *state)
{
	struct cb_state *old = cb_kept_state(ix, node->state), *s;

	if (old != NULL && old->from == ix->head->last) {
		cb_slot older = old->older;

		cb_kept_let_go(ix, old->content);
		*old = *state;
		old->older = older;
		old->node = cb_kept_slot(ix, node);
		old->from = ix->head->last;
		return 0;
	}
	s = take(ix, sizeof(*s));
	if (s == NULL) {
		cb_kept_let_go(ix, state->content);
		return -ENOSPC;
	}
	*s = *state;
	s->node = cb_kept_slot(ix, node);
	s->from = ix->head->last;
	s->older = node->state;
	s->next = 0;
	node->state = cb_kept_slot(ix, s);
	if (old != NULL)
		retire(ix, old);
	return 0;
}

/* ---- snapshots ---- */

int cb_kept_begin(struct cb_kept *ix, uint32_t number)
{
	struct cb_living *l;

	if (number <= ix->head->last)
		return -EEXIST;
	ix->head->busy = 1;
	l = take(ix, sizeof(*l));
	if (l == NULL)
		return -ENOSPC;
	l->number = number;
	l->older = ix->head->living;
	ix->head->living = cb_kept_slot(ix, l);
	ix->head->last = number;
	return 0;
}

static cb_slot *find_living(const struct cb_kept *ix, uint32_t number)
{
	cb_slot *to = &ix->head->living;

	while (*to != 0 && ((struct cb_living *)at(ix, *to))->number != number)
		to = &((struct cb_living *)at(ix, *to))->older;
	return to;
}

bool cb_kept_has(const struct cb_kept *ix, uint32_t number)
{
	return *find_living(ix, number) != 0;
}

int cb_kept_drop(struct cb_kept *ix, uint32_t number)
{
	cb_slot *to = find_living(ix, number), slot = *to;
	struct cb_living *l = at(ix, slot), *before;

	if (l == NULL)
		return -ENOENT;
	ix->head->busy = 1;
	before = at(ix, l->older);
	for (cb_slot each = l->ended, next; each != 0; each = next) {
		struct cb_state *s = cb_kept_state(ix, each);

		next = s->next;
		if (before != NULL && s->from <= before->number) {
			s->next = before->ended;
			before->ended = each;
		} else {
			struct cb_node *n = cb_kept_node(ix, s->node);

			free_state(ix, s);
			cb_kept_prune(ix, n);
		}
	}
	*to = l->older;
	give_back(ix, slot, sizeof(*l));
	return 0;
}

/* ---- the file ---- */

static void clear(int store)
{
	CB_AUTO_STRV names = { 0 };

	(void)cb_layer_list(store, &names);
	for (size_t i = 0; i < names.count; i++)
		(void)unlinkat(store, names.items[i], 0);
}

static int start(struct cb_kept *ix)
{
	struct cb_kept_head *h = ix->head;
	struct cb_node *root;

	h->used = slots(sizeof(*h));
	h->limit = GROWTH / SLOT;
	if (make_tables(ix, BUCKETS_FIRST) < 0)
		return -ENOSPC;
	root = take(ix, node_size(0));
	if (root == NULL)
		return -ENOSPC;
	h->root = cb_kept_slot(ix, root);
	h->whole = 1;
	h->magic = MAGIC;
	return 0;
}

void cb_kept_close(struct cb_kept *ix)
{
	if (ix->head != NULL) {
		ix->head->busy = 0;
		(void)munmap(ix->head, CB_KEPT_MAX);
	}
	ix->head = NULL;
	cb_fd_close(&ix->fd);
}

/* More than the file has: it grows below. */
static int map(struct cb_kept *ix)
{
	void *head = mmap(NULL, CB_KEPT_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, ix->fd, 0);

	if (head == MAP_FAILED)
		return -errno;
	ix->head = head;
	return 0;
}

static int make(struct cb_kept *ix)
{
	int r;

	clear(ix->store);
	ix->fd = openat(ix->store, NAME, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (ix->fd < 0)
		return -errno;
	r = -posix_fallocate(ix->fd, 0, GROWTH);
	if (r == 0)
		r = map(ix);
	if (r == 0)
		ix->head->busy = 1;
	return r < 0 ? r : start(ix);
}

static int open_old(struct cb_kept *ix)
{
	struct stat st;
	int r;

	ix->fd = openat(ix->store, NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (ix->fd < 0)
		return -errno;
	r = fstat(ix->fd, &st) < 0 ? -errno : st.st_size < GROWTH ? -ENOENT : map(ix);
	if (r == 0 && (ix->head->magic != MAGIC || ix->head->busy != 0))
		r = -ENOENT;
	return r;
}

int cb_kept_open(int store, bool make_one, struct cb_kept *ret_ix)
{
	struct cb_kept ix = { .store = store, .fd = -1 };
	int r = open_old(&ix);

	if (r == -ENOENT && make_one) {
		if (ix.head != NULL)
			(void)munmap(ix.head, CB_KEPT_MAX);
		cb_fd_close(&ix.fd);
		ix.head = NULL;
		r = make(&ix);
	}
	if (r < 0) {
		if (ix.head != NULL)
			(void)munmap(ix.head, CB_KEPT_MAX);
		cb_fd_close(&ix.fd);
		return r;
	}
	*ret_ix = ix;
	return 0;
}
