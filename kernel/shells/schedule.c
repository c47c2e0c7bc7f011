/* What can begin begins, once a turn of the loop.
 *
 * Trust domain: supervisor. Who changes something that others may wait for (a request came or ended, the guest is up, a
 * signal was sent) marks the loop and goes on; all that waits is looked at here, when the turn is over. So nothing
 * begins, ends or is freed below a caller that is still at work.
 */
#include "schedule.h"

#include "kernel.h"

static void begin_what_can(void *context)
{
	struct cb_kernel *k = context;

	if (k->shutting_down) /* what waits is answered at the end */
		return;
	cb_jobs_schedule(k);
	cb_execution_schedule(k);
	cb_lanes_schedule(k);
	cb_branches_schedule(k);
	cb_debug_schedule(k);
}

void cb_schedule_init(struct cb_kernel *k)
{
	cb_loop_at_turn(&k->loop, begin_what_can, k);
}
