/* A bound for messages that are still coming in.
 *
 * Role: libzmq bounds each part of a message, not their number: whoever can connect, key or not, could send parts
 * without end, and all of them are held until the last has come. So libzmq's reading passes through here: the program's
 * own recv() stands before the C library's, counts what a connection has sent since a message of its was delivered, and
 * reads no more beyond the bound. A whole message is taken within moments, and reading goes on; one that is never whole
 * costs its connection, and so does a descriptor that there is no count for. Trust domain: supervisor; the peers are
 * hostile. Invariants: only reads of libzmq's threads are counted; where libzmq can't tell which connection a message
 * came by nothing is refused; what a single peer does never leads to that.
 */
#include "incoming.h"

#include <cellblock/clock.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FDS 4096  /* higher ones are not counted, so nothing is read of them */
#define SMALL 256	  /* reads of less are no reads of messages, or ends of them */
#define SPARED (1u << 20) /* what a connection may hold while all together hold too much */
#define PATIENCE_MS 10000
#define LONGEST_MS 60000 /* for one that holds little beside others that began sooner: those end first */

ssize_t recv(int fd, void *data, size_t len, int flags);

static struct connection {
	uint64_t bytes; /* since the last message was delivered; atomic */
	uint64_t inode; /* of the socket then: numbers of descriptors are used again */
	int64_t began;	/* when the first of them came, in ms; atomic */
	int64_t held;	/* since when nothing is read, in ms; 0 = it is read */
} table[FDS];

static uint64_t max, total; /* atomic */
static __thread bool is_loop;

void cb_incoming_init(uint64_t bytes)
{
	is_loop = true;
	__atomic_store_n(&max, bytes, __ATOMIC_RELAXED);
}

static void forget(struct connection *c)
{
	__atomic_sub_fetch(&total, __atomic_exchange_n(&c->bytes, 0, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

void cb_incoming_delivered(zmq_msg_t *last)
{
	int fd = zmq_msg_get(last, ZMQ_SRCFD);

	if (fd >= 0 && fd < FDS)
		forget(&table[fd]);
	else if (fd < 0 && zmq_msg_gets(last, "Peer-Address") != NULL) /* else it greeted as one before ZMTP 3 */
		__atomic_store_n(&max, 0, __ATOMIC_RELAXED);
}

static uint64_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static bool is_over(const struct connection *c, uint64_t limit)
{
	uint64_t bytes = __atomic_load_n(&c->bytes, __ATOMIC_RELAXED);

	return bytes > limit || (bytes > SPARED && __atomic_load_n(&total, __ATOMIC_RELAXED) > 2 * limit);
}

/* Connections that have ended hold nothing any more. */
static void sweep(void)
{
	for (int fd = 0; fd < FDS; fd++)
		if (__atomic_load_n(&table[fd].bytes, __ATOMIC_RELAXED) > 0 && inode_of(fd) != table[fd].inode)
			forget(&table[fd]);
}

/* Whoever fills what all may hold together must not cost a message that began later. */
static bool is_behind(const struct connection *c, uint64_t limit)
{
	int64_t began = __atomic_load_n(&c->began, __ATOMIC_RELAXED);

	if (__atomic_load_n(&c->bytes, __ATOMIC_RELAXED) > limit)
		return false;
	for (int fd = 0; fd < FDS; fd++)
		if (__atomic_load_n(&table[fd].bytes, __ATOMIC_RELAXED) > SPARED &&
		    __atomic_load_n(&table[fd].began, __ATOMIC_RELAXED) < began)
			return true;
	return false;
}

/* 0, or the errno that reading is answered with. */
static int judge(struct connection *c, uint64_t limit)
{
	static const struct timespec moment = { .tv_nsec = 1000000 };

	if (!is_over(c, limit)) {
		c->held = 0;
		return 0;
	}
	sweep();
	if (!is_over(c, limit))
		return 0;
	int64_t now = cb_now_ms();

	if (c->held == 0)
		c->held = now;
	if (now - c->held > LONGEST_MS || (now - c->held > PATIENCE_MS && !is_behind(c, limit))) {
		c->held = 0;
		forget(c);
		return ECONNRESET;
	}
	(void)nanosleep(&moment, NULL); /* else libzmq would ask again at once */
	return EAGAIN;
}

__attribute__((visibility("default"))) ssize_t recv(int fd, void *data, size_t len, int flags)
{
	uint64_t limit = is_loop ? 0 : __atomic_load_n(&max, __ATOMIC_RELAXED);
	bool counts = limit > 0 && fd >= 0 && len >= SMALL;
	struct connection *c = counts && fd < FDS ? &table[fd] : NULL;
	ssize_t n;

	if (c != NULL && __atomic_load_n(&c->bytes, __ATOMIC_RELAXED) > 0 && inode_of(fd) != c->inode)
		forget(c); /* the descriptor's number was another's */
	int refused = c != NULL ? judge(c, limit) : counts ? ECONNRESET : 0;

	if (refused != 0) {
		errno = refused;
		return -1;
	}
	n = syscall(SYS_recvfrom, fd, data, len, flags, NULL, NULL);
	if (c == NULL || n <= 0)
		return n;
	if (__atomic_fetch_add(&c->bytes, (uint64_t)n, __ATOMIC_RELAXED) == 0) {
		__atomic_store_n(&c->began, cb_now_ms(), __ATOMIC_RELAXED);
		c->inode = inode_of(fd);
	}
	__atomic_add_fetch(&total, (uint64_t)n, __ATOMIC_RELAXED);
	return n;
}
