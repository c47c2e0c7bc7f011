/* Measuring memory from outside: the parsers, and a child that takes memory of each kind. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <cellblock/clock.h>

#include "../../../../sandbox/broker/watchdog.h"

#define MIB (1u << 20)

static void test_parsers(void **state)
{
	static char smaps[] = "7f00-7f10 rw-s 00000000 00:01 5 /dev/zero (deleted)\nSize: 64 kB\nPss: 60 kB\n"
			      "7f20-7f30 rw-s 00000000 00:01 5 /tmp/file\nPss: 50 kB\n"
			      "7f40-7f50 rw-s 00000000 00:01 5 /SYSV00000000 (deleted)\nPss: 3 kB\nPss_Dirty: 3 kB\n"
			      "7f60-7f70 rw-p 00000000 00:00 0\nPss: 9 kB\n";
	FILE *f = fmemopen(smaps, sizeof(smaps) - 1, "r");

	(void)state;
	assert_int_equal(cb_watchdog_field("Rss: 9 kB\nPss_Anon:      12 kB\nPss: 1 kB\n", "Pss_Anon"), 12 * 1024);
	assert_int_equal(cb_watchdog_field("Pss_Anon 12\n", "Pss_Anon"), 0);
	assert_int_equal(cb_watchdog_field("", "Pss"), 0);
	assert_non_null(f);
	assert_int_equal(cb_watchdog_unnamed(f), 63 * 1024);
	fclose(f);
}

/* `children` share 64 MiB, say so and wait. */
static struct cb_memory measure(int flags, int children, int budget_ms, uint64_t limit)
{
	struct cb_jail_spec spec = { .limit_memory = limit };
	struct cb_jail jail = { .spec = &spec, .upper_fd = { -1, -1 }, .without_namespaces = true }; /* no folders */
	struct cb_inmate inmate = CB_INMATE_NONE;
	struct cb_memory found;
	int says[2];
	char byte;
	pid_t pid[2];
	char *p = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(pipe(says), 0);
	for (int i = 0; i < children; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			memset(p, 1, 64 * MIB);
			(void)!write(says[1], "x", 1);
			close(says[1]);
			pause();
		}
	}
	close(says[1]);
	munmap(p, 64 * MIB);
	for (int i = 0; i < children; i++)
		assert_true(read(says[0], &byte, 1) == 1);
	inmate.pid1 = getpid(); /* as if we were pid 1 */
	found = cb_watchdog_measure(&inmate, &jail, budget_ms, 0, spec.limit_memory);
	for (int i = 0; i < children; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	close(says[0]);
	return found;
}

static void test_kinds(void **state)
{
	struct cb_memory m;

	(void)state;
	m = measure(MAP_PRIVATE, 1, 60000, 16 * MIB);
	assert_true(m.bytes >= 64 * MIB && m.bytes < 96 * MIB);
	assert_true(m.anonymous >= 64 * MIB && m.anonymous <= m.bytes);
	m = measure(MAP_SHARED, 1, 60000, 16 * MIB);
	assert_true(m.bytes >= 64 * MIB && m.bytes < 96 * MIB);
	assert_true(m.anonymous < 32 * MIB);
}

/* Who can't be measured in time counts with what it can be at most. */
static void test_no_time(void **state)
{
	struct cb_memory m;

	(void)state;
	m = measure(MAP_SHARED, 2, 60000, 16 * MIB);
	assert_true(m.bytes >= 64 * MIB && m.bytes < 96 * MIB);
	m = measure(MAP_SHARED, 2, 0, 100 * MIB);
	assert_true(m.bytes >= 128 * MIB && m.bytes < 192 * MIB);
	assert_int_equal(m.anonymous, 0);
	/* and what is over the limit for sure needs no more time */
	m = measure(MAP_SHARED, 2, 0, 16 * MIB);
	assert_true(m.bytes > 16 * MIB && m.bytes < 128 * MIB);
}

static void test_over(void **state)
{
	struct cb_jail_spec spec = { .limit_memory = 1 };
	struct cb_jail jail = { .spec = &spec, .upper_fd = { -1, -1 } };
	struct cb_inmate inmate = CB_INMATE_NONE;
	struct cb_watchdog w = { 0 };

	(void)state;
	inmate.pid1 = getppid();
	assert_int_equal(cb_watchdog_look(&w, &inmate, &jail, 0), CB_WATCHDOG_KILL);
	assert_true(w.over > 1);
	assert_int_equal(cb_watchdog_look(&w, &inmate, &jail, 0), CB_WATCHDOG_FINE); /* once */
	spec.limit_memory = UINT64_MAX;
	w = (struct cb_watchdog){ 0 };
	assert_int_equal(cb_watchdog_look(&w, &inmate, &jail, 0), CB_WATCHDOG_FINE);
	assert_true(cb_watchdog_wait(&w) > 50 && w.over == 0);
}

/* Over the limit for a while, if that is allowed; not for ever, and not ever more. */
static void test_grace(void **state)
{
	struct cb_jail_spec spec = { .limit_memory = 1 };
	struct cb_jail jail = { .spec = &spec, .upper_fd = { -1, -1 } };
	struct cb_inmate inmate = CB_INMATE_NONE;
	struct cb_watchdog w = { 0 };
	int64_t until;

	(void)state;
	inmate.pid1 = getppid();
	assert_int_equal(cb_watchdog_look(&w, &inmate, &jail, 60000), CB_WATCHDOG_SHORT);
	assert_true(w.now.bytes > 1 && w.over == 0 && w.until_ms > 0);
	w.until_ms = 1;
	w.next_ms = 0;
	assert_int_equal(cb_watchdog_look(&w, &inmate, &jail, 60000), CB_WATCHDOG_KILL);
	w = (struct cb_watchdog){ 0 };
	assert_int_equal(cb_watchdog_look(&w, &inmate, &jail, 60000), CB_WATCHDOG_SHORT);
	w.most = 1;
	w.next_ms = 0;
	assert_int_equal(cb_watchdog_look(&w, &inmate, &jail, 60000), CB_WATCHDOG_KILL);
	until = cb_now_ms() + 1000;
	w = (struct cb_watchdog){ .until_ms = until, .most = 1, .looked_ms = cb_now_ms() };
	spec.limit_memory = UINT64_MAX; /* one look below wins no more than the time since the last */
	assert_int_equal(cb_watchdog_look(&w, &inmate, &jail, 60000), CB_WATCHDOG_FINE);
	assert_true(w.until_ms >= until && w.until_ms <= until + 2 * (cb_now_ms() - until + 1000) && w.most == 1);
	w.looked_ms -= 60000;
	w.next_ms = 0; /* long below: the next time has a while of its own */
	assert_int_equal(cb_watchdog_look(&w, &inmate, &jail, 60000), CB_WATCHDOG_FINE);
	assert_true(w.until_ms == 0 && w.over == 0);
}

/* A child, as soon as it has said that it is ready. */
static pid_t begin(void (*work)(int says))
{
	int pair[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(pair), 0);
	pid = fork();
	if (pid == 0)
		work(pair[1]);
	close(pair[1]);
	assert_true(read(pair[0], &byte, 1) == 1);
	close(pair[0]);
	return pid;
}

static void take_64_mib(int says)
{
	char *p = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	memset(p, 1, 64 * MIB);
	(void)!write(says, "x", 1);
}

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void hold_64_mib(int says)
{
	take_64_mib(says);
	wait_for_ever(NULL);
}

/* Looks while a child with 64 MiB dies: it is held by its tracer on the way. For `ms` only that was over the limit, for
 * longer than it may be in all. */
static enum cb_watchdog_says look_at_the_killed(int64_t ms)
{
	struct cb_jail_spec spec = { .limit_memory = 16 * MIB };
	struct cb_jail jail = { .spec = &spec, .upper_fd = { -1, -1 }, .without_namespaces = true };
	struct cb_inmate inmate = CB_INMATE_NONE;
	struct cb_watchdog w = { 0 };
	enum cb_watchdog_says says;
	int status;
	pid_t pid = begin(hold_64_mib);

	inmate.pid1 = getpid();
	assert_int_equal(cb_watchdog_look(&w, &inmate, &jail, 60000), CB_WATCHDOG_SHORT);
	assert_true(w.now.bytes >= 64 * MIB && w.now.dying == 0 && w.dying_ms == 0);
	assert_int_equal(ptrace(PTRACE_SEIZE, pid, NULL, PTRACE_O_TRACEEXIT), 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
	w.next_ms = 0;
	w.dying_ms = ms > 0 ? cb_now_ms() - ms : 0;
	w.until_ms = 1;
	says = cb_watchdog_look(&w, &inmate, &jail, 60000);
	assert_in_range(w.now.bytes, 64 * MIB, 128 * MIB);
	assert_in_range(w.now.dying, 64 * MIB, w.now.bytes);
	assert_in_range(w.now.bytes - w.now.dying, 0, 16 * MIB);
	assert_true(w.dying_ms != 0); /* before the boot, too */
	assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return says;
}

static void test_the_dying(void **state)
{
	(void)state;
	assert_int_equal(look_at_the_killed(0), CB_WATCHDOG_FINE);
	assert_int_equal(look_at_the_killed(3000), CB_WATCHDOG_SHORT);
	assert_int_equal(look_at_the_killed(60000), CB_WATCHDOG_KILL);
}

/* Looks at children that have ended and that nobody has waited for, as a user who may not list their descriptors. */
static int look_at_the_dead(void)
{
	struct cb_jail_spec spec = { .limit_memory = 512 * MIB, .limit_open_files = 1 << 20 };
	struct cb_jail jail = { .spec = &spec, .upper_fd = { -1, -1 }, .without_namespaces = true };
	struct cb_inmate inmate = CB_INMATE_NONE;
	struct cb_watchdog w = { 0 };
	siginfo_t info;

	if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
		return 1;
	inmate.pid1 = getpid();
	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0)
			return 2;
	}
	if (cb_watchdog_look(&w, &inmate, &jail, 0) != CB_WATCHDOG_FINE)
		return 3;
	if (w.kernel >= MIB || w.now.bytes >= 64 * MIB)
		return 4;
	w.kernel = 1024 * MIB; /* as if one of them had held that at the last look, which still counts */
	w.kernel_ms = INT64_MAX;
	w.next_ms = 0;
	if (cb_watchdog_look(&w, &inmate, &jail, 0) != CB_WATCHDOG_FINE)
		return 5;
	return w.kernel < MIB ? 0 : 6;
}

static void test_the_dead_hold_nothing(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(look_at_the_dead());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Its first thread ends, and so does each other one as soon as it has begun the next. */
static int pass_on(void *unused)
{
	static char stacks[64][4096] __attribute__((aligned(16)));
	static volatile pid_t uses[64]; /* the kernel clears it when the thread has ended */
	size_t at = 0;

	while (uses[at] != 0)
		at = (at + 1) % 64;
	uses[at] = 1;
	while (clone(pass_on, stacks[at] + sizeof(stacks[at]),
		     CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			     CLONE_CHILD_CLEARTID,
		     unused, NULL, NULL, &uses[at]) < 0)
		;
	(void)syscall(SYS_exit, 0); /* of this thread */
	return 0;
}

static void hide_with_64_mib(int says)
{
	take_64_mib(says);
	pass_on(NULL);
}

static void test_threads_that_end_before_they_are_seen(void **state)
{
	struct cb_jail_spec spec = { .limit_memory = 32 * MIB };
	struct cb_jail jail = { .spec = &spec, .upper_fd = { -1, -1 }, .without_namespaces = true };
	struct cb_inmate inmate = CB_INMATE_NONE;
	pid_t pid = begin(hide_with_64_mib);

	(void)state;
	inmate.pid1 = getpid();
	for (int i = 0; i < 200; i++)
		assert_true(cb_watchdog_measure(&inmate, &jail, 60000, 0, 0).bytes >= 64 * MIB);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void begin_64_threads(int says)
{
	pthread_t thread;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int n = 0; n < 64; n++)
		(void)pthread_create(&thread, NULL, wait_for_ever, NULL);
	(void)!write(says, "x", 1);
	wait_for_ever(NULL);
}

/* But many threads that end are no such trick. */
static void test_threads_that_are_killed(void **state)
{
	struct cb_jail_spec spec = { .limit_memory = 32 * MIB };
	struct cb_jail jail = { .spec = &spec, .upper_fd = { -1, -1 }, .without_namespaces = true };
	struct cb_inmate inmate = CB_INMATE_NONE;

	(void)state;
	inmate.pid1 = getpid();
	for (int i = 0; i < 20; i++) {
		pid_t pid = begin(begin_64_threads);

		kill(pid, SIGKILL);
		do
			assert_true(cb_watchdog_measure(&inmate, &jail, 60000, 0, 0).bytes < 1024 * MIB);
		while (waitpid(pid, NULL, WNOHANG) == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parsers),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_no_time),
		cmocka_unit_test(test_over),
		cmocka_unit_test(test_grace),
		cmocka_unit_test(test_the_dying),
		cmocka_unit_test(test_the_dead_hold_nothing),
		cmocka_unit_test(test_threads_that_end_before_they_are_seen),
		cmocka_unit_test(test_threads_that_are_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
