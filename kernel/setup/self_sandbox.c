/* The supervisor gives up its own rights.
 *
 * Role: after this call the process that talks to clients and guests can neither start programs, nor open anything for
 * writing, nor make sockets, nor regain what it had. Trust domain: supervisor.
 *
 * Invariants: the order of the steps below; nothing is skipped silently. As an ordinary user the bounding set and
 * securebits can't be changed (that takes CAP_SETPCAP); with no_new_privs no exec could profit from them, and the
 * filter allows no exec.
 */
#include "self_sandbox.h"

#include <cellblock/guest_rights.h>
#include <cellblock/sandbox.h>
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "self_filter.h"

#define STEP "self sandbox"

static int failed(struct cb_err *err, const char *what)
{
	int code = -errno;

	return cb_err_set(err, code, STEP, NULL, "the kernel can't give up its rights: %s: %s", what, strerror(-code));
}

static int read_caps(struct __user_cap_data_struct caps[2])
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return (int)syscall(SYS_capget, &header, caps);
}

static int drop_bounding_set(struct cb_err *err)
{
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return failed(err, "PR_CAPBSET_DROP");
	return 0;
}

static int leave_root(struct cb_err *err)
{
	uid_t uid;
	int lock_fd; /* stays open: the uid is ours as long as we live */
	int r = cb_uid_lease(&uid, &lock_fd, err);

	if (r < 0)
		return r;
	if (setgroups(0, NULL) < 0)
		return failed(err, "setgroups");
	if (setresgid(uid, uid, uid) < 0)
		return failed(err, "setresgid");
	if (setresuid(uid, uid, uid) < 0)
		return failed(err, "setresuid");
	return 0;
}

static int empty_caps(struct cb_err *err)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return failed(err, "PR_CAP_AMBIENT_CLEAR_ALL");
	if (syscall(SYS_capset, &header, none) < 0)
		return failed(err, "capset");
	return 0;
}

int cb_self_sandbox(struct cb_err *err)
{
	struct __user_cap_data_struct caps[2];
	bool may_set_caps;
	int r = 0;

	if (read_caps(caps) < 0)
		return failed(err, "capget");
	may_set_caps = (caps[0].effective & (1u << CAP_SETPCAP)) != 0;
	if (may_set_caps) {
		r = drop_bounding_set(err);
		if (r == 0 && prctl(PR_SET_SECUREBITS, CB_GUEST_SECUREBITS, 0, 0, 0) < 0)
			r = failed(err, "PR_SET_SECUREBITS");
	}
	if (r == 0 && cb_is_host_root()) /* the root of a rootless container is an ordinary user outside */
		r = leave_root(err);
	if (r == 0)
		r = empty_caps(err);
	if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = failed(err, "PR_SET_NO_NEW_PRIVS");
	if (r == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		r = failed(err, "PR_SET_DUMPABLE");
	return r == 0 ? cb_self_filter_load(err) : r;
}
