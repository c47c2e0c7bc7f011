/* The words of failure.
 *
 * Trust domain: supervisor. Every failure that the supervisor itself reports is made here, so that names, evalue and
 * metadata are those of the documented interface: which limit, what was done, what became of the state. Callers:
 * execution.c, lanes_say.c for lanes, and where guests and branches end.
 */
#include "failure.h"

#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>
#include <cellblock/log.h>
#include <inttypes.h>
#include <stdarg.h>
#include <sys/wait.h>

#include "kernel.h"

#define RED "\033[31m"
#define PLAIN "\033[0m"

/* Why we killed it; empty if we did not. */
static const char *verdict(const struct cb_guest *g)
{
	return g->cause[0] != '\0' ? g->cause : g->verdict;
}

bool cb_failure_of_memory(const struct cb_kernel *k, uint64_t oom_kills)
{
	const struct cb_guest *g = &k->guest;
	bool killed = !g->exited || (WIFSIGNALED(g->wait_status) && WTERMSIG(g->wait_status) == SIGKILL);

	if (k->memory.over > 0)
		return true;
	if (verdict(g)[0] != '\0')
		return false;
	if (k->execution.taken_over)
		return killed && k->execution.usage_at_end.oom_kills > oom_kills;
	if (!g->end_known)
		return false;
	return g->end.watchdog > 0 || (killed && g->end.oom_kills > oom_kills);
}

static bool out_of_memory(const struct cb_kernel *k)
{
	return cb_failure_of_memory(k, k->execution.usage_at_start.oom_kills);
}

const char *cb_failure_limit(const struct cb_kernel *k)
{
	const struct cb_execution *x = &k->execution;

	switch (x->stop) {
	case CB_STOP_TIME_SOFT:
	case CB_STOP_TIME_HARD:
		return x->over_cpu ? "cpu" : "time";
	case CB_STOP_MEMORY:
		return "memory";
	case CB_STOP_NONE:
	case CB_STOP_INTERRUPT:
	case CB_STOP_WIRE:
		break;
	}
	return x->output_cut ? "output" : NULL;
}

void cb_failure_metadata(struct cb_kernel *k, const char *status, const char *state, const char *limit, bool ours,
			 struct cb_buf *out)
{
	const struct cb_execution *x = &k->execution;
	struct cb_usage u = x->usage_at_start;
	const struct cb_guest_parent *p = cb_guest_parent_of(k, x->current->id);
	char date[28];

	if (strcmp(state, "kept") == 0)
		cb_tools_keep(&k->tools, x->current->calls, x->store ? x->cell_number : 0);

	if (x->taken_over)
		u = x->usage_at_end;
	else
		cb_usage_read(&k->guest.usage, &u);
	if (k->guest.end_known && k->guest.end.watchdog + k->guest.end.memory_peak > 0) /* it has one of them */
		u.memory_peak_bytes = k->guest.end.watchdog + k->guest.end.memory_peak;
	if (k->memory.over > 0)
		u.memory_peak_bytes = k->memory.over;
	if (limit == NULL && u.oom_kills > x->usage_at_start.oom_kills)
		limit = "memory"; /* of a child of Python's: the state is kept */
	cb_date_format(x->started_date, date);
	(void)cb_buf_printf(out,
			    "{\"started\":\"%s\",\"status\":\"%s\",\"dependencies_met\":true,\"engine\":\"%s\","
			    "\"cellblock\":{\"usage\":{"
			    "\"wall_s\":%.6f,\"cpu_user_s\":%.2f,\"cpu_sys_s\":%.2f,\"memory_peak_bytes\":%" PRIu64
			    ",\"output_bytes\":%" PRIu64 ",\"read_bytes\":null,\"write_bytes\":null},",
			    date, status, k->session.id, (double)(cb_now_ns() - x->started_ns) / 1e9,
			    u.cpu_user_s - x->usage_at_start.cpu_user_s, u.cpu_sys_s - x->usage_at_start.cpu_sys_s,
			    u.memory_peak_bytes, x->current->id != 0 ? p->output_bytes : 0);
	if (x->lost[0] != '\0' && strcmp(state, "lost") != 0) /* what came before the cell is told with it */
		state = x->lost_restored ? "restored" : "lost";
	cb_audit_cell_end(k, x->current, x->cell_number, status, limit, state,
			  (double)(cb_now_ns() - x->started_ns) / 1e9,
			  (u.cpu_user_s - x->usage_at_start.cpu_user_s) + (u.cpu_sys_s - x->usage_at_start.cpu_sys_s));
	if (ours)
		(void)cb_buf_append_str(out, CB_METADATA_OURS);
	if (limit != NULL)
		(void)cb_buf_printf(out, "\"limit\":\"%s\",", limit);
	else
		(void)cb_buf_append_str(out, "\"limit\":null,");
	cb_failure_state(k, state, out);
	if (strcmp(state, "kept") != 0)
		cb_failure_undone_calls(k, out);
	if (k->memory.given_up > 0)
		(void)cb_buf_printf(out, ",\"given_up\":%u", k->memory.given_up);
	cb_calls_write(x->current->calls, out);
	cb_failure_trace(x->current, out);
	(void)cb_buf_append_str(out, "}}");
}

void cb_failure_trace(const struct cb_request *r, struct cb_buf *out)
{
	if (r->traceparent[0] != '\0')
		(void)cb_buf_printf(out, ",\"traceparent\":\"%s\"", r->traceparent);
}

void cb_failure_undone(const struct cb_kernel *k, struct cb_buf *out)
{
	const struct cb_past_undone *u = &k->twins.undid;

	(void)cb_buf_printf(out, "\"restored_to\":%" PRId64, k->twins.restored_to);
	if (k->twins.undone.len > 0)
		(void)cb_buf_printf(out, ",\"undone\":%.*s", (int)k->twins.undone.len,
				    (const char *)k->twins.undone.data);
	if (u->untold > 0)
		(void)cb_buf_printf(out, ",\"undone_before\":%" PRIu64, u->untold);
	if (u->n.unnumbered > 0)
		(void)cb_buf_printf(out, ",\"undone_unnumbered\":%" PRIu64, u->n.unnumbered);
	if (u->n.messages > 0)
		(void)cb_buf_printf(out, ",\"undone_messages\":%" PRIu64, u->n.messages);
}

void cb_failure_undone_calls(const struct cb_kernel *k, struct cb_buf *out)
{
	struct cb_span calls = cb_buf_span(&k->twins.calls);

	if (calls.len > 0)
		(void)cb_buf_printf(out, ",\"undone_calls\":%.*s", (int)calls.len, calls.data);
}

void cb_failure_state(const struct cb_kernel *k, const char *state, struct cb_buf *out)
{
	(void)cb_buf_printf(out, "\"state\":\"%s\"", state);
	if (strcmp(state, "restored") != 0)
		return;
	(void)cb_buf_append_str(out, ",");
	cb_failure_undone(k, out);
}

static void write_error(struct cb_buf *b, const char *ename, const char *evalue, struct cb_span traceback)
{
	(void)cb_buf_append_str(b, "\"ename\":");
	(void)cb_json_write_cstr(b, ename);
	(void)cb_buf_append_str(b, ",\"evalue\":");
	(void)cb_json_write_cstr(b, evalue);
	(void)cb_buf_append_str(b, ",\"traceback\":[");
	if (traceback.len > 0 && memchr(traceback.data, '"', traceback.len) != NULL) {
		/* the guest's lines first, the verdict last, as Python does; "[ ]" holds none */
		(void)cb_buf_append(b, traceback.data + 1, traceback.len - 2);
		(void)cb_buf_append_str(b, ",");
	}
	CB_AUTO_BUF line = CB_BUF_INIT(4096);

	(void)cb_buf_printf(&line, RED "%s" PLAIN ": %s", ename, evalue);
	(void)cb_json_write_string(b, (const char *)line.data, line.len);
	(void)cb_buf_append_str(b, "]");
}

void cb_failure_publish(struct cb_kernel *k, const struct cb_request *r, const char *ename, const char *evalue,
			struct cb_span traceback)
{
	CB_AUTO_BUF b = CB_BUF_INIT(traceback.len + 65536);

	(void)cb_buf_append_str(&b, "{");
	write_error(&b, ename, evalue, traceback);
	(void)cb_buf_append_str(&b, "}");
	struct cb_outgoing out = { .type = "error",
				   .parent = cb_header_span(r->header),
				   .metadata = CB_SPAN("{}"),
				   .content = cb_buf_span(&b) };

	cb_iopub_publish(k, "error", CB_WEIGHT_KEEP, &out);
}

void cb_failure_send(struct cb_kernel *k, const struct cb_request *r, int64_t number, const char *ename,
		     const char *evalue, const struct cb_buf *metadata)
{
	CB_AUTO_BUF b = CB_BUF_INIT(65536);

	(void)cb_buf_printf(&b,
			    "{\"status\":\"error\",\"execution_count\":%lld,\"payload\":[],\"user_expressions\":{},",
			    (long long)number);
	write_error(&b, ename, evalue, (struct cb_span){ NULL, 0 });
	(void)cb_buf_append_str(&b, "}");
	cb_iopub_flush(k);
	cb_reply_full(k, r, cb_buf_span(metadata), cb_buf_span(&b), NULL);
}

static void reply(struct cb_kernel *k, const char *ename, const char *evalue, const char *state)
{
	CB_AUTO_BUF metadata = CB_BUF_INIT(CB_METADATA_MAX);

	cb_failure_metadata(k, "error", state, cb_failure_limit(k), true, &metadata);
	cb_failure_send(k, k->execution.current, k->execution.cell_number, ename, evalue, &metadata);
}

void cb_failure_reply(struct cb_kernel *k, const char *ename, const char *state, const char *format, ...)
{
	char evalue[2048];
	va_list ap;

	va_start(ap, format);
	vsnprintf(evalue, sizeof(evalue), format, ap);
	va_end(ap);
	if (strcmp(state, "lost") == 0) {
		size_t len = strlen(evalue);

		snprintf(evalue + len, sizeof(evalue) - len, "%s", k->twins.calls_text);
	}
	if (strcmp(state, "kept") != 0)
		cb_calls_tell(k->execution.current->calls, evalue, sizeof(evalue));
	cb_failure_publish(k, k->execution.current, ename, evalue, (struct cb_span){ NULL, 0 });
	reply(k, ename, evalue, state);
}

void cb_failure_of_asked(struct cb_kernel *k, const char *ename, const char *text)
{
	const struct cb_request *r = k->execution.current;

	if (!cb_request_is_comm(r))
		cb_reply_error(k, r, ename, "%s", text);
}

void cb_failure_isolation(struct cb_kernel *k)
{
	const struct cb_err *f = &k->guest.failure;

	cb_failure_reply(k, "IsolationError", "kept", "no jail, so nothing was run. Step: %s. Cause: %s.%s%s", f->step,
			 f->text, f->cure[0] != '\0' ? " Cure: " : "", f->cure);
}

/* "the cell ran over its limit of 5 s (timeout.cell)": which limit. */
static const char *overrun(const struct cb_kernel *k)
{
	static char text[128];

	if (k->execution.over_cpu)
		snprintf(text, sizeof(text), "the cell used its limit of %g s of CPU time (timeout.cpu) up",
			 k->execution.meter.limit);
	else if (k->execution.wait_over)
		snprintf(text, sizeof(text),
			 "the cell waited for input, a host tool or a debugger longer than %g s (timeout.wait)",
			 k->policy->timeout_wait);
	else
		snprintf(text, sizeof(text), "the cell ran over its limit of %g s (timeout.cell)",
			 k->execution.current->execute.timeout);
	return text;
}

bool cb_failure_of_interrupt(struct cb_span ename)
{
	return cb_json_string_is(ename, "KeyboardInterrupt") || cb_json_string_is(ename, "HostToolCancelledError");
}

static const char *timeout_text(struct cb_kernel *k)
{
	static char text[256];

	snprintf(text, sizeof(text), "%s and was interrupted; all variables are kept", overrun(k));
	return text;
}

void cb_failure_publish_timeout(struct cb_kernel *k, struct cb_span traceback)
{
	cb_failure_publish(k, k->execution.current, "CellTimeoutError", timeout_text(k), traceback);
}

void cb_failure_reply_timeout(struct cb_kernel *k)
{
	const char *text = timeout_text(k);

	if (!k->execution.error_sent)
		cb_failure_publish(k, k->execution.current, "CellTimeoutError", text, (struct cb_span){ NULL, 0 });
	reply(k, "CellTimeoutError", text, "kept");
}

const char *cb_failure_memory_text(const struct cb_kernel *k)
{
	static char text[512];
	const struct cb_broker_reply *end = &k->guest.end;
	uint64_t bytes = k->memory.over > 0	   ? k->memory.over
			 : k->execution.taken_over ? k->execution.usage_at_end.memory_peak_bytes
			 : end->watchdog > 0	   ? end->watchdog
						   : end->memory_peak;
	double mib = 1024.0 * 1024, peak = (double)bytes / mib;
	const char *note = k->policy->limit_memory_note;

	snprintf(text, sizeof(text),
		 "the jail used more memory than limits.memory allows (limit %.1f MiB%s%s, peak %.1f MiB) and Python "
		 "was killed",
		 (double)k->policy->limit_memory / mib, note[0] != '\0' ? ": " : "", note, peak);
	return text;
}

void cb_failure_end_text(int status, char *ret_text, size_t size)
{
	if (WIFSTOPPED(status))
		snprintf(ret_text, size, "Python was stopped by signal %d (%s) and killed", WSTOPSIG(status),
			 strsignal(WSTOPSIG(status)));
	else if (WIFSIGNALED(status))
		snprintf(ret_text, size, "Python was killed by signal %d (%s)%s", WTERMSIG(status),
			 strsignal(WTERMSIG(status)),
			 WTERMSIG(status) == SIGKILL  ? ", by itself or by the host for lack of memory"
			 : WTERMSIG(status) == SIGSYS ? ": it made a system call of a foreign architecture"
						      : "");
	else
		snprintf(ret_text, size, "Python exited with status %d", WEXITSTATUS(status));
}

const char *cb_failure_death_text(const struct cb_kernel *k)
{
	static char text[512];
	const struct cb_guest *g = &k->guest;

	if (out_of_memory(k))
		return cb_failure_memory_text(k);
	if (verdict(g)[0] != '\0')
		snprintf(text, sizeof(text), "Python was stopped: %s", verdict(g));
	else if (!g->exited && g->end_known && g->end.note[0] != '\0')
		snprintf(text, sizeof(text), "Python's jail was ended: %.400s", g->end.note);
	else if (!g->exited)
		snprintf(text, sizeof(text), "Python's jail was killed from outside");
	else
		cb_failure_end_text(g->wait_status, text, sizeof(text));
	return text;
}

void cb_failure_death(struct cb_kernel *k, bool restored)
{
	struct cb_execution *x = &k->execution;
	const char *became = "all variables are lost and the next cell runs in a new Python";
	const char *state = restored ? "restored" : "lost";
	char passed[320];

	snprintf(passed, sizeof(passed),
		 "all variables are lost, for what was kept did not work when it was woken (%s); the next cell runs "
		 "in a new Python",
		 k->twins.passed_why);
	if (restored)
		became = k->twins.outcome;
	else if (k->shutting_down)
		became = "all variables are lost";
	else if (k->twins.passed_over > 0)
		became = passed;
	else if (k->memory.none_left)
		became = "all variables are lost, for the state before the cell was given up when memory was short; "
			 "the next cell runs in a new Python";
	if (x->stop == CB_STOP_NONE && out_of_memory(k))
		x->stop = CB_STOP_MEMORY;
	switch (x->stop) {
	case CB_STOP_TIME_SOFT:
	case CB_STOP_TIME_HARD:
		cb_failure_reply(k, "CellTimeoutError", state,
				 "%s, did not stop within %g s (timeout.grace) and was killed; %s", overrun(k),
				 k->policy->timeout_grace, became);
		break;
	case CB_STOP_INTERRUPT:
		cb_failure_reply(k, "KeyboardInterrupt", state,
				 "the cell did not obey the interrupt and was killed; %s", became);
		break;
	case CB_STOP_WIRE:
		cb_failure_reply(k, "WireError", state,
				 "the cell's Python broke the protocol to the kernel (%s) and was killed; %s",
				 verdict(&k->guest), became);
		break;
	case CB_STOP_MEMORY:
		cb_failure_reply(k, "CellMemoryError", state, "%s; %s", cb_failure_death_text(k), became);
		break;
	case CB_STOP_NONE:
		cb_failure_reply(k, "KernelDiedError", state, "%s; %s", cb_failure_death_text(k), became);
		break;
	}
}
