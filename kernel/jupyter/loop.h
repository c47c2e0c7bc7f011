/* The event loop: ZeroMQ sockets, file descriptors and timers in one zmq_poll. Trust domain: supervisor.
 *
 * zmq_poll and not epoll over ZMQ_FD: that fd is edge-triggered, and a send can swallow the edge of a receive.
 * Level-triggered polling cannot lose a wake-up. Handlers do a bounded amount of work and return; nothing else in the
 * program sleeps.
 */
#pragma once

#include <cellblock/clock.h>
#include <stdbool.h>
#include <stdint.h>
#include <zmq.h>

#define CB_LOOP_MAX_SOURCES 40
#define CB_LOOP_MAX_TIMERS 24

typedef void (*cb_loop_fn)(void *context, short revents);
typedef void (*cb_timer_fn)(void *context);

struct cb_loop {
	zmq_pollitem_t item[CB_LOOP_MAX_SOURCES];
	struct {
		cb_loop_fn fn;
		void *context;
		bool used;
	} source[CB_LOOP_MAX_SOURCES];
	struct {
		cb_timer_fn fn;
		void *context;
		int64_t deadline; /* monotonic ns; 0 = off */
		bool used;
	} timer[CB_LOOP_MAX_TIMERS];
	cb_timer_fn turn;
	void *turn_context;
	bool marked;
	bool stop;
};

/* Adds a ZeroMQ socket or (socket NULL) a file descriptor. Sources added first are served first. Returns the slot, or
 * -ENOSPC. */
int cb_loop_add(struct cb_loop *l, void *socket, int fd, short events, cb_loop_fn fn, void *context);
void cb_loop_set_events(struct cb_loop *l, int slot, short events);
void cb_loop_remove(struct cb_loop *l, int *slot); /* slot < 0 allowed; set to -1 */
int cb_loop_add_timer(struct cb_loop *l, cb_timer_fn fn, void *context);
void cb_loop_arm(struct cb_loop *l, int timer, int64_t deadline_ns); /* 0 = off */
static inline bool cb_loop_armed(const struct cb_loop *l, int timer)
{
	return l->timer[timer].deadline != 0;
}
/* `fn` is called at the end of each turn that was marked, again if it marks itself, and before the loop sleeps: what
 * handlers change is acted on once, and not below them. */
void cb_loop_at_turn(struct cb_loop *l, cb_timer_fn fn, void *context);
static inline void cb_loop_mark(struct cb_loop *l)
{
	l->marked = true;
}
int cb_loop_run(struct cb_loop *l); /* until l->stop */
