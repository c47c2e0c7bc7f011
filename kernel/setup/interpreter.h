/* Facts about the Python interpreter chosen for the guest, and where they come from. Trust domain: supervisor, at
 * start.
 *
 * Nothing of the interpreter runs on the host: what must be bound is derived from paths and pyvenv.cfg; what only the
 * interpreter knows (its exact version, search path, whether IPython is there) is asked in a throw-away jail and kept
 * in a facts file beside the kernelspec, stamped with the executable's identity so that a changed interpreter is asked
 * again.
 */
#pragma once

#include <cellblock/error.h>
#include <cellblock/sandbox.h>

#include "interpreter_facts.h"

/* As `facts_file`: a file in the user's cache folder, for kernelspecs whose own folder belongs to an installer. */
#define CB_FACTS_CACHE "cache"

/* `executable` NULL: $VIRTUAL_ENV's python, else that which a wheel was installed for, else python3 on PATH.
 * `facts_file` may be NULL (then the jail is always asked, of no level below `minimum`). */
int cb_interpreter_find(const char *executable, const char *facts_file, const char *jail_program,
			enum cb_isolation_level minimum, struct cb_interpreter *ret_interpreter, struct cb_err *err);
/* Writes the facts file. */
int cb_interpreter_save(const struct cb_interpreter *i, const char *facts_file);
/* The folder that holds all that CB_FACTS_CACHE stands for; malloc'd, NULL = none. */
char *cb_interpreter_cache(void);
