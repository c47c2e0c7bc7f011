/* What the supervisor answers alone, at once, whatever runs: kernel_info_request, connect_request, and usage_request,
 * for the resource monitors of frontends. Trust domain: supervisor. Figures are the kernel's, not the guest's word. */
#include <cellblock/json_write.h>
#include <cellblock/proc_stat.h>
#include <fcntl.h>
#include <unistd.h>

#include "rooms.h"
#include "policy/workspace.h"
#include "requests.h"
#include "setup/interpreter_facts.h"
#include "setup/isolation_level.h"

/* Of the banner what does not fit is left out. */
static void write_transactions(const struct cb_kernel *k, struct cb_buf *text)
{
	enum cb_switch_mode mode = k->policy->transactions_mode;
	const char *why = "its process could not be copied, see the kernel's log";

	if (mode == CB_MODE_OFF)
		why = "transactions.mode is \"off\"";
	else if (k->shells.bash)
		why = "bash is not copied";
	else if (k->guest.level < CB_LEVEL_NO_CGROUP)
		why = "no copies are kept at this isolation level";
	if (!k->transactions.twins.possible)
		(void)cb_buf_printf(text, "A cell that crashes costs all variables: %s.\n", why);
	else
		(void)cb_buf_printf(text,
				    "A cell that crashes is undone, and the session goes on (transactions.mode %s).\n",
				    mode == CB_MODE_ALWAYS ? "\"always\""
							   : "\"auto\": where memory is large, cells before it may go "
							     "with it; the error names them");
}

static void write_banner(struct cb_kernel *k, struct cb_json *j)
{
	static const char *const workspace[] = {
		[CB_WORKSPACE_RW] = "read-write",
		[CB_WORKSPACE_RO] = "read-only",
		[CB_WORKSPACE_TMPFS] = "temporary",
		[CB_WORKSPACE_OVERLAY] = "overlay: changes are dropped at the end unless committed",
	};
	const struct cb_policy *p = k->policy;
	const struct cb_err *f = &k->guest.failure;
	bool jailed = k->guest.state == CB_GUEST_UP || k->guest.state == CB_GUEST_RESTORING;
	CB_AUTO_BUF text = CB_BUF_INIT(4096);
	const char *version = k->shells.bash ? k->interpreter->bash_version : k->interpreter->version;

	(void)cb_buf_printf(&text, "Cellblock %s: %s %s ", CELLBLOCK_VERSION, k->shells.bash ? "Bash" : "Python",
			    version != NULL ? version : "");
	if (k->guest.state == CB_GUEST_NONE && f->code != 0)
		(void)cb_buf_printf(&text, "has no jail and runs nothing. Step: %s. Cause: %s. %s\n", f->step, f->text,
				    f->cure);
	else
		(void)cb_buf_printf(&text, "in a jail (policy %s: network %s, workspace %s)\n%s", p->name,
				    p->network_mode == CB_NETWORK_FULL ? "full" : "none", workspace[k->workspace.mode],
				    k->shells.execution.note);
	if (k->guest.state >= CB_GUEST_STARTING) /* before that nobody knows */
		(void)cb_buf_printf(&text, "Isolation level %s: %s%s%s.\n", cb_level_name(k->guest.level),
				    cb_level_text(k->guest.level), k->guest.limits[0] != '\0' ? "; limits by " : "",
				    k->guest.limits);
	if (jailed)
		write_transactions(k, &text);
	if (k->guest.note[0] != '\0')
		(void)cb_buf_printf(&text, "%s\n", k->guest.note);
	cb_json_put_text(j, "banner", (const char *)text.data, text.len);
}

static void write_python(struct cb_kernel *k, struct cb_json *j)
{
	const char *version = k->interpreter->version, *dot = strrchr(version, '.');
	bool ipython = !cb_interpreter_is_plain(k->interpreter);
	char url[64];

	snprintf(url, sizeof(url), "https://docs.python.org/%.*s", (int)(dot != NULL ? dot - version : 1), version);
	cb_json_object(j, "language_info");
	cb_json_put(j, "name", "python", "version", version, "mimetype", "text/x-python");
	cb_json_put_object(j, "codemirror_mode", "name", ipython ? "ipython" : "python", "version", 3u);
	cb_json_put(j, "pygments_lexer", ipython ? "ipython3" : "python3", "nbconvert_exporter", "python",
		    "file_extension", ".py");
	cb_json_end(j);
	cb_json_array(j, "help_links");
	cb_json_put_object(j, NULL, "text", "Python Reference", "url", url);
	cb_json_put_object(j, NULL, "text", "IPython Reference", "url", "https://ipython.org/documentation.html");
	cb_json_end(j);
}

static void write_bash(struct cb_kernel *k, struct cb_json *j)
{
	const char *version = k->interpreter->bash_version;

	cb_json_put_object(j, "language_info", "name", "bash", "version", version != NULL ? version : "", "mimetype",
			   "text/x-sh", "codemirror_mode", "shell", "pygments_lexer", "bash", "file_extension", ".sh");
	cb_json_array(j, "help_links");
	cb_json_put_object(j, NULL, "text", "Bash Reference Manual", "url",
			   "https://www.gnu.org/software/bash/manual/");
	cb_json_end(j);
}

static void write_features(const struct cb_kernel *k, bool debugger, struct cb_json *j)
{
	cb_json_array(j, "supported_features");
	if (!k->shells.bash)
		cb_json_put(j, NULL, "kernel subshells", NULL, "cellblock_tools_request");
	if (debugger)
		cb_json_put(j, NULL, "debugger");
	cb_json_put(j, NULL, "cellblock_file_request", NULL, "cellblock_run_request", NULL, "cellblock_usage_request",
		    NULL, "cellblock_checkpoint_request", NULL, "cellblock_rollback_request");
	cb_json_put(j, NULL, "cellblock_list_checkpoints_request", NULL, "cellblock_delete_checkpoint_request", NULL,
		    "cellblock_branch_request", NULL, "cellblock_list_branches_request", NULL,
		    "cellblock_adopt_request", NULL, "cellblock_interrupt_one");
	cb_json_end(j);
}

void cb_request_kernel_info(struct cb_kernel *k, struct cb_request *r)
{
	CB_AUTO_BUF b = CB_BUF_INIT(32768);
	struct cb_json j = cb_json_begin(&b);
	bool debugger = !k->shells.bash && k->interpreter->debugpy;

	cb_json_put(&j, "status", "ok", "protocol_version", "5.4", "implementation", "cellblock",
		    "implementation_version", CELLBLOCK_VERSION);
	write_features(k, debugger, &j);
	cb_json_put(&j, "debugger", debugger);
	if (k->shells.bash)
		write_bash(k, &j);
	else
		write_python(k, &j);
	write_banner(k, &j);
	cb_reply_json(&k->jupyter, r, &j);
}

void cb_request_connect(struct cb_kernel *k, struct cb_request *r)
{
	const int *port = k->jupyter.conn.port;

	cb_reply_ok(&k->jupyter, r, "shell_port", (long)port[CB_SHELL], "iopub_port", (long)port[CB_IOPUB],
		    "stdin_port", (long)port[CB_STDIN], "control_port", (long)port[CB_CONTROL], "hb_port",
		    (long)port[CB_HB]);
}

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
	used = cb_usage_anonymous(&k->guest.usage, copy, n, NULL);
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
	char text[4096];

	(void)cb_proc_text(AT_FDCWD, "/proc/meminfo", text, sizeof(text));
	unsigned long long total = cb_proc_bytes(text, "MemTotal:");
	unsigned long long available = cb_proc_bytes(text, "MemAvailable:");
	unsigned long long unused = cb_proc_bytes(text, "MemFree:");

	if (total == 0 || available > total)
		return;
	cb_json_put_object(j, "host_virtual_memory", "total", total, "available", available, "used", total - available,
			   "free", unused, "percent", CB_ROUNDED(100 * (double)(total - available) / (double)total, 1));
}

static const char *or_null(const char *text)
{
	return text != NULL && text[0] != '\0' ? text : NULL;
}

/* What tells this kernel from others, for `cellblock list`. */
static void write_about(struct cb_kernel *k, struct cb_json *j)
{
	bool up = k->guest.state >= CB_GUEST_STARTING;
	char started[40];

	cb_date_format(k->started, started);
	cb_json_object(j, "cellblock");
	cb_json_put(j, "started", started, "cpu_s", CB_ROUNDED(up ? cb_usage_jail_cpu(&k->guest.usage) : 0.0, 3),
		    "session", or_null(getenv("JPY_SESSION_NAME")), "client", or_null(k->client), "workspace",
		    or_null(k->policy->workspace_path), "workspace_mode",
		    cb_workspace_mode_name(k->workspace.mode), "policy", or_null(k->policy->name), "level",
		    up ? cb_level_name(k->guest.level) : NULL);
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
