/* Tasks of ours among a jail's: see own_tasks.h. Trust domain: broker and pid 1. */
#include "own_tasks.h"

static bool is_notified(const struct cb_jail_spec *spec)
{
	return spec->notifier && (spec->workspace_mode == CB_WORKSPACE_RW || spec->network == CB_NETWORK_NONE);
}

unsigned cb_notify_own_tasks(const struct cb_jail_spec *spec)
{
	return is_notified(spec) ? 3 + CB_NOTIFY_THREADS : 1;
}

unsigned cb_notify_jobs_tasks(const struct cb_jail_spec *spec)
{
	return is_notified(spec) ? CB_NOTIFY_JOBS_THREADS : 0;
}
