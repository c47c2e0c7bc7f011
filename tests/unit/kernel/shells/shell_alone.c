/* What a shell calls where it is alone: Python, clients, the clock, and what is said of each request. */
#include "shell_alone.h"

#include <cellblock/json_write.h>

#include "jupyter/status.h"
#include "records/audit_events.h"
#include "shells/abort.h"
#include "shells/failure.h"
#include "shells/idle.h"
#include "shells/stdin.h"

struct cb_shells all;
struct cb_loop loop;
struct cb_policy policy;
struct cb_python python;
struct cb_load load;
struct cb_shell_ops ops;
int64_t count, now;
double cpu;
bool up, log_gone, deferred;
int send_result, ask_result;
void (*on_abort)(void);
struct cb_request request[REQUESTS];
struct alone_seen seen[REQUESTS];
unsigned made, last_id, arms;
char trace[1024], sent_about[1024];
int64_t replied_count;

static struct cb_jupyter jupyter;
static union {
	struct cb_header h;
	char room[64];
} header[REQUESTS];

void did(const char *what)
{
	size_t n = strlen(trace);

	snprintf(trace + n, sizeof(trace) - n, "%s ", what);
}

void expect(const char *what)
{
	assert_string_equal(trace, what);
	trace[0] = '\0';
}

static unsigned of(const struct cb_header *h)
{
	for (unsigned i = 0; i < REQUESTS; i++)
		if (&header[i].h == h)
			return i;
	fail_msg("no header of a request");
	return 0;
}

static void is_replied(const struct cb_request *r)
{
	if (!seen[of(r->header)].comm)
		seen[of(r->header)].replies++;
}

static void is_published(const struct cb_header *h)
{
	if (seen[of(h)].replies > 0)
		seen[of(h)].late++;
}

/* ---- what the shell calls ---- */

int64_t __wrap_cb_now_ns(void);

int64_t __wrap_cb_now_ns(void)
{
	return now;
}

double cb_date_now(void)
{
	return 1e9;
}

size_t cb_request_bytes(const struct cb_request *r)
{
	return r->nframes;
}

bool cb_request_same_client(const struct cb_request *a, const struct cb_request *b)
{
	return a->nident == b->nident;
}

void cb_request_free(struct cb_request *r)
{
	if (r == NULL)
		return;
	seen[of(r->header)].frees++;
	memset(r, 0xee, sizeof(*r));
}

static void answer_whole(struct cb_request *r)
{
	unsigned i = of(r->header);

	seen[i].busy++;
	is_replied(r);
	seen[i].idles++;
	cb_request_free(r);
}

void cb_refuse(struct cb_jupyter *jp, struct cb_request *r, const char *ename, const char *format, ...)
{
	assert_ptr_equal(jp, &jupyter);
	assert_string_equal(ename, "KernelBusyError");
	assert_non_null(format);
	did("refused");
	answer_whole(r);
}

void cb_abort_request(struct cb_jupyter *jp, struct cb_request *r)
{
	assert_ptr_equal(jp, &jupyter);
	did("abort-one");
	answer_whole(r);
}

void cb_abort_queue(struct cb_shell *shell)
{
	void (*taken_in)(void) = on_abort;

	did("abort");
	shell->abort_waiting = true;
	on_abort = NULL;
	if (taken_in != NULL)
		taken_in();
}

void cb_abort_waiting(struct cb_shell *shell)
{
	did("aborted");
	shell->abort_waiting = false;
	for (struct cb_request *r; (r = cb_shell_pop(shell)) != NULL;)
		answer_whole(r);
}

void cb_bracket_begin(struct cb_jupyter *jp, const struct cb_request *r)
{
	assert_ptr_equal(jp, &jupyter);
	did("busy");
	seen[of(r->header)].busy++;
}

void cb_busy_again(struct cb_jupyter *jp)
{
	assert_ptr_equal(jp, &jupyter);
}

void cb_iopub_content(struct cb_jupyter *jp, const char *type, enum cb_weight weight, const struct cb_header *parent,
		      struct cb_span content)
{
	(void)jp;
	(void)weight;
	assert_non_null(content.data);
	did(type);
	is_published(parent);
}

void cb_iopub_status(struct cb_jupyter *jp, const char *state, struct cb_header *parent)
{
	(void)jp;
	did(state);
	seen[of(parent)].idles++;
}

void cb_iopub_text(struct cb_jupyter *jp, struct cb_header *parent, unsigned stream, const void *text, size_t len)
{
	(void)jp;
	assert_int_equal(stream, CB_WIRE_STDERR);
	assert_true(len > 0 && ((const char *)text)[len - 1] == '\n');
	did("notice");
	is_published(parent);
}

void cb_iopub_flush(struct cb_jupyter *jp)
{
	(void)jp;
	did("flush");
}

void cb_reply_full(struct cb_jupyter *jp, const struct cb_request *to, struct cb_span metadata, struct cb_span content,
		   struct cb_body *body)
{
	(void)jp;
	(void)metadata;
	(void)content;
	(void)body;
	did("reply");
	is_replied(to);
}

struct cb_span cb_frame_with_count(struct cb_frame *f, int64_t n)
{
	replied_count = n;
	return (struct cb_span){ f->content, f->header.content_len };
}

void cb_output_drain(struct cb_output *o)
{
	assert_ptr_equal(o, &python.output);
	did("drain");
}

void cb_output_error(struct cb_output *o, struct cb_frame *f, bool keep)
{
	(void)o;
	did(keep ? "error" : "dropped-if-over");
	if (s->current != NULL && f->header.request == s->current->id)
		is_published(s->current->header);
}

bool cb_failure_without_log(struct cb_shells *sh, struct cb_request *r)
{
	assert_ptr_equal(sh, &all);
	if (!log_gone)
		return false;
	did("no-log");
	answer_whole(r);
	return true;
}

void cb_failure_unsent(struct cb_shell *shell, bool is_up, int code)
{
	did(!is_up ? "no-python" : code < 0 ? "unsent" : "?");
	is_replied(shell->current);
}

void cb_failure_of_asked(struct cb_jupyter *jp, const struct cb_request *r, const char *ename, const char *text)
{
	(void)jp;
	assert_string_equal(ename, "KernelDiedError");
	assert_string_equal(text, "it died");
	did("died-asked");
	is_replied(r);
}

void cb_failure_death(struct cb_shell *shell, const struct cb_death *d)
{
	assert_string_equal(d->cause, "it died");
	did("died");
	is_replied(shell->current);
}

bool cb_failure_of_interrupt(struct cb_span ename)
{
	return cb_span_is(ename, "\"KeyboardInterrupt\"");
}

void cb_failure_publish_timeout(const struct cb_shell *shell, struct cb_span traceback)
{
	(void)traceback;
	did("limit-error");
	is_published(shell->current->header);
}

void cb_failure_reply_timeout(struct cb_shell *shell)
{
	did("limit-reply");
	is_replied(shell->current);
}

void cb_failure_of_cell(struct cb_shell *shell, bool failed, struct cb_span ename, struct cb_buf *out)
{
	(void)shell;
	(void)ename;
	(void)out;
	did(failed ? "failed" : "ok");
}

const char *cb_failure_over_memory(const struct cb_shell *shell)
{
	(void)shell;
	return "memory";
}

void cb_audit_cell(struct cb_records *rec, const struct cb_request *r, int64_t n)
{
	(void)rec;
	(void)r;
	assert_int_equal(n, count);
}

void cb_audit_limit(struct cb_records *rec, const char *key)
{
	(void)rec;
	did(key);
}

void cb_audit_interrupt(struct cb_records *rec, const char *how)
{
	(void)rec;
	did(how);
}

void cb_idle_touch(struct cb_idle *i)
{
	assert_ptr_equal(i, &all.idle);
}

void cb_guest_rules_input(struct cb_guest_rules *rules, bool asks)
{
	assert_ptr_equal(rules, &python.rules);
	assert_int_equal(rules->phase, asks ? CB_PHASE_EXECUTING : CB_PHASE_INPUT);
	rules->phase = asks ? CB_PHASE_INPUT : CB_PHASE_EXECUTING;
}

int cb_python_send(struct cb_python *p, struct cb_request *r, enum cb_wire_type type, enum cb_wire_phase phase,
		   struct cb_span about)
{
	const struct cb_shell_message *m = cb_shell_message_of(r);

	assert_true(p == &python && m->wire == type && m->phase == phase);
	snprintf(sent_about, sizeof(sent_about), "%.*s", (int)about.len, about.len > 0 ? about.data : "");
	did("send");
	r->id = ++last_id;
	p->rules.phase = phase;
	return send_result;
}

int cb_python_input(struct cb_python *p, int64_t question, struct cb_span content)
{
	assert_ptr_equal(p, &python);
	assert_int_equal(question, 7);
	assert_true(cb_span_is(content, "{}"));
	did("input");
	return 0;
}

void cb_python_interrupt(struct cb_python *p)
{
	assert_ptr_equal(p, &python);
	did("interrupt");
}

int cb_stdin_ask(struct cb_shell *shell, const struct cb_frame *f, const char **ret_reason)
{
	(void)f;
	(void)ret_reason;
	did("ask");
	shell->question = 7;
	is_published(shell->current->header);
	return ask_result;
}

void cb_stdin_look(struct cb_shell *shell, int64_t at)
{
	assert_true(shell == s && at == now && shell->current != NULL && !shell->over);
	if (shell->unsent.again_at != 0)
		did("again");
}

void cb_stdin_forget(struct cb_shell *shell)
{
	shell->unsent.again_at = 0;
}

void cb_stdin_nobody(struct cb_shell *shell)
{
	assert_true(shell->asked_at != 0);
	did("nobody");
	cb_shell_input(shell, CB_SPAN("{}"));
}

/* ---- its operations ---- */

static bool is_up(struct cb_shell *shell)
{
	(void)shell;
	return up;
}

static void begun(struct cb_shell *shell)
{
	(void)shell;
	did("begun");
}

static void told(struct cb_shell *shell)
{
	(void)shell;
	did("told");
}

static bool defers(struct cb_shell *shell, const struct cb_frame *f, bool late)
{
	(void)shell;
	(void)f;
	(void)late;
	return deferred;
}

void told_of_wait(struct cb_shell *shell, bool waiting)
{
	(void)shell;
	did(waiting ? "stands" : "runs");
}

static void kill_it(struct cb_shell *shell, const char *why)
{
	assert_non_null(why);
	assert_true(shell->cell.stop > CB_STOP_TIME_SOFT);
	did("kill");
}

static void ending(struct cb_shell *shell, struct cb_request *r)
{
	assert_true(shell->current == NULL && r != NULL);
	did("ending");
}

static void done(struct cb_shell *shell, struct cb_request *r)
{
	(void)shell;
	assert_int_equal(seen[of(r->header)].frees, 0);
	did("done");
}

static void usage(struct cb_shell *shell, struct cb_usage *ret_usage)
{
	(void)shell;
	*ret_usage = (struct cb_usage){ 0 };
}

static double cpu_of(struct cb_shell *shell)
{
	(void)shell;
	return cpu;
}

static void arm(struct cb_shell *shell)
{
	(void)shell;
	arms++;
}

static const struct cb_shell_ops subshell_ops = { .max_waiting = 3,
						  .max_bytes = 100,
						  .up = is_up,
						  .begun = begun,
						  .told = told,
						  .send = cb_shell_send,
						  .defers = defers,
						  .kill = kill_it,
						  .ending = ending,
						  .done = done,
						  .usage = usage,
						  .cpu = cpu_of,
						  .arm = arm };

static void write_begin(struct cb_kernel *k, struct cb_json *j)
{
	(void)k;
	cb_json_put(j, "more", (bool)true);
}

static const struct cb_shells_events events = { .write_begin = write_begin };

int set_up(void **state)
{
	(void)state;
	memset(&all, 0, sizeof(all));
	memset(seen, 0, sizeof(seen));
	memset(&policy, 0, sizeof(policy));
	memset(&python, 0, sizeof(python));
	ops = subshell_ops;
	load = (struct cb_load){ 0 };
	all.events = &events;
	all.loop = &loop;
	all.policy = &policy;
	all.jupyter = &jupyter;
	s->ops = &ops;
	s->all = &all;
	s->load = &load;
	s->python = &python;
	s->count = &count;
	policy.timeout_grace = 3;
	count = 0;
	now = 1000 * SECOND;
	made = last_id = arms = 0;
	up = true;
	log_gone = deferred = loop.marked = false;
	send_result = ask_result = 0;
	on_abort = NULL;
	cpu = 5;
	trace[0] = '\0';
	return 0;
}

struct cb_request *fresh(enum cb_request_kind kind)
{
	static char id[REQUESTS][8];
	unsigned i = made++;

	assert_true(i < REQUESTS);
	header[i].h = (struct cb_header){ .refs = 1 };
	request[i] = (struct cb_request){ .kind = kind,
					  .nframes = 10,
					  .header = &header[i].h,
					  .metadata = CB_SPAN("{}"),
					  .msg_id = { id[i], (size_t)snprintf(id[i], sizeof(id[i]), "\"%u\"", i) },
					  .execute = { .code = CB_SPAN("\"1\""),
						       .store_history = true,
						       .stop_on_error = true,
						       .allow_stdin = true } };
	seen[i].comm = cb_request_is_comm(&request[i]);
	return &request[i];
}

struct cb_request *begins(enum cb_request_kind kind, double timeout)
{
	struct cb_request *r = fresh(kind);

	r->execute.timeout = timeout;
	cb_shell_begin(s, r);
	expect(kind == CB_REQUEST_EXECUTE ? "begun send busy execute_input told " : "send busy ");
	assert_ptr_equal(s->current, r);
	return r;
}

struct cb_frame *frame_of(uint32_t type, uint64_t id)
{
	static struct cb_frame f;
	static char content[] = "{}";

	f.header = (struct cb_wire_header){ .type = type, .content_len = 2, .request = id };
	f.content = content;
	return &f;
}

void answers(uint64_t id, const char *status, const char *ename)
{
	const struct cb_guest_content c = { .status = { status, strlen(status) }, .ename = { ename, strlen(ename) } };

	cb_shell_reply(s, frame_of(CB_WIRE_EXECUTE_REPLY, id), &c);
}

void fails_with(uint64_t id, const char *ename)
{
	const struct cb_guest_content c = { .ename = { ename, strlen(ename) } };

	cb_shell_error(s, frame_of(CB_WIRE_ERROR, id), &c);
}

int asks_user(void)
{
	const char *reason;

	return cb_shell_ask(s, frame_of(CB_WIRE_INPUT_REQUEST, last_id), &reason);
}

void dies(void)
{
	cb_shell_died(s, &(struct cb_death){ .cause = "it died" });
}

void stopped(void)
{
	cb_shell_stopped(s);
}

int64_t due(void)
{
	int64_t look_at = 0, when = 0;

	cb_shell_due(s, &look_at, &when);
	return when;
}

void look_after(int64_t ns, const char *what)
{
	now += ns;
	cb_shell_look(s, now);
	expect(what);
}

/* The i-th has had all, once, and is gone; replies: 0 for comm messages. */
void is_over(unsigned i, unsigned replies)
{
	assert_int_equal(seen[i].busy, 1);
	assert_int_equal(seen[i].replies, replies);
	assert_int_equal(seen[i].idles, 1);
	assert_int_equal(seen[i].frees, 1);
	assert_int_equal(seen[i].late, 0);
}
