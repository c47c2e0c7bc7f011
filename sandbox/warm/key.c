/* Which zygote fits a jail: see warm.h.
 *
 * Trust domain: broker. A zygote's name is a sum over all that its copies inherit and can't change, so two kernels
 * share one only if they would have been born alike: the interpreter and how it was started, what is shown where, the
 * environment but for what differs from session to session, our own version and files, and of the broker's own state
 * what children inherit. What changes on disk while a zygote lives is in its stamp.
 *
 * Invariants: pure but for reading; what can't be read makes another name, never the same.
 */
#include "warm.h"

#include "../shared/mounts.h"
#include "../shared/sha1.h"

#include <cellblock/buffer.h>
#include <cellblock/fd.h>
#include <cellblock/proc_stat.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEY_MAX (CB_SPEC_MAX + (1u << 20))
#define SMALL (16u << 20) /* bytes of a zygote's tmpfs: nobody writes there for long */
#define SMALL_FILES 4096
#define OWN_FILES 4096 /* of a zygote */
#define GUEST "/run/cellblock/guest"
#define PYTHONPATH "PYTHONPATH="

bool cb_warm_is_late(const char *variable)
{
	static const char *const late[] = CB_WARM_LATE_ENV;

	for (size_t i = 0; i < CB_COUNT(late); i++) {
		size_t n = strlen(late[i]);

		if (strncmp(variable, late[i], n) == 0 && variable[n] == '=')
			return true;
	}
	return false;
}

/* An empty or relative entry means the current folder, which is another one in a zygote. */
static bool imports_from_cwd(const struct cb_strv *env)
{
	for (size_t i = 0; i < env->count; i++) {
		const char *at = env->items[i];

		if (strncmp(at, PYTHONPATH, strlen(PYTHONPATH)) != 0 || at[strlen(PYTHONPATH)] == '\0')
			continue;
		for (at += strlen(PYTHONPATH); at != NULL; at = strchr(at, ':'), at += at != NULL)
			if (*at != '/')
				return true;
	}
	return false;
}

bool cb_warm_is_wanted(const struct cb_jail *jail)
{
	const struct cb_jail_spec *spec = jail->spec;

	/* what an image holds is not what the stamp is compared with; with the host's network there is no namespace
	 * that the zygote could enter */
	return spec->warm_folder != NULL && !jail->without_namespaces && jail->filter.len > 0 &&
	       spec->network == CB_NETWORK_NONE && spec->root_path == NULL && !imports_from_cwd(&spec->env);
}

/* Shown in a zygote is what is read-only and belongs to no session. */
static bool is_common(const struct cb_bind *bind)
{
	return bind->mode != CB_BIND_RW && strcmp(bind->source, "/dev/null") != 0;
}

int cb_warm_spec(const struct cb_jail_spec *spec, struct cb_jail_spec *ret)
{
	struct cb_jail_spec z = {
		.argv = spec->argv,
		.cwd = (char *)(uintptr_t) "/",
		.hostname = spec->hostname,
		.workspace_mode = CB_WORKSPACE_TMPFS,
		.network = CB_NETWORK_NONE,
		.minimum = CB_LEVEL_NO_CGROUP,
		.limit_pids = OWN_FILES,
		.limit_open_files = OWN_FILES,
		.limit_tmp = SMALL,
		.limit_shm = SMALL,
		.limit_inodes = SMALL_FILES,
		.warm_folder = spec->warm_folder,
		.warm_preload = spec->warm_preload,
	};

	z.binds = calloc(spec->nbinds + 1, sizeof(*z.binds));
	z.env.items = calloc(spec->env.count + 1, sizeof(*z.env.items));
	if (z.binds == NULL || z.env.items == NULL) {
		free(z.binds);
		free(z.env.items);
		return -ENOMEM;
	}
	for (size_t i = 0; i < spec->nbinds; i++)
		if (is_common(&spec->binds[i])) {
			z.binds[z.nbinds] = spec->binds[i];
			z.binds[z.nbinds++].mode = CB_BIND_RO;
		}
	for (size_t i = 0; i < spec->env.count; i++)
		if (!cb_warm_is_late(spec->env.items[i]))
			z.env.items[z.env.count++] = spec->env.items[i];
	*ret = z;
	return 0;
}

static int add_stat(struct cb_buf *out, int dirfd, const char *path)
{
	struct stat st = { 0 };
	int error = fstatat(dirfd, path, &st, 0) < 0 ? errno : 0;

	return cb_buf_printf(out, "%s %d %llu %llu %lld %lld.%ld\n", path, error, (unsigned long long)st.st_dev,
			     (unsigned long long)st.st_ino, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
			     st.st_mtim.tv_nsec);
}

/* This program, and our modules, may be built anew at the same place. */
static int add_own_files(struct cb_buf *out, const struct cb_jail_spec *spec)
{
	static const char *const names[] = { "boot.py", "cellblock_guest", "cellblock_guest/main.py",
					     "cellblock_guest/zygote.py", "cellblock_guest/libcopier.so" };
	int r = add_stat(out, AT_FDCWD, "/proc/self/exe");

	for (size_t i = 0; i < spec->nbinds && r == 0; i++) {
		CB_AUTO_FD folder = -1;

		if (strcmp(spec->binds[i].target, GUEST) != 0)
			continue;
		folder = open(spec->binds[i].source, O_PATH | O_DIRECTORY | O_CLOEXEC);
		for (size_t k = 0; k < CB_COUNT(names) && r == 0; k++)
			r = add_stat(out, folder, names[k]);
	}
	return r;
}

static int add_file(struct cb_buf *out, const char *path)
{
	char text[4096];
	int r = cb_proc_text(AT_FDCWD, path, text, sizeof(text));

	return r == 0 ? cb_buf_append_str(out, text) : cb_buf_printf(out, "%s %d\n", path, -r);
}

unsigned long cb_warm_filters_of(const char *status)
{
	return cb_proc_number(status, "\nSeccomp_filters:", 10, 0);
}

unsigned long cb_warm_own_filters(void)
{
	char status[8192];

	(void)cb_proc_text(AT_FDCWD, "/proc/self/status", status, sizeof(status));
	return cb_warm_filters_of(status);
}

static int add_identity(struct cb_buf *out)
{
	gid_t groups[NGROUPS_MAX];
	int n = getgroups(NGROUPS_MAX, groups);
	int r = cb_buf_printf(out, "%u %u %d\n", geteuid(), getegid(), n);

	if (r == 0 && n > 0)
		r = cb_buf_append(out, groups, (size_t)n * sizeof(*groups));
	return r == 0 ? cb_buf_printf(out, "filters %lu\n", cb_warm_own_filters()) : r;
}

/* What a child has of its parent: where it is charged and confined, how often it runs, how much it may have. */
static int add_own_state(const struct cb_jail *jail, struct cb_buf *out)
{
	static const char *const files[] = { "/proc/self/attr/current", "/proc/self/personality",
					     "/proc/self/coredump_filter", "/proc/self/timerslack_ns" };
	cpu_set_t cpus;
	int r = add_identity(out);

	CPU_ZERO(&cpus);
	(void)sched_getaffinity(0, sizeof(cpus), &cpus);
	if (r == 0)
		r = cb_buf_append_str(out, jail->own_group);
	for (size_t i = 0; i < CB_COUNT(files) && r == 0; i++)
		r = add_file(out, files[i]);
	if (r == 0)
		r = cb_buf_append(out, &cpus, sizeof(cpus));
	if (r == 0)
		r = cb_buf_printf(out, "%d %d %ld %d\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0),
				  syscall(SYS_ioprio_get, 1, 0), prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
	for (int i = 0; i < RLIM_NLIMITS && r == 0; i++) {
		struct rlimit limit = { 0 };

		(void)getrlimit((__rlimit_resource_t)i, &limit);
		r = cb_buf_printf(out, "%llu %llu\n", (unsigned long long)limit.rlim_cur,
				  (unsigned long long)limit.rlim_max);
	}
	return r;
}

/* In the form in which it is handed to brokers: no two descriptions have the same. */
static int add_spec(struct cb_buf *out, const struct cb_jail_spec *spec)
{
	struct cb_jail_spec z;
	CB_AUTO_FD fd = -1;
	char *data = NULL;
	size_t len = 0;
	int r = cb_warm_spec(spec, &z);

	if (r < 0)
		return r;
	r = cb_jail_spec_to_fd(&z, &fd);
	if (r == 0)
		r = cb_fd_read_all(fd, CB_SPEC_MAX, &data, &len);
	if (r == 0)
		r = cb_buf_append(out, data, len);
	free(data);
	free(z.binds);
	free(z.env.items);
	return r;
}

int cb_warm_key(const struct cb_jail *jail, char ret_key[CB_WARM_KEY_LEN + 1])
{
	CB_AUTO_BUF text = CB_BUF_INIT(KEY_MAX);
	unsigned char sum[CB_SHA1];
	int r = add_spec(&text, jail->spec);

	if (r == 0)
		r = cb_buf_printf(&text, "%s %d\n", CELLBLOCK_VERSION, CB_WARM_VERSION);
	if (r == 0)
		r = cb_buf_append(&text, jail->filter.filter, jail->filter.len * sizeof(*jail->filter.filter));
	if (r == 0)
		r = add_own_files(&text, jail->spec);
	if (r == 0)
		r = add_own_state(jail, &text);
	if (r < 0)
		return r;
	cb_sha1(text.data, text.len, sum);
	for (size_t i = 0; i < sizeof(sum); i++)
		snprintf(ret_key + 2 * i, 3, "%02x", sum[i]);
	return 0;
}

/* Where we see what a zygote sees at this path. */
static const char *place_of(const struct cb_jail_spec *spec, const char *path, char buf[PATH_MAX])
{
	const struct cb_bind *shown = NULL;

	for (size_t i = 0; i < spec->nbinds; i++) {
		const struct cb_bind *bind = &spec->binds[i];

		if (is_common(bind) && cb_path_within(path, bind->target) &&
		    (shown == NULL || strlen(bind->target) > strlen(shown->target)))
			shown = bind;
	}
	if (shown == NULL)
		return path;
	snprintf(buf, PATH_MAX, "%s%s", shown->source, path + strlen(shown->target));
	return buf;
}

/* Whether what is there was made or moved there since; of what is gone the folder tells that was above it. */
static bool was_replaced(const char *path, struct timespec since)
{
	char above[PATH_MAX], *slash;
	struct stat st;
	int r;

	if (stat(path, &st) == 0 && !cb_is_after(since, st.st_ctim))
		return true;
	snprintf(above, sizeof(above), "%s", path);
	while ((r = lstat(above, &st)) < 0 && above[1] != '\0') {
		slash = strrchr(above + 1, '/');
		*(slash != NULL ? slash : above + 1) = '\0';
	}
	return r == 0 && !cb_is_after(since, st.st_ctim);
}

/* "device inode size mtime ctime path" */
static int check_line(const struct cb_jail_spec *spec, const char *line, struct timespec since)
{
	unsigned long long dev, ino, size, mtime, ctime;
	char buf[PATH_MAX];
	const char *path;
	struct stat st;
	int at = 0;

	if (sscanf(line, "%llu %llu %llu %llu %llu %n", &dev, &ino, &size, &mtime, &ctime, &at) != 5 || at == 0 ||
	    line[at] != '/')
		return CB_E_SYNTAX;
	path = place_of(spec, line + at, buf);
	if (stat(path, &st) < 0 || st.st_dev != dev || st.st_ino != ino)
		return was_replaced(path, since) ? -ESTALE : -EXDEV;
	return (unsigned long long)st.st_size == size &&
			       (unsigned long long)st.st_mtim.tv_sec * 1000000000ull +
					       (unsigned long long)st.st_mtim.tv_nsec ==
				       mtime &&
			       (unsigned long long)st.st_ctim.tv_sec * 1000000000ull +
					       (unsigned long long)st.st_ctim.tv_nsec ==
				       ctime
		       ? 0
		       : -ESTALE;
}

int cb_warm_stamp_check(const struct cb_jail_spec *spec, struct timespec since, char *stamp)
{
	char *rest = NULL;
	int r = 0, n = 0;

	for (char *line = strtok_r(stamp, "\n", &rest); line != NULL && r == 0; line = strtok_r(NULL, "\n", &rest)) {
		r = check_line(spec, line, since);
		n++;
	}
	return r == 0 && n == 0 ? CB_E_SYNTAX : r;
}
