/* The words of failure for what runs beside the main shell.
 *
 * Trust domain: supervisor. The same names and metadata as failure.c has for the main shell's cells; of a subshell's
 * cell what is used is the jail's in its time, and so also that of cells which ran at the same time. Called by
 * lane.c and lanes.c.
 */
#include "lanes_say.h"

#include <inttypes.h>
#include <stdarg.h>

#include "failure.h"
#include "kernel.h"

static const char *limit_of(const struct cb_lane *l)
{
	if (l->stop == CB_STOP_TIME_SOFT || l->stop == CB_STOP_TIME_HARD)
		return l->over_cpu ? "cpu" : "time";
	if (l->stop == CB_STOP_MEMORY)
		return "memory";
	return cb_speaker_parent(l->speaker, l->current->id)->output_cut ? "output" : NULL;
}

void cb_lanes_metadata(struct cb_kernel *k, struct cb_lane *l, const char *status, const char *state, bool ours,
		       struct cb_buf *out)
{
	const char *limit = limit_of(l);
	struct cb_usage u = l->usage_at_start;
	double wall = (double)(cb_now_ns() - l->started_ns) / 1e9;
	char date[28];

	l->ops->usage(k, l, &u);
	double user = u.cpu_user_s - l->usage_at_start.cpu_user_s, sys = u.cpu_sys_s - l->usage_at_start.cpu_sys_s;

	cb_date_format(l->started_date, date);
	(void)cb_buf_printf(out,
			    "{\"started\":\"%s\",\"status\":\"%s\",\"dependencies_met\":true,\"engine\":\"%s\","
			    "\"cellblock\":{\"usage\":{\"wall_s\":%.6f,\"cpu_user_s\":%.2f,\"cpu_sys_s\":%.2f,"
			    "\"memory_peak_bytes\":%" PRIu64 ",\"output_bytes\":%" PRIu64
			    ",\"read_bytes\":null,\"write_bytes\":null},\"limit\":%s%s%s,",
			    date, status, k->session.id, wall, user, sys, u.memory_peak_bytes,
			    l->current->id != 0 ? cb_speaker_parent(l->speaker, l->current->id)->output_bytes : 0,
			    limit != NULL ? "\"" : "", limit != NULL ? limit : "null", limit != NULL ? "\"" : "");
	if (ours)
		(void)cb_buf_append_str(out, CB_METADATA_OURS);
	cb_failure_state(k, state, out);
	cb_calls_write(l->current->calls, out);
	cb_failure_trace(l->current, out);
	if (strcmp(state, "kept") == 0)
		cb_tools_keep(&k->tools, l->current->calls, l->current->execute.store_history ? l->cell_number : 0);
	(void)cb_buf_append_str(out, "}}");
	cb_audit_cell_end(k, l->current, l->cell_number, status, limit, state, wall, user + sys);
}

static void fail(struct cb_kernel *k, struct cb_lane *l, const char *ename, const char *state, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

static void fail(struct cb_kernel *k, struct cb_lane *l, const char *ename, const char *state, const char *format, ...)
{
	CB_AUTO_BUF metadata = CB_BUF_INIT(CB_METADATA_MAX);
	char evalue[2048];
	va_list ap;

	va_start(ap, format);
	vsnprintf(evalue, sizeof(evalue), format, ap);
	va_end(ap);
	if (strcmp(state, "kept") != 0)
		cb_calls_tell(l->current->calls, evalue, sizeof(evalue));
	if (!l->error_sent)
		cb_failure_publish(k, l->current, ename, evalue, (struct cb_span){ NULL, 0 });
	cb_lanes_metadata(k, l, "error", state, true, &metadata);
	cb_failure_send(k, l->current, l->cell_number, ename, evalue, &metadata);
}

void cb_lanes_say_timeout(struct cb_kernel *k, struct cb_lane *l, const char *state, const char *end)
{
	const struct cb_execute_fields *e = &l->current->execute;
	bool kept = strcmp(state, "kept") == 0;
	const char *how = kept ? "and was interrupted; all variables are kept" : "and did not stop: it was killed; ";

	if (l->over_cpu)
		fail(k, l, "CellTimeoutError", state, "%s used %g s of CPU time while the cell ran (timeout.cpu) %s%s",
		     l->ops->cpu_of, e->cpu, how, end);
	else if (l->wait_over)
		fail(k, l, "CellTimeoutError", state,
		     "the cell waited for input or a host tool longer than %g s (timeout.wait) %s%s",
		     k->policy->timeout_wait, how, end);
	else
		fail(k, l, "CellTimeoutError", state, "the cell ran over its limit of %g s (timeout.cell) %s%s",
		     e->timeout, how, end);
}

void cb_lanes_say_death(struct cb_kernel *k, struct cb_lane *l, const char *cause, const char *state, const char *end)
{
	if (l->stop == CB_STOP_TIME_SOFT || l->stop == CB_STOP_TIME_HARD)
		cb_lanes_say_timeout(k, l, state, end);
	else if (l->stop == CB_STOP_INTERRUPT)
		fail(k, l, "KeyboardInterrupt", state, "the cell did not obey the interrupt and was killed; %s", end);
	else if (l->stop == CB_STOP_WIRE)
		fail(k, l, "WireError", state,
		     "the cell's Python broke the protocol to the kernel (%s) and was killed; %s", cause, end);
	else if (l->stop == CB_STOP_MEMORY)
		fail(k, l, "CellMemoryError", state, "%s; %s", cause, end);
	else
		fail(k, l, "KernelDiedError", state, "%s; %s", cause, end);
}

void cb_lanes_say_unsent(struct cb_kernel *k, struct cb_lane *l, bool guest_up, int code)
{
	const char *ename = guest_up ? "KernelBusyError" : "IsolationError";
	char text[2048];

	if (!guest_up)
		snprintf(text, sizeof(text), "no jail, so nothing was run. Step: %s. Cause: %s. %s",
			 k->guest.failure.step, k->guest.failure.text, k->guest.failure.cure);
	else if (code == CB_E_CLOSED)
		snprintf(text, sizeof(text), "this guest serves no subshells");
	else
		snprintf(text, sizeof(text), "the request can't be handed to Python: %s", cb_err_name(code));
	if (cb_request_is_execute(l->current))
		fail(k, l, ename, "kept", "%s", text);
	else if (!cb_request_is_comm(l->current))
		cb_reply_error(k, l->current, ename, "%s", text);
}

void cb_lanes_say_unanswered(struct cb_kernel *k, const struct cb_request *r)
{
	cb_reply_error(k, r, "KernelBusyError",
		       "Python did not answer in time: the running cell is in C code that lets nothing else run");
}
