/* Who is connected to iopub is counted. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "rig.h"

static unsigned expected;

static bool as_expected(struct rig *r)
{
	return r->k.jupyter.iopub.connected.n == expected;
}

static void until(struct rig *r, unsigned n)
{
	expected = n;
	rig_until(r, as_expected);
}

static void subscriber(struct rig *r, int number)
{
	void *s = r->peer[number] = zmq_socket(r->k.jupyter.channels.context, ZMQ_SUB);
	char url[64];

	zmq_setsockopt(s, ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", r->k.jupyter.conn.port[CB_IOPUB]);
	assert_int_equal(zmq_connect(s, url), 0);
}

static void leave(struct rig *r, int number)
{
	zmq_close(r->peer[number]);
	r->peer[number] = NULL;
}

static void test_who_comes_and_goes(void **state)
{
	struct rig *r = *state = rig_new();

	until(r, 1); /* the rig's own client */
	subscriber(r, 0);
	until(r, 2);
	subscriber(r, 1);
	until(r, 3);
	leave(r, 0);
	until(r, 2);
	leave(r, 1);
	until(r, 1);
	zmq_close(r->client[RIG_IOPUB]);
	r->client[RIG_IOPUB] = NULL;
	until(r, 0);
}

/* More than libzmq keeps of what is told: the end must not wait for its thread, which waits to tell more. */
static void test_the_end_while_nobody_reads(void **state)
{
	struct rig *r = *state = rig_new();
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)r->k.jupyter.conn.port[CB_IOPUB]),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	until(r, 1);
	for (int i = 0; i < 1050; i++) { /* two events each; what is not accepted any more stands in the backlog */
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		assert_true(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
		close(fd);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_who_comes_and_goes),
		T(test_the_end_while_nobody_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
