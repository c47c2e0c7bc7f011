/* The interpreter that an installed script names in its first line. Trust domain: supervisor, at start. */
#pragma once

#include <cellblock/error.h>

/* The script that a wheel has for this: it lies beside the program `cellblock`. */
#define CB_INTERPRETER_SCRIPT "cellblock-python"

/* Absolute path of the interpreter that `script` names, links not resolved; malloc'd. It exists. */
int cb_interpreter_script(const char *script, char **ret_python, struct cb_err *err);
/* The script beside this program, or NULL if there is none; malloc'd. */
char *cb_interpreter_script_of_ours(void);
