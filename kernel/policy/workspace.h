/* The home rule: which folders can't be a workspace; and the modes' names. Trust domain: supervisor, at start. */
#pragma once

#include "policy.h"

#define CB_WORKSPACE_PROJECT "project" /* workspace.path: look for one */

/* Why this folder (a real path) can't be writable inside a jail: "the home folder"; NULL = it can. */
const char *cb_workspace_refusal(const char *real);
/* Adds the folders that Jupyter and Cellblock take programs, settings and history from, there or not, links resolved.
 */
int cb_workspace_used(struct cb_strv *ret);
/* Only those that are such whatever folders the environment names: no kernel of this user has its workspace there. */
int cb_workspace_used_always(struct cb_strv *ret);
/* Why this folder (a real path) can't be this policy's workspace: a refusal, or it lies at or below one that is `used`.
 * malloc'd; NULL = it can. */
int cb_workspace_why_not(const struct cb_policy *policy, const struct cb_strv *used, const char *real, char **ret_why);
/* As in workspace.mode: "rw". */
const char *cb_workspace_mode_name(enum cb_workspace_mode mode);
/* Who can write in it, for sentences: no cell of a read-only one, but those of another kernel there. */
const char *cb_workspace_writers(const struct cb_policy *policy);
/* The project that a folder lies in: the nearest folder upwards, itself included, that holds what projects have.
 * malloc'd; NULL = there is none, or the only one could not be a workspace. */
char *cb_workspace_project(const char *folder);
