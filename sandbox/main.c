/* cellblock-jail: the command line of the sandbox.
 *
 * Started by cellblock, seldom by hand. Trust domain: outside, with the rights of whoever started it. The description
 * of the jail comes on a sealed memory file, never from the command line or the environment.
 */
#include "broker/broker.h"
#include "report/apparmor.h"
#include "report/report.h"

#include <cellblock/error.h>
#include <cellblock/fd.h>
#include <cellblock/log.h>
#include <cellblock/visible.h>

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: cellblock-jail broker --fd N --spec-fd N        build jails for a supervisor on socket N\n"
	"       cellblock-jail run --spec-fd N [--timeout S]    run the description's command in a jail\n"
	"       cellblock-jail explain --spec-fd N [--json]     print the jail that a description results in\n"
	"       cellblock-jail doctor [--json]                  print what this host allows, found by trying\n"
	"       cellblock-jail apparmor-profile                 print a profile that lets this file make namespaces\n"
	"\n"
	"Started by cellblock, which makes the description (a sealed memory file). By hand use `cellblock run`,\n"
	"`cellblock explain` and `cellblock doctor`. CELLBLOCK_LOG=error|warning|info|debug sets what is logged to "
	"stderr.\n"
	"Exit status of run: the command's; 124 timed out; 125 could not isolate; 126 not runnable; 127 not found.\n";

struct options {
	int fd, spec_fd;
	double timeout;
	bool json;
	struct cb_strv kernelspecs;
};

static int usage(const char *what, const char *word)
{
	fprintf(stderr, "cellblock-jail: %s%s%s; see cellblock-jail --help\n", what, word[0] != '\0' ? ": " : "",
		cb_shown(word));
	return CB_E_USAGE;
}

static int parse_fd(const char *text, int *ret_fd)
{
	char *end = NULL;
	long value = strtol(text, &end, 10);

	if (end == text || *end != '\0' || value < 3 || value > INT_MAX || fcntl((int)value, F_GETFD) < 0)
		return usage("not an open file descriptor of 3 or more", text);
	*ret_fd = (int)value;
	return 0;
}

static int parse_seconds(const char *text, double *ret_seconds)
{
	char *end = NULL;
	double value = strtod(text, &end);

	if (end == text || *end != '\0' || !(value > 0 && value <= 1e9))
		return usage("not a number of seconds above 0", text);
	*ret_seconds = value;
	return 0;
}

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option known[] = { { "fd", required_argument, NULL, 'f' },
					       { "spec-fd", required_argument, NULL, 's' },
					       { "timeout", required_argument, NULL, 't' },
					       { "json", no_argument, NULL, 'j' },
					       { "kernelspec", required_argument, NULL, 'k' },
					       { 0 } };
	int r = 0, c;

	opterr = 0;
	while (r == 0 && (c = getopt_long(argc, argv, "+", known, NULL)) >= 0) {
		switch (c) {
		case 'f':
			r = parse_fd(optarg, &o->fd);
			break;
		case 's':
			r = parse_fd(optarg, &o->spec_fd);
			break;
		case 't':
			r = parse_seconds(optarg, &o->timeout);
			break;
		case 'j':
			o->json = true;
			break;
		case 'k':
			r = cb_strv_add(&o->kernelspecs, optarg);
			break;
		default:
			r = usage("unknown option, or one without its value", argv[optind - 1]);
		}
	}
	return r == 0 && optind < argc ? usage("unexpected word", argv[optind]) : r;
}

static int dispatch(const char *command, const struct options *o)
{
	bool broker = strcmp(command, "broker") == 0, doctor = strcmp(command, "doctor") == 0;

	if (strcmp(command, "apparmor-profile") == 0)
		return cb_apparmor_main();
	if (!doctor && o->spec_fd < 0)
		return usage("--spec-fd is missing", command);
	if (broker && o->fd < 0)
		return usage("--fd is missing", command);
	if (broker)
		return cb_broker_main(o->fd, o->spec_fd);
	if (doctor)
		return cb_doctor_main(o->json, &o->kernelspecs);
	if (strcmp(command, "explain") == 0)
		return cb_explain_main(o->spec_fd, o->json);
	return cb_run_main(o->spec_fd, o->timeout);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name, *starter; /* as errors begin: with the command that people give */
	} commands[] = { { "broker", "cellblock-jail" },
			 { "run", "cellblock run" },
			 { "explain", "cellblock explain" },
			 { "doctor", "cellblock doctor" },
			 { "apparmor-profile", "cellblock-jail" } };
	struct options options = { .fd = -1, .spec_fd = -1 };
	enum cb_log_level level = CB_LOG_WARNING;
	const char *wanted = getenv("CELLBLOCK_LOG");
	int r;

	if (cb_fd_open_stdio() < 0)
		return 125;
	if (wanted != NULL)
		(void)cb_log_level_parse(wanted, &level);
	cb_log_init("cellblock-jail", level, STDERR_FILENO);
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		(void)fputs(help, stdout);
		return cb_fd_end_stdio("cellblock-jail", 0);
	}
	if (argc > 1 && strcmp(argv[1], "--version") == 0) {
		puts("cellblock-jail " CELLBLOCK_VERSION);
		return cb_fd_end_stdio("cellblock-jail", 0);
	}
	for (size_t i = 0; argc > 1 && i < CB_COUNT(commands); i++) {
		if (strcmp(argv[1], commands[i].name) != 0)
			continue;
		r = parse(argc - 1, argv + 1, &options);
		if (r == 0)
			r = dispatch(commands[i].name, &options);
		cb_strv_release(&options.kernelspecs);
		return cb_fd_end_stdio(commands[i].starter, r == CB_E_USAGE ? 2 : r);
	}
	(void)usage(argc > 1 ? "unknown command" : "a command is missing", argc > 1 ? argv[1] : "");
	return 2;
}
