/* Writing small files whole. Trust domain: supervisor, at start. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Writes a file beside `path` and renames it into place: readers see the old one or the new one. */
int cb_file_replace(const char *path, const char *data, size_t len, mode_t mode);
/* mkdir -p. */
int cb_file_make_folders(const char *path, mode_t mode);
/* Whether a link is in the place of a folder of ours, which is then logged: no user makes one there. */
bool cb_file_is_link(const char *path);
