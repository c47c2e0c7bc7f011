/* The queue to the broker alone: its order, one at a time, what is given up, and a broker that is gone. */
#include "../../../../kernel/python/broker_queue.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "jupyter/loop.h"

static struct cb_loop loop;
static struct cb_broker broker;
static struct cb_broker_queue q;
static struct cb_broker_request asked;
static int theirs, pipe_fd = -1;

static char heard[256]; /* NUMBER:RESULT:TEXT of each answer */
static unsigned again;	/* what is asked from within the next one; 0 = nothing */

static void ask(enum cb_broker_op op, uint32_t number, int64_t patience_ns);

static void on_answer(const struct cb_broker_ask *a, struct cb_buf *answer, int r)
{
	size_t n = strlen(heard);

	assert_ptr_equal(a->context, &loop);
	snprintf(heard + n, sizeof(heard) - n, "%u:%d:%.*s ", a->number, r, answer != NULL ? (int)answer->len : 0,
		 answer != NULL && answer->len > 0 ? (const char *)answer->data : "");
	loop.stop = true;
	if (again != 0) {
		ask(CB_BROKER_FORGET, again, 0);
		again = 0;
	}
}

static void ask(enum cb_broker_op op, uint32_t number, int64_t patience_ns)
{
	const struct cb_broker_ask a = {
		.op = op, .number = number, .patience_ns = patience_ns, .on_answer = on_answer, .context = &loop
	};

	cb_broker_queue_ask(&q, &a);
}

static bool got(void)
{
	size_t n = 0;

	cb_fd_close(&pipe_fd);
	return cb_fd_recv(theirs, &asked, sizeof(asked), &pipe_fd, 1, &n, MSG_DONTWAIT) == (ssize_t)sizeof(asked);
}

static void expect(enum cb_broker_op op, uint32_t number)
{
	assert_true(got());
	assert_int_equal(asked.op, op);
	assert_int_equal(asked.jail, number);
}

static void run(void)
{
	loop.stop = false;
	assert_int_equal(cb_loop_run(&loop), 0);
}

static void answer(const char *text)
{
	assert_int_equal(write(pipe_fd, text, strlen(text)), strlen(text));
	cb_fd_close(&pipe_fd);
	run();
}

static void expect_heard(const char *text)
{
	assert_string_equal(heard, text);
	heard[0] = '\0';
}

static int set_up(void **state)
{
	int pair[2];

	(void)state;
	memset(&loop, 0, sizeof(loop));
	memset(&q, 0, sizeof(q));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	broker = (struct cb_broker){ .fd = pair[0] };
	theirs = pair[1];
	heard[0] = '\0';
	return cb_broker_queue_init(&q, &loop, &broker);
}

static int tear_down(void **state)
{
	(void)state;
	cb_broker_queue_release(&q);
	cb_fd_close(&broker.fd);
	cb_fd_close(&theirs);
	cb_fd_close(&pipe_fd);
	return 0;
}

static void test_one_after_the_other(void **state)
{
	(void)state;
	ask(CB_BROKER_SNAPSHOT, 1, 0);
	ask(CB_BROKER_CHANGES, 2, 0);
	ask(CB_BROKER_FORGET, 3, 0);
	expect(CB_BROKER_SNAPSHOT, 1);
	assert_true(cb_broker_queue_begun(&q, CB_BROKER_SNAPSHOT) && !cb_broker_queue_begun(&q, CB_BROKER_CHANGES));
	again = 4;
	answer("one");
	expect(CB_BROKER_CHANGES, 2);
	assert_false(got());
	ask(CB_BROKER_FORGET, 5, 0);
	expect_heard("1:0:one ");
	assert_int_equal(q.count, 4); /* 2, 3, what was asked from within, 5 */
}

static void test_dropped(void **state)
{
	(void)state;
	ask(CB_BROKER_CHANGES, 1, 0);
	ask(CB_BROKER_COMMIT, 2, 0);
	ask(CB_BROKER_FORGET, 3, 0);
	expect(CB_BROKER_CHANGES, 1);
	cb_broker_queue_drop(&q, CB_BROKER_COMMIT);
	cb_broker_queue_drop(&q, CB_BROKER_DISCARD); /* there is none */
	assert_int_equal(write(pipe_fd, "half", 4), 4);
	cb_broker_queue_wait(&q, 1000); /* takes that half */
	cb_broker_queue_drop(&q, CB_BROKER_CHANGES);
	expect(CB_BROKER_FORGET, 3);
	answer("three");
	expect_heard("3:0:three ");
	assert_int_equal(q.count, 0);
}

static void time_is_up(void)
{
	assert_true(cb_loop_armed(&loop, q.timer));
	loop.timer[q.timer].fn(loop.timer[q.timer].context);
}

static void test_impatience(void **state)
{
	(void)state;
	ask(CB_BROKER_RESTORE, 1, INT64_MAX / 2);
	ask(CB_BROKER_FORGET, 2, 0);
	expect(CB_BROKER_RESTORE, 1);
	int first = cb_fd_take(&pipe_fd);

	time_is_up();
	assert_true(q.stopping && got() && asked.op == CB_BROKER_STOP && q.count == 2);
	time_is_up();
	expect_heard("1:-110: ");
	expect(CB_BROKER_FORGET, 2);
	assert_false(q.stopping);
	answer("");
	expect_heard("2:0: ");
	close(first);
}

static void test_too_many(void **state)
{
	(void)state;
	for (unsigned i = 0; i < CB_BROKER_QUEUE_MAX; i++)
		ask(CB_BROKER_FORGET, i, 0);
	expect_heard("");
	ask(CB_BROKER_FORGET, 7, 0);
	expect_heard("7:-105: ");
	assert_int_equal(q.count, CB_BROKER_QUEUE_MAX);
}

static void test_no_broker(void **state)
{
	(void)state;
	ask(CB_BROKER_SNAPSHOT, 1, 0);
	ask(CB_BROKER_FORGET, 2, 0);
	expect(CB_BROKER_SNAPSHOT, 1);
	cb_fd_close(&theirs);
	answer(""); /* it died: its end of the pipe is closed, too */
	assert_int_equal(strncmp(heard, "1:0: 2:-", 8), 0);
	assert_int_equal(q.count, 0);
}

/* Of one that is too long nothing is left, so that no half of it is believed. */
static void test_too_long(void **state)
{
	static char much[65536];

	(void)state;
	memset(much, 'x', sizeof(much));
	q.answer = CB_BUF_INIT(100000);
	ask(CB_BROKER_CHANGES, 1, 0);
	expect(CB_BROKER_CHANGES, 1);
	for (int i = 0; i < 2 && heard[0] == '\0'; i++) {
		assert_int_equal(write(pipe_fd, much, sizeof(much)), sizeof(much));
		cb_broker_queue_wait(&q, 1000);
	}
	expect_heard("1:0: ");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = { T(test_one_after_the_other), T(test_dropped),
					    T(test_impatience),		 T(test_too_many),
					    T(test_no_broker),		 T(test_too_long) };
#undef T
	return cmocka_run_group_tests(tests, NULL, NULL);
}
