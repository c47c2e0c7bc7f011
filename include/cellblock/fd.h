/* File descriptors: ownership and the few operations that everyone needs. Every fd is CLOEXEC from birth. */
#pragma once

#include <linux/close_range.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

/* Closes *fd if >= 0 and sets it to -1; errno is preserved. Use as CB_AUTO_FD. */
void cb_fd_close(int *fd);
#define CB_AUTO_FD __attribute__((cleanup(cb_fd_close))) int

/* Hands over ownership: returns *fd and leaves -1. */
static inline int cb_fd_take(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/* For the start of a program: where 0, 1 or 2 is closed it becomes /dev/null, before a socket gets that number. */
int cb_fd_open_stdio(void);
/* For its end: `status`, but 1 in place of 0 where stdout could not be written; that is told on stderr. */
int cb_fd_end_stdio(const char *program, int status);
int cb_fd_set_nonblock(int fd);
/* close_range(2), by its number: glibc has it since 2.34. -1 and errno on failure. */
int cb_fd_close_range(unsigned first, unsigned last, unsigned flags);
/* For a process that was forked where much is open: fds[i] becomes number `first` + i (-1: that number is closed), with
 * `flags` (0 or O_CLOEXEC), the numbers below `first` become /dev/null, and all others are closed. */
#define CB_FD_KEEP_MAX 16
int cb_fd_keep(int first, const int *fds, size_t n, int flags);
/* Reads a whole file of at most `max` bytes into *ret_data (malloc'd, NUL-terminated, caller frees). CB_E_TOO_BIG past
 * max. */
int cb_fd_read_all(int fd, size_t max, char **ret_data, size_t *ret_len);
/* Writes all n bytes, retrying on EINTR and short writes. */
int cb_fd_write_all(int fd, const void *data, size_t n);

/* Waits for POLL* events, or an end, until cb_now_ms() is `end`: signals neither cut that short nor make it longer.
 * 0, -ETIMEDOUT, -errno. */
int cb_fd_await(int fd, short events, int64_t end);

/* SEQPACKET/STREAM messages with file descriptors. At most CB_FD_PASS_MAX fds. Received fds are CLOEXEC. */
#define CB_FD_PASS_MAX 24
int cb_fd_send(int sock, const void *data, size_t n, const int *fds, size_t nfds);
/* Returns bytes received (0 = EOF) or a negative errno. A truncated message or control data is -EMSGSIZE, its fds
 * closed. A peer that ended with unread input is told as what it said before, then EOF: never as ECONNRESET. */
ssize_t cb_fd_recv(int sock, void *data, size_t n, int *ret_fds, size_t max_fds, size_t *ret_nfds, int flags);
/* One message on a socket with SO_PASSCRED, and which process sent it: the kernel's word, by the numbers of our own pid
 * namespace; 0 if there is none. One fd may come along (*ret_fd, else -1); what has no room, with ret_fd NULL all of
 * them, the kernel closes. Returns as cb_fd_recv. */
ssize_t cb_fd_recv_from(int sock, void *data, size_t n, pid_t *ret_sender, int *ret_fd, int flags);
