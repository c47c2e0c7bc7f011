/* What a caller means by its arguments: memory, descriptors and paths of a hostile process.
 *
 * Trust domain: the notifier. Everything read here may change at the next moment; so each thing is read once, into
 * memory of ours, and what counts is what the copy resolves to. Paths are resolved in the jail's own tree, where the
 * notifier has its root, with links followed and magic links refused. A path that can't be resolved is left to the
 * kernel, which finds the same and gives the caller the same error, before a mount that is read-only.
 */
#include "../shared/mounts.h"
#include "calls.h"

#include <cellblock/buffer.h>
#include <cellblock/fd.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096u
#define STATUS_MAX (1u << 20) /* it lists all groups of a user, 65536 at most */
#define MOUNTS_MAX (1u << 20)
#define JAILS_FLAGS (ST_NOSUID | ST_NODEV) /* each mount that a jail writes has them */

#ifndef PIDFD_THREAD /* Linux 6.9 */
#define PIDFD_THREAD O_EXCL
#endif

void cb_entry_release(struct cb_entry *e)
{
	cb_fd_close(&e->parent);
}

/* ---- of the caller ---- */

static ssize_t read_memory(const struct cb_request *q, uint64_t address, void *ret, size_t max)
{
	size_t first = PAGE - address % PAGE;
	/* a vector for each page: where one is not there, what lies before it is read all the same */
	struct iovec local = { ret, max }, remote[3];
	unsigned n = 0;
	ssize_t got;

	for (size_t at = 0; at < max && n < 3; n++) {
		size_t size = n == 0 ? first : n == 1 ? PAGE : max;

		size = size < max - at ? size : max - at;
		remote[n] = (struct iovec){ .iov_len = size };
		address += n == 0 ? 0 : remote[n - 1].iov_len;
		memcpy(&remote[n].iov_base, &address, sizeof(address));
		at += size;
	}
	got = process_vm_readv((pid_t)q->n->pid, &local, 1, remote, n, 0);
	if (got < 0)
		return -EFAULT;
	return cb_notify_valid(q) ? got : -ESRCH; /* it was this caller's memory, not that of a successor */
}

static uint64_t hash_of(const char *data, size_t n)
{
	return cb_span_hash((struct cb_span){ data, n }, CB_HASH);
}

/* A call that looks for its entry again reads its string again: the last one counts. */
static void note_read(struct cb_request *q, uint64_t address, const char *data, size_t n)
{
	unsigned i = 0;

	while (i < q->nreads && i < CB_READS_MAX && q->reads[i].address != address)
		i++;
	if (i == q->nreads)
		q->nreads++;
	if (i < CB_READS_MAX)
		q->reads[i] = (struct cb_read){ .address = address, .hash = hash_of(data, n), .size = n };
}

ssize_t cb_caller_read(struct cb_request *q, uint64_t address, void *ret, size_t max)
{
	ssize_t n = read_memory(q, address, ret, max);

	if (n > 0)
		note_read(q, address, ret, (size_t)n);
	return n;
}

int cb_caller_string(struct cb_request *q, uint64_t address, char *ret, size_t size)
{
	ssize_t n = read_memory(q, address, ret, size);

	if (n < 0)
		return (int)n;
	if (memchr(ret, '\0', (size_t)n) == NULL)
		return (size_t)n == size ? -ENAMETOOLONG : -EFAULT;
	note_read(q, address, ret, strlen(ret) + 1);
	return 0;
}

bool cb_caller_says_same(const struct cb_request *q, const struct cb_read *reads, unsigned n)
{
	char now[PATH_MAX];

	for (unsigned i = 0; i < n; i++)
		if (read_memory(q, reads[i].address, now, reads[i].size) != (ssize_t)reads[i].size ||
		    hash_of(now, reads[i].size) != reads[i].hash)
			return false;
	return true;
}

/* The folder of /proc first, then whether the caller still waits: what is opened in it afterwards is the caller's. */
static int find_caller(struct cb_request *q)
{
	char name[16];

	if (q->caller >= 0)
		return 0;
	snprintf(name, sizeof(name), "%u", q->n->pid);
	q->caller = openat(cb_notify_self.proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (q->caller < 0)
		return -ESRCH;
	if (cb_notify_valid(q))
		return 0;
	cb_fd_close(&q->caller);
	return -ESRCH;
}

int cb_caller_open(struct cb_request *q, const char *what, int flags, int *ret_fd)
{
	int r = find_caller(q), fd;

	if (r < 0)
		return r;
	fd = openat(q->caller, what, flags | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

/* Of the thread itself: its process' first one may have ended, by which alone it was known before Linux 6.9. */
static int open_pidfd(struct cb_request *q)
{
	int fd = (int)syscall(SYS_pidfd_open, (pid_t)q->n->pid, PIDFD_THREAD);
	long leader;

	if (fd < 0)
		fd = (int)syscall(SYS_pidfd_open, (pid_t)q->n->pid, 0);
	if (fd >= 0)
		return fd;
	leader = cb_caller_status(q, "\nTgid:\t", 10);
	return leader > 0 ? (int)syscall(SYS_pidfd_open, (pid_t)leader, 0) : -1;
}

/* Not by /proc/TID/fd, which of an undumpable process is root's alone. */
int cb_caller_fd(struct cb_request *q, int number, int *ret_fd)
{
	CB_AUTO_FD pidfd = open_pidfd(q);
	int fd;

	if (pidfd < 0 || !cb_notify_valid(q))
		return -ESRCH;
	fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
	if (fd < 0)
		return errno == EBADF ? -EBADF : -EACCES;
	*ret_fd = fd;
	return 0;
}

/* /proc/TID/status; NULL: it can't be read. */
static char *read_status(struct cb_request *q)
{
	CB_AUTO_FD fd = -1;
	char *text = NULL;
	size_t n;

	if (cb_caller_open(q, "status", O_RDONLY, &fd) < 0 || cb_fd_read_all(fd, STATUS_MAX, &text, &n) < 0)
		return NULL;
	return text;
}

long cb_caller_status(struct cb_request *q, const char *key, int base)
{
	char *text = read_status(q);
	long value = text != NULL ? (long)cb_proc_number(text, key, base, (uint64_t)-1) : -1;

	free(text);
	return value;
}

bool cb_caller_interrupted(struct cb_request *q)
{
	char *text = read_status(q);
	uint64_t kept;

	if (text == NULL)
		return true;
	kept = cb_proc_number(text, "\nSigBlk:", 16, 0) | cb_proc_number(text, "\nSigIgn:", 16, 0);
	kept = cb_proc_pending(text) & ~kept;
	free(text);
	return kept != 0;
}

/* ---- of the workspace ---- */

static bool name_of(int fd, char path[PATH_MAX])
{
	char link[32];
	ssize_t n;

	snprintf(link, sizeof(link), "self/fd/%d", fd);
	n = readlinkat(cb_notify_self.proc, link, path, PATH_MAX - 1);
	if (n <= 0 || n == PATH_MAX - 1)
		return false;
	path[n] = '\0';
	return true;
}

/* What the path is below the workspace: that of the folder `fd`, and of `name` in it unless that is NULL. False if the
 * folder is elsewhere, or on one of the mounts there that the jail may write by itself. */
static bool in_workspace(struct cb_entry *e, int fd, const char *name)
{
	size_t top = strlen(cb_notify_self.target), n;
	char path[PATH_MAX];
	struct statfs fs;
	struct stat st;

	if (name != NULL && fstat(fd, &st) == 0 && st.st_nlink == 0) { /* removed: its name may mean another by now */
		e->instead = ENOENT;
		return false;
	}
	if (!name_of(fd, path)) {
		e->instead = fstatfs(fd, &fs) == 0 && (fs.f_flags & ST_RDONLY) != 0 ? ENAMETOOLONG : 0;
		return false;
	}
	if (!cb_path_within(path, cb_notify_self.target))
		return false;
	if (fstatfs(fd, &fs) < 0 || (cb_notify_self.writes && (fs.f_flags & ST_RDONLY) == 0))
		return false;
	/* path + top is "" or "/folder" */
	n = (size_t)snprintf(e->path, sizeof(e->path), "%s%s%s", path + top, name != NULL ? "/" : "",
			     name != NULL ? name : "");
	if (n >= sizeof(e->path)) {
		e->instead = ENAMETOOLONG;
		return false;
	}
	memmove(e->path, e->path + (n > 0), n + (n == 0));
	e->name = strrchr(e->path, '/') != NULL ? strrchr(e->path, '/') + 1 : e->path;
	return true;
}

/* Splits off the last part. Slashes behind it are taken away; "" for what can be no entry's name. */
static const char *split(char *path, bool *ret_slash)
{
	size_t n = strlen(path);
	char *slash;

	*ret_slash = n > 0 && path[n - 1] == '/';
	while (n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	slash = strrchr(path, '/');
	return slash != NULL ? slash + 1 : path;
}

static int open_at(int at, const char *path, size_t n)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS };
	char folder[PATH_MAX] = ".";

	if (n > 0) {
		memcpy(folder, path, n);
		folder[n] = '\0';
	}
	return (int)syscall(SYS_openat2, at, folder, &how, sizeof(how));
}

static bool is_dots(const char *name)
{
	return strcmp(name, "") == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* A folder that is meant itself: the workspace, or one whose name is a matter of dots. */
static bool find_self(int base, const char *path, struct cb_entry *ret)
{
	int fd = open_at(base, path, strlen(path));

	cb_fd_close(&ret->parent);
	ret->parent = fd;
	ret->itself = true;
	ret->there = fd >= 0 && fstat(fd, &ret->st) == 0;
	return ret->there && in_workspace(ret, fd, NULL);
}

static bool put_link(const struct cb_entry *e, const char *name, char path[PATH_MAX])
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(e->parent, name, target, sizeof(target) - 1);

	if (n <= 0 || (size_t)n == sizeof(target) - 1)
		return false;
	memcpy(path, target, (size_t)n);
	path[n] = '\0';
	return true;
}

/* At a part's beginning: past more slashes, and parts that are a dot. */
static const char *skip_nothing(const char *at)
{
	while (at[0] == '/' || (at[0] == '.' && at[1] == '/'))
		at++;
	return at;
}

/* Past the folder `part` and its slash; NULL: something else is there. */
static const char *past(const char *at, const char *part)
{
	size_t n = strlen(part);

	return strncmp(at, part, n) == 0 && at[n] == '/' ? skip_nothing(at + n) : NULL;
}

/* "/proc/self/fd/7" and the like mean the caller's descriptor; negative: it is no such path. */
static int number_of(const char *path)
{
	static const char *const places[][3] = { { "proc", "self", "fd" },
						 { "proc", "thread-self", "fd" },
						 { "dev", "fd", NULL } };
	long number;
	char *end;

	for (size_t i = 0; path[0] == '/' && i < CB_COUNT(places); i++) {
		const char *at = skip_nothing(path);

		for (size_t part = 0; part < CB_COUNT(*places) && places[i][part] != NULL && at != NULL; part++)
			at = past(at, places[i][part]);
		if (at == NULL || *at < '0' || *at > '9')
			continue;
		number = strtol(at, &end, 10);
		return *end == '\0' && number <= INT_MAX ? (int)number : -1;
	}
	return -1;
}

/* The last part's links are put in by hand, so that the folder that holds the entry is known. What they lead to may be
 * a descriptor: then it is false, and that is its number. */
static bool find(int base, char path[PATH_MAX], unsigned flags, struct cb_entry *ret, int *ret_number)
{
	bool entry = (flags & CB_FIND_ENTRY) != 0;

	for (unsigned links = 0; links < CB_FOLLOW_MAX; links++) {
		bool slash;
		const char *name;
		int from = links > 0 ? ret->parent : base, parent;

		*ret_number = (flags & CB_FIND_FOLLOW) != 0 && !ret->folder_meant ? number_of(path) : -1;
		if (*ret_number >= 0)
			return false;
		name = split(path, &slash);
		ret->folder_meant |= slash;
		if (is_dots(name))
			return (flags & CB_FIND_SELF) != 0 && find_self(from, path, ret);
		parent = open_at(from, path, (size_t)(name - path));
		cb_fd_close(&ret->parent);
		ret->parent = parent;
		if (parent < 0)
			return false;
		ret->there = fstatat(parent, name, &ret->st, AT_SYMLINK_NOFOLLOW) == 0;
		if (!ret->there && errno != ENOENT) {
			ret->instead = entry && errno == ENAMETOOLONG ? ENAMETOOLONG : 0;
			return false;
		}
		if (!ret->there || !S_ISLNK(ret->st.st_mode) ||
		    ((flags & CB_FIND_FOLLOW) == 0 && (!slash || entry))) {
			if (in_workspace(ret, parent, name))
				return true;
			return (flags & CB_FIND_SELF) != 0 && ret->there && S_ISDIR(ret->st.st_mode) &&
			       find_self(parent, name, ret);
		}
		if (!put_link(ret, name, path))
			return false;
	}
	ret->there = false; /* it leads nowhere */
	return false;
}

static int open_base(struct cb_request *q, int at, int *ret_fd)
{
	if (at == AT_FDCWD)
		return cb_caller_open(q, "cwd", O_PATH | O_DIRECTORY, ret_fd);
	return cb_caller_fd(q, at, ret_fd);
}

static bool find_fd(struct cb_request *q, int fd, bool by_path, unsigned flags, struct cb_entry *ret);

bool cb_entry_find_string(struct cb_request *q, int at, const char *path, unsigned flags, struct cb_entry *ret)
{
	char work[PATH_MAX];
	CB_AUTO_FD base = -1;
	size_t n = strlen(path);
	int number = -1;
	bool found;

	if (n == 0 || n >= sizeof(work) || (path[0] != '/' && open_base(q, at, &base) < 0))
		return false;
	memcpy(work, path, n + 1);
	found = find(base, work, flags, ret, &number);
	if (number >= 0) {
		cb_entry_release(ret);
		return find_fd(q, number, true, flags, ret);
	}
	q->instead = ret->instead != 0 ? ret->instead : q->instead;
	if (!found)
		cb_entry_release(ret);
	return found;
}

bool cb_entry_find(struct cb_request *q, int at_arg, int path_arg, unsigned flags, struct cb_entry *ret)
{
	char path[PATH_MAX];
	int at = at_arg == CB_NO_ARG ? AT_FDCWD : cb_arg_int(q, at_arg);

	*ret = CB_ENTRY_NONE;
	if (cb_caller_string(q, q->n->data.args[path_arg], path, sizeof(path)) < 0)
		return false;
	return cb_entry_find_string(q, at, path, flags, ret);
}

/* By the name that it has now: one that has none any more is no entry of the workspace. */
static bool find_fd(struct cb_request *q, int fd, bool by_path, unsigned flags, struct cb_entry *ret)
{
	CB_AUTO_FD own = -1;
	char path[PATH_MAX];
	struct statfs fs;
	struct stat st;
	bool writable;

	*ret = CB_ENTRY_NONE;
	ret->number = fd;
	if (cb_caller_fd(q, fd, &own) < 0 || (!by_path && (fcntl(own, F_GETFL) & O_PATH) != 0))
		return false;
	if (fstatfs(own, &fs) < 0 || fstat(own, &st) < 0)
		return false;
	writable = (fs.f_flags & ST_RDONLY) == 0;
	if (writable && ((flags & CB_FIND_WRITABLE) == 0 || !S_ISREG(st.st_mode) || st.st_nlink == 0))
		return false;
	if (name_of(own, path) && cb_entry_find_string(q, AT_FDCWD, path, CB_FIND_SELF, ret)) {
		if (ret->there && cb_is_same_file(&ret->st, &st))
			return true;
		cb_entry_release(ret);
	}
	q->instead = writable ? 0 : q->instead; /* then no mount is in the kernel's way */
	return false;
}

bool cb_entry_of_fd(struct cb_request *q, int fd, unsigned flags, struct cb_entry *ret)
{
	return find_fd(q, fd, false, flags, ret);
}

int cb_caller_path(struct cb_request *q, int at, const char *path, int *ret_fd)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS };
	CB_AUTO_FD base = -1;
	int r = path[0] == '/' || path[0] == '\0' ? 0 : open_base(q, at, &base), fd;

	if (r < 0)
		return r;
	fd = (int)syscall(SYS_openat2, base, path, &how, sizeof(how));
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int cb_caller_meant(struct cb_request *q, const struct cb_entry *e, int *ret_fd)
{
	bool by_path = q->call->path != CB_NO_ARG;
	int at = q->call->at == CB_NO_ARG ? AT_FDCWD : cb_arg_int(q, q->call->at), r;
	CB_AUTO_FD fd = -1;
	char path[PATH_MAX];

	if (by_path && e->number < 0) {
		r = cb_caller_string(q, q->n->data.args[q->call->path], path, sizeof(path));
		return r == 0 ? cb_caller_path(q, at, path, ret_fd) : r;
	}
	r = cb_caller_fd(q, by_path ? e->number : at, &fd);
	if (r < 0)
		return r == -EBADF && by_path ? -ENOENT : r;
	if (!by_path && (fcntl(fd, F_GETFL) & O_PATH) != 0)
		return -EBADF;
	*ret_fd = cb_fd_take(&fd);
	return 0;
}

static int mount_of(int at, const char *name, uint64_t *ret_id)
{
	struct statx sx;

	if (statx(at, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &sx) < 0)
		return -errno;
	*ret_id = sx.stx_mnt_id;
	return 0;
}

/* What has gone meanwhile was none: nobody removes a mount's place. */
static bool is_a_mount(int folder, const char *name)
{
	uint64_t around, entry;
	int r = mount_of(folder, name, &entry);

	if (r < 0)
		return r != -ENOENT;
	return mount_of(folder, "", &around) < 0 || around != entry;
}

/* Of those that the caller sees. */
static bool is_own_mount(struct cb_request *q, uint64_t id)
{
	CB_AUTO_FD fd = -1;
	char *text = NULL, key[32];
	size_t n;
	bool found;

	if (cb_caller_open(q, "mountinfo", O_RDONLY, &fd) < 0 || cb_fd_read_all(fd, MOUNTS_MAX, &text, &n) < 0)
		return false;
	snprintf(key, sizeof(key), "\n%llu ", (unsigned long long)id); /* a path's newlines are spelt otherwise there */
	found = strncmp(text, key + 1, strlen(key + 1)) == 0 || strstr(text, key) != NULL;
	free(text);
	return found;
}

bool cb_is_served(struct cb_request *q, int fd)
{
	uint64_t ours, its;
	struct statfs fs;
	struct stat st;

	if (mount_of(cb_notify_self.judge.root, "", &ours) < 0 || mount_of(fd, "", &its) < 0 || ours == its)
		return true;
	if (fstatfs(fd, &fs) < 0 || fstat(fd, &st) < 0)
		return true;
	return S_ISREG(st.st_mode) && (fs.f_flags & JAILS_FLAGS) == JAILS_FLAGS && !is_own_mount(q, its);
}

/* Another mount may lie on the folder in the jail, or on the entry: what is below it is not meant. */
bool cb_entry_is_meant(const struct cb_entry *e, const struct cb_judged *j)
{
	struct stat seen, found;

	if (e->itself)
		return true;
	return fstat(e->parent, &seen) == 0 && fstat(j->parent, &found) == 0 && cb_is_same_file(&seen, &found) &&
	       !(e->there && is_a_mount(e->parent, e->name));
}
