/* shutdown_request, on control and shell, and debug_request, which the guest's debugger answers.
 * Trust domain: supervisor. */
#include <cellblock/json_scan.h>

#include "rooms.h"
#include "requests.h"

void cb_request_shutdown(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_json_field f[] = { { .name = "restart", .types = CB_JSON_BOOL } };

	if (!cb_read_content(&k->jupyter, r, f, 1))
		return;
	bool restart = f[0].ret_type == CB_JSON_TRUE;
	CB_JSON_SMALL(content, "status", "ok", "restart", restart);

	/* other clients of this kernel hear of it, as from ipykernel */
	cb_iopub_content(&k->jupyter, "shutdown_reply", CB_WEIGHT_KEEP, r->header, cb_buf_span(&content));
	cb_reply(&k->jupyter, r, cb_buf_span(&content));
	k->shutdown(k, restart);
}

void cb_request_debug(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_debug_fields fields;
	struct cb_json_error e = { 0 };

	if (cb_debug_scan(r, &fields, &e) == 0) {
		cb_audit_request(&k->records, r); /* it may have code evaluated */
		cb_debug_submit(&k->shells, r);
		return;
	}
	cb_failure_malformed(&k->shells, r, "content: %s%s%s at byte %zu", e.field != NULL ? e.field : "",
			     e.field != NULL ? ": " : "", e.reason, e.offset);
}
