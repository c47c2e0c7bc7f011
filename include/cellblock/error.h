/* Error codes and error detail shared by every part of Cellblock.
 *
 * Functions return 0 or a negative code: a negated errno, or one of CB_E_* below (outside errno's range). Results go to
 * trailing `ret_` parameters, which are untouched on failure. Where a person has to read what went wrong (policy,
 * connection file, jail set-up) a function takes a `struct cb_err *` as its last parameter and fills it on failure.
 */
#pragma once

enum cb_error_code {
	CB_E_SYNTAX = -4096,	/* input is not of the form that it claims */
	CB_E_TOO_BIG = -4097,	/* a size, depth or count limit was hit */
	CB_E_DENIED = -4098,	/* policy or permission table says no */
	CB_E_NOT_BUILT = -4099, /* known and valid, but this version cannot do it */
	CB_E_UNKNOWN = -4100,	/* unknown key, type or name */
	CB_E_AUTH = -4101,	/* signature wrong, absent or replayed */
	CB_E_CLOSED = -4102,	/* the peer is gone */
	CB_E_USAGE = -4103,	/* wrong command line */
};

struct cb_err {
	int code;	/* negative code, 0 = nothing set */
	char step[64];	/* what was being done: "policy", "mount /proc", "bind shell_port" */
	char text[768]; /* one sentence: what is wrong and where */
	char cure[512]; /* one sentence: what the reader can do; may be empty */
};

/* Fills *err (NULL is allowed) and returns `code`. `cure` may be NULL. Text over the size is cut. */
int cb_err_set(struct cb_err *err, int code, const char *step, const char *cure, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* Name of a code for logs: "ENOENT", "CB_E_SYNTAX", … Never NULL. */
const char *cb_err_name(int code);

/* The same for people: "No such file or directory"; our own codes, which have no words, by name. Never NULL. */
const char *cb_err_text(int code);
