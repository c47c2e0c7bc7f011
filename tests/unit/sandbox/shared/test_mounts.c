/* Helpers for places in the new root: only on file systems of ours is anything made, and no link is followed. Runs in a
 * folder that plays the new root; no mounts, no rights needed.
 */
#include "../../../../sandbox/shared/ids.h"
#include "../../../../sandbox/shared/mounts.h"
#include "../../folder.h"

#include <cellblock/fd.h>
#include <cellblock/filter.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#define SOMEBODY 65533

static char root[64] = "/tmp/cb-mounts-XXXXXX";

static int setup(void **state)
{
	(void)state;
	return mkdtemp(root) == NULL || chdir(root) < 0 || mkdir("made", 0755) < 0 || symlink("made", "link") < 0 ||
			       symlink("/etc", "out") < 0
		       ? -1
		       : 0;
}

static int teardown(void **state)
{
	(void)state;
	return chdir("/") < 0 ? -1 : folder_remove(root);
}

static int place(const char *path, bool folder)
{
	CB_AUTO_FD fd = -1;

	return cb_place_open(path, folder, &fd);
}

/* First, while no file system counts as ours. */
static void test_nothing_is_made_on_foreign_file_systems(void **state)
{
	(void)state;
	assert_int_equal(place("made", true), 0);
	assert_int_equal(place("made/new", true), -EROFS);
	assert_int_equal(place("/made/new/deep", false), -EROFS);
	assert_int_equal(access("made/new", F_OK), -1);
}

static void test_places_are_made_on_ours(void **state)
{
	CB_AUTO_FD fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	(void)state;
	assert_false(cb_own_has(fd));
	assert_int_equal(cb_own_add(fd), 0);
	assert_true(cb_own_has(fd));
	assert_int_equal(place("/a//b/c/", true), 0);
	assert_int_equal(place("a/b/file", false), 0);
	assert_int_equal(place("a/b/file", false), 0);
	assert_int_equal(stat("a/b/c", &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(stat("a/b/file", &st), 0);
	assert_true(S_ISREG(st.st_mode) && st.st_size == 0);
	assert_int_equal(place("a/b/file", true), -ENOTDIR);
	assert_int_equal(place("a/b/file/x", false), -ENOTDIR);
	assert_int_equal(place("", true), 0);
}

static void test_links_and_parents_are_refused(void **state)
{
	char name[300];

	(void)state;
	assert_int_equal(place("link/x", true), -ELOOP);
	assert_int_equal(place("out/cellblock-test", true), -ELOOP);
	assert_int_equal(place("link", true), -ELOOP);
	assert_int_equal(place("made/../../x", true), -EXDEV);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(place(name, true), -ENAMETOOLONG);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 0777;
}

static void test_only_what_it_is_to_be_is_unlocked(void **state)
{
	(void)state;
	assert_int_equal(mkdir("closed", 0), 0);
	assert_int_equal(mknod("file", S_IFREG | 0400, 0), 0);
	assert_int_equal(symlink("file", "to-file"), 0);
	assert_int_equal(symlink("closed", "to-closed"), 0);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "to-file", S_IFREG, 0600), -ESTALE);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "to-closed", S_IFDIR, 0700), -ESTALE);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "file", S_IFDIR, 0700), -ESTALE);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "closed", S_IFREG, 0600), -ESTALE);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "none", S_IFREG, 0600), -ENOENT);
	assert_int_equal(mode_of("file"), 0400);
	assert_int_equal(mode_of("closed"), 0);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "file", S_IFREG, 0600), 0);
	assert_int_equal(cb_unlock_entry(AT_FDCWD, "closed", S_IFDIR, 0700), 0);
	assert_int_equal(mode_of("file"), 0600);
	assert_int_equal(mode_of("closed"), 0700);
}

/* In a child, as an ordinary user whose kernel answers `error` to faccessat2; 0: it does not. */
static int may_write(const char *path, unsigned error)
{
	struct sock_filter insns[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_faccessat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { .len = 4, .filter = insns };
	int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), status;
	pid_t pid = fork();

	if (pid == 0) {
		if ((getuid() == 0 && cb_become(SOMEBODY) < 0) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		    (error != 0 && cb_filter_load(&filter, false) < 0))
			_exit(255);
		_exit(-cb_may_write(folder));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	(void)close(folder);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_whether_a_folder_may_be_written(void **state)
{
	static const unsigned kernels[] = { 0, ENOSYS, EPERM, EINVAL };

	(void)state;
	assert_int_equal(mkdir("mine", 0700), 0);
	assert_int_equal(mkdir("not-mine", 0700), 0);
	assert_int_equal(chmod("not-mine", 0555), 0);
	if (getuid() == 0)
		assert_int_equal(chown("mine", SOMEBODY, SOMEBODY), 0);
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		assert_int_equal(may_write("mine", kernels[i]), 0);
		assert_int_equal(may_write("not-mine", kernels[i]), kernels[i] == EINVAL ? 0 : EACCES);
	}
}

static void test_writing(void **state)
{
	(void)state;
	assert_int_equal(cb_place_write("/made/file", "text", 4), 0);
	assert_int_equal(cb_place_write("/made/file", "text", 4), -EEXIST);
}

static void test_errors_name_their_cause(void **state)
{
	struct cb_err err = { 0 };

	(void)state;
	assert_int_equal(cb_mnt_fail(&err, -EPERM, "new root", "etc/fonts"), -EPERM);
	assert_string_equal(err.text, "etc/fonts: Operation not permitted");
	assert_int_equal(cb_mnt_fail(&err, CB_E_DENIED, "dev", "null"), CB_E_DENIED);
	assert_string_equal(err.text, "null: CB_E_DENIED");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_made_on_foreign_file_systems),
		cmocka_unit_test(test_places_are_made_on_ours),
		cmocka_unit_test(test_links_and_parents_are_refused),
		cmocka_unit_test(test_only_what_it_is_to_be_is_unlocked),
		cmocka_unit_test(test_whether_a_folder_may_be_written),
		cmocka_unit_test(test_writing),
		cmocka_unit_test(test_errors_name_their_cause),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
