/* What only the interpreter itself knows, asked in a throw-away jail. Trust domain: supervisor, at start. */
#pragma once

#include "interpreter_facts.h"

/* Fills version, ipython_version and missing of `interpreter`, whose static facts are complete. */
int cb_interpreter_ask(struct cb_interpreter *interpreter, const char *jail_program, struct cb_err *err);
/* Takes over an answer: {"version": "3.11.7", "ipython": "9.1.0"|null, "missing": [...]}. Strict: it is a guest's word.
 */
int cb_interpreter_take_answer(struct cb_interpreter *interpreter, const char *text, size_t len, struct cb_err *err);
