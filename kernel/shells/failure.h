/* How failures are worded and reported: time limits, deaths, missing isolation. Trust domain: supervisor. See
 * docs/messages.md. */
#pragma once

#include <cellblock/host_memory.h>
#include <cellblock/json_write.h>
#include <stdbool.h>
#include <stdint.h>

struct cb_death;
struct cb_jupyter;
struct cb_shells;
struct cb_request;
struct cb_shell;

/* Content that is not what the request's type needs is an error, never silence; of a cell also one on iopub. `format`
 * names key and reason. Frees the request. */
void cb_failure_malformed(struct cb_shells *sh, struct cb_request *r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Who wants a log wants nothing run without it: true, and answered (frees the request), if the log's file was deleted.
 */
bool cb_failure_without_log(struct cb_shells *sh, struct cb_request *r);
/* The same of what was said to be busy: true, and the words of an AuditLogError. */
#define CB_LOG_GONE "AuditLogError"
#define CB_LOG_GONE_MAX 640
bool cb_failure_log_is_gone(struct cb_shells *sh, char ret_evalue[CB_LOG_GONE_MAX]);
/* Error and its reply, of the shell's current execute request. state: "kept", "restored" or "lost". */
void cb_failure_reply(struct cb_shell *s, const char *ename, const char *state, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Error reply of a request that is no cell; comm messages have none. */
void cb_failure_of_asked(struct cb_jupyter *jp, const struct cb_request *r, const char *ename, const char *text);
/* The shell's current request could not be handed to Python: there is none (guest.failure has step, cause and cure), or
 * the code says why. */
void cb_failure_unsent(struct cb_shell *s, bool up, int code);
/* The error reply to a question. */
void cb_failure_unanswered(struct cb_jupyter *jp, const struct cb_request *r);
/* Python died under the shell's current execute request. */
void cb_failure_death(struct cb_shell *s, const struct cb_death *d);
/* How it died, and what became of the state, which is known. The texts are valid until the next call. */
void cb_failure_of_python(struct cb_shells *sh, bool restored, struct cb_death *ret_death);
/* "Python was killed by signal 11 (Segmentation fault)". Valid until the next call. */
const char *cb_failure_death_text(const struct cb_shells *sh);
/* Did the guest end for lack of memory, and not because we or it itself wanted it so? For whose? before: what was
 * counted when the request began. */
enum cb_oom cb_failure_oom(const struct cb_shells *sh, const struct cb_oom_count *before);
/* Why the shell's cell is killed that went over the memory that its request asked for. Valid until the next call. */
const char *cb_failure_over_memory(const struct cb_shell *s);
#define CB_FAILURE_HOST                                                                                                \
	"Python was killed by the host, which was short of memory, or a control group around the jail was"
/* If the guest ended for lack of memory, and nothing else had ended the shell's cell, that did. */
void cb_failure_note_memory(struct cb_shell *s);
/* Of the guest's end under the shell's cell: the same as death_text, in the words for what that has noted. */
const char *cb_failure_cause(const struct cb_shell *s);

/* An exception (raw JSON string) as an interrupt raises it. */
bool cb_failure_of_interrupt(struct cb_span ename);
/* A soft stop at the time limit: `traceback` is the guest's, a raw JSON array. */
void cb_failure_publish_timeout(const struct cb_shell *s, struct cb_span traceback);
void cb_failure_reply_timeout(struct cb_shell *s);

/* execute_reply.metadata of the shell's cell; also writes the cell's end into the audit log. limit NULL = null. `by`:
 * whose word the error is, where it is not the guest's, which may give its errors any name; else NULL. */
#define CB_METADATA_MAX (1u << 20)
void cb_failure_metadata(struct cb_shell *s, const char *status, const char *state, const char *limit, const char *by,
			 struct cb_buf *out);
/* The same of a cell that has ended by itself, with the exception's name (raw JSON) if it failed. */
void cb_failure_of_cell(struct cb_shell *s, bool failed, struct cb_span ename, struct cb_buf *out);
/* The limit that the shell's cell hit, or NULL. */
const char *cb_failure_limit(const struct cb_shell *s);
