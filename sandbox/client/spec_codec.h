/* The encoded form of a jail's description; private to sandbox/client, its tests and the fuzz target. See spec.c. */
#pragma once

#include <cellblock/buffer.h>
#include <cellblock/error.h>
#include <cellblock/sandbox.h>

#define CB_STRV_MAX 16384u		/* items of one vector */
#define CB_NAMES_MAX (1u << 18)		/* names of one folder: cells can make as many, in the broker's memory */
#define CB_BINDS_MAX 1024u
#define CB_OPEN_FILES_MIN 32u		/* what the guest's own start needs */
#define CB_SPEC_STRING_MAX (128u << 10) /* bytes of one string: what execve takes */

/* A path that says one thing only: absolute, no empty, "." or ".." part, no slash at the end, shorter than PATH_MAX. */
bool cb_path_is_plain(const char *path);

int cb_jail_spec_encode(const struct cb_jail_spec *spec, struct cb_buf *out);
/* Accepts exactly what encode produces from a description that passes the check. */
int cb_jail_spec_decode(const void *data, size_t n, struct cb_jail_spec *ret_spec, struct cb_err *err);
