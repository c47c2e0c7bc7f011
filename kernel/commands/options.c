/* The command line, by the tables of options_table.c.
 *
 * Role: parses argv into struct cb_options and prints --help from the same rows. Trust domain: supervisor, at start.
 * Invariants: an option must be spelt out (getopt's abbreviations are refused: they would change meaning with the next
 * option); `cellblock kernel` alone forgives options, and only such as are known to be meant for ipykernel, which
 * clients add on their own.
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>

#include "options_table.h"
#include "policy/nearest.h"
#include "policy/paths.h"

/* Options and flags of ipykernel without a dot that clients are known to pass on. */
static const char *const ipykernel_words[] = {
	"debug",  "quiet",	"ip",	     "ext",	  "autocall",  "profile-dir", "hb",
	"shell",  "iopub",	"stdin",     "control",	  "transport", "profile",     "ipython-dir",
	"pylab",  "matplotlib", "no-stdout", "no-stderr", "secure",    "no-secure",   "cache-size",
	"colors", "gui",	"init",	     "existing",
};


#define HELP_COLUMN 29 /* where texts begin */
#define HELP_WIDTH 100

/* Breaks between words; `column` is where the line stands already. */
static void print_wrapped(const char *text, int indent, int column)
{
	while (*text != '\0') {
		int n = (int)strcspn(text, " ");

		if (column > indent && column + 1 + n > HELP_WIDTH)
			column = printf("\n%*s", indent, "") - 1;
		column += printf("%s%.*s", column > indent ? " " : "", n, text);
		text += n;
		text += strspn(text, " ");
	}
	putchar('\n');
}

/* One entry of a list: its head, then its text beside it. */
static void print_entry(const char *head, const char *text)
{
	int column = printf("  %-*s", HELP_COLUMN - 3, head);

	if (column > HELP_COLUMN - 1)
		column = printf("\n%*s", HELP_COLUMN, "") - 1;
	else
		column += printf(" ");
	print_wrapped(text, HELP_COLUMN, column);
}

static void print_command_help(const struct cb_command_row *c)
{
	printf("usage: cellblock %s [OPTION]...%s%s\n\n%s\n", c->name, c->usage[0] != '\0' ? " " : "", c->usage,
	       c->help);
	if (c->about != NULL) {
		putchar('\n');
		print_wrapped(c->about, 0, 0);
	}
	printf("\noptions:\n");
	for (size_t i = 0; i < cb_option_rows_count; i++) {
		const struct cb_option_row *row = &cb_option_rows[i];
		char head[64];

		if ((row->commands & c->bit) == 0)
			continue;
		if (row->letter == 'f')
			snprintf(head, sizeof(head), "-f, --f %s", row->argument);
		else
			snprintf(head, sizeof(head), "%s--%s%s%s", row->letter != 0 ? "-h, " : "", row->name,
				 row->argument != NULL ? " " : "", row->argument != NULL ? row->argument : "");
		print_entry(head, row->help);
	}
}

static void print_help(void)
{
	printf("usage: cellblock COMMAND [OPTION]...\n\nA Jupyter kernel that runs every cell in a "
	       "jail.\n\ncommands:\n");
	for (size_t i = 0; i < cb_command_rows_count; i++)
		print_entry(cb_command_rows[i].name, cb_command_rows[i].help);
	printf("\n`cellblock help COMMAND` prints a command's options. Exit status: 0 done, 1 failed, 2 wrong usage\n"
	       "or policy, 3 can't isolate, or the Python is refused.\n");
}

static int print_version(void)
{
	printf("cellblock %s\n", CELLBLOCK_VERSION);
	return 0;
}

static int usage_error(struct cb_err *err, const char *command, const char *what, const char *word, const char *near)
{
	char cure[200];

	if (near != NULL)
		snprintf(cure, sizeof(cure), "did you mean '%s'?", near);
	else
		snprintf(cure, sizeof(cure), "see `cellblock %s%s--help`", command, command[0] != '\0' ? " " : "");
	return cb_err_set(err, CB_E_USAGE, "command line", cure, "%s '%s'", what, word);
}

static const struct cb_option_row *find_row(const char *name, size_t len, int bit)
{
	for (size_t i = 0; i < cb_option_rows_count; i++)
		if ((cb_option_rows[i].commands & bit) != 0 && strlen(cb_option_rows[i].name) == len &&
		    memcmp(cb_option_rows[i].name, name, len) == 0)
			return &cb_option_rows[i];
	return NULL;
}

static int unknown_option(const char *arg, const struct cb_command_row *c, struct cb_err *err)
{
	char word[64], known[64];
	struct cb_nearest near = CB_NEAREST(word);

	snprintf(word, sizeof(word), "%.*s", (int)strcspn(arg + 2, "="), arg + 2);
	for (size_t i = 0; i < cb_option_rows_count; i++)
		if ((cb_option_rows[i].commands & c->bit) != 0)
			cb_nearest_offer(&near, cb_option_rows[i].name);
	if (near.best != NULL)
		snprintf(known, sizeof(known), "--%s", near.best);
	return usage_error(err, c->name, "unknown option", arg, near.best != NULL ? known : NULL);
}

/* An option that clients pass for ipykernel: `--Class.trait=value`, or one of its own flags. Takes what concerns us
 * too. */
static bool take_foreign(const char *arg, struct cb_options *o)
{
	const char *name = arg + 2;
	size_t len = strcspn(name, "=");
	const char *value = name[len] == '=' ? name + len + 1 : NULL;
	char *end;

	if (value != NULL && len == strlen("HistoryManager.hist_file") &&
	    strncmp(name, "HistoryManager.hist_file", len) == 0) {
		o->history_file = value[0] != '\0' ? value : NULL; /* empty: the default, as for IPython */
		return true;
	}
	if (value != NULL && len == strlen("Kernel.stop_on_error_timeout") &&
	    strncmp(name, "Kernel.stop_on_error_timeout", len) == 0) {
		double seconds = strtod(value, &end);

		if (*value != '\0' && *end == '\0' && isfinite(seconds) && seconds >= 0)
			o->stop_on_error_timeout = seconds;
		return true;
	}
	if (memchr(name, '.', len) != NULL)
		return true;
	for (size_t i = 0; i < CB_COUNT(ipykernel_words); i++)
		if (strlen(ipykernel_words[i]) == len && memcmp(ipykernel_words[i], name, len) == 0)
			return true;
	return false;
}

/* Checks the spelling of every long option and drops foreign ones, so that getopt_long sees exact names only. */
static int screen(int *argc, char **argv, const struct cb_command_row *c, struct cb_options *o, struct cb_err *err)
{
	int kept = 1;
	bool open = true; /* still before `--` or the command of `run` */

	for (int i = 1; i < *argc; i++) {
		const char *arg = argv[i];
		const struct cb_option_row *row;

		argv[kept++] = argv[i];
		if (!open || arg[0] != '-' || arg[1] == '\0') {
			open = open && c->bit != CB_C_RUN;
			continue;
		}
		if (strcmp(arg, "--") == 0) {
			open = false;
			continue;
		}
		if (arg[1] != '-') {
			if (strcmp(arg, "-f") == 0 && i + 1 < *argc)
				argv[kept++] = argv[++i];
			continue;
		}
		row = find_row(arg + 2, strcspn(arg + 2, "="), c->bit);
		if (row == NULL) {
			if (c->bit != CB_C_KERNEL || !take_foreign(arg, o))
				return unknown_option(arg, c, err);
			kept--;
			cb_log(CB_LOG_INFO, "ignored argument %s", arg);
			if (strchr(arg, '=') == NULL && i + 1 < *argc && argv[i + 1][0] != '-')
				i++; /* its value: the kernel itself takes no bare words */
		} else if (row->argument != NULL) {
			const char *equals = strchr(arg, '=');
			int values = (equals == NULL) +
				     (row->kind == CB_O_ENV && (equals == NULL || strchr(equals + 1, '=') == NULL));

			for (; values > 0 && i + 1 < *argc; values--) {
				argv[kept++] = argv[++i];
				if (row->kind == CB_O_ENV && strchr(argv[i], '=') != NULL)
					break;
			}
		}
	}
	argv[kept] = NULL;
	*argc = kept;
	return 0;
}

static int take_env(struct cb_options *o, const char *name, int argc, char **argv, struct cb_err *err)
{
	int r;

	if (strchr(name, '=') != NULL) {
		r = cb_strv_add(&o->env, name);
	} else {
		if (optind >= argc)
			return usage_error(err, o->command, "--env needs NAME and VALUE after it; no value for", name,
					   NULL);
		r = cb_strv_addf(&o->env, "%s=%s", name, argv[optind++]);
	}
	return r < 0 ? cb_err_set(err, r, "command line", NULL, "out of memory") : 0;
}

static int take_seconds(double *ret, const char *text, const struct cb_option_row *row, const char *command,
			struct cb_err *err)
{
	char *end;
	double value = strtod(text, &end);

	if (text[0] == '\0' || *end != '\0' || !isfinite(value) || value < 0 || value > 1e9) {
		char what[64];

		snprintf(what, sizeof(what), "--%s takes seconds, not", row->name);
		return usage_error(err, command, what, text, NULL);
	}
	*ret = value;
	return 0;
}

static int take_option(const struct cb_option_row *row, struct cb_options *o, int argc, char **argv, struct cb_err *err)
{
	void *field = (char *)o + row->offset;
	struct cb_nearest near;
	int r;

	switch (row->kind) {
	case CB_O_TEXT:
		if (optarg[0] == '\0')
			return usage_error(err, o->command, "an empty value for option", row->name, NULL);
		*(const char **)field = optarg;
		return 0;
	case CB_O_FLAG:
		*(bool *)field = true;
		return 0;
	case CB_O_SECONDS:
		return take_seconds(field, optarg, row, o->command, err);
	case CB_O_SET:
		if (strchr(optarg, '=') == NULL || optarg[0] == '=')
			return usage_error(err, o->command, "--set takes KEY=VALUE, not", optarg, NULL);
		r = cb_strv_add(&o->sets, optarg);
		return r < 0 ? cb_err_set(err, r, "command line", NULL, "out of memory") : 0;
	case CB_O_PROJECT:
		r = cb_strv_add(&o->sets, "workspace.path=project");
		return r < 0 ? cb_err_set(err, r, "command line", NULL, "out of memory") : 0;
	case CB_O_ENV:
		return take_env(o, optarg, argc, argv, err);
	case CB_O_LEVEL:
		if (cb_log_level_parse(optarg, field) == 0)
			return 0;
		near = CB_NEAREST(optarg);
		cb_nearest_offer(&near, "error");
		cb_nearest_offer(&near, "warning");
		cb_nearest_offer(&near, "info");
		cb_nearest_offer(&near, "debug");
		return usage_error(err, o->command, "unknown log level", optarg, near.best);
	case CB_O_LANGUAGE:
		*(bool *)field = strcmp(optarg, "bash") == 0;
		if (*(bool *)field || strcmp(optarg, "python") == 0)
			return 0;
		near = CB_NEAREST(optarg);
		cb_nearest_offer(&near, "python");
		cb_nearest_offer(&near, "bash");
		return usage_error(err, o->command, "no cells can be of the language", optarg, near.best);
	case CB_O_HELP:
	case CB_O_VERSION:
		break;
	}
	return 0;
}

static int parse_options(int argc, char **argv, const struct cb_command_row *c, struct cb_options *o, bool *done,
			 struct cb_err *err)
{
	struct option longs[CB_OPTION_ROWS_MAX + 1];
	size_t n = 0;
	int found, index;

	memset(longs, 0, sizeof(longs));
	for (size_t i = 0; i < cb_option_rows_count; i++)
		if ((cb_option_rows[i].commands & c->bit) != 0)
			longs[n++] = (struct option){ cb_option_rows[i].name, cb_option_rows[i].argument != NULL, NULL,
						      1000 + (int)i };
	optind = 0;
	opterr = 0;
	while ((found = getopt_long(argc, argv,
				    c->bit == CB_C_RUN	    ? "+:h"
				    : c->bit == CB_C_KERNEL ? ":f:h"
							    : ":h",
				    longs, &index)) != -1) {
		const struct cb_option_row *row = NULL;
		int r;

		if (found == ':' || found == '?')
			return usage_error(err, c->name,
					   found == ':' ? "a value is missing after" : "unknown or misused option",
					   argv[optind - 1], NULL);
		row = found == 'f'   ? &cb_option_rows[0]
		      : found == 'h' ? find_row("help", 4, c->bit)
				     : &cb_option_rows[found - 1000];
		if (row->kind == CB_O_HELP || row->kind == CB_O_VERSION) {
			if (row->kind == CB_O_HELP)
				print_command_help(c);
			else
				(void)print_version();
			*done = true;
			return 0;
		}
		r = take_option(row, o, argc, argv, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* `help` takes the name of a command or nothing, `completion` that of a shell. */
static int check_word(int argc, char **argv, const struct cb_command_row *c, struct cb_options *o, struct cb_err *err)
{
	const char *at;
	size_t n;

	if (optind >= argc)
		return c->bit == CB_C_HELP
			       ? 0
			       : cb_err_set(err, CB_E_USAGE, "command line",
					    "usage: cellblock completion bash|zsh|fish", "no shell is named");
	o->file = argv[optind];
	n = strlen(o->file);
	if (optind + 1 < argc)
		return usage_error(err, c->name, "unexpected argument", argv[optind + 1], NULL);
	at = strstr(c->words, o->file);
	if (c->bit == CB_C_HELP ||
	    (at != NULL && n > 0 && (at == c->words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')))
		return 0;
	return usage_error(err, c->name, "no completion for the shell", o->file, NULL);
}

/* What has an option and a policy key is a policy key from here on: checked, bounded and protected as one. */
static int add_keys(struct cb_options *o)
{
	bool memory = o->history_file != NULL && strcmp(o->history_file, ":memory:") == 0;
	CB_AUTO_PATH expanded = o->history_file != NULL && !memory ? cb_path_expand(o->history_file) : NULL;
	CB_AUTO_PATH history = expanded != NULL ? cb_path_absolute(expanded, NULL) : NULL;
	int r = o->workspace != NULL ? cb_strv_addf(&o->sets, "workspace.path=%s", o->workspace) : 0;

	if (r == 0 && o->timeout > 0)
		r = cb_strv_addf(&o->sets, "timeout.cell=%.17g", o->timeout);
	if (r < 0 || o->history_file == NULL)
		return r;
	if (!memory && history == NULL)
		return -ENOENT;
	return cb_strv_addf(&o->sets, "history.file=%s", memory ? o->history_file : history);
}

static int check_rest(int argc, char **argv, const struct cb_command_row *c, struct cb_options *o, struct cb_err *err)
{
	int r = add_keys(o);

	if (r < 0)
		return cb_err_set(err, r, "command line", NULL, "%s",
				  r == -ENOENT ? "HistoryManager.hist_file can't be made an absolute path"
					       : "out of memory");
	if (c->bit == CB_C_RUN) {
		if (optind >= argc)
			return cb_err_set(err, CB_E_USAGE, "command line",
					  "usage: cellblock run [OPTION]... [--] COMMAND [ARG]...",
					  "no command to run");
		o->rest = argv + optind;
	} else if (c->bit == CB_C_AUDIT) {
		if (optind + 1 != argc)
			return cb_err_set(err, CB_E_USAGE, "command line", "usage: cellblock audit [OPTION]... FILE",
					  "one file is needed");
		o->file = argv[optind];
	} else if (c->words != NULL) {
		r = check_word(argc, argv, c, o, err);
		if (r < 0)
			return r;
	} else if (optind < argc && c->bit == CB_C_KERNEL) {
		/* `jupyter run SCRIPT` hands its own arguments on */
		cb_log(CB_LOG_INFO, "ignored argument %s", argv[optind]);
	} else if (optind < argc) {
		return usage_error(err, c->name, "unexpected argument", argv[optind], NULL);
	}
	if (c->bit == CB_C_KERNEL && o->connection_file == NULL)
		return cb_err_set(err, CB_E_USAGE, "command line",
				  "`cellblock kernel -f FILE` is started by a Jupyter client",
				  "no connection file given");
	if (o->user + o->sys_prefix + (o->prefix != NULL) > 1)
		return cb_err_set(err, CB_E_USAGE, "command line", NULL,
				  "--user, --sys-prefix and --prefix exclude each other");
	if (o->list && o->stop)
		return cb_err_set(err, CB_E_USAGE, "command line", NULL, "--list and --stop exclude each other");
	return 0;
}

static const struct cb_command_row *find_command(const char *word, struct cb_err *err)
{
	const struct cb_command_row *found = cb_command_find(word);
	struct cb_nearest near = CB_NEAREST(word);

	if (found != NULL)
		return found;
	for (size_t i = 0; i < cb_command_rows_count; i++)
		cb_nearest_offer(&near, cb_command_rows[i].name);
	usage_error(err, "", word[0] == '-' ? "unknown option" : "unknown command", word, near.best);
	return NULL;
}

static int print_help_of(const char *command, struct cb_err *err)
{
	const struct cb_command_row *c = command != NULL ? find_command(command, err) : NULL;

	if (command != NULL && c == NULL)
		return err != NULL ? err->code : CB_E_USAGE;
	if (c != NULL)
		print_command_help(c);
	else
		print_help();
	return 0;
}

int cb_options_parse(int argc, char **argv, struct cb_options *ret_options, bool *ret_done, struct cb_err *err)
{
	struct cb_options o = { .stop_on_error_timeout = -1, .log_level = CB_LOG_WARNING };
	const struct cb_command_row *c;
	const char *level = getenv("CELLBLOCK_LOG");
	bool done = false;
	int r;

	if (argc < 2)
		return cb_err_set(err, CB_E_USAGE, "command line", "see `cellblock --help`", "no command given");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--version") == 0) {
		*ret_done = true;
		return strcmp(argv[1], "--version") == 0 ? print_version() : print_help_of(NULL, err);
	}
	if (level != NULL && cb_log_level_parse(level, &o.log_level) < 0)
		return cb_err_set(err, CB_E_USAGE, "environment", "use error, warning, info or debug",
				  "unknown log level '%s' in CELLBLOCK_LOG", level);
	c = find_command(argv[1], err);
	if (c == NULL)
		return err != NULL ? err->code : CB_E_USAGE;
	o.command = c->name;
	argc--;
	argv++;
	r = screen(&argc, argv, c, &o, err);
	if (r == 0)
		r = parse_options(argc, argv, c, &o, &done, err);
	if (r == 0 && !done)
		r = check_rest(argc, argv, c, &o, err);
	if (r == 0 && !done && (c->bit == CB_C_HELP || c->bit == CB_C_VERSION)) {
		r = c->bit == CB_C_VERSION ? print_version() : print_help_of(o.file, err);
		done = true;
	}
	if (r < 0) {
		cb_options_release(&o);
		return r;
	}
	*ret_options = o;
	*ret_done = done;
	return 0;
}

void cb_options_release(struct cb_options *o)
{
	cb_strv_release(&o->sets);
	cb_strv_release(&o->env);
	o->rest = NULL;
}
