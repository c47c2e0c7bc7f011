/* Capabilities: none, for good.
 *
 * Trust domain: pid 1, which owns all capabilities of its user namespace until here. The guest is forked afterwards and
 * inherits the emptiness. And the notifier, which keeps one in its effective and permitted sets.
 *
 * Pid 1 keeps one that means nothing in a user namespace, and not in force: who has a capability that a cell has not
 * can't be looked into by cells (cap_ptrace_access_check), be it dumpable. So are its helpers, which must be for the
 * notifier, and whose /proc/PID/exe is a file of the host's on a writable mount. A guest and a command lose it with
 * their exec.
 *
 * Invariant: all five sets are empty but for what is to be kept, securebits are locked so that uid 0 would mean
 * nothing, and no exec gives new rights.
 */
#include "caps.h"

#include "../shared/jail.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int failed(struct cb_err *err, const char *what)
{
	return cb_err_set(err, -errno, "capabilities", NULL, "%s: %s", what, strerror(errno));
}

static int keep(uint64_t permitted, uint64_t effective, struct cb_err *err)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct kept[2] = { 0 };

	for (int i = 0; i < 2; i++)
		kept[i] = (struct __user_cap_data_struct){ .effective = (uint32_t)(effective >> (32 * i)),
							   .permitted = (uint32_t)(permitted >> (32 * i)) };
	/* The kernel says where the list ends: it may know more capabilities than our headers. */
	for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return failed(err, "the bounding set can't be emptied");
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return failed(err, "the ambient set can't be emptied");
	if (prctl(PR_SET_SECUREBITS, CB_GUEST_SECUREBITS, 0, 0, 0) < 0)
		return failed(err, "securebits can't be locked");
	if (syscall(SYS_capset, &head, kept) < 0)
		return failed(err, "capabilities can't be given up");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return failed(err, "no_new_privs can't be set");
	return 0;
}

int cb_caps_keep(uint64_t caps, struct cb_err *err)
{
	return keep(caps, caps, err);
}

int cb_step_caps(struct cb_jail *jail, struct cb_err *err)
{
	(void)jail;
	return cb_caps_keep(0, err);
}

int cb_step_caps_of_pid1(struct cb_jail *jail, struct cb_err *err)
{
	(void)jail;
	return keep(1ULL << CAP_WAKE_ALARM, 0, err);
}
