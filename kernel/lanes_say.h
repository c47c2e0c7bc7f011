/* How requests of lanes fail, in words. Trust domain: supervisor. See lanes_say.c. */
#pragma once

#include "lane.h"

/* execute_reply.metadata of the lane's cell (`ours` as in failure.h); also writes the cell's end into the audit log. */
void cb_lanes_metadata(struct cb_kernel *k, struct cb_lane *l, const char *status, const char *state, bool ours,
		       struct cb_buf *out);
/* `error` and the error reply of the lane's cell. */
void cb_lanes_say_timeout(struct cb_kernel *k, struct cb_lane *l, const char *state, const char *end);
void cb_lanes_say_death(struct cb_kernel *k, struct cb_lane *l, const char *cause, const char *state, const char *end);
/* The current request could not be handed to the guest: there is none, or the code says why. */
void cb_lanes_say_unsent(struct cb_kernel *k, struct cb_lane *l, bool guest_up, int code);
/* The error reply to a question. */
void cb_lanes_say_unanswered(struct cb_kernel *k, const struct cb_request *r);
