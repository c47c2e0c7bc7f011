/* All threads stop, and come back in a copy of the process.
 *
 * Trust domain: guest. A thread stops in a signal's handler and waits there; a copy of the process has its stack with
 * what the kernel put there for the handler: registers, signal mask, alternative stack. In a copy that goes on a thread
 * is made for each, with the old thread pointer and the old address of its id, and returns from the handler.
 *
 * Invariants: the handler takes only what was sent from here, and gives all else to the one before it, for the C
 * library uses this signal as well (setuid(2) with threads): nobody can block it by the library. Either all
 * threads stop or none stays stopped. In a copy no thread goes on before each is there. The kernel knows it by another
 * number then; the C library goes on to know it by the old one, for that stands in every recursive and error-checking
 * mutex that it holds. (So pthread_kill to it finds nobody there.)
 */
#include "parts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <ucontext.h>

#include "sys.h"

#define SIGNAL 33	       /* glibc's SIGSETXID */
#define PATIENCE_NS 100000000L /* for all to stop; on a busy machine some ms */
#define BUSY_NS 900000000L     /* for those that would, but have no processor */
#define SLICE_NS 1000000L      /* then it is looked whether one has ended */
#define ROOM_NS 1000000000L    /* for a thread that is made anew */
#define TURN_NS 100000000L     /* then it is looked what the first thread of a copy does */
#define TURNS 3		       /* that often it waits, then the others go on */
#define RSEQ_SIZE 32
#if defined(__x86_64__)
#define RSEQ_SIGNATURE 0x53053053
#else
#define RSEQ_SIGNATURE 0xd428bc00
#endif
#define THREAD_FLAGS                                                                                                   \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |             \
	 CLONE_CHILD_CLEARTID)

/* Of the kernel; the C library's own differ from them. */
struct action {
	void (*handler)(int, void *, void *);
	unsigned long flags;
	void *restorer;
	uint64_t mask;
};
enum { SA_SIGINFO_ = 4, SA_RESTORER_ = 0x04000000, SA_ONSTACK_ = 0x08000000, SA_RESTART_ = 0x10000000 };
enum { PR_SET_NAME_ = 15, PR_GET_NAME_ = 16, PR_GET_TID_ADDRESS_ = 40 };

/* What a thread notes of itself, on its own stack. */
struct saved {
	void *frame;
	bool waited; /* in a system call that a signal ends: so it holds no lock that an allocation needs */
	unsigned long tls;
	int *tid_address; /* the kernel clears it at the thread's end, and wakes who waits */
	char name[16];
	int nice;
	unsigned long cpus[16];
	long cpus_size;
};

/* state: CALLED in which round, then the address of what it has noted, or ENDED. One that comes too late changes
 * nothing: its round is over. */
struct thread {
	int tid, new_tid;
	_Atomic uintptr_t state;
};
#define CALLED(round) (((uintptr_t)(unsigned)(round) << 1) | 1)
#define ENDED ((uintptr_t)0)

static struct thread threads[CB_COPIER_THREADS_MAX];
static int count;
static _Atomic int armed, arrivals, go, owed; /* owed: signals that were sent and have not come */
static _Atomic int back, gate;		      /* gate: 1 = who was busy may go on, 2 = all may */
static struct action before;		      /* whose handler is called for what is not ours */
static int *my_tid_address;

/* The C library's, where it has registered one (glibc 2.35 and newer). */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static long futex(_Atomic int *at, int op, int value, const struct timespec *timeout)
{
	return cb_sys4(SYS_futex, at, op | FUTEX_PRIVATE_FLAG, value, timeout);
}

static int get_tid_address(int **ret)
{
	return (int)cb_sys2(SYS_prctl, PR_GET_TID_ADDRESS_, ret);
}

void cb_threads_restore_own(void)
{
	*my_tid_address = (int)cb_sys0(SYS_gettid);
	(void)cb_sys1(SYS_set_tid_address, my_tid_address);
}

/* Return addresses are kept a second time, where only the processor writes: a thread that is made anew would have none.
 */
static bool has_shadow_stack(void)
{
	unsigned long features = 0;

#if defined(__x86_64__)
	(void)cb_sys2(SYS_arch_prctl, 0x5005, &features); /* ARCH_SHSTK_STATUS */
#else
	(void)cb_sys2(SYS_prctl, 74, &features); /* PR_GET_SHADOW_STACK_STATUS */
#endif
	return (features & 1) != 0;
}

/* ---- in a thread that is called ---- */

static struct thread *find(int tid)
{
	for (int i = 0; i < count; i++)
		if (threads[i].tid == tid)
			return &threads[i];
	return NULL;
}

/* Calls that an allocation makes, with its lock taken. */
static bool is_of_memory(long call)
{
	return call == SYS_mmap || call == SYS_munmap || call == SYS_brk || call == SYS_mprotect ||
	       call == SYS_madvise || call == SYS_mremap;
}

/* The kernel has set it back to begin the call again, or the call has returned EINTR. */
static bool was_waiting(const ucontext_t *u)
{
#if defined(__x86_64__)
	const uint16_t *at = (const uint16_t *)u->uc_mcontext.gregs[REG_RIP];
	const uint16_t call = 0x050f;
	long result = u->uc_mcontext.gregs[REG_RAX], number = result;
#else
	const uint32_t *at = (const uint32_t *)u->uc_mcontext.pc;
	const uint32_t call = 0xd4000001;
	long result = (long)u->uc_mcontext.regs[0], number = (long)u->uc_mcontext.regs[8];
#endif
	return result == -EINTR ? at[-1] == call : *at == call && !is_of_memory(number);
}

#if defined(__x86_64__)
/* Whether a call that waits does so without an end, or until a point in time: begun again it waits as long. */
static bool waits_as_long(long call, const greg_t *r)
{
	switch (call) {
	case SYS_futex:
		return (r[REG_RSI] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
	case SYS_clock_nanosleep:
		return (r[REG_RSI] & TIMER_ABSTIME) != 0;
	case SYS_poll:
		return (int)r[REG_RDX] < 0;
	case SYS_ppoll:
		return r[REG_RDX] == 0;
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
		return (int)r[REG_R10] < 0;
	case SYS_pselect6:
		return r[REG_R8] == 0;
	default:
		return false;
	}
}
#endif

/* Such a call is begun again; the kernel would have it return EINTR. CPython's SimpleQueue.get(timeout) waits without
 * end if that comes just at its time, and libzmq's threads, in a copy, ask again without end. The number of the call is
 * not kept: it stands before it, where the C library makes it. On aarch64 the first argument is lost. */
static void wait_on(ucontext_t *u)
{
#if defined(__x86_64__)
	greg_t *r = u->uc_mcontext.gregs;
	const uint8_t *at = (const uint8_t *)r[REG_RIP] - 7; /* b8 N N 0 0, 0f 05: mov $N,%eax; syscall */
	long call;

	if (r[REG_RAX] != -EINTR || ((uintptr_t)at & 4095) > 4096 - 7) /* what is on the page before may not be there */
		return;
	if (at[0] != 0xb8 || at[3] != 0 || at[4] != 0 || at[5] != 0x0f || at[6] != 0x05)
		return;
	call = at[1] | at[2] << 8;
	if (!waits_as_long(call, r))
		return;
	r[REG_RAX] = call;
	r[REG_RIP] -= 2;
#else
	(void)u;
#endif
}

static void note(struct saved *s, void *info, void *context)
{
#if defined(__x86_64__)
	(void)info;
	s->frame = context;
#else
	s->frame = info;
#endif
	s->waited = was_waiting(context);
	wait_on(context);
	s->tls = cb_sys_thread_pointer();
	(void)get_tid_address(&s->tid_address);
	(void)cb_sys2(SYS_prctl, PR_GET_NAME_, s->name);
	s->nice = 20 - (int)cb_sys2(SYS_getpriority, 0, 0);
	s->cpus_size = cb_sys3(SYS_sched_getaffinity, 0, sizeof(s->cpus), s->cpus);
}

/* By tgkill(2): from here, or by the C library. Others of the same user may send it as well. */
static bool is_ours(const siginfo_t *s)
{
	return s->si_code == SI_TKILL && s->si_pid == (int)cb_sys0(SYS_getpid);
}

static void on_signal(int signal, void *info, void *context)
{
	bool ours = is_ours(info);
	int round = atomic_load(&go);
	struct thread *t = atomic_load(&armed) ? find((int)cb_sys0(SYS_gettid)) : NULL;
	uintptr_t called = CALLED(round);
	struct saved saved;

	if (!ours || t == NULL || atomic_load(&t->state) != called) {
		if (ours && atomic_load(&owed) > 0)
			atomic_fetch_sub(&owed, 1); /* it came too late, and nobody waits for it any more */
		else if ((uintptr_t)before.handler > 1)
			before.handler(signal, info, context);
		return;
	}
	atomic_fetch_sub(&owed, 1);
	note(&saved, info, context);
	if (!atomic_compare_exchange_strong(&t->state, &called, (uintptr_t)&saved))
		return;
	atomic_fetch_add(&arrivals, 1);
	(void)futex(&arrivals, FUTEX_WAKE, 1, NULL);
	while (atomic_load(&go) == round)
		(void)futex(&go, FUTEX_WAIT, round, NULL);
}

/* ---- in the one that calls ---- */

static int install(void)
{
	struct action ours = { .handler = on_signal,
			       .flags = SA_SIGINFO_ | SA_RESTART_ | SA_ONSTACK_,
			       .restorer = cb_sys_restorer(),
			       .mask = ~0ULL },
		      old = { 0 };
	long r;

	if (ours.restorer != NULL)
		ours.flags |= SA_RESTORER_;
	r = cb_sys4(SYS_rt_sigaction, SIGNAL, &ours, &old, sizeof(ours.mask));
	if (r == 0 && old.handler != on_signal)
		before = old; /* the C library installs its own with the first thread */
	return (int)r;
}

struct calls {
	int process, me;
	int called; /* of those that were not called before */
};

static int call(void *context, int tid)
{
	struct calls *c = context;
	struct thread *t = &threads[count];
	long r;

	if (tid == c->me || find(tid) != NULL)
		return 0;
	if (count == CB_COPIER_THREADS_MAX)
		return -E2BIG;
	t->tid = tid;
	t->new_tid = 0;
	atomic_store(&t->state, CALLED(atomic_load(&go)));
	count++;
	atomic_fetch_add(&owed, 1);
	r = cb_sys3(SYS_tgkill, c->process, tid, SIGNAL);
	if (r < 0) {
		atomic_fetch_sub(&owed, 1);
		count--;
	}
	c->called += r == 0;
	return r == -ESRCH ? 0 : (int)r;
}

/* Who has ended before it came to stop is not waited for. */
static void look_for_ended(int process)
{
	for (int i = 0; i < count; i++) {
		uintptr_t called = CALLED(atomic_load(&go));

		if (atomic_load(&threads[i].state) == called &&
		    cb_sys3(SYS_tgkill, process, threads[i].tid, 0) == -ESRCH &&
		    atomic_compare_exchange_strong(&threads[i].state, &called, ENDED))
			atomic_fetch_sub(&owed, 1);
	}
}

static bool all_arrived(void)
{
	for (int i = 0; i < count; i++)
		if (atomic_load(&threads[i].state) == CALLED(atomic_load(&go)))
			return false;
	return true;
}

/* As proc(5) has it: R, S, D ...; 0: it is gone. */
static char state_of(int tid)
{
	char path[64], text[256] = "", state = '\0';
	long fd = cb_sys4(SYS_openat, AT_FDCWD, cb_sys_path(path, "/proc/self/task/", tid, "/stat"),
			  O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return '\0';
	(void)cb_sys3(SYS_read, fd, text, sizeof(text) - 1);
	(void)cb_sys1(SYS_close, fd);
	for (const char *at = text; *at != '\0'; at++) /* it stands behind the name, which may have any character */
		if (at[0] == ')' && at[1] == ' ')
			state = at[2];
	return state;
}

/* Whether one that did not come to stop waits for a processor; then it holds nobody up but by that. */
static bool any_would_run(void)
{
	for (int i = 0; i < count; i++)
		if (atomic_load(&threads[i].state) == CALLED(atomic_load(&go)) && state_of(threads[i].tid) == 'R')
			return true;
	return false;
}

static int wait_for_all(int process, int64_t end)
{
	for (;;) {
		struct timespec slice = { 0, SLICE_NS };
		int n = atomic_load(&arrivals);

		if (all_arrived())
			return 0;
		if (futex(&arrivals, FUTEX_WAIT, n, &slice) == -ETIMEDOUT) {
			look_for_ended(process);
			if (cb_sys_now_ns() > end + BUSY_NS || (cb_sys_now_ns() > end && !any_would_run()))
				return -ETIMEDOUT;
		}
	}
}

int cb_threads_stop(void)
{
	struct calls c = { .process = (int)cb_sys0(SYS_getpid), .me = (int)cb_sys0(SYS_gettid) };
	int64_t end = cb_sys_now_ns() + PATIENCE_NS;
	int r;

	count = 0;
	r = has_shadow_stack() ? -ENOTSUP : get_tid_address(&my_tid_address); /* EINVAL: a kernel that does not say */
	if (r == 0)
		r = install();
	atomic_store(&armed, 1);
	while (r == 0) { /* those that still ran may have made more */
		c.called = 0;
		r = cb_sys_numbers_in("/proc/self/task", call, &c);
		if (r < 0 || c.called == 0)
			break;
		r = wait_for_all(c.process, end);
	}
	if (r < 0)
		cb_threads_go_on();
	return r;
}

void cb_threads_go_on(void)
{
	atomic_store(&armed, 0);
	atomic_fetch_add(&go, 1);
	(void)futex(&go, FUTEX_WAKE, 0x7fffffff, NULL);
}

/* ---- in a copy ---- */

static void register_rseq(unsigned long tls)
{
	if (&__rseq_size != NULL && __rseq_size != 0)
		(void)cb_sys4(SYS_rseq, tls + (unsigned long)__rseq_offset, RSEQ_SIZE, 0, RSEQ_SIGNATURE);
}

void cb_threads_restore_all_own(void)
{
	cb_threads_restore_own();
	register_rseq(cb_sys_thread_pointer());
}

static void as_it_was(const struct saved *s)
{
	unsigned long cpus[16];

	register_rseq(s->tls);
	(void)cb_sys2(SYS_prctl, PR_SET_NAME_, s->name);
	if (20 - (int)cb_sys2(SYS_getpriority, 0, 0) != s->nice)
		(void)cb_sys3(SYS_setpriority, 0, 0, s->nice);
	if (s->cpus_size > 0 && cb_sys3(SYS_sched_getaffinity, 0, sizeof(cpus), cpus) == s->cpus_size) {
		bool same = true;

		for (size_t i = 0; i < (size_t)s->cpus_size / sizeof(cpus[0]); i++)
			same = same && cpus[i] == s->cpus[i];
		if (!same)
			(void)cb_sys3(SYS_sched_setaffinity, 0, s->cpus_size, s->cpus);
	}
}

/* Who waited in a system call waits on, until the first one (its number is the process's) is ready. That one may itself
 * wait, for one of these: a thread that had asked for the interpreter's lock before all stopped is given it, and it is
 * waited for (ceval_gil.h's FORCE_SWITCHING), or it has a place in a condition variable that glibc before 2.41 wants
 * left. So nobody waits long.
 */
static void begin(void *context)
{
	const struct saved *s = context;
	int open, seen = 0;

	as_it_was(s);
	atomic_fetch_add(&back, 1);
	(void)futex(&back, FUTEX_WAKE, 1, NULL);
	while ((open = atomic_load(&gate)) < (s->waited ? 2 : 1)) {
		const struct timespec turn = { 0, TURN_NS };

		if (futex(&gate, FUTEX_WAIT, open, &turn) != -ETIMEDOUT || open == 0)
			continue;
		seen = state_of((int)cb_sys0(SYS_getpid)) == 'S' ? seen + 1 : 0;
		if (seen == TURNS)
			cb_threads_all_go_on();
	}
	cb_sys_sigreturn(s->frame);
}

/* There may be no room (limits.pids) until those that a take-over has killed are gone. */
static long thread_for(struct saved *s)
{
	struct timespec pause = { 0, SLICE_NS };
	int64_t end = cb_sys_now_ns() + ROOM_NS;
	long tid;

	/* what is above `s` in its stack stays as it is */
	while ((tid = cb_sys_thread(THREAD_FLAGS, (void *)((uintptr_t)s & ~(uintptr_t)63), NULL, s->tid_address, s->tls,
				    begin, s)) == -EAGAIN &&
	       cb_sys_now_ns() < end)
		(void)cb_sys2(SYS_nanosleep, &pause, NULL);
	return tid;
}

int cb_threads_revive(void)
{
	int made = 0, n;

	atomic_store(&armed, 0);
	atomic_store(&owed, 0);
	atomic_store(&back, 0);
	atomic_store(&gate, 0);
	for (int i = 0; i < count; i++) {
		struct saved *s = (struct saved *)atomic_load(&threads[i].state);
		long tid;

		if (s == NULL)
			continue;
		tid = thread_for(s);
		if (tid < 0)
			return (int)tid;
		threads[i].new_tid = (int)tid;
		made++;
	}
	while ((n = atomic_load(&back)) < made)
		(void)futex(&back, FUTEX_WAIT, n, NULL);
	atomic_store(&gate, 1);
	(void)futex(&gate, FUTEX_WAKE, 0x7fffffff, NULL);
	return 0;
}

void cb_threads_all_go_on(void)
{
	atomic_store(&gate, 2);
	(void)futex(&gate, FUTEX_WAKE, 0x7fffffff, NULL);
}

bool cb_threads_ids(long i, int *ret_old, int *ret_new)
{
	if (i < 0 || i >= count)
		return false;
	*ret_old = threads[i].tid;
	*ret_new = threads[i].new_tid;
	return true;
}
