/* What is known of the interpreter chosen for the guest. Trust domain: supervisor, at start. */
#pragma once

#include <cellblock/sandbox.h>
#include <stdbool.h>

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

void cb_interpreter_release(struct cb_interpreter *i);

/* Whether cells run without IPython: there is none, or one older than the guest can use. */
bool cb_interpreter_is_plain(const struct cb_interpreter *i);
/* "IPython 8.5.0", or why cells run in plain mode. */
void cb_interpreter_ipython_text(const struct cb_interpreter *i, char ret[96]);
