/* Pythons: the processes of a jail that serve shells, each over a wire of its own. The guest is one, every branch is
 * another.
 *
 * Trust domain: supervisor; all that is read is hostile. What they have in common is here, what differs in a table of
 * operations (guest.c, branches.c). Invariants: every frame has passed python/policy.c before anybody acts on
 * it; an id is given once in a kernel's life; the parent of a request under way is known as long as it is; what a dead
 * one is told is no error, for its end is reported by pid 1 or its pidfd.
 */
#include "python.h"

#include <cellblock/fd.h>
#include <cellblock/json_write.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "jupyter/iopub.h"
#include "jupyter/loop.h"
#include "pid1.h"
#include "usage.h"

#define MS 1000000LL
#define NUDGE_FIRST (50 * MS) /* an interrupt that is not taken is repeated after this, then twice as long */
#define NUDGE_MAX (1000 * MS)
#define ENDING_LOOKS 20 /* for who has very much memory to give back on a busy machine */

void cb_python_init(struct cb_python *p, const struct cb_python_ops *ops, struct cb_pid1 *pid1, uint64_t *last_id)
{
	*p = (struct cb_python){ .ops = ops, .pid1 = pid1, .last_id = last_id, .twin_control = -1 };
	p->link.fd = -1;
}

int cb_python_open(struct cb_python *p, struct cb_guest_ends *ends, uint64_t max_message)
{
	int r = cb_guest_link_init(&p->link, ends->wire, cb_guest_link_tx_max(max_message));

	if (r < 0)
		return r;
	p->twin_control = ends->twin_control;
	ends->wire = ends->twin_control = -1;
	for (int i = 0; i < 2; i++) {
		p->output.out[i] = ends->out[i];
		ends->out[i] = -1;
	}
	return 0;
}

void cb_python_close(struct cb_python *p)
{
	cb_guest_link_release(&p->link);
	for (int i = 0; i < 2; i++) {
		cb_fd_close(&p->output.out[i]);
		p->output.tail_len[i] = 0;
	}
	cb_fd_close(&p->twin_control);
	p->half.due = 0;
}

/* ---- what it says ---- */

static int judge(void *context, const struct cb_wire_header *h, const char **ret_reason)
{
	struct cb_python *p = context;

	return p->ops->heard(p) ? cb_guest_policy_header(&p->rules, h, ret_reason) : CB_E_CLOSED;
}

/* Output goes out here; the rest is its owner's. */
static int act_on(struct cb_python *p, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason)
{
	if ((p->ops->drops != NULL && p->ops->drops(p, f, c)) || cb_output_frame(&p->output, f, c))
		return 0;
	return p->ops->frame(p, f, c, ret_reason);
}

static int take_frame(void *context, struct cb_frame *f, const char **ret_reason)
{
	struct cb_python *p = context;
	struct cb_guest_content content;
	int r = p->ops->heard(p) ? cb_guest_policy_content(f, &content, ret_reason) : CB_E_CLOSED;

	return r < 0 ? r : act_on(p, f, &content, ret_reason);
}

static void look_for_half(struct cb_python *p)
{
	int64_t due = p->half.due;

	if (cb_stalled_frame_look(&p->half, &p->link))
		cb_stalled_frame_watch(&p->half, &p->link, p->ops->worked(p));
	if (p->half.due != due)
		p->ops->arm(p);
}

static void wire_closed(struct cb_python *p)
{
	p->ending_looks = 0;
	p->ops->unwatch(p);
	p->ops->closed(p);
}

void cb_python_flush(struct cb_python *p)
{
	if (cb_guest_link_flush(&p->link) < 0) { /* what it said before its end is still to be read */
		cb_guest_link_drop(&p->link);
		p->ending_looks = 0;
		p->ops->closed(p);
	}
	p->ops->watch(p);
}

void cb_python_read(struct cb_python *p, size_t budget)
{
	const char *reason = "";
	bool waited = p->link.waits;
	int r = cb_guest_link_receive(&p->link, budget, judge, take_frame, p, &reason);
	char why[256];

	if (p->link.waits != waited && p->link.fd >= 0)
		p->ops->watch(p);
	if (r == 0) {
		look_for_half(p);
		return;
	}
	if (r == CB_E_CLOSED) {
		wire_closed(p);
		return;
	}
	p->ops->unwatch(p);
	snprintf(why, sizeof(why), "%s (%s)", reason, cb_err_name(r));
	p->ops->broke(p, why);
}

void cb_python_end_text(int status, char *ret_text, size_t size)
{
	if (WIFSTOPPED(status))
		snprintf(ret_text, size, "Python was stopped by signal %d (%s) and killed", WSTOPSIG(status),
			 strsignal(WSTOPSIG(status)));
	else if (WIFSIGNALED(status))
		snprintf(ret_text, size, "Python was killed by signal %d (%s)%s", WTERMSIG(status),
			 strsignal(WTERMSIG(status)),
			 WTERMSIG(status) == SIGKILL  ? ", by itself or by the host for lack of memory"
			 : WTERMSIG(status) == SIGSYS ? ": it made a system call of a foreign architecture"
						      : "");
	else
		snprintf(ret_text, size, "Python exited with status %d", WEXITSTATUS(status));
}

/* A part of its memory goes after its descriptors. */
bool cb_python_is_ending(struct cb_python *p)
{
	struct cb_usage_process now;

	return p->ending_looks++ < ENDING_LOOKS && cb_usage_process(p->pid, &now) && now.exiting;
}

/* ---- what it is told ---- */

/* The parent of what has no id, and those of requests under way, are not forgotten, however many follow them. A cell
 * becomes the parent of what has no id. */
static bool taken(const struct cb_python *p, uint64_t id, bool cell)
{
	size_t n = p->output.nparents;

	if (!cell && id % n == p->output.background % n)
		return true;
	if (p->rules.current != 0 && id % n == p->rules.current % n)
		return true;
	for (size_t i = 0; i < CB_LANES; i++)
		if (p->rules.beside[i].id != 0 && id % n == p->rules.beside[i].id % n)
			return true;
	return false;
}

uint64_t cb_python_give_id(struct cb_python *p, struct cb_header *header, bool cell)
{
	uint64_t id;

	do
		id = ++*p->last_id;
	while (taken(p, id, cell));
	cb_output_remember(&p->output, id, header);
	if (cell || p->output.background < p->rules.first_id)
		p->output.background = id;
	p->rules.last_id = id;
	return id;
}

static int send(struct cb_python *p, enum cb_wire_type type, uint64_t id, struct cb_span content, struct cb_span about,
		const struct cb_span *buffers, size_t n)
{
	int c = cb_guest_link_send(&p->link, type, id, content, about, buffers, n);

	p->ops->watch(p);
	return c == CB_E_CLOSED ? 0 : c;
}

size_t cb_python_buffers(const struct cb_request *r, enum cb_wire_type type, struct cb_span buffer[CB_MAX_BUFFERS])
{
	size_t n = r->nframes - r->first_buffer;

	if (type != CB_WIRE_DOWN_COMM_OPEN && type != CB_WIRE_DOWN_COMM_MSG && type != CB_WIRE_DOWN_COMM_CLOSE)
		return 0;
	for (size_t i = 0; i < n; i++)
		buffer[i] = cb_frame_span(&r->frame[r->first_buffer + i]);
	return n;
}

int cb_python_send_beside(struct cb_python *p, const struct cb_request *r, enum cb_wire_type type, struct cb_span about)
{
	struct cb_span buffer[CB_MAX_BUFFERS];
	size_t n = cb_python_buffers(r, type, buffer);

	return send(p, type, r->id, r->content, about, buffer, n);
}

int cb_python_send(struct cb_python *p, struct cb_request *r, enum cb_wire_type type, enum cb_wire_phase phase,
		   struct cb_span about)
{
	r->id = cb_python_give_id(p, r->header, phase == CB_PHASE_EXECUTING);
	cb_guest_rules_go(&p->rules, phase, r->id);
	return cb_python_send_beside(p, r, type, about);
}

int cb_python_ask(struct cb_python *p, enum cb_wire_type type, enum cb_wire_phase phase, struct cb_header *header,
		  struct cb_span content)
{
	uint64_t id = cb_python_give_id(p, header, false);

	cb_guest_rules_go(&p->rules, phase, id);
	int r = send(p, type, id, content, CB_SPAN("{}"), NULL, 0);

	if (r < 0) /* nothing was asked */
		cb_guest_rules_go(&p->rules, CB_PHASE_IDLE, 0);
	return r;
}

int cb_python_input(struct cb_python *p, int64_t question, struct cb_span content)
{
	CB_JSON_SMALL(about, "question", question);

	return send(p, CB_WIRE_INPUT_REPLY, p->rules.current, content, cb_buf_span(&about), NULL, 0);
}

/* ---- interrupts ---- */

static void signal_it(struct cb_python *p, enum cb_init_op op, int number)
{
	if (cb_pid1_tell(p->pid1, op, number, p->number) != 0)
		return;
	p->signals++;
	cb_pid1_signal_asked(p->pid1);
}

static void interrupt(struct cb_python *p)
{
	signal_it(p, CB_INIT_SIGNAL, SIGINT);
	p->nudge_after = NUDGE_FIRST;
	p->nudge_at = cb_now_ns() + p->nudge_after;
	p->ops->arm(p);
}

static void nudge(struct cb_python *p, int64_t now)
{
	signal_it(p, CB_INIT_NUDGE, CB_WIRE_NUDGE + (int)(p->interrupted % 2));
	if (p->nudge_after < NUDGE_MAX)
		p->nudge_after *= 2;
	p->nudge_at = now + p->nudge_after;
}

void cb_python_interrupt(struct cb_python *p)
{
	p->repeated = false;
	if (p->nudge_at == 0) /* else one is on its way */
		interrupt(p);
}

void cb_python_interrupt_no_more(struct cb_python *p)
{
	p->nudge_at = 0;
	p->ops->arm(p);
}

bool cb_python_interrupted(struct cb_python *p, const struct cb_request *runs, uint64_t request)
{
	p->interrupted++;
	if (runs == NULL || (request != 0 && request == runs->id)) {
		cb_python_interrupt_no_more(p);
		return true;
	}
	/* The signal was for what came before; or it overtook the request on its way: Python was idle, or not quite
	 * done with what came before, and let it pass. Then once more at once, which may be too early again; and the
	 * nudges go on. */
	if (p->nudge_at != 0 && !p->repeated)
		interrupt(p);
	p->repeated = true;
	return false;
}

void cb_python_let_go(struct cb_python *p)
{
	signal_it(p, CB_INIT_NUDGE, CB_WIRE_LET_GO);
}

void cb_python_signalled(struct cb_python *p)
{
	if (p->signals > 0 && --p->signals == 0)
		cb_loop_mark(p->pid1->loop);
}

/* ---- time ---- */

void cb_python_due(struct cb_python *p, int64_t *when)
{
	int64_t patience;

	cb_sooner(when, p->nudge_at);
	cb_sooner(when, p->half.due);
	(void)cb_stalled_frame_holds_up(&p->half, &p->link, cb_now_ns(), !cb_iopub_congested(p->output.jupyter),
					&patience);
	cb_sooner(when, patience);
}

void cb_python_look(struct cb_python *p, int64_t now)
{
	bool we_read = !cb_iopub_congested(p->output.jupyter);
	int64_t patience;

	if (p->nudge_at != 0 && p->nudge_at <= now)
		nudge(p, now);
	if (p->half.due != 0 && p->half.due <= now &&
	    cb_stalled_frame_over(&p->half, &p->link, p->ops->worked(p), we_read))
		p->ops->broke(p, CB_STALLED_FRAME);
	else if (cb_stalled_frame_holds_up(&p->half, &p->link, now, we_read, &patience))
		p->ops->broke(p, CB_SLOW_FRAME);
}
