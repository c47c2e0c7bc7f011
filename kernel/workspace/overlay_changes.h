/* Changes of an overlay workspace, asked for by clients. Trust domain: supervisor. See overlay_changes.c. */
#pragma once

#include "workspace.h"

/* Whether this cellblock_file_request is one of ours: changes, commit, discard. */
bool cb_overlay_changes_op(const struct cb_request *r, enum cb_broker_op *ret_op);
/* Has the broker do it; answers the request in the end. The request's bracket has begun. */
void cb_overlay_changes_start(struct cb_workspace *ws, struct cb_request *r, enum cb_broker_op op);
/* Whether the request waits for the broker: a jail's death is no matter then. */
bool cb_overlay_changes_waits(const struct cb_workspace *ws, const struct cb_request *r);
/* Whether cells have to wait: a commit must not see half of what they write, a discard ends them. */
bool cb_overlay_changes_holds(const struct cb_workspace *ws);
/* The user's interrupt: what is listed or written through stops soon. A discard is done all the same. */
void cb_overlay_changes_interrupt(struct cb_workspace *ws);
/* Answers what is under way: the kernel ends. */
void cb_overlay_changes_shutdown(struct cb_workspace *ws);
