/* What the kernel writes into the audit log.
 *
 * Role: one function for each event; without a log each does nothing. Trust domain: supervisor. Invariants: code of
 * cells is never written, only its hash and length; text that clients or guests chose is cut and escaped (audit.c).
 * docs/audit.md describes the lines.
 */
#include "audit_events.h"

#include <cellblock/json_scan.h>
#include <unistd.h>

#include "jupyter/message.h"
#include "policy/workspace.h"
#include "records.h"
#include "setup/isolation_level.h"

#define UNDONE_MAX 1024
#define CHANGES_MAX 100 /* entries of one commit or discard that are written by name */

/* A line of these members, if there is a log; `add` says how many a second may be written. */
#define WRITE(rec, add, event, ...)                                                                                    \
	do {                                                                                                           \
		CB_AUTO_BUF m_ = CB_BUF_INIT(CB_AUDIT_MEMBERS_MAX);                                                    \
		if ((rec)->audit != NULL) {                                                                            \
			cb_audit_put(&m_, __VA_ARGS__);                                                                \
			add((rec)->audit, event, cb_buf_span(&m_));                                                    \
		}                                                                                                      \
	} while (0)

static const struct cb_span none; /* is left out, as NULL is */

void cb_audit_kernel_start(struct cb_records *rec, const struct cb_policy *p, const char *python,
			   enum cb_workspace_mode mode)
{
	CB_AUTO_BUF m = CB_BUF_INIT(CB_AUDIT_MEMBERS_MAX);

	if (rec->audit == NULL)
		return;
	cb_audit_put(&m, "version", CELLBLOCK_VERSION, "pid", (long)getpid(), "uid", getuid(), "python", python,
		     "policy", p->name, "workspace", p->workspace_path);
	cb_audit_put(&m, "workspace_mode", cb_workspace_mode_name(mode), "network",
		     p->network_mode == CB_NETWORK_NONE ? "none" : "full", "timeout.cell", p->timeout_cell,
		     "timeout.cpu", p->timeout_cpu, "limits.memory", p->limit_memory, "limits.pids", p->limit_pids,
		     "limits.output", p->limit_output);
	cb_audit_add(rec->audit, "start", cb_buf_span(&m));
}

void cb_audit_kernel_end(struct cb_records *rec, int status)
{
	WRITE(rec, cb_audit_add, "end", "cells", *rec->number, "status", (long)status);
}

void cb_audit_jail(struct cb_records *rec, unsigned jail, unsigned level, const char *limits, const char *note)
{
	WRITE(rec, cb_audit_add, "jail", "jail", jail, "level", cb_level_name(level), "limits",
	      limits[0] != '\0' ? limits : NULL, "note", note[0] != '\0' ? note : NULL);
}

void cb_audit_jail_failed(struct cb_records *rec, const struct cb_err *why)
{
	WRITE(rec, cb_audit_add_rarely, "jail_failed", "step", why->step, "why", why->text);
}

void cb_audit_jail_end(struct cb_records *rec, unsigned jail, const char *why)
{
	WRITE(rec, cb_audit_add, "jail_end", "jail", jail, "why", why);
}

/* A JSON string as it came, which the scan has passed. */
static struct cb_span short_text(struct cb_span raw)
{
	return raw.data != NULL && raw.len <= CB_AUDIT_TEXT_MAX ? raw : none;
}

/* What is asked for is told by its hash. */
static const char *hash_of(const void *what, size_t len, char buffer[CB_AUDIT_HASH])
{
	return cb_audit_hash(what, len, buffer) == 0 ? buffer : NULL;
}

/* Whose trace a request belongs to, where its client says so. */
static const char *trace_of(const struct cb_request *r)
{
	return r != NULL && r->traceparent[0] != '\0' ? r->traceparent : NULL;
}

void cb_audit_restored(struct cb_records *rec, int64_t restored_to, struct cb_span undone, const char *why,
		       const struct cb_request *cell)
{
	/* of many undone cells the first is enough: they are a row */
	WRITE(rec, cb_audit_add, why != NULL ? "restored" : "rolled_back", "n", *rec->number, "restored_to",
	      restored_to, "undone", undone.len <= UNDONE_MAX ? undone : none, "why", why, "traceparent",
	      trace_of(cell));
}

void cb_audit_branch(struct cb_records *rec, const char *id, const char *from)
{
	WRITE(rec, cb_audit_add, "branch", "subshell", id, "from", from[0] != '\0' ? from : NULL, "n", *rec->number);
}

void cb_audit_branch_end(struct cb_records *rec, const char *id, const char *why)
{
	WRITE(rec, cb_audit_add, "branch_end", "subshell", id, "why", why);
}

/* What is evaluated behind the code: their JSON text, as it came. */
static const char *expressions_of(const struct cb_request *r, char buffer[CB_AUDIT_HASH])
{
	struct cb_span e = r->execute.user_expressions;

	return e.data != NULL && memchr(e.data, '"', e.len) != NULL ? hash_of(e.data, e.len, buffer) : NULL;
}

/* Numbers of cells are only told apart by the subshell where they ran. */
void cb_audit_cell(struct cb_records *rec, const struct cb_request *r, int64_t n)
{
	CB_AUTO_BUF code = CB_BUF_INIT(r->execute.code.len + 1);
	char hash[CB_AUDIT_HASH], expressions[CB_AUDIT_HASH];

	if (rec->audit == NULL || cb_json_string_decode(r->execute.code, &code) < 0)
		return;
	WRITE(rec, cb_audit_add, "cell", "n", n, "stored", r->execute.store_history ? none : CB_SPAN("false"),
	      "subshell", short_text(r->subshell_id), "sha256",
	      hash_of(code.data != NULL ? (const void *)code.data : "", code.len, hash), "bytes", code.len,
	      "expressions_sha256", expressions_of(r, expressions), "session", short_text(r->session), "traceparent",
	      trace_of(r));
}

void cb_audit_request(struct cb_records *rec, const struct cb_request *r)
{
	char hash[CB_AUDIT_HASH];

	WRITE(rec, cb_audit_add, "request", "type", r->type, "sha256", hash_of(r->content.data, r->content.len, hash),
	      "bytes", r->content.len, "session", short_text(r->session), "traceparent", trace_of(r));
}

void cb_audit_cell_end(struct cb_records *rec, const struct cb_request *r, int64_t n, const char *status,
		       const char *limit, const char *state, double wall_s, double cpu_s)
{
	WRITE(rec, cb_audit_add, "cell_end", "n", n, "subshell", short_text(r->subshell_id), "status", status, "limit",
	      limit, "state", state, "wall_s", CB_ROUNDED(wall_s, 3), "cpu_s", CB_ROUNDED(cpu_s, 3), "traceparent",
	      trace_of(r));
}

void cb_audit_limit(struct cb_records *rec, const char *key)
{
	WRITE(rec, cb_audit_add_rarely, "limit", "n", *rec->number, "key", key);
}

void cb_audit_command(struct cb_records *rec, struct cb_span arguments, const struct cb_request *r)
{
	char hash[CB_AUDIT_HASH];

	WRITE(rec, cb_audit_add, "command", "program", arguments.data, "sha256",
	      hash_of(arguments.data, arguments.len, hash), "bytes", arguments.len, "traceparent", trace_of(r));
}

void cb_audit_file(struct cb_records *rec, const char *op, const char *path, const struct cb_request *r)
{
	WRITE(rec, cb_audit_add, "file", "op", op, "path", path, "traceparent", trace_of(r));
}

/* The JSON string after `key` at or after `at`, with its quotes; its end is given too. */
static struct cb_span string_after(const char *at, const char *end, const char *key, const char **ret_end)
{
	const char *start = memmem(at, (size_t)(end - at), key, strlen(key)), *p;

	*ret_end = end;
	if (start == NULL)
		return (struct cb_span){ NULL, 0 };
	start += strlen(key);
	for (p = start + 1; p < end && *p != '"'; p++)
		p += *p == '\\';
	if (p >= end || *start != '"')
		return (struct cb_span){ NULL, 0 };
	*ret_end = p + 1;
	return (struct cb_span){ start, (size_t)(p + 1 - start) };
}

/* The entries, by their keys: inside a string there is no quote without a backslash. Big replies are not parsed as a
 * whole for the sake of the first few. */
static void add_changes(struct cb_records *rec, const char *op, struct cb_span reply)
{
	const char *at = reply.data, *end = reply.data + reply.len;

	for (int i = 0; i < CHANGES_MAX; i++) {
		CB_AUTO_BUF text = CB_BUF_INIT(16384);
		struct cb_span path = string_after(at, end, "\"path\":", &at);
		struct cb_span change = string_after(at, end, "\"change\":", &at);
		size_t behind;

		if (path.data == NULL || change.data == NULL)
			return;
		if (cb_json_string_decode(change, &text) < 0 || cb_buf_append(&text, "", 1) < 0)
			continue;
		behind = text.len;
		if (cb_json_string_decode(path, &text) == 0 && cb_buf_append(&text, "", 1) == 0)
			WRITE(rec, cb_audit_add, "change", "op", op, "change", (const char *)text.data, "path",
			      (const char *)text.data + behind);
	}
}

void cb_audit_layer(struct cb_records *rec, const char *op, struct cb_span reply, const struct cb_request *r)
{
	static const char *const counts[] = { "added", "modified", "deleted", "skipped", "failed" };
	struct cb_json_field f[CB_COUNT(counts)] = { 0 };
	const size_t n = CB_COUNT(counts);
	CB_AUTO_BUF m = CB_BUF_INIT(CB_AUDIT_MEMBERS_MAX);

	for (size_t i = 0; i < n; i++)
		f[i] = (struct cb_json_field){ .name = counts[i], .types = CB_JSON_INTEGER, .required = true };
	if (rec->audit == NULL || op == NULL || cb_json_scan_object(reply.data, reply.len, f, n, NULL) < 0)
		return;
	cb_audit_put(&m, "op", op);
	for (size_t i = 0; i < n; i++)
		cb_audit_put(&m, counts[i], f[i].ret);
	cb_audit_put(&m, "traceparent", trace_of(r));
	cb_audit_add(rec->audit, "layer", cb_buf_span(&m));
	add_changes(rec, op, reply);
}

void cb_audit_layer_unknown(struct cb_records *rec, const char *op, const struct cb_request *r)
{
	if (op != NULL)
		WRITE(rec, cb_audit_add, "layer", "op", op, "counts", "unknown", "traceparent", trace_of(r));
}

void cb_audit_interrupt(struct cb_records *rec, const char *how)
{
	WRITE(rec, cb_audit_add_rarely, "interrupt", "n", *rec->number, "how", how);
}

void cb_audit_denied(struct cb_records *rec, const char *what, const char *why)
{
	WRITE(rec, cb_audit_add_rarely, "denied", "what", what, "why", why);
}
