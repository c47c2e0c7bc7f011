/* The supervisor's own system call filter: BPF made from one table.
 *
 * Role: an allow-list of what the loop, libzmq's I/O threads, SQLite's thread, jansson and libcrypto call after the
 * start. Trust domain: supervisor. No libseccomp here: the supervisor's part of the trusted code stays small.
 * Invariants: another architecture kills; the default is EPERM, or ENOSYS for calls newer than NEW_CALLS, so that glibc
 * falls back to older ones; files open read-only; no exec, no fork, no executable memory, no new sockets, no signals to
 * others. libzmq's listening sockets must exist before and be handed over by ZMQ_USE_FD. AF_NETLINK, by which libzmq
 * looks for network interfaces, is answered with EOPNOTSUPP, which it takes for "none" (other errors abort it).
 */
#include "self_filter.h"

#include <cellblock/filter.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#else
#error "no table of system calls for this architecture"
#endif

#define NEW_CALLS 424 /* from here on numbers are the same on all architectures */

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

/* What an argument must be for the call to be allowed. */
enum check {
	ALWAYS,
	BITS_SET,   /* all bits of `value` are set, none of `other` */
	BITS_CLEAR, /* no bit of `value` is set */
	EQUAL,	    /* the lower half is `value` or `other` */
	EQUAL_SELF, /* the lower half is our process id */
	NO_POINTER, /* NULL */
};

struct rule {
	int nr;
	enum check check;
	int argument;
	uint32_t value, other;
	int error; /* if the check fails; 0 = EPERM */
};

#define OPEN_FOR_WRITING (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY))
#define CLONE_THREAD_BITS (CLONE_VM | CLONE_THREAD | CLONE_SIGHAND)
#define CLONE_BAD_BITS                                                                                                 \
	(CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

#define ALLOW(name)                                                                                                    \
	{                                                                                                              \
		SYS_##name, ALWAYS, 0, 0, 0, 0                                                                         \
	}

static const struct rule rules[] = {
	/* hot */
	ALLOW(read),
	ALLOW(write),
	ALLOW(futex),
	ALLOW(ppoll),
	ALLOW(epoll_pwait),
	ALLOW(recvfrom),
	ALLOW(sendto),
	ALLOW(recvmsg),
	ALLOW(sendmsg),
	ALLOW(clock_gettime),
	ALLOW(epoll_ctl),
#ifdef SYS_poll
	ALLOW(poll),
	ALLOW(epoll_wait),
	ALLOW(select),
#endif
	/* fds */
	ALLOW(close),
	ALLOW(close_range),
	ALLOW(readv),
	ALLOW(writev),
	ALLOW(pread64),
	ALLOW(pwrite64),
	ALLOW(lseek),
	ALLOW(dup),
	ALLOW(dup3),
	ALLOW(fcntl),
	ALLOW(fstat),
	ALLOW(newfstatat),
	ALLOW(statx),
	ALLOW(faccessat),
	ALLOW(readlinkat),
	ALLOW(getdents64),
	ALLOW(getcwd),
	ALLOW(fsync),
	ALLOW(fdatasync),
	ALLOW(ftruncate),
	ALLOW(fallocate),
	ALLOW(flock),
	ALLOW(fadvise64),
	ALLOW(pselect6),
	ALLOW(epoll_create1),
	ALLOW(eventfd2),
	ALLOW(signalfd4),
	ALLOW(timerfd_create),
	ALLOW(timerfd_settime),
	ALLOW(timerfd_gettime),
	ALLOW(pipe2),
	ALLOW(pidfd_open),
	{ SYS_ioctl, EQUAL, 1, FIONREAD, FIONBIO, ENOTTY },
	{ SYS_openat, BITS_CLEAR, 2, OPEN_FOR_WRITING, 0, EACCES },
#ifdef SYS_open
	{ SYS_open, BITS_CLEAR, 1, OPEN_FOR_WRITING, 0, EACCES },
	ALLOW(stat),
	ALLOW(lstat),
	ALLOW(access),
	ALLOW(readlink),
	ALLOW(dup2),
#endif
	/* sockets that are already there, and pairs for guests */
	ALLOW(accept4),
	ALLOW(accept),
	/* of the Unix family, to an address of the kernel's choice */
	{ SYS_bind, EQUAL, 2, sizeof(sa_family_t), sizeof(sa_family_t), 0 },
	ALLOW(getsockname),
	ALLOW(getpeername),
	ALLOW(getsockopt),
	ALLOW(setsockopt),
	ALLOW(shutdown),
	ALLOW(sendmmsg),
	ALLOW(recvmmsg),
	{ SYS_socketpair, EQUAL, 0, AF_UNIX, AF_UNIX, 0 },
	{ SYS_socket, EQUAL, 0, UINT32_MAX, UINT32_MAX, EOPNOTSUPP },
	/* memory */
	ALLOW(munmap),
	ALLOW(mremap),
	ALLOW(brk),
	ALLOW(madvise),
	ALLOW(mlock),
	ALLOW(mlock2),
	ALLOW(munlock),
	{ SYS_mmap, BITS_CLEAR, 2, PROT_EXEC, 0, 0 },
	{ SYS_mprotect, BITS_CLEAR, 2, PROT_EXEC, 0, 0 },
	/* threads and time */
	{ SYS_clone, BITS_SET, 0, CLONE_THREAD_BITS, CLONE_BAD_BITS, 0 },
	{ SYS_clone3, EQUAL, 0, UINT32_MAX, UINT32_MAX, ENOSYS },
	{ SYS_sched_setscheduler, EQUAL, 1, SCHED_OTHER, SCHED_BATCH, 0 },
	ALLOW(sched_getscheduler),
	ALLOW(sched_getparam),
	ALLOW(sched_getaffinity),
	ALLOW(sched_yield),
	ALLOW(set_robust_list),
	ALLOW(rseq),
	ALLOW(set_tid_address),
	ALLOW(membarrier),
	ALLOW(clock_nanosleep),
	ALLOW(nanosleep),
	ALLOW(clock_getres),
	ALLOW(gettimeofday),
	ALLOW(restart_syscall),
	ALLOW(exit),
	ALLOW(exit_group),
#ifdef SYS_time
	ALLOW(time),
#endif
	/* signals to ourselves, children's ends */
	ALLOW(rt_sigaction),
	ALLOW(rt_sigprocmask),
	ALLOW(rt_sigreturn),
	ALLOW(rt_sigtimedwait),
	ALLOW(rt_sigpending),
	ALLOW(sigaltstack),
	ALLOW(wait4),
	ALLOW(waitid),
	{ SYS_tgkill, EQUAL_SELF, 0, 0, 0, 0 },
	{ SYS_kill, EQUAL_SELF, 0, 0, 0, 0 },
	/* about ourselves */
	ALLOW(getpid),
	ALLOW(gettid),
	ALLOW(getppid),
	ALLOW(getuid),
	ALLOW(geteuid),
	ALLOW(getgid),
	ALLOW(getegid),
	ALLOW(getrandom),
	ALLOW(getrusage),
	ALLOW(sysinfo),
	ALLOW(uname),
	ALLOW(times),
	{ SYS_prctl, EQUAL, 0, PR_SET_NAME, PR_SET_VMA, EINVAL },
	{ SYS_prlimit64, NO_POINTER, 2, 0, 0, 0 }, /* reading limits only */
};

#define PER_RULE 7
#define MAX_INSNS (12 + CB_COUNT(rules) * PER_RULE)

struct program {
	struct sock_filter insns[MAX_INSNS];
	unsigned short n;
};

static void emit(struct program *p, unsigned code, uint32_t k, unsigned jt, unsigned jf)
{
	p->insns[p->n++] = (struct sock_filter){ (__u16)code, (__u8)jt, (__u8)jf, k };
}

#define LOAD(p, offset) emit(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offset), 0, 0)
#define RETURN(p, action) emit(p, BPF_RET | BPF_K, (uint32_t)(action), 0, 0)
#define JUMP(p, op, k, jt, jf) emit(p, BPF_JMP | (op) | BPF_K, k, jt, jf)

/* Ints and flag words are checked in their lower half: the kernel ignores the upper. */
static void emit_check(struct program *p, const struct rule *rule)
{
	unsigned refuse = SECCOMP_RET_ERRNO | (unsigned)(rule->error != 0 ? rule->error : EPERM);
	size_t at = offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (size_t)rule->argument;
	uint32_t self = (uint32_t)getpid();

	LOAD(p, at);
	switch (rule->check) {
	case BITS_CLEAR:
		JUMP(p, BPF_JSET, rule->value, 0, 1);
		RETURN(p, refuse);
		break;
	case BITS_SET:
		JUMP(p, BPF_JSET, rule->other, 2, 0);
		emit(p, BPF_ALU | BPF_AND | BPF_K, rule->value, 0, 0);
		JUMP(p, BPF_JEQ, rule->value, 1, 0);
		RETURN(p, refuse);
		break;
	case EQUAL:
	case EQUAL_SELF:
		JUMP(p, BPF_JEQ, rule->check == EQUAL ? rule->value : self, 2, 0);
		JUMP(p, BPF_JEQ, rule->check == EQUAL ? rule->other : self, 1, 0);
		RETURN(p, refuse);
		break;
	case NO_POINTER:
		JUMP(p, BPF_JEQ, 0, 0, 2);
		LOAD(p, at + sizeof(uint32_t));
		JUMP(p, BPF_JEQ, 0, 1, 0);
		RETURN(p, refuse);
		break;
	case ALWAYS:
		break;
	}
	RETURN(p, SECCOMP_RET_ALLOW);
}

static unsigned check_length(enum check check)
{
	switch (check) {
	case ALWAYS:
		return 1;
	case BITS_CLEAR:
		return 4;
	case EQUAL:
	case EQUAL_SELF:
		return 5;
	case BITS_SET:
	case NO_POINTER:
		break;
	}
	return 6;
}

static void build(struct program *p)
{
	LOAD(p, offsetof(struct seccomp_data, arch));
	JUMP(p, BPF_JEQ, OUR_ARCH, 1, 0);
	RETURN(p, SECCOMP_RET_KILL_PROCESS);
	LOAD(p, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
	JUMP(p, BPF_JGE, 0x40000000, 0, 1); /* x32 */
	RETURN(p, SECCOMP_RET_KILL_PROCESS);
#endif
	for (size_t i = 0; i < CB_COUNT(rules); i++) {
		JUMP(p, BPF_JEQ, (uint32_t)rules[i].nr, 0, check_length(rules[i].check));
		if (rules[i].check == ALWAYS)
			RETURN(p, SECCOMP_RET_ALLOW);
		else
			emit_check(p, &rules[i]);
	}
	JUMP(p, BPF_JGE, NEW_CALLS, 0, 1);
	RETURN(p, SECCOMP_RET_ERRNO | ENOSYS);
	RETURN(p, SECCOMP_RET_ERRNO | EPERM);
}

int cb_self_filter_load(struct cb_err *err)
{
	struct program program = { .n = 0 };
	struct sock_fprog filter;

	build(&program);
	filter = (struct sock_fprog){ .len = program.n, .filter = program.insns };
	int r = cb_filter_load(&filter, true);
	const char *cure = cb_filter_cure(-r);

	return r == 0 ? 0
		      : cb_err_set(err, r, "self sandbox",
				   cure != NULL ? cure : "A kernel with CONFIG_SECCOMP_FILTER is needed.",
				   "the kernel's own system call filter can't be loaded: %s", cb_filter_reason(-r));
}
