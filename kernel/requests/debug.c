/* debug_request: checked here, answered by the guest's debugger. Trust domain: supervisor. */
#include <cellblock/json_scan.h>

#include "requests.h"
#include "shells/debug.h"
#include "shells/failure.h"

enum { TYPE, SEQ, COMMAND, ARGUMENTS, NFIELDS };

static int scan(const struct cb_request *r, struct cb_json_field f[NFIELDS], struct cb_json_error *e)
{
	f[TYPE] = (struct cb_json_field){ .name = "type", .types = CB_JSON_STRING };
	f[SEQ] = (struct cb_json_field){ .name = "seq", .types = CB_JSON_INTEGER, .required = true };
	f[COMMAND] = (struct cb_json_field){ .name = "command", .types = CB_JSON_STRING, .required = true };
	f[ARGUMENTS] = (struct cb_json_field){ .name = "arguments", .types = CB_JSON_OBJECT | CB_JSON_NULL };
	return cb_json_scan_object(r->content.data, r->content.len, f, NFIELDS, e);
}

struct cb_debug_fields cb_debug_fields(const struct cb_request *r)
{
	struct cb_json_field f[NFIELDS];
	struct cb_json_error e = { 0 };

	(void)scan(r, f, &e);
	return (struct cb_debug_fields){ .seq = f[SEQ].ret, .command = f[COMMAND].ret };
}

void cb_request_debug(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_json_field f[NFIELDS];
	struct cb_json_error e = { 0 };

	if (scan(r, f, &e) == 0) {
		cb_debug_submit(k, r);
		return;
	}
	cb_failure_malformed(k, r, "content: %s%s%s at byte %zu", e.field != NULL ? e.field : "",
			     e.field != NULL ? ": " : "", e.reason, e.offset);
}
