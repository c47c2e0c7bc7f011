/* Binds of the description: shared by workspace.c and report/explain.c. */
#pragma once

#include "../shared/jail.h"

#include <sys/stat.h>

/* Broker, started by root: opens all binds as detached mounts into jail->mount_fds. */
int cb_binds_open(struct cb_jail *jail, struct cb_err *err);
void cb_binds_close(struct cb_jail *jail);
/* Pid 1: mounts one bind; -ENOENT if its source is absent, -EROFS if its target is and cannot be made. */
int cb_bind_attach(struct cb_jail *jail, size_t index);
/* Its target lies inside the workspace: mounted after it, by workspace.c. */
bool cb_bind_in_workspace(const struct cb_jail_spec *spec, const struct cb_bind *bind);
/* An entry of home_expose relative to the home; NULL if it does not lie in it. */
const char *cb_expose_relative(const struct cb_jail_spec *spec, const char *item);

/* workspace.c: maps the owner of `st` to the jail's host uid on a detached mount. */
int cb_workspace_idmap(const struct cb_jail *jail, int mnt, const struct stat *st);
