/* What stop_on_error aborts.
 *
 * Trust domain: supervisor. A failed cell aborts the execute requests that the client sent before it could know of the
 * failure: what waits in the queue and on the socket, and what arrives later but was dated earlier by the same session.
 * Dates are the client's clock, so they are compared after adding that session's skew: the least difference between our
 * arrival and its date that was seen lately, which is the clock difference plus the shortest way. The sum is never
 * earlier than the true sending, so for a message sent after the failure was known never earlier than the failure,
 * unless a clock was set: that a client's was ahead is forgotten after two spans, and what seems to arrive before the
 * failure, since ours was set back, is not aborted. Where a date has no fraction the end of its second counts. Clients
 * that date nothing, or everything alike, are never aborted by date.
 */
#include "abort.h"

#include <cellblock/clock.h>
#include <math.h>
#include <stdint.h>

#include "jupyter/jupyter.h"
#include "jupyter/status.h"
#include "shell.h"

#define WINDOW 60.0 /* seconds: no message is on its way for longer; bounds what a clock that was set can do */
#define SPAN (600 * 1000000000LL) /* a skew is the least one of this span and the one before */

/* The entry of a session; with `make`, the least recently used one is given up for it. NULL if the request names no
 * session. */
static struct cb_client_session *session_of(struct cb_execution *x, const struct cb_request *r, bool make)
{
	struct cb_client_session *oldest = &x->session[0];

	if (r->session.data == NULL)
		return NULL;
	uint64_t h = cb_span_hash(r->session, CB_HASH) | 1; /* 0 is "free" */

	for (struct cb_client_session *s = x->session; s < x->session + CB_SESSIONS_MAX; s++) {
		if (s->hash == h) {
			s->used = r->arrived_ns;
			return s;
		}
		if (s->used < oldest->used)
			oldest = s;
	}
	if (!make)
		return NULL;
	*oldest = (struct cb_client_session){ .hash = h,
					      .skew = INFINITY,
					      .skew_of_span = INFINITY,
					      .span_began = r->arrived_ns,
					      .failed_date = NAN,
					      .used = r->arrived_ns };
	return oldest;
}

void cb_abort_note_arrival(struct cb_execution *x, const struct cb_request *r)
{
	struct cb_client_session *s = isnan(r->date) ? NULL : session_of(x, r, true);

	if (s == NULL)
		return;
	if (r->arrived_ns - s->span_began >= SPAN) {
		s->skew = s->skew_of_span;
		s->skew_of_span = INFINITY;
		s->span_began = r->arrived_ns;
	}
	s->skew_of_span = fmin(s->skew_of_span, r->arrived_date - r->date);
	s->skew = fmin(s->skew, s->skew_of_span);
}

bool cb_abort_applies(struct cb_execution *x, const struct cb_request *r)
{
	const struct cb_client_session *s = isnan(r->date) ? NULL : session_of(x, r, false);

	if (!cb_request_is_execute(r))
		return false;
	if (r->arrived_ns < x->abort_until)
		return true;
	if (s == NULL || isnan(s->failed_date))
		return false;
	double since = r->arrived_date - s->failed_at; /* below 0: our clock was set back */

	return r->date > s->failed_date && r->date + (r->date_is_whole ? 1 : 0) + s->skew < s->failed_at &&
	       since >= 0 && since < WINDOW;
}

static void abort_with(struct cb_jupyter *jp, struct cb_request *r, const char *ename, const char *evalue)
{
	CB_JSON_SMALL(aborted, "status", "aborted");

	cb_bracket_begin(jp, r);
	if (cb_request_is_execute(r))
		cb_reply_full(jp, r, cb_buf_span(&aborted), cb_buf_span(&aborted), NULL);
	else if (!cb_request_is_comm(r))
		cb_reply_error(jp, r, ename, "%s", evalue);
	cb_bracket_close(jp, r);
}

void cb_abort_request(struct cb_jupyter *jp, struct cb_request *r)
{
	abort_with(jp, r, "KeyboardInterrupt", "interrupted");
}

void cb_abort_for_end(struct cb_jupyter *jp, struct cb_request *r, const char *why)
{
	abort_with(jp, r, "KernelDiedError", why);
}

static void note_failure(struct cb_execution *x, const struct cb_request *r)
{
	struct cb_client_session *s = isnan(r->date) ? NULL : session_of(x, r, false);

	if (s != NULL) {
		s->failed_date = r->date;
		s->failed_at = cb_date_now();
	}
	if (x->stop_on_error_timeout > 0)
		x->abort_until = cb_now_ns() + (int64_t)(fmin(x->stop_on_error_timeout, 1e9) * 1e9);
}

void cb_abort_queue(struct cb_shell *s)
{
	cb_channels_drain_shell(s->all->jupyter);
	if (s->current == NULL)
		return;
	if (s == &s->all->execution.shell)
		note_failure(&s->all->execution, s->current);
	s->abort_waiting = true;
}

void cb_abort_executes(struct cb_shell *s, bool others)
{
	struct cb_queue keep = { 0 };
	struct cb_load kept = { 0 };

	for (struct cb_request *r; (r = cb_shell_pop(s)) != NULL;) {
		if (others || cb_request_is_execute(r))
			cb_abort_request(s->all->jupyter, r);
		else
			cb_queue_push(&keep, &kept, r);
	}
	for (struct cb_request *r; (r = cb_queue_pop(&keep, &kept)) != NULL;)
		cb_queue_push(&s->waiting, s->load, r);
}

void cb_abort_waiting(struct cb_shell *s)
{
	s->abort_waiting = false;
	cb_abort_executes(s, false);
}
