/* cellblock_file_request, cellblock_run_request, cellblock_usage_request: checked here, served by a helper in the jail.
 *
 * Trust domain: supervisor. On control they are begun at once; on shell they wait in the execution queue, where they
 * are read a second time when their turn comes. docs/messages.md says what they mean.
 */
#include <cellblock/json_scan.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>

#include "rooms.h"
#include "requests.h"

#define TIMEOUT_MAX 1e9 /* seconds; longer is none */

static int wrong(struct cb_job_what *what, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int wrong(struct cb_job_what *what, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(what->text, sizeof(what->text), format, ap);
	va_end(ap);
	return CB_E_SYNTAX;
}

static int scan(const struct cb_request *r, struct cb_json_field *f, size_t n, struct cb_job_what *what)
{
	struct cb_json_error e = { 0 };

	if (cb_json_scan_object(r->content.data, r->content.len, f, n, &e) == 0)
		return 0;
	return wrong(what, "content: %s%s%s at byte %zu", e.field != NULL ? e.field : "", e.field != NULL ? ": " : "",
		     e.reason, e.offset);
}

static bool is_set(const struct cb_json_field *f)
{
	return f->ret.data != NULL && f->ret_type != CB_JSON_NULL;
}

/* A text without NUL, for the jail's C. `absent` where the key is not given. */
static int take_text(const struct cb_json_field *f, const char *absent, char **ret_text, struct cb_job_what *what)
{
	CB_AUTO_BUF b = CB_BUF_INIT(PATH_MAX);

	if (!is_set(f)) {
		*ret_text = strdup(absent);
		return *ret_text != NULL ? 0 : -ENOMEM;
	}
	if (cb_json_string_decode(f->ret, &b) < 0 || cb_buf_append(&b, "", 1) < 0)
		return wrong(what, "content: %s: longer than %d bytes", f->name, PATH_MAX - 1);
	if (strlen((const char *)b.data) + 1 != b.len)
		return wrong(what, "content: %s: a NUL is not allowed", f->name);
	*ret_text = strdup((const char *)b.data);
	return *ret_text != NULL ? 0 : -ENOMEM;
}

static int take_count(const struct cb_json_field *f, uint64_t absent, uint64_t *ret_value, struct cb_job_what *what)
{
	int64_t v = 0;

	*ret_value = absent;
	if (!is_set(f))
		return 0;
	if (cb_json_int(f->ret, &v) < 0 || v < 0)
		return wrong(what, "content: %s: a whole number of bytes, 0 or more, is allowed", f->name);
	*ret_value = (uint64_t)v;
	return 0;
}

/* ---- cellblock_file_request ---- */

enum { OP, PATH, OFFSET, LENGTH, APPEND, EXCLUSIVE, PARENTS, RECURSIVE, NFILE };

static const struct {
	const char *name;
	enum cb_job_kind kind;
	bool needs_path;
} ops[] = {
	{ "read", CB_JOB_READ, true },	   { "write", CB_JOB_WRITE, true },  { "list", CB_JOB_LIST, false },
	{ "delete", CB_JOB_DELETE, true }, { "clean", CB_JOB_CLEAN, false },
};

static int find_op(struct cb_span raw, size_t *ret_index, struct cb_job_what *what)
{
	for (size_t i = 0; i < CB_COUNT(ops); i++) {
		if (cb_json_string_is(raw, ops[i].name)) {
			*ret_index = i;
			return 0;
		}
	}
	return wrong(what, "content: op: read, write, list, delete, clean, changes, commit and discard are allowed");
}

/* Without a path only what will be gone at the end anyway is deleted. */
static int check_clean(const struct cb_kernel *k, const struct cb_json_field *path, struct cb_job_what *what)
{
	if (is_set(path) || k->workspace.mode == CB_WORKSPACE_TMPFS)
		return 0;
	if (k->workspace.mode == CB_WORKSPACE_OVERLAY)
		return wrong(what,
			     "content: path: missing; op discard drops what cells changed. A folder that is named is "
			     "emptied (\".\" is all of it), and op commit would delete that outside too");
	return wrong(what, "content: path: the workspace holds files of yours, which are not thrown away without being "
			   "named: \".\" is all of it");
}

static int parse_file(struct cb_kernel *k, const struct cb_request *r, struct cb_job *job, struct cb_job_what *what)
{
	struct cb_json_field f[NFILE] = {
		[OP] = { .name = "op", .types = CB_JSON_STRING, .required = true },
		[PATH] = { .name = "path", .types = CB_JSON_STRING | CB_JSON_NULL },
		[OFFSET] = { .name = "offset", .types = CB_JSON_INTEGER | CB_JSON_NULL },
		[LENGTH] = { .name = "length", .types = CB_JSON_INTEGER | CB_JSON_NULL },
		[APPEND] = { .name = "append", .types = CB_JSON_BOOL | CB_JSON_NULL },
		[EXCLUSIVE] = { .name = "exclusive", .types = CB_JSON_BOOL | CB_JSON_NULL },
		[PARENTS] = { .name = "parents", .types = CB_JSON_BOOL | CB_JSON_NULL },
		[RECURSIVE] = { .name = "recursive", .types = CB_JSON_BOOL | CB_JSON_NULL },
	};
	uint64_t limit = k->policy->limit_message;
	size_t op = 0;
	int c = scan(r, f, NFILE, what);

	if (c == 0)
		c = find_op(f[OP].ret, &op, what);
	if (c == 0 && ops[op].needs_path && !is_set(&f[PATH]))
		c = wrong(what, "content: path: missing");
	if (c == 0 && ops[op].kind == CB_JOB_CLEAN)
		c = check_clean(k, &f[PATH], what);
	if (c == 0 && ops[op].kind != CB_JOB_WRITE && r->nframes > r->first_buffer)
		c = wrong(what, "buffers: only op write takes data");
	if (c == 0)
		c = take_text(&f[PATH], ".", &job->path, what);
	if (c == 0)
		c = take_count(&f[OFFSET], 0, &job->asked.a, what);
	if (c == 0)
		c = take_count(&f[LENGTH], limit, &job->asked.b, what);
	if (c < 0)
		return c;
	if (job->asked.b > limit)
		return wrong(what, "content: length: more than limits.message = %llu allows: read in parts",
			     (unsigned long long)limit);
	job->whole = !is_set(&f[LENGTH]);
	job->asked.code = (int)ops[op].kind;
	job->asked.flags = (is_set(&f[OFFSET]) ? CB_JOB_AT_OFFSET : 0) |
			   (f[APPEND].ret_type == CB_JSON_TRUE ? CB_JOB_APPEND : 0) |
			   (f[EXCLUSIVE].ret_type == CB_JSON_TRUE ? CB_JOB_EXCLUSIVE : 0) |
			   (f[PARENTS].ret_type == CB_JSON_TRUE ? CB_JOB_PARENTS : 0) |
			   (f[RECURSIVE].ret_type == CB_JSON_TRUE ? CB_JOB_RECURSIVE : 0);
	return 0;
}

/* ---- cellblock_run_request ---- */

enum { ARGV, CWD, ENV, STDIN, TIMEOUT, NRUN };

static int too_long(struct cb_job_what *what, const char *key)
{
	return wrong(what, "content: %s: arguments and variables are longer than %u bytes", key, CB_JOB_ARGUMENTS_MAX);
}

/* Looked at before jansson makes many times the memory of it; an escaped byte takes six. */
static bool is_bounded(const struct cb_json_field *f)
{
	return f->ret.len <= 10u * CB_JOB_ARGUMENTS_MAX;
}

static int add_argument(struct cb_job *job, const char *key, const char *name, const json_t *value,
			struct cb_job_what *what)
{
	const char *text = json_string_value(value);
	size_t len = json_string_length(value);

	if (strlen(text) != len || strlen(name) == 0 || strchr(name, '=') != NULL)
		return wrong(what, "content: %s: a NUL, an empty name or one with = is not allowed", key);
	if (job->input.len + strlen(name) + len + 2 > CB_JOB_ARGUMENTS_MAX)
		return too_long(what, key);
	if ((strcmp(key, "env") == 0 && cb_buf_printf(&job->input, "%s=", name) < 0) ||
	    cb_buf_append(&job->input, text, len + 1) < 0)
		return -ENOMEM;
	job->asked.a = job->input.len;
	return 0;
}

static int take_argv(const struct cb_json_field *f, struct cb_job *job, struct cb_job_what *what)
{
	json_auto_t *argv = is_bounded(f) ? json_loadb(f->ret.data, f->ret.len, JSON_ALLOW_NUL, NULL) : NULL;
	json_t *item;
	size_t i;
	int c = 0;

	if (!is_bounded(f))
		return too_long(what, "argv");
	if (argv == NULL)
		return wrong(what, "content: argv: can't be read");
	if (json_array_size(argv) == 0)
		return wrong(what, "content: argv: a program is missing");
	json_array_foreach(argv, i, item)
	{
		if (c == 0)
			c = add_argument(job, "argv", "argv", item, what);
	}
	job->asked.b = json_array_size(argv);
	if (c == 0 && json_string_length(json_array_get(argv, 0)) == 0)
		c = wrong(what, "content: argv: a program is missing");
	return c;
}

static int take_env(const struct cb_json_field *f, struct cb_job *job, struct cb_job_what *what)
{
	bool bounded = !is_set(f) || is_bounded(f);
	json_auto_t *env = !bounded    ? NULL
			   : is_set(f) ? json_loadb(f->ret.data, f->ret.len, JSON_ALLOW_NUL, NULL)
				       : json_object();
	const char *name;
	json_t *value;

	if (!bounded)
		return too_long(what, "env");
	int c = env != NULL ? 0 : wrong(what, "content: env: can't be read: is there a NUL in a name?");

	json_object_foreach(env, name, value)
	{
		if (c == 0)
			c = add_argument(job, "env", name, value, what);
	}
	return c;
}

static int take_timeout(const struct cb_kernel *k, const struct cb_json_field *f, double *ret_timeout,
			struct cb_job_what *what)
{
	double limit = k->policy->timeout_cell, own = 0;

	*ret_timeout = limit;
	if (!is_set(f))
		return 0;
	if (cb_json_real(f->ret, &own) < 0 || !(own > 0))
		return wrong(what, "content: timeout: a number of seconds above 0 is allowed");
	if (own < (limit > 0 ? limit : TIMEOUT_MAX))
		*ret_timeout = own;
	return 0;
}

static int parse_run(struct cb_kernel *k, const struct cb_request *r, struct cb_job *job, struct cb_job_what *what)
{
	struct cb_json_field f[NRUN] = {
		[ARGV] = { .name = "argv", .types = CB_JSON_ARRAY, .required = true, .elements = CB_JSON_STRING },
		[CWD] = { .name = "cwd", .types = CB_JSON_STRING | CB_JSON_NULL },
		[ENV] = { .name = "env", .types = CB_JSON_OBJECT | CB_JSON_NULL, .members = CB_JSON_STRING },
		[STDIN] = { .name = "stdin", .types = CB_JSON_STRING | CB_JSON_NULL },
		[TIMEOUT] = { .name = "timeout", .types = CB_JSON_NUMBER | CB_JSON_NULL },
	};
	double grace = k->policy->timeout_grace;
	int c = scan(r, f, NRUN, what);

	if (c == 0)
		c = take_argv(&f[ARGV], job, what);
	if (c == 0)
		c = take_env(&f[ENV], job, what);
	if (c == 0)
		c = take_text(&f[CWD], "", &job->path, what);
	if (c == 0)
		c = take_timeout(k, &f[TIMEOUT], &job->timeout, what);
	if (c == 0 && is_set(&f[STDIN]))
		c = cb_json_string_decode(f[STDIN].ret, &job->input);
	job->asked.c = (uint32_t)(grace * 1000);
	return c;
}

/* ---- cellblock_usage_request ---- */

static int parse_usage(struct cb_kernel *k, const struct cb_request *r, struct cb_job *job, struct cb_job_what *what)
{
	(void)k;
	job->path = strdup("");
	return job->path != NULL ? scan(r, NULL, 0, what) : -ENOMEM;
}

/* ---- all ---- */

static const struct {
	enum cb_request_kind of;
	enum cb_job_kind kind;
	int (*parse)(struct cb_kernel *k, const struct cb_request *r, struct cb_job *job, struct cb_job_what *what);
} requests[] = {
	{ CB_REQUEST_FILE, CB_JOB_READ, parse_file },
	{ CB_REQUEST_RUN, CB_JOB_RUN, parse_run },
	{ CB_REQUEST_JAIL_USAGE, CB_JOB_USAGE, parse_usage },
};

/* The row of a request; behind the last one if it is none of these. */
static size_t row_of(const struct cb_request *r)
{
	size_t i = 0;

	while (i < CB_COUNT(requests) && requests[i].of != r->kind)
		i++;
	return i;
}

bool cb_request_is_job(const struct cb_request *r)
{
	return row_of(r) < CB_COUNT(requests);
}

int cb_job_parse(struct cb_kernel *k, struct cb_request *r, struct cb_job **ret_job, struct cb_job_what *what)
{
	size_t row = row_of(r);
	struct cb_job *job = cb_job_new(&k->workspace, r, requests[row].kind);
	int c = job != NULL ? requests[row].parse(k, r, job, what) : -ENOMEM;

	if (c < 0) {
		cb_job_free(job);
		return c == CB_E_SYNTAX ? c : wrong(what, "no memory");
	}
	*ret_job = job;
	return 0;
}

void cb_request_job(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_job *job = NULL;
	enum cb_broker_op op;
	struct cb_job_what what;

	if (cb_overlay_changes_op(r, &op)) {
		if (r->channel == CB_SHELL) {
			cb_execution_submit(&k->shells, r);
		} else {
			cb_bracket_begin(&k->jupyter, r);
			cb_overlay_changes_start(&k->workspace, r, op);
		}
	} else if (cb_job_parse(k, r, &job, &what) < 0) {
		cb_failure_malformed(&k->shells, r, "%s", what.text);
	} else if (r->channel == CB_SHELL) {
		cb_job_free(job);
		cb_execution_submit(&k->shells, r);
	} else {
		cb_bracket_begin(&k->jupyter, r);
		cb_jobs_start(&k->workspace, job);
	}
}

void cb_job_begin(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_job *job = NULL;
	enum cb_broker_op op;
	struct cb_job_what what;

	if (cb_overlay_changes_op(r, &op)) {
		cb_overlay_changes_start(&k->workspace, r, op);
		return;
	}
	if (cb_job_parse(k, r, &job, &what) == 0) {
		cb_jobs_start(&k->workspace, job);
		return;
	}
	cb_reply_error(&k->jupyter, r, "MalformedRequestError", "%s: %s", r->type, what.text);
	cb_execution_finish(&k->shells);
}
