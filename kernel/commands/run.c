/* `cellblock run`: one command in a jail, without Jupyter.
 *
 * Role: plans the jail and becomes `cellblock-jail run`, so output and exit status are the command's own. Trust domain:
 * supervisor's program, no secrets. Exit status: 2 wrong usage or policy, 124 timed out, 125 could not isolate, 126 and
 * 127 as in a shell, 137 killed for memory.
 */
#include <cellblock/visible.h>
#include <errno.h>
#include <unistd.h>

#include "records/audit.h"
#include "command.h"
#include "setup/capture.h"

enum { WRONG_USAGE = 2, CANNOT_ISOLATE = 125, NOT_FOUND = 127 };

static int start(struct cb_command_jail *jail, double timeout, struct cb_err *err)
{
	char seconds[32];
	char *argv[] = { jail->install_paths.jail,
			 (char[]){ "run" },
			 (char[]){ "--spec-fd" },
			 jail->spec_fd_text,
			 timeout > 0 ? (char[]){ "--timeout" } : NULL,
			 seconds,
			 NULL };
	int r;

	snprintf(seconds, sizeof(seconds), "%.9g", timeout); /* not 0 for very little, which would be none */
	r = cb_replace_process(argv, jail->spec_fd);
	return cb_err_set(err, r, "run", NULL, "%s can't be started: %s", jail->install_paths.jail, cb_err_text(r));
}

static int note_in_audit_log(const struct cb_policy *policy, char *const argv[], struct cb_err *err)
{
	CB_AUTO_BUF command = CB_BUF_INIT(CB_AUDIT_TEXT_MAX + 2);
	CB_AUTO_BUF members = CB_BUF_INIT(CB_AUDIT_MEMBERS_MAX);
	struct cb_audit *audit = NULL;
	char name[24];
	int r, written;

	if (policy->audit_file == NULL)
		return 0;
	snprintf(name, sizeof(name), "run-%d", (int)getpid());
	r = cb_audit_open(policy->audit_file, name, &audit, err);
	if (r < 0)
		return r;
	for (int i = 0; argv[i] != NULL; i++)
		if (cb_buf_printf(&command, "%s%.*s", i > 0 ? " " : "", CB_AUDIT_TEXT_MAX / 2, argv[i]) < 0)
			break;
	struct cb_json j = cb_json_inside(&members);

	j.brief = CB_AUDIT_TEXT_MAX;
	cb_json_put_text(&j, "command", (const char *)command.data, command.len);
	cb_json_put(&j, "policy", policy->name);
	(void)cb_json_done(&j);
	cb_audit_add(audit, "run", cb_buf_span(&members));
	r = cb_audit_start(audit);
	written = cb_audit_close(audit);
	if (r < 0)
		return cb_err_set(err, r, "audit", NULL, "its thread can't be started");
	if (written == 0)
		return 0;
	return cb_err_set(err, written, "audit",
			  written == -ETIMEDOUT ? "Another program holds a lock on the file: end it, or try again."
						: "Make room on its disk, or set audit.file to another file.",
			  "audit.file %s: the command was not run, for its line could not be written",
			  policy->audit_file);
}

int cb_command_run(const struct cb_options *o)
{
	struct cb_err err = { 0 };
	struct cb_command_jail jail = { 0 };
	int r = cb_command_open_files(&err);

	if (r == 0)
		r = cb_command_plan(o, o->rest, &jail, &err);
	if (r == 0 && jail.spec.workspace_note != NULL)
		fprintf(stderr, "cellblock run: %s\n", cb_shown(jail.spec.workspace_note));
	for (size_t i = 0; r == 0 && i < jail.interpreter.not_followed.count; i++)
		fprintf(stderr, "cellblock run: not shown: %s\n", jail.interpreter.not_followed.items[i]);
	if (r == 0)
		r = note_in_audit_log(&jail.policy, o->rest, &err);
	if (r == 0)
		r = start(&jail, jail.policy.timeout_cell, &err);
	cb_command_release(&jail);
	if (cb_command_fail("run", &err) == WRONG_USAGE)
		return WRONG_USAGE;
	return r == -ENOENT && strcmp(err.step, "command") == 0 ? NOT_FOUND : CANNOT_ISOLATE;
}
