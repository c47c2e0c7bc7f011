/* Queues of requests.
 *
 * Trust domain: supervisor. Invariant: a load counts exactly what waits in its queues; their maximum is held by who
 * puts requests in. Called by execution.c, abort.c, shell.c and debug.c.
 */
#include "queue.h"

static void put(struct cb_queue *q, struct cb_load *load, struct cb_request **at, struct cb_request *r)
{
	r->next = *at;
	*at = r;
	if (r->next == NULL)
		q->tail = &r->next;
	load->count++;
	load->bytes += cb_request_bytes(r);
}

void cb_queue_push(struct cb_queue *q, struct cb_load *load, struct cb_request *r)
{
	put(q, load, q->head != NULL ? q->tail : &q->head, r);
}

void cb_queue_push_first(struct cb_queue *q, struct cb_load *load, struct cb_request *r)
{
	struct cb_request **at = &q->head;

	while (*at != NULL && (*at)->first)
		at = &(*at)->next;
	r->first = true;
	put(q, load, at, r);
}

/* `at` is where it hangs. */
static struct cb_request *take(struct cb_queue *q, struct cb_load *load, struct cb_request **at)
{
	struct cb_request *r = *at;

	*at = r->next;
	if (r->next == NULL)
		q->tail = at;
	r->next = NULL;
	load->count--;
	load->bytes -= cb_request_bytes(r);
	return r;
}

struct cb_request *cb_queue_pop(struct cb_queue *q, struct cb_load *load)
{
	return q->head != NULL ? take(q, load, &q->head) : NULL;
}

static struct cb_request **next_cell(struct cb_queue *q)
{
	for (struct cb_request **at = &q->head; *at != NULL; at = &(*at)->next)
		if (cb_request_runs_code(*at))
			return at;
	return &q->head;
}

struct cb_request *cb_queue_next_cell(struct cb_queue *q)
{
	return *next_cell(q);
}

struct cb_request *cb_queue_take_next_cell(struct cb_queue *q, struct cb_load *load)
{
	return q->head != NULL ? take(q, load, next_cell(q)) : NULL;
}

struct cb_request *cb_queue_take(struct cb_queue *q, struct cb_load *load, struct cb_span msg_id)
{
	for (struct cb_request **at = &q->head; *at != NULL; at = &(*at)->next)
		if (cb_request_named(*at, msg_id))
			return take(q, load, at);
	return NULL;
}
