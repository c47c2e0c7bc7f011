/* Jobs in the jail: files, commands and usage, asked for by clients. Trust domain: supervisor. See jobs.c. */
#pragma once

#include <cellblock/json_write.h>

#include "shells/shells.h"
#include "workspace.h"

int cb_jobs_init(struct cb_workspace *ws);
void cb_jobs_release(struct cb_workspace *ws);

/* A job for `r`, to be filled in and started. NULL when out of memory. */
struct cb_job *cb_job_new(struct cb_workspace *ws, struct cb_request *r, enum cb_job_kind kind);
void cb_job_free(struct cb_job *job); /* one that was not started; NULL allowed */
/* Takes the job: starts it as soon as there is a jail, and answers its request in the end. */
void cb_jobs_start(struct cb_workspace *ws, struct cb_job *job);

/* Starts what can be started: a jail is on its way, or what had to be waited for has ended. */
void cb_jobs_schedule(struct cb_workspace *ws);
/* There is no jail and won't be; all of it is dead. */
void cb_jobs_jail_failed(struct cb_workspace *ws);
void cb_jobs_jail_died(struct cb_workspace *ws, const char *why);
/* Whether an operation that writes files runs; or, with `commands`, a command. */
bool cb_jobs_write(const struct cb_workspace *ws, bool commands);
/* The user's interrupt ends commands. */
void cb_jobs_interrupt(struct cb_workspace *ws);
/* … one that has come on control, or whose turn on shell it is, named by its request's id (a raw JSON string). */
enum cb_found cb_jobs_interrupt_one(struct cb_workspace *ws, struct cb_span msg_id);
/* Answers all that is under way: the kernel ends. */
void cb_jobs_shutdown(struct cb_workspace *ws);

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
