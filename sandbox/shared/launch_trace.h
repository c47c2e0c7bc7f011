/* How far a launch has got, for the message when it hangs and for the log.
 *
 * Trust domain: broker and pid 1, which share a page until the guest's exec.
 */
#pragma once

/* Broker: before a launch. 0 or a negative errno. */
int cb_launch_trace_start(void);
/* Whoever builds at the moment; does nothing without a trace. */
void cb_launch_mark(const char *phase);
/* Broker: what was marked last, and all of it with the time that it took. */
const char *cb_launch_phase(void);
void cb_launch_log(void);
