/* How many tasks of ours are counted with a jail's own, by control groups and by RLIMIT_NPROC alike.
 *
 * Trust domain: broker and pid 1. A pure function of the description.
 */
#pragma once

#include <cellblock/sandbox.h>

#define CB_NOTIFY_THREADS 3 /* of a notifier, that serve calls */

/* Processes and threads of ours that count as the jail's: pid 1, and the notifier's. */
unsigned cb_notify_own_tasks(const struct cb_jail_spec *spec);
