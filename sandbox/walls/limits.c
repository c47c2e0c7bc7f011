/* Limits without cgroups: resource limits of every process in the jail.
 *
 * Trust domain: pid 1. Set inside the user namespace: RLIMIT_NPROC then counts the processes of this jail only (it
 * would have no effect if the uid outside were 0). RLIMIT_DATA makes a memory bomb a MemoryError that the session
 * survives. Never RLIMIT_AS: threads reserve far more than they use, and Python hangs on it. Soft and hard are the
 * same: nothing inside can raise them.
 */
#include "limits.h"

#include "../cgroup/own_tasks.h"
#include "../shared/jail.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>

struct limit {
	int resource;
	const char *name;
	rlim_t value;
};

static int set(const struct limit *limit, struct cb_err *err)
{
	struct rlimit now;

	if (getrlimit((__rlimit_resource_t)limit->resource, &now) < 0)
		return cb_err_set(err, -errno, "limits", NULL, "%s can't be read: %s", limit->name, strerror(errno));
	/* what the host allows us at most is the limit then */
	now.rlim_cur = now.rlim_max = limit->value < now.rlim_max ? limit->value : now.rlim_max;
	if (setrlimit((__rlimit_resource_t)limit->resource, &now) < 0)
		return cb_err_set(err, -errno, "limits", NULL, "%s can't be set to %llu: %s", limit->name,
				  (unsigned long long)now.rlim_cur, strerror(errno));
	return 0;
}

int cb_limit_core_dumps(struct cb_err *err)
{
	/* not 0: a program of the host's that takes core dumps gets them for all but this one (core(5)) */
	return set(&(struct limit){ RLIMIT_CORE, "RLIMIT_CORE", 1 }, err);
}

int cb_limit_open_files(const struct cb_jail *jail, struct cb_err *err)
{
	return set(&(struct limit){ RLIMIT_NOFILE, "RLIMIT_NOFILE", jail->spec->limit_open_files }, err);
}

static rlim_t or_infinity(uint64_t value)
{
	return value != 0 ? value : RLIM_INFINITY;
}

int cb_step_limits(struct cb_jail *jail, struct cb_err *err)
{
	const struct cb_jail_spec *spec = jail->spec;
	uint64_t own = cb_notify_own_tasks(spec) + (jail->warm ? cb_notify_jobs_tasks(spec) : 0);
	/* Below the limit of a control group, which would kill: Python is to see a MemoryError first. */
	uint64_t data = spec->limit_data - (jail->cgroups.kind != CB_CGROUP_NONE ? spec->limit_data / 16 : 0);
	const struct limit limits[] = {
		/* Some are ours. Without a user namespace all processes of the user count: no limit for one that has
		   others */
		{ RLIMIT_NPROC, "RLIMIT_NPROC",
		  jail->without_namespaces && !jail->from_root ? RLIM_INFINITY : spec->limit_pids + own },
		{ RLIMIT_DATA, "RLIMIT_DATA", or_infinity(data) },
		{ RLIMIT_FSIZE, "RLIMIT_FSIZE", or_infinity(spec->limit_file_size) },
		{ RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK", 1u << 20 },
		{ RLIMIT_MSGQUEUE, "RLIMIT_MSGQUEUE", 1u << 16 },
		{ RLIMIT_SIGPENDING, "RLIMIT_SIGPENDING", 4096 },
		{ RLIMIT_RTPRIO, "RLIMIT_RTPRIO", 0 },
		{ RLIMIT_NICE, "RLIMIT_NICE", 0 },
	};
	int r = cb_limit_core_dumps(err);

	(void)umask(jail->umask); /* all that had to have modes of its own is made */
	for (size_t i = 0; i < CB_COUNT(limits) && r == 0; i++)
		r = set(&limits[i], err);
	return r;
}
