/* Measuring memory from outside: the parsers, and a child that takes memory of each kind. */
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
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
			      "7f60-7f70 rw-p 00000000 00:00 0\nPss: 9 kB\n"
			      "7f80-7f90 rw-s 00000000 00:01 6 [anon_shmem:a name]\nPss: 200 kB\n"
			      "7fa0-7fb0 rw-s 00000000 00:01 7 [anon_shmem:/tmp/file]\nPss: 1000 kB\n"
			      "7fc0-7fd0 rw-p 00000000 00:00 0 [anon:/dev/zero (deleted)]\nPss: 7 kB\n"
			      "7fe0-7ff0 rw-s 00000000 00:30 8 /tmp/[anon_shmem:x\nPss: 5 kB\n";
	FILE *f = fmemopen(smaps, sizeof(smaps) - 1, "r");

	(void)state;
	assert_non_null(f);
	assert_int_equal(cb_watchdog_unnamed(f), 1263 * 1024);
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

/* As pid 1, to which orphans go and which waits for all at once. */
static void be_pid1(bool on)
{
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, on), 0);
	assert_true(signal(SIGCHLD, on ? SIG_IGN : SIG_DFL) != SIG_ERR);
}

static void end_all(const pid_t *pid, int count)
{
	for (int i = 0; i < count; i++)
		kill(pid[i], SIGKILL);
	for (int i = 0; i < count; i++)
		assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
}

static void stay_with_parent(int says)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)!write(says, "x", 1);
}

static void stay(int says)
{
	stay_with_parent(says);
	wait_for_ever(NULL);
}

/* Each lives only until its child does; nobody is the child of who has ended but the one that is pid 1 to them. */
static void hop_with_64_mib(int says)
{
	pid_t outside = getppid();

	take_64_mib(says);
	while (getppid() == outside) {
		pid_t parent = getpid();

		if (fork() != 0)
			_exit(0);
		while (getppid() == parent)
			sched_yield();
	}
	_exit(0);
}

/* The lists of children change while they are read. */
static void test_a_process_that_hops_from_parent_to_parent(void **state)
{
	struct cb_jail_spec spec = { .limit_memory = 32 * MIB };
	struct cb_jail jail = { .spec = &spec, .upper_fd = { -1, -1 }, .without_namespaces = true };
	struct cb_inmate inmate = CB_INMATE_NONE;
	pid_t pid[60];
	uint64_t before;

	(void)state;
	be_pid1(true);
	for (int i = 0; i < 60; i++)
		pid[i] = begin(stay);
	inmate.pid1 = getpid();
	before = cb_watchdog_measure(&inmate, &jail, 60000, 0, UINT64_MAX).rough;
	(void)begin(hop_with_64_mib);
	for (int i = 0; i < 20; i++) {
		struct cb_memory m = cb_watchdog_measure(&inmate, &jail, 60000, 0, UINT64_MAX);

		assert_true(m.rough >= before + 60 * MIB);
	}
	be_pid1(false); /* who hops has no parent here any more, and ends */
	end_all(pid, 60);
}

static void begin_others(int says)
{
	stay_with_parent(says);
	for (;;) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		(void)waitpid(pid, NULL, 0);
	}
}

/* But to begin new ones all the time, as make does, is no such trick. */
static void test_many_that_begin_and_end(void **state)
{
	struct cb_jail_spec spec = { .limit_memory = 32 * MIB };
	struct cb_jail jail = { .spec = &spec, .upper_fd = { -1, -1 }, .without_namespaces = true };
	struct cb_inmate inmate = CB_INMATE_NONE;
	pid_t pid[30];

	(void)state;
	for (int i = 0; i < 30; i++)
		pid[i] = begin(i < 24 ? stay : begin_others);
	inmate.pid1 = getpid();
	for (int i = 0; i < 50; i++) /* nobody counts as hidden */
		assert_true(cb_watchdog_measure(&inmate, &jail, 60000, 0, UINT64_MAX).rough < 1024ull * 1024 * MIB / 2);
	end_all(pid, 30);
}

/* Nobody goes uncounted because we can't look. */
static void test_who_can_not_be_looked_at(void **state)
{
	struct cb_jail_spec spec = { .limit_memory = 1024 * MIB };
	struct cb_jail jail = { .spec = &spec, .upper_fd = { -1, -1 }, .without_namespaces = true };
	struct cb_inmate inmate = CB_INMATE_NONE;
	struct rlimit files, none;
	struct cb_memory m;
	pid_t pid = begin(hold_64_mib);

	(void)state;
	inmate.pid1 = getpid();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	none = (struct rlimit){ 0, files.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	m = cb_watchdog_measure(&inmate, &jail, 60000, 0, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	assert_true(m.rough > 1024ull * 1024 * MIB / 2 && m.bytes > 1024ull * 1024 * MIB / 2);
	assert_true(cb_watchdog_measure(&inmate, &jail, 60000, 0, 0).bytes < 1024 * MIB);
	end_all(&pid, 1);
}

static void hold_64_mib_in_many_groups(int says)
{
	gid_t groups[1000];

	for (gid_t i = 0; i < 1000; i++)
		groups[i] = 4000000000u + i;
	if (setgroups(1000, groups) == 0)
		hold_64_mib(says);
	_exit(1);
}

/* They stand before the memory. */
static void test_the_groups_of_a_process(void **state)
{
	struct cb_jail_spec spec = { .limit_memory = 32 * MIB };
	struct cb_jail jail = { .spec = &spec, .upper_fd = { -1, -1 }, .without_namespaces = true };
	struct cb_inmate inmate = CB_INMATE_NONE;
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip(); /* groups are root's to give */
	pid = begin(hold_64_mib_in_many_groups);
	inmate.pid1 = getpid();
	assert_true(cb_watchdog_measure(&inmate, &jail, 60000, 0, UINT64_MAX).rough >= 64 * MIB);
	end_all(&pid, 1);
}

/* What others hold in the host's /dev/shm is not the jail's. Folders on disk change, so it may take some looks. */
static void test_a_folder_of_the_host(void **state)
{
	char target[] = "/dev/shm";
	struct cb_bind shm = { .source = target, .target = target };
	struct cb_jail_spec spec = { .limit_memory = UINT64_MAX, .binds = &shm };
	struct cb_jail jail = { .spec = &spec, .upper_fd = { -1, -1 } };
	struct cb_inmate inmate = CB_INMATE_NONE;
	char name[] = "/dev/shm/cb-held-XXXXXX";
	int file = mkstemp(name);
	uint64_t own = 0, all = 0;
	pid_t pid;

	(void)state;
	assert_true(file >= 0 && unlink(name) == 0);
	assert_int_equal(posix_fallocate(file, 0, 32 * MIB), 0);
	pid = begin(stay);
	inmate.pid1 = getpid();
	for (int i = 0; i < 10 && all < own + 32 * MIB; i++) {
		spec.nbinds = 1;
		own = cb_watchdog_measure(&inmate, &jail, 60000, 0, UINT64_MAX).rough;
		spec.nbinds = 0;
		all = cb_watchdog_measure(&inmate, &jail, 60000, 0, UINT64_MAX).rough;
	}
	assert_true(all >= own + 32 * MIB);
	close(file);
	end_all(&pid, 1);
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
		cmocka_unit_test(test_a_process_that_hops_from_parent_to_parent),
		cmocka_unit_test(test_many_that_begin_and_end),
		cmocka_unit_test(test_who_can_not_be_looked_at),
		cmocka_unit_test(test_the_groups_of_a_process),
		cmocka_unit_test(test_a_folder_of_the_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
