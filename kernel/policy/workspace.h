/* The home rule: which folders can't be a workspace; and the modes' names. Trust domain: supervisor, at start. */
#pragma once

#include "policy.h"

#define CB_WORKSPACE_PROJECT "project" /* workspace.path: look for one */

/* Why this folder (a real path) can't be writable inside a jail: "the home folder"; NULL = it can. */
const char *cb_workspace_refusal(const char *real);
/* As in workspace.mode: "rw". */
const char *cb_workspace_mode_name(enum cb_workspace_mode mode);
/* Who can write in it, for sentences: no cell of a read-only one, but those of another kernel there. */
const char *cb_workspace_writers(const struct cb_policy *policy);
/* The project that a folder lies in: the nearest folder upwards, itself included, that holds what projects have.
 * malloc'd; NULL = there is none, or the only one could not be a workspace. */
char *cb_workspace_project(const char *folder);
