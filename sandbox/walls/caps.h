/* Capabilities: that none is left. Trust domain: pid 1, the notifier. */
#pragma once

#include "../shared/jail.h"

int cb_step_caps(struct cb_jail *jail, struct cb_err *err); /* all five sets, securebits, no_new_privs */
/* But for one, which only keeps cells from its helpers. */
int cb_step_caps_of_pid1(struct cb_jail *jail, struct cb_err *err);
int cb_caps_keep(uint64_t caps, struct cb_err *err);	    /* the same but for these, by their bits */
