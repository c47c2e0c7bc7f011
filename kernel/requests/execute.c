/* Requests that Python serves: execute, complete, inspect, is_complete and comm messages. And comm_info_request.
 *
 * Trust domain: supervisor. They are checked when they arrive, and served when their turn comes (shells/execution.c).
 * Comm messages have no reply: a malformed one is bracketed by busy and idle and logged. The table of open comms
 * (jupyter/comms.c) is the supervisor's, so that comm_info is answered while the guest is busy.
 */
#include <cellblock/json_scan.h>
#include <cellblock/log.h>

#include "rooms.h"
#include "policy/keys.h"
#include "requests.h"

#define TIMEOUT_MAX 1e9 /* seconds, as in the policy: longer is none */
#define MEMORY_MIN (48.0 * 1024 * 1024) /* as limits.memory: Python itself needs some */

enum { CODE, SILENT, STORE_HISTORY, USER_EXPRESSIONS, ALLOW_STDIN, STOP_ON_ERROR, NFIELDS };

static bool flag(const struct cb_json_field *f, bool absent)
{
	return f->ret.data == NULL ? absent : f->ret_type == CB_JSON_TRUE;
}

/* "256M" or a number of bytes. */
static int memory_of(const struct cb_json_field *f, double *ret_bytes)
{
	CB_AUTO_BUF text = CB_BUF_INIT(32);

	if (f->ret_type == CB_JSON_INTEGER)
		return cb_json_real(f->ret, ret_bytes);
	if (cb_json_string_decode(f->ret, &text) < 0 || cb_buf_append(&text, "", 1) < 0)
		return CB_E_SYNTAX;
	return cb_policy_parse_size((const char *)text.data, false, ret_bytes);
}

static int refuse(const char *what, char *ret_what, size_t size)
{
	snprintf(ret_what, size, "metadata.cellblock.%s is allowed", what);
	return CB_E_SYNTAX;
}

static int take_seconds(const struct cb_json_field *f, double *limit, char *ret_what, size_t size)
{
	char text[80];
	double own = 0;

	if (f->ret.data == NULL)
		return 0;
	snprintf(text, sizeof(text), "%s: a number of seconds above 0", f->name);
	if (cb_json_real(f->ret, &own) < 0 || own <= 0)
		return refuse(text, ret_what, size);
	if (own < (*limit == 0 ? TIMEOUT_MAX : *limit))
		*limit = own;
	return 0;
}

/* metadata.cellblock may lower limits, and say how the cell runs; it can come from a stranger's notebook, so it never
 * raises one. */
static int parse_limits(const struct cb_kernel *k, const struct cb_request *r, struct cb_execute_fields *fields,
			char *ret_what, size_t size)
{
	struct cb_json_field outer[] = { { .name = "cellblock", .types = CB_JSON_OBJECT | CB_JSON_NULL } };
	struct cb_json_field inner[] = {
		{ .name = "timeout", .types = CB_JSON_NUMBER },
		{ .name = "cpu", .types = CB_JSON_NUMBER },
		{ .name = "memory", .types = CB_JSON_STRING | CB_JSON_INTEGER },
		{ .name = "value", .types = CB_JSON_BOOL },
		{ .name = "env", .types = CB_JSON_OBJECT, .members = CB_JSON_STRING },
	};
	struct cb_json_error e = { 0 };
	double own = 0;

	fields->timeout = k->policy->timeout_cell;
	fields->cpu = k->policy->timeout_cpu;
	fields->memory = 0;
	fields->value = false;
	fields->env = (struct cb_span){ NULL, 0 };
	const char *where = "metadata";
	int c = cb_json_scan_object(r->metadata.data, r->metadata.len, outer, 1, &e);

	if (c == 0 && outer[0].ret.data != NULL && outer[0].ret_type == CB_JSON_OBJECT) {
		where = "metadata.cellblock";
		c = cb_json_scan_object(outer[0].ret.data, outer[0].ret.len, inner, 5, &e);
	}
	if (c < 0) {
		snprintf(ret_what, size, "%s: %s%s%s at byte %zu", where, e.field != NULL ? e.field : "",
			 e.field != NULL ? ": " : "", e.reason, e.offset);
		return c;
	}
	c = take_seconds(&inner[0], &fields->timeout, ret_what, size);
	if (c == 0)
		c = take_seconds(&inner[1], &fields->cpu, ret_what, size);
	fields->value = inner[3].ret_type == CB_JSON_TRUE;
	fields->env = inner[4].ret;
	if (c < 0 || inner[2].ret.data == NULL)
		return c;
	if (memory_of(&inner[2], &own) < 0 || !(own >= MEMORY_MIN))
		return refuse("memory: bytes, or \"256M\", of at least 48M", ret_what, size);
	if (own < 1e18 && (k->policy->limit_memory == 0 || own < (double)k->policy->limit_memory))
		fields->memory = (uint64_t)own;
	return 0;
}

int cb_execute_parse(const struct cb_kernel *k, const struct cb_request *r, struct cb_execute_fields *ret_fields,
		     char *ret_what, size_t size)
{
	struct cb_json_field f[NFIELDS] = {
		[CODE] = { .name = "code", .types = CB_JSON_STRING, .required = true },
		[SILENT] = { .name = "silent", .types = CB_JSON_BOOL | CB_JSON_NULL },
		[STORE_HISTORY] = { .name = "store_history", .types = CB_JSON_BOOL | CB_JSON_NULL },
		[USER_EXPRESSIONS] = { .name = "user_expressions",
				       .types = CB_JSON_OBJECT | CB_JSON_NULL,
				       .members = CB_JSON_STRING },
		[ALLOW_STDIN] = { .name = "allow_stdin", .types = CB_JSON_BOOL | CB_JSON_NULL },
		[STOP_ON_ERROR] = { .name = "stop_on_error", .types = CB_JSON_BOOL | CB_JSON_NULL },
	};
	struct cb_json_error e = { 0 };
	struct cb_execute_fields fields;
	int c = cb_json_scan_object(r->content.data, r->content.len, f, NFIELDS, &e);

	if (c < 0) {
		snprintf(ret_what, size, "content: %s%s%s at byte %zu", e.field != NULL ? e.field : "",
			 e.field != NULL ? ": " : "", e.reason, e.offset);
		return c;
	}
	c = parse_limits(k, r, &fields, ret_what, size);
	if (c < 0)
		return c;
	fields.code = f[CODE].ret;
	fields.user_expressions =
		f[USER_EXPRESSIONS].ret_type == CB_JSON_OBJECT ? f[USER_EXPRESSIONS].ret : (struct cb_span){ NULL, 0 };
	fields.silent = flag(&f[SILENT], false);
	fields.store_history = !fields.silent && flag(&f[STORE_HISTORY], true);
	fields.allow_stdin = flag(&f[ALLOW_STDIN], true);
	fields.stop_on_error = !fields.silent && flag(&f[STOP_ON_ERROR], true);
	*ret_fields = fields;
	return 0;
}

void cb_request_execute(struct cb_kernel *k, struct cb_request *r)
{
	char what[256];

	if (cb_execute_parse(k, r, &r->execute, what, sizeof(what)) < 0) {
		cb_failure_malformed(&k->shells, r, "%s", what);
		return;
	}
	r->calls = cb_calls_new(&k->jupyter.tools, r);
	cb_execution_submit(&k->shells, r);
}

void cb_request_ask(struct cb_kernel *k, struct cb_request *r)
{
	bool is_complete = r->kind == CB_REQUEST_IS_COMPLETE;
	struct cb_json_field f[] = {
		{ .name = "code", .types = CB_JSON_STRING, .required = true },
		{ .name = "cursor_pos", .types = CB_JSON_INTEGER | CB_JSON_NULL },
		{ .name = "detail_level", .types = CB_JSON_INTEGER | CB_JSON_NULL },
		{ .name = "omit_sections", .types = CB_JSON_ARRAY | CB_JSON_NULL, .elements = CB_JSON_STRING },
	};
	struct cb_json_error e = { 0 };
	int64_t level = 0;

	if (cb_json_scan_object(r->content.data, r->content.len, f, is_complete ? 1 : 4, &e) < 0)
		cb_failure_malformed(&k->shells, r, "content: %s%s%s at byte %zu", e.field != NULL ? e.field : "",
				     e.field != NULL ? ": " : "", e.reason, e.offset);
	else if (f[2].ret.data != NULL && f[2].ret_type == CB_JSON_INTEGER &&
		 (cb_json_int(f[2].ret, &level) < 0 || level < 0 || level > 1))
		cb_failure_malformed(&k->shells, r, "content: detail_level: 0 and 1 are allowed");
	else
		cb_execution_submit(&k->shells, r);
}

void cb_request_comm(struct cb_kernel *k, struct cb_request *r)
{
	bool open = r->kind == CB_REQUEST_COMM_OPEN;
	struct cb_json_field f[] = {
		{ .name = "comm_id", .types = CB_JSON_STRING, .required = true },
		{ .name = "target_name", .types = CB_JSON_STRING, .required = open },
		{ .name = "data", .types = CB_JSON_ANY },
	};
	struct cb_json_error e = { 0 };
	int c = cb_json_scan_object(r->content.data, r->content.len, f, 3, &e);

	if (c == 0)
		c = cb_json_scan_object(r->metadata.data, r->metadata.len, NULL, 0, &e);
	if (c < 0) {
		cb_log(CB_LOG_WARNING, "%s dropped: %s%s%s", r->type, e.field != NULL ? e.field : "",
		       e.field != NULL ? ": " : "", e.reason);
		cb_bracket_begin(&k->jupyter, r);
		cb_bracket_close(&k->jupyter, r);
		return;
	}
	if (cb_branches_comm(&k->transactions, r, f[0].ret, open ? f[1].ret : (struct cb_span){ NULL, 0 }))
		return;
	cb_execution_submit(&k->shells, r);
}

/* With what clients have opened and closed, though Python was not told yet: a copy, if there is any of it. */
static const struct cb_comms *with(const struct cb_request *r, const struct cb_comms *comms, struct cb_comms *copy)
{
	for (; r != NULL; r = r->next) {
		if (r->kind != CB_REQUEST_COMM_OPEN && r->kind != CB_REQUEST_COMM_CLOSE)
			continue;
		if (comms != copy && cb_comms_copy(comms, copy) < 0)
			return comms;
		comms = copy;
		cb_comms_note(copy, r);
	}
	return comms;
}

static const struct cb_comms *with_waiting(struct cb_kernel *k, const struct cb_branch *branch, struct cb_comms *copy)
{
	const struct cb_comms *comms = branch != NULL ? &branch->comms : &k->guest.comms;

	if (branch != NULL)
		return with(branch->shell.waiting.head, comms, copy);
	for (size_t i = 0; i < CB_LANES; i++)
		comms = with(cb_lanes_waiting_in(&k->shells, i), comms, copy);
	return with(k->shells.execution.shell.waiting.head, comms, copy);
}

void cb_request_comm_info(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_json_field f[] = { { .name = "target_name", .types = CB_JSON_STRING | CB_JSON_NULL } };
	struct cb_json_error e = { 0 };

	if (cb_json_scan_object(r->content.data, r->content.len, f, 1, &e) < 0) {
		cb_reply_error(&k->jupyter, r, "MalformedRequestError", "comm_info_request: content: %s", e.reason);
		return;
	}
	struct cb_branch *branch = cb_branches_find(&k->transactions, r->subshell_id);
	struct cb_comms as_asked = { 0 };
	const struct cb_comms *comms = with_waiting(k, branch, &as_asked);
	CB_AUTO_BUF b = CB_BUF_INIT(CB_COMMS_BYTES_MAX + CB_COMMS_MAX * 32u);
	struct cb_json j = cb_json_begin(&b);
	struct cb_span target = f[0].ret_type == CB_JSON_STRING ? f[0].ret : (struct cb_span){ NULL, 0 };

	cb_json_put(&j, "status", "ok");
	cb_comms_list(comms, target, &j);
	cb_reply_json(&k->jupyter, r, &j);
	cb_comms_release(&as_asked);
}
