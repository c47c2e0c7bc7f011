/* The supervisor's own walls: after cb_self_sandbox every thread is bare and filtered, and what the kernel needs still
 * works. */
#include "records/history.h"
#include "setup/self_sandbox.h"

#include <arpa/inet.h>
#include <cellblock/fd.h>
#include <cellblock/sandbox.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <openssl/rand.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <zmq.h>

#include <cmocka.h>

#define PATIENCE_MS 60000

/* ---- the child: each check is one line on the pipe when it fails ---- */

static int report_fd;

static void check(bool good, const char *what)
{
	if (!good)
		dprintf(report_fd, "%s (errno %d)\n", what, errno);
}

static unsigned long long status_field(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at != NULL ? strtoull(at + strlen(name), NULL, strncmp(name, "Cap", 3) == 0 ? 16 : 10) : ~0ull;
}

static int count_bare_threads(bool was_root)
{
	DIR *dir = opendir("/proc/self/task");
	const struct dirent *entry;
	int count = 0;

	check(dir != NULL, "reading /proc/self/task");
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		char path[300], text[8192];
		int fd;
		ssize_t n;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
		text[n > 0 ? n : 0] = '\0';
		close(fd);
		check(status_field(text, "CapEff:\t") == 0, "CapEff of a thread");
		check(status_field(text, "CapPrm:\t") == 0, "CapPrm of a thread");
		check(status_field(text, "CapInh:\t") == 0, "CapInh of a thread");
		check(status_field(text, "CapAmb:\t") == 0, "CapAmb of a thread");
		check(!was_root || status_field(text, "CapBnd:\t") == 0, "CapBnd of a thread");
		check(status_field(text, "NoNewPrivs:\t") == 1, "NoNewPrivs of a thread");
		check(status_field(text, "Seccomp:\t") == 2, "Seccomp of a thread");
		check(!was_root || status_field(text, "Uid:\t") != 0, "uid of a thread");
		count++;
	}
	if (dir != NULL)
		closedir(dir);
	return count;
}

static void check_refused(void)
{
	char *argv[] = { (char[]){ "/bin/true" }, NULL };
	pid_t child;

	errno = 0;
	check(execv(argv[0], argv) < 0 && errno == EPERM, "execve is refused");
	child = fork();
	if (child == 0)
		_exit(0);
	check(child < 0 && errno == EPERM, "fork is refused");
	check(open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600) < 0 && errno == EACCES, "O_TMPFILE is refused");
	check(open("/dev/null", O_WRONLY | O_CLOEXEC) < 0 && errno == EACCES, "opening for writing is refused");
	check(socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EOPNOTSUPP, "socket is refused");
	check(kill(getppid(), 0) < 0 && errno == EPERM, "kill of others is refused");
	check(unshare(CLONE_NEWUSER) < 0 && errno == EPERM, "unshare is refused");
	check(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED,
	      "executable memory is refused");
	check(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0, "turning dumpable is refused");
	check(syscall(SYS_openat2, AT_FDCWD, "/", NULL, 0) < 0 && errno == ENOSYS, "openat2 is unknown");
	check(syscall(SYS_ptrace, 0, 0, 0, 0) < 0 && errno == EPERM, "ptrace is refused");
	check(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 1, "not dumpable");
}

static void check_needed(void)
{
	int pair[2], got = -1, status_fd, pidfd;
	unsigned char random[16];
	size_t count = 0;
	char path[64], byte;

	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
	check(cb_fd_send(pair[0], "x", 1, &pair[0], 1) == 0, "sending an fd");
	check(cb_fd_recv(pair[1], &byte, 1, &got, 1, &count, 0) == 1 && count == 1 && got >= 0, "receiving an fd");
	pidfd = (int)syscall(SYS_pidfd_open, getppid(), 0);
	check(pidfd >= 0 && poll(&(struct pollfd){ .fd = pidfd, .events = POLLIN }, 1, 0) == 0, "polling a pidfd");
	snprintf(path, sizeof(path), "/proc/%d/stat", getppid());
	status_fd = open(path, O_RDONLY | O_CLOEXEC);
	check(status_fd >= 0 && read(status_fd, random, sizeof(random)) > 0, "reading another process's stat");
	check(RAND_bytes(random, sizeof(random)) == 1, "RAND_bytes");
}

/* By this it is known whether a guest takes what it is sent (kernel/transactions/twins_make.c). */
static void check_unread(void)
{
	uint32_t before[SK_MEMINFO_VARS] = { 0 }, after[SK_MEMINFO_VARS] = { 0 };
	socklen_t size = sizeof(before);
	int pair[2];
	char c = 'x';

	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 && send(pair[0], &c, 1, 0) == 1, "send");
	check(getsockopt(pair[0], SOL_SOCKET, SO_MEMINFO, before, &size) == 0, "SO_MEMINFO");
	check(recv(pair[1], &c, 1, 0) == 1, "recv");
	check(getsockopt(pair[0], SOL_SOCKET, SO_MEMINFO, after, &size) == 0, "SO_MEMINFO");
	check(before[SK_MEMINFO_WMEM_ALLOC] > 0 && after[SK_MEMINFO_WMEM_ALLOC] == 0, "what is unread is told");
	close(pair[0]);
	close(pair[1]);
}

static void *make_server(void *context, int listen_fd, const char *endpoint, const char *secret)
{
	void *socket = zmq_socket(context, ZMQ_ROUTER);
	int one = 1, zero = 0;

	zmq_setsockopt(socket, ZMQ_USE_FD, &listen_fd, sizeof(listen_fd));
	zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof(zero));
	if (secret != NULL) {
		zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &one, sizeof(one));
		zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret, 41);
	}
	check(socket != NULL && zmq_bind(socket, endpoint) == 0, endpoint);
	return socket;
}

static void echo_one(void *socket)
{
	char identity[256], text[64];
	int timeout = PATIENCE_MS, n, m;

	zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout, sizeof(timeout));
	n = zmq_recv(socket, identity, sizeof(identity), 0);
	m = n >= 0 ? zmq_recv(socket, text, sizeof(text), 0) : -1;
	check(n >= 0 && m == 4, "a message arrives");
	if (m >= 0) {
		zmq_send(socket, identity, (size_t)n, ZMQ_SNDMORE);
		check(zmq_send(socket, text, (size_t)m, 0) == m, "an answer goes out");
	}
}

static void check_history(struct cb_history *history)
{
	struct cb_history_query query = { .access = CB_HISTORY_TAIL, .n = 5 };
	CB_AUTO_BUF answer = CB_BUF_INIT(1 << 16);
	uint64_t tag = 0;

	check(cb_history_start(history) == 0, "history thread");
	check(cb_history_add(history, 1, "x = 1", 5) == 0, "history add");
	check(cb_history_query(history, &query, 7) == 0, "history query");
	check(poll(&(struct pollfd){ .fd = cb_history_fd(history), .events = POLLIN }, 1, PATIENCE_MS) == 1,
	      "history answers");
	check(cb_history_next(history, &tag, &answer) == 0 && tag == 7, "history answer");
	check(answer.len > 5 && memmem(answer.data, answer.len, "\"x = 1\"", 7) != NULL, "history finds the line");
}

struct servers {
	int tcp_fd, ipc_fd;
	char tcp[64], ipc[128];
	char public[41], secret[41];
	char history[128];
};

static _Noreturn void child(const struct servers *s)
{
	bool was_root = cb_is_host_root();
	struct cb_err err = { 0 };
	struct cb_history *history = NULL;
	void *context, *tcp, *ipc;

	check(cb_history_open(s->history, &history, &err) == 0, err.text);
	if (cb_self_sandbox(&err) < 0) {
		dprintf(report_fd, "cb_self_sandbox: %s\n", err.text);
		_exit(1);
	}
	check(!was_root || (geteuid() != 0 && getuid() != 0 && getegid() != 0), "root is left");
	context = zmq_ctx_new();
	tcp = make_server(context, s->tcp_fd, s->tcp, s->secret);
	ipc = make_server(context, s->ipc_fd, s->ipc, NULL);
	echo_one(tcp);
	echo_one(ipc);
	check_history(history);
	check(count_bare_threads(was_root) >= 4, "main, reaper, I/O and history threads are there");
	check_needed();
	check_unread();
	check_refused();
	cb_history_close(history);
	zmq_close(tcp);
	zmq_close(ipc);
	zmq_ctx_term(context);
	_exit(0);
}

/* ---- the parent ---- */

static void listen_everywhere(struct servers *s, const char *folder)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(in);

	s->tcp_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(s->tcp_fd, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(s->tcp_fd, 16), 0);
	assert_int_equal(getsockname(s->tcp_fd, (struct sockaddr *)&in, &len), 0);
	snprintf(s->tcp, sizeof(s->tcp), "tcp://127.0.0.1:%u", ntohs(in.sin_port));

	snprintf(un.sun_path, sizeof(un.sun_path), "%s/socket", folder);
	s->ipc_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(s->ipc_fd, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(listen(s->ipc_fd, 16), 0);
	snprintf(s->ipc, sizeof(s->ipc), "ipc://%s/socket", folder);
	assert_int_equal(zmq_curve_keypair(s->public, s->secret), 0);
	snprintf(s->history, sizeof(s->history), "%s/history.sqlite", folder);
}

static void talk(void *context, const char *endpoint, const char *server_key)
{
	void *socket = zmq_socket(context, ZMQ_DEALER);
	char public[41], secret[41], text[16] = "";
	int timeout = PATIENCE_MS, zero = 0;

	if (server_key != NULL) {
		assert_int_equal(zmq_curve_keypair(public, secret), 0);
		assert_int_equal(zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server_key, 41), 0);
		assert_int_equal(zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, public, 41), 0);
		assert_int_equal(zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret, 41), 0);
	}
	zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout, sizeof(timeout));
	zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof(zero));
	assert_int_equal(zmq_connect(socket, endpoint), 0);
	assert_int_equal(zmq_send(socket, "ping", 4, 0), 4);
	assert_int_equal(zmq_recv(socket, text, sizeof(text), 0), 4);
	zmq_close(socket);
}

/* What the child wrote through its thread, as another uid and without a way to open files, is there. */
static void check_file(const char *path)
{
	struct cb_history_query query = { .access = CB_HISTORY_TAIL, .n = 5 };
	CB_AUTO_BUF answer = CB_BUF_INIT(1 << 16);
	struct cb_history *history = NULL;
	uint64_t tag;

	assert_int_equal(cb_history_open(path, &history, NULL), 0);
	assert_int_equal(cb_history_start(history), 0);
	assert_int_equal(cb_history_query(history, &query, 1), 0);
	assert_int_equal(poll(&(struct pollfd){ .fd = cb_history_fd(history), .events = POLLIN }, 1, PATIENCE_MS), 1);
	assert_int_equal(cb_history_next(history, &tag, &answer), 0);
	assert_non_null(memmem(answer.data, answer.len, "\"x = 1\"", 7));
	cb_history_close(history);
}

static void test_all_threads_bare_and_working(void **state)
{
	char folder[] = "/tmp/cb-self-XXXXXX", text[8192];
	struct servers s;
	int pipes[2], status;
	void *context;
	ssize_t n;
	pid_t pid;

	(void)state;
	assert_non_null(mkdtemp(folder));
	listen_everywhere(&s, folder);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		report_fd = pipes[1];
		child(&s);
	}
	close(pipes[1]);
	context = zmq_ctx_new();
	talk(context, s.tcp, s.public);
	talk(context, s.ipc, NULL);
	zmq_ctx_term(context);
	n = read(pipes[0], text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_string_equal(text, "");
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	close(pipes[0]);
	close(s.tcp_fd);
	close(s.ipc_fd);
	check_file(s.history);
	static const char *const names[] = { "socket", "history.sqlite", "history.sqlite-wal", "history.sqlite-shm" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[64];

		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_all_threads_bare_and_working) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
