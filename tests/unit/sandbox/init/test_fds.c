/* fds.c: each descriptor gets its number, whatever number it had, and nothing else is open after the exec. */
#include "../../../../sandbox/init/parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cellblock/fd.h>
#include <cellblock/wire.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GIVEN (CB_SPAWN_NFDS + 1) /* and the registry, the last one */

static const int targets[GIVEN] = {
	[CB_SPAWN_WIRE] = CB_GUEST_FD_WIRE,
	[CB_SPAWN_STDOUT] = CB_GUEST_FD_STDOUT,
	[CB_SPAWN_STDERR] = CB_GUEST_FD_STDERR,
	[CB_SPAWN_LOG] = CB_GUEST_FD_LOG,
	[CB_SPAWN_LINK] = -1, /* pid 1's own */
	[CB_SPAWN_TWIN_CONTROL] = CB_GUEST_FD_TWIN_CONTROL,
	[CB_SPAWN_SIDE] = CB_GUEST_FD_SIDE,
	[CB_SPAWN_NFDS] = CB_GUEST_FD_REGISTRY,
};

static struct stat file_of(int fd)
{
	struct stat st = { 0 };

	(void)fstat(fd, &st);
	return st;
}

/* An inode's number is one of its file system's. */
static bool is_file(int fd, const struct stat *st)
{
	struct stat now = file_of(fd);

	return now.st_dev == st->st_dev && now.st_ino == st->st_ino;
}

/* The source of each has the number `from` gives; -1: it is not given. 0, or which check failed. */
static int install(const int from[GIVEN])
{
	struct cb_jail jail = { .guest_fds = { 0 } };
	struct cb_err err = { 0 };
	int fds[GIVEN], sync = fcntl(memfd_create("sync", MFD_CLOEXEC), F_DUPFD_CLOEXEC, 60);
	int stranger = fcntl(memfd_create("stranger", MFD_CLOEXEC), F_DUPFD, 70);
	struct stat files[GIVEN], own = file_of(0), sync_file = file_of(sync), null;

	for (int i = 0; i < GIVEN; i++) {
		fds[i] = fcntl(memfd_create("given", MFD_CLOEXEC), F_DUPFD_CLOEXEC, 100);
		files[i] = file_of(fds[i]);
	}
	for (int i = 0; i < GIVEN; i++) {
		if (from[i] >= 0 && dup3(fds[i], from[i], O_CLOEXEC) < 0)
			return 1;
		if (i < CB_SPAWN_NFDS)
			jail.guest_fds[i] = from[i];
	}
	if (cb_fds_install(&jail, from[CB_SPAWN_NFDS], &sync, &err) < 0)
		return 2;
	for (int i = 0; i < GIVEN; i++)
		if (from[i] >= 0 && targets[i] >= 0 &&
		    (!is_file(targets[i], &files[i]) || fcntl(targets[i], F_GETFD) != 0))
			return 10 + i;
	if (!is_file(sync, &sync_file) || fcntl(sync, F_GETFD) != FD_CLOEXEC)
		return 3;
	if (fcntl(stranger, F_GETFD) == 0)
		return 4;
	if (from[CB_SPAWN_WIRE] < 0)
		return is_file(0, &own) ? 0 : 5;
	null = file_of(open("/dev/null", O_RDWR | O_CLOEXEC));
	return is_file(0, &null) ? 0 : 6;
}

static int in_a_process(const int from[GIVEN])
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(install(from));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void test_kernel(void **state)
{
	static const int far[GIVEN] = { 40, 41, 42, 43, 44, 45, 46, 47 };
	/* each has the number that another one gets */
	static const int crossed[GIVEN] = {
		[CB_SPAWN_WIRE] = CB_GUEST_FD_STDOUT,	 [CB_SPAWN_STDOUT] = CB_GUEST_FD_STDERR,
		[CB_SPAWN_STDERR] = CB_GUEST_FD_LOG,	 [CB_SPAWN_LOG] = CB_GUEST_FD_TWIN_CONTROL,
		[CB_SPAWN_LINK] = CB_GUEST_FD_STDIN,	 [CB_SPAWN_TWIN_CONTROL] = CB_GUEST_FD_REGISTRY,
		[CB_SPAWN_SIDE] = CB_GUEST_FD_WIRE,	 [CB_SPAWN_NFDS] = CB_GUEST_FD_SIDE,
	};

	(void)state;
	assert_int_equal(in_a_process(far), 0);
	assert_int_equal(in_a_process(crossed), 0);
}

/* A command alone has the caller's stdin, and no wire. */
static void test_run(void **state)
{
	static const int run[GIVEN] = {
		[CB_SPAWN_WIRE] = -1, [CB_SPAWN_STDOUT] = 2, [CB_SPAWN_STDERR] = 1,	 [CB_SPAWN_LOG] = -1,
		[CB_SPAWN_LINK] = 44, [CB_SPAWN_SIDE] = -1,  [CB_SPAWN_TWIN_CONTROL] = -1, [CB_SPAWN_NFDS] = -1,
	};

	(void)state;
	assert_int_equal(in_a_process(run), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernel),
		cmocka_unit_test(test_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
