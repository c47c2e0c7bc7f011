/* `cellblock completion bash|zsh|fish`: what completes this program's words in a shell.
 *
 * Role: writes the shell's script from the tables that parse the command line and the policy: nothing of them is
 * written here a second time. Trust domain: supervisor's program, no secrets. Invariant: what the tables say reaches
 * the scripts only through quote(), so that no text of theirs is anything but text to a shell.
 */
#include <stdbool.h>

#include "command.h"
#include "options_table.h"
#include "policy/keys.h"

/* In single quotes, with a backslash before each of `special`. */
static void quote(const char *text, const char *special)
{
	putchar('\'');
	for (; *text != '\0'; text++) {
		if (strchr(special, *text) != NULL)
			putchar('\\');
		if (*text == '\'')
			printf("'\\''");
		else
			putchar(*text);
	}
	putchar('\'');
}

enum value { VALUE_NONE, VALUE_WORD, VALUE_FOLDER, VALUE_FILE };

/* What an option's value is, beside its known words. */
static enum value value_of(const struct cb_option_row *row)
{
	if (row->argument == NULL)
		return VALUE_NONE;
	if (strcmp(row->argument, "DIR") == 0)
		return VALUE_FOLDER;
	return strstr(row->argument, "FILE") != NULL || strcmp(row->argument, "EXE") == 0 ? VALUE_FILE : VALUE_WORD;
}

static bool is_first_of_name(size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (strcmp(cb_option_rows[i].name, cb_option_rows[index].name) == 0)
			return false;
	return true;
}

static void print_commands(void)
{
	for (size_t i = 0; i < cb_command_rows_count; i++)
		printf("%s%s", i > 0 ? " " : "", cb_command_rows[i].name);
}

/* The words of what follows a command's options: `help` takes the commands themselves. */
static void print_operands(const struct cb_command_row *c)
{
	if (c->bit == CB_C_HELP)
		print_commands();
	else
		printf("%s", c->words != NULL ? c->words : "");
}

/* KEY=, or KEY=WORD where the words are known. */
static void print_assignments(void)
{
	for (size_t i = 0; i < cb_policy_keys_count; i++) {
		const struct cb_policy_key *key = &cb_policy_keys[i];

		if (key->words == NULL)
			printf("%s%s=", i > 0 ? " " : "", key->name);
		for (const struct cb_key_word *w = key->words; w != NULL && w->word != NULL; w++)
			printf(" %s=%s", key->name, w->word);
	}
}

/* ---- bash ---- */

static void bash_options(const struct cb_command_row *c)
{
	printf("\t%s)\n\t\toptions='", c->name);
	for (size_t i = 0, n = 0; i < cb_option_rows_count; i++) {
		const struct cb_option_row *row = &cb_option_rows[i];

		if ((row->commands & c->bit) != 0)
			printf("%s%s%s", n++ > 0 ? " " : "", row->letter == 'f' ? "-" : "--", row->name);
	}
	printf("' words='");
	print_operands(c);
	printf("' ;;\n");
}

/* What is known of its values. */
static void print_words(const struct cb_option_row *row)
{
	if (row->kind == CB_O_SET)
		print_assignments();
	else
		printf("%s", row->words != NULL ? row->words : "");
}

static void bash_value(const struct cb_option_row *row)
{
	enum value value = value_of(row);

	if (value == VALUE_NONE)
		return;
	printf("\t%s%s) words='", row->letter == 'f' ? "-f|--" : "--", row->name);
	print_words(row);
	printf("' files=%s ;;\n", value == VALUE_FOLDER ? "-d" : value == VALUE_FILE ? "-f" : "''");
}

/* bash has cut the line at each '=': KEY=VALUE and --option=VALUE are put together again, and what stands before the
 * last '=' is taken off what is offered. */
static void print_bash(void)
{
	printf("_cellblock() {\n"
	       "\tlocal i=$((COMP_CWORD - 1)) cur=${COMP_WORDS[COMP_CWORD]} option= options= words= files= before=\n"
	       "\tCOMPREPLY=()\n"
	       "\tif [[ $cur == = ]]; then cur= before==; fi\n"
	       "\tif [[ ${COMP_WORDS[i]} == = ]]; then before== i=$((i - 1)); fi\n"
	       "\tif [[ $before && ${COMP_WORDS[i]} != -* ]]; then\n"
	       "\t\tbefore=${COMP_WORDS[i]}= i=$((i - 1))\n"
	       "\t\tif [[ ${COMP_WORDS[i]} == = ]]; then i=$((i - 1)); fi\n"
	       "\telse\n"
	       "\t\tbefore=\n"
	       "\tfi\n"
	       "\toption=${COMP_WORDS[i]}\n"
	       "\tif ((COMP_CWORD == 1)); then\n"
	       "\t\tCOMPREPLY=($(compgen -W '");
	print_commands();
	printf(" --help --version' -- \"$cur\"))\n\t\treturn\n\tfi\n\tcase ${COMP_WORDS[1]} in\n");
	for (size_t i = 0; i < cb_command_rows_count; i++)
		bash_options(&cb_command_rows[i]);
	printf("\tesac\n\tcase $option in\n");
	for (size_t i = 0; i < cb_option_rows_count; i++)
		if (is_first_of_name(i))
			bash_value(&cb_option_rows[i]);
	printf("\t*) option= ;;\n\tesac\n"
	       "\tif [[ $cur == -* && -z $option ]]; then words=$options; fi\n"
	       "\tif [[ -z $option && ${COMP_WORDS[1]} == run && $cur != -* ]]; then files=-c; fi\n"
	       "\tCOMPREPLY=($(compgen -W \"$words\" -- \"$before$cur\"))\n"
	       "\tCOMPREPLY=(\"${COMPREPLY[@]#\"$before\"}\")\n"
	       "\tif [[ $files ]]; then COMPREPLY+=($(compgen \"$files\" -- \"$cur\")); fi\n"
	       "\tif [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi\n"
	       "}\n"
	       "complete -o bashdefault -o default -F _cellblock cellblock\n");
}

/* ---- zsh ---- */

static void zsh_option(const struct cb_option_row *row)
{
	enum value value = value_of(row);

	printf("\t\t\t%s%s", row->kind == CB_O_SET || row->kind == CB_O_ENV ? "'*'" : "",
	       row->letter == 'f' ? "-" : "--");
	printf("%s", row->name);
	printf("'['");
	quote(row->help, "[]:\\");
	printf("']'");
	if (value == VALUE_NONE) {
		printf(" \\\n");
		return;
	}
	printf("':%s:{", row->argument);
	if (row->kind == CB_O_SET || row->words != NULL) {
		printf("compadd%s -- ", row->kind == CB_O_SET ? " -S \"\"" : "");
		print_words(row);
		printf("; ");
	}
	printf("%s}' \\\n", value == VALUE_FOLDER ? "_files -/" : value == VALUE_FILE ? "_files" : "true");
}

static void print_zsh(void)
{
	printf("#compdef cellblock\n_cellblock() {\n\tlocal -a commands=(\n");
	for (size_t i = 0; i < cb_command_rows_count; i++) {
		printf("\t\t%s:", cb_command_rows[i].name);
		quote(cb_command_rows[i].help, ":\\");
		putchar('\n');
	}
	printf("\t)\n\tif ((CURRENT == 2)); then\n\t\t_describe command commands\n\t\treturn\n\tfi\n"
	       "\tshift words\n\t((CURRENT--))\n\tcase $words[1] in\n");
	for (size_t c = 0; c < cb_command_rows_count; c++) {
		const struct cb_command_row *command = &cb_command_rows[c];

		printf("\t%s)\n\t\t_arguments \\\n", command->name);
		for (size_t i = 0; i < cb_option_rows_count; i++)
			if ((cb_option_rows[i].commands & command->bit) != 0)
				zsh_option(&cb_option_rows[i]);
		if (command->bit == CB_C_RUN) {
			printf("\t\t\t'*::COMMAND:_normal'");
		} else if (command->words != NULL) {
			printf("\t\t\t'1:WORD:(");
			print_operands(command);
			printf(")'");
		} else {
			printf("\t\t\t%s", command->bit == CB_C_AUDIT ? "'1:FILE:_files'" : "");
		}
		printf("\n\t\t;;\n");
	}
	printf("\tesac\n}\nif [[ $funcstack[1] == _cellblock ]]; then _cellblock \"$@\"; else compdef _cellblock "
	       "cellblock; fi\n");
}

/* ---- fish ---- */

static void fish_option(const struct cb_command_row *c, const struct cb_option_row *row)
{
	enum value value = value_of(row);

	printf("complete -c cellblock -n '__fish_seen_subcommand_from %s'%s%s -l %s -d ", c->name,
	       row->letter == 'f' ? " -s f" : "", row->letter == 'h' ? " -s h" : "", row->name);
	quote(row->help, "\\");
	if (value != VALUE_NONE)
		printf(value == VALUE_WORD ? " -x" : " -r -F");
	if (row->kind == CB_O_SET || row->words != NULL) {
		printf(" -a '");
		print_words(row);
		printf("'");
	}
	printf("\n");
}

static void print_fish(void)
{
	printf("complete -c cellblock -f\n");
	for (size_t c = 0; c < cb_command_rows_count; c++) {
		const struct cb_command_row *command = &cb_command_rows[c];

		printf("complete -c cellblock -n __fish_use_subcommand -a %s -d ", command->name);
		quote(command->help, "\\");
		printf("\n");
		for (size_t i = 0; i < cb_option_rows_count; i++)
			if ((cb_option_rows[i].commands & command->bit) != 0)
				fish_option(command, &cb_option_rows[i]);
		if (command->words != NULL) {
			printf("complete -c cellblock -n '__fish_seen_subcommand_from %s' -a '", command->name);
			print_operands(command);
			printf("'\n");
		} else if (command->bit == CB_C_RUN || command->bit == CB_C_AUDIT) {
			printf("complete -c cellblock -n '__fish_seen_subcommand_from %s' -F%s\n", command->name,
			       command->bit == CB_C_RUN ? " -a '(__fish_complete_command)'" : "");
		}
	}
}

int cb_command_completion(const struct cb_options *o)
{
	if (strcmp(o->file, "bash") == 0)
		print_bash();
	else if (strcmp(o->file, "zsh") == 0)
		print_zsh();
	else
		print_fish();
	return 0;
}
