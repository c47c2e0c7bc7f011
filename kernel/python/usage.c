/* Accounting from the jail's control group and from /proc.
 *
 * Trust domain: supervisor. /proc/PID/stat, status and schedstat are readable by everybody; the fds are kept open for
 * a guest's life, so that a cell costs two preads. The name in stat is the guest's to choose and may hold anything:
 * fields are counted from the last ')'. The whole jail is what descends from its pid 1, which adopts its orphans; it is
 * walked from outside, since a process can hide from the jail's own /proc. The notifier, which works for it, is the
 * broker's child.
 */
#include "usage.h"

#include <cellblock/clock.h>
#include <cellblock/fd.h>
#include <cellblock/folder.h>
#include <cellblock/proc_stat.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WALK_NS 10000000 /* processor time: the loop waits for it, and on a busy machine no process must go unseen */
#define LARGEST_NS 50000000 /* where a cell is ended for what could not be looked at */
#define UNSEEN_SLACK 1.0 /* s: who was just begun when it was seen stands for more than it is */

static int read_text(int fd, char *ret, size_t size)
{
	ssize_t n = fd >= 0 ? pread(fd, ret, size - 1, 0) : -1;

	if (n <= 0)
		return -1;
	ret[n] = '\0';
	return 0;
}

static bool read_stat(int fd, struct cb_proc_stat *ret)
{
	char text[1024];

	return read_text(fd, text, sizeof(text)) == 0 && cb_proc_stat_parse(text, ret) == 0;
}

void cb_usage_open(struct cb_usage_source *s, pid_t pid, const int cgroup[CB_USAGE_NFDS])
{
	memcpy(s->cgroup, cgroup, sizeof(s->cgroup));
	cb_usage_follow(s, pid);
}

static void close_process(struct cb_usage_source *s)
{
	cb_fd_close(&s->stat);
	cb_fd_close(&s->status);
	cb_fd_close(&s->sched);
}

void cb_usage_follow(struct cb_usage_source *s, pid_t pid)
{
	struct cb_proc_stat stat;
	char path[64];

	close_process(s);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	s->stat = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	s->status = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	s->sched = open(path, O_RDONLY | O_CLOEXEC);
	/* a jail keeps its pid 1, and a later process may be gone already, or not what it seems; but a warm one's first
	 * parent ends */
	if (s->init == 0 || cb_proc_stat_of(s->init, &stat) < 0)
		s->init = s->broker = 0;
	if (s->init == 0 && read_stat(s->stat, &stat))
		s->init = stat.parent;
	if (s->broker == 0 && cb_proc_stat_of(s->init, &stat) == 0)
		s->broker = stat.parent;
}

void cb_usage_close(struct cb_usage_source *s)
{
	close_process(s);
	s->init = s->broker = 0;
	for (int i = 0; i < CB_USAGE_NFDS; i++)
		cb_fd_close(&s->cgroup[i]);
}

void cb_usage_begin(const struct cb_usage_source *s)
{
	if (s->cgroup[CB_USAGE_PEAK] >= 0) /* older kernels refuse it for version 2: then it is the peak ever */
		(void)!pwrite(s->cgroup[CB_USAGE_PEAK], "0", 1, 0);
}

/* Seconds, with those of the children that it has waited for. */
static double user_s(const struct cb_proc_stat *stat)
{
	return (double)(stat->user_us + stat->children_user_us) / 1e6;
}

static double system_s(const struct cb_proc_stat *stat)
{
	return (double)(stat->system_us + stat->children_system_us) / 1e6;
}

static uint64_t parse_anonymous(const char *text)
{
	return cb_proc_bytes(text, "\nRssAnon:") + cb_proc_bytes(text, "\nVmSwap:");
}

uint64_t cb_usage_parse_own(const char *text)
{
	return parse_anonymous(text) + cb_proc_bytes(text, "\nRssShmem:");
}

uint64_t cb_usage_parse_peak(const char *text)
{
	return cb_proc_bytes(text, "\nVmHWM:");
}

/* The number behind "KEY " at the start of a line. */
static const char *field(const char *text, const char *key)
{
	size_t len = strlen(key);

	while (text != NULL && *text != '\0') {
		if (strncmp(text, key, len) == 0 && text[len] == ' ')
			return text + len + 1;
		text = strchr(text, '\n');
		text = text != NULL ? text + 1 : NULL;
	}
	return NULL;
}

bool cb_usage_parse_cpu(const char *text, double *ret_user_s, double *ret_sys_s)
{
	const char *user = field(text, "user_usec"), *sys = field(text, "system_usec");
	double unit = 1e6;

	if (user == NULL || sys == NULL) {
		user = field(text, "user");
		sys = field(text, "system");
		unit = (double)sysconf(_SC_CLK_TCK);
	}
	if (user == NULL || sys == NULL)
		return false;
	*ret_user_s = (double)strtoull(user, NULL, 10) / unit;
	*ret_sys_s = (double)strtoull(sys, NULL, 10) / unit;
	return true;
}

static uint64_t number(const char *text, const char *key)
{
	const char *p = field(text, key);

	return p != NULL ? strtoull(p, NULL, 10) : 0;
}

/* memory.stat, of either version. */
static void parse_memory(const char *text, uint64_t *ret_files, uint64_t *ret_anonymous)
{
	*ret_files = number(text, "active_file") + number(text, "inactive_file");
	*ret_anonymous = field(text, "anon") != NULL ? number(text, "anon") : number(text, "rss");
}

bool cb_usage_memory(const struct cb_usage_source *s, uint64_t enough, uint64_t *ret_used, uint64_t *ret_anonymous)
{
	char text[8192];
	uint64_t files = 0;

	if (read_text(s->cgroup[CB_USAGE_MEMORY], text, sizeof(text)) < 0)
		return false;
	*ret_used = strtoull(text, NULL, 10);
	*ret_anonymous = 0;
	if (*ret_used <= enough)
		return true;
	if (read_text(s->cgroup[CB_USAGE_STAT], text, sizeof(text)) < 0)
		return false;
	parse_memory(text, &files, ret_anonymous);
	*ret_used -= files < *ret_used ? files : *ret_used;
	return true;
}

void cb_usage_read(const struct cb_usage_source *s, struct cb_usage *ret_usage)
{
	struct cb_proc_stat stat;
	char text[4096], ever[64];
	uint64_t peak = 0;

	if (read_text(s->cgroup[CB_USAGE_EVENTS], text, sizeof(text)) == 0) {
		if (read_text(s->cgroup[CB_USAGE_PEAK_EVER], ever, sizeof(ever)) < 0)
			ever[0] = '\0';
		cb_oom_parse(text, ever, s->limit, &ret_usage->oom);
	}
	if ((read_text(s->cgroup[CB_USAGE_CPU], text, sizeof(text)) < 0 ||
	     !cb_usage_parse_cpu(text, &ret_usage->cpu_user_s, &ret_usage->cpu_sys_s)) &&
	    read_stat(s->stat, &stat)) {
		ret_usage->cpu_user_s = user_s(&stat);
		ret_usage->cpu_sys_s = system_s(&stat);
	}
	if (read_text(s->cgroup[CB_USAGE_PEAK], text, sizeof(text)) == 0)
		peak = strtoull(text, NULL, 10);
	if (peak == 0 && read_text(s->status, text, sizeof(text)) == 0)
		peak = cb_usage_parse_peak(text);
	if (peak > 0)
		ret_usage->memory_peak_bytes = peak;
}

/* ---- the whole jail ---- */

struct walk {
	pid_t pid[CB_USAGE_PROCESSES];
	size_t count;
	bool full;   /* there was at least one more, or may have been */
	int64_t end; /* ns of cb_now_thread_ns */
};

static void start_walk(struct walk *w, pid_t top)
{
	w->count = 0;
	w->full = false;
	if (top > 1)
		w->pid[w->count++] = top;
	w->end = cb_now_thread_ns() + WALK_NS;
}

/* Not all can be looked at. */
static bool is_cut(const struct walk *w)
{
	return cb_now_thread_ns() >= w->end || w->full;
}

static void add(void *context, pid_t pid)
{
	struct walk *w = context;

	if (w->count < CB_USAGE_PROCESSES)
		w->pid[w->count++] = pid;
	else
		w->full = true;
}

/* Of who has ended, or is hidden by the host, there is nothing to be seen; else those are missing that were not. */
static void add_children_of(struct walk *w, pid_t pid)
{
	int r = cb_proc_children_of(pid, w->end, add, w);

	w->full = w->full || (r < 0 && r != -ENOENT && r != -ESRCH && r != -EPERM && r != -EACCES);
}

/* The notifiers: what they do is the jail's work, done outside. No cell chooses the name of a broker's child. */
static void add_notifiers(struct walk *w, pid_t broker)
{
	static const char name[] = CB_NOTIFIER_NAME "\n";
	size_t first = w->count, kept = first;
	char path[64], text[64];

	if (broker > 1)
		add_children_of(w, broker);
	for (size_t i = first; i < w->count; i++) {
		snprintf(path, sizeof(path), "/proc/%d/comm", (int)w->pid[i]);
		if (cb_proc_text(AT_FDCWD, path, text, sizeof(text)) == 0 && strcmp(text, name) == 0)
			w->pid[kept++] = w->pid[i];
	}
	w->count = kept;
}

/* A file of the i-th process as text, and on to its children. */
static int look(struct walk *w, size_t i, const char *name, char *ret_text, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)w->pid[i], name);
	add_children_of(w, w->pid[i]);
	return cb_proc_text(AT_FDCWD, path, ret_text, size);
}

double cb_usage_jail_cpu(const struct cb_usage_source *s)
{
	static struct walk w; /* large: not for the stack */
	double sum = 0, user, sys;
	struct cb_proc_stat stat;
	char text[1024];

	if (read_text(s->cgroup[CB_USAGE_CPU], text, sizeof(text)) == 0 && cb_usage_parse_cpu(text, &user, &sys))
		return user + sys;
	start_walk(&w, s->init);
	add_notifiers(&w, s->broker);
	for (size_t i = 0; i < w.count && cb_now_thread_ns() < w.end; i++)
		if (look(&w, i, "stat", text, sizeof(text)) == 0 && cb_proc_stat_parse(text, &stat) == 0)
			sum += user_s(&stat) + system_s(&stat);
	return sum;
}

int64_t cb_usage_worked(pid_t pid, bool descendants)
{
	static struct walk w;
	int64_t sum = 0;

	start_walk(&w, pid);
	for (size_t i = 0; i < w.count && cb_now_thread_ns() < w.end; i++) {
		sum += cb_now_process_ns(w.pid[i]);
		if (descendants)
			add_children_of(&w, w.pid[i]);
	}
	return sum;
}

bool cb_usage_counts_cpu(const struct cb_usage_source *s)
{
	char text[1024];
	double user, sys;

	return read_text(s->cgroup[CB_USAGE_CPU], text, sizeof(text)) == 0 && cb_usage_parse_cpu(text, &user, &sys);
}

static struct cb_usage_process process_of(pid_t pid, const struct cb_proc_stat *stat)
{
	return (struct cb_usage_process){
		.pid = pid,
		.start = stat->start,
		.own = (double)(stat->user_us + stat->system_us) / 1e6,
		.children = (double)(stat->children_user_us + stat->children_system_us) / 1e6,
		.exiting = stat->exiting,
	};
}

static const struct cb_usage_process *seen(const struct cb_usage_ledger *l, const struct cb_usage_process *p, size_t at)
{
	for (size_t i = 0; i < l->count; i++) { /* mostly at the same place as the last time */
		const struct cb_usage_process *q = &l->seen[(at + i) % l->count];

		if (q->pid == p->pid && q->start == p->start)
			return q;
	}
	return NULL;
}

double cb_usage_ledger_add(struct cb_usage_ledger *l, const struct cb_usage_process *now, size_t count, double at_work,
			   double elapsed_s)
{
	double gone = 0, own = 0, fresh = 0, reaped = 0;

	for (size_t i = 0; i < l->count; i++)
		gone += l->seen[i].own + l->seen[i].children;
	for (size_t i = 0; i < count; i++) {
		const struct cb_usage_process *before = seen(l, &now[i], i);

		if (before == NULL) {
			fresh += now[i].own + now[i].children;
			continue;
		}
		own += now[i].own - before->own;
		reaped += now[i].children - before->children;
		gone -= before->own + before->children;
	}
	/* what parents took over of those that are gone has been counted while these lived */
	fresh += reaped > gone ? reaped - gone : 0;
	l->unseen += at_work * elapsed_s - fresh;
	if (l->unseen < -UNSEEN_SLACK)
		l->unseen = -UNSEEN_SLACK;
	own += fresh + (l->unseen > 0 ? l->unseen : 0);
	l->unseen = l->unseen > 0 ? 0 : l->unseen;
	l->count = count;
	memcpy(l->seen, now, count * sizeof(*now));
	return own;
}

/* Its share of the processors while it is ready to run. */
static double share(pid_t pid)
{
	char path[64], text[128];
	struct cb_turns t;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	CB_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);

	t = cb_usage_parse_turns(read_text(fd, text, sizeof(text)) == 0 ? text : "");
	return t.ran_s + t.waited_s > 0 ? t.ran_s / (t.ran_s + t.waited_s) : 1;
}

double cb_usage_advance(struct cb_usage_ledger *l, const struct cb_usage_source *s, double elapsed_s)
{
	static struct cb_usage_process now[CB_USAGE_PROCESSES];
	static struct walk w; /* large: not for the stack */
	double at_work = 0, most = (double)sysconf(_SC_NPROCESSORS_ONLN);
	struct cb_proc_stat stat;
	char text[1024];
	size_t n = 0;

	start_walk(&w, s->init);
	add_notifiers(&w, s->broker);
	for (size_t i = 0; i < w.count && cb_now_thread_ns() < w.end; i++) {
		if (look(&w, i, "stat", text, sizeof(text)) < 0 || cb_proc_stat_parse(text, &stat) < 0)
			continue;
		now[n] = process_of(w.pid[i], &stat);
		if (stat.state == 'R' && seen(l, &now[n], n) == NULL)
			at_work += share(w.pid[i]);
		n++;
	}
	return cb_usage_ledger_add(l, now, n, at_work < most ? at_work : most, elapsed_s);
}

uint64_t cb_usage_faults(const struct cb_usage_source *s, double *ret_sys_s)
{
	struct cb_proc_stat stat = { 0 };

	(void)read_stat(s->stat, &stat);
	*ret_sys_s = system_s(&stat);
	return stat.minor_faults;
}

struct cb_turns cb_usage_parse_turns(const char *text)
{
	unsigned long long ran = 0, waited = 0; /* ns */

	if (sscanf(text, "%llu %llu", &ran, &waited) != 2)
		return (struct cb_turns){ 0 };
	return (struct cb_turns){ (double)ran / 1e9, (double)waited / 1e9 };
}

struct cb_turns cb_usage_turns(const struct cb_usage_source *s)
{
	char text[128];

	return cb_usage_parse_turns(read_text(s->sched, text, sizeof(text)) == 0 ? text : "");
}

uint64_t cb_usage_of(pid_t pid)
{
	char text[4096];

	return cb_proc_status_of(pid, text, sizeof(text)) == 0 ? cb_usage_parse_own(text) : 0;
}

bool cb_usage_process(pid_t pid, struct cb_usage_process *ret)
{
	struct cb_proc_stat stat;

	if (cb_proc_stat_of(pid, &stat) < 0)
		return false;
	*ret = process_of(pid, &stat);
	return true;
}

bool cb_usage_threads_at_work(pid_t pid)
{
	char path[32];
	struct cb_proc_stat stat;
	CB_AUTO_FOLDER threads = cb_proc_threads(pid);
	const struct dirent *entry;
	bool there = false, found = false;

	while (!found && (entry = cb_folder_next(threads)) != NULL) {
		snprintf(path, sizeof(path), "%.20s/stat", entry->d_name);
		if (cb_proc_stat_read(dirfd(threads), path, &stat) == 0) {
			there = true;
			found = stat.exiting || (stat.state == 'R' && strtol(entry->d_name, NULL, 10) != pid);
		}
	}
	return found || !there;
}

static bool is_among(pid_t pid, const pid_t *list, size_t n)
{
	size_t i = 0;

	while (i < n && list[i] != pid)
		i++;
	return i < n;
}

static uint64_t sum_of(pid_t top, int64_t walk_ns, uint64_t (*parse)(const char *text), const pid_t *without, size_t n,
		       uint64_t *ret_largest)
{
	static struct walk w;
	uint64_t sum = 0, largest = 0;
	char text[4096];

	start_walk(&w, top);
	w.end += walk_ns - WALK_NS;
	for (size_t i = 0; i < w.count; i++) {
		if (look(&w, i, "status", text, sizeof(text)) == 0 && !is_among(w.pid[i], without, n)) {
			uint64_t bytes = parse(text);

			sum += bytes;
			largest = bytes > largest ? bytes : largest;
		}
		if (is_cut(&w)) {
			sum = largest = UINT64_MAX;
			break;
		}
	}
	if (ret_largest != NULL)
		*ret_largest = largest;
	return sum;
}

uint64_t cb_usage_anonymous(const struct cb_usage_source *s, const pid_t *without, size_t n, uint64_t *ret_largest)
{
	return sum_of(s->init, WALK_NS, parse_anonymous, without, n, ret_largest);
}

uint64_t cb_usage_anonymous_of(pid_t pid)
{
	char text[4096];

	return cb_proc_status_of(pid, text, sizeof(text)) == 0 ? parse_anonymous(text) : 0;
}

uint64_t cb_usage_tree(pid_t top)
{
	return sum_of(top, WALK_NS, cb_usage_parse_own, NULL, 0, NULL);
}

uint64_t cb_usage_largest(const struct cb_usage_source *s)
{
	uint64_t largest;

	(void)sum_of(s->init, LARGEST_NS, cb_usage_parse_own, NULL, 0, &largest);
	return largest;
}
