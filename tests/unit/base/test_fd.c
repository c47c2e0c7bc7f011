/* File descriptors: whole reads with a cap, whole writes, passing over sockets without leaks. */
#include <cellblock/clock.h>
#include <cellblock/error.h>
#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <cmocka.h>

/* The lowest free number: equal before and after means that nothing leaked. */
static int next_fd(void)
{
	int fd = dup(0);

	assert_true(fd >= 0);
	close(fd);
	return fd;
}

static int file_of(const char *text)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(cb_fd_write_all(fd, text, strlen(text)), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static void test_close_and_take(void **state)
{
	int none = -1, first = next_fd();

	(void)state;
	{
		CB_AUTO_FD fd = dup(0);
		CB_AUTO_FD other = cb_fd_take(&fd);

		assert_int_equal(fd, -1);
		assert_int_equal(other, first);
		errno = 77;
	}
	assert_int_equal(errno, 77);
	assert_int_equal(next_fd(), first);
	cb_fd_close(&none);
	assert_int_equal(none, -1);
}

/* In a child of its own: what it says by its exit status is the first thing that was not as it should be. */
static int keep_some(void)
{
	int a = file_of("a"), b = file_of("b"), high = fcntl(a, F_DUPFD, 200), kept[] = { 12, -1, 10, high };
	char c[4] = { 0 };
	struct stat st;

	/* a and b have each the number that the other one gets */
	if (dup2(a, 10) < 0 || dup2(b, 12) < 0)
		return 1;
	if (cb_fd_keep(10, kept, 4, O_CLOEXEC) < 0)
		return 2;
	if (pread(10, c, 1, 0) != 1 || pread(12, c + 1, 1, 0) != 1 || pread(13, c + 2, 1, 0) != 1)
		return 3;
	if (strcmp(c, "baa") != 0)
		return 3;
	if (fcntl(11, F_GETFD) >= 0 || fcntl(14, F_GETFD) >= 0 || fcntl(high, F_GETFD) >= 0)
		return 4;
	if (fcntl(10, F_GETFD) != FD_CLOEXEC || fcntl(13, F_GETFD) != FD_CLOEXEC || fcntl(9, F_GETFD) != 0)
		return 5;
	for (int fd = 0; fd < 10; fd++)
		if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
			return 6;
	return cb_fd_keep(3, kept, CB_FD_KEEP_MAX + 1, 0) == -EINVAL ? 0 : 7;
}

static void test_keep(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0)
		_exit(keep_some());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_read_all_of_a_file(void **state)
{
	char *data = NULL;
	size_t len = 0;

	(void)state;
	for (size_t max = 4; max <= 6; max++) {
		CB_AUTO_FD fd = file_of("hello");

		assert_int_equal(cb_fd_read_all(fd, max, &data, &len), max < 5 ? CB_E_TOO_BIG : 0);
		if (max < 5) {
			assert_null(data);
			continue;
		}
		assert_int_equal(len, 5);
		assert_string_equal(data, "hello");
		free(data);
		data = NULL;
	}
}

static void test_read_all_of_an_empty_file(void **state)
{
	CB_AUTO_FD fd = file_of("");
	char *data = NULL;
	size_t len = 1;

	(void)state;
	assert_int_equal(cb_fd_read_all(fd, 0, &data, &len), 0);
	assert_int_equal(len, 0);
	assert_string_equal(data, "");
	free(data);
}

static void *write_much(void *arg)
{
	static char much[300000];
	int fd = *(int *)arg;

	memset(much, 'x', sizeof(much));
	if (cb_fd_write_all(fd, much, sizeof(much)) != 0)
		abort();
	close(fd);
	return NULL;
}

/* Larger than a pipe holds: writes come short and reads do not know the size. */
static void test_through_a_pipe(void **state)
{
	(void)state;
	for (size_t max = 299999; max <= 300000; max++) {
		char *data = NULL, rest[4096];
		size_t len = 0;
		pthread_t thread;
		int ends[2];

		assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
		assert_int_equal(pthread_create(&thread, NULL, write_much, &ends[1]), 0);
		assert_int_equal(cb_fd_read_all(ends[0], max, &data, &len), max < 300000 ? CB_E_TOO_BIG : 0);
		if (max == 300000) {
			assert_int_equal(len, 300000);
			assert_int_equal(strspn(data, "x"), len);
		}
		free(data);
		while (read(ends[0], rest, sizeof(rest)) > 0)
			;
		pthread_join(thread, NULL);
		close(ends[0]);
	}
}

static void test_read_error(void **state)
{
	char *data = NULL;
	size_t len = 7;

	(void)state;
	assert_int_equal(cb_fd_read_all(-1, 10, &data, &len), -EBADF);
	assert_null(data);
	assert_int_equal(len, 7);
	assert_int_equal(cb_fd_write_all(-1, "x", 1), -EBADF);
	assert_int_equal(cb_fd_set_nonblock(-1), -EBADF);
}

static void test_nonblock(void **state)
{
	int ends[2];
	char c;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(cb_fd_set_nonblock(ends[0]), 0);
	assert_int_equal(read(ends[0], &c, 1), -1);
	assert_int_equal(errno, EAGAIN);
	close(ends[0]);
	close(ends[1]);
}

static void pair(int ends[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

static void test_pass_fds(void **state)
{
	int ends[2], got[CB_FD_PASS_MAX], sent[CB_FD_PASS_MAX], first = next_fd();
	char text[16];
	size_t n = 0;

	(void)state;
	pair(ends);
	for (size_t i = 0; i < CB_FD_PASS_MAX; i++)
		sent[i] = file_of("passed");
	assert_int_equal(cb_fd_send(ends[0], "hi", 2, sent, CB_FD_PASS_MAX), 0);
	assert_int_equal(cb_fd_send(ends[0], "none", 4, NULL, 0), 0);
	assert_int_equal(cb_fd_send(ends[0], "x", 1, sent, CB_FD_PASS_MAX + 1), -EINVAL);
	assert_int_equal(cb_fd_recv(ends[1], text, sizeof(text), got, CB_FD_PASS_MAX, &n, 0), 2);
	assert_int_equal(n, CB_FD_PASS_MAX);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(pread(got[i], text, 6, 0), 6);
		assert_memory_equal(text, "passed", 6);
		assert_int_equal(fcntl(got[i], F_GETFD), FD_CLOEXEC);
		close(got[i]);
		close(sent[i]);
	}
	assert_int_equal(cb_fd_recv(ends[1], text, sizeof(text), got, CB_FD_PASS_MAX, &n, 0), 4);
	assert_int_equal(n, 0);
	close(ends[0]);
	assert_int_equal(cb_fd_recv(ends[1], text, sizeof(text), got, CB_FD_PASS_MAX, &n, 0), 0);
	close(ends[1]);
	assert_int_equal(next_fd(), first);
}

/* More fds than asked for, and messages that are too long: refused, and no fd stays open. */
static void test_unwanted_fds(void **state)
{
	int ends[2], first = next_fd(), fds[2] = { 0, 1 }, got[2] = { -7, -7 };
	char text[4];
	size_t n = 77;

	(void)state;
	pair(ends);
	assert_int_equal(cb_fd_send(ends[0], "ab", 2, fds, 2), 0);
	assert_int_equal(cb_fd_recv(ends[1], text, sizeof(text), got, 1, &n, 0), -EMSGSIZE);
	assert_int_equal(cb_fd_send(ends[0], "abcdef", 6, fds, 2), 0);
	assert_int_equal(cb_fd_recv(ends[1], text, sizeof(text), got, 2, &n, 0), -EMSGSIZE);
	assert_int_equal(cb_fd_send(ends[0], "ab", 2, fds, 1), 0);
	assert_int_equal(cb_fd_recv(ends[1], text, sizeof(text), NULL, 0, NULL, 0), -EMSGSIZE);
	assert_int_equal(got[0], -7);
	assert_int_equal(n, 77);
	assert_int_equal(cb_fd_recv(ends[1], text, sizeof(text), got, 2, &n, MSG_DONTWAIT), -EAGAIN);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(next_fd(), first);
}

/* A peer that passes more fds than fit into our control buffer. */
static void test_too_many_fds(void **state)
{
	int ends[2], first = next_fd(), got[CB_FD_PASS_MAX];
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int) * 40)];
	} control = { 0 };
	char text[4] = "x";
	struct iovec part = { text, 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	size_t n = 0;

	(void)state;
	pair(ends);
	control.align = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS,
					  .cmsg_len = CMSG_LEN(sizeof(int) * 40) };
	assert_int_equal(sendmsg(ends[0], &message, 0), 1);
	assert_int_equal(cb_fd_recv(ends[1], text, sizeof(text), got, CB_FD_PASS_MAX, &n, 0), -EMSGSIZE);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(next_fd(), first);
}

/* The sender is the kernel's word; one fd comes along if there is room for it, and no other stays open. */
static void test_sender(void **state)
{
	int ends[2], fds[2] = { 0, 1 }, got = -7, on = 1, first = next_fd();
	pid_t sender = 0;
	char text[4];

	(void)state;
	pair(ends);
	assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	assert_int_equal(cb_fd_recv_from(ends[1], text, sizeof(text), &sender, NULL, MSG_DONTWAIT), -EAGAIN);
	assert_int_equal(cb_fd_send(ends[0], "ab", 2, fds, 2), 0);
	assert_int_equal(cb_fd_recv_from(ends[1], text, sizeof(text), &sender, NULL, 0), 2);
	assert_int_equal(sender, getpid());
	assert_int_equal(cb_fd_send(ends[0], "ab", 2, fds, 2), 0);
	assert_int_equal(cb_fd_recv_from(ends[1], text, sizeof(text), &sender, &got, 0), 2);
	assert_int_equal(fcntl(got, F_GETFD), FD_CLOEXEC);
	close(got);
	assert_int_equal(cb_fd_send(ends[0], "ab", 2, NULL, 0), 0);
	assert_int_equal(cb_fd_recv_from(ends[1], text, sizeof(text), &sender, &got, 0), 2);
	assert_int_equal(got, -1);
	close(ends[0]);
	assert_int_equal(cb_fd_recv_from(ends[1], text, sizeof(text), &sender, &got, 0), 0);
	close(ends[1]);
	assert_int_equal(next_fd(), first);
}

static void test_what_was_said_before_a_reset_is_received(void **state)
{
	int ends[2];
	char text[8];
	pid_t sender;

	(void)state;
	for (int way = 0; way < 2; way++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
		assert_int_equal(send(ends[1], "never read", 10, 0), 10);
		assert_int_equal(send(ends[0], "last", 4, 0), 4);
		close(ends[0]);
		for (ssize_t expected = 4; expected >= 0; expected -= 4)
			assert_int_equal(way == 0 ? cb_fd_recv(ends[1], text, sizeof(text), NULL, 0, NULL, 0)
						  : cb_fd_recv_from(ends[1], text, sizeof(text), &sender, NULL, 0),
					 expected);
		close(ends[1]);
	}
}

static volatile sig_atomic_t signals;

static void count(int number)
{
	const struct itimerval never = { .it_value.tv_sec = 0 };

	(void)number;
	if (++signals == 500)
		(void)setitimer(ITIMER_REAL, &never, NULL);
}

static void test_await(void **state)
{
	const struct itimerval often = { .it_value.tv_usec = 2000, .it_interval.tv_usec = 2000 };
	const struct itimerval never = { .it_value.tv_sec = 0 };
	const struct sigaction counts = { .sa_handler = count };
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(cb_fd_await(ends[0], POLLIN, 0), -ETIMEDOUT);
	assert_int_equal(cb_fd_await(ends[1], POLLOUT, 0), 0); /* at once, though it is late */
	assert_int_equal(sigaction(SIGALRM, &counts, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	assert_int_equal(cb_fd_await(ends[0], POLLIN, cb_now_ms() + 100), -ETIMEDOUT);
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	assert_in_range(signals, 1, 499); /* with each of them the time would begin anew */
	close(ends[1]);
	assert_int_equal(cb_fd_await(ends[0], 0, cb_now_ms() + 60000), 0); /* the end */
	close(ends[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_close_and_take),
		cmocka_unit_test(test_keep),
		cmocka_unit_test(test_read_all_of_a_file),
		cmocka_unit_test(test_read_all_of_an_empty_file),
		cmocka_unit_test(test_through_a_pipe),
		cmocka_unit_test(test_read_error),
		cmocka_unit_test(test_nonblock),
		cmocka_unit_test(test_await),
		cmocka_unit_test(test_pass_fds),
		cmocka_unit_test(test_unwanted_fds),
		cmocka_unit_test(test_too_many_fds),
		cmocka_unit_test(test_sender),
		cmocka_unit_test(test_what_was_said_before_a_reset_is_received),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
