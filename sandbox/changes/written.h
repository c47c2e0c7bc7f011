/* What the workspace's entries were when commits left them: told from what others make of them afterwards.
 *
 * Trust domain: the broker, and its children that work on the changes, one after another; they share the memory. An
 * entry is known by its inode and its times of change, not by when a commit ran: what is saved outside while one runs
 * may bear any time. Bounded: what has no room is forgotten, the oldest first, and counts as others' then.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

struct cb_written;
/* NULL without memory; then nothing is known. */
struct cb_written *cb_written_new(void);
/* What `st` says of an entry is what cells know of: a commit has made it so, or the layer has the same. */
void cb_written_note(struct cb_written *w, const struct stat *st);
bool cb_written_has(const struct cb_written *w, const struct stat *st);
/* When it was modified: as was noted with its time of change, even if it says another time by itself. */
struct timespec cb_written_modified(const struct cb_written *w, const struct stat *st);
