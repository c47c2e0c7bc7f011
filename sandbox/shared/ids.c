/* Who a process of one thread is.
 *
 * Trust domain: that of the caller. Invariant: no library calls, which have all threads take part that the library
 * knows of. A child that is cloned from the broker knows of the broker's threads and has none of them: it would wait
 * without end for one that was only just made.
 */
#include "ids.h"

#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

int cb_become(uid_t id)
{
	return syscall(SYS_setresgid, id, id, id) < 0 || syscall(SYS_setresuid, id, id, id) < 0 ? -errno : 0;
}

int cb_become_effective(uid_t uid)
{
	return syscall(SYS_setresuid, -1, uid, -1) < 0 ? -errno : 0;
}

int cb_leave_groups(void)
{
	return syscall(SYS_setgroups, 0, NULL) < 0 ? -errno : 0;
}
