/* The home rule: which folders can't be a workspace. Trust domain: supervisor, at start. Callers: policy.c, plan.c. */
#pragma once

#include "policy.h"

/* Why this folder (a real path) can't be writable inside a jail: "the home folder"; NULL = it can. */
const char *cb_workspace_refusal(const char *real);
