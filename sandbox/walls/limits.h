/* Limits of single processes. Trust domain: pid 1. */
#pragma once

#include "../shared/jail.h"

int cb_step_limits(struct cb_jail *jail, struct cb_err *err);
