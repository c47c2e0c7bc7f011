/* See rig_twins.h. */
#include "rig_twins.h"

#include <cellblock/fd.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/socket.h>

struct rig *rig_twins_up(enum cb_switch_mode mode)
{
	struct rig *r = rig_new();

	r->policy.transactions_mode = mode;
	r->policy.transactions_keep = 1;
	r->policy.transactions_names = 2;
	r->level = CB_LEVEL_FULL;
	rig_subscribe(r);
	cb_guest_want(&r->k.guest);
	rig_guest_up(r);
	return r;
}

/* Runs the loop until a packet is there. */
static ssize_t packet(struct rig *r, int from, void *to, size_t size, int *ret_fds, size_t max, size_t *ret_n)
{
	for (int64_t end = cb_now_ns() + (int64_t)RIG_PATIENCE * 1000000; cb_now_ns() < end;) {
		ssize_t n = cb_fd_recv(from, to, size, ret_fds, max, ret_n, MSG_DONTWAIT);

		if (n >= 0)
			return n;
		rig_until_soon(r);
	}
	fail_msg("nothing came");
	return -1;
}

void rig_init_expect(struct rig *r, enum cb_init_op op, int arg)
{
	struct cb_init_msg m;

	assert_int_equal(packet(r, r->init, &m, sizeof(m), NULL, 0, NULL), sizeof(m));
	assert_int_equal(m.op, op);
	assert_int_equal(m.arg, arg);
}

void rig_init_silent(struct rig *r)
{
	struct cb_init_msg m;

	rig_barrier(r);
	if (recv(r->init, &m, sizeof(m), MSG_DONTWAIT) > 0)
		fail_msg("pid 1 was told %u %d", m.op, m.arg);
}

/* Before it is heard the kernel does nothing else that a test could see. */
void rig_init_tell(struct rig *r, enum cb_init_op op, int arg)
{
	struct cb_init_msg m = { .op = op, .arg = arg };

	assert_int_equal(send(r->init, &m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
	rig_until_soon(r);
}

static uint32_t birth(struct rig *r, int twin_control, uint32_t op, int ret_fds[CB_BIRTH_NFDS], size_t expected)
{
	struct cb_twin_control_msg m;
	size_t n = 0;

	assert_int_equal(packet(r, twin_control, &m, sizeof(m), ret_fds, CB_BIRTH_NFDS, &n), sizeof(m));
	assert_int_equal(m.op, op);
	assert_int_equal(n, expected);
	return m.number;
}

static struct rig_twin asked(struct rig *r, size_t nfds)
{
	struct rig_twin t = { .fd = { -1, -1, -1, -1, -1 } };
	unsigned number;
	int end = 0;

	t.number = birth(r, r->twin_control, CB_TWIN_CONTROL_BIRTH, t.fd, nfds);
	rig_init_expect(r, CB_INIT_TWIN, (int)t.number);
	struct rig_request q = rig_guest_recv(r);

	assert_int_equal(q.h.type, CB_WIRE_CHECKPOINT);
	assert_int_equal(sscanf(q.content, "{\"number\":%u,\"room\":%" SCNu64 "}%n", &number, &t.room, &end), 2);
	assert_int_equal(number, t.number);
	assert_int_equal(end, strlen(q.content));
	t.request = q.h.request;
	rig_request_free(&q);
	return t;
}

struct rig_twin rig_twin_asked(struct rig *r)
{
	return asked(r, CB_BIRTH_NFDS);
}

struct rig_twin rig_branch_asked(struct rig *r)
{
	return asked(r, CB_BIRTH_SIDE);
}

struct rig_twin rig_twin_bred(struct rig *r, const struct rig_twin *from)
{
	struct rig_twin t = { 0 };

	t.number = birth(r, from->fd[CB_BIRTH_TWIN_CONTROL], CB_TWIN_CONTROL_BREED, t.fd, CB_BIRTH_NFDS);
	rig_init_expect(r, CB_INIT_TWIN, (int)t.number);
	return t;
}

void rig_twin_registers(struct rig *r, const struct rig_twin *t)
{
	rig_init_tell(r, CB_INIT_REGISTERED, (int)t->number);
}

void rig_twin_says(const struct rig_twin *t, uint32_t op, uint32_t number)
{
	struct cb_twin_control_msg m = { .op = op, .number = number };

	assert_int_equal(send(t->fd[CB_BIRTH_TWIN_CONTROL], &m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
}

void rig_twin_answered(struct rig *r, const struct rig_twin *t, const char *content)
{
	rig_frame(r, CB_WIRE_CHECKPOINT_REPLY, t->request, content);
}

void rig_twin_comes(struct rig *r, const struct rig_twin *t, const char *answer)
{
	rig_twin_answered(r, t, answer);
	rig_twin_registers(r, t);
	rig_twin_says(t, CB_TWIN_CONTROL_BORN, t->number);
}

static uint32_t awaited;

static bool has_come(struct rig *r)
{
	return r->k.transactions.twins.coming == NULL || r->k.transactions.twins.coming->number != awaited;
}

struct rig_twin rig_twin(struct rig *r)
{
	struct rig_twin t = rig_twin_asked(r);

	rig_twin_comes(r, &t, RIG_MADE);
	awaited = t.number;
	rig_until(r, has_come);
	return t;
}

void rig_twin_close(struct rig_twin *t)
{
	for (int i = 0; i < CB_BIRTH_NFDS; i++)
		cb_fd_close(&t->fd[i]);
}

void rig_twins_close(struct rig_twin *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		rig_twin_close(&t[i]);
}

bool rig_none_coming(struct rig *r)
{
	return !cb_twins_busy(&r->k.transactions);
}

void rig_twins_dear(struct rig *r)
{
	struct cb_twin_cost *c = &r->k.transactions.twins.cost;

	c->readings = 2;
	c->made_s = c->delay_s = 1000;
}

void rig_twin_woken(struct rig *r, const struct rig_twin *t, enum cb_twin_control_op op)
{
	struct cb_twin_control_msg m;

	assert_int_equal(packet(r, t->fd[CB_BIRTH_TWIN_CONTROL], &m, sizeof(m), NULL, 0, NULL), sizeof(m));
	assert_int_equal(m.op, op);
	assert_int_equal(m.number, t->number);
}

struct rig_request rig_twin_wakes(struct rig *r, struct rig_twin *t)
{
	rig_init_expect(r, CB_INIT_RESTORE, (int)t->number);
	return rig_twin_restored(r, t);
}

struct rig_request rig_twin_restored(struct rig *r, struct rig_twin *t)
{
	rig_init_tell(r, CB_INIT_RESTORED, (int)t->number);
	return rig_twin_goes_on(r, t);
}

struct rig_request rig_twin_goes_on(struct rig *r, struct rig_twin *t)
{
	rig_twin_woken(r, t, CB_TWIN_CONTROL_WAKE);
	rig_become(r, t->fd);
	struct rig_request q = rig_guest_recv(r);

	assert_int_equal(q.h.type, CB_WIRE_RESUME);
	rig_init_expect(r, CB_INIT_GO_ON, 0);
	return q;
}

void rig_twin_resumed(struct rig *r, struct rig_request *resume)
{
	rig_frame(r, CB_WIRE_RESUMED, resume->h.request, "{\"side\":false}");
	rig_request_free(resume);
}

struct rig_twin rig_twin_copied(struct rig *r, struct rig_request resume)
{
	rig_twin_resumed(r, &resume);
	return rig_twin(r);
}

struct rig_twin rig_twin_comes_back(struct rig *r, struct rig_twin *t)
{
	return rig_twin_copied(r, rig_twin_wakes(r, t));
}

struct rig_twin rig_twin_unsure(struct rig *r)
{
	struct rig_twin copy = rig_twin_asked(r);

	rig_twin_comes(r, &copy, "{\"status\":\"ok\",\"left_out\":{\"native\":1}}");
	rig_barrier(r);
	assert_true(cb_twins_confirming(&r->k.transactions.twins) && r->k.transactions.twins.coming == NULL);
	return copy;
}

void rig_twin_believed(struct rig *r)
{
	while (cb_twins_confirming(&r->k.transactions.twins)) {
		rig_twin_overdue(r);
		rig_until_soon(r);
	}
}

const char *rig_twin_dies(struct rig *r, struct rig_twin *ret_old, struct rig_twin *ret_young)
{
	uint64_t request;

	*ret_old = rig_twin(r);
	rig_cell(r, "a");
	*ret_young = rig_twin(r);
	const char *id = rig_begin(r, "bad", &request);

	rig_init_tell(r, CB_INIT_EXITED, SIGSEGV);
	return id;
}

const char *rig_twin_takes_over(struct rig *r, struct rig_twin *ret_old, struct rig_twin *ret_copy)
{
	struct rig_twin young;
	const char *id = rig_twin_dies(r, ret_old, &young);

	*ret_copy = rig_twin_comes_back(r, &young);
	return id;
}
