/* Deleting: that a helper says each second that it is at work, whatever it can remove and however deep that lies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../../../sandbox/jobs/job.h"
#include "../../folder.h"

#include <cellblock/clock.h>
#include <cellblock/sandbox.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEVELS 40 /* more than the first ones, which are gone through in another way */
#define FILES 30

static char outer[] = "/tmp/cellblock-test-XXXXXX";
static bool read_only;
int64_t __wrap_cb_now_ms(void);
int __real_unlinkat(int fd, const char *name, int flags);
int __wrap_unlinkat(int fd, const char *name, int flags);

/* Whenever it is asked for, another second is over. */
int64_t __wrap_cb_now_ms(void)
{
	static int64_t now;

	return now += 1000;
}

int __wrap_unlinkat(int fd, const char *name, int flags)
{
	struct stat st;

	if (!read_only)
		return __real_unlinkat(fd, name, flags);
	bool folder = fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);

	errno = folder && (flags & AT_REMOVEDIR) == 0 ? EISDIR : EROFS;
	return -1;
}

static int set_up(void **state)
{
	char name[16];

	(void)state;
	memcpy(outer, "/tmp/cellblock-test-XXXXXX", sizeof(outer));
	assert_non_null(mkdtemp(outer));
	assert_int_equal(chdir(outer), 0);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		assert_int_equal(close(open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
	}
	for (int i = 0; i < LEVELS; i++)
		assert_int_equal(mkdir("d", 0700) | chdir("d"), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return chdir("/") < 0 ? -1 : folder_remove(outer);
}

/* How often a helper that empties the folder said that it is at work; its answer. */
static unsigned words(struct cb_job_packet *ret_done)
{
	static struct cb_jail_spec spec;
	static struct cb_jail jail = { .spec = &spec };
	unsigned n = 0;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		static struct cb_job job;

		job = (struct cb_job){ .jail = &jail, .workspace = outer, .cwd = outer, .fd = fds[1] };
		close(fds[0]);
		job.in.payload[0] = (uint8_t)'.';
		job.in_len = 1;
		cb_job_clean(&job);
	}
	close(fds[1]);
	while (recv(fds[0], ret_done, sizeof(*ret_done), 0) > 0 && ret_done->head.op == CB_JOB_PROGRESS)
		n++;
	close(fds[0]);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(ret_done->head.op, CB_JOB_DONE);
	return n;
}

static void test_each_entry(void **state)
{
	static struct cb_job_packet done;
	unsigned n = words(&done);

	(void)state;
	assert_int_equal(done.head.a, FILES + LEVELS);
	assert_true(n >= FILES + 2 * LEVELS - 1); /* on the way down, and up; the deepest is not entered */
}

static void test_nothing_can_be_removed(void **state)
{
	static struct cb_job_packet done;

	(void)state;
	read_only = true;
	unsigned n = words(&done);

	read_only = false;
	assert_int_equal(done.head.a, 0);
	assert_int_equal(done.head.b, FILES + 1); /* a folder that stays for what is in it is not counted */
	assert_true(n >= FILES + 2 * LEVELS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each_entry, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nothing_can_be_removed, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
