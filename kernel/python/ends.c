/* Makes the channels of a guest or twin. Trust domain: supervisor.
 *
 * Our ends do not block. The control socket says who sends: the kernel adds the sender's pid to each of its messages.
 * Theirs are sockets of our network and have an address there, which nobody listens at: one without could be given one
 * that a program outside wants (unix(7), autobind).
 */
#include "ends.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

static int pair(int type, int *ret_ours, int *ret_theirs)
{
	static const struct sockaddr some = { .sa_family = AF_UNIX };
	int fds[2];

	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	*ret_ours = fds[0];
	*ret_theirs = fds[1];
	if (bind(fds[1], &some, sizeof(some.sa_family)) < 0)
		return -errno;
	return cb_fd_set_nonblock(fds[0]);
}

static int make(struct cb_guest_ends *ours, int theirs[CB_BIRTH_NFDS])
{
	int size = 1 << 20, on = 1; /* big displays in fewer switches */
	int r = pair(SOCK_STREAM, &ours->wire, &theirs[CB_BIRTH_WIRE]);

	if (r == 0) {
		(void)setsockopt(ours->wire, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
		(void)setsockopt(theirs[CB_BIRTH_WIRE], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		r = pair(SOCK_SEQPACKET, &ours->twin_control, &theirs[CB_BIRTH_TWIN_CONTROL]);
	}
	if (r == 0)
		r = pair(SOCK_STREAM, &ours->side, &theirs[CB_BIRTH_SIDE]);
	if (r == 0 && setsockopt(ours->twin_control, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		r = -errno;
	for (int i = 0; i < 2 && r == 0; i++) {
		int fds[2];

		if (pipe2(fds, O_CLOEXEC) < 0)
			return -errno;
		ours->out[i] = fds[0];
		theirs[i == 0 ? CB_BIRTH_STDOUT : CB_BIRTH_STDERR] = fds[1];
		r = cb_fd_set_nonblock(fds[0]);
	}
	return r;
}

int cb_guest_ends_make(struct cb_guest_ends *ret_ours, int ret_theirs[CB_BIRTH_NFDS])
{
	int r;

	*ret_ours = CB_GUEST_ENDS_NONE;
	for (int i = 0; i < CB_BIRTH_NFDS; i++)
		ret_theirs[i] = -1;
	r = make(ret_ours, ret_theirs);
	if (r == 0)
		return 0;
	cb_guest_ends_close(ret_ours);
	for (int i = 0; i < CB_BIRTH_NFDS; i++)
		cb_fd_close(&ret_theirs[i]);
	return r;
}

void cb_guest_ends_close(struct cb_guest_ends *ends)
{
	cb_fd_close(&ends->wire);
	cb_fd_close(&ends->out[0]);
	cb_fd_close(&ends->out[1]);
	cb_fd_close(&ends->twin_control);
	cb_fd_close(&ends->side);
}
