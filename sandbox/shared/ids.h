/* Who a process of one thread is. Trust domain: that of the caller. See ids.c. */
#pragma once

#include <sys/types.h>

int cb_become(uid_t id); /* user and group, real, effective and saved: 0 or -errno */
int cb_become_effective(uid_t uid);
int cb_leave_groups(void); /* the supplementary ones */
