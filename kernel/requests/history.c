/* history_request: answered by the history thread, in order of asking. Trust domain: supervisor. */
#include <cellblock/json_scan.h>
#include <errno.h>

#include "rooms.h"
#include "requests.h"

enum { ACCESS, OUTPUT, UNIQUE, SESSION, START, STOP, N, PATTERN, NFIELDS };

static int64_t number(const struct cb_json_field *f, int64_t absent)
{
	int64_t v = absent;

	if (f->ret.data != NULL && f->ret_type == CB_JSON_INTEGER)
		(void)cb_json_int(f->ret, &v);
	return v;
}

static int parse(const struct cb_request *r, struct cb_history_query *ret_query, struct cb_buf *pattern,
		 const char **ret_what)
{
	struct cb_json_field f[NFIELDS] = {
		[ACCESS] = { .name = "hist_access_type", .types = CB_JSON_STRING, .required = true },
		[OUTPUT] = { .name = "output", .types = CB_JSON_BOOL | CB_JSON_NULL },
		[UNIQUE] = { .name = "unique", .types = CB_JSON_BOOL | CB_JSON_NULL },
		[SESSION] = { .name = "session", .types = CB_JSON_INTEGER | CB_JSON_NULL },
		[START] = { .name = "start", .types = CB_JSON_INTEGER | CB_JSON_NULL },
		[STOP] = { .name = "stop", .types = CB_JSON_INTEGER | CB_JSON_NULL },
		[N] = { .name = "n", .types = CB_JSON_INTEGER | CB_JSON_NULL },
		[PATTERN] = { .name = "pattern", .types = CB_JSON_STRING | CB_JSON_NULL },
	};
	struct cb_json_error e = { 0 };
	struct cb_history_query q;
	int c = cb_json_scan_object(r->content.data, r->content.len, f, NFIELDS, &e);

	*ret_what = e.reason;
	if (c < 0)
		return c;
	*ret_what = "hist_access_type: range, tail and search are allowed";
	if (cb_json_string_is(f[ACCESS].ret, "range"))
		q.access = CB_HISTORY_RANGE;
	else if (cb_json_string_is(f[ACCESS].ret, "tail"))
		q.access = CB_HISTORY_TAIL;
	else if (cb_json_string_is(f[ACCESS].ret, "search"))
		q.access = CB_HISTORY_SEARCH;
	else
		return CB_E_UNKNOWN;
	q.output = f[OUTPUT].ret_type == CB_JSON_TRUE;
	q.unique = f[UNIQUE].ret_type == CB_JSON_TRUE;
	q.session = number(&f[SESSION], 0);
	q.start = number(&f[START], 1);
	q.stop = number(&f[STOP], -1);
	q.n = number(&f[N], -1);
	*ret_what = "pattern is too long: at most 1000 bytes are allowed";
	if (f[PATTERN].ret.data != NULL && f[PATTERN].ret_type == CB_JSON_STRING)
		c = cb_json_string_decode(f[PATTERN].ret, pattern);
	else
		c = cb_buf_append_str(pattern, "*");
	if (c == 0)
		c = cb_buf_append(pattern, "", 1);
	q.pattern = (const char *)pattern->data;
	*ret_query = q;
	return c;
}

void cb_request_history(struct cb_kernel *k, struct cb_request *r)
{
	CB_AUTO_BUF pattern = CB_BUF_INIT(CB_HISTORY_PATTERN + 1);
	struct cb_history_query q;
	const char *what = NULL;

	if (parse(r, &q, &pattern, &what) < 0) {
		cb_failure_malformed(&k->shells, r, "content: %s", what);
		return;
	}
	cb_bracket_begin(&k->jupyter, r);
	int c = k->records.history != NULL ? cb_history_query(k->records.history, &q, k->history_tag + 1) : -ENOENT;

	if (c < 0) {
		if (k->records.history == NULL)
			cb_reply_ok(&k->jupyter, r, "history", CB_SPAN("[]"));
		else
			cb_reply_error(&k->jupyter, r, "KernelBusyError", "history: %s", cb_err_name(c));
		cb_bracket_close(&k->jupyter, r);
		return;
	}
	struct cb_request **at = &k->history_waiting;

	while (*at != NULL)
		at = &(*at)->next;
	*at = r;
	r->id = ++k->history_tag;
}

void cb_history_ready(void *context, short revents)
{
	struct cb_kernel *k = context;

	(void)revents;
	for (;;) {
		CB_AUTO_BUF rows = CB_BUF_INIT(256u << 20), b = CB_BUF_INIT((256u << 20) + 64);
		struct cb_request **at = &k->history_waiting;
		uint64_t tag = 0;

		if (cb_history_next(k->records.history, &tag, &rows) < 0)
			return;
		while (*at != NULL && (*at)->id != tag)
			at = &(*at)->next;
		struct cb_request *r = *at;

		if (r == NULL)
			continue;
		*at = r->next;
		struct cb_json j = cb_json_begin(&b);

		cb_json_put(&j, "status", "ok", "history", cb_buf_span(&rows));
		cb_reply_json(&k->jupyter, r, &j);
		cb_bracket_close(&k->jupyter, r);
	}
}

void cb_history_end(struct cb_kernel *k, const char *why)
{
	while (k->history_waiting != NULL) {
		struct cb_request *r = k->history_waiting;

		k->history_waiting = r->next;
		cb_reply_error(&k->jupyter, r, "KernelDiedError", "%s", why);
		cb_bracket_close(&k->jupyter, r);
	}
}

void cb_history_forget_waiting(struct cb_kernel *k)
{
	while (k->history_waiting != NULL) {
		struct cb_request *r = k->history_waiting;

		k->history_waiting = r->next;
		cb_request_free(r);
	}
}
