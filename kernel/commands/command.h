/* What the commands beside the kernel share. Trust domain: supervisor, no secrets. */
#pragma once

#include <cellblock/sandbox.h>

#include "options.h"
#include "policy/install_paths.h"
#include "policy/policy.h"
#include "setup/interpreter.h"

/* Prints an error with its cure to stderr; returns the exit status: 2 for wrong usage or a wrong policy, 3 when the
 * host can't isolate, else 1. */
int cb_command_fail(const char *command, const struct cb_err *err);

/* "90s", "5m", "3h", "4d" */
void cb_command_time_text(double seconds, char ret[16]);

/* Takes as many open files as the host allows; an error if that are too few for a kernel or a jail. */
int cb_command_open_files(struct cb_err *err);

/* Loads the policy of the options as the kernel will, so that a mistake is told now. The folder that we are in is no
 * workspace. ret_minimum may be NULL. */
int cb_command_check_policy(const struct cb_options *o, enum cb_isolation_level *ret_minimum, struct cb_err *err);

/* A jail that a command plans and has cellblock-jail build or explain. Zeroed before use. */
struct cb_command_jail {
	struct cb_install_paths install_paths;
	struct cb_policy policy;
	struct cb_interpreter interpreter;
	struct cb_jail_spec spec;
	int spec_fd;	       /* the description, encoded; valid once planned */
	char spec_fd_text[12]; /* the number that cellblock-jail finds it at, for its --spec-fd */
};

/* Plans the jail for a command, or, with argv NULL, for the kernel's guest (then the interpreter is asked). To be
 * released also on failure. */
int cb_command_plan(const struct cb_options *o, char *const *argv, struct cb_command_jail *ret_jail,
		    struct cb_err *err);
void cb_command_release(struct cb_command_jail *jail);
