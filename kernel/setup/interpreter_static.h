/* What can be known about an interpreter without running it. Trust domain: supervisor, at start. */
#pragma once

#include "interpreter_facts.h"

/* Whether that real path is one of those that the look found. Links may change after it. */
bool cb_interpreter_may_show(const struct cb_interpreter *interpreter, const char *real);

/* The system's folder that an absolute path lies in, of those that every jail shows if root.path names no image; NULL =
 * none. */
const char *cb_system_shown(const char *path);

/* Finds the executable, resolves pyenv's shims, and fills executable, venv, conda and prefixes. version stays NULL. */
int cb_interpreter_static(const char *executable, struct cb_interpreter *ret_interpreter, struct cb_err *err);
