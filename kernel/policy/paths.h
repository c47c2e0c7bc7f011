/* Small helpers on path names. They look at paths, never change anything. Trust domain: supervisor, at start. */
#pragma once

#include <cellblock/folder.h>
#include <stdbool.h>
#include <stddef.h>

struct cb_strv;

/* Absolute, without empty, `.` and `..` parts, links not resolved. `base` NULL = the current folder. malloc'd; NULL =
 * no memory or no folder. */
char *cb_path_absolute(const char *path, const char *base);
/* realpath, or NULL. malloc'd. */
char *cb_path_real(const char *path);
/* Follows the links of an absolute path one by one, as the kernel does, also one that leads to nothing yet. `look`
 * (NULL: none) is shown the path up to each part, before a link there is followed, and ends the way with true.
 * *ret_path: as far as it came and what was left, malloc'd; NULL: no memory. 1 = ended by `look`, 0 = the whole way;
 * -ELOOP, -ENAMETOOLONG, -ENOMEM. */
int cb_path_follow(const char *path, bool (*look)(const char *done, const void *context), const void *context,
		   char **ret_path);
/* As cb_path_follow, and adds each link on the way to `links`: who can exchange one chooses what the path means.
 * -ENOMEM also for these. */
int cb_path_links(const char *path, struct cb_strv *links, char **ret_path);
/* A path with `~` and `~/` replaced by the user's home. malloc'd. */
char *cb_path_expand(const char *path);
/* printf into a new string; NULL = no memory. */
char *cb_path_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Folder part of an absolute path, malloc'd: "/" for "/x". */
char *cb_path_parent(const char *path);
/* Last part; borrowed. */
const char *cb_path_name(const char *path);
/* The next part of a list as PATH is one (NULL: an empty one), in place of what *part is: malloc'd, NULL = no memory.
 * False at its end. */
bool cb_path_next(const char **list, char **part);
/* The user's home: $HOME if it is absolute, else the account's. malloc'd, clean; NULL = none. */
char *cb_path_home(void);
/* A file that may be executed. */
bool cb_path_is_program(const char *path);
/* FOLDER/NAME, if that is a program. malloc'd; NULL = none. */
char *cb_path_program_in(const char *folder, const char *name);
/* The program of this name in the folders of PATH that are absolute. malloc'd, clean; NULL = none. */
char *cb_path_search(const char *name);
bool cb_path_is_dir(const char *path);
bool cb_path_is_file(const char *path);

void cb_path_free(char **path);
#define CB_AUTO_PATH __attribute__((cleanup(cb_path_free))) char *
