/* A thread that does beside the loop what the loop may not wait for. Trust domain: supervisor.
 *
 * The lock guards `ending` and what the two hand each other. Signals are the loop's: the thread takes none. It can be
 * started at any time after the filter is loaded, also when something waits for it already.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct cb_worker {
	pthread_mutex_t lock;
	pthread_cond_t more;
	bool ending;  /* under the lock: what waits is done, then the thread ends */
	bool started; /* the loop's alone, as what follows */
	pthread_t thread;
};

#define CB_WORKER_NONE (struct cb_worker){ .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER }

int cb_worker_start(struct cb_worker *w, void *(*run)(void *context), void *context);
/* Under the lock: the loop has brought something. */
void cb_worker_wake(struct cb_worker *w);
/* Under the lock, of the thread: until it is woken, or may have been. False: `seconds` have passed (0 = no limit). */
bool cb_worker_wait(struct cb_worker *w, int seconds);
/* Has it end, and waits so long for that. -ETIMEDOUT: it is still at work; call again to wait longer. */
int cb_worker_end(struct cb_worker *w, int seconds);
