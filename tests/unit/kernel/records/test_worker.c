/* A thread beside the loop: it takes no signals, what it is woken for it sees, and its end is waited for no longer than
 * was said. */
#include "records/worker.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct work {
	struct cb_worker worker;
	int brought, done; /* under the lock */
	bool free, blocked;
};

static void *run(void *context)
{
	struct work *w = context;
	sigset_t set;

	pthread_sigmask(SIG_SETMASK, NULL, &set);
	pthread_mutex_lock(&w->worker.lock);
	w->blocked = sigismember(&set, SIGTERM) == 1 && sigismember(&set, SIGCHLD) == 1;
	while (w->brought > 0 || !w->worker.ending || !w->free) {
		if (w->brought == 0)
			(void)cb_worker_wait(&w->worker, 0);
		w->done += w->brought;
		w->brought = 0;
		pthread_cond_broadcast(&w->worker.more);
	}
	pthread_mutex_unlock(&w->worker.lock);
	return NULL;
}

static void bring(struct work *w, int n)
{
	pthread_mutex_lock(&w->worker.lock);
	w->brought += n;
	cb_worker_wake(&w->worker);
	pthread_mutex_unlock(&w->worker.lock);
}

static void test_all_is_done(void **state)
{
	struct work w = { .worker = CB_WORKER_NONE, .free = true };
	sigset_t ours;

	(void)state;
	bring(&w, 2); /* before there is anybody */
	assert_int_equal(cb_worker_start(&w.worker, run, &w), 0);
	pthread_sigmask(SIG_SETMASK, NULL, &ours);
	assert_int_equal(sigismember(&ours, SIGTERM), 0);
	pthread_mutex_lock(&w.worker.lock);
	while (w.done < 2)
		assert_int_equal(pthread_cond_wait(&w.worker.more, &w.worker.lock), 0);
	pthread_mutex_unlock(&w.worker.lock);
	bring(&w, 3);
	assert_int_equal(cb_worker_end(&w.worker, 60), 0);
	assert_true(w.blocked);
	assert_int_equal(w.done, 5);
	assert_int_equal(cb_worker_end(&w.worker, 60), 0); /* there is none any more */
}

static void test_one_that_does_not_end(void **state)
{
	struct work w = { .worker = CB_WORKER_NONE };

	(void)state;
	assert_int_equal(cb_worker_start(&w.worker, run, &w), 0);
	assert_int_equal(cb_worker_end(&w.worker, 1), -ETIMEDOUT);
	pthread_mutex_lock(&w.worker.lock);
	w.free = true;
	pthread_mutex_unlock(&w.worker.lock);
	assert_int_equal(cb_worker_end(&w.worker, 60), 0);
}

static void test_none_was_started(void **state)
{
	struct work w = { .worker = CB_WORKER_NONE };

	(void)state;
	assert_int_equal(cb_worker_end(&w.worker, 1), 0);
	assert_true(w.worker.ending);
}

static void test_a_wait_with_a_limit(void **state)
{
	struct cb_worker w = CB_WORKER_NONE;

	(void)state;
	pthread_mutex_lock(&w.lock);
	while (cb_worker_wait(&w, 1)) /* it may come back for nothing */
		;
	pthread_mutex_unlock(&w.lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_is_done),
		cmocka_unit_test(test_one_that_does_not_end),
		cmocka_unit_test(test_none_was_started),
		cmocka_unit_test(test_a_wait_with_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
