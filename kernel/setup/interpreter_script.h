/* The interpreter that an installed script names in its first line. Trust domain: supervisor, at start. */
#pragma once

#include <cellblock/error.h>

/* Absolute path of the interpreter that `script` names, links not resolved; malloc'd. It exists. */
int cb_interpreter_script(const char *script, char **ret_python, struct cb_err *err);
/* The script beside this program, or NULL if there is none; malloc'd. */
char *cb_interpreter_script_of_ours(void);
