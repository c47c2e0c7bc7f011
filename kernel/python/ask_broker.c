/* Questions to the broker whose answer comes through a pipe.
 *
 * Trust domain: supervisor. The broker writes the answer, ready made, into a pipe that it is given, and closes it: the
 * loop never waits for work on a file system. Its end of file is the end of the answer.
 */
#include "ask_broker.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "kernel.h"

int cb_ask_broker(struct cb_kernel *k, enum cb_broker_op op, uint32_t number, cb_loop_fn on_answer, int *ret_fd,
		  int *ret_slot)
{
	int pipes[2], r, slot;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -errno;
	CB_AUTO_FD mine = pipes[0];
	CB_AUTO_FD theirs = pipes[1];

	r = cb_fd_set_nonblock(mine);
	if (r == 0)
		r = cb_broker_layer(&k->guest.broker, op, number, theirs);
	if (r < 0)
		return r;
	slot = cb_loop_add(&k->loop, NULL, mine, ZMQ_POLLIN, on_answer, k);
	if (slot < 0)
		return -ENOSPC;
	*ret_slot = slot;
	*ret_fd = cb_fd_take(&mine);
	return 0;
}

bool cb_ask_broker_read(int fd, struct cb_buf *answer)
{
	static char chunk[65536];
	ssize_t n = read(fd, chunk, sizeof(chunk));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n > 0 && cb_buf_append(answer, chunk, (size_t)n) == 0)
		return false;
	if (n > 0)
		cb_buf_clear(answer);
	return true;
}
