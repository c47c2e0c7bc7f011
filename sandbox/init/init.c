/* Pid 1 of a jail, after its steps: starts the guest and helpers, reaps, forwards signals, reports the end.
 *
 * Trust domain: inside the jail, but ours: undumpable, under the guest's own filter, without capabilities, or any fd
 * that leads out but the link to the supervisor and its own rank for the OOM killer. When it ends the kernel kills all
 * others in the jail, so every way out of here is _exit. It allocates nothing.
 *
 * In a warm jail the guest is no child that we have forked: it comes from a zygote, registers as number 0, and gets our
 * limits.
 *
 * What happens: a child ended or stopped (SIGCHLD), the supervisor speaks (struct cb_init_msg) or is gone (end of
 * file), a twin registers (twins.c). The guest's end is the jail's, unless a twin can take over.
 */
#include "init.h"

#include "../jobs/job.h"
#include "../notifier/notifier.h"
#include "../shared/launch_trace.h"
#include "../shared/signals.h"
#include "../shared/sync.h"
#include "../walls/limits.h"
#include "../walls/seccomp.h"
#include "../without_namespaces/without_namespaces.h"
#include "parts.h"
#include "twins.h"

#include <cellblock/fd.h>
#include <cellblock/twin.h>
#include <cellblock/warm.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FREEZE_MS 10	    /* a stop is repeated so often */
#define FREEZE_MAX_MS 1000  /* where nobody is left who could undo it unseen */
#define HEARD_MAX 1024	    /* messages; sockets hold fewer */

/* Where the kernel does not end all with us, we do. */
static uid_t sweep_uid;
static bool must_sweep;

static struct {
	const struct cb_jail *jail;
	pid_t guest;
	bool twins;  /* may register: where nothing stands between a jail's processes and others there are none */
	bool frozen; /* the guest has ended, and nobody runs until the supervisor says so */
	bool alone;  /* and only twins are left, our children: we hear of one that goes on all the same */
	bool died;   /* one that took over did while frozen: that is told when it would run again */
	int status;
} self;

static _Noreturn void leave(int status)
{
	if (must_sweep)
		cb_sweep(sweep_uid);
	_exit(status);
}

static _Noreturn void fail(int sync_fd, const struct cb_err *err)
{
	(void)cb_sync_send(sync_fd, CB_SYNC_FAILED, err, NULL);
	_exit(127);
}

/* ---- the guest's process, until its exec ---- */

/* A cell may have removed the folder that the kernel was started in, or closed the workspace. In an overlay nobody
 * outside could put it back, and no cell would run any more. What was never there is a mistake that the user is told
 * of. */
static int enter_folder(struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;
	const char *cwd = spec->cwd, *workspace = jail->began ? spec->workspace_target : NULL;
	const char *home = CB_JAIL_HOME, *place = "the workspace's own folder";
	char cwd_buf[PATH_MAX], workspace_buf[PATH_MAX], home_buf[PATH_MAX], text[400];
	int r;

	if (jail->without_namespaces) {
		cwd = cb_without_namespaces_path(jail, cwd, cwd_buf);
		if (workspace != NULL)
			workspace = cb_without_namespaces_path(jail, workspace, workspace_buf);
		home = cb_without_namespaces_path(jail, home, home_buf);
	}
	r = cb_enter_folder(cwd, workspace);
	if (r < 0 && jail->began && chdir(home) == 0) {
		place = "the jail's home";
		r = 1;
	}
	if (r < 0)
		return cb_err_set(err, r, "working folder", "Name a folder that exists inside the jail.",
				  "%s can't be entered: %s", spec->cwd, strerror(-r));
	if (r > 0) {
		snprintf(text, sizeof(text), "%.300s can't be entered any more: cells begin in %s", spec->cwd, place);
		cb_jail_add_note(jail, text);
	}
	return 0;
}

static _Noreturn void fail_exec(const struct cb_jail *jail, const char *program, int error, int sync_fd)
{
	bool lacks = error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES;
	struct cb_err err = { 0 };

	if (lacks && cb_jail_may_lack(jail, program))
		cb_err_set(&err, -error, "exec", CB_JAIL_LACKS_CURE,
			   "%s can't be started: %s; cells have removed or replaced it in the layer of changes",
			   program, strerror(error));
	else
		cb_err_set(&err, -error, "exec", "Name a program that the jail can see and run.",
			   "%s can't be started: %s", program, strerror(error));
	fail(sync_fd, &err);
}

static _Noreturn void guest_main(struct cb_jail *jail, int registry, int sync_fd)
{
	const struct cb_jail_spec *spec = jail->spec;
	char **argv = spec->argv.items, **env = spec->env.items;
	struct cb_err err = { 0 };
	struct cb_sync go;

	(void)setsid(); /* its own group, so that signals to it leave pid 1 alone */
	cb_default_signals();
	if (cb_fds_install(jail, registry, &sync_fd, &err) < 0 || enter_folder(jail, &err) < 0)
		fail(sync_fd, &err);
	if (!jail->without_namespaces && jail->filter.len > 0 && cb_seccomp_load_last(&err) < 0)
		fail(sync_fd, &err);
	if (jail->without_namespaces && (cb_without_namespaces_command(jail, &argv, &env) < 0 ||
					 cb_without_namespaces_enclose(jail, &err) < 0))
		fail(sync_fd, &err);
	cb_launch_mark("exec");
	if (cb_sync_send(sync_fd, CB_SYNC_GUEST, NULL, jail->note) < 0)
		_exit(127);
	/* before there is anybody who could keep the notifier from starting */
	if (cb_notify_installed(jail) && cb_fd_recv(sync_fd, &go, sizeof(go), NULL, 0, NULL, 0) != (ssize_t)sizeof(go))
		_exit(127);
	execve(argv[0], argv, env != NULL ? env : (char *[]){ NULL });
	fail_exec(jail, argv[0], errno, sync_fd);
}

/* ---- a guest that comes from a zygote ---- */

/* What the copy needs to enter the jail, and what it shares with us. */
static int offer(const struct cb_jail *jail, int registry)
{
	static const char *const spaces[] = CB_WARM_NAMESPACES;
	int r = cb_sync_send_fd(jail->sync_fd, CB_SYNC_WARM, CB_WARM_REGISTRY, registry);

	if (r == 0 && jail->rules_fd >= 0)
		r = cb_sync_send_fd(jail->sync_fd, CB_SYNC_WARM, CB_WARM_RULES, jail->rules_fd);
	for (size_t i = 0; i < CB_COUNT(spaces) && r == 0; i++) {
		char path[64];
		CB_AUTO_FD fd = -1;

		snprintf(path, sizeof(path), "/proc/self/ns/%s", spaces[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		r = fd < 0 ? -errno : cb_sync_send_fd(jail->sync_fd, CB_SYNC_WARM, CB_WARM_NS_USER + (uint32_t)i, fd);
	}
	return r == 0 ? cb_sync_send(jail->sync_fd, CB_SYNC_READY, NULL, NULL) : r;
}

static int give_limits(pid_t guest)
{
	for (int i = 0; i < RLIM_NLIMITS; i++) {
		struct rlimit limit;

		if (getrlimit((__rlimit_resource_t)i, &limit) < 0 ||
		    prlimit(guest, (enum __rlimit_resource)i, &limit, NULL) < 0)
			return -errno;
	}
	return 0;
}

/* Until it says that the guest may go on, nobody in the jail runs code that is not ours. */
static void await_warm_guest(void)
{
	struct cb_registry_msg message = { .number = 1 };
	struct cb_err err = { 0 };
	pid_t sender = 0;
	ssize_t n = cb_fd_recv_from(CB_INIT_FD_REGISTRY, &message, sizeof(message), &sender, NULL, MSG_DONTWAIT);
	int r;

	if (n == -EAGAIN)
		return;
	if (n != (ssize_t)sizeof(message) || message.number != 0 || sender <= 1 || getsid(sender) != sender)
		leave(1);
	r = give_limits(sender);
	if (r < 0) {
		cb_err_set(&err, r, "limits", NULL, "the guest's limits can't be set: %s", strerror(-r));
		(void)cb_sync_send(CB_INIT_FD_SYNC, CB_SYNC_FAILED, &err, NULL);
		leave(1);
	}
	self.guest = sender;
	(void)cb_sync_send(CB_INIT_FD_SYNC, CB_SYNC_GUEST, NULL, self.jail->note);
	(void)close(CB_INIT_FD_SYNC);
}

/* ---- pid 1 ---- */

void cb_init_tell_end(uint32_t op, int arg, int status)
{
	struct cb_init_msg message = { .op = op, .arg = arg, .status = status };

	(void)cb_fd_send(CB_INIT_FD_LINK, &message, sizeof(message), NULL, 0);
}

void cb_init_tell(uint32_t op, int arg)
{
	cb_init_tell_end(op, arg, 0);
}

static bool obey(void);

/* What was said before the guest ended counts, most of all that there is a twin; but others may go on talking. */
static void guest_ended(int status)
{
	pid_t ended = self.guest;

	for (int i = 0; i < HEARD_MAX && (obey() || cb_twins_register(CB_INIT_FD_REGISTRY, self.guest) > 0); i++)
		;
	if (self.guest != ended)
		return; /* a take-over was ordered meanwhile */
	if (!cb_twins_any()) {
		cb_init_tell(CB_INIT_EXITED, status);
		leave(0);
	}
	cb_twins_stop_all();
	self.frozen = true;
	cb_init_tell(CB_INIT_EXITED, status);
}

/* A guest or a branch that is stopped, which is nothing that we do while they run, can't go on by itself. */
static void reaped(pid_t pid, int status)
{
	if (WIFCONTINUED(status)) {
		cb_twins_continued(pid);
	} else if (pid == self.guest && !self.frozen) {
		guest_ended(status);
	} else if (pid == self.guest && !WIFSTOPPED(status)) {
		self.died = true;
		self.status = status;
	} else if (!WIFSTOPPED(status) || !self.frozen) {
		cb_twins_reaped(pid, status);
	}
}

/* True if there may be more, of which no signal tells any more. Cells can have orphans end, or stop and go on, as fast
 * as they are reaped: the supervisor is heard in between. */
static bool reap(void)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid = 1;

	(void)!read(CB_INIT_FD_SIGNALS, &info, sizeof(info));
	for (int i = 0; i < CB_REAPED_A_TURN && pid > 0; i++) {
		pid = waitpid(-1, &status, self.twins ? WNOHANG | WUNTRACED | WCONTINUED : WNOHANG);
		if (pid > 0)
			reaped(pid, status);
	}
	return pid > 0;
}

/* A job's helper dies with the others. */
static void restore(uint32_t number)
{
	pid_t guest = 0;
	int r;

	self.frozen = true;
	r = cb_twins_restore(number, &guest);
	if (r == -ESRCH) {
		cb_init_tell(CB_INIT_GONE, (int)number);
		return;
	}
	if (r < 0)
		leave(0);
	self.guest = guest;
	self.died = false;
	self.alone = !cb_twins_any_branch();
	cb_init_tell(CB_INIT_RESTORED, (int)number);
}

/* Files are back. */
static void go_on(void)
{
	if (!self.frozen)
		return;
	self.frozen = self.alone = false;
	cb_twins_go_on();
	if (self.died)
		guest_ended(self.status);
}

/* The OOM killer takes a command as soon as the guest. A child inherits its rank, and the helper can't raise it. */
static pid_t fork_victim(void)
{
	char own[32];
	ssize_t n = pread(CB_INIT_FD_OOM, own, sizeof(own), 0);
	pid_t pid;

	if (n > 0)
		(void)!pwrite(CB_INIT_FD_OOM, CB_OOM_VICTIM, strlen(CB_OOM_VICTIM), 0);
	pid = fork();
	if (n > 0 && pid != 0)
		(void)!pwrite(CB_INIT_FD_OOM, own, (size_t)n, 0);
	return pid;
}

/* Its end is nobody's to wait for: the supervisor sees that of the socket. */
static void start_job(const struct cb_jail *jail, int fd)
{
	pid_t pid = fork_victim();

	if (pid == 0)
		cb_job_main(jail, fd);
	if (pid < 0)
		cb_job_refuse(fd, -errno);
}

static void about_twins(const struct cb_init_msg *message)
{
	uint32_t number = (uint32_t)message->arg;

	if (message->op == CB_INIT_TWIN) {
		cb_twins_breed(message->number);
		cb_twins_announce(number);
	}
	if (message->op == CB_INIT_DROP)
		cb_twins_drop(number);
	if (message->op == CB_INIT_RESTORE)
		restore(number);
	if (message->op == CB_INIT_BRANCH)
		cb_twins_branch(number);
	if (message->op == CB_INIT_GO_ON)
		go_on();
}

/* The supervisor sends no other request before it knows that this is done. */
static void send_signal(const struct cb_init_msg *message, pid_t to)
{
	struct cb_init_msg done = { .op = CB_INIT_SIGNALLED, .arg = message->arg, .number = message->number };

	if (to > 0 && message->arg > 0 && message->arg < NSIG)
		(void)kill(message->op == CB_INIT_SIGNAL ? -to : to, message->arg);
	(void)cb_fd_send(CB_INIT_FD_LINK, &done, sizeof(done), NULL, 0);
}

/* False if there was nothing to do. */
static bool obey(void)
{
	struct cb_init_msg message;
	CB_AUTO_FD fd = -1;
	pid_t to;
	ssize_t n = cb_fd_recv(CB_INIT_FD_LINK, &message, sizeof(message), &fd, 1, NULL, MSG_DONTWAIT);

	if (n == -EAGAIN)
		return false;
	if (n == 0)
		leave(0); /* the supervisor is gone */
	if (n != (ssize_t)sizeof(message))
		return true;
	if (message.op == CB_INIT_TERMINATE)
		leave(0);
	/* Guest and branches lead sessions, so they can't leave their groups. */
	to = message.number == 0 ? self.guest : cb_twins_branch_pid(message.number);
	if (message.op == CB_INIT_SIGNAL || message.op == CB_INIT_NUDGE)
		send_signal(&message, to);
	if (message.op == CB_INIT_JOB && fd >= 0 && !self.frozen) /* else the end of its socket is the answer */
		start_job(self.jail, fd);
	if (self.twins)
		about_twins(&message);
	return true;
}

/* It may be held for hours, until something is asked of it. */
static int longer(int pause)
{
	return 2 * pause < FREEZE_MAX_MS ? 2 * pause : FREEZE_MAX_MS;
}

/* The supervisor is heard first: a number is announced before anybody registers with it. What was there to be read may
 * have been read already, by reap() when the guest had ended. */
static _Noreturn void loop(void)
{
	struct pollfd p[] = { { .fd = CB_INIT_FD_LINK, .events = POLLIN },
			      { .fd = CB_INIT_FD_SIGNALS, .events = POLLIN },
			      { .fd = CB_INIT_FD_REGISTRY, .events = POLLIN } };
	int pause = FREEZE_MS, come;
	bool more = false;

	for (;;) {
		if (self.frozen)
			cb_twins_stop_all();
		come = poll(p, 3, more ? 0 : self.frozen ? pause : -1);
		pause = self.alone && come == 0 && !more ? longer(pause) : FREEZE_MS;
		if (come < 0)
			continue;
		if (more || p[1].revents != 0)
			more = reap();
		if (p[0].revents != 0)
			(void)obey();
		else if (self.guest == 0)
			await_warm_guest();
		else if (p[2].revents != 0 && cb_twins_register(CB_INIT_FD_REGISTRY, self.guest) < 0)
			p[2].fd = -1; /* nobody holds its other end any more */
	}
}

/* Every signal is blocked for good; the only one of interest is read from a descriptor. */
static int take_signals(void)
{
	sigset_t all, child;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The guest's process, or 0 if it is to come from a zygote. */
static int begin_guest(struct cb_jail *jail, int registry, struct cb_err *err)
{
	pid_t guest;
	int r;

	cb_launch_mark(jail->warm ? "zygote" : "fork");
	if (jail->warm) {
		r = offer(jail, registry);
		if (r < 0)
			return cb_err_set(err, r, "zygote", NULL, "the jail can't be offered to it: %s", strerror(-r));
	}
	r = cb_limit_open_files(jail, err);
	if (r < 0 || jail->warm)
		return r;
	guest = fork();
	if (guest == 0)
		guest_main(jail, registry, jail->sync_fd);
	return guest > 0 ? guest
			 : cb_err_set(err, -errno, "fork", "Raise limits.pids.",
				      "the guest's process can't be made: %s", strerror(errno));
}

/* One load serves both: what the guest's process does until its exec is allowed. But under it one can't sweep where
 * there are no namespaces; and helpers of a warm jail must be able to put themselves under Landlock's rules. */
static int load_filter(const struct cb_jail *jail, struct cb_err *err)
{
	if (jail->without_namespaces || jail->filter.len == 0)
		return 0;
	return cb_seccomp_load(jail->warm ? &jail->pid1_filter : &jail->filter, err);
}

_Noreturn void cb_init_main(struct cb_jail *jail)
{
	struct cb_err err = { 0 };
	int signals, registry[2] = { -1, -1 };
	pid_t guest;

	cb_launch_mark("filter");
	(void)prctl(PR_SET_NAME, "cellblock-init", 0, 0, 0);
	signals = take_signals();
	if (signals < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || cb_twins_make_registry(registry) < 0) {
		cb_err_set(&err, -errno, "pid 1", NULL, "it can't be made ready: %s", strerror(errno));
		fail(jail->sync_fd, &err);
	}
	if (!jail->from_root) /* what can't be told counts as the guest's */
		(void)cb_sync_send_fd(jail->sync_fd, CB_SYNC_REGISTRY, 0, registry[0]);
	must_sweep = jail->without_namespaces;
	sweep_uid = jail->from_root ? jail->host_uid : CB_SWEEP_CHILDREN;
	if (cb_notify_install(jail, &err) < 0 || load_filter(jail, &err) < 0)
		fail(jail->sync_fd, &err);
	guest = begin_guest(jail, registry[1], &err);
	if (guest < 0)
		fail(jail->sync_fd, &err);
	self.jail = jail;
	self.guest = guest;
	self.twins = !jail->without_namespaces && jail->guest_fds[CB_SPAWN_TWIN_CONTROL] >= 0;
	int oom = jail->oom_fd >= 0 ? jail->oom_fd : open("/dev/null", O_RDWR | O_CLOEXEC);
	const int kept[CB_INIT_NFDS] = {
		[CB_INIT_FD_LINK - CB_INIT_FD_LINK] = jail->guest_fds[CB_SPAWN_LINK],
		[CB_INIT_FD_SIGNALS - CB_INIT_FD_LINK] = signals,
		[CB_INIT_FD_REGISTRY - CB_INIT_FD_LINK] = registry[0],
		[CB_INIT_FD_OOM - CB_INIT_FD_LINK] = oom,
		[CB_INIT_FD_RULES - CB_INIT_FD_LINK] = jail->rules_fd,
		/* closed where the guest is ours: its end of file is then the guest's exec */
		[CB_INIT_FD_SYNC - CB_INIT_FD_LINK] = jail->warm ? jail->sync_fd : -1,
	};

	if (cb_fd_keep(CB_INIT_FD_LINK, kept, CB_INIT_NFDS, O_CLOEXEC) < 0)
		_exit(1);
	if (jail->rules_fd >= 0)
		jail->rules_fd = CB_INIT_FD_RULES;
	loop();
}
