/* Calls that wait until what they act on is old enough: see cb_made_look.
 *
 * Trust domain: the notifier. A thread of their own looks at them every now and then: each is done from its beginning,
 * with all that its strings and names mean by then. Bounded in number and in time; where others make the file anew
 * without end the call fails. A caller that has been killed costs nothing, one that gets a signal is told so.
 */
#include "calls.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>

#define LOOK_MS 50
#define WAIT_MAX_MS 7000 /* three files, one after the other */

struct held {
	struct seccomp_notif notification;
	enum cb_notify_from from;
	int64_t until_ms; /* 0 = free */
};

static struct {
	struct held calls[CB_NOTIFY_HELD];
	unsigned count;
	pthread_mutex_t lock;
	pthread_cond_t some;
} held = { .lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER };

bool cb_held_take(const struct cb_request *q)
{
	bool taken = false;

	pthread_mutex_lock(&held.lock);
	for (unsigned i = 0; i < CB_NOTIFY_HELD && !taken; i++) {
		if (held.calls[i].until_ms != 0)
			continue;
		held.calls[i].notification = *q->n;
		held.calls[i].from = q->from;
		held.calls[i].until_ms = cb_now_ms() + WAIT_MAX_MS;
		cb_notify_self.shared->busy[q->from][CB_NOTIFY_FIRST_HELD + i] = q->n->id;
		held.count++;
		taken = true;
	}
	pthread_cond_signal(&held.some);
	pthread_mutex_unlock(&held.lock);
	return taken;
}

/* Only this thread frees places, so what is taken stays while it looks. */
static bool is_taken(const struct held *h)
{
	bool taken;

	pthread_mutex_lock(&held.lock);
	taken = h->until_ms != 0;
	pthread_mutex_unlock(&held.lock);
	return taken;
}

static void release(struct held *h)
{
	pthread_mutex_lock(&held.lock);
	h->until_ms = 0;
	held.count--;
	pthread_mutex_unlock(&held.lock);
}

/* Whether it has been answered, or nobody waits for that. */
static bool look(struct held *h, unsigned slot)
{
	struct cb_request q = CB_REQUEST(&h->notification, h->from, slot);

	if (!cb_notify_valid(&q)) {
		cb_notify_self.shared->busy[q.from][slot] = 0;
		return true;
	}
	cb_notify_serve(&q);
	if (q.error == CB_TOO_NEW && cb_caller_interrupted(&q))
		q.error = EINTR;
	if (q.error == CB_TOO_NEW && cb_now_ms() >= h->until_ms)
		q.error = EBUSY;
	if (q.error == CB_TOO_NEW) {
		cb_fd_close(&q.caller);
		return false;
	}
	cb_notify_answer(&q);
	return true;
}

_Noreturn void cb_held_serve(void)
{
	for (;;) {
		pthread_mutex_lock(&held.lock);
		while (held.count == 0)
			pthread_cond_wait(&held.some, &held.lock);
		pthread_mutex_unlock(&held.lock);
		(void)poll(NULL, 0, LOOK_MS);
		for (unsigned i = 0; i < CB_NOTIFY_HELD; i++)
			if (is_taken(&held.calls[i]) && look(&held.calls[i], CB_NOTIFY_FIRST_HELD + i))
				release(&held.calls[i]);
	}
}
