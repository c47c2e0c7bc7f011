/* File descriptors at the wall: the guest is born with those of wire.h, the host's all close.
 *
 * Trust domain: the guest's process before its exec. All that the broker held is open here too (its socket, locks, the
 * supervisor's pipes): an fd that slips through is a hole, so everything but a list is closed, not the other way round.
 */
#include "parts.h"

#include <cellblock/fd.h>
#include <cellblock/wire.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define ASIDE 16 /* numbers above those that the guest is given */

static int failed(struct cb_err *err, const char *what)
{
	return cb_err_set(err, -errno, "file descriptors", NULL, "%s: %s", what, strerror(errno));
}

/* Where each fd of the request goes; a run has neither wire nor log, and passes its own stdin. */
static const struct {
	int target, index;
} places[] = {
	{ CB_GUEST_FD_STDOUT, CB_SPAWN_STDOUT },
	{ CB_GUEST_FD_STDERR, CB_SPAWN_STDERR },
	{ CB_GUEST_FD_WIRE, CB_SPAWN_WIRE },
	{ CB_GUEST_FD_LOG, CB_SPAWN_LOG },
	{ CB_GUEST_FD_TWIN_CONTROL, CB_SPAWN_TWIN_CONTROL },
	{ CB_GUEST_FD_SIDE, CB_SPAWN_SIDE },
};
#define NFDS (CB_COUNT(places) + 1) /* and the registry, which pid 1 has made */

static int null_on(int target, struct cb_err *err)
{
	CB_AUTO_FD null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* never the same number: what is called is out of the way (ASIDE) or stdio is open */
	if (null < 0 || dup2(null, target) < 0)
		return failed(err, "/dev/null can't be opened");
	return 0;
}

int cb_fds_install(const struct cb_jail *jail, int registry, int *sync_fd, struct cb_err *err)
{
	/* all are given then, and no number between is left over */
	bool kernel = jail->guest_fds[CB_SPAWN_TWIN_CONTROL] >= 0;
	int aside[NFDS], moved = fcntl(*sync_fd, F_DUPFD_CLOEXEC, ASIDE), last = 0;

	if (moved < 0)
		return failed(err, "the sync socket can't be moved");
	*sync_fd = moved;
	/* first all out of the way, then each to its place: a source may have the number that another one gets */
	for (size_t i = 0; i < NFDS; i++) {
		int fd = i < CB_COUNT(places) ? jail->guest_fds[places[i].index] : kernel ? registry : -1;

		aside[i] = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, ASIDE) : -1;
		if (fd >= 0 && aside[i] < 0)
			return failed(err, "the guest's descriptors can't be moved");
	}
	if (jail->guest_fds[CB_SPAWN_WIRE] >= 0 && null_on(CB_GUEST_FD_STDIN, err) < 0)
		return err->code;
	for (size_t i = 0; i < NFDS; i++) {
		int target = i < CB_COUNT(places) ? places[i].target : CB_GUEST_FD_REGISTRY;

		if (aside[i] < 0)
			continue;
		if (dup2(aside[i], target) < 0)
			return failed(err, "the guest's descriptors can't be placed");
		last = target > last ? target : last;
	}
	if (cb_fd_close_range((unsigned)last + 1, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		return failed(err, "the other descriptors can't be closed");
	return 0;
}
