/* How failures are worded and reported: time limits, deaths, missing isolation. Trust domain: supervisor. See
 * interface.md's errors. */
#pragma once

#include <cellblock/buffer.h>
#include <stdbool.h>
#include <stdint.h>

struct cb_kernel;
struct cb_request;

/* `error` on iopub, for the request that it is about; `traceback` is the guest's, a raw JSON array, or empty. */
void cb_failure_publish(struct cb_kernel *k, const struct cb_request *r, const char *ename, const char *evalue,
			struct cb_span traceback);
/* The error reply of cell `number`. */
void cb_failure_send(struct cb_kernel *k, const struct cb_request *r, int64_t number, const char *ename,
		     const char *evalue, const struct cb_buf *metadata);
/* Both, of the current execute request. state: "kept", "restored" or "lost". */
void cb_failure_reply(struct cb_kernel *k, const char *ename, const char *state, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Error reply of a current complete, inspect or is_complete request; comm messages have none. */
void cb_failure_of_asked(struct cb_kernel *k, const char *ename, const char *text);
/* No jail can be had: step, cause and cure from guest.failure. */
void cb_failure_isolation(struct cb_kernel *k);
/* The guest died under the current execute request. */
void cb_failure_death(struct cb_kernel *k, bool restored);
/* How a process of the guest's ended, by its wait status. */
void cb_failure_end_text(int status, char *ret_text, size_t size);
/* "Python was killed by signal 11 (Segmentation fault)". Valid until the next call. */
const char *cb_failure_death_text(const struct cb_kernel *k);
/* Did the guest end for lack of memory, and not because we or it itself wanted it so? oom_kills: how many there were
 * when the request began. The words for it. */
bool cb_failure_of_memory(const struct cb_kernel *k, uint64_t oom_kills);
const char *cb_failure_memory_text(const struct cb_kernel *k);

/* An exception (raw JSON string) as an interrupt raises it. */
bool cb_failure_of_interrupt(struct cb_span ename);
/* A soft stop at the time limit: `traceback` is the guest's, a raw JSON array. */
void cb_failure_publish_timeout(struct cb_kernel *k, struct cb_span traceback);
void cb_failure_reply_timeout(struct cb_kernel *k);

/* execute_reply.metadata. limit NULL = null. `ours`: the error is the supervisor's word, not the guest's, which may
 * give its errors any name. */
#define CB_METADATA_MAX (1u << 20)
#define CB_METADATA_OURS "\"by\":\"kernel\","
void cb_failure_metadata(struct cb_kernel *k, const char *status, const char *state, const char *limit, bool ours,
			 struct cb_buf *out);
/* Of metadata.cellblock: the request's traceparent, as one more member, if it has one. */
void cb_failure_trace(const struct cb_request *r, struct cb_buf *out);
/* What the last take-over undid, as members of an object. */
void cb_failure_undone(const struct cb_kernel *k, struct cb_buf *out);
/* `,"undone_calls":[…]`: completed calls of host tools of the cells that the last take-over undid, or that are lost. */
void cb_failure_undone_calls(const struct cb_kernel *k, struct cb_buf *out);
/* Of metadata: "state", and if it is "restored", to where and what that undid. */
void cb_failure_state(const struct cb_kernel *k, const char *state, struct cb_buf *out);
/* The limit that the current cell hit, or NULL. */
const char *cb_failure_limit(const struct cb_kernel *k);
