/* Where a kernelspec lies and what `install` puts there: for install.c and uninstall.c. Trust domain: supervisor's
 * program, no secrets. */
#pragma once

#include "command.h"

#define CB_KERNELSPEC_LOGOS 3
extern const char *const cb_kernelspec_logos[CB_KERNELSPEC_LOGOS];

/* The folder that --name, --user, --sys-prefix and --prefix mean, malloc'd. CB_E_USAGE for a name that is none. */
int cb_kernelspec_folder(const struct cb_options *o, const struct cb_interpreter *interpreter, char **ret_folder,
			 struct cb_err *err);
