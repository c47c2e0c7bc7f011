/* comm_open, comm_msg, comm_close from clients, and comm_info_request. Trust domain: supervisor.
 *
 * Comm messages have no reply: a malformed one is bracketed by busy and idle and logged. The table of open comms
 * (comms.c) is kept by the supervisor, so that comm_info is answered while the guest is busy.
 */
#include <cellblock/json_scan.h>
#include <cellblock/log.h>

#include "kernel.h"
#include "requests.h"

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
		cb_bracket_end(&k->jupyter, r);
		cb_request_free(r);
		return;
	}
	if (cb_branches_comm(&k->transactions, r, f[0].ret, open ? f[1].ret : (struct cb_span){ NULL, 0 }))
		return;
	if (open)
		(void)cb_comms_opened(&k->guest.comms, f[0].ret, f[1].ret);
	else if (r->kind == CB_REQUEST_COMM_CLOSE)
		cb_comms_closed(&k->guest.comms, f[0].ret);
	cb_execution_submit(&k->shells, r);
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
	CB_AUTO_BUF b = CB_BUF_INIT(CB_COMMS_BYTES_MAX + CB_COMMS_MAX * 32u);
	struct cb_json j = cb_json_begin(&b);
	struct cb_span target = f[0].ret_type == CB_JSON_STRING ? f[0].ret : (struct cb_span){ NULL, 0 };

	cb_json_put(&j, "status", "ok");
	cb_comms_list(branch != NULL ? &branch->comms : &k->guest.comms, target, &j);
	cb_reply_json(&k->jupyter, r, &j);
}
