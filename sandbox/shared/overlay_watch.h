/* Which names of an overlay workspace's layer may have changed: the kernel says it (fanotify).
 *
 * Trust domain: cb_watch_start in pid 1, before any foreign code runs; the rest in the broker's child, outside. The
 * jail can make events, as many as it likes, but none go away.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* From now on, for as long as the descriptor is open. `layer` is the tmpfs, `merged` the overlay whose changes go
 * there: it is tried whether they are heard of. -ENOTSUP if not (before Linux 6.16). */
int cb_watch_start(int layer, int merged, int *ret_fd);

struct cb_watch_event {
	uint64_t folder; /* the inode number of the folder, and the name in it; 0 = no names changed */
	const char *name;
	uint64_t self; /* of what changed itself; 0 = nothing did */
	bool written;  /* who could write to it has closed it, or ended its last mapping */
};

struct cb_watch_news {
	unsigned events; /* that others caused */
	bool lost;	 /* more than were kept: everything may have changed */
};

/* All of a batch was there before the first of it is told. False if there is nothing to read. What this process caused
 * itself is left out. */
bool cb_watch_read(int fd, void (*on_event)(void *context, const struct cb_watch_event *e), void *context,
		   struct cb_watch_news *ret_news);
