/* Requests that wait, in order of arrival. Trust domain: supervisor. See queue.c. */
#pragma once

#include "jupyter/message.h"

/* What waits in a queue, or in several that share a limit. */
struct cb_load {
	size_t count, bytes; /* requests; of their frames */
};

struct cb_queue {
	struct cb_request *head, **tail; /* owned; tail means nothing while head is NULL */
};

void cb_queue_push(struct cb_queue *q, struct cb_load *load, struct cb_request *r);
/* Before all others, behind those that came so. */
void cb_queue_push_first(struct cb_queue *q, struct cb_load *load, struct cb_request *r);
struct cb_request *cb_queue_pop(struct cb_queue *q, struct cb_load *load); /* NULL if none waits */
/* Whose an interrupt is while nothing runs: the first that runs code, not what frontends have sent before it; the first
 * of all if none does. NULL if none waits. */
struct cb_request *cb_queue_next_cell(struct cb_queue *q);
struct cb_request *cb_queue_take_next_cell(struct cb_queue *q, struct cb_load *load);
/* The one that a client names (a raw JSON string). NULL if it is not here. */
struct cb_request *cb_queue_take(struct cb_queue *q, struct cb_load *load, struct cb_span msg_id);
