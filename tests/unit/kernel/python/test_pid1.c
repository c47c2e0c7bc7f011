/* What pid 1 is told, alone: each message whole, one that ends is no error of ours, and one that stays silent while
 * signals are asked of it has a deadline. */
#include "python/pid1.h"

#include <cellblock/error.h>
#include <cellblock/fd.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "jupyter/loop.h"

#define SECOND 1000000000LL
#define PATIENCE (15 * SECOND)
#define TIMER 4

static struct cb_loop loop;
static struct cb_pid1 p;
static int64_t now;
static int theirs;

int64_t __wrap_cb_now_ns(void);

int64_t __wrap_cb_now_ns(void)
{
	return now;
}

void cb_loop_arm(struct cb_loop *l, int timer, int64_t deadline_ns)
{
	assert_true(l == &loop && timer == TIMER);
	l->timer[timer].deadline = deadline_ns;
}

static int set_up(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	p = (struct cb_pid1){ .loop = &loop, .fd = pair[0], .timer = TIMER };
	theirs = pair[1];
	now = 1000 * SECOND;
	loop.timer[TIMER].deadline = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	cb_fd_close(&p.fd);
	cb_fd_close(&theirs);
	return 0;
}

static void test_told(void **state)
{
	struct cb_init_msg m;

	(void)state;
	assert_int_equal(cb_pid1_tell(&p, CB_INIT_SIGNAL, SIGINT, 0), 0);
	assert_int_equal(cb_pid1_tell(&p, CB_INIT_NUDGE, 60, 7), 0);
	assert_int_equal(recv(theirs, &m, sizeof(m), MSG_DONTWAIT), sizeof(m));
	assert_true(m.op == CB_INIT_SIGNAL && m.arg == SIGINT && m.number == 0);
	assert_int_equal(recv(theirs, &m, sizeof(m), MSG_DONTWAIT), sizeof(m));
	assert_true(m.op == CB_INIT_NUDGE && m.arg == 60 && m.number == 7);
}

/* Nothing waits for it. */
static void test_ends(void **state)
{
	int told = 0;

	(void)state;
	for (int i = 0; i < 100000 && told == 0; i++)
		told = cb_pid1_tell(&p, CB_INIT_DROP, 1, 0);
	assert_int_equal(told, -EAGAIN); /* it does not listen */
	cb_fd_close(&theirs);
	assert_int_equal(cb_pid1_tell(&p, CB_INIT_DROP, 1, 0), -ECONNRESET); /* with what it has not read */
	assert_int_equal(cb_pid1_tell(&p, CB_INIT_DROP, 1, 0), -EPIPE);
	cb_fd_close(&p.fd);
	assert_int_equal(cb_pid1_tell(&p, CB_INIT_DROP, 1, 0), CB_E_CLOSED);
}

static void is_due(int64_t when)
{
	assert_int_equal(loop.timer[TIMER].deadline, when);
}

static void test_silent(void **state)
{
	int64_t first = now + PATIENCE;

	(void)state;
	cb_pid1_signal_asked(&p);
	is_due(first);
	now += SECOND;
	cb_pid1_signal_asked(&p); /* asking again gives it no more time, */
	is_due(first);
	cb_pid1_signal_sent(&p); /* a word of it does */
	is_due(now + PATIENCE);
	now += SECOND;
	cb_pid1_signal_sent(&p);
	is_due(0);
	cb_pid1_signal_sent(&p); /* one too many */
	is_due(0);
	assert_int_equal(p.unsent, 0);
	cb_pid1_signal_asked(&p);
	is_due(now + PATIENCE);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(test_told, set_up, tear_down),
					    cmocka_unit_test_setup_teardown(test_ends, set_up, tear_down),
					    cmocka_unit_test_setup_teardown(test_silent, set_up, tear_down) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
