/* /proc/PID/stat: the name in it is the process's to choose. */
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TAIL " S 17 1 1 0 -1 4194560 100 200 7 8 300 50 25 5 20 0 6 0 123 999 2 1\n"
#define US_PER_TICK (1000000 / (uint64_t)sysconf(_SC_CLK_TCK))

static void test_names(void **state)
{
	static const char *const names[] = {
		"(python)", "(a b)", "(()", "())", "(x) S 1 1 1 0 -1 1 1 1 1 1 9 9 9 9 )", "()", "(a\nb)", "(a) 7 (b)",
		"(x) Z)",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct cb_proc_stat s;
		char text[256];

		snprintf(text, sizeof(text), "42 %s" TAIL, names[i]);
		assert_int_equal(cb_proc_stat_parse(text, &s), 0);
		assert_true(s.state == 'S' && s.parent == 17 && !s.exiting && s.minor_faults == 100);
		assert_true(s.user_us == 300 * US_PER_TICK && s.system_us == 50 * US_PER_TICK);
		assert_true(s.children_user_us == 25 * US_PER_TICK && s.children_system_us == 5 * US_PER_TICK);
		assert_true(s.threads == 6 && s.start == 123);
		assert_true(s.resident_bytes == 2 * (uint64_t)sysconf(_SC_PAGESIZE));
	}
}

static void test_one_that_ends(void **state)
{
	struct cb_proc_stat s;

	(void)state;
	assert_int_equal(cb_proc_stat_parse("42 (x) R 1 1 1 0 -1 4194564 1 2 0 0 3 5 2 5 20 0 1 0 1 1 -1\n", &s), 0);
	assert_true(s.exiting && s.state == 'R' && s.resident_bytes == 0 && !s.forked);
	assert_int_equal(cb_proc_stat_parse("42 (x) S 1 1 1 0 -1 4194368 1 2 0 0 3 5 2 5 20 0 1 0 1 1 -1\n", &s), 0);
	assert_true(s.forked && !s.exiting);
}

static void test_other_forms(void **state)
{
	static const char *const bad[] = { "", "42", "42 (x)", "42 (x) S 1 2 3", "42 (x" TAIL, "42 (a) S" };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct cb_proc_stat s = { .parent = 99 };

		assert_int_equal(cb_proc_stat_parse(bad[i], &s), -EBADMSG);
		assert_int_equal(s.parent, 99);
	}
}

static void test_real_ones(void **state)
{
	pid_t pid = fork();
	struct cb_proc_stat s;

	(void)state;
	if (pid == 0)
		_exit(0);
	assert_true(pid > 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	assert_int_equal(cb_proc_stat_of(pid, &s), 0);
	assert_true(s.state == 'Z' && s.exiting && s.parent == getpid());
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(cb_proc_stat_of(pid, &s), -ENOENT);
	assert_int_equal(cb_proc_stat_read(AT_FDCWD, "/proc/thread-self/stat", &s), 0);
	assert_true(s.state == 'R' && s.threads == 1 && s.resident_bytes > 0 && s.parent == getppid());
	assert_int_equal(cb_proc_stat_read(AT_FDCWD, "/dev/null", &s), -ESRCH);
}

static void test_status(void **state)
{
	char text[4096];

	(void)state;
	assert_int_equal(cb_proc_status_of(getpid(), text, sizeof(text)), 0);
	assert_non_null(strstr(text, "\nFDSize:"));
	assert_int_equal(cb_proc_status_of(getpid(), text, 16), 0);
	assert_int_equal(strlen(text), 15);
	assert_int_equal(cb_proc_status_of(0, text, sizeof(text)), -ENOENT);
	assert_string_equal(text, "");
	assert_int_equal(cb_proc_text(AT_FDCWD, "/proc/self/oom_score_adj", text, 2), 0);
	assert_int_equal(strlen(text), 1);
	assert_int_equal(cb_proc_text(AT_FDCWD, "/dev/null", text, sizeof(text)), -ESRCH);
	assert_string_equal(text, "");
}

static void test_numbers(void **state)
{
	static const char status[] = "Name:\ta\\nUmask: 9\nUmask:\t0027\nVmRSS:\t      12 kB\n"
				     "SigPnd:\t0000000000000100\n"
				     "ShdPnd:\t8000000000000001\n";

	(void)state;
	assert_int_equal(cb_proc_number(status, "\nUmask:", 8, 1), 027);
	assert_int_equal(cb_proc_number(status, "\nRSS:", 10, 7), 7);
	assert_int_equal(cb_proc_number("low 0\nmax 12\noom 3\noom_kill 2\n", "\noom_kill ", 10, 0), 2);
	assert_int_equal(cb_proc_number("oom_kill_disable 0\nunder_oom 0\noom_kill 5", "\noom_kill ", 10, 0), 5);
	assert_int_equal(cb_proc_number("", "\noom_kill ", 10, 0), 0);
	assert_int_equal(cb_proc_bytes(status, "\nVmRSS:"), 12 * 1024);
	assert_int_equal(cb_proc_bytes(status, "\nVmSwap:"), 0);
	assert_true(cb_proc_pending(status) == 0x8000000000000101);
	assert_true(cb_proc_pending("Name:\tx\n") == 0);
}

#define CHILDREN 1400 /* more than one piece of the text, of three digits each too */

struct family {
	pid_t pid[CHILDREN];
	size_t count;
};

static void meet(void *context, pid_t pid)
{
	struct family *f = context;

	assert_true(f->count < CHILDREN);
	f->pid[f->count++] = pid;
}

static void test_children(void **state)
{
	static struct family f;
	pid_t made[CHILDREN];
	char name[16];
	int threads = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	assert_true(threads >= 0);
	snprintf(name, sizeof(name), "%d", (int)getpid());
	assert_int_equal(cb_proc_children(threads, name, meet, &f), 0);
	assert_int_equal(f.count, 0);
	for (size_t i = 0; i < CHILDREN; i++) {
		made[i] = fork();
		if (made[i] == 0)
			_exit(0);
		assert_true(made[i] > 0);
	}
	assert_int_equal(cb_proc_children(threads, name, meet, &f), 0); /* until waited for */
	assert_int_equal(f.count, CHILDREN);
	assert_memory_equal(f.pid, made, sizeof(made));
	f.count = 0;
	assert_int_equal(cb_proc_children_of(getpid(), 0, meet, &f), 0);
	assert_int_equal(f.count, CHILDREN);
	for (size_t i = 0; i < CHILDREN; i++)
		assert_int_equal(waitpid(made[i], NULL, 0), made[i]);
	assert_int_equal(cb_proc_children_of(made[0], 0, meet, &f), -ENOENT);
	assert_int_equal(cb_proc_children(threads, "0", meet, &f), -ENOENT);
	close(threads);
}

static int denied, readable; /* what a list of children can't be opened for, after so many that can */

int __real_openat(int dir, const char *path, int flags, ...);

int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
	if (denied == 0 || strstr(path, "/children") == NULL || readable-- > 0)
		return __real_openat(dir, path, flags);
	errno = denied;
	return -1;
}

struct mother {
	pid_t child;
	int ready[2], over[2];
};

static void *give_birth(void *context)
{
	struct mother *m = context;
	char byte;

	m->child = fork();
	if (m->child == 0)
		_exit(0);
	(void)!write(m->ready[1], "x", 1);
	(void)!read(m->over[0], &byte, 1);
	return NULL;
}

/* Those of a second thread too; and where one list could not be read, that they are all is not said. */
static void test_children_of_threads(void **state)
{
	static struct family f;
	struct mother m;
	pthread_t thread;
	char byte;
	static const struct {
		int denied, readable, r;
	} tried[] = {
		{ ENOENT, 0, -ENOENT }, /* a kernel that has none */
		{ ENOENT, 1, 0 },	/* a thread that has ended */
		{ ENOMEM, 0, -ENOMEM },
		{ ENOMEM, 1, -ENOMEM },
	};

	(void)state;
	assert_int_equal(pipe(m.ready), 0);
	assert_int_equal(pipe(m.over), 0);
	assert_int_equal(pthread_create(&thread, NULL, give_birth, &m), 0);
	assert_int_equal(read(m.ready[0], &byte, 1), 1);
	assert_int_equal(cb_proc_children_of(getpid(), 0, meet, &f), 0);
	assert_int_equal(f.count, 1);
	assert_int_equal(f.pid[0], m.child);
	assert_int_equal(cb_proc_children_of(getpid(), 1, meet, &f), -ETIMEDOUT);
	assert_int_equal(cb_proc_children_of(getpid(), INT64_MAX, meet, &f), 0);

	for (size_t i = 0; i < CB_COUNT(tried); i++) {
		denied = tried[i].denied;
		readable = tried[i].readable;
		int r = cb_proc_children_of(getpid(), 0, meet, &f);

		denied = 0;
		assert_int_equal(r, tried[i].r);
	}

	assert_int_equal(write(m.over[1], "x", 1), 1);
	pthread_join(thread, NULL);
	assert_int_equal(waitpid(m.child, NULL, 0), m.child);
	for (int i = 0; i < 2; i++) {
		close(m.ready[i]);
		close(m.over[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_one_that_ends),
		cmocka_unit_test(test_other_forms),
		cmocka_unit_test(test_real_ones),
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_children),
		cmocka_unit_test(test_children_of_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
