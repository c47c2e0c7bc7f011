/* Which kernels share a zygote, and when one is too old. */
#include "../../../../sandbox/shared/sha1.h"
#include "../../../../sandbox/warm/warm.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "stamp.h"

static struct sock_filter insns[] = { { 6, 0, 0, 0 } };
static const struct timespec later = { .tv_sec = INT64_MAX };

static struct cb_jail_spec sample(void)
{
	struct cb_jail_spec spec = { .cwd = strdup("/w"),
				     .hostname = strdup("cellblock"),
				     .workspace_mode = CB_WORKSPACE_RW,
				     .workspace_source = strdup("/srv/w"),
				     .workspace_target = strdup("/w"),
				     .warm_folder = strdup("/run/cellblock/warm"),
				     .limit_memory = 1u << 30,
				     .limit_pids = 64,
				     .limit_open_files = 64,
				     .limit_tmp = 1,
				     .limit_shm = 1,
				     .limit_inodes = 1 };

	assert_int_equal(cb_strv_add(&spec.argv, "/usr/bin/python3"), 0);
	assert_int_equal(cb_strv_add(&spec.env, "LANG=C.UTF-8"), 0);
	assert_int_equal(cb_strv_add(&spec.env, "CELLBLOCK_POLICY_SAYS={}"), 0);
	assert_int_equal(cb_spec_add_bind(&spec, "/opt/py", "/opt/py", CB_BIND_SESSION, false, "interpreter"), 0);
	assert_int_equal(cb_spec_add_bind(&spec, "/srv/data", "/data", CB_BIND_RW, false, "policy: mounts"), 0);
	assert_int_equal(cb_spec_add_bind(&spec, "/dev/null", "/w/key", CB_BIND_RO, false, "hides"), 0);
	return spec;
}

static struct cb_jail jail_of(const struct cb_jail_spec *spec)
{
	return (struct cb_jail){ .spec = spec, .filter = { 1, insns }, .upper_fd = { -1, -1 } };
}

static void change(char **member, const char *value)
{
	free(*member);
	*member = strdup(value);
}

static void key_of(const struct cb_jail_spec *spec, char ret[CB_WARM_KEY_LEN + 1])
{
	struct cb_jail jail = jail_of(spec);

	assert_int_equal(cb_warm_key(&jail, ret), 0);
	assert_int_equal(strlen(ret), CB_WARM_KEY_LEN);
	assert_int_equal(strspn(ret, "0123456789abcdef"), CB_WARM_KEY_LEN);
}

static void test_what_belongs_to_a_session_makes_no_other(void **state)
{
	struct cb_jail_spec spec = sample();
	char before[CB_WARM_KEY_LEN + 1], after[CB_WARM_KEY_LEN + 1];

	(void)state;
	key_of(&spec, before);
	change(&spec.cwd, "/w/deep");
	change(&spec.workspace_source, "/srv/other");
	change(&spec.workspace_target, "/other");
	change(&spec.binds[1].source, "/srv/more");
	change(&spec.binds[2].target, "/other/key");
	change(&spec.env.items[1], "CELLBLOCK_POLICY_SAYS={\"a\":1}");
	assert_int_equal(cb_strv_add(&spec.env, "JPY_SESSION_NAME=x.ipynb"), 0);
	assert_int_equal(cb_strv_add(&spec.protect, ".git"), 0);
	spec.limit_memory = 5;
	spec.workspace_mode = CB_WORKSPACE_OVERLAY;
	key_of(&spec, after);
	assert_string_equal(before, after);
	cb_jail_spec_release(&spec);
}

static void test_all_else_makes_another(void **state)
{
	struct cb_jail_spec spec = sample();
	char keys[6][CB_WARM_KEY_LEN + 1];

	(void)state;
	key_of(&spec, keys[0]);
	change(&spec.env.items[0], "LANG=C");
	key_of(&spec, keys[1]);
	change(&spec.argv.items[0], "/usr/bin/python3.12");
	key_of(&spec, keys[2]);
	change(&spec.binds[0].source, "/opt/py2");
	key_of(&spec, keys[3]);
	assert_int_equal(cb_strv_add(&spec.warm_preload, "numpy"), 0);
	key_of(&spec, keys[4]);
	insns[0].k = 1; /* another table of system calls */
	key_of(&spec, keys[5]);
	insns[0].k = 0;
	for (size_t i = 0; i < 6; i++)
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(keys[i], keys[k]);
	cb_jail_spec_release(&spec);
}

/* What the last key is a sum of. */
static char summed[1 << 16];
static size_t summed_len;

void __real_cb_sha1(const void *data, size_t len, unsigned char ret[CB_SHA1]);
void __wrap_cb_sha1(const void *data, size_t len, unsigned char ret[CB_SHA1]);

void __wrap_cb_sha1(const void *data, size_t len, unsigned char ret[CB_SHA1])
{
	summed_len = len < sizeof(summed) ? len : sizeof(summed);
	memcpy(summed, data, summed_len);
	__real_cb_sha1(data, len, ret);
}

static void test_the_version_is_part_of_it(void **state)
{
	struct cb_jail_spec spec = sample();
	char key[CB_WARM_KEY_LEN + 1], line[64];
	int n = snprintf(line, sizeof(line), "%s %d\n", CELLBLOCK_VERSION, CB_WARM_VERSION);

	(void)state;
	key_of(&spec, key);
	assert_non_null(memmem(summed, summed_len, line, (size_t)n));
	cb_jail_spec_release(&spec);
}

/* Of this program itself it is that a copy of it makes another key: see main. */
static void test_own_files_built_anew_make_another(void **state)
{
	static const char *const names[] = { "boot.py", "cellblock_guest", "cellblock_guest/main.py",
					     "cellblock_guest/zygote.py", "cellblock_guest/libcopier.so" };
	enum { N = sizeof(names) / sizeof(*names), CHANGES = 2 * N + 1 };
	char folder[] = "/tmp/cb-guest-XXXXXX", path[128], keys[CHANGES][CB_WARM_KEY_LEN + 1];
	const struct timespec times[] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	struct cb_jail_spec spec = sample();

	(void)state;
	assert_non_null(mkdtemp(folder));
	assert_int_equal(cb_spec_add_bind(&spec, folder, "/run/cellblock/guest", CB_BIND_RO, false, "guest"), 0);
	key_of(&spec, keys[0]);
	for (size_t i = 0; i < N; i++) { /* it is there; it is as old as another one */
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		if (strchr(names[i], '.') == NULL)
			assert_int_equal(mkdir(path, 0700), 0);
		else
			assert_int_equal(close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), 0);
		key_of(&spec, keys[1 + 2 * i]);
		assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
		key_of(&spec, keys[2 + 2 * i]);
	}
	for (size_t i = 0; i < CHANGES; i++)
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(keys[i], keys[k]);
	for (size_t i = N; i-- > 0;) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		assert_int_equal(remove(path), 0);
	}
	assert_int_equal(rmdir(folder), 0);
	cb_jail_spec_release(&spec);
}

static char this_program[] = "/proc/self/exe";

/* The key that a program of ours makes, at this path. */
static void key_by(const char *program, char ret[CB_WARM_KEY_LEN + 1])
{
	int pipes[2], status;
	pid_t pid;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		(void)dup2(pipes[1], STDOUT_FILENO);
		(void)execl(program, program, "key", (char *)NULL);
		_exit(1);
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], ret, CB_WARM_KEY_LEN), CB_WARM_KEY_LEN);
	ret[CB_WARM_KEY_LEN] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_a_program_built_anew_makes_another(void **state)
{
	char copy[] = "/tmp/cb-key-XXXXXX", keys[3][CB_WARM_KEY_LEN + 1], *data = NULL;
	CB_AUTO_FD from = open(this_program, O_RDONLY | O_CLOEXEC);
	int to = mkstemp(copy);
	size_t len;

	(void)state;
	assert_true(from >= 0 && to >= 0);
	assert_int_equal(cb_fd_read_all(from, 256 << 20, &data, &len), 0);
	assert_int_equal(cb_fd_write_all(to, data, len), 0);
	assert_int_equal(fchmod(to, 0700), 0);
	close(to);
	free(data);
	key_by(this_program, keys[0]);
	key_by(this_program, keys[1]);
	key_by(copy, keys[2]);
	assert_string_equal(keys[0], keys[1]);
	assert_string_not_equal(keys[0], keys[2]);
	assert_int_equal(unlink(copy), 0);
}

/* ---- what a child has of its parent: changed in a child ---- */

static int change_nothing(int unused)
{
	(void)unused;
	return 0;
}

static int change_nice(int unused)
{
	(void)unused;
	return setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 1);
}

static int change_scheduler(int unused)
{
	const struct sched_param none = { 0 };

	(void)unused;
	return sched_setscheduler(0, sched_getscheduler(0) == SCHED_BATCH ? SCHED_OTHER : SCHED_BATCH, &none);
}

static int change_io_priority(int unused)
{
	(void)unused;
	return (int)syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 7);
}

static int change_cpus(int unused)
{
	cpu_set_t cpus;

	(void)unused;
	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0 || CPU_COUNT(&cpus) < 2)
		return -1;
	for (size_t i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &cpus)) {
			CPU_CLR(i, &cpus);
			break;
		}
	return sched_setaffinity(0, sizeof(cpus), &cpus);
}

static int change_huge_pages(int unused)
{
	(void)unused;
	return prctl(PR_SET_THP_DISABLE, !prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 0, 0, 0);
}

static int change_timer_slack(int unused)
{
	(void)unused;
	return prctl(PR_SET_TIMERSLACK, 12345, 0, 0, 0);
}

static int change_personality(int unused)
{
	(void)unused;
	return personality((unsigned long)personality(0xffffffff) ^ ADDR_NO_RANDOMIZE) < 0 ? -1 : 0;
}

static int change_limit(int which)
{
	struct rlimit limit;

	if (getrlimit((__rlimit_resource_t)which, &limit) < 0 || limit.rlim_cur == 0)
		return -1;
	limit.rlim_cur = limit.rlim_cur == RLIM_INFINITY ? (rlim_t)1 << 50 : limit.rlim_cur - 1;
	return setrlimit((__rlimit_resource_t)which, &limit);
}

/* False: it can't be changed here. */
static bool key_after(int (*act)(int), int argument, char ret[CB_WARM_KEY_LEN + 1])
{
	int pipes[2], status;
	pid_t pid;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		struct cb_jail_spec spec = sample();
		struct cb_jail jail = jail_of(&spec);
		char key[CB_WARM_KEY_LEN + 1];

		if (act(argument) < 0)
			_exit(2);
		_exit(cb_warm_key(&jail, key) < 0 || write(pipes[1], key, sizeof(key)) != sizeof(key));
	}
	close(pipes[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 1);
	if (WEXITSTATUS(status) == 0)
		assert_int_equal(read(pipes[0], ret, CB_WARM_KEY_LEN + 1), CB_WARM_KEY_LEN + 1);
	close(pipes[0]);
	return WEXITSTATUS(status) == 0;
}

static void test_what_children_inherit_makes_another(void **state)
{
	static int (*const acts[])(int) = { change_nice,       change_scheduler,   change_io_priority, change_cpus,
					    change_huge_pages, change_timer_slack, change_personality };
	enum { N = sizeof(acts) / sizeof(*acts) };
	char keys[1 + N + RLIM_NLIMITS][CB_WARM_KEY_LEN + 1], again[CB_WARM_KEY_LEN + 1];
	size_t n = 1, limits = 0;

	(void)state;
	assert_true(key_after(change_nothing, 0, keys[0]) && key_after(change_nothing, 0, again));
	assert_string_equal(keys[0], again);
	for (size_t i = 0; i < N; i++) {
		bool changed = key_after(acts[i], 0, keys[n]);

		/* on one processor there is no other choice; the rest a container may refuse */
		assert_true(changed || (acts[i] != change_nice && acts[i] != change_timer_slack));
		n += changed;
	}
	for (int i = 0; i < RLIM_NLIMITS; i++)
		if (key_after(change_limit, i, keys[n])) {
			n++;
			limits++;
		}
	assert_true(limits > 2); /* some are 0 and can't be less */
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(keys[i], keys[k]);
}

static void test_description(void **state)
{
	struct cb_jail_spec spec = sample(), z;

	(void)state;
	assert_int_equal(cb_warm_spec(&spec, &z), 0);
	assert_int_equal(z.nbinds, 1);
	assert_int_equal(z.binds[0].mode, CB_BIND_RO); /* nothing is written there */
	assert_int_equal(z.env.count, 1);
	assert_null(z.workspace_source);
	assert_int_equal(z.network, CB_NETWORK_NONE);
	assert_int_equal(cb_jail_spec_check(&z, NULL), 0);
	free(z.binds);
	free(z.env.items);
	cb_jail_spec_release(&spec);
}

static void test_wanted(void **state)
{
	struct cb_jail_spec spec = sample();
	struct cb_jail jail = jail_of(&spec);

	(void)state;
	assert_true(cb_warm_is_wanted(&jail));
	spec.network = CB_NETWORK_FULL;
	assert_false(cb_warm_is_wanted(&jail));
	spec.network = CB_NETWORK_NONE;
	jail.without_namespaces = true;
	assert_false(cb_warm_is_wanted(&jail));
	jail.without_namespaces = false;
	jail.filter.len = 0;
	assert_false(cb_warm_is_wanted(&jail));
	jail.filter.len = 1;
	spec.root_path = strdup("/srv/image");
	assert_false(cb_warm_is_wanted(&jail));
	change(&spec.root_path, "");
	free(spec.root_path);
	spec.root_path = NULL;
	free(spec.warm_folder);
	spec.warm_folder = NULL;
	assert_false(cb_warm_is_wanted(&jail));
	cb_jail_spec_release(&spec);
}

static void test_stamp(void **state)
{
	char folder[] = "/tmp/cb-stamp-XXXXXX", path[64], one[512], all[1024];
	const struct cb_jail_spec spec = { 0 };
	CB_AUTO_FD fd = -1;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/a file", folder);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	stamp_of(folder, one, sizeof(one));
	stamp_of(path, all, sizeof(all) / 2);
	snprintf(all + strlen(all), sizeof(all) / 2, "%s", one);
	assert_int_equal(cb_warm_stamp_check(&spec, later, all), 0);
	stamp_of(path, all, sizeof(all));
	assert_int_equal(write(fd, "x", 1), 1);
	assert_int_equal(cb_warm_stamp_check(&spec, later, all), -ESTALE);
	stamp_of(path, all, sizeof(all));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(cb_warm_stamp_check(&spec, later, all), -EXDEV);
	stamp_of("/tmp", all, sizeof(all));
	snprintf(strrchr(all, ' '), sizeof(one), " /\n");
	assert_int_equal(cb_warm_stamp_check(&spec, later, all), -EXDEV);
	assert_int_equal(rmdir(folder), 0);
}

/* Its folder, or what is in its place, tells when. */
static void test_stamp_of_what_was_replaced(void **state)
{
	char folder[] = "/tmp/cb-stamp-XXXXXX", path[64], other[64], stamp[512], all[512];
	const struct cb_jail_spec spec = { 0 };
	struct stat st;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/a/b", folder);
	snprintf(other, sizeof(other), "%s/a", folder);
	assert_int_equal(mkdir(other, 0700), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	stamp_of(path, stamp, sizeof(stamp));
	assert_int_equal(rmdir(path), 0);
	for (int i = 0; i < 3; i++) { /* gone; with its folder; there again */
		if (i == 1)
			assert_int_equal(rmdir(other), 0);
		if (i == 2) {
			assert_int_equal(mkdir(other, 0700), 0);
			assert_int_equal(symlink("/", path), 0);
		}
		assert_int_equal(lstat(i == 0 ? other : i == 1 ? folder : path, &st), 0);
		snprintf(all, sizeof(all), "%s", stamp);
		assert_int_equal(cb_warm_stamp_check(&spec, st.st_ctim, all), -ESTALE);
		st.st_ctim.tv_sec++;
		snprintf(all, sizeof(all), "%s", stamp);
		assert_int_equal(cb_warm_stamp_check(&spec, st.st_ctim, all), -EXDEV);
	}
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(other), 0);
	assert_int_equal(rmdir(folder), 0);
}

/* The stamp of a zygote that is shown `path` in another place. */
static int check_shown(const struct cb_jail_spec *spec, const char *path, const char *shown)
{
	char line[512];

	stamp_of(path, line, sizeof(line));
	snprintf(strrchr(line, ' '), sizeof(line) / 2, " %s\n", shown);
	return cb_warm_stamp_check(spec, later, line);
}

static void test_stamp_of_what_is_shown_elsewhere(void **state)
{
	struct cb_jail_spec spec = sample();

	(void)state;
	assert_int_equal(cb_spec_add_bind(&spec, "/usr", "/shown", CB_BIND_RO, false, "policy: mounts"), 0);
	assert_int_equal(cb_spec_add_bind(&spec, "/etc", "/shown/bin", CB_BIND_RO, false, "policy: mounts"), 0);
	assert_int_equal(check_shown(&spec, "/usr", "/shown"), 0);
	assert_int_equal(check_shown(&spec, "/usr/lib", "/shown/lib"), 0);
	assert_int_equal(check_shown(&spec, "/etc", "/shown/bin"), 0);
	assert_int_equal(check_shown(&spec, "/etc/passwd", "/shown/bin/passwd"), 0);
	assert_int_equal(check_shown(&spec, "/usr/lib", "/shown/bin"), -EXDEV);
	assert_int_equal(check_shown(&spec, "/usr", "/shownelsewhere"), -EXDEV);
	assert_int_equal(cb_spec_add_bind(&spec, "/usr", "/written", CB_BIND_RW, false, "policy: mounts"), 0);
	assert_int_equal(check_shown(&spec, "/usr", "/written"), -EXDEV); /* no zygote is shown it */
	cb_jail_spec_release(&spec);
}

static void test_no_stamp(void **state)
{
	static const char *const wrong[] = { "",	      "\n",		 "1 2 3 4 5 relative", "1 2 3 4 /usr",
					     "a b c d e /usr", "1 2 3 4 5",	 "hello",	       "1 2 3 4 5 ",
					     "/usr 1 2 3 4 5", "1 2 3 4 5\t\n" };
	const struct cb_jail_spec spec = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		char text[64];

		snprintf(text, sizeof(text), "%s", wrong[i]);
		assert_int_equal(cb_warm_stamp_check(&spec, later, text), CB_E_SYNTAX);
	}
}

/* With a word more: prints a key. */
int main(int argc, char *argv[] __attribute__((unused)))
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_belongs_to_a_session_makes_no_other),
		cmocka_unit_test(test_all_else_makes_another),
		cmocka_unit_test(test_the_version_is_part_of_it),
		cmocka_unit_test(test_own_files_built_anew_make_another),
		cmocka_unit_test(test_a_program_built_anew_makes_another),
		cmocka_unit_test(test_what_children_inherit_makes_another),
		cmocka_unit_test(test_description),
		cmocka_unit_test(test_wanted),
		cmocka_unit_test(test_stamp),
		cmocka_unit_test(test_stamp_of_what_was_replaced),
		cmocka_unit_test(test_stamp_of_what_is_shown_elsewhere),
		cmocka_unit_test(test_no_stamp),
	};

	if (argc > 1) {
		struct cb_jail_spec spec = sample();
		struct cb_jail jail = jail_of(&spec);
		char key[CB_WARM_KEY_LEN + 1];
		int r;

		r = cb_warm_key(&jail, key) < 0 || write(STDOUT_FILENO, key, CB_WARM_KEY_LEN) != CB_WARM_KEY_LEN;
		cb_jail_spec_release(&spec);
		return r;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
