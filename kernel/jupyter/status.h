/* Busy, idle and errors of requests. Trust domain: supervisor. See status.c. */
#pragma once

#include <cellblock/json_write.h>

#include "message.h"

struct cb_jupyter;

/* Busy before, idle after a request that is answered at once. While a cell runs its busy is said again, because servers
 * take any idle for "the kernel is idle". */
void cb_bracket_begin(struct cb_jupyter *jp, const struct cb_request *r);
void cb_bracket_end(struct cb_jupyter *jp, const struct cb_request *r);
void cb_bracket_close(struct cb_jupyter *jp, struct cb_request *r); /* that, and frees it */
void cb_busy_again(struct cb_jupyter *jp); /* that alone, after an idle */
/* Busy, an error reply (comm messages have none), idle; frees it. */
void cb_refuse(struct cb_jupyter *jp, struct cb_request *r, const char *ename, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* `error` on iopub, for the request that it is about; `traceback` is the guest's, a raw JSON array, or empty. */
void cb_publish_error(struct cb_jupyter *jp, const struct cb_request *r, const char *ename, const char *evalue,
		      struct cb_span traceback);
/* The members of an error. */
void cb_write_error(struct cb_json *j, const char *ename, const char *evalue, struct cb_span traceback);
