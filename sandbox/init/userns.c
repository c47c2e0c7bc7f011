/* The user namespace's maps, and pid 1's session.
 *
 * Trust domain: broker (cb_userns_write_maps) and pid 1. One uid and one gid exist inside, CB_JAIL_UID, and outside
 * they are the caller's own or, for root, a leased one: never 0.
 */
#include "init.h"
#include "../shared/ids.h"
#include "parts.h"

#include <errno.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int cb_userns_write_maps(const struct cb_jail *jail, pid_t pid1, struct cb_err *err)
{
	/* the ids as they are here: in a zygote's user namespace our own has another number */
	uid_t uid = jail->from_root ? jail->host_uid : geteuid();
	gid_t gid = jail->from_root ? jail->host_uid : getegid();
	const char *file = NULL;
	int r = cb_ids_map(pid1, uid, gid, &file);

	return r == 0 ? 0
		      : cb_err_set(err, r, "user namespace", NULL, "%s of the new namespace can't be written: %s", file,
				   strerror(-r));
}

int cb_userns_enter(const struct cb_jail *jail, struct cb_err *err)
{
	int r = cb_become(CB_JAIL_UID);

	(void)jail;
	return r == 0 ? 0
		      : cb_err_set(err, r, "user namespace", NULL, "uid %d of the new namespace can't be taken: %s",
				   CB_JAIL_UID, strerror(-r));
}

/* The death signal is forgotten when credentials change, so it is set after that; a broker that died before can be
 * known only by its end of the sync socket, since getppid() is 0 in a new pid namespace anyway. */
static int die_with_broker(int sync_fd)
{
	char byte;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	if (recv(sync_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		_exit(1);
	return 0;
}

/* Where a kernel or a container's profile refuses keys there is none to share. A user's keyrings are counted, those of
 * other programs among them (EDQUOT): then the user's own stays, and nothing inside reaches it, for the filter refuses
 * keyctl, add_key and request_key. */
static int leave_keyring(const struct cb_jail *jail, struct cb_err *err)
{
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) >= 0 || errno == ENOSYS || errno == EPERM)
		return 0;
	if (errno == EDQUOT && jail->filter.len > 0)
		return 0;
	return cb_err_set(err, -errno, "session",
			  errno == EDQUOT ? "Raise the sysctl kernel.keys.maxkeys, or end some of this user's programs."
					  : NULL,
			  "a new session keyring can't be joined: %s", strerror(errno));
}

int cb_step_session(struct cb_jail *jail, struct cb_err *err)
{
	int r = die_with_broker(jail->sync_fd);

	if (r < 0)
		return cb_err_set(err, r, "session", NULL, "the death signal can't be set: %s", strerror(-r));
	if (setsid() < 0)
		return cb_err_set(err, -errno, "session", NULL, "setsid: %s", strerror(errno));
	r = leave_keyring(jail, err);
	if (r < 0)
		return r;
	if (sethostname(jail->spec->hostname, strlen(jail->spec->hostname)) < 0 || setdomainname("(none)", 6) < 0)
		return cb_err_set(err, -errno, "session", NULL, "the hostname can't be set: %s", strerror(errno));
	return 0;
}
