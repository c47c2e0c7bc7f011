/* `cellblock-jail run`: one command in a jail, without a supervisor.
 *
 * Trust domain: outside, with the caller's rights. Broker and supervisor at once: it builds the jail, holds pid 1's
 * link and passes signals on. Stdio is the caller's. Exit status: the command's (128 + signal if it was killed), 124
 * timed out, 125 no jail, 126 and 127 as in a shell.
 */
#include "../changes/overlay_changes.h"
#include "../without_namespaces/without_namespaces.h"
#include "broker.h"
#include "launch.h"
#include "prepare.h"
#include "watchdog.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_TIMEOUT 124
#define EXIT_NO_JAIL 125
#define EXIT_NOT_RUNNABLE 126
#define EXIT_NOT_FOUND 127
#define EXIT_KILLED 137
#define GRACE_MS 2000
#define COUNT_S 10 /* for changes that are dropped */

struct run {
	int link, signals;
	struct cb_inmate jail;
	const struct cb_jail *outline; /* what it was built from */
	bool watched;		       /* no control group counts its memory */
	struct cb_watchdog watchdog;
	struct cb_flight flight;
	bool in_flight;	   /* it was killed for descriptors on their way */
	double timeout;	   /* seconds; 0 = none */
	int64_t deadline;  /* milliseconds of the monotonic clock; < 0 = none */
	bool overdue, timed_out, exited; /* timed_out: the command itself */
	int status;
};

static int refuse(const struct cb_err *err)
{
	fprintf(stderr, "cellblock run: %s: %s\n", err->step, err->text);
	if (err->cure[0] != '\0')
		fprintf(stderr, "cellblock run: %s\n", err->cure);
	if (strcmp(err->step, "exec") != 0)
		return EXIT_NO_JAIL;
	return err->code == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;
}

static void pass_on(const struct run *run, int number)
{
	struct cb_init_msg message = { .op = CB_INIT_SIGNAL, .arg = number };

	(void)cb_fd_send(run->link, &message, sizeof(message), NULL, 0);
}

static void on_deadline(struct run *run)
{
	if (run->overdue) {
		(void)syscall(SYS_pidfd_send_signal, run->jail.pidfd, SIGKILL, NULL, 0);
		run->deadline = -1;
		return;
	}
	run->overdue = true;
	run->deadline = cb_now_ms() + GRACE_MS;
	run->timed_out = !run->exited; /* else it was in time, and what is left of the jail takes long to end */
	if (run->timed_out)
		pass_on(run, SIGTERM);
}

/* Milliseconds; -1 = there is none. */
static int until_deadline(const struct run *run)
{
	int64_t left = run->deadline - cb_now_ms();

	if (run->deadline < 0)
		return -1;
	return left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

static void on_signal(struct run *run)
{
	struct signalfd_siginfo info;

	if (read(run->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		pass_on(run, (int)info.ssi_signo);
}

static void on_link(struct run *run)
{
	struct cb_init_msg message;
	ssize_t n = cb_fd_recv(run->link, &message, sizeof(message), NULL, 0, NULL, MSG_DONTWAIT);

	if (n == (ssize_t)sizeof(message) && message.op == CB_INIT_EXITED) {
		run->exited = true;
		run->status = message.arg;
	} else if (n == 0 || (n < 0 && n != -EAGAIN)) {
		cb_fd_close(&run->link);
	}
}

/* Kills the jail if it is over its limit of memory. Gives the milliseconds to wait. */
static int look(struct run *run, int wait)
{
	int own;

	if (run->watchdog.over > 0)
		return wait;
	if (cb_watchdog_look(&run->watchdog, &run->jail, run->outline, 0) == CB_WATCHDOG_KILL) {
		(void)syscall(SYS_pidfd_send_signal, run->jail.pidfd, SIGKILL, NULL, 0);
		return wait;
	}
	own = cb_watchdog_wait(&run->watchdog);
	return wait < 0 || own < wait ? own : wait;
}

static int look_at_descriptors(struct run *run, int wait)
{
	run->in_flight = cb_watchdog_in_flight(&run->flight, &run->jail, run->outline);
	if (run->in_flight)
		(void)syscall(SYS_pidfd_send_signal, run->jail.pidfd, SIGKILL, NULL, 0);
	return wait < 0 || CB_FLIGHT_MS < wait ? CB_FLIGHT_MS : wait;
}

/* Until pid 1 has ended, and all in the jail with it. */
static void watch(struct run *run)
{
	bool ended = false;

	while (!ended) {
		struct pollfd p[] = { { .fd = run->link, .events = POLLIN },
				      { .fd = run->signals, .events = POLLIN },
				      { .fd = run->jail.pidfd, .events = POLLIN },
				      { .fd = run->jail.notifier.pidfd, .events = POLLIN } };
		int wait = until_deadline(run);

		if (run->watched)
			wait = look(run, wait);
		if (!run->outline->from_root && !run->in_flight)
			wait = look_at_descriptors(run, wait);
		(void)poll(p, 4, wait); /* without an event, or interrupted, nothing is said of any */
		if (p[3].revents != 0)
			cb_notify_died(run->outline, &run->jail.group, &run->jail.notifier);
		if (p[1].revents != 0)
			on_signal(run);
		if (p[0].revents != 0)
			on_link(run);
		ended = p[2].revents != 0 && p[0].revents == 0;
		/* last, and not before the link is empty: who was stopped itself first hears what has ended */
		if (!ended && p[0].revents == 0 && run->deadline >= 0 && cb_now_ms() >= run->deadline)
			on_deadline(run);
	}
}

static int exit_status(const struct run *run, const struct cb_cgroup_figures *figures)
{
	const char *note = run->outline->spec->limit_memory_note;
	bool killed = !run->exited || (WIFSIGNALED(run->status) && WTERMSIG(run->status) == SIGKILL);
	static const struct cb_oom_count at_start;
	enum cb_oom oom = cb_oom_between(&at_start, &figures->oom, run->outline->level > CB_LEVEL_CONTAINER);

	if (run->timed_out) {
		fprintf(stderr, "cellblock run: ended: the command ran over its limit of %g s (timeout.cell); "
				"--timeout S gives it S seconds\n", run->timeout);
		return EXIT_TIMEOUT;
	}
	if (run->watchdog.is_kept_waiting)
		fprintf(stderr, "cellblock run: killed: %s\n", CB_WAITING_TEXT);
	else if (killed && (oom == CB_OOM_LIMIT || run->watchdog.over > 0))
		fprintf(stderr,
			"cellblock run: killed: it used more than limits.memory (%" PRIu64 " bytes%s%s) allows\n",
			run->outline->spec->limit_memory, note != NULL ? ": " : "", note != NULL ? note : "");
	else if (killed && oom == CB_OOM_HOST)
		fprintf(stderr, "cellblock run: killed by the host, which was short of memory, or a control group "
				"around the jail was\n");
	if (run->in_flight)
		fprintf(stderr, "cellblock run: killed: %s\n", CB_FLIGHT_TEXT);
	if (!run->exited)
		return EXIT_KILLED; /* the whole jail was killed from outside */
	return WIFSIGNALED(run->status) ? 128 + WTERMSIG(run->status) : WEXITSTATUS(run->status);
}

/* A folder's descriptor would be a way out of the jail, however little it was meant so. */
static int check_stdio(struct cb_err *err)
{
	static const char *const names[] = { "stdin", "stdout", "stderr" };
	struct stat st;

	for (int fd = 0; fd <= 2; fd++)
		if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
			return cb_err_set(err, CB_E_DENIED, names[fd], "Redirect it from or to a file.",
					  "it is a folder");
	return 0;
}

static const int passed_on[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

static int take_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < CB_COUNT(passed_on); i++)
		sigaddset(&set, passed_on[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGCHLD, SIG_DFL);
	(void)signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

/* The command has ended: nobody waits longer for a count than for COUNT_S seconds, or until a signal comes. */
static void tell_dropped(const struct cb_jail *jail)
{
	sigset_t set;
	size_t n;

	if (jail->spec->workspace_mode != CB_WORKSPACE_OVERLAY)
		return;
	sigemptyset(&set);
	for (size_t i = 0; i < CB_COUNT(passed_on); i++) {
		cb_layer_stop_on(passed_on[i]);
		sigaddset(&set, passed_on[i]);
	}
	cb_layer_stop_on(SIGALRM);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	(void)alarm(COUNT_S);
	n = cb_layer_changed(jail);
	(void)alarm(0);
	if (cb_layer_stopped())
		fprintf(stderr,
			"cellblock run: workspace.mode is \"overlay\": changes to the workspace were dropped, and not "
			"all counted: at least %zu\n",
			n);
	else if (n > 0)
		fprintf(stderr, "cellblock run: workspace.mode is \"overlay\": %zu change%s dropped\n", n,
			n > 1 ? "s to the workspace were" : " to the workspace was");
}

int cb_run_main(int spec_fd, double timeout)
{
	struct run run = { .link = -1, .signals = take_signals(), .jail = CB_INMATE_NONE, .timeout = timeout,
			   .deadline = -1 };
	static struct cb_jail_spec spec; /* needed until the process ends */
	static struct cb_jail jail;
	struct cb_err err = { 0 };
	struct cb_cgroup_figures figures;
	int pair[2];

	cb_sweep_spare();
	if (check_stdio(&err) < 0 || cb_jail_prepare(&jail, &spec, spec_fd, &err) < 0)
		return refuse(&err);
	if (run.signals < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		cb_err_set(&err, -errno, "start", NULL, "no descriptors: %s", strerror(errno));
		return refuse(&err);
	}
	jail.guest_fds[CB_SPAWN_STDOUT] = STDOUT_FILENO;
	jail.guest_fds[CB_SPAWN_STDERR] = STDERR_FILENO;
	jail.guest_fds[CB_SPAWN_LINK] = pair[1];
	if (cb_jail_launch(&jail, &run.jail, &err) < 0)
		return refuse(&err);
	cb_fd_close(&pair[1]);
	run.link = pair[0];
	if (jail.note[0] != '\0')
		fprintf(stderr, "cellblock run: %s\n", jail.note);
	run.outline = &jail;
	run.watched = jail.cgroups.kind == CB_CGROUP_NONE && spec.limit_memory != 0;
	if (timeout > 0)
		run.deadline = cb_now_ms() + (int64_t)(timeout * 1000);
	cb_cgroups_sweep(&jail.cgroups);
	watch(&run);
	cb_notify_tell(&run.jail.notifier);
	if (jail.without_namespaces)
		cb_without_namespaces_end(&jail);
	cb_jail_ended(&jail, &run.jail, &figures);
	cb_uid_release(&jail.uid_lock);
	tell_dropped(&jail);
	return exit_status(&run, &figures);
}
