/* A folder that is ours; private to sandbox/client. Trust domain: supervisor and broker, at start. */
#pragma once

#include <sys/types.h>

/* Opens `path` below `parent`, with `make` after making it with mode 0700. -EPERM if it is another user's or has one of
 * the bits `others`; -ENOTDIR if it is none, as where a link stands. */
int cb_own_folder_open(int parent, const char *path, bool make, mode_t others, int *ret_fd);
