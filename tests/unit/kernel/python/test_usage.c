/* Accounting: the parsers of other files of /proc and of control groups, and the sums. */
#include "python/usage.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void test_turns(void **state)
{
	struct cb_turns t = cb_usage_parse_turns("1500000000 250000000 7\n");

	(void)state;
	assert_true(t.ran_s == 1.5 && t.waited_s == 0.25);
	t = cb_usage_parse_turns("17\n");
	assert_true(t.ran_s == 0 && t.waited_s == 0);
	t = cb_usage_parse_turns("");
	assert_true(t.ran_s == 0 && t.waited_s == 0);
}

/* Children that nobody waits for leave nothing behind: those that are seen at work stand for them. */
static void test_ledger(void **state)
{
	static struct cb_usage_ledger l;
	struct cb_usage_process p[2] = { { 10, 1, 1.0, 0.0, false }, { 11, 2, 0.5, 0.0, false } };

	(void)state;
	assert_true(cb_usage_ledger_add(&l, p, 2, 0, 1) == 1.5); /* all that it first sees */
	l.unseen = 0;
	p[0].own = 1.25;
	assert_true(cb_usage_ledger_add(&l, p, 2, 0, 1) == 0.25);
	/* the second has ended, and was waited for: what it had used counts once */
	p[0].children = 0.75;
	assert_true(cb_usage_ledger_add(&l, p, 1, 0, 1) == 0.25);
	/* a process with the same number is another one by its start; what it used goes nowhere when it dies */
	p[1] = (struct cb_usage_process){ 11, 3, 0.5, 0.0, false };
	assert_true(cb_usage_ledger_add(&l, p, 2, 0, 1) == 0.5);
	assert_true(cb_usage_ledger_add(&l, p, 1, 0, 1) == 0);
	/* always a new one at work, and nothing of it is left the next time: from some time on it counts in full */
	l.unseen = 0;
	double sum = 0;

	for (int i = 0; i < 10; i++) {
		p[1] = (struct cb_usage_process){ 20 + i, 4, 0.0, 0.0, false };
		sum += cb_usage_ledger_add(&l, p, 2, 1, 1);
	}
	assert_true(sum == 10);
	/* the same, but waited for: it is not counted twice */
	l.unseen = 0;
	sum = 0;
	for (int i = 0; i < 10; i++) {
		p[0].children += 1;
		p[1] = (struct cb_usage_process){ 40 + i, 4, 0.0, 0.0, false };
		sum += cb_usage_ledger_add(&l, p, 2, 1, 1);
	}
	assert_true(sum == 10);
}

static void test_peak(void **state)
{
	(void)state;
	assert_true(cb_usage_parse_peak("Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t   123 kB\n") == 123 * 1024);
	assert_true(cb_usage_parse_peak("Name:\tVmHWM: 5 kB\nVmRSS:\t 1 kB\n") == 0);
	assert_true(cb_usage_parse_peak("") == 0);
}

static void test_own(void **state)
{
	(void)state;
	assert_true(cb_usage_parse_own("x\nRssAnon:\t 10 kB\nRssFile:\t 99 kB\nRssShmem:\t 5 kB\nVmSwap: 1 kB\n") ==
		    16 * 1024);
	assert_true(cb_usage_parse_own("Name:\tRssAnon: 5 kB\n") == 0);
}

static void test_of_this_process(void **state)
{
	static const int none[CB_USAGE_NFDS] = { [0 ... CB_USAGE_NFDS - 1] = -1 };
	struct cb_usage_source s = CB_USAGE_SOURCE_NONE;
	struct cb_usage u = { .cpu_user_s = -1 };

	(void)state;
	cb_usage_read(&s, &u);
	assert_true(u.cpu_user_s == -1); /* no source: as it was */
	cb_usage_open(&s, getpid(), none);
	cb_usage_read(&s, &u);
	assert_true(u.cpu_user_s >= 0 && u.memory_peak_bytes > 100000);
	cb_usage_close(&s);
	cb_usage_close(&s);
	assert_true(s.stat == -1 && s.status == -1 && s.sched == -1);
	cb_usage_open(&s, 0x7ffffffe, none);
	assert_true(s.stat == -1 && s.status == -1);
}

/* A child that works and lives on: the sum over the tree sees it, /proc/PID/stat of its parent does not. */
static void test_tree(void **state)
{
	struct cb_usage_source s = { .stat = -1, .status = -1, .init = getpid(), .cgroup = { -1, -1, -1 } };
	double before = cb_usage_jail_cpu(&s), after = before;
	struct timespec tick = { .tv_nsec = 10000000 };
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (pid == 0)
		;
	for (int i = 0; i < 2000 && after < before + 0.1; i++) {
		nanosleep(&tick, NULL);
		after = cb_usage_jail_cpu(&s);
	}
	assert_true(cb_usage_tree(getpid()) > cb_usage_of(getpid()));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_true(after >= before + 0.1);
	assert_true(cb_usage_largest(&s) > 100000);
	s.init = 0;
	assert_true(cb_usage_jail_cpu(&s) <= 0);
	assert_true(cb_usage_largest(&s) == 0);
}

/* Who is among more than can be looked at is not taken for small. */
static void test_too_many(void **state)
{
	struct cb_usage_source s = { .stat = -1, .status = -1, .cgroup = { -1, -1, -1 } };
	int ready[2];
	char byte;

	(void)state;
	assert_int_equal(pipe(ready), 0);
	s.init = fork();
	assert_true(s.init >= 0);
	if (s.init == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)setpgid(0, 0);
		for (int i = 0; i < CB_USAGE_PROCESSES; i++) {
			pid_t pid = fork();

			if (pid == 0) {
				(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
				(void)pause();
			}
			if (pid <= 0)
				_exit(1);
		}
		(void)!write(ready[1], "x", 1);
		(void)pause();
		_exit(1);
	}
	close(ready[1]);
	bool forked = read(ready[0], &byte, 1) == 1;
	uint64_t largest = cb_usage_largest(&s), all = cb_usage_tree(s.init);

	kill(-s.init, SIGKILL); /* also those that are left where one more could not be made */
	waitpid(s.init, NULL, 0);
	close(ready[0]);
	if (!forked)
		skip(); /* fewer processes are allowed here */
	assert_true(largest == UINT64_MAX && all == UINT64_MAX);
}

/* Nor who could not be looked at, for want of descriptors. */
static void test_nothing_to_look_with(void **state)
{
	struct rlimit all, few;
	uint64_t sum;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	few = all;
	few.rlim_cur = (rlim_t)dup(0);
	close((int)few.rlim_cur);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	sum = cb_usage_tree(getpid());
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
	assert_true(sum == UINT64_MAX);
	assert_true(cb_usage_tree(getpid()) < UINT64_MAX);
}

static atomic_bool done;

static void *work_then_wait(void *from)
{
	char byte;

	while (!done)
		;
	(void)!read(*(const int *)from, &byte, 1);
	return NULL;
}

static bool comes(pid_t pid, bool wanted)
{
	struct timespec tick = { .tv_nsec = 1000000 };

	for (int i = 0; i < 30000 && cb_usage_threads_at_work(pid) != wanted; i++)
		nanosleep(&tick, NULL);
	return cb_usage_threads_at_work(pid) == wanted;
}

/* The first one is no matter: it is the one that looks, here. One that has ended and is not waited for ends. */
static void test_threads_at_work(void **state)
{
	pthread_t thread;
	int ends[2];
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_false(cb_usage_threads_at_work(getpid()));
	assert_int_equal(pthread_create(&thread, NULL, work_then_wait, &ends[0]), 0);
	assert_true(comes(getpid(), true));
	done = true;
	assert_true(comes(getpid(), false));
	assert_int_equal(write(ends[1], "x", 1), 1);
	pthread_join(thread, NULL);
	close(ends[0]);
	close(ends[1]);
	pid = fork();
	if (pid == 0)
		_exit(0);
	assert_true(comes(pid, true));
	waitpid(pid, NULL, 0);
	assert_true(cb_usage_threads_at_work(pid)); /* its end is known here before its parent has told of it */
}

static uint64_t kills(const char *events)
{
	struct cb_oom_count count;

	cb_oom_parse(events, "", 0, &count);
	return count.kills;
}

static void test_of_a_control_group(void **state)
{
	double user = -1, sys = -1, hz = (double)sysconf(_SC_CLK_TCK);

	(void)state;
	assert_true(cb_usage_parse_cpu("usage_usec 3500000\nuser_usec 2500000\nsystem_usec 1000000\n", &user, &sys));
	assert_true(user == 2.5 && sys == 1);
	assert_true(cb_usage_parse_cpu("user 250\nsystem 100\n", &user, &sys));
	assert_true(user == 250 / hz && sys == 100 / hz);
	assert_false(cb_usage_parse_cpu("", &user, &sys));
	assert_false(cb_usage_parse_cpu("user 1\nsystems 2\n", &user, &sys));
	assert_int_equal(kills("oom_kill_disable 7\nunder_oom 0\noom_kill 3\n"), 3);
	assert_int_equal(kills("low 0\nmax 9\noom 4\noom_kill 2\noom_group_kill 5\n"), 2);
	assert_int_equal(kills("oom_kill_disable 7\n"), 0);
}

static void put(int *fd, const char *text)
{
	cb_fd_close(fd);
	*fd = text != NULL ? memfd_create("figures", MFD_CLOEXEC) : open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(*fd >= 0);
	if (text != NULL)
		assert_int_equal(write(*fd, text, strlen(text)), strlen(text));
}

#define V1(kills) "oom_kill_disable 0\nunder_oom 0\noom_kill " #kills "\n"
#define V2(oom, kills) "low 0\nhigh 0\nmax 7\noom " #oom "\noom_kill " #kills "\noom_group_kill 0\n"

/* The kernel counts whom it killed for the host's lack of memory, or a larger group's, beside those whose own limit was
 * met. */
static void test_whose_lack_of_memory(void **state)
{
	static const struct {
		const char *events[2], *peak[2]; /* before and after; peak: NULL = no such file */
		enum cb_oom oom;
	} looks[] = {
		/* version 2 */
		{ { V2(0, 0), V2(0, 0) }, { NULL, NULL }, CB_OOM_NONE },
		{ { V2(0, 0), V2(1, 0) }, { NULL, NULL }, CB_OOM_NONE },
		{ { V2(0, 0), V2(0, 1) }, { NULL, NULL }, CB_OOM_HOST },
		{ { V2(0, 0), V2(1, 1) }, { NULL, NULL }, CB_OOM_LIMIT },
		{ { V2(0, 0), V2(1, 9) }, { NULL, NULL }, CB_OOM_LIMIT }, /* memory.oom.group */
		{ { V2(5, 2), V2(5, 3) }, { NULL, NULL }, CB_OOM_LIMIT }, /* perhaps counted before the first look */
		{ { V2(5, 2), V2(6, 3) }, { NULL, NULL }, CB_OOM_LIMIT },
		/* version 1, with a limit of 4096 */
		{ { V1(0), V1(0) }, { "100\n", "4096\n" }, CB_OOM_NONE },
		{ { V1(0), V1(1) }, { "100\n", "3583\n" }, CB_OOM_HOST },
		{ { V1(1), V1(2) }, { "100\n", "3583\n" }, CB_OOM_HOST },
		{ { V1(0), V1(1) }, { "100\n", "3584\n" }, CB_OOM_LIMIT },
		{ { V1(1), V1(2) }, { "100\n", "4096\n" }, CB_OOM_LIMIT },
		{ { V1(1), V1(2) }, { "4096\n", "4096\n" }, CB_OOM_LIMIT }, /* nothing tells it apart */
		{ { V1(0), V1(1) }, { NULL, NULL }, CB_OOM_LIMIT },
		/* counted by a kernel that has no `oom` */
		{ { "low 0\noom_kill 0\n", "low 0\noom_kill 1\n" }, { NULL, NULL }, CB_OOM_LIMIT },
	};
	struct cb_usage_source s = CB_USAGE_SOURCE_NONE;

	(void)state;
	s.limit = 4096;
	for (size_t i = 0; i < CB_COUNT(looks); i++) {
		struct cb_usage u[2] = { 0 };

		for (size_t n = 0; n < 2; n++) {
			put(&s.cgroup[CB_USAGE_EVENTS], looks[i].events[n]);
			put(&s.cgroup[CB_USAGE_PEAK_EVER], looks[i].peak[n]);
			cb_usage_read(&s, &u[n]);
		}
		if (cb_oom_between(&u[0].oom, &u[1].oom, true) != looks[i].oom)
			fail_msg("%s, at most %s", looks[i].events[1], looks[i].peak[1]);
	}
	cb_usage_close(&s);
}

static void spin(int64_t ns)
{
	for (int64_t end = cb_now_thread_ns() + ns; cb_now_thread_ns() < end;)
		;
}

/* All threads of a process, and what descends from it, though nobody has waited for that. */
static void test_worked(void **state)
{
	int64_t before = cb_usage_worked(getpid(), false);
	int go[2];
	char c;

	(void)state;
	spin(1000000);
	assert_true(cb_usage_worked(getpid(), false) >= before + 1000000);
	assert_int_equal(cb_usage_worked(0, true), 0);
	assert_int_equal(pipe(go), 0);
	pid_t child = fork();

	if (child == 0) {
		spin(20000000);
		(void)!write(go[1], "", 1);
		(void)pause();
		_exit(0);
	}
	assert_int_equal(read(go[0], &c, 1), 1);
	before = cb_usage_worked(getpid(), false);
	assert_true(cb_usage_worked(getpid(), true) >= before + 20000000);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(go[0]);
	close(go[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_ledger),
		cmocka_unit_test(test_peak),
		cmocka_unit_test(test_of_this_process),
		cmocka_unit_test(test_own),
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_nothing_to_look_with),
		cmocka_unit_test(test_threads_at_work),
		cmocka_unit_test(test_worked),
		cmocka_unit_test(test_of_a_control_group),
		cmocka_unit_test(test_whose_lack_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
