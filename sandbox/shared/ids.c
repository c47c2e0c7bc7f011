/* Who a process of one thread is, and a user namespace's.
 *
 * Trust domain: that of the caller. Invariant: no library calls, which have all threads take part that the library
 * knows of. A child that is cloned from the broker knows of the broker's threads and has none of them: it would wait
 * without end for one that was only just made.
 */
#include "ids.h"

#include <cellblock/fd.h>
#include <cellblock/guest_rights.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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

int cb_ids_write(pid_t pid, const char *file, const char *text)
{
	char path[64];
	CB_AUTO_FD fd = -1;

	if (pid > 0)
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	else
		snprintf(path, sizeof(path), "/proc/self/%s", file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : cb_fd_write_all(fd, text, strlen(text));
}

int cb_ids_map_one(pid_t pid, const char *file, unsigned inside, unsigned outside)
{
	char line[64];

	snprintf(line, sizeof(line), "%u %u 1\n", inside, outside);
	return cb_ids_write(pid, file, line);
}

int cb_ids_map(pid_t pid, uid_t uid, gid_t gid, const char **file)
{
	int r = cb_ids_write(pid, *file = "setgroups", "deny");

	if (r == 0)
		r = cb_ids_map_one(pid, *file = "uid_map", CB_JAIL_UID, uid);
	if (r == 0)
		r = cb_ids_map_one(pid, *file = "gid_map", CB_JAIL_UID, gid);
	return r;
}
