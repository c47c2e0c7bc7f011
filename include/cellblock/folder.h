/* What is in a folder, and below it. See base/folder.c. */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>

/* A folder by its path below `at`: "." for `at` itself. NULL and errno on failure. `flags`: 0 or O_NOFOLLOW. */
DIR *cb_folder_open(int at, const char *path, int flags);
/* The same of a descriptor, which is taken in any case. */
DIR *cb_folder_take(int fd);
/* The next entry, but for "." and ".."; NULL at the end, or where `dir` is NULL, and then errno is 0: with another one
 * the folder can't be read on, and what was not seen is not known to be missing. */
const struct dirent *cb_folder_next(DIR *dir);
void cb_folder_close(DIR **dir);
#define CB_AUTO_FOLDER __attribute__((cleanup(cb_folder_close))) DIR *

/* Whether `path` is `folder` or lies below it; both absolute and without dot parts. */
bool cb_path_within(const char *path, const char *folder);
