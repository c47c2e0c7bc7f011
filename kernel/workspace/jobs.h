/* Jobs in the jail: files, commands and usage, asked for by clients. Trust domain: supervisor. See jobs.c. */
#pragma once

#include <cellblock/job.h>
#include <cellblock/json_write.h>
#include <stdbool.h>

#include "jupyter/message.h"

struct cb_kernel;

#define CB_JOBS_RUNNING_MAX 8
#define CB_JOBS_MAX 1000	       /* running and waiting */
#define CB_JOBS_BYTES_MAX (512u << 20) /* of their requests */

/* Why a job is ended from outside. */
enum cb_job_stop { CB_JOB_STOP_NONE, CB_JOB_STOP_TIME, CB_JOB_STOP_INTERRUPT };

struct cb_job_entry {		 /* of a list */
	uint32_t name, name_len; /* in `out[0]` */
	int type;
	uint64_t size, mtime_ns;
};

struct cb_job {
	struct cb_job *next;
	struct cb_kernel *k;
	struct cb_request *request; /* owned by the job on control, by the execution queue on shell */
	bool running, ended;	    /* ended: its socket is, without an answer */
	int fd, slot;

	struct cb_job_frame asked; /* code: the kind */
	char *path;		   /* owned; or a command's working folder */
	struct cb_buf input;	   /* sent first: a command's arguments and stdin; then come the request's buffers */
	double timeout;		   /* of a command; seconds, 0 = none */
	bool whole;		   /* READ: to the end of the file */

	bool asked_sent, input_sent;
	size_t part, part_at; /* how far the input is sent: 0 = input, then buffers */

	int64_t started_ns, deadline;
	uint64_t oom_kills; /* in the jail, when it began */
	enum cb_job_stop stop;
	uint64_t size, mtime_ns, dropped; /* FACTS; bytes of output over the limit */
	bool truncated;			  /* a list with more entries than are kept */
	bool has_data;			  /* the reply has out[0] as its buffer */
	struct cb_buf out[2];		  /* content, or stdout and stderr, or names */
	struct cb_buf entries;		  /* struct cb_job_entry */
};

struct cb_jobs {
	struct cb_job *head;
	unsigned count, running;
	size_t bytes;
	int timer;
};

int cb_jobs_init(struct cb_kernel *k);
void cb_jobs_release(struct cb_kernel *k);

/* A job for `r`, to be filled in and started. NULL when out of memory. */
struct cb_job *cb_job_new(struct cb_kernel *k, struct cb_request *r, enum cb_job_kind kind);
void cb_job_free(struct cb_job *job); /* one that was not started; NULL allowed */
/* Takes the job: starts it as soon as there is a jail, and answers its request in the end. */
void cb_jobs_start(struct cb_kernel *k, struct cb_job *job);

/* Starts what can be started: a jail is on its way, or what had to be waited for has ended. */
void cb_jobs_schedule(struct cb_kernel *k);
/* There is no jail and won't be; all of it is dead. */
void cb_jobs_jail_failed(struct cb_kernel *k);
void cb_jobs_jail_died(struct cb_kernel *k);
/* Whether a command or an operation that writes files runs. */
bool cb_jobs_write(const struct cb_kernel *k);
/* The user's interrupt ends commands. */
void cb_jobs_interrupt(struct cb_kernel *k);
/* Answers all that is under way: the kernel ends. */
void cb_jobs_shutdown(struct cb_kernel *k);

/* ---- job_content.c: what helpers say, and what is told of it; neither sends nor waits ---- */

#define CB_JOB_ENTRIES_MAX 100000

enum cb_job_taken { CB_JOB_GOES_ON, CB_JOB_ANSWERED, CB_JOB_NONSENSE };
/* Takes a packet with `len` bytes of payload. ANSWERED: the reply can be written of it. */
enum cb_job_taken cb_job_take(struct cb_job *job, const struct cb_job_packet *p, size_t len);
/* Bytes that a reply may have at most. */
size_t cb_job_reply_room(const struct cb_job *job);
/* The reply's content; job->has_data says whether out[0] goes along as its buffer. */
void cb_job_write_reply(struct cb_job *job, const struct cb_job_frame *last, const void *payload, size_t len,
			struct cb_json *j);
/* An error; of a command that was under way it also tells what it had written. */
void cb_job_write_error(const struct cb_job *job, const char *ename, const char *evalue, size_t len,
			struct cb_json *j);
/* A command's time was over, or the user interrupted it. usage may be NULL. */
void cb_job_write_stopped(const struct cb_job *job, const struct cb_job_usage *usage, struct cb_json *j);
