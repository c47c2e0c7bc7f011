/* Life of the guest, what only the broker's answers show: an answer to an old question is not taken for a new one's;
 * and what is told of a Python that ends before it is ready. */
#include "rig.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static struct cb_broker_request request;
static int fds[CB_SPAWN_NFDS];
static size_t nfds;

static bool is_asked(struct rig *r)
{
	return cb_fd_recv(r->broker, &request, sizeof(request), fds, CB_SPAWN_NFDS, &nfds, MSG_DONTWAIT) > 0;
}

static void answer(struct rig *r, uint32_t number, uint32_t jail, int code)
{
	struct cb_broker_reply reply = {
		.event = CB_BROKER_SPAWNED, .code = code, .number = number, .jail = jail, .step = "s", .text = "t"
	};
	int pidfd = eventfd(0, EFD_CLOEXEC), with[1 + CB_USAGE_NFDS];

	for (int i = 0; i <= CB_USAGE_NFDS; i++)
		with[i] = pidfd;

	reply.guest_pid = getpid();
	assert_int_equal(cb_fd_send(r->broker, &reply, sizeof(reply), with, code == 0 ? 1 + CB_USAGE_NFDS : 0), 0);
	close(pidfd);
}

static bool is_starting(struct rig *r)
{
	return r->k.guest.state == CB_GUEST_STARTING;
}

static void test_late_answer(void **state)
{
	struct rig *r = *state = rig_new();

	cb_guest_want(&r->k.guest);
	rig_until(r, is_asked);
	assert_int_equal(request.op, CB_BROKER_SPAWN);
	assert_int_equal(nfds, CB_SPAWN_NFDS);
	uint32_t number = request.jail;

	answer(r, number + 1, 41, 0);
	rig_until(r, is_asked); /* a jail that nobody knows of is killed */
	assert_int_equal(request.op, CB_BROKER_KILL);
	assert_int_equal(request.jail, 41);
	assert_int_equal(r->k.guest.state, CB_GUEST_SPAWNING);
	answer(r, number - 1, 0, -EPERM); /* the failure of another start is not this one's */
	answer(r, number, 42, 0);
	rig_until(r, is_starting);
	assert_int_equal(r->k.guest.jail, 42);
	assert_int_equal(r->k.guest.failure.code, 0);
	for (int i = 0; i < CB_SPAWN_NFDS; i++)
		close(fds[i]);
}

static bool has_failed(struct rig *r)
{
	return r->k.guest.failure.code != 0;
}

static void say(struct rig *r, const char *text)
{
	assert_int_equal(write(r->out[1], text, strlen(text)), strlen(text));
}

/* What it said last, on one line; no part of a character, and no more than there is room for. */
static void test_why_it_did_not_start(void **state)
{
	struct rig *r = *state = rig_new();
	const char *told = r->k.guest.failure.text, *last;

	cb_guest_want(&r->k.guest);
	rig_spawn(r, 0);
	for (int i = 0; i < 200; i++)
		say(r, "\u00e4\u20ac"); /* two bytes and three, so that the cut comes at any of them */
	say(r, "\n\tline one\r\n\n");
	say(r, "line\x1b[31m two\n");
	rig_die(r, 7 << 8);
	rig_until(r, has_failed);
	last = strstr(told, "Python exited with status 7; it said last: ");
	assert_non_null(last);
	last = strstr(last, "last: ") + strlen("last: ");
	assert_true(strlen(last) <= CB_OUTPUT_LAST && ((unsigned char)*last & 0xc0) != 0x80);
	assert_string_equal(last + strlen(last) - strlen(" line one line [31m two"), " line one line [31m two");
}

static void test_it_said_nothing(void **state)
{
	struct rig *r = *state = rig_new();

	cb_guest_want(&r->k.guest);
	rig_spawn(r, 0);
	rig_die(r, SIGSEGV);
	rig_until(r, has_failed);
	assert_string_equal(r->k.guest.failure.text, "the interpreter ended before it was ready: Python was killed by "
						     "signal 11 (Segmentation fault)");
}

#define FRAME 20000

/* More of what it was told to do waits for it than its socket takes: what it has said before its end is told. */
static void test_its_last_words(void **state)
{
	static char code[3 << 20], text[FRAME + 1];
	struct rig *r = *state = rig_up();
	bool whole = false;

	memset(code, ' ', sizeof(code) - 1);
	memcpy(code, "{\"code\":\"1\"", strlen("{\"code\":\"1\""));
	code[sizeof(code) - 2] = '}';
	memset(text, 'x', FRAME);
	const char *id = rig_send(r, RIG_SHELL, "execute_request", code, NULL);

	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "execute_input", id);
	for (int i = 0; i < 5; i++) /* more than is read in a turn */
		rig_stream(r, r->k.shells.execution.shell.current->id, CB_WIRE_STDOUT, text);
	rig_stream(r, r->k.shells.execution.shell.current->id, CB_WIRE_STDOUT, "the end");
	rig_die(r, SIGSEGV);
	for (bool error = false; !error;) {
		struct rig_msg m = rig_recv(r, RIG_IOPUB);

		whole |= strstr(rig_text(&m, "text"), "the end") != NULL;
		error = strcmp(m.type, "error") == 0;
		rig_msg_free(&m);
	}
	assert_true(whole);
}

/* Whose output it is is known as long as a request is at work, however many come meanwhile. */
static void test_parents_are_kept(void **state)
{
	struct rig *r = *state = rig_up();
	struct cb_python *p = &r->k.guest.python;

	rig_works(r); /* what has no id is that cell's */
	const char *id = rig_send(r, RIG_SHELL, "comm_msg", "{\"comm_id\":\"c\",\"data\":{}}", NULL);
	uint64_t comm = rig_guest_expect(r, CB_WIRE_DOWN_COMM_MSG);
	struct cb_header *header = cb_output_parent(&p->output, comm)->header;

	rig_expect(r, RIG_IOPUB, "busy", id);
	for (int i = 0; i < 2 * CB_GUEST_PARENTS; i++)
		(void)cb_python_give_id(p, NULL, false);
	assert_ptr_equal(cb_output_parent(&p->output, comm)->header, header);
	assert_non_null(header);
}

/* What is asked for while others are on their way has its own time: pid 1 is silent since its last word. */
static void test_pid_1_that_sends_one_after_the_other(void **state)
{
	struct rig *r = *state = rig_up();
	struct cb_pid1 *p = &r->k.guest.pid1;
	int64_t *deadline = &r->k.loop.timer[p->timer].deadline;

	cb_pid1_signal_asked(p);
	*deadline = 5; /* nearly over */
	cb_pid1_signal_asked(p);
	assert_int_equal(*deadline, 5);
	cb_pid1_signal_sent(p);
	assert_true(*deadline > cb_now_ns());
	cb_pid1_signal_sent(p);
	assert_int_equal(*deadline, 0);
}

static bool is_up(struct rig *r)
{
	return r->k.guest.state == CB_GUEST_UP;
}

/* One that starts has nothing to say that could be too much, and not for ever to say it. */
static void test_it_starts_behind_slow_clients(void **state)
{
	struct rig *r = *state = rig_new();

	rig_subscribe(r);
	cb_guest_want(&r->k.guest);
	rig_spawn(r, 0);
	rig_congest(r, true);
	rig_frame(r, CB_WIRE_HELLO, 0, RIG_HELLO);
	rig_until(r, is_up);
	rig_congest(r, true); /* an idle has been said */
	rig_stream(r, 0, CB_WIRE_STDOUT, "1");
	for (int i = 0; i < 20; i++)
		rig_until_soon(r);
	assert_int_equal(r->k.jupyter.iopub.text.len, 0);
	rig_congest(r, false);
	rig_expect(r, RIG_IOPUB, "stream", "");
}

/* What it said just before is read after its end, and makes no jail that serves. */
static void test_it_is_ready_too_late(void **state)
{
	struct rig *r = *state = rig_new();

	cb_guest_want(&r->k.guest);
	rig_spawn(r, 0);
	cb_loop_set_events(&r->k.loop, r->k.guest.link_slot, 0); /* it came while the end was looked at */
	rig_frame(r, CB_WIRE_HELLO, 0, RIG_HELLO);
	rig_die(r, SIGSEGV);
	rig_until(r, has_failed);
	assert_non_null(strstr(r->k.guest.failure.text, "the interpreter ended before it was ready"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_late_answer, rig_teardown),
		cmocka_unit_test_teardown(test_why_it_did_not_start, rig_teardown),
		cmocka_unit_test_teardown(test_it_said_nothing, rig_teardown),
		cmocka_unit_test_teardown(test_its_last_words, rig_teardown),
		cmocka_unit_test_teardown(test_parents_are_kept, rig_teardown),
		cmocka_unit_test_teardown(test_pid_1_that_sends_one_after_the_other, rig_teardown),
		cmocka_unit_test_teardown(test_it_starts_behind_slow_clients, rig_teardown),
		cmocka_unit_test_teardown(test_it_is_ready_too_late, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
