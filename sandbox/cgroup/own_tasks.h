/* How many tasks of ours are counted with a jail's own, by control groups and by RLIMIT_NPROC alike.
 *
 * Trust domain: broker and pid 1. A pure function of the description.
 */
#pragma once

#include <cellblock/sandbox.h>

#define CB_NOTIFY_THREADS 3 /* of a notifier, that serve calls */
/* That serve pid 1's helpers in a warm jail: they call little, and what waits does not wait in these threads; but while
 * one looks through a large folder that is moved, another is to go on. */
#define CB_NOTIFY_JOBS_THREADS 2

/* Processes and threads of ours that count as the jail's: pid 1, and the notifier's. */
unsigned cb_notify_own_tasks(const struct cb_jail_spec *spec);
/* As many more there are in a warm jail. */
unsigned cb_notify_jobs_tasks(const struct cb_jail_spec *spec);
