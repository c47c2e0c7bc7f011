/* What the processes of this jail use now, from its own /proc.
 *
 * Trust domain: a helper in the jail. /proc shows this jail's processes only, and the kernel writes it; names in it are
 * the guest's to choose, so fields are counted from the last ')'. Where there is no /proc the sums stay 0.
 */
#include "job.h"

#include <cellblock/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

static int read_stat(int proc, const char *pid, char *ret_text, size_t size)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "%.16s/stat", pid);
	CB_AUTO_FD fd = openat(proc, path, O_RDONLY | O_CLOEXEC);

	n = fd >= 0 ? read(fd, ret_text, size - 1) : -1;
	if (n <= 0)
		return -ENOENT;
	ret_text[n] = '\0';
	return 0;
}

static void add_process(struct cb_job_usage *u, int proc, const char *name, pid_t self)
{
	unsigned long user = 0, sys = 0, child_user = 0, child_sys = 0, threads = 0;
	unsigned long pid = strtoul(name, NULL, 10), hz = (unsigned long)sysconf(_SC_CLK_TCK);
	long resident = 0;
	char text[1024];
	const char *p = read_stat(proc, name, text, sizeof(text)) == 0 ? strrchr(text, ')') : NULL;

	/* behind the name: state is field 3, utime 14, stime, cutime, cstime, num_threads 20, rss 24 */
	if (p == NULL || sscanf(p + 1,
				" %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %lu %lu %*d %*d %lu %*d %*u %*u "
				"%ld",
				&user, &sys, &child_user, &child_sys, &threads, &resident) != 6)
		return;
	if (pid != (unsigned long)self) {
		/* of pid 1 only what it has reaped counts: orphans, and former helpers */
		u->cpu_user_us += (child_user + (pid != 1 ? user : 0)) * 1000000 / hz;
		u->cpu_sys_us += (child_sys + (pid != 1 ? sys : 0)) * 1000000 / hz;
	}
	if (pid == 1 || pid == (unsigned long)self)
		return;
	u->processes++;
	u->threads += threads;
	u->memory_bytes += resident > 0 ? (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
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
