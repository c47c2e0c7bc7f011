/* Answers that a caller has missed, as before Linux 5.19: a signal takes it out of its call while that is being served.
 *
 * The caller is a child, under a filter without the flag that such kernels do not have. It opens the names that it is
 * told, always by the same buffer; the test serves it.
 */
#include "../../../../sandbox/notifier/calls.h"
#include "../../folder.h"

#include <cellblock/fd.h>
#include <cellblock/sandbox.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/cb-missed-XXXXXX";
static struct cb_notify_shared shared;
static struct {
	pid_t pid;
	int fd;
} caller;

/* What became of a call. */
struct report {
	int error;
	ino_t ino;
};

/* ---- the caller ---- */

static void on_signal(int number)
{
	(void)number;
}

static void must(bool done)
{
	if (!done)
		_exit(1);
}

static int install(void)
{
	struct sock_filter insns[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof(insns) / sizeof(*insns), .filter = insns };

	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static _Noreturn void caller_main(int fd, int flags)
{
	const struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	static char name[16];
	int listener;

	must(sigaction(SIGUSR1, &action, NULL) == 0);
	listener = install();
	must(listener >= 0 && cb_fd_send(fd, "", 1, &listener, 1) == 0);
	(void)close(listener);
	while (read(fd, name, sizeof(name)) == (ssize_t)sizeof(name)) {
		int file = openat(AT_FDCWD, name, O_WRONLY | O_CLOEXEC);
		struct report report = { .error = file < 0 ? errno : 0 };
		struct stat st;

		if (file >= 0 && fstat(file, &st) == 0)
			report.ino = st.st_ino;
		cb_fd_close(&file);
		must(write(fd, &report, sizeof(report)) == (ssize_t)sizeof(report));
	}
	_exit(0);
}

/* ---- the test ---- */

static void begin(int flags)
{
	int pair[2];
	char byte;
	size_t nfds = 0;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	caller.pid = fork();
	if (caller.pid == 0) {
		(void)close(pair[0]);
		caller_main(pair[1], flags);
	}
	assert_true(caller.pid > 0);
	(void)close(pair[1]);
	caller.fd = pair[0];
	assert_int_equal(cb_fd_recv(caller.fd, &byte, 1, &cb_notify_self.listeners[0], 1, &nfds, 0), 1);
	assert_int_equal(nfds, 1);
}

static void end(void)
{
	cb_fd_close(&caller.fd);
	cb_fd_close(&cb_notify_self.listeners[0]);
	assert_int_equal(waitpid(caller.pid, NULL, 0), caller.pid);
}

static void order(const char *name)
{
	char text[16] = "";

	snprintf(text, sizeof(text), "%s", name);
	assert_int_equal(write(caller.fd, text, sizeof(text)), sizeof(text));
}

static struct report report(void)
{
	struct report r;

	assert_int_equal(read(caller.fd, &r, sizeof(r)), sizeof(r));
	return r;
}

/* The caller's next call; what it reads of the caller's memory is `name`. */
static struct cb_request receive(struct seccomp_notif *n, const char *name)
{
	struct cb_request q = CB_REQUEST(n, CB_NOTIFY_FROM_GUEST, 0);
	char path[64];

	memset(n, 0, sizeof(*n));
	assert_int_equal(ioctl(cb_notify_self.listeners[0], SECCOMP_IOCTL_NOTIF_RECV, n), 0);
	if (name != NULL) {
		assert_int_equal(cb_caller_string(&q, n->data.args[1], path, sizeof(path)), 0);
		assert_string_equal(path, name);
	}
	return q;
}

static ino_t put(const char *name)
{
	CB_AUTO_FD fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct stat st;

	assert_int_equal(write(fd, "text", 4), 4);
	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

static off_t size_of(const char *name)
{
	struct stat st;

	assert_int_equal(stat(name, &st), 0);
	return st.st_size;
}

static void test_the_call_that_comes_again_gets_it(void **state)
{
	struct seccomp_notif first, second;
	struct cb_request q, again;
	ino_t ino = put("a");
	struct report r;

	(void)state;
	begin(SA_RESTART);
	order("a");
	q = receive(&first, "a");
	q.fd = open("a", O_WRONLY | O_CLOEXEC);
	q.empty = true;
	assert_int_equal(kill(caller.pid, SIGUSR1), 0);
	again = receive(&second, NULL);
	cb_notify_answer(&q);
	assert_int_equal(size_of("a"), 4); /* its caller has no descriptor */
	assert_true(cb_missed_take(&again));
	assert_false(cb_missed_take(&again));
	cb_notify_answer(&again);
	r = report();
	assert_int_equal(r.error, 0);
	assert_int_equal(r.ino, ino);
	assert_int_equal(size_of("a"), 0);
	end();
}

static void test_another_name_in_the_same_place_does_not_get_it(void **state)
{
	struct seccomp_notif first, second;
	struct cb_request q, other;
	struct report r;
	ino_t ino;

	(void)state;
	(void)put("a");
	ino = put("b");
	begin(0);
	order("a");
	q = receive(&first, "a");
	q.fd = open("a", O_WRONLY | O_CLOEXEC);
	assert_int_equal(kill(caller.pid, SIGUSR1), 0);
	assert_int_equal(report().error, EINTR);
	cb_notify_answer(&q);
	order("b");
	other = receive(&second, NULL);
	assert_memory_equal(first.data.args, second.data.args, sizeof(first.data.args));
	assert_false(cb_missed_take(&other));
	other.fd = open("b", O_WRONLY | O_CLOEXEC);
	cb_notify_answer(&other);
	r = report();
	assert_int_equal(r.error, 0);
	assert_int_equal(r.ino, ino);
	order("a"); /* it has meant something else meanwhile */
	other = receive(&second, NULL);
	assert_false(cb_missed_take(&other));
	other.error = EIO;
	cb_notify_answer(&other);
	assert_int_equal(report().error, EIO);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_call_that_comes_again_gets_it),
		cmocka_unit_test(test_another_name_in_the_same_place_does_not_get_it),
	};
	int r;

	if (cb_notify_probe() < 0) /* somebody around listens already */
		return 77;
	cb_notify_self.shared = &shared;
	if (mkdtemp(folder) == NULL || chdir(folder) < 0)
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	return chdir("/") < 0 || folder_remove(folder) < 0 ? 1 : r;
}
