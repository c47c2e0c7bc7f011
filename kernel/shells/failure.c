/* The words of failure.
 *
 * Trust domain: supervisor. Every failure that the supervisor itself reports is made here, so that names, evalue and
 * metadata are those of the documented interface: which limit, what was done, what became of the state. Of a subshell's
 * cell what is used is the jail's in its time, and so also that of cells which ran at the same time.
 */
#include "failure.h"

#include <cellblock/clock.h>
#include <cellblock/json_scan.h>
#include <cellblock/json_write.h>
#include <cellblock/log.h>
#include <stdarg.h>
#include <sys/wait.h>

#include "jupyter/jupyter.h"
#include "jupyter/status.h"
#include "note.h"
#include "policy/policy.h"
#include "python/guest.h"
#include "python/python.h"
#include "records/audit_events.h"
#include "records/records.h"
#include "shells.h"

/* Why we killed it; empty if we did not. */
static const char *verdict(const struct cb_guest *g)
{
	return g->cause[0] != '\0' ? g->cause : g->verdict;
}

enum cb_oom cb_failure_oom(const struct cb_shells *sh, const struct cb_oom_count *before)
{
	const struct cb_guest *g = sh->guest;
	const struct cb_oom_count *after = sh->execution.taken_over ? &sh->execution.usage_at_end.oom : &g->end.oom;
	bool killed = !g->exited || (WIFSIGNALED(g->wait_status) && WTERMSIG(g->wait_status) == SIGKILL);

	if (g->over_memory > 0)
		return CB_OOM_LIMIT;
	if (verdict(g)[0] != '\0' || (!sh->execution.taken_over && !g->end_known))
		return CB_OOM_NONE;
	if (!sh->execution.taken_over && g->end.watchdog > 0)
		return CB_OOM_LIMIT;
	return killed ? cb_guest_oom(g, before, after) : CB_OOM_NONE;
}

const char *cb_failure_limit(const struct cb_shell *s)
{
	switch (s->cell.stop) {
	case CB_STOP_TIME_SOFT:
	case CB_STOP_TIME_HARD:
		return s->cell.over_cpu ? "cpu" : "time";
	case CB_STOP_MEMORY:
		return "memory";
	case CB_STOP_NONE:
	case CB_STOP_HOST:
	case CB_STOP_INTERRUPT:
	case CB_STOP_WIRE:
		break;
	}
	return s->current->id != 0 && cb_output_parent(&s->python->output, s->current->id)->output_cut ? "output"
												       : NULL;
}

static bool is_main(const struct cb_shell *s)
{
	return s == &s->all->execution.shell;
}

void cb_failure_metadata(struct cb_shell *s, const char *status, const char *state, const char *limit, const char *by,
			 struct cb_buf *out)
{
	const struct cb_cell *cell = &s->cell;
	struct cb_usage u = cell->usage_at_start;
	double wall = (double)(cb_now_ns() - cell->started_ns) / 1e9;
	struct cb_json j = cb_json_begin(out);
	uint64_t output = 0;
	char date[28];

	if (strcmp(state, "kept") == 0)
		cb_calls_keep(s->current->calls, cell->store ? cell->number : 0);
	s->ops->usage(s, &u);
	double user = u.cpu_user_s - cell->usage_at_start.cpu_user_s;
	double sys = u.cpu_sys_s - cell->usage_at_start.cpu_sys_s;

	if (limit == NULL && cb_guest_oom(s->all->guest, &cell->usage_at_start.oom, &u.oom) == CB_OOM_LIMIT)
		limit = "memory"; /* of a child of Python's: the state is kept */
	if (is_main(s) && s->all->execution.lost_owed && strcmp(state, "lost") != 0)
		state = s->all->execution.lost_restored ? "restored"
							: "lost"; /* what came before the cell is told with it */
	cb_date_format(cell->started_date, date);
	if (s->current->id != 0)
		output = cb_output_parent(&s->python->output, s->current->id)->output_bytes;
	cb_json_put(&j, "started", date, "status", status, "dependencies_met", (bool)true, "engine",
		    s->all->jupyter->session.id);
	cb_json_object(&j, "cellblock");
	cb_json_put_object(&j, "usage", "wall_s", CB_ROUNDED(wall, 6), "cpu_user_s", CB_ROUNDED(user, 2), "cpu_sys_s",
			   CB_ROUNDED(sys, 2), "memory_peak_bytes", u.memory_peak_bytes, "output_bytes", output,
			   "read_bytes", NULL, "write_bytes", NULL);
	cb_audit_cell_end(s->all->records, s->current, cell->number, status, limit, state, wall, user + sys);
	if (by != NULL)
		cb_json_put(&j, "by", by);
	cb_json_put(&j, "limit", limit);
	s->all->keeper->write_end(s->all->kept, is_main(s), state, &j);
	cb_calls_write(s->current->calls, &j);
	if (s->current->traceparent[0] != '\0')
		cb_json_put(&j, "traceparent", s->current->traceparent);
	(void)cb_json_done(&j);
}

void cb_failure_of_cell(struct cb_shell *s, bool failed, struct cb_span ename, struct cb_buf *out)
{
	const char *limit = cb_failure_limit(s);
	/* the guest of bash outlives its shell */
	bool lost = s->all->bash && failed && cb_json_string_is(ename, "ShellEnded");

	/* RLIMIT_DATA's way of holding limits.memory; numpy has a name of its own for it */
	if (limit == NULL && failed && ename.data != NULL &&
	    (cb_json_string_is(ename, "MemoryError") || cb_json_string_is(ename, "_ArrayMemoryError")))
		limit = "memory";
	cb_failure_metadata(s, failed ? "error" : "ok", lost ? "lost" : "kept", limit, NULL, out);
}

/* Instead of beginning it. */
static void refuse(struct cb_jupyter *jp, struct cb_request *r, const char *ename, const char *evalue)
{
	cb_bracket_begin(jp, r);
	if (cb_request_is_execute(r)) { /* frontends show nothing of a reply */
		cb_publish_error(jp, r, ename, evalue, (struct cb_span){ NULL, 0 });
		cb_iopub_flush(jp);
	}
	cb_failure_of_asked(jp, r, ename, evalue);
	cb_bracket_close(jp, r);
}

void cb_failure_malformed(struct cb_shells *sh, struct cb_request *r, const char *format, ...)
{
	char text[512], evalue[sizeof(text) + 64];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	snprintf(evalue, sizeof(evalue), "%.60s: %s", r->type, text);
	cb_audit_denied(sh->records, r->type, text);
	refuse(sh->jupyter, r, "MalformedRequestError", evalue);
}

static void say_that_the_log_moved(struct cb_shells *sh)
{
	char text[512];

	if (sh->records->audit_moved)
		return;
	sh->records->audit_moved = true;
	snprintf(text, sizeof(text),
		 "audit.file %.300s was renamed: lines go on in it under its new name. Start the kernel anew to have "
		 "them here again.",
		 cb_audit_path(sh->records->audit));
	cb_log(CB_LOG_WARNING, "%s", text);
	cb_execution_note(&sh->execution, "%s", text);
}

bool cb_failure_log_is_gone(struct cb_shells *sh, char ret_evalue[CB_LOG_GONE_MAX])
{
	const struct cb_audit *audit = sh->records->audit;
	enum cb_audit_place place = audit != NULL ? cb_audit_look(audit) : CB_AUDIT_THERE;

	if (place == CB_AUDIT_MOVED)
		say_that_the_log_moved(sh);
	if (place != CB_AUDIT_DELETED)
		return false;
	snprintf(ret_evalue, CB_LOG_GONE_MAX,
		 "audit.file %.400s was deleted while this kernel ran, so nothing runs any more: it would not be "
		 "written down. Restart the kernel, which makes the file anew.",
		 cb_audit_path(audit));
	cb_log(CB_LOG_ERROR, "%s", ret_evalue);
	return true;
}

bool cb_failure_without_log(struct cb_shells *sh, struct cb_request *r)
{
	char evalue[CB_LOG_GONE_MAX];

	if (!cb_failure_log_is_gone(sh, evalue))
		return false;
	refuse(sh->jupyter, r, CB_LOG_GONE, evalue);
	return true;
}

/* In namespaces of its own nothing in the jail can end the broker or pid 1; without them a cell can. */
static bool ended_from_outside(const struct cb_guest *g)
{
	return g->level > CB_LEVEL_CONTAINER &&
	       (g->broker.fd < 0 ||
		(g->end_known && !g->exited && g->end.note[0] == '\0' && verdict(g)[0] == '\0'));
}

static void reply(struct cb_shell *s, const char *ename, const char *evalue, const char *state)
{
	bool outside = strcmp(ename, "KernelDiedError") == 0 &&
		       (s->cell.stop == CB_STOP_HOST || ended_from_outside(s->all->guest));
	CB_AUTO_BUF metadata = CB_BUF_INIT(CB_METADATA_MAX), content = CB_BUF_INIT(65536);
	struct cb_json j = cb_json_begin(&content);

	cb_failure_metadata(s, "error", state, cb_failure_limit(s), outside ? "outside" : "kernel", &metadata);
	cb_json_put(&j, "status", "error", "execution_count", s->cell.number, "payload", CB_SPAN("[]"),
		    "user_expressions", CB_SPAN("{}"));
	cb_write_error(&j, ename, evalue, (struct cb_span){ NULL, 0 });
	(void)cb_json_done(&j);
	cb_iopub_flush(s->all->jupyter);
	cb_reply_full(s->all->jupyter, s->current, cb_buf_span(&metadata), cb_buf_span(&content), NULL);
}

void cb_failure_reply(struct cb_shell *s, const char *ename, const char *state, const char *format, ...)
{
	char evalue[2048];
	va_list ap;

	va_start(ap, format);
	vsnprintf(evalue, sizeof(evalue), format, ap);
	va_end(ap);
	if (is_main(s) && strcmp(state, "lost") == 0) {
		size_t len = strlen(evalue);

		snprintf(evalue + len, sizeof(evalue) - len, "%s", s->all->events->lost_calls(s->all->kernel));
	}
	if (strcmp(state, "kept") != 0)
		cb_calls_tell(s->current->calls, evalue, sizeof(evalue));
	cb_publish_error(s->all->jupyter, s->current, ename, evalue, (struct cb_span){ NULL, 0 });
	reply(s, ename, evalue, state);
}

void cb_failure_of_asked(struct cb_jupyter *jp, const struct cb_request *r, const char *ename, const char *text)
{
	if (!cb_request_is_comm(r))
		cb_reply_error(jp, r, ename, "%s", text);
}

void cb_failure_unsent(struct cb_shell *s, bool up, int code)
{
	const struct cb_err *f = &s->all->guest->failure;
	const char *ename = up ? "KernelBusyError" : "IsolationError";
	char text[2048];

	if (!up)
		snprintf(text, sizeof(text),
			 "the request was not run: the jail could not be started. Step: %s. Cause: %s.%s%s",
			 f->step, f->text, f->cure[0] != '\0' ? " Cure: " : "", f->cure);
	else if (code == CB_E_CLOSED)
		snprintf(text, sizeof(text), "this guest serves no subshells");
	else
		snprintf(text, sizeof(text), "the request can't be handed to Python: %s", cb_err_name(code));
	if (cb_request_is_execute(s->current))
		cb_failure_reply(s, ename, "kept", "%s", text);
	else
		cb_failure_of_asked(s->all->jupyter, s->current, ename, text);
}

void cb_failure_unanswered(struct cb_jupyter *jp, const struct cb_request *r)
{
	cb_reply_error(jp, r, "KernelBusyError",
		       "Python did not answer in time: the running cell is in C code that lets nothing else run");
}

/* "the cell ran over its limit of 5 s (timeout.cell)": which limit. */
static const char *overrun(const struct cb_shell *s)
{
	const struct cb_execute_fields *e = &s->current->execute;
	static char text[128];

	if (s->cell.over_cpu && s->ops->cpu_of != NULL)
		snprintf(text, sizeof(text), "%s used %g s of CPU time while the cell ran (timeout.cpu)",
			 s->ops->cpu_of, e->cpu);
	else if (s->cell.over_cpu)
		snprintf(text, sizeof(text), "the cell exceeded its limit of %g s of CPU time (timeout.cpu)", e->cpu);
	else if (s->cell.wait_over)
		snprintf(text, sizeof(text),
			 "the cell waited for input, a host tool or a debugger longer than %g s (timeout.wait)",
			 s->all->policy->timeout_wait);
	else
		snprintf(text, sizeof(text), "the cell ran over its limit of %g s (timeout.cell)", e->timeout);
	return text;
}

bool cb_failure_of_interrupt(struct cb_span ename)
{
	return cb_json_string_is(ename, "KeyboardInterrupt") || cb_json_string_is(ename, "HostToolCancelledError");
}

static const char *timeout_text(const struct cb_shell *s)
{
	static char text[256];

	snprintf(text, sizeof(text), "%s and was interrupted; all variables are kept", overrun(s));
	return text;
}

void cb_failure_publish_timeout(const struct cb_shell *s, struct cb_span traceback)
{
	cb_publish_error(s->all->jupyter, s->current, "CellTimeoutError", timeout_text(s), traceback);
}

void cb_failure_reply_timeout(struct cb_shell *s)
{
	if (!s->cell.error_sent)
		cb_failure_publish_timeout(s, (struct cb_span){ NULL, 0 });
	reply(s, "CellTimeoutError", timeout_text(s), "kept");
}

static const char *memory_text(const struct cb_shells *sh)
{
	static char text[512];
	const struct cb_broker_reply *end = &sh->guest->end;
	uint64_t bytes = sh->guest->over_memory > 0 ? sh->guest->over_memory
			 : sh->execution.taken_over ? sh->execution.usage_at_end.memory_peak_bytes
			 : end->watchdog > 0	    ? end->watchdog
						    : end->memory_peak;
	double mib = 1024.0 * 1024, peak = (double)bytes / mib;
	const char *note = sh->policy->limit_memory_note;

	if (sh->guest->over_memory == 0 && !sh->execution.taken_over && end->watchdog > 0 && end->note[0] != '\0') {
		snprintf(text, sizeof(text), "Python's jail was ended: %.400s", end->note);
		return text;
	}
	snprintf(text, sizeof(text),
		 "the jail used more memory than limits.memory allows (limit %.1f MiB%s%s, peak %.1f MiB) and Python "
		 "was killed",
		 (double)sh->policy->limit_memory / mib, note[0] != '\0' ? ": " : "", note, peak);
	return text;
}

const char *cb_failure_over_memory(const struct cb_shell *s)
{
	static char text[192];

	snprintf(text, sizeof(text),
		 "a process used more than %.1f MiB of memory (metadata.cellblock.memory), or there were too many "
		 "processes to look at",
		 (double)s->current->execute.memory / (1024 * 1024));
	return text;
}

const char *cb_failure_death_text(const struct cb_shells *sh)
{
	static char text[512];
	const struct cb_guest *g = sh->guest;

	switch (cb_failure_oom(sh, &sh->execution.shell.cell.usage_at_start.oom)) {
	case CB_OOM_LIMIT:
		return memory_text(sh);
	case CB_OOM_HOST:
		return CB_FAILURE_HOST;
	case CB_OOM_NONE:
		break;
	}
	if (verdict(g)[0] != '\0')
		snprintf(text, sizeof(text), "Python was stopped: %s", verdict(g));
	else if (!g->exited && g->end_known && g->end.note[0] != '\0')
		snprintf(text, sizeof(text), "Python's jail was ended: %.400s", g->end.note);
	else if (!g->exited)
		snprintf(text, sizeof(text), "Python's jail was killed from outside");
	else
		cb_python_end_text(g->wait_status, text, sizeof(text));
	return text;
}

const char *cb_failure_cause(const struct cb_shell *s)
{
	if (s->cell.stop == CB_STOP_HOST)
		return CB_FAILURE_HOST;
	return s->cell.stop == CB_STOP_MEMORY ? memory_text(s->all) : cb_failure_death_text(s->all);
}

void cb_failure_death(struct cb_shell *s, const struct cb_death *d)
{
	switch (s->cell.stop) {
	case CB_STOP_TIME_SOFT:
	case CB_STOP_TIME_HARD:
		cb_failure_reply(s, "CellTimeoutError", d->state,
				 "%s, did not stop within %g s (timeout.grace) and was killed; %s", overrun(s),
				 s->all->policy->timeout_grace, d->became);
		break;
	case CB_STOP_INTERRUPT:
		cb_failure_reply(s, "KeyboardInterrupt", d->state,
				 "the cell did not obey the interrupt and was killed; %s", d->became);
		break;
	case CB_STOP_WIRE:
		cb_failure_reply(s, "WireError", d->state,
				 "the cell's Python broke the protocol to the kernel (%s) and was killed; %s",
				 d->broken, d->became);
		break;
	case CB_STOP_MEMORY:
		cb_failure_reply(s, "CellMemoryError", d->state, "%s; %s", d->cause, d->became);
		break;
	case CB_STOP_NONE:
	case CB_STOP_HOST:
		cb_failure_reply(s, "KernelDiedError", d->state, "%s; %s", d->cause, d->became);
		break;
	}
}

void cb_failure_note_memory(struct cb_shell *s)
{
	static const enum cb_stop of[] = { [CB_OOM_NONE] = CB_STOP_NONE,
					   [CB_OOM_LIMIT] = CB_STOP_MEMORY,
					   [CB_OOM_HOST] = CB_STOP_HOST };

	if (s->cell.stop == CB_STOP_NONE)
		s->cell.stop = of[cb_failure_oom(s->all, &s->cell.usage_at_start.oom)];
}

void cb_failure_of_python(struct cb_shells *sh, bool restored, struct cb_death *ret_death)
{
	const char *became = sh->keeper->became(sh->kept, restored);

	if (!restored && sh->guest->shutting_down)
		became = "all variables are lost";
	else if (became == NULL)
		became = "all variables are lost and the next cell runs in a new Python";
	*ret_death = (struct cb_death){ .cause = cb_failure_death_text(sh),
					.broken = verdict(sh->guest),
					.state = restored ? "restored" : "lost",
					.became = became };
}
