/* Taking a snapshot: what of an overlay workspace's changes is not as it was is looked at and kept.
 *
 * Trust domain: broker's child, outside, with the jail's uid. Invariants: the layer is only read, by descriptor, one
 * name at a time, and no link is followed; depth is bounded, and entries by the layer's own limit.
 *
 * Where to look the kernel says (shared/overlay_watch.c); where it can't, or has lost count, or the last look did not
 * end, all names are looked at, without opening what has not changed. An event is only a hint at a name: what counts is
 * what is there.
 *
 * A file has not changed when its inode and its change time are those of the last look, which code in the jail can't
 * set. Two things are beside that. A file that had changed just before the look might have changed again in the same
 * tick of the clock: it is copied again. And what is mapped for writing changes without any time: whether somebody has
 * a file open or mapped for writing is asked by a lease, which the kernel refuses then; such a file stays "hot", is
 * looked at each time, and its content compared. One that somebody has had mapped is compared as well: the kernel tells
 * of its end, or, where it tells nothing, the access time of the beginning, which reading sets, too (root/overlay.c).
 */
#include "snapshot_parts.h"

#include "overlay_changes.h"
#include "../shared/mounts.h"
#include "../shared/overlay_watch.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS 20000000ll /* change times are no finer than the kernel's clock tick */
#define BATCHES 4	   /* of events in a round: a full queue of the kernel's is nine */
#define ROUNDS 4	   /* of events while we look, before the next look is at everything */
#define OTHERS 16	   /* names of a file among which a copy of it is looked for */
/* From name to name of what the kernel tells of, for each name that is known: to go further, as the jail may have us
 * do, costs more than to look at everything. */
#define STEPS 64u
#define STEPS_LEAST 65536u

struct look {
	struct cb_kept *ix;
	struct cb_tally *tally;
	int upper;
	bool deep;    /* into each folder, not only into new ones */
	bool unheard; /* all is looked at after the events */
	bool fresh;   /* the next event is a batch's first */
	bool told;    /* of what is looked at: it may have been opened, and what is mapped changes without a word */
	bool written; /* of what is looked at: it was closed, or unmapped, by who could write to it */
	bool no_watch; /* the kernel tells nothing */
	struct cb_watch_news news;
	int error;  /* the index has no room */
	int folder; /* the last that was opened by its node, -1 = none */
	cb_slot folder_of;
};

static void look_at(struct look *l, struct cb_node *parent, int folder, const char *name, int depth);

/* ---- states ---- */

static void set(struct look *l, struct cb_node *node, const struct cb_state *state)
{
	int r = cb_kept_set(l->ix, node, state);

	if (r < 0)
		l->error = r;
}

static struct cb_state *state_of(const struct look *l, const struct cb_node *node)
{
	return cb_kept_state(l->ix, node->state);
}

static bool is_folder(const struct look *l, const struct cb_node *node)
{
	const struct cb_state *s = state_of(l, node);

	return s != NULL && s->kind == CB_STATE_ENTRY && S_ISDIR(s->mode);
}

/* It is not there, nor what was in it. The node may be gone afterwards. */
static void set_absent(struct look *l, struct cb_node *node)
{
	const struct cb_state *s = state_of(l, node);

	if (s != NULL && s->kind == CB_STATE_ABSENT)
		return;
	for (cb_slot each = node->child, next; each != 0; each = next) {
		next = cb_kept_node(l->ix, each)->next;
		set_absent(l, cb_kept_node(l->ix, each));
	}
	cb_kept_set_hot(l->ix, node, false);
	if (s != NULL)
		set(l, node, &(struct cb_state){ .kind = CB_STATE_ABSENT });
	cb_kept_prune(l->ix, node);
}

static void drop_children(struct look *l, const struct cb_node *node, bool unseen_only)
{
	for (cb_slot each = node->child, next; each != 0; each = next) {
		struct cb_node *child = cb_kept_node(l->ix, each);

		next = child->next;
		if (!unseen_only || child->looked != l->ix->head->round)
			set_absent(l, child);
	}
}

static struct cb_state describe(const struct stat *st)
{
	return (struct cb_state){ .kind = CB_STATE_ENTRY,
				  .mode = st->st_mode,
				  .linked = st->st_nlink > 1,
				  .size = st->st_size,
				  .ino = st->st_ino,
				  .ctime = st->st_ctim,
				  .mtime = st->st_mtim,
				  .atime = st->st_atim };
}

static bool same_times(const struct cb_state *s, const struct stat *st)
{
	return s != NULL && s->kind == CB_STATE_ENTRY && s->mode == st->st_mode && s->ino == st->st_ino &&
	       s->size == st->st_size && s->ctime.tv_sec == st->st_ctim.tv_sec &&
	       s->ctime.tv_nsec == st->st_ctim.tv_nsec;
}

static bool is_past(const struct timespec *now, const struct timespec *time)
{
	return (now->tv_sec - time->tv_sec) * 1000000000ll + now->tv_nsec - time->tv_nsec > TICK_NS;
}

/* By the clock that change times are read from: on a busy machine it lags behind the fine one by more than a tick. */
static bool is_settled(const struct look *l, const struct stat *st)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME_COARSE, &now);
	return is_past(&now, &st->st_ctim) && (!l->no_watch || is_past(&now, &st->st_atim));
}

/* Whether it may have been mapped, and be no more: then its times say nothing. */
static bool was_mapped(const struct look *l, const struct cb_state *old, const struct stat *st)
{
	return l->written || (l->no_watch && old != NULL && /* which reading does, too */
			      (old->atime.tv_sec != st->st_atim.tv_sec || old->atime.tv_nsec != st->st_atim.tv_nsec));
}

/* ---- files ---- */

/* Whether nobody has it open or mapped for writing. Who opens it in this moment waits for its end. */
static bool has_no_writer(int fd)
{
	return fcntl(fd, F_SETLEASE, F_RDLCK) == 0 && fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
}

static int copy_file(const struct look *l, int from, off_t size, cb_slot content)
{
	char name[CB_CONTENT_NAME];
	CB_AUTO_FD to = openat(l->ix->store, cb_kept_content_name(content, name),
			       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	return to < 0 ? -errno : cb_layer_copy_data(from, to, size, true, NULL);
}

static bool is_copy(const struct look *l, int file, cb_slot content)
{
	char name[CB_CONTENT_NAME];
	struct stat st;
	CB_AUTO_FD copy = cb_layer_open_file(l->ix->store, cb_kept_content_name(content, name), &st);

	return copy >= 0 && cb_layer_same_data(file, copy, true);
}

/* A copy of the same file under another name: it has several, or its folder was renamed. What was looked at last is
 * first. `mapped`: its times say nothing, so only what was read in this round counts. */
static cb_slot content_of_other(const struct look *l, const struct cb_node *node, const struct stat *st, bool mapped)
{
	const struct cb_node *n = cb_kept_by_ino(l->ix, st->st_ino);

	for (int i = 0; i < OTHERS && n != NULL; i++, n = cb_kept_next_by_ino(l->ix, n)) {
		const struct cb_state *s = state_of(l, n);

		if (s != NULL && s->kind == CB_STATE_ABSENT)
			s = cb_kept_state(l->ix, s->older);
		if (n != node && same_times(s, st) && s->content != 0 &&
		    ((s->settled && !mapped) ||
		     (n->looked == l->ix->head->round && n->was_read && s == state_of(l, n))))
			return s->content;
	}
	return 0;
}

static int keep_file(struct look *l, struct cb_node *node, int folder)
{
	struct cb_state *old = state_of(l, node);
	struct cb_state now;
	struct stat st;
	CB_AUTO_FD file = cb_layer_open_file(folder, node->name, &st);
	bool quiet, mapped;
	int r;

	if (file < 0)
		return file;
	quiet = has_no_writer(file);
	mapped = node->hot || !quiet || was_mapped(l, old, &st);
	cb_kept_set_hot(l->ix, node, !quiet);
	now = describe(&st);
	now.settled = quiet && is_settled(l, &st);
	now.content = content_of_other(l, node, &st, mapped); /* first: a file with many names is read once */
	node->was_read = true;
	if (same_times(old, &st) && old->content != 0 &&
	    (now.content == old->content || (now.content == 0 && is_copy(l, file, old->content)))) {
		old->settled = now.settled;
		old->atime = now.atime;
		return 0;
	}
	if (now.content != 0) {
		cb_kept_hold(l->ix, now.content);
		set(l, node, &now);
		return 0;
	}
	now.content = cb_kept_content(l->ix);
	r = now.content == 0 ? -ENOSPC : copy_file(l, file, st.st_size, now.content);
	if (r == 0)
		set(l, node, &now);
	else
		cb_kept_let_go(l->ix, now.content);
	return r;
}

static int look_at_file(struct look *l, struct cb_node *node, int folder, const struct stat *st)
{
	const struct cb_state *old = state_of(l, node);
	struct stat now;

	if (node->hot || !same_times(old, st) || !old->settled || was_mapped(l, old, st))
		return keep_file(l, node, folder);
	if (!l->told)
		return 0;
	CB_AUTO_FD file = cb_layer_open_file(folder, node->name, &now);

	if (file >= 0 && has_no_writer(file))
		return 0;
	return keep_file(l, node, folder);
}

static int look_at_link(struct look *l, struct cb_node *node, int folder, const struct stat *st)
{
	char target[PATH_MAX], name[CB_CONTENT_NAME];
	struct cb_state now = describe(st);
	int r;

	if (same_times(state_of(l, node), st))
		return 0;
	now.content = cb_kept_content(l->ix);
	if (now.content == 0)
		return -ENOSPC;
	r = cb_layer_read_link(folder, node->name, target);
	if (r == 0 && symlinkat(target, l->ix->store, cb_kept_content_name(now.content, name)) < 0)
		r = -errno;
	if (r == 0)
		set(l, node, &now);
	else
		cb_kept_let_go(l->ix, now.content);
	return r;
}

/* ---- folders ---- */

static void look_into(struct look *l, struct cb_node *node, int folder, int depth)
{
	CB_AUTO_STRV names = { 0 };
	int r = cb_layer_list(folder, &names);

	if (r < 0)
		cb_tally_leave(l->tally, "a folder", r);
	for (size_t i = 0; i < names.count && l->error == 0 && !cb_tally_stopped(l->tally); i++)
		look_at(l, node, folder, names.items[i], depth);
	if (r == 0 && l->error == 0 && !cb_layer_stopped())
		drop_children(l, node, true);
}

static int look_at_folder(struct look *l, struct cb_node *node, int above, const struct stat *st, int depth)
{
	const struct cb_state *old = state_of(l, node);
	bool known = is_folder(l, node) && old->ino == st->st_ino;
	struct cb_state now = describe(st);
	CB_AUTO_FD folder = -1;
	int r = depth >= CB_SNAPSHOT_DEPTH_MAX
			? -ELOOP
			: cb_open_beneath(above, node->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, &folder);

	if (r < 0)
		return r;
	now.opaque = cb_layer_is_opaque(folder);
	if (!known || old->mode != now.mode || old->opaque != now.opaque)
		set(l, node, &now);
	if (l->error == 0 && (!known || l->deep))
		look_into(l, node, folder, depth + 1);
	return 0;
}

/* ---- names ---- */

static int keep(struct look *l, struct cb_node *node, int folder, const struct stat *st, int depth)
{
	const struct cb_state *old = state_of(l, node);

	if (S_ISREG(st->st_mode))
		return look_at_file(l, node, folder, st);
	cb_kept_set_hot(l->ix, node, false);
	if (S_ISDIR(st->st_mode))
		return look_at_folder(l, node, folder, st, depth);
	if (S_ISLNK(st->st_mode))
		return look_at_link(l, node, folder, st);
	if (cb_layer_is_whiteout(st)) {
		if (old == NULL || old->kind != CB_STATE_WHITEOUT)
			set(l, node, &(struct cb_state){ .kind = CB_STATE_WHITEOUT });
		return 0;
	}
	if (!S_ISFIFO(st->st_mode) && !S_ISSOCK(st->st_mode))
		return -ENOTSUP;
	if (!same_times(old, st)) {
		struct cb_state now = describe(st);

		set(l, node, &now);
	}
	return 0;
}

/* It is looked at again each time, for the reason may pass. */
static void set_lost(struct look *l, struct cb_node *node, int code)
{
	const struct cb_state *old = state_of(l, node);

	cb_tally_leave(l->tally, node->name, code);
	cb_kept_set_hot(l->ix, node, true);
	if (old == NULL || old->kind != CB_STATE_LOST || old->code != code)
		set(l, node, &(struct cb_state){ .kind = CB_STATE_LOST, .code = code });
}

/* In this round, and as well as is asked for now. */
static bool was_looked_at(const struct look *l, const struct cb_node *node)
{
	return node->looked == l->ix->head->round && (!l->written || node->was_read);
}

static void look_at(struct look *l, struct cb_node *parent, int folder, const char *name, int depth)
{
	struct cb_node *node = cb_kept_find(l->ix, parent, name);
	struct stat st;
	int r = 0;

	if (node != NULL && was_looked_at(l, node))
		return;
	l->tally->entries++;
	if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (r == -ENOENT) {
		if (node != NULL)
			set_absent(l, node);
		return;
	}
	if (node == NULL)
		node = cb_kept_add(l->ix, parent, name);
	if (node == NULL) {
		l->error = -ENOSPC;
		return;
	}
	node->looked = l->ix->head->round;
	node->was_read = false;
	if (r == 0) {
		cb_kept_set_ino(l->ix, node, st.st_ino);
		if (!S_ISDIR(st.st_mode))
			drop_children(l, node, false);
		r = keep(l, node, folder, &st, depth);
	}
	if (r < 0 && l->error == 0)
		set_lost(l, node, r);
}

/* Whether it is the one that was opened last. A slot may be another node's since, a node stand for another folder. */
static bool is_open(const struct look *l, const struct cb_node *node)
{
	struct stat st;

	return l->folder >= 0 && l->folder_of == cb_kept_slot(l->ix, node) && fstat(l->folder, &st) == 0 &&
	       st.st_ino == node->ino;
}

/* The folder of the layer that a node stands for. */
static int open_by_node(struct look *l, const struct cb_node *node, int *ret_depth)
{
	const char *names[CB_SNAPSHOT_DEPTH_MAX];
	CB_AUTO_FD at = -1;
	int depth = 0, r;

	for (const struct cb_node *n = node; n->parent != 0; n = cb_kept_node(l->ix, n->parent)) {
		if (depth == CB_SNAPSHOT_DEPTH_MAX)
			return -ELOOP;
		names[depth++] = n->name;
	}
	*ret_depth = depth;
	if (is_open(l, node))
		return 0;
	r = cb_open_beneath(l->upper, ".", O_RDONLY | O_DIRECTORY, &at);
	for (int i = depth - 1; i >= 0 && r == 0; i--) {
		CB_AUTO_FD above = cb_fd_take(&at);

		r = cb_open_beneath(above, names[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW, &at);
	}
	if (r < 0)
		return r;
	cb_fd_close(&l->folder);
	l->folder = cb_fd_take(&at);
	l->folder_of = cb_kept_slot(l->ix, node);
	return 0;
}

/* A name in a folder that is known. Where the folder is not there any more its own name tells; one that is shut might
 * hide anything. */
static void look_in(struct look *l, struct cb_node *folder, const char *name)
{
	struct cb_node *node;
	int depth, r = open_by_node(l, folder, &depth);

	if (r == 0) {
		look_at(l, folder, l->folder, name, depth);
		return;
	}
	node = cb_kept_find(l->ix, folder, name);
	if (node == NULL && r != -ENOENT && r != -ENOTDIR)
		node = cb_kept_add(l->ix, folder, name);
	if (node == NULL)
		return;
	node->looked = l->ix->head->round;
	if (r != -ENOENT && r != -ENOTDIR)
		set_lost(l, node, r);
}

static void look_at_node(struct look *l, struct cb_node *node)
{
	char name[NAME_MAX + 1];

	if (node->parent == 0)
		return;
	memcpy(name, node->name, (size_t)node->len + 1); /* the node may go */
	look_in(l, cb_kept_node(l->ix, node->parent), name);
}

static bool may_go_on(struct look *l)
{
	if (l->ix->steps > STEPS_LEAST + (uint64_t)STEPS * l->ix->head->nodes)
		l->news.lost = true;
	return !l->news.lost && l->error == 0 && !cb_tally_stopped(l->tally);
}

static void on_event(void *context, const struct cb_watch_event *e)
{
	struct look *l = context;
	struct cb_node *n;

	if (l->unheard || !may_go_on(l))
		return;
	l->ix->head->round += l->fresh; /* what was looked at before a batch came may have changed after that */
	l->fresh = false;
	l->told = true;
	l->written = e->written;
	n = e->folder != 0 ? cb_kept_each_by_ino(l->ix, e->folder) : NULL;
	for (; n != NULL && may_go_on(l); n = cb_kept_next_each_by_ino(l->ix))
		if (is_folder(l, n))
			look_in(l, n, e->name);
	n = e->self != 0 ? cb_kept_each_by_ino(l->ix, e->self) : NULL;
	for (; n != NULL && may_go_on(l); n = cb_kept_next_each_by_ino(l->ix)) {
		const struct cb_state *s = state_of(l, n);

		if (!was_looked_at(l, n) && n->parent != 0 && s != NULL && s->kind != CB_STATE_ABSENT)
			look_at_node(l, n);
	}
	l->told = l->written = false;
}

/* ---- the look ---- */

static void look_at_hot(struct look *l)
{
	struct cb_node *n = cb_kept_each_hot(l->ix);

	for (; n != NULL && l->error == 0 && !cb_tally_stopped(l->tally); n = cb_kept_next_each_hot(l->ix))
		if (!was_looked_at(l, n))
			look_at_node(l, n);
}

/* `unheard`: what the kernel has told is lost. */
static void look_at_all(struct look *l, bool unheard)
{
	struct cb_node *root = cb_kept_node(l->ix, l->ix->head->root);

	l->ix->head->round++;
	l->deep = true;
	l->told = l->written = unheard;
	look_into(l, root, l->upper, 0);
	l->deep = l->told = l->written = false;
	l->ix->steps = 0;
}

/* What others do meanwhile belongs to it: nothing of what the kernel has told is left for the next look. But who
 * changes files all the time (a branch runs on) does not keep us here. */
static bool look_at_news(struct look *l, int watch)
{
	l->news = (struct cb_watch_news){ 0 };
	for (int i = 0; i < BATCHES && l->error == 0 && !cb_tally_stopped(l->tally); i++) {
		l->fresh = true;
		if (!cb_watch_read(watch, on_event, l, &l->news))
			break;
	}
	if (l->news.lost)
		look_at_all(l, true);
	return l->news.events == 0 && !l->news.lost;
}

static bool look_where_told(struct look *l, int watch, bool whole)
{
	bool done = false;

	l->unheard = whole;
	(void)look_at_news(l, watch);
	l->unheard = false;
	if (whole)
		look_at_all(l, true);
	else
		look_at_hot(l);
	for (int i = 0; i < ROUNDS && !done && l->error == 0; i++)
		done = look_at_news(l, watch);
	return done;
}

int cb_snapshot_look(struct cb_kept *ix, int upper, int watch, struct cb_tally *tally)
{
	struct look l = { .ix = ix, .tally = tally, .upper = upper, .folder = -1, .no_watch = watch < 0 };
	struct cb_kept_head *h = ix->head;
	struct cb_node *root = cb_kept_node(ix, h->root);
	bool whole = h->whole != 0, done = true;
	struct cb_state now;
	struct stat st;

	(void)signal(SIGIO, SIG_IGN); /* somebody waits for the end of a lease */
	if (fstat(upper, &st) < 0)
		return -errno;
	h->whole = 1;
	h->round++;
	ix->steps = 0;
	cb_kept_set_ino(ix, root, st.st_ino);
	now = describe(&st);
	if (root->state == 0)
		set(&l, root, &now);
	if (watch < 0)
		look_at_all(&l, false);
	else
		done = look_where_told(&l, watch, whole);
	cb_fd_close(&l.folder);
	if (done && l.error == 0 && !cb_layer_stopped())
		h->whole = 0;
	return l.error;
}
