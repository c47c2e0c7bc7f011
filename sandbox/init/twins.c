/* Pid 1's book of twins: who is one, and the end of everybody else.
 *
 * Trust domain: pid 1 of a jail, under the filter, without any right that the guest lacks; only kill(-1) is its alone.
 * A number is believed if the supervisor announced it and nobody has it yet, and a process because the kernel says
 * which one sent the message. All processes descend from pid 1, whatever they do; so who is left is found by going down
 * the tree, which works for processes that hide from /proc too, once their parents are dead. A hostile cell races all
 * this with fork and SIGCONT: everybody is stopped, and it is looked again until nobody new is found.
 */
#include "twins.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/proc_stat.h>
#include <cellblock/sandbox.h>
#include <cellblock/twin.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SWEEP_MS 13000 /* hundreds of processes that die at the limit of memory, on a busy machine */
#define BRANCH_MS 1000
#define FEW 8		     /* that are told to die and have not: they take no room worth waiting for */
#define CLEAN_PASSES 2	     /* a list of children is exact only while nobody comes or goes */
#define PID_LIMIT (1u << 22) /* of Linux */
#define PROCESSES_MAX 65536
#define PAGE 65536  /* or less */

static struct {
	uint32_t number; /* 0 = free */
	pid_t pid;	 /* 0 = announced */
	bool branch;	 /* runs, and so does its session */
	bool held;	 /* since a take-over, until it is bred from: it stays stopped */
} twins[CB_TWINS_MAX];
static pid_t woken; /* is the guest since the last take-over */

static int find(uint32_t number)
{
	for (int i = 0; i < CB_TWINS_MAX; i++)
		if (twins[i].number == number)
			return i;
	return -1;
}

static int find_pid(pid_t pid)
{
	for (int i = 0; i < CB_TWINS_MAX; i++)
		if (twins[i].number != 0 && twins[i].pid == pid)
			return i;
	return -1;
}

static void forget(int i)
{
	memset(&twins[i], 0, sizeof(twins[i]));
}

static void gone(int i, int status)
{
	cb_init_tell_end(CB_INIT_GONE, (int)twins[i].number, status);
	forget(i);
}

/* The kernel tells us of its end, and when it goes on. That needs no /proc. */
static bool is_ours(pid_t pid)
{
	siginfo_t info;

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* What it has gone on for until now is not held against it. */
static void forgive(pid_t pid)
{
	siginfo_t info;

	(void)waitid(P_PID, (id_t)pid, &info, WCONTINUED | WNOHANG);
}

/* ---- registry ---- */

int cb_twins_make_registry(int ret_pair[2])
{
	int on = 1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_pair) < 0)
		return -errno;
	return setsockopt(ret_pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ? -errno : 0;
}

void cb_twins_announce(uint32_t number)
{
	int i = number != 0 && find(number) < 0 ? find(0) : -1;

	if (i < 0)
		cb_init_tell(CB_INIT_GONE, (int)number);
	else
		twins[i].number = number;
}

/* Descriptors that come along have no room here, and the kernel closes them. */
int cb_twins_register(int registry, pid_t guest)
{
	struct cb_registry_msg message = { 0 };
	pid_t sender = 0;
	ssize_t n = cb_fd_recv_from(registry, &message, sizeof(message), &sender, NULL, MSG_DONTWAIT);
	int i;

	if (n < 0)
		return n == -EAGAIN ? 0 : -1;
	i = n == (ssize_t)sizeof(message) && message.number != 0 ? find(message.number) : -1;
	if (i < 0 || twins[i].pid != 0 || sender <= 1 || sender == guest || find_pid(sender) >= 0 ||
	    getsid(sender) != sender)
		return n > 0 || sender > 0 ? 1 : -1; /* an empty message has a sender, the end of file has none */
	twins[i].pid = sender;
	cb_init_tell(CB_INIT_REGISTERED, (int)message.number);
	return 1;
}

bool cb_twins_any(void)
{
	for (int i = 0; i < CB_TWINS_MAX; i++)
		if (twins[i].pid != 0 && !twins[i].branch)
			return true;
	return false;
}

bool cb_twins_any_branch(void)
{
	for (int i = 0; i < CB_TWINS_MAX; i++)
		if (twins[i].pid != 0 && twins[i].branch)
			return true;
	return woken != 0 && !is_ours(woken);
}

pid_t cb_twins_branch_pid(uint32_t number)
{
	int i = number != 0 ? find(number) : -1;

	return i >= 0 && twins[i].branch ? twins[i].pid : 0;
}

void cb_twins_branch(uint32_t number)
{
	int i = number != 0 ? find(number) : -1;

	if (i >= 0 && twins[i].pid != 0)
		twins[i].branch = true;
	else
		cb_init_tell(CB_INIT_GONE, (int)number);
}

void cb_twins_breed(uint32_t number)
{
	int i = number != 0 ? find(number) : -1;

	if (i < 0 || !twins[i].held)
		return;
	twins[i].held = false;
	(void)kill(twins[i].pid, SIGCONT);
	forgive(twins[i].pid);
}

/* ---- the end of others ---- */

void cb_twins_stop_all(void)
{
	(void)kill(-1, SIGSTOP);
}

static bool spared(pid_t pid)
{
	pid_t session = getsid(pid);

	for (int i = 0; i < CB_TWINS_MAX; i++)
		if (twins[i].pid != 0 && (twins[i].pid == pid || (twins[i].branch && twins[i].pid == session)))
			return true;
	return false;
}

struct sweep {
	/* told to die; whole pages, so that they can be given back */
	uint8_t dying[PID_LIMIT / 8] __attribute__((aligned(PAGE)));
	pid_t list[PROCESSES_MAX];
	size_t count;
	size_t fresh;  /* of this pass: found alive for all we know */
	size_t hidden; /* of this pass: whose children can't be seen before it is dead */
	pid_t session; /* the end of a branch: its leader; 0 = of all others */
	bool roots;    /* of a branch: only its session is met */
	bool at_work;
	size_t left; /* told to die, and not yet */
};
static struct sweep sweep; /* large: not for the stack; pages that are not used cost nothing */

static bool dying(const struct sweep *s, pid_t pid)
{
	return (s->dying[pid / 8] & (1u << (pid % 8))) != 0;
}

static void mark(struct sweep *s, pid_t pid)
{
	if (dying(s, pid))
		return;
	s->dying[pid / 8] = (uint8_t)(s->dying[pid / 8] | 1u << (pid % 8));
	s->fresh++;
	s->left++;
}

/* Of a branch: it is stopped, and killed only when its children are known. */
static void meet_of_branch(struct sweep *s, pid_t pid)
{
	int i = find_pid(pid);

	if (pid <= 1 || (unsigned)pid >= PID_LIMIT || s->count >= PROCESSES_MAX ||
	    (s->roots && getsid(pid) != s->session) || (i >= 0 && pid != s->session) ||
	    (pid == s->session && s->count > 0))
		return;
	s->list[s->count++] = pid;
	(void)kill(pid, SIGSTOP);
	mark(s, pid);
}

/* A branch's tree is left alone; a twin itself too, but not what hostile code may have made it give birth to. */
static void meet(void *context, pid_t pid)
{
	struct sweep *s = context;
	int i = find_pid(pid);

	if (s->session != 0) {
		meet_of_branch(s, pid);
		return;
	}
	if (pid <= 1 || (unsigned)pid >= PID_LIMIT || s->count >= PROCESSES_MAX || (i < 0 && spared(pid)) ||
	    (i >= 0 && twins[i].branch))
		return;
	s->list[s->count++] = pid;
	if (i >= 0)
		return;
	(void)kill(pid, SIGKILL);
	mark(s, pid);
}

/* False if not all can be seen. */
static bool meet_children_of(struct sweep *s, pid_t pid)
{
	return cb_proc_children_of(pid, 0, meet, s) == 0;
}

/* Where /proc shows no processes: whoever answers to a number. */
static void each_number(void (*each)(void *context, pid_t pid), struct sweep *s)
{
	for (pid_t pid = 2; (unsigned)pid < PID_LIMIT; pid++)
		if (kill(pid, 0) == 0)
			each(s, pid);
}

static void reap_all(struct sweep *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		s->left -= dying(s, pid);
		s->dying[pid / 8] = (uint8_t)(s->dying[pid / 8] & ~(1u << (pid % 8))); /* the number is free again */
		cb_twins_reaped(pid, status);
	}
}

static void pass(struct sweep *s)
{
	s->count = s->fresh = s->hidden = 0;
	(void)kill(-1, SIGSTOP);
	if (!meet_children_of(s, 1))
		each_number(meet, s);
	else
		for (size_t i = 0; i < s->count; i++)
			if (!meet_children_of(s, s->list[i]) && find_pid(s->list[i]) < 0 && kill(s->list[i], 0) == 0)
				s->hidden++;
}

static void begin(struct sweep *s, pid_t session)
{
	(void)madvise(s->dying, sizeof(s->dying), MADV_DONTNEED); /* zero, and cheaper than writing it */
	s->session = session;
	s->roots = false;
	s->at_work = true;
	s->left = 0;
}

static int end_others(int64_t end)
{
	struct sweep *s = &sweep;
	int clean = 0;

	begin(s, 0);
	while (clean < CLEAN_PASSES) {
		struct timespec pause = { 0, 200000 };

		pass(s);
		reap_all(s);
		clean = s->fresh == 0 && s->hidden == 0 ? clean + 1 : 0;
		if (cb_now_ms() > end) {
			s->at_work = false;
			return -ETIMEDOUT;
		}
		if (s->fresh == 0 && s->hidden > 0)
			(void)nanosleep(&pause, NULL);
	}
	s->at_work = false;
	return 0;
}

/* One that is another's child could go on without our knowledge. An honest twin is ours, at the latest when the process
 * has ended that os.fork has put between: that one is told to die by now. */
static bool becomes_ours(int i, int64_t end)
{
	const struct timespec pause = { 0, 200000 };
	pid_t pid = twins[i].pid;

	while (twins[i].pid == pid && !is_ours(pid)) {
		struct cb_proc_stat stat = { .parent = 0 };
		bool seen = cb_proc_stat_of(pid, &stat) == 0;

		if (cb_now_ms() > end || (seen && stat.parent != 1 && !dying(&sweep, stat.parent)) ||
		    (!seen && kill(pid, 0) < 0))
			return false;
		(void)nanosleep(&pause, NULL);
		reap_all(&sweep);
	}
	return true;
}

/* True if there was one that claimed to be a twin; what it has started is spared no more. `except`: is to be the guest,
 * and one that a branch has forked may have a parent that is stopped. */
static bool disown_strangers(int except, int64_t end)
{
	bool any = false;

	for (int i = 0; i < CB_TWINS_MAX; i++) {
		if (i == except || twins[i].pid == 0 || twins[i].branch || becomes_ours(i, end))
			continue;
		gone(i, 0);
		any = true;
	}
	return any;
}

/* They have nothing to do until they are bred from, or the guest; one that is false is not let run again. */
static void hold_twins(void)
{
	for (int i = 0; i < CB_TWINS_MAX; i++) {
		if (twins[i].pid == 0 || twins[i].branch)
			continue;
		twins[i].held = true;
		forgive(twins[i].pid);
	}
}

/* Who is told to die does so without us, but after a fork bomb the next twin needs room in limits.pids. */
static void make_room(int64_t end)
{
	const struct timespec pause = { 0, 200000 };

	for (; sweep.left > FEW && cb_now_ms() < end; reap_all(&sweep))
		(void)nanosleep(&pause, NULL);
}

/* Those who could kill it are dead, but if they have, it is not yet: it must run to end. A frozen twin does not run: it
 * sleeps, or is stopped, and a signal that kills makes it runnable at once. */
static bool lives(pid_t pid, int64_t end)
{
	const struct timespec pause = { 0, 200000 };
	struct cb_proc_stat stat;

	do {
		if (cb_proc_stat_of(pid, &stat) < 0)
			return kill(pid, 0) == 0; /* where /proc shows no processes, that is all there is to know */
		if (stat.exiting || strchr("ZXx", stat.state) != NULL)
			return false;
		if (strchr("STt", stat.state) != NULL)
			return true;
		(void)nanosleep(&pause, NULL);
	} while (cb_now_ms() < end);
	return false;
}

/* All of a branch, or of what claims to be a twin: its session, and what descends from that. Who left the session and
 * lost its parent before is not found; that one dies with the next take-over, or the jail. None is waited for: they may
 * be the guest's neighbours. */
static void end_branch(pid_t leader)
{
	struct sweep *s = &sweep;
	int64_t end = cb_now_ms() + BRANCH_MS;
	bool seen;

	if (s->at_work) /* in a take-over: without its leader its session is not spared */
		return;
	begin(s, leader);
	do {
		s->count = s->fresh = 0;
		s->roots = true;
		meet_of_branch(s, leader); /* it may be another's child */
		seen = meet_children_of(s, 1);
		s->roots = false;
		for (size_t i = 0; seen && i < s->count; i++)
			(void)meet_children_of(s, s->list[i]);
		for (size_t i = 0; i < s->count; i++)
			(void)kill(s->list[i], SIGKILL);
	} while (s->fresh > 0 && cb_now_ms() < end);
	if (!seen)
		(void)kill(-leader, SIGKILL);
	s->at_work = false;
}

void cb_twins_reaped(pid_t pid, int status)
{
	int i = find_pid(pid);

	if (i < 0 || (WIFSTOPPED(status) && !twins[i].branch)) /* twins do nothing but wait */
		return;
	if (twins[i].branch)
		end_branch(pid);
	if (WIFSTOPPED(status))
		(void)kill(pid, SIGKILL);
	gone(i, status);
}

/* Nobody can make it go on who is to: so it was made to do so by itself, or by what has no business with it. */
void cb_twins_continued(pid_t pid)
{
	int i = find_pid(pid);

	if (i >= 0 && twins[i].held)
		cb_twins_drop(twins[i].number);
}

int cb_twins_restore(uint32_t number, pid_t *ret_guest)
{
	int i = number != 0 ? find(number) : -1, r;
	int64_t end = cb_now_ms() + SWEEP_MS;
	bool alive;

	if (i < 0 || twins[i].pid == 0)
		return -ESRCH;
	do
		r = end_others(end);
	while (r == 0 && disown_strangers(i, end));
	if (r < 0) {
		cb_init_tell_end(CB_INIT_STUCK, (int)number, (int)sweep.hidden);
		return r;
	}
	alive = twins[i].number == number && lives(twins[i].pid, end);
	make_room(end);
	alive = alive && twins[i].number == number;
	for (int k = 0; k < CB_TWINS_MAX; k++) /* who had not registered is dead */
		if (twins[k].number != 0 && twins[k].pid == 0)
			gone(k, 0);
	if (!alive) {
		if (twins[i].number == number) /* its end need not be waited for */
			forget(i);
		return -ESRCH;
	}
	*ret_guest = twins[i].pid;
	forget(i);
	woken = *ret_guest;
	hold_twins();
	return 0;
}

static void note(void *context, pid_t pid)
{
	struct sweep *s = context;
	int i = find_pid(pid);

	if (pid > 1 && (unsigned)pid < PID_LIMIT && !dying(s, pid) && (i < 0 || !twins[i].held) &&
	    s->count < PROCESSES_MAX)
		s->list[s->count++] = pid;
}

static bool note_children(struct sweep *s)
{
	bool all = cb_proc_children_of(1, 0, note, s) == 0;

	for (size_t i = 0; all && i < s->count; i++)
		all = cb_proc_children_of(s->list[i], 0, note, s) == 0 || kill(s->list[i], 0) < 0;
	return all;
}

/* All are noted before the first runs, which could give others a new parent. */
void cb_twins_go_on(void)
{
	struct sweep *s = &sweep;
	bool held = false;

	for (int i = 0; i < CB_TWINS_MAX; i++)
		held |= twins[i].held;
	if (!held) {
		(void)kill(-1, SIGCONT);
		return;
	}
	s->count = 0;
	if (!note_children(s)) {
		s->count = 0;
		each_number(note, s);
	}
	(void)kill(woken, SIGCONT); /* it may be the child of one that is held */
	for (size_t i = 0; i < s->count; i++)
		(void)kill(s->list[i], SIGCONT);
}

void cb_twins_drop(uint32_t number)
{
	int i = number != 0 ? find(number) : -1;

	if (i < 0)
		return; /* it has ended, and its end was told */
	if (twins[i].branch || twins[i].held) /* else what it has started is the guest's as well */
		end_branch(twins[i].pid);
	if (twins[i].pid != 0)
		(void)kill(twins[i].pid, SIGKILL);
	gone(i, 0);
}
