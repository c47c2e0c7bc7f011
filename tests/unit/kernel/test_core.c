/* The whole core under a client and a guest that do anything in any order: whatever happens, each request gets exactly
 * one reply and one idle, and at the end a cell runs. The order is drawn from seeds, so that a failure can be repeated:
 * with SEED in the environment only that one is played. */
#include "rig.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#define MAX_REQUESTS 4000

static struct {
	enum { NO_REPLY, ONE_REPLY } kind;
	int replies, busy, idle;
	char type[24];
} seen[MAX_REQUESTS];
static unsigned seed;
static uint64_t pending; /* the request that the guest has got and not answered */
static enum cb_wire_type pending_type;
static bool asked; /* an INPUT_REQUEST waits */

static unsigned draw(unsigned n)
{
	return (unsigned)rand_r(&seed) % n;
}

static void submit(struct rig *r, enum rig_source channel, const char *type, const char *content, int kind)
{
	unsigned n = r->serial;

	assert_true(n < MAX_REQUESTS);
	memset(&seen[n], 0, sizeof(seen[n]));
	seen[n].kind = kind == 0 ? NO_REPLY : ONE_REPLY;
	snprintf(seen[n].type, sizeof(seen[n].type), "%s", type);
	(void)rig_send(r, channel, type, content, NULL);
}

static void client_acts(struct rig *r)
{
	switch (draw(12)) {
	case 0:
	case 1:
	case 2:
		submit(r, RIG_SHELL, "execute_request", "{\"code\":\"a\"}", 1);
		break;
	case 3:
		submit(r, RIG_SHELL, "execute_request", "{\"code\":\"a\",\"silent\":true,\"stop_on_error\":false}", 1);
		break;
	case 4:
		submit(r, RIG_SHELL, "complete_request", "{\"code\":\"a\",\"cursor_pos\":1}", 1);
		break;
	case 5:
		submit(r, RIG_SHELL, "comm_open", "{\"comm_id\":\"c\",\"target_name\":\"t\",\"data\":{}}", 0);
		break;
	case 6:
		submit(r, draw(2) ? RIG_SHELL : RIG_CONTROL, "interrupt_request", "{}", 1);
		break;
	case 7:
		submit(r, draw(2) ? RIG_SHELL : RIG_CONTROL, "kernel_info_request", "{}", 1);
		break;
	case 8:
		submit(r, RIG_SHELL, "execute_request", "{\"cod\":\"a\"}", 1);
		break;
	default:
		if (asked)
			(void)rig_send(r, RIG_STDIN, "input_reply", "{\"value\":\"v\"}", NULL);
		break;
	}
	if (r->serial > 0 && seen[r->serial - 1].type[0] == '\0') /* an input_reply took a number */
		snprintf(seen[r->serial - 1].type, sizeof(seen[0].type), "input_reply");
}

static void guest_reads(struct rig *r)
{
	struct pollfd p = { .fd = r->wire, .events = POLLIN };

	if (r->wire < 0 || poll(&p, 1, 0) != 1 || !(p.revents & POLLIN))
		return;
	struct rig_request q = rig_guest_recv(r);

	if (q.h.type == CB_WIRE_INPUT_REPLY) {
		asked = false;
	} else {
		assert_int_equal(pending, 0); /* one at a time */
		pending = q.h.request;
		pending_type = q.h.type;
	}
	rig_request_free(&q);
}

static void guest_answers(struct rig *r, bool well)
{
	if (pending == 0)
		return;
	if (asked) /* it must not go on before the answer, or the interrupt */
		rig_frame(r, CB_WIRE_INTERRUPTED, pending, "{}");
	asked = false;
	if (pending_type == CB_WIRE_EXECUTE && !well)
		rig_frame(r, CB_WIRE_ERROR, pending, RIG_ERROR_CONTENT("KeyboardInterrupt"));
	if (pending_type == CB_WIRE_EXECUTE)
		rig_frame(r, CB_WIRE_EXECUTE_REPLY, pending, well ? RIG_OK : RIG_ERROR("KeyboardInterrupt"));
	else if (pending_type == CB_WIRE_COMPLETE)
		rig_frame(r, CB_WIRE_COMPLETE_REPLY, pending,
			  "{\"status\":\"ok\",\"matches\":[],\"cursor_start\":0,\"cursor_end\":0,\"metadata\":{}}");
	else
		rig_frame(r, CB_WIRE_COMM_DONE, pending, "{}");
	pending = 0;
}

static void guest_acts(struct rig *r)
{
	static const char *const junk[] = { "{}", "[]", "{\"status\":\"ok\"}", "{\"data\":{},\"metadata\":{}}", "" };

	if (r->wire < 0)
		return;
	guest_reads(r);
	switch (draw(24)) {
	case 0:
	case 1:
	case 2:
	case 3:
		guest_answers(r, true);
		break;
	case 4:
		guest_answers(r, false);
		break;
	case 5:
	case 6:
		rig_stream(r, draw(2) ? pending : 0, CB_WIRE_STDOUT, "text");
		break;
	case 7:
		rig_frame(r, CB_WIRE_DISPLAY_DATA, pending, "{\"data\":{},\"metadata\":{}}");
		break;
	case 8:
		rig_frame(r, CB_WIRE_INTERRUPTED, pending, "{}");
		asked = false;
		break;
	case 9:
		if (pending_type == CB_WIRE_EXECUTE && pending != 0 && !asked) {
			rig_frame(r, CB_WIRE_INPUT_REQUEST, pending, "{\"prompt\":\"\",\"password\":false}");
			asked = true;
		}
		break;
	case 10:
		rig_frame(r, CB_WIRE_ERROR, draw(2) ? pending : 0, RIG_ERROR_CONTENT("KeyboardInterrupt"));
		break;
	case 11: /* anything at all */
		if (draw(4) == 0) {
			enum cb_wire_type type = (enum cb_wire_type)draw(36);

			rig_frame(r, type, draw(3) ? pending : draw(1000), junk[draw(5)]);
			if (type >= CB_WIRE_EXECUTE_REPLY && type <= CB_WIRE_COMM_DONE)
				pending = 0; /* taken for the answer, or the guest's end */
		}
		break;
	case 12: /* an answer to what is not asked any more, or twice */
		if (draw(4) == 0) {
			uint64_t id = pending;

			guest_answers(r, true);
			rig_frame(r, CB_WIRE_EXECUTE_REPLY, id, RIG_OK);
		}
		break;
	case 13:
		if (draw(3) == 0)
			rig_die(r, draw(2) ? SIGSEGV : -1);
		break;
	default:
		break;
	}
}

/* The broker's side: jails come, sometimes not; what is to be killed dies, but not at once. Pid 1 says that the signals
 * are out, at some time: before that the kernel hands Python nothing. */
static void broker_acts(struct rig *r, bool well)
{
	if (r->init >= 0 && (well || draw(4) == 0))
		(void)rig_interrupts(r);
	switch (r->k.guest.state) {
	case CB_GUEST_SPAWNING:
		pending = 0;
		asked = false;
		if (!well && draw(4) == 0)
			rig_spawn(r, -1);
		else
			rig_spawn(r, 0); /* its HELLO comes next time: an interrupt may give the start up before */
		break;
	case CB_GUEST_STARTING:
		if (!well && draw(3) == 0)
			rig_die(r, 1 << 8);
		else
			rig_frame(r, CB_WIRE_HELLO, 0, RIG_HELLO);
		break;
	case CB_GUEST_ENDING:
		if (well || draw(3) == 0) {
			rig_await_kill(r);
			rig_die(r, SIGKILL);
		}
		break;
	case CB_GUEST_RESTORING: /* the policy of these tests wants no twins */
	case CB_GUEST_NONE:
	case CB_GUEST_UP:
		break;
	}
	if (r->wire < 0) {
		pending = 0;
		asked = false;
	}
}

static void count(const struct rig_msg *m, bool iopub)
{
	unsigned n = 0;

	if (sscanf(m->parent_id, "m%u", &n) != 1)
		return;
	assert_true(n < MAX_REQUESTS);
	const char *status = rig_text(m, "execution_state");

	if (!iopub)
		seen[n].replies++;
	seen[n].busy += strcmp(status, "busy") == 0;
	seen[n].idle += strcmp(status, "idle") == 0;
	if (strcmp(status, "idle") == 0 || strcmp(m->type, "execute_input") == 0 || !iopub)
		assert_true(seen[n].busy > 0 || !iopub);
	if (seen[n].replies > 1 || seen[n].idle > 1 || (seen[n].replies > 0 && seen[n].kind == NO_REPLY))
		fail_msg("m%u, %s: %d replies, %d idles", n, seen[n].type, seen[n].replies, seen[n].idle);
}

static void drain(struct rig *r)
{
	struct rig_msg m;

	rig_until_soon(r);
	for (int c = RIG_SHELL; c <= RIG_IOPUB; c++) {
		while (rig_try_recv(r, (enum rig_source)c, &m)) {
			if (c != RIG_STDIN)
				count(&m, c == RIG_IOPUB);
			rig_msg_free(&m);
		}
	}
}

static unsigned unfinished(const struct rig *r)
{
	for (unsigned n = 0; n < r->serial; n++)
		if (strcmp(seen[n].type, "input_reply") != 0 &&
		    (seen[n].idle != 1 || seen[n].replies != (seen[n].kind == ONE_REPLY)))
			return n;
	return r->serial;
}

static void play(struct rig *r, unsigned with_seed)
{
	seed = with_seed;
	pending = 0;
	asked = false;
	memset(seen, 0, sizeof(seen));
	for (int step = 0; step < 1500; step++) {
		if (draw(3) == 0)
			client_acts(r);
		guest_acts(r);
		broker_acts(r, false);
		if (draw(2))
			drain(r);
	}
	for (int64_t end = cb_now_ns() + RIG_PATIENCE * 1000000LL; unfinished(r) < r->serial && cb_now_ns() < end;) {
		guest_reads(r);
		guest_answers(r, true);
		broker_acts(r, true);
		drain(r);
	}
	unsigned n = unfinished(r);

	if (n < r->serial)
		fail_msg("seed %u: m%u, %s: %d replies, %d idles; guest state %d, queue %zu, current %p", with_seed, n,
			 seen[n].type, seen[n].replies, seen[n].idle, (int)r->k.guest.state,
			 r->k.shells.execution.load.count, (void *)r->k.shells.execution.shell.current);
	assert_null(r->k.shells.execution.shell.current);
	assert_int_equal(r->k.shells.execution.load.bytes, 0);
}

static void test_anything(void **state)
{
	const char *text = getenv("SEED");

	for (unsigned s = 1; s <= 4 && text == NULL; s++) {
		struct rig *r = *state = rig_up();

		play(r, s);
		rig_teardown(state);
	}
	if (text != NULL) {
		*state = rig_up();
		play(*state, (unsigned)strtoul(text, NULL, 10));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(test_anything, rig_teardown) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
