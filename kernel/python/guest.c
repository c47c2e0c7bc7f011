/* Life of the guest.
 *
 * Trust domain: supervisor; everything that arrives here is hostile. Invariants: one jail at a time; a new one is asked
 * for only after the old one's pid 1 has ended, and then nothing of the old one is open any more; a guest that breaks a
 * rule is killed, reported, and replaced. Death is believed only of the pidfd.
 */
#include "guest.h"

#include <cellblock/fd.h>
#include <cellblock/json_write.h>
#include <cellblock/log.h>
#include <cellblock/states.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "guest_output.h"
#include "jupyter/jupyter.h"
#include "jupyter/loop.h"
#include "policy/policy.h"
#include "records/audit_events.h"

#define MS 1000000LL
#define START_DEADLINE (60000 * MS) /* spawn to HELLO; a cold disk may be slow */
#define END_DEADLINE (5000 * MS)    /* kill to the end of pid 1 */
#define NOTICE_DEADLINE (1000 * MS) /* end of pid 1 to the broker's notice of it */
#define READ_BUDGET (64u << 10)	    /* bytes of frames a turn, then others are heard: one read, or two */
#define PACED_BUDGET (16u << 10)    /* looked at more often where output is not to go too fast */
#define BIT(state) (1u << (CB_GUEST_##state))

static const struct cb_states states = { "the guest",
					 { [CB_GUEST_NONE] = { "none", BIT(NONE) | BIT(SPAWNING) },
					   [CB_GUEST_SPAWNING] = { "spawning", BIT(STARTING) | BIT(NONE) },
					   [CB_GUEST_STARTING] = { "starting", BIT(UP) | BIT(ENDING) },
					   [CB_GUEST_UP] = { "up", BIT(RESTORING) | BIT(ENDING) },
					   [CB_GUEST_RESTORING] = { "restoring",
								    BIT(UP) | BIT(RESTORING) | BIT(ENDING) },
					   [CB_GUEST_ENDING] = { "ending", BIT(ENDING) | BIT(NONE) } } };

void cb_guest_go(struct cb_guest *g, enum cb_guest_state to)
{
	CB_STATE_GO(&states, &g->state, to);
}

/* Those that a twin has its own of. */
static void close_ends(struct cb_guest *g)
{
	cb_loop_remove(g->loop, &g->link_slot);
	cb_side_close(&g->side);
	for (int i = 0; i < 2; i++)
		cb_loop_remove(g->loop, &g->out_slot[i]);
	cb_python_close(&g->python);
}

static void close_channels(struct cb_guest *g)
{
	close_ends(g);
	g->keeper->jail_gone(g->kept);
	cb_loop_remove(g->loop, &g->log_slot);
	cb_fd_close(&g->log);
	cb_loop_remove(g->loop, &g->init_slot);
	cb_fd_close(&g->pid1.fd);
	cb_loop_remove(g->loop, &g->pidfd_slot);
	cb_fd_close(&g->pidfd);
	cb_usage_close(&g->usage);
	cb_loop_arm(g->loop, g->deadline_timer, 0);
	cb_loop_arm(g->loop, g->resume_timer, 0);
	cb_python_interrupt_no_more(&g->python);
	cb_loop_arm(g->loop, g->pid1.timer, 0);
	g->python.signals = g->pid1.unsent = 0;
}

static void start_failed(struct cb_guest *g)
{
	close_channels(g);
	cb_guest_go(g, CB_GUEST_NONE);
	g->failed_starts++;
	cb_log(CB_LOG_WARNING, "jail not started: %s: %s", g->failure.step, g->failure.text);
	cb_audit_jail_failed(g->records, &g->failure);
	g->events->failed(g->kernel);
}

static struct cb_guest *of(const struct cb_python *p)
{
	return (struct cb_guest *)(uintptr_t)p;
}

static bool heard(const struct cb_python *p)
{
	return of(p)->verdict[0] == '\0';
}

void cb_guest_broke_rules(struct cb_guest *g, const char *why)
{
	cb_log(CB_LOG_WARNING, "guest broke the wire protocol: %s", why);
	cb_audit_denied(g->records, "guest", why);
	if (g->state == CB_GUEST_RESTORING && g->python.rules.phase != CB_PHASE_WAKING) { /* another is on its way */
		cb_loop_remove(g->loop, &g->link_slot);
		return;
	}
	g->events->broke(g->kernel);
	cb_guest_stop(g, why);
}

/* ---- what it says ---- */

static int hello(struct cb_guest *g, const struct cb_guest_content *c, const char **ret_reason)
{
	*ret_reason = "wire_version is not this supervisor's";
	if (!(c->wire_version.len == 1 && c->wire_version.data[0] == '0' + CB_WIRE_VERSION))
		return CB_E_SYNTAX;
	cb_guest_go(g, CB_GUEST_UP);
	g->changes = true;
	g->side.served = c->side;
	cb_guest_set_idle(g);
	g->failed_starts = 0;
	g->failure.code = 0;
	cb_loop_arm(g->loop, g->deadline_timer, 0);
	cb_log(CB_LOG_INFO, "guest ready: %.*s, python %.*s", (int)c->implementation.len, c->implementation.data,
	       (int)c->python_version.len, c->python_version.data);
	if (c->missing_paths.data != NULL && c->missing_paths.len > 2)
		cb_log(CB_LOG_WARNING, "search-path entries outside the jail: %.*s",
		       (int)(c->missing_paths.len < 1000 ? c->missing_paths.len : 1000), c->missing_paths.data);
	g->events->up(g->kernel);
	return 0;
}

static int frame(struct cb_python *p, struct cb_frame *f, const struct cb_guest_content *c, const char **ret_reason)
{
	struct cb_guest *g = of(p);

	if (g->state == CB_GUEST_ENDING && (f->header.type == CB_WIRE_HELLO || f->header.type == CB_WIRE_RESUMED))
		return 0; /* that it serves is read after its end */
	if (f->header.type == CB_WIRE_RESUMED)
		g->side.served = c->side;
	return f->header.type == CB_WIRE_HELLO ? hello(g, c, ret_reason)
					       : g->events->frame(g->kernel, f, c, ret_reason);
}

static void watch(struct cb_python *p)
{
	cb_loop_set_events(of(p)->loop, of(p)->link_slot, cb_guest_link_events(&p->link));
}

static void unwatch(struct cb_python *p)
{
	cb_loop_remove(of(p)->loop, &of(p)->link_slot);
}

/* Its end, which pid 1 and the pidfd report; if it lives on, it can't be served. */
static void closed(struct cb_python *p)
{
	struct cb_guest *g = of(p);

	if (g->state == CB_GUEST_STARTING || g->state == CB_GUEST_UP)
		cb_loop_arm(g->loop, g->deadline_timer, cb_now_ns() + CB_LINK_CLOSED_NS);
	if (g->state == CB_GUEST_RESTORING && p->rules.phase == CB_PHASE_WAKING)
		g->keeper->woken_closed(g->kept);
}

/* In the last words of a dead one nothing is a fault. */
static void broke(struct cb_python *p, const char *why)
{
	if (of(p)->state != CB_GUEST_RESTORING || p->rules.phase == CB_PHASE_WAKING)
		cb_guest_broke_rules(of(p), why);
}

static void arm(struct cb_python *p)
{
	int64_t when = 0;

	cb_python_due(p, &when);
	cb_loop_arm(of(p)->loop, of(p)->python_timer, when);
}

double cb_guest_worked(const struct cb_guest *g)
{
	return g->state == CB_GUEST_UP ? cb_usage_jail_cpu(&g->usage) : -1;
}

enum cb_oom cb_guest_oom(const struct cb_guest *g, const struct cb_oom_count *before, const struct cb_oom_count *after)
{
	return cb_oom_between(before, after, g->level > CB_LEVEL_CONTAINER);
}

static double worked(const struct cb_python *p)
{
	return cb_guest_worked(of(p));
}

static void on_python_timer(void *context)
{
	struct cb_guest *g = context;

	cb_python_look(&g->python, cb_now_ns());
	arm(&g->python);
}

static const struct cb_python_ops ops = {
	.heard = heard,
	.frame = frame,
	.watch = watch,
	.unwatch = unwatch,
	.closed = closed,
	.broke = broke,
	.arm = arm,
	.worked = worked,
};

static void on_link(void *context, short revents)
{
	struct cb_guest *g = context;
	struct cb_python *p = &g->python;

	if (revents & ZMQ_POLLOUT)
		cb_python_flush(p);
	if (!heard(p)) /* condemned: what it says, also the rest of a big frame, is not heard */
		unwatch(p);
	else if (revents & (ZMQ_POLLIN | ZMQ_POLLERR))
		cb_python_read(p, g->jupyter->iopub.paced ? PACED_BUDGET : READ_BUDGET);
	cb_guest_pause_if_congested(g);
}

int cb_guest_ask(struct cb_guest *g, enum cb_wire_type type, enum cb_wire_phase phase, struct cb_span content)
{
	struct cb_python *p = &g->python;

	g->asked++;
	return cb_python_ask(p, type, phase, cb_output_parent(&p->output, 0)->header, content);
}

/* ---- birth ---- */

void cb_guest_listen(struct cb_guest *g)
{
	/* the loop looks in this order: what a child process wrote comes before what Python says after it */
	g->out_slot[0] = cb_loop_add(g->loop, NULL, g->python.output.out[0], ZMQ_POLLIN, cb_guest_on_stdout, g);
	g->out_slot[1] = cb_loop_add(g->loop, NULL, g->python.output.out[1], ZMQ_POLLIN, cb_guest_on_stderr, g);
	g->link_slot = cb_loop_add(g->loop, NULL, g->python.link.fd, ZMQ_POLLIN, on_link, g);
	cb_side_watch(&g->side);
}

/* They are taken in any case. */
static int take_ends(struct cb_guest *g, struct cb_guest_ends *ends)
{
	int r = cb_python_open(&g->python, ends, g->policy->limit_message);

	if (r == 0)
		r = cb_side_open(&g->side, ends->side, cb_guest_link_tx_max(g->policy->limit_message));
	if (r == 0)
		ends->side = -1;
	cb_guest_ends_close(ends);
	return r;
}

static int make_channels(struct cb_guest *g, int child[CB_SPAWN_NFDS])
{
	static const int index[CB_BIRTH_NFDS] = { [CB_BIRTH_WIRE] = CB_SPAWN_WIRE,
						  [CB_BIRTH_STDOUT] = CB_SPAWN_STDOUT,
						  [CB_BIRTH_STDERR] = CB_SPAWN_STDERR,
						  [CB_BIRTH_TWIN_CONTROL] = CB_SPAWN_TWIN_CONTROL,
						  [CB_BIRTH_SIDE] = CB_SPAWN_SIDE };
	int theirs[CB_BIRTH_NFDS], init[2], log[2];
	struct cb_guest_ends ends;
	int r = cb_guest_ends_make(&ends, theirs);

	if (r < 0)
		return r;
	for (int i = 0; i < CB_BIRTH_NFDS; i++)
		child[index[i]] = theirs[i];
	r = take_ends(g, &ends);
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, init) < 0)
		return -errno;
	g->pid1.fd = init[0];
	child[CB_SPAWN_LINK] = init[1];
	if (pipe2(log, O_CLOEXEC) < 0)
		return -errno;
	g->log = log[0];
	child[CB_SPAWN_LOG] = log[1];
	r = cb_fd_set_nonblock(g->log);
	return r < 0 ? r : cb_fd_set_nonblock(g->pid1.fd);
}

void cb_guest_want(struct cb_guest *g)
{
	int child[CB_SPAWN_NFDS] = { [0 ... CB_SPAWN_NFDS - 1] = -1 };

	if (g->state != CB_GUEST_NONE || g->telling)
		return;
	int r = g->broker.fd >= 0 ? make_channels(g, child) : CB_E_CLOSED;

	if (r == 0)
		r = cb_broker_spawn(&g->broker, g->generation + 1, child);
	for (int i = 0; i < CB_SPAWN_NFDS; i++)
		cb_fd_close(&child[i]);
	if (r < 0) {
		if (g->broker.fd >= 0 || g->failure.code == 0)
			cb_err_set(&g->failure, r, "broker", "Restart the kernel.",
				   "the process that builds jails does not answer: %s", cb_err_name(r));
		start_failed(g);
		return;
	}
	cb_guest_go(g, CB_GUEST_SPAWNING);
	g->generation++;
	g->exited = g->terminates = g->given_up = g->retired = g->end_known = g->end_awaited = false;
	g->python.output.last[0] = '\0';
	g->verdict[0] = g->cause[0] = '\0';
	g->over_memory = 0;
	g->asked = 0;
	g->python.interrupted = 0;
	g->python.rules = (struct cb_guest_rules){ .phase = CB_PHASE_STARTING,
						   .first_id = g->last_id + 1,
						   .last_id = g->last_id,
						   .max_message = g->policy->limit_message };
	cb_loop_arm(g->loop, g->deadline_timer, cb_now_ns() + START_DEADLINE);
	cb_loop_mark(g->loop);
}

static void on_init(void *context, short revents);
static void on_pidfd(void *context, short revents);
static void ended(struct cb_guest *g);

static void spawned(struct cb_guest *g, const struct cb_broker_reply *reply, int pidfd, const int usage[CB_USAGE_NFDS])
{
	cb_guest_go(g, CB_GUEST_STARTING);
	g->jail = reply->jail;
	g->python.pid = reply->guest_pid;
	g->pidfd = pidfd;
	snprintf(g->note, sizeof(g->note), "%s", reply->note);
	snprintf(g->limits, sizeof(g->limits), "%s", reply->limits);
	g->level = (enum cb_isolation_level)reply->level;
	cb_usage_open(&g->usage, g->python.pid, usage);
	g->usage.limit = g->policy->limit_memory;
	/* order of service: frames, then raw output, then the end */
	cb_guest_listen(g);
	g->log_slot = cb_loop_add(g->loop, NULL, g->log, ZMQ_POLLIN, cb_guest_on_log, g);
	g->init_slot = cb_loop_add(g->loop, NULL, g->pid1.fd, ZMQ_POLLIN, on_init, g);
	g->pidfd_slot = cb_loop_add(g->loop, NULL, g->pidfd, ZMQ_POLLIN, on_pidfd, g);
	cb_log(CB_LOG_INFO, "jail %u started: guest pid %d, %s, level %u, %s", reply->jail, (int)g->python.pid,
	       reply->warm != 0 ? "warm" : "cold", reply->level, reply->limits);
	cb_audit_jail(g->records, g->generation, reply->level, reply->limits, reply->note);
}

static void on_broker(void *context, short revents)
{
	struct cb_guest *g = context;
	struct cb_broker_reply reply;
	int pidfd = -1, usage[CB_USAGE_NFDS] = { [0 ... CB_USAGE_NFDS - 1] = -1 };
	int r = cb_broker_recv(&g->broker, &reply, &pidfd, usage);

	(void)revents;
	if (r == -EAGAIN)
		return;
	if (r < 0) {
		cb_log(CB_LOG_ERROR, "broker: %s", cb_err_name(r));
		cb_loop_remove(g->loop, &g->broker_slot);
		cb_broker_stop(&g->broker);
		cb_err_set(&g->failure, r, "broker", "Restart the kernel.", "the process that builds jails has ended");
		if (g->state == CB_GUEST_SPAWNING)
			start_failed(g);
		/* a running jail dies with its broker; a kernel that can have no other makes room for a new kernel */
		cb_guest_kill(g, "the process that builds jails has ended");
		g->events->no_broker(g->kernel);
		return;
	}
	if (reply.event == CB_BROKER_MEMORY) {
		if (reply.jail == g->jail)
			g->keeper->memory(g->kept, &reply);
		return;
	}
	if (reply.event == CB_BROKER_ENDED) {
		if (reply.jail != g->jail || g->pidfd < 0)
			return; /* one that was given up */
		g->end = reply;
		g->end_known = true;
		if (g->end_awaited)
			ended(g);
		return;
	}
	if (g->state != CB_GUEST_SPAWNING || reply.number != g->generation) { /* too late: given up */
		if (reply.code == 0)
			(void)cb_broker_kill(&g->broker, reply.jail);
		cb_fd_close(&pidfd);
		for (int i = 0; i < CB_USAGE_NFDS; i++)
			cb_fd_close(&usage[i]);
		return;
	}
	if (reply.code == 0) {
		spawned(g, &reply, pidfd, usage);
		return;
	}
	cb_err_set(&g->failure, reply.code, reply.step, reply.cure, "%s", reply.text);
	start_failed(g);
}

/* ---- death ---- */

/* With a twin in the jail pid 1 waits for what we say. */
static void exited(struct cb_guest *g, int status)
{
	if (g->keeper->other_exited(g->kept, status))
		return;
	g->exited = true;
	g->wait_status = status;
	if (g->state == CB_GUEST_RESTORING || g->keeper->take_over(g->kept))
		return;
	g->terminates = true;
	(void)cb_pid1_tell(&g->pid1, CB_INIT_TERMINATE, 0, 0);
}

static void on_init(void *context, short revents)
{
	struct cb_guest *g = context;
	struct cb_init_msg m;
	ssize_t n = recv(g->pid1.fd, &m, sizeof(m), MSG_DONTWAIT);

	(void)revents;
	if (n == (ssize_t)sizeof(m) && m.op == CB_INIT_SIGNALLED)
		cb_pid1_signal_sent(&g->pid1);
	if (n == (ssize_t)sizeof(m) && m.op == CB_INIT_EXITED)
		exited(g, m.arg);
	else if (n == (ssize_t)sizeof(m) && m.op == CB_INIT_SIGNALLED && m.number == 0)
		cb_python_signalled(&g->python);
	else if (n == (ssize_t)sizeof(m))
		g->events->pid1_said(g->kernel, &m);
	else if (n >= 0 || (errno != EAGAIN && errno != EINTR))
		cb_loop_remove(g->loop, &g->init_slot);
}

/* pid 1 has ended, and with it everything in its pid namespace. Why, the broker is about to say. */
static void on_pidfd(void *context, short revents)
{
	struct cb_guest *g = context;

	(void)revents;
	if (g->end_known || g->broker.fd < 0) {
		ended(g);
		return;
	}
	g->end_awaited = true;
	cb_loop_remove(g->loop, &g->pidfd_slot);
	cb_loop_arm(g->loop, g->deadline_timer, cb_now_ns() + NOTICE_DEADLINE);
}

/* Python ended before it was ready. If an earlier one could change what it is made of, it may be for that: once, the
 * next is started without those changes, and its first cell says so. */
static void drop_packages(struct cb_guest *g)
{
	if (g->given_up || !g->changes || g->shutting_down ||
	    g->policy->packages_mode != CB_PACKAGES_SESSION || cb_broker_tell(&g->broker, CB_BROKER_DROP) < 0)
		return;
	cb_log(CB_LOG_WARNING, "Python did not start with what was installed in this session: it is dropped");
	g->changes = false;
	g->given_up = true;
}

/* What the dead have said is all there is. */
void cb_guest_last_words(struct cb_guest *g)
{
	if (g->link_slot >= 0 && g->verdict[0] == '\0')
		cb_python_read(&g->python, 64u << 20);
	cb_output_drain(&g->python.output);
}

/* How it ended, and what it said last, on one line. */
static void explain_start(struct cb_guest *g)
{
	char how[256] = "the jail was ended", said[CB_OUTPUT_LAST + 1], *to = said;
	const char *from = g->python.output.last;
	bool gap = false;

	if (g->verdict[0] != '\0')
		snprintf(how, sizeof(how), "%s", g->verdict);
	else if (g->exited)
		cb_python_end_text(g->wait_status, how, sizeof(how));
	while (((unsigned char)*from & 0xc0) == 0x80) /* the rest of a character that is cut off */
		from++;
	for (; *from != '\0'; from++) {
		bool shown = (unsigned char)*from > ' ' && *from != '\x7f';

		if (shown && gap && to > said)
			*to++ = ' ';
		if (shown)
			*to++ = *from;
		gap = !shown;
	}
	*to = '\0';
	cb_err_set(&g->failure, CB_E_CLOSED, "start of the interpreter",
		   "Run that Python with the same settings outside; the kernel's log (--log-level info) says more.",
		   "the interpreter ended before it was ready: %s%s%s", how, to > said ? "; it said last: " : "", said);
}

static void ended(struct cb_guest *g)
{
	bool was_up = g->state == CB_GUEST_UP || g->state == CB_GUEST_RESTORING;
	bool was_starting = g->state == CB_GUEST_STARTING ||
			    (g->state == CB_GUEST_ENDING && g->python.rules.phase == CB_PHASE_STARTING);
	struct pollfd more = { .fd = g->pid1.fd, .events = POLLIN };

	g->end_awaited = false;
	cb_guest_go(g, CB_GUEST_ENDING); /* nobody can take over any more */
	while (g->init_slot >= 0 && poll(&more, 1, 0) > 0)
		on_init(g, ZMQ_POLLIN);
	cb_guest_last_words(g);
	while (g->log_slot >= 0 && g->log >= 0) {
		int waiting = 0;

		if (ioctl(g->log, FIONREAD, &waiting) < 0 || waiting <= 0)
			break;
		cb_guest_on_log(g, ZMQ_POLLIN);
	}
	close_channels(g);
	if (was_starting)
		drop_packages(g);
	if (!g->given_up && was_starting)
		g->failed_starts++;
	else
		g->failed_starts = 0;
	cb_guest_go(g, CB_GUEST_NONE);
	cb_guest_rules_go(&g->python.rules, CB_PHASE_STARTING, 0);
	cb_log(CB_LOG_INFO, "jail %u ended", g->jail);
	g->restarted = true;
	if (!was_up && g->failed_starts > 0)
		explain_start(g);
	g->telling = true;
	g->events->died(g->kernel);
	g->telling = g->given_up = false;
	/* no endless loop: after a failed start, or if guests die that nobody gave work, only a request tries again */
	g->idle_deaths = g->python.rules.last_id < g->python.rules.first_id + g->asked ? g->idle_deaths + 1 : 0;
	if (!g->shutting_down && g->failed_starts == 0 &&
	    ((g->idle_deaths < CB_IDLE_DEATHS && !g->retired) || g->events->wanted(g->kernel)))
		cb_guest_want(g);
	else
		g->events->failed(g->kernel);
}

static void on_deadline(void *context)
{
	struct cb_guest *g = context;

	if (g->end_awaited) {
		ended(g);
		return;
	}
	switch (g->state) {
	case CB_GUEST_SPAWNING:
		cb_err_set(&g->failure, -ETIMEDOUT, "broker", "Restart the kernel.", "no jail came within %d seconds",
			   (int)(START_DEADLINE / (1000 * MS)));
		start_failed(g);
		break;
	case CB_GUEST_STARTING:
		cb_guest_kill(g, g->link_slot < 0 ? "the interpreter closed its wire"
						  : "the interpreter was not ready in time");
		break;
	case CB_GUEST_UP:
		if (g->terminates) /* not `exited`, which may be the end of the one before it */
			break;
		if (cb_python_is_ending(&g->python)) {
			cb_loop_arm(g->loop, g->deadline_timer, cb_now_ns() + CB_LINK_CLOSED_NS);
			break;
		}
		g->events->broke(g->kernel);
		cb_guest_stop(g, "it closed its wire");
		break;
	case CB_GUEST_RESTORING: /* twins.c has a clock of its own */
		break;
	case CB_GUEST_ENDING:
		/* the kernel owes us this death: ask again, also pid 1 for a broker that is stopped, and wait on */
		(void)cb_broker_kill(&g->broker, g->jail);
		(void)cb_pid1_tell(&g->pid1, CB_INIT_TERMINATE, 0, 0);
		cb_loop_arm(g->loop, g->deadline_timer, cb_now_ns() + END_DEADLINE);
		break;
	case CB_GUEST_NONE:
		break;
	}
}

void cb_guest_kill(struct cb_guest *g, const char *verdict)
{
	if ((g->state != CB_GUEST_STARTING && g->state != CB_GUEST_UP && g->state != CB_GUEST_RESTORING) ||
	    g->end_awaited)
		return;
	if (g->state == CB_GUEST_RESTORING) /* why it ended is known; a twin that did not take over is not heard */
		cb_loop_remove(g->loop, &g->link_slot);
	if (g->verdict[0] == '\0' && !(g->state == CB_GUEST_RESTORING && (g->exited || g->cause[0] != '\0')))
		snprintf(g->verdict, sizeof(g->verdict), "%s", verdict);
	cb_guest_go(g, CB_GUEST_ENDING);
	(void)cb_broker_kill(&g->broker, g->jail);
	cb_loop_arm(g->loop, g->deadline_timer, cb_now_ns() + END_DEADLINE);
}

void cb_guest_stop(struct cb_guest *g, const char *verdict)
{
	bool another = g->state == CB_GUEST_UP || g->state == CB_GUEST_RESTORING;

	if (another && g->verdict[0] == '\0')
		snprintf(g->verdict, sizeof(g->verdict), "%s", verdict);
	if (!another || !g->keeper->take_over(g->kept))
		cb_guest_kill(g, verdict);
}

/* ---- take-over ---- */

void cb_guest_restoring(struct cb_guest *g)
{
	cb_guest_go(g, CB_GUEST_RESTORING);
	cb_loop_arm(g->loop, g->deadline_timer, 0);
	cb_python_interrupt_no_more(&g->python);
}

int cb_guest_become(struct cb_guest *g, struct cb_guest_ends *ends, pid_t pid)
{
	int r;

	if (g->verdict[0] != '\0') /* else it is one that took over in vain */
		memcpy(g->cause, g->verdict, sizeof(g->cause));
	g->verdict[0] = '\0'; /* the new one is not condemned */
	g->python.interrupted = 0;
	memset(g->python.rules.beside, 0, sizeof(g->python.rules.beside)); /* nor asked for anything */
	close_ends(g);
	r = take_ends(g, ends);
	if (r < 0)
		return r;
	g->python.pid = pid;
	cb_usage_follow(&g->usage, pid);
	return 0;
}

void cb_guest_forget_end(struct cb_guest *g)
{
	g->exited = false;
	g->cause[0] = '\0';
	g->over_memory = 0;
}

/* ---- rest and end by request ---- */

void cb_guest_set_idle(struct cb_guest *g)
{
	cb_guest_rules_go(&g->python.rules, CB_PHASE_IDLE, 0);
}

void cb_guest_give_up_start(struct cb_guest *g)
{
	if (g->state != CB_GUEST_STARTING)
		return;
	g->given_up = true;
	cb_guest_kill(g, "interrupted while it was starting");
}

/* One that is just keeping its state takes the word when it has done so. */
static bool ask_to_end(struct cb_guest *g, bool restart)
{
	CB_JSON_SMALL(content, "restart", restart);

	return g->state == CB_GUEST_UP && (g->python.rules.phase & (CB_PHASE_IDLE | CB_PHASE_FORKING)) &&
	       cb_guest_link_send(&g->python.link, CB_WIRE_SHUTDOWN, 0, cb_buf_span(&content), CB_SPAN("{}"), NULL,
				  0) == 0;
}

void cb_guest_retire(struct cb_guest *g)
{
	if (g->state != CB_GUEST_STARTING && g->state != CB_GUEST_UP && g->state != CB_GUEST_RESTORING)
		return;
	cb_log(CB_LOG_INFO, "jail %u is not used (timeout.idle): it ends", g->jail);
	g->retired = true;
	if (!ask_to_end(g, false)) {
		g->given_up = g->state == CB_GUEST_STARTING;
		cb_guest_kill(g, "not used");
		return;
	}
	watch(&g->python);
	cb_guest_go(g, CB_GUEST_ENDING);
	cb_loop_arm(g->loop, g->deadline_timer, cb_now_ns() + CB_LINK_CLOSED_NS);
}

void cb_guest_shutdown(struct cb_guest *g, bool restart)
{
	if (!ask_to_end(g, restart))
		cb_guest_kill(g, "the kernel was shut down");
}

/* ---- module ---- */

static void on_unsent(void *context)
{
	cb_guest_kill(context, "pid 1 of the jail does not answer");
}

int cb_guest_init(struct cb_guest *g)
{
	g->state = CB_GUEST_NONE;
	g->pid1.loop = g->loop;
	cb_python_init(&g->python, &ops, &g->pid1, &g->last_id);
	cb_output_init(&g->python.output, g->parent, CB_GUEST_PARENTS, &g->comms, g->jupyter, g->records, g->policy);
	g->python.rules.phase = CB_PHASE_STARTING;
	g->log = g->pid1.fd = g->pidfd = -1;
	g->link_slot = g->out_slot[0] = g->out_slot[1] = g->log_slot = g->init_slot = g->pidfd_slot = -1;
	g->usage = CB_USAGE_SOURCE_NONE;
	g->deadline_timer = cb_loop_add_timer(g->loop, on_deadline, g);
	g->resume_timer = cb_loop_add_timer(g->loop, cb_guest_on_resume, g);
	g->python_timer = cb_loop_add_timer(g->loop, on_python_timer, g);
	g->pid1.timer = cb_loop_add_timer(g->loop, on_unsent, g);
	g->broker_slot = -1;
	if (g->broker.fd >= 0) /* else there is no jail, and guest.failure says why */
		g->broker_slot = cb_loop_add(g->loop, NULL, g->broker.fd, ZMQ_POLLIN, on_broker, g);
	if (g->deadline_timer < 0 || g->resume_timer < 0 || g->python_timer < 0 || g->pid1.timer < 0 ||
	    cb_side_init(&g->side, g->loop, &g->python.rules) < 0)
		return -ENOSPC;
	return 0;
}

void cb_guest_release(struct cb_guest *g)
{
	close_channels(g);
	cb_output_forget(&g->python.output);
	cb_loop_remove(g->loop, &g->broker_slot);
	cb_broker_stop(&g->broker); /* all jails die with it */
}
