/* The table of requests.
 *
 * Trust domain: supervisor; sees only messages whose signature holds. Reading order: here, then requests/, then
 * execution.c. Adding a message means a row here, a handler in requests/ and, if the guest has to answer, rows in
 * include/cellblock/wire.h.
 */
#include "router.h"

#include <cellblock/log.h>

#include "failure.h"
#include "kernel.h"
#include "requests/requests.h"

#define ON(channel) (1u << (channel))

enum kind { AT_ONCE, TAKE, SILENT };

static const struct {
	const char *type;
	unsigned channels;
	enum kind kind;
	void (*handle)(struct cb_kernel *k, struct cb_request *r);
} route[] = {
	{ "execute_request", ON(CB_SHELL), TAKE, cb_request_execute },
	{ "complete_request", ON(CB_SHELL), TAKE, cb_request_ask },
	{ "inspect_request", ON(CB_SHELL), TAKE, cb_request_ask },
	{ "is_complete_request", ON(CB_SHELL), TAKE, cb_request_ask },
	{ "comm_open", ON(CB_SHELL), TAKE, cb_request_comm },
	{ "comm_msg", ON(CB_SHELL), TAKE, cb_request_comm },
	{ "comm_close", ON(CB_SHELL), TAKE, cb_request_comm },
	{ "history_request", ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_history },
	{ "cellblock_file_request", ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_job },
	{ "cellblock_run_request", ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_job },
	{ "cellblock_usage_request", ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_job },
	{ "cellblock_checkpoint_request", ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	{ "cellblock_rollback_request", ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	{ "cellblock_list_checkpoints_request", ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	{ "cellblock_delete_checkpoint_request", ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	{ "cellblock_branch_request", ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	{ "cellblock_list_branches_request", ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_checkpoint },
	{ "cellblock_tools_request", ON(CB_SHELL) | ON(CB_CONTROL), TAKE, cb_request_tools },
	{ "debug_request", ON(CB_CONTROL), TAKE, cb_request_debug },
	{ "kernel_info_request", ON(CB_SHELL) | ON(CB_CONTROL), AT_ONCE, cb_request_kernel_info },
	{ "comm_info_request", ON(CB_SHELL) | ON(CB_CONTROL), AT_ONCE, cb_request_comm_info },
	{ "connect_request", ON(CB_SHELL) | ON(CB_CONTROL), AT_ONCE, cb_request_connect },
	{ "usage_request", ON(CB_SHELL) | ON(CB_CONTROL), AT_ONCE, cb_request_usage },
	{ "interrupt_request", ON(CB_SHELL) | ON(CB_CONTROL), AT_ONCE, cb_request_interrupt },
	{ "shutdown_request", ON(CB_SHELL) | ON(CB_CONTROL), AT_ONCE, cb_request_shutdown },
	{ "create_subshell_request", ON(CB_CONTROL), AT_ONCE, cb_request_create_subshell },
	{ "delete_subshell_request", ON(CB_CONTROL), AT_ONCE, cb_request_delete_subshell },
	{ "list_subshell_request", ON(CB_CONTROL), AT_ONCE, cb_request_list_subshell },
	{ "input_reply", ON(CB_STDIN), SILENT, cb_request_input_reply },
};

void cb_bracket_begin(struct cb_kernel *k, const struct cb_request *r)
{
	if (!r->announced || !k->iopub.busy)
		cb_iopub_status(k, "busy", r->header);
}

void cb_bracket_end(struct cb_kernel *k, const struct cb_request *r)
{
	cb_iopub_status(k, "idle", r->header);
	cb_busy_again(k);
}

void cb_busy_again(struct cb_kernel *k)
{
	const struct cb_request *r = k->execution.current;

	if (r == NULL || (r->id == 0 && !cb_request_is_job(r)))
		r = cb_lanes_running(k);
	if (r == NULL)
		r = cb_branches_running(k);
	if (r == NULL && k->execution.waiting.head != NULL && k->execution.waiting.head->announced)
		r = k->execution.waiting.head;
	if (r != NULL)
		cb_iopub_status(k, "busy", r->header);
}

static void say_that_the_log_moved(struct cb_kernel *k)
{
	char text[512];

	if (k->audit_moved)
		return;
	k->audit_moved = true;
	snprintf(text, sizeof(text),
		 "audit.file %.300s was renamed: lines go on in it under its new name. Start the kernel anew to have "
		 "them here again.",
		 cb_audit_path(k->audit));
	cb_log(CB_LOG_WARNING, "%s", text);
	cb_execution_note(k, text);
}

/* Who wants a log wants no cell without it: true, and answered, if the log's file was deleted. */
static bool refused_without_log(struct cb_kernel *k, struct cb_request *r)
{
	static const char ename[] = "AuditLogError";
	enum cb_audit_place place = k->audit != NULL ? cb_audit_look(k->audit) : CB_AUDIT_THERE;
	char evalue[640];

	if (place == CB_AUDIT_MOVED)
		say_that_the_log_moved(k);
	if (place != CB_AUDIT_DELETED)
		return false;
	snprintf(evalue, sizeof(evalue),
		 "audit.file %.400s was deleted while this kernel ran, so nothing runs any more: it would not be "
		 "written down. Restart the kernel, which makes the file anew.",
		 cb_audit_path(k->audit));
	cb_log(CB_LOG_ERROR, "%s", evalue);
	cb_bracket_begin(k, r);
	if (cb_request_is_execute(r)) {
		cb_failure_publish(k, r, ename, evalue, (struct cb_span){ NULL, 0 });
		cb_iopub_flush(k);
	}
	if (strncmp(r->type, "comm_", 5) != 0)
		cb_reply_error(k, r, ename, "%s", evalue);
	cb_bracket_end(k, r);
	cb_request_free(r);
	return true;
}

void cb_route(struct cb_kernel *k, struct cb_request *r)
{
	cb_idle_touch(k);
	cb_traceparent_of(r->metadata, r->traceparent);
	if (r->subshell_id.data != NULL && r->channel == CB_SHELL && !cb_lanes_known(k, r->subshell_id) &&
	    cb_branches_find(k, r->subshell_id) == NULL) {
		cb_bracket_begin(k, r);
		if (strncmp(r->type, "comm_", 5) != 0)
			cb_reply_unknown_subshell(k, r, r->subshell_id);
		cb_bracket_end(k, r);
		cb_request_free(r);
		return;
	}
	for (size_t i = 0; i < sizeof(route) / sizeof(route[0]); i++) {
		if (strcmp(route[i].type, r->type) != 0 || !(route[i].channels & ON(r->channel)))
			continue;
		if (route[i].kind == TAKE && route[i].handle != cb_request_history && refused_without_log(k, r))
			return;
		if (route[i].kind == TAKE) {
			route[i].handle(k, r);
			return;
		}
		if (route[i].kind == AT_ONCE)
			cb_bracket_begin(k, r);
		route[i].handle(k, r);
		if (route[i].kind == AT_ONCE)
			cb_bracket_end(k, r);
		cb_request_free(r);
		return;
	}
	cb_log(CB_LOG_INFO, "%s: no handler for this message type", cb_channel_name(r->channel));
	if (r->channel != CB_STDIN) {
		/* the protocol says to tolerate it; a request that waits for a reply gets one */
		size_t n = strlen(r->type), suffix = strlen("_request");

		cb_bracket_begin(k, r);
		if (n > suffix && strcmp(r->type + n - suffix, "_request") == 0)
			cb_reply_error(k, r, "UnknownMessageError", "%s is not known on the %s channel", r->type,
				       cb_channel_name(r->channel));
		cb_bracket_end(k, r);
	}
	cb_request_free(r);
}
