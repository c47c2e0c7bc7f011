/* Pid 1 of a jail, as whoever builds jails and prints what they are made of knows it.
 *
 * Trust domain: inside the jail, but ours; what is the broker's is marked so.
 */
#pragma once

#include "../shared/jail.h"

/* What pid 1 does before it starts the guest, in order. */
extern const struct cb_step cb_jail_steps[];
extern const size_t cb_jail_steps_count;

/* ---- userns.c ---- */

/* Broker, or whoever makes pid 1 for it. */
int cb_userns_write_maps(const struct cb_jail *jail, pid_t pid1, struct cb_err *err);
int cb_userns_enter(const struct cb_jail *jail, struct cb_err *err); /* pid 1, after the maps */

/* ---- net.c ---- */

/* A socket that shows those of the caller's network namespace, or a negative errno. Broker and pid 1. */
int cb_kernel_sockets(void);

/* ---- init.c ---- */

/* Before all others for the kernel's OOM killer, however small it is: the bomb may be its children. Of guests the
 * broker says it (broker/oom.c), and pid 1 of itself while it forks a job's helper. */
#define CB_OOM_VICTIM "1000"

/* After the steps: forks and execs the guest, then reaps, forwards, reports. Does not return. */
_Noreturn void cb_init_main(struct cb_jail *jail);
