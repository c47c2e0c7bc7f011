/* What the kernel writes into the audit log, if it has one. Trust domain: supervisor. See audit_events.c. */
#pragma once

#include <cellblock/buffer.h>
#include <cellblock/sandbox.h>

struct cb_err;
struct cb_policy;
struct cb_records;
struct cb_request;

void cb_audit_kernel_start(struct cb_records *rec, const struct cb_policy *p, const char *python,
			   enum cb_workspace_mode mode);
void cb_audit_kernel_end(struct cb_records *rec, int status);
/* A jail was started, could not be started, or has ended. */
void cb_audit_jail(struct cb_records *rec, unsigned jail, unsigned level, const char *limits, const char *note);
void cb_audit_jail_failed(struct cb_records *rec, const struct cb_err *why);
void cb_audit_jail_end(struct cb_records *rec, unsigned jail, const char *why);
/* An execute request begins, as the cell of number n; ends. */
void cb_audit_cell(struct cb_records *rec, const struct cb_request *r, int64_t n);
void cb_audit_cell_end(struct cb_records *rec, const struct cb_request *r, int64_t n, const char *status,
		       const char *limit, const char *state, double wall_s, double cpu_s);
/* A command or a file operation is asked for. */
void cb_audit_request(struct cb_records *rec, const struct cb_request *r);
/* A take-over is done: the state is that of before the cells `undone`, a JSON array. `why` is NULL for a rollback;
 * `cell` is under way, or NULL. */
void cb_audit_restored(struct cb_records *rec, int64_t restored_to, struct cb_span undone, const char *why,
		       const struct cb_request *cell);
/* A branch begins, of the state by that name ("" = as it was), and ends. */
void cb_audit_branch(struct cb_records *rec, const char *id, const char *from);
void cb_audit_branch_end(struct cb_records *rec, const char *id, const char *why);
/* A limit was hit, now. `key` is the policy's name of it. */
void cb_audit_limit(struct cb_records *rec, const char *key);
/* A command is run in the jail, or a file of the workspace changed, at a client's request. `arguments`: each ends with
 * a NUL, the program comes first. */
void cb_audit_command(struct cb_records *rec, struct cb_span arguments, const struct cb_request *r);
void cb_audit_file(struct cb_records *rec, const char *op, const char *path, const struct cb_request *r);
/* An overlay's changes were written through or dropped; `reply` is the broker's. op NULL: they were only listed. */
void cb_audit_layer(struct cb_records *rec, const char *op, struct cb_span reply, const struct cb_request *r);
void cb_audit_layer_unknown(struct cb_records *rec, const char *op, const struct cb_request *r); /* without its reply */
void cb_audit_interrupt(struct cb_records *rec, const char *how);
/* Something was refused: a message of a client or of the guest. */
void cb_audit_denied(struct cb_records *rec, const char *what, const char *why);
