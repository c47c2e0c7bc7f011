/* Runs one of our own programs and keeps what it prints.
 *
 * Role: asking an interpreter in a jail, explain --json. Trust domain: supervisor, at start, while it is
 * single-threaded and may still exec. What comes back may be a guest's: bounded in size and time here, parsed strictly
 * by the caller. Invariant: the child has fds 0, 1, 2 and CB_CAPTURE_FD, no others; it never outlives the call.
 */
#include "capture.h"

#include <cellblock/child.h>
#include <cellblock/clock.h>
#include <cellblock/error.h>
#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

static int place_fd(int fd)
{
	if (fd == CB_CAPTURE_FD)
		return fcntl(fd, F_SETFD, 0) < 0 ? -errno : 0;
	if (fd >= 0 && dup2(fd, CB_CAPTURE_FD) < 0)
		return -errno;
	return 0;
}

int cb_replace_process(char *const argv[], int pass_fd)
{
	int r = place_fd(pass_fd);

	if (r < 0)
		return r;
	cb_fd_close_range(CB_CAPTURE_FD + 1, ~0U, CLOSE_RANGE_CLOEXEC);
	execv(argv[0], argv);
	return -errno;
}

static _Noreturn void child(char *const argv[], int pass_fd, const int pipes[2])
{
	sigset_t none;
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), r = 0;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (null < 0 || dup2(null, 0) < 0 || dup2(pipes[0], 1) < 0 || dup2(pipes[1], 2) < 0)
		r = -errno;
	if (r == 0)
		r = cb_replace_process(argv, pass_fd);
	/* as it says itself what fails */
	dprintf(2, "cellblock %s: %s can't be started: %s\n", argv[1], argv[0], cb_err_text(r));
	_exit(127);
}

/* Reads what is there; *fd becomes -1 at its end. */
static int take(int *fd, struct cb_buf *buf, int strict)
{
	char chunk[4096];
	ssize_t n = read(*fd, chunk, sizeof(chunk));
	int r;

	if (n < 0)
		return errno == EINTR || errno == EAGAIN ? 0 : -errno;
	if (n == 0) {
		cb_fd_close(fd);
		return 0;
	}
	r = cb_buf_append(buf, chunk, (size_t)n);
	return r < 0 && strict ? r : 0;
}

static int collect(int out_fd, int err_fd, int timeout_ms, struct cb_buf *out, struct cb_buf *errors)
{
	struct pollfd fds[2] = { { .fd = out_fd, .events = POLLIN }, { .fd = err_fd, .events = POLLIN } };
	int64_t end = cb_now_ms() + timeout_ms;
	int r = 0;

	while (r == 0 && (fds[0].fd >= 0 || fds[1].fd >= 0)) {
		int64_t left = end - cb_now_ms();

		if (left <= 0)
			r = -ETIMEDOUT;
		else if (poll(fds, 2, (int)left) < 0 && errno != EINTR)
			r = -errno;
		if (r == 0 && fds[0].revents != 0)
			r = take(&fds[0].fd, out, 1);
		if (r == 0 && fds[1].revents != 0)
			r = take(&fds[1].fd, errors, 0);
	}
	cb_fd_close(&fds[0].fd);
	cb_fd_close(&fds[1].fd);
	return r;
}

int cb_capture(char *const argv[], int pass_fd, int timeout_ms, struct cb_buf *out, struct cb_buf *errors,
	       int *ret_status)
{
	int out_pipe[2], err_pipe[2], status = 0, r;
	pid_t pid;

	if (pipe2(out_pipe, O_CLOEXEC) < 0)
		return -errno;
	if (pipe2(err_pipe, O_CLOEXEC) < 0) {
		r = -errno;
		close(out_pipe[0]);
		close(out_pipe[1]);
		return r;
	}
	pid = fork();
	r = -errno;
	if (pid == 0)
		child(argv, pass_fd, (int[]){ out_pipe[1], err_pipe[1] });
	close(out_pipe[1]);
	close(err_pipe[1]);
	if (pid < 0) {
		close(out_pipe[0]);
		close(err_pipe[0]);
		return r;
	}
	r = collect(out_pipe[0], err_pipe[0], timeout_ms, out, errors);
	if (r < 0)
		kill(pid, SIGKILL);
	(void)cb_reap(pid, &status);
	if (r < 0)
		return r;
	*ret_status = status;
	return 0;
}
