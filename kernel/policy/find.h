/* Where a policy called by its name lies. Trust domain: supervisor, at start. See find.c. */
#pragma once

#include <cellblock/error.h>
#include <cellblock/sandbox.h>

/* The path of cellblock/NAME.json, malloc'd. CB_E_UNKNOWN names the nearest known word. */
int cb_policy_find(const char *name, char **ret_path, struct cb_err *err);
/* Adds the first of Jupyter's config paths: what the environment names, and the user's own. There or not, absolute. */
int cb_policy_user_folders(struct cb_strv *ret);
