/* A broker and what answers in a zygote's place: garbage, silence and lies end in an error, never in a guest. */
#include "../../../../sandbox/warm/warm.h"

#include <cellblock/fd.h>
#include <cellblock/log.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "stamp.h"

static struct sock_filter insns[] = { { 6, 0, 0, 0 } };

#define POSES "who listens at the zygote's socket is none"

struct stage {
	char parent[32], folder[40], key[CB_WARM_KEY_LEN + 1], lock[128], stamp[256];
	struct cb_jail_spec spec;
	struct cb_jail jail;
	int listener, pair[2];
};

/* What the other side does with a connection. */
typedef void (*play_fn)(const struct stage *s, int connection);

static int set_up(void **state)
{
	static struct stage s;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	CB_AUTO_FD lock = -1;

	s = (struct stage){ .parent = "/tmp/cb-ask-XXXXXX",
			    .spec = { .hostname = (char *)(uintptr_t) "h",
				      .workspace_mode = CB_WORKSPACE_TMPFS,
				      .cwd = (char *)(uintptr_t) "/",
				      .limit_pids = 1,
				      .limit_open_files = 64,
				      .limit_tmp = 1,
				      .limit_shm = 1,
				      .limit_inodes = 1 },
			    .jail = { .filter = { 1, insns }, .upper_fd = { -1, -1 }, .host_uid = 12345 } };
	assert_non_null(mkdtemp(s.parent));
	snprintf(s.folder, sizeof(s.folder), "%s/warm", s.parent);
	assert_int_equal(mkdir(s.folder, 0700), 0);
	s.spec.warm_folder = s.folder;
	assert_int_equal(cb_strv_add(&s.spec.argv, "/bin/true"), 0);
	assert_int_equal(cb_strv_add(&s.spec.warm_preload, "json"), 0);
	s.jail.spec = &s.spec;
	stamp_of("/", s.stamp, sizeof(s.stamp));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s.pair), 0);
	for (int i = 0; i < CB_SPAWN_NFDS; i++)
		s.jail.guest_fds[i] = s.pair[0];
	assert_int_equal(cb_warm_key(&s.jail, s.key), 0);
	snprintf(s.lock, sizeof(s.lock), "%s/%s.lock", s.folder, s.key);
	lock = open(s.lock, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(lock >= 0);
	s.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", s.folder, s.key);
	assert_int_equal(bind(s.listener, (struct sockaddr *)&address, sizeof(address)), 0);
	*state = &s;
	return 0;
}

static int tear_down(void **state)
{
	struct stage *s = *state;
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", s->folder, s->key);
	(void)unlink(path);
	(void)unlink(s->lock);
	(void)rmdir(s->folder);
	(void)rmdir(s->parent);
	cb_fd_close(&s->listener);
	cb_fd_close(&s->pair[0]);
	cb_fd_close(&s->pair[1]);
	cb_strv_release(&s->spec.argv);
	cb_strv_release(&s->spec.warm_preload);
	return 0;
}

static void greet(const struct stage *s, int connection, uint32_t version, const char *stamp)
{
	struct {
		struct cb_warm_hello head;
		char stamp[256];
	} hello = { .head = { version, (uint32_t)strlen(stamp) } };

	(void)s;
	memcpy(hello.stamp, stamp, strlen(stamp));
	assert_int_equal(cb_fd_send(connection, &hello, sizeof(hello.head) + strlen(stamp), NULL, 0), 0);
}

static struct cb_warm_request hear(int connection, int *ret_fds, size_t *ret_n)
{
	static char packet[65536];
	struct cb_warm_request request = { 0 };
	ssize_t n = cb_fd_recv(connection, packet, sizeof(packet), ret_fds, CB_FD_PASS_MAX, ret_n, 0);

	if (n >= (ssize_t)sizeof(request))
		memcpy(&request, packet, sizeof(request));
	return request;
}

static void answer(int connection, uint32_t step, int32_t error)
{
	struct cb_warm_answer a = { step, error };

	(void)cb_fd_send(connection, &a, sizeof(a), NULL, 0);
}

static void write_own(const char *name, const char *text)
{
	CB_AUTO_FD fd = open(name, O_WRONLY | O_CLOEXEC);

	(void)cb_fd_write_all(fd, text, strlen(text));
}

static bool enter_user_namespace(void)
{
	char uids[32], gids[32];

	snprintf(uids, sizeof(uids), "1 %u 1", geteuid());
	snprintf(gids, sizeof(gids), "1 %u 1", getegid());
	if (unshare(CLONE_NEWUSER) < 0)
		return false;
	write_own("/proc/self/setgroups", "deny");
	write_own("/proc/self/uid_map", uids);
	write_own("/proc/self/gid_map", gids);
	return true;
}

/* Who listens is below us in so many user namespaces and one of processes. It closes `ready` then, and plays when
 * `found` is closed: a process that has ended would not be found. */
static _Noreturn void be_zygote(const struct stage *s, play_fn play, int ready, int found, int user_namespaces)
{
	pid_t inside;
	int status = 1;

	(void)alarm(60); /* a test that has failed does not connect */
	for (int i = 0; i < user_namespaces; i++)
		if (!enter_user_namespace())
			_exit(0);
	if (unshare(CLONE_NEWPID) < 0)
		_exit(0);
	inside = fork();
	if (inside == 0) {
		int connection;
		char byte;

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* of its process namespace it is pid 1: no alarm ends it */
		(void)listen(s->listener, 4);
		(void)close(ready);
		connection = accept(s->listener, NULL, NULL);
		if (read(found, &byte, 1) != 0)
			_exit(1);
		play(s, connection);
		_exit(0);
	}
	(void)close(ready);
	_exit(waitpid(inside, &status, 0) != inside || status != 0);
}

/* The code that asking ends with, while a child plays the zygote. */
static int ask(struct stage *s, play_fn play, struct cb_err *err)
{
	struct cb_cgroup none = CB_CGROUP_EMPTY;
	struct cb_warm warm = CB_WARM_NONE;
	int listener = -1, status = 0, r, ready[2], found[2];
	pid_t guest = 0, player;
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(found, O_CLOEXEC), 0);
	player = fork();
	if (player == 0) {
		close(found[1]);
		be_zygote(s, play, ready[1], found[0], CB_ZYGOTE_USERNS);
	}
	close(ready[1]);
	close(found[0]);
	assert_int_equal(read(ready[0], &byte, 1), 0); /* the child listens */
	close(ready[0]);
	r = cb_warm_find(&s->jail, &warm);
	close(found[1]);
	if (r == -ECONNREFUSED)
		skip(); /* no namespaces here */
	assert_int_equal(r, 0);
	assert_int_not_equal(warm.pid, player);
	*err = (struct cb_err){ 0 };
	r = cb_warm_ask(&warm, &s->jail, &none, s->pair[1], &guest, &listener, err);
	cb_warm_close(&warm);
	cb_fd_close(&listener);
	assert_int_equal(waitpid(player, &status, 0), player);
	assert_int_equal(status, 0);
	return r;
}

static void ends_at_once(const struct stage *s, int connection)
{
	(void)s;
	(void)close(connection);
}

static void other_version(const struct stage *s, int connection)
{
	greet(s, connection, CB_WARM_VERSION + 1, s->stamp);
}

static void wrong_length(const struct stage *s, int connection)
{
	struct cb_warm_hello hello = { CB_WARM_VERSION, 1000 };

	(void)s;
	(void)cb_fd_send(connection, &hello, sizeof(hello), NULL, 0);
}

static void no_stamp(const struct stage *s, int connection)
{
	greet(s, connection, CB_WARM_VERSION, "");
}

static void test_hello(void **state)
{
	static const play_fn plays[] = { ends_at_once, other_version, wrong_length };
	struct cb_err err;

	for (size_t i = 0; i < sizeof(plays) / sizeof(*plays); i++)
		assert_int_equal(ask(*state, plays[i], &err), -EBADMSG);
	assert_int_equal(ask(*state, no_stamp, &err), CB_E_SYNTAX);
}

static void is_stale(const struct stage *s, int connection)
{
	int fds[CB_FD_PASS_MAX];
	size_t n = 0;
	struct stat st;
	char stamp[128];

	(void)stat("/", &st);
	snprintf(stamp, sizeof(stamp), "%llu %llu 3 4 5 /\n", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	greet(s, connection, CB_WARM_VERSION, stamp);
	if (hear(connection, fds, &n).op != CB_WARM_END || n != 0)
		_exit(1);
}

static void sees_others(const struct stage *s, int connection)
{
	int fds[CB_FD_PASS_MAX];
	size_t n = 0;

	greet(s, connection, CB_WARM_VERSION, "1 2 3 4 5 /\n");
	if (hear(connection, fds, &n).op != CB_WARM_OTHER || n != 0)
		_exit(1);
}

static void sees_what_was_replaced(const struct stage *s, int connection)
{
	int fds[CB_FD_PASS_MAX];
	size_t n = 0;

	greet(s, connection, CB_WARM_VERSION, "1 2 3 4 5 /\n");
	if (hear(connection, fds, &n).op != CB_WARM_END || n != 0)
		_exit(1);
}

static void test_a_stale_one_is_told_to_end(void **state)
{
	const struct timespec before[2] = { { 0 }, { 0 } };
	const struct stage *s = *state;
	struct cb_err err;

	assert_int_equal(ask(*state, is_stale, &err), -ESTALE);
	assert_int_equal(ask(*state, sees_others, &err), -EXDEV);
	assert_int_equal(utimensat(AT_FDCWD, s->lock, before, 0), 0);
	assert_int_equal(ask(*state, sees_what_was_replaced, &err), -ESTALE);
}

static void tells_of_an_error(const struct stage *s, int connection)
{
	int fds[CB_FD_PASS_MAX];
	size_t n = 0;
	struct cb_warm_request request;

	greet(s, connection, CB_WARM_VERSION, s->stamp);
	request = hear(connection, fds, &n);
	if (request.op != CB_WARM_SPAWN || request.version != CB_WARM_VERSION || n != 7 || request.cwd_len != 2 ||
	    request.filter_len[CB_WARM_FILTER_NOTIFY] != 0 || request.filter_len[CB_WARM_FILTER_JAIL] != 1 ||
	    request.filter_len[CB_WARM_FILTER_LAST] == 0)
		_exit(1);
	answer(connection, CB_WARM_STEP_FORK, -ENOMEM);
}

static void test_its_errors_are_told(void **state)
{
	struct cb_err err;

	assert_int_equal(ask(*state, tells_of_an_error, &err), -ENOMEM);
	assert_string_equal(err.step, CB_WARM_STEP);
	assert_non_null(strstr(err.text, "fork"));
}

static void greet_and_hear(const struct stage *s, int connection)
{
	int fds[CB_FD_PASS_MAX];
	size_t n = 0;

	greet(s, connection, CB_WARM_VERSION, s->stamp);
	(void)hear(connection, fds, &n);
}

static void ends_after_the_request(const struct stage *s, int connection)
{
	greet_and_hear(s, connection);
	(void)close(connection);
}

static void says_that_it_is_the_guest(const struct stage *s, int connection)
{
	greet_and_hear(s, connection);
	answer(connection, CB_WARM_STEP_READY, 0);
}

static void no_such_step(const struct stage *s, int connection)
{
	greet_and_hear(s, connection);
	answer(connection, CB_WARM_STEP_READY + 1, 0);
}

static void ready_with_an_error(const struct stage *s, int connection)
{
	greet_and_hear(s, connection);
	answer(connection, CB_WARM_STEP_READY, -EPERM);
}

static void error_above_zero(const struct stage *s, int connection)
{
	greet_and_hear(s, connection);
	answer(connection, CB_WARM_STEP_FORK, 1);
}

static void half_an_answer(const struct stage *s, int connection)
{
	greet_and_hear(s, connection);
	(void)cb_fd_send(connection, "abcd", 4, NULL, 0);
}

static void test_answers(void **state)
{
	static const play_fn plays[] = { says_that_it_is_the_guest, no_such_step, ready_with_an_error, error_above_zero,
					 half_an_answer };
	struct cb_err err;

	assert_int_equal(ask(*state, ends_after_the_request, &err), -ECHILD);
	for (size_t i = 0; i < sizeof(plays) / sizeof(*plays); i++)
		assert_int_equal(ask(*state, plays[i], &err), -EBADMSG);
}

/* A process of its own, which stands behind nothing. */
static void has_a_guest_without_walls(const struct stage *s, int connection)
{
	pid_t guest;

	greet_and_hear(s, connection);
	guest = fork();
	if (guest == 0) {
		char byte;

		answer(connection, CB_WARM_STEP_READY, 0);
		_exit(recv(connection, &byte, 1, 0) > 0); /* it must not be let go on */
	}
	(void)close(connection);
	int status = 0;

	if (waitpid(guest, &status, 0) != guest || status != 0)
		_exit(1);
}

static void test_a_guest_without_walls_is_refused(void **state)
{
	struct cb_err err;

	assert_int_equal(ask(*state, has_a_guest_without_walls, &err), CB_E_DENIED);
	assert_non_null(strstr(err.text, "walls"));
}

/* ---- why there is none ---- */

static int begin_to_hear_the_log(void)
{
	int log = memfd_create("log", MFD_CLOEXEC);

	assert_true(log >= 0);
	cb_log_init("test", CB_LOG_WARNING, log);
	return log;
}

/* Whether that was told, and once; NULL: that nothing was. */
static void expect_told(int log, const char *text)
{
	char *said = NULL;
	const char *at;
	size_t len;

	cb_log_init("test", CB_LOG_WARNING, STDERR_FILENO);
	assert_int_equal(lseek(log, 0, SEEK_SET), 0);
	assert_int_equal(cb_fd_read_all(log, 1 << 16, &said, &len), 0);
	close(log);
	at = strstr(said, "a cold start: ");
	if (text == NULL)
		assert_null(at);
	if (text != NULL && (at == NULL || strstr(at, text) == NULL || strstr(at + 1, "a cold start: ") != NULL))
		fail_msg("the log has: %s", said);
	free(said);
}

static void test_nobody_listens(void **state)
{
	struct stage *s = *state;
	struct cb_warm warm = CB_WARM_NONE;
	int log = begin_to_hear_the_log();

	assert_int_equal(cb_warm_find(&s->jail, &warm), -ECONNREFUSED);
	s->spec.limit_open_files = 65; /* belongs to a session */
	assert_int_equal(cb_warm_find(&s->jail, &warm), -ECONNREFUSED);
	s->spec.hostname = (char *)(uintptr_t) "other";
	assert_int_equal(cb_warm_find(&s->jail, &warm), -ENOENT);
	s->jail.upper_fd[CB_UPPER_PACKAGES] = 0;
	assert_int_equal(cb_warm_find(&s->jail, &warm), -ENOENT);
	expect_told(log, NULL); /* this is how it is with each first kernel */
}

static void test_too_many_wait(void **state)
{
	struct stage *s = *state;
	struct cb_warm warm = CB_WARM_NONE;
	CB_AUTO_FD folder = open(s->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int waiting[8], n = 0, r = 0, log = begin_to_hear_the_log();

	assert_int_equal(listen(s->listener, 1), 0);
	while (n < 8 && (r = cb_warm_connect(folder, s->key, &waiting[n])) == 0)
		n++;
	assert_int_equal(r, -EAGAIN);
	assert_int_equal(cb_warm_find(&s->jail, &warm), -EAGAIN);
	expect_told(log, "too many kernels wait for the zygote");
	while (n-- > 0)
		close(waiting[n]);
}

/* What finding says of one that listens, and only waits; `told`: what the log says. */
static int find(struct stage *s, int user_namespaces, const char *told)
{
	struct cb_warm warm = CB_WARM_NONE;
	int ready[2], found[2], log, r;
	pid_t poser;
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(found, O_CLOEXEC), 0);
	poser = fork();
	if (poser == 0)
		be_zygote(s, NULL, ready[1], found[0], user_namespaces); /* it waits */
	close(ready[1]);
	close(found[0]);
	assert_int_equal(read(ready[0], &byte, 1), 0);
	close(ready[0]);
	log = begin_to_hear_the_log();
	r = cb_warm_find(&s->jail, &warm);
	cb_warm_close(&warm);
	(void)kill(poser, SIGKILL);
	(void)waitpid(poser, NULL, 0);
	close(found[1]);
	expect_told(log, r == -ECONNREFUSED ? NULL : told);
	if (r == -ECONNREFUSED)
		skip(); /* no namespaces here */
	return r;
}

/* One that was shown the folder may have a socket of its own in the place of a zygote's. */
static void test_a_cell_of_a_cold_jail_is_no_zygote(void **state)
{
	assert_int_equal(find(*state, 1, POSES), -EPERM);
}

static void test_a_cell_of_a_warm_jail_is_no_zygote(void **state)
{
	assert_int_equal(find(*state, CB_ZYGOTE_USERNS + 1, POSES), -EPERM);
}

static void test_one_whose_modules_leave_no_room(void **state)
{
	struct stage *s = *state;

	s->spec.limit_data = 2;
	assert_int_equal(find(s, CB_ZYGOTE_USERNS, "more than half of limits.memory"), -ENOMEM);
	s->spec.limit_data = INT64_MAX;
	assert_int_equal(find(s, CB_ZYGOTE_USERNS, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_hello, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_stale_one_is_told_to_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_its_errors_are_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_answers, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_guest_without_walls_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nobody_listens, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_too_many_wait, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_cell_of_a_cold_jail_is_no_zygote, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_cell_of_a_warm_jail_is_no_zygote, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_whose_modules_leave_no_room, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
