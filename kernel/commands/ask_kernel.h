/* Asking a running kernel, as its client. Trust domain: supervisor's program; holds the kernel's key. */
#pragma once

#include <cellblock/buffer.h>
#include <cellblock/error.h>
#include <jansson.h>

#define CB_RUNNING_MAX 4096

struct cb_running {
	char id[64];
	char *file;
	json_t *said; /* its usage_reply; NULL = it was silent */
};

struct cb_running_list {
	char folder[4096]; /* where their connection files lie */
	size_t count, room;
	struct cb_running *item;
};

/* The Cellblock kernels of this user that run, by their ids: all, or an error. To be released also on failure. */
int cb_kernels_running(struct cb_running_list *ret, struct cb_err *err);
void cb_kernels_release(struct cb_running_list *list);
/* What a kernel says of itself beside its usage; borrowed, NULL if it does not say. */
const json_t *cb_running_about(const struct cb_running *k, const char *key);
/* Its notebook, else the program that started it, else NULL. Borrowed. */
const char *cb_running_name(const struct cb_running *k);

/* The connection file of a running kernel: `which` is a file (with a '/'), a notebook or the end of its path, the start
 * of an id, or NULL if only one runs. *ret_name: its id and its notebook's path, or the file as it was named. Both are
 * malloc'd, also where it fails with -ENOMEM. */
int cb_kernel_file(const char *which, char **ret_path, char **ret_name, struct cb_err *err);
/* Sends a request on control and waits for its reply's content. */
int cb_kernel_ask(const char *connection_file, const char *type, struct cb_span content, struct cb_buf *ret_reply,
		  struct cb_err *err);
