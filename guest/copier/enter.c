/* A zygote's copy enters a jail, and becomes its guest.
 *
 * Role: what pid 1 and an exec do for a guest that is started cold. Trust domain: the zygote's until the guest's walls
 * stand, which is before any code of a user runs. Contract: include/cellblock/warm.h.
 *
 *	zygote ──clone──► first ──clone──► second ──copy──► guest
 *	                  enters the jail  born in it       its parent ends: pid 1's child
 *
 * The first two share the zygote's memory, which waits for them, so there is one copy of it and not three. They are no
 * threads: a thread may not enter a user namespace. The copy of the memory is charged to the jail, whose control group
 * the first one joins before.
 *
 * Invariants: no capability, no fd but the guest's own and no way to the zygote is left when the guest goes on. What
 * fails ends the copy, and the zygote serves on. Nothing is called but what is in this folder.
 */
#include "copier.h"

#include <cellblock/guest_rights.h>
#include <cellblock/twin.h>
#include <cellblock/warm.h>
#include <cellblock/wire.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/socket.h>

#include "parts.h"
#include "sys.h"

#define EXPORT __attribute__((visibility("default")))
#define STACK_SIZE 32768
#define FD_CONNECTION (CB_GUEST_FD_SIDE + 1)
#define FD_RULES (CB_GUEST_FD_SIDE + 2)
#define ASIDE 64			/* above all that is given a place */
#define PARENT_NS 2000000000L		/* for the second one to end */
#define PAUSE_NS 20000L
#define SYS_landlock_restrict_self_ 446 /* on all machines */
/* Of <sys/prctl.h>, which a file that speaks to the kernel alone does without. */
enum {
	PR_SET_DUMPABLE_ = 4,
	PR_SET_SECCOMP_ = 22,
	PR_CAPBSET_READ_ = 23,
	PR_CAPBSET_DROP_ = 24,
	PR_SET_SECUREBITS_ = 28,
	PR_SET_NO_NEW_PRIVS_ = 38,
	PR_CAP_AMBIENT_ = 47,
	PR_CAP_AMBIENT_CLEAR_ALL_ = 4
};

static struct {
	int64_t *a;
	long step, error; /* of the first two, whose memory is the zygote's */
	uint64_t back[CB_SYS_MARK_WORDS];
	void *robust;
	size_t robust_len;
} self;
static char first_stack[STACK_SIZE] __attribute__((aligned(64))), second_stack[STACK_SIZE] __attribute__((aligned(64)));

/* ---- the first two: in the zygote's memory ---- */

static void must(long step, long r)
{
	if (r >= 0)
		return;
	self.step = step;
	self.error = r;
	cb_sys_leave(1);
}

static void second(void *unused)
{
	long r = cb_sys5(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	(void)unused;
	if (r == 0)
		cb_sys_return_to(self.back);
	must(CB_WARM_STEP_FORK, r);
	cb_sys_leave(0);
}

/* The user namespace gives the right to enter all others: it comes first. */
static void first(void *unused)
{
	static const int kinds[] = { [CB_WARM_NS_USER] = CLONE_NEWUSER,	  [CB_WARM_NS_MNT] = CLONE_NEWNS,
				     [CB_WARM_NS_PID] = CLONE_NEWPID,	  [CB_WARM_NS_NET] = CLONE_NEWNET,
				     [CB_WARM_NS_IPC] = CLONE_NEWIPC,	  [CB_WARM_NS_UTS] = CLONE_NEWUTS,
				     [CB_WARM_NS_CGROUP] = CLONE_NEWCGROUP };
	const int64_t *fds = self.a + CB_ENTER_FDS;
	long r;

	(void)unused;
	for (int i = CB_WARM_GROUP; i <= CB_WARM_GROUP_LAST; i++) /* judged by the rights of who opened them */
		if (fds[i] >= 0)
			must(CB_WARM_STEP_GROUP, cb_sys3(SYS_write, fds[i], "0", 1));
	for (int i = CB_WARM_NS_USER; i <= CB_WARM_NS_CGROUP; i++)
		must(CB_WARM_STEP_NAMESPACES, cb_sys2(SYS_setns, fds[i], kinds[i]));
	must(CB_WARM_STEP_UID, cb_sys3(SYS_setresgid, CB_JAIL_UID, CB_JAIL_UID, CB_JAIL_UID));
	must(CB_WARM_STEP_UID, cb_sys3(SYS_setresuid, CB_JAIL_UID, CB_JAIL_UID, CB_JAIL_UID));
	r = cb_sys_thread(CLONE_VM | CLONE_VFORK | SIGCHLD, second_stack + STACK_SIZE, NULL, NULL, 0, second, NULL);
	must(CB_WARM_STEP_FORK, r);
	(void)cb_sys4(SYS_wait4, r, 0, 0, 0);
	cb_sys_leave(0);
}

/* ---- the guest ---- */

/* Says it to the broker; a listener comes along if there is one. */
static void tell(long step, long error, int listener)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)),
				  .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS } };
	struct cb_warm_answer answer = { .step = (uint32_t)step, .error = (int32_t)error };
	struct iovec part = { .iov_base = &answer, .iov_len = sizeof(answer) };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };

	if (listener >= 0) {
		*(int *)(void *)CMSG_DATA(&control.header) = listener;
		m.msg_control = &control;
		m.msg_controllen = sizeof(control);
	}
	(void)cb_sys3(SYS_sendmsg, self.a[CB_ENTER_CONNECTION], &m, MSG_NOSIGNAL);
}

static void need(long step, long r)
{
	if (r >= 0)
		return;
	tell(step, r, -1);
	cb_sys_leave(1);
}

/* All but the guest's own, the connection and Landlock's rules are closed. First all are moved out of the way: a source
 * may have the number that another one gets. */
static void place_fds(int64_t *a)
{
	static const int from[] = { CB_WARM_STDOUT, CB_WARM_STDERR,	  CB_WARM_WIRE,	    CB_WARM_LOG,
				    CB_WARM_TWIN_CONTROL, CB_WARM_REGISTRY, CB_WARM_SIDE };
	static const int to[] = { CB_GUEST_FD_STDOUT,	   CB_GUEST_FD_STDERR,	 CB_GUEST_FD_WIRE, CB_GUEST_FD_LOG,
				  CB_GUEST_FD_TWIN_CONTROL, CB_GUEST_FD_REGISTRY, CB_GUEST_FD_SIDE };
	enum { N = sizeof(from) / sizeof(*from) };
	long up[N], connection, rules = -1, null;

	for (int i = 0; i < N; i++)
		need(CB_WARM_STEP_FDS, up[i] = cb_sys3(SYS_fcntl, a[CB_ENTER_FDS + from[i]], F_DUPFD_CLOEXEC, ASIDE));
	need(CB_WARM_STEP_FDS, connection = cb_sys3(SYS_fcntl, a[CB_ENTER_CONNECTION], F_DUPFD_CLOEXEC, ASIDE));
	if (a[CB_ENTER_FDS + CB_WARM_RULES] >= 0)
		need(CB_WARM_STEP_FDS,
		     rules = cb_sys3(SYS_fcntl, a[CB_ENTER_FDS + CB_WARM_RULES], F_DUPFD_CLOEXEC, ASIDE));
	need(CB_WARM_STEP_FDS, null = cb_sys4(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0));
	if (null != CB_GUEST_FD_STDIN)
		need(CB_WARM_STEP_FDS, cb_sys3(SYS_dup3, null, CB_GUEST_FD_STDIN, 0));
	need(CB_WARM_STEP_FDS, cb_sys3(SYS_dup3, connection, FD_CONNECTION, O_CLOEXEC));
	a[CB_ENTER_CONNECTION] = FD_CONNECTION;
	for (int i = 0; i < N; i++) {
		bool stream = to[i] <= CB_GUEST_FD_STDERR;

		need(CB_WARM_STEP_FDS, cb_sys3(SYS_dup3, up[i], to[i], stream ? 0 : O_CLOEXEC));
	}
	if (rules >= 0)
		need(CB_WARM_STEP_FDS, cb_sys3(SYS_dup3, rules, FD_RULES, O_CLOEXEC));
	a[CB_ENTER_FDS + CB_WARM_RULES] = rules >= 0 ? FD_RULES : -1;
	need(CB_WARM_STEP_FDS, cb_sys3(SYS_close_range, rules >= 0 ? FD_RULES + 1 : FD_CONNECTION + 1, ~0u, 0));
}

/* Entering a user namespace gives all of its capabilities, and securebits that are not locked. */
static void give_up_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	for (long cap = 0; cb_sys5(SYS_prctl, PR_CAPBSET_READ_, cap, 0, 0, 0) >= 0; cap++)
		need(CB_WARM_STEP_CAPABILITIES, cb_sys5(SYS_prctl, PR_CAPBSET_DROP_, cap, 0, 0, 0));
	need(CB_WARM_STEP_CAPABILITIES, cb_sys5(SYS_prctl, PR_CAP_AMBIENT_, PR_CAP_AMBIENT_CLEAR_ALL_, 0, 0, 0));
	need(CB_WARM_STEP_CAPABILITIES, cb_sys5(SYS_prctl, PR_SET_SECUREBITS_, CB_GUEST_SECUREBITS, 0, 0, 0));
	need(CB_WARM_STEP_CAPABILITIES, cb_sys2(SYS_capset, &head, none));
	need(CB_WARM_STEP_CAPABILITIES, cb_sys5(SYS_prctl, PR_SET_NO_NEW_PRIVS_, 1, 0, 0, 0));
}

static struct sock_fprog program_of(const int64_t *a, int which)
{
	return (struct sock_fprog){ .len = (unsigned short)a[CB_ENTER_FILTERS + 2 * which],
				    .filter = (void *)(uintptr_t)a[CB_ENTER_FILTERS + 2 * which + 1] };
}

/* As sandbox/notifier/filter.c: with WAIT_KILLABLE_RECV where the kernel has it. The listener, or -1. */
static int load_filters(const int64_t *a)
{
	struct sock_fprog program = program_of(a, CB_WARM_FILTER_NOTIFY);
	long listener = -1;

	if (program.len > 0) {
		unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;

		listener = cb_sys3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags | (1ul << 5), &program);
		if (listener == -EINVAL)
			listener = cb_sys3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
		need(CB_WARM_STEP_FILTER, listener);
	}
	for (int i = CB_WARM_FILTER_JAIL; i < CB_WARM_FILTERS; i++) {
		program = program_of(a, i);
		if (program.len > 0)
			need(CB_WARM_STEP_FILTER,
			     cb_sys5(SYS_prctl, PR_SET_SECCOMP_, SECCOMP_MODE_FILTER, &program, 0, 0));
	}
	return (int)listener;
}

/* The second one ends as soon as it is let; until then it is our parent. */
static void await_pid1(void)
{
	const struct timespec pause = { 0, PAUSE_NS };
	int64_t end = cb_sys_now_ns() + PARENT_NS;

	while (cb_sys0(SYS_getppid) != 1) {
		if (cb_sys_now_ns() > end)
			need(CB_WARM_STEP_PARENT, -ETIMEDOUT);
		(void)cb_sys2(SYS_nanosleep, &pause, NULL);
	}
}

static void be_guest(int64_t *a)
{
	const struct cb_registry_msg guest = { .number = 0 };
	char go;
	int listener;

	(void)cb_sys0(SYS_setsid); /* it can't fail for one that has just been born */
	need(CB_WARM_STEP_SESSION, cb_sys1(SYS_chdir, a[CB_ENTER_CWD]));
	(void)cb_sys1(SYS_umask, a[CB_ENTER_UMASK]);
	place_fds(a);
	give_up_capabilities();
	/* the zygote's would be shared by all; where a container refuses keys there is none */
	if (cb_sys2(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0) == -EDQUOT)
		need(CB_WARM_STEP_KEYRING, -EDQUOT);
	if (a[CB_ENTER_FDS + CB_WARM_RULES] >= 0)
		need(CB_WARM_STEP_RULES, cb_sys2(SYS_landlock_restrict_self_, FD_RULES, 0));
	(void)cb_sys1(SYS_close, FD_RULES);
	/* the change of uid has ended it; the notifier must be able to read what the guest's calls name */
	(void)cb_sys5(SYS_prctl, PR_SET_DUMPABLE_, 1, 0, 0, 0);
	listener = load_filters(a);
	cb_threads_restore_all_own();
	(void)cb_sys2(SYS_set_robust_list, self.robust, self.robust_len);
	need(CB_WARM_STEP_REVIVE, cb_threads_revive());
	await_pid1();
	need(CB_WARM_STEP_PARENT, cb_sys4(SYS_write, CB_GUEST_FD_REGISTRY, &guest, sizeof(guest), 0));
	tell(CB_WARM_STEP_READY, 0, listener);
	if (listener >= 0)
		(void)cb_sys1(SYS_close, listener);
	if (cb_sys3(SYS_read, FD_CONNECTION, &go, sizeof(go)) != sizeof(go))
		cb_sys_leave(1);
	(void)cb_sys1(SYS_close, FD_CONNECTION);
}

/* ---- the zygote ---- */

/* One kernel's: all later copies would have them in their memory. */
static void wipe_texts(const int64_t *a)
{
	volatile char *at = (char *)(uintptr_t)a[CB_ENTER_CWD];

	for (int64_t n = a[CB_ENTER_TEXTS]; n > 0; n--)
		*at++ = 0;
}

EXPORT long cb_copier_enter(int64_t a[CB_ENTER_FIELDS])
{
	long r;

	self.a = a;
	self.step = self.error = 0;
	(void)cb_sys3(SYS_get_robust_list, 0, &self.robust, &self.robust_len);
	a[CB_ENTER_STEP] = CB_WARM_STEP_THREADS;
	r = cb_threads_stop();
	if (r < 0) {
		wipe_texts(a);
		return r;
	}
	if (cb_sys_mark(self.back) != 0) {
		be_guest(a);
		return 0;
	}
	a[CB_ENTER_STEP] = CB_WARM_STEP_FORK;
	r = cb_sys_thread(CLONE_VM | CLONE_VFORK | SIGCHLD, first_stack + STACK_SIZE, NULL, NULL, 0, first, NULL);
	if (r > 0)
		(void)cb_sys4(SYS_wait4, r, 0, 0, 0);
	cb_threads_go_on();
	wipe_texts(a);
	if (r >= 0 && self.error < 0) {
		a[CB_ENTER_STEP] = self.step;
		r = self.error;
	}
	return r < 0 ? r : 1;
}
