/* Pid 1's loop: the supervisor is heard however many children there are to be reaped, and none of them is forgotten;
 * who is frozen is stopped again and again. It runs in a child, without walls; its twins, and what it reaps beside its
 * guest, are made up here.
 */
#include "../../../../sandbox/init/init.h"
#include "../../../../sandbox/init/twins.h"
#include "../../../../sandbox/shared/signals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY ((pid_t)1 << 30) /* no process of ours */
#define PATIENCE_MS 60000

#define PAUSES (1 << 16)

/* Shared with pid 1. */
static struct {
	int flood; /* how many orphans are still to be reaped */
	bool twins, branch;
	int pause[PAUSES]; /* how long it waited, as long as it is frozen */
	volatile int pauses;
} *world;

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
	if (pid != -1 || status == NULL || world->flood == 0)
		return __real_waitpid(pid, status, options);
	if (world->flood < INT_MAX)
		world->flood--;
	*status = 0;
	return NOBODY;
}

/* Nothing of this stops or ends anybody. */
void __wrap_cb_twins_stop_all(void);
void __wrap_cb_twins_go_on(void);
bool __wrap_cb_twins_any(void);
bool __wrap_cb_twins_any_branch(void);
int __wrap_cb_twins_restore(uint32_t number, pid_t *ret_guest);

void __wrap_cb_twins_stop_all(void)
{
}

void __wrap_cb_twins_go_on(void)
{
}

bool __wrap_cb_twins_any(void)
{
	return world->twins;
}

bool __wrap_cb_twins_any_branch(void)
{
	return world->branch;
}

int __wrap_cb_twins_restore(uint32_t number, pid_t *ret_guest)
{
	*ret_guest = NOBODY;
	return number == 1 ? 0 : -ESRCH;
}

int __real_poll(struct pollfd *p, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *p, nfds_t n, int timeout);

/* Of pid 1, which has three: nobody waits so long here. */
int __wrap_poll(struct pollfd *p, nfds_t n, int timeout)
{
	if (n != 3 || timeout <= 0)
		return __real_poll(p, n, timeout);
	if (world->pauses < PAUSES)
		world->pause[world->pauses++] = timeout;
	return __real_poll(p, n, 1);
}

static pid_t pid1;
static int ours, broker, guests; /* the link; who hears of the launch; the guest's stdin, which ends with us */

static _Noreturn void be_pid1(char *program, int link, int sync, bool twins)
{
	struct cb_jail_spec spec = { .argv = { (char *[]){ program, NULL }, 1 },
				     .cwd = (char[]){ "/" },
				     .workspace_target = (char[]){ "/workspace" },
				     .workspace_mode = CB_WORKSPACE_TMPFS,
				     .limit_open_files = 64 };
	struct cb_jail jail = { .spec = &spec,
				.without_namespaces = !twins,
				.level = CB_LEVEL_NONE,
				.host_uid = getuid(),
				.workspace_fd = -1,
				.rules_fd = -1,
				.oom_fd = -1,
				.sync_fd = sync };

	for (int i = 0; i < CB_SPAWN_NFDS; i++)
		jail.guest_fds[i] = -1;
	jail.guest_fds[CB_SPAWN_TWIN_CONTROL] = twins ? link : -1;
	jail.guest_fds[CB_SPAWN_STDOUT] = STDOUT_FILENO;
	jail.guest_fds[CB_SPAWN_STDERR] = STDERR_FILENO;
	jail.guest_fds[CB_SPAWN_LINK] = link;
	cb_init_main(&jail);
}

/* `signalled`: there is something to be reaped before the guest has ended. */
static void begin(char *program, int orphans, bool signalled)
{
	int link[2], sync[2], input[2];
	sigset_t all;

	world->flood = orphans;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sync), 0);
	assert_int_equal(pipe2(input, O_CLOEXEC), 0);
	pid1 = fork();
	assert_true(pid1 >= 0);
	if (pid1 == 0) {
		sigfillset(&all);
		sigprocmask(SIG_SETMASK, &all, NULL);
		if (dup2(input[0], STDIN_FILENO) < 0 || (signalled && raise(SIGCHLD) != 0))
			_exit(1);
		be_pid1(program, link[1], sync[1], world->twins);
	}
	ours = link[0];
	broker = sync[0];
	guests = input[1];
	close(link[1]);
	close(sync[1]);
	close(input[0]);
}

static struct cb_init_msg hear(void)
{
	struct pollfd p = { .fd = ours, .events = POLLIN };
	struct cb_init_msg message = { 0 };

	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	assert_int_equal(recv(ours, &message, sizeof(message), 0), sizeof(message));
	return message;
}

static int setup(void **state)
{
	(void)state;
	pid1 = 0;
	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return world == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	if (pid1 <= 0)
		return -1;
	(void)kill(pid1, SIGKILL);
	close(ours);
	close(broker);
	close(guests);
	return __real_waitpid(pid1, NULL, 0) == pid1 && munmap(world, sizeof(*world)) == 0 ? 0 : -1;
}

static void test_the_supervisor_is_heard_while_orphans_end(void **state)
{
	struct cb_init_msg message = { .op = CB_INIT_SIGNAL, .number = 7 };

	(void)state;
	begin((char[]){ "/bin/cat" }, INT_MAX, true);
	assert_int_equal(send(ours, &message, sizeof(message), MSG_NOSIGNAL), sizeof(message));
	message = hear();
	assert_int_equal(message.op, CB_INIT_SIGNALLED);
	assert_int_equal(message.number, 7);
}

/* One signal tells of them all. */
static void test_whoever_ended_behind_many_is_reaped(void **state)
{
	struct cb_init_msg message;

	(void)state;
	begin((char[]){ "/bin/false" }, 2 * CB_REAPED_A_TURN + 1, false);
	message = hear();
	assert_int_equal(message.op, CB_INIT_EXITED);
	assert_int_equal(WEXITSTATUS(message.arg), 1);
	assert_int_equal(world->flood, 0);
}

static void ask(uint32_t op, int arg)
{
	struct cb_init_msg message = { .op = op, .arg = arg };

	assert_int_equal(send(ours, &message, sizeof(message), MSG_NOSIGNAL), sizeof(message));
}

/* Its guest has ended, and there is one that could take over. */
static void freeze(void)
{
	world->twins = true;
	begin((char[]){ "/bin/false" }, 0, false);
	assert_int_equal(hear().op, CB_INIT_EXITED);
}

/* So many more have begun; how many there were before these. */
static int pauses_more(int n)
{
	int from = world->pauses;

	for (int i = 0; world->pauses < from + n && i < PATIENCE_MS; i++)
		(void)__real_poll(NULL, 0, 1);
	assert_true(world->pauses >= from + n);
	return from;
}

static void expect_short(void)
{
	(void)pauses_more(12);
	for (int i = 0; i < world->pauses; i++)
		assert_int_equal(world->pause[i], 10);
}

/* Before others have been ended they may wake whom they want; those of a branch also later. */
static void test_stopped_often_while_others_may_run(void **state)
{
	(void)state;
	freeze();
	expect_short();
	ask(CB_INIT_RESTORE, 2); /* there is none */
	assert_int_equal(hear().op, CB_INIT_GONE);
	expect_short();
	world->branch = true;
	ask(CB_INIT_RESTORE, 1);
	assert_int_equal(hear().op, CB_INIT_RESTORED);
	expect_short();
}

/* It may be held for long. Whatever comes may be the sign of one that goes on. */
static void test_stopped_seldom_while_nobody_is_left(void **state)
{
	int at, last, first = 0;

	(void)state;
	freeze();
	ask(CB_INIT_RESTORE, 1);
	assert_int_equal(hear().op, CB_INIT_RESTORED);
	at = pauses_more(20) + 19;
	assert_int_equal(world->pause[at], 1000);
	ask(CB_INIT_SIGNAL, 0);
	assert_int_equal(hear().op, CB_INIT_SIGNALLED);
	last = pauses_more(20) + 19;
	for (; at < last && first != 10; at++)
		first = world->pause[at];
	assert_int_equal(first, 10);
	assert_int_equal(world->pause[last], 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_the_supervisor_is_heard_while_orphans_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_whoever_ended_behind_many_is_reaped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stopped_often_while_others_may_run, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stopped_seldom_while_nobody_is_left, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
