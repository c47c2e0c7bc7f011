/* Threads for test_copier.py and others, as C libraries have them: one that holds mutexes which know their owner by
 * number, one in a call that no signal ends, one that no signal reaches, one that is busy, one with no room on its
 * stack for a signal's frame, many that use all kinds of locks at random. Built by the test, loaded in the guest. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- one that holds two mutexes until told ---- */

static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static _Atomic int holds, release, released = -1;

static void *hold(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&recursive);
	pthread_mutex_lock(&recursive);
	pthread_mutex_lock(&checking);
	holds = 1;
	while (!release)
		usleep(1000);
	released =
		pthread_mutex_unlock(&checking) | pthread_mutex_unlock(&recursive) | pthread_mutex_unlock(&recursive);
	return NULL;
}

int begin_to_hold(void)
{
	pthread_t t;

	return pthread_create(&t, NULL, hold, NULL);
}

int holding(void)
{
	return holds;
}

/* What unlocking gave; then both can be taken by this thread. */
int let_go(void)
{
	int r;

	release = 1;
	while (released < 0)
		usleep(1000);
	r = pthread_mutex_lock(&recursive);
	if (r == 0)
		r = pthread_mutex_lock(&checking);
	return r == 0 ? released : r;
}

/* ---- a call that no signal ends: the parent of vfork stands still until the child ends ---- */

static _Atomic int still;

static void *stand_still(void *unused)
{
	int ends[2];
	char c;

	(void)unused;
	still = pipe(ends) == 0 ? ends[1] : -1;
	if (vfork() == 0) {
		(void)!read(ends[0], &c, 1);
		_exit(0);
	}
	still = 0;
	return NULL;
}

/* The fd to write to when it is to go on. */
int begin_to_stand_still(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, stand_still, NULL) != 0)
		return -1;
	while (still == 0)
		usleep(1000);
	usleep(50000); /* vfork comes after that; one that is not there yet stops, and the test says so */
	return still;
}

/* ---- one that has blocked all signals; the C library would leave its own unblocked ---- */

static _Atomic int deaf;

static void *be_deaf(void *unused)
{
	uint64_t all = ~0ull;

	(void)unused;
	deaf = syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, sizeof(all)) == 0 ? 1 : -1;
	for (;;)
		pause();
	return NULL;
}

int begin_to_be_deaf(void)
{
	pthread_t t;
	int r = pthread_create(&t, NULL, be_deaf, NULL);

	while (r == 0 && deaf == 0)
		usleep(1000);
	return r != 0 || deaf < 0 ? -1 : 0;
}

/* ---- one that is busy, and asks where a file stands as soon as it is in a copy ---- */

static _Atomic int looks, looked_at = -1;
static volatile long turns;
static int file, process;

static void *look(void *unused)
{
	(void)unused;
	do
		for (int i = 0; i < 1000; i++)
			turns++;
	while (getpid() == process);
	looks = 0;
	looked_at = (int)lseek(file, 0, SEEK_CUR);
	return NULL;
}

int begin_to_look(int fd)
{
	pthread_t t;

	if (looks)
		return 0;
	file = fd;
	process = getpid();
	looks = 1;
	looked_at = -1;
	return pthread_create(&t, NULL, look, NULL);
}

/* In a copy. */
int position_seen(void)
{
	for (int i = 0; i < 10000 && looked_at < 0; i++)
		usleep(1000);
	return looked_at;
}

/* ---- one whose stack is full: signals are handled on another one ---- */

#define LEFT 1024 /* bytes: less than a signal's frame */
static char for_signals[65536];
static _Atomic long small_rounds, lost;

static void *fill_stack(void *stack)
{
	stack_t other = { .ss_sp = for_signals, .ss_size = sizeof(for_signals) }, now;
	volatile char *full;

	lost += sigaltstack(&other, NULL) != 0;
	usleep(1); /* the dynamic linker wants more room the first time */
	full = __builtin_alloca((size_t)((char *)__builtin_frame_address(0) - (char *)stack) - LEFT);
	for (;; small_rounds++) {
		*full = 1;
		usleep(1000);
		lost += sigaltstack(NULL, &now) != 0 || now.ss_sp != for_signals;
	}
	return NULL;
}

int begin_with_full_stack(void)
{
	size_t page = 4096, size = (size_t)PTHREAD_STACK_MIN + 4 * page;
	char *stack = mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t how;
	pthread_t t;

	if (stack == MAP_FAILED || mprotect(stack, page, PROT_NONE) != 0 || pthread_attr_init(&how) != 0 ||
	    pthread_attr_setstack(&how, stack + page, size) != 0)
		return -1;
	return pthread_create(&t, &how, fill_stack, stack + page);
}

long rounds_on_full_stack(void)
{
	return small_rounds;
}

/* Such rounds. */
long without_stack_for_signals(void)
{
	return lost;
}

/* ---- restartable sequences: rseq(2) ---- */

/* The C library's, where it registers each thread (glibc 2.35 and newer). */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/* 1: this thread has not registered, for one that has may not do so again. -1: the C library registers none. */
int lacks_rseq(void)
{
	char *own;
#if defined(__x86_64__)
	const unsigned signature = 0x53053053;

	__asm__("mov %%fs:0, %0" : "=r"(own));
#else
	const unsigned signature = 0xd428bc00;

	__asm__("mrs %0, tpidr_el0" : "=r"(own));
#endif
	if (&__rseq_size == NULL || __rseq_size == 0)
		return -1;
	return syscall(SYS_rseq, own + __rseq_offset, 32, 0, signature) == 0 || (errno != EBUSY && errno != EINVAL);
}

/* ---- many, at random ---- */

#define LOCKS 8
static pthread_mutex_t locks[LOCKS];
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t bell_lock = PTHREAD_MUTEX_INITIALIZER;
static long counts[LOCKS], shared_count, shared_again; /* the latter two: by who has `rw` for writing */
static FILE *printed; /* all print to it, and it has a lock of its own */
static _Atomic long rounds, wrong, interrupted, writers;
static _Atomic int stop, alive;

static void *short_lived(void *argument)
{
	free(argument);
	return NULL;
}

/* What one thread has for itself. */
struct own {
	int ends[2];          /* of a pipe; reading does not block, so that what waits in it comes back */
	pthread_mutex_t lock; /* with priority inheritance: nobody waits for it */
	long locked;
};

static void begin_own(struct own *o)
{
	pthread_mutexattr_t kind;

	wrong += pipe2(o->ends, O_CLOEXEC) != 0 || fcntl(o->ends[0], F_SETFL, O_NONBLOCK) != 0;
	wrong += pthread_mutexattr_init(&kind) != 0 || pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT) != 0;
	wrong += pthread_mutex_init(&o->lock, &kind) != 0;
	o->locked = 0;
}

static void end_own(struct own *o)
{
	wrong += pthread_mutex_destroy(&o->lock) != 0;
	close(o->ends[0]);
	close(o->ends[1]);
}

/* poll(2), however often it is interrupted: how many are ready. */
static int ready(int fd, int timeout)
{
	struct pollfd p = { fd, POLLIN, 0 };
	int r;

	while ((r = poll(&p, 1, timeout)) < 0 && errno == EINTR)
		interrupted++;
	return r;
}

static void use_own(struct own *o, unsigned *seed)
{
	char c = 'x';
	long before;

	wrong += pthread_mutex_lock(&o->lock) != 0;
	before = o->locked++;
	wrong += ready(o->ends[0], rand_r(seed) % 2) != 0;
	wrong += write(o->ends[1], &c, 1) != 1;
	wrong += ready(o->ends[0], 60000) != 1;
	wrong += read(o->ends[0], &c, 1) != 1;
	wrong += o->locked != before + 1;
	wrong += pthread_mutex_unlock(&o->lock) != 0;
	wrong += fprintf(printed, "%ld rounds\n", before) < 0 || fflush(printed) != 0;
}

/* Readers see both counts alike, and no write of one is lost. */
static void use_shared(unsigned *seed, const struct timespec *pause)
{
	long before;

	if (rand_r(seed) % 8 == 0) {
		wrong += pthread_rwlock_wrlock(&rw) != 0;
		before = shared_count++;
		if (rand_r(seed) % 4 == 0)
			interrupted += nanosleep(pause, NULL) != 0 && errno == EINTR;
		wrong += shared_again++ != before;
		writers++;
	} else {
		wrong += pthread_rwlock_rdlock(&rw) != 0;
		wrong += shared_count != shared_again;
	}
	wrong += pthread_rwlock_unlock(&rw) != 0;
}

static void one_round(unsigned *seed)
{
	unsigned n = (unsigned)rand_r(seed) % LOCKS;
	struct timespec pause = { 0, (long)(rand_r(seed) % 200) * 1000 };
	void *memory = malloc(1 + (size_t)rand_r(seed) % 100000);
	pthread_t t;
	long before;

	wrong += pthread_mutex_lock(&locks[n]) != 0;
	before = counts[n]++;
	if (rand_r(seed) % 4 == 0)
		interrupted += nanosleep(&pause, NULL) != 0 && errno == EINTR;
	wrong += counts[n] != before + 1;
	wrong += pthread_mutex_unlock(&locks[n]) != 0;
	use_shared(seed, &pause);
	if (rand_r(seed) % 16 == 0 && pthread_create(&t, NULL, short_lived, memory) == 0)
		wrong += pthread_join(t, NULL) != 0;
	else
		free(memory);
	pthread_mutex_lock(&bell_lock);
	pthread_cond_signal(&bell);
	if (rand_r(seed) % 4 == 0) {
		struct timespec end;

		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_nsec += 500000;
		end.tv_sec += end.tv_nsec / 1000000000;
		end.tv_nsec %= 1000000000;
		(void)pthread_cond_timedwait(&bell, &bell_lock, &end);
	}
	pthread_mutex_unlock(&bell_lock);
	rounds++;
}

static void *work(void *number)
{
	unsigned seed = (unsigned)(size_t)number;
	struct own own;

	begin_own(&own);
	while (!stop) {
		one_round(&seed);
		if (rand_r(&seed) % 4 == 0)
			use_own(&own, &seed);
	}
	end_own(&own);
	alive--;
	return NULL;
}

int begin_work(int n)
{
	static const int kinds[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
				     PTHREAD_MUTEX_ADAPTIVE_NP };
	pthread_mutexattr_t kind;
	pthread_t t;

	printed = fopen("/dev/null", "we");
	if (printed == NULL)
		return -1;
	for (int i = 0; i < LOCKS; i++) {
		pthread_mutexattr_init(&kind);
		pthread_mutexattr_settype(&kind, kinds[i % 4]);
		pthread_mutex_init(&locks[i], &kind);
	}
	for (int i = 0; i < n; i++) {
		alive++;
		if (pthread_create(&t, NULL, work, (void *)(size_t)(i + 1)) != 0)
			return -1;
		pthread_detach(t);
	}
	return 0;
}

long rounds_done(void)
{
	return rounds;
}

/* How often a sleep or a poll ended with EINTR, which the stop for a copy may do to the original. */
long calls_interrupted(void)
{
	return interrupted;
}

/* Ends them; what was wrong, or the number of those that did not end. */
long end_work(void)
{
	stop = 1;
	for (int i = 0; i < 10000 && alive > 0; i++)
		usleep(1000);
	return alive > 0 ? alive : wrong + (shared_count != writers);
}
