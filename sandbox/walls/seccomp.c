/* The system call filter in use: loaded in every child just before it execs, and tried once before any jail relies on
 * it.
 *
 * Trust domain: broker (self-test, in a forked child) and pid 1's children (load). The rules are seccomp_groups.def;
 * the program is made by seccomp_compile.c. The self-test asks the running kernel: it finds a wrong table, a wrong
 * program and a kernel that does not filter.
 */
#include "seccomp.h"

#include <cellblock/child.h>
#include <cellblock/filter.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define STEP "seccomp"
#define NOT_LOADED 255 /* exit statuses of the self-test */
#define NO_MEMORY 254

int cb_seccomp_load(const struct sock_fprog *filter, struct cb_err *err)
{
	int r = cb_filter_load(filter, false);

	return r == 0 ? 0
		      : cb_err_set(err, r, STEP, cb_filter_cure(-r), "the filter cannot be loaded: %s",
				   cb_filter_reason(-r));
}

/* The lower halves of the first three arguments; other architectures are the big filter's. */
enum {
	LOW = __BYTE_ORDER == __LITTLE_ENDIAN ? 0 : 4,
	FIRST = offsetof(struct seccomp_data, args) + LOW,
	SECOND = FIRST + sizeof(uint64_t),
	THIRD = SECOND + sizeof(uint64_t)
};

#ifdef SYS_open
#define OLD_OPEN SYS_open
#else
#define OLD_OPEN UINT32_MAX /* no call */
#endif

int cb_seccomp_load_no_sockets(bool internet, struct cb_err *err)
{
	/* Families: 2 INET, 10 INET6; other architectures are the big filter's. UNIX is refused even then: by it one
	 * reaches services of the host, also from one of a pair of datagram sockets, which can be told where to send to
	 * (types 1 and 5 can't). Before its version 3 Landlock does not ask who empties a file: neither by truncate,
	 * nor by an open that says it only reads. Of an open that says neither read nor write (3) it never asks. */
	struct sock_filter insns[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_truncate, 21, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OLD_OPEN, 12, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 13, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 16),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIRST),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, internet ? 2 : UINT32_MAX, 14, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, internet ? 10 : UINT32_MAX, 13, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SECOND),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 9, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 5, 8, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPROTONOSUPPORT),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SECOND),
		BPF_STMT(BPF_JMP | BPF_JA, 1),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, THIRD),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_TRUNC | O_ACCMODE),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, O_TRUNC | O_RDONLY, 3, 0),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, O_ACCMODE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	};
	struct sock_fprog filter = { .len = CB_COUNT(insns), .filter = insns };

	return cb_seccomp_load(&filter, err);
}

const struct sock_fprog *cb_seccomp_last(void)
{
	/* One more filter of a cell's own would lie in memory that is one sum for the whole machine: it could be used
	 * up, and nobody could load one any more. The calls answer as on a kernel without filters. To be undumpable is
	 * granted in word only: the notifier could not read what the calls of a guest of a zygote name, whose memory
	 * belongs to the zygote's user namespace. */
	static struct sock_filter insns[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, 0, 10),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIRST),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 6, 8),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIRST),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_DUMPABLE, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SECOND),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 3),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	static const struct sock_fprog filter = { .len = CB_COUNT(insns), .filter = insns };

	return &filter;
}

int cb_seccomp_load_last(struct cb_err *err)
{
	/* not by seccomp(), which the big filter does not know */
	int r = cb_filter_load(cb_seccomp_last(), true);

	return r == 0 ? 0
		      : cb_err_set(err, r, STEP, cb_filter_cure(-r), "the last filter cannot be loaded: %s",
				   cb_filter_reason(-r));
}

/* What the self-test calls: chosen so that no call does anything whether it is allowed or not. */
struct probe {
	const char *name;
	long nr;
	long arg[4];
	int error; /* expected errno; 0 = success */
};

static const struct probe probes[] = {
	{ "getpid", SYS_getpid, { 0 }, 0 },
	{ "close", SYS_close, { -1 }, EBADF },
	{ "openat", SYS_openat, { -1, (long)"x", O_RDONLY, 06777 }, EBADF },
	{ "openat with O_CREAT", SYS_openat, { -1, (long)"x", O_CREAT | O_WRONLY, 0644 }, EBADF },
	{ "openat making a set-uid file", SYS_openat, { -1, (long)"x", O_CREAT | O_WRONLY, 04755 }, EPERM },
	{ "openat making a set-gid file", SYS_openat, { -1, (long)"x", O_TMPFILE | O_RDWR, 02755 }, EPERM },
	{ "fchmod", SYS_fchmod, { -1, 0755 }, EBADF },
	{ "fchmod to set-uid", SYS_fchmod, { -1, 04755 }, EPERM },
	{ "fchmodat to set-gid", SYS_fchmodat, { -1, (long)"x", 02755 }, EPERM },
	{ "mknodat of a device", SYS_mknodat, { -1, (long)"x", S_IFCHR | 0600 }, EPERM },
	{ "fcntl of a lease", SYS_fcntl, { -1, 1024, 0 }, EPERM },
	{ "fcntl of a delegation", SYS_fcntl, { -1, 1040, 0 }, EPERM },
	{ "close_range", SYS_close_range, { INT_MAX, INT_MAX, 0 }, 0 },
	{ "close_range for a table of one's own", SYS_close_range, { INT_MAX, INT_MAX, 2 }, EPERM },
	{ "socket of the UNIX family", SYS_socket, { AF_UNIX, -1L & 0xf0, 0 }, EINVAL },
	{ "socket of the VSOCK family", SYS_socket, { AF_VSOCK, SOCK_STREAM, 0 }, EAFNOSUPPORT },
	{ "socket of the ALG family", SYS_socket, { AF_ALG, SOCK_SEQPACKET, 0 }, EAFNOSUPPORT },
	{ "ioctl TCGETS", SYS_ioctl, { -1, 0x5401 }, EBADF },
	{ "ioctl TIOCSTI", SYS_ioctl, { -1, 0x5412 }, EPERM },
	{ "ioctl TIOCSTI with high bits", SYS_ioctl, { -1, 0x100005412 }, EPERM },
	{ "kill of a group that does not exist", SYS_kill, { -4194304, 0 }, ESRCH },
	{ "kill of everything", SYS_kill, { -1, 0 }, EPERM },
	{ "prctl of a filter", SYS_prctl, { PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0, 0 }, EINVAL },
	{ "prctl of a filter with high bits", SYS_prctl, { 0x100000016, SECCOMP_MODE_FILTER, 0, 0 }, EINVAL },
	{ "prctl after filters", SYS_prctl, { PR_GET_SECCOMP, 0, 0, 0 }, EINVAL },
	{ "prctl of dumpable", SYS_prctl, { PR_GET_DUMPABLE, 0, 0, 0 }, 0 },
	{ "prctl to be undumpable", SYS_prctl, { PR_SET_DUMPABLE, 0, 0, 0 }, 0 },
	{ "clone with a new user namespace", SYS_clone, { CLONE_NEWUSER | CLONE_THREAD }, EPERM },
	{ "clone3", SYS_clone3, { 0, 0 }, ENOSYS },
	{ "unshare", SYS_unshare, { 0 }, EPERM },
	{ "ptrace", SYS_ptrace, { -1, 0, 0, 0 }, EPERM },
	{ "memfd_create", SYS_memfd_create, { 0, 0 }, ENOSYS },
	{ "a call that does not exist", 1000, { 0 }, ENOSYS },
};

/* In the child. Exit status: 0 all well, n the n-th probe is wrong, NOT_LOADED, NO_MEMORY. */
static int run_probes(const struct sock_fprog *filter)
{
	struct cb_err err = { 0 };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || cb_seccomp_load(filter, &err) < 0 ||
	    cb_seccomp_load_last(&err) < 0)
		return cb_filter_cure(-err.code) != NULL ? NO_MEMORY : NOT_LOADED;
	for (size_t i = 0; i < CB_COUNT(probes); i++) {
		const struct probe *p = &probes[i];
		long r = syscall(p->nr, p->arg[0], p->arg[1], p->arg[2], p->arg[3], 0L);

		if ((r < 0 ? errno : 0) != p->error)
			return (int)i + 1;
	}
	return 0;
}

int cb_seccomp_selftest_begin(const struct sock_fprog *filter, pid_t *ret_pid, struct cb_err *err)
{
	pid_t pid = fork();

	if (pid < 0)
		return cb_err_set(err, -errno, STEP, NULL, "self-test: fork: %s", strerror(errno));
	if (pid == 0)
		_exit(run_probes(filter));
	*ret_pid = pid;
	return 0;
}

int cb_seccomp_selftest_end(pid_t pid, struct cb_err *err)
{
	static const char cure[] = "update the kernel, or report this with the output of `cellblock doctor --json`";
	int status, r = cb_reap(pid, &status);

	if (r < 0)
		return cb_err_set(err, r, STEP, NULL, "self-test: waitpid: %s", strerror(-r));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFSIGNALED(status))
		return cb_err_set(err, CB_E_DENIED, STEP, cure, "self-test of the filter was killed by signal %d",
				  WTERMSIG(status));
	if (WEXITSTATUS(status) == NO_MEMORY)
		return cb_err_set(err, -ENOMEM, STEP, cb_filter_cure(ENOMEM),
				  "self-test: no memory for a filter; the machine's for BPF programs may be used up");
	if (WEXITSTATUS(status) == NOT_LOADED)
		return cb_err_set(err, -EPERM, STEP, NULL, "self-test: this kernel does not load the filter");
	return cb_err_set(err, CB_E_DENIED, STEP, cure, "self-test: the filter answers wrongly to %s",
			  probes[WEXITSTATUS(status) - 1].name);
}

int cb_seccomp_selftest(const struct sock_fprog *filter, struct cb_err *err)
{
	pid_t pid;
	int r = cb_seccomp_selftest_begin(filter, &pid, err);

	return r < 0 ? r : cb_seccomp_selftest_end(pid, err);
}
