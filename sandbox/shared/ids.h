/* Who a process of one thread is, and a user namespace's. Trust domain: that of the caller. See ids.c. */
#pragma once

#include <sys/types.h>

int cb_become(uid_t id); /* user and group, real, effective and saved: 0 or -errno */
int cb_become_effective(uid_t uid);
int cb_leave_groups(void); /* the supplementary ones */

/* Into a file of a process's folder in /proc; pid 0 is the caller. 0 or -errno. */
int cb_ids_write(pid_t pid, const char *file, const char *text);
int cb_ids_map_one(pid_t pid, const char *file, unsigned inside, unsigned outside);
/* CB_JAIL_UID, the only uid and gid inside, is these two outside; setgroups is denied before. On failure *file is the
 * one that could not be written. */
int cb_ids_map(pid_t pid, uid_t uid, gid_t gid, const char **file);
