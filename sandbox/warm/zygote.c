/* How a zygote comes to be: see warm.h.
 *
 * Trust domain: a child of the broker's, which leaves it at once and becomes the zygote's jail. It is built by the same
 * steps as others are, and keeps neither a capability nor an fd but the zygote's socket and locks.
 *
 *	broker ──► leaves the host's namespaces ──► keeper, pid 1 ──► zygote, pid 2
 *
 * A process can enter only such process namespaces as lie below its own: so the jails of a zygote's kernels are made
 * below the zygote's. The keeper holds that one as long as anybody lives in it; when it ends all of them do. It is of
 * this code alone, so nobody inside has a reason or a way to end it.
 *
 * A lock file beside the socket is held as long as the zygote lives: who holds it may replace the socket. What becomes
 * of the zygote is written into it. One that could not serve is not tried again for a while, and who would have started
 * the next one logs why: a module that can't be preloaded would be loaded in vain behind each start. A socket is bound
 * here and listens when the zygote can serve, so that nobody connects to one that can't.
 *
 * Invariants: nothing here is waited for by anybody, nor is anything of the kernel's held that has started it; what
 * fails is one line in a log, and starts stay cold; who can't serve leaves no process behind.
 */
#include "warm.h"

#include "../root/root.h"
#include "../shared/ids.h"
#include "../shared/mounts.h"
#include "../walls/caps.h"
#include "../walls/limits.h"
#include "../walls/seccomp.h"

#include <cellblock/buffer.h>
#include <cellblock/child.h>
#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <cellblock/wire.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ZYGOTES_MAX 16 /* of a user */
#define KEYS_MAX 256   /* files of those that live, and of those that could not serve */
#define IDLE_S 600
#define LOAD_S 120
#define KEEPER_S 1
#define ASIDE 32
#define HELLO_MS 1000
#define LOCK_TRIES 100 /* of a millisecond each */

struct zygote {
	struct cb_jail jail;
	struct cb_jail_spec spec;
	struct sock_fprog filter;
	char key[CB_WARM_KEY_LEN + 1];
	int folder, lock, listener;
	int watch; /* the lock's file, not locked by it */
};

/* ---- its place in the folder ---- */

static void write_why(int lock, const char *step, const char *text)
{
	char why[CB_WARM_WHY_MAX];
	int n = snprintf(why, sizeof(why), "%c%s: %s\n", CB_WARM_FAILED, step, text);

	(void)!pwrite(lock, why, n < (int)sizeof(why) ? (size_t)n : sizeof(why) - 1, 0);
}

/* Its kernels live on. One that does not listen yet, or not any more, does not hear it. */
static void tell_end(int folder, const char *key)
{
	const struct cb_warm_request over = { .op = CB_WARM_END, .version = CB_WARM_VERSION };
	CB_AUTO_FD fd = -1;
	char hello;

	if (cb_warm_connect(folder, key, &fd) < 0)
		return;
	(void)cb_fd_await(fd, POLLIN, cb_now_ms() + HELLO_MS); /* who has gone before it said hello is not heard */
	(void)!recv(fd, &hello, sizeof(hello), MSG_DONTWAIT);
	(void)cb_fd_send(fd, &over, sizeof(over), NULL, 0);
}

/* Removes what is left of those that are gone; has the one end that was of no use for longest where there are too many.
 */
static int make_room(int folder)
{
	char keys[KEYS_MAX][CB_WARM_KEY_LEN + 1];
	size_t n = 0, living = 0, oldest = 0;
	struct timespec oldest_use = { 0 };
	int r = cb_warm_keys(folder, keys, KEYS_MAX, &n);

	for (size_t i = 0; i < n; i++) {
		CB_AUTO_FD lock = -1;
		int taken = cb_warm_lock(folder, keys[i], LOCK_EX, &lock);
		struct timespec used = { 0 };
		char why[CB_WARM_WHY_MAX];

		if (taken == 0 && !cb_warm_has_failed(lock, why))
			cb_warm_remove(folder, keys[i], lock);
		if (taken != -EWOULDBLOCK)
			continue;
		(void)cb_warm_last_use(folder, keys[i], &used);
		if (living++ == 0 || cb_is_after(oldest_use, used)) {
			oldest = i;
			oldest_use = used;
		}
	}
	if (living >= ZYGOTES_MAX)
		tell_end(folder, keys[oldest]);
	return r;
}

/* 0, or -EWOULDBLOCK if there is one with this name, or it is just being made. */
static int take_lock(struct zygote *z, struct cb_err *err)
{
	char why[CB_WARM_WHY_MAX];
	char name[CB_WARM_LOCK_NAME];
	const struct timespec pause = { .tv_nsec = 1000000 };
	CB_AUTO_FD made = -1;
	CB_AUTO_FD lock = -1;
	int r, tries = 0;

	cb_warm_lock_name(z->key, name);
	made = openat(z->folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (made < 0 && errno != EEXIST)
		return -errno;
	do { /* who makes it has it, but for who looks meanwhile, and that takes no time */
		r = cb_warm_lock(z->folder, z->key, LOCK_EX, &lock);
	} while (made >= 0 && r == -EWOULDBLOCK && tries++ < LOCK_TRIES && nanosleep(&pause, NULL) == 0);
	if (r < 0)
		return r == -ENOENT ? -EWOULDBLOCK : r;
	if (made < 0 && cb_warm_has_failed(lock, why))
		return cb_err_set(err, -ECANCELED, "the last one could not serve",
				  "Mend that, or wait: it is tried again ten minutes later.", "%s",
				  why[0] != '\0' ? why : "it ended while it loaded");
	if (ftruncate(lock, 0) < 0 || futimens(lock, NULL) < 0)
		return -errno;
	z->lock = cb_fd_take(&lock);
	return 0;
}

static int bind_socket(struct zygote *z)
{
	const struct sockaddr_un address = cb_warm_address(z->folder, z->key);
	CB_AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)unlinkat(z->folder, z->key, 0);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	z->listener = cb_fd_take(&fd);
	return 0;
}

static int take_place(struct zygote *z, const char *folder, struct cb_err *err)
{
	int r = cb_warm_folder_open(folder, true, &z->folder, err);

	if (r < 0)
		return r;
	r = make_room(z->folder);
	if (r == 0)
		r = take_lock(z, err);
	if (r == 0)
		r = bind_socket(z);
	return r < 0 && err->code == 0
		       ? cb_err_set(err, r, CB_WARM_STEP, NULL, "its socket in %s: %s", folder, strerror(-r))
		       : r;
}

/* ---- its jail ---- */

/* By their number the broker tells a zygote from a cell. */
static int enter_user_namespaces(void)
{
	const char *file;
	int r = 0;

	for (int i = 0; i < CB_ZYGOTE_USERNS && r == 0; i++) {
		uid_t uid = geteuid();
		gid_t gid = getegid();

		r = unshare(CLONE_NEWUSER) < 0 ? -errno : cb_ids_map(0, uid, gid, &file);
	}
	return r;
}

static int leave_host(const struct zygote *z, struct cb_err *err)
{
	int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
	int r = z->jail.from_root ? 0 : enter_user_namespaces();

	if (r == 0 && (unshare(flags) < 0 || chdir("/") < 0))
		r = -errno;
	if (r == 0 && sethostname(z->spec.hostname, strlen(z->spec.hostname)) < 0)
		r = -errno;
	(void)syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
	return r < 0 ? cb_err_set(err, r, CB_WARM_STEP, NULL, "new namespaces: %s", strerror(-r)) : 0;
}

/* The folder that it may write to is its own, whoever has made it. */
static int give_home(struct cb_jail *jail, struct cb_err *err)
{
	uid_t uid = jail->host_uid;

	if (!jail->from_root || fchownat(AT_FDCWD, CB_JAIL_HOME + 1, uid, uid, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	return cb_err_set(err, -errno, CB_WARM_STEP, NULL, "its home: %s", strerror(errno));
}

/* Root leaves its uid before its rights, which go with the step after this. Not under Landlock, not even for signals:
 * each set of rules forbids to move files from folder to folder where no rule of it allows that, and no rule of a
 * zygote's can name the folders of its copies' jails. */
static int leave_root(struct cb_jail *jail, struct cb_err *err)
{
	uid_t uid = jail->from_root ? jail->host_uid : CB_JAIL_UID;

	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0 ||
	    (jail->from_root && cb_leave_groups() < 0) || cb_become(uid) < 0)
		return cb_err_set(err, -errno, CB_WARM_STEP, NULL, "its uid: %s", strerror(errno));
	return 0;
}

static int build(struct zygote *z, struct cb_err *err)
{
	static const cb_step_fn steps[] = { cb_step_private_mounts, cb_step_new_root, cb_step_dev,
					    cb_step_proc_of_self,   cb_step_tmpfs,    give_home,
					    cb_step_binds,	    cb_step_pivot,    leave_root,
					    cb_step_caps };
	int r = 0;

	for (size_t i = 0; i < CB_COUNT(steps) && r == 0; i++)
		r = steps[i](&z->jail, err);
	return r;
}

/* ---- its start ---- */

/* As long as there is no lock to write it to. */
static void log_why(const struct cb_err *err)
{
	if (err->code != -EWOULDBLOCK)
		cb_log(CB_LOG_WARNING, "no zygote: %s: %s", err->step, err->text);
}

static int open_watch(struct zygote *z)
{
	char path[32];
	CB_AUTO_FD file = -1;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", z->lock);
	file = open(path, O_RDWR | O_CLOEXEC);
	z->watch = file >= 0 ? fcntl(file, F_DUPFD_CLOEXEC, ASIDE) : -1;
	return z->watch < 0 ? -errno : 0;
}

/* 0 to 7 are /dev/null, for a guest's own fds get those numbers in a copy. */
static int keep_fds(struct zygote *z, struct cb_err *err)
{
	enum { FIRST = CB_GUEST_FD_SIDE + 1, NFDS = CB_ZYGOTE_FD_UID + 1 - FIRST };
	int kept[NFDS], r;

	memset(kept, -1, sizeof(kept));
	kept[CB_ZYGOTE_FD_LISTEN - FIRST] = z->listener;
	kept[CB_ZYGOTE_FD_LOCK - FIRST] = z->lock;
	kept[CB_ZYGOTE_FD_UID - FIRST] = z->jail.uid_lock;
	r = cb_fd_keep(FIRST, kept, NFDS, 0);
	if (r == 0) {
		z->lock = CB_ZYGOTE_FD_LOCK;
		r = open_watch(z);
	}
	return r < 0 ? cb_err_set(err, r, CB_WARM_STEP, NULL, "its descriptors: %s", strerror(-r)) : 0;
}

static int add_variables(struct zygote *z)
{
	struct cb_strv env = { 0 }, *preload = &z->spec.warm_preload;
	CB_AUTO_BUF names = CB_BUF_INIT(65536);
	int r = cb_buf_reserve(&names, 1); /* there may be none */

	for (size_t i = 0; i < preload->count && r == 0; i++)
		r = cb_buf_printf(&names, "%s%s", i > 0 ? "," : "", preload->items[i]);
	for (size_t i = 0; i < z->spec.env.count && r == 0; i++)
		r = cb_strv_add(&env, z->spec.env.items[i]);
	if (r == 0)
		r = cb_strv_addf(&env, "CELLBLOCK_ZYGOTE=%.*s", (int)names.len, (const char *)names.data);
	if (r == 0)
		r = cb_strv_addf(&env, "CELLBLOCK_ZYGOTE_IDLE=%d", IDLE_S);
	z->spec.env = env; /* this process ends by an exec */
	return r;
}

static void start_program(struct zygote *z, struct cb_err *err)
{
	sigset_t empty;
	int r = add_variables(z);

	if (r == 0)
		r = cb_limit_core_dumps(NULL);
	if (r < 0) {
		cb_err_set(err, r, CB_WARM_STEP, NULL, "its environment: %s", strerror(-r));
		return;
	}
	if (cb_seccomp_load(&z->filter, err) < 0)
		return;
	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	sigemptyset(&empty);
	sigprocmask(SIG_SETMASK, &empty, NULL);
	execve(z->spec.argv.items[0], z->spec.argv.items, z->spec.env.items);
	cb_err_set(err, -errno, CB_WARM_STEP, NULL, "%s: %s", z->spec.argv.items[0], strerror(errno));
}

/* ---- the keeper ---- */

static void wake_up(int number)
{
	(void)number;
}

static bool is_loading(int watch)
{
	struct stat st;

	return fstat(watch, &st) == 0 && st.st_size == 0;
}

static bool may_leave_kernels(int status, int watch)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) == CB_ZYGOTE_LEAVES : !is_loading(watch);
}

/* One that hangs while it loads is ended; and by our own end all that it has started. Who comes into its process
 * namespace by a broker is no child of ours, so that somebody is left is to be asked. */
static _Noreturn void keep(pid_t zygote, int watch)
{
	const struct timespec pause = { .tv_sec = KEEPER_S };
	const struct sigaction alarmed = { .sa_handler = wake_up };
	sigset_t empty;

	sigemptyset(&empty);
	(void)sigaction(SIGALRM, &alarmed, NULL);
	(void)sigprocmask(SIG_SETMASK, &empty, NULL);
	(void)alarm(LOAD_S);
	for (;;) {
		int status = 0;
		pid_t pid = waitpid(-1, &status, 0);

		if (pid < 0 && errno == EINTR && is_loading(watch)) {
			write_why(watch, "loading", "it was not done within two minutes");
			_exit(1);
		}
		if (pid == zygote && !may_leave_kernels(status, watch)) {
			if (is_loading(watch))
				write_why(watch, "loading", "it was ended while it loaded");
			_exit(0);
		}
		if (pid > 0 || errno == EINTR)
			continue;
		if (kill(-1, 0) < 0 && errno == ESRCH)
			_exit(0);
		(void)nanosleep(&pause, NULL);
	}
}

static _Noreturn void become_keeper(struct zygote *z, pid_t zygote, struct cb_err *err)
{
	int r = 0;

	(void)prctl(PR_SET_NAME, "cellblock-keep", 0, 0, 0);
	r = leave_root(&z->jail, err);
	if (r == 0)
		r = cb_step_caps(&z->jail, err);
	if (r == 0)
		r = cb_seccomp_load(&z->filter, err);
	/* its place is the zygote's, its uid both's */
	if (r == 0)
		r = cb_fd_close_range(0, CB_ZYGOTE_FD_UID - 1, 0);
	if (r == 0)
		keep(zygote, z->watch);
	write_why(z->watch, err->step, err->text);
	_exit(1);
}

static void become_jail(struct zygote *z, struct cb_err *err)
{
	pid_t pid;

	if (leave_host(z, err) < 0)
		return;
	pid = fork();
	if (pid > 0)
		_exit(0);
	pid = pid == 0 ? fork() : pid;
	if (pid > 0)
		become_keeper(z, pid, err);
	if (pid < 0) {
		cb_err_set(err, -errno, CB_WARM_STEP, NULL, "its processes: %s", strerror(errno));
		return;
	}
	/* as a guest's: where memory is short it goes before those that started it; a hardened host may refuse it */
	(void)cb_ids_write(0, "oom_score_adj", "1000");
	if (build(z, err) == 0)
		start_program(z, err);
}

static void become_zygote(const struct cb_jail *jail)
{
	static struct zygote z = { .folder = -1, .lock = -1, .listener = -1, .watch = -1 };
	struct cb_err err = { 0 };
	int r = cb_warm_key(jail, z.key);

	(void)prctl(PR_SET_NAME, "cellblock-warm", 0, 0, 0);
	z.jail = *jail;
	z.jail.spec = &z.spec;
	z.jail.mount_fds = NULL;
	z.jail.uid_lock = -1;
	z.jail.note[0] = '\0';
	if (r == 0)
		r = cb_warm_spec(jail->spec, &z.spec);
	if (r < 0)
		cb_err_set(&err, r, CB_WARM_STEP, NULL, "its description: %s", strerror(-r));
	if (r == 0)
		r = take_place(&z, jail->spec->warm_folder, &err);
	if (r == 0)
		r = cb_seccomp_compile_outer(false, &z.filter, &err);
	if (r == 0 && z.jail.from_root)
		r = cb_uid_lease(&z.jail.host_uid, &z.jail.uid_lock, &err);
	if (r == 0)
		r = keep_fds(&z, &err);
	if (r == 0)
		become_jail(&z, &err);
	if (z.lock >= 0)
		write_why(z.lock, err.step, err.text);
	else
		log_why(&err);
}

static void tell_no_process(void)
{
	cb_log(CB_LOG_WARNING, "no zygote: its process can't be made: %s", strerror(errno));
}

void cb_warm_start(const struct cb_jail *jail)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)setsid();
		pid = fork();
		if (pid == 0)
			become_zygote(jail);
		if (pid < 0)
			tell_no_process();
		_exit(0);
	}
	if (pid < 0)
		tell_no_process();
	(void)cb_reap(pid, NULL);
}
