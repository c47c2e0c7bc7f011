/* What is open, in a copy of the process.
 *
 * Trust domain: guest. A copy shares every open file with its original. That may stay so for a regular file (where it
 * stood is noted and put back), and must not for the rest: a waker that one drains is missed in the other, an epoll
 * tells of what the other has open, and a pipe or a socket that the original closes must end for its other side, though
 * a frozen copy has it. So the given socket pairs, and pipes of which both ends are here, are made anew: with the bytes
 * that waited in them if those are few, or for a pipe with as many if the reader does not block (wakers look at no
 * byte's value); eventfds with their count; epolls with what they watch; what has its other side elsewhere, a terminal
 * too, is cut off. A pidfd is one anew of the same process: an epoll of the original's would go on to tell of one that
 * the copy has, too, when that is closed there. A TCP socket that listens does so again at its address when the copy
 * takes over: until then that is the original's, which may give it back. One of the Unix family listens where nobody
 * reaches it, and what took datagrams gets none: cut off they would be ready for ever, and who serves them would run in
 * a circle. A file that is locked is opened anew, or the copy would go on to hold the lock (flock(2)); what is locked
 * later is unlocked when the copy takes over. Two numbers of one file, eventfd, epoll or listening socket stay numbers
 * of one.
 *
 * Files of some workspaces are brought back before a copy is woken, others stay as the original has left them. Where
 * one, or the working folder, had been deleted or replaced, what is back under its name is another file, and what is
 * open here has none any more: then it is opened by its name. Whether it is back its size and time tell, which what
 * the original has put there does not have; a folder has no such time, and is looked for only if it was deleted.
 *
 * Invariants: all is noted while nothing runs, and changed in the copy alone. Every list has a maximum; beyond it there
 * is no copy. Sources: proc_pid_fdinfo(5), epoll_ctl(2), eventfd(2).
 */
#include "copier.h"
#include "parts.h"

#include <cellblock/wire.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/stat.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "sys.h"

#define FIRST (CB_GUEST_FD_SIDE + 1) /* below are ours */
#define BIND_NS 8000000000	     /* for all together; a take-over is given up after 15 s */
#define RUNG_MOST 64		     /* bytes that waited: as many as a waker may have */
#define ASKED 64		     /* epolls, openings of one file: whether another number is of the same one */
#define MARK 64			     /* a signal: see first_of_file() */
#define NAMES_MAX (1 << 20)	     /* bytes of the names of files; for the rest what is open stays open */
#define CWD "/proc/self/cwd"

enum kind { REGULAR, PIPE, SOCKET, LISTENER, PAIRED, EVENT, EPOLL, TERMINAL, PROCESS };

/* Where a file or a folder was, and what it was. */
struct place {
	uint32_t name; /* in `names`; 0 = it has none */
	bool folder;
	int64_t size, sec, nsec; /* the last two: when it was changed */
};

struct open {
	int fd;
	uint8_t kind;
	bool writes;
	int flags; /* of F_GETFL */
	int waiting;
	int other; /* PAIRED: index of its other end; REGULAR, LISTENER, EVENT, EPOLL: of its first number */
	bool anew; /* REGULAR, of the first number: it was opened anew */
	uint64_t dev, ino; /* REGULAR, PIPE, SOCKET; EVENT: its id */
	int64_t value;	   /* REGULAR, which a folder is as well: offset; EVENT: count; PROCESS: its id, 0 = it is
			    * gone; LISTENER, PAIRED: see below */
	struct place place; /* REGULAR */
};

struct listener {
	int domain, type;
	int shares_port, only_v6; /* these and what follows: of TCP alone */
	uint32_t size;
	union {
		struct sockaddr any;
		struct sockaddr_in6 in6;
	} address;
};

struct watched {
	int epoll, fd;
	uint32_t events;
	uint64_t data;
};

static struct open opened[CB_COPIER_FDS_MAX];
static size_t nopened;
static struct watched watched[CB_COPIER_WATCHED_MAX];
static struct listener listeners[CB_COPIER_LISTENERS_MAX]; /* by `value` */
static char bytes[CB_COPIER_PAIRS_MAX][RUNG_MOST];	   /* the same: what waits in an end of a pair */
static size_t nwatched, nsockets, nlisteners;
static char names[NAMES_MAX];
static size_t nnames;
static struct place cwd;
/* Device and inode of stdout and stderr, of the process that notes: a cell may put others in their places. */
static uint64_t streams[2][2];
static int streams_of; /* which that is */

/* ---- where files are ---- */

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

/* `link` is one of /proc, to what has this status. */
static struct place note_place(const char *link, const struct stat *s)
{
	size_t room = sizeof(names) - nnames;
	char *name = names + nnames;
	struct stat there;
	long n = room > 1 ? cb_sys4(SYS_readlinkat, AT_FDCWD, link, name, room - 1) : 0;

	if (n <= 0 || (size_t)n >= room - 1)
		return (struct place){ 0 };
	name[n] = '\0';
	if (cb_sys4(SYS_newfstatat, AT_FDCWD, name, &there, AT_SYMLINK_NOFOLLOW) < 0 || !is_same(s, &there))
		return (struct place){ 0 };
	nnames += (size_t)n + 1;
	return (struct place){ .name = (uint32_t)(name - names),
			       .folder = S_ISDIR(s->st_mode),
			       .size = s->st_size,
			       .sec = s->st_mtim.tv_sec,
			       .nsec = s->st_mtim.tv_nsec };
}

/* Its last name has been deleted: proc_pid_fd(5). */
static bool is_deleted(const char *link)
{
	static const char gone[] = " (deleted)";
	static char name[PATH_MAX + sizeof(gone)];
	long n = cb_sys4(SYS_readlinkat, AT_FDCWD, link, name, sizeof(name) - 1);

	if (n < (long)sizeof(gone))
		return false;
	name[n] = '\0';
	return cb_sys_begins(name + n - (sizeof(gone) - 1), gone);
}

/* The name, if another one is there which is it; else NULL. */
static const char *is_back(const char *link, const struct place *p)
{
	const char *name = names + p->name;
	struct stat open, there;
	bool back;

	if (p->name == 0 || cb_sys4(SYS_newfstatat, AT_FDCWD, link, &open, 0) < 0 ||
	    cb_sys4(SYS_newfstatat, AT_FDCWD, name, &there, AT_SYMLINK_NOFOLLOW) < 0 || is_same(&open, &there))
		return NULL;
	if (p->folder)
		back = S_ISDIR(there.st_mode) && is_deleted(link);
	else
		back = S_ISREG(there.st_mode) && there.st_size == p->size && there.st_mtim.tv_sec == p->sec &&
		       there.st_mtim.tv_nsec == p->nsec;
	return back ? name : NULL;
}

/* ---- noting ---- */

static int note_watched(struct open *o, const char *text)
{
	uint64_t fd, events, data;

	while ((text = cb_sys_number_after(text, "tfd:", 10, &fd)) != NULL &&
	       (text = cb_sys_number_after(text, "events:", 16, &events)) != NULL &&
	       (text = cb_sys_number_after(text, "data:", 16, &data)) != NULL) {
		if (nwatched == CB_COPIER_WATCHED_MAX)
			return -E2BIG;
		watched[nwatched++] =
			(struct watched){ .epoll = o->fd, .fd = (int)fd, .events = (uint32_t)events, .data = data };
	}
	return 0;
}

static bool watches(int epoll, int fd)
{
	for (size_t i = 0; i < nwatched; i++)
		if (watched[i].epoll == epoll && watched[i].fd == fd)
			return true;
	return false;
}

/* The index of the first number of the same listening socket, epoll or eventfd. An epoll says EINVAL of itself, ENOENT
 * of what it does not watch (epoll_ctl(2)). */
static int first_of(const struct open *o)
{
	for (size_t i = 0, asked = 0; i < nopened && asked < ASKED; i++) {
		const struct open *e = &opened[i];

		if (e->kind != o->kind || e->other != (int)i)
			continue;
		if (o->kind != EPOLL && e->ino == o->ino && e->dev == o->dev && o->ino != 0)
			return (int)i;
		if (o->kind == EPOLL && ++asked && !watches(e->fd, o->fd) &&
		    cb_sys4(SYS_epoll_ctl, e->fd, EPOLL_CTL_DEL, o->fd, NULL) == -EINVAL)
			return (int)i;
	}
	return (int)nopened;
}

/* The same of a file or a folder. Numbers of one have the signal in common that tells of leases and the like, which no
 * jail has (fcntl(2), F_SETSIG); kcmp(2) is refused there, and a position that is moved to see whether the other one
 * moves, too, may be a child's that runs. */
static int first_of_file(const struct open *o)
{
	long signal = cb_sys2(SYS_fcntl, o->fd, F_GETSIG);
	size_t first = nopened, asked = 0;

	for (size_t i = 0; i < nopened && asked < ASKED && first == nopened; i++) {
		const struct open *e = &opened[i];

		if (e->kind != REGULAR || e->other != (int)i || e->ino != o->ino || e->dev != o->dev)
			continue;
		if (asked++ == 0)
			(void)cb_sys3(SYS_fcntl, o->fd, F_SETSIG, MARK);
		if (cb_sys2(SYS_fcntl, e->fd, F_GETSIG) == MARK)
			first = i;
	}
	if (asked > 0)
		(void)cb_sys3(SYS_fcntl, o->fd, F_SETSIG, signal);
	/* one that has it still has it of its own */
	return (int)(first < nopened && cb_sys2(SYS_fcntl, opened[first].fd, F_GETSIG) == MARK ? nopened : first);
}

/* An fd of no file: what it is stands in its name. The text of an epoll is as long as what it watches. */
static int note_nameless(struct open *o)
{
	static char text[CB_COPIER_WATCHED_MAX * 96];
	char path[64], name[64] = "";
	size_t have = 0;
	uint64_t value = 0;
	long n, fd;

	if (cb_sys4(SYS_readlinkat, AT_FDCWD, cb_sys_path(path, "/proc/self/fd/", o->fd, ""), name, sizeof(name) - 1) <=
	    0)
		return -ENOENT;
	if (cb_sys_begins(name, "anon_inode:[eventfd]"))
		o->kind = EVENT;
	else if (cb_sys_begins(name, "anon_inode:[eventpoll]"))
		o->kind = EPOLL;
	else if (cb_sys_begins(name, "anon_inode:[pidfd]"))
		o->kind = PROCESS;
	else
		return -ENOENT;
	fd = cb_sys4(SYS_openat, AT_FDCWD, cb_sys_path(path, "/proc/self/fdinfo/", o->fd, ""), O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return (int)fd;
	while (have < sizeof(text) - 1 && (n = cb_sys3(SYS_read, fd, text + have, sizeof(text) - 1 - have)) > 0)
		have += (size_t)n;
	(void)cb_sys1(SYS_close, fd);
	text[have] = '\0';
	if (o->kind == EPOLL && have == sizeof(text) - 1)
		return -E2BIG;
	if (cb_sys_number_after(text, "eventfd-id:", 10, &value) != NULL)
		o->ino = value + 1; /* the first one is 0 */
	if (o->kind == PROCESS) {
		o->value = cb_sys_number_after(text, "Pid:", 10, &value) != NULL ? (int64_t)value : 0;
		return 0;
	}
	o->other = first_of(o);
	if (o->kind == EPOLL)
		return note_watched(o, text);
	if (cb_sys_number_after(text, "eventfd-count:", 16, &value) == NULL)
		return -EINVAL;
	o->value = (int64_t)value;
	if (cb_sys_number_after(text, "eventfd-semaphore:", 10, &value) != NULL && value == 1)
		o->flags |= EFD_SEMAPHORE;
	return 0;
}

static int option(int fd, int level, int name)
{
	int value = 0;
	uint32_t size = sizeof(value);

	return cb_sys5(SYS_getsockopt, fd, level, name, &value, &size) == 0 ? value : 0;
}

static bool note_address(int fd, struct listener *l)
{
	l->shares_port = option(fd, SOL_SOCKET, SO_REUSEPORT);
	l->only_v6 = l->domain == AF_INET6 && option(fd, IPPROTO_IPV6, IPV6_V6ONLY) == 1;
	l->size = sizeof(l->address);
	return cb_sys3(SYS_getsockname, fd, &l->address, &l->size) == 0;
}

/* Beyond the maximum one is cut off like any other socket. */
static void note_listener(struct open *o)
{
	struct listener *l = &listeners[nlisteners];
	bool tcp;

	if (nlisteners == CB_COPIER_LISTENERS_MAX || option(o->fd, SOL_SOCKET, SO_ACCEPTCONN) != 1)
		return;
	l->domain = option(o->fd, SOL_SOCKET, SO_DOMAIN);
	l->type = option(o->fd, SOL_SOCKET, SO_TYPE);
	tcp = (l->domain == AF_INET || l->domain == AF_INET6) && option(o->fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP;
	if (tcp ? !note_address(o->fd, l) : l->domain != AF_UNIX)
		return;
	o->kind = LISTENER;
	o->other = first_of(o);
	o->value = (int64_t)nlisteners++;
}

/* Of either side: /dev/ptmx, /dev/tty, and those of /dev/pts (admin-guide/devices.txt). */
static bool is_terminal(const struct stat *s)
{
	unsigned major = (s->st_rdev >> 8) & 0xfff;

	return S_ISCHR(s->st_mode) && (major == 5 || (major >= 136 && major <= 143));
}

static int note(int fd)
{
	struct open o = { .fd = fd };
	struct stat s;
	char path[64];
	int r = 0;

	if (cb_sys4(SYS_newfstatat, fd, "", &s, AT_EMPTY_PATH) < 0)
		return 0;
	if (S_ISREG(s.st_mode) || S_ISDIR(s.st_mode)) {
		o.kind = REGULAR;
		o.value = cb_sys3(SYS_lseek, fd, 0, SEEK_CUR);
		if (o.value < 0)
			return 0;
		o.dev = s.st_dev;
		o.ino = s.st_ino;
		o.other = first_of_file(&o);
		o.place = note_place(cb_sys_path(path, "/proc/self/fd/", fd, ""), &s);
	} else if (S_ISFIFO(s.st_mode) || S_ISSOCK(s.st_mode)) {
		o.kind = S_ISFIFO(s.st_mode) ? PIPE : SOCKET;
		o.dev = s.st_dev;
		o.ino = s.st_ino;
		(void)cb_sys3(SYS_ioctl, fd, FIONREAD, &o.waiting);
		if (o.kind == SOCKET)
			note_listener(&o);
	} else if (is_terminal(&s)) {
		o.kind = TERMINAL;
	} else if ((s.st_mode & S_IFMT) == 0) {
		r = note_nameless(&o);
		if (r == -ENOENT)
			return 0;
	} else {
		return 0;
	}
	if (r == 0 && nopened == CB_COPIER_FDS_MAX)
		r = -E2BIG;
	o.flags |= (int)cb_sys3(SYS_fcntl, fd, F_GETFL, 0);
	o.writes = (o.flags & O_ACCMODE) != O_RDONLY;
	if (r == 0)
		opened[nopened++] = o;
	return r;
}

static bool is_unix_listener(const struct open *o)
{
	return o->kind == LISTENER && listeners[o->value].domain == AF_UNIX;
}

static int find(int fd)
{
	for (size_t i = 0; i < nopened; i++)
		if (opened[i].fd == fd)
			return (int)i;
	return -1;
}

static void note_paired(size_t at, int end, int other)
{
	struct open *o = &opened[end];

	o->kind = PAIRED;
	o->other = other;
	o->value = (int64_t)at;
	if (o->waiting > RUNG_MOST ||
	    cb_sys(SYS_recvfrom, o->fd, (long)bytes[at], o->waiting, MSG_PEEK | MSG_DONTWAIT, 0, 0) != o->waiting)
		o->waiting = 0;
}

static void note_pairs(const int *pairs, size_t n)
{
	for (size_t i = 0; i + 1 < n; i += 2) {
		int a = find(pairs[i]), b = find(pairs[i + 1]);

		if (a < 0 || b < 0 || a == b || opened[a].kind != SOCKET || opened[b].kind != SOCKET)
			continue;
		note_paired(i, a, b);
		note_paired(i + 1, b, a);
		nsockets -= 2;
	}
}

struct birth {
	const int *fds;
	size_t n;
};

static int note_unless_of_birth(void *context, int fd)
{
	const struct birth *b = context;

	for (size_t i = 0; i < b->n; i++)
		if (b->fds[i] == fd)
			return 0;
	return fd >= FIRST ? note(fd) : 0;
}

static void know_streams(void)
{
	struct stat s;

	for (int i = 0; i < 2; i++)
		if (cb_sys4(SYS_newfstatat, i + 1, "", &s, AT_EMPTY_PATH) == 0) {
			streams[i][0] = s.st_dev;
			streams[i][1] = s.st_ino;
		}
	streams_of = (int)cb_sys0(SYS_getpid);
}

int cb_descriptors_note(const int *pairs, size_t n, const int *fds, size_t nfds)
{
	struct birth birth = { .fds = fds, .n = nfds };
	struct stat s;
	int r;

	nopened = nwatched = nsockets = nlisteners = 0;
	nnames = 1;
	cwd = cb_sys4(SYS_newfstatat, AT_FDCWD, CWD, &s, 0) == 0 ? note_place(CWD, &s) : (struct place){ 0 };
	if (streams_of != (int)cb_sys0(SYS_getpid)) /* else it was os.fork that made this copy */
		know_streams();
	r = cb_sys_numbers_in("/proc/self/fd", note_unless_of_birth, &birth);
	if (r < 0)
		return r;
	for (size_t i = 0; i < nopened; i++)
		nsockets += opened[i].kind == SOCKET || is_unix_listener(&opened[i]);
	note_pairs(pairs, n);
	return 0;
}

size_t cb_descriptors_sockets(void)
{
	return nsockets;
}

/* ---- in a copy ---- */

/* `new` takes the place of an open one, with what it had of its own: whether it is closed at exec, and whether it
 * blocks. */
static void replace(int new, const struct open *o)
{
	long at_exec = cb_sys3(SYS_fcntl, o->fd, F_GETFD, 0);

	(void)cb_sys3(SYS_dup3, new, o->fd, (at_exec & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
	if ((o->flags & O_NONBLOCK) != 0)
		(void)cb_sys3(SYS_fcntl, o->fd, F_SETFL, o->flags & (O_NONBLOCK | O_APPEND));
}

/* As replace(), with one that has no other place. False: it is negative, for there is none. */
static bool put_in_place(long new, const struct open *o)
{
	if (new < 0)
		return false;
	replace((int)new, o);
	(void)cb_sys1(SYS_close, new);
	return true;
}

static bool reopen(const struct open *o, const char *path)
{
	int flags = (o->flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW | O_TMPFILE)) | O_CLOEXEC;

	return put_in_place(cb_sys4(SYS_openat, AT_FDCWD, path, flags, 0), o);
}

/* By a lock that ends with the open file: one of fcntl(2) is the process's. */
static bool is_locked(int fd)
{
	char path[64], text[4096];
	long at = cb_sys4(SYS_openat, AT_FDCWD, cb_sys_path(path, "/proc/self/fdinfo/", fd, ""), O_RDONLY | O_CLOEXEC,
			  0);
	long n = at < 0 ? at : cb_sys3(SYS_read, at, text, sizeof(text) - 1);
	uint64_t number;

	if (at >= 0)
		(void)cb_sys1(SYS_close, at);
	if (n < 0)
		return false;
	text[n] = '\0';
	return cb_sys_number_after(text, "FLOCK", 10, &number) != NULL ||
	       cb_sys_number_after(text, "OFDLCK", 10, &number) != NULL;
}

static void ring(int fd, int bytes)
{
	static const char zeros[RUNG_MOST];

	if (bytes > 0 && bytes <= RUNG_MOST)
		(void)cb_sys3(SYS_write, fd, zeros, bytes);
}

static bool is_stream(const struct open *o)
{
	for (int i = 0; i < 2; i++)
		if (o->dev == streams[i][0] && o->ino == streams[i][1]) {
			replace(i + 1, o);
			return true;
		}
	return false;
}

/* All ends of one pipe: by a new one if both sides are here, else by one whose other side is closed. */
static void exchange_pipe(size_t first)
{
	const struct open *o = &opened[first];
	bool reads = false, writes = false;
	int ends[2], waiting = 0;

	for (size_t i = 0; i < nopened; i++)
		if (opened[i].kind == PIPE && opened[i].ino == o->ino && opened[i].dev == o->dev) {
			if (i < first)
				return; /* done with that one */
			*(opened[i].writes ? &writes : &reads) = true;
			/* who reads messages there would take zeros for one, and blocks */
			if (!opened[i].writes && (opened[i].flags & O_NONBLOCK) != 0)
				waiting = o->waiting;
		}
	if (cb_sys2(SYS_pipe2, ends, O_CLOEXEC) < 0)
		return;
	if (reads && writes)
		ring(ends[1], waiting);
	for (size_t i = first; i < nopened; i++)
		if (opened[i].kind == PIPE && opened[i].ino == o->ino && opened[i].dev == o->dev)
			replace(ends[opened[i].writes], &opened[i]);
	(void)cb_sys1(SYS_close, ends[0]);
	(void)cb_sys1(SYS_close, ends[1]);
}

/* By one that is bound to nothing. */
static bool exchange_datagrams(const struct open *o)
{
	int type = o->kind == SOCKET ? option(o->fd, SOL_SOCKET, SO_TYPE) : SOCK_STREAM;
	int domain, protocol;

	if (type == SOCK_STREAM || type == SOCK_SEQPACKET)
		return false;
	domain = option(o->fd, SOL_SOCKET, SO_DOMAIN);
	protocol = option(o->fd, SOL_SOCKET, SO_PROTOCOL);
	return put_in_place(cb_sys3(SYS_socket, domain, type | SOCK_CLOEXEC, protocol), o);
}

static void exchange_socket(size_t i)
{
	const struct open *o = &opened[i], *other = o->kind == PAIRED ? &opened[o->other] : NULL;
	int ends[2];

	if ((other != NULL && (size_t)o->other < i) || exchange_datagrams(o) ||
	    cb_sys4(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	replace(ends[0], o);
	if (other != NULL) {
		replace(ends[1], other);
		(void)cb_sys3(SYS_write, ends[1], bytes[o->value], o->waiting);
		(void)cb_sys3(SYS_write, ends[0], bytes[other->value], other->waiting);
	}
	(void)cb_sys1(SYS_close, ends[0]);
	(void)cb_sys1(SYS_close, ends[1]);
}

static void exchange_listener(const struct open *o)
{
	const struct listener *l = &listeners[o->value];
	int protocol = l->domain == AF_UNIX ? 0 : IPPROTO_TCP;

	(void)put_in_place(cb_sys3(SYS_socket, l->domain, l->type | SOCK_CLOEXEC, protocol), o);
}

static void exchange_event(const struct open *o)
{
	long fd = cb_sys2(SYS_eventfd2, 0, EFD_CLOEXEC | (o->flags & EFD_SEMAPHORE));
	uint64_t value = (uint64_t)o->value;

	if (fd >= 0 && value != 0)
		(void)cb_sys3(SYS_write, fd, &value, sizeof(value));
	(void)put_in_place(fd, o);
}

/* The original may lock and unlock it meanwhile: what becomes of the first number does of all. */
static void exchange_file(struct open *o)
{
	const struct open *first = &opened[o->other];
	char path[64];

	if (first == o)
		o->anew = is_locked(o->fd) && reopen(o, cb_sys_path(path, "/proc/self/fd/", o->fd, ""));
	else if (first->anew)
		replace(first->fd, o);
}

static void exchange(size_t i)
{
	switch ((enum kind)opened[i].kind) {
	case REGULAR:
		exchange_file(&opened[i]);
		break;
	case PIPE:
		if (!is_stream(&opened[i]))
			exchange_pipe(i);
		break;
	case SOCKET:
	case TERMINAL:
	case PAIRED:
		exchange_socket(i);
		break;
	case PROCESS:
		if (opened[i].value != 0)
			(void)put_in_place(cb_sys2(SYS_pidfd_open, opened[i].value, 0), &opened[i]);
		break;
	case LISTENER:
	case EVENT:
	case EPOLL:
		if ((size_t)opened[i].other < i)
			replace(opened[opened[i].other].fd, &opened[i]);
		else if (opened[i].kind == LISTENER)
			exchange_listener(&opened[i]);
		else if (opened[i].kind == EVENT)
			exchange_event(&opened[i]);
		else
			(void)put_in_place(cb_sys1(SYS_epoll_create1, EPOLL_CLOEXEC), &opened[i]);
		break;
	}
}

/* A new one in the place of the old side wire would be read by the thread that reads that, perhaps in the middle of a
 * frame: that one sees the end of it instead. */
static void end_side_wire(void)
{
	int ends[2];

	if (cb_sys4(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	(void)cb_sys3(SYS_dup3, ends[0], CB_GUEST_FD_SIDE, O_CLOEXEC);
	(void)cb_sys1(SYS_close, ends[0]);
	(void)cb_sys1(SYS_close, ends[1]);
}

int cb_descriptors_exchange(const int *fds, size_t n, int *ret_side)
{
	static const int places[] = { CB_GUEST_FD_WIRE, CB_GUEST_FD_STDOUT, CB_GUEST_FD_STDERR,
				      CB_GUEST_FD_TWIN_CONTROL };
	struct stat s;

	for (int i = 0; i < 4; i++) {
		bool stream = places[i] == CB_GUEST_FD_STDOUT || places[i] == CB_GUEST_FD_STDERR;

		if (cb_sys3(SYS_dup3, fds[i], places[i], stream ? 0 : O_CLOEXEC) < 0)
			return -EBADF;
		(void)cb_sys1(SYS_close, fds[i]);
	}
	*ret_side = n > 4 ? fds[4] : -1;
	if (cb_sys4(SYS_newfstatat, CB_GUEST_FD_SIDE, "", &s, AT_EMPTY_PATH) == 0 && S_ISSOCK(s.st_mode))
		end_side_wire();
	for (size_t i = 0; i < nopened; i++)
		exchange(i);
	for (size_t i = 0; i < nwatched; i++) { /* when all that can be watched is there */
		struct epoll_event e = { .events = watched[i].events, .data.u64 = watched[i].data };

		(void)cb_sys4(SYS_epoll_ctl, watched[i].epoll, EPOLL_CTL_ADD, watched[i].fd, &e);
	}
	return 0;
}

/* The original has ended, but for what the machine still does for it: its sockets are closed behind its memory, which
 * may take seconds where other programs keep the processors busy. */
static bool bind_again(const struct open *o, const struct listener *l, int64_t until)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	long r;

	while ((r = cb_sys3(SYS_bind, o->fd, &l->address, l->size)) == -EADDRINUSE && cb_sys_now_ns() < until)
		(void)cb_sys2(SYS_nanosleep, &pause, NULL);
	return r == 0;
}

/* At a port that nobody knows, and to nobody who could not reach it before: what is bound to nothing would listen at
 * all addresses. */
static bool bind_apart(const struct open *o, const struct listener *l)
{
	const struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	const void *loopback = l->domain == AF_INET ? (const void *)&in : &in6;
	struct sockaddr_in6 apart = l->address.in6;

	apart.sin6_port = 0; /* a sockaddr_in has it there, too */
	return cb_sys3(SYS_bind, o->fd, &apart, l->size) == 0 || cb_sys3(SYS_bind, o->fd, loopback, l->size) == 0;
}

/* Of the Unix family: a place without a name, which nobody can connect to. An abstract address of its own would be
 * within reach of every program in the network namespace. */
static bool bind_nowhere(const struct open *o)
{
	struct sockaddr_un un;

	un.sun_family = AF_UNIX;
	(void)cb_sys_path(un.sun_path, "/tmp/.cellblock-", (int)cb_sys0(SYS_getpid), "");
	return cb_sys3(SYS_bind, o->fd, &un, sizeof(un)) == 0 && cb_sys3(SYS_unlinkat, AT_FDCWD, un.sun_path, 0) == 0;
}

/* Where it can't have its address it listens all the same: one that does not is ready for ever, and every accept
 * fails. Beside a branch the original listens. */
static void listen_again(const struct open *o, bool branch, int64_t until)
{
	const struct listener *l = &listeners[o->value];
	const int yes = 1;

	if (l->domain == AF_UNIX) {
		if (bind_nowhere(o))
			(void)cb_sys2(SYS_listen, o->fd, SOMAXCONN);
		return;
	}
	(void)cb_sys5(SYS_setsockopt, o->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (l->shares_port)
		(void)cb_sys5(SYS_setsockopt, o->fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes));
	if (l->domain == AF_INET6)
		(void)cb_sys5(SYS_setsockopt, o->fd, IPPROTO_IPV6, IPV6_V6ONLY, &l->only_v6, sizeof(l->only_v6));
	if ((!branch && bind_again(o, l, until)) || bind_apart(o, l))
		(void)cb_sys2(SYS_listen, o->fd, SOMAXCONN);
}

int cb_descriptors_waited(int fd)
{
	int i = find(fd);

	return i >= 0 && opened[i].kind == PIPE ? opened[i].waiting : 0;
}

void cb_descriptors_listen(bool branch)
{
	int64_t until = cb_sys_now_ns() + BIND_NS;

	for (size_t i = 0; i < nopened; i++)
		if (opened[i].kind == LISTENER && opened[i].other == (int)i)
			listen_again(&opened[i], branch, until);
}

/* What the failed one has locked since, for an open file that both share goes on to hold it. */
static void unlock(int fd)
{
	const struct flock all = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	if (!is_locked(fd))
		return;
	(void)cb_sys2(SYS_flock, fd, LOCK_UN);
	(void)cb_sys3(SYS_fcntl, fd, F_OFD_SETLK, &all);
}

static void file_back(struct open *o, bool branch)
{
	const struct open *first = &opened[o->other];
	const char *name;
	char path[64];

	if (first != o && first->anew)
		replace(first->fd, o);
	if (first != o)
		return;
	name = is_back(cb_sys_path(path, "/proc/self/fd/", o->fd, ""), &o->place);
	o->anew = (name != NULL && reopen(o, name)) || (branch && reopen(o, path));
	if (branch && !o->anew)
		return; /* it is where the main line has it, and may be locked by that */
	if (!o->anew)
		unlock(o->fd);
	(void)cb_sys3(SYS_lseek, o->fd, o->value, SEEK_SET);
}

void cb_descriptors_back(bool branch)
{
	const char *name = is_back(CWD, &cwd);

	know_streams(); /* not earlier: what is bred from a frozen copy looks for those of what was noted */
	if (name != NULL)
		(void)cb_sys1(SYS_chdir, name);
	for (size_t i = 0; i < nopened; i++)
		if (opened[i].kind == REGULAR)
			file_back(&opened[i], branch);
}
