/* A helper in the jail: one request of the supervisor, served by our own code with the guest's rights.
 *
 * Trust domain: inside the jail. It is a fork of pid 1: undumpable, under the guest's filter, without capabilities, all
 * signals but SIGKILL and SIGSTOP blocked; so a guest can end it and nothing more, and then the supervisor sees the
 * socket end without DONE. One that writes files the notifier must be able to read, and so can a guest that writes into
 * its memory: what it reports of its writes is worth as much as the files, which are the guest's, too. It keeps no
 * descriptor but its socket. What it is asked for may come from a client's hand, what it meets in the workspace from
 * the guest's: nothing is opened that could make it wait. It stays in pid 1's session as long as it is undumpable: by
 * that the broker, which can't look into it, knows that it is none of the guest's.
 */
#include "job.h"

#include "../walls/landlock.h"
#include "../walls/seccomp.h"
#include "../without_namespaces/without_namespaces.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define JOB_FD 3
#define JOB_FD_RULES 4

static int send_packet(int fd, const struct cb_job_frame *head, const void *payload, size_t len)
{
	static struct cb_job_packet packet;
	ssize_t n;

	packet.head = *head;
	if (len > 0)
		memcpy(packet.payload, payload, len);
	do
		n = send(fd, &packet, sizeof(packet.head) + len, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

void cb_job_send(struct cb_job *job, const struct cb_job_frame *head, const void *payload, size_t len)
{
	if (send_packet(job->fd, head, payload, len) < 0)
		_exit(1); /* nobody wants to know any more */
}

void cb_job_receive(struct cb_job *job)
{
	ssize_t n;

	do
		n = recv(job->fd, &job->in, sizeof(job->in), 0);
	while (n < 0 && errno == EINTR);
	if (n < (ssize_t)sizeof(job->in.head))
		_exit(1);
	job->in_len = (size_t)n - sizeof(job->in.head);
}

_Noreturn void cb_job_done(struct cb_job *job, const struct cb_job_frame *head, const void *payload, size_t len)
{
	cb_job_send(job, head, payload, len);
	/* An end with unread data would cut the answer off: the supervisor ends it. */
	for (;;)
		cb_job_receive(job);
}

_Noreturn void cb_job_fail(struct cb_job *job, int code, const char *format, ...)
{
	struct cb_job_frame head = { .op = CB_JOB_DONE, .code = code };
	char text[CB_JOB_TEXT_MAX];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	cb_job_done(job, &head, text, strlen(text));
}

_Noreturn void cb_job_fail_path(struct cb_job *job, const char *path, int code)
{
	cb_job_fail(job, code, "%.512s: %s", path, strerror(-code));
}

void cb_job_refuse(int fd, int code)
{
	static const char text[] = "no process could be started for it in the jail: limits.pids or limits.memory is "
				   "reached";
	struct cb_job_frame head = { .op = CB_JOB_DONE, .code = code };

	(void)send_packet(fd, &head, text, sizeof(text) - 1);
}

const char *cb_dents_next(struct cb_dents *d, int fd, int *ret_code)
{
	/* struct linux_dirent64: inode, offset (8 bytes each), length of the record (2), type (1), name */
	enum { LENGTH_AT = 16, NAME_AT = 19 };

	for (;;) {
		const char *name;
		uint16_t length;

		if (d->at >= d->len) {
			long n = syscall(SYS_getdents64, fd, d->buffer, sizeof(d->buffer));

			if (n <= 0) {
				*ret_code = n < 0 ? -errno : 0;
				return NULL;
			}
			d->len = (size_t)n;
			d->at = 0;
		}
		memcpy(&length, d->buffer + d->at + LENGTH_AT, sizeof(length));
		name = d->buffer + d->at + NAME_AT;
		d->at += length;
		if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
			return name;
	}
}

void cb_job_place_of_request(struct cb_job *job, unsigned flags, struct cb_job_place *ret_place, char path[PATH_MAX])
{
	int r;

	if (job->in_len >= PATH_MAX)
		cb_job_fail(job, -ENAMETOOLONG, "the path is longer than %d bytes", PATH_MAX - 1);
	memcpy(path, job->in.payload, job->in_len);
	path[job->in_len] = '\0';
	r = cb_job_find(job->workspace, path, flags, ret_place);
	if (r == -EXDEV)
		cb_job_fail(job, CB_E_DENIED, "%.512s is not in the workspace (%.256s)", path, job->workspace);
	if (r < 0)
		cb_job_fail_path(job, path, r);
}

/* Where pid 1 is not behind the guest's walls, the helper goes there first. */
static void settle(struct cb_job *job)
{
	static char workspace[PATH_MAX], cwd[PATH_MAX], *no_env[] = { NULL };
	const struct cb_jail_spec *spec = job->jail->spec;
	struct cb_jail enclosed = *job->jail;
	struct cb_err err = { 0 };
	char **argv;

	job->workspace = spec->workspace_target;
	job->cwd = spec->cwd;
	job->env = spec->env.items != NULL ? spec->env.items : no_env;
	if (!job->jail->without_namespaces) {
		if (job->jail->filter.len > 0 && cb_seccomp_load_last(&err) < 0)
			cb_job_fail(job, err.code, "%s: %s", err.step, err.text);
		return;
	}
	job->workspace = cb_without_namespaces_path(job->jail, spec->workspace_target, workspace);
	job->cwd = cb_without_namespaces_path(job->jail, spec->cwd, cwd);
	if (cb_without_namespaces_command(job->jail, &argv, &job->env) < 0)
		cb_job_fail(job, -ENOMEM, "no memory for the environment");
	/* pid 1 has closed the descriptor that the guest was given this folder by */
	enclosed.workspace_fd = open(job->workspace, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (cb_without_namespaces_enclose(&enclosed, &err) < 0)
		cb_job_fail(job, err.code, "%s: %s", err.step, err.text);
	cb_fd_close(&enclosed.workspace_fd);
}

static bool writes_files(int32_t kind)
{
	return kind == CB_JOB_WRITE || kind == CB_JOB_DELETE || kind == CB_JOB_CLEAN;
}

/* Pid 1 of a warm jail is not under Landlock's rules, and may call what one calls to get there. Who counts the jail's
 * processes stays out of them: it would see those alone that it had itself started. */
static void enclose(const struct cb_job *job, int rules)
{
	bool counts = job->in.head.code == CB_JOB_USAGE;
	struct cb_err err = { 0 };
	int r = rules >= 0 && !counts ? cb_landlock_enter(rules, &err) : 0;

	if (r == 0)
		r = cb_seccomp_load(&job->jail->filter, &err);
	if (r < 0)
		_exit(1); /* the end of its socket is the answer */
	if (rules >= 0)
		(void)close(rules);
}

_Noreturn void cb_job_main(const struct cb_jail *jail, int fd)
{
	static struct cb_job job;
	int rules = jail->rules_fd;

	(void)prctl(PR_SET_NAME, "cellblock-job", 0, 0, 0);
	/* pid 1's own descriptors go before anything is read */
	if (dup3(fd, JOB_FD, O_CLOEXEC) < 0 || (rules >= 0 && dup3(rules, JOB_FD_RULES, O_CLOEXEC) < 0))
		_exit(1);
	rules = rules >= 0 ? JOB_FD_RULES : -1;
	if (cb_fd_close_range(rules >= 0 ? JOB_FD_RULES + 1 : JOB_FD + 1, ~0u, 0) < 0)
		_exit(1);
	job = (struct cb_job){ .jail = jail, .fd = JOB_FD };
	if (!jail->warm)
		settle(&job);
	cb_job_receive(&job);
	if (jail->warm) {
		enclose(&job, rules);
		settle(&job);
	}
	if (job.in.head.op != CB_JOB_REQUEST)
		cb_job_fail(&job, -EPROTO, "a job begins with its request");
	if (writes_files(job.in.head.code)) {
		(void)setsid(); /* who can be written to is not believed to be ours (broker/kernel_memory.c) */
		(void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	}
	switch ((enum cb_job_kind)job.in.head.code) {
	case CB_JOB_READ:
		cb_job_read(&job);
	case CB_JOB_WRITE:
		cb_job_write(&job);
	case CB_JOB_LIST:
		cb_job_list(&job);
	case CB_JOB_DELETE:
		cb_job_delete(&job);
	case CB_JOB_CLEAN:
		cb_job_clean(&job);
	case CB_JOB_RUN:
		cb_job_run(&job);
	case CB_JOB_USAGE:
		cb_job_usage(&job);
	}
	cb_job_fail(&job, -EPROTO, "a job of kind %d is not known", job.in.head.code);
}
