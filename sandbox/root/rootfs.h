/* What the new root consists of, as data: for rootfs.c, dev.c and proc.c which build it and report/explain.c which
 * prints it.
 */
#pragma once

#include "../shared/jail.h"

#include <cellblock/error.h>
#include <cellblock/sandbox.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cb_shown {
	const char *path;   /* without the leading '/' */
	const char *reason; /* for explain */
};

struct cb_made {
	const char *path;
	const char *text;
	const char *text_full; /* with network full, where it differs; NULL = the same */
};

struct cb_device {
	const char *name;
	unsigned major, minor;
};

extern const struct cb_shown cb_root_system[]; /* read-only system folders, or links as on the host */
extern const size_t cb_root_system_count;
extern const struct cb_shown cb_root_etc[]; /* the entries of /etc that are shown */
extern const size_t cb_root_etc_count;
extern const struct cb_made cb_root_made[]; /* files of our own making */
extern const size_t cb_root_made_count;
extern const struct cb_device cb_dev_nodes[];
extern const size_t cb_dev_nodes_count;
extern const char *const cb_proc_read_only[];
extern const size_t cb_proc_read_only_count;
extern const char *const cb_proc_masked[];
extern const size_t cb_proc_masked_count;

/* Opens the host's device `name` and checks that it is that device. */
int cb_dev_open(const struct cb_device *device, int *ret_fd);

/* broker (started by root) or pid 1: a detached read-only mount of spec->root_path */
int cb_image_open(const struct cb_jail *jail, int *ret_mnt, struct cb_err *err);

/* parents.c: folders above the workspace, where they lie on a tmpfs that cells may write. Made before anything is
 * placed there, closed after the pivot. */
int cb_parents_make(const struct cb_jail_spec *spec);
int cb_parents_close(const struct cb_jail_spec *spec);
/* /var/tmp is a link to /tmp, but where something has its place below it another mount of the same. */
bool cb_parents_need_var_tmp(const struct cb_jail_spec *spec);
int cb_parents_var_tmp(const struct cb_jail_spec *spec);

#define CB_ROOT_BYTES (8u << 20)
#define CB_ROOT_INODES 8192u
