/* See loop.h. The only place where the supervisor sleeps. */
#include "loop.h"

#include <cellblock/error.h>
#include <cellblock/log.h>
#include <errno.h>

int cb_loop_add(struct cb_loop *l, void *socket, int fd, short events, cb_loop_fn fn, void *context)
{
	for (int i = 0; i < CB_LOOP_MAX_SOURCES; i++) {
		if (l->source[i].used)
			continue;
		l->source[i].used = true;
		l->source[i].fn = fn;
		l->source[i].context = context;
		l->item[i] = (zmq_pollitem_t){ .socket = socket, .fd = fd, .events = events };
		return i;
	}
	return -ENOSPC;
}

void cb_loop_set_events(struct cb_loop *l, int slot, short events)
{
	if (slot >= 0)
		l->item[slot].events = events;
}

void cb_loop_remove(struct cb_loop *l, int *slot)
{
	if (*slot >= 0)
		l->source[*slot].used = false;
	*slot = -1;
}

int cb_loop_add_timer(struct cb_loop *l, cb_timer_fn fn, void *context)
{
	for (int i = 0; i < CB_LOOP_MAX_TIMERS; i++) {
		if (l->timer[i].used)
			continue;
		l->timer[i].used = true;
		l->timer[i].fn = fn;
		l->timer[i].context = context;
		l->timer[i].deadline = 0;
		return i;
	}
	return -ENOSPC;
}

void cb_loop_arm(struct cb_loop *l, int timer, int64_t deadline_ns)
{
	l->timer[timer].deadline = deadline_ns;
}

void cb_loop_at_turn(struct cb_loop *l, cb_timer_fn fn, void *context)
{
	l->turn = fn;
	l->turn_context = context;
}

static void end_turn(struct cb_loop *l)
{
	while (l->marked && !l->stop) {
		l->marked = false;
		if (l->turn != NULL)
			l->turn(l->turn_context);
	}
}

static void run_timers(struct cb_loop *l)
{
	int64_t now = cb_now_ns();

	for (int i = 0; i < CB_LOOP_MAX_TIMERS; i++) {
		if (!l->timer[i].used || l->timer[i].deadline == 0 || l->timer[i].deadline > now)
			continue;
		l->timer[i].deadline = 0; /* off before the call: the handler may arm it again */
		l->timer[i].fn(l->timer[i].context);
	}
}

static long next_timeout_ms(const struct cb_loop *l)
{
	int64_t first = 0;

	for (int i = 0; i < CB_LOOP_MAX_TIMERS; i++)
		if (l->timer[i].used)
			cb_sooner(&first, l->timer[i].deadline);
	if (first == 0)
		return -1;
	int64_t left = first - cb_now_ns();

	return left <= 0 ? 0 : (long)((left + 999999) / 1000000);
}

int cb_loop_run(struct cb_loop *l)
{
	for (end_turn(l); !l->stop; end_turn(l)) {
		zmq_pollitem_t item[CB_LOOP_MAX_SOURCES];
		int slot[CB_LOOP_MAX_SOURCES], n = 0;

		for (int i = 0; i < CB_LOOP_MAX_SOURCES; i++) {
			if (!l->source[i].used || l->item[i].events == 0)
				continue;
			item[n] = l->item[i];
			item[n].revents = 0;
			slot[n++] = i;
		}
		if (zmq_poll(item, n, next_timeout_ms(l)) < 0 && errno != EINTR) {
			int r = -errno;

			cb_log(CB_LOG_ERROR, "zmq_poll: %s", cb_err_name(r));
			return r;
		}
		for (int i = 0; i < n && !l->stop; i++) {
			int s = slot[i];

			/* an earlier handler may have removed or replaced the source */
			if (item[i].revents == 0 || !l->source[s].used || l->item[s].fd != item[i].fd ||
			    l->item[s].socket != item[i].socket)
				continue;
			l->source[s].fn(l->source[s].context, item[i].revents);
		}
		run_timers(l);
	}
	return 0;
}
