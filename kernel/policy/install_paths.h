/* Where Cellblock's own programs lie. Trust domain: supervisor, at start. See install_paths.c. */
#pragma once

#include <cellblock/error.h>

/* The script of a wheel that names an interpreter in its first line: it lies beside the program `cellblock`. */
#define CB_INTERPRETER_SCRIPT "cellblock-python"

/* Where the programs lie, relative to /proc/self/exe: PREFIX/bin/cellblock,
 * PREFIX/libexec/cellblock/{cellblock-jail,guest}. */
struct cb_places {
	char *self;  /* absolute path of this program */
	char *jail;  /* …/libexec/cellblock/cellblock-jail */
	char *guest; /* …/libexec/cellblock/guest */
};
int cb_places_find(struct cb_places *ret_places, struct cb_err *err);
void cb_places_release(struct cb_places *p);
/* This program, and PREFIX of PREFIX/bin, as its environment has them: uv may have put links to its cache there. NULL =
 * not known; malloc'd. */
char *cb_places_program(void);
char *cb_places_prefix(void);
