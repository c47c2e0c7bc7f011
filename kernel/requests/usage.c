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
		if (k->twins.twin[i].number != 0)
			copy[n++] = k->twins.twin[i].pid;
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

static int write_host(struct cb_buf *b)
{
	char text[4096] = "";
	CB_AUTO_FD fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

	text[n > 0 ? n : 0] = '\0';
	unsigned long long total = cb_usage_parse_kilobytes(text, "MemTotal:");
	unsigned long long available = cb_usage_parse_kilobytes(text, "MemAvailable:");
	unsigned long long unused = cb_usage_parse_kilobytes(text, "MemFree:");

	if (total == 0 || available > total)
		return 0;
	return cb_buf_printf(b,
			     ",\"host_virtual_memory\":{\"total\":%llu,\"available\":%llu,\"used\":%llu,\"free\":%llu,"
			     "\"percent\":%.1f}",
			     total, available, total - available, unused,
			     100 * (double)(total - available) / (double)total);
}

static int write_text(struct cb_buf *b, const char *key, const char *value)
{
	int r = cb_buf_printf(b, ",\"%s\":", key);

	if (r == 0)
		r = value != NULL && value[0] != '\0' ? cb_json_write_cstr(b, value) : cb_buf_append_str(b, "null");
	return r;
}

/* What tells this kernel from others, for `cellblock list`. */
static int write_about(struct cb_kernel *k, struct cb_buf *b)
{
	static const char *const modes[] = { [CB_WORKSPACE_RW] = "rw",
					     [CB_WORKSPACE_RO] = "ro",
					     [CB_WORKSPACE_TMPFS] = "tmpfs",
					     [CB_WORKSPACE_OVERLAY] = "overlay" };
	bool up = k->guest.state >= CB_GUEST_STARTING;
	char started[40];
	int r;

	cb_date_format(k->started, started);
	r = cb_buf_printf(b, ",\"cellblock\":{\"started\":\"%s\",\"cpu_s\":%.3f", started,
			  up ? cb_usage_jail_cpu(&k->guest.usage) : 0.0);
	r = r == 0 ? write_text(b, "session", getenv("JPY_SESSION_NAME")) : r;
	r = r == 0 ? write_text(b, "client", k->client) : r;
	r = r == 0 ? write_text(b, "workspace", k->policy->workspace_path) : r;
	r = r == 0 ? write_text(b, "workspace_mode", modes[k->workspace_mode]) : r;
	r = r == 0 ? write_text(b, "policy", k->policy->name) : r;
	r = r == 0 ? write_text(b, "level", up ? cb_level_name(k->guest.level) : NULL) : r;
	return r == 0 ? cb_buf_append_str(b, "}") : r;
}

void cb_request_usage(struct cb_kernel *k, struct cb_request *r)
{
	CB_AUTO_BUF b = CB_BUF_INIT(1u << 17);
	bool up = k->guest.state == CB_GUEST_UP;
	char host[256] = "";

	if (gethostname(host, sizeof(host) - 1) < 0)
		host[0] = '\0';
	if (cb_buf_append_str(&b, "{\"status\":\"ok\",\"hostname\":") < 0 || cb_json_write_cstr(&b, host) < 0 ||
	    cb_buf_printf(&b,
			  ",\"pid\":%d,\"kernel_cpu\":%.1f,\"kernel_memory\":%llu,\"kernel_memory_limit\":%llu,"
			  "\"cpu_count\":%ld",
			  (int)(up ? k->guest.python.pid : getpid()), up ? percent(k) : 0.0,
			  up ? (unsigned long long)memory(k) : 0ULL, (unsigned long long)k->policy->limit_memory,
			  sysconf(_SC_NPROCESSORS_ONLN)) < 0 ||
	    write_host(&b) < 0 || write_about(k, &b) < 0 || cb_buf_append_str(&b, "}") < 0)
		cb_reply_error(k, r, "MemoryError", "no memory for the reply");
	else
		cb_reply(k, r, cb_buf_span(&b));
}
