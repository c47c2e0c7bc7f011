/* What the guest is told: requests and their ids, answers to input(), and, by its pid 1, signals.
 *
 * Trust domain: supervisor; see guest.c. Invariants: an id is given once; the parent of a request under way is known as
 * long as it is; what a dead guest is told is no error, for its end is reported by its pidfd.
 *
 * Callers: execution.c, side.c, lanes.c, comms.c, debug.c (requests), twins_*.c and branches.c (pid 1).
 */
#include <cellblock/log.h>
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>

#include "kernel.h"

#define MS 1000000LL
#define NUDGE_FIRST (50 * MS) /* an interrupt that Python has not taken is repeated after this, then twice as long */
#define NUDGE_MAX (1000 * MS)
#define SIGNAL_DEADLINE (15000 * MS) /* for pid 1 to send it, on a machine that is busy */

/* ---- requests ---- */

/* The parent of what has no id, and those of requests under way, are not forgotten, however many follow them. */
static bool taken(const struct cb_guest *g, uint64_t id)
{
	if (id % CB_GUEST_PARENTS == g->speaker.background % CB_GUEST_PARENTS)
		return true;
	for (size_t i = 0; i < CB_LANES; i++)
		if (g->rules.beside[i].id != 0 && id % CB_GUEST_PARENTS == g->rules.beside[i].id % CB_GUEST_PARENTS)
			return true;
	return false;
}

static uint64_t give_id(struct cb_guest *g, struct cb_header *header, bool cell)
{
	while (!cell && taken(g, g->rules.last_id + 1))
		g->rules.last_id++;
	uint64_t id = ++g->rules.last_id;

	cb_speaker_remember(&g->speaker, id, header);
	if (cell || g->speaker.background < g->rules.first_id)
		g->speaker.background = id;
	return id;
}

uint64_t cb_guest_new_id(struct cb_kernel *k)
{
	return ++k->guest.rules.last_id;
}

void cb_guest_number(struct cb_kernel *k, struct cb_request *r, bool cell)
{
	r->id = give_id(&k->guest, r->header, cell);
}

size_t cb_guest_buffers(const struct cb_request *r, enum cb_wire_type type, struct cb_span buffer[CB_MAX_BUFFERS])
{
	size_t n = r->nframes - r->first_buffer;

	if (type != CB_WIRE_DOWN_COMM_OPEN && type != CB_WIRE_DOWN_COMM_MSG && type != CB_WIRE_DOWN_COMM_CLOSE)
		return 0;
	for (size_t i = 0; i < n; i++)
		buffer[i] = cb_frame_span(&r->frame[r->first_buffer + i]);
	return n;
}

int cb_guest_send_own(struct cb_kernel *k, enum cb_wire_type type, enum cb_wire_phase phase, struct cb_span content)
{
	struct cb_guest *g = &k->guest;
	uint64_t id = give_id(g, cb_guest_parent_of(k, 0)->header, false);

	cb_guest_rules_go(&g->rules, phase, id);
	int c = cb_guest_link_send(&g->link, type, id, content, CB_SPAN("{}"), NULL, 0);

	cb_guest_watch_link(k);
	return c == CB_E_CLOSED ? 0 : c;
}

int cb_guest_send_request(struct cb_kernel *k, struct cb_request *r, enum cb_wire_type type, enum cb_wire_phase phase,
			  struct cb_span content, struct cb_span metadata)
{
	struct cb_guest *g = &k->guest;
	struct cb_span buffer[CB_MAX_BUFFERS];
	size_t n = cb_guest_buffers(r, type, buffer);

	cb_guest_number(k, r, type == CB_WIRE_EXECUTE);
	cb_guest_rules_go(&g->rules, phase, r->id);
	int c = cb_guest_link_send(&g->link, type, r->id, content, metadata, buffer, n);

	cb_guest_watch_link(k);
	return c == CB_E_CLOSED ? 0 : c; /* a dead guest is reported by its pidfd */
}

int cb_guest_send_beside(struct cb_kernel *k, struct cb_request *r, enum cb_wire_type type, struct cb_span metadata,
			 const struct cb_span *buffers, size_t nbuffers)
{
	int c = cb_guest_link_send(&k->guest.link, type, r->id, r->content, metadata, buffers, nbuffers);

	cb_guest_watch_link(k);
	return c == CB_E_CLOSED ? 0 : c;
}

int cb_guest_send_input(struct cb_kernel *k, struct cb_span content)
{
	struct cb_guest *g = &k->guest;
	int r = cb_guest_link_send(&g->link, CB_WIRE_INPUT_REPLY, g->rules.current, content, CB_SPAN("{}"), NULL, 0);

	cb_guest_watch_link(k);
	return r;
}

/* ---- signals ---- */

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

static void send_signal(struct cb_kernel *k, enum cb_init_op op, int number)
{
	if (cb_guest_tell_init(k, op, number) != 0)
		return;
	k->guest.signals++;
	cb_guest_signal_asked(k);
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

void cb_guest_on_nudge(void *context)
{
	struct cb_kernel *k = context;
	struct cb_guest *g = &k->guest;

	send_signal(k, CB_INIT_NUDGE, CB_WIRE_NUDGE + (int)(g->interrupted % 2));
	if (g->nudge_after < NUDGE_MAX)
		g->nudge_after *= 2;
	cb_loop_arm(&k->loop, g->nudge_timer, cb_now_ns() + g->nudge_after);
}

void cb_guest_interrupt_again(struct cb_kernel *k)
{
	struct cb_guest *g = &k->guest;

	send_signal(k, CB_INIT_SIGNAL, SIGINT);
	g->interrupt_wanted = true;
	g->nudge_after = NUDGE_FIRST;
	cb_loop_arm(&k->loop, g->nudge_timer, cb_now_ns() + g->nudge_after);
}

void cb_guest_interrupt(struct cb_kernel *k)
{
	if (!k->guest.interrupt_wanted)
		cb_guest_interrupt_again(k);
}

void cb_guest_let_go(struct cb_kernel *k)
{
	send_signal(k, CB_INIT_NUDGE, CB_WIRE_LET_GO);
}

void cb_guest_interrupted(struct cb_kernel *k)
{
	k->guest.interrupt_wanted = false;
	cb_loop_arm(&k->loop, k->guest.nudge_timer, 0);
}

bool cb_guest_signals_on_way(const struct cb_kernel *k)
{
	return k->guest.signals > 0;
}

void cb_guest_signalled(struct cb_kernel *k)
{
	if (k->guest.signals > 0 && --k->guest.signals == 0)
		cb_loop_mark(&k->loop);
}
