/* interrupt_request and shutdown_request, on control and shell, and debug_request, which the guest's debugger answers.
 *
 * Trust domain: supervisor. An interrupt is of all that runs, of a subshell or branch, or of one request that it names.
 * Invariant: one that names a request is never another's. What it names may be on its way, for each channel is a
 * connection of its own: its name is kept, and it is aborted when it comes.
 */
#include <cellblock/json_scan.h>
#include <cellblock/log.h>

#include "rooms.h"
#include "requests.h"

#define FIRST_MOMENTS 10000000000LL /* ns; later it counts always, for clients' clocks differ */

/* A server that restarts a kernel which has died interrupts it first, and the next one gets that. The first moments are
 * not measured by dates: those of a host whose clock was set back would last as long as it was set back by. */
static bool is_for_the_kernel_before(const struct cb_kernel *k, const struct cb_request *r)
{
	return r->date < k->started && r->arrived_ns - k->started_ns < FIRST_MOMENTS;
}

static void interrupt_line(struct cb_kernel *k, const struct cb_request *r)
{
	struct cb_branch *branch = cb_branches_find(&k->transactions, r->subshell_id);

	if (is_for_the_kernel_before(k, r))
		cb_log(CB_LOG_INFO, "an interrupt from before this kernel's start is not for it");
	else if (branch != NULL && !cb_shell_came_after(&branch->shell, r))
		cb_shell_interrupt(&branch->shell, true);
	else if (branch == NULL && r->subshell_id.data != NULL)
		cb_lanes_interrupt_subshell(&k->shells, r);
	else if (branch == NULL)
		cb_execution_interrupt(&k->shells, r);
}

static enum cb_found interrupt_one(struct cb_kernel *k, struct cb_span msg_id)
{
	/* first: one that came on shell is the shell's current request, too */
	enum cb_found found = cb_jobs_interrupt_one(&k->workspace, msg_id);

	if (found == CB_FOUND_NOWHERE)
		found = cb_execution_interrupt_one(&k->shells, msg_id);
	if (found == CB_FOUND_NOWHERE)
		found = cb_lanes_interrupt_one(&k->shells, msg_id);
	if (found == CB_FOUND_NOWHERE)
		found = cb_branches_interrupt_one(&k->transactions, msg_id);
	return found;
}

/* The answer's word for where it was; NULL = it has not come, or has ended. */
static const char *interrupt_named(struct cb_kernel *k, struct cb_span msg_id)
{
	switch (interrupt_one(k, msg_id)) {
	case CB_FOUND_RUNNING:
		return "running";
	case CB_FOUND_WAITING:
		return "waiting";
	case CB_FOUND_NOWHERE:
		break;
	}
	k->taken_back.name[k->taken_back.next++ % CB_TAKEN_BACK] = cb_span_hash(msg_id, CB_HASH);
	return NULL;
}

bool cb_request_was_taken_back(const struct cb_kernel *k, const struct cb_request *r)
{
	uint64_t name = cb_span_hash(r->msg_id, CB_HASH);

	for (size_t i = 0; i < CB_TAKEN_BACK; i++)
		if (k->taken_back.name[i] == name)
			return true;
	return false;
}

void cb_request_interrupt(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_json_field f[] = { { .name = "msg_id", .types = CB_JSON_STRING } };

	if (!cb_read_content(&k->jupyter, r, f, 1))
		return;
	if (f[0].ret.data == NULL) {
		interrupt_line(k, r);
		cb_reply_ok(&k->jupyter, r);
		return;
	}
	CB_JSON_SMALL(content, "status", "ok", "found", interrupt_named(k, f[0].ret));
	cb_reply(&k->jupyter, r, cb_buf_span(&content));
}

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
