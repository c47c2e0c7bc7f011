/* The filter program, run by a small interpreter of the kernel's instruction set: each rule of the table is checked
 * with values that it must let through and values that it must refuse, also with high bits that the kernel ignores;
 * then the real kernel is asked by the self-test.
 */
#include "../../../../sandbox/walls/seccomp.h"
#include "../../../../sandbox/walls/seccomp_rules.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <limits.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#else
#define NATIVE AUDIT_ARCH_AARCH64
#endif
#define NO_CALL 0xbad0bad0u /* the interpreter met something invalid */
#define HIGH (1ull << 32)
#define ENO(e) ((uint32_t)SECCOMP_RET_ERRNO | (e))

static struct sock_fprog filter;

static int compile(void **state)
{
	(void)state;
	return cb_seccomp_compile(&filter, NULL);
}

static int drop(void **state)
{
	(void)state;
	free(filter.filter);
	return 0;
}

static bool jump_holds(uint16_t op, uint32_t a, uint32_t k)
{
	return op == BPF_JEQ ? a == k : op == BPF_JGE ? a >= k : op == BPF_JGT ? a > k : (a & k) != 0;
}

/* Follows the rules of the kernel's checker too: forward jumps inside the program, aligned loads, a return at the end.
 */
static uint32_t run(const struct seccomp_data *data)
{
	uint32_t a = 0;

	for (size_t pc = 0; pc < filter.len; pc++) {
		const struct sock_filter *i = &filter.filter[pc];

		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (i->k % 4 != 0 || i->k + 4 > sizeof(*data))
				return NO_CALL;
			memcpy(&a, (const char *)data + i->k, 4);
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= i->k;
			break;
		case BPF_JMP | BPF_JA:
			pc += i->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
		case BPF_JMP | BPF_JGE | BPF_K:
		case BPF_JMP | BPF_JGT | BPF_K:
		case BPF_JMP | BPF_JSET | BPF_K:
			pc += jump_holds(BPF_OP(i->code), a, i->k) ? i->jt : i->jf;
			break;
		case BPF_RET | BPF_K:
			return i->k;
		default:
			return NO_CALL;
		}
	}
	return NO_CALL;
}

static uint32_t ask6(long nr, const uint64_t args[6])
{
	struct seccomp_data data = { .nr = (int)nr, .arch = NATIVE };

	memcpy(data.args, args, sizeof(data.args));
	return run(&data);
}

#define ask(nr, ...) ask6(nr, (const uint64_t[6]){ __VA_ARGS__ })
#define allowed(nr, ...) assert_int_equal(ask(nr, __VA_ARGS__), SECCOMP_RET_ALLOW)
#define refused(e, nr, ...) assert_int_equal(ask(nr, __VA_ARGS__), ENO(e))

/* What the table says, read in the plainest way. */
static uint32_t by_table(int nr, const uint64_t args[6])
{
	for (size_t i = 0; i < cb_seccomp_rules_count; i++) {
		const struct cb_seccomp_rule *rule = &cb_seccomp_rules[i];
		bool holds = rule->nr == nr && rule->kind != CB_SECCOMP_GROUP && rule->kind != CB_SECCOMP_ABSENT;

		for (unsigned c = 0; holds && c < rule->nchecks; c++)
			holds = ((uint32_t)(args[rule->checks[c].arg] >> (rule->checks[c].high ? 32 : 0)) &
				 rule->checks[c].mask) == rule->checks[c].value;
		if (holds)
			return rule->error == 0			   ? SECCOMP_RET_ALLOW :
			       rule->error == CB_SECCOMP_NOTHING ? ENO(0) :
								   ENO(rule->error);
	}
	return ENO(ENOSYS);
}

/* Every call, with every value that any of its rules names, its neighbours, and high bits set. */
static void test_program_is_the_table(void **state)
{
	(void)state;
	for (int nr = 0; nr < 600; nr++) {
		uint64_t args[6] = { 0 };

		assert_int_equal(ask6(nr, args), by_table(nr, args));
		for (size_t i = 0; i < cb_seccomp_rules_count; i++) {
			const struct cb_seccomp_rule *rule = &cb_seccomp_rules[i];

			if (rule->nr != nr)
				continue;
			for (unsigned variant = 0; variant < 16; variant++) {
				for (unsigned c = 0; c < rule->nchecks; c++) {
					const struct cb_seccomp_check *check = &rule->checks[c];
					uint64_t v = check->value | (variant & 8 ? ~check->mask : 0u);

					if (variant >> c & 1)
						v ^= check->mask & -check->mask;
					if (check->high)
						args[check->arg] = (args[check->arg] & UINT32_MAX) | v << 32;
					else
						args[check->arg] = v | (variant & 4 ? HIGH : 0);
				}
				assert_int_equal(ask6(nr, args), by_table(nr, args));
			}
		}
	}
}

static void test_foreign_calls_kill(void **state)
{
	struct seccomp_data data = { .nr = SYS_getpid, .arch = NATIVE };

	(void)state;
	assert_int_equal(run(&data), SECCOMP_RET_ALLOW);
	data.arch = AUDIT_ARCH_I386;
	assert_int_equal(run(&data), SECCOMP_RET_KILL_PROCESS);
	data.arch = AUDIT_ARCH_ARM;
	assert_int_equal(run(&data), SECCOMP_RET_KILL_PROCESS);
	data.arch = NATIVE;
#ifdef __x86_64__
	data.nr = 0x40000000 | SYS_getpid;
	assert_int_equal(run(&data), SECCOMP_RET_KILL_PROCESS);
#endif
	data.nr = -1;
	assert_int_equal(run(&data), ENO(ENOSYS));
	data.nr = 100000;
	assert_int_equal(run(&data), ENO(ENOSYS));
}

static void test_absent_and_refused(void **state)
{
	static const int absent[] = {
		SYS_clone3,   SYS_openat2,    SYS_memfd_create,	  SYS_splice,	      SYS_tee,
		SYS_vmsplice, SYS_sendfile,   SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
		SYS_fsopen,   SYS_move_mount, SYS_open_tree,	  SYS_mount_setattr,  SYS_execveat,
		SYS_shmget,   SYS_mq_open
	};
	static const int refuse[] = { SYS_unshare,
				      SYS_setns,
				      SYS_mount,
				      SYS_umount2,
				      SYS_pivot_root,
				      SYS_chroot,
				      SYS_bpf,
				      SYS_perf_event_open,
				      SYS_userfaultfd,
				      SYS_keyctl,
				      SYS_add_key,
				      SYS_request_key,
				      SYS_ptrace,
				      SYS_process_vm_readv,
				      SYS_process_vm_writev,
				      SYS_pidfd_getfd,
				      SYS_open_by_handle_at,
				      SYS_name_to_handle_at,
				      SYS_kexec_load,
				      SYS_init_module,
				      SYS_finit_module,
				      SYS_setuid,
				      SYS_setgroups,
				      SYS_mbind,
				      SYS_clock_settime,
				      SYS_reboot,
				      SYS_syslog };

	(void)state;
	for (size_t i = 0; i < sizeof(absent) / sizeof(*absent); i++)
		refused(ENOSYS, absent[i], 0);
	for (size_t i = 0; i < sizeof(refuse) / sizeof(*refuse); i++)
		refused(EPERM, refuse[i], 0);
}

static void test_modes(void **state)
{
	static const struct {
		int nr, arg;
	} calls[] = { { SYS_fchmod, 1 }, { SYS_fchmodat, 2 }, { SYS_mkdirat, 2 },
#ifdef __x86_64__
		      { SYS_chmod, 1 },	 { SYS_mkdir, 1 },    { SYS_creat, 1 }
#endif
	};

	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		static const uint64_t good[] = { 0, 0644, 0777, 01777, 0755 | HIGH },
				      bad[] = { 04755, 02755, 06000, 04000 | HIGH };

		for (size_t k = 0; k < 5; k++) {
			uint64_t args[6] = { 0 };

			args[calls[i].arg] = good[k];
			assert_int_equal(ask6(calls[i].nr, args), SECCOMP_RET_ALLOW);
		}
		for (size_t k = 0; k < 4; k++) {
			uint64_t args[6] = { 0 };

			args[calls[i].arg] = bad[k];
			assert_int_equal(ask6(calls[i].nr, args), ENO(EPERM));
		}
	}
}

static void test_opening(void **state)
{
	(void)state;
	allowed(SYS_openat, 0, 0, O_RDONLY, 07777); /* the mode is not used */
	allowed(SYS_openat, 0, 0, O_WRONLY | O_TRUNC, 04755);
	allowed(SYS_openat, 0, 0, O_WRONLY | O_CREAT, 0644);
	allowed(SYS_openat, 0, 0, O_RDWR | O_TMPFILE, 0600);
	refused(EPERM, SYS_openat, 0, 0, O_WRONLY | O_CREAT, 04755);
	refused(EPERM, SYS_openat, 0, 0, O_WRONLY | O_CREAT | O_EXCL, 02755);
	refused(EPERM, SYS_openat, 0, 0, O_RDWR | O_TMPFILE, 04700);
	refused(EPERM, SYS_openat, 0, 0, (uint64_t)(O_WRONLY | O_CREAT) | HIGH, 04755 | HIGH);
#ifdef __x86_64__
	allowed(SYS_open, 0, O_CREAT, 0600);
	refused(EPERM, SYS_open, 0, O_CREAT, 04600);
#endif
}

static void test_nodes(void **state)
{
	(void)state;
	allowed(SYS_mknodat, 0, 0, 0644);
	allowed(SYS_mknodat, 0, 0, S_IFREG | 0644);
	allowed(SYS_mknodat, 0, 0, S_IFIFO | 0666);
	allowed(SYS_mknodat, 0, 0, S_IFSOCK | 0666);
	refused(EPERM, SYS_mknodat, 0, 0, S_IFCHR | 0666);
	refused(EPERM, SYS_mknodat, 0, 0, S_IFBLK | 0666);
	refused(EPERM, SYS_mknodat, 0, 0, S_IFREG | 04755);
	refused(EPERM, SYS_mknodat, 0, 0, S_IFIFO | 02755);
	refused(ENOSYS, SYS_renameat2, 0, 0, 0, 0, 0);
}

static void test_processes(void **state)
{
	static const uint64_t flags[] = { CLONE_NEWNS,	 CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
					  CLONE_NEWUSER, CLONE_NEWPID,	  CLONE_NEWNET };

	(void)state;
	allowed(SYS_clone, 0x1200011); /* fork */
	allowed(SYS_clone,
		CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS);
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		refused(EPERM, SYS_clone, flags[i] | 17);
		refused(EPERM, SYS_clone, flags[i] | CLONE_VM | HIGH);
	}
	allowed(SYS_prlimit64, 0, 7);
	refused(EPERM, SYS_prlimit64, 1, 7);
	allowed(SYS_prlimit64, HIGH, 7); /* the kernel sees 0 */
	allowed(SYS_prlimit64, 0, RLIMIT_CORE, 0, 8);
	assert_int_equal(ask(SYS_prlimit64, 0, RLIMIT_CORE, 8), ENO(0));
	assert_int_equal(ask(SYS_prlimit64, 0, RLIMIT_CORE | HIGH, HIGH), ENO(0));
	refused(EPERM, SYS_prlimit64, 1, RLIMIT_CORE, 0, 8);
	refused(EPERM, SYS_personality, 0xffffffff);
	allowed(SYS_prctl, 15);
	allowed(SYS_prctl, 37);
	allowed(SYS_prctl, 38);
	allowed(SYS_prctl, 40); /* GET_TID_ADDRESS: the copy of a process sets it again */
	refused(EINVAL, SYS_prctl, 36); /* SET_CHILD_SUBREAPER */
	refused(EPERM, SYS_prctl, 35); /* SET_MM */
	refused(EPERM, SYS_prctl, 62); /* SCHED_CORE */
	refused(EPERM, SYS_prctl, 35 | HIGH);
	refused(EINVAL, SYS_prctl, 28); /* SET_SECUREBITS */
	allowed(SYS_sched_setscheduler, 0, 0);
	allowed(SYS_sched_setscheduler, 0, 3 | 0x40000000);
	refused(EPERM, SYS_sched_setscheduler, 0, 1);
	refused(EPERM, SYS_sched_setscheduler, 0, 6);
	refused(EPERM, SYS_sched_setscheduler, 1, 0);
	allowed(SYS_sched_setaffinity, 0);
	refused(EPERM, SYS_sched_setaffinity, 1 | HIGH);
	allowed(SYS_setpriority, 0, 0);
	refused(EPERM, SYS_setpriority, 0, 1);
	refused(EPERM, SYS_setpriority, 1, 0); /* PRIO_PGRP */
	refused(EPERM, SYS_setpriority, 2, 0); /* PRIO_USER */
	refused(ENOSYS, SYS_seccomp, 1, 0);
	refused(ENOSYS, SYS_timerfd_create, 1, 0); /* a copy would take its original's events */
}

static void test_signals(void **state)
{
	(void)state;
	allowed(SYS_kill, 0, 15);
	allowed(SYS_kill, 12345, 9);
	allowed(SYS_kill, (uint64_t)-12345, 9);
	allowed(SYS_kill, (uint32_t)-2, 9);
}

static void test_sockets(void **state)
{
	(void)state;
	allowed(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	allowed(SYS_socket, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	allowed(SYS_socket, AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 17);
	allowed(SYS_socket, AF_INET, SOCK_STREAM, 6);
	allowed(SYS_socket, AF_NETLINK, SOCK_RAW, 0);
	refused(EPROTONOSUPPORT, SYS_socket, AF_NETLINK, SOCK_RAW, 12);
	refused(EPROTONOSUPPORT, SYS_socket, AF_NETLINK, SOCK_RAW, 32);
	refused(EPERM, SYS_socket, AF_INET, SOCK_RAW, 1);
	refused(EPERM, SYS_socket, AF_INET6, SOCK_RAW | SOCK_CLOEXEC, 58);
	refused(EPROTONOSUPPORT, SYS_socket, AF_INET, SOCK_DGRAM, 1);	  /* ping */
	refused(EPROTONOSUPPORT, SYS_socket, AF_INET, SOCK_STREAM, 132);  /* SCTP */
	refused(EPROTONOSUPPORT, SYS_socket, AF_INET, SOCK_SEQPACKET, 0); /* SCTP */
	refused(EPROTONOSUPPORT, SYS_socket, AF_INET, SOCK_STREAM, 262);  /* MPTCP */
	for (uint64_t family = 0; family < 64; family++) {
		if (family != AF_UNIX && family != AF_INET && family != AF_INET6 && family != AF_NETLINK)
			refused(EAFNOSUPPORT, SYS_socket, family, SOCK_STREAM, 0);
	}
	refused(EAFNOSUPPORT, SYS_socket, AF_ALG | HIGH, SOCK_SEQPACKET, 0);
	refused(EAFNOSUPPORT, SYS_socketpair, AF_INET, SOCK_STREAM, 0);
	allowed(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0);
	allowed(SYS_setsockopt, 0, 1, 2);
	allowed(SYS_setsockopt, 0, 6, 1);
	assert_int_equal(ask(SYS_setsockopt, 0, SOL_SOCKET, SO_LINGER), ENO(0));
	assert_int_equal(ask(SYS_setsockopt, 0, SOL_SOCKET | HIGH, SO_LINGER | HIGH), ENO(0));
	refused(EPERM, SYS_setsockopt, 0, 41, 32);
	refused(EPERM, SYS_setsockopt, 0, 6, 31);
	refused(EPERM, SYS_setsockopt, 0, 17, 100);
	refused(EPERM, SYS_setsockopt, 0, 1, 26);
	refused(EPERM, SYS_setsockopt, 0, 1 | HIGH, 50 | HIGH);
	allowed(SYS_sendmsg, 0, 0, MSG_NOSIGNAL);
	refused(EPERM, SYS_sendmsg, 0, 0, MSG_ZEROCOPY | MSG_NOSIGNAL);
	refused(EPERM, SYS_sendto, 0, 0, 0, MSG_ZEROCOPY);
	refused(EPERM, SYS_sendmmsg, 0, 0, 0, MSG_ZEROCOPY);
}

static void test_ioctl_and_fcntl(void **state)
{
	static const uint32_t good[] = { 0x5401, 0x5402,     0x540e,	 0x5413, 0x5414, 0x541b,    0x5421,
					 0x5451, 0x80045430, 0x40045431, 0x5441, 0x8912, 0x40049409 };

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		allowed(SYS_ioctl, 0, good[i]);
		allowed(SYS_ioctl, 0, good[i] | HIGH);
	}
	refused(EPERM, SYS_ioctl, 0, 0x5412);
	refused(EPERM, SYS_ioctl, 0, 0x5412 | HIGH);
	refused(EPERM, SYS_ioctl, 0, 0x541c);
	refused(EPERM, SYS_ioctl, 0, 0x541c | 0xffffffff00000000ull);
	refused(EPERM, SYS_ioctl, 0, 0x5423);
	refused(ENOTTY, SYS_ioctl, 0, 0x4b3a);	   /* KDSETMODE */
	refused(ENOTTY, SYS_ioctl, 0, 0x40806685); /* FS_IOC_ENABLE_VERITY */
	allowed(SYS_fcntl, 0, F_SETLK);
	allowed(SYS_fcntl, 0, F_DUPFD_CLOEXEC);
	refused(EPERM, SYS_fcntl, 0, 1024);
	refused(EPERM, SYS_fcntl, 0, 1024 | HIGH);
	refused(EPERM, SYS_fcntl, 0, 1026);
}

/* A name that a machine does not know is a misspelt one, unless that machine never had the call. */
static void test_names_exist_on_both_machines(void **state)
{
	(void)state;
	for (size_t i = 0; i < cb_seccomp_rules_count; i++) {
		const char *name = cb_seccomp_rules[i].name;

		if (cb_seccomp_rules[i].kind == CB_SECCOMP_GROUP)
			continue;
		assert_int_not_equal(seccomp_syscall_resolve_name_arch(SCMP_ARCH_X86_64, name), __NR_SCMP_ERROR);
		assert_int_not_equal(seccomp_syscall_resolve_name_arch(SCMP_ARCH_AARCH64, name), __NR_SCMP_ERROR);
	}
}

/* A call that nothing restricts must not also stand in another rule: the second would be dead. */
static void test_no_rule_is_dead(void **state)
{
	(void)state;
	for (size_t i = 0; i < cb_seccomp_rules_count; i++) {
		const struct cb_seccomp_rule *rule = &cb_seccomp_rules[i];

		for (size_t k = i + 1; rule->nr >= 0 && rule->nchecks == 0 && k < cb_seccomp_rules_count; k++)
			assert_int_not_equal(rule->nr, cb_seccomp_rules[k].nr);
	}
}

static void test_selftest_passes(void **state)
{
	struct cb_err err = { 0 };

	(void)state;
	if (cb_seccomp_selftest(&filter, &err) < 0)
		fail_msg("%s", err.text);
}

/* A filter that allows everything is found out. */
static void test_selftest_can_fail(void **state)
{
	struct sock_filter insn = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog open = { .len = 1, .filter = &insn };
	struct cb_err err = { 0 };

	(void)state;
	assert_int_equal(cb_seccomp_selftest(&open, &err), CB_E_DENIED);
	assert_non_null(strstr(err.text, "set-uid"));
}

/* ---- want of memory ---- */

struct refuser {
	int ready[2], listener, error, times;
};

/* Answers the calls of the thread that is filtered: `times` times with `error`, then they go on. */
static void *refuse_some(void *context)
{
	struct refuser *r = context;
	char byte;

	if (read(r->ready[0], &byte, 1) != 1)
		return NULL;
	for (;;) {
		struct seccomp_notif n = { 0 };
		struct seccomp_notif_resp answer = { 0 };

		if (ioctl(r->listener, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0)
			return NULL;
		answer.id = n.id;
		answer.error = r->times > 0 ? -r->error : 0;
		answer.flags = r->times > 0 ? 0 : (uint32_t)SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		r->times--;
		(void)ioctl(r->listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
}

/* In a child of its own, whose memory for filters is short: the exit status is that of `judge`. */
static int with_want(int error, int times, int (*judge)(void))
{
	struct sock_filter insns[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog notify = { .len = 4, .filter = insns };
	struct refuser r = { .error = error, .times = times };
	pthread_t thread;
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		if (pipe(r.ready) < 0 || pthread_create(&thread, NULL, refuse_some, &r) != 0 ||
		    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
			_exit(100);
		r.listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
					  &notify);
		if (r.listener < 0 || write(r.ready[1], "", 1) != 1)
			_exit(101);
		_exit(judge());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int loads(void)
{
	return cb_seccomp_load(&filter, NULL) == 0 ? 1 : 2;
}

static int says_why(void)
{
	struct cb_err err = { 0 };

	if (cb_seccomp_load(&filter, &err) != -524 || strstr(err.text, "ENOTSUPP") == NULL)
		return 2;
	return strstr(err.text, "Unknown") == NULL && strstr(err.cure, "bpf_jit_limit") != NULL ? 1 : 3;
}

static void test_want_of_memory_is_waited_out(void **state)
{
	(void)state;
	assert_int_equal(with_want(524, 3, loads), 1);
	assert_int_equal(with_want(ENOMEM, 3, loads), 1);
	assert_int_equal(with_want(EAGAIN, 3, loads), 1);
}

static void test_want_of_memory_is_named(void **state)
{
	(void)state;
	assert_int_equal(with_want(524, INT_MAX, says_why), 1);
}

static int answers_at_once(void)
{
	return cb_seccomp_load(&filter, NULL) == -EPERM ? 1 : 2;
}

/* What no waiting mends is not waited for: a second try would be let through. */
static void test_other_refusals_are_not_tried_again(void **state)
{
	(void)state;
	assert_int_equal(with_want(EPERM, 1, answers_at_once), 1);
}

/* ---- without namespaces ---- */

static bool opens(bool old, const char *path, int flags)
{
#ifdef SYS_open
	if (old)
		return syscall(SYS_open, path, flags, 0) >= 0;
#endif
	(void)old;
	return syscall(SYS_openat, AT_FDCWD, path, flags, 0) >= 0;
}

/* Whoever may only read a file can't empty it, whatever Landlock asks. */
static int empties_only_what_it_writes(void)
{
	char path[] = "/tmp/cb-seccomp-XXXXXX";
	int fd = mkstemp(path), wrong = 0;
	struct stat st;

	if (fd < 0 || cb_seccomp_load_no_sockets(false, NULL) < 0)
		return 2;
	for (int i = 0; i < 2 * (O_ACCMODE + 1); i++) {
		int mode = i & O_ACCMODE;
		bool writes = mode == O_WRONLY || mode == O_RDWR;

		wrong += ftruncate(fd, 1) < 0;
		wrong += opens(i > O_ACCMODE, path, mode | O_TRUNC) != writes || (!writes && errno != EPERM);
		wrong += fstat(fd, &st) < 0 || st.st_size != !writes;
		wrong += opens(i > O_ACCMODE, path, mode) != (mode != O_ACCMODE);
	}
	wrong += truncate(path, 0) == 0 || errno != EPERM;
	(void)unlink(path);
	return wrong == 0 ? 1 : 3;
}

static void test_files_without_namespaces(void **state)
{
	(void)state;
	assert_int_equal(with_want(0, 0, empties_only_what_it_writes), 1);
}

static int has_sockets_of_the_internet(void)
{
	if (cb_seccomp_load_no_sockets(true, NULL) < 0)
		return 2;
	if (socket(AF_INET, SOCK_STREAM, 0) < 0 || socket(AF_INET6, SOCK_STREAM, 0) < 0)
		return 3;
	if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || errno != EAFNOSUPPORT)
		return 4;
	return 1;
}

static int has_pairs_alone(void)
{
	int pair[2];

	if (cb_seccomp_load_no_sockets(false, NULL) < 0)
		return 2;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
		return 3;
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 || errno != EPROTONOSUPPORT)
		return 4;
	return socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EAFNOSUPPORT ? 1 : 5;
}

static void test_sockets_without_namespaces(void **state)
{
	(void)state;
	assert_int_equal(with_want(0, 0, has_sockets_of_the_internet), 1);
	assert_int_equal(with_want(0, 0, has_pairs_alone), 1);
}

/* ---- the last filter ---- */

static int closes_the_door(void)
{
	struct sock_filter insn = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog own = { .len = 1, .filter = &insn };

	if (cb_seccomp_load(&filter, NULL) < 0 || cb_seccomp_load_last(NULL) < 0)
		return 2;
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &own, 0, 0) == 0 || errno != EINVAL)
		return 3;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &own) == 0 || errno != ENOSYS)
		return 4;
	return kill(-1, 0) < 0 && errno == EPERM && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) >= 0 ? 1 : 5;
}

static void test_no_filter_after_the_last(void **state)
{
	(void)state;
	assert_int_equal(with_want(0, 0, closes_the_door), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_program_is_the_table),
		cmocka_unit_test(test_foreign_calls_kill),
		cmocka_unit_test(test_absent_and_refused),
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_opening),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_sockets),
		cmocka_unit_test(test_ioctl_and_fcntl),
		cmocka_unit_test(test_names_exist_on_both_machines),
		cmocka_unit_test(test_no_rule_is_dead),
		cmocka_unit_test(test_selftest_passes),
		cmocka_unit_test(test_selftest_can_fail),
		cmocka_unit_test(test_want_of_memory_is_waited_out),
		cmocka_unit_test(test_want_of_memory_is_named),
		cmocka_unit_test(test_other_refusals_are_not_tried_again),
		cmocka_unit_test(test_files_without_namespaces),
		cmocka_unit_test(test_sockets_without_namespaces),
		cmocka_unit_test(test_no_filter_after_the_last),
	};

	return cmocka_run_group_tests(tests, compile, drop);
}
