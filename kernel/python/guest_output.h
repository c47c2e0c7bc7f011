/* What the guest's fds 1 and 2 and its log bring. Trust domain: supervisor. See guest_output.c. */
#pragma once

struct cb_guest;

/* For the loop. */
void cb_guest_on_stdout(void *context, short revents);
void cb_guest_on_stderr(void *context, short revents);
void cb_guest_on_log(void *context, short revents);
void cb_guest_on_resume(void *context);
/* Stops reading from the guest, and tries again soon. */
void cb_guest_pause_if_congested(struct cb_guest *g);
