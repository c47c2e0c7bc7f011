/* What the broker is asked about the workspace's files, one after the other. Trust domain: supervisor. See
 * broker_queue.c. */
#pragma once

#include <cellblock/buffer.h>
#include <cellblock/sandbox.h>
#include <stdbool.h>
#include <stdint.h>

#define CB_BROKER_QUEUE_MAX 608 /* two for each twin that there can be, and some */

struct cb_broker_ask;
struct cb_loop;

/* The answer as the broker wrote it, the queue's, to be read only if r is 0; -ETIMEDOUT if it was given up. */
typedef void (*cb_broker_answer_fn)(const struct cb_broker_ask *ask, struct cb_buf *answer, int r);

struct cb_broker_ask {
	enum cb_broker_op op; /* CHANGES to FORGET */
	uint32_t number;      /* a snapshot's, else 0 */
	int64_t patience_ns;  /* then it is told to end, and is given up if it does not; 0 = it may take for ever */
	cb_broker_answer_fn on_answer;
	void *context; /* of who asks */
};

struct cb_broker_queue {
	struct cb_loop *loop;
	struct cb_broker *broker;
	struct cb_broker_ask waiting[CB_BROKER_QUEUE_MAX];
	unsigned count;	     /* waiting; [0] is at the broker if fd is open */
	int fd, slot, timer; /* the pipe for its answer; -1 = none */
	bool stopping;	     /* that was told to end */
	struct cb_buf answer;
};

int cb_broker_queue_init(struct cb_broker_queue *q, struct cb_loop *loop, struct cb_broker *broker);
void cb_broker_queue_release(struct cb_broker_queue *q);
/* on_answer is called once, perhaps before this returns; at once with -ENOBUFS if too much waits. */
void cb_broker_queue_ask(struct cb_broker_queue *q, const struct cb_broker_ask *ask);
/* Is one of that kind at the broker now? */
bool cb_broker_queue_begun(const struct cb_broker_queue *q, enum cb_broker_op op);
/* The first of that kind is forgotten, and its answer not heard. */
void cb_broker_queue_drop(struct cb_broker_queue *q, enum cb_broker_op op);
/* Outside the loop: what has come of the answer by then is taken. */
void cb_broker_queue_wait(struct cb_broker_queue *q, int ms);
