/* Connections of iopub, counted.
 *
 * Role: who listens at all keeps an idle jail (shells/idle.c), and who listens alone need not be set aside for others'
 * sake (iopub.c). Subscriptions don't tell: the socket hands on whatever a peer sends, and anybody may take back what
 * another has asked for. libzmq tells of each connection that comes and goes, and nobody can end another's.
 * Trust domain: supervisor. Invariants: one that is no client (yet) counts, too; libzmq ends it if it does not speak as
 * one. libzmq's thread waits, with a lock that stopping needs, when its events fill both queues (of 1,000 each).
 */
#include "connected.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <zmq.h>

#include "jupyter.h"
#include "loop.h"

#define URL "inproc://connected"
#define EVENTS_A_TURN 256

/* The first frame is the event, and 32 bits that belong to it; the second, the address, says nothing here. */
static int next_event(void *monitor, uint16_t *ret_event)
{
	zmq_msg_t m;
	int more = 1;

	for (int i = 0; more; i++) {
		zmq_msg_init(&m);
		if (zmq_msg_recv(&m, monitor, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(&m);
			return -errno;
		}
		more = zmq_msg_more(&m);
		if (i == 0) {
			*ret_event = 0;
			if (zmq_msg_size(&m) >= sizeof(*ret_event))
				memcpy(ret_event, zmq_msg_data(&m), sizeof(*ret_event));
		}
		zmq_msg_close(&m);
	}
	return 0;
}

static void on_event(void *context, short revents)
{
	struct cb_jupyter *jp = context;
	struct cb_connected *c = &jp->iopub.connected;
	uint16_t event = 0;

	(void)revents;
	for (int i = 0; i < EVENTS_A_TURN && next_event(c->monitor, &event) == 0; i++) {
		if (event == ZMQ_EVENT_ACCEPTED)
			c->n++;
		else if (event == ZMQ_EVENT_DISCONNECTED && c->n > 0)
			c->n--;
	}
	if (c->n == 0)
		jp->events->unheard(jp->kernel);
}

int cb_connected_open(struct cb_jupyter *jp)
{
	struct cb_connected *c = &jp->iopub.connected;

	if (zmq_socket_monitor(jp->channels.socket[CB_IOPUB], URL, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED) != 0)
		return -errno;
	c->monitor = zmq_socket(jp->channels.context, ZMQ_PAIR);
	if (c->monitor == NULL || zmq_connect(c->monitor, URL) != 0)
		return -errno;
	c->slot = cb_loop_add(jp->loop, c->monitor, 0, ZMQ_POLLIN, on_event, jp);
	return c->slot < 0 ? c->slot : 0;
}

void cb_connected_close(struct cb_jupyter *jp)
{
	struct cb_connected *c = &jp->iopub.connected;
	uint16_t event;

	if (c->monitor == NULL)
		return;
	while (next_event(c->monitor, &event) == 0)
		;
	zmq_socket_monitor(jp->channels.socket[CB_IOPUB], NULL, 0);
	zmq_close(c->monitor);
}
