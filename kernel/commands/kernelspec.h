/* Where a kernelspec lies and what `install` puts there: for install.c, uninstall.c, doctor.c and list.c. Trust domain:
 * supervisor's program, no secrets. */
#pragma once

#include "command.h"

#define CB_KERNELSPEC_LOGOS 3
extern const char *const cb_kernelspec_logos[CB_KERNELSPEC_LOGOS];

/* The folder that --name, --user, --sys-prefix and --prefix mean, malloc'd. CB_E_USAGE for a name that is none. */
int cb_kernelspec_folder(const struct cb_options *o, const struct cb_interpreter *interpreter, char **ret_folder,
			 struct cb_err *err);

/* Folders of kernelspecs: where Jupyter looks (the one on PATH), or, with `more`, wherever `install` may have written
 * without being told a prefix. -ENOMEM. */
int cb_kernelspec_places(bool more, struct cb_strv *ret_folders);
/* What the kernel.json in this folder starts, malloc'd; NULL if that is no `cellblock kernel`. Not absolute: as it was
 * named, and what it starts depends on where Jupyter runs. *ret_package is static: the package that a kernelspec came
 * with, and how it goes; NULL = none, `install` wrote it. */
char *cb_kernelspec_program(const char *folder, const char **ret_package);
/* Folders of the kernelspecs that start this program and that Jupyter sees. -ENOMEM. */
int cb_kernelspec_visible(const struct cb_install_paths *install_paths, struct cb_strv *ret_folders);
/* Whether an install or uninstall was interrupted there: no kernel.json, but the facts that `install` keeps. */
bool cb_kernelspec_is_rest(const char *folder);
/* Removes what `install` wrote there, and says so. */
int cb_kernelspec_remove(const char *folder, struct cb_err *err);
/* Removes the files that `install` writes, by name, and the folder where it is empty then (else -ENOTEMPTY). */
int cb_kernelspec_remove_files(const char *folder);
/* Removes compiled modules and the like in the folder "pycache" of this one. */
int cb_kernelspec_remove_cache(int folder);
/* Removes what a killed process left there of files that it was writing. */
int cb_kernelspec_remove_temporaries(int folder);

/* uninstall_all.c */
int cb_uninstall_all(const struct cb_options *o, struct cb_err *err);
