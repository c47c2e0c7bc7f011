/* A notifier of two listeners: it serves both, outlives the end of each, and when it dies what it left of both is
 * answered and a new one serves on.
 *
 * The jail is namespaces alone: a process that plays pid 1 and its jobs, and a child of it, the guest, under a filter
 * of its own. They do what the test asks of them, and answer by what errno says.
 */
#include "../../../../sandbox/notifier/notifier.h"
#include "../../../../sandbox/shared/jail.h"
#include "../../../../sandbox/shared/mounts.h"
#include "../../../../sandbox/shared/sync.h"
#include "../../folder.h"

#include <cellblock/fd.h>
#include <cellblock/proc_stat.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { GUEST, JOB, ACTORS };
enum op { CREATE, WRITE, CONNECT, END };

struct order {
	enum op op;
	char name[32];
};

static char folder[] = "/tmp/cb-notifier-XXXXXX";
static struct cb_jail_spec spec = { .workspace_mode = CB_WORKSPACE_RW,
				    .network = CB_NETWORK_NONE,
				    .notifier = true,
				    .workspace_source = folder,
				    .workspace_target = folder };
static const struct cb_cgroup no_group = CB_CGROUP_EMPTY;

static struct {
	struct cb_jail jail;
	struct cb_notifier n;
	int sockets[ACTORS];
	pid_t pid1;
} rig;

/* ---- in the jail ---- */

static struct sockaddr_un abstract(const char *name)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "%s%s", folder, name);
	return un;
}

static int do_order(const struct order *o)
{
	struct sockaddr_un un = abstract(o->name);
	char path[128];
	CB_AUTO_FD fd = -1;

	snprintf(path, sizeof(path), "%s/%s", folder, o->name);
	if (o->op == CREATE)
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	else if (o->op == WRITE)
		fd = open(path, O_WRONLY | O_CLOEXEC);
	else
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || (o->op == CONNECT && connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0))
		return errno;
	return 0;
}

static _Noreturn void act(int fd)
{
	struct order o;

	while (read(fd, &o, sizeof(o)) == (ssize_t)sizeof(o) && o.op != END) {
		int error = do_order(&o);

		if (write(fd, &error, sizeof(error)) != (ssize_t)sizeof(error))
			break;
	}
	_exit(0);
}

static void must(bool done)
{
	if (!done)
		_exit(1);
}

static void put_text(const char *path, const char *text)
{
	CB_AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);

	must(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void enter_namespaces(void)
{
	unsigned uid = geteuid(), gid = getegid();
	char map[64];

	must(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0);
	put_text("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "%d %u 1", CB_JAIL_UID, uid);
	put_text("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "%d %u 1", CB_JAIL_UID, gid);
	put_text("/proc/self/gid_map", map);
}

/* As pid 1 does it: what is seen is read-only, and a detached copy is not. */
static void mount_workspace(struct cb_jail *jail)
{
	CB_AUTO_FD place = -1;

	must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	     mount(folder, folder, NULL, MS_BIND, NULL) == 0);
	must(cb_mnt_clone(AT_FDCWD, folder, 0, &jail->tree_fd) == 0);
	must(cb_open_nolinks(AT_FDCWD, folder, O_PATH | O_DIRECTORY, &place) == 0 &&
	     cb_mnt_set(place, "", CB_RO) == 0);
	jail->ns_fds[0] = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	jail->ns_fds[1] = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	must(jail->ns_fds[0] >= 0 && jail->ns_fds[1] >= 0);
}

/* As a guest from a zygote does it: the program is the broker's, the listener goes to the broker. */
static _Noreturn void guest_main(const struct cb_jail *jail, int fd)
{
	struct cb_sync message = { .kind = CB_SYNC_NOTIFIER, .upper = CB_NOTIFY_LISTENER };
	struct cb_notify_program compiled;
	struct sock_fprog program;
	int listener;

	must(cb_notify_compile(jail, &compiled, NULL) == 0);
	program = (struct sock_fprog){ .len = compiled.len, .filter = compiled.insns };
	listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	must(listener >= 0 && cb_fd_send(fd, &message, sizeof(message), &listener, 1) == 0);
	(void)close(listener);
	act(fd);
}

static _Noreturn void pid1_main(struct cb_jail *jail, const int sockets[ACTORS])
{
	enter_namespaces();
	mount_workspace(jail);
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && signal(SIGCHLD, SIG_IGN) != SIG_ERR);
	if (jail->warm && fork() == 0) {
		(void)close(sockets[JOB]);
		guest_main(jail, sockets[GUEST]);
	}
	(void)close(sockets[GUEST]);
	jail->sync_fd = sockets[JOB];
	must(cb_notify_install(jail, NULL) == 0);
	act(sockets[JOB]);
}

/* ---- the test ---- */

static void take_until(int fd, uint32_t last)
{
	struct cb_sync message = { .upper = UINT32_MAX };
	size_t nfds;

	while (message.upper != last) {
		int got = -1;

		assert_int_equal(cb_fd_recv(fd, &message, sizeof(message), &got, 1, &nfds, 0), sizeof(message));
		assert_int_equal(message.kind, CB_SYNC_NOTIFIER);
		assert_int_equal(nfds, 1);
		assert_true(message.upper <= CB_NOTIFY_LISTENER && rig.n.fds[message.upper] == -1);
		rig.n.fds[message.upper] = got;
	}
}

static void begin(bool warm)
{
	int guest[2], job[2];
	struct cb_err err = { 0 };

	rig.n = CB_NOTIFIER_NONE;
	rig.jail = (struct cb_jail){ .spec = &spec, .warm = warm, .tree_fd = -1, .ns_fds = { -1, -1 } };
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, guest), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, job), 0);
	rig.pid1 = fork();
	if (rig.pid1 == 0) {
		(void)close(guest[0]);
		(void)close(job[0]);
		pid1_main(&rig.jail, (const int[ACTORS]){ [GUEST] = guest[1], [JOB] = job[1] });
	}
	assert_true(rig.pid1 > 0);
	(void)close(guest[1]);
	(void)close(job[1]);
	rig.sockets[GUEST] = guest[0];
	rig.sockets[JOB] = job[0];
	take_until(job[0], warm ? CB_NOTIFY_LISTENER_JOBS : CB_NOTIFY_LISTENER);
	if (warm)
		take_until(guest[0], CB_NOTIFY_LISTENER);
	assert_int_equal(cb_notify_start(&rig.jail, &no_group, &rig.n, &err), 0);
}

static int begin_warm(void **state)
{
	(void)state;
	begin(true);
	return 0;
}

static int begin_cold(void **state)
{
	(void)state;
	begin(false);
	return 0;
}

/* All that was started ends: by the ends of its sockets, or because nobody serves it any more. */
static int end_all(void **state)
{
	(void)state;
	for (int who = 0; who < ACTORS; who++)
		cb_fd_close(&rig.sockets[who]);
	cb_notify_stop(&rig.n);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	return 0;
}

static void ask(int who, enum op op, const char *name)
{
	struct order o = { .op = op };

	snprintf(o.name, sizeof(o.name), "%s", name);
	assert_int_equal(write(rig.sockets[who], &o, sizeof(o)), sizeof(o));
}

static int answer(int who)
{
	int error = -1;

	assert_int_equal(read(rig.sockets[who], &error, sizeof(error)), sizeof(error));
	return error;
}

static void assert_creates(int who, const char *name)
{
	char path[128];

	ask(who, CREATE, name);
	assert_int_equal(answer(who), 0);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	assert_int_equal(unlink(path), 0);
}

static void await(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	assert_int_equal(poll(&p, 1, -1), 1);
	assert_true((p.revents & (POLLIN | POLLHUP)) != 0);
}

static void end_guest(void)
{
	ask(GUEST, END, "");
	await(rig.n.fds[CB_NOTIFY_LISTENER], 0);
}

static void end_pid1(void)
{
	ask(JOB, END, "");
	assert_int_equal(waitpid(rig.pid1, NULL, 0), rig.pid1);
	await(rig.n.fds[rig.jail.warm ? CB_NOTIFY_LISTENER_JOBS : CB_NOTIFY_LISTENER], 0);
}

static void kill_notifier(void)
{
	assert_int_equal(kill(rig.n.pid, SIGKILL), 0);
	await(rig.n.pidfd, POLLIN);
	cb_notify_died(&rig.jail, &no_group, &rig.n);
}

static void assert_lives(void)
{
	struct pollfd p = { .fd = rig.n.pidfd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 0), 0);
}

static char state_of(int tasks, const char *name)
{
	struct cb_proc_stat stat;
	char path[300];

	snprintf(path, sizeof(path), "%s/stat", name);
	assert_int_equal(cb_proc_stat_read(tasks, path, &stat), 0);
	return stat.state;
}

static unsigned count_awake(unsigned *ret_all)
{
	char path[64];
	unsigned awake = 0, all = 0;
	struct dirent *entry;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)rig.n.pid);
	tasks = opendir(path);
	assert_non_null(tasks);
	while ((entry = readdir(tasks)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		all++;
		awake += state_of(dirfd(tasks), entry->d_name) != 'S';
	}
	(void)closedir(tasks);
	*ret_all = all;
	return awake;
}

/* An ended listener, asked again and again, would keep a thread awake for ever. */
static void assert_rests_with(unsigned threads)
{
	unsigned all = 0;

	while (count_awake(&all) > 0)
		(void)sched_yield();
	assert_int_equal(all, threads);
}

/* A server that lets nobody in: its queue, of one, is full. */
static int make_server(const char *name, int *ret_client)
{
	struct sockaddr_un un = abstract(name);
	int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*ret_client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(server >= 0 && *ret_client >= 0);
	assert_int_equal(bind(server, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(listen(server, 0), 0);
	assert_int_equal(connect(*ret_client, (struct sockaddr *)&un, sizeof(un)), 0);
	return server;
}

/* Until a call of each listener waits in the notifier. Memory tells of no event. */
static void await_waiters(void)
{
	for (int from = 0; from < CB_NOTIFY_FROMS; from++)
		for (bool waits = false; !waits; (void)sched_yield())
			for (int i = CB_NOTIFY_THREADS; i < CB_NOTIFY_FIRST_HELD; i++)
				waits |= ((volatile uint64_t *)rig.n.shared->busy[from])[i] != 0;
}

static void test_both_are_served(void **state)
{
	(void)state;
	assert_creates(GUEST, "a");
	assert_creates(JOB, "b");
	ask(GUEST, CREATE, "none/c");
	ask(JOB, CREATE, "none/d");
	assert_int_equal(answer(GUEST), ENOENT);
	assert_int_equal(answer(JOB), ENOENT);
	assert_rests_with(1 + CB_NOTIFY_THREADS + 1 + CB_NOTIFY_JOBS_THREADS);
}

static void test_a_file_that_one_has_made_is_the_others(void **state)
{
	(void)state;
	ask(JOB, CREATE, "shared");
	assert_int_equal(answer(JOB), 0);
	ask(GUEST, WRITE, "shared");
	assert_int_equal(answer(GUEST), 0);
}

/* What others have made a moment ago waits, in a thread that both share. */
static void test_held_calls_of_both_are_answered(void **state)
{
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/late", folder);
	assert_int_equal(close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644)), 0);
	ask(GUEST, WRITE, "late");
	ask(JOB, WRITE, "late");
	assert_int_equal(answer(GUEST), 0);
	assert_int_equal(answer(JOB), 0);
	assert_int_equal(rig.n.starts, 1);
}

static void test_connections_of_both_that_wait_are_answered(void **state)
{
	int client;
	CB_AUTO_FD server = make_server("waits", &client);

	(void)state;
	ask(GUEST, CONNECT, "waits");
	ask(JOB, CONNECT, "waits");
	await_waiters();
	for (int i = 0; i < 3; i++)
		assert_int_equal(close(accept(server, NULL, NULL)), 0);
	assert_int_equal(answer(GUEST), 0);
	assert_int_equal(answer(JOB), 0);
	(void)close(client);
}

static void test_the_guests_end_leaves_the_jobs_served(void **state)
{
	(void)state;
	assert_creates(JOB, "a"); /* its filter is there */
	end_guest();
	assert_creates(JOB, "b");
	assert_rests_with(1 + CB_NOTIFY_THREADS + 1 + CB_NOTIFY_JOBS_THREADS);
	assert_lives();
	kill_notifier();
	assert_int_equal(rig.n.starts, 2);
	assert_creates(JOB, "c");
	assert_rests_with(1 + CB_NOTIFY_THREADS + 1 + CB_NOTIFY_JOBS_THREADS);
}

static void test_the_end_of_the_jobs_leaves_the_guest_served(void **state)
{
	(void)state;
	end_pid1();
	assert_creates(GUEST, "a");
	assert_rests_with(1 + CB_NOTIFY_THREADS + 1 + CB_NOTIFY_JOBS_THREADS);
	kill_notifier();
	assert_int_equal(rig.n.starts, 2);
	assert_creates(GUEST, "b");
}

static void test_the_end_of_both_is_the_notifiers(void **state)
{
	(void)state;
	end_guest();
	assert_lives();
	end_pid1();
	await(rig.n.pidfd, POLLIN);
	cb_notify_died(&rig.jail, &no_group, &rig.n);
	assert_int_equal(rig.n.pid, 0);
	assert_int_equal(rig.n.starts, 1);
}

static void test_calls_of_both_are_answered_when_it_dies(void **state)
{
	int client;
	CB_AUTO_FD server = make_server("full", &client);

	(void)state;
	ask(GUEST, CONNECT, "full");
	ask(JOB, CONNECT, "full");
	await_waiters();
	kill_notifier();
	assert_int_equal(answer(GUEST), EIO);
	assert_int_equal(answer(JOB), EIO);
	assert_int_equal(rig.n.starts, 2);
	assert_lives();
	assert_creates(GUEST, "a");
	assert_creates(JOB, "b");
	(void)close(client);
}

static void test_a_cold_jail_has_one_listener(void **state)
{
	(void)state;
	assert_int_equal(rig.n.fds[CB_NOTIFY_LISTENER_JOBS], -1);
	assert_creates(JOB, "a");
	assert_rests_with(1 + CB_NOTIFY_THREADS + 1);
	kill_notifier();
	assert_creates(JOB, "b");
	end_pid1();
	await(rig.n.pidfd, POLLIN);
	cb_notify_died(&rig.jail, &no_group, &rig.n);
	assert_int_equal(rig.n.starts, 2);
	assert_int_equal(rig.n.pid, 0);
}

/* As one that is stuck in the kernel: no signal ends it, and its pidfd tells of nothing. */
static void test_one_that_does_not_die_is_left(void **state)
{
	struct cb_notifier n = CB_NOTIFIER_NONE;
	int ends[2];
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		for (;;)
			pause();
	assert_true(pid > 0);
	assert_int_equal(pipe(ends), 0);
	n.pid = pid;
	n.pidfd = ends[0];
	n.fds[CB_NOTIFY_TREE] = dup(ends[0]);
	cb_notify_stop(&n);
	assert_true(n.pid == 0 && n.pidfd == -1 && n.fds[CB_NOTIFY_TREE] == -1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	(void)close(ends[1]);
}

/* Not where namespaces can't be had, or somebody around listens already. */
static bool is_possible(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0);
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 && cb_notify_probe() == 0;
}

#define WARM(test) cmocka_unit_test_setup_teardown(test, begin_warm, end_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WARM(test_both_are_served),
		WARM(test_a_file_that_one_has_made_is_the_others),
		WARM(test_held_calls_of_both_are_answered),
		WARM(test_connections_of_both_that_wait_are_answered),
		WARM(test_the_guests_end_leaves_the_jobs_served),
		WARM(test_the_end_of_the_jobs_leaves_the_guest_served),
		WARM(test_the_end_of_both_is_the_notifiers),
		WARM(test_calls_of_both_are_answered_when_it_dies),
		cmocka_unit_test(test_one_that_does_not_die_is_left),
		cmocka_unit_test_setup_teardown(test_a_cold_jail_has_one_listener, begin_cold, end_all),
	};
	int r;

	if (!is_possible())
		return 77;
	/* the guest's parent is not the test: when that has ended it is */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 || mkdtemp(folder) == NULL)
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	return folder_remove(folder) < 0 ? 1 : r;
}
