/* The table of requests.
 *
 * Trust domain: supervisor; sees only messages whose signature holds. Reading order: here, then requests/, then
 * execution.c. Adding a message means a row here, a handler in requests/ and, if the guest has to answer, rows in
 * include/cellblock/wire.h.
 */
#include "requests.h"

#include <cellblock/log.h>

#include "rooms.h"
#include "shells/abort.h"

#define ON(channel) (1u << (channel))

enum way { AT_ONCE, TAKE, SILENT };

static const struct {
	unsigned channels;
	enum way way;
	void (*handle)(struct cb_kernel *k, struct cb_request *r);
} route[] = {
	[CB_REQUEST_EXECUTE] = { ON(CB_SHELL), TAKE, cb_request_execute },
	[CB_REQUEST_COMPLETE] = { ON(CB_SHELL), TAKE, cb_request_ask },
	[CB_REQUEST_INSPECT] = { ON(CB_SHELL), TAKE, cb_request_ask },
	[CB_REQUEST_IS_COMPLETE] = { ON(CB_SHELL), TAKE, cb_request_ask },
	[CB_REQUEST_COMM_OPEN] = { ON(CB_SHELL), TAKE, cb_request_comm },
	[CB_REQUEST_COMM_MSG] = { ON(CB_SHELL), TAKE, cb_request_comm },
	[CB_REQUEST_COMM_CLOSE] = { ON(CB_SHELL), TAKE, cb_request_comm },
	[CB_REQUEST_HISTORY] = { ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_history },
	[CB_REQUEST_FILE] = { ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_job },
	[CB_REQUEST_RUN] = { ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_job },
	[CB_REQUEST_JAIL_USAGE] = { ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_job },
	[CB_REQUEST_CHECKPOINT] = { ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	[CB_REQUEST_ROLLBACK] = { ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	[CB_REQUEST_LIST_CHECKPOINTS] = { ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	[CB_REQUEST_DELETE_CHECKPOINT] = { ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	[CB_REQUEST_BRANCH] = { ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	[CB_REQUEST_LIST_BRANCHES] = { ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	[CB_REQUEST_ADOPT] = { ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	[CB_REQUEST_TOOLS] = { ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_tools },
	[CB_REQUEST_DEBUG] = { ON(CB_CONTROL), TAKE, cb_request_debug },
	[CB_REQUEST_KERNEL_INFO] = { ON(CB_SHELL) | ON(CB_CONTROL), AT_ONCE, cb_request_kernel_info },
	[CB_REQUEST_COMM_INFO] = { ON(CB_SHELL) | ON(CB_CONTROL), AT_ONCE, cb_request_comm_info },
	[CB_REQUEST_CONNECT] = { ON(CB_SHELL) | ON(CB_CONTROL), AT_ONCE, cb_request_connect },
	[CB_REQUEST_USAGE] = { ON(CB_SHELL) | ON(CB_CONTROL), AT_ONCE, cb_request_usage },
	[CB_REQUEST_INTERRUPT] = { ON(CB_SHELL) | ON(CB_CONTROL), AT_ONCE, cb_request_interrupt },
	[CB_REQUEST_SHUTDOWN] = { ON(CB_SHELL) | ON(CB_CONTROL), AT_ONCE, cb_request_shutdown },
	[CB_REQUEST_CREATE_SUBSHELL] = { ON(CB_CONTROL), AT_ONCE, cb_request_create_subshell },
	[CB_REQUEST_DELETE_SUBSHELL] = { ON(CB_CONTROL), AT_ONCE, cb_request_delete_subshell },
	[CB_REQUEST_LIST_SUBSHELL] = { ON(CB_CONTROL), AT_ONCE, cb_request_list_subshell },
	[CB_REQUEST_INPUT_REPLY] = { ON(CB_STDIN), SILENT, cb_request_input_reply },
};

/* Nothing that would have to wait is taken any more. The debugger has its own words for that. */
static bool refused_at_end(struct cb_kernel *k, struct cb_request *r)
{
	if (!k->guest.shutting_down || r->kind == CB_REQUEST_DEBUG)
		return false;
	cb_refuse(&k->jupyter, r, "KernelBusyError", "the kernel is shutting down");
	return true;
}

static size_t signed_size(const struct cb_request *r)
{
	size_t total = 0;

	for (size_t i = r->nident; i < r->nframes; i++)
		total += zmq_msg_size(&r->frame[i]);
	return total;
}

void cb_route(struct cb_kernel *k, struct cb_request *r)
{
	if (signed_size(r) > k->policy->limit_message) {
		if (r->channel == CB_STDIN) {
			cb_request_stdin_too_large(k, r);
			return;
		}
		cb_failure_malformed(&k->shells, r, "%zu bytes are more than limits.message = %llu allows",
				     signed_size(r), (unsigned long long)k->policy->limit_message);
		return;
	}
	cb_idle_touch(&k->shells.idle);
	cb_traceparent_of(r->metadata, r->traceparent);
	if (r->subshell_id.data != NULL && r->channel == CB_SHELL && !cb_lanes_known(&k->shells, r->subshell_id) &&
	    cb_branches_find(&k->transactions, r->subshell_id) == NULL) {
		cb_bracket_begin(&k->jupyter, r);
		if (!cb_request_is_comm(r))
			cb_branches_unknown(&k->transactions, r, r->subshell_id);
		cb_bracket_close(&k->jupyter, r);
		return;
	}
	if (route[r->kind].channels & ON(r->channel)) {
		enum way way = route[r->kind].way;

		if (way == TAKE && cb_request_was_taken_back(k, r)) {
			cb_abort_request(&k->jupyter, r);
			return;
		}
		if (way == TAKE && refused_at_end(k, r))
			return;
		if (way == TAKE && r->kind != CB_REQUEST_HISTORY && cb_failure_without_log(&k->shells, r))
			return;
		if (way == AT_ONCE)
			cb_bracket_begin(&k->jupyter, r);
		route[r->kind].handle(k, r);
		if (way == TAKE)
			return;
		if (way == AT_ONCE)
			cb_bracket_end(&k->jupyter, r);
		cb_request_free(r);
		return;
	}
	cb_log(CB_LOG_INFO, "%s: no handler for this message type", cb_channel_name(r->channel));
	if (r->channel != CB_STDIN) {
		/* the protocol says to tolerate it; a request that waits for a reply gets one */
		size_t n = strlen(r->type), suffix = strlen("_request");

		cb_bracket_begin(&k->jupyter, r);
		if (n > suffix && strcmp(r->type + n - suffix, "_request") == 0)
			cb_reply_error(&k->jupyter, r, "UnknownMessageError", "%s is not known on the %s channel",
				       r->type, cb_channel_name(r->channel));
		cb_bracket_end(&k->jupyter, r);
	}
	cb_request_free(r);
}
