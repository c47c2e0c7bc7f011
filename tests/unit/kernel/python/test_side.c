/* The side wire alone: nothing comes by it but what is awaited, each at once, and a guest that closes it lives on. */
#include "python/side.h"

#include <cellblock/error.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "jupyter/loop.h"
#include "python/policy.h"

#define SECOND 1000000000LL
#define SLOT 5
#define TIMER 2

static struct cb_side side;
static struct cb_loop loop;
static struct cb_guest_rules rules;
static int64_t now;
static cb_loop_fn on_side;
static cb_timer_fn on_closed;

static char trace[256];
static bool heard;
static int header_judged, content_judged, frame_result, received, flushed, sends, link_ready;
static size_t unsent; /* bytes */

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

int64_t __wrap_cb_now_ns(void);

int64_t __wrap_cb_now_ns(void)
{
	return now;
}

int cb_loop_add(struct cb_loop *l, void *socket, int fd, short events, cb_loop_fn fn, void *context)
{
	assert_true(l == &loop && socket == NULL && fd == 33 && events == ZMQ_POLLIN && context == &side);
	on_side = fn;
	did("added");
	return SLOT;
}

void cb_loop_set_events(struct cb_loop *l, int slot, short events)
{
	assert_true(l == &loop && slot == SLOT);
	did(events & ZMQ_POLLOUT ? "in+out" : "in");
}

void cb_loop_remove(struct cb_loop *l, int *slot)
{
	assert_ptr_equal(l, &loop);
	if (*slot >= 0)
		did("removed");
	*slot = -1;
}

int cb_loop_add_timer(struct cb_loop *l, cb_timer_fn fn, void *context)
{
	assert_true(l == &loop && context == &side);
	on_closed = fn;
	return TIMER;
}

void cb_loop_arm(struct cb_loop *l, int timer, int64_t deadline_ns)
{
	assert_int_equal(timer, TIMER);
	l->timer[timer].deadline = deadline_ns;
}

int cb_guest_link_init(struct cb_guest_link *l, int fd, size_t tx_max)
{
	assert_int_equal(tx_max, 100);
	*l = (struct cb_guest_link){ .fd = link_ready < 0 ? -1 : fd };
	return link_ready;
}

void cb_guest_link_release(struct cb_guest_link *l)
{
	l->fd = -1;
}

/* One frame, then what `received` says. */
int cb_guest_link_receive(struct cb_guest_link *l, size_t budget, cb_link_judge_fn judge, cb_link_frame_fn take,
			  void *context, const char **ret_reason)
{
	static struct cb_frame f = { .header = { .type = CB_WIRE_DEBUG_EVENT } };
	int r;

	assert_true(l == &side.link && budget > 0);
	r = judge(context, &f.header, ret_reason);
	if (r == 0)
		r = take(context, &f, ret_reason);
	return r < 0 ? r : received;
}

int cb_guest_link_send(struct cb_guest_link *l, enum cb_wire_type type, uint64_t request, struct cb_span content,
		       struct cb_span metadata, const struct cb_span *buffers, size_t nbuffers)
{
	assert_true(l == &side.link && type == CB_WIRE_DEBUG && request == 8 && nbuffers == 0 && buffers == NULL);
	assert_true(cb_span_is(content, "{}") && cb_span_is(metadata, "{\"lane\":0}"));
	l->tx.len = unsent;
	did("send");
	return sends;
}

int cb_guest_link_flush(struct cb_guest_link *l)
{
	l->tx.len = 0;
	did("flush");
	return flushed;
}

int cb_side_policy_header(const struct cb_guest_rules *r, uint32_t answer, uint64_t request,
			  const struct cb_wire_header *h, const char **ret_reason)
{
	assert_true(r == &rules && answer == CB_WIRE_DEBUG_REPLY && request == 8 && h->type == CB_WIRE_DEBUG_EVENT);
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

static bool awaits(const struct cb_kernel *k, uint32_t type, uint32_t *ret_type, uint64_t *ret_id)
{
	(void)k;
	assert_int_equal(type, CB_WIRE_DEBUG_EVENT);
	*ret_type = CB_WIRE_DEBUG_REPLY;
	*ret_id = 8;
	return heard;
}

static int frame(struct cb_kernel *k, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason)
{
	(void)k;
	assert_true(f != NULL && c != NULL);
	did("frame");
	*ret_reason = "bad frame";
	return frame_result;
}

static void closed(struct cb_kernel *k)
{
	(void)k;
	assert_false(side.ending);
	did("closed");
}

static void broke(struct cb_kernel *k, const char *why)
{
	(void)k;
	did("broke:");
	did(why);
}

static const struct cb_side_events events = { .awaits = awaits, .frame = frame, .closed = closed, .broke = broke };

static int set_up(void **state)
{
	(void)state;
	memset(&side, 0, sizeof(side));
	now = 1000 * SECOND;
	heard = true;
	header_judged = content_judged = frame_result = received = flushed = sends = link_ready = 0;
	unsent = 0;
	loop.timer[TIMER].deadline = 0;
	side.events = &events;
	assert_int_equal(cb_side_init(&side, &loop, &rules), 0);
	assert_true(side.slot == -1 && side.link.fd == -1);
	assert_int_equal(cb_side_open(&side, 33, 100), 0);
	cb_side_watch(&side);
	trace[0] = '\0';
	side.served = true; /* the guest said so */
	return 0;
}

static void comes(short revents, const char *what)
{
	on_side(&side, revents);
	expect(what);
}

static void test_frames(void **state)
{
	(void)state;
	comes(ZMQ_POLLIN, "header content frame in ");
	comes(ZMQ_POLLOUT, "flush in ");
	comes(ZMQ_POLLIN | ZMQ_POLLOUT, "flush header content frame in ");
	assert_true(side.served && !side.ending);
}

/* Whatever else it sends ends it, and nobody acts on it; nothing more is read. */
static void test_broken_rules(void **state)
{
	static const struct {
		int *what;
		int code;
		const char *then;
	} rule[] = { { &header_judged, CB_E_DENIED, "header removed broke: side wire: bad header (CB_E_DENIED) " },
		     { &content_judged, CB_E_SYNTAX,
		       "header content removed broke: side wire: bad content (CB_E_SYNTAX) " },
		     { &frame_result, CB_E_UNKNOWN,
		       "header content frame removed broke: side wire: bad frame (CB_E_UNKNOWN) " } };

	for (size_t i = 0; i < CB_COUNT(rule); i++) {
		set_up(state);
		*rule[i].what = rule[i].code;
		comes(ZMQ_POLLIN, rule[i].then);
		assert_true(!side.served && !side.ending && loop.timer[TIMER].deadline == 0);
	}
}

static void is_closed(short revents, const char *what)
{
	comes(revents, what);
	assert_true(!side.served && side.ending);
	assert_int_equal(loop.timer[TIMER].deadline, now + CB_LINK_CLOSED_NS);
	assert_int_equal(cb_side_send(&side, CB_WIRE_DEBUG, 8, CB_SPAN("{}"), CB_SPAN("{\"lane\":0}"), NULL, 0),
			 CB_E_CLOSED);
	expect("");
}

/* It goes on without: what was asked there is refused, unless the guest's end comes first. */
static void test_closed(void **state)
{
	(void)state;
	received = CB_E_CLOSED;
	is_closed(ZMQ_POLLIN, "header content frame removed ");
	on_closed(&side);
	expect("closed ");
	set_up(state);
	flushed = CB_E_CLOSED;
	is_closed(ZMQ_POLLIN | ZMQ_POLLOUT, "flush removed ");
	cb_side_close(&side);
	assert_true(loop.timer[TIMER].deadline == 0 && !side.ending && side.link.fd == -1);
	set_up(state);
	heard = false; /* what it says is not wanted any more: no rule is broken */
	is_closed(ZMQ_POLLIN, "removed ");
}

static int sent(void)
{
	return cb_side_send(&side, CB_WIRE_DEBUG, 8, CB_SPAN("{}"), CB_SPAN("{\"lane\":0}"), NULL, 0);
}

static void test_sent(void **state)
{
	(void)state;
	assert_int_equal(sent(), 0);
	expect("send in ");
	unsent = 5;
	assert_int_equal(sent(), 0);
	expect("send in+out ");
	comes(ZMQ_POLLOUT, "flush in ");
	sends = CB_E_TOO_BIG;
	assert_int_equal(sent(), CB_E_TOO_BIG);
	sends = CB_E_CLOSED; /* its end is reported otherwise */
	assert_int_equal(sent(), 0);
	side.served = false;
	trace[0] = '\0';
	assert_int_equal(sent(), CB_E_CLOSED);
	expect("");
}

static void test_opened_again(void **state)
{
	(void)state;
	received = CB_E_CLOSED;
	is_closed(ZMQ_POLLIN, "header content frame removed ");
	cb_side_close(&side);
	link_ready = -ENOMEM;
	assert_int_equal(cb_side_open(&side, 33, 100), -ENOMEM);
	link_ready = 0;
	side.served = side.ending = true;
	assert_int_equal(cb_side_open(&side, 33, 100), 0);
	assert_false(side.served || side.ending); /* the next guest has said nothing yet */
	cb_side_watch(&side);
	expect("added ");
	assert_int_equal(side.slot, SLOT);
	cb_side_close(&side);
	expect("removed ");
	cb_side_close(&side);
	expect("");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup(test_frames, set_up),
					    cmocka_unit_test_setup(test_broken_rules, set_up),
					    cmocka_unit_test_setup(test_closed, set_up),
					    cmocka_unit_test_setup(test_sent, set_up),
					    cmocka_unit_test_setup(test_opened_again, set_up) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
