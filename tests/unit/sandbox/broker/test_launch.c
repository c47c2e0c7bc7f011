/* launch.c without a jail: what the broker makes of what pid 1 says, and that a failure leaves nothing. Pid 1 is a
 * process of the level "none" whose last act is the test's. */
#include "../../../../sandbox/broker/launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../../../sandbox/init/init.h"
#include "../../../../sandbox/shared/sync.h"
#include "../../../../sandbox/without_namespaces/without_namespaces.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct cb_jail_spec spec = { .limit_open_files = 64, .limit_pids = 64 };
static struct cb_jail jail;
static void (*act)(int sync);
static int *launches; /* shared with pid 1 */

_Noreturn void cb_init_main(struct cb_jail *of)
{
	++*launches;
	act(of->sync_fd);
	close(of->sync_fd);
	for (;;)
		pause();
}

static void begin(void)
{
	jail = (struct cb_jail){ .spec = &spec,
				 .umask = 022,
				 .host_uid = geteuid(),
				 .level = CB_LEVEL_NONE,
				 .without_namespaces = true,
				 .refused = "namespaces: tried here",
				 .workspace_fd = -1,
				 .merged_fd = -1,
				 .watch_fd = -1,
				 .tree_fd = -1,
				 .ns_fds = { -1, -1 },
				 .rules_fd = -1,
				 .sync_fd = -1,
				 .sockets_fd = -1,
				 .host_folder_lock = -1,
				 .uid_lock = -1,
				 .guest_fds = { [0 ... CB_SPAWN_NFDS - 1] = -1 },
				 .upper_fd = { -1, -1 },
				 .root_fd = -1,
				 .cgroups = CB_CGROUPS_NONE };
	spec.workspace_mode = CB_WORKSPACE_TMPFS;
	*launches = 0;
}

static int next_fd(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

/* Nothing is left of it, whatever it was. */
static void fails(void (*does)(int sync), int code, const char *step, const char *text)
{
	struct cb_inmate inmate = { .pid1 = 7 };
	struct cb_err err = { 0 };
	int fd;

	begin();
	act = does;
	(void)cb_jail_launch(&jail, &inmate, NULL); /* what is opened once is open by now */
	begin();
	fd = next_fd();
	assert_int_equal(cb_jail_launch(&jail, &inmate, &err), code);
	assert_int_equal(err.code, code);
	assert_string_equal(err.step, step);
	if (strstr(err.text, text) == NULL)
		fail_msg("%s", err.text);
	assert_int_equal(*launches, 1);
	assert_int_equal(inmate.pid1, 7);
	assert_int_equal(next_fd(), fd);
	assert_string_equal(jail.host_folder, "");
}

static void ends(int sync)
{
	(void)sync;
	_exit(3);
}

static void dies(int sync)
{
	(void)sync;
	(void)kill(getpid(), SIGKILL);
}

static void closes(int sync)
{
	(void)sync;
}

static void says_half(int sync)
{
	(void)cb_fd_send(sync, "half", 4, NULL, 0);
}

static void says_go(int sync)
{
	(void)cb_sync_send(sync, CB_SYNC_GO, NULL, NULL);
}

static void says_nonsense(int sync)
{
	(void)cb_sync_send(sync, (enum cb_sync_kind)77, NULL, NULL);
}

static void offers_warm(int sync)
{
	(void)cb_sync_send_fd(sync, CB_SYNC_WARM, 0, 0);
}

static void is_ready_for_a_zygote(int sync)
{
	(void)cb_sync_send(sync, CB_SYNC_READY, NULL, NULL);
}

static void hands_over_too_much(int sync)
{
	(void)cb_sync_send_fd(sync, CB_SYNC_NOTIFIER, CB_NOTIFY_LISTENER + 1, 0);
}

static void hands_over_twice(int sync)
{
	(void)cb_sync_send_fd(sync, CB_SYNC_NOTIFIER, 0, 0);
	(void)cb_sync_send_fd(sync, CB_SYNC_NOTIFIER, 0, 0);
}

static void says_why(int sync)
{
	struct cb_err err = { 0 };

	cb_err_set(&err, -ENOENT, "exec", "Name another.", "/none can't be started");
	(void)cb_sync_send(sync, CB_SYNC_FAILED, &err, NULL);
}

static void says_not_why(int sync)
{
	(void)cb_sync_send(sync, CB_SYNC_FAILED, NULL, NULL);
}

static void test_failures(void **state)
{
	(void)state;
	fails(ends, -ECHILD, "capabilities", "ended at \"capabilities\", with status 3");
	fails(dies, -ECHILD, "capabilities", "ended at \"capabilities\", with signal 9");
	fails(says_half, -EBADMSG, "capabilities", "no word from inside");
	fails(says_go, -EBADMSG, "capabilities", "what it may not");
	fails(says_nonsense, -EBADMSG, "capabilities", "what it may not");
	fails(offers_warm, -EBADMSG, "capabilities", "what it may not");
	fails(is_ready_for_a_zygote, -EBADMSG, "capabilities", "what it may not");
	fails(hands_over_too_much, -EBADMSG, "notifier", "a descriptor that is none");
	fails(hands_over_twice, -EBADMSG, "notifier", "a descriptor that is none");
	fails(says_why, -ENOENT, "exec", "/none can't be started");
	fails(says_not_why, -EIO, "capabilities", "");
}

static void starts(int sync)
{
	(void)cb_sync_send_fd(sync, CB_SYNC_MERGED, 0, 0);
	(void)cb_sync_send_fd(sync, CB_SYNC_UPPER, CB_UPPER_WORKSPACE, 0);
	(void)cb_sync_send_fd(sync, CB_SYNC_UPPER, CB_UPPER_WORKSPACE, 1); /* the last one counts */
	(void)cb_sync_send_fd(sync, CB_SYNC_UPPER, CB_UPPERS, 0);
	(void)cb_sync_send_fd(sync, CB_SYNC_WATCH, 0, 0);
	(void)cb_sync_send_fd(sync, CB_SYNC_SOCKETS, 0, 0);
	(void)cb_sync_send(sync, CB_SYNC_GUEST, NULL, "so it is");
}

static void is_same(int a, int b)
{
	struct stat x, y;

	assert_true(fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev);
	assert_int_equal(fcntl(a, F_GETFD), FD_CLOEXEC);
}

static void end(struct cb_inmate *inmate)
{
	struct cb_cgroup_figures figures;

	assert_int_equal(kill(inmate->pid1, SIGKILL), 0);
	cb_jail_ended(&jail, inmate, &figures);
	assert_int_equal(figures.memory_peak, 0);
	assert_true(inmate->pid1 == 0 && inmate->pidfd == -1 && inmate->sockets == -1);
	cb_without_namespaces_end(&jail);
}

static void test_start(void **state)
{
	struct cb_inmate inmate = { 0 };
	struct cb_err err = { 0 };
	int merged;

	(void)state;
	begin();
	act = starts;
	assert_int_equal(cb_jail_launch(&jail, &inmate, &err), 0);
	assert_int_equal(err.code, 0);
	assert_true(inmate.pid1 > 0 && inmate.guest == inmate.pid1 && inmate.pidfd >= 0 && !inmate.warm);
	assert_string_equal(jail.note, "so it is");
	assert_int_equal(jail.sync_fd, -1);
	is_same(jail.merged_fd, 0);
	is_same(jail.upper_fd[CB_UPPER_WORKSPACE], 1);
	assert_int_equal(jail.upper_fd[CB_UPPER_PACKAGES], -1);
	is_same(jail.watch_fd, 0);
	is_same(inmate.sockets, 0);
	end(&inmate);
	/* the next one gets the layers, and no mount twice */
	act = closes;
	merged = jail.merged_fd;
	assert_int_equal(cb_jail_launch(&jail, &inmate, &err), -ECHILD);
	assert_int_equal(jail.merged_fd, -1);
	assert_int_equal(fcntl(merged, F_GETFD), -1);
	is_same(jail.upper_fd[CB_UPPER_WORKSPACE], 1);
	cb_fd_close(&jail.upper_fd[CB_UPPER_WORKSPACE]);
	cb_fd_close(&jail.watch_fd);
}

static void starts_at_the_second_time(int sync)
{
	if (*launches == 1)
		says_why(sync);
	else
		(void)cb_sync_send(sync, CB_SYNC_GUEST, NULL, NULL);
}

/* A cell has deleted Python from the layer over its prefix: the next start is without that layer, and says so. */
static void test_packages_are_given_up(void **state)
{
	struct cb_inmate inmate = { 0 };
	struct cb_err err = { 0 };

	(void)state;
	begin();
	act = starts_at_the_second_time;
	assert_int_equal(cb_jail_launch(&jail, &inmate, &err), -ENOENT); /* there is no layer */
	assert_int_equal(*launches, 1);
	begin();
	jail.upper_fd[CB_UPPER_PACKAGES] = memfd_create("layer", MFD_CLOEXEC);
	assert_int_equal(cb_jail_launch(&jail, &inmate, &err), 0);
	assert_int_equal(*launches, 2);
	assert_int_equal(jail.upper_fd[CB_UPPER_PACKAGES], -1);
	assert_non_null(strstr(jail.note, "is undone"));
	assert_false(jail.packages_dropped);
	end(&inmate);
}

static void test_what_needs_mounts(void **state)
{
	struct cb_inmate inmate = { 0 };
	struct cb_err err = { 0 };

	(void)state;
	begin();
	act = starts;
	spec.workspace_mode = CB_WORKSPACE_OVERLAY;
	assert_int_equal(cb_jail_launch(&jail, &inmate, &err), CB_E_DENIED);
	assert_string_equal(err.step, "workspace");
	assert_int_equal(*launches, 0);
}

static int set_up(void **state)
{
	(void)state;
	launches = mmap(NULL, sizeof(*launches), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return launches == MAP_FAILED ? -1 : cb_fd_open_stdio();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_start),
		cmocka_unit_test(test_packages_are_given_up),
		cmocka_unit_test(test_what_needs_mounts),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
