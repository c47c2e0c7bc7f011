/* The environment inside a jail. Trust domain: supervisor, at start. */
#pragma once

#include "interpreter_facts.h"
#include "policy/policy.h"

#define CB_SYSTEM_PATH "/usr/local/bin:/usr/bin:/bin"

/* Fills `env` by the rules of the policy. policy, interpreter and session_name may be NULL. 0 or -ENOMEM. */
int cb_jail_env(const struct cb_policy *policy, const struct cb_interpreter *interpreter, const char *session_name,
		struct cb_strv *env);
