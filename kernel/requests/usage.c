/* usage_request, which ipykernel brought in for the resource monitors of frontends: what the jail uses, at once,
 * whatever runs.
 *
 * Trust domain: supervisor. Figures are the kernel's, not the guest's word. Called by the router.
 */
#include <cellblock/fd.h>
#include <cellblock/json_write.h>
#include <fcntl.h>
#include <unistd.h>

#include "kernel.h"
#include "requests.h"
#include "setup/isolation_level.h"

/* The control group's figure; without one the sum over all processes but copies of the state, which share theirs. */
static uint64_t memory(struct cb_kernel *k)
{
	uint64_t used, anonymous;
	pid_t copy[CB_TWINS_MAX];
	size_t n = 0;

	if (cb_usage_memory(&k->guest.usage, 0, &used, &anonymous))
		return used;
	for (int i = 0; i < CB_TWINS_MAX; i++)
		if (k->transactions.twins.twin[i].number != 0)
			copy[n++] = k->transactions.twins.twin[i].pid;
	used = cb_usage_anonymous(&k->guest.usage, copy, n);
	return used != UINT64_MAX ? used : cb_usage_of(k->guest.python.pid);
}

/* Of one processor since the last request, as psutil has it; 0 at first. */
static double percent(struct cb_kernel *k)
{
	double cpu = cb_usage_jail_cpu(&k->guest.usage), more = cpu - k->usage_asked.cpu;
	int64_t now = cb_now_ns();
	double seconds = (double)(now - k->usage_asked.at) / 1e9;
	bool first = k->usage_asked.at == 0 || k->usage_asked.jail != k->guest.generation;

	k->usage_asked.cpu = cpu;
	k->usage_asked.at = now;
	k->usage_asked.jail = k->guest.generation;
	return first || more < 0 || seconds <= 0 ? 0 : 100 * more / seconds;
}

static void write_host(struct cb_json *j)
{
	char text[4096] = "";
	CB_AUTO_FD fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

	text[n > 0 ? n : 0] = '\0';
	unsigned long long total = cb_usage_parse_kilobytes(text, "MemTotal:");
	unsigned long long available = cb_usage_parse_kilobytes(text, "MemAvailable:");
	unsigned long long unused = cb_usage_parse_kilobytes(text, "MemFree:");

	if (total == 0 || available > total)
		return;
	cb_json_put_object(j, "host_virtual_memory", "total", total, "available", available, "used", total - available,
			   "free", unused, "percent",
			   CB_ROUNDED(100 * (double)(total - available) / (double)total, 1));
}

static const char *or_null(const char *text)
{
	return text != NULL && text[0] != '\0' ? text : NULL;
}

/* What tells this kernel from others, for `cellblock list`. */
static void write_about(struct cb_kernel *k, struct cb_json *j)
{
	static const char *const modes[] = { [CB_WORKSPACE_RW] = "rw",
					     [CB_WORKSPACE_RO] = "ro",
					     [CB_WORKSPACE_TMPFS] = "tmpfs",
					     [CB_WORKSPACE_OVERLAY] = "overlay" };
	bool up = k->guest.state >= CB_GUEST_STARTING;
	char started[40];

	cb_date_format(k->started, started);
	cb_json_object(j, "cellblock");
	cb_json_put(j, "started", started, "cpu_s", CB_ROUNDED(up ? cb_usage_jail_cpu(&k->guest.usage) : 0.0, 3),
		    "session", or_null(getenv("JPY_SESSION_NAME")), "client", or_null(k->client), "workspace",
		    or_null(k->policy->workspace_path), "workspace_mode", modes[k->workspace.mode], "policy",
		    or_null(k->policy->name), "level", up ? cb_level_name(k->guest.level) : NULL);
	cb_json_end(j);
}

void cb_request_usage(struct cb_kernel *k, struct cb_request *r)
{
	CB_AUTO_BUF b = CB_BUF_INIT(1u << 17);
	struct cb_json j = cb_json_begin(&b);
	bool up = k->guest.state == CB_GUEST_UP;
	char host[256] = "";

	if (gethostname(host, sizeof(host) - 1) < 0)
		host[0] = '\0';
	cb_json_put(&j, "status", "ok", "hostname", host, "pid", (long)(up ? k->guest.python.pid : getpid()),
		    "kernel_cpu", CB_ROUNDED(up ? percent(k) : 0.0, 1), "kernel_memory", up ? memory(k) : 0,
		    "kernel_memory_limit", k->policy->limit_memory, "cpu_count", sysconf(_SC_NPROCESSORS_ONLN));
	write_host(&j);
	write_about(k, &j);
	cb_reply_json(&k->jupyter, r, &j);
}
