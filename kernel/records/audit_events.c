/* What the kernel writes into the audit log.
 *
 * Role: one function for each event; without a log each does nothing. Trust domain: supervisor. Invariants: code of
 * cells is never written, only its hash and length; text that clients or guests chose is cut and escaped (audit.c).
 * docs/audit.md describes the lines.
 */
#include "audit_events.h"

#include <cellblock/json_scan.h>
#include <unistd.h>

#include "kernel.h"
#include "setup/isolation_level.h"

#define UNDONE_MAX 1024
#define CHANGES_MAX 100 /* entries of one commit or discard that are written by name */
#define MEMBERS CB_BUF_INIT(CB_AUDIT_MEMBERS_MAX)

static struct cb_span span_of(const struct cb_buf *b)
{
	return (struct cb_span){ b->data != NULL ? (const char *)b->data : "", b->len };
}

static void add(struct cb_kernel *k, const char *event, const struct cb_buf *members)
{
	cb_audit_add(k->audit, event, span_of(members));
}

void cb_audit_kernel_start(struct cb_kernel *k)
{
	static const char *const modes[] = { [CB_WORKSPACE_RW] = "rw",
					     [CB_WORKSPACE_RO] = "ro",
					     [CB_WORKSPACE_TMPFS] = "tmpfs",
					     [CB_WORKSPACE_OVERLAY] = "overlay" };
	const struct cb_policy *p = k->policy;
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_cstr(&m, "version", CELLBLOCK_VERSION);
	cb_audit_number(&m, "pid", (double)getpid());
	cb_audit_number(&m, "uid", (double)getuid());
	cb_audit_cstr(&m, "python", k->interpreter->executable != NULL ? k->interpreter->executable : "");
	cb_audit_cstr(&m, "policy", p->name);
	cb_audit_cstr(&m, "workspace", p->workspace_path != NULL ? p->workspace_path : "");
	if ((size_t)k->workspace_mode < sizeof(modes) / sizeof(modes[0]) && modes[k->workspace_mode] != NULL)
		cb_audit_cstr(&m, "workspace_mode", modes[k->workspace_mode]);
	cb_audit_cstr(&m, "network", p->network_mode == CB_NETWORK_NONE ? "none" : "full");
	cb_audit_number(&m, "timeout.cell", p->timeout_cell);
	cb_audit_number(&m, "timeout.cpu", p->timeout_cpu);
	cb_audit_number(&m, "limits.memory", (double)p->limit_memory);
	cb_audit_number(&m, "limits.pids", (double)p->limit_pids);
	cb_audit_number(&m, "limits.output", (double)p->limit_output);
	add(k, "start", &m);
}

void cb_audit_kernel_end(struct cb_kernel *k, int status)
{
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_number(&m, "cells", (double)k->execution.number);
	cb_audit_number(&m, "status", status);
	add(k, "end", &m);
}

void cb_audit_jail(struct cb_kernel *k, unsigned level, const char *limits, const char *note)
{
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_number(&m, "jail", k->guest.generation);
	cb_audit_cstr(&m, "level", cb_level_name(level));
	if (limits[0] != '\0')
		cb_audit_cstr(&m, "limits", limits);
	if (note[0] != '\0')
		cb_audit_cstr(&m, "note", note);
	add(k, "jail", &m);
}

void cb_audit_jail_failed(struct cb_kernel *k)
{
	const struct cb_err *e = &k->guest.failure;
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_cstr(&m, "step", e->step);
	cb_audit_cstr(&m, "why", e->text);
	cb_audit_add_rarely(k->audit, "jail_failed", span_of(&m));
}

void cb_audit_jail_end(struct cb_kernel *k, const char *why)
{
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_number(&m, "jail", k->guest.generation);
	cb_audit_cstr(&m, "why", why);
	add(k, "jail_end", &m);
}

/* What is asked for by its hash, and who asks: a JSON string as it came, which the scan has passed. */
static void describe(struct cb_buf *m, const void *what, size_t len, struct cb_span session)
{
	char hash[CB_AUDIT_HASH];

	if (cb_audit_hash(what, len, hash) == 0) {
		cb_audit_cstr(m, "sha256", hash);
		cb_audit_number(m, "bytes", (double)len);
	}
	if (session.data != NULL && session.len <= CB_AUDIT_TEXT_MAX) {
		(void)cb_buf_append_str(m, ",\"session\":");
		(void)cb_buf_append(m, session.data, session.len);
	}
}

/* Whose trace a request belongs to, where its client says so. */
static void add_trace(struct cb_buf *m, const struct cb_request *r)
{
	if (r != NULL && r->traceparent[0] != '\0')
		cb_audit_cstr(m, "traceparent", r->traceparent);
}

/* Numbers of cells are only told apart by where they ran. */
static void add_subshell(struct cb_buf *m, const struct cb_request *r)
{
	if (r->subshell_id.data == NULL || r->subshell_id.len > CB_AUDIT_TEXT_MAX)
		return;
	(void)cb_buf_append_str(m, ",\"subshell\":");
	(void)cb_buf_append(m, r->subshell_id.data, r->subshell_id.len);
}

void cb_audit_restored(struct cb_kernel *k, int64_t restored_to, struct cb_span undone, const char *why)
{
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_number(&m, "n", (double)k->execution.number);
	cb_audit_number(&m, "restored_to", (double)restored_to);
	if (undone.len > 0 && undone.len <= UNDONE_MAX) { /* of many the first is enough: they are a row */
		(void)cb_buf_append_str(&m, ",\"undone\":");
		(void)cb_buf_append(&m, undone.data, undone.len);
	}
	if (why != NULL)
		cb_audit_cstr(&m, "why", why);
	add_trace(&m, k->execution.shell.current);
	add(k, why != NULL ? "restored" : "rolled_back", &m);
}

void cb_audit_branch(struct cb_kernel *k, const char *id, const char *from)
{
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_cstr(&m, "subshell", id);
	if (from[0] != '\0')
		cb_audit_cstr(&m, "from", from);
	cb_audit_number(&m, "n", (double)k->execution.number);
	add(k, "branch", &m);
}

void cb_audit_branch_end(struct cb_kernel *k, const char *id, const char *why)
{
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_cstr(&m, "subshell", id);
	cb_audit_cstr(&m, "why", why);
	add(k, "branch_end", &m);
}

void cb_audit_cell(struct cb_kernel *k, const struct cb_request *r, int64_t n)
{
	CB_AUTO_BUF m = MEMBERS;
	CB_AUTO_BUF code = CB_BUF_INIT(r->execute.code.len + 1);

	if (k->audit == NULL || cb_json_string_decode(r->execute.code, &code) < 0)
		return;
	cb_audit_number(&m, "n", (double)n);
	if (!r->execute.store_history)
		(void)cb_buf_append_str(&m, ",\"stored\":false");
	add_subshell(&m, r);
	describe(&m, code.data != NULL ? (const void *)code.data : "", code.len, r->session);
	add_trace(&m, r);
	add(k, "cell", &m);
}

void cb_audit_request(struct cb_kernel *k, const struct cb_request *r)
{
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_cstr(&m, "type", r->type);
	describe(&m, r->content.data, r->content.len, r->session);
	add_trace(&m, r);
	add(k, "request", &m);
}

void cb_audit_cell_end(struct cb_kernel *k, const struct cb_request *r, int64_t n, const char *status,
		       const char *limit, const char *state, double wall_s, double cpu_s)
{
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_number(&m, "n", (double)n);
	add_subshell(&m, r);
	cb_audit_cstr(&m, "status", status);
	if (limit != NULL)
		cb_audit_cstr(&m, "limit", limit);
	cb_audit_cstr(&m, "state", state);
	cb_audit_number(&m, "wall_s", wall_s);
	cb_audit_number(&m, "cpu_s", cpu_s);
	add_trace(&m, r);
	add(k, "cell_end", &m);
}

void cb_audit_limit(struct cb_kernel *k, const char *key)
{
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_number(&m, "n", (double)k->execution.number);
	cb_audit_cstr(&m, "key", key);
	cb_audit_add_rarely(k->audit, "limit", span_of(&m));
}

void cb_audit_job(struct cb_kernel *k, const struct cb_job *job)
{
	static const char *const ops[] = {
		[CB_JOB_WRITE] = "write", [CB_JOB_DELETE] = "delete", [CB_JOB_CLEAN] = "clean"
	};
	size_t kind = (size_t)job->asked.code;
	CB_AUTO_BUF m = MEMBERS;
	char hash[CB_AUDIT_HASH];

	if (k->audit == NULL)
		return;
	if (job->asked.code == CB_JOB_RUN) {
		cb_audit_cstr(&m, "program", (const char *)job->input.data);
		if (cb_audit_hash(job->input.data, job->asked.a, hash) == 0)
			cb_audit_cstr(&m, "sha256", hash);
		cb_audit_number(&m, "bytes", (double)job->asked.a);
		add_trace(&m, job->request);
		add(k, "command", &m);
	} else if (kind < sizeof(ops) / sizeof(ops[0]) && ops[kind] != NULL) {
		cb_audit_cstr(&m, "op", ops[kind]);
		cb_audit_cstr(&m, "path", job->path);
		add_trace(&m, job->request);
		add(k, "file", &m);
	}
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

/* The entries, by what each begins with: inside a string there is no quote without a backslash. Big replies are not
 * parsed as a whole for the sake of the first few. */
static void add_changes(struct cb_kernel *k, const char *op, struct cb_span reply)
{
	const char *at = reply.data, *end = reply.data + reply.len;

	for (int i = 0; i < CHANGES_MAX; i++) {
		CB_AUTO_BUF m = MEMBERS;
		CB_AUTO_BUF text = CB_BUF_INIT(8192);
		struct cb_span path = string_after(at, end, "{\"path\":", &at);
		struct cb_span change = string_after(at, end, ",\"change\":", &at);

		if (path.data == NULL || change.data == NULL)
			return;
		cb_audit_cstr(&m, "op", op);
		if (cb_json_string_decode(change, &text) == 0)
			cb_audit_text(&m, "change", (const char *)text.data, text.len);
		text.len = 0;
		if (cb_json_string_decode(path, &text) == 0)
			cb_audit_text(&m, "path", (const char *)text.data, text.len);
		add(k, "change", &m);
	}
}

void cb_audit_layer(struct cb_kernel *k, const char *op, struct cb_span reply)
{
	static const char *const counts[] = { "added", "modified", "deleted", "skipped", "failed" };
	struct cb_json_field f[sizeof(counts) / sizeof(*counts)] = { 0 };
	const size_t n = sizeof(counts) / sizeof(*counts);
	CB_AUTO_BUF m = MEMBERS;
	int64_t value;

	for (size_t i = 0; i < n; i++)
		f[i] = (struct cb_json_field){ .name = counts[i], .types = CB_JSON_INTEGER, .required = true };
	if (k->audit == NULL || op == NULL || cb_json_scan_object(reply.data, reply.len, f, n, NULL) < 0)
		return;
	cb_audit_cstr(&m, "op", op);
	for (size_t i = 0; i < n; i++)
		if (cb_json_int(f[i].ret, &value) == 0)
			cb_audit_number(&m, counts[i], (double)value);
	add_trace(&m, k->overlay_changes.request);
	add(k, "layer", &m);
	add_changes(k, op, reply);
}

void cb_audit_interrupt(struct cb_kernel *k, const char *how)
{
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_number(&m, "n", (double)k->execution.number);
	cb_audit_cstr(&m, "how", how);
	cb_audit_add_rarely(k->audit, "interrupt", span_of(&m));
}

void cb_audit_denied(struct cb_kernel *k, const char *what, const char *why)
{
	CB_AUTO_BUF m = MEMBERS;

	if (k->audit == NULL)
		return;
	cb_audit_cstr(&m, "what", what);
	cb_audit_cstr(&m, "why", why);
	cb_audit_add_rarely(k->audit, "denied", span_of(&m));
}
