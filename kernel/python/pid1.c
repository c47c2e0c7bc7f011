/* What pid 1 of the jail is told: twins, branches and signals.
 *
 * Trust domain: supervisor; see guest.c. What is told to one that ends is no error: its end is what counts. One that
 * does not send a signal in time, which somebody outside may have stopped, is the end of the jail.
 */
#include <cellblock/log.h>
#include <errno.h>
#include <sys/socket.h>

#include "kernel.h"

#define MS 1000000LL
#define SIGNAL_DEADLINE (15000 * MS) /* for pid 1 to send it, on a machine that is busy */

int cb_guest_tell_init(struct cb_kernel *k, enum cb_init_op op, int arg)
{
	return cb_guest_tell_init_of(k, op, arg, 0);
}

int cb_guest_tell_init_of(struct cb_kernel *k, enum cb_init_op op, int arg, uint32_t number)
{
	struct cb_init_msg m = { .op = op, .arg = arg, .number = number };

	if (k->guest.init < 0)
		return CB_E_CLOSED;
	if (send(k->guest.init, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		return 0;
	int r = -errno;

	if (r != -EPIPE && r != -ECONNRESET) /* it is ending */
		cb_log(CB_LOG_WARNING, "pid 1 of the jail does not take messages: %s", cb_err_name(r));
	return r;
}

void cb_guest_signal_asked(struct cb_kernel *k)
{
	if (k->guest.unsent++ == 0)
		cb_loop_arm(&k->loop, k->guest.unsent_timer, cb_now_ns() + SIGNAL_DEADLINE);
}

void cb_guest_signal_sent(struct cb_kernel *k)
{
	if (k->guest.unsent > 0 && --k->guest.unsent == 0)
		cb_loop_arm(&k->loop, k->guest.unsent_timer, 0);
}

void cb_guest_on_unsent(void *context)
{
	cb_guest_kill(context, "pid 1 of the jail does not answer");
}
