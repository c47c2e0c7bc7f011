/* Tasks of ours among a jail's: see own_tasks.h. Trust domain: broker and pid 1. */
#include "own_tasks.h"

unsigned cb_notify_own_tasks(const struct cb_jail_spec *spec)
{
	bool notified = spec->notifier && (spec->workspace_mode == CB_WORKSPACE_RW || spec->network == CB_NETWORK_NONE);

	return notified ? 3 + CB_NOTIFY_THREADS : 1;
}
