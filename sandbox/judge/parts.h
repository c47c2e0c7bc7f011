/* Shared by the files of the judge. */
#pragma once

#include "judge.h"

#include <stddef.h>
#include <stdint.h>

/* ---- names.c: strings only ---- */

/* How file systems that fold case, or pass over some characters, may understand a name; writes at most n bytes and a
 * NUL. Two names that one of them takes for the same fold to the same bytes. */
size_t cb_name_fold(const char *name, size_t n, char *out);

enum cb_fit { CB_FIT_NONE, CB_FIT_HEAD, CB_FIT_ALL };
/* Whether the components at `at`, or at `folded`, begin with the pattern's. HEAD: they end first, and *ret_rest is what
 * of the pattern is left. Case never matters. */
enum cb_fit cb_name_fits(const char *pattern, const char *at, const char *folded, const char **ret_rest);
bool cb_name_is_glob(const char *pattern);
/* The components at `at`, up to n bytes, are one of these. */
bool cb_name_among(const char *at, size_t n, const char *const *list, size_t count);

/* ---- judge.c ---- */

/* ".git", or what begins so. */
bool cb_is_git_pattern(const char *pattern);
/* Whether the names above the workspace begin a longer pattern: -EROFS. */
int cb_judge_begun_above(const struct cb_judge *judge);
/* What an environment is known by; and what it is made of, folded. */
bool cb_is_marker(const char *name);
bool cb_is_prefix_part(const char *folded);

/* 1 if the folder has such an entry, 0 if not, negative if that can't be seen. -1 has none. */
int cb_judge_holds(int folder, const char *name);
typedef bool (*cb_see_fn)(void *arg, const char *name);
/* Shows the names in a folder until one is enough: 1, else 0, or negative. */
int cb_judge_scan(int folder, cb_see_fn see, void *arg);

/* ---- git.c ---- */

/* A name that leads git to its folder; the plain one is ".git", any other is a spelling that some systems take for
 * it. Of a folded name. */
bool cb_git_is_dot(const char *folded, size_t n);
/* A folder that is called as a bare repository is: whoever makes one there finds what is in it. What git outside has
 * checked out into such a folder, `self`, is none. */
bool cb_git_is_bare_name(const char *folded, size_t n);
bool cb_git_is_checkout(int self);
/* Whether entries of `rest`, a path from a git folder, are passed on the way to what may be written. */
bool cb_git_passes(const char *rest);
/* Whether an entry may be written in a git folder; `folded` is `rest`, folded. */
bool cb_git_allows(const char *rest, const char *folded, enum cb_act act, mode_t type);
/* Which of its parts `rest`, which is allowed, is. */
enum cb_git_part cb_git_part_of(const char *rest);
/* A name that a repository is known by; and whether the folders have become one with it. */
bool cb_git_is_maker(const char *folded);
int cb_git_completes(const int folders[2], const char *folded);

/* ---- refs.c: strings only ---- */

/* `git check-ref-format` lets it in, and it is below refs. */
bool cb_ref_is_name(const char *name, size_t n);
/* What git writes in a reference's own file; and in packed-refs. */
bool cb_ref_is_content(const char *data, size_t n);
bool cb_ref_is_packed(const char *data, size_t n);

/* ---- index.c ---- */

/* Whether an index in the git folder is one that can be judged. */
int cb_index_format(int folder);

/* ---- links.c ---- */

/* As cb_judge_link_text, but for what lies below the link's end: 1 where that is a folder, whose path it gives. */
int cb_link_end_of(const struct cb_judge *judge, const char *path, int folder, const char *name, char ret_at[PATH_MAX]);
/* A path that leads through a folder called .git, or to it: no link may. */
bool cb_link_says_git(const char *path);

/* ---- tree.c ---- */

/* What lies below a folder that a link is to lead to: -EROFS, -EPERM as of cb_judge_target. */
int cb_judge_led(const struct cb_judge *judge, const char *at);

/* ---- leads.c ---- */

/* NULL stands for any path: there are too many. */
typedef int (*cb_lead_fn)(void *arg, const char *path);
/* Shows paths from the workspace that links of protected names lead to, until one is not 0, which is the answer. */
int cb_leads_judge(const struct cb_judge *judge, bool about_git, cb_lead_fn is_met, void *arg);
