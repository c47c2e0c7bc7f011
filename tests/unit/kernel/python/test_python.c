/* A Python alone, with a wire, a policy, pid 1 and a clock of the test's own: nothing acts on what did not pass the
 * policy; ids are given once, and the parents of requests under way stay known; what a dead one is told is no error. */
#include "python/python.h"

#include <cellblock/fd.h>
#include <cellblock/json_write.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "jupyter/iopub.h"
#include "jupyter/loop.h"
#include "python/pid1.h"
#include "python/usage.h"

#define MS 1000000LL
#define PARENTS 16
#define HALF 5000000000LL /* of a frame: when it is looked at */

static struct cb_python p, other;
static struct cb_guest_parent parent[PARENTS];
static struct cb_loop loop;
static struct cb_pid1 pid1;
static uint64_t last_id;
static int64_t now;
static struct cb_header header = { .refs = 1 };

static char trace[512];
/* What those say that it asks. */
static int link_ready, received, sends, header_judged, content_judged, frame_result, pid1_hears;
static bool heard, heard_once, dropped, output_takes, waits_now, flushed, half_is_over, holds_up, exiting;
static int64_t patience;
static char sent_about[256];
static struct cb_span sent_content;
static uint64_t sent_id;
static size_t sent_buffers;

static void did(const char *what)
{
	size_t n = strlen(trace);

	snprintf(trace + n, sizeof(trace) - n, "%s ", what);
}

static void expect(const char *what)
{
	assert_string_equal(trace, what);
	trace[0] = '\0';
}

/* ---- what it calls ---- */

int64_t __wrap_cb_now_ns(void);

int64_t __wrap_cb_now_ns(void)
{
	return now;
}

int cb_guest_link_init(struct cb_guest_link *l, int fd, size_t tx_max)
{
	assert_int_equal(tx_max, cb_guest_link_tx_max(100));
	if (link_ready == 0)
		l->fd = fd;
	return link_ready;
}

void cb_guest_link_release(struct cb_guest_link *l)
{
	cb_fd_close(&l->fd);
}

/* One frame, then what `received` says. */
int cb_guest_link_receive(struct cb_guest_link *l, size_t budget, cb_link_judge_fn judge, cb_link_frame_fn take,
			  void *context, const char **ret_reason)
{
	static struct cb_frame f = { .header = { .type = CB_WIRE_STREAM } };
	int r;

	assert_true(l == &p.link && budget == 1000);
	l->waits = waits_now;
	r = judge(context, &f.header, ret_reason);
	if (r == 0)
		r = take(context, &f, ret_reason);
	return r < 0 ? r : received;
}

int cb_guest_link_send(struct cb_guest_link *l, enum cb_wire_type type, uint64_t request, struct cb_span content,
		       struct cb_span metadata, const struct cb_span *buffers, size_t nbuffers)
{
	assert_ptr_equal(l, &p.link);
	assert_true(nbuffers == 0 || buffers != NULL);
	snprintf(sent_about, sizeof(sent_about), "%u:%.*s", (unsigned)type, (int)metadata.len, metadata.data);
	sent_content = content;
	sent_id = request;
	sent_buffers = nbuffers;
	did("send");
	return sends;
}

int cb_guest_link_flush(struct cb_guest_link *l)
{
	assert_ptr_equal(l, &p.link);
	return flushed ? 0 : CB_E_CLOSED;
}

void cb_guest_link_drop(struct cb_guest_link *l)
{
	assert_ptr_equal(l, &p.link);
	did("drop");
}

int cb_guest_policy_header(const struct cb_guest_rules *rules, const struct cb_wire_header *h, const char **ret_reason)
{
	assert_true(rules == &p.rules && h != NULL);
	did("header");
	*ret_reason = "bad header";
	return header_judged;
}

int cb_guest_policy_content(const struct cb_frame *f, struct cb_guest_content *ret_content, const char **ret_reason)
{
	assert_non_null(f);
	memset(ret_content, 0, sizeof(*ret_content));
	did("content");
	*ret_reason = "bad content";
	return content_judged;
}

void cb_guest_rules_go(struct cb_guest_rules *rules, enum cb_wire_phase to, uint64_t current)
{
	rules->phase = to;
	rules->current = current;
}

bool cb_iopub_congested(const struct cb_jupyter *jp)
{
	return jp != NULL;
}

bool cb_output_frame(struct cb_output *s, struct cb_frame *f, const struct cb_guest_content *c)
{
	assert_true(s == &p.output && f != NULL && c != NULL);
	did("output");
	return output_takes;
}

void cb_output_remember(struct cb_output *s, uint64_t id, struct cb_header *h)
{
	s->parent[id % s->nparents] = (struct cb_guest_parent){ .id = id, .header = h };
}

int cb_pid1_tell(struct cb_pid1 *to, enum cb_init_op op, int arg, uint32_t number)
{
	char text[32];

	assert_ptr_equal(to, &pid1);
	assert_int_equal(number, p.number);
	snprintf(text, sizeof(text), "%s:%d", op == CB_INIT_SIGNAL ? "signal" : "nudge", arg);
	did(text);
	return pid1_hears;
}

void cb_pid1_signal_asked(struct cb_pid1 *to)
{
	to->unsent++;
}

bool cb_stalled_frame_look(struct cb_stalled_frame *h, const struct cb_guest_link *l)
{
	(void)l;
	return h->due == 0;
}

void cb_stalled_frame_watch(struct cb_stalled_frame *h, const struct cb_guest_link *l, double worked_s)
{
	(void)l;
	assert_true(worked_s > 1.4 && worked_s < 1.6);
	h->due = now + HALF;
}

bool cb_stalled_frame_over(struct cb_stalled_frame *h, const struct cb_guest_link *l, double worked_s, bool we_read)
{
	(void)l;
	assert_true(worked_s > 1.4 && worked_s < 1.6 && we_read);
	h->due = 0;
	return half_is_over;
}

bool cb_stalled_frame_holds_up(struct cb_stalled_frame *h, const struct cb_guest_link *l, int64_t at, bool we_read,
			       int64_t *ret_when)
{
	(void)h;
	(void)l;
	assert_true(at == now && we_read);
	*ret_when = patience;
	return holds_up;
}

bool cb_usage_process(pid_t pid, struct cb_usage_process *ret)
{
	assert_int_equal(pid, 77);
	*ret = (struct cb_usage_process){ .pid = pid, .exiting = exiting };
	return true;
}

struct cb_span cb_frame_span(zmq_msg_t *frame)
{
	assert_non_null(frame);
	return CB_SPAN("buffer");
}

/* ---- its operations ---- */

static bool is_heard(const struct cb_python *python)
{
	bool now_heard = heard;

	assert_ptr_equal(python, &p);
	heard = heard && !heard_once;
	return now_heard;
}

static bool drops(struct cb_python *python, const struct cb_frame *f, const struct cb_guest_content *c)
{
	assert_true(python == &p && f != NULL && c != NULL);
	return dropped;
}

static int frame(struct cb_python *python, struct cb_frame *f, const struct cb_guest_content *c,
		 const char **ret_reason)
{
	assert_true(python == &p && f != NULL && c != NULL);
	did("frame");
	*ret_reason = "bad frame";
	return frame_result;
}

static void watch(struct cb_python *python)
{
	(void)python;
	did("watch");
}

static void unwatch(struct cb_python *python)
{
	(void)python;
	did("unwatch");
}

static void closed(struct cb_python *python)
{
	(void)python;
	did("closed");
}

static void broke(struct cb_python *python, const char *why)
{
	(void)python;
	did("broke:");
	did(why);
}

static void arm(struct cb_python *python)
{
	(void)python;
	did("arm");
}

static double worked(const struct cb_python *python)
{
	(void)python;
	return 1.5;
}

static const struct cb_python_ops ops = { .heard = is_heard,
					  .drops = drops,
					  .frame = frame,
					  .watch = watch,
					  .unwatch = unwatch,
					  .closed = closed,
					  .broke = broke,
					  .arm = arm,
					  .worked = worked };

static void init(struct cb_python *python)
{
	cb_python_init(python, &ops, &pid1, &last_id);
	python->output = (struct cb_output){ .parent = parent, .nparents = PARENTS, .out = { -1, -1 } };
	python->rules.first_id = last_id + 1;
}

static int set_up(void **state)
{
	(void)state;
	memset(parent, 0, sizeof(parent));
	pid1 = (struct cb_pid1){ .loop = &loop };
	loop.marked = false;
	last_id = 0;
	now = 1000000 * MS;
	link_ready = received = sends = header_judged = content_judged = frame_result = pid1_hears = 0;
	heard = flushed = true;
	heard_once = dropped = output_takes = waits_now = half_is_over = holds_up = exiting = false;
	patience = 0;
	init(&p);
	p.number = 4;
	p.pid = 77;
	p.half.due = now + HALF;
	trace[0] = '\0';
	return 0;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* ---- what it owns ---- */

static void test_open(void **state)
{
	int a[2], b[2];

	(void)state;
	assert_true(pipe2(a, O_CLOEXEC) == 0 && pipe2(b, O_CLOEXEC) == 0);
	struct cb_guest_ends ends = { .wire = a[0], .out = { a[1], b[0] }, .twin_control = b[1], .side = 99 };

	assert_true(p.link.fd == -1 && p.twin_control == -1);
	link_ready = -ENOMEM;
	assert_int_equal(cb_python_open(&p, &ends, 100), -ENOMEM); /* nothing is taken */
	assert_true(ends.wire == a[0] && ends.out[0] == a[1] && ends.out[1] == b[0] && ends.twin_control == b[1]);
	assert_true(p.twin_control == -1 && p.output.out[0] == -1);
	link_ready = 0;
	assert_int_equal(cb_python_open(&p, &ends, 100), 0);
	assert_true(ends.wire == -1 && ends.out[0] == -1 && ends.out[1] == -1 && ends.twin_control == -1);
	assert_int_equal(ends.side, 99);
	assert_true(p.link.fd == a[0] && p.output.out[0] == a[1] && p.output.out[1] == b[0]);
	assert_int_equal(p.twin_control, b[1]);
	p.output.tail_len[0] = p.output.tail_len[1] = 2;
	cb_python_close(&p);
	assert_false(is_open(a[0]) || is_open(a[1]) || is_open(b[0]) || is_open(b[1]));
	assert_true(p.twin_control == -1 && p.output.out[0] == -1 && p.output.out[1] == -1);
	assert_true(p.output.tail_len[0] == 0 && p.output.tail_len[1] == 0 && p.half.due == 0);
	cb_python_close(&p); /* nothing more */
}

/* ---- what it says ---- */

static void reads(const char *what)
{
	cb_python_read(&p, 1000);
	expect(what);
}

static void test_frames(void **state)
{
	(void)state;
	reads("header content output frame ");
	output_takes = true;
	reads("header content output ");
	dropped = true;
	reads("header content ");
	dropped = output_takes = false;
	frame_result = CB_E_DENIED;
	reads("header content output frame unwatch broke: bad frame (CB_E_DENIED) ");
}

/* Nobody acts on what the policy refuses, nor on what a condemned one still says. */
static void test_refused(void **state)
{
	(void)state;
	header_judged = CB_E_UNKNOWN;
	reads("header unwatch broke: bad header (CB_E_UNKNOWN) ");
	header_judged = 0;
	content_judged = CB_E_SYNTAX;
	reads("header content unwatch broke: bad content (CB_E_SYNTAX) ");
	content_judged = 0;
	heard_once = true; /* it is condemned in between */
	reads("header unwatch closed ");
	reads("unwatch closed ");
}

static void test_wire(void **state)
{
	(void)state;
	p.ending_looks = 5;
	received = CB_E_CLOSED;
	reads("header content output frame unwatch closed ");
	assert_int_equal(p.ending_looks, 0);
	received = 0;
	waits_now = true;
	p.link.fd = 1000;
	reads("header content output frame watch "); /* there is no room for a frame */
	reads("header content output frame ");
	p.half.due = 0;
	reads("header content output frame arm "); /* a half frame */
	assert_int_equal(p.half.due, now + HALF);
	cb_python_flush(&p);
	expect("watch ");
	flushed = false;
	p.ending_looks = 5;
	cb_python_flush(&p);
	expect("drop closed watch ");
	assert_int_equal(p.ending_looks, 0);
	p.link.fd = -1;
}

static void test_end(void **state)
{
	unsigned looks = 0;
	char text[256];

	(void)state;
	assert_false(cb_python_is_ending(&p));
	exiting = true;
	while (looks < 1000 && cb_python_is_ending(&p))
		looks++;
	assert_true(looks > 3 && looks < 1000); /* not for ever */
	cb_python_end_text(3 << 8, text, sizeof(text));
	assert_string_equal(text, "Python exited with status 3");
	cb_python_end_text(SIGKILL, text, sizeof(text));
	assert_non_null(strstr(text, "killed by signal 9 (Killed), by itself or by the host"));
	cb_python_end_text(SIGSYS, text, sizeof(text));
	assert_non_null(strstr(text, "foreign architecture"));
	cb_python_end_text(SIGSEGV | 0x80, text, sizeof(text));
	assert_string_equal(text, "Python was killed by signal 11 (Segmentation fault)");
	cb_python_end_text(SIGTSTP << 8 | 0x7f, text, sizeof(text));
	assert_non_null(strstr(text, "stopped by signal 20"));
	cb_python_end_text(SIGKILL, text, 10);
	assert_string_equal(text, "Python wa");
}

/* ---- what it is told ---- */

static bool is_known(uint64_t id)
{
	return parent[id % PARENTS].id == id;
}

static void test_ids(void **state)
{
	(void)state;
	p.rules.current = cb_python_give_id(&p, &header, true);
	p.rules.beside[0].id = cb_python_give_id(&p, &header, true);
	p.rules.beside[CB_LANES - 1].id = cb_python_give_id(&p, &header, false);
	assert_int_equal(p.output.background, p.rules.beside[0].id);
	for (uint64_t before = last_id, i = 0; i < 10 * PARENTS; i++) {
		uint64_t id = cb_python_give_id(&p, &header, false);

		assert_true(id > before && id == p.rules.last_id && id == last_id);
		before = id;
		assert_true(is_known(id) && is_known(p.rules.current) && is_known(p.rules.beside[0].id) &&
			    is_known(p.rules.beside[CB_LANES - 1].id) && is_known(p.output.background));
	}
	uint64_t cell = cb_python_give_id(&p, &header, true);

	p.rules.beside[0].id = 0; /* it has ended, and is forgotten in time */
	for (int i = 0; i < 2 * PARENTS; i++)
		cb_python_give_id(&p, &header, false);
	assert_true(is_known(cell) && p.output.background == cell && is_known(p.rules.current));
	init(&other); /* never the same to another Python */
	uint64_t id = cb_python_give_id(&other, &header, false);

	assert_true(id > p.rules.last_id && id == other.rules.last_id && id == other.output.background);
}

static void test_sent(void **state)
{
	struct cb_request r = { .header = &header, .content = CB_SPAN("{}") };

	(void)state;
	assert_int_equal(cb_python_send(&p, &r, CB_WIRE_EXECUTE, CB_PHASE_EXECUTING, CB_SPAN("{\"a\":1}")), 0);
	expect("send watch ");
	assert_string_equal(sent_about, "2:{\"a\":1}");
	assert_ptr_equal(sent_content.data, r.content.data);
	assert_true(r.id == 1 && sent_id == 1 && p.rules.current == 1 && p.rules.phase == CB_PHASE_EXECUTING);
	assert_int_equal(p.output.background, 1);
	assert_int_equal(cb_python_input(&p, 7, CB_SPAN("{}")), 0);
	assert_string_equal(sent_about, "16:{\"question\":7}");
	assert_int_equal(sent_id, 1);
	assert_int_equal(cb_python_send(&p, &r, CB_WIRE_DOWN_COMM_MSG, CB_PHASE_COMM, CB_SPAN("{}")), 0);
	assert_true(r.id == 2 && p.rules.current == 2 && p.output.background == 1);
	assert_int_equal(cb_python_send(&p, &r, CB_WIRE_EXECUTE, CB_PHASE_EXECUTING, CB_SPAN("{}")), 0);
	assert_int_equal(p.output.background, 3); /* the latest cell */
	sends = CB_E_CLOSED; /* its end is reported otherwise */
	assert_int_equal(cb_python_send_beside(&p, &r, CB_WIRE_COMPLETE, CB_SPAN("{}")), 0);
	assert_int_equal(cb_python_ask(&p, CB_WIRE_CHECKPOINT, CB_PHASE_FORKING, &header, CB_SPAN("{}")), 0);
	assert_true(p.rules.phase == CB_PHASE_FORKING && p.rules.current == 4);
	sends = CB_E_TOO_BIG;
	assert_int_equal(cb_python_send(&p, &r, CB_WIRE_EXECUTE, CB_PHASE_EXECUTING, CB_SPAN("{}")), CB_E_TOO_BIG);
	assert_int_equal(cb_python_ask(&p, CB_WIRE_CHECKPOINT, CB_PHASE_FORKING, &header, CB_SPAN("{}")), CB_E_TOO_BIG);
	assert_true(p.rules.phase == CB_PHASE_IDLE && p.rules.current == 0); /* nothing was asked */
}

static void test_buffers(void **state)
{
	static zmq_msg_t part[9];
	struct cb_request r = { .header = &header, .frame = part, .nframes = 9, .first_buffer = 7 };

	(void)state;
	assert_int_equal(cb_python_send(&p, &r, CB_WIRE_DOWN_COMM_OPEN, CB_PHASE_COMM, CB_SPAN("{}")), 0);
	assert_int_equal(sent_buffers, 2);
	assert_int_equal(cb_python_send(&p, &r, CB_WIRE_EXECUTE, CB_PHASE_EXECUTING, CB_SPAN("{}")), 0);
	assert_int_equal(sent_buffers, 0);
}

/* ---- interrupts ---- */

static void test_nudges(void **state)
{
	int64_t wait = 50 * MS;

	(void)state;
	p.half.due = 0;
	cb_python_interrupt(&p);
	expect("signal:2 arm ");
	cb_python_interrupt(&p); /* one is on its way */
	expect("");
	for (int i = 0; i < 20; i++) {
		int64_t when = 0;

		cb_python_due(&p, &when);
		assert_true(when == p.nudge_at && when - now == wait);
		now = when - 1;
		cb_python_look(&p, now);
		expect("");
		now++;
		cb_python_look(&p, now);
		expect("nudge:60 ");
		assert_true(p.nudge_at - now >= wait && p.nudge_at - now < 2000 * MS);
		wait = p.nudge_at - now;
	}
	assert_true(wait >= 1000 * MS);
	assert_true(p.signals == 21 && pid1.unsent == 21);
	cb_python_interrupt_no_more(&p);
	expect("arm ");
	now += 10000 * MS;
	cb_python_look(&p, now);
	expect("");
	cb_python_let_go(&p);
	expect("nudge:62 ");
}

static void test_taken(void **state)
{
	struct cb_request runs = { .id = 9 };

	(void)state;
	p.half.due = 0;
	for (int i = 0; i < 2; i++)
		assert_false(cb_python_interrupted(&p, &runs, 8)); /* nobody has asked for it */
	expect("");
	cb_python_interrupt(&p);
	assert_true(cb_python_interrupted(&p, &runs, 9));
	expect("signal:2 arm arm ");
	assert_int_equal(p.nudge_at, 0);
	cb_python_interrupt(&p);
	trace[0] = '\0';
	now = p.nudge_at;
	cb_python_look(&p, now);
	expect("nudge:61 "); /* one that crosses the answer is known by that */
	assert_false(cb_python_interrupted(&p, &runs, 8)); /* of what came before: once more at once, */
	expect("signal:2 arm ");
	assert_false(cb_python_interrupted(&p, &runs, 0)); /* and once alone; the nudges go on */
	expect("");
	assert_true(p.nudge_at != 0);
	cb_python_interrupt_no_more(&p);
	trace[0] = '\0';
	assert_false(cb_python_interrupted(&p, &runs, 8)); /* none is wanted */
	expect("");
	assert_true(cb_python_interrupted(&p, NULL, 0)); /* nothing runs */
	assert_int_equal(p.interrupted, 7);
}

/* What is asked next waits until pid 1 has sent them all. */
static void test_signals(void **state)
{
	(void)state;
	cb_python_interrupt(&p);
	cb_python_let_go(&p);
	assert_int_equal(p.signals, 2);
	cb_python_signalled(&p);
	assert_false(loop.marked);
	cb_python_signalled(&p);
	assert_true(loop.marked && p.signals == 0);
	loop.marked = false;
	cb_python_signalled(&p); /* one too many */
	assert_true(p.signals == 0 && !loop.marked);
	pid1_hears = -EPIPE;
	cb_python_let_go(&p);
	assert_int_equal(p.signals, 0);
	assert_int_equal(pid1.unsent, 2);
}

static void test_half_frames(void **state)
{
	int64_t when = now + 1;

	(void)state;
	cb_python_due(&p, &when);
	assert_int_equal(when, now + 1);
	when = 0;
	cb_python_due(&p, &when);
	assert_int_equal(when, p.half.due);
	patience = now + 2;
	cb_python_due(&p, &when);
	assert_int_equal(when, now + 2);
	cb_python_look(&p, now);
	expect("");
	holds_up = true;
	cb_python_look(&p, now);
	expect("broke: " CB_SLOW_FRAME " ");
	half_is_over = true;
	now = p.half.due;
	cb_python_look(&p, now);
	expect("broke: " CB_STALLED_FRAME " "); /* once */
}

#define TEST(name) cmocka_unit_test_setup(test_##name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(open), TEST(frames),  TEST(refused), TEST(wire),  TEST(end),     TEST(ids),
		TEST(sent), TEST(buffers), TEST(nudges),  TEST(taken), TEST(signals), TEST(half_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
