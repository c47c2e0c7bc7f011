/* Branches with a pid 1, a guest and a branch that the test plays: what must come before one is used, what it may not
 * say, and how it ends. */
#include "rig_twins.h"

#include <cellblock/fd.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct branch {
	struct rig_twin first, twin; /* the main line's; the branch */
	const char *asked;	     /* the request for it, or its adoption */
	char session[128];	     /* client headers with its id */
};

static struct cb_branch *only(struct rig *r)
{
	return r->k.transactions.branches.branch[0];
}

/* It serves, and who asked for it is answered; its subshell_id goes into the headers. */
static void serves(struct rig *r, struct branch *b, struct rig_request *resume)
{
	rig_frame(r, CB_WIRE_RESUMED, resume->h.request, "{}");
	rig_request_free(resume);
	struct rig_msg m = rig_take(r, RIG_CONTROL, "cellblock_branch_reply", b->asked);

	assert_string_equal(rig_text(&m, "status"), "ok");
	snprintf(b->session, sizeof(b->session), "s1\",\"subshell_id\":\"%.40s", rig_text(&m, "subshell_id"));
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "idle", b->asked);
}

/* Woken, not yet resumed: what RESUME says. */
static struct rig_request waking(struct rig *r, struct branch *b)
{
	b->asked = rig_send(r, RIG_CONTROL, "cellblock_branch_request", "{\"from\":null}", NULL);
	rig_expect(r, RIG_IOPUB, "busy", b->asked);
	b->twin = rig_branch_asked(r);
	assert_int_equal(b->twin.room, 0); /* it runs at once */
	rig_twin_comes(r, &b->twin, RIG_MADE);
	rig_init_expect(r, CB_INIT_BRANCH, (int)b->twin.number);
	rig_twin_woken(r, &b->twin, CB_TWIN_CONTROL_BRANCH);
	rig_swap_wire(r, &b->twin.fd[CB_BIRTH_WIRE]);
	struct rig_request resume = rig_guest_recv(r);

	assert_int_equal(resume.h.type, CB_WIRE_RESUME);
	return resume;
}

/* One that serves. The rig's wire is its wire from now on. */
static struct rig *up(void **state, struct branch *b)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);

	b->first = rig_twin(r);
	struct rig_request resume = waking(r, b);

	serves(r, b, &resume);
	return r;
}

static void done(struct rig *r, struct branch *b)
{
	rig_swap_wire(r, &b->twin.fd[CB_BIRTH_WIRE]);
	rig_twin_close(&b->twin);
	rig_twin_close(&b->first);
}

static const char *send_to(struct rig *r, const struct branch *b, const char *code)
{
	r->session = b->session;
	const char *id = rig_execute(r, code);

	r->session = "s1";
	return id;
}

static void expect_failed(struct rig *r, const char *id, const char *ename, const char *words)
{
	rig_expect_error(r, RIG_SHELL, "execute_reply", id, ename, words);
}

static void test_birth_and_a_cell(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct branch b = { .first = rig_twin(r) };
	struct rig_request resume = waking(r, &b);

	assert_string_equal(resume.content, "{\"execution_count\":1,\"branch\":true,\"undone\":[]}");
	serves(r, &b, &resume);
	const char *id = send_to(r, &b, "1");
	uint64_t request = rig_begun(r, id);

	rig_stream(r, request, CB_WIRE_STDOUT, "said");
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request, RIG_OK);
	rig_expect(r, RIG_IOPUB, "stream", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	assert_int_equal(r->k.shells.execution.number, 0); /* the main line's count is another */
	done(r, &b);
}

static bool is_up(struct rig *r)
{
	return only(r)->state == CB_BRANCH_UP;
}

/* That it serves is heard also where its output would have to wait. */
static void test_it_wakes_behind_slow_clients(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct branch b = { .first = rig_twin(r) };
	struct rig_request resume = waking(r, &b);

	rig_congest(r, true);
	cb_loop_arm(&r->k.loop, r->k.transactions.branches.resume_timer, cb_now_ns());
	rig_until_soon(r);
	assert_int_equal(r->k.loop.item[r->k.transactions.branches.slot].events, 0);
	rig_frame(r, CB_WIRE_RESUMED, resume.h.request, "{}");
	rig_request_free(&resume);
	rig_until(r, is_up);
	rig_congest(r, false);
	done(r, &b);
}

/* As where there is no room for its threads: who asked for it hears that, and the main line goes on. */
static void test_one_that_does_not_wake(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct branch b = { .first = rig_twin(r) };
	struct rig_request resume = waking(r, &b);

	rig_request_free(&resume);
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
	rig_expect_error(r, RIG_CONTROL, "cellblock_branch_reply", b.asked, "CheckpointError",
			 "the branch could not be started");
	rig_expect(r, RIG_IOPUB, "idle", b.asked);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	done(r, &b);
}

/* Nobody knows it yet, and may it not come: it is not listed, takes no cell, and can't be ended. */
static void test_one_that_wakes_is_hidden(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct branch b = { .first = rig_twin(r) };
	struct rig_request resume = waking(r, &b);
	char id[64];
	const char *asked = rig_send(r, RIG_CONTROL, "cellblock_list_branches_request", NULL, NULL);
	struct rig_msg m = rig_take(r, RIG_CONTROL, "cellblock_list_branches_reply", asked);

	assert_int_equal(json_array_size(json_object_get(m.content, "branches")), 0);
	rig_msg_free(&m);
	snprintf(id, sizeof(id), "\"%s\"", only(r)->shell.id);
	assert_null(cb_branches_find(&r->k.transactions, (struct cb_span){ id, strlen(id) }));
	rig_expect(r, RIG_IOPUB, "busy", asked);
	rig_expect(r, RIG_IOPUB, "idle", asked);
	serves(r, &b, &resume);
	assert_ptr_equal(cb_branches_find(&r->k.transactions, (struct cb_span){ id, strlen(id) }), only(r));
	done(r, &b);
}

static bool pid_1_was_told(struct rig *r)
{
	struct cb_init_msg m;

	return recv(r->init, &m, sizeof(m), MSG_PEEK | MSG_DONTWAIT) == (ssize_t)sizeof(m);
}

/* Each of them ends the branch, by pid 1's hand, and nothing else. */
static void test_wrong_words(void **state)
{
	static const struct {
		enum cb_wire_type type;
		const char *content;
	} wrong[] = {
		{ CB_WIRE_HELLO, RIG_HELLO },
		{ CB_WIRE_RESUMED, "{}" },
		{ CB_WIRE_CHECKPOINT_REPLY, RIG_MADE },
		{ CB_WIRE_COMM_DONE, "{}" },
		{ CB_WIRE_COMPLETE_REPLY,
		  "{\"status\":\"ok\",\"matches\":[],\"cursor_start\":0,\"cursor_end\":0,\"metadata\":{}}" },
		{ CB_WIRE_INPUT_REQUEST, "{\"prompt\":1,\"password\":false}" },
		{ CB_WIRE_EXECUTE, "{}" },
		{ CB_WIRE_ERROR, "no JSON" },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct branch b;
		struct rig *r = up(state, &b);
		const char *id = send_to(r, &b, "1");
		uint64_t request = rig_begun(r, id);

		rig_frame(r, wrong[i].type, request, wrong[i].content);
		rig_until(r, pid_1_was_told);
		rig_init_expect(r, CB_INIT_DROP, (int)b.twin.number);
		rig_frame(r, CB_WIRE_EXECUTE_REPLY, request, RIG_OK); /* too late */
		rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
		rig_expect(r, RIG_IOPUB, "error", id);
		rig_expect(r, RIG_IOPUB, "idle", id);
		expect_failed(r, id, "WireError", "this branch is gone");
		id = send_to(r, &b, "1");
		expect_failed(r, id, "KernelDiedError", "this branch has ended");
		rig_expect(r, RIG_IOPUB, "busy", id);
		rig_expect(r, RIG_IOPUB, "idle", id);
		assert_int_equal(r->k.guest.state, CB_GUEST_UP);
		rig_init_silent(r);
		done(r, &b);
		rig_teardown(state);
	}
}

static bool half_is_seen(struct rig *r)
{
	return only(r)->python.half.due != 0;
}

static bool whole_is_seen(struct rig *r)
{
	return only(r)->python.half.due == 0;
}

static bool is_spared(struct rig *r)
{
	return only(r)->python.half.due > cb_now_ns();
}

static void look_now(struct rig *r)
{
	only(r)->python.half.due = cb_now_ns();
	cb_loop_arm(&r->k.loop, r->k.transactions.branches.timer, only(r)->python.half.due);
}

/* What swallows all that comes after it has an end; what goes on has not. The rest of it is not heard any more. */
static void test_half_frame(void **state)
{
	static const struct cb_wire_header h = { .type = CB_WIRE_STREAM, .content_len = 9, .flags = CB_WIRE_STDOUT };
	struct branch b;
	struct rig *r = up(state, &b);
	const char *id = send_to(r, &b, "1");

	(void)rig_begun(r, id);
	rig_frame_raw(r, &h, "half", 4);
	rig_until(r, half_is_seen);
	only(r)->python.half.received--; /* as if more had come */
	look_now(r);
	rig_until(r, is_spared);
	assert_int_equal(send(r->wire, " done", 5, 0), 5);
	rig_until(r, whole_is_seen);
	rig_expect(r, RIG_IOPUB, "stream", id);
	rig_frame_raw(r, &h, "half", 4);
	rig_until(r, half_is_seen);
	look_now(r);
	rig_until(r, pid_1_was_told);
	rig_init_expect(r, CB_INIT_DROP, (int)b.twin.number);
	assert_int_equal(send(r->wire, " late", 5, 0), 5);
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
	rig_expect(r, RIG_IOPUB, "error", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	expect_failed(r, id, "WireError", "half a frame came");
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	done(r, &b);
}

static bool waits_for_room(struct rig *r)
{
	return only(r)->python.link.waits;
}

static bool comes_in(struct rig *r)
{
	return only(r)->python.link.big != NULL;
}

/* Frames of all branches that come in share room: one waits for it, and who holds it does so for a minute at most. */
static void test_room_for_frames(void **state)
{
	static const struct cb_wire_header h = { .type = CB_WIRE_STREAM,
						 .content_len = 150000,
						 .flags = CB_WIRE_STDOUT };
	struct branch b;
	struct rig *r = up(state, &b);
	struct cb_link_room *room = &r->k.transactions.branches.room;
	const char *id = send_to(r, &b, "1");

	assert_int_equal(room->max, CB_BRANCH_FRAMES_MAX);
	(void)rig_begun(r, id);
	room->used = room->max; /* as if others had it */
	rig_frame_raw(r, &h, "half", 4);
	rig_until(r, waits_for_room);
	assert_int_equal(room->waiting, 1);
	assert_int_equal(send(r->wire, " more", 5, 0), 5); /* read when there is room */
	room->used = 0;
	cb_loop_arm(&r->k.loop, r->k.transactions.branches.resume_timer, cb_now_ns());
	rig_until(r, comes_in);
	assert_int_equal(room->used, h.content_len);
	assert_int_equal(room->waiting, 0);
	room->waiting = 1; /* as if another did */
	only(r)->python.half.since = cb_now_ns() - 61 * 1000000000LL;
	only(r)->python.half.due = 0;
	cb_loop_arm(&r->k.loop, r->k.transactions.branches.timer, cb_now_ns());
	rig_until(r, pid_1_was_told);
	room->waiting = 0;
	rig_init_expect(r, CB_INIT_DROP, (int)b.twin.number);
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
	rig_expect(r, RIG_IOPUB, "error", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	expect_failed(r, id, "WireError", "within a minute");
	assert_int_equal(room->used, 0);
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	done(r, &b);
}

static void test_it_ends_by_itself(void **state)
{
	struct branch b;
	struct rig *r = up(state, &b);
	const char *id = send_to(r, &b, "1"), *behind = send_to(r, &b, "2");

	(void)rig_begun(r, id);
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number + 1); /* nobody */
	rig_init_tell(r, CB_INIT_GONE, 0);
	struct cb_init_msg m = { .op = CB_INIT_GONE, .arg = (int)b.twin.number, .status = SIGSEGV };

	assert_int_equal(send(r->init, &m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
	expect_failed(r, id, "KernelDiedError", "signal 11");
	rig_expect(r, RIG_SHELL, "execute_reply", behind); /* aborted, as behind any error */
	rig_expect(r, RIG_IOPUB, "error", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_expect(r, RIG_IOPUB, "busy", behind);
	rig_expect(r, RIG_IOPUB, "idle", behind);
	assert_int_equal(cb_branches_busy(&r->k.transactions), false);
	rig_barrier(r);
	done(r, &b);
}

/* Memory was short, and the kernel has chosen it: no cell of a branch is to blame where that was the host's. */
static void test_it_is_killed_for_memory(void **state)
{
	static const struct {
		const char *events, *ename, *words, *by;
	} tried[] = {
		{ "low 0\noom 0\noom_kill 1\n", "KernelDiedError", "killed by the host", "outside" },
		{ "low 0\noom 1\noom_kill 1\n", "CellMemoryError", "limits.memory", "kernel" },
	};

	for (size_t i = 0; i < CB_COUNT(tried); i++) {
		struct branch b;
		struct rig *r = up(state, &b);
		struct cb_init_msg m = { .op = CB_INIT_GONE, .arg = (int)b.twin.number, .status = SIGKILL };
		int *events = &r->k.guest.usage.cgroup[CB_USAGE_EVENTS];

		rig_figures(events, "low 0\noom 0\noom_kill 0\n");
		const char *id = send_to(r, &b, "1");

		(void)rig_begun(r, id);
		rig_figures(events, tried[i].events);
		assert_int_equal(send(r->init, &m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
		struct rig_msg reply = rig_take(r, RIG_SHELL, "execute_reply", id);

		assert_string_equal(rig_text(&reply, "ename"), tried[i].ename);
		assert_non_null(strstr(rig_text(&reply, "evalue"), tried[i].words));
		assert_string_equal(json_string_value(rig_about(&reply, "by")), tried[i].by);
		rig_msg_free(&reply);
		done(r, &b);
		if (i + 1 < CB_COUNT(tried))
			rig_teardown(state);
	}
}

/* It goes over the memory that its cell's request asked for: the words are those of the main shell. */
static void test_its_cell_has_too_much_memory(void **state)
{
	struct branch b;
	struct rig *r = up(state, &b);
	const char *id = send_to(r, &b, "1");

	(void)rig_begun(r, id);
	only(r)->shell.current->execute.memory = 1 << 20;
	look_now(r);
	rig_until(r, pid_1_was_told);
	rig_init_expect(r, CB_INIT_DROP, (int)b.twin.number);
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
	expect_failed(r, id, "CellMemoryError",
		      "a process used more than 1.0 MiB of memory (metadata.cellblock.memory)");
	done(r, &b);
}

/* It is told to end since its cell ran over its time, and breaks the rules after that: the first reason stands. */
static void test_the_first_reason_stands(void **state)
{
	struct branch b;
	struct rig *r = up(state, &b);

	r->policy.timeout_grace = 0;
	r->session = b.session;
	const char *id = rig_send(r, RIG_SHELL, "execute_request", "{\"code\":\"1\"}",
				  "{\"cellblock\":{\"timeout\":0.02}}");
	uint64_t request = rig_begun(r, id);

	r->session = "s1";
	rig_until(r, pid_1_was_told);
	rig_init_expect(r, CB_INIT_DROP, (int)b.twin.number);
	assert_false(only(r)->mute);
	rig_frame(r, CB_WIRE_HELLO, request, RIG_HELLO);
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
	expect_failed(r, id, "CellTimeoutError", "timeout.cell");
	done(r, &b);
}

/* It lives, and does not hear any more. */
static void test_it_shuts_its_ear(void **state)
{
	struct branch b;
	struct rig *r = up(state, &b);

	assert_int_equal(shutdown(r->wire, SHUT_RD), 0);
	const char *id = send_to(r, &b, "1");

	rig_until(r, pid_1_was_told);
	rig_init_expect(r, CB_INIT_DROP, (int)b.twin.number);
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
	expect_failed(r, id, "KernelDiedError", "closed its wire");
	assert_int_equal(r->k.guest.state, CB_GUEST_UP);
	done(r, &b);
}

static void test_it_ends_with_the_jail(void **state)
{
	struct branch b;
	struct rig *r = up(state, &b);
	const char *id = send_to(r, &b, "1");

	(void)rig_begun(r, id);
	rig_swap_wire(r, &b.twin.fd[CB_BIRTH_WIRE]);
	rig_die(r, -1);
	expect_failed(r, id, "KernelDiedError", "with the whole jail");
	rig_twin_close(&b.twin);
	rig_twin_close(&b.first);
}

static void test_interrupt(void **state)
{
	struct branch b;
	struct rig *r = up(state, &b);
	struct cb_init_msg m;
	const char *id = send_to(r, &b, "1");
	uint64_t request = rig_begun(r, id);

	r->session = b.session;
	rig_expect(r, RIG_CONTROL, "interrupt_reply", rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL));
	r->session = "s1";
	rig_until(r, pid_1_was_told);
	assert_int_equal(recv(r->init, &m, sizeof(m), MSG_DONTWAIT), sizeof(m));
	assert_int_equal(m.op, CB_INIT_SIGNAL);
	assert_int_equal(m.arg, SIGINT);
	assert_int_equal(m.number, b.twin.number);
	rig_frame(r, CB_WIRE_INTERRUPTED, request - 1, "{}"); /* of one that is over */
	for (int i = 0; i < 2; i++) {			      /* at once, and again and again until it says so */
		rig_until(r, pid_1_was_told);
		assert_int_equal(recv(r->init, &m, sizeof(m), MSG_DONTWAIT), sizeof(m));
		assert_int_equal(m.op, i == 0 ? CB_INIT_SIGNAL : CB_INIT_NUDGE);
		assert_int_equal(m.number, b.twin.number);
	}
	rig_frame(r, CB_WIRE_INTERRUPTED, request, "{}");
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request, RIG_OK);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	done(r, &b);
}

/* Python dies, and the request with it: the branch that wakes then is no answer to the next request, and ends. */
static void test_it_wakes_for_nobody(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct branch b = { .first = rig_twin(r) };
	struct rig_request woken = waking(r, &b);
	struct rig_twin next, other;

	rig_swap_wire(r, &b.twin.fd[CB_BIRTH_WIRE]);
	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	next = rig_twin_comes_back(r, &b.first);
	rig_expect_error(r, RIG_CONTROL, "cellblock_branch_reply", b.asked, "KernelDiedError", "signal 9");
	const char *id = rig_send(r, RIG_CONTROL, "cellblock_branch_request", NULL, NULL);

	other = rig_branch_asked(r);
	rig_swap_wire(r, &b.twin.fd[CB_BIRTH_WIRE]);
	rig_frame(r, CB_WIRE_RESUMED, woken.h.request, "{}");
	rig_request_free(&woken);
	rig_until(r, pid_1_was_told);
	rig_init_expect(r, CB_INIT_DROP, (int)b.twin.number);
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
	assert_null(only(r));
	rig_swap_wire(r, &b.twin.fd[CB_BIRTH_WIRE]);
	rig_twin_answered(r, &other, "{\"status\":\"error\",\"ename\":\"OSError\",\"evalue\":\"no room\"}");
	rig_expect_error(r, RIG_CONTROL, "cellblock_branch_reply", id, "CheckpointError", "no room");
	rig_twin_close(&b.twin);
	rig_twin_close(&next);
	rig_twin_close(&other);
}

/* Its end makes room, which is not what a state lacks that dies of being copied; the next jail's is another. */
static void test_its_end_makes_room(void **state)
{
	struct branch b;
	struct rig *r = up(state, &b);

	r->k.transactions.twins.copy_kills = true;
	r->k.transactions.twins.possible = false;
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
	assert_null(only(r));
	assert_false(r->k.transactions.twins.possible);
	rig_swap_wire(r, &b.twin.fd[CB_BIRTH_WIRE]);
	rig_die(r, -1);
	rig_guest_up(r);
	assert_true(r->k.transactions.twins.possible);
	rig_twin_close(&b.twin);
	rig_twin_close(&b.first);
}

static void test_it_does_not_come(void **state)
{
	struct rig *r = *state = rig_twins_up(CB_MODE_ALWAYS);
	struct rig_twin first = rig_twin(r);

	for (int i = 0; i < 8; i++) { /* nor says that of twins anything */
		const char *id = rig_send(r, RIG_CONTROL, "cellblock_branch_request", NULL, NULL);
		struct rig_twin t = rig_branch_asked(r);
		bool dies = i % 2 == 1;

		if (dies)
			rig_init_tell(r, CB_INIT_GONE, (int)t.number);
		rig_twin_answered(r, &t,
				  dies ? RIG_MADE
				       : "{\"status\":\"error\",\"ename\":\"OSError\",\"evalue\":\"no room\"}");
		rig_twin_close(&t);
		rig_expect_error(r, RIG_CONTROL, "cellblock_branch_reply", id, "CheckpointError",
				 dies ? "ended at its birth" : "no room");
		rig_init_expect(r, CB_INIT_DROP, (int)t.number);
	}
	assert_int_equal(r->k.transactions.twins.failures, 0);
	assert_true(r->k.transactions.twins.possible);
	rig_twin_close(&first);
}

/* It is asked to copy itself for the main line. */
static struct rig_twin adopted(struct rig *r, struct branch *b)
{
	struct rig_twin t = { .number = b->twin.number + 1 };
	struct cb_twin_control_msg m;
	char content[128];
	size_t n = 0;

	snprintf(content, sizeof(content), "{\"subshell_id\":\"%s\"}", only(r)->shell.id);
	rig_signalled(r);
	b->asked = rig_send(r, RIG_CONTROL, "cellblock_adopt_request", content, NULL);
	rig_expect(r, RIG_IOPUB, "busy", b->asked);
	rig_init_expect(r, CB_INIT_TWIN, (int)t.number);
	assert_int_equal(cb_fd_recv(b->twin.fd[CB_BIRTH_TWIN_CONTROL], &m, sizeof(m), t.fd, CB_BIRTH_NFDS, &n,
				    MSG_DONTWAIT),
			 sizeof(m));
	assert_int_equal(m.number, t.number);
	t.request = rig_guest_expect(r, CB_WIRE_CHECKPOINT);
	return t;
}

static bool has_come(struct rig *r)
{
	const struct cb_twin *t = r->k.transactions.twins.coming;

	return t == NULL || cb_twin_is_ready(t);
}

/* What its copy leaves out is to be told: that does not take over before the branch has said so. */
static void test_adopted_when_it_has_answered(void **state)
{
	struct branch b;
	struct rig *r = up(state, &b);
	struct rig_twin t = adopted(r, &b);

	rig_twin_registers(r, &t);
	rig_twin_says(&t, CB_TWIN_CONTROL_BORN, t.number);
	rig_until(r, has_come);
	assert_non_null(r->k.transactions.twins.coming);
	rig_twin_answered(r, &t, "{\"status\":\"ok\",\"left_out\":{\"children\":2}}");
	rig_init_expect(r, CB_INIT_RESTORE, (int)t.number);
	assert_int_equal(r->k.transactions.twins.waking->left_out.children, 2);
	rig_twin_close(&t);
	done(r, &b);
}

static void test_one_that_can_not_be_adopted(void **state)
{
	struct branch b;
	struct rig *r = up(state, &b);
	struct rig_twin t = adopted(r, &b);

	rig_twin_answered(r, &t, "{\"status\":\"error\",\"ename\":\"OSError\",\"evalue\":\"no room\"}");
	rig_expect_error(r, RIG_CONTROL, "cellblock_adopt_reply", b.asked, "CheckpointError",
			 "the branch could not be adopted: OSError: no room");
	rig_init_expect(r, CB_INIT_DROP, (int)t.number);
	rig_twin_close(&t);
	done(r, &b);
}

static bool waits_in_it(struct rig *r)
{
	return only(r)->shell.waiting.head != NULL;
}

/* What came for it meanwhile the main line runs: the answer names the branch, to which it was sent. */
static void test_an_answer_to_what_it_leaves(void **state)
{
	struct branch b;
	struct rig *r = up(state, &b);
	uint64_t request;
	struct rig_twin t = adopted(r, &b), copy;
	const char *id = send_to(r, &b, "1");

	rig_until(r, waits_in_it);
	rig_twin_comes(r, &t, RIG_MADE);
	rig_init_expect(r, CB_INIT_RESTORE, (int)t.number);
	rig_swap_wire(r, &b.twin.fd[CB_BIRTH_WIRE]);
	copy = rig_twin_copied(r, rig_twin_restored(r, &t));
	rig_init_expect(r, CB_INIT_DROP, (int)b.twin.number);
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
	assert_null(only(r));
	request = rig_guest_expect(r, CB_WIRE_EXECUTE);
	rig_frame(r, CB_WIRE_INPUT_REQUEST, request, "{\"prompt\":\"?\",\"password\":false}");
	rig_expect(r, RIG_STDIN, "input_request", id);
	r->session = b.session;
	(void)rig_send(r, RIG_STDIN, "input_reply", "{\"value\":\"v\"}", NULL);
	r->session = "s1";
	assert_int_equal(rig_guest_expect(r, CB_WIRE_INPUT_REPLY), request);
	rig_twin_close(&copy);
	rig_twin_close(&b.twin);
	rig_twin_close(&b.first);
}

/* It ends when its copy takes over already: what has run in it has run in the main line all the same. */
static void test_it_ends_while_its_copy_takes_over(void **state)
{
	struct branch b;
	struct rig *r = up(state, &b);
	struct cb_undo_log *past = &r->k.transactions.twins.undo_log;
	const char *id = send_to(r, &b, "1");
	uint64_t request = rig_begun(r, id);
	struct rig_twin t, copy;

	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request, RIG_OK);
	rig_ended(r, id, NULL);
	t = adopted(r, &b);
	rig_twin_comes(r, &t, RIG_MADE);
	rig_init_expect(r, CB_INIT_RESTORE, (int)t.number);
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
	assert_null(only(r));
	assert_null(cb_undo_log_latest(past, 1, UINT64_MAX));
	rig_swap_wire(r, &b.twin.fd[CB_BIRTH_WIRE]);
	copy = rig_twin_copied(r, rig_twin_restored(r, &t));
	assert_false(cb_twins_confirming(&r->k.transactions.twins));
	assert_non_null(cb_undo_log_latest(past, 1, UINT64_MAX));
	assert_int_equal(cb_undo_log_latest(past, 1, UINT64_MAX)->number, 1);
	rig_twin_close(&copy);
	rig_twin_close(&b.twin);
	rig_twin_close(&b.first);
}

/* Where nothing could take over, a branch may still be adopted: what runs then is undone by that. */
static void test_cells_are_noted_beside_it(void **state)
{
	struct branch b;
	struct rig *r = up(state, &b);
	struct cb_transactions *tx = &r->k.transactions;
	size_t before = tx->twins.undo_log.count;

	tx->twins.possible = false;
	cb_twins_drop(tx, cb_twins_next(&tx->twins));
	assert_null(cb_twins_next(&tx->twins));
	cb_twins_touched(tx, CB_SPAN("\"a\""), 7);
	assert_int_equal(tx->twins.undo_log.count, before + 1);
	done(r, &b);
}

/* The main line's state has come back and died with nothing to do, three times: it is held, and the branch goes on. */
static struct rig *held_beside_it(void **state, struct branch *b)
{
	struct rig *r = up(state, b);
	struct cb_twin_control_msg m;

	rig_swap_wire(r, &b->twin.fd[CB_BIRTH_WIRE]);
	for (int i = 0; i < CB_IDLE_DEATHS; i++) {
		rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
		b->first = rig_twin_comes_back(r, &b->first);
		rig_until(r, rig_none_coming);
	}
	rig_init_tell(r, CB_INIT_EXITED, SIGABRT);
	rig_init_expect(r, CB_INIT_RESTORE, (int)b->first.number);
	rig_init_tell(r, CB_INIT_RESTORED, (int)b->first.number);
	rig_init_expect(r, CB_INIT_GO_ON, 0);
	rig_init_silent(r);
	assert_true(recv(b->first.fd[CB_BIRTH_TWIN_CONTROL], &m, sizeof(m), MSG_DONTWAIT) < 0);
	rig_swap_wire(r, &b->twin.fd[CB_BIRTH_WIRE]);
	return r;
}

static void test_the_main_line_is_held_beside_it(void **state)
{
	static const struct cb_wire_header h = { .type = CB_WIRE_STREAM, .content_len = 9, .flags = CB_WIRE_STDOUT };
	struct branch b;
	struct rig *r = held_beside_it(state, &b);
	const char *id = send_to(r, &b, "1");
	uint64_t request = rig_begun(r, id);

	rig_frame(r, CB_WIRE_EXECUTE_REPLY, request, RIG_OK);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_expect(r, RIG_SHELL, "execute_reply", id);
	id = send_to(r, &b, "2"); /* what it sends is looked at as beside a Python that is up */
	(void)rig_begun(r, id);
	rig_frame_raw(r, &h, "half", 4);
	rig_until(r, half_is_seen);
	look_now(r);
	rig_init_expect(r, CB_INIT_DROP, (int)b.twin.number);
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
	expect_failed(r, id, "WireError", "half a frame came");
	rig_swap_wire(r, &b.twin.fd[CB_BIRTH_WIRE]);
	(void)rig_execute(r, "a");
	b.first = rig_twin_copied(r, rig_twin_goes_on(r, &b.first));
	(void)rig_guest_expect(r, CB_WIRE_EXECUTE);
	rig_twin_close(&b.twin);
	rig_twin_close(&b.first);
}

/* The branch runs and can do so. */
static void test_the_main_line_is_killed_beside_it(void **state)
{
	struct branch b;
	struct rig *r = held_beside_it(state, &b);

	rig_init_tell(r, CB_INIT_EXITED, SIGKILL);
	rig_await_kill(r); /* there is no other state */
	assert_string_equal(r->k.transactions.twins.passed_why,
			    "Python was killed by signal 9 (Killed), by itself or by the host for lack of memory");
	done(r, &b);
}

/* It ends, and not the jail with the state. */
static void test_it_is_too_large_while_the_main_line_is_held(void **state)
{
	struct branch b;
	struct rig *r = held_beside_it(state, &b);
	const char *id = send_to(r, &b, "1");
	struct cb_broker_reply notice = {
		.event = CB_BROKER_MEMORY, .jail = r->jail, .watchdog = 2, .looked_ms = cb_now_ms() + 10000
	};

	(void)rig_begun(r, id);
	r->policy.limit_memory = 1;
	only(r)->python.pid = getpid(); /* so that it has some */
	assert_int_equal(cb_fd_send(r->broker, &notice, sizeof(notice), NULL, 0), 0);
	rig_init_expect(r, CB_INIT_DROP, (int)b.twin.number);
	rig_init_tell(r, CB_INIT_GONE, (int)b.twin.number);
	rig_expect(r, RIG_IOPUB, "error", id);
	expect_failed(r, id, "CellMemoryError", "limits.memory");
	done(r, &b);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_birth_and_a_cell),
		T(test_it_wakes_behind_slow_clients),
		T(test_one_that_does_not_wake),
		T(test_one_that_wakes_is_hidden),
		T(test_wrong_words),
		T(test_it_ends_by_itself),
		T(test_it_is_killed_for_memory),
		T(test_its_cell_has_too_much_memory),
		T(test_the_first_reason_stands),
		T(test_it_shuts_its_ear),
		T(test_it_ends_with_the_jail),
		T(test_interrupt),
		T(test_it_wakes_for_nobody),
		T(test_its_end_makes_room),
		T(test_it_does_not_come),
		T(test_half_frame),
		T(test_room_for_frames),
		T(test_adopted_when_it_has_answered),
		T(test_one_that_can_not_be_adopted),
		T(test_an_answer_to_what_it_leaves),
		T(test_it_ends_while_its_copy_takes_over),
		T(test_cells_are_noted_beside_it),
		T(test_the_main_line_is_held_beside_it),
		T(test_the_main_line_is_killed_beside_it),
		T(test_it_is_too_large_while_the_main_line_is_held),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
