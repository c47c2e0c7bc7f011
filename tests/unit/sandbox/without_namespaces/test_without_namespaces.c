/* without_namespaces.c and sweep.c: which failures make a weaker level, where paths lead, and that a folder goes,
 * however deep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../../../../sandbox/without_namespaces/without_namespaces.h"
#include "../../../../sandbox/walls/landlock.h"

#include <cellblock/clock.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sock_filter allow = { .k = 0x7fff0000 };

static bool choose(enum cb_isolation_level minimum, const char *step, int code, struct cb_err *err)
{
	struct cb_jail_spec spec = { .minimum = minimum };
	struct cb_jail jail = { .spec = &spec, .filter = { 1, &allow }, .level = CB_LEVEL_NO_CGROUP };
	bool chosen;

	cb_err_set(err, code, step, "Do this.", "it failed");
	chosen = cb_without_namespaces_choose(&jail, err);
	assert_int_equal(jail.without_namespaces, chosen);
	assert_true(jail.level == (!chosen		       ? CB_LEVEL_NO_CGROUP
				   : cb_landlock_version() > 0 ? CB_LEVEL_CONTAINER
							       : CB_LEVEL_NONE));
	return chosen;
}

static void test_choice(void **state)
{
	struct cb_err err;

	(void)state;
	assert_true(choose(CB_LEVEL_NONE, "namespaces", -EPERM, &err));
	/* a count that is used up is free again later; that of a host where it is 0 is tried in
	 * tests/jail/test_hosts.py */
	assert_false(choose(CB_LEVEL_NONE, "namespaces", -ENOSPC, &err));
	assert_false(choose(CB_LEVEL_NONE, "namespaces", -EUSERS, &err));
	assert_false(choose(CB_LEVEL_NONE, "tmpfs", -ENOSPC, &err));
	assert_true(choose(CB_LEVEL_NONE, "session", -EPERM, &err));
	assert_int_equal(choose(CB_LEVEL_CONTAINER, "pivot", -EPERM, &err), cb_landlock_version() > 0);
	/* more is asked for: the cure names what is left */
	assert_false(choose(CB_LEVEL_NO_CGROUP, "namespaces", -EPERM, &err));
	assert_non_null(strstr(err.cure, "Do this."));
	assert_non_null(strstr(err.cure, cb_landlock_version() > 0 ? "\"container\"" : "\"none\""));
	assert_false(choose(CB_LEVEL_FULL, "namespaces", -EPERM, &err));
	/* faults that have nothing to do with namespaces */
	assert_false(choose(CB_LEVEL_NONE, "exec", -EPERM, &err));
	assert_string_equal(err.cure, "Do this.");
	assert_false(choose(CB_LEVEL_NONE, "workspace", -ENOENT, &err));
	assert_false(choose(CB_LEVEL_NONE, "namespaces", -EAGAIN, &err));
	assert_false(choose(CB_LEVEL_NONE, "namespaces", -ENOMEM, &err));
}

static void test_paths(void **state)
{
	struct cb_bind binds[] = {
		{ .source = (char[]){ "/lib/cb/guest" }, .target = (char[]){ "/run/cellblock/guest" } },
		{ .source = (char[]){ "/opt/python" }, .target = (char[]){ "/opt/python" } },
		{ .source = (char[]){ "/data/set" }, .target = (char[]){ "/workspace/no-such-folder/set" } },
	};
	struct cb_jail_spec spec = { .workspace_source = (char[]){ "/data/ws" },
				     .workspace_target = (char[]){ "/workspace" },
				     .binds = binds,
				     .nbinds = 3 };
	struct cb_jail jail = { .spec = &spec, .host_folder = "/tmp/cellblock-x" };
	static const char *const cases[][2] = {
		{ "/run/cellblock/guest/boot.py", "/lib/cb/guest/boot.py" },
		{ "/opt/python/bin/python", "/opt/python/bin/python" },
		{ "/workspace", "/data/ws" },
		{ "/workspace/a/b", "/data/ws/a/b" },
		{ "/workspace/no-such-folder/set/f", "/data/set/f" },
		{ "/workspaces", "/workspaces" },
		{ "/tmp", "/tmp/cellblock-x/tmp" },
		{ CB_JAIL_HOME "/.config", "/tmp/cellblock-x/home/.config" },
		{ "/usr/bin/env", "/usr/bin/env" },
	};
	char buf[PATH_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(cb_without_namespaces_path(&jail, cases[i][0], buf), cases[i][1]);
	spec.workspace_source = NULL;
	assert_string_equal(cb_without_namespaces_path(&jail, "/workspace/a", buf), "/tmp/cellblock-x/work/a");
}

static void test_command(void **state)
{
	struct cb_jail_spec spec = { .workspace_target = (char[]){ "/workspace" } };
	struct cb_jail jail = { .spec = &spec, .host_folder = "/tmp/cellblock-x" };
	char **argv, **env;

	(void)state;
	assert_int_equal(cb_strv_add(&spec.argv, "/bin/sh"), 0);
	assert_int_equal(cb_strv_add(&spec.argv, "-c"), 0);
	assert_int_equal(cb_strv_add(&spec.argv, "/workspace/x"), 0);
	assert_int_equal(cb_strv_add(&spec.env, "HOME=" CB_JAIL_HOME), 0);
	assert_int_equal(cb_strv_add(&spec.env, "PATH=/tmp:/usr/bin"), 0);
	assert_int_equal(cb_strv_add(&spec.env, "EMPTY="), 0);
	assert_int_equal(cb_without_namespaces_command(&jail, &argv, &env), 0);
	assert_string_equal(argv[0], "/bin/sh");
	assert_string_equal(argv[1], "-c");
	assert_string_equal(argv[2], "/tmp/cellblock-x/work/x");
	assert_null(argv[3]);
	assert_string_equal(env[0], "HOME=/tmp/cellblock-x/home");
	assert_string_equal(env[1], "PATH=/tmp:/usr/bin");
	assert_string_equal(env[2], "EMPTY=");
	assert_null(env[3]);
	for (size_t i = 0; i < 3; i++) {
		free(argv[i]);
		free(env[i]);
	}
	free(argv);
	free(env);
	cb_jail_spec_release(&(struct cb_jail_spec){ .argv = spec.argv, .env = spec.env });
}

/* A child that has one of its own, whose number it tells. */
static pid_t begin_family(pid_t *ret_grandchild)
{
	int ends[2];
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		pid_t below = fork();

		if (below > 0 && write(ends[1], &below, sizeof(below)) != (ssize_t)sizeof(below))
			_exit(1);
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	assert_int_equal(read(ends[0], ret_grandchild, sizeof(*ret_grandchild)), sizeof(*ret_grandchild));
	close(ends[0]);
	close(ends[1]);
	return pid;
}

/* Last: who is spared stays so. */
static void test_children_from_before_are_spared(void **state)
{
	pid_t before, below, after, after_below;
	bool again = true;

	(void)state;
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	before = begin_family(&below);
	cb_sweep_spare();
	for (int i = 0; i < 2; i++) { /* a jail that leaves something, and one that leaves nothing */
		after = i == 0 ? begin_family(&after_below) : 0;
		cb_sweep(CB_SWEEP_CHILDREN);
		assert_int_equal(kill(before, 0) | kill(below, 0), 0);
		if (i == 0)
			assert_true(kill(after, 0) < 0 && kill(after_below, 0) < 0);
	}
	assert_int_equal(kill(below, SIGKILL) | kill(before, SIGKILL), 0);
	while (again)
		again = waitpid(-1, NULL, 0) > 0 || errno == EINTR;
}

static void test_folder_is_removed(void **state)
{
	char path[] = "/tmp/cb-test-XXXXXX", outside[] = "/tmp/cb-test-XXXXXX", name[64];
	struct stat st;

	(void)state;
	assert_non_null(mkdtemp(path));
	assert_non_null(mkdtemp(outside));
	assert_int_equal(chdir(path), 0);
	assert_int_equal(symlink(outside, "link"), 0);
	assert_int_equal(mkfifo("fifo", 0), 0);
	for (int i = 0; i < 300; i++) {
		assert_int_equal(mkdir("deep", 0700), 0);
		assert_int_equal(mkdir("flat", 0700), 0);
		assert_int_equal(symlink(outside, "flat/link"), 0);
		assert_int_equal(chmod("flat", i % 2 == 0 ? 0 : 0500), 0);
		assert_int_equal(chdir("deep"), 0);
	}
	assert_int_equal(chdir("/"), 0);
	snprintf(name, sizeof(name), "%s/deep", path);
	assert_int_equal(chmod(name, 0), 0);
	assert_int_equal(chmod(path, 0500), 0);				    /* a user's cell may have closed it */
	assert_int_equal(cb_remove_folder(path, cb_now_ms() - 1), -EAGAIN); /* no time: goes on at the next call */
	assert_int_equal(cb_remove_folder(path, cb_now_ms() + 60000), 0);
	assert_int_equal(cb_remove_folder(path, cb_now_ms() + 60000), 0);
	assert_int_equal(stat(path, &st), -1);
	assert_int_equal(stat(outside, &st), 0); /* links are not followed */
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(rmdir(outside), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_choice),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_command),
		cmocka_unit_test(test_folder_is_removed),
		cmocka_unit_test(test_children_from_before_are_spared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
