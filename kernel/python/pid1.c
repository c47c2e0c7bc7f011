/* What pid 1 of the jail is told: twins, branches and signals.
 *
 * Trust domain: supervisor; see guest.c. What is told to one that ends is no error: its end is what counts. One that
 * does not send a signal in time, which somebody outside may have stopped, is the end of the jail.
 */
#include "pid1.h"

#include <cellblock/log.h>
#include <errno.h>
#include <sys/socket.h>

#include "jupyter/loop.h"

#define MS 1000000LL
#define SIGNAL_DEADLINE (15000 * MS) /* for pid 1 to send it, on a machine that is busy */

int cb_pid1_tell(struct cb_pid1 *p, enum cb_init_op op, int arg, uint32_t number)
{
	struct cb_init_msg m = { .op = op, .arg = arg, .number = number };

	if (p->fd < 0)
		return CB_E_CLOSED;
	if (send(p->fd, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		return 0;
	int r = -errno;

	if (r != -EPIPE && r != -ECONNRESET) /* it is ending */
		cb_log(CB_LOG_WARNING, "pid 1 of the jail does not take messages: %s", cb_err_name(r));
	return r;
}

void cb_pid1_signal_asked(struct cb_pid1 *p)
{
	if (p->unsent++ == 0)
		cb_loop_arm(p->loop, p->timer, cb_now_ns() + SIGNAL_DEADLINE);
}

void cb_pid1_signal_sent(struct cb_pid1 *p)
{
	if (p->unsent > 0) /* it is silent since its last word */
		cb_loop_arm(p->loop, p->timer, --p->unsent == 0 ? 0 : cb_now_ns() + SIGNAL_DEADLINE);
}
