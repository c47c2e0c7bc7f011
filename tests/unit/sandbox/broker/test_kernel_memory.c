/* What a process makes the kernel hold, looked at from outside: without the time for it all counts with its most. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cellblock/fd.h>
#include <cmocka.h>

#include "../../../../sandbox/broker/kernel_memory.h"

#define LOCKS 3000    /* their lines are more than one read takes */
#define MAPPINGS 3000 /* likewise */
#define TEXTS 200     /* each of as many lines */

static unsigned asked;
static uint64_t longest;

static bool is_late(const void *end)
{
	return asked++ >= *(const unsigned *)end;
}

/* What cmocka has said waits in a pipe of ours, and so counts, until ctest comes to read it: nothing tells of that. */
static void wait_until_read(int fd)
{
	const struct timespec moment = { .tv_nsec = 1000000 };
	int waiting = 0;

	(void)fflush(NULL);
	while (fcntl(fd, F_GETPIPE_SZ) >= 0 && ioctl(fd, FIONREAD, &waiting) == 0 && waiting > 0)
		(void)nanosleep(&moment, NULL);
}

/* Our own, when the time is over at the n-th time that it is asked for. */
static uint64_t look(unsigned n)
{
	const pid_t pid[] = { getpid(), getpid() };
	const struct cb_kernel_look l = {
		.pid = pid, .count = 2, .sockets = -1, .open_files = 1024, .longest = &longest,
		.is_late = is_late, .end = &n
	};

	wait_until_read(STDOUT_FILENO);
	wait_until_read(STDERR_FILENO);
	asked = 0;
	return cb_kernel_memory(&l);
}

static void test_less_time_is_never_less(void **state)
{
	char name[] = "/tmp/cb-locks-XXXXXX";
	int file = mkstemp(name);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, MAPPINGS * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned asks;

	(void)state;
	assert_true(file >= 0 && unlink(name) == 0 && p != MAP_FAILED);
	uint64_t before = look(UINT32_MAX);

	for (off_t i = 0; i < LOCKS; i++) {
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * i, .l_len = 1 };

		assert_int_equal(fcntl(file, F_OFD_SETLK, &lock), 0);
	}
	for (size_t i = 0; i < MAPPINGS; i += 2)
		assert_int_equal(mprotect(p + i * page, page, PROT_READ), 0);
	uint64_t all = look(UINT32_MAX);

	asks = asked;
	assert_true(all > before + (uint64_t)(LOCKS + MAPPINGS) * 200);
	assert_true(asks > 10);
	for (unsigned n = 0; n < asks; n++)
		if (look(n) < all)
			fail_msg("the time was over at look %u of %u: %lu bytes, and there are %lu", n, asks,
				 (unsigned long)look(n), (unsigned long)all);
	assert_int_equal(close(file), 0);
	assert_int_equal(munmap(p, MAPPINGS * page), 0);
}

/* Two descriptors of `file`, one of which can't be read, and that one has the lower number. */
static void open_again(int file, int ret[2])
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	ret[0] = open(path, O_PATH | O_CLOEXEC);
	ret[1] = fcntl(file, F_DUPFD_CLOEXEC, ret[0]);
	close(file);
	assert_true(ret[0] >= 0 && ret[1] > ret[0]);
}

/* A pipe, with a name or without, counts once. */
static void test_pipes(void **state)
{
	char folder[] = "/tmp/cb-fifo-XXXXXX", name[64];
	uint64_t before;
	int both[2], ends[2];

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(name, sizeof(name), "%s/fifo", folder);
	assert_int_equal(mkfifo(name, 0600), 0);
	for (int named = 0; named < 2; named++) {
		before = look(UINT32_MAX);
		if (named)
			ends[0] = ends[1] = open(name, O_RDWR | O_CLOEXEC);
		else
			assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
		assert_int_equal(write(ends[1], "x", 1), 1);
		open_again(ends[1], both);
		assert_in_range(look(UINT32_MAX) - before, fcntl(both[1], F_GETPIPE_SZ), 100000);
		close(both[0]);
		close(both[1]);
		if (!named)
			close(ends[0]);
	}
	assert_int_equal(unlink(name), 0);
	assert_int_equal(rmdir(folder), 0);
}

/* An open file of /proc holds the text that it has shown, also when there is no more to show. */
static void test_texts(void **state)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC), watched[TEXTS], texts[TEXTS];
	char path[64], text[65536];
	uint64_t before;

	(void)state;
	longest = 0;
	for (int i = 0; i < TEXTS; i++) {
		struct epoll_event event = { .events = EPOLLIN };

		watched[i] = eventfd(0, EFD_CLOEXEC);
		assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, watched[i], &event), 0);
	}
	before = look(UINT32_MAX);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epoll);
	for (int i = 0; i < TEXTS; i++) {
		texts[i] = open(path, O_RDONLY | O_CLOEXEC);
		assert_true(read(texts[i], text, sizeof(text)) > 50 * TEXTS);
	}
	assert_true(look(UINT32_MAX) >= before + (uint64_t)TEXTS * 50 * TEXTS);
	close(epoll);
	for (int i = 0; i < TEXTS; i++)
		close(watched[i]);
	assert_true(look(UINT32_MAX) >= (uint64_t)TEXTS * 50 * TEXTS);
	for (int i = 0; i < TEXTS; i++)
		close(texts[i]);
}

#define NOBODY 65534
#define LITTLE (1u << 20)
#define MANY 8 /* times that a command is in the list */

static unsigned pauses;

/* For all of this program. */
int nanosleep(const struct timespec *time, struct timespec *ret_left)
{
	pauses++;
	return clock_nanosleep(CLOCK_MONOTONIC, 0, time, ret_left) == 0 ? 0 : -1;
}

static pid_t ending;

/* For all of this program, too: who is to end does so in the moment before. */
pid_t getsid(pid_t pid)
{
	if (pid > 0 && pid == ending) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
	return (pid_t)syscall(SYS_getsid, pid);
}

static bool is_readable(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 && close(fd) == 0;
}

/* A program makes the process readable a little later than it closes the pipe; of that nothing tells. */
static bool becomes_readable(pid_t pid)
{
	bool readable = is_readable(pid);

	for (int i = 0; i < 10000 && !readable; i++) {
		(void)usleep(1000);
		readable = is_readable(pid);
	}
	return readable;
}

/* What a helper has just started, which is as hidden as it, until it runs the program (null: never). */
static void start_command(const char *program, int ready)
{
	(void)setsid();
	(void)prctl(PR_SET_DUMPABLE, 0);
	if (program != NULL)
		(void)execl(program, program, "100", NULL);
	(void)!write(ready, "x", 1);
	(void)pause();
	_exit(1);
}

static bool give_up_rights(void)
{
	return geteuid() != 0 || (setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

/* In a child without rights, which is pid 1 there: whether what is counted of a helper's commands is much. */
static bool is_dear(const char *program, bool readable)
{
	int ready[2], told[2], status = 0;
	pid_t pid1 = fork();

	assert_true(pid1 >= 0);
	if (pid1 == 0) {
		pid_t pid[1 + MANY] = { getpid() };
		char byte = 0;

		(void)setsid();
		if (!give_up_rights() || pipe2(ready, O_CLOEXEC) < 0 || pipe2(told, O_CLOEXEC) < 0)
			_exit(2);
		pid_t helper = fork();

		if (helper == 0) {
			pid_t command = fork();

			if (command == 0)
				start_command(program, ready[1]);
			(void)!write(told[1], &command, sizeof(command));
			(void)close(ready[1]);
			(void)pause();
			_exit(1);
		}
		(void)close(ready[1]);
		(void)!read(told[0], &pid[1], sizeof(pid[1]));
		for (int i = 1; i < MANY; i++)
			pid[1 + i] = pid[1];
		bool ran = read(ready[0], &byte, 1) == 0 && /* closed by exec */
			   (!readable || becomes_readable(pid[1]));
		const struct cb_kernel_look l = {
			.pid = pid, .count = 1 + MANY, .sockets = -1, .open_files = 1024, .longest = &longest,
			.is_late = is_late, .end = &(unsigned){ UINT32_MAX }
		};
		pauses = 0;
		uint64_t bytes = cb_kernel_memory(&l);

		(void)kill(pid[1], SIGKILL);
		(void)kill(helper, SIGKILL);
		if (pauses > 2)
			_exit(4);
		_exit(ran != (program != NULL) ? 3 : bytes > LITTLE);
	}
	assert_int_equal(waitpid(pid1, &status, 0), pid1);
	assert_true(WIFEXITED(status));
	assert_in_range(WEXITSTATUS(status), 0, 1);
	return WEXITSTATUS(status) == 1;
}

/* Who has not run the program yet is ours. A program that nobody may read counts with its most at once. */
static void test_hidden_commands(void **state)
{
	char folder[] = "/tmp/cb-hidden-XXXXXX", path[64];
	struct stat st;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/sleep", folder);
	int from = open("/bin/sleep", O_RDONLY | O_CLOEXEC), to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);

	assert_true(from >= 0 && to >= 0 && fstat(from, &st) == 0);
	assert_int_equal(sendfile(to, from, NULL, (size_t)st.st_size), st.st_size);
	assert_int_equal(fchmod(to, 0111) | chmod(folder, 0755) | close(to) | close(from), 0);
	assert_false(is_dear("/bin/sleep", true));
	assert_false(is_dear(NULL, false));
	assert_true(is_dear(path, false));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

/* A helper that ends between the look at its descriptors and the one at who it is: it was killed for, once. */
static void test_a_helper_that_ends(void **state)
{
	int status = 0;
	pid_t pid1 = fork();

	(void)state;
	assert_true(pid1 >= 0);
	if (pid1 == 0) {
		int ready[2];
		char byte;

		(void)setsid();
		if (!give_up_rights() || pipe2(ready, O_CLOEXEC) < 0)
			_exit(2);
		ending = fork();
		if (ending == 0) {
			(void)prctl(PR_SET_DUMPABLE, 0);
			(void)!write(ready[1], "x", 1);
			(void)pause();
			_exit(1);
		}
		const pid_t pid[] = { getpid(), ending };
		const struct cb_kernel_look l = {
			.pid = pid, .count = 2, .sockets = -1, .open_files = 1024, .longest = &longest,
			.is_late = is_late, .end = &(unsigned){ UINT32_MAX }
		};
		bool is_hidden = read(ready[0], &byte, 1) == 1 && !is_readable(ending);
		uint64_t bytes = cb_kernel_memory(&l);

		_exit(!is_hidden || kill(ending, 0) == 0 ? 3 : bytes > LITTLE);
	}
	assert_int_equal(waitpid(pid1, &status, 0), pid1);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static enum cb_kernel_flight in_flight(unsigned n)
{
	const pid_t pid[] = { getpid(), getpid() };
	const struct cb_kernel_look l = { .pid = pid, .count = 2, .sockets = -1, .is_late = is_late, .end = &n };

	asked = 0;
	return cb_kernel_in_flight(&l);
}

/* With more descriptors than there is time to look at, it may be who keeps others from passing any. */
static void test_a_look_for_descriptors_has_its_time(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(in_flight(UINT32_MAX), CB_FLIGHT_FEW);
	assert_int_equal(in_flight(0), CB_FLIGHT_UNSEEN);
	assert_int_equal(in_flight(2), CB_FLIGHT_UNSEEN);
	for (int i = 0; i < 64; i++)
		assert_int_equal(cb_fd_send(pair[0], "x", 1, &pair[1], 1), 0);
	assert_int_equal(in_flight(UINT32_MAX), CB_FLIGHT_MANY);
	assert_int_equal(close(pair[0]) | close(pair[1]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_less_time_is_never_less),
		cmocka_unit_test(test_pipes),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_hidden_commands),
		cmocka_unit_test(test_a_helper_that_ends),
		cmocka_unit_test(test_a_look_for_descriptors_has_its_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
