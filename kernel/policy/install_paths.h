/* Where Cellblock's own programs lie. Trust domain: supervisor, at start. See install_paths.c. */
#pragma once

#include <cellblock/error.h>

/* The script of a wheel that names an interpreter in its first line: it lies beside the program `cellblock`. */
#define CB_INTERPRETER_SCRIPT "cellblock-python"

/* Where the programs lie, relative to /proc/self/exe: PREFIX/bin/cellblock,
 * PREFIX/libexec/cellblock/{cellblock-jail,guest}. */
struct cb_install_paths {
	char *self;  /* absolute path of this program */
	char *jail;  /* …/libexec/cellblock/cellblock-jail */
	char *guest; /* …/libexec/cellblock/guest */
};
int cb_install_paths_find(struct cb_install_paths *ret_paths, struct cb_err *err);
void cb_install_paths_release(struct cb_install_paths *p);
/* This program, and PREFIX of PREFIX/bin, as its environment has them: uv may have put links to its cache there. NULL =
 * not known; malloc'd. */
char *cb_install_paths_program(void);
char *cb_install_paths_prefix(void);
