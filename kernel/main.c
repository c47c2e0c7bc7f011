/* cellblock: the supervisor's program. Reads the command line and hands over to the command.
 *
 * Trust domain: supervisor. Exit status: 0 done, 1 failed, 2 wrong usage, 3 can't isolate, or the Python is refused
 * (`run` has its own, see there).
 */
#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <unistd.h>

#include "commands/command.h"
#include "commands/options_table.h"
#include "start.h"

static const struct {
	const char *name;
	int (*run)(const struct cb_options *o);
	bool only_checks; /* it has no use for a policy; a wrong one is told all the same */
} commands[] = {
	{ "kernel", cb_command_kernel, false },
	{ "install", cb_command_install, false },
	{ "run", cb_command_run, false },
	{ "explain", cb_command_explain, false },
	{ "doctor", cb_command_doctor, true },
	{ "audit", cb_command_audit, true },
	{ "changes", cb_command_changes, true },
	{ "commit", cb_command_changes, true },
	{ "discard", cb_command_changes, true },
	{ "list", cb_command_list, true },
	{ "uninstall", cb_command_uninstall, true },
	{ "warm", cb_command_warm, true },
	{ "mcp", cb_command_mcp, true },
	{ "completion", cb_command_completion, true },
};

#ifdef __SANITIZE_ADDRESS__
/* The leak check at exit wants to fork and trace, which the kernel's own filter refuses. Unit tests look for leaks. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

static int check_policy(const struct cb_options *o)
{
	struct cb_err err = { 0 };

	if (o->policy == NULL && o->sets.count == 0)
		return 0;
	return cb_command_check_policy(o, NULL, &err) < 0 ? cb_command_fail(o->command, &err) : 0;
}

int main(int argc, char **argv)
{
	struct cb_options options = { 0 };
	struct cb_err err = { 0 };
	const struct cb_command_row *command = argc > 1 ? cb_command_find(argv[1]) : NULL;
	bool done = false;
	char name[64]; /* as errors begin */
	int status = 2;

	if (cb_fd_open_stdio() < 0)
		return 1;
	snprintf(name, sizeof(name), "cellblock%s%s", command != NULL ? " " : "", command != NULL ? command->name : "");
	if (cb_options_parse(argc, argv, &options, &done, &err) < 0) {
		fprintf(stderr, "%s: %s%s%s\n", name, err.text, err.cure[0] != '\0' ? "; " : "", err.cure);
		return err.code == CB_E_USAGE ? 2 : 1;
	}
	if (done)
		return cb_fd_end_stdio(name, 0);
	cb_log_init("cellblock", options.log_level, STDERR_FILENO);
	if (setenv("CELLBLOCK_LOG", cb_log_level_name(options.log_level), 1) < 0) /* for the programs that it starts */
		return 1;
	for (size_t i = 0; i < CB_COUNT(commands); i++) {
		if (strcmp(commands[i].name, options.command) != 0)
			continue;
		status = commands[i].only_checks ? check_policy(&options) : 0;
		if (status == 0)
			status = commands[i].run(&options);
	}
	cb_options_release(&options);
	return cb_fd_end_stdio(name, status);
}
