/* `cellblock kernel`: start-up and end of the supervisor.
 *
 * Trust domain: supervisor. The order is the point and is tested: the broker is exec'd while this process is
 * single-threaded and holds no socket; what needs rights (listening sockets, history file, pidfds) is opened; then
 * rights are dropped and the filter is loaded; only then ZeroMQ starts its threads, which inherit both. The first jail
 * is asked for as early as possible: it is built while the rest starts.
 *
 * A policy, interpreter or workspace that can't be used does not end the kernel: clients connect, and every cell says
 * step, cause and cure.
 */
#include "start.h"

#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "commands/command.h"
#include "commands/options.h"
#include "kernel.h"
#include "policy/parse.h"
#include "policy/paths.h"
#include "requests/requests.h"
#include "requests/rooms.h"
#include "setup/guest_cache.h"
#include "setup/jail_spec.h"
#include "setup/self_sandbox.h"

static void reap_cache_writer(struct cb_kernel *k)
{
	if (k->cache_writer > 0 && waitpid(k->cache_writer, NULL, WNOHANG) != 0)
		k->cache_writer = 0;
}

static void on_signal(void *context, short revents)
{
	struct cb_kernel *k = context;
	struct signalfd_siginfo s;

	(void)revents;
	while (read(k->signal_fd, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
		if (s.ssi_signo == SIGINT) {
			cb_execution_interrupt(&k->shells, NULL);
		} else if (s.ssi_signo == SIGCHLD) { /* the broker's end is seen on its socket */
			reap_cache_writer(k);
		} else {
			cb_log(CB_LOG_INFO, "signal %u: shutting down", s.ssi_signo);
			cb_kernel_shutdown(k, false);
		}
	}
}

static void on_parent(void *context, short revents)
{
	struct cb_kernel *k = context;

	(void)revents;
	cb_log(CB_LOG_INFO, "the parent process is gone: shutting down");
	cb_loop_remove(&k->loop, &k->parent_slot);
	cb_kernel_shutdown(k, false);
}

static int watch_signals(struct cb_kernel *k, struct cb_err *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 ||
	    (k->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
		return cb_err_set(err, -errno, "signals", NULL, "signalfd: %s", strerror(errno));
	(void)cb_loop_add(&k->loop, NULL, k->signal_fd, ZMQ_POLLIN, on_signal, k);
	reap_cache_writer(k); /* which may have ended before */
	return 0;
}

/* Servers name themselves in JPY_PARENT_PID; when they are gone nobody will ever stop us. */
static void watch_parent(struct cb_kernel *k)
{
	const char *text = getenv("JPY_PARENT_PID");
	char *end;
	long pid = text != NULL ? strtol(text, &end, 10) : 0;

	k->parent_fd = -1;
	if (text == NULL || *text == '\0' || *end != '\0' || pid <= 0)
		return;
	k->parent_fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	if (k->parent_fd >= 0)
		k->parent_slot = cb_loop_add(&k->loop, NULL, k->parent_fd, ZMQ_POLLIN, on_parent, k);
	else if (errno == ESRCH)
		cb_kernel_shutdown(k, false);
}

/* Whoever asks what runs wants to know this one by name: the script of an interpreter, else the program. */
static void name_client(char ret_name[64])
{
	CB_AUTO_PATH path = cb_path_format("/proc/%d/cmdline", (int)getppid());
	CB_AUTO_FD fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char text[4096] = "";
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 2) : 0;
	const char *program = cb_path_name(text), *next = text + strlen(text) + 1;

	text[n > 0 ? n : 0] = '\0';
	if (strncmp(program, "python", 6) == 0 && n > next - text && next[0] != '-' && next[0] != '\0')
		program = cb_path_name(next);
	for (size_t i = 0; program[i] > ' ' && program[i] <= '~' && i < 63; i++)
		ret_name[i] = program[i];
}

struct start {
	const struct cb_options *options;
	struct cb_install_paths install_paths;
	struct cb_policy policy;
	struct cb_interpreter interpreter;
	struct cb_jail_spec spec;
};

/* A log of an earlier kernel is continued; the name tells their lines apart. */
static int open_audit(struct cb_kernel *k, const char *path, struct cb_err *err)
{
	char name[24];
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(name, sizeof(name), "%08x-%d", (unsigned)t.tv_sec ^ (unsigned)t.tv_nsec, (int)getpid());
	return cb_audit_open(path, name, &k->records.audit, err);
}

/* What `install` compiles for its kernelspecs, a first start does for those that follow where there was no `install`:
 * beside the first cells, in a process that ends with this one. It holds no socket: none is there yet. */
static void fill_cache(struct cb_kernel *k, const struct start *s, const char *folder)
{
	struct cb_err err = { 0 };
	bool ours = s->interpreter.in_cache && folder != NULL;
	CB_AUTO_PATH last = ours ? cb_path_format("%s/bundle.pyc", folder) : NULL;

	if (last == NULL || (!s->interpreter.asked && cb_path_is_file(last)))
		return;
	k->cache_writer = fork();
	if (k->cache_writer != 0)
		return;
	/* out of the way of cells, but not for ever: on a busy machine the lowest priority gets no processor at all */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || nice(10) < 0)
		_exit(1);
	_exit(cb_guest_cache_write(&s->interpreter, s->install_paths.jail, s->install_paths.guest, false, folder,
				   &err) < 0);
}

/* Still a kernel, but nothing has told whether cells could have made the file. */
static void keep_no_history(struct cb_policy *policy)
{
	if (policy->history_file == NULL)
		return;
	free(policy->history_file);
	policy->history_file = strdup(":memory:");
}

static int plan_and_start(struct cb_kernel *k, struct start *s)
{
	const struct cb_options *o = s->options;
	struct cb_err *err = &k->guest.failure;
	CB_AUTO_PATH named = s->interpreter.facts != NULL ? cb_guest_cache_folder(s->interpreter.facts) : NULL;
	CB_AUTO_PATH target = cb_path_format("%s/cellblock_guest/__pycache__", s->install_paths.guest);
	/* binds are opened without following links */
	CB_AUTO_PATH cache = named != NULL && target != NULL && cb_path_is_dir(target) ? cb_path_real(named) : NULL;
	struct cb_jail_spec_input in = { .policy = &s->policy,
					 .interpreter = &s->interpreter,
					 .bash = o->bash,
					 .guest_dir = s->install_paths.guest,
					 .guest_cache = cache,
					 .connection_file = o->connection_file,
					 .session_name = getenv("JPY_SESSION_NAME") };

	fill_cache(k, s, named);

	int r = cb_jail_spec_make(&in, &s->spec, err);

	if (r < 0)
		keep_no_history(&s->policy);
	if (r == 0 && o->bash && s->interpreter.bash_version == NULL)
		r = cb_err_set(err, -ENOENT, "bash", "Install bash and run `cellblock install --language bash` again.",
			       "there is no bash in the jail");
	if (r == 0 && s->policy.audit_file != NULL) /* who wants a log wants no cell without it */
		r = open_audit(k, s->policy.audit_file, err);
	if (r == 0)
		r = cb_broker_start(s->install_paths.jail, &s->spec, &k->guest.broker, err);
	k->workspace.mode = s->spec.workspace_mode;
	if (r == 0 && s->spec.workspace_note != NULL)
		cb_execution_note(&k->shells.execution, "%s", s->spec.workspace_note);
	for (size_t i = 0; r == 0 && i < s->interpreter.not_followed.count; i++) {
		cb_log(CB_LOG_WARNING, "interpreter: not shown: %s", s->interpreter.not_followed.items[i]);
		cb_execution_note(&k->shells.execution, "%s", s->interpreter.not_followed.items[i]);
	}
	return r;
}

/* Policy, interpreter, plan, broker. A failure is kept in guest.failure, for every cell to tell. */
static int prepare_jail(struct cb_kernel *k, struct start *s)
{
	const struct cb_options *o = s->options;
	struct cb_err *err = &k->guest.failure, no_interpreter = { 0 };
	int r = cb_policy_load(o->policy, o->sets.items, o->sets.count, &s->policy, err);
	/* in any case: clients are told its version also when no jail comes of it */
	int found = cb_interpreter_find(o->python, o->facts, s->install_paths.jail,
					r < 0 ? CB_LEVEL_NO_CGROUP : s->policy.isolation_minimum, &s->interpreter,
					&no_interpreter);

	if (r < 0) {
		struct cb_err ignored;

		/* with the built-in limits for messages and output, and nothing written anywhere */
		if (cb_policy_defaults("notebook", &s->policy, &ignored) < 0)
			return r;
		keep_no_history(&s->policy);
		return 1;
	}
	if (found < 0) {
		*err = no_interpreter;
		keep_no_history(&s->policy);
		return 1;
	}
	return plan_and_start(k, s) < 0 ? 1 : 0;
}

static int open_history(struct cb_kernel *k, struct cb_err *err)
{
	const char *path = k->policy->history_file;

	if (path == NULL || cb_history_open(path, &k->records.history, err) == 0)
		return 0;
	/* no reason not to run cells */
	cb_log(CB_LOG_WARNING, "history is kept in memory only: %s%s%s", err->text, err->cure[0] != '\0' ? ". " : "",
	       err->cure);
	return cb_history_open(":memory:", &k->records.history, err);
}

static int start(struct cb_kernel *k, struct start *s, struct cb_err *err)
{
	bool chosen = false;
	int r = cb_command_open_files(err);

	if (r == 0)
		r = cb_connection_load(s->options->connection_file, &k->jupyter.conn, err);
	if (r == 0)
		r = cb_install_paths_find(&s->install_paths, err);
	if (r < 0)
		return r;
	r = prepare_jail(k, s);
	if (r < 0) {
		*err = k->guest.failure;
		return r;
	}
	k->policy = &s->policy;
	if (s->interpreter.version == NULL) /* no guest will ever run: clients still need a version */
		s->interpreter.version = strdup("3");
	k->interpreter = &s->interpreter;
	k->shells.bash = s->options->bash;
	if (cb_kernel_init(k) < 0)
		return cb_err_set(err, -ENOSPC, "loop", NULL, "too many sources");
	r = cb_channels_listen(&k->jupyter.channels, &k->jupyter.conn, &chosen, err);
	if (r == 0 && chosen)
		r = cb_connection_save_ports(&k->jupyter.conn, err);
	if (r < 0)
		return r;
	cb_guest_want(
		&k->guest); /* not sooner: the jail hides a connection file in the workspace, which was just replaced */
	cb_workspace_watch_start(&k->workspace); /* the broker does one after the other, and the jail is waited for */
	r = watch_signals(k, err);
	if (r == 0)
		r = open_history(k, err);
	if (r < 0)
		return r;
	watch_parent(k);
	r = cb_self_sandbox(err);
	if (r < 0)
		return r;
	if (cb_auth_new(k->jupyter.conn.digest, k->jupyter.conn.key, k->jupyter.conn.key_len, &k->jupyter.auth) < 0 ||
	    cb_session_init(&k->jupyter.session, k->jupyter.auth) < 0)
		return cb_err_set(err, CB_E_UNKNOWN, "signing", NULL, "libcrypto can't sign with %s",
				  k->jupyter.conn.signature_scheme);
	if (k->jupyter.conn.key_len == 0)
		cb_log(CB_LOG_WARNING, "the connection file has an empty key: messages are neither signed nor checked");
	cb_audit_kernel_start(&k->records, k->policy, s->interpreter.executable, k->workspace.mode);
	if (k->records.audit != NULL && cb_audit_start(k->records.audit) < 0)
		return cb_err_set(err, -EAGAIN, "audit", NULL, "its thread can't be started");
	if (k->records.history != NULL) {
		(void)cb_history_start(k->records.history);
		(void)cb_loop_add(&k->loop, NULL, cb_history_fd(k->records.history), ZMQ_POLLIN, cb_history_ready, k);
	}
	return cb_channels_open(&k->jupyter, err);
}

int cb_command_kernel(const struct cb_options *o)
{
	static struct cb_kernel k; /* large: not for the stack */
	static struct start s;
	struct cb_err err = { 0 };
	int status = 1;

	s.options = o;
	k.started = cb_date_now();
	k.started_ns = cb_now_ns();
	name_client(k.client);
	signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes that is too small is an error to tell of, not our end */
	k.guest.broker = CB_BROKER_NONE;
	k.signal_fd = k.parent_fd = k.parent_slot = -1;
	k.shells.execution.stop_on_error_timeout = o->stop_on_error_timeout;
	int r = start(&k, &s, &err);

	if (r < 0) {
		cb_log(CB_LOG_ERROR, "kernel not started: %s: %s%s%s", err.step, err.text,
		       err.cure[0] != '\0' ? ". " : "", err.cure);
	} else {
		cb_iopub_status(&k.jupyter, "starting", NULL);
		status = cb_loop_run(&k.loop) < 0 || k.failed ? 1 : 0;
		cb_kernel_answer_the_rest(&k);
		cb_workspace_watch_end(&k.workspace);
	}
	if (k.shutdown_timer != 0 || r == 0)
		cb_kernel_release(&k);
	cb_audit_kernel_end(&k.records, status);
	(void)cb_audit_close(k.records.audit);
	cb_history_close(k.records.history);
	cb_comms_release(&k.guest.comms);
	cb_auth_free(k.jupyter.auth);
	cb_fd_close(&k.signal_fd);
	cb_fd_close(&k.parent_fd);
	cb_connection_release(&k.jupyter.conn);
	cb_jail_spec_release(&s.spec);
	cb_interpreter_release(&s.interpreter);
	cb_policy_release(&s.policy);
	cb_install_paths_release(&s.install_paths);
	return status;
}
