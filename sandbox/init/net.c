/* The jail's own network namespace: nothing but a loopback interface.
 *
 * Trust domain: pid 1, with all capabilities in its namespaces. With network full there is no namespace of its own and
 * nothing to do. Where no control group counts what waits in sockets, and where the user has other programs that pass
 * descriptors, the broker is given a way to look at them.
 */
#include "../shared/sync.h"
#include "init.h"
#include "parts.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

int cb_kernel_sockets(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	return fd < 0 ? -errno : fd;
}

/* What can't be shown is counted with the most that it can be. */
static void show_sockets(const struct cb_jail *jail)
{
	CB_AUTO_FD fd = cb_kernel_sockets();

	if (fd >= 0)
		(void)cb_sync_send_fd(jail->sync_fd, CB_SYNC_SOCKETS, 0, fd);
}

int cb_step_loopback(struct cb_jail *jail, struct cb_err *err)
{
	struct ifreq request = { .ifr_name = "lo" };
	CB_AUTO_FD fd = -1;

	if (jail->spec->network == CB_NETWORK_FULL)
		return 0;
	if (jail->cgroups.kind == CB_CGROUP_NONE || !jail->from_root)
		show_sockets(jail);
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0)
		return 0;
	return cb_err_set(err, -errno, "loopback", NULL, "the interface lo can't be brought up: %s", strerror(errno));
}
