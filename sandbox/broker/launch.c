/* Builds one jail: clones pid 1 into all its namespaces, writes the maps, waits until the guest's program runs.
 *
 * Trust domain: broker (or run) outside; pid1_main is the first code inside.
 * One clone makes all namespaces: the user namespace first, so the others belong to it. Pid 1 waits at a gate for its
 * maps; end of file there is the broker's death. The guest's process reports just before its exec, and the kernel adds
 * its pid as the broker sees it; the socket's end of file, caused by the exec alone, then means success. A launch has
 * LAUNCH_MS.
 *
 * Where a zygote listens the guest comes from it (warm/warm.h). Pid 1 is then made by a process which the zygote has a
 * right over, below the zygote's own process namespace; it is our own child all the same, so its death signal and its
 * end are ours. What fails on that way is a cold start, in a jail of its own.
 */
#include "launch.h"

#include "../init/init.h"
#include "../report/diagnose.h"
#include "../root/root.h"
#include "../shared/launch_trace.h"
#include "../shared/signals.h"
#include "../shared/sync.h"
#include "../walls/seccomp.h"
#include "../warm/warm.h"
#include "../without_namespaces/without_namespaces.h"
#include "oom.h"

#include <cellblock/child.h>
#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAUNCH_MS 30000 /* ten seconds were seen to pass on a machine with thirty programs for each core */

/* What making pid 1 takes. */
struct birth {
	struct cb_jail *jail;
	const struct cb_cgroup *group;
	const struct cb_warm *warm; /* NULL = cold */
	int broker_end;		    /* of the sync socket */
	struct made *made;	    /* warm: a page shared with who makes pid 1 */
};

/* What the makers of a warm jail's pid 1 have to say: in the broker's numbers. */
struct made {
	pid_t second;
	pid_t pid1;
	struct cb_err err;
};

/* ---- inside ---- */

static _Noreturn void pid1_main(struct birth *birth, int joined)
{
	struct cb_jail *jail = birth->jail;
	const struct cb_step *steps = jail->without_namespaces ? cb_without_namespaces_steps : cb_jail_steps;
	size_t n = jail->without_namespaces ? cb_without_namespaces_steps_count : cb_jail_steps_count;
	struct cb_err err = { 0 };
	struct cb_sync go;
	int r;

	cb_fd_close(&birth->broker_end); /* its end of file is others' to be seen */
	/* before it is undumpable, and sees another /proc */
	jail->oom_fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	jail->ns_fds[0] = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	jail->ns_fds[1] = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (cb_fd_recv(jail->sync_fd, &go, sizeof(go), NULL, 0, NULL, 0) != (ssize_t)sizeof(go))
		_exit(1); /* the broker has died or given up */
	r = joined;
	if (r < 0)
		cb_err_set(&err, r, "cgroup", NULL, "the jail can't be put into its control group: %s", strerror(-r));
	if (r == 0 && !jail->without_namespaces)
		r = cb_userns_enter(jail, &err);
	/* only now: the group that we are in by now becomes the root of what is seen */
	if (r == 0 && !jail->without_namespaces && unshare(CLONE_NEWCGROUP) < 0)
		r = cb_err_set(&err, -errno, "namespaces", NULL, "a new cgroup namespace is refused: %s",
			       strerror(errno));
	for (size_t i = 0; i < n && r == 0; i++) {
		cb_launch_mark(steps[i].name);
		r = steps[i].run(jail, &err);
	}
	if (r == 0)
		cb_init_main(jail);
	(void)cb_sync_send(jail->sync_fd, CB_SYNC_FAILED, &err, NULL);
	_exit(1);
}

/* ---- outside ---- */

static pid_t clone_pid1(const struct cb_jail *jail, const struct cb_cgroup *group, int *ret_pidfd, int *ret_joined)
{
	uint64_t flags =
		CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS; /* cgroup: pid1_main */

	if (jail->spec->network != CB_NETWORK_FULL)
		flags |= CLONE_NEWNET;
	return cb_cgroup_clone(group, jail->without_namespaces ? 0 : flags, ret_pidfd, ret_joined);
}

/* ---- pid 1 of a warm jail: its makers ---- */

/* A process's number as our /proc has it, whose ever namespace we are in. */
static pid_t number_of(int pidfd)
{
	char path[64], text[512];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	(void)cb_proc_text(AT_FDCWD, path, text, sizeof(text));
	return (pid_t)cb_proc_number(text, "\nPid:", 10, (uint64_t)-ESRCH);
}

/* Born in the zygote's process namespace, as who makes another below it has to be. */
static _Noreturn void second_main(struct birth *birth, int joined)
{
	struct cb_cgroup ours = CB_CGROUP_EMPTY; /* it is in the jail's already, and its child is born there */
	struct made *made = birth->made;
	CB_AUTO_FD pidfd = -1;
	uint64_t flags = CLONE_PARENT | CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
			 CLONE_NEWNET;
	int unused, pid = cb_cgroup_clone(&ours, flags, &pidfd, &unused);

	if (pid == 0)
		pid1_main(birth, joined);
	made->pid1 = pid < 0 ? pid : number_of(pidfd);
	if (made->pid1 < 0)
		cb_err_set(&made->err, made->pid1, "namespaces", NULL, "new namespaces are refused: %s",
			   strerror(-made->pid1));
	else
		(void)cb_userns_write_maps(birth->jail, made->pid1, &made->err);
	_exit(0);
}

/* What these two make is our child, as they are: but owned by whom they have become. The first waits for the second. */
static _Noreturn void first_main(struct birth *birth, int joined)
{
	long second = -1;

	if (cb_warm_become_owner(birth->warm, &birth->made->err) == 0) {
		second = syscall(SYS_clone, CLONE_PARENT | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
		if (second == 0)
			second_main(birth, joined);
		if (second < 0)
			cb_err_set(&birth->made->err, -errno, "namespaces", NULL, "clone: %s", strerror(errno));
	}
	birth->made->second = (pid_t)second;
	_exit(0);
}

/* As clone_pid1 and the maps. */
static pid_t have_pid1_made(struct birth *birth, int *ret_pidfd, struct cb_err *err)
{
	struct made *made = mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CB_AUTO_FD pidfd = -1;
	int joined;
	pid_t first, pid;

	if (made == MAP_FAILED)
		return cb_err_set(err, -errno, "launch", NULL, "a page that is shared: %s", strerror(errno));
	birth->made = made;
	first = cb_cgroup_clone(birth->group, 0, &pidfd, &joined);
	if (first == 0)
		first_main(birth, joined);
	(void)cb_reap(first, NULL);
	(void)cb_reap(made->second, NULL);
	pid = made->pid1;
	if (pid > 0)
		*ret_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	*err = made->err;
	if (pid > 0 && err->code == 0 && *ret_pidfd < 0)
		cb_err_set(err, -errno, "pid 1", NULL, "pidfd_open: %s", strerror(errno));
	if (pid <= 0 && err->code == 0)
		cb_err_set(err, -ECHILD, "namespaces", NULL, "the process that makes pid 1 has ended");
	(void)munmap(made, sizeof(*made));
	return pid > 0 ? pid : err->code;
}

/* ---- the launch ---- */

static int await_message(int fd, int64_t deadline, struct cb_err *err)
{
	int r = cb_fd_await(fd, POLLIN, deadline);

	if (r == -ETIMEDOUT)
		return cb_err_set(err, -ETIMEDOUT, cb_launch_phase(),
				  "Look whether a network file system or the machine hangs.",
				  "the jail was not ready within %d seconds: it hung at \"%s\"", LAUNCH_MS / 1000,
				  cb_launch_phase());
	return r;
}

/* What is told from inside, and to whom. */
struct talk {
	struct cb_jail *jail;
	struct cb_warm *warm; /* NULL = cold */
	struct cb_inmate *inmate;
	int fd;
	pid_t pid1;
	pid_t guest; /* 0 = there is none yet */
};

/* If pid 1 has ended, the end of file says so. */
static int let_go_on(int fd, struct cb_err *err)
{
	int r = cb_sync_send(fd, CB_SYNC_GO, NULL, NULL);

	return r == 0 || r == -EPIPE || r == -ECONNRESET
		       ? 0
		       : cb_err_set(err, r, "sync socket", NULL, "pid 1 can't be let go on: %s", strerror(-r));
}

/* What the broker held before is of no use any more. */
static int keep(int *held, int *fd)
{
	cb_fd_close(held);
	*held = cb_fd_take(fd);
	return 0;
}

static int take_notifier(struct talk *t, uint32_t which, int *fd, struct cb_err *err)
{
	struct cb_inmate *inmate = t->inmate;
	int r = 0;

	if (which > CB_NOTIFY_LISTENER || inmate->notifier.fds[which] >= 0)
		return cb_err_set(err, -EBADMSG, "notifier", NULL, "pid 1 handed over a descriptor that is none");
	inmate->notifier.fds[which] = cb_fd_take(fd);
	if (which == CB_NOTIFY_LISTENER) {
		r = cb_notify_start(t->jail, &inmate->group, &inmate->notifier, err);
		if (r == 0)
			r = let_go_on(t->fd, err); /* the guest may begin */
	}
	return r;
}

static int keep_offer(struct cb_warm *warm, uint32_t which, int *fd, struct cb_err *err)
{
	if (which >= CB_WARM_NFDS || *fd < 0 || warm->offered[which] >= 0)
		return cb_err_set(err, -EBADMSG, "zygote", NULL, "pid 1 offered a descriptor that is none");
	warm->offered[which] = cb_fd_take(fd);
	return 0;
}

/* The jail is ready: a guest from the zygote comes into it, and waits to be let go on. */
static int fetch_guest(struct talk *t, struct cb_err *err)
{
	struct cb_inmate *inmate = t->inmate;
	int *listener = &inmate->notifier.fds[CB_NOTIFY_LISTENER];
	int r = cb_warm_ask(t->warm, t->jail, &inmate->group, inmate->pidfd, &t->guest, listener, err);

	if (r == 0 && *listener < 0 && cb_notify_installed(t->jail))
		r = cb_err_set(err, -EBADMSG, "zygote", NULL, "the guest has handed over no listener");
	return r == 0 && *listener >= 0 ? cb_notify_start(t->jail, &inmate->group, &inmate->notifier, err) : r;
}

static int note_registry(struct cb_inmate *inmate, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	inmate->registry = st.st_ino;
	return 0;
}

static int take_message(struct talk *t, const struct cb_sync *message, pid_t sender, int *fd, struct cb_err *err)
{
	struct cb_jail *jail = t->jail;

	switch ((enum cb_sync_kind)message->kind) {
	case CB_SYNC_FAILED:
		*err = message->err;
		return err->code < 0 ? err->code : -EIO;
	case CB_SYNC_UPPER:
		return message->upper < CB_UPPERS ? keep(&jail->upper_fd[message->upper], fd) : 0;
	case CB_SYNC_MERGED:
		return keep(&jail->merged_fd, fd);
	case CB_SYNC_WATCH:
		return keep(&jail->watch_fd, fd);
	case CB_SYNC_SOCKETS:
		return keep(&jail->sockets_fd, fd);
	case CB_SYNC_REGISTRY:
		return note_registry(t->inmate, *fd);
	case CB_SYNC_NOTIFIER:
		return take_notifier(t, message->upper, fd, err);
	case CB_SYNC_WARM:
		if (!jail->warm)
			break;
		return keep_offer(t->warm, message->upper, fd, err);
	case CB_SYNC_READY:
		if (!jail->warm || t->guest != 0)
			break;
		return fetch_guest(t, err);
	case CB_SYNC_GUEST:
		if (!jail->warm)
			t->guest = sender;
		memcpy(jail->note, message->note, sizeof(jail->note));
		return 0;
	case CB_SYNC_GO:
		break;
	}
	return cb_err_set(err, -EBADMSG, cb_launch_phase(), NULL, "pid 1 said what it may not");
}

static int tell_end(const struct talk *t, struct cb_err *err)
{
	siginfo_t end = { .si_pid = 0 };
	char how[32] = "";

	if (cb_await_child(t->inmate->pidfd))
		(void)waitid(P_PID, (id_t)t->pid1, &end, WEXITED | WNOHANG | WNOWAIT);
	if (end.si_pid > 0)
		snprintf(how, sizeof(how), ", with %s %d", end.si_code == CLD_EXITED ? "status" : "signal",
			 end.si_status);
	return cb_err_set(err, -ECHILD, cb_launch_phase(), NULL, "the jail's first process ended at \"%s\"%s",
			  cb_launch_phase(), how);
}

/* For the log: what holds up a launch is known to the kernel alone, and gone when pid 1 is put down. */
static void log_where(pid_t pid1)
{
	static const char *const names[] = { "wchan", "syscall" };
	char path[64], text[2][128];
	struct cb_proc_stat stat = { .state = '?' };

	(void)cb_proc_stat_of(pid1, &stat);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid1, names[i]);
		if (cb_proc_text(AT_FDCWD, path, text[i], sizeof(text[i])) < 0)
			text[i][0] = '\0';
		text[i][strcspn(text[i], "\n")] = '\0';
	}
	cb_log(CB_LOG_WARNING, "the jail's first process hangs: state %c, in \"%s\", system call \"%s\"", stat.state,
	       text[0], text[1]);
}

static int await_guest(struct talk *t, struct cb_err *err)
{
	int64_t deadline = cb_now_ms() + LAUNCH_MS;

	for (;;) {
		struct cb_sync message;
		CB_AUTO_FD given = -1;
		pid_t sender = 0;
		int r = await_message(t->fd, deadline, err);
		ssize_t n = r == 0 ? cb_fd_recv_from(t->fd, &message, sizeof(message), &sender, &given, 0) : 0;

		if (r == -ETIMEDOUT)
			log_where(t->pid1);
		if (r < 0)
			return r;
		if (n > 0 && n != (ssize_t)sizeof(message))
			n = -EBADMSG;
		if (n < 0)
			return cb_err_set(err, (int)n, cb_launch_phase(), NULL, "no word from inside the jail: %s",
					  strerror((int)-n));
		if (n == 0 && t->guest == 0)
			return tell_end(t, err);
		if (n == 0) {
			t->inmate->guest = t->guest;
			return t->jail->warm ? cb_warm_go_on(t->warm, err) : 0;
		}
		r = take_message(t, &message, sender, &given, err);
		if (r < 0)
			return r;
	}
}

/* By its number: its descriptor may be what could not be had. */
static void put_down(pid_t pid1, int pidfd)
{
	(void)kill(pid1, SIGKILL);
	if (cb_await_child(pidfd))
		(void)cb_reap(pid1, NULL);
}

/* Pid 1, with its maps written; it starts in pid1_main and never comes back. */
static pid_t make_pid1(struct birth *birth, int *ret_pidfd, struct cb_err *err)
{
	struct cb_jail *jail = birth->jail;
	int joined;
	pid_t pid;

	if (jail->warm)
		return have_pid1_made(birth, ret_pidfd, err);
	pid = clone_pid1(jail, birth->group, ret_pidfd, &joined);
	if (pid == 0)
		pid1_main(birth, joined);
	if (pid < 0)
		return cb_err_set(err, pid, "namespaces", NULL, "new namespaces are refused: %s", strerror(-pid));
	cb_launch_mark("maps");
	if (!jail->without_namespaces)
		(void)cb_userns_write_maps(jail, pid, err);
	return pid;
}

/* Where it has one of its own, ours would show others' sockets for its. */
static bool has_our_network(const struct cb_jail *jail)
{
	return jail->without_namespaces || jail->spec->network == CB_NETWORK_FULL;
}

static int launch(struct cb_jail *jail, struct cb_warm *warm, struct cb_inmate *inmate, struct cb_err *err)
{
	int pair[2], on = 1, pid, r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return cb_err_set(err, -errno, "sync socket", NULL, "socketpair: %s", strerror(errno));
	CB_AUTO_FD mine = pair[0];
	struct birth birth = { .jail = jail, .group = &inmate->group, .warm = warm, .broker_end = mine };
	struct talk talk = { .jail = jail, .warm = warm, .inmate = inmate, .fd = mine };

	jail->sync_fd = pair[1];
	r = setsockopt(mine, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ? -errno : 0;
	if (r < 0)
		cb_err_set(err, r, "sync socket", NULL, "SO_PASSCRED: %s", strerror(-r));
	if (r == 0 && jail->warm && jail->pid1_filter.len == 0)
		r = cb_seccomp_compile_outer(true, &jail->pid1_filter, err);
	cb_launch_mark("clone");
	pid = r == 0 ? make_pid1(&birth, &inmate->pidfd, err) : r;
	cb_fd_close(&jail->sync_fd);
	if (pid < 0)
		return pid;
	r = err->code;
	talk.pid1 = pid;
	if (r == 0)
		r = let_go_on(mine, err);
	if (r == 0)
		r = await_guest(&talk, err);
	if (r < 0) {
		put_down(pid, inmate->pidfd);
		cb_notify_stop(&inmate->notifier);
		cb_fd_close(&inmate->pidfd);
		return r;
	}
	(void)cb_oom_score(pid, inmate->guest, true); /* a hardened host may refuse it */
	cb_launch_mark("ready");
	inmate->pid1 = pid;
	inmate->sockets = cb_fd_take(&jail->sockets_fd);
	if (inmate->sockets < 0 && jail->cgroups.kind == CB_CGROUP_NONE && has_our_network(jail))
		inmate->sockets = cb_kernel_sockets();
	return 0;
}

/* Whether a jail's namespaces can be had at all; the child that is born in them ends at once. */
static int try_namespaces(const struct cb_jail *jail, struct cb_err *err)
{
	struct cb_cgroup none = CB_CGROUP_EMPTY;
	CB_AUTO_FD pidfd = -1;
	int joined, pid = clone_pid1(jail, &none, &pidfd, &joined);

	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return cb_err_set(err, pid, "namespaces", NULL, "new namespaces are refused: %s", strerror(-pid));
	(void)cb_reap(pid, NULL);
	return 0;
}

/* Started by root, a user namespace is needed before the clone too, for the workspace; then that is not to be blamed.
 */
static int open_workspace(struct cb_jail *jail, struct cb_err *err)
{
	struct cb_err refused = { 0 };
	int r = cb_workspace_open(jail, err);

	if (r < 0 && jail->from_root && try_namespaces(jail, &refused) < 0)
		*err = refused;
	return r < 0 ? err->code : 0;
}

/* Without namespaces that has a note of its own. */
static void note_no_filter(struct cb_jail *jail)
{
	char text[sizeof(jail->note)];

	snprintf(text, sizeof(text),
		 "isolation level \"none\", since there is no filter of system calls (%s): cells can make any "
		 "call, and only the other walls stand",
		 jail->refused);
	cb_jail_add_note(jail, text);
}

static int attempt(struct cb_jail *jail, struct cb_warm *warm, struct cb_inmate *inmate, struct cb_err *err)
{
	int r = cb_launch_trace_start();

	if (r < 0)
		return cb_err_set(err, r, "launch", NULL, "no memory for the trace: %s", strerror(-r));
	jail->note[0] = '\0';
	if (!jail->without_namespaces && jail->filter.len == 0)
		note_no_filter(jail);
	cb_fd_close(&jail->merged_fd); /* a layer serves one mount */
	cb_fd_close(&jail->sockets_fd);
	cb_launch_mark("cgroup");
	r = cb_cgroup_make(&jail->cgroups, jail->spec, &inmate->group, err);
	cb_launch_mark("open workspace");
	if (r == 0)
		r = jail->without_namespaces ? cb_without_namespaces_open(jail, err) : open_workspace(jail, err);
	if (r == 0)
		r = launch(jail, warm, inmate, err);
	cb_workspace_close(jail);
	if (r < 0 && jail->without_namespaces)
		cb_without_namespaces_end(jail);
	if (r < 0)
		cb_cgroup_remove(&jail->cgroups, &inmate->group);
	return r;
}

void cb_jail_drop_packages(struct cb_jail *jail)
{
	if (jail->upper_fd[CB_UPPER_PACKAGES] < 0)
		return;
	cb_fd_close(&jail->upper_fd[CB_UPPER_PACKAGES]);
	jail->packages_dropped = true;
}

/* True if the guest came from a zygote. */
static bool launch_warm(struct cb_jail *jail, struct cb_inmate *inmate)
{
	struct cb_warm warm = CB_WARM_NONE;
	struct cb_err failure = { 0 };
	int r;

	if (!cb_warm_is_wanted(jail))
		return false;
	r = cb_warm_find(jail, &warm);
	if (r < 0) {
		cb_log(CB_LOG_DEBUG, "no zygote: %s", cb_err_name(r));
		return false;
	}
	jail->warm = true;
	r = attempt(jail, &warm, inmate, &failure);
	jail->warm = false;
	cb_warm_close(&warm);
	inmate->warm = r == 0;
	if (r < 0)
		cb_log(CB_LOG_WARNING, "a cold start, for the zygote gave no guest: %s: %s", failure.step,
		       failure.text);
	return r == 0;
}

/* The watchdog would find nobody. */
static void note_hidden(struct cb_jail *jail, pid_t pid1)
{
	if (jail->cgroups.kind != CB_CGROUP_NONE || jail->spec->limit_memory == 0 || cb_proc_shows_children(pid1) == 0)
		return;
	cb_jail_add_note(jail, cb_proc_shows_children(getpid()) == 0
				       ? "limits.memory holds for each process, not for all together: this host's "
					 "/proc hides processes (hidepid), and there is no control group"
				       : "limits.memory holds for each process, not for all together: this host's "
					 "kernel does not tell a process's children (CONFIG_PROC_CHILDREN), and there "
					 "is no control group");
}

int cb_jail_launch(struct cb_jail *jail, struct cb_inmate *ret_inmate, struct cb_err *err)
{
	struct cb_inmate inmate = CB_INMATE_NONE;
	struct cb_err failure = { 0 };
	bool layered = jail->upper_fd[CB_UPPER_PACKAGES] >= 0;
	int r = launch_warm(jail, &inmate) ? 0 : attempt(jail, NULL, &inmate, &failure);

	if (r < 0 && layered && strcmp(failure.step, "exec") == 0) {
		/* a cell has deleted the interpreter from the layer over its prefix */
		cb_jail_drop_packages(jail);
		failure = (struct cb_err){ 0 };
		r = attempt(jail, NULL, &inmate, &failure);
	}
	if (r < 0)
		cb_diagnose(failure.step, failure.code, &failure);
	if (r < 0 && !jail->without_namespaces && cb_without_namespaces_choose(jail, &failure)) {
		failure = (struct cb_err){ 0 };
		r = attempt(jail, NULL, &inmate, &failure);
	}
	if (r == 0) {
		if (jail->packages_dropped)
			cb_jail_add_note(jail,
					 "packages: what was installed or deleted in this session is undone: Python "
					 "could not be started with it");
		jail->packages_dropped = false;
		jail->began = true;
		note_hidden(jail, inmate.pid1);
		cb_launch_log();
		*ret_inmate = inmate;
		return 0;
	}
	if (failure.code >= 0) /* whoever failed had no more to say; without a code it would be no failure */
		cb_err_set(&failure, r, cb_launch_phase(), NULL, "%s", strerror(-r));
	if (err != NULL)
		*err = failure;
	return r;
}

void cb_jail_ended(struct cb_jail *jail, struct cb_inmate *inmate, struct cb_cgroup_figures *ret_figures)
{
	(void)cb_reap(inmate->pid1, NULL);
	cb_notify_stop(&inmate->notifier);
	cb_cgroup_read(&inmate->group, jail->spec, ret_figures);
	cb_cgroup_remove(&jail->cgroups, &inmate->group);
	cb_fd_close(&inmate->pidfd);
	cb_fd_close(&inmate->sockets);
	*inmate = CB_INMATE_NONE;
}
