/* The broker: builds jails on request, and takes them all with it when it ends.
 *
 * Trust domain: outside, with the rights it was started with, no secret. Single-threaded: pid 1's death signal is tied
 * to the thread that made it. Its only input is the socket (SPAWN with its fds, KILL with a number, OOM_FIRST and
 * OOM_LAST with that of one of its processes, the changes' with a pipe); a supervisor that was taken over can neither
 * change the description nor hand in anything but pipes and sockets. End of file on the socket is the supervisor's end:
 * all jails are killed. A broker that could not prepare stays, and answers every SPAWN with the reason.
 *
 * Where no control group holds a jail's memory it is looked at, and the supervisor told when it is short.
 */
#include "broker.h"

#include "../changes/overlay_changes.h"
#include "../changes/snapshot.h"
#include "../changes/workspace_scan.h"
#include "../changes/written.h"
#include "../shared/signals.h"
#include "../warm/warm.h"
#include "../without_namespaces/without_namespaces.h"
#include "launch.h"
#include "oom.h"
#include "prepare.h"
#include "watchdog.h"

#include <cellblock/child.h>
#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/log.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define JAILS_MAX 16 /* one lives, others may be dying */
#define END_MS 5000
#define ZYGOTE_MS 2000 /* a new kernel's first cells are not held up by the loading of a zygote for others */
#define OVER_MS 5000 /* a jail may be over limits.memory: time for the supervisor to end less than all of it */

struct inmate {
	uint32_t number; /* 0 = free */
	struct cb_inmate jail;
	struct cb_watchdog watchdog; /* where no control group counts */
	struct cb_flight flight;
	bool in_flight;		     /* it was killed for descriptors on their way */
	bool ending;		     /* pid 1 has ended; without namespaces more must be ended and removed */
	struct cb_without_namespaces_ending end;
};

struct broker {
	int fd;
	struct cb_jail_spec spec;
	struct cb_jail jail;
	struct cb_err broken; /* why no jail can be built at all */
	uint32_t spawned;
	bool swept;
	int64_t zygote_ms;   /* when one is to be started for the next kernels; 0 = none is to be */
	bool zygote_started; /* by us */
	struct inmate inmates[JAILS_MAX];
	pid_t layer_pid; /* a child that works on the changes */
	int layer_pidfd; /* -1 = none */
	bool restoring;	 /* it brings files back, through the jail's mount */
	bool writing;	 /* it does so, or writes changes through */
	bool stuck;	 /* it was killed, and hangs in the kernel */
	struct {	 /* a request for changes that waits for its end: it has answered, and is about to be gone */
		struct cb_broker_request request;
		int pipe; /* -1 = none */
	} changes;
	struct { /* a SPAWN that waits for the end of the jail before it, or for changes asked for before */
		bool waits;
		uint32_t number;
		int fds[CB_SPAWN_NFDS];
	} next;
};

static void kill_inmate(const struct inmate *inmate)
{
	(void)syscall(SYS_pidfd_send_signal, inmate->jail.pidfd, SIGKILL, NULL, 0);
}

static void reap_layer(struct broker *b)
{
	(void)cb_reap(b->layer_pid, NULL);
	cb_fd_close(&b->layer_pidfd);
	b->stuck = false;
}

/* One that is stuck in the kernel is left to die later, and no jail is built before. */
static void end_restoring(struct broker *b)
{
	b->stuck = !cb_kill_child(b->layer_pidfd);
	if (!b->stuck)
		reap_layer(b);
	else
		cb_log(CB_LOG_WARNING, "what brings files back hangs in the kernel: pid %d is left", (int)b->layer_pid);
}

/* Tells the supervisor of a jail's end, with what its group has counted. */
static void reap(struct broker *b, struct inmate *inmate)
{
	struct cb_broker_reply notice = { .event = CB_BROKER_ENDED, .jail = inmate->number };
	struct cb_cgroup_figures figures;

	cb_fd_close(&b->jail.merged_fd);	   /* no jail is launched before the last one's end */
	if (b->layer_pidfd >= 0 && b->restoring) /* nor while its files are written */
		end_restoring(b);
	if (b->changes.request.op == CB_BROKER_RESTORE) /* one that waits has nothing to come back to */
		cb_fd_close(&b->changes.pipe);
	cb_jail_ended(&b->jail, &inmate->jail, &figures);
	notice.oom = figures.oom;
	notice.memory_peak = figures.memory_peak;
	notice.watchdog = inmate->watchdog.over;
	if (inmate->in_flight || inmate->watchdog.is_kept_waiting)
		snprintf(notice.note, sizeof(notice.note), "%s", inmate->in_flight ? CB_FLIGHT_TEXT : CB_WAITING_TEXT);
	(void)cb_fd_send(b->fd, &notice, sizeof(notice), NULL, 0); /* one that has gone need not know */
	inmate->number = 0;
	inmate->ending = false;
}

static struct inmate *find(struct broker *b, uint32_t number)
{
	for (size_t i = 0; i < JAILS_MAX; i++)
		if (b->inmates[i].number == number)
			return &b->inmates[i];
	return NULL;
}

/* What can't be set stays as it is: a hardened host, or a process that has just ended or hides. */
static void score(const struct cb_inmate *jail, pid_t pid, bool victim)
{
	int r = cb_oom_score(jail->pid1, pid, victim);

	if (r < 0)
		cb_log(CB_LOG_DEBUG, "oom_score_adj of %d: %s", (int)pid, cb_err_name(r));
}

/* A socket pair's or a pipe's end, and nothing else: no file or folder of the host gets into a jail this way. */
static bool fds_are_plain(const int fds[CB_SPAWN_NFDS])
{
	for (int i = 0; i < CB_SPAWN_NFDS; i++) {
		bool socket = i == CB_SPAWN_WIRE || i == CB_SPAWN_LINK || i == CB_SPAWN_TWIN_CONTROL ||
			      i == CB_SPAWN_SIDE;
		struct stat st;

		if (fstat(fds[i], &st) < 0 || (st.st_mode & S_IFMT) != (socket ? S_IFSOCK : S_IFIFO))
			return false;
	}
	return true;
}

static int spawn(struct broker *b, const int fds[CB_SPAWN_NFDS], struct inmate **ret_inmate, struct cb_err *err)
{
	struct inmate *free_place = find(b, 0);
	int r;

	if (b->broken.code < 0) {
		*err = b->broken;
		return err->code;
	}
	if (free_place == NULL)
		return cb_err_set(err, -EBUSY, "broker", "Restart the kernel.", "%d jails have not ended yet",
				  JAILS_MAX);
	if (b->stuck)
		return cb_err_set(err, -EBUSY, "broker",
				  "Look whether a file system of the workspace hangs, then run the cell again.",
				  "files are still being brought back for the jail before");
	if (!fds_are_plain(fds))
		return cb_err_set(err, -EINVAL, "broker", NULL, "a jail is given sockets and pipes, nothing else");
	for (size_t i = 0; i < JAILS_MAX && b->jail.without_namespaces; i++)
		if (b->inmates[i].number != 0) /* its end will be that of all processes below us */
			return cb_err_set(err, -EBUSY, "broker", "Restart the kernel.", "a jail has not ended yet");
	memcpy(b->jail.guest_fds, fds, sizeof(b->jail.guest_fds));
	r = cb_jail_launch(&b->jail, &free_place->jail, err);
	if (r < 0)
		return r;
	free_place->number = ++b->spawned;
	free_place->watchdog = (struct cb_watchdog){ 0 };
	free_place->flight = (struct cb_flight){ 0 };
	free_place->in_flight = false;
	free_place->end = (struct cb_without_namespaces_ending){ 0 };
	*ret_inmate = free_place;
	return 0;
}

static void answer(struct broker *b, uint32_t number, const struct inmate *inmate, const struct cb_err *err)
{
	struct cb_broker_reply reply = { .event = CB_BROKER_SPAWNED, .code = err->code, .number = number };
	int fds[1 + CB_USAGE_NFDS] = { [0 ... CB_USAGE_NFDS] = -1 };
	bool whole = true;

	memcpy(reply.step, err->step, sizeof(reply.step));
	memcpy(reply.text, err->text, sizeof(reply.text));
	memcpy(reply.cure, err->cure, sizeof(reply.cure));
	if (inmate != NULL) {
		reply.jail = inmate->number;
		reply.guest_pid = inmate->jail.guest;
		reply.level = b->jail.level;
		reply.warm = inmate->jail.warm;
		memcpy(reply.note, b->jail.note, sizeof(reply.note));
		cb_cgroups_describe(&b->jail.cgroups, reply.limits, sizeof(reply.limits));
		fds[0] = inmate->jail.pidfd;
		whole = cb_cgroup_usage_fds(&inmate->jail.group, fds + 1) == 0;
	}
	if ((!whole || cb_fd_send(b->fd, &reply, sizeof(reply), fds, inmate != NULL ? 1 + CB_USAGE_NFDS : 0) < 0) &&
	    inmate != NULL)
		kill_inmate(inmate); /* nobody knows of it */
	for (int i = 0; i < CB_USAGE_NFDS; i++)
		cb_fd_close(&fds[1 + i]);
}

static bool is_ending(const struct broker *b)
{
	for (size_t i = 0; i < JAILS_MAX; i++)
		if (b->inmates[i].number != 0 && b->inmates[i].ending)
			return true;
	return false;
}

/* Takes the descriptors over if it must wait. */
static bool wait_with(struct broker *b, uint32_t number, int *fds, size_t nfds)
{
	if (b->next.waits || nfds != CB_SPAWN_NFDS || (!is_ending(b) && b->changes.pipe < 0))
		return false;
	b->next.waits = true;
	b->next.number = number;
	for (size_t i = 0; i < nfds; i++)
		b->next.fds[i] = cb_fd_take(&fds[i]);
	return true;
}

static void on_spawn(struct broker *b, uint32_t number, int *fds, size_t nfds)
{
	struct inmate *inmate = NULL;
	struct cb_err err = { 0 };

	if (wait_with(b, number, fds, nfds))
		return;
	if (nfds != CB_SPAWN_NFDS)
		cb_err_set(&err, -EINVAL, "broker", NULL, "a jail needs %d descriptors, not %zu", CB_SPAWN_NFDS, nfds);
	else
		(void)spawn(b, fds, &inmate, &err);
	answer(b, number, inmate, &err);
	if (!b->swept)
		cb_cgroups_sweep(&b->jail.cgroups);
	b->swept = true;
	if (inmate != NULL && !inmate->jail.warm && !b->zygote_started && cb_warm_is_wanted(&b->jail))
		b->zygote_ms = cb_now_ms() + ZYGOTE_MS;
}

static void spawn_next(struct broker *b)
{
	if (!b->next.waits || is_ending(b) || b->changes.pipe >= 0)
		return;
	b->next.waits = false;
	on_spawn(b, b->next.number, b->next.fds, CB_SPAWN_NFDS);
	for (size_t i = 0; i < CB_SPAWN_NFDS; i++)
		cb_fd_close(&b->next.fds[i]);
}

/* ---- the overlay workspace's changes ---- */

/* Pid 1 of the jail that was launched last, and alone may be alive; 0 = it has ended. */
static pid_t living(const struct broker *b)
{
	for (size_t i = 0; i < JAILS_MAX && b->spawned != 0; i++)
		if (b->inmates[i].number == b->spawned && !b->inmates[i].ending)
			return b->inmates[i].jail.pid1;
	return 0;
}

static void write_report(const struct broker *b, const struct cb_broker_request *request, int pipe)
{
	const struct cb_jail *jail = &b->jail;
	CB_AUTO_BUF out = CB_BUF_INIT(CB_LAYER_REPORT_MAX + 4096);

	if (request->op == CB_BROKER_LOOK)
		cb_look_report(jail, &out);
	else if (request->op == CB_BROKER_SNAPSHOT)
		cb_snapshot_take(jail, request->jail, &out);
	else if (request->op == CB_BROKER_RESTORE)
		cb_snapshot_restore(jail, living(b), request->jail, &out);
	else if (request->op == CB_BROKER_FORGET)
		cb_snapshot_drop(jail, request->jail, &out);
	else
		cb_layer_report(jail, request->op == CB_BROKER_COMMIT, &out);
	(void)cb_fd_write_all(pipe, out.data, out.len);
}

/* In a child, for it may take long. One that writes is not killed with us: what it has begun it finishes. */
static void begin_changes(struct broker *b, const struct cb_broker_request *request, int pipe)
{
	const struct cb_cgroup none = CB_CGROUP_EMPTY;
	int pidfd = -1, joined = 0;
	sigset_t stop;
	pid_t pid;

	if (request->op == CB_BROKER_COMMIT && b->jail.written == NULL)
		b->jail.written = cb_written_new();
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	pid = cb_cgroup_clone(&none, 0, &pidfd, &joined); /* no process without its pidfd: nobody would see its end */
	if (pid == 0)
		cb_layer_stop_on(SIGTERM); /* then it may come */
	sigprocmask(SIG_UNBLOCK, &stop, NULL);
	if (pid == 0) {
		cb_fd_close(&b->fd);
		if (request->op != CB_BROKER_RESTORE)
			cb_fd_close(&b->jail.merged_fd); /* it may outlive the jail, and the layer goes to the next */
		write_report(b, request, pipe);
		_exit(0);
	}
	b->layer_pidfd = pidfd;
	b->layer_pid = pid;
	b->restoring = request->op == CB_BROKER_RESTORE;
	b->writing = b->restoring || request->op == CB_BROKER_COMMIT;
	if (request->op == CB_BROKER_DISCARD) { /* whether they could be listed or not */
		cb_fd_close(&b->jail.upper_fd[CB_UPPER_WORKSPACE]);
		cb_fd_close(&b->jail.watch_fd);
	}
}

static void on_changes(struct broker *b, const struct cb_broker_request *request, int *fds, size_t nfds)
{
	struct stat st;

	if (nfds != 1 || fstat(fds[0], &st) < 0 || !S_ISFIFO(st.st_mode) || b->changes.pipe >= 0) {
		cb_log(CB_LOG_ERROR, "a request for changes was ignored: others wait, or it came without a pipe");
	} else if (b->layer_pidfd >= 0) {
		b->changes.request = *request;
		b->changes.pipe = cb_fd_take(&fds[0]);
	} else {
		begin_changes(b, request, fds[0]);
	}
}

static void begin_next_changes(struct broker *b)
{
	if (b->changes.pipe < 0 || b->layer_pidfd >= 0)
		return;
	begin_changes(b, &b->changes.request, b->changes.pipe);
	cb_fd_close(&b->changes.pipe);
}

/* Returns false at the supervisor's end. */
static bool on_request(struct broker *b)
{
	struct cb_broker_request request;
	int fds[CB_SPAWN_NFDS];
	size_t nfds = 0;
	ssize_t n = cb_fd_recv(b->fd, &request, sizeof(request), fds, CB_SPAWN_NFDS, &nfds, 0);
	struct inmate *inmate;
	uint32_t op;

	if (n == 0 || (n < 0 && n != -EMSGSIZE))
		return false;
	op = n == (ssize_t)sizeof(request) ? request.op : 0; /* 0 = it is none */
	if (op == CB_BROKER_SPAWN) {
		on_spawn(b, request.jail, fds, nfds);
	} else if (op == CB_BROKER_KILL || op == CB_BROKER_OOM_FIRST || op == CB_BROKER_OOM_LAST) {
		inmate = request.jail != 0 ? find(b, request.jail) : NULL; /* NULL: it has ended meanwhile */
		if (inmate != NULL && op == CB_BROKER_KILL)
			kill_inmate(inmate);
		else if (inmate != NULL)
			score(&inmate->jail, request.pid, op == CB_BROKER_OOM_FIRST);
	} else if (op >= CB_BROKER_CHANGES && op <= CB_BROKER_FORGET) {
		on_changes(b, &request, fds, nfds);
	} else if (op == CB_BROKER_STOP) {
		if (b->layer_pidfd >= 0)
			(void)syscall(SYS_pidfd_send_signal, b->layer_pidfd, SIGTERM, NULL, 0);
	} else if (op == CB_BROKER_DROP) {
		cb_jail_drop_packages(&b->jail);
	} else {
		cb_log(CB_LOG_ERROR, "a request that is none was ignored");
	}
	while (nfds > 0)
		cb_fd_close(&fds[--nfds]);
	return true;
}

static void look(struct broker *b, struct inmate *inmate)
{
	struct cb_broker_reply notice = { .event = CB_BROKER_MEMORY, .jail = inmate->number };
	struct cb_watchdog *w = &inmate->watchdog;
	struct pollfd p = { .fd = b->fd, .events = POLLOUT }; /* what is not read is not waited for */

	switch (cb_watchdog_look(w, &inmate->jail, &b->jail, b->jail.without_namespaces ? 0 : OVER_MS)) {
	case CB_WATCHDOG_KILL:
		kill_inmate(inmate);
		break;
	case CB_WATCHDOG_SHORT:
		notice.watchdog = w->now.bytes;
		notice.anonymous = w->now.anonymous;
		notice.looked_ms = w->began_ms;
		if (poll(&p, 1, 0) == 1)
			(void)cb_fd_send(b->fd, &notice, sizeof(notice), NULL, 0);
		break;
	case CB_WATCHDOG_FINE:
		break;
	}
}

/* Kills jails that keep their user's other programs from passing descriptors; -1 = there is none to look at. */
static int watch_descriptors(struct broker *b)
{
	struct inmate *end = b->inmates + JAILS_MAX;
	int wait = -1;

	for (struct inmate *inmate = b->inmates; inmate < end && !b->jail.from_root; inmate++) {
		if (inmate->number == 0 || inmate->ending || inmate->in_flight)
			continue;
		inmate->in_flight = cb_watchdog_in_flight(&inmate->flight, &inmate->jail, &b->jail);
		if (inmate->in_flight)
			kill_inmate(inmate);
		wait = CB_FLIGHT_MS;
	}
	return wait;
}

/* Milliseconds until the first of two things is due; -1 = none is. */
static int sooner(int a, int b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Looks at the jails whose memory no control group bounds; gives the milliseconds until the next look, -1 = none. */
static int watch(struct broker *b)
{
	int wait = -1;

	if (b->jail.cgroups.kind != CB_CGROUP_NONE || b->spec.limit_memory == 0)
		return -1;
	for (struct inmate *inmate = b->inmates; inmate < b->inmates + JAILS_MAX; inmate++) {
		if (inmate->number == 0 || inmate->ending || inmate->watchdog.over > 0)
			continue;
		look(b, inmate);
		if (inmate->watchdog.over == 0)
			wait = sooner(wait, cb_watchdog_wait(&inmate->watchdog));
	}
	return wait;
}

/* Jails whose pid 1 has ended: some have more to end, which takes its time. */
static void end_some(struct broker *b)
{
	for (struct inmate *inmate = b->inmates; inmate < b->inmates + JAILS_MAX; inmate++)
		if (inmate->number != 0 && inmate->ending &&
		    (!b->jail.without_namespaces || cb_without_namespaces_end_step(&b->jail, &inmate->end)))
			reap(b, inmate);
}

/* Starts the zygote that is due, or at our own end the one that would have been. */
static void start_zygote(struct broker *b, bool at_end)
{
	if (b->zygote_ms == 0 || (!at_end && cb_now_ms() < b->zygote_ms))
		return;
	b->zygote_ms = 0;
	b->zygote_started = true;
	cb_warm_start(&b->jail);
}

/* Waits for a request or the end of a jail. Returns false at the supervisor's end. */
static bool turn(struct broker *b)
{
	int wait = watch(b), soon = watch_descriptors(b);
	struct pollfd p[1 + JAILS_MAX + 1 + JAILS_MAX] = { { .fd = b->fd, .events = POLLIN } };

	p[1 + JAILS_MAX] = (struct pollfd){ .fd = b->layer_pidfd, .events = POLLIN };
	for (size_t i = 0; i < JAILS_MAX; i++) {
		const struct inmate *inmate = &b->inmates[i];

		p[1 + i] = (struct pollfd){ .fd = inmate->number != 0 && !inmate->ending ? inmate->jail.pidfd : -1,
					    .events = POLLIN };
		p[2 + JAILS_MAX + i] = (struct pollfd){ .fd = inmate->number != 0 ? inmate->jail.notifier.pidfd : -1,
							.events = POLLIN };
	}
	wait = sooner(wait, soon);
	if (b->zygote_ms != 0)
		wait = sooner(wait, b->zygote_ms > cb_now_ms() ? (int)(b->zygote_ms - cb_now_ms()) : 0);
	if (is_ending(b))
		wait = 1;
	if (poll(p, 1 + JAILS_MAX + 1 + JAILS_MAX, wait) < 0)
		return errno == EINTR;
	for (size_t i = 0; i < JAILS_MAX; i++)
		if (p[1 + i].revents != 0)
			b->inmates[i].ending = true;
	for (size_t i = 0; i < JAILS_MAX; i++)
		if (p[2 + JAILS_MAX + i].revents != 0)
			cb_notify_died(&b->jail, &b->inmates[i].jail.group, &b->inmates[i].jail.notifier);
	end_some(b);
	if (p[1 + JAILS_MAX].revents != 0)
		reap_layer(b);
	begin_next_changes(b);
	spawn_next(b);
	start_zygote(b, false);
	return p[0].revents == 0 || on_request(b);
}

static bool has_inmates(const struct broker *b)
{
	for (size_t i = 0; i < JAILS_MAX; i++)
		if (b->inmates[i].number != 0)
			return true;
	return false;
}

/* A death that does not come (a process stuck in the kernel) is not waited for: pid 1's death signal stands. */
static void end_all(struct broker *b)
{
	for (size_t i = 0; i < JAILS_MAX; i++)
		if (b->inmates[i].number != 0)
			kill_inmate(&b->inmates[i]);
	for (size_t i = 0; i < JAILS_MAX; i++) {
		if (b->inmates[i].number == 0 ||
		    cb_fd_await(b->inmates[i].jail.pidfd, POLLIN, cb_now_ms() + END_MS) < 0)
			continue;
		if (b->jail.without_namespaces)
			cb_without_namespaces_end(&b->jail);
		reap(b, &b->inmates[i]);
	}
}

/* It lives in the supervisor's process group, and the terminal's signals are the supervisor's to act on. */
static void ignore_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP, SIGUSR1, SIGUSR2 };

	for (size_t i = 0; i < CB_COUNT(numbers); i++)
		(void)signal(numbers[i], SIG_IGN);
	(void)signal(SIGCHLD, SIG_DFL);
}

int cb_broker_main(int fd, int spec_fd)
{
	static struct broker broker;
	struct broker *b = &broker;

	b->fd = fd;
	b->layer_pidfd = b->changes.pipe = -1;
	ignore_signals();
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (chdir("/") < 0) /* so that no folder of the host is held busy */
		cb_log(CB_LOG_WARNING, "chdir /: %s", cb_err_name(-errno));
	if (cb_jail_prepare(&b->jail, &b->spec, spec_fd, &b->broken) < 0)
		cb_log(CB_LOG_ERROR, "%s: %s", b->broken.step, b->broken.text);
	while (turn(b))
		;
	if (b->layer_pidfd >= 0 && !b->writing) /* nobody reads what it would say */
		(void)syscall(SYS_pidfd_send_signal, b->layer_pidfd, SIGKILL, NULL, 0);
	end_all(b);
	start_zygote(b, true);
	if (!has_inmates(b)) /* else a process has the uid still */
		cb_uid_release(&b->jail.uid_lock);
	return 0;
}
