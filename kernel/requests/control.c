/* interrupt_request and shutdown_request, on control and shell, and debug_request, which the guest's debugger answers.
 * Trust domain: supervisor. */
#include <cellblock/json_scan.h>
#include <cellblock/log.h>

#include "rooms.h"
#include "requests.h"

#define FIRST_MOMENTS 10.0     /* seconds; later it counts always, for clients' clocks differ */
#define OVERTAKEN 2000000000LL /* ns of a cell's run; later it counts always, for a clock may be set back */

/* A server that restarts a kernel which has died interrupts it first, and the next one gets that. */
static bool is_for_the_kernel_before(const struct cb_kernel *k, const struct cb_request *r)
{
	return r->date < k->started && r->arrived_date < k->started + FIRST_MOMENTS;
}

/* What a client sends on control may be read after what it sends on shell later: the cell would get an interrupt that
 * was meant for the one before it. */
static bool is_for_the_cell_before(const struct cb_kernel *k, const struct cb_request *r)
{
	const struct cb_request *cell = k->shells.execution.shell.current;

	return cell != NULL && r->subshell_id.data == NULL && r->session.data != NULL &&
	       r->session.len == cell->session.len &&
	       memcmp(r->session.data, cell->session.data, r->session.len) == 0 && r->date < cell->date &&
	       r->arrived_ns - k->shells.execution.shell.cell.started_ns < OVERTAKEN;
}

void cb_request_interrupt(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_branch *branch = cb_branches_find(&k->transactions, r->subshell_id);

	if (is_for_the_kernel_before(k, r))
		cb_log(CB_LOG_INFO, "an interrupt from before this kernel's start is not for it");
	else if (branch == NULL && is_for_the_cell_before(k, r))
		cb_log(CB_LOG_INFO, "an interrupt that was sent before the cell is not for it");
	else if (branch != NULL)
		cb_shell_interrupt(&branch->shell, true);
	else if (r->subshell_id.data != NULL)
		cb_lanes_interrupt_one(&k->shells, r->subshell_id);
	else
		cb_execution_interrupt(&k->shells);
	cb_reply_ok(&k->jupyter, r);
}

void cb_request_shutdown(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_json_field f[] = { { .name = "restart", .types = CB_JSON_BOOL } };
	struct cb_json_error e = { 0 };

	if (cb_json_scan_object(r->content.data, r->content.len, f, 1, &e) < 0) {
		cb_reply_error(&k->jupyter, r, "MalformedRequestError", "shutdown_request: content: %s%s%s",
			       e.field != NULL ? e.field : "", e.field != NULL ? ": " : "", e.reason);
		return;
	}
	bool restart = f[0].ret_type == CB_JSON_TRUE;
	CB_JSON_SMALL(content, "status", "ok", "restart", restart);
	struct cb_outgoing out = { .type = "shutdown_reply",
				   .parent = cb_header_span(r->header),
				   .metadata = CB_SPAN("{}"),
				   .content = cb_buf_span(&content) };

	cb_iopub_publish(&k->jupyter, "shutdown_reply", CB_WEIGHT_KEEP,
			 &out); /* other clients of this kernel hear of it, as from ipykernel */
	cb_reply(&k->jupyter, r, cb_buf_span(&content));
	k->shutdown(k, restart);
}

void cb_request_debug(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_debug_fields fields;
	struct cb_json_error e = { 0 };

	if (cb_debug_scan(r, &fields, &e) == 0) {
		cb_debug_submit(&k->shells, r);
		return;
	}
	cb_failure_malformed(&k->shells, r, "content: %s%s%s at byte %zu", e.field != NULL ? e.field : "",
			     e.field != NULL ? ": " : "", e.reason, e.offset);
}
