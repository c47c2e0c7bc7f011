/* kernel_info_request and connect_request: answered by the supervisor alone, at once. Trust domain: supervisor. */
#include <cellblock/json_write.h>

#include "kernel.h"
#include "requests.h"
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
		(void)cb_buf_printf(text, "A cell that crashes costs nothing (transactions.mode \"%s\").\n",
				    mode == CB_MODE_ALWAYS ? "always" : "auto");
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
	bool ipython = k->interpreter->ipython_version != NULL;
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
		    "cellblock_adopt_request");
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
