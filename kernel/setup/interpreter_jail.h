/* Runs a script of ours by the chosen interpreter in a throw-away jail. Trust domain: supervisor, at start. */
#pragma once

#include <cellblock/buffer.h>

#include "interpreter_facts.h"

/* What the script printed on its last line goes to *out (bounded by its max): a guest's word. `guest_dir` (or NULL) is
 * shown at CB_GUEST_TARGET. */
int cb_interpreter_run(const struct cb_interpreter *interpreter, const char *jail_program, const char *script,
		       const char *guest_dir, struct cb_buf *out, struct cb_err *err);
