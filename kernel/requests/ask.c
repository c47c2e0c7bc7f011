/* complete_request, inspect_request, is_complete_request: checked here, answered by the guest. Trust domain:
 * supervisor. */
#include <cellblock/json_scan.h>

#include "requests.h"
#include "shells/execution.h"
#include "shells/failure.h"

void cb_request_ask(struct cb_kernel *k, struct cb_request *r)
{
	bool is_complete = r->kind == CB_REQUEST_IS_COMPLETE;
	struct cb_json_field f[] = {
		{ .name = "code", .types = CB_JSON_STRING, .required = true },
		{ .name = "cursor_pos", .types = CB_JSON_INTEGER | CB_JSON_NULL },
		{ .name = "detail_level", .types = CB_JSON_INTEGER | CB_JSON_NULL },
	};
	struct cb_json_error e = { 0 };
	int64_t level = 0;

	if (cb_json_scan_object(r->content.data, r->content.len, f, is_complete ? 1 : 3, &e) < 0)
		cb_failure_malformed(k, r, "content: %s%s%s at byte %zu", e.field != NULL ? e.field : "",
				     e.field != NULL ? ": " : "", e.reason, e.offset);
	else if (f[2].ret.data != NULL && f[2].ret_type == CB_JSON_INTEGER &&
		 (cb_json_int(f[2].ret, &level) < 0 || level < 0 || level > 1))
		cb_failure_malformed(k, r, "content: detail_level: 0 and 1 are allowed");
	else
		cb_execution_submit(k, r);
}
