/* Can calls of a jail be served by name here (sandbox/notifier/)? Found by trying, in a child that ends at once.
 *
 * Trust domain: supervisor while it plans, and doctor. What is needed came with Linux 5.14; a container that listens
 * itself (LXC with its own notifications) leaves no room for a second listener.
 */
#include <cellblock/child.h>
#include <cellblock/fd.h>
#include <cellblock/sandbox.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ADDFD with SEND came last: an older kernel does not know the flag, ours does not know the notification. */
static int try(void)
{
	struct sock_filter all[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog filter = { .len = 1, .filter = all };
	struct seccomp_notif_addfd add = { .flags = SECCOMP_ADDFD_FLAG_SEND };
	CB_AUTO_FD listener = -1;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return errno;
	listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
	if (listener < 0)
		return errno;
	(void)ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
	return errno == ENOENT ? 0 : errno == EINVAL ? ENOSYS : errno;
}

int cb_notify_probe(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(try());
	(void)cb_reap(pid, &status);
	if (pid < 0)
		return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}
