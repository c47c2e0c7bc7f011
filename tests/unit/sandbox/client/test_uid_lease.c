/* Leased uids: in range, mapped, without an account, never twice; folders of others are refused. */
#include <cellblock/fd.h>
#include <cellblock/sandbox.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "../../folder.h"
#include "../../../../sandbox/client/uid_lease.h"

struct fixture {
	char folder[64], run[96], map[96], passwd[96], group[96];
	struct cb_uid_places places;
};

static void put(const char *path, const char *text)
{
	CB_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(cb_fd_write_all(fd, text, strlen(text)), 0);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	snprintf(f->folder, sizeof(f->folder), "/tmp/cb-uid-XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->run, sizeof(f->run), "%s/run", f->folder);
	snprintf(f->map, sizeof(f->map), "%s/map", f->folder);
	snprintf(f->passwd, sizeof(f->passwd), "%s/passwd", f->folder);
	snprintf(f->group, sizeof(f->group), "%s/group", f->folder);
	f->places = (struct cb_uid_places){ f->run, f->map, f->map, f->passwd, f->group };
	put(f->map, "0 0 4294967295\n");
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	(void)folder_remove(f->folder);
	free(f);
	return 0;
}

static void test_range(void **state)
{
	struct fixture *f = *state;
	uid_t uid = 0;
	CB_AUTO_FD fd = -1;

	assert_int_equal(cb_uid_lease_in(&f->places, &uid, &fd, NULL), 0);
	assert_true(uid >= CB_UID_FIRST && uid < CB_UID_FIRST + CB_UID_COUNT);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

/* 1004 ids of 1000..2003: all but nobody's and the accounts' are given out once, then it says so; a closed lock frees
 * its id. */
static void test_small_map_is_used_up(void **state)
{
	struct fixture *f = *state;
	struct cb_err err = { 0 };
	bool seen[2004] = { false };
	uid_t uid = 0, freed = 0;
	int locks[1004], n = 0;

	put(f->map, "0 1000 1\n1 100000 2003\n"); /* 0 to 2003 exist */
	put(f->passwd, "a:x:1500:100::/:/bin/sh\n");
	put(f->group, "b:x:1600:\n");
	while (cb_uid_lease_in(&f->places, &uid, &locks[n], &err) == 0) {
		assert_in_range(uid, CB_UID_LOWEST, 2003);
		assert_true(uid != 1500 && uid != 1600);
		assert_false(seen[uid]);
		seen[uid] = true;
		assert_true(++n < 1004);
	}
	assert_int_equal(n, 1002);
	assert_int_equal(err.code, -EBUSY);
	close(locks[0]);
	assert_int_equal(cb_uid_lease_in(&f->places, &freed, &locks[0], &err), 0);
	assert_true(seen[freed]);
	for (int i = 0; i < n; i++)
		close(locks[i]);
}

static size_t count_files(const struct fixture *f)
{
	char path[128];
	DIR *dir;
	size_t n = 0;

	snprintf(path, sizeof(path), "%s/uids", f->run);
	dir = opendir(path);
	assert_non_null(dir);
	for (const struct dirent *e; (e = readdir(dir)) != NULL;)
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* A lease that was given back leaves no file, and one whose holder just ended none after the next lease; one that is
 * held stays, also where a child holds it. */
static void test_files_go_with_their_leases(void **state)
{
	struct fixture *f = *state;
	uid_t held = 0, uid = 0;
	int lock = -1, copy;
	CB_AUTO_FD living = -1;

	assert_int_equal(cb_uid_lease_in(&f->places, &held, &living, NULL), 0);
	for (int i = 0; i < 50; i++) {
		assert_int_equal(cb_uid_lease_in(&f->places, &uid, &lock, NULL), 0);
		assert_true(uid != held);
		assert_int_equal(count_files(f), 2);
		if (i % 2 == 0)
			close(lock);
		else
			cb_uid_release_in(&f->places, &lock);
	}
	assert_int_equal(count_files(f), 1);
	assert_int_equal(cb_uid_lease_in(&f->places, &uid, &lock, NULL), 0);
	copy = dup(lock);
	cb_uid_release_in(&f->places, &lock);
	assert_int_equal(lock, -1);
	assert_int_equal(count_files(f), 2);
	cb_uid_release_in(&f->places, &copy);
	assert_int_equal(count_files(f), 1);
}

/* Nobody is given what another holds, however many take, give back and sweep at once. */
static void test_no_uid_twice_in_a_race(void **state)
{
	enum { TAKERS = 4, TURNS = 300 };
	struct fixture *f = *state;
	char *held = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid[TAKERS];

	assert_true(held != MAP_FAILED);
	put(f->map, "0 1000 1\n1000 100000 6\n"); /* few, so that they meet */
	for (int i = 0; i < TAKERS; i++) {
		int leases = 0;

		pid[i] = fork();
		assert_true(pid[i] >= 0);
		for (int turn = 0; pid[i] == 0 && turn < TURNS; turn++) {
			uid_t uid = 0;
			int lock = -1;

			if (cb_uid_lease_in(&f->places, &uid, &lock, NULL) < 0)
				continue;
			leases++;
			if (__atomic_exchange_n(&held[uid - 1000], 1, __ATOMIC_SEQ_CST) != 0)
				_exit(1);
			__atomic_store_n(&held[uid - 1000], 0, __ATOMIC_SEQ_CST);
			if (turn % 2 == 0)
				close(lock);
			else
				cb_uid_release_in(&f->places, &lock);
		}
		if (pid[i] == 0)
			_exit(leases > 0 ? 0 : 2);
	}
	for (int i = 0; i < TAKERS; i++) {
		int status = -1;

		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_int_equal(status, 0);
	}
	munmap(held, 4096);
}

static void test_nobody_is_never_given(void **state)
{
	struct fixture *f = *state;
	uid_t uid = 0, other = 0;
	CB_AUTO_FD first = -1;
	CB_AUTO_FD second = -1;
	struct cb_err err = { 0 };

	put(f->map, "65533 65533 2\n");
	assert_int_equal(cb_uid_lease_in(&f->places, &uid, &first, &err), 0);
	assert_int_equal(uid, 65533);
	assert_int_equal(cb_uid_lease_in(&f->places, &other, &second, &err), -EBUSY);
}

static void test_no_id_but_root(void **state)
{
	struct fixture *f = *state;
	struct cb_err err = { 0 };
	uid_t uid = 7;
	int fd = -1;

	put(f->map, "0 1000 1\n");
	assert_int_equal(cb_uid_lease_in(&f->places, &uid, &fd, &err), -ENOENT);
	assert_true(uid == 7 && fd == -1 && err.cure[0] != '\0');
}

static void test_folder_of_others_is_refused(void **state)
{
	struct fixture *f = *state;
	struct cb_err err = { 0 };
	uid_t uid = 0;
	int fd = -1;

	assert_int_equal(mkdir(f->run, 0700), 0);
	assert_int_equal(chmod(f->run, 0777), 0);
	assert_int_equal(cb_uid_lease_in(&f->places, &uid, &fd, &err), -EPERM);
	assert_non_null(strstr(err.text, f->run));
	assert_int_equal(rmdir(f->run), 0);
	assert_int_equal(symlink(f->folder, f->run), 0);
	assert_true(cb_uid_lease_in(&f->places, &uid, &fd, &err) < 0);
	f->places.run = "/nonexistent/run";
	assert_int_equal(cb_uid_lease_in(&f->places, &uid, &fd, &err), -ENOENT);
	assert_true(err.cure[0] != '\0' && fd == -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_range, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_small_map_is_used_up, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_files_go_with_their_leases, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_uid_twice_in_a_race, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nobody_is_never_given, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_id_but_root, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_folder_of_others_is_refused, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
