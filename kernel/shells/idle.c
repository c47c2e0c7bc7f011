/* timeout.idle.
 *
 * Role: ends a jail that nobody uses: no request for timeout.idle seconds, none under way or waiting, nobody
 * connected to iopub. The kernel stays and answers; the next request gets a new jail, and the next cell says that the
 * state is lost.
 * Trust domain: supervisor.
 */
#include "idle.h"

#include "jupyter/loop.h"
#include "policy/policy.h"
#include "python/guest.h"
#include "shells.h"

#define SECOND 1000000000LL

static void on_timer(void *context)
{
	struct cb_shells *sh = context;
	int64_t now = cb_now_ns(), due = sh->idle.since + sh->idle.limit;

	if (sh->events->in_use(sh->kernel)) {
		cb_idle_touch(&sh->idle); /* not every end of a use does */
		return;
	}
	if (now < due) {
		cb_loop_arm(sh->loop, sh->idle.timer, due);
		return;
	}
	cb_guest_retire(sh->guest);
}

void cb_idle_touch(struct cb_idle *i)
{
	if (i->limit <= 0)
		return;
	i->since = cb_now_ns();
	if (!cb_loop_armed(i->loop, i->timer)) /* else the timer sees it when it is due */
		cb_loop_arm(i->loop, i->timer, i->since + i->limit);
}

int cb_idle_init(struct cb_shells *sh)
{
	struct cb_idle *i = &sh->idle;

	i->loop = sh->loop;
	i->limit = (int64_t)(sh->policy->timeout_idle * (double)SECOND);
	i->timer = cb_loop_add_timer(i->loop, on_timer, sh);
	if (i->timer < 0)
		return i->timer;
	cb_idle_touch(i);
	return 0;
}
