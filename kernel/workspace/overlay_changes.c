/* cellblock_file_request with op changes, commit or discard: what an overlay workspace changed.
 *
 * Trust domain: supervisor. The broker does the work and writes the reply's content (python/broker_queue.c). One at a
 * time. Nothing is written through while a cell runs, whose files may be half done; a discard takes the jail along,
 * since a layer cannot be changed below those who use it.
 */
#include "overlay_changes.h"

#include <cellblock/json_scan.h>

#include "jobs.h"
#include "jupyter/jupyter.h"
#include "python/broker_queue.h"
#include "python/guest.h"
#include "records/audit_events.h"
#include "shells/execution.h"
#include "shells/lanes.h"

bool cb_overlay_changes_op(const struct cb_request *r, enum cb_broker_op *ret_op)
{
	static const struct {
		const char *name;
		enum cb_broker_op op;
	} ops[] = { { "changes", CB_BROKER_CHANGES },
		    { "commit", CB_BROKER_COMMIT },
		    { "discard", CB_BROKER_DISCARD } };
	struct cb_json_field f[] = { { .name = "op", .types = CB_JSON_STRING, .required = true } };
	struct cb_json_error e;

	if (r->kind != CB_REQUEST_FILE || cb_json_scan_object(r->content.data, r->content.len, f, 1, &e) < 0)
		return false;
	for (size_t i = 0; i < CB_COUNT(ops); i++) {
		if (!cb_json_string_is(f[0].ret, ops[i].name))
			continue;
		*ret_op = ops[i].op;
		return true;
	}
	return false;
}

bool cb_overlay_changes_waits(const struct cb_workspace *ws, const struct cb_request *r)
{
	return r != NULL && ws->overlay_changes.request == r;
}

static void finish(struct cb_workspace *ws, bool committed)
{
	struct cb_overlay_changes *w = &ws->overlay_changes;
	struct cb_request *r = w->request;

	w->request = NULL;
	if (committed)
		ws->files_committed(ws->kernel);
	cb_execution_answered(ws->shells, r);
}

/* For the audit log; NULL: nothing was to be changed. */
static const char *word_of(const struct cb_overlay_changes *w)
{
	return w->op == CB_BROKER_COMMIT ? "commit" : w->op == CB_BROKER_DISCARD ? "discard" : NULL;
}

static bool is_whole(const struct cb_buf *b, bool *ret_told)
{
	struct cb_json_field f = { .name = "status", .types = CB_JSON_STRING, .required = true };

	if (b->len == 0 || cb_json_scan_object(b->data, b->len, &f, 1, NULL) < 0)
		return false;
	*ret_told = cb_json_string_is(f.ret, "ok");
	return true;
}

static const char *const counts[] = { "added", "modified", "deleted", "skipped", "failed" };

/* Whether a commit has changed anything outside, as far as is known. */
static bool has_written(const struct cb_buf *reply)
{
	struct cb_json_field f[3] = { 0 };
	int64_t n = 0;

	for (int i = 0; i < 3; i++)
		f[i] = (struct cb_json_field){ .name = counts[i], .types = CB_JSON_INTEGER };
	if (reply->len == 0 || cb_json_scan_object(reply->data, reply->len, f, 3, NULL) < 0)
		return true;
	for (int i = 0; i < 3; i++)
		if (f[i].ret.data != NULL && (cb_json_int(f[i].ret, &n) < 0 || n != 0))
			return true;
	return false;
}

/* A discard whose list was interrupted is done all the same, and what it has of the list is told. */
static bool tell_cut(struct cb_buf *reply)
{
	struct cb_json_field f[1 + CB_COUNT(counts)] = {
		{ .name = "changes", .types = CB_JSON_ARRAY, .required = true }
	};
	CB_AUTO_BUF done = CB_BUF_INIT(reply->max);
	struct cb_json j = cb_json_begin(&done);
	struct cb_buf cut = *reply;

	for (size_t i = 0; i < CB_COUNT(counts); i++)
		f[1 + i] = (struct cb_json_field){ .name = counts[i], .types = CB_JSON_INTEGER, .required = true };
	if (cb_json_scan_object(reply->data, reply->len, f, CB_COUNT(f), NULL) < 0)
		return false;
	cb_json_put(&j, "status", "ok", "changes", f[0].ret);
	for (size_t i = 0; i < CB_COUNT(counts); i++)
		cb_json_put(&j, counts[i], f[1 + i].ret);
	cb_json_put(&j, "truncated", (bool)true);
	if (cb_json_done(&j) < 0)
		return false;
	*reply = done;
	done = cut;
	return true;
}

static void answer(struct cb_workspace *ws, struct cb_buf *reply)
{
	struct cb_overlay_changes *w = &ws->overlay_changes;
	bool discarded = w->op == CB_BROKER_DISCARD; /* the broker has let go of the layer, whatever it could list */
	bool committed = w->op == CB_BROKER_COMMIT && has_written(reply);
	bool told = false, whole = is_whole(reply, &told);

	if (whole && discarded && !told)
		told = tell_cut(reply);
	if (!whole) {
		cb_audit_layer_unknown(ws->records, word_of(w), w->request);
		cb_reply_error(ws->jupyter, w->request, "WorkspaceError",
			       "the process that builds jails gave no whole answer; %s",
			       w->op == CB_BROKER_COMMIT ? "some changes may be written: ask for them (op changes)"
			       : discarded		 ? "the changes are gone, and all variables"
							 : "ask again");
	} else {
		cb_audit_layer(ws->records, word_of(w), cb_buf_span(reply), w->request);
		if (discarded && told) {
			reply->len--; /* its brace */
			struct cb_json j = cb_json_inside(reply);

			cb_json_put(&j, "state", "lost");
			(void)cb_json_done(&j);
			(void)cb_buf_append_str(reply, "}");
		}
		cb_reply(ws->jupyter, w->request, cb_buf_span(reply));
	}
	if (discarded && ws->guest->state == CB_GUEST_STARTING)
		ws->guest->given_up = true; /* no failure: the next one starts at once */
	if (discarded)			  /* first, so that nothing new is given to it */
		cb_guest_kill(ws->guest, "the workspace's changes were discarded, and Python with them");
	finish(ws, committed);
}

static void on_answer(const struct cb_broker_ask *ask, struct cb_buf *reply, int r)
{
	struct cb_workspace *ws = ask->context;

	if (r == 0) {
		answer(ws, reply);
		return;
	}
	cb_reply_error(ws->jupyter, ws->overlay_changes.request, "WorkspaceError", "%s", cb_err_text(r));
	finish(ws, false);
}

static const char *refusal(const struct cb_workspace *ws, const struct cb_request *r, enum cb_broker_op op,
			   const char **ret_ename)
{
	*ret_ename = "WorkspaceError";
	if (ws->mode != CB_WORKSPACE_OVERLAY)
		return "workspace.mode is not \"overlay\": there are no changes apart from the folder itself";
	*ret_ename = "KernelBusyError";
	if (ws->overlay_changes.request != NULL)
		return "another such request is under way";
	if (ws->guest->shutting_down)
		return "the kernel is shutting down";
	if (op != CB_BROKER_CHANGES && ws->shells->execution.shell.current != NULL &&
	    ws->shells->execution.shell.current != r)
		return "a cell runs, and its files may be half written: ask when it has ended, or on shell";
	if (op != CB_BROKER_CHANGES && (cb_lanes_running(ws->shells) != NULL || ws->branch_runs(ws->kernel)))
		return "a subshell or a branch runs a cell, and files may be half written: ask when it has ended";
	if (op != CB_BROKER_CHANGES && cb_jobs_write(ws, true))
		return "a command or an operation on files runs, and files may be half written: ask when it has ended";
	return NULL;
}

void cb_overlay_changes_start(struct cb_workspace *ws, struct cb_request *r, enum cb_broker_op op)
{
	const char *ename, *why = refusal(ws, r, op, &ename);

	cb_audit_request(ws->records, r);
	if (why == NULL) {
		ws->overlay_changes = (struct cb_overlay_changes){ .request = r, .op = op };
		cb_broker_queue_ask(ws->queue,
				    &(struct cb_broker_ask){ .op = op, .on_answer = on_answer, .context = ws });
		return;
	}
	cb_reply_error(ws->jupyter, r, ename, "%s", why);
	cb_execution_answered(ws->shells, r);
}

bool cb_overlay_changes_holds(const struct cb_workspace *ws)
{
	return ws->overlay_changes.request != NULL && ws->overlay_changes.op != CB_BROKER_CHANGES;
}

void cb_overlay_changes_interrupt(struct cb_workspace *ws)
{
	if (ws->overlay_changes.request == NULL)
		return;
	if (!cb_broker_queue_begun(ws->queue, ws->overlay_changes.op)) {
		cb_broker_queue_drop(ws->queue, ws->overlay_changes.op);
		cb_reply_error(ws->jupyter, ws->overlay_changes.request, "KeyboardInterrupt",
			       "interrupted: it had not begun");
		finish(ws, false);
	} else {
		(void)cb_broker_tell(&ws->guest->broker, CB_BROKER_STOP);
	}
}

void cb_overlay_changes_shutdown(struct cb_workspace *ws)
{
	if (ws->overlay_changes.request == NULL)
		return;
	if (cb_broker_queue_begun(ws->queue, ws->overlay_changes.op))
		cb_audit_layer_unknown(ws->records, word_of(&ws->overlay_changes), ws->overlay_changes.request);
	cb_broker_queue_drop(ws->queue, ws->overlay_changes.op);
	cb_reply_error(ws->jupyter, ws->overlay_changes.request, "KernelBusyError", "the kernel is shutting down; %s",
		       ws->overlay_changes.op == CB_BROKER_COMMIT ? "what is being written through is finished"
								  : "ask again");
	finish(ws, false);
}
