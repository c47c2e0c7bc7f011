/* Asking a running kernel, as its client. Trust domain: supervisor's program; holds the kernel's key. */
#pragma once

#include <cellblock/buffer.h>
#include <cellblock/error.h>

/* The connection file of a running kernel: `which` is a file (with a '/'), the start of an id, or NULL if only one
 * runs. malloc'd. */
int cb_kernel_file(const char *which, char **ret_path, struct cb_err *err);
/* Sends a request on control and waits for its reply's content. */
int cb_kernel_ask(const char *connection_file, const char *type, const char *content, struct cb_buf *ret_reply,
		  struct cb_err *err);
