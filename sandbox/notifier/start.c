/* Starting and ending notifiers: see notifier.h.
 *
 * Trust domain: broker, or run. A notifier is in the jail's control group, so that what it does for a jail counts as
 * the jail's. It gets its descriptors and nothing else. One that dies is followed by another, which first answers what
 * the dead one has left: the calls wait meanwhile, none of them is done.
 */
#include "notifier.h"

#include "../shared/jail.h"
#include "../shared/signals.h"

#include <cellblock/child.h>
#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/log.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define READY_MS 5000
#define STARTS_MAX 100 /* of one jail: past it its writes fail */
#define NEAR 256       /* more than can be under way */
#define TRIES 5
#define FIRST_FD 3 /* of the notifier's own, in order: status, and those of enum cb_notify_fd */

/* All that the broker holds is open here, too: what is needed gets fixed numbers, the rest goes. */
static int keep_fds(struct cb_notifier *n, int *status_fd)
{
	int kept[1 + CB_NOTIFY_NFDS] = { *status_fd }, r;

	memcpy(kept + 1, n->fds, sizeof(n->fds));
	r = cb_fd_keep(FIRST_FD, kept, 1 + CB_NOTIFY_NFDS, O_CLOEXEC);
	*status_fd = FIRST_FD;
	for (int i = 0; i < CB_NOTIFY_NFDS; i++)
		n->fds[i] = n->fds[i] >= 0 ? FIRST_FD + 1 + i : -1;
	return r;
}

static int share_page(struct cb_notifier *n)
{
	void *page;

	if (n->shared != NULL)
		return 0;
	page = mmap(NULL, sizeof(*n->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return -errno;
	n->shared = page;
	return 0;
}

static void answer_by_error(int listener, uint64_t id)
{
	struct seccomp_notif_resp answer = { .id = id, .error = -EIO };

	(void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

/* By EIO, as of a disk that has failed: nobody knows what was done of them. One that was received and not yet noted
 * down has a number near the last; those that nobody has received yet the kernel does not let us answer. */
static void answer_left(const struct cb_notifier *n, enum cb_notify_from from)
{
	int listener = cb_notify_listener(n->fds, from);
	uint64_t *busy = n->shared->busy[from];

	for (size_t i = 0; listener >= 0 && i < sizeof(n->shared->busy[from]) / sizeof(*busy); i++) {
		if (busy[i] != 0)
			answer_by_error(listener, busy[i]);
		busy[i] = 0;
	}
	for (uint64_t i = 0; listener >= 0 && n->starts > 0 && i < 2 * NEAR; i++)
		answer_by_error(listener, n->shared->last[from] - NEAR + i);
}

/* One word; a namespace may come with it. */
static int await_word(int fd, int *ret_ns, struct cb_err *err)
{
	int r = cb_fd_await(fd, POLLIN, cb_now_ms() + READY_MS), ns = -1;
	struct cb_err word = { 0 };
	size_t nfds = 0;

	if (r < 0 || cb_fd_recv(fd, &word, sizeof(word), &ns, 1, &nfds, 0) != (ssize_t)sizeof(word))
		return cb_err_set(err, r == -ETIMEDOUT ? r : -ECHILD, "notifier", NULL,
				  "what serves the jail's write calls %s",
				  r == -ETIMEDOUT ? "is not ready in time" : "has ended");
	if (nfds == 1 && *ret_ns < 0)
		*ret_ns = cb_fd_take(&ns);
	cb_fd_close(&ns);
	if (word.code < 0 && err != NULL)
		*err = word;
	return word.code;
}

static void reap(struct cb_notifier *n)
{
	(void)cb_reap(n->pid, NULL);
	n->pid = 0;
	cb_fd_close(&n->pidfd);
}

static void end(struct cb_notifier *n)
{
	if (n->pid > 0 && !cb_kill_child(n->pidfd)) {
		cb_log(CB_LOG_WARNING, "what serves a jail's write calls hangs in the kernel: pid %d is left",
		       (int)n->pid);
		n->pid = 0;
	}
	reap(n);
}

int cb_notify_start(const struct cb_jail *jail, const struct cb_cgroup *group, struct cb_notifier *n,
		    struct cb_err *err)
{
	unsigned more = n->fds[CB_NOTIFY_LISTENER_JOBS] >= 0 ? cb_notify_jobs_tasks(jail->spec) : 0;
	int pair[2], joined = 0, r = more > 0 ? cb_cgroup_let_in(group, jail->spec, more) : 0;

	if (r < 0)
		return cb_err_set(err, r, "notifier", NULL, "the control group has no room for its threads: %s",
				  strerror(-r));
	r = share_page(n);
	if (r < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return cb_err_set(err, r < 0 ? r : -errno, "notifier", NULL, "no memory or descriptors for it: %s",
				  strerror(r < 0 ? -r : errno));
	CB_AUTO_FD mine = pair[0];
	CB_AUTO_FD theirs = pair[1];

	for (unsigned from = 0; from < CB_NOTIFY_FROMS; from++)
		answer_left(n, from);
	n->pid = cb_cgroup_clone(group, 0, &n->pidfd, &joined);
	if (n->pid == 0) {
		if (joined < 0 || keep_fds(n, &theirs) < 0)
			_exit(1);
		cb_notify_main(jail, n, theirs);
	}
	if (n->pid < 0) {
		r = n->pid;
		n->pid = 0;
		return cb_err_set(err, r, "notifier", NULL, "it can't be forked: %s", strerror(-r));
	}
	n->starts++;
	cb_fd_close(&theirs);
	r = await_word(mine, &n->fds[CB_NOTIFY_OWNNS], err);
	if (r == 0)
		r = await_word(mine, &n->fds[CB_NOTIFY_OWNNS], err);
	if (r < 0)
		end(n);
	return r;
}

static bool has_ended(int listener)
{
	struct pollfd p = { .fd = listener };

	return listener < 0 || (poll(&p, 1, 0) == 1 && (p.revents & POLLHUP) != 0);
}

void cb_notify_died(const struct cb_jail *jail, const struct cb_cgroup *group, struct cb_notifier *n)
{
	struct cb_err err = { 0 };

	reap(n);
	if (has_ended(n->fds[CB_NOTIFY_LISTENER]) && has_ended(n->fds[CB_NOTIFY_LISTENER_JOBS]))
		return; /* with all of the jail */
	/* the next one may be killed as well */
	for (unsigned i = 0; n->pid == 0 && n->starts < STARTS_MAX && i < TRIES; i++)
		(void)cb_notify_start(jail, group, n, &err);
	if (n->pid == 0)
		cb_notify_stop(n);
	cb_log(CB_LOG_ERROR, "the process that serves a jail's write calls has died: %s",
	       n->pid > 0     ? "calls under way failed with EIO, a new one serves"
	       : err.code < 0 ? err.text
			      : "too often; the jail can't write its workspace any more");
}

void cb_notify_stop(struct cb_notifier *n)
{
	end(n);
	for (int i = 0; i < CB_NOTIFY_NFDS; i++)
		cb_fd_close(&n->fds[i]);
	if (n->shared != NULL)
		(void)munmap(n->shared, sizeof(*n->shared));
	n->shared = NULL;
}
