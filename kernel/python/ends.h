/* The channels between supervisor and one process of a guest: wire, fds 1 and 2, control socket. Trust domain:
 * supervisor.
 */
#pragma once

#include <cellblock/twin.h>

struct cb_guest_ends {
	int wire, out[2], twin_control, side; /* ours; -1 = none */
};

#define CB_GUEST_ENDS_NONE ((struct cb_guest_ends){ .wire = -1, .out = { -1, -1 }, .twin_control = -1, .side = -1 })

/* Makes both ends; theirs in the order of twin.h. On failure there are none. */
int cb_guest_ends_make(struct cb_guest_ends *ret_ours, int ret_theirs[CB_BIRTH_NFDS]);
void cb_guest_ends_close(struct cb_guest_ends *ends);
