/* kernel_info_request and connect_request: answered by the supervisor alone, at once. Trust domain: supervisor. */
#include <cellblock/json_write.h>

#include "kernel.h"
#include "requests.h"
#include "setup/isolation_level.h"

static int write_transactions(const struct cb_kernel *k, struct cb_buf *text)
{
	enum cb_switch_mode mode = k->policy->transactions_mode;
	const char *why = "its process could not be copied, see the kernel's log";

	if (mode == CB_MODE_OFF)
		why = "transactions.mode is \"off\"";
	else if (k->bash)
		why = "bash is not copied";
	else if (k->guest.level < CB_LEVEL_NO_CGROUP)
		why = "no copies are kept at this isolation level";
	if (!k->twins.possible)
		return cb_buf_printf(text, "A cell that crashes costs all variables: %s.\n", why);
	return cb_buf_printf(text, "A cell that crashes costs nothing (transactions.mode \"%s\").\n",
			     mode == CB_MODE_ALWAYS ? "always" : "auto");
}

static int write_banner(struct cb_kernel *k, struct cb_buf *b)
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
	const char *version = k->bash ? k->interpreter->bash_version : k->interpreter->version;
	int r = cb_buf_printf(&text, "Cellblock %s: %s %s ", CELLBLOCK_VERSION, k->bash ? "Bash" : "Python",
			      version != NULL ? version : "");

	if (r == 0 && k->guest.state == CB_GUEST_NONE && f->code != 0)
		r = cb_buf_printf(&text, "has no jail and runs nothing. Step: %s. Cause: %s. %s\n", f->step, f->text,
				  f->cure);
	else if (r == 0)
		r = cb_buf_printf(&text, "in a jail (policy %s: network %s, workspace %s)\n%s", p->name,
				  p->network_mode == CB_NETWORK_FULL ? "full" : "none", workspace[k->workspace_mode],
				  k->workspace_note);
	if (r == 0 && k->guest.state >= CB_GUEST_STARTING) /* before that nobody knows */
		r = cb_buf_printf(&text, "Isolation level %s: %s%s%s.\n", cb_level_name(k->guest.level),
				  cb_level_text(k->guest.level), k->guest.limits[0] != '\0' ? "; limits by " : "",
				  k->guest.limits);
	if (r == 0 && jailed)
		r = write_transactions(k, &text);
	if (r == 0 && k->guest.note[0] != '\0')
		r = cb_buf_printf(&text, "%s\n", k->guest.note);
	return r < 0 ? r : cb_json_write_string(b, (const char *)text.data, text.len);
}

static int write_python(struct cb_kernel *k, struct cb_buf *b)
{
	const char *version = k->interpreter->version, *dot = strrchr(version, '.');
	bool ipython = k->interpreter->ipython_version != NULL;

	return cb_buf_printf(b,
			     "\"language_info\":{\"name\":\"python\",\"version\":\"%s\",\"mimetype\":\"text/x-python\","
			     "\"codemirror_mode\":{\"name\":\"%s\",\"version\":3},\"pygments_lexer\":\"%s\","
			     "\"nbconvert_exporter\":\"python\",\"file_extension\":\".py\"},\"help_links\":["
			     "{\"text\":\"Python Reference\",\"url\":\"https://docs.python.org/%.*s\"},"
			     "{\"text\":\"IPython Reference\",\"url\":\"https://ipython.org/documentation.html\"}],",
			     version, ipython ? "ipython" : "python", ipython ? "ipython3" : "python3",
			     (int)(dot != NULL ? dot - version : 1), version);
}

static int write_bash(struct cb_kernel *k, struct cb_buf *b)
{
	const char *version = k->interpreter->bash_version;

	return cb_buf_printf(
		b,
		"\"language_info\":{\"name\":\"bash\",\"version\":\"%s\",\"mimetype\":\"text/x-sh\","
		"\"codemirror_mode\":\"shell\",\"pygments_lexer\":\"bash\",\"file_extension\":\".sh\"},\"help_links\":["
		"{\"text\":\"Bash Reference Manual\",\"url\":\"https://www.gnu.org/software/bash/manual/\"}],",
		version != NULL ? version : "");
}

void cb_request_kernel_info(struct cb_kernel *k, struct cb_request *r)
{
	CB_AUTO_BUF b = CB_BUF_INIT(32768);
	bool debugger = !k->bash && k->interpreter->debugpy;
	int c = cb_buf_printf(
		&b,
		"{\"status\":\"ok\",\"protocol_version\":\"5.4\",\"implementation\":\"cellblock\",\"implementation_"
		"version\":\"%s\",\"supported_features\":[%s%s\"cellblock_file_request\",\"cellblock_run_request\","
		"\"cellblock_usage_request\",\"cellblock_checkpoint_request\",\"cellblock_rollback_request\","
		"\"cellblock_list_checkpoints_request\",\"cellblock_delete_checkpoint_request\",\"cellblock_branch_"
		"request\",\"cellblock_list_branches_request\",\"cellblock_adopt_request\"%s],"
		"\"debugger\":%s,",
		CELLBLOCK_VERSION, k->bash ? "" : "\"kernel subshells\",", debugger ? "\"debugger\"," : "",
		k->bash ? "" : ",\"cellblock_tools_request\"", debugger ? "true" : "false");

	if (c == 0)
		c = k->bash ? write_bash(k, &b) : write_python(k, &b);
	if (c == 0)
		c = cb_buf_append_str(&b, "\"banner\":");
	if (c == 0)
		c = write_banner(k, &b);
	if (c == 0 && cb_buf_append_str(&b, "}") == 0)
		cb_reply(k, r, cb_buf_span(&b));
	else
		cb_reply_error(k, r, "MemoryError", "no memory for the reply");
}

void cb_request_connect(struct cb_kernel *k, struct cb_request *r)
{
	char text[256];
	int n = snprintf(text, sizeof(text),
			 "{\"status\":\"ok\",\"shell_port\":%d,\"iopub_port\":%d,\"stdin_port\":%d,\"control_port\":%d,"
			 "\"hb_port\":%d}",
			 k->conn.port[CB_SHELL], k->conn.port[CB_IOPUB], k->conn.port[CB_STDIN],
			 k->conn.port[CB_CONTROL], k->conn.port[CB_HB]);

	cb_reply(k, r, (struct cb_span){ text, (size_t)n });
}
