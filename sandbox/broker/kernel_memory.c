/* What a jail makes the kernel hold, where no control group counts it: sockets, pipes, descriptors, mappings, locks.
 *
 * Trust domain: broker, outside. All figures are the kernel's own, but their number and kind are the jail's to choose:
 * so nothing here may take long, and what could not be looked at counts with the most that it can be. Sockets are asked
 * for by sock_diag, through a socket that pid 1 made in the jail's network namespace before it gave up its rights: that
 * also shows those which no process has a descriptor of (not yet accepted, closed with unsent data, sent to another).
 * With the host's network only those of the jail's descriptors are the jail's. A pipe with anything in it counts whole:
 * one byte can hold a page. An open file of /proc counts with the longest text about a descriptor that any look has
 * seen: whoever has read that may have closed the descriptor. Locks are asked for file by file: /proc/locks stops all
 * locking on the machine while it is read, and takes the longer the more there are, of whomever.
 */
#include "kernel_memory.h"

#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OBJECT_BYTES 1024     /* an open file with its inode, about */
#define ITEM_BYTES 256	      /* a mapping, a lock, what an epoll watches; about */
#define MAPPINGS_MAX 65530    /* of a process: vm.max_map_count */
#define MAPPINGS_FEW 2000     /* as many are not worth a look at who shares them */
#define SHARER_BYTES 64	      /* what a mapping has for each process that it came from by fork; about */
#define PIPE_MOST (1u << 20)  /* what one without rights may hold */
#define SOCKET_MOST (1u << 20) /* both ways, as net.core.rmem_max and wmem_max usually are */
#define SENT_MOST (1u << 19)   /* of them one way */
#define DATAGRAMS_MOST 11     /* that wait in a UNIX socket: net.unix.max_dgram_qlen and one */
#define FLIGHT_OWN 64	      /* descriptors on their way: with fewer it is not who keeps others from passing any */
#define UNSEEN_LOOKS 3
#define EXEC_MS 5000 /* from a process's making until it runs its program, on a busy machine */
#define PAGE 4096
#define SEEN_MAX (1u << 15)   /* places; a power of two */

static const struct timespec moment = { 0, 5000000 }; /* between looks at what may be different a moment later */

/* Inodes of pipes and sockets: one can have many descriptors. */
struct seen {
	uint64_t inode[SEEN_MAX]; /* 0 = free */
	size_t count;
};

/* Whether it is new; when there is no more room all are. */
static bool add(struct seen *s, uint64_t inode)
{
	size_t at = (size_t)(inode * 0x9e3779b97f4a7c15u >> 40) % SEEN_MAX;

	if (s->count >= SEEN_MAX / 2)
		return true;
	for (; s->inode[at] != 0; at = (at + 1) % SEEN_MAX)
		if (s->inode[at] == inode)
			return false;
	s->inode[at] = inode;
	s->count++;
	return true;
}

static bool has(const struct seen *s, uint64_t inode)
{
	size_t at = (size_t)(inode * 0x9e3779b97f4a7c15u >> 40) % SEEN_MAX;

	for (; s->inode[at] != 0; at = (at + 1) % SEEN_MAX)
		if (s->inode[at] == inode)
			return true;
	return false;
}

/* ---- descriptors ---- */

/* False if this descriptor does not tell. */
static bool pipe_holds(int pidfd, int number, uint64_t *ret_bytes)
{
	CB_AUTO_FD fd = pidfd >= 0 ? (int)syscall(SYS_pidfd_getfd, pidfd, number, 0) : -1;
	int bytes = 0, size;

	*ret_bytes = PIPE_MOST;
	if (fd < 0) /* closed meanwhile, or a host that does not let us: then it counts */
		return pidfd < 0 || (errno != EBADF && errno != ESRCH);
	size = fcntl(fd, F_GETPIPE_SZ);
	if (size < 0 || ioctl(fd, FIONREAD, &bytes) < 0)
		return false; /* the number is another file's by now, or the pipe was not opened (O_PATH) */
	*ret_bytes = bytes > 0 ? (uint64_t)size : 0;
	return true;
}

/* For a thread of a process whose first one has ended there is none before Linux 6.9 (pidfd_open(2), PIDFD_THREAD). */
static int open_pidfd(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd >= 0 || errno == ESRCH ? fd : (int)syscall(SYS_pidfd_open, pid, O_EXCL);
}

/* As many more as there can be mappings, if there is no time to read on. */
static uint64_t count_lines(int folder, const char *name, const char *begin, const struct cb_kernel_look *look,
			    uint64_t *ret_bytes)
{
	CB_AUTO_FD fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
	char text[32768];
	uint64_t lines = 0;
	ssize_t n;

	*ret_bytes = 0;
	while (fd >= 0 && (n = read(fd, text, sizeof(text) - 1)) > 0) {
		if (look->is_late(look->end))
			return lines + MAPPINGS_MAX;
		text[n] = '\0';
		*ret_bytes += (uint64_t)n;
		for (const char *at = text; (at = strstr(at, begin)) != NULL; at++)
			lines++;
	}
	return lines;
}

struct sums {
	struct seen pipes, sockets, asked; /* those sockets that were asked themselves what they hold */
	uint64_t bytes, socket_fds, texts;
	int pauses;
};

static void add_pipe(struct sums *sums, int pidfd, int number, uint64_t inode)
{
	uint64_t bytes;

	if (!has(&sums->pipes, inode) && pipe_holds(pidfd, number, &bytes)) {
		(void)add(&sums->pipes, inode);
		sums->bytes += bytes;
	}
}

static uint64_t held(const uint32_t v[SK_MEMINFO_VARS])
{
	uint32_t queued = v[SK_MEMINFO_WMEM_QUEUED], sent = v[SK_MEMINFO_WMEM_ALLOC];

	return (uint64_t)v[SK_MEMINFO_RMEM_ALLOC] + v[SK_MEMINFO_FWD_ALLOC] + v[SK_MEMINFO_BACKLOG] +
	       v[SK_MEMINFO_OPTMEM] + (queued > sent ? queued : sent);
}

/* False if this descriptor does not tell, or is of another socket by now, or of a kind that is always listed. */
static bool socket_holds(int pidfd, int number, uint64_t inode, uint64_t *ret_bytes)
{
	CB_AUTO_FD fd = pidfd >= 0 ? (int)syscall(SYS_pidfd_getfd, pidfd, number, 0) : -1;
	uint32_t v[SK_MEMINFO_VARS] = { 0 };
	socklen_t family_size = sizeof(int), size = sizeof(v);
	int family = AF_UNSPEC;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_ino != inode ||
	    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &family_size) < 0 ||
	    (family != AF_INET && family != AF_INET6) || getsockopt(fd, SOL_SOCKET, SO_MEMINFO, v, &size) < 0)
		return false;
	*ret_bytes = OBJECT_BYTES + held(v);
	return true;
}

/* After a reset TCP's are in no list, and keep what came before it. */
static void add_socket(struct sums *sums, int pidfd, int number, uint64_t inode)
{
	uint64_t bytes;

	if (!add(&sums->sockets, inode))
		return;
	sums->socket_fds++;
	if (socket_holds(pidfd, number, inode, &bytes) && add(&sums->asked, inode))
		sums->bytes += bytes;
}

static void add_items(struct sums *sums, const struct cb_kernel_look *look, int fds, int number, const char *begin)
{
	char path[64];
	uint64_t bytes;

	snprintf(path, sizeof(path), "../fdinfo/%d", number);
	sums->bytes += count_lines(fds, path, begin, look, &bytes) * ITEM_BYTES;
	if (bytes > *look->longest)
		*look->longest = bytes;
}

/* A pipe may have a name. A file system that has to ask somebody is not to. */
static bool is_pipe(int fds, const char *name, uint64_t *ret_inode)
{
	struct statx st;

	if (statx(fds, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO, &st) < 0 ||
	    !S_ISFIFO(st.stx_mode))
		return false;
	*ret_inode = st.stx_ino ^ (uint64_t)st.stx_dev_major << 52 ^ (uint64_t)st.stx_dev_minor << 32;
	return true;
}

static void add_descriptor(struct sums *sums, const struct cb_kernel_look *look, int fds, int pidfd, const char *name)
{
	char kind[64];
	ssize_t n = readlinkat(fds, name, kind, sizeof(kind) - 1);
	int number = (int)strtol(name, NULL, 10);
	uint64_t inode;

	sums->bytes += OBJECT_BYTES;
	kind[n > 0 ? n : 0] = '\0';
	if (strncmp(kind, "pipe:[", 6) == 0) {
		add_pipe(sums, pidfd, number, strtoull(kind + 6, NULL, 10));
	} else if (strncmp(kind, "socket:[", 8) == 0) {
		add_socket(sums, pidfd, number, strtoull(kind + 8, NULL, 10));
	} else if (strcmp(kind, "anon_inode:[eventpoll]") == 0) {
		add_items(sums, look, fds, number, "\ntfd:");
	} else if (kind[0] == '/' || kind[0] == '(') { /* "(unreachable)/…" */
		sums->texts += strncmp(kind, "/proc/", 6) == 0;
		if (is_pipe(fds, name, &inode))
			add_pipe(sums, pidfd, number, inode);
		add_items(sums, look, fds, number, "\nlock:");
	}
}

/* Helpers are ours as long as nobody can read them (jobs/job.c), and alone are of pid 1's session. */
static bool is_helper(pid_t pid1, pid_t pid)
{
	pid_t session = getsid(pid1);

	return session > 0 && getsid(pid) == session;
}

/* False if it has ended. */
static bool is_young(pid_t pid, struct cb_proc_stat *ret)
{
	struct timespec now;

	if (cb_proc_stat_of(pid, ret) < 0)
		return false;
	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000 - (int64_t)(ret->start * 1000 / (uint64_t)sysconf(_SC_CLK_TCK)) < EXEC_MS;
}

/* What pid 1 and helpers start is as hidden as they are until it runs its program, and has a session of its own
 * already. A helper starts its command at once: what is young only because a command can make its children the helper's
 * (CLONE_PARENT) is not spared for long. *ret_runs: it is a program by now, and if it is still hidden a moment later
 * nobody may read that. A thread is none of these, though it looks forked. */
static bool is_about_to_run(const struct cb_kernel_look *look, pid_t pid, bool *ret_runs)
{
	struct cb_proc_stat stat, above;

	if (!is_young(pid, &stat))
		return false;
	*ret_runs = !stat.forked || stat.threads > 1;
	return pid == look->guest ||
	       (stat.parent != look->pid[0] && is_helper(look->pid[0], stat.parent) && is_young(stat.parent, &above));
}

static bool has_ended(pid_t pid)
{
	return kill(pid, 0) < 0 && errno == ESRCH;
}

/* Null, and whether it hides them; who has ended meanwhile hides nothing. However many may run their programs only now,
 * a look pauses for all of them as often as for one: nobody else is looked after meanwhile. */
static DIR *open_descriptors(const struct cb_kernel_look *look, pid_t pid, int *pauses, bool *ret_hidden)
{
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	for (;;) {
		bool runs = false;

		dir = cb_folder_open(AT_FDCWD, path, 0);
		*ret_hidden = dir == NULL && errno != ENOENT && errno != ESRCH && !is_helper(look->pid[0], pid);
		if (!*ret_hidden || !is_about_to_run(look, pid, &runs))
			break;
		if (!runs)
			*ret_hidden = false;
		if (!runs || *pauses >= UNSEEN_LOOKS - 1)
			break;
		(*pauses)++;
		(void)nanosleep(&moment, NULL);
	}
	*ret_hidden = *ret_hidden && !has_ended(pid);
	return dir;
}

/* How many descriptors it has room for, which is shown of all. */
static uint64_t room_for_files(const struct cb_kernel_look *look, pid_t pid)
{
	char text[4096];
	uint64_t room;

	(void)cb_proc_status_of(pid, text, sizeof(text));
	room = cb_proc_number(text, "\nFDSize:", 10, UINT64_MAX);
	return room < look->open_files ? room : look->open_files;
}

/* The most that a process can hold whose files are not shown: the program that it runs can't be read (proc(5), on
 * "dumpable"). */
static uint64_t hidden(const struct cb_kernel_look *look, pid_t pid)
{
	uint64_t room = room_for_files(look, pid);

	if (has_ended(pid))
		return 0;
	return room * (OBJECT_BYTES + PIPE_MOST) + (uint64_t)MAPPINGS_MAX * ITEM_BYTES;
}

/* Of one process: at most what it may have, if there is no time. */
static void add_process(struct sums *sums, const struct cb_kernel_look *look, pid_t pid)
{
	char path[64];
	const struct dirent *entry;
	uint64_t mappings, unused;
	bool is_hidden;

	if (look->is_late(look->end)) {
		sums->bytes += look->open_files * OBJECT_BYTES + (uint64_t)MAPPINGS_MAX * ITEM_BYTES;
		sums->texts += room_for_files(look, pid);
		return;
	}
	CB_AUTO_FOLDER dir = open_descriptors(look, pid, &sums->pauses, &is_hidden);
	CB_AUTO_FD pidfd = open_pidfd(pid);

	if (is_hidden)
		sums->bytes += hidden(look, pid);
	while ((entry = cb_folder_next(dir)) != NULL) {
		if (look->is_late(look->end)) { /* it is the dearest that it can be */
			sums->bytes += OBJECT_BYTES + PIPE_MOST;
			sums->texts++;
		} else {
			add_descriptor(sums, look, dirfd(dir), pidfd, entry->d_name);
		}
	}
	if (errno != 0)
		sums->bytes += hidden(look, pid);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	mappings = count_lines(AT_FDCWD, path, "\n", look, &unused);
	sums->bytes += mappings * ITEM_BYTES;
	if (mappings > MAPPINGS_FEW)
		sums->bytes += (mappings - MAPPINGS_FEW) * look->count * SHARER_BYTES;
}

/* ---- sockets ---- */

static const struct rtattr *attribute(const struct nlmsghdr *m, size_t head, unsigned short type)
{
	const struct rtattr *a = (const struct rtattr *)((const char *)NLMSG_DATA(m) + NLMSG_ALIGN(head));
	size_t left = m->nlmsg_len > NLMSG_SPACE(head) ? m->nlmsg_len - NLMSG_SPACE(head) : 0;

	while (left >= sizeof(*a) && a->rta_len >= sizeof(*a) && a->rta_len <= left) {
		size_t step = RTA_ALIGN(a->rta_len);

		if (a->rta_type == type)
			return a;
		if (step >= left)
			break;
		left -= step;
		a = (const struct rtattr *)((const char *)a + step);
	}
	return NULL;
}

static bool figures(const struct nlmsghdr *m, size_t head, unsigned short type, uint32_t ret[SK_MEMINFO_VARS])
{
	const struct rtattr *a = attribute(m, head, type);
	size_t n = a != NULL ? (size_t)RTA_PAYLOAD(a) : 0;

	memset(ret, 0, SK_MEMINFO_VARS * sizeof(*ret));
	if (n > SK_MEMINFO_VARS * sizeof(*ret))
		n = SK_MEMINFO_VARS * sizeof(*ret);
	if (a != NULL)
		memcpy(ret, RTA_DATA(a), n);
	return a != NULL;
}

/* What is listed, and what comes of it. */
struct listing {
	const struct seen *only; /* NULL = all */
	const struct seen *asked; /* for Internet's: they have counted */
	struct seen *alive;	 /* UNIX sockets, found in a first pass */
	ino_t registry;
	uint64_t bytes;
};

static void note_unix(struct listing *l, const struct nlmsghdr *m)
{
	const struct unix_diag_msg *msg = NLMSG_DATA(m);

	if (msg->udiag_ino != 0)
		(void)add(l->alive, msg->udiag_ino);
}

static uint32_t waits_in(const struct nlmsghdr *m)
{
	const struct rtattr *queue = attribute(m, sizeof(struct unix_diag_msg), UNIX_DIAG_RQLEN);
	struct unix_diag_rqlen waits = { 0 };

	if (queue != NULL && (size_t)RTA_PAYLOAD(queue) >= sizeof(waits))
		memcpy(&waits, RTA_DATA(queue), sizeof(waits));
	return ((const struct unix_diag_msg *)NLMSG_DATA(m))->udiag_state != TCP_LISTEN ? waits.udiag_rqueue : 0;
}

/* What waits counts for its sender. Where that one is gone only the receiver shows it, by the length of the text, and
 * of datagrams, which may come from many, by that of the first. */
static void add_unix(struct listing *l, const struct nlmsghdr *m)
{
	const struct unix_diag_msg *msg = NLMSG_DATA(m);
	const struct rtattr *peer = attribute(m, sizeof(*msg), UNIX_DIAG_PEER);
	uint32_t v[SK_MEMINFO_VARS], sender = 0;
	bool shown = figures(m, sizeof(*msg), UNIX_DIAG_MEMINFO, v);

	if (l->only != NULL && !has(l->only, msg->udiag_ino))
		return;
	if (peer != NULL && (size_t)RTA_PAYLOAD(peer) >= sizeof(sender))
		memcpy(&sender, RTA_DATA(peer), sizeof(sender));
	l->bytes += OBJECT_BYTES;
	l->bytes += shown ? (uint64_t)v[SK_MEMINFO_WMEM_ALLOC] + v[SK_MEMINFO_RMEM_ALLOC] : SOCKET_MOST;
	if (waits_in(m) == 0)
		return;
	if (msg->udiag_type == SOCK_DGRAM)
		l->bytes += DATAGRAMS_MOST * SENT_MOST;
	else if (!has(l->alive, sender))
		l->bytes += SENT_MOST;
}

static void add_inet(struct listing *l, const struct nlmsghdr *m)
{
	const struct inet_diag_msg *msg = NLMSG_DATA(m);
	uint32_t v[SK_MEMINFO_VARS];

	if ((l->only != NULL && !has(l->only, msg->idiag_inode)) || has(l->asked, msg->idiag_inode))
		return;
	l->bytes += OBJECT_BYTES;
	l->bytes += figures(m, sizeof(*msg), INET_DIAG_SKMEMINFO, v) ? held(v) : SOCKET_MOST;
}

struct request {
	struct nlmsghdr head;
	union {
		struct inet_diag_req_v2 inet;
		struct unix_diag_req local;
	};
};

/* Goes through what the kernel lists. It makes a part of the list at each read, so none has to be waited for. */
static int list(int fd, struct request *r, size_t len, void (*take)(struct listing *l, const struct nlmsghdr *m),
		struct listing *l)
{
	static char text[65536] __attribute__((aligned(8)));
	static uint32_t last;
	ssize_t n;

	r->head = (struct nlmsghdr){ .nlmsg_len = (uint32_t)NLMSG_LENGTH(len),
				     .nlmsg_type = SOCK_DIAG_BY_FAMILY,
				     .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
				     .nlmsg_seq = ++last };
	if (send(fd, r, r->head.nlmsg_len, MSG_DONTWAIT) < 0)
		return -errno;
	while ((n = recv(fd, text, sizeof(text), MSG_DONTWAIT)) > 0) {
		size_t left = (size_t)n;

		for (const struct nlmsghdr *m = (const void *)text; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
			if (m->nlmsg_seq != last)
				continue;
			if (m->nlmsg_type == NLMSG_DONE)
				return 0;
			if (m->nlmsg_type == NLMSG_ERROR)
				return ((const struct nlmsgerr *)NLMSG_DATA(m))->error;
			take(l, m);
		}
	}
	return n < 0 ? -errno : -EBADMSG;
}

/* A file of the jail's network, as pid 1 sees it. */
static FILE *open_of_network(const struct cb_kernel_look *look, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)look->pid[0], name);
	return fopen(path, "re");
}

static const struct {
	uint8_t family, protocol;
	const char *file, *in_use; /* NULL: it is listed in any case, which costs less than to ask */
} inet_kinds[] = {
	{ AF_INET, IPPROTO_TCP, "sockstat", "TCP: inuse " },
	{ AF_INET, IPPROTO_UDP, NULL, NULL },
	{ AF_INET6, IPPROTO_TCP, "sockstat6", "TCP6: inuse " },
	{ AF_INET6, IPPROTO_UDP, NULL, NULL },
};

/* To list TCP's the kernel goes through a table of the whole machine's, which is large where nobody uses it, too: most
 * jails have none, and the kernel knows how many. */
static bool has_none(const struct cb_kernel_look *look, size_t kind)
{
	FILE *file = open_of_network(look, inet_kinds[kind].file);
	size_t len = strlen(inet_kinds[kind].in_use);
	bool none = false;
	char line[256];
	unsigned n;

	while (file != NULL && !none && fgets(line, sizeof(line), file) != NULL)
		none = strncmp(line, inet_kinds[kind].in_use, len) == 0 && sscanf(line + len, "%u", &n) == 1 && n == 0;
	if (file != NULL)
		(void)fclose(file);
	return none;
}

static int list_all(const struct cb_kernel_look *look, struct listing *l)
{
	int fd = look->sockets;
	struct request r = { .local = { .sdiag_family = AF_UNIX,
					.udiag_states = ~0u,
					.udiag_show = UDIAG_SHOW_MEMINFO | UDIAG_SHOW_RQLEN | UDIAG_SHOW_PEER } };
	int code = list(fd, &r, sizeof(r.local), note_unix, l);

	if (code == 0)
		code = list(fd, &r, sizeof(r.local), add_unix, l);
	for (size_t i = 0; i < CB_COUNT(inet_kinds) && code == 0; i++) {
		if (inet_kinds[i].file != NULL && has_none(look, i))
			continue;
		r.inet = (struct inet_diag_req_v2){ .sdiag_family = inet_kinds[i].family,
						    .sdiag_protocol = inet_kinds[i].protocol,
						    .idiag_ext = 1u << (INET_DIAG_SKMEMINFO - 1),
						    .idiag_states = ~(1u << TCP_TIME_WAIT) };
		code = list(fd, &r, sizeof(r.inet), add_inet, l);
	}
	return code;
}

/* The queues of netlink sockets, for which a control group does not count either. "sk Eth Pid Groups Rmem Wmem Dump
 * Locks Drops Inode". False: not all were seen. */
static bool add_netlink(struct listing *l, const struct cb_kernel_look *look)
{
	FILE *file = open_of_network(look, "netlink");
	uint64_t received, sent, inode;
	bool all = file != NULL;
	char line[256];

	while (all && fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "%*s %*d %*u %*x %" SCNu64 " %" SCNu64 " %*s %*u %*u %" SCNu64, &received, &sent,
			   &inode) == 3 &&
		    (l->only == NULL || has(l->only, inode)))
			l->bytes += received + sent;
		all = !look->is_late(look->end);
	}
	if (file != NULL)
		(void)fclose(file);
	return all;
}

/* How many descriptors wait in a socket that is new to `seen`. */
static uint64_t waiting_in(int fds, const char *name, struct seen *seen)
{
	char kind[64] = "", path[64], text[1024];

	if (readlinkat(fds, name, kind, sizeof(kind) - 1) < 0 || strncmp(kind, "socket:[", 8) != 0 ||
	    !add(seen, strtoull(kind + 8, NULL, 10)))
		return 0;
	snprintf(path, sizeof(path), "../fdinfo/%d", (int)strtol(name, NULL, 10));
	(void)cb_proc_text(fds, path, text, sizeof(text));
	return cb_proc_number(text, "\nscm_fds:", 10, 0);
}

/* No descriptor shows it: it is on its way itself, or a call alone holds it. What waits in it may have no length. */
static void find_unseen(struct listing *l, const struct nlmsghdr *m)
{
	const struct unix_diag_msg *msg = NLMSG_DATA(m);

	if (!has(l->only, msg->udiag_ino) && (msg->udiag_ino != l->registry || waits_in(m) > 0))
		l->bytes++;
}

static bool has_unseen(const struct cb_kernel_look *look, const struct seen *seen)
{
	struct request r = { .local = { .sdiag_family = AF_UNIX,
					.udiag_states = ~0u,
					.udiag_show = UDIAG_SHOW_RQLEN } };
	struct listing l = { .only = seen, .registry = look->registry };

	return look->own_network && look->sockets >= 0 &&
	       (list(look->sockets, &r, sizeof(r.local), find_unseen, &l) < 0 || l.bytes > 0);
}

enum cb_kernel_flight cb_kernel_in_flight(const struct cb_kernel_look *look)
{
	static struct seen seen; /* large: not for the stack */
	uint64_t waiting = 0;
	bool unseen = false;
	int pauses = 0;

	memset(&seen, 0, sizeof(seen));
	for (size_t i = 1; i < look->count; i++) { /* pid 1 is ours */
		const struct dirent *entry;
		bool is_hidden;
		CB_AUTO_FOLDER dir = open_descriptors(look, look->pid[i], &pauses, &is_hidden);

		while (waiting < FLIGHT_OWN && !look->is_late(look->end) && (entry = cb_folder_next(dir)) != NULL)
			waiting += waiting_in(dirfd(dir), entry->d_name, &seen);
		if (waiting >= FLIGHT_OWN)
			return CB_FLIGHT_MANY;
		if (look->is_late(look->end)) /* as many as it likes may be in what is left */
			return CB_FLIGHT_UNSEEN;
		/* it may be the one; or it begins its program, which takes a busy machine long, or ends */
		unseen |= is_hidden || (errno != 0 && !has_ended(look->pid[i]));
	}
	return unseen || has_unseen(look, &seen) ? CB_FLIGHT_UNSEEN : CB_FLIGHT_FEW;
}

/* An open file of /proc keeps its text, and room to grow: how much is not shown, only what it can be. */
static uint64_t held_text(const struct cb_kernel_look *look)
{
	return *look->longest > PAGE / 2 ? *look->longest * 2 : PAGE;
}

uint64_t cb_kernel_memory(const struct cb_kernel_look *look)
{
	static struct sums sums; /* large: not for the stack */
	static struct seen alive;
	struct listing l = { .only = look->own_network ? NULL : &sums.sockets,
			     .alive = &alive,
			     .asked = &sums.asked };

	memset(&sums, 0, sizeof(sums));
	memset(&alive, 0, sizeof(alive));
	for (size_t i = 1; i < look->count; i++) /* pid 1 is ours */
		add_process(&sums, look, look->pid[i]);
	if (look->sockets < 0 || (l.only != NULL && sums.sockets.count >= SEEN_MAX / 2) ||
	    list_all(look, &l) < 0 || !add_netlink(&l, look))
		l.bytes = sums.socket_fds * SOCKET_MOST;
	return sums.bytes + sums.texts * held_text(look) + l.bytes;
}
