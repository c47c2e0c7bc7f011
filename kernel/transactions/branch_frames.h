/* What only a branch says. Trust domain: supervisor. Called by branches.c for frames that passed
 * python/policy.c. */
#pragma once

#include "branches.h"

/* A negative code (with reason) is a broken rule: the branch is killed. */
int cb_branch_frame(struct cb_python *p, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason);
/* A comm message that is not its own to send; it is told so. */
bool cb_branch_drops(struct cb_python *p, const struct cb_frame *f, const struct cb_guest_content *c);
/* The branch whose Python that is. */
struct cb_branch *cb_branch_of(const struct cb_python *p);
/* The one way to another state. */
void cb_branch_go(struct cb_branch *b, enum cb_branch_state to);
/* Says under a request that a comm message went nowhere. */
void cb_branch_comm_dropped(struct cb_kernel *k, struct cb_header *header);
