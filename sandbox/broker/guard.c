/* Ends a jail that keeps a look at it waiting.
 *
 * Role: a look takes locks of the processes that it looks at (the one of a process's mappings, a pipe's, an epoll's),
 * and who holds one may have no processor for as long as other processes of the jail like: hundreds of busy ones beside
 * one of the idle class are enough. All that while nobody would hold limits.memory, so what can't be looked at in time
 * is over it.
 *
 * Trust domain: broker, outside. Invariants: its thread allocates nothing, opens nothing, takes no signal and no lock
 * but its own, so that a process that is forked meanwhile misses nothing; it counts its own ticks instead of time, for
 * who was stopped with all of us has kept nobody waiting; the jail of a look that is over is never ended.
 */
#include "guard.h"

#include <cellblock/log.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STACK (256u << 10) /* aarch64 takes no less than half of it */

static void *watch(void *arg)
{
	struct cb_guard *g = arg;
	const struct timespec tick = { g->tick_ms / 1000, (long)(g->tick_ms % 1000) * 1000000 };
	unsigned last = 0, ticks = 0;

	for (;;) {
		(void)nanosleep(&tick, NULL);
		pthread_mutex_lock(&g->lock);
		ticks = g->turn % 2 == 1 && g->turn == last ? ticks + 1 : 0;
		last = g->turn;
		if (ticks == g->most) {
			g->fired = true;
			if (g->pidfd == CB_GUARD_ENDS_US)
				(void)kill(getpid(), SIGKILL);
			else
				(void)syscall(SYS_pidfd_send_signal, g->pidfd, SIGKILL, NULL, 0);
		}
		pthread_mutex_unlock(&g->lock);
	}
	return NULL;
}

static int start(struct cb_guard *g)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, before;
	int r;

	sigfillset(&all);
	(void)pthread_mutex_init(&g->lock, NULL);
	(void)pthread_attr_init(&attributes);
	(void)pthread_attr_setstacksize(&attributes, STACK);
	(void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, &attributes, watch, g);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attributes);
	if (r != 0)
		cb_log(CB_LOG_WARNING, "the looks at limits.memory have no guard: %s", strerror(r));
	return -r;
}

void cb_guard_begin(struct cb_guard *g, int pidfd)
{
	if (!g->started)
		g->started = start(g) == 0;
	if (!g->started)
		return;
	pthread_mutex_lock(&g->lock);
	g->pidfd = pidfd;
	g->fired = false;
	g->turn++;
	pthread_mutex_unlock(&g->lock);
}

bool cb_guard_end(struct cb_guard *g)
{
	bool fired;

	if (!g->started)
		return false;
	pthread_mutex_lock(&g->lock);
	g->turn++;
	fired = g->fired;
	pthread_mutex_unlock(&g->lock);
	return fired;
}
