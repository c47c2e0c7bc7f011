/* What serves files and commands from outside the cells. Trust domain: supervisor. The functions are declared in the
 * header of the file that has them. */
#pragma once

#include <cellblock/job.h>
#include <cellblock/sandbox.h>
#include <stdbool.h>

#include "jupyter/message.h"

struct cb_broker_queue;
struct cb_guest;
struct cb_jupyter;
struct cb_kernel;
struct cb_loop;
struct cb_policy;
struct cb_records;
struct cb_shells;
struct cb_workspace;

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
	struct cb_workspace *workspace;
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
	struct cb_oom_count oom; /* in the jail, when it began */
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
	int64_t command_ended_ns; /* when the last command that had begun did */
	int timer;
};

/* Changes of an overlay workspace. */
struct cb_overlay_changes {
	struct cb_request *request; /* owned here on control, by the execution queue on shell; NULL = none under way */
	enum cb_broker_op op;
};

/* A writable workspace, looked at from outside now and then. */
struct cb_workspace_watch {
	bool looking;
	bool known;	/* the next is */
	uint64_t bytes; /* held at the start */
	bool over, uncounted; /* told */
	int64_t asked_ns, not_before;
	char note[256]; /* for the next cell */
};

struct cb_workspace {
	struct cb_loop *loop;
	const struct cb_policy *policy;
	struct cb_jupyter *jupyter;
	struct cb_records *records;
	struct cb_guest *guest;
	struct cb_shells *shells;
	struct cb_broker_queue *queue;
	bool (*branch_runs)(const struct cb_kernel *k); /* a cell does, of none of these shells */
	void (*files_written)(struct cb_kernel *k);	/* a job that may have done so has ended */
	void (*files_committed)(struct cb_kernel *k);	/* a commit has written to the folder outside */
	struct cb_kernel *kernel;			/* for these */
	enum cb_workspace_mode mode;			/* as it is, which may not be what the policy asks for */
	struct cb_jobs jobs;
	struct cb_overlay_changes overlay_changes;
	struct cb_workspace_watch watch;
};
