/* What the broker is asked about the workspace's files.
 *
 * Trust domain: supervisor. The broker alone may touch the folder outside. It gets one end of a pipe, writes the
 * answer, ready made, into it, and closes it: the loop never waits for work on a file system. Its end of file is the
 * end of the answer. Invariant: one at a time is at the broker; the others wait here, in the order in which they came.
 */
#include "broker_queue.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "jupyter/loop.h"

#define ANSWER_MAX (8u << 20)
#define STOP_DEADLINE (5000 * 1000000LL)

static void on_answer(void *context, short revents);

static int begin(struct cb_broker_queue *q)
{
	const struct cb_broker_ask *ask = &q->waiting[0];
	int pipes[2], r;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -errno;
	CB_AUTO_FD mine = pipes[0];
	CB_AUTO_FD theirs = pipes[1];

	r = cb_fd_set_nonblock(mine);
	if (r == 0)
		r = cb_broker_layer(q->broker, ask->op, ask->number, theirs);
	if (r < 0)
		return r;
	q->slot = cb_loop_add(q->loop, NULL, mine, ZMQ_POLLIN, on_answer, q);
	if (q->slot < 0)
		return -ENOSPC;
	q->fd = cb_fd_take(&mine);
	cb_loop_arm(q->loop, q->timer, ask->patience_ns > 0 ? cb_now_ns() + ask->patience_ns : 0);
	return 0;
}

/* The i-th is no more; an answer that is under way finds a closed pipe. */
static void take_out(struct cb_broker_queue *q, unsigned i)
{
	if (i == 0) {
		cb_loop_remove(q->loop, &q->slot);
		cb_loop_arm(q->loop, q->timer, 0);
		cb_fd_close(&q->fd);
		cb_buf_clear(&q->answer);
		q->stopping = false;
	}
	q->count--;
	memmove(q->waiting + i, q->waiting + i + 1, (q->count - i) * sizeof(q->waiting[0]));
}

static void finish(struct cb_broker_queue *q, int r)
{
	struct cb_broker_ask ask = q->waiting[0];
	CB_AUTO_BUF answer = q->answer;

	q->answer = CB_BUF_INIT(ANSWER_MAX);
	take_out(q, 0);
	ask.on_answer(&ask, &answer, r);
}

static void go_on(struct cb_broker_queue *q)
{
	while (q->count > 0 && q->fd < 0) {
		int r = begin(q);

		if (r < 0)
			finish(q, r);
	}
}

/* Of one that is too long nothing is left. */
static void on_answer(void *context, short revents)
{
	static char chunk[65536];
	struct cb_broker_queue *q = context;
	ssize_t n = read(q->fd, chunk, sizeof(chunk));

	(void)revents;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && cb_buf_append(&q->answer, chunk, (size_t)n) == 0)
		return;
	if (n > 0)
		cb_buf_clear(&q->answer);
	finish(q, 0);
	go_on(q);
}

/* It is told to end, so that nothing is written any more when others go on. */
static void on_deadline(void *context)
{
	struct cb_broker_queue *q = context;

	if (!q->stopping && cb_broker_tell(q->broker, CB_BROKER_STOP) == 0) {
		q->stopping = true;
		cb_loop_arm(q->loop, q->timer, cb_now_ns() + STOP_DEADLINE);
		return;
	}
	finish(q, -ETIMEDOUT);
	go_on(q);
}

void cb_broker_queue_ask(struct cb_broker_queue *q, const struct cb_broker_ask *ask)
{
	if (q->count == CB_BROKER_QUEUE_MAX) {
		ask->on_answer(ask, NULL, -ENOBUFS);
		return;
	}
	q->waiting[q->count++] = *ask;
	go_on(q);
}

bool cb_broker_queue_begun(const struct cb_broker_queue *q, enum cb_broker_op op)
{
	return q->count > 0 && q->fd >= 0 && q->waiting[0].op == op;
}

void cb_broker_queue_drop(struct cb_broker_queue *q, enum cb_broker_op op)
{
	for (unsigned i = 0; i < q->count; i++)
		if (q->waiting[i].op == op) {
			take_out(q, i);
			break;
		}
	go_on(q);
}

void cb_broker_queue_wait(struct cb_broker_queue *q, int ms)
{
	struct pollfd p = { .fd = q->fd, .events = POLLIN };

	if (p.fd >= 0 && poll(&p, 1, ms) > 0)
		on_answer(q, POLLIN);
}

int cb_broker_queue_init(struct cb_broker_queue *q, struct cb_loop *loop, struct cb_broker *broker)
{
	q->loop = loop;
	q->broker = broker;
	q->fd = q->slot = -1;
	q->answer = CB_BUF_INIT(ANSWER_MAX);
	q->timer = cb_loop_add_timer(q->loop, on_deadline, q);
	return q->timer < 0 ? -ENOSPC : 0;
}

void cb_broker_queue_release(struct cb_broker_queue *q)
{
	cb_loop_remove(q->loop, &q->slot);
	cb_fd_close(&q->fd);
	cb_buf_release(&q->answer);
	q->count = 0;
}
