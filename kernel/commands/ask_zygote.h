/* Speaking to the zygotes of warm start (cellblock/warm.h). Trust domain: supervisor's program, no secrets. */
#pragma once

#include <cellblock/warm.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CB_ZYGOTES_MAX 256

enum cb_zygote_state {
	CB_ZYGOTE_STARTING, /* it does not listen yet */
	CB_ZYGOTE_SILENT,   /* no answer that makes sense, in time */
	CB_ZYGOTE_READY,
	CB_ZYGOTE_FAILED, /* it could not serve, and is gone; the next kernel does not try it again yet */
};

struct cb_zygote {
	char key[CB_WARM_KEY_LEN + 1];
	enum cb_zygote_state state;
	pid_t pid;		   /* as we see it; 0 = not known */
	int64_t age, living, made; /* seconds; copies. -1 = not known */
	int64_t memory;		   /* bytes; -1 = not known */
	char python[1024], preloaded[8192], left_out[8192]; /* what it said, made visible */
	char why[CB_WARM_WHY_MAX];			    /* FAILED: likewise */
};

struct cb_zygote_list {
	struct cb_zygote *item;
	size_t count;
};

/* All whose lock is held, by their keys, each of which is asked; and those that failed. 0 or a negative errno. */
int cb_zygotes_find(int folder, struct cb_zygote_list *ret_list);
void cb_zygotes_release(struct cb_zygote_list *list);
/* Reads what it tells of itself, lines "word value"; the members of words that are not there stay. -EBADMSG if none is
 * known. */
int cb_zygote_read(struct cb_zygote *z, const char *text, size_t len);
/* Has it end, and removes its files. -ETIMEDOUT if it has not ended in two seconds. */
int cb_zygote_end(int folder, const char *key);
/* Removes what was left by those that are gone. */
void cb_zygotes_sweep(int folder);
