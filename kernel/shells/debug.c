/* The debugger.
 *
 * Trust domain: supervisor. Carries the client's Debug Adapter Protocol requests to a thread of the guest, which has
 * the debugger, and its responses and events back. Invariants: one request at a time is at the guest, the others wait
 * here; each ends with its reply and idle, also when the guest dies; events pass only after a request, as output of the
 * latest one and within its limit. Of what the guest says only the event's name is looked at: while it says that a cell
 * is stopped the cell's clock stands, as in a wait for input (and as there only as long as the jail uses no CPU).
 */
#include "debug.h"

#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>

#include "abort.h"
#include "kernel.h"
#include "requests/requests.h"
#include "python/output.h"

#define CLOSED "the guest has closed the channel that the debugger needs"

bool cb_debug_busy(const struct cb_kernel *k)
{
	return k->debug.current != NULL || k->debug.waiting.head != NULL;
}

/* The response of a request that the guest does not answer: what clients of a debugger understand. */
static void refuse(struct cb_kernel *k, const struct cb_request *r, const char *message)
{
	struct cb_debug_fields f = cb_debug_fields(r);
	CB_AUTO_BUF b = CB_BUF_INIT(r->content.len + 4096);

	if (cb_json_write_object(&b, "type", "response", "success", (bool)false, "request_seq", f.seq, "command",
				 f.command, "message", message) == 0)
		cb_reply_full(&k->jupyter, r, CB_SPAN("{}"), cb_buf_span(&b), NULL);
}

static void refuse_whole(struct cb_kernel *k, struct cb_request *r, const char *message)
{
	cb_bracket_begin(&k->jupyter, r);
	refuse(k, r, message);
	cb_bracket_end(&k->jupyter, r);
	cb_request_free(r);
}

void cb_debug_submit(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_debug *d = &k->debug;

	if (k->bash) {
		refuse_whole(k, r, "a kernel for cells of bash has no debugger");
		return;
	}
	if (k->guest.shutting_down || d->load.count >= CB_DEBUG_WAITING_MAX ||
	    d->load.bytes + cb_request_bytes(r) > CB_DEBUG_BYTES_MAX) {
		refuse_whole(k, r,
			     k->guest.shutting_down ? "the kernel is shutting down" : "too many debug_requests wait");
		return;
	}
	cb_queue_push(&d->waiting, &d->load, r);
	if (k->guest.state == CB_GUEST_NONE)
		cb_guest_want(&k->guest);
	cb_loop_mark(&k->loop);
}

/* ---- beginning and ending ---- */

static void end(struct cb_kernel *k)
{
	struct cb_request *r = k->debug.current;

	if (r == NULL)
		return;
	k->debug.current = NULL;
	cb_bracket_end(&k->jupyter, r);
	cb_idle_touch(k);
	cb_request_free(r);
	cb_twins_quiet(k);
}

static void begin(struct cb_kernel *k, struct cb_request *r)
{
	struct cb_debug *d = &k->debug;
	bool up = k->guest.state == CB_GUEST_UP;
	int c = CB_E_CLOSED;

	d->current = r;
	cb_header_unref(d->parent.header);
	d->parent = (struct cb_guest_parent){ .header = cb_header_ref(r->header) };
	cb_bracket_begin(&k->jupyter, r);
	if (up) {
		r->id = cb_python_give_id(&k->guest.python, r->header, false);
		d->parent.id = r->id;
		d->asked = true;
		CB_JSON_SMALL(lane, "lane", 0u);

		c = cb_side_send(&k->guest.side, CB_WIRE_DEBUG, r->id, r->content, cb_buf_span(&lane), NULL, 0);
	}
	if (c == 0)
		return;
	refuse(k, r, !up ? k->guest.failure.text : c == CB_E_CLOSED ? CLOSED : "the request can't be handed to Python");
	end(k);
}

void cb_debug_schedule(struct cb_kernel *k)
{
	bool none = k->guest.state == CB_GUEST_NONE && k->guest.failure.code != 0;

	while (k->debug.current == NULL && !cb_twins_busy(k) && (k->guest.state == CB_GUEST_UP || none)) {
		struct cb_request *r = cb_queue_pop(&k->debug.waiting, &k->debug.load);

		if (r == NULL)
			return;
		begin(k, r);
	}
}

/* ---- what the guest says ---- */

bool cb_debug_frame_type(uint32_t type)
{
	return type == CB_WIRE_DEBUG_REPLY || type == CB_WIRE_DEBUG_EVENT;
}

void cb_debug_awaited(const struct cb_kernel *k, uint32_t type, uint32_t *ret_type, uint64_t *ret_id)
{
	const struct cb_debug *d = &k->debug;
	bool event = type == CB_WIRE_DEBUG_EVENT;

	*ret_type = (event ? d->asked : d->current != NULL) ? type : 0;
	*ret_id = event || d->current == NULL ? 0 : d->current->id;
}

void cb_debug_cell_over(struct cb_kernel *k)
{
	if (k->debug.waits) {
		k->debug.waits = false;
		cb_shell_wait(k, &k->execution.shell, false);
	}
}

static void cell_stops(struct cb_kernel *k)
{
	if (k->debug.session && !k->debug.waits && k->guest.python.rules.phase == CB_PHASE_EXECUTING) {
		cb_shell_wait(k, &k->execution.shell, true);
		k->debug.waits = true;
	}
}

static void publish(struct cb_kernel *k, struct cb_span content, struct cb_body *body, bool keep)
{
	struct cb_outgoing out = { .type = "debug_event",
				   .parent = cb_header_span(k->debug.parent.header),
				   .metadata = CB_SPAN("{}"),
				   .content = content,
				   .content_body = body };

	cb_iopub_publish(&k->jupyter, "debug_event", keep ? CB_WEIGHT_KEEP : CB_WEIGHT_DATA, &out);
}

static void event(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c)
{
	bool stopped = cb_json_string_is(c->event, "stopped"), goes_on = cb_json_string_is(c->event, "continued");

	if (stopped) {
		cb_output_drain(&k->guest.python.output); /* what the cell wrote before is there to be read */
		cell_stops(k);
	} else if (goes_on) {
		cb_debug_cell_over(k);
	}
	if (cb_output_count(&k->guest.python.output, &k->debug.parent, f->header.content_len))
		publish(k, (struct cb_span){ f->content, f->header.content_len }, f->body,
			f->body == NULL && !cb_iopub_congested(&k->jupyter));
}

void cb_debug_frame(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c)
{
	struct cb_debug *d = &k->debug;

	if (f->header.type == CB_WIRE_DEBUG_EVENT) {
		event(k, f, c);
		return;
	}
	if (d->current == NULL) /* cb_debug_awaited allows no reply then: not reached */
		return;
	struct cb_span command = cb_debug_fields(d->current).command;

	if (cb_json_string_is(command, "initialize"))
		d->session = d->session || c->success;
	if (cb_json_string_is(command, "disconnect") || cb_json_string_is(command, "terminate")) {
		d->session = false;
		cb_debug_cell_over(k);
	}
	cb_reply_full(&k->jupyter, d->current, CB_SPAN("{}"), (struct cb_span){ f->content, f->header.content_len },
		      f->body);
	end(k);
	cb_loop_mark(&k->loop);
}

static void cut_off(struct cb_kernel *k, const char *why)
{
	struct cb_debug *d = &k->debug;

	d->asked = d->waits = false;
	if (d->current != NULL) {
		refuse(k, d->current, why);
		end(k);
	}
	if (d->session) {
		CB_JSON_SMALL(event, "type", "event", "seq", 0u, "event", "terminated", "body", CB_SPAN("{}"));

		publish(k, cb_buf_span(&event), NULL, true);
	}
	d->session = false;
}

void cb_debug_guest_gone(struct cb_kernel *k)
{
	cut_off(k, cb_failure_death_text(k));
}

void cb_debug_end(struct cb_kernel *k, const char *why)
{
	struct cb_debug *d = &k->debug;

	cut_off(k, why);
	for (struct cb_request *r; (r = cb_queue_pop(&d->waiting, &d->load)) != NULL;)
		cb_abort_for_end(k, r, why);
}

void cb_debug_side_closed(struct cb_kernel *k)
{
	cb_debug_cell_over(k);
	cut_off(k, CLOSED);
	cb_loop_mark(&k->loop);
}

void cb_debug_release(struct cb_kernel *k)
{
	struct cb_debug *d = &k->debug;

	for (struct cb_request *r; (r = cb_queue_pop(&d->waiting, &d->load)) != NULL;)
		cb_request_free(r);
	cb_request_free(d->current);
	d->current = NULL;
	cb_header_unref(d->parent.header);
	d->parent.header = NULL;
}
