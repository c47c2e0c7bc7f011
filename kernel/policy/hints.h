/* What the guest is told of the policy, so that a refusal can explain itself. Trust domain: supervisor, at start. */
#pragma once

#include <cellblock/sandbox.h>

#include "policy.h"

#define CB_SAYS_VARIABLE "CELLBLOCK_POLICY_SAYS"

/* Adds the variable to spec->env. The workspace's mode is the jail's, which may not be the policy's. */
int cb_policy_hints(const struct cb_policy *policy, struct cb_jail_spec *spec);
