/* Build tool: writes the manual pages, as scdoc's sources, from the tables of the command line and of the policy's keys
 * (docs/policy.md). usage: man-pages FOLDER POLICY.md */
#include <stdio.h>
#include <string.h>

#include "commands/options_table.h"

#define LINE_MAX_BYTES 8192

/* Text with all of scdoc's signs taken as they are. What it calls below is not in a page made of the table alone. */
static void put(FILE *f, const char *text, size_t n)
{
	static const char below[] = "see below";
	const size_t len = sizeof(below) - 1;

	for (size_t i = 0; i < n && text[i] != '\0'; i++) {
		if (n - i >= len && strncmp(text + i, below, len) == 0) {
			fprintf(f, "see docs/policy.md");
			i += len - 1;
			continue;
		}
		if (strchr("\\*_<>[]#|~`", text[i]) != NULL && text[i] != '`')
			fputc('\\', f);
		if (text[i] != '`')
			fputc(text[i], f);
	}
}

static void put_all(FILE *f, const char *text)
{
	put(f, text, strlen(text));
}

/* Of `[text](link)` the text. */
static void put_unlinked(FILE *f, const char *text)
{
	const char *middle = strstr(text, "]("), *close = middle != NULL ? strchr(middle, ')') : NULL, *open = middle;

	while (open != NULL && *open != '[')
		open = open > text ? open - 1 : NULL;
	if (open == NULL || close == NULL) {
		put_all(f, text);
		return;
	}
	put(f, text, (size_t)(open - text));
	put(f, open + 1, (size_t)(middle - open - 1));
	put_all(f, close + 1);
}

static FILE *open_page(const char *folder, const char *command, int section)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/cellblock%s%s.%d.scd", folder, command[0] != '\0' ? "-" : "", command,
		 section);
	f = fopen(path, "w");
	if (f != NULL)
		fprintf(f, "cellblock%s%s(%d) \"Cellblock %s\"\n\n# NAME\n\n", command[0] != '\0' ? "-" : "", command,
			section, CELLBLOCK_VERSION);
	else
		perror(path);
	return f;
}

static void put_option(FILE *f, const struct cb_option_row *row)
{
	fprintf(f, "%s*%s", row->letter == 'h' ? "*-h*, " : "", row->letter == 'f' ? "-" : "--");
	put_all(f, row->name);
	fprintf(f, "*");
	if (row->argument != NULL) {
		fprintf(f, " _");
		put_all(f, row->argument);
		fprintf(f, "_");
	}
	fprintf(f, "\n\t");
	put_all(f, row->help);
	fprintf(f, "\n\n");
}

static int write_command(const char *folder, const struct cb_command_row *c)
{
	FILE *f = open_page(folder, c->name, 1);

	if (f == NULL)
		return 1;
	fprintf(f, "cellblock-%s - ", c->name);
	put_all(f, c->help);
	fprintf(f, "\n\n# SYNOPSIS\n\n*cellblock %s* [_OPTION_]... ", c->name);
	put_all(f, c->usage);
	fprintf(f, "\n\n");
	if (c->about != NULL) {
		fprintf(f, "# DESCRIPTION\n\n");
		put_all(f, c->about);
		fprintf(f, "\n\n");
	}
	fprintf(f, "# OPTIONS\n\n");
	for (size_t i = 0; i < cb_option_rows_count; i++) {
		if ((cb_option_rows[i].commands & c->bit) != 0)
			put_option(f, &cb_option_rows[i]);
	}
	fprintf(f, "# SEE ALSO\n\n*cellblock*(1), *cellblock-policy*(5)\n");
	return fclose(f) == 0 ? 0 : 1;
}

static int write_overview(const char *folder)
{
	FILE *f = open_page(folder, "", 1);

	if (f == NULL)
		return 1;
	fprintf(f, "cellblock - a Jupyter kernel that runs every cell in a jail\n\n# SYNOPSIS\n\n"
		   "*cellblock* _COMMAND_ [_OPTION_]...\n\n# COMMANDS\n\n");
	for (size_t i = 0; i < cb_command_rows_count; i++) {
		const struct cb_command_row *c = &cb_command_rows[i];

		if (c->bit == 0)
			continue;
		fprintf(f, "*cellblock-%s*(1)\n\t", c->name);
		put_all(f, c->help);
		fprintf(f, "\n\n");
	}
	fprintf(f, "# EXIT STATUS\n\n0 done, 1 failed, 2 wrong usage or policy, 3 can't isolate, or the Python "
		   "is refused. *cellblock run* passes the command's on.\n\n"
		   "# ENVIRONMENT\n\n*CELLBLOCK\\_POLICY*\n\tthe policy where *--policy* is not given\n\n"
		   "*CELLBLOCK\\_LOG*\n\tthe level where *--log-level* is not given\n\n# FILES\n\n"
		   "_cellblock/NAME.json_ in Jupyter's config paths\n\tpolicies that are called by their names\n\n"
		   "_/etc/cellblock/ceiling.json_\n\tbounds every policy, where an administrator put it\n\n"
		   "# SEE ALSO\n\n*cellblock-policy*(5)\n");
	return fclose(f) == 0 ? 0 : 1;
}

/* | `key` | notebook | agent | meaning | allowed | not built yet | */
static void put_key(FILE *f, char *line)
{
	char *column[6] = { 0 };
	size_t n = 0;

	for (char *at = line + 1; n < 6; n++) {
		char *end = strstr(at, " |");

		if (end == NULL)
			break;
		*end = '\0';
		column[n] = at + strspn(at, " ");
		at = end + 2;
	}
	if (n < 5)
		return;
	fprintf(f, "*");
	put_all(f, column[0]);
	fprintf(f, "* (notebook: ");
	put_all(f, column[1]);
	fprintf(f, ", agent: ");
	put_all(f, column[2]);
	fprintf(f, ")\n\t");
	put_unlinked(f, column[3]);
	if (column[4][0] != '\0') {
		fprintf(f, ". Allowed: ");
		put_all(f, column[4]);
	}
	if (column[5] != NULL && column[5][0] != '\0') {
		fprintf(f, ". Not built yet: ");
		put_all(f, column[5]);
	}
	fprintf(f, "\n\n");
}

static int write_policy(const char *folder, const char *source)
{
	FILE *in = fopen(source, "r"), *f = in != NULL ? open_page(folder, "policy", 5) : NULL;
	char line[LINE_MAX_BYTES];

	if (f == NULL) {
		perror(source);
		return 1;
	}
	fprintf(f,
		"cellblock-policy - what one kernel's jail may do\n\n# DESCRIPTION\n\nA policy is a JSON object. Keys "
		"may be nested or dotted. An unknown key or an impossible value is an error that names file, key and "
		"what is allowed. *cellblock explain* prints the policy in force and the jail that it results in. "
		"docs/policy.md in the sources has more on each key.\n\n# KEYS\n\n");
	while (fgets(line, sizeof(line), in) != NULL) {
		const char *dot = strchr(line, '.');

		if (strncmp(line, "| `", 3) == 0 && (dot != NULL || strstr(line, "| [] |") != NULL))
			put_key(f, line);
	}
	fclose(in);
	fprintf(f, "# SEE ALSO\n\n*cellblock*(1), *cellblock-explain*(1)\n");
	return fclose(f) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	int failed;

	if (argc != 3) {
		fprintf(stderr, "usage: man-pages FOLDER POLICY.md\n");
		return 2;
	}
	failed = write_overview(argv[1]) + write_policy(argv[1], argv[2]);
	for (size_t i = 0; i < cb_command_rows_count; i++) {
		if (cb_command_rows[i].bit != 0)
			failed += write_command(argv[1], &cb_command_rows[i]);
	}
	return failed > 0 ? 1 : 0;
}
