/* File descriptors: ownership, whole reads and writes, passing over sockets; the contract is in fd.h.
 *
 * Trust domain: all C programs. cb_fd_recv faces hostile peers in the broker's and pid 1's sockets: whatever arrives,
 * no descriptor is left open that the caller does not know of.
 */
#include <cellblock/clock.h>
#include <cellblock/error.h>
#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

void cb_fd_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

int cb_fd_open_stdio(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR); /* for what is started, too */
	while (fd >= 0 && fd <= 2);
	return fd < 0 ? -errno : close(fd);
}

int cb_fd_end_stdio(const char *program, int status)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	fprintf(stderr, "%s: stdout can't be written%s%s\n", program, errno != 0 ? ": " : "",
		errno != 0 ? strerror(errno) : ""); /* an earlier part's cause is not known any more */
	return status != 0 ? status : 1;
}

int cb_fd_set_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

int cb_fd_close_range(unsigned first, unsigned last, unsigned flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

static int place(int fd, int number, int flags)
{
	if (fd >= 0)
		return dup3(fd, number, flags) < 0 ? -errno : 0;
	(void)close(number);
	return 0;
}

int cb_fd_keep(int first, const int *fds, size_t n, int flags)
{
	int end = first + (int)n, aside[CB_FD_KEEP_MAX], null, r = 0;

	if (n > CB_FD_KEEP_MAX)
		return -EINVAL;
	/* first all out of the way: what is kept may have a number that another one gets */
	for (size_t i = 0; i < n; i++) {
		aside[i] = fds[i] >= 0 ? fcntl(fds[i], F_DUPFD_CLOEXEC, end) : -1;
		if (fds[i] >= 0 && aside[i] < 0)
			return -errno;
	}
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	null = null >= 0 ? fcntl(null, F_DUPFD_CLOEXEC, end) : -1;
	if (null < 0)
		return -errno;
	for (int fd = 0; fd < first && r == 0; fd++)
		r = place(null, fd, 0);
	for (size_t i = 0; i < n && r == 0; i++)
		r = place(aside[i], first + (int)i, flags);
	if (r == 0 && cb_fd_close_range((unsigned)end, ~0u, 0) < 0)
		r = -errno;
	return r;
}

/* Room for the file and one byte more, so that end of file is seen without another round; files of /proc say size 0. */
static size_t first_cap(int fd, size_t max)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
		return (uint64_t)st.st_size < max ? (size_t)st.st_size + 1 : max + 1;
	return max < 4096 ? max + 1 : 4096;
}

int cb_fd_read_all(int fd, size_t max, char **ret_data, size_t *ret_len)
{
	size_t cap = first_cap(fd, max), len = 0;
	char *data = malloc(cap + 1), *grown;
	int r;

	if (data == NULL)
		return -ENOMEM;
	for (;;) {
		ssize_t n = read(fd, data + len, cap - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			r = -errno;
			goto fail;
		}
		if (n == 0)
			break;
		len += (size_t)n;
		if (len > max) {
			r = CB_E_TOO_BIG;
			goto fail;
		}
		if (len < cap)
			continue;
		cap = cap > max / 2 ? max + 1 : cap * 2;
		grown = realloc(data, cap + 1);
		if (grown == NULL) {
			r = -ENOMEM;
			goto fail;
		}
		data = grown;
	}
	data[len] = '\0';
	*ret_data = data;
	*ret_len = len;
	return 0;
fail:
	free(data);
	return r;
}

int cb_fd_write_all(int fd, const void *data, size_t n)
{
	const char *p = data;

	while (n > 0) {
		ssize_t written = write(fd, p, n);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return -errno;
		p += written;
		n -= (size_t)written;
	}
	return 0;
}

int cb_fd_await(int fd, short events, int64_t end)
{
	struct pollfd p = { .fd = fd, .events = events };
	int r;

	do {
		int64_t now = cb_now_ms();

		r = poll(&p, 1, now < end ? (int)(end - now) : 0);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r == 0 ? -ETIMEDOUT : 0;
}

union control {
	struct cmsghdr align;
	char space[CMSG_SPACE(sizeof(int) * CB_FD_PASS_MAX)];
};

int cb_fd_send(int sock, const void *data, size_t n, const int *fds, size_t nfds)
{
	union control control = { 0 };
	struct iovec part = { .iov_len = n };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t sent;

	if (nfds > CB_FD_PASS_MAX)
		return -EINVAL;
	memcpy(&part.iov_base, &data, sizeof(data)); /* iovec wants it writable; sendmsg does not write */
	if (nfds > 0) {
		struct cmsghdr *head;

		message.msg_control = control.space;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
		memcpy(CMSG_DATA(head), fds, sizeof(int) * nfds);
	}
	do
		sent = sendmsg(sock, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return -errno;
	return (size_t)sent == n ? 0 : -EMSGSIZE;
}

/* Moves the fds of all control messages to `fds` (room for CB_FD_PASS_MAX; no more can fit in the control buffer). */
static size_t collect_fds(struct msghdr *message, int *fds)
{
	size_t count = 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h != NULL; h = CMSG_NXTHDR(message, h)) {
		size_t n;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds + count, CMSG_DATA(h), n * sizeof(int));
		count += n;
	}
	return count;
}

/* A peer that ended with something of ours unread makes one ECONNRESET, which comes before what it had said. */
static ssize_t receive(int sock, struct msghdr *message, int flags)
{
	ssize_t n;
	bool reset = false;

	for (;;) {
		n = recvmsg(sock, message, flags | MSG_CMSG_CLOEXEC);
		if (n >= 0)
			return n;
		if (errno != EINTR && (errno != ECONNRESET || reset))
			return -errno;
		reset = reset || errno == ECONNRESET;
	}
}

ssize_t cb_fd_recv(int sock, void *data, size_t n, int *ret_fds, size_t max_fds, size_t *ret_nfds, int flags)
{
	union control control;
	struct iovec part = { .iov_base = data, .iov_len = n };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)
	};
	int fds[CB_FD_PASS_MAX];
	size_t nfds;
	ssize_t received;

	received = receive(sock, &message, flags);
	if (received < 0)
		return received;
	nfds = collect_fds(&message, fds);
	if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || nfds > max_fds) {
		while (nfds > 0)
			cb_fd_close(&fds[--nfds]);
		return -EMSGSIZE;
	}
	if (nfds > 0)
		memcpy(ret_fds, fds, nfds * sizeof(int));
	if (ret_nfds != NULL)
		*ret_nfds = nfds;
	return received;
}

ssize_t cb_fd_recv_from(int sock, void *data, size_t n, pid_t *ret_sender, int *ret_fd, int flags)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { .iov_base = data, .iov_len = n };
	size_t room = CMSG_SPACE(sizeof(struct ucred)) + (ret_fd != NULL ? CMSG_LEN(sizeof(int)) : 0);
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = room
	};
	struct ucred sender = { 0 };
	ssize_t received;
	int fd = -1;

	received = receive(sock, &message, flags);
	if (received < 0)
		return received;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h != NULL; h = CMSG_NXTHDR(&message, h)) {
		if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_CREDENTIALS)
			memcpy(&sender, CMSG_DATA(h), sizeof(sender));
		if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(h), sizeof(fd));
	}
	*ret_sender = sender.pid;
	if (ret_fd != NULL)
		*ret_fd = fd;
	return received;
}
