/* The parts of loading a policy that touch no file: for policy.c, tests and the fuzz target. */
#pragma once

#include "policy.h"

/* All keys at the defaults of "notebook" or "agent". */
int cb_policy_defaults(const char *name, struct cb_policy *ret_policy, struct cb_err *err);
/* Applies a policy's, or a ceiling's, JSON text. `origin` is named in errors. */
int cb_policy_parse(struct cb_policy *p, bool ceiling, const char *origin, const char *text, size_t len,
		    struct cb_err *err);
