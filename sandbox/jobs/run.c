/* One command in the jail for the supervisor: started, fed, listened to, stopped.
 *
 * Trust domain: a helper in the jail. The command is a process of the guest's kind: its own session, the guest's
 * limits, filter and uid; it dies with the helper (death signal). The helper sends what it writes until it ends; what
 * it leaves running lives on unheard, as with a cell's. The supervisor stops a command by shutting its direction of the
 * socket: SIGTERM to the process group, SIGKILL when the grace is over; its end kills at once.
 */

#include "../shared/signals.h"
#include "job.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DRAIN_MAX (1u << 20) /* bytes of a pipe that are read at the end: it holds no more unless a child goes on */

enum { SOCKET, OUT, ERR, IN, CHILD, REPORT, NFDS };
enum stage { STAGE_CWD = 1, STAGE_EXEC };

struct report {
	int stage, error;
};

struct run {
	struct cb_job *job;
	char arguments[CB_JOB_ARGUMENTS_MAX];
	char cwd[PATH_MAX];
	char **argv, **env;
	pid_t pid;
	int fd[NFDS]; /* -1 = closed */
	size_t fed;   /* bytes of job->in that stdin has taken */
	bool input_ended, stopping, killed;
	int64_t kill_at; /* ms */
	uint32_t grace_ms;
};

/* ---- arguments ---- */

static void receive_arguments(struct run *r, size_t size)
{
	size_t have = 0;

	while (have < size) {
		cb_job_receive(r->job);
		if (r->job->in.head.op != CB_JOB_DATA)
			cb_job_fail(r->job, -EPROTO, "the arguments are not as long as announced");
		r->fed = r->job->in_len < size - have ? r->job->in_len : size - have; /* what follows is for stdin */
		memcpy(r->arguments + have, r->job->in.payload, r->fed);
		have += r->fed;
	}
	if (size == 0 || r->arguments[size - 1] != '\0')
		cb_job_fail(r->job, -EPROTO, "arguments without an end");
}

/* Puts NAME=VALUE in, in place of another value of NAME. `env` has room. */
static void set_env(char **env, char *item)
{
	size_t name = strcspn(item, "=") + 1;

	while (*env != NULL && strncmp(*env, item, name) != 0)
		env++;
	*env = item;
}

static void split_arguments(struct run *r, size_t size, size_t argc)
{
	char **given = r->job->env;
	size_t count = 0, given_count = 0, i = 0;

	for (size_t at = 0; at < size; at += strlen(r->arguments + at) + 1)
		count++;
	while (given[given_count] != NULL)
		given_count++;
	r->argv = calloc(argc + 1, sizeof(char *));
	r->env = calloc(given_count + count + 1, sizeof(char *));
	if (argc == 0 || argc > count)
		cb_job_fail(r->job, -EPROTO, "fewer arguments than announced");
	if (r->argv == NULL || r->env == NULL)
		cb_job_fail(r->job, -ENOMEM, "no memory for the arguments: limits.memory is reached");
	for (size_t e = 0; e < given_count; e++)
		r->env[e] = given[e];
	for (size_t at = 0; at < size; at += strlen(r->arguments + at) + 1, i++) {
		if (i < argc)
			r->argv[i] = r->arguments + at;
		else
			set_env(r->env, r->arguments + at);
	}
}

/* ---- the command's process, until its exec ---- */

static _Noreturn void command_main(const struct run *r, const int ends[3], int report_fd, pid_t helper)
{
	extern char **environ;
	struct report report = { .stage = STAGE_CWD };
	int entered;

	(void)setsid();
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != helper)
		_exit(127);
	cb_default_signals();
	for (int i = 0; i < 3; i++)
		if (dup2(ends[i], i) < 0) /* none of them is below 3: our own stdio is open */
			_exit(127);
	if (cb_fd_close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		_exit(127);
	entered = cb_enter_folder(r->job->cwd, r->job->workspace);
	if (entered >= 0 && (r->cwd[0] == '\0' || chdir(r->cwd) == 0)) {
		if (entered > 0 && r->cwd[0] != '/') /* as shells say it that can't be in the folder they were given */
			dprintf(2,
				"cellblock: %.300s can't be entered any more: the workspace's own folder takes its "
				"place\n",
				r->job->cwd);
		report.stage = STAGE_EXEC;
		environ = r->env; /* PATH is looked up in it */
		execvp(r->argv[0], r->argv);
	}
	report.error = errno;
	(void)cb_fd_write_all(report_fd, &report, sizeof(report));
	_exit(127);
}

static _Noreturn void fail_start(const struct run *r, int error)
{
	cb_job_fail(r->job, -error, "the command's process can't be made: %s%s", strerror(error),
		    error == EAGAIN ? " (limits.pids)" : "");
}

static void start(struct run *r)
{
	static const int mine[3] = { IN, OUT, ERR };
	pid_t helper = getpid();
	int theirs[3], pair[2];

	for (int i = 0; i < 3; i++) {
		if (pipe2(pair, O_CLOEXEC) < 0)
			fail_start(r, errno);
		theirs[i] = pair[i == 0 ? 0 : 1];
		r->fd[mine[i]] = pair[i == 0 ? 1 : 0];
		if (cb_fd_set_nonblock(r->fd[mine[i]]) < 0)
			fail_start(r, errno);
	}
	if (pipe2(pair, O_CLOEXEC) < 0)
		fail_start(r, errno);
	r->fd[REPORT] = pair[0];
	r->pid = fork();
	if (r->pid == 0)
		command_main(r, theirs, pair[1], helper);
	if (r->pid < 0)
		fail_start(r, errno);
	r->fd[CHILD] = (int)syscall(SYS_pidfd_open, r->pid, 0);
	if (r->fd[CHILD] < 0) {
		int error = errno;

		(void)kill(r->pid, SIGKILL);
		fail_start(r, error);
	}
	for (int i = 0; i < 3; i++)
		cb_fd_close(&theirs[i]);
	cb_fd_close(&pair[1]);
}

static void on_report(struct run *r)
{
	struct report report;
	ssize_t n = read(r->fd[REPORT], &report, sizeof(report));

	cb_fd_close(&r->fd[REPORT]);
	if (n != (ssize_t)sizeof(report))
		return; /* the exec closed it */
	if (report.stage == STAGE_CWD)
		cb_job_fail(r->job, -report.error, "cwd %.256s: %s", r->cwd, strerror(report.error));
	if (report.error == ENOENT)
		cb_job_fail(r->job, -ENOENT,
			    "%.256s: no such program in the jail (or the interpreter that its first "
			    "line names is none)",
			    r->argv[0]);
	cb_job_fail(r->job, -report.error, "%.256s can't be run: %s", r->argv[0], strerror(report.error));
}

/* ---- while it runs ---- */

/* Takes what one of its pipes holds now. False when there is no more. */
static bool pass_output(struct run *r, int which)
{
	static char chunk[CB_JOB_CHUNK];
	struct cb_job_frame head = { .op = CB_JOB_BYTES, .code = which == OUT ? 1 : 2 };
	ssize_t n = r->fd[which] < 0 ? 0 : read(r->fd[which], chunk, sizeof(chunk));

	if (n < 0)
		return errno == EINTR;
	if (n == 0)
		cb_fd_close(&r->fd[which]);
	else
		cb_job_send(r->job, &head, chunk, (size_t)n);
	return n > 0;
}

static void feed(struct run *r)
{
	struct cb_job *job = r->job;
	ssize_t n = r->fed < job->in_len ? write(r->fd[IN], job->in.payload + r->fed, job->in_len - r->fed) : 0;

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		cb_fd_close(&r->fd[IN]); /* it does not want any more */
		return;
	}
	r->fed += n > 0 ? (size_t)n : 0;
	if (r->input_ended && r->fed == job->in_len)
		cb_fd_close(&r->fd[IN]);
}

static void stop(struct run *r)
{
	r->stopping = true;
	cb_fd_close(&r->fd[IN]);
	(void)kill(-r->pid, SIGTERM);
	r->kill_at = cb_now_ms() + r->grace_ms;
}

static void on_socket(struct run *r, short revents)
{
	if ((revents & (POLLHUP | POLLERR)) != 0) {
		(void)kill(-r->pid, SIGKILL);
		_exit(0);
	}
	if ((revents & POLLRDHUP) != 0) {
		stop(r);
		return;
	}
	cb_job_receive(r->job);
	r->fed = 0;
	if (r->job->in.head.op != CB_JOB_DATA) {
		r->job->in_len = 0;
		r->input_ended = true;
	}
	if (r->fd[IN] >= 0)
		feed(r);
}

static _Noreturn void on_end(struct run *r)
{
	struct cb_job_frame head = { .op = CB_JOB_DONE };
	struct cb_job_usage usage = { 0 };
	struct rusage u = { 0 };
	int status = 0;

	if (r->fd[REPORT] >= 0)
		on_report(r);
	if (r->stopping)
		(void)kill(-r->pid, SIGKILL);
	while (wait4(r->pid, &status, 0, &u) < 0 && errno == EINTR)
		;
	for (int which = OUT; which <= ERR; which++)
		for (size_t n = 0; n < DRAIN_MAX && pass_output(r, which); n += CB_JOB_CHUNK)
			;
	usage.cpu_user_us = (uint64_t)u.ru_utime.tv_sec * 1000000u + (uint64_t)u.ru_utime.tv_usec;
	usage.cpu_sys_us = (uint64_t)u.ru_stime.tv_sec * 1000000u + (uint64_t)u.ru_stime.tv_usec;
	usage.memory_peak_bytes = (uint64_t)u.ru_maxrss * 1024;
	usage.read_bytes = (uint64_t)u.ru_inblock * 512;
	usage.write_bytes = (uint64_t)u.ru_oublock * 512;
	head.a = (uint64_t)(uint32_t)status;
	cb_job_done(r->job, &head, &usage, sizeof(usage));
}

static void turn(struct run *r)
{
	bool hungry = r->fd[IN] < 0 || r->fed == r->job->in_len; /* stdin has taken all; what nobody takes is dropped */
	struct pollfd p[NFDS];
	int timeout = -1;

	for (int i = 0; i < NFDS; i++)
		p[i] = (struct pollfd){ .fd = r->fd[i], .events = POLLIN };
	p[SOCKET].events = r->stopping ? 0 : (short)(POLLRDHUP | (hungry && !r->input_ended ? POLLIN : 0));
	p[IN].events = POLLOUT;
	if (r->fed == r->job->in_len) /* nothing to write: only its end is of interest, which a write would show */
		p[IN].fd = -1;
	if (r->stopping && !r->killed) {
		int64_t left = r->kill_at - cb_now_ms();

		timeout = left > 0 ? (int)left : 0;
	}
	if (poll(p, NFDS, timeout) < 0)
		return;
	if (r->stopping && !r->killed && cb_now_ms() >= r->kill_at) {
		r->killed = true;
		(void)kill(-r->pid, SIGKILL);
	}
	for (int which = OUT; which <= ERR; which++)
		if (p[which].revents != 0)
			(void)pass_output(r, which);
	if (p[REPORT].revents != 0)
		on_report(r);
	if (p[IN].revents != 0 && r->fd[IN] >= 0)
		feed(r);
	if (p[SOCKET].revents != 0)
		on_socket(r, p[SOCKET].revents);
	if (p[CHILD].revents != 0)
		on_end(r);
}

_Noreturn void cb_job_run(struct cb_job *job)
{
	static struct run r;
	struct cb_job_frame asked = job->in.head;

	r.job = job;
	r.grace_ms = asked.c;
	if (job->in_len >= sizeof(r.cwd) || asked.a > sizeof(r.arguments))
		cb_job_fail(job, -E2BIG, "the working folder's path or the arguments are too long");
	memcpy(r.cwd, job->in.payload, job->in_len);
	receive_arguments(&r, asked.a);
	split_arguments(&r, asked.a, asked.b);
	r.fd[SOCKET] = job->fd;
	start(&r);
	for (;;)
		turn(&r);
}
