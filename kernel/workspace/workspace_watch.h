/* A writable workspace, looked at from outside now and then. Trust domain: supervisor. See workspace_watch.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cb_kernel;

struct cb_workspace_watch {
	bool looking;
	bool known;	/* the next is */
	uint64_t bytes; /* held at the start */
	bool over;
	int64_t asked_ns, not_before;
	char note[256]; /* for the next cell */
};

/* The first look, before anything runs. */
void cb_workspace_watch_start(struct cb_kernel *k);
/* A cell has ended: looks again, but not all the time. */
void cb_workspace_watch_cell_ended(struct cb_kernel *k);
/* The last look: what no cell could say goes to the log. */
void cb_workspace_watch_end(struct cb_kernel *k);
