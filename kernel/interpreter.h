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

struct cb_interpreter {
	char *executable;      /* absolute, links not resolved: what argv[0] inside is (a venv is recognised by it) */
	char *version;	       /* "3.11.7" */
	char *ipython_version; /* NULL = none: plain mode */
	char *bash_version;    /* of the bash that the jail has; NULL = none */
	bool debugpy;	       /* it can be imported */
	char *venv;	       /* VIRTUAL_ENV, or NULL */
	char *conda;	       /* CONDA_PREFIX, or NULL */
	struct cb_strv
		prefixes;	/* folders to bind read-only: prefix, base prefix, each by its path and its real path */
	struct cb_strv not_followed; /* links of the environment that lead to what is no Python's, in words */
	struct cb_strv missing; /* search-path entries and editable installs that the jail will not see */
	enum cb_isolation_level minimum; /* weakest level of a jail to ask it in */
	char *facts;			 /* file where its facts are kept; NULL = none */
	bool in_cache;			 /* that is one of the user's cache folder, and no kernelspec's */
	bool asked;			 /* nothing was known, or nothing that still holds */
};

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
void cb_interpreter_release(struct cb_interpreter *i);
