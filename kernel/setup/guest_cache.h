/* Compiled modules of the guest package, kept beside a kernelspec (compiling them at every start would double its
 * time), and matplotlib's list of fonts.
 *
 * Trust domain: supervisor's program, at installation. They are compiled by the chosen interpreter in a throw-away
 * jail and only ever run in jails; Python checks them against the sources' time and size, so a stale folder costs time,
 * not correctness.
 */
#pragma once

#include "interpreter_facts.h"

/* Folder for the kernelspec that keeps this facts file. malloc'd; NULL = no memory, or a link is in its place: what it
 * leads to would be shown in each jail, and written to. */
char *cb_guest_cache_folder(const char *facts_file);
/* Compiles and writes them; with `libraries` also what plotting and completion take long to find out. */
int cb_guest_cache_write(const struct cb_interpreter *interpreter, const char *jail_program, const char *guest_dir,
			 bool libraries, const char *folder, struct cb_err *err);
