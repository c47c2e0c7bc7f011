/* Runs one of our own programs and keeps what it prints. Trust domain: supervisor, at start, single-threaded. */
#pragma once

#include <cellblock/buffer.h>

#define CB_CAPTURE_FD 3 /* where the child finds pass_fd */

/* stdin is /dev/null, stdout goes to *out (CB_E_TOO_BIG past its max), stderr to *errors (cut at its max). -ETIMEDOUT
 * after timeout_ms: the child is killed. 0: *ret_status is the wait status. */
int cb_capture(char *const argv[], int pass_fd, int timeout_ms, struct cb_buf *out, struct cb_buf *errors,
	       int *ret_status);
/* Replaces this process by the program, pass_fd at CB_CAPTURE_FD. Returns only on failure. */
int cb_replace_process(char *const argv[], int pass_fd);
