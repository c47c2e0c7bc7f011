/* Handlers of requests, one file each. Trust domain: supervisor.
 *
 * An `at once` handler answers and leaves the request to the router, which brackets it with busy and idle. A `take`
 * handler gets ownership and brackets it itself when its turn comes. All check content by the strict scan; what is
 * malformed gets an error reply.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "jupyter/message.h"

struct cb_comms;
struct cb_job;
struct cb_kernel;

/* Takes a request (ownership) whose signature is right and has it answered, now or later; unknown types are bracketed
 * by busy and idle only. */
void cb_route(struct cb_kernel *k, struct cb_request *r);

void cb_request_kernel_info(struct cb_kernel *k, struct cb_request *r);	    /* at once */
void cb_request_comm_info(struct cb_kernel *k, struct cb_request *r);	    /* at once */
void cb_request_connect(struct cb_kernel *k, struct cb_request *r);	    /* at once */
void cb_request_usage(struct cb_kernel *k, struct cb_request *r);	    /* at once */
void cb_request_interrupt(struct cb_kernel *k, struct cb_request *r);	    /* at once */
/* An interrupt has named it before it came. */
bool cb_request_was_taken_back(const struct cb_kernel *k, const struct cb_request *r);
void cb_request_shutdown(struct cb_kernel *k, struct cb_request *r);	    /* at once */
void cb_request_create_subshell(struct cb_kernel *k, struct cb_request *r); /* at once */
void cb_request_delete_subshell(struct cb_kernel *k, struct cb_request *r); /* at once */
void cb_request_list_subshell(struct cb_kernel *k, struct cb_request *r);   /* at once */
void cb_request_input_reply(struct cb_kernel *k, struct cb_request *r); /* stdin: no bracket, no reply */
/* … and one that is larger than limits.message. */
void cb_request_stdin_too_large(struct cb_kernel *k, struct cb_request *r);

void cb_request_execute(struct cb_kernel *k, struct cb_request *r);    /* take */
void cb_request_ask(struct cb_kernel *k, struct cb_request *r);	       /* take: complete, inspect, is_complete */
void cb_request_comm(struct cb_kernel *k, struct cb_request *r);       /* take: comm_open, comm_msg, comm_close */
void cb_request_history(struct cb_kernel *k, struct cb_request *r);    /* take */
void cb_request_checkpoint(struct cb_kernel *k, struct cb_request *r); /* take: checkpoints, rollback */
void cb_request_job(struct cb_kernel *k, struct cb_request *r);	       /* take: files, commands, usage */
void cb_request_debug(struct cb_kernel *k, struct cb_request *r);      /* take */
void cb_request_tools(struct cb_kernel *k, struct cb_request *r);      /* take */

bool cb_request_is_job(const struct cb_request *r);
/* Why a job's request is refused: names key and reason. */
struct cb_job_what {
	char text[384];
};
int cb_job_parse(struct cb_kernel *k, struct cb_request *r, struct cb_job **ret_job, struct cb_job_what *ret_what);
/* The execution queue's current request, a job, is begun. */
void cb_job_begin(struct cb_kernel *k, struct cb_request *r);

/* History answers that are ready (from the loop); and what waits is dropped at the end. */
void cb_history_ready(void *context, short revents);
void cb_history_end(struct cb_kernel *k, const char *why); /* the kernel ends: what waits is answered */
void cb_history_forget_waiting(struct cb_kernel *k);

/* Checks and reads an execute_request. 0, or a negative code with text in ret_what (size bytes). */
int cb_execute_parse(const struct cb_kernel *k, const struct cb_request *r, struct cb_execute_fields *ret_fields,
		     char *ret_what, size_t size);
