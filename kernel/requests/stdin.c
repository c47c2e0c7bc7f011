/* input_request to the client of the running cell, and its input_reply. Trust domain: supervisor.
 *
 * The request goes to the identity of the cell's execute_request: clients use one identity for shell and stdin. Replies
 * that nobody waits for are dropped, and the channel is emptied of them before a question is asked. When the main
 * shell, subshells and branches wait for the same client, header.subshell_id says which is meant; else the main shell,
 * or who asked first.
 */
#include <cellblock/json_scan.h>
#include <cellblock/log.h>

#include "requests.h"

void cb_stdin_ask(struct cb_kernel *k, const struct cb_request *cell, struct cb_span content)
{
	struct cb_outgoing out = { .type = "input_request",
				   .parent = cb_header_span(cell->header),
				   .metadata = CB_SPAN("{}"),
				   .content = content };

	cb_channels_drain_stdin(k);
	cb_channels_send(k, CB_STDIN, cell, &out);
}

struct asker {
	bool main;
	struct cb_branch *branch;
	struct cb_lane *lane;
};

/* Another client's answer is nobody's: the question went to one client only. */
static struct asker asker(struct cb_kernel *k, const struct cb_request *r)
{
	bool to_lane = r->subshell_id.data != NULL && cb_lanes_known(k, r->subshell_id);
	bool to_branch = cb_branches_find(k, r->subshell_id) != NULL;
	struct asker a = { 0 };

	if (!to_lane && !to_branch && k->guest.rules.phase == CB_PHASE_INPUT &&
	    cb_request_same_client(r, k->execution.current)) {
		a.main = true;
		return a;
	}
	a.branch = to_lane ? NULL : cb_branches_asker(k, r);
	a.lane = to_branch ? NULL : cb_lanes_asker(k, r);
	if (a.branch != NULL && a.lane != NULL) {
		if (a.branch->lane.asked_at < a.lane->asked_at)
			a.lane = NULL;
		else
			a.branch = NULL;
	}
	return a;
}

void cb_request_input_reply(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_json_field f[] = { { .name = "value", .types = CB_JSON_STRING, .required = true } };
	struct cb_json_error e = { 0 };

	struct asker to = asker(k, r);

	if (!to.main && to.branch == NULL && to.lane == NULL) {
		cb_log(CB_LOG_INFO, "input_reply dropped: this client was not asked");
		return;
	}
	if (cb_json_scan_object(r->content.data, r->content.len, f, 1, &e) < 0) {
		cb_log(CB_LOG_WARNING, "input_reply dropped: %s%s%s", e.field != NULL ? e.field : "",
		       e.field != NULL ? ": " : "", e.reason);
		return;
	}
	if (to.branch != NULL) {
		cb_branches_input(k, to.branch, r->content);
	} else if (to.lane != NULL) {
		cb_lanes_input(k, to.lane, r->content);
	} else {
		if (cb_guest_send_input(k, r->content) < 0)
			cb_log(CB_LOG_WARNING, "input_reply not handed to the guest");
		cb_execution_input_wait(k, false);
	}
}
