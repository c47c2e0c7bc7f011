/* The debugger.
 *
 * Trust domain: supervisor. Carries the client's Debug Adapter Protocol requests to a thread of the guest, which has
 * the debugger, and its responses and events back. Invariants: one request at a time is at the guest, the others wait
 * here; each ends with its reply and idle, also when the guest dies, or does not answer in time: values that it is to
 * show may hang in code of theirs. Events pass only after a request, as output of the latest one and within its limit.
 * Of what the guest says only the event's name is looked at: while it says that a cell is stopped the cell's clock
 * stands, as in a wait for input (as there only as long as the jail uses no CPU), all together for one timeout.wait.
 */
#include "debug.h"

#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>

#include "abort.h"
#include "failure.h"
#include "idle.h"
#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "jupyter/status.h"
#include "python/guest.h"
#include "shell.h"

#define CLOSED "the guest has closed the channel that the debugger needs"
#define SECOND 1000000000LL
#define REPLY_DEADLINE (30 * SECOND) /* also the first one on a loaded machine, with imports */
#define UNANSWERED                                                                                                     \
	"the debugger has not answered a request within 30 seconds; none is served until it does, or the kernel is "   \
	"restarted"

int cb_debug_scan(const struct cb_request *r, struct cb_debug_fields *ret_fields, struct cb_json_error *e)
{
	struct cb_json_field f[] = { { .name = "type", .types = CB_JSON_STRING },
				     { .name = "seq", .types = CB_JSON_INTEGER, .required = true },
				     { .name = "command", .types = CB_JSON_STRING, .required = true },
				     { .name = "arguments", .types = CB_JSON_OBJECT | CB_JSON_NULL } };
	int c = cb_json_scan_object(r->content.data, r->content.len, f, 4, e);

	if (c == 0)
		*ret_fields = (struct cb_debug_fields){ .seq = f[1].ret, .command = f[2].ret };
	return c;
}

bool cb_debug_busy(const struct cb_shells *sh)
{
	return (sh->debug.current != NULL && !sh->debug.stale) || sh->debug.waiting.head != NULL;
}

/* The response of a request that the guest does not answer: what clients of a debugger understand. */
static void refuse(struct cb_shells *sh, const struct cb_request *r, const char *message)
{
	struct cb_debug_fields f = { 0 };
	CB_AUTO_BUF b = CB_BUF_INIT(r->content.len + 4096);

	(void)cb_debug_scan(r, &f, NULL);
	if (cb_json_write_object(&b, "type", "response", "success", (bool)false, "request_seq", f.seq, "command",
				 f.command, "message", message) == 0)
		cb_reply_full(sh->jupyter, r, CB_SPAN("{}"), cb_buf_span(&b), NULL);
}

static void refuse_whole(struct cb_shells *sh, struct cb_request *r, const char *message)
{
	cb_bracket_begin(sh->jupyter, r);
	refuse(sh, r, message);
	cb_bracket_close(sh->jupyter, r);
}

void cb_debug_submit(struct cb_shells *sh, struct cb_request *r)
{
	struct cb_debug *d = &sh->debug;

	if (sh->bash) {
		refuse_whole(sh, r, "a kernel for cells of bash has no debugger");
		return;
	}
	if (sh->guest->shutting_down || d->load.count >= CB_DEBUG_WAITING_MAX ||
	    (d->load.bytes > 0 && d->load.bytes + cb_request_bytes(r) > CB_DEBUG_BYTES_MAX)) {
		refuse_whole(sh, r,
			     sh->guest->shutting_down ? "the kernel is shutting down" : "too many debug_requests wait");
		return;
	}
	if (d->stale) {
		refuse_whole(sh, r, UNANSWERED);
		return;
	}
	cb_queue_push(&d->waiting, &d->load, r);
	if (sh->guest->state == CB_GUEST_NONE)
		cb_guest_want(sh->guest);
	cb_loop_mark(sh->loop);
}

/* ---- beginning and ending ---- */

/* Who stands at a breakpoint may look at things for as long as they take: no cell waits for that. */
static void arm(struct cb_shells *sh)
{
	const struct cb_debug *d = &sh->debug;
	bool counts = d->current != NULL && !d->stale && !d->waits;

	cb_loop_arm(sh->loop, d->timer, counts ? cb_now_ns() + REPLY_DEADLINE : 0);
}

static void end(struct cb_shells *sh)
{
	struct cb_request *r = sh->debug.current;

	if (r == NULL)
		return;
	sh->debug.current = NULL;
	if (!sh->debug.stale)
		cb_bracket_end(sh->jupyter, r);
	sh->debug.stale = false;
	arm(sh);
	cb_idle_touch(&sh->idle);
	cb_request_free(r);
	sh->keeper->quiet(sh->kept);
}

static void begin(struct cb_shells *sh, struct cb_request *r)
{
	struct cb_debug *d = &sh->debug;
	bool up = sh->guest->state == CB_GUEST_UP;
	int c = CB_E_CLOSED;

	d->current = r;
	cb_header_unref(d->parent.header);
	d->parent = (struct cb_guest_parent){ .header = cb_header_ref(r->header) };
	cb_bracket_begin(sh->jupyter, r);
	if (up) {
		r->id = cb_python_give_id(&sh->guest->python, r->header, false);
		d->parent.id = r->id;
		d->asked = true;
		CB_JSON_SMALL(lane, "lane", 0u);

		c = cb_side_send(&sh->guest->side, CB_WIRE_DEBUG, r->id, r->content, cb_buf_span(&lane), NULL, 0);
	}
	arm(sh);
	if (c == 0)
		return;
	refuse(sh, r,
	       !up		  ? sh->guest->failure.text
	       : c == CB_E_CLOSED ? CLOSED
				  : "the request can't be handed to Python");
	end(sh);
}

void cb_debug_schedule(struct cb_shells *sh)
{
	bool none = sh->guest->state == CB_GUEST_NONE && sh->guest->failure.code != 0;

	while (sh->debug.current == NULL && !sh->keeper->copying(sh->kept) &&
	       (sh->guest->state == CB_GUEST_UP || none)) {
		struct cb_request *r = cb_queue_pop(&sh->debug.waiting, &sh->debug.load);

		if (r == NULL)
			return;
		if (!cb_failure_without_log(sh, r))
			begin(sh, r);
	}
}

static void on_timer(void *context)
{
	struct cb_shells *sh = context;
	struct cb_debug *d = &sh->debug;

	refuse(sh, d->current, UNANSWERED);
	cb_bracket_end(sh->jupyter, d->current);
	d->stale = true;
	for (struct cb_request *r; (r = cb_queue_pop(&d->waiting, &d->load)) != NULL;)
		refuse_whole(sh, r, UNANSWERED);
	sh->keeper->quiet(sh->kept);
	cb_loop_mark(sh->loop);
}

/* ---- what the guest says ---- */

bool cb_debug_frame_type(uint32_t type)
{
	return type == CB_WIRE_DEBUG_REPLY || type == CB_WIRE_DEBUG_EVENT;
}

void cb_debug_awaited(const struct cb_shells *sh, uint32_t type, uint32_t *ret_type, uint64_t *ret_id)
{
	const struct cb_debug *d = &sh->debug;
	bool event = type == CB_WIRE_DEBUG_EVENT;

	*ret_type = (event ? d->asked : d->current != NULL) ? type : 0;
	*ret_id = event || d->current == NULL ? 0 : d->current->id;
}

void cb_debug_cell_over(struct cb_shells *sh)
{
	if (sh->debug.waits) {
		sh->debug.waits = false;
		sh->execution.shell.cell.stood += cb_now_ns() - sh->debug.waits_since;
		cb_shell_wait(&sh->execution.shell, false);
		arm(sh);
	}
}

static void cell_stops(struct cb_shells *sh)
{
	struct cb_shell *s = &sh->execution.shell;

	if (!sh->debug.session || sh->debug.waits || sh->guest->python.rules.phase != CB_PHASE_EXECUTING)
		return;
	cb_shell_wait(s, true);
	sh->debug.waits = true;
	sh->debug.waits_since = cb_now_ns();
	if (s->cell.waits && s->cell.deadline != 0) { /* a cell can say itself that it stops and goes on */
		s->cell.deadline -= s->cell.stood;
		s->ops->arm(s);
	}
	arm(sh);
}

static void publish(struct cb_shells *sh, struct cb_span content, struct cb_body *body, bool keep)
{
	struct cb_outgoing out = { .type = "debug_event",
				   .parent = cb_header_span(sh->debug.parent.header),
				   .metadata = CB_SPAN("{}"),
				   .content = content,
				   .content_body = body };

	cb_iopub_publish(sh->jupyter, "debug_event", keep ? CB_WEIGHT_KEEP : CB_WEIGHT_DATA, &out);
}

static void event(struct cb_shells *sh, struct cb_frame *f, const struct cb_guest_content *c)
{
	bool stopped = cb_json_string_is(c->event, "stopped"), goes_on = cb_json_string_is(c->event, "continued");

	if (stopped) {
		cb_output_drain(&sh->guest->python.output); /* what the cell wrote before is there to be read */
		cell_stops(sh);
	} else if (goes_on) {
		cb_debug_cell_over(sh);
	}
	if (cb_output_count(&sh->guest->python.output, &sh->debug.parent, f->header.content_len))
		publish(sh, (struct cb_span){ f->content, f->header.content_len }, f->body,
			f->body == NULL && !cb_iopub_congested(sh->jupyter));
}

void cb_debug_frame(struct cb_shells *sh, struct cb_frame *f, const struct cb_guest_content *c)
{
	struct cb_debug *d = &sh->debug;

	if (f->header.type == CB_WIRE_DEBUG_EVENT) {
		event(sh, f, c);
		return;
	}
	if (d->current == NULL) /* cb_debug_awaited allows no reply then: not reached */
		return;
	struct cb_debug_fields asked = { 0 };

	(void)cb_debug_scan(d->current, &asked, NULL);
	if (cb_json_string_is(asked.command, "initialize"))
		d->session = d->session || c->success;
	if (cb_json_string_is(asked.command, "disconnect") || cb_json_string_is(asked.command, "terminate")) {
		d->session = false;
		cb_debug_cell_over(sh);
	}
	if (!d->stale)
		cb_reply_full(sh->jupyter, d->current, CB_SPAN("{}"),
			      (struct cb_span){ f->content, f->header.content_len }, f->body);
	end(sh);
	cb_loop_mark(sh->loop);
}

static void cut_off(struct cb_shells *sh, const char *why)
{
	struct cb_debug *d = &sh->debug;

	d->asked = d->waits = false;
	if (d->current != NULL && !d->stale)
		refuse(sh, d->current, why);
	end(sh);
	if (d->session) {
		CB_JSON_SMALL(event, "type", "event", "seq", 0u, "event", "terminated", "body", CB_SPAN("{}"));

		publish(sh, cb_buf_span(&event), NULL, true);
	}
	d->session = false;
}

void cb_debug_guest_gone(struct cb_shells *sh)
{
	cut_off(sh, cb_failure_death_text(sh));
}

void cb_debug_end(struct cb_shells *sh, const char *why)
{
	struct cb_debug *d = &sh->debug;

	cut_off(sh, why);
	for (struct cb_request *r; (r = cb_queue_pop(&d->waiting, &d->load)) != NULL;)
		cb_abort_for_end(sh->jupyter, r, why);
}

void cb_debug_side_closed(struct cb_shells *sh)
{
	cb_debug_cell_over(sh);
	cut_off(sh, CLOSED);
	cb_loop_mark(sh->loop);
}

int cb_debug_init(struct cb_shells *sh)
{
	sh->debug.timer = cb_loop_add_timer(sh->loop, on_timer, sh);
	return sh->debug.timer < 0 ? sh->debug.timer : 0;
}

void cb_debug_release(struct cb_shells *sh)
{
	struct cb_debug *d = &sh->debug;

	for (struct cb_request *r; (r = cb_queue_pop(&d->waiting, &d->load)) != NULL;)
		cb_request_free(r);
	cb_request_free(d->current);
	d->current = NULL;
	cb_header_unref(d->parent.header);
	d->parent.header = NULL;
}
