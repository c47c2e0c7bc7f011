/* usage_request, which ipykernel brought in for the resource monitors of frontends: what the jail uses, at once,
 * whatever runs.
 *
 * Trust domain: supervisor. Figures are the kernel's, not the guest's word. Called by the router.
 */
#include <cellblock/fd.h>
#include <cellblock/json_write.h>
#include <fcntl.h>
#include <unistd.h>

#include "requests.h"

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
	return used != UINT64_MAX ? used : cb_usage_of(k->guest.pid);
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

void cb_request_usage(struct cb_kernel *k, struct cb_request *r)
{
	CB_AUTO_BUF b = CB_BUF_INIT(4096);
	bool up = k->guest.state == CB_GUEST_UP;
	char host[256] = "";

	if (gethostname(host, sizeof(host) - 1) < 0)
		host[0] = '\0';
	if (cb_buf_append_str(&b, "{\"status\":\"ok\",\"hostname\":") < 0 || cb_json_write_cstr(&b, host) < 0 ||
	    cb_buf_printf(&b,
			  ",\"pid\":%d,\"kernel_cpu\":%.1f,\"kernel_memory\":%llu,\"kernel_memory_limit\":%llu,"
			  "\"cpu_count\":%ld",
			  (int)(up ? k->guest.pid : getpid()), up ? percent(k) : 0.0,
			  up ? (unsigned long long)memory(k) : 0ULL,
			  (unsigned long long)k->policy->limit_memory, sysconf(_SC_NPROCESSORS_ONLN)) < 0 ||
	    write_host(&b) < 0 || cb_buf_append_str(&b, "}") < 0)
		cb_reply_error(k, r, "MemoryError", "no memory for the reply");
	else
		cb_reply(k, r, cb_buf_span(&b));
}
