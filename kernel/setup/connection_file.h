/* The connection file that a Jupyter client hands to its kernel. Trust domain: supervisor, at start. */
#pragma once

#include <cellblock/error.h>
#include <stdbool.h>
#include <stddef.h>

enum cb_channel { CB_SHELL, CB_IOPUB, CB_STDIN, CB_CONTROL, CB_HB, CB_NCHANNELS };

#define CB_KEY_MAX 4096

struct cb_connection {
	char *path;		/* of the file itself */
	bool ipc;		/* transport */
	char *ip;		/* address, or for ipc the socket path's prefix */
	int port[CB_NCHANNELS]; /* 0 = to be chosen by the kernel and written back */
	char *key;		/* signing key; may be empty */
	size_t key_len;
	char *digest; /* libcrypto's name of the hash in signature_scheme: "sha256" */
	char *signature_scheme;
	char *kernel_name;     /* may be NULL */
	char *jupyter_session; /* may be NULL */
	char curve_public[41]; /* Z85; empty = no CurveZMQ */
	char curve_secret[41];
};

const char *cb_channel_name(enum cb_channel channel); /* "shell", … */
int cb_connection_load(const char *path, struct cb_connection *ret_conn, struct cb_err *err);
/* The parser alone: `path` is only used in messages and for ipc's default prefix. Fuzzed. */
int cb_connection_parse(const char *path, const char *text, size_t len, struct cb_connection *ret_conn,
			struct cb_err *err);
/* Writes chosen ports back (atomically, mode 0600), keeping every other key of the file. */
int cb_connection_save_ports(const struct cb_connection *conn, struct cb_err *err);
void cb_connection_release(struct cb_connection *conn); /* wipes the key */
