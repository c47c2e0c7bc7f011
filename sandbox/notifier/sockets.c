/* bind and connect: named sockets.
 *
 * Trust domain: the notifier. A read-only mount does not keep anybody from connecting to a socket that lies on it, so
 * connect is never left to the kernel: of the caller's socket a descriptor is taken, the address is copied and judged,
 * and the call is done here, whatever the caller's threads exchange meanwhile. Named sockets are reached only if they
 * lie in memory of the jail's own, or if this jail has bound them. Addresses of other kinds mean the jail's own network
 * namespace, for that is the socket's, but for the guest's channels: those are connected and bound, and stay so. A
 * server inside sees the notifier's number of process (0) as its client's.
 *
 * A connection that takes its time is waited for by the first thread, with the caller's signals in view: a call that is
 * being served is not interrupted by them. No thread waits in connect itself, though whether a socket waits is a flag
 * that others who have it open can change at any moment: a timer of the thread's own ends such a call.
 */
#include "../shared/jail.h"
#include "calls.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 50
#define CONNECT_NS 10000000 /* that a call which should not wait may wait */
#define OWN_MAX 4

struct address {
	union {
		struct sockaddr head;
		struct sockaddr_un named;
		struct sockaddr_storage any;
	};
	socklen_t len;
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1]; /* of a named socket, else "" */
};

struct waiter {
	struct cb_request request; /* its notification is `notification`; request.n == NULL: free */
	struct seccomp_notif notification;
	struct address address; /* to be tried again: the Unix family does not tell when there is room */
	int socket;
};

static struct {
	dev_t own[OWN_MAX]; /* file systems in memory that nobody outside can put a socket on */
	size_t nown;
	int wake; /* eventfd: there is a new waiter */
	pthread_mutex_t lock;
	struct waiter waiters[CB_NOTIFY_WAITERS];
} sockets = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Thread_local timer_t timer;

static void on_timer(int number)
{
	(void)number; /* it has ended a call */
}

int cb_sockets_init_thread(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM };

	event._sigev_un._tid = gettid();
	return timer_create(CLOCK_MONOTONIC, &event, &timer) < 0 ? -errno : 0;
}

int cb_sockets_init(const struct cb_jail_spec *spec)
{
	static const char *const places[] = { "/tmp", "/dev/shm", CB_JAIL_HOME };
	const struct sigaction act = { .sa_handler = on_timer }; /* without SA_RESTART */
	struct stat st;
	sigset_t set;

	for (size_t i = 0; i < CB_COUNT(places); i++)
		if (!cb_jail_is_bound(spec, places[i]) && stat(places[i], &st) == 0)
			sockets.own[sockets.nown++] = st.st_dev;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGALRM); /* for all threads: they are made after this */
	if (sigaction(SIGALRM, &act, NULL) < 0 || sigprocmask(SIG_UNBLOCK, &set, NULL) < 0)
		return -errno;
	sockets.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return sockets.wake < 0 ? -errno : cb_sockets_init_thread();
}

/* ---- arguments ---- */

static int read_address(struct cb_request *q, struct address *ret)
{
	int len = cb_arg_int(q, 2);
	size_t head = offsetof(struct sockaddr_un, sun_path), n;
	ssize_t got;

	*ret = (struct address){ .len = 0 };
	if (len < 0 || (size_t)len > sizeof(ret->any))
		return -EINVAL;
	got = len > 0 ? cb_caller_read(q, q->n->data.args[1], &ret->any, (size_t)len) : 0;
	if (got != len)
		return got < 0 ? (int)got : -EFAULT;
	ret->len = (socklen_t)len;
	if ((size_t)len <= head || ret->head.sa_family != AF_UNIX)
		return 0;
	n = (size_t)len - head < sizeof(ret->path) - 1 ? (size_t)len - head : sizeof(ret->path) - 1;
	memcpy(ret->path, ret->named.sun_path, n); /* "" of an abstract address, which begins with a zero */
	ret->path[n] = '\0';
	return 0;
}

static int take_socket(struct cb_request *q, int *ret_fd, int *ret_family)
{
	CB_AUTO_FD fd = -1;
	socklen_t size = sizeof(*ret_family);
	int r = cb_caller_fd(q, cb_arg_int(q, 0), &fd);

	if (r < 0)
		return r;
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, ret_family, &size) < 0)
		return -errno;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

/* ---- bind ---- */

/* What the first thread is to bind: it alone has a root from which a path leads to the writable workspace. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum { IDLE, ASKED, ANSWERED } state;
	int fd, result;
	mode_t mask;
	struct sockaddr_un address;
} binder = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* A name alone is bound from its folder, anything else by the whole path: getsockname() tells what was bound. */
static int bind_name(int folder, const char *name, int fd, mode_t mask)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int r;

	if (fchdir(folder) < 0)
		return -EIO;
	memcpy(un.sun_path, name, strlen(name) + 1);
	(void)umask(mask);
	r = bind(fd, (const struct sockaddr *)&un, sizeof(un)) < 0 ? -errno : 0;
	if (fchdir(cb_notify_self.proc) < 0)
		abort(); /* the thread's place is what connect relies on */
	return r;
}

static int bind_path(const char *path, int fd, mode_t mask)
{
	uint64_t one = 1;
	int r;

	pthread_mutex_lock(&binder.lock); /* one at a time: cb_change_lock is held */
	binder.address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(binder.address.sun_path, path, strlen(path) + 1);
	binder.fd = fd;
	binder.mask = mask;
	binder.state = ASKED;
	(void)!write(sockets.wake, &one, sizeof(one));
	while (binder.state != ANSWERED)
		pthread_cond_wait(&binder.changed, &binder.lock);
	r = binder.result;
	binder.state = IDLE;
	pthread_mutex_unlock(&binder.lock);
	return r;
}

static void bind_for_others(void)
{
	pthread_mutex_lock(&binder.lock);
	if (binder.state == ASKED) {
		(void)umask(binder.mask);
		binder.result = bind(binder.fd, (const struct sockaddr *)&binder.address, sizeof(binder.address)) < 0
					? -errno
					: 0;
		binder.state = ANSWERED;
		pthread_cond_signal(&binder.changed);
	}
	pthread_mutex_unlock(&binder.lock);
}

/* The file system's own time: when a file without a name was made there, just now; 0 = it does not say. */
static int64_t time_in(int folder)
{
	CB_AUTO_FD fd = openat(folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

	return fd >= 0 ? cb_made_at(fd, "") : 0;
}

static int bind_entry(struct cb_request *q, const struct cb_entry *e, int folder, const char *asked, int fd)
{
	long mask = cb_caller_status(q, "\nUmask:\t", 8);
	char path[sizeof(cb_notify_self.target) + sizeof(e->path)];
	int64_t since;
	size_t room = sizeof(((struct sockaddr_un *)NULL)->sun_path);
	int r;

	snprintf(path, sizeof(path), "%s/%s", cb_notify_self.target, e->path);
	if (mask < 0)
		return -EIO;
	if (strlen(e->name) >= room)
		return -ENAMETOOLONG;
	since = time_in(folder);
	r = strcmp(asked, e->name) == 0 || strlen(path) >= room ? bind_name(folder, e->name, fd, (mode_t)mask)
								: bind_path(path, fd, (mode_t)mask);
	if (r < 0)
		return r;
	r = cb_sockets_bound(folder, e->name, since);
	if (r == -EBUSY) /* not ours to remove */
		return r;
	if (r < 0)
		(void)unlinkat(folder, e->name, 0);
	else
		cb_made_note(folder, e->name);
	return r;
}

void cb_serve_bind(struct cb_request *q)
{
	CB_AUTO_ENTRY e = CB_ENTRY_NONE;
	CB_AUTO_JUDGED j = CB_JUDGED_NONE;
	struct address address;
	CB_AUTO_FD fd = -1;
	int r = read_address(q, &address), family = 0;

	if (r < 0 || address.path[0] == '\0' || !cb_entry_find_string(q, AT_FDCWD, address.path, 0, &e) || e.there ||
	    e.folder_meant) {
		q->go_on = true;
		return;
	}
	r = take_socket(q, &fd, &family);
	if (r == 0 && family != AF_UNIX)
		r = -EAFNOSUPPORT;
	cb_change_lock();
	if (r == 0 && cb_notify_self.writes)
		r = cb_judge(&cb_notify_self.judge, e.path, CB_ACT_MAKE, S_IFSOCK, -1, &j);
	if (r == -EROFS)
		cb_refused_by(CB_REFUSED_NAME, e.path, j.refused);
	if (r == 0 && cb_notify_self.writes && !cb_entry_is_meant(&e, &j))
		r = -EROFS;
	if (r == 0)
		r = bind_entry(q, &e, cb_notify_self.writes ? j.parent : e.parent, address.path, fd);
	if (r == 0 && cb_notify_self.writes)
		r = cb_keep_made(&e, &j, 0);
	cb_change_unlock();
	cb_request_done(q, r);
}

/* ---- connect ---- */

static bool is_own(int fd, const struct stat *st)
{
	for (size_t i = 0; i < sockets.nown; i++)
		if (sockets.own[i] == st->st_dev)
			return true;
	return cb_sockets_known(fd, st);
}

/* Opens the socket that lies at the path, as the caller would find it. */
static int open_named(struct cb_request *q, const char *path, int *ret_fd)
{
	CB_AUTO_FD fd = -1;
	struct stat st;
	int r = cb_caller_path(q, AT_FDCWD, path, &fd);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISSOCK(st.st_mode))
		return -ECONNREFUSED;
	if (!is_own(fd, &st))
		return -ENETUNREACH; /* as of any server outside */
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

/* Again and again, for the call may not have begun when it comes. */
static void set_timer(bool on)
{
	const struct timespec often = { .tv_nsec = on ? CONNECT_NS : 0 };

	(void)timer_settime(timer, 0, &(struct itimerspec){ often, often }, NULL);
}

/* Without waiting, whatever the socket says of that. */
static int connect_now(int fd, const struct address *address, bool *ret_waits)
{
	int flags = fcntl(fd, F_GETFL), r;

	if (flags < 0)
		return -errno;
	*ret_waits = (flags & O_NONBLOCK) == 0;
	if (*ret_waits && fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	set_timer(true);
	r = connect(fd, &address->head, address->len) < 0 ? -errno : 0;
	set_timer(false);
	if (r == -EINTR) /* its flag has been taken away */
		r = address->head.sa_family == AF_UNIX ? -EAGAIN : -EINPROGRESS;
	if (*ret_waits)
		(void)fcntl(fd, F_SETFL, flags);
	return r;
}

/* A named socket is reached through our descriptor of it: its name may mean another by now. */
static int connect_named(struct cb_request *q, int fd, const struct address *address, bool *ret_waits)
{
	struct address by_fd = { .named = { .sun_family = AF_UNIX }, .len = sizeof(by_fd.named) };
	CB_AUTO_FD named = -1;
	int r = open_named(q, address->path, &named);

	if (r < 0)
		return r;
	snprintf(by_fd.named.sun_path, sizeof(by_fd.named.sun_path), "self/fd/%d", named);
	return connect_now(fd, &by_fd, ret_waits);
}

static int try_connect(struct cb_request *q, int fd, int family, const struct address *address, bool *ret_waits)
{
	*ret_waits = false;
	if (family == AF_UNIX && address->path[0] != '\0')
		return connect_named(q, fd, address, ret_waits);
	return connect_now(fd, address, ret_waits);
}

/* Hands the call to the first thread. */
static int wait_with(struct cb_request *q, int *fd, const struct address *address)
{
	struct waiter *w = NULL;
	uint64_t one = 1;

	pthread_mutex_lock(&sockets.lock);
	for (size_t i = 0; i < CB_NOTIFY_WAITERS && w == NULL; i++)
		if (sockets.waiters[i].request.n == NULL)
			w = &sockets.waiters[i];
	if (w != NULL) {
		w->request = *q;
		w->notification = *q->n;
		w->address = *address;
		w->socket = cb_fd_take(fd);
		w->request.slot = CB_NOTIFY_THREADS + (unsigned)(w - sockets.waiters);
		cb_notify_self.shared->busy[q->from][w->request.slot] = q->n->id;
		w->request.n = &w->notification; /* last: from here on it is taken */
		q->caller = -1;
		q->later = true;
	}
	pthread_mutex_unlock(&sockets.lock);
	(void)!write(sockets.wake, &one, sizeof(one));
	return w != NULL ? 0 : -EAGAIN;
}

void cb_serve_connect(struct cb_request *q)
{
	struct address address;
	CB_AUTO_FD fd = -1;
	bool waits = false;
	struct sockaddr peer;
	socklen_t size = sizeof(peer);
	int family = 0, r = read_address(q, &address);

	if (r == 0)
		r = take_socket(q, &fd, &family);
	if (r == 0 && family == AF_UNIX && getpeername(fd, &peer, &size) == 0)
		r = -EISCONN; /* perhaps a channel of the guest's, which would tell what listens on the host */
	if (r == 0)
		r = try_connect(q, fd, family, &address, &waits);
	if (waits && (r == -EINPROGRESS || (r == -EAGAIN && family == AF_UNIX)))
		r = wait_with(q, &fd, &address);
	q->error = r < 0 ? -r : 0;
}

/* ---- waiting ---- */

/* 0 and errors are results; -EAGAIN: not yet. */
static int look(struct waiter *w, bool ready)
{
	socklen_t size = sizeof(int);
	int error = 0;
	bool waits;

	if (ready && w->address.head.sa_family != AF_UNIX)
		return getsockopt(w->socket, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? -errno : -error;
	if (w->address.head.sa_family == AF_UNIX) {
		int r = try_connect(&w->request, w->socket, AF_UNIX, &w->address, &waits);

		if (r != -EAGAIN)
			return r;
	}
	if (!cb_notify_valid(&w->request))
		return -ESRCH;
	return cb_caller_interrupted(&w->request) ? -EINTR : -EAGAIN;
}

static void finish(struct waiter *w, int r)
{
	w->request.error = -r;
	w->request.later = false;
	cb_fd_close(&w->socket);
	cb_notify_answer(&w->request);
	pthread_mutex_lock(&sockets.lock);
	w->request.n = NULL;
	pthread_mutex_unlock(&sockets.lock);
}

/* What the first thread polls, before the waiters: the listeners, for their end alone, and what wakes it. */
#define WAKE CB_NOTIFY_FROMS
#define FIRST_WAITER (WAKE + 1)

static nfds_t gather(const bool ended[CB_NOTIFY_FROMS], struct pollfd *p, struct waiter **who)
{
	nfds_t n = FIRST_WAITER;

	for (size_t from = 0; from < CB_NOTIFY_FROMS; from++)
		p[from] = (struct pollfd){ .fd = ended[from] ? -1 : cb_notify_self.listeners[from] };
	p[WAKE] = (struct pollfd){ .fd = sockets.wake, .events = POLLIN };
	pthread_mutex_lock(&sockets.lock);
	for (struct waiter *w = sockets.waiters; w < sockets.waiters + CB_NOTIFY_WAITERS; w++) {
		if (w->request.n == NULL)
			continue;
		who[n] = w;
		/* of the Unix family nothing tells */
		p[n++] = (struct pollfd){ .fd = w->address.head.sa_family == AF_UNIX ? -1 : w->socket,
					  .events = POLLOUT };
	}
	pthread_mutex_unlock(&sockets.lock);
	return n;
}

/* Whether some listener can still tell of calls. */
static bool see_ends(const struct pollfd *p, bool ended[CB_NOTIFY_FROMS])
{
	bool some = false;

	for (size_t from = 0; from < CB_NOTIFY_FROMS; from++) {
		ended[from] |= cb_notify_self.listeners[from] < 0 || (p[from].revents & (POLLHUP | POLLERR)) != 0;
		some |= !ended[from];
	}
	return some;
}

_Noreturn void cb_sockets_wait(void)
{
	static struct pollfd p[FIRST_WAITER + CB_NOTIFY_WAITERS];
	static struct waiter *who[FIRST_WAITER + CB_NOTIFY_WAITERS];
	bool ended[CB_NOTIFY_FROMS] = { false };
	uint64_t count;

	for (;;) {
		nfds_t n = gather(ended, p, who);

		if (poll(p, n, n > FIRST_WAITER ? LOOK_MS : -1) < 0)
			continue;
		if (!see_ends(p, ended))
			_exit(0); /* nobody is left in the jail */
		if (p[WAKE].revents != 0)
			(void)!read(sockets.wake, &count, sizeof(count));
		bind_for_others();
		for (nfds_t i = FIRST_WAITER; i < n; i++) {
			int r = look(who[i], p[i].revents != 0);

			if (r != -EAGAIN)
				finish(who[i], r);
		}
	}
}
