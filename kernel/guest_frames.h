/* What each frame of the guest does. Trust domain: supervisor. Called by guest.c for frames that passed guest_policy.c.
 */
#pragma once

#include "guest.h"

/* A negative code (with reason) is a broken rule: the guest is killed. */
int cb_guest_frame(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason);
