/* The tables of the command line: see options_table.h.
 *
 * Role: data, nothing else. Trust domain: supervisor's program, at start. Invariants: an option that means different
 * things to different commands has a row for each; no two rows of one name share a command.
 */
#include "options_table.h"

#include <string.h>

#include "options.h"

#define FIELD(member) offsetof(struct cb_options, member)
#define JAILED (CB_C_KERNEL | CB_C_INSTALL | CB_C_RUN | CB_C_EXPLAIN) /* who plan a jail from the policy */
#define ENDED (CB_C_HELP | CB_C_VERSION)			       /* who print and end */
#define CHECKED (CB_C_ALL & ~(JAILED | CB_C_MCP | ENDED))

const struct cb_option_row cb_option_rows[] = {
	{ "f", CB_C_KERNEL, 'f', CB_O_TEXT, FIELD(connection_file), "FILE", NULL,
	  "connection file that the client wrote" },
	{ "user", CB_C_INSTALL, 0, CB_O_FLAG, FIELD(user), NULL, NULL, "install for this user (default)" },
	{ "user", CB_C_UNINSTALL, 0, CB_O_FLAG, FIELD(user), NULL, NULL, "look among this user's (default)" },
	{ "sys-prefix", CB_C_INSTALL, 0, CB_O_FLAG, FIELD(sys_prefix), NULL, NULL,
	  "install into the interpreter's own prefix" },
	{ "sys-prefix", CB_C_UNINSTALL, 0, CB_O_FLAG, FIELD(sys_prefix), NULL, NULL,
	  "look in the prefix of the Python that --python names (default: the active venv's, else python3)" },
	{ "prefix", CB_C_INSTALL, 0, CB_O_TEXT, FIELD(prefix), "DIR", NULL, "install into DIR/share/jupyter/kernels" },
	{ "prefix", CB_C_UNINSTALL, 0, CB_O_TEXT, FIELD(prefix), "DIR", NULL, "look in DIR/share/jupyter/kernels" },
	{ "name", CB_C_INSTALL, 0, CB_O_TEXT, FIELD(name), "NAME", NULL,
	  "name of the kernelspec (default: cellblock; with --language bash cellblock-bash)" },
	{ "name", CB_C_UNINSTALL, 0, CB_O_TEXT, FIELD(name), "NAME", NULL,
	  "name of the kernelspec (default: cellblock); that of --language bash is cellblock-bash" },
	{ "all", CB_C_UNINSTALL, 0, CB_O_FLAG, FIELD(all), NULL, NULL,
	  "remove all that pip can't know of: the kernelspecs that start this program or none any more (but those of "
	  "other prefixes), this user's history, and what was kept about interpreters" },
	{ "dry-run", CB_C_UNINSTALL, 0, CB_O_FLAG, FIELD(dry_run), NULL, NULL,
	  "with --all: only say what would be removed" },
	{ "display-name", CB_C_INSTALL, 0, CB_O_TEXT, FIELD(display_name), "TEXT", NULL, "name that clients show" },
	{ "language", CB_C_KERNEL | CB_C_INSTALL, 0, CB_O_LANGUAGE, FIELD(bash), "LANGUAGE", "python bash",
	  "of the cells: python (default) or bash" },
	{ "project", CB_C_INSTALL, 0, CB_O_PROJECT, 0, NULL, NULL,
	  "cells see and write the whole project that a notebook lies in, not its folder alone: workspace.path "
	  "\"project\", for all notebooks of this kernelspec" },
	{ "env", CB_C_INSTALL, 0, CB_O_ENV, FIELD(env), "NAME VALUE", NULL,
	  "set a variable for the kernel and its cells; may be repeated" },
	{ "python", CB_C_KERNEL | CB_C_INSTALL | CB_C_EXPLAIN, 0, CB_O_TEXT, FIELD(python), "EXE", NULL,
	  "the Python to jail (default: the active venv's; that which a wheel was installed for; else python3)" },
	{ "python", CB_C_UNINSTALL, 0, CB_O_TEXT, FIELD(python), "EXE", NULL, "the Python that --sys-prefix means" },
	{ "python", CB_C_RUN, 0, CB_O_TEXT, FIELD(python), "EXE", NULL,
	  "show the command this Python's folders, and put its bin folder first in PATH (default: the active venv's; "
	  "without one only the system's programs are there)" },
	{ "facts", CB_C_KERNEL | CB_C_EXPLAIN, 0, CB_O_TEXT, FIELD(facts), "FILE", "cache",
	  "where facts about the interpreter are kept: a file, or \"cache\" for one in the user's cache folder" },
	{ "workspace", CB_C_KERNEL | CB_C_EXPLAIN, 0, CB_O_TEXT, FIELD(workspace), "DIR", "project",
	  "the one writable folder (but for mounts), or \"project\" (default: the current folder)" },
	{ "workspace", CB_C_RUN, 0, CB_O_TEXT, FIELD(workspace), "DIR", "project",
	  "the one folder that the command can write (but for mounts), and the only one of yours that it sees; or "
	  "\"project\", the nearest folder upwards that holds .git, pyproject.toml or the like (default: the "
	  "current folder)" },
	{ "workspace", CB_C_MCP, 0, CB_O_TEXT, FIELD(workspace), "DIR", "project",
	  "the one folder that cells see, or \"project\", the nearest folder upwards that holds .git, pyproject.toml "
	  "or the like; what they change there stays in a layer beside it unless workspace.mode is \"rw\" (default: an "
	  "empty folder that ends with the session)" },
	{ "files", CB_C_MCP, 0, CB_O_FLAG, FIELD(files), NULL, NULL,
	  "also offer read_file, write_file and list_files" },
	{ "checkpoints", CB_C_MCP, 0, CB_O_FLAG, FIELD(checkpoints), NULL, NULL,
	  "also offer checkpoint, rollback and workspace_changes" },
	{ "proxy", CB_C_MCP, 0, CB_O_TEXT, FIELD(proxy), "FILE", NULL,
	  "offer the tools of the MCP servers that this file names to the code inside, as functions" },
	{ "sessions", CB_C_MCP, 0, CB_O_TEXT, FIELD(sessions), "N", NULL, "sessions at most (default: 8)" },
	{ "lifetime", CB_C_MCP, 0, CB_O_TEXT, FIELD(lifetime), "S", NULL,
	  "seconds without use, after which a session ends (default: 3600)" },
	{ "http", CB_C_MCP, 0, CB_O_TEXT, FIELD(http), "PORT", NULL,
	  "serve streamable HTTP on this port of 127.0.0.1 (0: any free one) in place of stdio" },
	{ "token-file", CB_C_MCP, 0, CB_O_TEXT, FIELD(token_file), "FILE", NULL,
	  "with --http: the bearer token that clients must send, in a file that others can't read" },
	{ "timeout", CB_C_RUN, 0, CB_O_SECONDS, FIELD(timeout), "S", NULL,
	  "end the command after S seconds, with exit status 124 (default: timeout.cell of the policy)" },
	{ "kernel", CB_C_LAYER, 0, CB_O_TEXT, FIELD(kernel), "NAME|ID|FILE", NULL,
	  "which kernel: its notebook, the start of its id, or its connection file (default: the only one)" },
	{ "list", CB_C_WARM, 0, CB_O_FLAG, FIELD(list), NULL, NULL, "list those that run (default)" },
	{ "stop", CB_C_WARM, 0, CB_O_FLAG, FIELD(stop), NULL, NULL,
	  "end them; kernels that were copied from them live on" },
	{ "json", CB_C_EXPLAIN | CB_C_DOCTOR | CB_C_LAYER | CB_C_LIST | CB_C_WARM, 0, CB_O_FLAG, FIELD(json), NULL,
	  NULL, "print JSON" },
	{ "policy", CB_C_MCP, 0, CB_O_TEXT, FIELD(policy), "NAME|FILE", "notebook agent",
	  "what the jail allows: agent (default) or notebook, a NAME in Jupyter's config paths, or a file, named with "
	  "a '/'" },
	{ "policy", CHECKED, 0, CB_O_TEXT, FIELD(policy), "NAME|FILE", "notebook agent", "checked, not used" },
	{ "policy", ENDED, 0, CB_O_TEXT, FIELD(policy), "NAME|FILE", "notebook agent", "not used" },
	{ "policy", JAILED, 0, CB_O_TEXT, FIELD(policy), "NAME|FILE", "notebook agent",
	  "what the jail allows: notebook (default) or agent, a NAME in Jupyter's config paths, or a file, named with "
	  "a '/'" },
	{ "set", CHECKED, 0, CB_O_SET, FIELD(sets), "KEY=VALUE", NULL, "checked, not used" },
	{ "set", ENDED, 0, CB_O_SET, FIELD(sets), "KEY=VALUE", NULL, "not used" },
	{ "set", JAILED | CB_C_MCP, 0, CB_O_SET, FIELD(sets), "KEY=VALUE", NULL,
	  "set one key of the policy, as in network.mode=full; may be repeated" },
	{ "log-level", CB_C_ALL, 0, CB_O_LEVEL, FIELD(log_level), "LEVEL", "error warning info debug",
	  "what is told on stderr: error, warning (default), info or debug" },
	{ "help", CB_C_ALL, 'h', CB_O_HELP, 0, NULL, NULL, "print this" },
	{ "version", CB_C_ALL, 0, CB_O_VERSION, 0, NULL, NULL, "print the version" },
};
_Static_assert(CB_COUNT(cb_option_rows) <= CB_OPTION_ROWS_MAX, "room for every option");
const size_t cb_option_rows_count = CB_COUNT(cb_option_rows);

const struct cb_command_row cb_command_rows[] = {
	{ "kernel", CB_C_KERNEL, "-f FILE", NULL, "the Jupyter kernel; what a kernelspec starts",
	  "Options that clients pass for ipykernel, such as --HistoryManager.hist_file, are honoured or ignored." },
	{ "install", CB_C_INSTALL, "", NULL, "write a kernelspec for a Python interpreter",
	  "Every frontend that looks in the same place then offers it. --name python3 makes notebooks that ask for "
	  "python3 run jailed. `cellblock uninstall` takes it away." },
	{ "uninstall", CB_C_UNINSTALL, "", NULL, "remove a kernelspec that install wrote, and nothing else",
	  "A kernelspec of another program is left alone, and so are files in its folder that are not install's. "
	  "Before `pip uninstall cellblock`: --all. Files that a policy names (history.file, audit.file) stay." },
	{ "list", CB_C_LIST, "", NULL, "the kernels that run, and what they use",
	  "ID is what --kernel of `changes`, `commit` and `discard` takes; the notebook's name does as well." },
	{ "run", CB_C_RUN, "[--] COMMAND [ARG]...", NULL, "one command in a jail",
	  "Output and exit status are the command's own. Exit status besides: 2 wrong usage or policy, 124 timed out, "
	  "125 could not isolate, 126 and 127 as in a shell, 137 killed for memory." },
	{ "explain", CB_C_EXPLAIN, "", NULL, "print the jail that a policy results in", NULL },
	{ "doctor", CB_C_DOCTOR, "", NULL, "find out what this host allows",
	  "Each thing is tried. Exit status: 0 a jail can be built, 3 not." },
	{ "changes", CB_C_LAYER, "", NULL, "list what a kernel's overlay workspace changed", NULL },
	{ "commit", CB_C_LAYER, "", NULL, "write these changes to the folder itself", NULL },
	{ "discard", CB_C_LAYER, "", NULL, "drop these changes, and the kernel's variables", NULL },
	{ "audit", CB_C_AUDIT, "FILE", NULL, "check an audit log's chain and print it", NULL },
	{ "warm", CB_C_WARM, "", NULL, "the zygotes that run: interpreters that kernels are copied from",
	  "A kernel whose warm.mode is \"auto\" starts one. MEMORY is its own and its share of what it has together "
	  "with others, KERNELS how many copies live, MADE how many there were." },
	{ "mcp", CB_C_MCP, "", NULL, "an MCP server: stateful Python in a jail, for any MCP client",
	  "It is part of the Python package (pip install 'cellblock[mcp]'), of the environment that this program lies "
	  "in. The policy is agent unless another is named." },
	{ "completion", CB_C_COMPLETION, "SHELL", "bash zsh fish",
	  "print what completes this program's words in a shell",
	  "bash: put `eval \"$(cellblock completion bash)\"` in ~/.bashrc. zsh: write it to a file _cellblock in a "
	  "folder of $fpath. fish: `cellblock completion fish | source` in config.fish." },
	{ "help", CB_C_HELP, "[COMMAND]", "", "print the commands, or the options of one", NULL },
	{ "version", CB_C_VERSION, "", NULL, "print the version", NULL },
};
const size_t cb_command_rows_count = CB_COUNT(cb_command_rows);

const struct cb_command_row *cb_command_find(const char *name)
{
	for (size_t i = 0; i < cb_command_rows_count; i++)
		if (strcmp(cb_command_rows[i].name, name) == 0)
			return &cb_command_rows[i];
	return NULL;
}
