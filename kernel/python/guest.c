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
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "guest_output.h"
#include "kernel.h"

#define MS 1000000LL
#define START_DEADLINE (60000 * MS) /* spawn to HELLO; a cold disk may be slow */
#define END_DEADLINE (5000 * MS)    /* kill to the end of pid 1 */
#define NOTICE_DEADLINE (1000 * MS) /* end of pid 1 to the broker's notice of it */
#define READ_BUDGET (64u << 10)	    /* bytes of frames a turn, then others are heard: one read, or two */
#define PACED_BUDGET (16u << 10)    /* looked at more often where output is not to go too fast */
#define IDLE_DEATHS 3
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
static void close_ends(struct cb_kernel *k)
{
	struct cb_guest *g = &k->guest;

	cb_loop_remove(&k->loop, &g->link_slot);
	cb_side_close(k);
	for (int i = 0; i < 2; i++)
		cb_loop_remove(&k->loop, &g->out_slot[i]);
	cb_python_close(&g->python);
}

static void close_channels(struct cb_kernel *k)
{
	struct cb_guest *g = &k->guest;

	close_ends(k);
	cb_twins_jail_gone(k);
	cb_loop_remove(&k->loop, &g->log_slot);
	cb_fd_close(&g->log);
	cb_loop_remove(&k->loop, &g->init_slot);
	cb_fd_close(&g->init);
	cb_loop_remove(&k->loop, &g->pidfd_slot);
	cb_fd_close(&g->pidfd);
	cb_usage_close(&g->usage);
	cb_loop_arm(&k->loop, g->deadline_timer, 0);
	cb_loop_arm(&k->loop, g->resume_timer, 0);
	cb_python_interrupt_no_more(k, &g->python);
	cb_loop_arm(&k->loop, g->unsent_timer, 0);
	g->python.signals = g->unsent = 0;
}

static void start_failed(struct cb_kernel *k)
{
	struct cb_guest *g = &k->guest;

	close_channels(k);
	cb_guest_go(g, CB_GUEST_NONE);
	g->failed_starts++;
	cb_log(CB_LOG_WARNING, "jail not started: %s: %s", g->failure.step, g->failure.text);
	cb_audit_jail_failed(&k->records, &g->failure);
	cb_execution_guest_failed(k);
}

static bool heard(const struct cb_python *p)
{
	return ((const struct cb_guest *)p)->verdict[0] == '\0';
}

void cb_guest_broke_rules(struct cb_kernel *k, const char *why)
{
	cb_log(CB_LOG_WARNING, "guest broke the wire protocol: %s", why);
	cb_audit_denied(&k->records, "guest", why);
	if (k->guest.state != CB_GUEST_RESTORING) /* else the cell has ended for another reason */
		cb_shell_stop_reason(&k->execution.shell, CB_STOP_WIRE);
	cb_guest_stop(k, why);
}

/* ---- what it says ---- */

/* Lanes answer beside the main shell. */
static struct cb_shell *shell_of(struct cb_kernel *k, struct cb_python *p, uint64_t request)
{
	struct cb_shell *beside = cb_lanes_of(k, request);

	(void)p;
	return beside != NULL ? beside : &k->execution.shell;
}

static void awaits(struct cb_kernel *k, struct cb_shell *s)
{
	if (s == &k->execution.shell)
		cb_lanes_cell_awaits(k);
	else
		cb_lanes_awaits(k, s);
}

static void asks(struct cb_kernel *k, struct cb_shell *s)
{
	if (s == &k->execution.shell)
		cb_debug_cell_over(k);
}

static int hello(struct cb_kernel *k, const struct cb_guest_content *c, const char **ret_reason)
{
	struct cb_guest *g = &k->guest;

	*ret_reason = "wire_version is not this supervisor's";
	if (!(c->wire_version.len == 1 && c->wire_version.data[0] == '0' + CB_WIRE_VERSION))
		return CB_E_SYNTAX;
	cb_guest_go(g, CB_GUEST_UP);
	g->dropped = false;
	k->side.served = c->side;
	cb_guest_set_idle(k);
	g->failed_starts = 0;
	g->failure.code = 0;
	cb_loop_arm(&k->loop, g->deadline_timer, 0);
	cb_log(CB_LOG_INFO, "guest ready: %.*s, python %.*s", (int)c->implementation.len, c->implementation.data,
	       (int)c->python_version.len, c->python_version.data);
	if (c->missing_paths.data != NULL && c->missing_paths.len > 2)
		cb_log(CB_LOG_WARNING, "search-path entries outside the jail: %.*s",
		       (int)(c->missing_paths.len < 1000 ? c->missing_paths.len : 1000), c->missing_paths.data);
	cb_execution_guest_up(k);
	return 0;
}

static int frame(struct cb_kernel *k, struct cb_python *p, struct cb_frame *f, const struct cb_guest_content *c,
		 const char **ret_reason)
{
	(void)p;
	switch (f->header.type) {
	case CB_WIRE_HELLO:
		return hello(k, c, ret_reason);
	case CB_WIRE_CHECKPOINT_REPLY:
		cb_twins_answered(k, c);
		return 0;
	case CB_WIRE_RESUMED:
		k->side.served = c->side;
		cb_twins_resumed(k);
		return 0;
	default: /* the table has no such row: not reached */
		*ret_reason = "a message of the supervisor's, or of the side wire";
		return CB_E_DENIED;
	}
}

static void watch(struct cb_kernel *k, struct cb_python *p)
{
	cb_loop_set_events(&k->loop, k->guest.link_slot,
			   (short)(ZMQ_POLLIN | (cb_guest_link_pending(&p->link) ? ZMQ_POLLOUT : 0)));
}

static void unwatch(struct cb_kernel *k, struct cb_python *p)
{
	(void)p;
	cb_loop_remove(&k->loop, &k->guest.link_slot);
}

/* Its end, which pid 1 and the pidfd report; if it lives on, it can't be served. */
static void closed(struct cb_kernel *k, struct cb_python *p)
{
	struct cb_guest *g = &k->guest;

	if (g->state == CB_GUEST_STARTING || g->state == CB_GUEST_UP)
		cb_loop_arm(&k->loop, g->deadline_timer, cb_now_ns() + CB_GUEST_CLOSED_NS);
	if (g->state == CB_GUEST_RESTORING && p->rules.phase == CB_PHASE_WAKING)
		cb_loop_arm(&k->loop, k->twins.deadline_timer, cb_now_ns() + CB_GUEST_CLOSED_NS);
}

/* In the last words of a dead one nothing is a fault. */
static void broke(struct cb_kernel *k, struct cb_python *p, const char *why)
{
	if (k->guest.state != CB_GUEST_RESTORING || p->rules.phase == CB_PHASE_WAKING)
		cb_guest_broke_rules(k, why);
}

static void arm(struct cb_kernel *k, struct cb_python *p)
{
	int64_t when = 0;

	cb_python_due(p, &when);
	cb_loop_arm(&k->loop, k->guest.python_timer, when);
}

double cb_guest_worked(struct cb_kernel *k)
{
	return k->guest.state == CB_GUEST_UP ? cb_usage_jail_cpu(&k->guest.usage) : -1;
}

static void on_python_timer(void *context)
{
	struct cb_kernel *k = context;

	cb_python_look(k, &k->guest.python, cb_now_ns());
	arm(k, &k->guest.python);
}

static const struct cb_python_ops ops = {
	.heard = heard,
	.shell = shell_of,
	.awaits = awaits,
	.asks = asks,
	.frame = frame,
	.watch = watch,
	.unwatch = unwatch,
	.closed = closed,
	.broke = broke,
	.arm = arm,
	.worked = cb_guest_worked,
};

static void on_link(void *context, short revents)
{
	struct cb_kernel *k = context;
	struct cb_python *p = &k->guest.python;

	if (revents & ZMQ_POLLOUT)
		cb_python_flush(k, p);
	if (!heard(p)) /* condemned: what it says, also the rest of a big frame, is not heard */
		unwatch(k, p);
	else if (revents & (ZMQ_POLLIN | ZMQ_POLLERR))
		cb_python_read(k, p, k->jupyter.iopub.paced ? PACED_BUDGET : READ_BUDGET);
	cb_guest_pause_if_congested(k);
}

int cb_guest_ask(struct cb_kernel *k, enum cb_wire_type type, enum cb_wire_phase phase, struct cb_span content)
{
	struct cb_python *p = &k->guest.python;

	return cb_python_ask(k, p, type, phase, cb_output_parent(&p->output, 0)->header, content);
}

/* ---- birth ---- */

static void open_ends(struct cb_kernel *k)
{
	struct cb_guest *g = &k->guest;

	/* the loop looks in this order: what a child process wrote comes before what Python says after it */
	g->out_slot[0] = cb_loop_add(&k->loop, NULL, g->python.output.out[0], ZMQ_POLLIN, cb_guest_on_stdout, k);
	g->out_slot[1] = cb_loop_add(&k->loop, NULL, g->python.output.out[1], ZMQ_POLLIN, cb_guest_on_stderr, k);
	g->link_slot = cb_loop_add(&k->loop, NULL, g->python.link.fd, ZMQ_POLLIN, on_link, k);
	cb_side_watch(k);
}

/* They are taken in any case. */
static int take_ends(struct cb_kernel *k, struct cb_guest_ends *ends)
{
	int r = cb_python_open(&k->guest.python, ends, k->policy->limit_message);

	if (r == 0)
		r = cb_side_open(k, ends->side, cb_guest_link_tx_max(k->policy->limit_message));
	if (r == 0)
		ends->side = -1;
	cb_guest_ends_close(ends);
	return r;
}

static int make_channels(struct cb_kernel *k, int child[CB_SPAWN_NFDS])
{
	static const int index[CB_BIRTH_NFDS] = { [CB_BIRTH_WIRE] = CB_SPAWN_WIRE,
						  [CB_BIRTH_STDOUT] = CB_SPAWN_STDOUT,
						  [CB_BIRTH_STDERR] = CB_SPAWN_STDERR,
						  [CB_BIRTH_LEASH] = CB_SPAWN_LEASH,
						  [CB_BIRTH_SIDE] = CB_SPAWN_SIDE };
	struct cb_guest *g = &k->guest;
	int theirs[CB_BIRTH_NFDS], init[2], log[2];
	struct cb_guest_ends ends;
	int r = cb_guest_ends_make(&ends, theirs);

	if (r < 0)
		return r;
	for (int i = 0; i < CB_BIRTH_NFDS; i++)
		child[index[i]] = theirs[i];
	r = take_ends(k, &ends);
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, init) < 0)
		return -errno;
	g->init = init[0];
	child[CB_SPAWN_LINK] = init[1];
	if (pipe2(log, O_CLOEXEC) < 0)
		return -errno;
	g->log = log[0];
	child[CB_SPAWN_LOG] = log[1];
	r = cb_fd_set_nonblock(g->log);
	return r < 0 ? r : cb_fd_set_nonblock(g->init);
}

void cb_guest_want(struct cb_kernel *k)
{
	struct cb_guest *g = &k->guest;
	int child[CB_SPAWN_NFDS] = { [0 ... CB_SPAWN_NFDS - 1] = -1 };

	if (g->state != CB_GUEST_NONE)
		return;
	int r = g->broker.fd >= 0 ? make_channels(k, child) : CB_E_CLOSED;

	if (r == 0)
		r = cb_broker_spawn(&g->broker, g->generation + 1, child);
	for (int i = 0; i < CB_SPAWN_NFDS; i++)
		cb_fd_close(&child[i]);
	if (r < 0) {
		if (g->broker.fd >= 0 || g->failure.code == 0)
			cb_err_set(&g->failure, r, "broker", "Restart the kernel.",
				   "the process that builds jails does not answer: %s", cb_err_name(r));
		start_failed(k);
		return;
	}
	cb_guest_go(g, CB_GUEST_SPAWNING);
	g->generation++;
	g->exited = g->given_up = g->retired = g->end_known = g->end_awaited = false;
	g->verdict[0] = g->cause[0] = '\0';
	k->memory.over = 0;
	g->python.interrupted = 0;
	g->python.rules = (struct cb_guest_rules){ .phase = CB_PHASE_STARTING,
						   .first_id = g->last_id + 1,
						   .last_id = g->last_id,
						   .max_message = k->policy->limit_message };
	cb_loop_arm(&k->loop, g->deadline_timer, cb_now_ns() + START_DEADLINE);
	cb_loop_mark(&k->loop);
}

static void on_init(void *context, short revents);
static void on_pidfd(void *context, short revents);
static void ended(struct cb_kernel *k);

static void spawned(struct cb_kernel *k, const struct cb_broker_reply *reply, int pidfd, const int usage[CB_USAGE_NFDS])
{
	struct cb_guest *g = &k->guest;

	cb_guest_go(g, CB_GUEST_STARTING);
	g->jail = reply->jail;
	g->python.pid = reply->guest_pid;
	g->pidfd = pidfd;
	snprintf(g->note, sizeof(g->note), "%s", reply->note);
	snprintf(g->limits, sizeof(g->limits), "%s", reply->limits);
	g->level = (enum cb_isolation_level)reply->level;
	cb_usage_open(&g->usage, g->python.pid, usage);
	/* order of service: frames, then raw output, then the end */
	open_ends(k);
	g->log_slot = cb_loop_add(&k->loop, NULL, g->log, ZMQ_POLLIN, cb_guest_on_log, k);
	g->init_slot = cb_loop_add(&k->loop, NULL, g->init, ZMQ_POLLIN, on_init, k);
	g->pidfd_slot = cb_loop_add(&k->loop, NULL, g->pidfd, ZMQ_POLLIN, on_pidfd, k);
	cb_log(CB_LOG_INFO, "jail %u started: guest pid %d, level %u, %s", reply->jail, (int)g->python.pid,
	       reply->level, reply->limits);
	cb_audit_jail(&k->records, g->generation, reply->level, reply->limits, reply->note);
}

static void on_broker(void *context, short revents)
{
	struct cb_kernel *k = context;
	struct cb_guest *g = &k->guest;
	struct cb_broker_reply reply;
	int pidfd = -1, usage[CB_USAGE_NFDS] = { [0 ... CB_USAGE_NFDS - 1] = -1 };
	int r = cb_broker_recv(&g->broker, &reply, &pidfd, usage);

	(void)revents;
	if (r == -EAGAIN)
		return;
	if (r < 0) {
		cb_log(CB_LOG_ERROR, "broker: %s", cb_err_name(r));
		cb_loop_remove(&k->loop, &g->broker_slot);
		cb_broker_stop(&g->broker);
		cb_err_set(&g->failure, r, "broker", "Restart the kernel.", "the process that builds jails has ended");
		if (g->state == CB_GUEST_SPAWNING)
			start_failed(k);
		/* a running jail dies with its broker; a kernel that can have no other makes room for a new kernel */
		cb_guest_kill(k, "the process that builds jails has ended");
		k->failed = true;
		cb_kernel_shutdown(k, false);
		return;
	}
	if (reply.event == CB_BROKER_MEMORY) {
		if (reply.jail == g->jail)
			cb_memory_told(k, &reply);
		return;
	}
	if (reply.event == CB_BROKER_ENDED) {
		if (reply.jail != g->jail || g->pidfd < 0)
			return; /* one that was given up */
		g->end = reply;
		g->end_known = true;
		if (g->end_awaited)
			ended(k);
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
		spawned(k, &reply, pidfd, usage);
		return;
	}
	cb_err_set(&g->failure, reply.code, reply.step, reply.cure, "%s", reply.text);
	start_failed(k);
}

/* ---- death ---- */

/* With a twin in the jail pid 1 waits for what we say. */
static void exited(struct cb_kernel *k, int status)
{
	struct cb_guest *g = &k->guest;

	if ((g->state == CB_GUEST_RESTORING && g->python.rules.phase == CB_PHASE_WAKING) || k->twins.confirming) {
		char why[160];

		cb_failure_end_text(status, why, sizeof(why));
		cb_twins_failed(k, why);
		return;
	}
	if (g->state == CB_GUEST_RESTORING && k->twins.fallen)
		return; /* one that was given up, and not the guest whose end is to be told */
	g->exited = true;
	g->wait_status = status;
	if (g->state != CB_GUEST_RESTORING && !cb_twins_take_over(k))
		(void)cb_guest_tell_init(k, CB_INIT_TERMINATE, 0);
}

static void on_init(void *context, short revents)
{
	struct cb_kernel *k = context;
	struct cb_guest *g = &k->guest;
	struct cb_init_msg m;
	ssize_t n = recv(g->init, &m, sizeof(m), MSG_DONTWAIT);

	(void)revents;
	if (n == (ssize_t)sizeof(m) && m.op == CB_INIT_SIGNALLED)
		cb_guest_signal_sent(k);
	if (n == (ssize_t)sizeof(m) && m.op == CB_INIT_EXITED)
		exited(k, m.arg);
	else if (n == (ssize_t)sizeof(m) && m.op == CB_INIT_SIGNALLED && m.number == 0)
		cb_python_signalled(&g->python);
	else if (n == (ssize_t)sizeof(m) && m.op == CB_INIT_SIGNALLED)
		cb_branches_signalled(k, m.number);
	else if (n == (ssize_t)sizeof(m))
		cb_twins_init_said(k, &m);
	else if (n >= 0 || (errno != EAGAIN && errno != EINTR))
		cb_loop_remove(&k->loop, &g->init_slot);
}

/* pid 1 has ended, and with it everything in its pid namespace. Why, the broker is about to say. */
static void on_pidfd(void *context, short revents)
{
	struct cb_kernel *k = context;
	struct cb_guest *g = &k->guest;

	(void)revents;
	if (g->end_known || g->broker.fd < 0) {
		ended(k);
		return;
	}
	g->end_awaited = true;
	cb_loop_remove(&k->loop, &g->pidfd_slot);
	cb_loop_arm(&k->loop, g->deadline_timer, cb_now_ns() + NOTICE_DEADLINE);
}

/* Python ended before it was ready. If an earlier one could change what it is made of, it may be for that: once, the
 * next is started without those changes, and its first cell says so. */
static void drop_packages(struct cb_kernel *k)
{
	struct cb_guest *g = &k->guest;

	if (g->given_up || g->dropped || g->generation < 2 || k->shutting_down ||
	    k->policy->packages_mode != CB_PACKAGES_SESSION || cb_broker_tell(&g->broker, CB_BROKER_DROP) < 0)
		return;
	cb_log(CB_LOG_WARNING, "Python did not start with what was installed in this session: it is dropped");
	g->dropped = g->given_up = true;
}

/* What the dead have said is all there is. */
void cb_guest_last_words(struct cb_kernel *k)
{
	struct cb_guest *g = &k->guest;

	if (g->link_slot >= 0 && g->verdict[0] == '\0')
		cb_python_read(k, &g->python, 64u << 20);
	cb_output_drain(&g->python.output);
}

static void ended(struct cb_kernel *k)
{
	struct cb_guest *g = &k->guest;
	bool was_up = g->state == CB_GUEST_UP || g->state == CB_GUEST_RESTORING;
	bool was_starting = g->state == CB_GUEST_STARTING ||
			    (g->state == CB_GUEST_ENDING && g->python.rules.phase == CB_PHASE_STARTING);
	struct pollfd more = { .fd = g->init, .events = POLLIN };

	g->end_awaited = false;
	cb_guest_go(g, CB_GUEST_ENDING); /* nobody can take over any more */
	while (g->init_slot >= 0 && poll(&more, 1, 0) > 0)
		on_init(k, ZMQ_POLLIN);
	cb_guest_last_words(k);
	while (g->log_slot >= 0 && g->log >= 0) {
		int waiting = 0;

		if (ioctl(g->log, FIONREAD, &waiting) < 0 || waiting <= 0)
			break;
		cb_guest_on_log(k, ZMQ_POLLIN);
	}
	close_channels(k);
	if (was_starting)
		drop_packages(k);
	if (!g->given_up && was_starting)
		g->failed_starts++;
	else
		g->failed_starts = 0;
	cb_guest_go(g, CB_GUEST_NONE);
	cb_guest_rules_go(&g->python.rules, CB_PHASE_STARTING, 0);
	cb_log(CB_LOG_INFO, "jail %u ended", g->jail);
	cb_audit_jail_end(&k->records, g->generation,
			  k->shutting_down ? "the kernel shuts down"
			  : g->retired	   ? "not used (timeout.idle)"
					   : cb_failure_death_text(k));
	g->restarted = true;
	if (!was_up && g->failed_starts > 0)
		cb_err_set(&g->failure, CB_E_CLOSED, "start of the interpreter",
			   "Look at the kernel's log (--log-level info) for what the interpreter said.",
			   "the interpreter ended before it was ready%s%s", g->verdict[0] != '\0' ? ": " : "",
			   g->verdict);
	cb_execution_guest_died(k);
	g->given_up = false;
	/* no endless loop: after a failed start, or if guests die that nobody gave work, only a request tries again */
	g->idle_deaths = g->python.rules.last_id < g->python.rules.first_id ? g->idle_deaths + 1 : 0;
	bool wanted = k->execution.shell.waiting.head != NULL || k->jobs.head != NULL ||
		      k->debug.waiting.head != NULL || k->lanes.load.count > 0;

	if (!k->shutting_down && g->failed_starts == 0 && ((g->idle_deaths < IDLE_DEATHS && !g->retired) || wanted))
		cb_guest_want(k);
	else
		cb_jobs_jail_failed(k);
}

static void on_deadline(void *context)
{
	struct cb_kernel *k = context;
	struct cb_guest *g = &k->guest;

	if (g->end_awaited) {
		ended(k);
		return;
	}
	switch (g->state) {
	case CB_GUEST_SPAWNING:
		cb_err_set(&g->failure, -ETIMEDOUT, "broker", "Restart the kernel.", "no jail came within %d seconds",
			   (int)(START_DEADLINE / (1000 * MS)));
		start_failed(k);
		break;
	case CB_GUEST_STARTING:
		cb_guest_kill(k, g->link_slot < 0 ? "the interpreter closed its wire"
						  : "the interpreter was not ready in time");
		break;
	case CB_GUEST_UP:
		if (g->exited)
			break; /* pid 1 has told of its end and is about to end itself */
		cb_shell_stop_reason(&k->execution.shell, CB_STOP_WIRE);
		cb_guest_stop(k, "it closed its wire");
		break;
	case CB_GUEST_RESTORING: /* twins.c has a clock of its own */
		break;
	case CB_GUEST_ENDING:
		/* the kernel owes us this death: ask again, also pid 1 for a broker that is stopped, and wait on */
		(void)cb_broker_kill(&g->broker, g->jail);
		(void)cb_guest_tell_init(k, CB_INIT_TERMINATE, 0);
		cb_loop_arm(&k->loop, g->deadline_timer, cb_now_ns() + END_DEADLINE);
		break;
	case CB_GUEST_NONE:
		break;
	}
}

void cb_guest_kill(struct cb_kernel *k, const char *verdict)
{
	struct cb_guest *g = &k->guest;

	if ((g->state != CB_GUEST_STARTING && g->state != CB_GUEST_UP && g->state != CB_GUEST_RESTORING) ||
	    g->end_awaited)
		return;
	if (g->state == CB_GUEST_RESTORING) /* why it ended is known; a twin that did not take over is not heard */
		cb_loop_remove(&k->loop, &g->link_slot);
	if (g->verdict[0] == '\0' && !(g->state == CB_GUEST_RESTORING && (g->exited || g->cause[0] != '\0')))
		snprintf(g->verdict, sizeof(g->verdict), "%s", verdict);
	cb_guest_go(g, CB_GUEST_ENDING);
	(void)cb_broker_kill(&g->broker, g->jail);
	cb_loop_arm(&k->loop, g->deadline_timer, cb_now_ns() + END_DEADLINE);
}

void cb_guest_stop(struct cb_kernel *k, const char *verdict)
{
	struct cb_guest *g = &k->guest;

	if (g->state == CB_GUEST_UP && g->verdict[0] == '\0')
		snprintf(g->verdict, sizeof(g->verdict), "%s", verdict);
	if (g->state != CB_GUEST_UP || !cb_twins_take_over(k))
		cb_guest_kill(k, verdict);
}

/* ---- take-over ---- */

void cb_guest_restoring(struct cb_kernel *k)
{
	cb_guest_go(&k->guest, CB_GUEST_RESTORING);
	cb_debug_guest_gone(k);
	cb_loop_arm(&k->loop, k->guest.deadline_timer, 0);
	cb_python_interrupt_no_more(k, &k->guest.python);
}

int cb_guest_become(struct cb_kernel *k, struct cb_guest_ends *ends, pid_t pid)
{
	struct cb_guest *g = &k->guest;
	int r;

	if (g->verdict[0] != '\0') /* else it is one that took over in vain */
		memcpy(g->cause, g->verdict, sizeof(g->cause));
	g->verdict[0] = '\0'; /* the new one is not condemned */
	g->python.interrupted = 0;
	close_ends(k);
	r = take_ends(k, ends);
	if (r < 0)
		return r;
	open_ends(k);
	g->python.pid = pid;
	cb_usage_follow(&g->usage, pid);
	return 0;
}

void cb_guest_forget_end(struct cb_kernel *k)
{
	k->guest.exited = false;
	k->guest.cause[0] = '\0';
	k->memory.over = 0;
}

/* ---- rest and end by request ---- */

void cb_guest_set_idle(struct cb_kernel *k)
{
	cb_guest_rules_go(&k->guest.python.rules, CB_PHASE_IDLE, 0);
}

void cb_guest_give_up_start(struct cb_kernel *k)
{
	if (k->guest.state != CB_GUEST_STARTING)
		return;
	k->guest.given_up = true;
	cb_guest_kill(k, "interrupted while it was starting");
}

/* One that is just keeping its state takes the word when it has done so. */
static bool ask_to_end(struct cb_kernel *k, bool restart)
{
	struct cb_guest *g = &k->guest;
	CB_JSON_SMALL(content, "restart", restart);

	return g->state == CB_GUEST_UP && (g->python.rules.phase == CB_PHASE_IDLE || k->twins.asked) &&
	       cb_guest_link_send(&g->python.link, CB_WIRE_SHUTDOWN, 0, cb_buf_span(&content), CB_SPAN("{}"), NULL,
				  0) == 0;
}

void cb_guest_retire(struct cb_kernel *k)
{
	struct cb_guest *g = &k->guest;

	if (g->state != CB_GUEST_STARTING && g->state != CB_GUEST_UP)
		return;
	cb_log(CB_LOG_INFO, "jail %u is not used (timeout.idle): it ends", g->jail);
	g->retired = true;
	if (!ask_to_end(k, false)) {
		g->given_up = g->state == CB_GUEST_STARTING;
		cb_guest_kill(k, "not used");
		return;
	}
	watch(k, &g->python);
	cb_guest_go(g, CB_GUEST_ENDING);
	cb_loop_arm(&k->loop, g->deadline_timer, cb_now_ns() + CB_GUEST_CLOSED_NS);
}

void cb_guest_shutdown(struct cb_kernel *k, bool restart)
{
	if (!ask_to_end(k, restart))
		cb_guest_kill(k, "the kernel was shut down");
}

/* ---- module ---- */

int cb_guest_init(struct cb_kernel *k)
{
	struct cb_guest *g = &k->guest;

	g->state = CB_GUEST_NONE;
	cb_python_init(&g->python, &ops, &k->loop, &g->last_id);
	cb_output_init(&g->python.output, g->parent, CB_GUEST_PARENTS, &k->comms, &k->jupyter, &k->records, k->policy);
	g->python.rules.phase = CB_PHASE_STARTING;
	g->log = g->init = g->pidfd = -1;
	g->link_slot = g->out_slot[0] = g->out_slot[1] = g->log_slot = g->init_slot = g->pidfd_slot = -1;
	g->usage = CB_USAGE_SOURCE_NONE;
	g->deadline_timer = cb_loop_add_timer(&k->loop, on_deadline, k);
	g->resume_timer = cb_loop_add_timer(&k->loop, cb_guest_on_resume, k);
	g->python_timer = cb_loop_add_timer(&k->loop, on_python_timer, k);
	g->unsent_timer = cb_loop_add_timer(&k->loop, cb_guest_on_unsent, k);
	g->broker_slot = -1;
	if (g->broker.fd >= 0) /* else there is no jail, and guest.failure says why */
		g->broker_slot = cb_loop_add(&k->loop, NULL, g->broker.fd, ZMQ_POLLIN, on_broker, k);
	if (g->deadline_timer < 0 || g->resume_timer < 0 || g->python_timer < 0 || g->unsent_timer < 0 ||
	    cb_side_init(k) < 0)
		return -ENOSPC;
	return 0;
}

void cb_guest_release(struct cb_kernel *k)
{
	struct cb_guest *g = &k->guest;

	close_channels(k);
	cb_output_forget(&g->python.output);
	cb_loop_remove(&k->loop, &g->broker_slot);
	cb_broker_stop(&g->broker); /* all jails die with it */
}
