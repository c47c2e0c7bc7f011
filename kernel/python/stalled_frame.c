/* Ends a guest or a branch whose frame does not go on.
 *
 * Role: code in a cell can write to the wire; half a frame there swallows all that Python itself says after it, so the
 * cell would never end. Trust domain: supervisor. Invariants: an honest one is never ended: its frames are written by
 * one system call that goes on while we read, so the rest is only late while we do not read (also if it lies there
 * unread), or while the jail is stopped (files come back) or at work (C code that holds the interpreter's lock, or
 * others that take the processors); none of it is counted. Only where branches wait for the room that a frame holds it
 * has a minute in any case.
 */
#include "stalled_frame.h"

#include <cellblock/clock.h>
#include <sys/ioctl.h>

#include "link.h"
#include "usage.h"

#define PERIOD_S 5
#define PATIENCE_S 60 /* for one that goes on byte by byte, while others wait for the room that it holds */

void cb_stalled_frame_watch(struct cb_stalled_frame *h, const struct cb_guest_link *l, double worked_s)
{
	h->received = l->received;
	h->worked_s = worked_s;
	h->due = cb_now_ns() + PERIOD_S * 1000000000LL;
}

bool cb_stalled_frame_look(struct cb_stalled_frame *h, const struct cb_guest_link *l)
{
	bool half = l->fd >= 0 && cb_guest_link_half(l);

	if (l->big_count != h->big)
		h->since = cb_now_ns();
	h->big = l->big_count;
	if (!half)
		h->due = 0;
	return half && h->due == 0;
}

bool cb_stalled_frame_over(struct cb_stalled_frame *h, const struct cb_guest_link *l, double worked_s, bool we_read)
{
	int unread = 0;

	h->due = 0;
	if (l->fd < 0 || !cb_guest_link_half(l))
		return false;
	(void)ioctl(l->fd, FIONREAD, &unread);
	if (worked_s >= 0 && we_read && !l->waits && l->received == h->received && unread == 0 &&
	    worked_s - h->worked_s <= CB_WAIT_SHARE * PERIOD_S)
		return true;
	cb_stalled_frame_watch(h, l, worked_s);
	return false;
}

bool cb_stalled_frame_holds_up(struct cb_stalled_frame *h, const struct cb_guest_link *l, int64_t now, bool we_read,
			       int64_t *ret_when)
{
	*ret_when = 0;
	if (l->room == NULL || l->room->waiting == 0 || l->big == NULL)
		return false;
	if (!we_read)
		h->since = now;
	*ret_when = h->since + PATIENCE_S * 1000000000LL;
	return *ret_when <= now;
}
