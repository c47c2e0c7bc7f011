/* The conversation with a zygote, and the look at the guest that came of it: see warm.h.
 *
 * Trust domain: broker. A zygote runs an interpreter and libraries of its user's, behind walls but before those of a
 * guest. So nothing that it says is believed: which process the guest is the kernel says, and that it stands behind all
 * walls, in this jail's namespaces and no others, is read from /proc before it may go on.
 *
 * Invariants: each wait has an end; a packet that is none ends the conversation; the connection is the broker's alone
 * when the guest has been let go on.
 */
#include "warm.h"

#include "../notifier/notifier.h"
#include "../shared/ids.h"
#include "../walls/seccomp.h"

#include <cellblock/buffer.h>
#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_MS 3000 /* many kernels may start at once, and are served one after the other */
#define STATUS_MAX 8192
#define REQUEST_MAX (128u << 10) /* one packet: what a socket takes */

void cb_warm_close(struct cb_warm *warm)
{
	cb_fd_close(&warm->connection);
	cb_fd_close(&warm->userns);
	cb_fd_close(&warm->pidns);
	for (int i = 0; i < CB_WARM_NFDS; i++)
		cb_fd_close(&warm->offered[i]);
}

static int failed(struct cb_err *err, int code, const char *what)
{
	return cb_err_set(err, code, CB_WARM_STEP, NULL, "%s: %s", what, cb_err_name(code));
}

/* ---- before there is a jail ---- */

int cb_warm_connect(int folder, const char *key, int *ret_fd)
{
	const struct sockaddr_un address = cb_warm_address(folder, key);
	CB_AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
	    connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

int cb_warm_last_use(int folder, const char *key, struct timespec *ret)
{
	char name[CB_WARM_LOCK_NAME];
	struct stat st;

	cb_warm_lock_name(key, name);
	if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	*ret = st.st_mtim;
	return 0;
}

/* Whether our namespace of that kind is `levels` above this one, neither more nor fewer. */
static bool is_below_ours(int fd, const char *name, unsigned levels)
{
	CB_AUTO_FD above = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	struct stat its, ours;
	char path[64];

	while (above >= 0 && levels-- > 0) {
		int next = ioctl(above, NS_GET_PARENT);

		cb_fd_close(&above);
		above = next;
	}
	snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	return above >= 0 && fstat(above, &its) == 0 && stat(path, &ours) == 0 && its.st_dev == ours.st_dev &&
	       its.st_ino == ours.st_ino;
}

/* As root each zygote has a uid that is nobody else's, and it is in our user namespace; else it is our own, two user
 * namespaces below ours, and one process namespace. No cell is so, which may have been shown the folder and pose as
 * one: as root each is in a user namespace of its own, else it is one below ours of both, or three and two in a warm
 * jail. */
static int know(const struct cb_jail *jail, struct cb_warm *warm)
{
	CB_AUTO_FD proc = -1;
	CB_AUTO_FD pids = -1;
	CB_AUTO_FD user = -1;
	struct ucred peer;
	socklen_t size = sizeof(peer);
	char path[64];

	if (getsockopt(warm->connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return -errno;
	if (peer.pid <= 0 || (jail->from_root ? peer.uid == 0 : peer.uid != geteuid()))
		return -EPERM;
	snprintf(path, sizeof(path), "/proc/%d", (int)peer.pid);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	pids = proc >= 0 ? openat(proc, "ns/pid", O_RDONLY | O_CLOEXEC) : -1;
	user = proc >= 0 ? openat(proc, "ns/user", O_RDONLY | O_CLOEXEC) : -1;
	if (!is_below_ours(pids, "pid", 1) || !is_below_ours(user, "user", jail->from_root ? 0 : CB_ZYGOTE_USERNS))
		return -EPERM;
	warm->pid = peer.pid;
	warm->uid = peer.uid;
	warm->pidns = cb_fd_take(&pids);
	if (!jail->from_root)
		warm->userns = cb_fd_take(&user);
	return 0;
}

/* What the preloaded modules have taken counts in each copy from its start: a cell would have the rest of the limit,
 * and in a cold kernel has all of it. */
static bool leaves_room(const struct cb_jail *jail, pid_t zygote)
{
	uint64_t limit = jail->spec->limit_data, taken;
	char status[STATUS_MAX];

	if (limit == 0 || jail->spec->warm_preload.count == 0)
		return true;
	(void)cb_proc_status_of(zygote, status, sizeof(status));
	taken = cb_proc_bytes(status, "\nVmData:");
	if (taken <= limit / 2)
		return true;
	cb_log(CB_LOG_WARNING,
	       "a cold start: with warm.preload a kernel would begin with %llu MB of memory reserved, more than half "
	       "of limits.memory (%llu MB)",
	       (unsigned long long)(taken >> 20), (unsigned long long)(limit >> 20));
	return false;
}

/* That there is none is no news, and why there can be none is told by who would start one (zygote.c). */
static int told(int r, const char *why)
{
	if (r < 0 && r != -ENOENT && r != -ECONNREFUSED)
		cb_log(CB_LOG_WARNING, "a cold start: %s: %s", why, cb_err_text(r));
	return r;
}

int cb_warm_find(const struct cb_jail *jail, struct cb_warm *ret_warm)
{
	struct cb_warm warm = CB_WARM_NONE;
	char key[CB_WARM_KEY_LEN + 1];
	CB_AUTO_FD folder = -1;
	/* what was installed in the session it has not loaded */
	int r = jail->upper_fd[CB_UPPER_PACKAGES] < 0 ? cb_warm_key(jail, key) : -ENOENT;

	if (r == 0)
		r = cb_warm_folder_open(jail->spec->warm_folder, false, &folder, NULL);
	if (r == 0) {
		r = cb_warm_connect(folder, key, &warm.connection);
		(void)told(r, r == -EAGAIN ? "too many kernels wait for the zygote" : "the zygote's socket");
	}
	if (r == 0)
		r = told(cb_warm_last_use(folder, key, &warm.last_use), "the zygote's lock");
	if (r == 0)
		r = told(know(jail, &warm), "who listens at the zygote's socket is none, or has just ended");
	if (r == 0 && !leaves_room(jail, warm.pid))
		r = -ENOMEM;
	if (r < 0) {
		cb_warm_close(&warm);
		return r;
	}
	*ret_warm = warm;
	return 0;
}

/* A process that is in the parent of a user namespace, with its owner's uid, has all rights in it: so the zygote has to
 * be that for the jails that it is to enter. It can enter no process namespace that does not lie below its own. What
 * root can do it goes on to be able to do. */
int cb_warm_become_owner(const struct cb_warm *warm, struct cb_err *err)
{
	if (warm->userns >= 0 && setns(warm->userns, CLONE_NEWUSER) < 0)
		return failed(err, -errno, "the zygote's user namespace");
	if (setns(warm->pidns, CLONE_NEWPID) < 0)
		return failed(err, -errno, "the zygote's process namespace");
	if (warm->userns >= 0)
		return 0;
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0 ||
	    cb_become_effective(warm->uid) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return failed(err, -errno, "the zygote's uid");
	return 0;
}

/* ---- the conversation ---- */

static int hear_hello(const struct cb_warm *warm, const struct cb_jail *jail, int64_t end, struct cb_err *err)
{
	struct cb_warm_request over = { .op = CB_WARM_END, .version = CB_WARM_VERSION };
	struct {
		struct cb_warm_hello head;
		char stamp[CB_WARM_STAMP_MAX + 1];
	} *hello = malloc(sizeof(*hello));
	ssize_t n;
	int r;

	if (hello == NULL)
		return failed(err, -ENOMEM, "hello");
	r = cb_fd_await(warm->connection, POLLIN, end);
	n = r == 0 ? cb_fd_recv(warm->connection, hello, sizeof(*hello) - 1, NULL, 0, NULL, 0) : r;
	if (n >= 0 && (n < (ssize_t)sizeof(hello->head) || hello->head.version != CB_WARM_VERSION ||
		       (size_t)n != sizeof(hello->head) + hello->head.stamp_len))
		n = -EBADMSG;
	r = n < 0 ? (int)n : 0;
	if (r == 0) {
		hello->stamp[hello->head.stamp_len] = '\0';
		r = cb_warm_stamp_check(jail->spec, warm->last_use, hello->stamp);
	}
	free(hello);
	if (r == -EXDEV)
		over.op = CB_WARM_OTHER;
	if (r == -ESTALE || r == -EXDEV) /* kernels that came from it live on */
		(void)cb_fd_send(warm->connection, &over, sizeof(over), NULL, 0);
	return r < 0 ? failed(err, r, "hello") : 0;
}

static int put_filters(const struct cb_jail *jail, struct cb_warm_request *head, struct cb_buf *texts,
		       struct cb_err *err)
{
	struct cb_notify_program program;
	int r = cb_notify_compile(jail, &program, err);
	const struct sock_fprog notify = { .len = program.len, .filter = program.insns };
	const struct sock_fprog *all[CB_WARM_FILTERS] = { [CB_WARM_FILTER_NOTIFY] = &notify,
							  [CB_WARM_FILTER_JAIL] = &jail->filter,
							  [CB_WARM_FILTER_LAST] = cb_seccomp_last() };

	if (r < 0)
		return r;
	for (int i = 0; i < CB_WARM_FILTERS && r == 0; i++) {
		head->filter_len[i] = all[i]->len;
		r = cb_buf_append(texts, all[i]->filter, all[i]->len * sizeof(*all[i]->filter));
	}
	return r < 0 ? failed(err, r, "filters") : 0;
}

static int put_texts(const struct cb_jail *jail, struct cb_warm_request *head, struct cb_buf *texts)
{
	const struct cb_strv *env = &jail->spec->env;
	int r = cb_buf_append(texts, jail->spec->cwd, strlen(jail->spec->cwd) + 1);
	size_t before;

	head->cwd_len = (uint32_t)strlen(jail->spec->cwd) + 1;
	before = texts->len;
	for (size_t i = 0; i < env->count && r == 0; i++)
		if (cb_warm_is_late(env->items[i]))
			r = cb_buf_append(texts, env->items[i], strlen(env->items[i]) + 1);
	head->env_len = (uint32_t)(texts->len - before);
	return r;
}

static int send_request(const struct cb_warm *warm, const struct cb_jail *jail, struct cb_err *err)
{
	struct cb_warm_request head = { .op = CB_WARM_SPAWN, .version = CB_WARM_VERSION, .umask = jail->umask };
	CB_AUTO_BUF packet = CB_BUF_INIT(REQUEST_MAX);
	int fds[CB_WARM_NFDS], r;
	size_t n = 0;

	for (int i = 0; i < CB_WARM_NFDS; i++) {
		if (warm->offered[i] < 0)
			continue;
		head.present |= 1u << i;
		fds[n++] = warm->offered[i];
	}
	r = cb_buf_append(&packet, &head, sizeof(head));
	if (r == 0 && put_filters(jail, &head, &packet, err) < 0)
		return err->code;
	if (r == 0)
		r = put_texts(jail, &head, &packet);
	if (r == 0) {
		memcpy(packet.data, &head, sizeof(head));
		r = cb_fd_send(warm->connection, packet.data, packet.len, fds, n);
	}
	return r < 0 ? failed(err, r, "request") : 0;
}

/* The copy answers if all is well, else it or the zygote. */
static int hear_answer(const struct cb_warm *warm, int64_t end, pid_t *ret_guest, int *ret_listener, struct cb_err *err)
{
	static const char *const steps[] = { "request",	 "threads", "control group", "namespaces", "uid",
					     "fork",	 "session", "descriptors",   "capabilities", "keyring",
					     "landlock", "filter",  "parent",	     "revival" };
	struct cb_warm_answer answer;
	CB_AUTO_FD listener = -1;
	pid_t sender = 0;
	int r = cb_fd_await(warm->connection, POLLIN, end);
	ssize_t n = r == 0 ? cb_fd_recv_from(warm->connection, &answer, sizeof(answer), &sender, &listener, 0) : r;

	if (n < 0)
		return failed(err, (int)n, "no answer");
	if (n != (ssize_t)sizeof(answer) || answer.step > CB_WARM_STEP_READY || answer.error > 0 ||
	    (answer.step == CB_WARM_STEP_READY) != (answer.error == 0))
		return failed(err, n == 0 ? -ECHILD : -EBADMSG, "answer");
	if (answer.error < 0)
		return failed(err, answer.error, steps[answer.step]);
	if (sender <= 0 || sender == warm->pid)
		return failed(err, -EBADMSG, "the guest");
	*ret_guest = sender;
	*ret_listener = cb_fd_take(&listener);
	return 0;
}

/* ---- the look ---- */

static bool line_is(const char *status, const char *name, const char *value)
{
	const char *at = strstr(status, name);

	if (at == NULL || (at != status && at[-1] != '\n'))
		return false;
	at += strlen(name);
	at += strspn(at, "\t ");
	return strncmp(at, value, strlen(value)) == 0 && at[strlen(value)] == '\n';
}

/* Which filters lie on it only the zygote knows; that there are as many as there should be the kernel says. */
static bool stands_behind_walls(const char *status, uid_t uid, gid_t gid, unsigned filters)
{
	static const char *const empty[] = { "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:" };
	char ids[64], groups[64];

	snprintf(ids, sizeof(ids), "%u\t%u\t%u\t%u", uid, uid, uid, uid);
	snprintf(groups, sizeof(groups), "%u\t%u\t%u\t%u", gid, gid, gid, gid);
	for (size_t i = 0; i < CB_COUNT(empty); i++)
		if (!line_is(status, empty[i], "0000000000000000"))
			return false;
	return line_is(status, "NoNewPrivs:", "1") && line_is(status, "Seccomp:", "2") &&
	       line_is(status, "Uid:", ids) && line_is(status, "Gid:", groups) &&
	       cb_warm_filters_of(status) >= filters;
}

static bool is_in(int proc, const char *name, int ns)
{
	struct stat its, ours;
	char path[32];

	snprintf(path, sizeof(path), "ns/%s", name);
	errno = 0;
	return fstatat(proc, path, &its, 0) == 0 && fstat(ns, &ours) == 0 && its.st_dev == ours.st_dev &&
	       its.st_ino == ours.st_ino;
}

static int look_at(const struct cb_warm *warm, const struct cb_jail *jail, pid_t guest, struct cb_err *err)
{
	static const char *const spaces[] = CB_WARM_NAMESPACES;
	/* the zygote's own, ours that it was born with, and those of the request */
	unsigned filters = 3 + cb_notify_installed(jail) + (unsigned)cb_warm_own_filters();
	char path[32], status[STATUS_MAX];
	CB_AUTO_FD proc = -1;
	int r;

	snprintf(path, sizeof(path), "/proc/%d", (int)guest);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	r = proc >= 0 ? cb_proc_text(proc, "status", status, sizeof(status)) : -errno;
	if (r < 0)
		return failed(err, r == -ESRCH ? -ECHILD : r, "a look at the guest");
	if (!stands_behind_walls(status, jail->host_uid, jail->from_root ? jail->host_uid : getegid(), filters))
		return failed(err, CB_E_DENIED, "the guest does not stand behind all walls");
	for (size_t i = 0; i < CB_COUNT(spaces); i++) {
		if (is_in(proc, spaces[i], warm->offered[i]))
			continue;
		if (errno == ENOENT || errno == ESRCH)
			return failed(err, -ECHILD, "a look at the guest");
		return failed(err, CB_E_DENIED, "the guest is not in the jail's namespaces");
	}
	return 0;
}

int cb_warm_ask(struct cb_warm *warm, const struct cb_jail *jail, const struct cb_cgroup *group, int pid1fd,
		pid_t *ret_guest, int *ret_listener, struct cb_err *err)
{
	static const struct {
		enum cb_warm_fd to;
		int from;
	} own[] = { { CB_WARM_STDOUT, CB_SPAWN_STDOUT }, { CB_WARM_STDERR, CB_SPAWN_STDERR },
		    { CB_WARM_WIRE, CB_SPAWN_WIRE },	 { CB_WARM_LOG, CB_SPAWN_LOG },
		    { CB_WARM_SIDE, CB_SPAWN_SIDE },	 { CB_WARM_TWIN_CONTROL, CB_SPAWN_TWIN_CONTROL } };
	int64_t end = cb_now_ms() + ANSWER_MS;
	int r = cb_cgroup_join_fds(group, warm->offered + CB_WARM_GROUP);

	for (size_t i = 0; i < CB_COUNT(own) && r == 0; i++) {
		warm->offered[own[i].to] = fcntl(jail->guest_fds[own[i].from], F_DUPFD_CLOEXEC, 0);
		r = warm->offered[own[i].to] < 0 ? -errno : 0;
	}
	if (r == 0) {
		warm->offered[CB_WARM_PID1] = fcntl(pid1fd, F_DUPFD_CLOEXEC, 0);
		r = warm->offered[CB_WARM_PID1] < 0 ? -errno : 0;
	}
	if (r < 0)
		return failed(err, r, "descriptors");
	r = hear_hello(warm, jail, end, err);
	if (r == 0)
		r = send_request(warm, jail, err);
	if (r == 0)
		r = hear_answer(warm, end, ret_guest, ret_listener, err);
	return r == 0 ? look_at(warm, jail, *ret_guest, err) : r;
}

int cb_warm_go_on(struct cb_warm *warm, struct cb_err *err)
{
	int r = cb_fd_send(warm->connection, "", 1, NULL, 0);

	return r < 0 ? failed(err, r, "going on") : 0;
}
