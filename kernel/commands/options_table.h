/* The tables of the command line: parsing, --help, completion and the man pages are made from them. Trust domain:
 * supervisor's program, at start. */
#pragma once

#include <stddef.h>

enum {
	CB_C_KERNEL = 1,
	CB_C_INSTALL = 2,
	CB_C_RUN = 4,
	CB_C_EXPLAIN = 8,
	CB_C_DOCTOR = 16,
	CB_C_AUDIT = 32,
	CB_C_LAYER = 64, /* changes, commit, discard */
	CB_C_LIST = 128,
	CB_C_UNINSTALL = 256,
	CB_C_COMPLETION = 512,
	CB_C_HELP = 1024,
	CB_C_VERSION = 2048,
	CB_C_MCP = 4096,
	CB_C_WARM = 8192,
	CB_C_ALL = 16383
};

enum cb_option_kind {
	CB_O_TEXT,
	CB_O_FLAG,
	CB_O_SECONDS,
	CB_O_SET,
	CB_O_ENV,
	CB_O_LEVEL,
	CB_O_LANGUAGE,
	CB_O_PROJECT,
	CB_O_HELP,
	CB_O_VERSION
};

struct cb_option_row {
	const char *name;
	int commands;
	char letter;
	enum cb_option_kind kind;
	size_t offset;	      /* of the member of struct cb_options */
	const char *argument; /* in --help; NULL = takes none */
	const char *words;    /* values that are known, separated by spaces; NULL = none are */
	const char *help;
};

struct cb_command_row {
	const char *name;
	int bit;
	const char *usage; /* what follows the options */
	const char *words; /* known words for the first of these; NULL = none are */
	const char *help;  /* in a line */
	const char *about; /* the rest of what there is to know, or NULL */
};

#define CB_OPTION_ROWS_MAX 64

extern const struct cb_option_row cb_option_rows[];
extern const size_t cb_option_rows_count;
extern const struct cb_command_row cb_command_rows[];
extern const size_t cb_command_rows_count;

/* The command of this name, or NULL. */
const struct cb_command_row *cb_command_find(const char *name);
