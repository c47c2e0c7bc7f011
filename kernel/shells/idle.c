/* timeout.idle.
 *
 * Role: ends a jail that nobody uses: no request for timeout.idle seconds, none under way or waiting, no subscriber on
 * iopub. The kernel stays and answers; the next request gets a new jail, and the next cell says that the state is lost.
 * Trust domain: supervisor.
 */
#include "idle.h"

#include "kernel.h"

#define SECOND 1000000000LL

static int64_t limit(const struct cb_kernel *k)
{
	return k->policy != NULL ? (int64_t)(k->policy->timeout_idle * (double)SECOND) : 0;
}

static bool in_use(const struct cb_kernel *k)
{
	return k->execution.shell.current != NULL || cb_lanes_busy(k) || cb_branches_busy(k) || cb_debug_busy(k) ||
	       k->execution.shell.waiting.head != NULL || k->jobs.head != NULL || k->overlay_changes.request != NULL ||
	       cb_iopub_has_subscribers(&k->jupyter);
}

static void on_timer(void *context)
{
	struct cb_kernel *k = context;
	int64_t now = cb_now_ns(), due = k->idle.since + limit(k);

	if (in_use(k)) /* its end touches the timer again */
		return;
	if (now < due) {
		cb_loop_arm(&k->loop, k->idle.timer, due);
		return;
	}
	cb_guest_retire(&k->guest);
}

void cb_idle_touch(struct cb_kernel *k)
{
	if (limit(k) <= 0)
		return;
	k->idle.since = cb_now_ns();
	if (!cb_loop_armed(&k->loop, k->idle.timer)) /* else the timer sees it when it is due */
		cb_loop_arm(&k->loop, k->idle.timer, k->idle.since + limit(k));
}

int cb_idle_init(struct cb_kernel *k)
{
	k->idle.timer = cb_loop_add_timer(&k->loop, on_timer, k);
	if (k->idle.timer < 0)
		return k->idle.timer;
	cb_idle_touch(k);
	return 0;
}
