/* The notifier: a process that serves the write calls of one jail. See notifier.h.
 *
 * Trust domain: its own. Started by the broker, beside the jail: in the jail's user namespace, as the jail's user, with
 * CAP_SYS_PTRACE there alone (to read callers that are undumpable, and past Yama); in a mount namespace that shows what
 * the jail sees and, over it, the workspace's writable mount; in the process and network namespaces outside, where no
 * cell sees it. The root of the threads that serve is the jail's, so that paths mean what they
 * mean there. It holds the folder /proc
 * of outside, by which the kernel shows it the jail's processes alone: for others it lacks the right. Its own filter
 * allows what it calls and nothing else. It ends with the jail, and with the broker.
 *
 * Threads: CB_NOTIFY_THREADS that serve the first listener and CB_NOTIFY_JOBS_THREADS for the second, if there is one;
 * one for calls that are to be done later; each of these with a root, a working folder and a umask of its own. And the
 * first, which waits for connections that take their time.
 */
#include "../shared/ids.h"
#include "../shared/jail.h"
#include "../shared/mounts.h"
#include "../walls/caps.h"
#include "../walls/limits.h"
#include "calls.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_SIZE (1u << 20) /* folders in folders, see judge/tree.c */
#define CAPS (UINT64_C(1) << CAP_SYS_PTRACE)

struct cb_notify_self cb_notify_self;

static size_t notif_size; /* as this kernel has it */
static pthread_barrier_t filtered;

/* ---- answers ---- */

bool cb_notify_valid(const struct cb_request *q)
{
	uint64_t id = q->n->id;

	return ioctl(cb_notify_self.listeners[q->from], SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

/* A caller that has gone is not there to be told. */
static void send_error(const struct cb_request *q, int error)
{
	struct seccomp_notif_resp answer = { .id = q->n->id, .error = -error };

	(void)ioctl(cb_notify_self.listeners[q->from], SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

static void send_value(struct cb_request *q)
{
	struct seccomp_notif_resp answer = { .id = q->n->id, .val = q->value };

	if (q->go_on)
		answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	if (ioctl(cb_notify_self.listeners[q->from], SECCOMP_IOCTL_NOTIF_SEND, &answer) < 0 && errno == ENOENT &&
	    !q->go_on)
		cb_missed_keep(q);
}

/* In two steps: in one (SECCOMP_ADDFD_FLAG_SEND) the kernel answers 0 without a descriptor where a signal meets us. */
static void send_fd(struct cb_request *q)
{
	struct seccomp_notif_addfd add = { .id = q->n->id,
					   .srcfd = (uint32_t)q->fd,
					   .newfd_flags = q->cloexec ? O_CLOEXEC : 0 };
	int number;

	do
		number = ioctl(cb_notify_self.listeners[q->from], SECCOMP_IOCTL_NOTIF_ADDFD, &add);
	while (number < 0 && (errno == EINTR || errno == EAGAIN));
	if (number < 0 && errno == ENOENT) {
		cb_missed_keep(q);
		return;
	}
	if (number < 0) {
		int error = errno; /* EMFILE */

		cb_unmake(q);
		send_error(q, error);
		return;
	}
	if (q->empty) /* not before the caller has room for it */
		(void)!ftruncate(q->fd, 0);
	cb_fd_close(&q->fd);
	q->value = number;
	send_value(q);
}

void cb_notify_answer(struct cb_request *q)
{
	if (q->error != 0)
		send_error(q, q->error);
	else if (q->fd >= 0)
		send_fd(q);
	else
		send_value(q);
	cb_fd_close(&q->fd);
	cb_fd_close(&q->made_in);
	cb_fd_close(&q->caller);
	cb_notify_self.shared->busy[q->from][q->slot] = 0;
}

/* ---- serving ---- */

void cb_notify_serve(struct cb_request *q)
{
	for (size_t i = 0; i < cb_notify_calls_count && q->call == NULL; i++)
		if (cb_notify_calls[i].nr == q->n->data.nr)
			q->call = &cb_notify_calls[i];
	if (q->call == NULL)
		q->error = ENOSYS; /* the filter asks for none such */
	else
		q->call->serve(q);
	if (q->go_on && q->instead != 0) {
		q->go_on = false;
		q->error = q->instead;
	}
	if (q->call != NULL && q->call->kind != CB_NOTIFY_WRITE_ASK)
		cb_refused_tell(q->error);
	cb_refused_forget();
}

static void serve(const struct seccomp_notif *n, enum cb_notify_from from, unsigned slot)
{
	struct cb_request q = CB_REQUEST(n, from, slot);

	cb_notify_self.shared->busy[from][slot] = n->id;
	if (!cb_missed_take(&q))
		cb_notify_serve(&q);
	if (q.error == CB_TOO_NEW) {
		q.later = cb_held_take(&q);
		q.error = EBUSY;
	}
	if (!q.later) {
		cb_notify_answer(&q);
		return;
	}
	cb_fd_close(&q.caller);
	cb_notify_self.shared->busy[from][slot] = 0;
}

/* Whether nobody has this listener's filter any more. */
static bool has_ended(int listener)
{
	struct pollfd p = { .fd = listener };

	return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR)) != 0;
}

/* Returns at the listener's end, which is the notifier's only if there is no other: that the first thread sees. Since
 * Linux 6.11 one that has ended says ENOENT again and again; before, it says nothing, and we wait in here. */
static void serve_all(struct seccomp_notif *n, enum cb_notify_from from, unsigned slot)
{
	for (;;) {
		memset(n, 0, notif_size);
		if (ioctl(cb_notify_self.listeners[from], SECCOMP_IOCTL_NOTIF_RECV, n) == 0) {
			cb_notify_self.shared->last[from] = n->id;
			serve(n, from, slot);
			continue;
		}
		if (errno != EINTR && errno != ENOENT)
			_exit(1);
		if (errno == ENOENT && has_ended(cb_notify_self.listeners[from]))
			return;
	}
}

/* Threads by their numbers: those of the first listener, the one for what is held, those of the second listener. */
#define HELD_THREAD CB_NOTIFY_THREADS
#define FIRST_JOBS_THREAD (HELD_THREAD + 1)
_Static_assert(CB_NOTIFY_JOBS_THREADS <= CB_NOTIFY_THREADS, "they have the first slots of a table of their own");

static unsigned count_threads(void)
{
	return FIRST_JOBS_THREAD +
	       (cb_notify_self.listeners[CB_NOTIFY_FROM_JOBS] >= 0 ? CB_NOTIFY_JOBS_THREADS : 0);
}

static void *thread_main(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg;
	struct seccomp_notif *n = malloc(notif_size);

	/* a root, a working folder and a umask of its own */
	if (n == NULL || unshare(CLONE_FS) < 0 || fchdir(cb_notify_self.jail_root) < 0 || chroot(".") < 0 ||
	    fchdir(cb_notify_self.proc) < 0 || cb_caps_keep(CAPS, NULL) < 0 || cb_sockets_init_thread() < 0)
		_exit(1);
	pthread_barrier_wait(&filtered); /* all are here */
	pthread_barrier_wait(&filtered); /* the filter holds */
	if (number == HELD_THREAD)
		cb_held_serve();
	if (number < HELD_THREAD)
		serve_all(n, CB_NOTIFY_FROM_GUEST, number);
	else
		serve_all(n, CB_NOTIFY_FROM_JOBS, number - FIRST_JOBS_THREAD);
	for (;;) /* to end, a C library may call what the filter kills us for */
		(void)poll(NULL, 0, -1);
	return NULL;
}

/* ---- how it comes to be ---- */

/* What a filter of our own allows; the rest ends us. */
static const int allowed[] = {
	SYS_ioctl,
	SYS_process_vm_readv,
	SYS_openat,
	SYS_openat2,
	SYS_close,
	SYS_read,
	SYS_write,
	SYS_readlinkat,
	SYS_newfstatat,
	SYS_fstat,
	SYS_statx,
	SYS_fstatfs,
	SYS_faccessat,
	SYS_faccessat2,
	SYS_mkdirat,
	SYS_mknodat,
	SYS_unlinkat,
	SYS_renameat,
	SYS_renameat2,
	SYS_linkat,
	SYS_symlinkat,
	SYS_fchmodat,
	SYS_fchownat,
	SYS_utimensat,
	SYS_ftruncate,
	SYS_fcntl,
	SYS_getdents64,
	SYS_lseek,
	SYS_pidfd_open,
	SYS_pidfd_getfd,
	SYS_getsockopt,
	SYS_getpeername,
	SYS_connect,
	SYS_bind,
	SYS_umask,
	SYS_fchdir,
	SYS_futex,
	SYS_mmap,
	SYS_munmap,
	SYS_mprotect,
	SYS_madvise,
	SYS_brk,
	SYS_clock_gettime,
	SYS_timer_settime,
	SYS_exit,
	SYS_exit_group,
	SYS_ppoll,
	SYS_restart_syscall,
	SYS_rt_sigprocmask,
	SYS_rt_sigreturn,
	SYS_sched_yield,
	SYS_mremap,
#ifdef SYS_poll
	SYS_poll,
#endif
#ifdef __SANITIZE_ADDRESS__ /* its threads and its reports */
	SYS_sigaltstack,
	SYS_gettid,
	SYS_getpid,
	SYS_sched_getaffinity,
	SYS_readlink,
	SYS_tgkill,
#endif
};

static int load_filter(void)
{
#if defined(__x86_64__)
	enum { ARCH = AUDIT_ARCH_X86_64 };
#else
	enum { ARCH = AUDIT_ARCH_AARCH64 };
#endif
	struct sock_filter insns[5 + 2 * CB_COUNT(allowed)] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	struct sock_fprog filter = { .len = 4, .filter = insns };

	for (size_t i = 0; i < CB_COUNT(allowed); i++) {
		insns[filter.len++] =
			(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i], 0, 1);
		insns[filter.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	insns[filter.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0 ? 0 : -errno;
}

/* Into the jail's namespaces, but not into those of its processes and its network. */
static int enter(const struct cb_notifier *n)
{
	if (setns(n->fds[CB_NOTIFY_USERNS], CLONE_NEWUSER) < 0 || setns(n->fds[CB_NOTIFY_MNTNS], CLONE_NEWNS) < 0)
		return -errno;
	return cb_become(CB_JAIL_UID);
}

/* The first notifier makes a mount namespace in which the writable workspace lies over what the jail sees of it; a
 * mount is moved once only, so the next ones join that. */
static int make_own_namespace(const char *target, int tree)
{
	CB_AUTO_FD place = -1;
	int r;

	if (unshare(CLONE_NEWNS) < 0)
		return -errno;
	r = cb_open_nolinks(AT_FDCWD, target, O_PATH | O_DIRECTORY, &place);
	return r == 0 ? cb_mnt_attach(tree, place) : r;
}

static int mount_tree(const char *target, const struct cb_notifier *n)
{
	int own = n->fds[CB_NOTIFY_OWNNS], r;

	if (own >= 0)
		r = setns(own, CLONE_NEWNS) < 0 ? -errno : 0;
	else
		r = make_own_namespace(target, n->fds[CB_NOTIFY_TREE]);
	return r == 0 ? cb_open_nolinks(AT_FDCWD, target, O_PATH | O_DIRECTORY, &cb_notify_self.judge.root) : r;
}

static int take_workspace(const struct cb_jail *jail, const struct cb_notifier *n)
{
	static struct cb_leads leads[2] = { CB_LEADS_NONE, CB_LEADS_NONE };
	static struct cb_strv paths;
	const struct cb_jail_spec *spec = jail->spec;
	int r = 0;

	cb_notify_self.jail_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (cb_notify_self.jail_root < 0)
		return -errno;
	if (spec->workspace_target != NULL)
		(void)snprintf(cb_notify_self.target, sizeof(cb_notify_self.target), "%s", spec->workspace_target);
	cb_notify_self.writes = n->fds[CB_NOTIFY_TREE] >= 0;
	if (!cb_notify_self.writes)
		return 0;
	r = cb_judge_paths(spec, &paths);
	cb_notify_self.judge.patterns = &spec->protect;
	cb_notify_self.judge.paths = &paths;
	cb_notify_self.judge.beside = -1;
	cb_notify_self.judge.workspace = cb_judge_workspace(spec);
	cb_notify_self.judge.above = cb_judge_above(spec);
	cb_notify_self.judge.leads = leads;
	leads[0].source = leads[1].source = spec->workspace_source;
	return r == 0 ? mount_tree(spec->workspace_target, n) : r;
}

static int start_threads(void)
{
	pthread_attr_t attr;
	unsigned count = count_threads();
	int r = -pthread_barrier_init(&filtered, NULL, count + 1);

	if (r == 0)
		r = -pthread_attr_init(&attr);
	if (r == 0)
		r = -pthread_attr_setstacksize(&attr, STACK_SIZE);
	for (uintptr_t i = 0; i < count && r == 0; i++) {
		pthread_t thread;

		r = -pthread_create(&thread, &attr, thread_main, (void *)i);
	}
	if (r == 0)
		pthread_barrier_wait(&filtered);
	return r;
}

/* Truncation is bounded by it, as it is in the jail. */
static int limit_files(const struct cb_jail_spec *spec)
{
	struct rlimit limit = { spec->limit_file_size, spec->limit_file_size }, files;
	int r = cb_limit_core_dumps(NULL);

	if (r < 0)
		return r;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return -errno;
	files.rlim_cur = files.rlim_max; /* deep folders are looked through with all of them open */
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return -errno;
	if (spec->limit_file_size != 0 && setrlimit(RLIMIT_FSIZE, &limit) < 0)
		return -errno;
	return 0;
}

static int take_sizes(void)
{
	struct seccomp_notif_sizes sizes = { 0 };

	if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) < 0)
		return -errno;
	notif_size =
		sizes.seccomp_notif > sizeof(struct seccomp_notif) ? sizes.seccomp_notif : sizeof(struct seccomp_notif);
	return 0;
}

static int give_up_rights(const struct cb_jail_spec *spec)
{
	int r = limit_files(spec);

	if (r == 0)
		r = cb_caps_keep(CAPS, NULL);
	if (r == 0 && (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0))
		r = -errno;
	return r;
}

/* With the mount namespace that the next one is to join. */
static int tell_ready(int status_fd)
{
	CB_AUTO_FD own = openat(cb_notify_self.proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
	struct cb_err none = { 0 };

	return own < 0 ? -errno : cb_fd_send(status_fd, &none, sizeof(none), &own, 1);
}

static int become_notifier(const struct cb_jail *jail, const struct cb_notifier *n, int status_fd, const char **what)
{
	int r = take_sizes();

	*what = r == 0 ? "entering the jail's namespaces" : "asking the kernel";
	r = r == 0 ? enter(n) : r;
	*what = r == 0 ? "mounting the workspace" : *what;
	r = r == 0 ? take_workspace(jail, n) : r;
	*what = r == 0 ? "looking at the jail's folders" : *what;
	r = r == 0 ? cb_sockets_init(jail->spec) : r;
	*what = r == 0 ? "telling of its namespace" : *what;
	r = r == 0 ? tell_ready(status_fd) : r;
	*what = r == 0 ? "starting threads" : *what;
	r = r == 0 ? start_threads() : r;
	*what = r == 0 ? "giving up rights" : *what;
	r = r == 0 ? give_up_rights(jail->spec) : r;
	*what = r == 0 ? "loading its filter" : *what;
	return r == 0 ? load_filter() : r;
}

_Noreturn void cb_notify_main(const struct cb_jail *jail, const struct cb_notifier *n, int status_fd)
{
	struct cb_err err = { 0 };
	const char *what = "/proc";
	int r;

	(void)prctl(PR_SET_NAME, CB_NOTIFIER_NAME, 0, 0, 0);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);
	for (unsigned from = 0; from < CB_NOTIFY_FROMS; from++)
		cb_notify_self.listeners[from] = cb_notify_listener(n->fds, from);
	cb_notify_self.shared = n->shared;
	cb_notify_self.proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	r = cb_notify_self.proc < 0 ? -errno : become_notifier(jail, n, status_fd, &what);
	if (r < 0)
		cb_err_set(&err, r, "notifier", NULL, "what serves the jail's write calls can't be started: %s: %s",
			   what, strerror(-r));
	/* a second word; when it has come, all is as it will stay */
	if (write(status_fd, &err, sizeof(err)) != (ssize_t)sizeof(err) || r < 0)
		_exit(1);
	(void)close(status_fd);
	if (fchdir(cb_notify_self.proc) < 0)
		_exit(1);
	pthread_barrier_wait(&filtered);
	cb_sockets_wait();
}
