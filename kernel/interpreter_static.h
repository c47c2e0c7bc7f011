/* What can be known about an interpreter without running it. Trust domain: supervisor, at start. Callers:
 * interpreter.c, commands/install.c. */
#pragma once

#include "interpreter.h"

/* Finds the executable, resolves pyenv's shims, and fills executable, venv, conda and prefixes. version stays NULL. */
int cb_interpreter_static(const char *executable, struct cb_interpreter *ret_interpreter, struct cb_err *err);
