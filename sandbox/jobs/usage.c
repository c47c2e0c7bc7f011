/* What the processes of this jail use now, from its own /proc.
 *
 * Trust domain: a helper in the jail. /proc shows this jail's processes only. Where there is none the sums stay 0.
 */
#include "job.h"

#include <cellblock/proc_stat.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statfs.h>
#include <unistd.h>

static void add_process(struct cb_job_usage *u, int proc, const char *name, pid_t self)
{
	unsigned long pid = strtoul(name, NULL, 10);
	struct cb_proc_stat stat;
	char path[64];

	snprintf(path, sizeof(path), "%.16s/stat", name);
	if (cb_proc_stat_read(proc, path, &stat) < 0)
		return;
	if (pid != (unsigned long)self) {
		/* of pid 1 only what it has reaped counts: orphans, and former helpers */
		u->cpu_user_us += stat.children_user_us + (pid != 1 ? stat.user_us : 0);
		u->cpu_sys_us += stat.children_system_us + (pid != 1 ? stat.system_us : 0);
	}
	if (pid == 1 || pid == (unsigned long)self)
		return;
	u->processes++;
	u->threads += stat.threads;
	u->memory_bytes += stat.resident_bytes;
}

static uint64_t used_bytes(const char *path)
{
	struct statfs s;

	return statfs(path, &s) == 0 ? (uint64_t)(s.f_blocks - s.f_bfree) * (uint64_t)s.f_bsize : 0;
}

_Noreturn void cb_job_usage(struct cb_job *job)
{
	static struct cb_dents dents;
	struct cb_job_usage usage = { 0 };
	struct cb_job_frame head = { .op = CB_JOB_DONE };
	const char *name;
	int code = 0, proc = -1;

	/* without namespaces /proc and /tmp are the whole host's */
	if (!job->jail->without_namespaces) {
		proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		usage.tmp_bytes = used_bytes("/tmp");
		usage.shm_bytes = used_bytes("/dev/shm");
	}
	while (proc >= 0 && (name = cb_dents_next(&dents, proc, &code)) != NULL)
		if (name[0] >= '1' && name[0] <= '9')
			add_process(&usage, proc, name, getpid());
	cb_job_done(job, &head, &usage, sizeof(usage));
}
