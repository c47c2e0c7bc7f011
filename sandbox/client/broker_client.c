/* The supervisor's side of the broker link.
 *
 * Role: starts `cellblock-jail broker` and speaks its fixed requests. Trust domain: supervisor. Libc only. The broker
 * inherits two fds (its socket, the sealed description) beside stdio, and almost nothing of the environment: what a
 * notebook server keeps there (tokens) is none of its business. After the start no call here blocks for long: the
 * socket is non-blocking.
 */
#include <cellblock/child.h>
#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/sandbox.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "spec_codec.h"

#define STEP "broker"
#define STOP_MS 2000

/* What a broker may know of our environment: log level, how to find libraries, how sanitizers report. */
static const char *const env_names[] = { "CELLBLOCK_LOG", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS",
					 "LSAN_OPTIONS" };
#define ENV_MAX CB_COUNT(env_names)

static void make_env(char *env[ENV_MAX + 1])
{
	extern char **environ;
	size_t n = 0;

	for (char **e = environ; e != NULL && *e != NULL && n < ENV_MAX; e++) {
		for (size_t i = 0; i < ENV_MAX; i++) {
			size_t len = strlen(env_names[i]);

			if (strncmp(*e, env_names[i], len) == 0 && (*e)[len] == '=')
				env[n++] = *e;
		}
		if (n == ENV_MAX)
			break;
	}
	env[n] = NULL;
}

static _Noreturn void child(const char *program, int socket_fd, int spec_fd, int report_fd)
{
	char socket_text[16], spec_text[16], *env[ENV_MAX + 1];
	char *argv[] = { "cellblock-jail", "broker", "--fd", socket_text, "--spec-fd", spec_text, NULL };
	sigset_t none;
	int code;

	snprintf(socket_text, sizeof(socket_text), "%d", socket_fd);
	snprintf(spec_text, sizeof(spec_text), "%d", spec_fd);
	make_env(env);
	/* From the first moment: a terminal's signals go to the whole process group, and are the supervisor's to act
	 * on. */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (cb_fd_close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) == 0 && fcntl(socket_fd, F_SETFD, 0) == 0 &&
	    fcntl(spec_fd, F_SETFD, 0) == 0)
		execve(program, argv, env);
	code = -errno;
	(void)cb_fd_write_all(report_fd, &code, sizeof(code));
	_exit(127);
}

/* 0 when the exec succeeded: the report pipe then closes without a word. */
static int exec_result(int report_fd)
{
	int code = 0;
	ssize_t n;

	do
		n = read(report_fd, &code, sizeof(code));
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(code) ? code : 0;
}

static int start(const char *program, int spec_fd, struct cb_broker *ret_broker)
{
	int pair[2], pipe[2], r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	CB_AUTO_FD mine = pair[0];
	CB_AUTO_FD theirs = pair[1];

	r = cb_fd_set_nonblock(mine);
	if (r < 0)
		return r;
	if (pipe2(pipe, O_CLOEXEC) < 0)
		return -errno;
	CB_AUTO_FD report = pipe[0];
	CB_AUTO_FD reporter = pipe[1];

	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		child(program, theirs, spec_fd, reporter);
	cb_fd_close(&reporter);
	r = exec_result(report);
	if (r < 0) {
		(void)cb_reap(pid, NULL);
		return r;
	}
	*ret_broker = (struct cb_broker){ .fd = cb_fd_take(&mine), .pid = pid };
	return 0;
}

int cb_broker_start(const char *jail_program, const struct cb_jail_spec *spec, struct cb_broker *ret_broker,
		    struct cb_err *err)
{
	CB_AUTO_FD spec_fd = -1;
	int r = cb_jail_spec_check(spec, err);

	if (r < 0)
		return r;
	r = cb_jail_spec_to_fd(spec, &spec_fd);
	if (r < 0)
		return cb_err_set(err, r, STEP,
				  r == CB_E_TOO_BIG ? "Name fewer mounts, variables and arguments." : NULL,
				  "the jail's description can't be handed over: %s", cb_err_name(r));
	r = start(jail_program, spec_fd, ret_broker);
	if (r < 0)
		return cb_err_set(err, r, STEP, "Install Cellblock whole, or build all targets.",
				  "%s can't be started: %s", jail_program, strerror(-r));
	return 0;
}

int cb_broker_spawn(struct cb_broker *b, uint32_t number, const int fds[CB_SPAWN_NFDS])
{
	struct cb_broker_request request = { .op = CB_BROKER_SPAWN, .jail = number };

	return b->fd < 0 ? CB_E_CLOSED : cb_fd_send(b->fd, &request, sizeof(request), fds, CB_SPAWN_NFDS);
}

int cb_broker_kill(struct cb_broker *b, uint32_t jail)
{
	struct cb_broker_request request = { .op = CB_BROKER_KILL, .jail = jail };

	return b->fd < 0 ? CB_E_CLOSED : cb_fd_send(b->fd, &request, sizeof(request), NULL, 0);
}

int cb_broker_layer(struct cb_broker *b, enum cb_broker_op op, uint32_t number, int pipe_fd)
{
	struct cb_broker_request request = { .op = op, .jail = number };

	return b->fd < 0 ? CB_E_CLOSED : cb_fd_send(b->fd, &request, sizeof(request), &pipe_fd, 1);
}

int cb_broker_tell(struct cb_broker *b, enum cb_broker_op op)
{
	struct cb_broker_request request = { .op = op };

	return b->fd < 0 ? CB_E_CLOSED : cb_fd_send(b->fd, &request, sizeof(request), NULL, 0);
}

int cb_broker_score(struct cb_broker *b, enum cb_broker_op op, uint32_t jail, pid_t pid)
{
	struct cb_broker_request request = { .op = op, .jail = jail, .pid = pid };

	return b->fd < 0 ? CB_E_CLOSED : cb_fd_send(b->fd, &request, sizeof(request), NULL, 0);
}

static void terminate(char *text, size_t size)
{
	text[size - 1] = '\0';
}

#define REPLY_NFDS (1 + CB_USAGE_NFDS)

static bool is_whole(const struct cb_broker_reply *reply, size_t nfds)
{
	bool jail = reply->event == CB_BROKER_SPAWNED && reply->code == 0;

	return nfds == (jail ? REPLY_NFDS : 0) && reply->event >= CB_BROKER_SPAWNED && reply->event <= CB_BROKER_MEMORY;
}

int cb_broker_recv(struct cb_broker *b, struct cb_broker_reply *ret_reply, int *ret_pidfd, int ret_usage[CB_USAGE_NFDS])
{
	struct cb_broker_reply reply;
	int fds[REPLY_NFDS] = { [0 ... REPLY_NFDS - 1] = -1 };
	size_t nfds = 0;
	ssize_t n = b->fd < 0 ? CB_E_CLOSED
			      : cb_fd_recv(b->fd, &reply, sizeof(reply), fds, REPLY_NFDS, &nfds, MSG_DONTWAIT);

	if (n == 0)
		return CB_E_CLOSED;
	if (n < 0)
		return (int)n;
	if (n != (ssize_t)sizeof(reply) || !is_whole(&reply, nfds)) {
		while (nfds > 0)
			cb_fd_close(&fds[--nfds]);
		return CB_E_SYNTAX;
	}
	terminate(reply.step, sizeof(reply.step));
	terminate(reply.text, sizeof(reply.text));
	terminate(reply.cure, sizeof(reply.cure));
	terminate(reply.note, sizeof(reply.note));
	terminate(reply.limits, sizeof(reply.limits));
	*ret_reply = reply;
	*ret_pidfd = fds[0];
	for (int i = 0; i < CB_USAGE_NFDS; i++) {
		if (ret_usage != NULL)
			ret_usage[i] = fds[1 + i];
		else
			cb_fd_close(&fds[1 + i]);
	}
	return 0;
}

void cb_broker_stop(struct cb_broker *b)
{
	if (b == NULL || b->fd < 0)
		return;
	(void)shutdown(b->fd, SHUT_WR);
	/* It kills its jails when it reads the end of file, and closes its end only then. Unread replies are no end. */
	(void)cb_fd_await(b->fd, 0, cb_now_ms() + STOP_MS);
	cb_fd_close(&b->fd);
	/* A broker that hangs is killed, and its jails by their death signal. We may have left root since the start:
	 * then it cannot be killed, and waiting for it could last for ever. */
	if (b->pid > 0 && waitpid(b->pid, NULL, WNOHANG) == 0 && (kill(b->pid, SIGKILL) == 0 || errno == ESRCH))
		(void)cb_reap(b->pid, NULL);
	*b = CB_BROKER_NONE;
}
