/* The supervisor's side of the broker link, against a broker of our own: this program, started again with argv[1]
 * "broker". What that broker does is the second word of the description's argv.
 */
#include <cellblock/fd.h>
#include <cellblock/sandbox.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the broker ---- */

static unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (dir != NULL && readdir(dir) != NULL)
		n++;
	if (dir != NULL)
		(void)closedir(dir);
	return n - 3; /* ".", ".." and the folder's own */
}

static unsigned variables(void)
{
	extern char **environ;
	unsigned n = 0;

	while (environ[n] != NULL)
		n++;
	return n;
}

static void answer(int fd, const char *mode, uint32_t number, size_t nfds)
{
	struct cb_broker_reply reply = {
		.event = CB_BROKER_SPAWNED, .number = number, .jail = 7, .guest_pid = 4711, .level = CB_LEVEL_NO_CGROUP
	};
	int pidfd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int all[1 + CB_USAGE_NFDS] = { [0 ... CB_USAGE_NFDS] = pidfd };
	bool refuse = strcmp(mode, "refuse") == 0;

	if (refuse) {
		reply.code = -EPERM;
		memset(reply.text, 'x', sizeof(reply.text)); /* without an end */
	}
	snprintf(reply.note, sizeof(reply.note), "fds %zu open %u env %u", nfds, open_fds() - (unsigned)nfds - 1,
		 variables());
	if (strcmp(mode, "short") == 0)
		(void)cb_fd_send(fd, &reply, 8, &pidfd, 1);
	else if (strcmp(mode, "no-pidfd") == 0)
		(void)cb_fd_send(fd, &reply, sizeof(reply), NULL, 0);
	else
		(void)cb_fd_send(fd, &reply, sizeof(reply), all, refuse ? 0 : 1 + CB_USAGE_NFDS);
	close(pidfd);
}

static int broker(int fd, int spec_fd)
{
	struct cb_jail_spec spec = { 0 };
	struct cb_broker_request request;
	int fds[CB_SPAWN_NFDS];
	size_t nfds = 0;

	if (cb_jail_spec_from_fd(spec_fd, &spec, NULL) < 0 || spec.argv.count != 2)
		return 1;
	if (strcmp(spec.argv.items[1], "die") == 0)
		return 1;
	while (cb_fd_recv(fd, &request, sizeof(request), fds, CB_SPAWN_NFDS, &nfds, 0) > 0) {
		if (request.op == CB_BROKER_SPAWN)
			answer(fd, spec.argv.items[1], request.jail, nfds);
		while (nfds > 0)
			close(fds[--nfds]);
	}
	while (strcmp(spec.argv.items[1], "stay") == 0)
		pause();
	cb_jail_spec_release(&spec);
	return 0;
}

/* ---- the tests ---- */

static struct cb_broker start(const char *mode)
{
	struct cb_jail_spec spec = { .limit_pids = 1,
				     .limit_open_files = 32,
				     .limit_tmp = 1,
				     .limit_shm = 1,
				     .limit_inodes = 1,
				     .workspace_mode = CB_WORKSPACE_TMPFS,
				     .cwd = strdup("/"),
				     .hostname = strdup("h"),
				     .workspace_target = strdup("/w") };
	struct cb_broker b = CB_BROKER_NONE;

	assert_int_equal(cb_strv_add(&spec.argv, "/bin/true") | cb_strv_add(&spec.argv, mode), 0);
	assert_int_equal(cb_broker_start("/proc/self/exe", &spec, &b, NULL), 0);
	assert_true(b.fd >= 0 && b.pid > 0);
	assert_int_equal(fcntl(b.fd, F_GETFD), FD_CLOEXEC);
	cb_jail_spec_release(&spec);
	return b;
}

static void spawn(struct cb_broker *b)
{
	int pair[2], fds[CB_SPAWN_NFDS];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	for (int i = 0; i < CB_SPAWN_NFDS; i++)
		fds[i] = pair[i % 2];
	assert_int_equal(cb_broker_spawn(b, 9, fds), 0);
	close(pair[0]);
	close(pair[1]);
}

static int receive(struct cb_broker *b, struct cb_broker_reply *ret_reply, int *ret_pidfd)
{
	struct pollfd p = { .fd = b->fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 60000), 1);
	return cb_broker_recv(b, ret_reply, ret_pidfd, NULL);
}

static void test_spawn(void **state)
{
	struct cb_broker b = start("good");
	struct cb_broker_reply reply = { 0 };
	int pidfd = -1;
	pid_t pid = b.pid;

	(void)state;
	assert_int_equal(cb_broker_recv(&b, &reply, &pidfd, NULL), -EAGAIN);
	spawn(&b);
	assert_int_equal(receive(&b, &reply, &pidfd), 0);
	assert_true(pidfd >= 0 && fcntl(pidfd, F_GETFD) == FD_CLOEXEC);
	assert_int_equal(reply.jail, 7);
	assert_int_equal(reply.number, 9);
	assert_int_equal(reply.guest_pid, 4711);
	/* stdio and its socket: the description is closed, nothing of ours came along; one variable of the two that we
	 * have set */
	assert_string_equal(reply.note, "fds 7 open 5 env 1");
	assert_int_equal(cb_broker_kill(&b, 7), 0);
	close(pidfd);
	cb_broker_stop(&b);
	assert_true(b.fd == -1);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	cb_broker_stop(&b);
}

static void test_refusal_has_no_pidfd_and_ends(void **state)
{
	struct cb_broker b = start("refuse");
	struct cb_broker_reply reply = { 0 };
	int pidfd = 5;

	(void)state;
	spawn(&b);
	assert_int_equal(receive(&b, &reply, &pidfd), 0);
	assert_int_equal(reply.code, -EPERM);
	assert_int_equal(pidfd, -1);
	assert_int_equal(strlen(reply.text), sizeof(reply.text) - 1);
	cb_broker_stop(&b);
}

static void test_wrong_replies(void **state)
{
	static const char *const modes[] = { "short", "no-pidfd" };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct cb_broker b = start(modes[i]);
		struct cb_broker_reply reply = { .code = 99 };
		int pidfd = -2;

		spawn(&b);
		assert_int_equal(receive(&b, &reply, &pidfd), CB_E_SYNTAX);
		assert_true(reply.code == 99 && pidfd == -2);
		cb_broker_stop(&b);
	}
}

static void test_death(void **state)
{
	struct cb_broker b = start("die");
	struct cb_broker_reply reply;
	int pidfd = -2;

	(void)state;
	assert_int_equal(receive(&b, &reply, &pidfd), CB_E_CLOSED);
	assert_int_equal(pidfd, -2);
	cb_broker_stop(&b);
	assert_int_equal(cb_broker_kill(&b, 1), CB_E_CLOSED);
	assert_int_equal(cb_broker_recv(&b, &reply, &pidfd, NULL), CB_E_CLOSED);
}

static void test_one_that_will_not_end_is_killed(void **state)
{
	struct cb_broker b = start("stay");
	pid_t pid = b.pid;

	(void)state;
	cb_broker_stop(&b);
	assert_int_equal(kill(pid, 0), -1);
}

static void test_no_description(void **state)
{
	struct cb_jail_spec spec = { 0 };
	struct cb_broker b = CB_BROKER_NONE;
	struct cb_err err = { 0 };

	(void)state;
	assert_int_equal(cb_broker_start("/bin/true", &spec, &b, &err), CB_E_SYNTAX);
	assert_non_null(strstr(err.text, "argv"));
	assert_int_equal(b.fd, -1);
}

static void test_no_program(void **state)
{
	struct cb_jail_spec spec = { .limit_pids = 1,
				     .limit_open_files = 32,
				     .limit_tmp = 1,
				     .limit_shm = 1,
				     .limit_inodes = 1,
				     .workspace_mode = CB_WORKSPACE_TMPFS,
				     .cwd = strdup("/"),
				     .hostname = strdup("h") };
	struct cb_broker b = CB_BROKER_NONE;
	struct cb_err err = { 0 };

	(void)state;
	assert_int_equal(cb_strv_add(&spec.argv, "/bin/true"), 0);
	assert_int_equal(cb_broker_start("/nonexistent/jail", &spec, &b, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nonexistent/jail"));
	assert_true(b.fd == -1 && err.cure[0] != '\0');
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	cb_jail_spec_release(&spec);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spawn),
		cmocka_unit_test(test_refusal_has_no_pidfd_and_ends),
		cmocka_unit_test(test_wrong_replies),
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_one_that_will_not_end_is_killed),
		cmocka_unit_test(test_no_description),
		cmocka_unit_test(test_no_program),
	};

	if (argc == 6 && strcmp(argv[1], "broker") == 0 && strcmp(argv[2], "--fd") == 0 &&
	    strcmp(argv[4], "--spec-fd") == 0)
		return broker((int)strtol(argv[3], NULL, 10), (int)strtol(argv[5], NULL, 10));
	if (clearenv() != 0 || setenv("SECRET", "1", 1) != 0 || setenv("CELLBLOCK_LOG", "error", 1) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
