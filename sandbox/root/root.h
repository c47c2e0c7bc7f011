/* The jail's file system, as whoever builds jails knows it: what the broker opens outside, and pid 1's steps.
 *
 * Trust domain: broker and pid 1.
 */
#pragma once

#include "../shared/jail.h"

/* broker, outside: open, check, id-map, detach; also the binds */
int cb_workspace_open(struct cb_jail *jail, struct cb_err *err);
/* broker, after the clone: drops what cb_workspace_open opened */
void cb_workspace_close(struct cb_jail *jail);
int cb_step_private_mounts(struct cb_jail *jail, struct cb_err *err);
/* tmpfs root; system folders, /etc. From here to pivot the working folder is the new root; "/" is still the host's */
int cb_step_new_root(struct cb_jail *jail, struct cb_err *err);
int cb_step_dev(struct cb_jail *jail, struct cb_err *err);
int cb_step_proc(struct cb_jail *jail, struct cb_err *err);
/* instead, for who has no process namespace of its own: a few files, and itself */
int cb_step_proc_of_self(struct cb_jail *jail, struct cb_err *err);
int cb_step_tmpfs(struct cb_jail *jail, struct cb_err *err); /* /tmp, home, /dev/shm */
/* spec->binds outside the workspace, home_expose: after tmpfs */
int cb_step_binds(struct cb_jail *jail, struct cb_err *err);
int cb_step_workspace(struct cb_jail *jail, struct cb_err *err); /* move the mount in, verify inode */
/* spec->binds with a target in it */
int cb_step_workspace_binds(struct cb_jail *jail, struct cb_err *err);
int cb_step_pivot(struct cb_jail *jail, struct cb_err *err); /* pivot, detach the old root, root read-only */
