/* Command line: the tables of options_table.h drive parsing, --help, completion and the man pages. Trust domain:
 * supervisor, at start. */
#pragma once

#include <cellblock/error.h>
#include <cellblock/log.h>
#include <cellblock/sandbox.h>
#include <stdbool.h>

struct cb_options {
	const char *command;	     /* "kernel", "install", … */
	const char *connection_file; /* kernel */
	const char *file;	     /* audit; completion: the shell; help: the command or NULL */
	const char *python, *facts, *policy, *name, *display_name, *prefix, *workspace, *kernel;
	const char *proxy, *http, *token_file, *sessions, *lifetime; /* mcp */
	bool files, checkpoints;				     /* mcp */
	bool user, sys_prefix, json;
	bool all, dry_run;	      /* uninstall */
	bool list, stop;	      /* warm */
	bool bash;		      /* --language bash: cells are of bash */
	double timeout;		      /* run */
	struct cb_strv sets;	      /* KEY=VALUE; --workspace DIR is among them as workspace.path=DIR */
	struct cb_strv env;	      /* NAME=VALUE (install --env) */
	char **rest;		      /* run: the command; borrowed from argv */
	const char *history_file;     /* --HistoryManager.hist_file, or NULL */
	double stop_on_error_timeout; /* --Kernel.stop_on_error_timeout, or -1 */
	enum cb_log_level log_level;
};

/* CB_E_USAGE with a message that names the nearest known word. *ret_done is set after --help and --version. */
int cb_options_parse(int argc, char **argv, struct cb_options *ret_options, bool *ret_done, struct cb_err *err);
void cb_options_release(struct cb_options *o);

/* Commands; return the process's exit status. Each has a file in kernel/commands/; the kernel itself is not among them
 * (kernel/start.h). */
int cb_command_install(const struct cb_options *o);
int cb_command_run(const struct cb_options *o);
int cb_command_explain(const struct cb_options *o);
int cb_command_doctor(const struct cb_options *o);
int cb_command_changes(const struct cb_options *o); /* changes, commit, discard */
int cb_command_audit(const struct cb_options *o);
int cb_command_list(const struct cb_options *o);
int cb_command_uninstall(const struct cb_options *o);
int cb_command_warm(const struct cb_options *o);
int cb_command_mcp(const struct cb_options *o);
int cb_command_completion(const struct cb_options *o);
