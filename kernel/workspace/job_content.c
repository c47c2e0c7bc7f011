/* What the helpers of jobs say, and the replies that come of it.
 *
 * Trust domain: supervisor. A packet is checked and added to its job within limits.message and limits.output; a reply
 * is content only, nothing here sends or waits. All text from the jail (names, output, reasons) is written as JSON
 * strings, where what is no UTF-8 is repaired; numbers are the helper's, and harm only who believes a guest about its
 * own files. Errors have the names of Python's exceptions where there is one.
 */
#include <cellblock/clock.h>
#include <cellblock/json_write.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <sys/wait.h>

#include "jobs.h"
#include "policy/policy.h"
#include "python/guest.h"
#include "setup/isolation_level.h"

#define ENTRY_SIZE 100 /* bytes of a list's entry beside its name */
#define NOTICE "\n[cellblock: %" PRIu64 " bytes of output over %s = %" PRIu64 " were dropped]\n"

static const char *error_name(int code)
{
	switch (code) {
	case -ENOENT:
		return "FileNotFoundError";
	case -EEXIST:
		return "FileExistsError";
	case -EISDIR:
		return "IsADirectoryError";
	case -ENOTDIR:
		return "NotADirectoryError";
	case -EACCES:
	case -EPERM:
	case CB_E_DENIED:
		return "PermissionError";
	default:
		return "OSError";
	}
}

/* Room for any JSON form of the job's output, and for what stands beside it. */
size_t cb_job_reply_room(const struct cb_job *job)
{
	return 6 * (job->out[0].len + job->out[1].len) + job->entries.len / sizeof(struct cb_job_entry) * ENTRY_SIZE +
	       65536;
}

static void write_error(struct cb_json *j, const char *ename, const char *evalue, size_t len)
{
	cb_json_put(j, "status", "error", "ename", ename);
	cb_json_put_text(j, "evalue", evalue, len);
	cb_json_put(j, "traceback", CB_SPAN("[]"));
}

/* ---- commands ---- */

static void write_output(const struct cb_job *job, struct cb_json *j)
{
	const struct cb_policy *p = job->workspace->policy;
	bool message = p->limit_output == 0 || p->limit_output > p->limit_message;
	char notice[160] = "";

	if (job->dropped > 0)
		snprintf(notice, sizeof(notice), NOTICE, job->dropped, message ? "limits.message" : "limits.output",
			 message ? p->limit_message : p->limit_output);
	cb_json_put_text(j, "stdout", (const char *)job->out[0].data, job->out[0].len);
	cb_json_put_text(j, "stderr", (const char *)job->out[1].data, job->out[1].len);
	cb_json_more_text(j, notice, strlen(notice));
}

static void write_run_usage(const struct cb_job *job, const struct cb_job_usage *u, struct cb_json *j)
{
	int64_t ns = job->started_ns != 0 ? cb_now_ns() - job->started_ns : 0;

	cb_json_object(j, "usage");
	cb_json_put(j, "wall_s", CB_ROUNDED((double)ns / 1e9, 6));
	if (u != NULL)
		cb_json_put(j, "cpu_user_s", CB_ROUNDED((double)u->cpu_user_us / 1e6, 6), "cpu_sys_s",
			    CB_ROUNDED((double)u->cpu_sys_us / 1e6, 6), "memory_peak_bytes", u->memory_peak_bytes,
			    "read_bytes", u->read_bytes, "write_bytes", u->write_bytes);
	cb_json_put(j, "output_bytes", (uint64_t)job->out[0].len + job->out[1].len + job->dropped);
	cb_json_end(j);
}

static void write_run(const struct cb_job *job, uint64_t wait_status, const struct cb_job_usage *u, struct cb_json *j)
{
	int status = (int)(uint32_t)wait_status;
	const struct cb_guest *guest = job->workspace->guest;
	struct cb_usage now = { 0 };

	cb_usage_read(&guest->usage, &now);
	bool for_memory = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
			  cb_guest_oom(guest, &job->oom, &now.oom) == CB_OOM_LIMIT;

	cb_json_put(j, "status", "ok", "returncode",
		    (long)(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status)));
	write_output(job, j);
	cb_json_put(j, "limit", for_memory ? "memory" : job->dropped > 0 ? "output" : NULL);
	write_run_usage(job, u, j);
}

void cb_job_write_stopped(const struct cb_job *job, const struct cb_job_usage *usage, struct cb_json *j)
{
	bool time = job->stop == CB_JOB_STOP_TIME;
	char text[128];

	if (time)
		snprintf(text, sizeof(text), "the command ran longer than %g s and was killed", job->timeout);
	else
		snprintf(text, sizeof(text), "%s",
			 job->running ? "the command was interrupted and killed" : "interrupted before it was started");
	write_error(j, time ? "CommandTimeoutError" : "KeyboardInterrupt", text, strlen(text));
	cb_json_put(j, "returncode", NULL);
	write_output(job, j);
	cb_json_put(j, "limit", time ? "time" : NULL);
	write_run_usage(job, usage, j);
}

/* ---- files ---- */

static void write_entries(const struct cb_job *job, struct cb_json *j)
{
	static const char *const types[] = {
		[CB_JOB_FILE] = "file", [CB_JOB_FOLDER] = "folder", [CB_JOB_LINK] = "link",
		[CB_JOB_PIPE] = "pipe", [CB_JOB_SOCKET] = "socket", [CB_JOB_DEVICE] = "device"
	};
	size_t n = job->entries.len / sizeof(struct cb_job_entry);

	cb_json_put(j, "status", "ok");
	cb_json_array(j, "entries");
	for (size_t i = 0; i < n; i++) {
		struct cb_job_entry e;

		memcpy(&e, job->entries.data + i * sizeof(e), sizeof(e));
		cb_json_object(j, NULL);
		cb_json_put_text(j, "name", (const char *)job->out[0].data + e.name, e.name_len);
		cb_json_put(j, "type", types[e.type], "size", e.size, "mtime", CB_ROUNDED((double)e.mtime_ns / 1e9, 6));
		cb_json_end(j);
	}
	cb_json_end(j);
	cb_json_put(j, "truncated", job->truncated);
}

static void write_clean(const struct cb_job_frame *done, const char *text, size_t len, struct cb_json *j)
{
	cb_json_put(j, "status", "ok", "deleted", done->a, "left", done->b, "protected", done->c);
	if (done->b > 0)
		cb_json_put_text(j, "first_left", text, len);
	else
		cb_json_put(j, "first_left", NULL);
}

/* ---- usage ---- */

static void write_usage(const struct cb_workspace *ws, const struct cb_job_usage *u, struct cb_json *j)
{
	const struct cb_policy *p = ws->policy;
	struct cb_usage guest = { 0 };

	cb_usage_read(&ws->guest->usage, &guest);
	if (ws->guest->level != CB_LEVEL_FULL) { /* no control group has counted what has ended */
		guest.cpu_user_s = (double)u->cpu_user_us / 1e6;
		guest.cpu_sys_s = (double)u->cpu_sys_us / 1e6;
	}
	cb_json_put(j, "status", "ok", "level", cb_level_name(ws->guest->level), "limits_by", ws->guest->limits,
		    "jails_started", ws->guest->generation);
	cb_json_object(j, "usage");
	cb_json_put(j, "cpu_user_s", CB_ROUNDED(guest.cpu_user_s, 6), "cpu_sys_s", CB_ROUNDED(guest.cpu_sys_s, 6),
		    "memory_bytes", u->memory_bytes, "memory_peak_bytes", guest.memory_peak_bytes, "memory_kills",
		    guest.oom.kills);
	cb_json_put(j, "processes", u->processes, "pids", u->threads, "tmp_bytes", u->tmp_bytes, "shm_bytes",
		    u->shm_bytes, "output_bytes", cb_output_parent(&ws->guest->python.output, 0)->output_bytes);
	cb_json_end(j);
	cb_json_object(j, "limits");
	cb_json_put(j, "memory", p->limit_memory, "cpu", p->limit_cpu, "pids", p->limit_pids, "open_files",
		    p->limit_open_files, "file_size", p->limit_file_size);
	cb_json_put(j, "tmp", p->limit_tmp, "shm", p->limit_shm, "inodes", p->limit_inodes, "output", p->limit_output,
		    "message", p->limit_message);
	cb_json_end(j);
	cb_json_put_object(j, "timeout", "cell", p->timeout_cell, "cpu", p->timeout_cpu, "wait", p->timeout_wait,
			   "idle", p->timeout_idle);
}

/* ---- all ---- */

void cb_job_write_error(const struct cb_job *job, const char *ename, const char *evalue, size_t len, struct cb_json *j)
{
	write_error(j, ename, evalue, len);
	if (job->asked.code == CB_JOB_RUN && job->running)
		write_output(job, j);
}

static void write_too_large(const struct cb_job *job, struct cb_json *j)
{
	char text[PATH_MAX + 256];
	int n = snprintf(text, sizeof(text),
			 "%s has %" PRIu64 " bytes, more than limits.message = %" PRIu64 " allows in one message: read "
			 "it in parts, with offset and length",
			 job->path, job->size, job->workspace->policy->limit_message);

	cb_job_write_error(job, "FileTooLargeError", text, (size_t)n, j);
}

static void write_read(struct cb_job *job, struct cb_json *j)
{
	job->has_data = true;
	cb_json_put(j, "status", "ok", "size", job->size, "offset", job->asked.a, "length", job->out[0].len, "mtime",
		    CB_ROUNDED((double)job->mtime_ns / 1e9, 6));
}

void cb_job_write_reply(struct cb_job *job, const struct cb_job_frame *last, const void *payload, size_t len,
			struct cb_json *j)
{
	struct cb_job_usage usage = { 0 };

	if (last->op == CB_JOB_DONE && last->code < 0) {
		cb_job_write_error(job, error_name(last->code), payload, len < CB_JOB_TEXT_MAX ? len : CB_JOB_TEXT_MAX,
				   j);
		return;
	}
	if (len == sizeof(usage))
		memcpy(&usage, payload, sizeof(usage));
	switch ((enum cb_job_kind)job->asked.code) {
	case CB_JOB_READ:
		if (last->op == CB_JOB_FACTS)
			write_too_large(job, j);
		else
			write_read(job, j);
		break;
	case CB_JOB_WRITE:
		cb_json_put(j, "status", "ok", "size", last->a);
		break;
	case CB_JOB_LIST:
		write_entries(job, j);
		break;
	case CB_JOB_DELETE:
		cb_json_put(j, "status", "ok", "deleted", last->a);
		break;
	case CB_JOB_CLEAN:
		write_clean(last, payload, len < CB_JOB_TEXT_MAX ? len : CB_JOB_TEXT_MAX, j);
		break;
	case CB_JOB_RUN:
		if (job->stop != CB_JOB_STOP_NONE)
			cb_job_write_stopped(job, &usage, j);
		else
			write_run(job, last->a, &usage, j);
		break;
	case CB_JOB_USAGE:
		write_usage(job->workspace, &usage, j);
		break;
	}
}

/* ---- what a helper says ---- */

static enum cb_job_taken take_bytes(struct cb_job *job, const struct cb_job_packet *p, size_t len)
{
	const struct cb_policy *policy = job->workspace->policy;
	uint64_t limit = policy->limit_output != 0 && policy->limit_output < policy->limit_message
				 ? policy->limit_output
				 : policy->limit_message;
	size_t have = job->out[0].len + job->out[1].len, keep = len;
	struct cb_buf *to = &job->out[0];

	if (job->asked.code == CB_JOB_RUN && (p->head.code == 1 || p->head.code == 2)) {
		keep = have >= limit ? 0 : len < limit - have ? len : (size_t)(limit - have);
		job->dropped += len - keep;
		to = &job->out[p->head.code - 1];
	} else if (job->asked.code != CB_JOB_READ || have + len > job->asked.b) {
		return CB_JOB_NONSENSE;
	}
	return cb_buf_append(to, p->payload, keep) == 0 ? CB_JOB_GOES_ON : CB_JOB_NONSENSE;
}

static enum cb_job_taken take_entry(struct cb_job *job, const struct cb_job_packet *p, size_t len)
{
	struct cb_job_entry e = { .name = (uint32_t)job->out[0].len,
				  .name_len = (uint32_t)len,
				  .type = p->head.code,
				  .size = p->head.a,
				  .mtime_ns = p->head.b };

	if (job->asked.code != CB_JOB_LIST || len == 0 || len > NAME_MAX || e.type < CB_JOB_FILE ||
	    e.type > CB_JOB_DEVICE)
		return CB_JOB_NONSENSE;
	/* a name grows at most sixfold when it is written */
	if (6 * (job->out[0].len + len) + ENTRY_SIZE * (job->entries.len / sizeof(e) + 1) >
		    job->workspace->policy->limit_message ||
	    job->entries.len + sizeof(e) > job->entries.max) {
		job->truncated = true;
		return CB_JOB_ANSWERED;
	}
	if (cb_buf_append(&job->out[0], p->payload, len) < 0 || cb_buf_append(&job->entries, &e, sizeof(e)) < 0)
		return CB_JOB_NONSENSE;
	return CB_JOB_GOES_ON;
}

enum cb_job_taken cb_job_take(struct cb_job *job, const struct cb_job_packet *p, size_t len)
{
	bool told = job->asked.code == CB_JOB_RUN || job->asked.code == CB_JOB_USAGE;

	switch ((enum cb_job_op)p->head.op) {
	case CB_JOB_FACTS:
		job->size = p->head.a;
		job->mtime_ns = p->head.b;
		if (job->asked.code != CB_JOB_READ)
			return CB_JOB_NONSENSE;
		return job->whole && job->size > job->asked.a && job->size - job->asked.a > job->asked.b
			       ? CB_JOB_ANSWERED
			       : CB_JOB_GOES_ON;
	case CB_JOB_BYTES:
		return take_bytes(job, p, len);
	case CB_JOB_ENTRY:
		return take_entry(job, p, len);
	case CB_JOB_PROGRESS:
		return CB_JOB_GOES_ON;
	case CB_JOB_DONE:
		return p->head.code == 0 && told && len != sizeof(struct cb_job_usage) ? CB_JOB_NONSENSE
										       : CB_JOB_ANSWERED;
	case CB_JOB_REQUEST:
	case CB_JOB_DATA:
	case CB_JOB_END:
		break;
	}
	return CB_JOB_NONSENSE;
}
