/* Life of jobs: a socket to a helper in the jail for each, fed and read without ever waiting.
 *
 * Trust domain: supervisor. A helper runs our code, but beside the guest and with its rights: what it says is checked
 * like a guest's. Invariants: every job is answered exactly once, also when its helper is killed, its jail dies, its
 * time is over or the kernel ends; no more than CB_JOBS_RUNNING_MAX hold descriptors, the others wait; what a helper
 * sends is kept only within limits.message and limits.output.
 *
 * A job that came on shell is the execution queue's current request until its answer; one that came on control is
 * served beside whatever runs.
 */
#include "jobs.h"

#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "overlay_changes.h"
#include "policy/policy.h"
#include "python/guest.h"
#include "records/audit_events.h"
#include "shells/execution.h"
#include "shells/failure.h"

#define MS 1000000LL
#define SILENCE (30000 * MS)   /* a helper at work is heard of more often */
#define LONGEST (600000 * MS)  /* file work that never ends, because cells go on making files */
#define STOP_EXTRA (1000 * MS) /* after the grace, for the last word */
#define DEATH_WORD (3000 * MS) /* after a helper's end, for that of the jail, if it is that */
#define PACKETS_A_TURN 32
#define LAST_TURNS 64 /* what a socket holds is some hundred packets; more come from a helper that still sends */

/* ---- making and ending ---- */

struct cb_job *cb_job_new(struct cb_workspace *ws, struct cb_request *r, enum cb_job_kind kind)
{
	struct cb_job *job = calloc(1, sizeof(*job));
	uint64_t most = ws->policy->limit_message;

	if (job == NULL)
		return NULL;
	job->workspace = ws;
	job->request = r;
	job->fd = job->slot = -1;
	job->asked = (struct cb_job_frame){ .op = CB_JOB_REQUEST, .code = (int)kind };
	job->input = CB_BUF_INIT(most + CB_JOB_ARGUMENTS_MAX);
	job->out[0] = job->out[1] = CB_BUF_INIT(most);
	job->entries = CB_BUF_INIT(CB_JOB_ENTRIES_MAX * sizeof(struct cb_job_entry));
	return job;
}

void cb_job_free(struct cb_job *job)
{
	if (job == NULL)
		return;
	cb_buf_release(&job->input);
	cb_buf_release(&job->out[0]);
	cb_buf_release(&job->out[1]);
	cb_buf_release(&job->entries);
	free(job->path);
	free(job);
}

static void arm(struct cb_workspace *ws)
{
	int64_t first = 0;

	for (struct cb_job *j = ws->jobs.head; j != NULL; j = j->next)
		cb_sooner(&first, j->deadline);
	cb_loop_arm(ws->loop, ws->jobs.timer, first);
}

/* What may leave half a file, as seen from outside. */
static bool writes(const struct cb_job *job)
{
	return job->asked.code != CB_JOB_READ && job->asked.code != CB_JOB_LIST && job->asked.code != CB_JOB_USAGE;
}

/* The job is answered: it goes, and its request with it. */
static void finish(struct cb_workspace *ws, struct cb_job *job)
{
	struct cb_job **at = &ws->jobs.head;
	struct cb_request *r = job->request;
	bool wrote = job->running && writes(job);

	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
	ws->jobs.count--;
	ws->jobs.bytes -= cb_request_bytes(r);
	ws->jobs.running -= job->running;
	if (job->running && job->asked.code == CB_JOB_RUN)
		ws->jobs.command_ended_ns = cb_now_ns();
	cb_loop_remove(ws->loop, &job->slot);
	cb_fd_close(&job->fd); /* the helper's end, too: it kills its command and exits */
	cb_job_free(job);
	arm(ws);
	if (wrote)
		ws->files_written(ws->kernel);
	cb_execution_answered(ws->shells, r);
}

static void answer(struct cb_workspace *ws, struct cb_job *job, struct cb_json *content)
{
	static const char *const types[] = {
		[CB_JOB_RUN] = "cellblock_run_reply", [CB_JOB_USAGE] = "cellblock_usage_reply"
	};
	bool file = job->asked.code != CB_JOB_RUN && job->asked.code != CB_JOB_USAGE;
	int r = cb_json_done(content);
	struct cb_span data = { job->out[0].data != NULL ? (const char *)job->out[0].data : "", job->out[0].len };
	struct cb_outgoing out = { .type = file ? "cellblock_file_reply" : types[job->asked.code],
				   .parent = cb_header_span(job->request->header),
				   .metadata = CB_SPAN("{}"),
				   .content = cb_buf_span(content->out),
				   .buffers = &data,
				   .nbuffers = job->has_data };

	if (r == 0)
		(void)cb_channels_send(ws->jupyter, job->request->channel, job->request, &out);
	else
		cb_reply_error(ws->jupyter, job->request, "MemoryError", "no memory for the reply");
	finish(ws, job);
}

static void fail(struct cb_workspace *ws, struct cb_job *job, const char *ename, const char *text)
{
	CB_AUTO_BUF b = CB_BUF_INIT(cb_job_reply_room(job));
	struct cb_json j = cb_json_begin(&b);

	cb_job_write_error(job, ename, text, strlen(text), &j);
	answer(ws, job, &j);
}

/* Its time was over, or the user interrupted it. */
static void fail_stopped(struct cb_workspace *ws, struct cb_job *job)
{
	CB_AUTO_BUF b = CB_BUF_INIT(cb_job_reply_room(job));
	struct cb_json j = cb_json_begin(&b);

	cb_job_write_stopped(job, NULL, &j);
	answer(ws, job, &j);
}

/* A command has its own limit of time. */
static void heard_of(struct cb_job *job)
{
	int64_t next = cb_now_ns() + SILENCE, last = job->started_ns + LONGEST;

	if (job->asked.code != CB_JOB_RUN)
		job->deadline = next < last ? next : last;
}

/* ---- to the helper ---- */

static struct cb_span input_part(const struct cb_job *job, size_t part)
{
	const struct cb_request *r = job->request;

	if (part == 0)
		return cb_buf_span(&job->input);
	return cb_frame_span(&r->frame[r->first_buffer + part - 1]);
}

/* What is sent next; false when all is sent. */
static bool next_packet(struct cb_job *job, struct cb_job_packet *packet, size_t *ret_len)
{
	size_t parts = 1 + job->request->nframes - job->request->first_buffer;
	size_t len = 0;

	if (!job->asked_sent) {
		len = strlen(job->path);
		packet->head = job->asked;
		memcpy(packet->payload, job->path, len);
	} else if (!job->input_sent) {
		packet->head = (struct cb_job_frame){ .op = CB_JOB_DATA };
		while (job->part < parts && job->part_at == input_part(job, job->part).len) {
			job->part++;
			job->part_at = 0;
		}
		if (job->part == parts) {
			packet->head.op = CB_JOB_END;
		} else {
			struct cb_span s = input_part(job, job->part);

			len = s.len - job->part_at < CB_JOB_CHUNK ? s.len - job->part_at : CB_JOB_CHUNK;
			memcpy(packet->payload, s.data + job->part_at, len);
		}
	} else {
		return false;
	}
	*ret_len = len;
	return true;
}

static void was_sent(struct cb_job *job, const struct cb_job_packet *packet, size_t len)
{
	if (packet->head.op == CB_JOB_REQUEST)
		job->asked_sent = true;
	else if (packet->head.op == CB_JOB_END)
		job->input_sent = true;
	else
		job->part_at += len;
}

static void send_more(struct cb_job *job)
{
	static struct cb_job_packet packet;
	size_t len = 0;

	for (int i = 0; i < PACKETS_A_TURN && next_packet(job, &packet, &len); i++) {
		ssize_t n = send(job->fd, &packet, sizeof(packet.head) + len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n < 0) { /* it has ended: its last word, or the lack of it, is read */
			job->asked_sent = job->input_sent = true;
			break;
		}
		was_sent(job, &packet, len);
		heard_of(job);
	}
	bool more = !job->asked_sent || !job->input_sent;

	cb_loop_set_events(job->workspace->loop, job->slot, (short)(ZMQ_POLLIN | (more ? ZMQ_POLLOUT : 0)));
}

/* ---- from the helper ---- */

/* The helper is dead. If all of its jail is, that will be the answer. */
static void lost(struct cb_job *job)
{
	cb_loop_remove(job->workspace->loop, &job->slot);
	job->ended = true;
	job->deadline = cb_now_ns() + DEATH_WORD;
	arm(job->workspace);
}

static void on_packet(struct cb_workspace *ws, struct cb_job *job, const struct cb_job_packet *p, size_t len,
		      enum cb_job_taken taken)
{
	if (taken == CB_JOB_NONSENSE) {
		cb_log(CB_LOG_WARNING, "a job's helper broke the protocol");
		cb_audit_denied(ws->records, "helper", "it sent an invalid reply");
		fail(ws, job, "WireError", "the process in the jail that served this request sent an invalid reply");
	} else {
		CB_AUTO_BUF b = CB_BUF_INIT(cb_job_reply_room(job));
		struct cb_json j = cb_json_begin(&b);

		cb_job_write_reply(job, &p->head, p->payload, len, &j);
		answer(ws, job, &j);
	}
	cb_loop_mark(ws->loop);
}

/* Whether there may be more; if not it may be answered, and gone. */
static bool take_packets(struct cb_job *job)
{
	struct cb_workspace *ws = job->workspace;
	static struct cb_job_packet packet;

	for (int i = 0; i < PACKETS_A_TURN; i++) {
		ssize_t n = recv(job->fd, &packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			arm(ws);
			return false;
		}
		if (n < 0 && errno == ECONNRESET) /* it ended with unread input; what it had said before comes now */
			continue;
		if (n <= 0) {
			lost(job);
			return false;
		}
		bool whole = n >= (ssize_t)sizeof(packet.head) && n <= (ssize_t)sizeof(packet);
		size_t len = whole ? (size_t)n - sizeof(packet.head) : 0;
		enum cb_job_taken taken = whole ? cb_job_take(job, &packet, len) : CB_JOB_NONSENSE;

		if (taken != CB_JOB_GOES_ON) {
			on_packet(ws, job, &packet, len, taken);
			return false;
		}
		heard_of(job);
	}
	arm(ws);
	return true;
}

static void on_job(void *context, short revents)
{
	struct cb_job *job = context;

	if (revents & ZMQ_POLLOUT)
		send_more(job);
	(void)take_packets(job);
}

/* ---- starting ---- */

static int connect_helper(struct cb_workspace *ws, struct cb_job *job)
{
	struct cb_init_msg m = { .op = CB_INIT_JOB };
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	CB_AUTO_FD mine = pair[0];
	CB_AUTO_FD theirs = pair[1];
	int r = cb_fd_set_nonblock(mine);

	if (r == 0)
		r = cb_fd_send(ws->guest->pid1.fd, &m, sizeof(m), &theirs, 1);
	if (r < 0)
		return r;
	job->fd = cb_fd_take(&mine);
	job->slot = cb_loop_add(ws->loop, NULL, job->fd, ZMQ_POLLIN | ZMQ_POLLOUT, on_job, job);
	return job->slot < 0 ? job->slot : 0;
}

static void audit(struct cb_workspace *ws, const struct cb_job *job)
{
	static const char *const ops[] = {
		[CB_JOB_WRITE] = "write", [CB_JOB_DELETE] = "delete", [CB_JOB_CLEAN] = "clean"
	};
	size_t kind = (size_t)job->asked.code;

	if (kind == CB_JOB_RUN)
		cb_audit_command(ws->records, (struct cb_span){ (const char *)job->input.data, job->asked.a },
				 job->request);
	else if (kind < CB_COUNT(ops) && ops[kind] != NULL)
		cb_audit_file(ws->records, ops[kind], job->path, job->request);
}

static void launch(struct cb_workspace *ws, struct cb_job *job)
{
	struct cb_usage usage = { 0 };
	char gone[CB_LOG_GONE_MAX];

	if (cb_failure_log_is_gone(ws->shells, gone)) {
		fail(ws, job, CB_LOG_GONE, gone);
		return;
	}
	int r = connect_helper(ws, job);

	if (r < 0) {
		cb_log(CB_LOG_WARNING, "pid 1 of the jail does not take a job: %s", cb_err_name(r));
		fail(ws, job, "KernelBusyError", "the jail does not take the request now");
		return;
	}
	audit(ws, job);
	job->running = true;
	ws->jobs.running++;
	job->started_ns = cb_now_ns();
	cb_usage_read(&ws->guest->usage, &usage);
	job->oom = usage.oom;
	if (job->timeout > 0)
		job->deadline = job->started_ns + (int64_t)(job->timeout * 1e9);
	heard_of(job);
	send_more(job);
	arm(ws);
}

bool cb_jobs_write(const struct cb_workspace *ws, bool commands)
{
	for (const struct cb_job *job = ws->jobs.head; job != NULL; job = job->next)
		if (job->running && writes(job) && (commands || job->asked.code != CB_JOB_RUN))
			return true;
	return false;
}

/* Not before the jail is there for good: one whose guest can't be copied from a zygote ends, with all that was begun in
 * it, and another is made. */
void cb_jobs_schedule(struct cb_workspace *ws)
{
	struct cb_job *job = ws->jobs.head;

	while (job != NULL && ws->jobs.running < CB_JOBS_RUNNING_MAX && ws->guest->pid1.fd >= 0 &&
	       !ws->guest->end_awaited &&
	       (ws->guest->state == CB_GUEST_STARTING || ws->guest->state == CB_GUEST_UP)) {
		if (job->running || (writes(job) && cb_overlay_changes_holds(ws))) {
			job = job->next;
			continue;
		}
		launch(ws, job); /* one that the jail does not take is answered and freed */
		job = ws->jobs.head;
	}
}

void cb_jobs_start(struct cb_workspace *ws, struct cb_job *job)
{
	struct cb_job **at = &ws->jobs.head;
	bool alone = ws->jobs.bytes == 0; /* then it may be as large as limits.message lets it be */

	cb_audit_request(ws->records, job->request);
	while (*at != NULL)
		at = &(*at)->next;
	*at = job;
	ws->jobs.count++;
	ws->jobs.bytes += cb_request_bytes(job->request);
	if (ws->guest->shutting_down)
		fail(ws, job, "KernelBusyError", "the kernel is shutting down");
	else if (ws->jobs.count > CB_JOBS_MAX || (ws->jobs.bytes > CB_JOBS_BYTES_MAX && !alone))
		fail(ws, job, "KernelBusyError", "too many requests for files and commands wait");
	else if (ws->guest->state == CB_GUEST_NONE)
		cb_guest_want(ws->guest); /* which marks the loop, or comes back to cb_jobs_jail_failed */
	else
		cb_loop_mark(ws->loop);
}

/* ---- the jail comes and goes, time passes ---- */

void cb_jobs_jail_failed(struct cb_workspace *ws)
{
	const struct cb_err *e = &ws->guest->failure;

	char text[sizeof(*e) + 32];

	snprintf(text, sizeof(text), "no jail: %s: %s. %s", e->step, e->text, e->cure);
	while (ws->jobs.head != NULL)
		fail(ws, ws->jobs.head, "IsolationError", text);
}

static void fail_running(struct cb_workspace *ws, const char *ename, const char *text)
{
	struct cb_job *job = ws->jobs.head;

	/* an answer may start another request of the queue, but not another job: there is no jail */
	while (job != NULL) {
		struct cb_job *next = job->next;

		if (job->running || job->request == ws->shells->execution.shell.current)
			fail(ws, job, ename, text);
		job = next;
	}
}

void cb_jobs_jail_died(struct cb_workspace *ws, const char *why)
{
	char text[1024];

	/* the last words of helpers were true: those that had answered are not lost */
	for (struct cb_job *job = ws->jobs.head, *next; job != NULL; job = next) {
		next = job->next;
		for (int i = 0; i < LAST_TURNS && job->running && !job->ended && take_packets(job); i++)
			;
	}
	snprintf(text, sizeof(text), "all processes of the jail were ended before the request was answered: %s", why);
	fail_running(ws, "KernelDiedError", text);
}

void cb_jobs_shutdown(struct cb_workspace *ws)
{
	while (ws->jobs.head != NULL)
		fail(ws, ws->jobs.head, "KernelDiedError", "the kernel was shut down");
}

static void stop(struct cb_job *job, enum cb_job_stop why)
{
	if (job->stop != CB_JOB_STOP_NONE)
		return;
	job->stop = why;
	job->asked_sent = job->input_sent = true;
	(void)shutdown(job->fd, SHUT_WR);
	cb_loop_set_events(job->workspace->loop, job->slot, ZMQ_POLLIN);
	job->deadline = cb_now_ns() + (int64_t)job->asked.c * MS + STOP_EXTRA;
}

/* True: it is gone, and what followed it may be gone too. */
static bool interrupt(struct cb_workspace *ws, struct cb_job *job)
{
	if (job->running) {
		stop(job, CB_JOB_STOP_INTERRUPT);
		return false;
	}
	job->stop = CB_JOB_STOP_INTERRUPT;
	fail_stopped(ws, job);
	return true;
}

void cb_jobs_interrupt(struct cb_workspace *ws)
{
	for (struct cb_job *job = ws->jobs.head, *next; job != NULL; job = next) {
		next = job->next;
		if (job->asked.code == CB_JOB_RUN && interrupt(ws, job))
			next = ws->jobs.head;
	}
	arm(ws);
}

enum cb_found cb_jobs_interrupt_one(struct cb_workspace *ws, struct cb_span msg_id)
{
	for (struct cb_job *job = ws->jobs.head; job != NULL; job = job->next) {
		enum cb_found found = job->running ? CB_FOUND_RUNNING : CB_FOUND_WAITING;

		if (job->asked.code != CB_JOB_RUN || !cb_request_named(job->request, msg_id))
			continue;
		(void)interrupt(ws, job);
		arm(ws);
		return found;
	}
	return CB_FOUND_NOWHERE;
}

static void on_timer(void *context)
{
	struct cb_workspace *ws = context;
	int64_t now = cb_now_ns();

	for (struct cb_job *job = ws->jobs.head, *next; job != NULL; job = next) {
		next = job->next;
		if (job->deadline == 0 || job->deadline > now)
			continue;
		if (job->stop != CB_JOB_STOP_NONE) {
			fail_stopped(ws, job);
			next = ws->jobs.head; /* what followed it may be gone too */
		} else if (job->ended) {
			fail(ws, job, "JobLostError",
			     "the process in the jail that served this request was killed, by a process of the jail "
			     "or for memory; what it had begun may be half done");
			next = ws->jobs.head;
		} else if (job->asked.code == CB_JOB_RUN) {
			stop(job, CB_JOB_STOP_TIME);
		} else {
			fail(ws, job, "JobLostError",
			     "the process in the jail that serves this request does not answer: it was stopped, "
			     "the file system hangs, or the work has no end");
			next = ws->jobs.head;
		}
	}
	arm(ws);
	cb_loop_mark(ws->loop);
}

int cb_jobs_init(struct cb_workspace *ws)
{
	ws->jobs.timer = cb_loop_add_timer(ws->loop, on_timer, ws);
	return ws->jobs.timer < 0 ? ws->jobs.timer : 0;
}

void cb_jobs_release(struct cb_workspace *ws)
{
	while (ws->jobs.head != NULL) {
		struct cb_job *job = ws->jobs.head;

		ws->jobs.head = job->next;
		cb_loop_remove(ws->loop, &job->slot);
		cb_fd_close(&job->fd);
		if (job->request != ws->shells->execution.shell.current)
			cb_request_free(job->request);
		cb_job_free(job);
	}
}
