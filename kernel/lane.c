/* One lane: waiting, beginning, ending, limits of time.
 *
 * Trust domain: supervisor. A lane serves one request at a time, the others wait in it. Invariants: every request that
 * was begun (busy) ends with its reply and idle; a cell that overruns its limits is interrupted first, and ended by
 * force only if it does not end; what a failed cell aborts waits in the same lane. Who serves it is behind its ops.
 *
 * Called by lanes.c (subshells and questions, in threads of the guest) and branches.c (processes of their own). The
 * words of a failed cell are in lanes_say.c.
 */
#include "lane.h"

#include <cellblock/json_scan.h>

#include "abort.h"
#include "failure.h"
#include "kernel.h"
#include "lanes_say.h"
#include "requests/requests.h"
#include "router.h"

#define SECOND 1000000000LL
#define LOOK_PERIOD (SECOND / 2)

static const struct cb_lane_message message[] = {
	{ CB_REQUEST_COMPLETE, CB_WIRE_COMPLETE, CB_WIRE_COMPLETE_REPLY, CB_LANE_QUESTION },
	{ CB_REQUEST_INSPECT, CB_WIRE_INSPECT, CB_WIRE_INSPECT_REPLY, CB_LANE_QUESTION },
	{ CB_REQUEST_IS_COMPLETE, CB_WIRE_IS_COMPLETE, CB_WIRE_IS_COMPLETE_REPLY, CB_LANE_QUESTION },
	{ CB_REQUEST_EXECUTE, CB_WIRE_EXECUTE, CB_WIRE_LANE_REPLY, CB_LANE_CELL },
	{ CB_REQUEST_COMM_OPEN, CB_WIRE_DOWN_COMM_OPEN, CB_WIRE_LANE_DONE, CB_LANE_COMM },
	{ CB_REQUEST_COMM_MSG, CB_WIRE_DOWN_COMM_MSG, CB_WIRE_LANE_DONE, CB_LANE_COMM },
	{ CB_REQUEST_COMM_CLOSE, CB_WIRE_DOWN_COMM_CLOSE, CB_WIRE_LANE_DONE, CB_LANE_COMM },
};

const struct cb_lane_message *cb_lane_message_of(const struct cb_request *r)
{
	for (size_t i = 0; i < sizeof(message) / sizeof(message[0]); i++)
		if (message[i].of == r->kind)
			return &message[i];
	return NULL;
}

bool cb_lane_is(const struct cb_lane *l, struct cb_span id)
{
	return l->id[0] != '\0' && cb_json_string_is(id, l->id);
}

/* ---- waiting ---- */

struct cb_request *cb_lane_pop(struct cb_lane *l)
{
	return cb_queue_pop(&l->waiting, l->load);
}

bool cb_lane_take(struct cb_kernel *k, struct cb_lane *l, struct cb_request *r)
{
	if (l->load->count < CB_LANES_WAITING_MAX && l->load->bytes + cb_request_bytes(r) <= CB_LANES_BYTES_MAX) {
		cb_queue_push(&l->waiting, l->load, r);
		return true;
	}
	cb_bracket_begin(k, r);
	cb_reply_error(k, r, "KernelBusyError", "the queue is full: %zu requests wait", l->load->count);
	cb_bracket_end(k, r);
	cb_request_free(r);
	return false;
}

void cb_lane_abort_waiting(struct cb_kernel *k, struct cb_lane *l, bool all)
{
	struct cb_queue keep = { 0 };
	struct cb_load kept = { 0 };

	for (struct cb_request *r; (r = cb_lane_pop(l)) != NULL;) {
		if (all || cb_request_is_execute(r))
			cb_abort_request(k, r);
		else
			cb_queue_push(&keep, &kept, r);
	}
	for (struct cb_request *r; (r = cb_queue_pop(&keep, &kept)) != NULL;)
		cb_queue_push(&l->waiting, l->load, r);
}

void cb_lane_release(struct cb_lane *l)
{
	for (struct cb_request *r; (r = cb_lane_pop(l)) != NULL;)
		cb_request_free(r);
	cb_request_free(l->current);
	l->current = NULL;
}

/* ---- beginning and ending ---- */

void cb_lane_begin(struct cb_kernel *k, struct cb_lane *l, struct cb_request *r)
{
	const struct cb_lane_message *m = cb_lane_message_of(r);
	bool cell = m->kind == CB_LANE_CELL, up = l->ops->up(k, l);
	bool stored = r->execute.store_history;

	l->current = r;
	l->stop = CB_STOP_NONE;
	l->error_sent = l->interrupted = l->answered = l->stale = l->over_cpu = l->wait_over = false;
	l->awaiting = false;
	l->ask_again = 0;
	l->deadline = l->clock_left = l->asked_at = 0;
	if (cell) {
		l->cell_number = stored ? ++*l->count : *l->count + 1;
		l->started_ns = cb_now_ns();
		l->started_date = cb_date_now();
		cb_audit_cell(k, r, l->cell_number);
		l->ops->begun(k, l, stored);
	}
	int c = up ? l->ops->send(k, l, r, m) : CB_E_CLOSED;

	cb_bracket_begin(k, r);
	if (cell) {
		if (!r->execute.silent)
			cb_execution_publish_input(k, r, l->cell_number);
		l->ops->usage(k, l, &l->usage_at_start);
		l->cpu_at_start = r->execute.cpu > 0 ? l->ops->cpu(k, l) : 0;
		if (r->execute.timeout > 0)
			l->deadline = l->started_ns + (int64_t)(r->execute.timeout * (double)SECOND);
	}
	if (c == 0)
		return;
	cb_lanes_say_unsent(k, l, up, c);
	cb_lane_finish(k, l);
}

void cb_lane_finish(struct cb_kernel *k, struct cb_lane *l)
{
	struct cb_request *r = l->current;

	l->current = NULL;
	l->awaiting = false;
	if (!l->stale) {
		cb_iopub_status(k, "idle", r->header);
		cb_busy_again(k);
	}
	cb_idle_touch(k);
	cb_request_free(r);
	l->ops->done(k, l);
}

void cb_lane_error(struct cb_kernel *k, struct cb_lane *l, struct cb_frame *f, const struct cb_guest_content *c)
{
	cb_speaker_drain(k, l->speaker);
	if (l->stop == CB_STOP_TIME_SOFT && cb_failure_of_interrupt(c->ename))
		return; /* the reply will tell of the limit */
	cb_speaker_error(k, l->speaker, f, !l->error_sent);
	l->error_sent = true;
}

/* What the client sent to the lane before it can know of the failure goes with it: this takes it in. Among it may be
 * what ends the guest, and with that the lane's request. */
static bool takes_along(struct cb_kernel *k, const struct cb_lane *l)
{
	if (!l->current->execute.stop_on_error)
		return false;
	cb_channels_drain_shell(k);
	return true;
}

void cb_lane_reply(struct cb_kernel *k, struct cb_lane *l, struct cb_frame *f, const struct cb_guest_content *c)
{
	bool cell = cb_request_is_execute(l->current), failed = cell && !cb_json_string_is(c->status, "ok");
	bool late, abort;

	cb_speaker_drain(k, l->speaker);
	cb_iopub_flush(k);
	late = cell && l->stop == CB_STOP_TIME_SOFT && (!failed || cb_failure_of_interrupt(c->ename));
	failed = failed || late;
	abort = failed && takes_along(k, l);
	if (l->current == NULL)
		return;
	if (late) {
		cb_lanes_say_timeout(k, l, "kept", "");
	} else if (cell) {
		CB_AUTO_BUF metadata = CB_BUF_INIT(CB_METADATA_MAX);

		cb_lanes_metadata(k, l, failed ? "error" : "ok", "kept", false, &metadata);
		cb_reply_full(k, l->current, cb_buf_span(&metadata), cb_frame_with_count(f, l->cell_number), f->body);
	}
	l->answered = true;
	if (abort)
		cb_lane_abort_waiting(k, l, false);
	cb_lane_finish(k, l);
}

int cb_lane_ask(struct cb_kernel *k, struct cb_lane *l, struct cb_frame *f, const char **ret_reason)
{
	int64_t now = cb_now_ns();

	if (l->current == NULL || !l->current->execute.allow_stdin || (l->asked_at != 0 && l->ask_again == 0))
		return CB_E_DENIED;
	if (l->asked_at != 0) {
		l->ask_again--;
		cb_lane_asked(l);
	}
	cb_speaker_drain(k, l->speaker);
	cb_iopub_flush(k);
	int r = cb_stdin_ask(k, l->current, f, ret_reason);

	if (r < 0)
		return r;
	l->asked_at = now;
	if (l->stop != CB_STOP_NONE)
		return r; /* the grace runs */
	l->clock_left = l->deadline == 0 ? -1 : l->deadline > now ? l->deadline - now : 1;
	l->deadline = k->policy->timeout_wait > 0 ? now + (int64_t)(k->policy->timeout_wait * (double)SECOND) : 0;
	return r;
}

bool cb_lane_asks(const struct cb_lane *l, const struct cb_request *reply)
{
	return l->current != NULL && l->asked_at != 0 && cb_request_same_client(reply, l->current);
}

void cb_lane_asked(struct cb_lane *l)
{
	if (l->asked_at == 0)
		return;
	l->asked_at = 0;
	if (l->stop != CB_STOP_NONE)
		return;
	l->deadline = l->clock_left > 0 ? cb_now_ns() + l->clock_left : 0;
	l->clock_left = 0;
}

void cb_lane_died(struct cb_kernel *k, struct cb_lane *l, const char *cause, const char *state, const char *end)
{
	if (l->answered) {
		cb_lane_finish(k, l);
		return;
	}
	if (cb_request_is_execute(l->current)) {
		bool abort = takes_along(k, l);

		if (l->current == NULL)
			return;
		cb_lanes_say_death(k, l, cause, state, end);
		l->answered = true;
		if (abort)
			cb_lane_abort_waiting(k, l, false);
	} else if (cb_lane_message_of(l->current)->kind == CB_LANE_QUESTION && !l->stale) {
		cb_reply_error(k, l->current, "KernelDiedError", "%s", cause);
	}
	cb_lane_finish(k, l);
}

/* ---- time and interrupts ---- */

static void stop_hard(struct cb_kernel *k, struct cb_lane *l)
{
	l->stop = CB_STOP_TIME_HARD;
	l->deadline = 0;
	l->ops->kill(k, l, "a cell ran over its time limit and did not stop");
}

static void over_time(struct cb_kernel *k, struct cb_lane *l, bool over_cpu)
{
	double grace = k->policy->timeout_grace;

	if (l->stop != CB_STOP_NONE) {
		stop_hard(k, l);
		return;
	}
	l->over_cpu = over_cpu;
	l->wait_over = !over_cpu && l->clock_left != 0;
	cb_audit_limit(k, over_cpu ? "timeout.cpu" : l->wait_over ? "timeout.wait" : "timeout.cell");
	if (grace <= 0 && !l->wait_over) {
		stop_hard(k, l);
		return;
	}
	l->stop = CB_STOP_TIME_SOFT;
	l->ops->interrupt(k, l);
	l->deadline = cb_now_ns() + (int64_t)(grace * (double)SECOND) + 1;
}

static bool runs_cell(const struct cb_lane *l)
{
	return l->current != NULL && cb_request_is_execute(l->current);
}

void cb_lane_check_time(struct cb_kernel *k, struct cb_lane *l, int64_t now)
{
	if (!runs_cell(l))
		return;
	double limit = l->current->execute.cpu;

	if (l->deadline != 0 && l->deadline <= now)
		over_time(k, l, l->over_cpu);
	else if (limit > 0 && l->stop == CB_STOP_NONE && l->ops->cpu(k, l) - l->cpu_at_start >= limit)
		over_time(k, l, true);
}

void cb_lane_sooner(int64_t *when, int64_t t)
{
	if (t != 0 && (*when == 0 || t < *when))
		*when = t;
}

void cb_lane_look(int64_t *look_at, int64_t *when)
{
	if (*look_at == 0)
		*look_at = cb_now_ns() + LOOK_PERIOD;
	cb_lane_sooner(when, *look_at);
}

void cb_lane_due(const struct cb_lane *l, int64_t *look_at, int64_t *when)
{
	if (!runs_cell(l))
		return;
	cb_lane_sooner(when, l->deadline);
	if (l->current->execute.cpu > 0 && l->stop == CB_STOP_NONE)
		cb_lane_look(look_at, when);
}

void cb_lane_interrupt(struct cb_kernel *k, struct cb_lane *l, bool hard)
{
	if (l->current == NULL || l->answered)
		return;
	if (l->interrupted && hard) {
		l->stop = CB_STOP_INTERRUPT;
		cb_audit_interrupt(k, "hard");
		l->ops->kill(k, l, "interrupt not obeyed");
		return;
	}
	cb_audit_interrupt(k, "soft");
	l->interrupted = true;
	l->ops->interrupt(k, l);
}
