/* Jobs: a rig that plays pid 1 and the helper. Whatever a helper says or does not say, each request gets one reply and
 * one idle, and what is asked for on shell keeps its place. */
#include "rig.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <sys/socket.h>

static int got_fd;

/* Our end of a socket whose other end sends faster than we read, for ever; -1 = none. */
static int flooded = -1;
static size_t flood;

ssize_t __real_recv(int fd, void *data, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *data, size_t size, int flags);

ssize_t __wrap_recv(int fd, void *data, size_t size, int flags)
{
	static const struct cb_job_frame head = { .op = CB_JOB_PROGRESS };

	if (fd != flooded)
		return __real_recv(fd, data, size, flags);
	assert_true(++flood < 100000);
	memcpy(data, &head, sizeof(head));
	return (ssize_t)sizeof(head);
}

static bool job_is_there(struct rig *r)
{
	struct cb_init_msg m;
	size_t n = 0;
	ssize_t got = cb_fd_recv(r->init, &m, sizeof(m), &got_fd, 1, &n, MSG_DONTWAIT);

	return got == (ssize_t)sizeof(m) && m.op == CB_INIT_JOB && n == 1;
}

/* The helper's end of the next job. */
static int helper(struct rig *r)
{
	rig_until(r, job_is_there);
	return got_fd;
}

static struct cb_job_packet packet;
static size_t packet_len;

static bool packet_is_there(struct rig *r)
{
	ssize_t n = recv(got_fd, &packet, sizeof(packet), MSG_DONTWAIT);

	(void)r;
	packet_len = n >= (ssize_t)sizeof(packet.head) ? (size_t)n - sizeof(packet.head) : 0;
	return n > 0;
}

static void expect(struct rig *r, int fd, enum cb_job_op op, const void *payload, size_t len)
{
	got_fd = fd;
	rig_until(r, packet_is_there);
	assert_int_equal(packet.head.op, op);
	assert_int_equal(packet_len, len);
	assert_memory_equal(packet.payload, payload, len);
}

static void say(int fd, enum cb_job_op op, int code, uint64_t a, const void *payload, size_t len)
{
	static struct cb_job_packet p;

	p.head = (struct cb_job_frame){ .op = op, .code = code, .a = a };
	memcpy(p.payload, payload, len);
	assert_int_equal(send(fd, &p, sizeof(p.head) + len, MSG_NOSIGNAL), (ssize_t)(sizeof(p.head) + len));
}

static void take(struct rig *r, enum rig_source channel, const char *type, const char *id, const char *ename)
{
	struct rig_msg m = rig_take(r, channel, type, id);

	assert_string_equal(rig_text(&m, "status"), ename[0] != '\0' ? "error" : "ok");
	assert_string_equal(rig_text(&m, "ename"), ename);
	rig_msg_free(&m);
}

#define FILE_REQUEST "cellblock_file_request"
#define FILE_REPLY "cellblock_file_reply"
#define RUN_REQUEST "cellblock_run_request"
#define RUN_REPLY "cellblock_run_reply"

static void test_read(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id = rig_send(r, RIG_CONTROL, FILE_REQUEST, "{\"op\":\"read\",\"path\":\"a/b\"}", NULL);
	int fd = helper(r);

	expect(r, fd, CB_JOB_REQUEST, "a/b", 3);
	assert_int_equal(packet.head.code, CB_JOB_READ);
	say(fd, CB_JOB_FACTS, 0, 5, "", 0);
	say(fd, CB_JOB_BYTES, 0, 0, "he", 2);
	say(fd, CB_JOB_BYTES, 0, 0, "llo", 3);
	say(fd, CB_JOB_DONE, 0, 0, "", 0);
	struct rig_msg m = rig_take(r, RIG_CONTROL, FILE_REPLY, id);

	assert_int_equal(json_integer_value(json_object_get(m.content, "size")), 5);
	assert_int_equal(m.nbuffers, 1);
	rig_msg_free(&m);
	rig_expect(r, RIG_IOPUB, "busy", id);
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_barrier(r);
	close(fd);
}

/* What no helper of ours says: the job fails, and nothing else. */
static void test_nonsense(void **state)
{
	struct rig *r = *state = rig_up();
	static const struct {
		enum cb_job_op op;
		int code;
		size_t len;
	} said[] = {
		{ CB_JOB_ENTRY, CB_JOB_FILE, 3 },  { CB_JOB_REQUEST, 0, 0 }, { CB_JOB_END, 0, 0 }, { 99, 0, 0 },
		{ CB_JOB_BYTES, 0, CB_JOB_CHUNK }, /* more than was asked for */
	};

	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		static const char zeros[CB_JOB_CHUNK];
		const char *id =
			rig_send(r, RIG_CONTROL, FILE_REQUEST, "{\"op\":\"read\",\"path\":\"a\",\"length\":100}", NULL);
		int fd = helper(r);

		say(fd, said[i].op, said[i].code, 0, zeros, said[i].len);
		take(r, RIG_CONTROL, FILE_REPLY, id, "WireError");
		close(fd);
	}
	const char *id = rig_send(r, RIG_CONTROL, RUN_REQUEST, "{\"argv\":[\"a\"]}", NULL);
	int fd = helper(r);

	say(fd, CB_JOB_DONE, 0, 0, "x", 1); /* without usage */
	take(r, RIG_CONTROL, RUN_REPLY, id, "WireError");
	close(fd);
	id = rig_send(r, RIG_CONTROL, RUN_REQUEST, "{\"argv\":[\"a\"]}", NULL);
	fd = helper(r);
	assert_int_equal(send(fd, "x", 1, 0), 1); /* no whole head */
	take(r, RIG_CONTROL, RUN_REPLY, id, "WireError");
	close(fd);
}

static void test_a_helper_that_ends(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id = rig_send(r, RIG_SHELL, FILE_REQUEST, "{\"op\":\"list\"}", NULL);
	int fd = helper(r);
	const char *next = rig_execute(r, "1");

	rig_expect(r, RIG_IOPUB, "busy", id);
	close(fd);
	take(r, RIG_SHELL, FILE_REPLY, id, "JobLostError");
	rig_expect(r, RIG_IOPUB, "idle", id);
	rig_expect(r, RIG_IOPUB, "busy", next);
	(void)rig_guest_expect(r, CB_WIRE_EXECUTE);
}

static void test_arguments_and_stdin(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id =
		rig_send(r, RIG_CONTROL, RUN_REQUEST,
			 "{\"argv\":[\"a\",\"b\"],\"env\":{\"N\":\"v\"},\"cwd\":\"d\",\"stdin\":\"in\"}", NULL);
	static const char input[] = "a\0b\0N=v\0in";
	struct cb_job_usage usage = { .cpu_user_us = 1500000 };
	int fd = helper(r);

	expect(r, fd, CB_JOB_REQUEST, "d", 1);
	assert_int_equal(packet.head.a, 8);
	assert_int_equal(packet.head.b, 2);
	expect(r, fd, CB_JOB_DATA, input, sizeof(input) - 1);
	expect(r, fd, CB_JOB_END, "", 0);
	say(fd, CB_JOB_BYTES, 1, 0, "out\xff", 4);
	say(fd, CB_JOB_BYTES, 2, 0, "err", 3);
	say(fd, CB_JOB_DONE, 0, 3 << 8, &usage, sizeof(usage));
	struct rig_msg m = rig_take(r, RIG_CONTROL, RUN_REPLY, id);

	assert_string_equal(rig_text(&m, "stdout"), "out\xef\xbf\xbd");
	assert_string_equal(rig_text(&m, "stderr"), "err");
	assert_int_equal(json_integer_value(json_object_get(m.content, "returncode")), 3);
	rig_msg_free(&m);
	close(fd);
}

/* On shell the queue's order is kept; the guest's death answers the job, and the next one goes to the next jail. */
static void test_order_and_death(void **state)
{
	struct rig *r = *state = rig_up();
	const char *cell = rig_execute(r, "1"), *job = rig_send(r, RIG_SHELL, RUN_REQUEST, "{\"argv\":[\"a\"]}", NULL);
	uint64_t at = rig_guest_expect(r, CB_WIRE_EXECUTE);
	int fd;

	rig_expect(r, RIG_IOPUB, "busy", cell);
	rig_expect(r, RIG_IOPUB, "execute_input", cell);
	rig_barrier(r);
	rig_frame(r, CB_WIRE_EXECUTE_REPLY, at, RIG_OK);
	fd = helper(r);
	rig_expect(r, RIG_SHELL, "execute_reply", cell);
	rig_expect(r, RIG_IOPUB, "idle", cell);
	rig_expect(r, RIG_IOPUB, "busy", job);
	const char *waiting = rig_send(r, RIG_CONTROL, "kernel_info_request", NULL, NULL);

	rig_expect(r, RIG_CONTROL, "kernel_info_reply", waiting);
	rig_expect(r, RIG_IOPUB, "busy", waiting);
	rig_expect(r, RIG_IOPUB, "idle", waiting);
	rig_expect(r, RIG_IOPUB, "busy", job); /* said again after an idle */
	rig_die(r, 9);
	take(r, RIG_SHELL, RUN_REPLY, job, "KernelDiedError");
	close(fd);
	rig_expect(r, RIG_IOPUB, "idle", job);
	const char *again = rig_send(r, RIG_CONTROL, FILE_REQUEST, "{\"op\":\"list\"}", NULL);

	rig_guest_up(r);
	fd = helper(r);
	say(fd, CB_JOB_DONE, 0, 0, "", 0);
	take(r, RIG_CONTROL, FILE_REPLY, again, "");
	close(fd);
}

/* Its last words are all read, however many they are, when the whole jail ends before they could be. */
static void test_last_words(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id = rig_send(r, RIG_CONTROL, RUN_REQUEST, "{\"argv\":[\"a\"]}", NULL);
	struct cb_job_usage usage = { 0 };
	int fd = helper(r);

	expect(r, fd, CB_JOB_REQUEST, "", 0);
	expect(r, fd, CB_JOB_DATA, "a", 2);
	expect(r, fd, CB_JOB_END, "", 0);
	cb_loop_set_events(&r->k.loop, r->k.workspace.jobs.head->slot, 0);
	for (int i = 0; i < 100; i++)
		say(fd, CB_JOB_BYTES, 1, 0, "x", 1);
	say(fd, CB_JOB_DONE, 0, 0, &usage, sizeof(usage));
	rig_die(r, 9);
	struct rig_msg m = rig_take(r, RIG_CONTROL, RUN_REPLY, id);

	assert_string_equal(rig_text(&m, "status"), "ok");
	assert_int_equal(strlen(rig_text(&m, "stdout")), 100);
	rig_msg_free(&m);
	close(fd);
}

/* A take-over begins while helpers live: one that goes on sending is not waited for. */
static void test_last_words_have_an_end(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id = rig_send(r, RIG_CONTROL, RUN_REQUEST, "{\"argv\":[\"a\"]}", NULL);
	int fd = helper(r);

	expect(r, fd, CB_JOB_REQUEST, "", 0);
	expect(r, fd, CB_JOB_DATA, "a", 2);
	expect(r, fd, CB_JOB_END, "", 0);
	cb_loop_set_events(&r->k.loop, r->k.workspace.jobs.head->slot, 0);
	flooded = r->k.workspace.jobs.head->fd;
	rig_die(r, 9);
	take(r, RIG_CONTROL, RUN_REPLY, id, "KernelDiedError");
	flooded = -1;
	assert_true(flood > 0);
	close(fd);
}

static void test_interrupt(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id = rig_send(r, RIG_SHELL, RUN_REQUEST, "{\"argv\":[\"a\"]}", NULL);
	struct cb_job_usage usage = { 0 };
	int fd = helper(r);

	rig_expect(r, RIG_IOPUB, "busy", id);
	const char *stop = rig_send(r, RIG_CONTROL, "interrupt_request", NULL, NULL);

	rig_expect(r, RIG_CONTROL, "interrupt_reply", stop);
	assert_int_equal(rig_interrupts(r), 0); /* Python is not concerned */
	say(fd, CB_JOB_DONE, 0, 15, &usage, sizeof(usage));
	take(r, RIG_SHELL, RUN_REPLY, id, "KeyboardInterrupt");
	close(fd);
}

/* No more than a few have helpers at a time; the others wait and are answered in the end. */
static void test_many(void **state)
{
	struct rig *r = *state = rig_up();
	int fd[CB_JOBS_RUNNING_MAX];

	for (int i = 0; i < 3 * CB_JOBS_RUNNING_MAX; i++)
		(void)rig_send(r, RIG_CONTROL, FILE_REQUEST, "{\"op\":\"list\"}", NULL);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < CB_JOBS_RUNNING_MAX; i++)
			fd[i] = helper(r);
		rig_until_soon(r);
		assert_false(job_is_there(r));
		assert_int_equal(r->k.workspace.jobs.running, CB_JOBS_RUNNING_MAX);
		for (int i = 0; i < CB_JOBS_RUNNING_MAX; i++) {
			say(fd[i], CB_JOB_DONE, 0, 0, "", 0);
			struct rig_msg m = rig_recv(r, RIG_CONTROL);

			assert_string_equal(m.type, FILE_REPLY);
			rig_msg_free(&m);
			close(fd[i]); /* one ended, one begins: its helper is looked for in the next round */
		}
	}
	assert_int_equal(r->k.workspace.jobs.count, 0);
}

static void test_too_large_and_truncated(void **state)
{
	struct rig *r = *state = rig_up();
	const char *id = rig_send(r, RIG_CONTROL, FILE_REQUEST, "{\"op\":\"read\",\"path\":\"a\"}", NULL);
	int fd = helper(r);

	say(fd, CB_JOB_FACTS, 0, 1ull << 62, "", 0);
	take(r, RIG_CONTROL, FILE_REPLY, id, "FileTooLargeError");
	close(fd);
	r->policy.limit_message = 65536;
	id = rig_send(r, RIG_CONTROL, FILE_REQUEST, "{\"op\":\"list\"}", NULL);
	fd = helper(r);
	for (int i = 0; i < 100; i++) {
		static const char name[200] = { [0 ... 199] = 'n' };
		struct cb_job_frame head = { .op = CB_JOB_ENTRY, .code = CB_JOB_FILE };
		struct cb_job_packet p = { .head = head };

		memcpy(p.payload, name, sizeof(name));
		if (send(fd, &p, sizeof(head) + sizeof(name), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
	}
	struct rig_msg m = rig_take(r, RIG_CONTROL, FILE_REPLY, id);

	assert_true(json_is_true(json_object_get(m.content, "truncated")));
	assert_in_range(json_array_size(json_object_get(m.content, "entries")), 20, 60);
	rig_msg_free(&m);
	close(fd);
}

static void test_too_much_waits(void **state)
{
	struct rig *r = *state = rig_up();

	r->k.workspace.jobs.bytes = CB_JOBS_BYTES_MAX;
	const char *id = rig_send(r, RIG_CONTROL, FILE_REQUEST, "{\"op\":\"list\"}", NULL);

	take(r, RIG_CONTROL, FILE_REPLY, id, "KernelBusyError");
	assert_int_equal(r->k.workspace.jobs.bytes, CB_JOBS_BYTES_MAX);
	r->k.workspace.jobs.bytes = 0;
	id = rig_send(r, RIG_CONTROL, FILE_REQUEST, "{\"op\":\"list\"}", NULL);
	int fd = helper(r);

	say(fd, CB_JOB_DONE, 0, 0, "", 0);
	take(r, RIG_CONTROL, FILE_REPLY, id, "");
	assert_int_equal(r->k.workspace.jobs.bytes, 0);
	close(fd);
}

static void test_no_jail(void **state)
{
	struct rig *r = *state = rig_new();
	const char *id;

	rig_subscribe(r);
	id = rig_send(r, RIG_CONTROL, FILE_REQUEST, "{\"op\":\"list\"}", NULL);
	rig_spawn(r, -EPERM);
	rig_expect_error(r, RIG_CONTROL, FILE_REPLY, id, "IsolationError", "a cure");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_read, rig_teardown),
		cmocka_unit_test_teardown(test_nonsense, rig_teardown),
		cmocka_unit_test_teardown(test_a_helper_that_ends, rig_teardown),
		cmocka_unit_test_teardown(test_arguments_and_stdin, rig_teardown),
		cmocka_unit_test_teardown(test_order_and_death, rig_teardown),
		cmocka_unit_test_teardown(test_last_words, rig_teardown),
		cmocka_unit_test_teardown(test_last_words_have_an_end, rig_teardown),
		cmocka_unit_test_teardown(test_interrupt, rig_teardown),
		cmocka_unit_test_teardown(test_many, rig_teardown),
		cmocka_unit_test_teardown(test_too_large_and_truncated, rig_teardown),
		cmocka_unit_test_teardown(test_too_much_waits, rig_teardown),
		cmocka_unit_test_teardown(test_no_jail, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
