/* What each snapshot of an overlay workspace's changes holds: one entry for each name, with its states over time.
 *
 * Trust domain: broker's child, outside. The index lies in the layer's tmpfs, out of the jail's sight, and its room
 * counts as the layer's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#define CB_KEPT_MAX (256u << 20)

typedef uint32_t cb_slot; /* of 64 bytes, from the index's begin; 0 = none */

enum cb_state_kind {
	CB_STATE_ABSENT, /* not in the layer */
	CB_STATE_LOST,	 /* could not be kept */
	CB_STATE_WHITEOUT,
	CB_STATE_ENTRY
};

/* What a name was from snapshot `from` on, until its next state. */
struct cb_state {
	cb_slot node, older;
	cb_slot next; /* in the list of what ended after one snapshot */
	cb_slot content;
	uint32_t from;
	mode_t mode;
	int32_t code; /* LOST: why */
	uint8_t kind;
	bool opaque, settled; /* settled: a change after the look has another change time */
	bool linked;	      /* it had several names */
	int64_t size;
	uint64_t ino;
	struct timespec ctime, mtime, atime;
};

struct cb_node {
	cb_slot parent, child, next, prev;
	cb_slot by_name, by_ino, by_ino_prev; /* chains of the two tables */
	cb_slot state;			      /* the youngest */
	cb_slot hot_next, hot_prev;
	uint32_t looked;
	bool hot;      /* to be looked at each time */
	bool was_read; /* at the last look: its content */
	uint8_t len;
	uint64_t ino; /* what was there at the last look; 0 = nothing */
	char name[];  /* ends with a NUL */
};

struct cb_kept_head {
	uint32_t magic;
	uint32_t busy;	/* somebody writes, or has died of it */
	uint32_t whole; /* the next look must be at everything */
	uint32_t last;	/* snapshot that was begun */
	cb_slot used, limit;
	cb_slot free[9]; /* by their size in slots */
	cb_slot tables;
	uint32_t buckets, nodes;
	cb_slot hot, living, root;
	uint32_t round;
};

struct cb_kept {
	int store; /* the folder of the index and of contents: a descriptor of the caller's */
	int fd;
	struct cb_kept_head *head;
	cb_slot next_ino, next_hot; /* see cb_kept_each_by_ino, cb_kept_each_hot */
	uint64_t steps;		    /* from node to node that the former has taken */
};

/* -ENOENT: there is none, unless `make`. One that was left half written is begun anew then, with no snapshot in it. */
int cb_kept_open(int store, bool make, struct cb_kept *ret_ix);
/* Nothing was left half done. */
void cb_kept_close(struct cb_kept *ix);

struct cb_node *cb_kept_node(const struct cb_kept *ix, cb_slot slot); /* NULL for none, as in what follows */
struct cb_state *cb_kept_state(const struct cb_kept *ix, cb_slot slot);
cb_slot cb_kept_slot(const struct cb_kept *ix, const void *record);
struct cb_node *cb_kept_find(const struct cb_kept *ix, const struct cb_node *parent, const char *name);
struct cb_node *cb_kept_add(struct cb_kept *ix, const struct cb_node *parent, const char *name); /* NULL: no room */
struct cb_node *cb_kept_by_ino(const struct cb_kept *ix, uint64_t ino);
struct cb_node *cb_kept_next_by_ino(const struct cb_kept *ix, const struct cb_node *node);
/* Who goes through all of an inode's nodes while nodes come, go and change: the first, and then the next of those; NULL
 * = no more. What is added meanwhile is not among them; after a table has grown some come again. One at a time. */
struct cb_node *cb_kept_each_by_ino(struct cb_kept *ix, uint64_t ino);
struct cb_node *cb_kept_next_each_by_ino(struct cb_kept *ix);
/* It becomes the first of its inode's, even if it was that inode's before. */
void cb_kept_set_ino(struct cb_kept *ix, struct cb_node *node, uint64_t ino);
void cb_kept_set_hot(struct cb_kept *ix, struct cb_node *node, bool hot);
/* The same for those that are hot. */
struct cb_node *cb_kept_each_hot(struct cb_kept *ix);
struct cb_node *cb_kept_next_each_hot(struct cb_kept *ix);

/* What a node was at a snapshot; NULL if it was absent. */
struct cb_state *cb_kept_at(const struct cb_kept *ix, const struct cb_node *node, uint32_t number);
/* What it is from now on, in the snapshot that was begun last and those to come. Takes over the content's reference. */
int cb_kept_set(struct cb_kept *ix, struct cb_node *node, const struct cb_state *state);

/* Removes it if it is absent and no snapshot that lives has seen it otherwise; then the same of the folder above. */
void cb_kept_prune(struct cb_kept *ix, struct cb_node *node);

/* Contents: files and links of the store, named by their slots. */
#define CB_CONTENT_NAME 16
cb_slot cb_kept_content(struct cb_kept *ix); /* a new one, with one reference; 0 = no room */
void cb_kept_hold(const struct cb_kept *ix, cb_slot content);
void cb_kept_let_go(struct cb_kept *ix, cb_slot content);
const char *cb_kept_content_name(cb_slot content, char name[CB_CONTENT_NAME]);

int cb_kept_begin(struct cb_kept *ix, uint32_t number); /* -EEXIST: numbers grow */
bool cb_kept_has(const struct cb_kept *ix, uint32_t number);
int cb_kept_drop(struct cb_kept *ix, uint32_t number); /* -ENOENT */
