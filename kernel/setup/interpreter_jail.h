/* Runs a script of ours by the chosen interpreter in a throw-away jail. Trust domain: supervisor, at start. */
#pragma once

#include <cellblock/buffer.h>

#include "interpreter_facts.h"

#define CB_INTERPRETER_SECONDS 60 /* a cold disk may be slow, or the machine busy */

/* What the script printed on its last line goes to *out (bounded by its max): a guest's word. `guest_dir` (or NULL) is
 * shown at CB_GUEST_TARGET. `seconds`: how long to wait for it. */
int cb_interpreter_run(const struct cb_interpreter *interpreter, const char *jail_program, const char *script,
		       const char *guest_dir, int seconds, struct cb_buf *out, struct cb_err *err);
