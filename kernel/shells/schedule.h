/* What can begin begins, once a turn of the loop. Trust domain: supervisor. See schedule.c. */
#pragma once

struct cb_kernel;

/* From now on a turn that was marked (cb_loop_mark) ends with that. */
void cb_schedule_init(struct cb_kernel *k);
