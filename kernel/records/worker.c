/* A thread beside the loop: its start, how it is woken, and an end that is waited for with a limit. See worker.h.
 *
 * Trust domain: supervisor.
 */
#include "worker.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

static struct timespec after(int seconds)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += seconds;
	return t;
}

int cb_worker_start(struct cb_worker *w, void *(*run)(void *context), void *context)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&w->thread, NULL, run, context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	w->started = r == 0;
	return -r;
}

void cb_worker_wake(struct cb_worker *w)
{
	pthread_cond_signal(&w->more);
}

bool cb_worker_wait(struct cb_worker *w, int seconds)
{
	struct timespec until = after(seconds);

	if (seconds == 0)
		return pthread_cond_wait(&w->more, &w->lock) == 0;
	return pthread_cond_timedwait(&w->more, &w->lock, &until) != ETIMEDOUT;
}

int cb_worker_end(struct cb_worker *w, int seconds)
{
	struct timespec until = after(seconds);

	pthread_mutex_lock(&w->lock);
	w->ending = true;
	cb_worker_wake(w);
	pthread_mutex_unlock(&w->lock);
	if (w->started && pthread_timedjoin_np(w->thread, NULL, &until) != 0)
		return -ETIMEDOUT;
	w->started = false;
	return 0;
}
