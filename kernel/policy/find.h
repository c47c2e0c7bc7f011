/* Where a policy called by its name lies. Trust domain: supervisor, at start. See find.c. */
#pragma once

#include <cellblock/error.h>

/* The path of cellblock/NAME.json, malloc'd. CB_E_UNKNOWN names the nearest known word. */
int cb_policy_find(const char *name, char **ret_path, struct cb_err *err);
