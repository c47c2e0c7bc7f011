/* Signals that several rooms give: see signals.h. Trust domain: that of the caller. */
#include "signals.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEATH_MS 2000

void cb_default_signals(void)
{
	struct sigaction action = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		(void)sigaction(number, &action, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

bool cb_await_child(int pidfd)
{
	return cb_fd_await(pidfd, POLLIN, cb_now_ms() + DEATH_MS) == 0;
}

bool cb_kill_child(int pidfd)
{
	(void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	return cb_await_child(pidfd);
}
