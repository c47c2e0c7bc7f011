/* Answers that their callers have missed.
 *
 * Trust domain: the notifier. Before Linux 5.19 a signal takes a caller out of a call that was done already, and the
 * call comes again: it gets the answer that it has missed. A program that does not call again may mean something else
 * by the same buffer, so what the call reads of its caller's memory has to be what it was. Bounded in number and in
 * time; past it a call is done anew.
 */
#include "calls.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>

#include <pthread.h>
#include <string.h>

#define MISSED_MAX 16
#define MISSED_MS 2000

struct missed {
	enum cb_notify_from from;
	uint32_t pid;
	struct seccomp_data data;
	struct cb_read reads[CB_READS_MAX];
	unsigned nreads;
	int64_t until_ms; /* 0 = free */
	int64_t value;
	int fd;
	bool cloexec, empty;
};

static struct {
	pthread_mutex_t lock;
	struct missed missed[MISSED_MAX];
} answered = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool is_same_call(const struct seccomp_data *a, const struct seccomp_data *b)
{
	return a->nr == b->nr && a->instruction_pointer == b->instruction_pointer &&
	       memcmp(a->args, b->args, sizeof(a->args)) == 0;
}

void cb_missed_keep(struct cb_request *q)
{
	int64_t now = cb_now_ms();

	if (q->nreads > CB_READS_MAX)
		return;
	pthread_mutex_lock(&answered.lock);
	for (struct missed *m = answered.missed; m < answered.missed + MISSED_MAX; m++) {
		if (m->until_ms > now)
			continue;
		if (m->until_ms != 0)
			cb_fd_close(&m->fd);
		*m = (struct missed){ .from = q->from,
				      .pid = q->n->pid,
				      .data = q->n->data,
				      .nreads = q->nreads,
				      .until_ms = now + MISSED_MS,
				      .value = q->value,
				      .fd = cb_fd_take(&q->fd),
				      .cloexec = q->cloexec,
				      .empty = q->empty };
		memcpy(m->reads, q->reads, sizeof(m->reads));
		break;
	}
	pthread_mutex_unlock(&answered.lock);
}

static bool take_one(const struct cb_request *q, struct missed *ret)
{
	int64_t now = cb_now_ms();
	bool found = false;

	pthread_mutex_lock(&answered.lock);
	for (struct missed *m = answered.missed; m < answered.missed + MISSED_MAX && !found; m++) {
		if (m->until_ms <= now || m->from != q->from || m->pid != q->n->pid ||
		    !is_same_call(&m->data, &q->n->data))
			continue;
		*ret = *m;
		m->until_ms = 0;
		found = true;
	}
	pthread_mutex_unlock(&answered.lock);
	return found;
}

bool cb_missed_take(struct cb_request *q)
{
	struct missed m;

	while (take_one(q, &m)) {
		if (!cb_caller_says_same(q, m.reads, m.nreads)) {
			cb_fd_close(&m.fd);
			continue;
		}
		q->value = m.value;
		q->fd = m.fd;
		q->cloexec = m.cloexec;
		q->empty = m.empty;
		memcpy(q->reads, m.reads, sizeof(q->reads)); /* it may be missed again */
		q->nreads = m.nreads;
		return true;
	}
	return false;
}
