/* A frame that does not go on, alone: an honest Python is never ended, and one that stalls always. */
#include "python/stalled_frame.h"

#include <cellblock/fd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "python/link.h"

#define SECOND 1000000000LL

static int64_t now;
static struct cb_guest_link l;
static struct cb_link_room room;
static struct cb_body body;
static struct cb_stalled_frame h;
static int theirs;

int64_t __wrap_cb_now_ns(void);

int64_t __wrap_cb_now_ns(void)
{
	return now;
}

static int set_up(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	now = 1000 * SECOND;
	room = (struct cb_link_room){ 0 };
	l = (struct cb_guest_link){ .fd = pair[0], .room = &room, .end = 7, .received = 7 }; /* half a header */
	theirs = pair[1];
	h = (struct cb_stalled_frame){ 0 };
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	cb_fd_close(&l.fd);
	cb_fd_close(&theirs);
	return 0;
}

static void watch(void)
{
	assert_true(cb_stalled_frame_look(&h, &l));
	cb_stalled_frame_watch(&h, &l, 20);
	assert_int_equal(h.due, now + 5 * SECOND);
	assert_false(cb_stalled_frame_look(&h, &l)); /* it is watched already */
	assert_int_equal(h.due, now + 5 * SECOND);
	now = h.due;
}

/* It is not over, and is watched from now on. */
static void goes_on(double worked_s, bool we_read)
{
	assert_false(cb_stalled_frame_over(&h, &l, worked_s, we_read));
	assert_int_equal(h.due, now + 5 * SECOND);
	now = h.due;
}

static void test_stalls(void **state)
{
	(void)state;
	watch();
	assert_true(cb_stalled_frame_over(&h, &l, 20.2, true));
	l.end = 0;
	l.big = &body; /* a large one likewise */
	watch();
	assert_true(cb_stalled_frame_over(&h, &l, 20, true));
}

/* Each of these alone makes it honest, and the next one begins where it ended. */
static void test_honest(void **state)
{
	char byte = 0;

	(void)state;
	watch();
	l.received++;
	goes_on(20, true);
	goes_on(20, false); /* we do not read */
	l.waits = true;
	goes_on(20, true);
	l.waits = false;
	goes_on(-1, true); /* it is stopped */
	goes_on(-1, true);
	h.worked_s = 20;
	goes_on(20.3, true); /* at work */
	goes_on(20.6, true);
	assert_int_equal(write(theirs, &byte, 1), 1);
	goes_on(20.6, true); /* it lies there */
	assert_int_equal(read(l.fd, &byte, 1), 1);
	assert_true(cb_stalled_frame_over(&h, &l, 20.6, true));
}

static void test_whole(void **state)
{
	(void)state;
	watch();
	l.start = l.end; /* it came */
	assert_false(cb_stalled_frame_over(&h, &l, 20, true));
	assert_int_equal(h.due, 0);
	l.start = 0;
	watch();
	l.start = l.end;
	assert_false(cb_stalled_frame_look(&h, &l));
	assert_int_equal(h.due, 0);
	l.start = 0;
	watch();
	cb_fd_close(&l.fd);
	assert_false(cb_stalled_frame_over(&h, &l, 20, true));
	assert_false(cb_stalled_frame_look(&h, &l));
	assert_int_equal(h.due, 0);
}

static void patience(bool over, int64_t until)
{
	int64_t when = -1;

	assert_int_equal(cb_stalled_frame_holds_up(&h, &l, now, true, &when), over);
	assert_int_equal(when, until);
}

/* A minute for each frame that holds the room that others wait for, however it comes. */
static void test_holds_up(void **state)
{
	int64_t begun, when;

	(void)state;
	l.big = &body;
	l.big_count = 1;
	(void)cb_stalled_frame_look(&h, &l);
	begun = now;
	patience(false, 0); /* nobody waits */
	room.waiting = 1;
	patience(false, begun + 60 * SECOND);
	now += 59 * SECOND;
	l.received++;
	(void)cb_stalled_frame_look(&h, &l); /* byte by byte */
	patience(false, begun + 60 * SECOND);
	now += SECOND;
	patience(true, begun + 60 * SECOND);
	assert_false(cb_stalled_frame_holds_up(&h, &l, now, false, &when)); /* we have not read: from now on */
	patience(false, now + 60 * SECOND);
	now += 60 * SECOND;
	patience(true, now);
	l.big_count++; /* another frame */
	(void)cb_stalled_frame_look(&h, &l);
	patience(false, now + 60 * SECOND);
	now += 60 * SECOND;
	l.big = NULL; /* it holds no room */
	patience(false, 0);
	l.big = &body;
	l.room = NULL;
	patience(false, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(test_stalls, set_up, tear_down),
					    cmocka_unit_test_setup_teardown(test_honest, set_up, tear_down),
					    cmocka_unit_test_setup_teardown(test_whole, set_up, tear_down),
					    cmocka_unit_test_setup_teardown(test_holds_up, set_up, tear_down) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
