/* The audit log's file: JSON Lines in a hash chain, written by a thread of its own. Trust domain: supervisor.
 *
 * The file is opened before rights are dropped, the thread starts after the filter is loaded. Several kernels may share
 * a file. One that is deleted meanwhile can't be made anew, for the filter lets nothing be opened for writing: it is
 * for the caller to stop. Lines are bounded in size, the queue in lines, and what is added in rate; what had to be left
 * out is counted in the log itself.
 */
#pragma once

#include <cellblock/error.h>
#include <cellblock/json_write.h>
#include <stdbool.h>

#include "chain.h"

struct cb_audit;

/* Opens or makes `path` (absolute), mode 0600. `kernel` names this kernel in its lines; at most 40 characters. */
int cb_audit_open(const char *path, const char *kernel, struct cb_audit **ret_audit, struct cb_err *err);
int cb_audit_start(struct cb_audit *a);
/* Whether the file that lines go to is still where the policy says. */
enum cb_audit_place { CB_AUDIT_THERE, CB_AUDIT_MOVED, CB_AUDIT_DELETED };
enum cb_audit_place cb_audit_look(const struct cb_audit *a);
const char *cb_audit_path(const struct cb_audit *a);
/* Adds a line. `members` is what cb_audit_put has written. Never waits. */
void cb_audit_add(struct cb_audit *a, const char *event, struct cb_span members);
/* The same for an event that strangers can cause at will: few of them are kept. */
void cb_audit_add_rarely(struct cb_audit *a, const char *event, struct cb_span members);
/* Writes what was added (waits at most two seconds) and closes the file. 0: each line that was ever added is in it;
 * -ETIMEDOUT, or -EIO: some are not. NULL allowed. */
int cb_audit_close(struct cb_audit *a);

/* Appends members of a line, (key, value) each as for cb_json_put. Text is cut at CB_AUDIT_TEXT_MAX bytes, what is null
 * is left out, and so are all of them if they do not fit into the buffer. */
#define CB_AUDIT_TEXT_MAX 300
#define CB_AUDIT_MEMBERS_MAX 3500
#define cb_audit_put(members, ...)                                                                                     \
	do {                                                                                                           \
		struct cb_json j_ = cb_json_inside(members);                                                           \
		j_.brief = CB_AUDIT_TEXT_MAX;                                                                          \
		cb_json_put(&j_, __VA_ARGS__);                                                                         \
		(void)cb_json_done(&j_);                                                                               \
	} while (0)
